//! A sorted set of symbols (byte strings of 2 to [`MAX_SYMBOL`] bytes) that answers: which is the longest of them that
//! a text starts with?

/// The longest symbol, bytes: holds `https://www.some-host.co.uk/some/path/` as one.
pub(super) const MAX_SYMBOL: usize = 64;

/// Bytes readable past the start of any symbol, so that a comparison can load them blindly.
pub(super) const LOAD: usize = 16;

const NONE: u16 = u16::MAX;

/// Lengths of heads: symbols that share one are looked through, so there must be few.
const HEADS: [usize; 4] = [2, 3, 4, 8];

/// Buckets of more symbols than this are searched by halves.
const SCAN: u16 = 6;

/// Symbols in ascending byte order; a symbol's place in it is its rank.
#[derive(Default)]
pub(super) struct Table {
    /// The symbols' bytes, one after the other; a symbol that starts the next one has no bytes of its own.
    bytes: Vec<u8>,
    symbols: Vec<Symbol>,
    /// The symbols by their first bytes, as many as [`HEADS`] says, the most that each of them has.
    heads: [Heads; HEADS.len()],
}

struct Symbol {
    span: Span,
    /// The longest other symbol that this one starts with, or [`NONE`].
    parent: u16,
    /// What the symbol is called in a code; the owner's.
    name: u16,
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

    /// Whether the symbol sorts before `text`, or is it.
    #[inline(always)]
    fn not_after(self, text: &[u8], bytes: &[u8]) -> bool {
        let (offset, length) = (self.offset(), self.length());
        if let (Some(head), Some(symbol)) = (text.first_chunk::<LOAD>(), bytes[offset..].first_chunk::<LOAD>()) {
            let head = u128::from_be_bytes(*head);
            // Cut by its length, a shorter symbol sorts by the zeros after it: not after any text that it starts.
            let symbol = (u128::from_le_bytes(*symbol) & MASK[length.min(LOAD)]).swap_bytes();
            if head != symbol {
                return symbol < head;
            }
        }
        &bytes[offset..offset + length] <= text
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
    pub(super) fn push(&mut self, symbol: &[u8], name: u16) {
        debug_assert!((2..=MAX_SYMBOL).contains(&symbol.len()));
        let mut parent = self.len().checked_sub(1).map_or(NONE, |last| last as u16);
        let mut shared = 0;
        if parent != NONE && symbol.starts_with(self.symbol(parent)) {
            shared = self.symbol(parent).len();
        }
        while parent != NONE && !symbol.starts_with(self.symbol(parent)) {
            parent = self.symbols[usize::from(parent)].parent;
        }
        let span = Span::new(self.bytes.len() - shared, symbol.len());
        self.bytes.extend_from_slice(&symbol[shared..]);
        self.symbols.push(Symbol { span, parent, name });
    }

    /// Makes the symbols findable and appends `more` to the bytes; none may be pushed after.
    pub(super) fn finish(&mut self, more: &[u8]) {
        let mut buckets = HEADS.map(|_| Vec::<Bucket>::new());
        for rank in 0..self.len() as u16 {
            let symbol = self.symbol(rank);
            let place = HEADS.iter().rposition(|n| *n <= symbol.len()).expect("a symbol has two bytes");
            let head = head(symbol, HEADS[place]);
            let buckets = &mut buckets[place];
            match buckets.last_mut() {
                Some(last) if last.head == head => last.to = rank + 1,
                _ => buckets.push(Bucket { head, from: rank, to: rank + 1 }),
            }
        }
        self.heads = buckets.map(|b| Heads::new(&b));
        self.bytes.reserve_exact(more.len() + LOAD);
        self.bytes.extend_from_slice(more);
        self.bytes.extend_from_slice(&[0; LOAD]);
        self.bytes.shrink_to_fit();
        self.symbols.shrink_to_fit();
    }

    pub(super) fn len(&self) -> usize {
        self.symbols.len()
    }

    #[inline(always)]
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn span(&self, rank: u16) -> Span {
        self.symbols[usize::from(rank)].span
    }

    pub(super) fn name(&self, rank: u16) -> u16 {
        self.symbols[usize::from(rank)].name
    }

    pub(super) fn symbol(&self, rank: u16) -> &[u8] {
        let span = self.span(rank);
        &self.bytes[span.offset()..][..span.length()]
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.bytes.capacity()
            + self.symbols.capacity() * size_of::<Symbol>()
            + self
                .heads
                .iter()
                .map(|h| h.buckets.capacity() * size_of::<Bucket>() + h.filter.capacity() * 8)
                .sum::<usize>()
    }

    /// The last of the symbols `from..to` that does not sort after `text`.
    ///
    /// All between a prefix of the text and the text start with that prefix, so the longest symbol that the text starts
    /// with is this one or an ancestor of it.
    fn not_after(&self, from: u16, to: u16, text: &[u8]) -> Option<u16> {
        let (mut low, mut high) = (from, to);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.symbols[usize::from(middle)].span.not_after(text, &self.bytes) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        (low > from).then(|| low - 1)
    }

    /// The rank and length of the longest symbol that `text` starts with.
    #[inline]
    pub(super) fn longest(&self, text: &[u8]) -> Option<(u16, usize)> {
        HEADS.iter().zip(&self.heads).rev().filter(|(n, _)| **n <= text.len()).find_map(|(n, heads)| {
            let (from, to) = heads.find(head(text, *n))?;
            // A longer prefix of the text sorts after a shorter one: the last to fit is the longest.
            let mut rank = to - 1;
            if to - from > SCAN {
                rank = self.not_after(from, to, text)?;
                while rank != NONE {
                    let symbol = &self.symbols[usize::from(rank)];
                    if symbol.span.starts(text, &self.bytes) {
                        return Some((rank, symbol.span.length()));
                    }
                    rank = symbol.parent;
                }
                return None;
            }
            loop {
                let span = self.symbols[usize::from(rank)].span;
                if span.starts(text, &self.bytes) {
                    return Some((rank, span.length()));
                }
                if rank == from {
                    return None;
                }
                rank -= 1;
            }
        })
    }
}

/// The first `n` bytes of `text`, at most eight, as a number.
#[inline(always)]
fn head(text: &[u8], n: usize) -> [u32; 2] {
    let head = match text.first_chunk::<8>() {
        Some(bytes) => u64::from_le_bytes(*bytes) & (u64::MAX >> (64 - 8 * n)),
        None => text[..n].iter().rev().fold(0, |head, byte| head << 8 | u64::from(*byte)),
    };
    [head as u32, (head >> 32) as u32]
}

/// The ranks of the symbols with one head; none where `from == to`.
#[derive(Clone, Copy, Default)]
struct Bucket {
    /// In halves, so that a bucket takes twelve bytes.
    head: [u32; 2],
    from: u16,
    to: u16,
}

/// Buckets by head: open addressing, three quarters full.
#[derive(Default)]
struct Heads {
    buckets: Vec<Bucket>,
    /// A bit for each hash that is there: most heads asked for are not, and a full table is slow to say so.
    filter: Vec<u64>,
}

/// Bits of filter for each bucket.
const FILTER: usize = 8;

impl Heads {
    fn new(all: &[Bucket]) -> Heads {
        let mut heads = Heads {
            buckets: vec![Bucket::default(); all.len() + all.len() / 3 + 1],
            filter: vec![0; all.len() * FILTER / 64 + 1],
        };
        for bucket in all {
            let bit = scale(bucket.head, heads.filter.len() * 64);
            heads.filter[bit / 64] |= 1 << (bit % 64);
            let mut at = scale(bucket.head, heads.buckets.len());
            while heads.buckets[at].from != heads.buckets[at].to {
                at = heads.after(at);
            }
            heads.buckets[at] = *bucket;
        }
        heads
    }

