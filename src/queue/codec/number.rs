//! Runs of decimal digits, packed: random ids are what a dictionary cannot learn, and the bulk of what is left of a key.
//!
//! A run of `digits` becomes one lead byte and `payload` bytes, together 2.0 to 2.3 digits a byte. Where 256^payload
//! is too small for 10^digits, the width has several lead bytes and the lead carries the high part of the value.

/// How runs of one width are packed.
struct Width {
    digits: u8,
    payload: u8,
    /// Lead bytes taken: 10^digits / 256^payload, rounded up.
    leads: u8,
}

/// Widths of 4 and 6 would want 40 and 16 lead bytes: worth less than the one-byte symbols they would displace.
const WIDTHS: [Width; 6] = [
    Width { digits: 3, payload: 1, leads: 4 },
    Width { digits: 5, payload: 2, leads: 2 },
    Width { digits: 7, payload: 3, leads: 1 },
    Width { digits: 8, payload: 3, leads: 6 },
    Width { digits: 9, payload: 4, leads: 1 },
    Width { digits: 10, payload: 4, leads: 3 },
];

/// Lead bytes taken by all widths together.
pub(super) const LEADS: u8 = 17;

/// The longest run that one code holds.
pub(super) const MAX_DIGITS: usize = 10;

/// What one lead byte means.
#[derive(Clone, Copy)]
struct Lead {
    digits: usize,
    payload: usize,
    high: u64,
    limit: u64,
}

const LEAD: [Lead; LEADS as usize] = {
    let mut table = [Lead { digits: 0, payload: 0, high: 0, limit: 0 }; LEADS as usize];
    let (mut at, mut w) = (0, 0);
    while w < WIDTHS.len() {
        let (digits, payload) = (WIDTHS[w].digits, WIDTHS[w].payload);
        let mut k = 0;
        while k < WIDTHS[w].leads {
            table[at] = Lead {
                digits: digits as usize,
                payload: payload as usize,
                high: (k as u64) << (8 * payload as u32),
                limit: 10u64.pow(digits as u32),
            };
            at += 1;
            k += 1;
        }
        w += 1;
    }
    assert!(at == LEADS as usize);
    table
};

/// For a run of 0 to 10 digits (more counts as 10): the width to pack first (0: none) and the first lead byte of it.
const FIRST: [(u8, u8); MAX_DIGITS + 1] =
    [(0, 0), (0, 0), (0, 0), (3, 0), (3, 0), (5, 4), (3, 0), (7, 6), (8, 7), (9, 13), (10, 14)];

/// The length of the digit run at the start of `text`, at most [`MAX_DIGITS`].
#[inline(always)]
pub(super) fn run(text: &[u8]) -> usize {
    let Some(head) = text.first_chunk() else {
        return text.iter().take(MAX_DIGITS).take_while(|b| b.is_ascii_digit()).count();
    };
    const EACH: u128 = u128::MAX / 255;
    // A digit is 0 to 9 above b'0': what is more carries into its byte's top bit.
    let digits = u128::from_le_bytes(*head) ^ (EACH * 0x30);
    let others = (((digits & (EACH * 0x7F)) + EACH * 0x76) | digits) & (EACH * 0x80);
    (others.trailing_zeros() as usize / 8).min(MAX_DIGITS)
}

/// The value of the `digits` digits, one at least, that `text` starts with.
#[inline(always)]
fn value(text: &[u8], digits: usize) -> u64 {
    let (first, rest) = text[..digits].split_at(digits.min(8));
    let eight = match text.first_chunk() {
        // Moved to the end, with zeros before; then neighbours are added, a pair, two pairs and two fours at a time.
        Some(eight) => {
            let ones = (u64::from_le_bytes(*eight) << (64 - 8 * first.len())) & 0x0F0F_0F0F_0F0F_0F0F;
            let twos = ones.wrapping_mul((10 << 8) | 1) >> 8 & 0x00FF_00FF_00FF_00FF;
            let fours = twos.wrapping_mul(100 << 16 | 1) >> 16 & 0x0000_FFFF_0000_FFFF;
            fours.wrapping_mul(10_000 << 32 | 1) >> 32
        }
        None => first.iter().fold(0, |value, b| value * 10 + u64::from(b - b'0')),
    };
    rest.iter().fold(eight, |value, b| value * 10 + u64::from(b - b'0'))
}

/// How much of a run of `digits` to pack into one code; 0 for runs too short.
pub(super) fn split(digits: usize) -> usize {
    usize::from(FIRST[digits.min(MAX_DIGITS)].0)
}

/// The code of the `digits` digits, as many as [`split`] gave, that `text` starts with, lowest byte first, and its length. `base` is
/// the first number lead byte.
#[inline(always)]
pub(super) fn encode(text: &[u8], digits: usize, base: u8) -> (u64, usize) {
    let (width, lead) = FIRST[digits];
    debug_assert_eq!(usize::from(width), digits);
    let payload = LEAD[usize::from(lead)].payload;
    let value = value(text, digits);
    let (high, low) = (value >> (8 * payload), value & !(!0 << (8 * payload)));
    ((u64::from(base + lead) + high) | (low << 8), 1 + payload)
}

