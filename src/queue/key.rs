//! Keys: exactly what JavaScript says, as bytes.
//!
//! A JavaScript string is a sequence of UTF-16 code units, lone surrogates included. It is kept as
//! WTF-8 (Simon Sapin, "The WTF-8 encoding"): UTF-8, but a lone surrogate is its three bytes. The
//! mapping is one to one, and ASCII is itself.

use ahash::RandomState;

/// Appends the WTF-8 of `units` to `out`.
pub fn from_utf16(units: &[u16], out: &mut Vec<u8>) {
    // Two passes over all of it, which the compiler turns into vector code, cost less than one that may end anywhere.
    if is_ascii(units) {
        out.extend(units.iter().map(|unit| *unit as u8));
        return;
    }
    out.reserve(units.len());
    for unit in char::decode_utf16(units.iter().copied()) {
        match unit {
            Ok(ch) => out.extend_from_slice(ch.encode_utf8(&mut [0; 4]).as_bytes()),
            Err(lone) => {
                let unit = lone.unpaired_surrogate();
                out.extend_from_slice(&[
                    0xE0 | (unit >> 12) as u8,
                    0x80 | (unit >> 6 & 0x3F) as u8,
                    0x80 | (unit & 0x3F) as u8,
                ]);
            }
        }
    }
}

/// Whether every unit is an ASCII character, and so a byte of WTF-8.
fn is_ascii(units: &[u16]) -> bool {
    units.iter().fold(0, |all, unit| all | unit) < 0x80
}

/// Appends the UTF-16 code units of the WTF-8 in `bytes` to `out`. Bytes that are not WTF-8 cannot
/// come from [`from_utf16`]; should they, each becomes U+FFFD.
pub fn to_utf16(bytes: &[u8], out: &mut Vec<u16>) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        out.extend(text.encode_utf16());
        return;
    }
    // Surrogates are what strict UTF-8 refuses.
    let mut at = 0;
    while at < bytes.len() {
        at += unit_at(bytes, at, out);
    }
}

fn unit_at(bytes: &[u8], at: usize, out: &mut Vec<u16>) -> usize {
    let continuation = |i: usize| bytes.get(at + i).filter(|b| **b & 0xC0 == 0x80).map(|b| u32::from(b & 0x3F));
    let first = u32::from(bytes[at]);
    let (len, code) = match (first, continuation(1), continuation(2), continuation(3)) {
        (0..=0x7F, ..) => (1, first),
        (0xC2..=0xDF, Some(a), ..) => (2, (first & 0x1F) << 6 | a),
        (0xE0..=0xEF, Some(a), Some(b), _) => (3, (first & 0xF) << 12 | a << 6 | b),
        (0xF0..=0xF4, Some(a), Some(b), Some(c)) => (4, (first & 7) << 18 | a << 12 | b << 6 | c),
        _ => (1, 0xFFFD),
    };
    match char::from_u32(code) {
        Some(ch) => out.extend_from_slice(ch.encode_utf16(&mut [0; 2])),
        None => out.push(code as u16),
    }
    len
}

/// Whether `bytes` are what [`from_utf16`] makes of some string.
pub fn is_wtf8(bytes: &[u8]) -> bool {
    if std::str::from_utf8(bytes).is_ok() {
        return true;
    }
    let (mut units, mut back) = (Vec::new(), Vec::new());
    to_utf16(bytes, &mut units);
    from_utf16(&units, &mut back);
    back == bytes
}

/// How keys are hashed: seeded at random once a queue, so that no outsider can choose keys that
/// collide. Nothing that a caller can see depends on it.
#[derive(Clone, Debug, Default)]
pub struct KeyHasher(RandomState);

impl KeyHasher {
    /// The hash of a key.
    pub fn hash(&self, key: &[u8]) -> u64 {
        self.0.hash_one(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn there_and_back(units: &[u16]) -> Vec<u8> {
        let mut bytes = Vec::new();
        from_utf16(units, &mut bytes);
        let mut back = Vec::new();
        to_utf16(&bytes, &mut back);
        assert_eq!(back, units);
        bytes
    }

    #[test]
    fn every_string_comes_back_as_it_was() {
        for text in
            ["", "\0", "plain ascii, longer than eight", "naïve", "中文|desktop", "e\u{301} é", "🦀 in the middle"]
        {
            let units: Vec<u16> = text.encode_utf16().collect();
            assert_eq!(there_and_back(&units), text.as_bytes());
        }
    }

    #[test]
    fn lone_surrogates_are_kept_and_distinct() {
        let odd: [&[u16]; 6] = [
            &[0xD800],
            &[0xDFFF],
            &[0xDC00, 0xD800],
            &[0x61, 0xD83E],
            &[0xDD80, 0x61],
            &[0xD83E, 0xD83E, 0xDD80, 0xDD80],
        ];
        let all: std::collections::HashSet<_> = odd.iter().map(|units| there_and_back(units)).collect();
        assert_eq!(all.len(), odd.len());
    }

    #[test]
    fn every_code_unit_alone_and_in_pairs_comes_back() {
        for unit in 0..=u16::MAX {
            there_and_back(&[unit]);
            there_and_back(&[0x61, unit, 0xDC01]);
        }
    }

    #[test]
    fn invalid_bytes_do_not_panic() {
        let pair = [0xED, 0xA0, 0xBD, 0xED, 0xB8, 0x80];
        for bytes in [&[0xFF][..], &[0xE2, 0x82], &[0xF0, 0x9F, 0xA6], &[0x80, 0x61], &[0xC0, 0x80], &pair] {
            to_utf16(bytes, &mut Vec::new());
            assert!(!is_wtf8(bytes), "{bytes:?}");
        }
        assert!(is_wtf8(&pair[..3]), "a lone surrogate");
    }
}
