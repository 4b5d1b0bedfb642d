//! Which node owns a URL: rendezvous hashing over this node and its named peers.
//!
//! Every node must come to the same answer as every other, and as the JavaScript that came before, so the hash runs
//! over UTF-16 code units: what a JavaScript string is made of. URLs arrive here as WTF-8, the bytes that such a string
//! has when its lone surrogates are kept.

use std::iter;

/// FNV-1a, 32 bits: where it starts, and what it multiplies by.
const START: u32 = 2_166_136_261;
const PRIME: u32 = 16_777_619;

/// This node and its named peers: sorted by UTF-16 code unit order, de-duplicated.
///
/// ```
/// use queue_keeper::queue::owner::Ring;
///
/// let ring = Ring::new("b", &["a".into(), "b".into(), "".into()]);
/// assert_eq!(ring.nodes(), ["a", "b"]);
/// assert_eq!(ring.owns(b"https://example.com/"), ring.owner(b"https://example.com/") == "b");
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ring {
    nodes: Vec<String>,
    /// The code units of each name, so that hashing a URL decodes the URL alone.
    units: Vec<Box<[u16]>>,
    /// This node's place in `nodes`.
    own: usize,
}

impl Ring {
    /// The ring of `node` and its `peers`. Empty peer names are ignored, and `node` may be among its own peers.
    pub fn new(node: &str, peers: &[String]) -> Ring {
        let named = peers.iter().map(String::as_str).filter(|peer| !peer.is_empty());
        let mut names: Vec<&str> = iter::once(node).chain(named).collect();
        // Not the order of `str`: a name beyond the BMP sorts before U+E000..U+FFFF in JavaScript, and order settles ties.
        names.sort_by(|a, b| a.encode_utf16().cmp(b.encode_utf16()));
        names.dedup();
        let own = names.iter().position(|&name| name == node).unwrap_or(0);
        Ring {
            units: names.iter().map(|name| name.encode_utf16().collect()).collect(),
            nodes: names.into_iter().map(str::to_owned).collect(),
            own,
        }
    }

    /// All nodes of the ring, this one included, in order.
    pub fn nodes(&self) -> &[String] {
        &self.nodes
    }

    /// This node.
    pub fn node(&self) -> &str {
        &self.nodes[self.own]
    }

    /// The node with the highest hash of `url + "|" + node`, the first in order on a tie.
    pub fn owner(&self, url: &[u8]) -> &str {
        let state = before_node(url);
        let mut best = (0, hash_units(state, &self.units[0]));
        for (place, units) in self.units.iter().enumerate().skip(1) {
            let hash = hash_units(state, units);
            if hash > best.1 {
                best = (place, hash);
            }
        }
        &self.nodes[best.0]
    }

    /// Whether this node is the [`owner`](Ring::owner). With no peers it is, whatever the URL.
    pub fn owns(&self, url: &[u8]) -> bool {
        if self.nodes.len() == 1 {
            return true;
        }
        let state = before_node(url);
        let own = hash_units(state, &self.units[self.own]);
        self.units.iter().enumerate().all(|(place, units)| {
            let hash = hash_units(state, units);
            // A peer earlier in order wins a tie, a later one loses it; our own place always passes.
            hash < own || (hash == own && place >= self.own)
        })
    }
}

/// The state every node's hash of `url` goes on from.
fn before_node(url: &[u8]) -> u32 {
    step(hash(START, url), u16::from(b'|'))
}

fn step(state: u32, unit: u16) -> u32 {
    (state ^ u32::from(unit)).wrapping_mul(PRIME)
}

fn hash_units(state: u32, units: &[u16]) -> u32 {
    units.iter().fold(state, |state, &unit| step(state, unit))
}

fn hash(mut state: u32, wtf8: &[u8]) -> u32 {
    let mut at = 0;
    while at < wtf8.len() {
        // Nearly every URL is ASCII from end to end, where bytes and units are the same. The look at each byte is free:
        // the multiplications wait for one another, and it does not wait for them.
        if wtf8[at] < 0x80 {
            state = step(state, u16::from(wtf8[at]));
            at += 1;
        } else {
            let (units, length) = decode(&wtf8[at..]);
            state = hash_units(state, units.as_slice());
            at += length;
        }
    }
    state
}

/// The UTF-16 code units of a WTF-8 text. A byte that is not WTF-8 counts as the unit of its own value.
pub(super) fn utf16_units(mut wtf8: &[u8]) -> impl Iterator<Item = u16> {
    iter::from_fn(move || {
        if wtf8.is_empty() {
            return None;
        }
        let (units, length) = decode(wtf8);
        wtf8 = &wtf8[length..];
        Some(units)
    })
    .flat_map(Units::into_iter)
}

/// One or two code units: those of one code point.
struct Units {
    units: [u16; 2],
    count: usize,
}