/// Reads the number whose lead byte is the `lead`th and whose payload `rest` starts with: its digit count, its value,
/// and the payload bytes read. The digit count is 0 for a value that no run of digits has. `None`: `rest` ends early.
#[inline]
pub(super) fn decode(lead: u8, rest: &[u8]) -> Option<(usize, u64, usize)> {
    let Lead { digits, payload, high, limit } = LEAD[usize::from(lead)];
    let low = match rest.first_chunk() {
        // As many as any width has, then cut.
        Some(four) => u64::from(u32::from_le_bytes(*four)) & !(!0 << (8 * payload)),
        None => rest.get(..payload)?.iter().rev().fold(0, |value, b| value << 8 | u64::from(*b)),
    };
    let value = low | high;
    Some((if value < limit { digits } else { 0 }, value, payload))
}

/// The eight digits of `value`, the first in the lowest byte: halves, quarters and eighths of it are parted side by side.
#[inline(always)]
fn eight(value: u64) -> u64 {
    let fours = (value / 10_000) | ((value % 10_000) << 32);
    let hundreds = ((fours * 5_243) >> 19) & 0x0000_007F_0000_007F;
    let twos = hundreds | ((fours - hundreds * 100) << 16);
    let tens = ((twos * 103) >> 10) & 0x000F_000F_000F_000F;
    tens | ((twos - tens * 10) << 8)
}

/// `value` as exactly `digits` digits, and zeros behind them.
#[inline]
pub(super) fn text(value: u64, digits: usize) -> [u8; 16] {
    const ZEROS: u128 = u128::MAX / 255 * 0x30;
    let sixteen = u128::from(eight(value / 100_000_000)) | (u128::from(eight(value % 100_000_000)) << 64);
    (sixteen | ZEROS).checked_shr(8 * (16 - digits) as u32).unwrap_or(0).to_le_bytes()
}

/// Whether `text` starts with the `digits` digits of `value`.
#[inline]
pub(super) fn starts(text: &[u8], digits: usize, value: u64) -> bool {
    let Some(text) = text.get(..digits) else { return false };
    let mut read = 0u64;
    let mut odd = false;
    for b in text {
        let digit = b.wrapping_sub(b'0');
        odd |= digit > 9;
        read = read.wrapping_mul(10).wrapping_add(u64::from(digit));
    }
    read == value && !odd
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_agrees_with_the_widths() {
        let mut lead = 0;
        for w in &WIDTHS {
            assert_eq!(FIRST[usize::from(w.digits)], (w.digits, lead));
            let values = u64::from(w.leads) << (8 * w.payload);
            assert!(values >= 10u64.pow(u32::from(w.digits)), "{} digits do not fit", w.digits);
            lead += w.leads;
        }
        assert_eq!(lead, LEADS);
    }

    #[test]
    fn a_run_ends_at_any_byte_but_a_digit_wherever_the_text_ends() {
        for digits in 0..=MAX_DIGITS {
            for b in (0..=255u8).filter(|b| !b.is_ascii_digit()) {
                let text = [&b"9081726354"[..digits], &[b], &b"0".repeat(16)].concat();
                for end in digits..text.len() {
                    assert_eq!(run(&text[..end]), digits, "{text:?}");
                }
            }
        }
        assert_eq!(run(&b"7".repeat(40)), MAX_DIGITS);
    }

    #[test]
    fn a_value_does_not_depend_on_what_follows_its_digits() {
        for digits in 1..=MAX_DIGITS {
            let text = [&b"9081726354"[..digits], &[0xFF; 16]].concat();
            let wanted = text[..digits].iter().fold(0, |value, b| value * 10 + u64::from(b - b'0'));
            (digits..text.len()).for_each(|end| assert_eq!(value(&text[..end], digits), wanted));
        }
    }

    #[test]
    fn every_width_round_trips_at_its_ends() {
        for w in &WIDTHS {
            let top = 10u64.pow(u32::from(w.digits)) - 1;
            for value in [0, 1, 9, top / 2, top - 1, top] {
                let text = format!("{value:0width$}", width = usize::from(w.digits));
                let (code, bytes) = encode(text.as_bytes(), text.len(), 100);
                let code = &code.to_le_bytes()[..bytes];
                assert_eq!(code.len(), 1 + usize::from(w.payload));
                let (digits, read, used) = decode(code[0] - 100, &code[1..]).unwrap();
                assert_eq!((digits, read, used), (text.len(), value, code.len() - 1));
                assert_eq!(&super::text(read, digits)[..digits], text.as_bytes());
                assert!(starts(text.as_bytes(), digits, value));
                assert!(!starts(text.as_bytes(), digits, value + 1));
                assert!(!starts(&text.as_bytes()[1..], digits, value));
            }
        }
    }

    #[test]
    fn no_byte_but_a_digit_reads_as_one() {
        for b in 0..=255u8 {
            assert_eq!(starts(&[b'1', b, b'3'], 3, 103), b == b'0');
        }
    }
}
