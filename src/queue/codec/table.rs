//! A set of symbols (byte strings of 2 to [`MAX_SYMBOL`] bytes) that answers: which is the longest of them that a text
//! starts with?

use super::trie::Trie;

/// The longest symbol, bytes: holds `https://www.some-host.co.uk/some/path/` as one.
pub(super) const MAX_SYMBOL: usize = 64;

/// Bytes of a symbol that a comparison loads blindly. As many as the longest has are readable past the start of any.
pub(super) const LOAD: usize = 16;

/// Symbols, each called by a number that its owner gives it.
#[derive(Default)]
pub(super) struct Table {
    /// The symbols' bytes, one after the other; a symbol that starts the next one has no bytes of its own.
    bytes: Vec<u8>,
    /// By number; one of length 0 where there is none.
    spans: Vec<Span>,
    /// The numbers in the order of the symbols, until they are findable.
    order: Vec<u16>,
    trie: Trie,
}

/// Where a symbol's bytes are: offset << 8 | length.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Span(u32);

impl Span {
    pub(super) fn new(offset: usize, length: usize) -> Span {
        Span((offset << 8 | length) as u32)
    }

    #[inline(always)]
    pub(super) fn offset(self) -> usize {
        (self.0 >> 8) as usize
    }

    #[inline(always)]
    pub(super) fn length(self) -> usize {
        (self.0 & 0xFF) as usize
    }

    /// Whether `text` starts with the symbol. `bytes` has [`LOAD`] bytes from any symbol's start on.
    #[inline(always)]
    pub(super) fn starts(self, text: &[u8], bytes: &[u8]) -> bool {
        let (offset, length) = (self.offset(), self.length());
        match (text.first_chunk::<LOAD>(), bytes[offset..].first_chunk::<LOAD>()) {
            // Both loaded whole, then cut: no call, no loop, no branch on the length.
            (Some(text), Some(symbol)) if length <= LOAD => {
                (u128::from_le_bytes(*text) ^ u128::from_le_bytes(*symbol)) & MASK[length] == 0
            }
            _ => text.starts_with(&bytes[offset..offset + length]),
        }
    }
}

/// By length: which bits of a blind load count.
const MASK: [u128; LOAD + 1] = {
    let mut mask = [0; LOAD + 1];
    let mut n = 1;
    while n <= LOAD {
        mask[n] = u128::MAX >> (128 - 8 * n);
        n += 1;
    }
    mask
};

impl Table {
    /// Adds a symbol that sorts after all before it.
    pub(super) fn push(&mut self, symbol: &[u8], number: u16) {
        debug_assert!((2..=MAX_SYMBOL).contains(&symbol.len()));
        let last = self.order.last().map_or(&[][..], |last| self.symbol(*last));
        let shared = if symbol.starts_with(last) { last.len() } else { 0 };
        self.set(number, Span::new(self.bytes.len() - shared, symbol.len()));
        self.bytes.extend_from_slice(&symbol[shared..]);
        self.order.push(number);
    }

    /// Makes the symbols findable; none may be pushed after. `lone` are bytes with numbers of their own, not to be found.
    pub(super) fn finish(&mut self, lone: impl Iterator<Item = (u16, u8)>) {
        let order = std::mem::take(&mut self.order);
        self.trie = Trie::new(&order.iter().map(|number| (self.symbol(*number), *number)).collect::<Vec<_>>());
        for (number, byte) in lone {
            self.set(number, Span::new(self.bytes.len(), 1));
            self.bytes.push(byte);
        }
        self.bytes.extend_from_slice(&[0; MAX_SYMBOL]);
        self.bytes.shrink_to_fit();
        self.spans.shrink_to_fit();
    }

    fn set(&mut self, number: u16, span: Span) {
        if self.spans.len() <= usize::from(number) {
            self.spans.resize(usize::from(number) + 1, Span::default());
        }
        self.spans[usize::from(number)] = span;
    }