impl Units {
    fn one(unit: u16) -> Units {
        Units { units: [unit, 0], count: 1 }
    }

    fn as_slice(&self) -> &[u16] {
        &self.units[..self.count]
    }

    fn into_iter(self) -> impl Iterator<Item = u16> {
        self.units.into_iter().take(self.count)
    }
}

/// The units of the first code point of a text that is not empty, and how many bytes it takes.
fn decode(wtf8: &[u8]) -> (Units, usize) {
    let continued = |at: usize| u32::from(wtf8[at] & 0x3F);
    // What follows a lead byte is checked as in UTF-8 (no overlong form, nothing past U+10FFFF), less the one rule
    // that WTF-8 drops: ED A0..BF, the surrogates, may stand.
    match *wtf8 {
        [lead @ 0xC2..=0xDF, 0x80..=0xBF, ..] => (Units::one(u16::from(lead & 0x1F) << 6 | continued(1) as u16), 2),
        [0xE0, 0xA0..=0xBF, 0x80..=0xBF, ..] | [0xE1..=0xEF, 0x80..=0xBF, 0x80..=0xBF, ..] => {
            let unit = u32::from(wtf8[0] & 0x0F) << 12 | continued(1) << 6 | continued(2);
            (Units::one(unit as u16), 3)
        }
        [0xF0, 0x90..=0xBF, 0x80..=0xBF, 0x80..=0xBF, ..]
        | [0xF1..=0xF3, 0x80..=0xBF, 0x80..=0xBF, 0x80..=0xBF, ..]
        | [0xF4, 0x80..=0x8F, 0x80..=0xBF, 0x80..=0xBF, ..] => {
            let point = u32::from(wtf8[0] & 0x07) << 18 | continued(1) << 12 | continued(2) << 6 | continued(3);
            let above = point - 0x1_0000;
            let units = [0xD800 | (above >> 10) as u16, 0xDC00 | (above & 0x3FF) as u16];
            (Units { units, count: 2 }, 4)
        }
        _ => (Units::one(u16::from(wtf8[0])), 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// WTF-8 from UTF-16 code units, as the addon hands keys over.
    fn wtf8(units: &[u16]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for item in char::decode_utf16(units.iter().copied()) {
            match item {
                Ok(char) => bytes.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes()),
                Err(lone) => {
                    let unit = lone.unpaired_surrogate();
                    bytes.extend([0xED, 0x80 | (unit >> 6 & 0x3F) as u8, 0x80 | (unit & 0x3F) as u8]);
                }
            }
        }
        bytes
    }

    fn with(prefix: &str, units: &[u16]) -> Vec<u8> {
        let mut all: Vec<u16> = prefix.encode_utf16().collect();
        all.extend(units);
        wtf8(&all)
    }

    fn ring(node: &str, peers: &[&str]) -> Ring {
        Ring::new(node, &peers.iter().map(|peer| peer.to_string()).collect::<Vec<_>>())
    }

    // The numbers of the tests below were computed in Node, with `Math.imul` over `charCodeAt`.

    #[test]
    fn the_hash_is_what_javascript_computes_over_code_units() {
        let site = "https://example.com/";
        for (key, expected) in [
            (b"".to_vec(), 2_166_136_261),
            (b"a".to_vec(), 3_826_002_220),
            (b"\0".to_vec(), 84_696_351),
            (with(site, &[]), 3_774_601_396),
            (with("https://example.com/a?b=c#d", &[]), 4_217_253_489),
            (with("https://example.com/müsli", &[]), 2_783_264_729),
            (with("https://example.com/日本語", &[]), 1_930_889_561),
            (with("https://example.com/\u{1F600}", &[]), 990_001_201),
            (with(site, &[0xD800]), 3_743_554_396),
            (with(site, &[0xDC00, b'x'.into()]), 1_889_164_716),
            (with(site, &[0xDC00, 0xD800]), 2_837_790_164),
            (with("\u{FFFF}\u{10FFFF}\u{10000}", &[]), 114_963_444),
            (with("é|node-a", &[]), 779_636_974),
        ] {
            assert_eq!(hash(START, &key), expected, "{}", String::from_utf8_lossy(&key));
        }
    }

    #[test]
    fn the_owner_is_the_node_that_javascript_chooses() {
        let ring = ring("node-b", &["node-c", "node-a", "\u{FF5E}", "knöten", "\u{1F600}"]);
        let site = "https://example.com/";
        for (url, owner) in [
            (with(site, &[]), "\u{1F600}"),
            (with("https://example.com/1", &[]), "node-c"),
            (with("https://example.com/2", &[]), "node-b"),
            (with("https://example.com/3", &[]), "\u{1F600}"),
            (with("https://example.com/4", &[]), "knöten"),
            (with("https://example.com/müsli", &[]), "knöten"),
            (with("https://example.com/\u{1F600}", &[]), "node-a"),
            (with(site, &[0xD800]), "\u{FF5E}"),
            (with("https://example.com/日本語", &[]), "\u{FF5E}"),
        ] {
            assert_eq!(ring.owner(&url), owner);
        }
        let digest = (0..10_000).fold(0_u32, |digest, page| {
            let owner = ring.owner(format!("https://example.com/p/{page}").as_bytes());
            let place = ring.nodes().iter().position(|node| node == owner).unwrap();
            digest.wrapping_mul(31).wrapping_add(place as u32)
        });
        assert_eq!(digest, 723_398_042);
    }

    #[test]
    fn nodes_are_sorted_by_code_unit_without_duplicates_or_empty_names() {
        let ring = ring("node-b", &["\u{FF5E}", "", "node-b", "\u{1F600}", "node-a", "node-a", "Node"]);
        assert_eq!(ring.nodes(), ["Node", "node-a", "node-b", "\u{1F600}", "\u{FF5E}"]);
        assert_eq!(ring.node(), "node-b");
    }

    #[test]
    fn the_order_in_which_peers_are_named_changes_nothing() {
        assert_eq!(ring("b", &["a", "c"]), ring("b", &["c", "b", "a", "c"]));
    }

    #[test]
    fn without_peers_this_node_owns_every_url() {
        for ring in [ring("only", &[]), ring("only", &["", "only"]), ring("", &[])] {
            for url in [&b""[..], b"https://example.com/", b"\xFF\xED\xA0"] {
                assert!(ring.owns(url));
                assert_eq!(ring.owner(url), ring.node());
            }
        }
    }

    #[test]
    fn each_url_has_one_owner_and_all_nodes_agree_on_it() {
        let names = ["a", "b", "c", "d", "a-longer-name.example.com"];
        let rings = names.map(|node| ring(node, &names));
        let mut owned = [0; 5];
        for page in 0..5_000 {
            let url = format!("https://example.com/{page}");
            let owners: Vec<usize> = (0..5).filter(|&at| rings[at].owns(url.as_bytes())).collect();
            assert_eq!(owners.len(), 1, "{url}");
            assert!(rings.iter().all(|ring| ring.owner(url.as_bytes()) == names[owners[0]]));
            owned[owners[0]] += 1;
        }
        assert!(owned.iter().all(|&share| share > 0), "{owned:?}");
    }

    #[test]
    fn on_a_tie_the_first_in_order_owns() {
        for (first, second, hash_of_both) in [
            ("n6twc5q", "nonzhn5", 468_240_506),
            ("nhl447d", "nss89dr", 3_186_624_339),
            ("nbkjvua", "nfixgvu", 4_079_326_589),
            ("n1h6mv1", "nzhg9ab", 4_167_223_085),
        ] {
            let url = b"https://example.com/tie";
            for node in [first, second] {
                assert_eq!(hash(START, format!("https://example.com/tie|{node}").as_bytes()), hash_of_both);
            }
            assert_eq!(ring(second, &[first]).owner(url), first);
            assert!(ring(first, &[second]).owns(url));
            assert!(!ring(second, &[first]).owns(url));
        }
    }

    #[test]
    fn any_bytes_can_be_hashed_and_a_broken_one_counts_as_its_value() {
        let units = |bytes: &[u8]| utf16_units(bytes).collect::<Vec<_>>();
        assert_eq!(units(b"a\xFFb"), [0x61, 0xFF, 0x62]);
        assert_eq!(units(b"\x80\xC3"), [0x80, 0xC3]);
        assert_eq!(units(b"\xC0\x80"), [0xC0, 0x80], "overlong");
        assert_eq!(units(b"\xE0\x80\x80"), [0xE0, 0x80, 0x80], "overlong");
        assert_eq!(units(b"\xF4\x90\x80\x80"), [0xF4, 0x90, 0x80, 0x80], "past U+10FFFF");
        assert_eq!(units(b"\xED\xA0\x80\xED\xB0\x80"), [0xD800, 0xDC00]);
        // Every start of a text that ends too early, and every pair of bytes.
        let text = with("a\u{7FF}\u{FFFF}\u{10FFFF}", &[0xDFFF]);
        for end in 0..text.len() {
            hash(START, &text[..end]);
        }
        for pair in 0..=u16::MAX {
            let bytes = pair.to_be_bytes();
            let expected = utf16_units(&bytes).fold(START, step);
            assert_eq!(hash(START, &bytes), expected);
        }
    }

    #[test]
    fn every_code_unit_survives_the_way_through_wtf8() {
        let all: Vec<u16> = (0..=u16::MAX).collect();
        assert!(utf16_units(&wtf8(&all)).eq(all.iter().copied()));
        for point in '\u{10000}'..=char::MAX {
            let text = point.to_string();
            assert!(utf16_units(text.as_bytes()).eq(text.encode_utf16()));
        }
    }
}