    #[inline(always)]
    fn after(&self, at: usize) -> usize {
        if at + 1 < self.buckets.len() { at + 1 } else { 0 }
    }

    #[inline(always)]
    fn find(&self, head: [u32; 2]) -> Option<(u16, u16)> {
        let bit = scale(head, self.filter.len() * 64);
        if self.filter.get(bit / 64)? >> (bit % 64) & 1 == 0 {
            return None;
        }
        let mut at = scale(head, self.buckets.len());
        loop {
            let bucket = self.buckets[at];
            if bucket.from == bucket.to {
                return None;
            }
            if bucket.head == head {
                return Some((bucket.from, bucket.to));
            }
            at = self.after(at);
        }
    }
}

/// A hash of `head`, below `size`: scaled, not masked, so that any size will do.
#[inline(always)]
fn scale(head: [u32; 2], size: usize) -> usize {
    let head = u64::from(head[0]) | u64::from(head[1]) << 32;
    (((head.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) * size as u64) >> 32) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(symbols: &[&str]) -> Table {
        let mut sorted = symbols.to_vec();
        sorted.sort_unstable();
        let mut table = Table::default();
        sorted.iter().for_each(|s| table.push(s.as_bytes(), 0));
        table.finish(&[]);
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
            let found = table.longest(text.as_bytes()).map(|(rank, _)| table.symbol(rank));
            assert_eq!(found, scan.map(|s| s.as_bytes()), "{text}");
        }
    }

    #[test]
    fn a_symbol_that_starts_the_next_takes_no_bytes() {
        assert_eq!(table(&["ab", "abc", "abcd"]).bytes().len(), 4 + LOAD);
    }

    #[test]
    fn an_empty_table_finds_nothing() {
        assert!(table(&[]).longest(b"anything").is_none());
        assert!(Table::default().longest(b"anything").is_none());
    }
}