    #[inline(always)]
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// One of length 0 where there is none.
    #[inline(always)]
    pub(super) fn span(&self, number: usize) -> Span {
        self.spans.get(number).copied().unwrap_or_default()
    }

    pub(super) fn symbol(&self, number: u16) -> &[u8] {
        let span = self.span(number.into());
        &self.bytes[span.offset()..][..span.length()]
    }

    /// The numbers of all symbols, in the order of these.
    pub(super) fn sorted(&self) -> Vec<u16> {
        let mut numbers: Vec<u16> = (0..self.spans.len() as u16).filter(|n| self.symbol(*n).len() > 1).collect();
        numbers.sort_unstable_by_key(|n| self.symbol(*n));
        numbers
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.bytes.capacity()
            + self.spans.capacity() * size_of::<Span>()
            + self.order.capacity() * 2
            + self.trie.heap_bytes()
    }

    /// The number and length of the longest symbol that `text` has at `at`; the length is 0 where there is none. And how many bytes from
    /// `at` on this depends on, at most; more than there are where it depends on the end of the text.
    #[inline(always)]
    pub(super) fn longest(&self, text: &[u8], at: usize) -> (u16, usize, usize) {
        let rest = &text[at..];
        let ((number, length), looked) = self.trie.reach(rest, usize::MAX);
        let length = usize::from(length);
        if length == 0 {
            return (0, 0, looked);
        }
        let bytes = &self.bytes[self.span(number.into()).offset()..];
        let differ = (load(text, at) ^ load_whole(bytes)) & MASK[length.min(LOAD)];
        if differ != 0 || length > rest.len() {
            return self.longest_within(text, at, number, looked);
        }
        let mut end = length;
        while end > LOAD {
            if rest[..end].last_chunk::<LOAD>() != bytes[..end].last_chunk() {
                return self.longest_within(text, at, number, looked);
            }
            end -= LOAD;
        }
        (number, length, looked.max(length))
    }

    /// [`longest`](Self::longest) where the text does not have all of the symbol that the trie leads to.
    #[cold]
    #[inline(never)]
    fn longest_within(&self, text: &[u8], at: usize, reached: u16, looked: usize) -> (u16, usize, usize) {
        let span = self.span(reached.into());
        let most = span.length().min(text.len() - at);
        let mut shared = 0;
        while shared < most {
            let differ = load(text, at + shared) ^ load_whole(&self.bytes[span.offset() + shared..]);
            shared += differ.trailing_zeros() as usize / 8;
            if differ != 0 {
                break;
            }
        }
        let shared = shared.min(most);
        // The same way, but not as far.
        let ((number, length), _) = self.trie.reach(&text[at..], shared);
        (number, length.into(), looked.max(shared + 1))
    }
}

/// The first [`LOAD`] of `bytes`.
#[inline(always)]
fn load_whole(bytes: &[u8]) -> u128 {
    u128::from_le_bytes(*bytes.first_chunk().expect("bytes to load"))
}

/// [`LOAD`] bytes of `text` from `at`; zeros after its end.
#[inline(always)]
fn load(text: &[u8], at: usize) -> u128 {
    match text[at..].first_chunk::<LOAD>() {
        Some(bytes) => u128::from_le_bytes(*bytes),
        None => load_end(text, text.len() - at),
    }
}

