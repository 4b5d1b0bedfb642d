//! The symbols as a blind trie (Patricia) in a double array: a text finds the one symbol to compare it with.
//!
//! A node says at which byte of the text the symbols below it part, and skips those before. So a level costs one load,
//! and a text goes down four of them on average. Whether the bytes skipped are the text's, is for the caller to see.

use super::table::MAX_SYMBOL;

/// Slots at most: keeps a codec below 128 KiB. Symbols of words take less than 5,000.
const MAX_SLOTS: usize = 34 << 8;

/// A symbol's number, and its length: 0 where there is no symbol.
pub(super) type Ending = (u16, u8);

#[derive(Clone, Copy)]
struct Node {
    /// The child by a byte is in slot `base + byte`, if the node there is `by` it: no two nodes have the same base.
    base: u16,
    /// The byte of the text that says which child is next.
    depth: u8,
    by: u8,
    /// The longest symbol that ends here or above.
    symbol: Ending,
}

impl Node {
    /// One without children: no text is looked at so far in.
    fn leaf(by: u8, symbol: Ending) -> Node {
        Node { base: 0, depth: MAX_SYMBOL as u8, by, symbol }
    }
}

#[derive(Default)]
pub(super) struct Trie {
    /// By slot, the root's first. An empty slot holds a leaf by a byte that leads there from multiples of 256 only:
    /// these are no bases.
    nodes: Vec<Node>,
}

impl Trie {
    /// Of these symbols and their numbers, in ascending order.
    ///
    /// What finds no room is left out, so is never found: that takes thousands of symbols without any likeness.
    pub(super) fn new(symbols: &[(&[u8], u16)]) -> Trie {
        let mut trie = Trie { nodes: vec![Node::leaf(0, (0, 0))] };
        if !symbols.is_empty() {
            trie.grow(0, symbols, 0, (0, 0), &mut Room::new());
        }
        trie.nodes.shrink_to_fit();
        trie
    }

    /// Makes the node of `symbols`, which share the first `depth` bytes, and all that is below it.
    fn grow(&mut self, slot: usize, symbols: &[(&[u8], u16)], depth: usize, above: Ending, room: &mut Room) {
        let ((first, number), (last, _)) = (symbols[0], symbols[symbols.len() - 1]);
        let by = if depth > 0 { first[depth - 1] } else { 0 };
        if symbols.len() == 1 {
            self.nodes[slot] = Node::leaf(by, (number, first.len() as u8));
            return;
        }
        let depth = depth + first[depth..].iter().zip(&last[depth..]).take_while(|(a, b)| a == b).count();
        let (symbol, below) =
            if first.len() == depth { ((number, depth as u8), &symbols[1..]) } else { (above, symbols) };
        self.nodes[slot] = Node::leaf(by, symbol);
        let children: Vec<_> = below.chunk_by(|(a, _), (b, _)| a[depth] == b[depth]).collect();
        let bytes: Vec<_> = children.iter().map(|child| child[0].0[depth]).collect();
        let Some(base) = room.take(&bytes) else { return };
        self.nodes[slot] = Node { base: base as u16, depth: depth as u8, by, symbol };
        let end = base + usize::from(bytes[bytes.len() - 1]) + 1;
        self.nodes.extend((self.nodes.len()..end).map(|slot| Node::leaf(slot as u8, (0, 0))));
        for (child, byte) in children.into_iter().zip(bytes) {
            self.grow(base + usize::from(byte), child, depth + 1, symbol, room);
        }
    }

    /// Of the symbols on the way down that `text` shows, the longest of at most `most` bytes. All the symbols that
    /// `text` starts with are on that way: they are those with no more bytes than it shares with the last one there.
    ///
    /// With it, how many bytes of `text` the way depends on, more than there are where it ends for want of them.
    #[inline(always)]
    pub(super) fn reach(&self, text: &[u8], most: usize) -> (Ending, usize) {
        let text = &text[..text.len().min(MAX_SYMBOL)];
        let fits = |node: &Node| usize::from(node.symbol.1) <= most;
        let Some(mut node) = self.nodes.first().filter(|root| fits(root)) else { return ((0, 0), 0) };
        let mut looked = 0;
        loop {
            // A leaf looks at nothing.
            let depth = usize::from(node.depth);
            looked = if depth < MAX_SYMBOL { depth + 1 } else { looked };
            let Some(byte) = text.get(depth) else { break };
            match self.nodes.get(usize::from(node.base) + usize::from(*byte)) {
                Some(child) if child.by == *byte && fits(child) => node = child,
                _ => break,
            }
        }
        (node.symbol, looked)
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.nodes.capacity() * size_of::<Node>()
    }
}

/// How many words of bases before the last slot are looked through for one: more would find little.
const LOOK_BACK: usize = 16;

/// Which slots and bases are taken while a trie grows, a bit for each.
struct Room {
    slots: [u64; MAX_SLOTS / 64],
    bases: [u64; MAX_SLOTS / 64],
    /// The last word of `slots` with one taken.
    last: usize,
}

impl Room {
    fn new() -> Room {
        // The multiples of 256 are no bases.
        Room { slots: [0; _], bases: std::array::from_fn(|word| u64::from(word % 4 == 0)), last: 0 }
    }

    /// Takes the first base that has a free slot for each of `bytes`, which ascend: 64 are tried at once.
    fn take(&mut self, bytes: &[u8]) -> Option<usize> {
        let greatest = usize::from(*bytes.last()?);
        let (word, free) = (self.last.saturating_sub(LOOK_BACK)..self.slots.len()).find_map(|word| {
            let free = |free, byte: &u8| free & self.free(word * 64 + usize::from(*byte));
            let free = bytes.iter().fold(!self.bases[word], free);
            (free != 0).then_some((word, free))
        })?;
        let base = word * 64 + free.trailing_zeros() as usize;
        self.bases[word] |= 1 << (base % 64);
        for at in bytes.iter().map(|byte| base + usize::from(*byte)) {
            self.slots[at / 64] |= 1 << (at % 64);
        }
        self.last = self.last.max((base + greatest) / 64);
        Some(base)
    }

    /// Which of the 64 slots from `at` on are free; those past the end are not.
    fn free(&self, at: usize) -> u64 {
        let word = |n: usize| u128::from(!self.slots.get(n).copied().unwrap_or(u64::MAX));
        ((word(at / 64) | word(at / 64 + 1) << 64) >> (at % 64)) as u64
    }
}