/// The last `n` bytes of `text`, fewer than [`LOAD`].
#[inline(never)]
fn load_end(text: &[u8], n: usize) -> u128 {
    match text.last_chunk::<LOAD>() {
        Some(bytes) => u128::from_le_bytes(*bytes).checked_shr(8 * (LOAD - n) as u32).unwrap_or(0),
        None => text[text.len() - n..].iter().rev().fold(0, |load, byte| load << 8 | u128::from(*byte)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn table(symbols: &[&str]) -> Table {
        let mut sorted = symbols.to_vec();
        sorted.sort_unstable();
        let mut table = Table::default();
        sorted.iter().zip(0..).for_each(|(s, number)| table.push(s.as_bytes(), number));
        table.finish([].into_iter());
        table
    }

    #[test]
    fn longest_finds_what_a_scan_of_all_symbols_finds() {
        let many: Vec<String> = (0..40).map(|n| format!("https://host{n}.com/")).collect();
        let mut symbols =
            vec!["ab", "abc", "abcd", "abd", "abz", "b-", "ba", "abcdefgh", "zz", "abca", "https", "https://host1"];
        symbols.extend(many.iter().map(String::as_str));
        symbols.extend(["https://host7.com/a-path-longer-than-a-load/", "https://host7.com/a-path"]);
        let table = table(&symbols);
        let mut texts: Vec<String> =
            symbols.iter().flat_map(|s| [s.to_string(), format!("{s}x"), format!("{s}a")]).collect();
        texts.extend(symbols.iter().map(|s| s[..s.len() - 1].to_string()));
        texts.extend(
            ["", "a", "abcdefg", "abcb", "ac", "aa", "https://hosu", "https://host7.com/a-path-longer"]
                .map(String::from),
        );
        for text in texts.iter().flat_map(|t| [t.clone(), format!("{t}~~~~~~~~~~~~~~~~")]) {
            let scan = symbols.iter().filter(|s| text.starts_with(*s)).max_by_key(|s| s.len());
            let found = match table.longest(text.as_bytes(), 0) {
                (_, 0, _) => None,
                (number, ..) => Some(table.symbol(number)),
            };
            assert_eq!(found, scan.map(|s| s.as_bytes()), "{text}");
        }
    }

    /// A text that shares much with the others: one of few, cut, and maybe with another byte where loads and symbols end.
    fn alike() -> impl Strategy<Value = Vec<u8>> {
        let places = vec![0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 48, 49, 62, 63];
        let change = (prop::sample::select(places), prop::sample::select(b"\0ab/\xFF".to_vec()));
        (0..3usize, 0..=70usize, prop::option::of(change)).prop_map(|(which, length, change)| {
            let mut text: Vec<u8> = (0..length).map(|n| [b'a', b"ab/"[n % 3], 0][which]).collect();
            if let Some((place, byte)) = change
                && place < length
            {
                text[place] = byte;
            }
            text
        })
    }

    proptest! {
        #[test]
        fn longest_is_the_longest_of_symbols_that_share_long_heads_wherever_the_text_ends(
            symbols in prop::collection::btree_set(alike(), 0..80),
            texts in prop::collection::vec((alike(), 0..40usize, alike()), 1..80),
        ) {
            let symbols: Vec<_> = symbols.into_iter().filter(|s| (2..=MAX_SYMBOL).contains(&s.len())).collect();
            let mut table = Table::default();
            symbols.iter().zip(0..).for_each(|(symbol, number)| table.push(symbol, number));
            table.finish([].into_iter());
            for (before, at, text) in &texts {
                let before = &before[..before.len().min(*at)];
                let scan = symbols.iter().zip(0..).filter(|(s, _)| text.starts_with(s)).max_by_key(|(s, _)| s.len());
                let (number, length, _) = table.longest(&[before, text].concat(), before.len());
                let found = (number, length);
                prop_assert_eq!(found, scan.map_or((0, 0), |(s, number)| (number, s.len())));
            }
        }
    }

    #[test]
    fn a_symbol_that_starts_the_next_takes_no_bytes() {
        assert_eq!(table(&["ab", "abc", "abcd"]).bytes().len(), 4 + MAX_SYMBOL);
    }

    #[test]
    fn a_text_that_has_ended_has_no_symbol() {
        for text in ["", "short", "no shorter than one load", "ends as the symbol begins: ab"] {
            let (number, length, _) = table(&["ab"]).longest(text.as_bytes(), text.len());
            assert_eq!((number, length), (0, 0), "{text}");
        }
    }

    #[test]
    fn an_empty_table_finds_nothing() {
        assert_eq!(table(&[]).longest(b"anything", 0).1, 0);
        assert_eq!(Table::default().longest(b"anything", 0).1, 0);
    }
}
