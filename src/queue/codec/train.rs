//! Learns a [`Codec`] from a sample of keys, in small steps.
//!
//! A key is cut into units: a word with the separators after it (`hiking-`, `https://`). The units seen twice or more
//! become symbols. Then come rounds: cut the sample as the encoder would, count the symbols and the pairs of
//! neighbours, join the pairs that save most, drop the symbols that save least. Symbols and bytes seen most get the
//! one-byte codes.
//!
//! A join either stays within a unit or ends where a unit ends. So the longest symbol is nearly always the right one
//! to take: it never swallows the `-c` that leaves a word without its head.
//!
//! Units seen once take part in no round, so they are spelled from fragments: that is how the fragments are learned
//! that spell the words which no sample has. At the end they get the two-byte codes left over.
//!
//! All maps are ordered ones: they never re-hash, so no step outgrows its share, and the same sample always gives the
//! same codec.

use std::collections::BTreeMap;
use std::mem;
use std::ops::{Bound, Range};

use super::table::{MAX_SYMBOL, Table};
use super::{Codec, FIRST_LEAD, MAX_BYTES, MAX_LEADS, MAX_SYMBOLS, NAMES, Step, step};

/// The sample is full at this many keys or bytes.
const SAMPLE_KEYS: usize = 4096;
const SAMPLE_BYTES: usize = 384 << 10;

/// Of a longer key only this much is sampled, bytes.
const SAMPLE_KEY: usize = 512;

/// Rounds of joining: a symbol holds up to 2^4 units.
const ROUNDS: u32 = 4;

/// Units and pairs told apart at most: what a sample of noise could fill memory with.
const MAX_UNITS: usize = 16 << 10;
const MAX_PAIRS: usize = 32 << 10;

/// A pair seen less often is chance: joining it would fit the sample, not the keys.
const LEAST_PAIR: u32 = 3;

/// Work until a step ends, in units of about 10 ns on a 3 GHz core.
const STEP_WORK: usize = 6_000;
/// Work to look something up in a map, or to move it from one to another.
const ENTRY: usize = 15;
/// Work to take one step of a key's parse.
const CUT: usize = 5;

/// Learns a [`Codec`] from a sample, the first 4,096 of these keys, all at once: some 0.1 s.
pub fn learn<'a>(keys: impl IntoIterator<Item = &'a [u8]>) -> Codec {
    let mut trainer = Trainer::new();
    keys.into_iter().for_each(|key| trainer.sample(key));
    loop {
        if let Some(codec) = trainer.step() {
            return codec;
        }
    }
}

/// Learns a [`Codec`]: [`sample`](Self::sample) keys until [`is_full`](Self::is_full), or there are no more, then
/// [`step`](Self::step) until a codec comes out.
///
/// The sample should be drawn from all over the keys: the first of a sorted list have too much in common.
pub struct Trainer {
    text: Vec<u8>,
    /// By sampled key: where it ends in `text`.
    ends: Vec<u32>,
    stage: Stage,
    round: u32,
    units: BTreeMap<Box<[u8]>, Seen>,
    /// Units seen once: offset in `text`, length.
    rare: Vec<(u32, u8)>,
    /// The symbols of the table to build next.
    chosen: BTreeMap<Box<[u8]>, Symbol>,
    /// Bytes of the keys of `units` and `chosen`.
    boxed: usize,
    table: Table,
    /// By rank, which is what a symbol is called in `table`.
    symbols: Vec<Symbol>,
    lone: Box<[Symbol; 256]>,
    /// Neighbours in this round's parse: below 256 a lone byte, from there on 256 + the rank of a symbol.
    pairs: BTreeMap<(u16, u16), u32>,
    gains: Histogram,
    counts: Histogram,
    names: Namer,
    /// Work done by the step under way.
    work: usize,
}

#[derive(Clone, Copy)]
enum Stage {
    /// Count the units of the sample, from this key on.
    Units(usize),
    /// Sort the units into `chosen`, if seen at least so often, and `rare`.
    Choose(u32),
    /// Move `chosen` to `table`.
    Build,
    /// Make the table findable.
    Index,
    /// Cut the sample by the table, from this key on.
    Cut(usize),
    /// Weigh the pairs, from after this one on.
    Weigh(Option<(u16, u16)>),
    /// Choose the symbols worth it, from this rank on.
    Keep(usize),
    /// Choose the pairs worth it.
    Join,
    /// Choose rare units, from this one on.
    Fill(usize),
    /// Make the codec.
    Finish,
    Done,
}

#[derive(Clone, Copy)]
struct Seen {
    count: u32,
    /// Of the first one, in `text`.
    offset: u32,
}

#[derive(Clone, Copy, Default)]
struct Symbol {
    count: u32,
    /// Bytes of its code: 1 or 2.
    width: u8,
    /// Bytes it would take spelled out, about.
    spelled: u8,
}

impl Default for Trainer {
    fn default() -> Self {
        Self::new()
    }
}

impl Trainer {
    /// A trainer with nothing sampled.
    pub fn new() -> Trainer {
        Trainer {
            text: vec![],
            ends: vec![],
            stage: Stage::Units(0),
            round: 0,
            units: BTreeMap::new(),
            rare: vec![],
            chosen: BTreeMap::new(),
            boxed: 0,
            table: Table::default(),
            symbols: vec![],
            lone: Box::new([Symbol { count: 0, width: 1, spelled: 1 }; 256]),
            pairs: BTreeMap::new(),
            gains: Histogram::new(),
            counts: Histogram::new(),
            names: Namer::default(),
            work: 0,
        }
    }

    /// Adds the first 512 bytes of `key` to the sample. Ignored once the sample is full or training has begun.
    pub fn sample(&mut self, key: &[u8]) {
        if self.is_full() || !matches!(self.stage, Stage::Units(0)) {
            return;
        }
        self.text.extend_from_slice(&key[..key.len().min(SAMPLE_KEY)]);
        self.ends.push(self.text.len() as u32);
    }

    /// Whether the sample has all the keys it takes: 4,096 of them, or 384 KiB.
    pub fn is_full(&self) -> bool {
        self.ends.len() >= SAMPLE_KEYS || self.text.len() >= SAMPLE_BYTES
    }

    /// Does one bounded slice of the training, some 0.1 ms, seldom half a millisecond. Gives the codec once, at the end, and `None` before and after.
    pub fn step(&mut self) -> Option<Codec> {
        self.work = 0;
        while self.work < STEP_WORK {
            self.stage = match self.stage {
                Stage::Units(key) => self.count_units(key),
                Stage::Choose(least) => self.choose_units(least),
                Stage::Build => self.build(),
                Stage::Index => self.index(),
                Stage::Cut(key) => self.cut(key),
                Stage::Weigh(after) => self.weigh(after),
                Stage::Keep(rank) => self.keep(rank),
                Stage::Join => self.join(),
                Stage::Fill(rare) => self.fill(rare),
                Stage::Finish => return Some(self.finish()),
                Stage::Done => return None,
            };
        }
        None
    }

    /// Bytes of heap that the trainer holds, within a few percent: about 1 MiB at its height, 4 MiB for noise.
    pub fn heap_bytes(&self) -> usize {
        // Nodes filled in random order are about two thirds full.
        fn tree<K, V>(map: &BTreeMap<K, V>) -> usize {
            map.len() * (size_of::<(K, V)>() + 2) * 3 / 2
        }
        self.text.capacity()
            + self.ends.capacity() * 4
            + tree(&self.units)
            + tree(&self.chosen)
            + tree(&self.pairs)
            + self.boxed
            + self.rare.capacity() * size_of::<(u32, u8)>()
            + self.table.heap_bytes()
            + self.symbols.capacity() * size_of::<Symbol>()
            + size_of_val(&*self.lone)
            + (self.gains.weights.capacity() + self.counts.weights.capacity()) * size_of::<(u32, u32)>()
    }

    /// Where in `text` the sampled key is.
    fn key(&self, key: usize) -> Range<usize> {
        let from = key.checked_sub(1).map_or(0, |before| self.ends[before] as usize);
        from..self.ends[key] as usize
    }

    fn count_units(&mut self, key: usize) -> Stage {
        if key == self.ends.len() {
            let mut seen = Histogram::new();
            for (unit, Seen { count, .. }) in &self.units {
                seen.add(*count, unit.len());
            }
            self.work = STEP_WORK;
            return Stage::Choose(seen.least(MAX_SYMBOLS, MAX_BYTES).max(2));
        }
        let range = self.key(key);
        let text = &self.text[range.clone()];
        self.work += text.len();
        let mut from = 0;
        for to in 1..=text.len() {
            if !ends_unit(text, to) {
                continue;
            }
            let unit = &text[from..to];
            if (2..=MAX_SYMBOL).contains(&unit.len()) && !unit[0].is_ascii_digit() {
                self.work += ENTRY;
                if let Some(seen) = self.units.get_mut(unit) {
                    seen.count += 1;
                } else if self.units.len() < MAX_UNITS {
                    self.boxed += unit.len();
                    self.units.insert(unit.into(), Seen { count: 1, offset: (range.start + from) as u32 });
                }
            }
            from = to;
        }
        Stage::Units(key + 1)
    }

    fn choose_units(&mut self, least: u32) -> Stage {
        let Some((unit, Seen { count, offset })) = self.units.pop_first() else {
            return Stage::Build;
        };
        self.work += ENTRY;
        self.boxed -= unit.len();
        if count >= least {
            let spelled = 1 + unit.len() as u8 / 2;
            self.choose(unit, Symbol { count, width: 2, spelled });
        } else if count == 1 {
            self.rare.push((offset, unit.len() as u8));
        }
        Stage::Choose(least)
    }

    fn choose(&mut self, text: Box<[u8]>, symbol: Symbol) {
        let length = text.len();
        if self.chosen.len() < MAX_SYMBOLS
            && self.boxed + length <= MAX_BYTES
            && self.chosen.insert(text, symbol).is_none()
        {
            self.boxed += length;
        }
    }

    fn build(&mut self) -> Stage {
        let Some((text, symbol)) = self.chosen.pop_first() else {
            // Either is a step of its own.
            self.work = STEP_WORK;
            return if self.round > ROUNDS { Stage::Finish } else { Stage::Index };
        };
        self.work += ENTRY;
        self.boxed -= text.len();
        let rank = self.symbols.len() as u16;
        let number = if self.round > ROUNDS { self.names.number(symbol.count) } else { rank };
        self.table.push(&text, number);
        self.symbols.push(Symbol { count: 0, ..symbol });
        Stage::Build
    }

    fn index(&mut self) -> Stage {
        self.table.finish([].into_iter());
        for symbol in self.lone.iter_mut() {
            symbol.count = 0;
        }
        self.work = STEP_WORK;
        Stage::Cut(0)
    }

    fn cut(&mut self, key: usize) -> Stage {
        if key == self.ends.len() {
            return self.weigh_symbols();
        }
        let range = self.key(key);
        let text = &self.text[range];
        let mut at = 0;
        let mut before: Option<(u16, usize)> = None;
        while let Some((step, length, _)) = step(&self.table, text, at) {
            self.work += CUT;
            let from = at;
            at += length;
            let this = match step {
                Step::Number => {
                    before = None;
                    continue;
                }
                Step::Byte => {
                    self.lone[usize::from(text[from])].count += 1;
                    u16::from(text[from])
                }
                Step::Symbol(rank) => {
                    self.symbols[usize::from(rank)].count += 1;
                    256 + rank
                }
            };
            if self.round < ROUNDS
                && let Some((left, start)) = before
                && at - start <= MAX_SYMBOL
                && may_join(text, start, at)
            {
                self.work += ENTRY;
                if let Some(count) = self.pairs.get_mut(&(left, this)) {
                    *count += 1;
                } else if self.pairs.len() < MAX_PAIRS {
                    self.pairs.insert((left, this), 1);
                }
            }
            before = Some((this, from));
        }
        Stage::Cut(key + 1)
    }

    fn weigh_symbols(&mut self) -> Stage {
        for (byte, symbol) in self.lone.iter_mut().enumerate() {
            // Text that the sample lacks may come all the same.
            symbol.count += u32::from((b'!'..=b'~').contains(&(byte as u8)));
        }
        self.counts.clear();
        for symbol in self.lone.iter().chain(&self.symbols) {
            self.counts.add(symbol.count, 0);
        }
        self.counts.least(NAMES - MAX_LEADS, 0);
        self.gains.clear();
        for (rank, symbol) in self.symbols.iter().enumerate() {
            self.gains.add(self.gain(*symbol), self.table.span(rank).length());
        }
        self.work = STEP_WORK;
        Stage::Weigh(None)
    }

    /// Bytes of the code of something seen so often.
    fn width(&self, count: u32) -> u8 {
        if count > self.counts.least { 1 } else { 2 }
    }

    /// Bytes that a symbol saves in the sample.
    fn gain(&self, symbol: Symbol) -> u32 {
        if symbol.count < 2 {
            return 0;
        }
        symbol.count * u32::from(symbol.spelled.saturating_sub(self.width(symbol.count)))
    }

    /// Bytes that a pair would save as one symbol, seen `count` times.
    fn gain_of_pair(&self, (left, right): (u16, u16), count: u32) -> u32 {
        if count < LEAST_PAIR {
            return 0;
        }
        let apart = self.half(left).width + self.half(right).width;
        count * u32::from(apart.saturating_sub(self.width(count)))
    }

    fn half(&self, half: u16) -> Symbol {
        match half {
            ..256 => self.lone[usize::from(half)],
            _ => self.symbols[usize::from(half) - 256],
        }
    }

    fn text_of_pair(&self, (left, right): (u16, u16)) -> Box<[u8]> {
        let mut text = Vec::with_capacity(MAX_SYMBOL);
        for half in [left, right] {
            match half {
                ..256 => text.push(half as u8),
                _ => text.extend_from_slice(self.table.symbol(half - 256)),
            }
        }
        text.into()
    }

    fn length_of(&self, half: u16) -> usize {
        if half < 256 { 1 } else { self.table.span(usize::from(half) - 256).length() }
    }

    fn weigh(&mut self, mut after: Option<(u16, u16)>) -> Stage {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut gains = mem::replace(&mut self.gains, Histogram::empty());
        let mut left = 64;
        for (pair, count) in self.pairs.range((from, Bound::Unbounded)).take(left) {
            gains.add(self.gain_of_pair(*pair, *count), self.length_of(pair.0) + self.length_of(pair.1));
            after = Some(*pair);
            left -= 1;
        }
        self.gains = gains;
        self.work += 64;
        if left == 0 {
            return Stage::Weigh(after);
        }
        self.gains.least(MAX_SYMBOLS, MAX_BYTES);
        Stage::Keep(0)
    }

    fn keep(&mut self, rank: usize) -> Stage {
        let Some(symbol) = self.symbols.get(rank).copied() else {
            return Stage::Join;
        };
        self.work += ENTRY;
        if self.gain(symbol) > self.gains.least {
            let text = self.table.symbol(rank as u16).into();
            self.choose(text, Symbol { width: self.width(symbol.count), ..symbol });
        }
        Stage::Keep(rank + 1)
    }

    fn join(&mut self) -> Stage {
        let Some((pair, count)) = self.pairs.pop_first() else {
            return self.next_round();
        };
        self.work += ENTRY;
        if self.gain_of_pair(pair, count) > self.gains.least {
            let spelled = self.half(pair.0).spelled.saturating_add(self.half(pair.1).spelled);
            self.choose(self.text_of_pair(pair), Symbol { count, width: self.width(count), spelled });
        }
        Stage::Join
    }

    fn next_round(&mut self) -> Stage {
        let least = self.counts.least;
        for symbol in self.lone.iter_mut() {
            symbol.width = if symbol.count > least { 1 } else { 2 };
            symbol.spelled = symbol.width;
        }
        self.table = Table::default();
        self.symbols = vec![];
        self.round += 1;
        if self.round > ROUNDS { Stage::Fill(0) } else { Stage::Build }
    }

    fn fill(&mut self, next: usize) -> Stage {
        if next < self.rare.len() && self.chosen.len() < MAX_SYMBOLS {
            self.work += ENTRY;
            let (offset, length) = self.rare[next];
            let text = &self.text[offset as usize..][..usize::from(length)];
            if !self.chosen.contains_key(text) {
                self.choose(text.into(), Symbol { count: 0, width: 2, spelled: 2 });
            }
            return Stage::Fill(next + 1);
        }
        let leads = self.chosen.len().div_ceil(256);
        self.counts.least(NAMES - leads, 0);
        self.names = Namer::new(leads, self.counts.least, self.counts.ties);
        Stage::Build
    }

    fn finish(&mut self) -> Codec {
        self.stage = Stage::Done;
        let mut lone = Box::new([0; 256]);
        for (byte, symbol) in self.lone.iter().enumerate() {
            lone[byte] = self.names.short(symbol.count).unwrap_or(0);
        }
        let codec = Codec::new(mem::take(&mut self.table), lone, self.names.leads);
        *self = Trainer { stage: Stage::Done, ..Trainer::new() };
        codec
    }
}

/// Gives out codes: one byte to what is seen most.
#[derive(Default)]
struct Namer {
    leads: u8,
    /// Seen more often: one byte; just as often: one byte while `ties` last.
    least: u32,
    ties: usize,
    next_short: u16,
    next_long: u16,
}

impl Namer {
    fn new(leads: usize, least: u32, ties: usize) -> Namer {
        let first = usize::from(FIRST_LEAD);
        Namer { leads: leads as u8, least, ties, next_short: (first + leads) as u16, next_long: 256 }
    }

    fn short(&mut self, count: u32) -> Option<u8> {
        let tie = count == self.least && self.ties > 0;
        if count < self.least || (count == self.least && !tie) {
            return None;
        }
        let name = u8::try_from(self.next_short).ok()?;
        self.ties -= usize::from(tie);
        self.next_short += 1;
        Some(name)
    }

    fn number(&mut self, count: u32) -> u16 {
        self.short(count).map_or_else(
            || {
                self.next_long += 1;
                self.next_long - 1
            },
            u16::from,
        )
    }
}

/// What a byte is to the cutting of keys.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Letter,
    Digit,
    Separator,
}

fn class(byte: u8) -> Class {
    match byte {
        b'0'..=b'9' => Class::Digit,
        b'A'..=b'Z' | b'a'..=b'z' | 0x80.. => Class::Letter,
        _ => Class::Separator,
    }
}

/// Whether a unit ends before `at`: after separators, and on both sides of digits.
fn ends_unit(text: &[u8], at: usize) -> bool {
    if at == 0 || at == text.len() {
        return true;
    }
    match (class(text[at - 1]), class(text[at])) {
        (Class::Digit, Class::Digit) => false,
        (Class::Digit, _) | (_, Class::Digit) | (Class::Separator, Class::Letter) => true,
        _ => false,
    }
}

/// Whether `text[from..to]` may be one symbol: whole units, or a fragment of one.
fn may_join(text: &[u8], from: usize, to: usize) -> bool {
    (ends_unit(text, from) && ends_unit(text, to)) || (from + 1..to).all(|at| !ends_unit(text, at))
}

/// How many things have each weight, and their bytes; weights from 4,095 on count as one.
struct Histogram {
    weights: Vec<(u32, u32)>,
    /// The answer of the last [`least`](Self::least): the least weight that not more than the asked-for exceed.
    least: u32,
    /// How many of that weight would fit as well.
    ties: usize,
}

impl Histogram {
    fn new() -> Histogram {
        Histogram { weights: vec![(0, 0); 4096], least: 0, ties: 0 }
    }

    fn empty() -> Histogram {
        Histogram { weights: vec![], least: 0, ties: 0 }
    }

    fn clear(&mut self) {
        self.weights.fill((0, 0));
    }

    fn add(&mut self, weight: u32, bytes: usize) {
        let (number, sum) = &mut self.weights[weight.min(4095) as usize];
        *number += 1;
        *sum += bytes as u32;
    }

    fn least(&mut self, number: usize, bytes: usize) -> u32 {
        let (mut free, mut room) = (number, bytes);
        self.least = 0;
        self.ties = 0;
        for (weight, (n, b)) in self.weights.iter().enumerate().rev() {
            if *n as usize > free || *b as usize > room {
                self.least = weight as u32;
                break;
            }
            free -= *n as usize;
            room -= *b as usize;
        }
        self.ties = free;
        self.least
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_is_a_word_with_the_separators_after_it() {
        let text = b"https://www.a-shop.com/p/red-shoes-12345?size=10|desktop";
        let mut units = vec![];
        let mut from = 0;
        for to in 1..=text.len() {
            if ends_unit(text, to) {
                units.push(std::str::from_utf8(&text[from..to]).unwrap());
                from = to;
            }
        }
        let wanted = "https:// www. a- shop. com/ p/ red- shoes- 12345 ? size= 10 | desktop";
        assert_eq!(units, wanted.split(' ').collect::<Vec<_>>());
    }

    #[test]
    fn a_join_never_takes_a_words_head() {
        let text = b"red-shoes-";
        assert!(may_join(text, 0, 4), "a unit");
        assert!(may_join(text, 0, 10), "two units");
        assert!(may_join(text, 5, 8), "a fragment");
        assert!(!may_join(text, 3, 5), "the dash and a head");
        assert!(!may_join(text, 0, 6), "a unit and a head");
    }

    #[test]
    fn a_step_does_bounded_work_whatever_the_sample() {
        let mut random = 1u64;
        let mut noise = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 56) as u8
        };
        let samples: [Vec<Vec<u8>>; 4] = [
            (0..5000).map(|_| (0..300).map(|_| noise()).collect()).collect(),
            (0..5000).map(|_| (0..2000).map(|_| b'a' + noise() % 26).collect()).collect(),
            (0..5000)
                .map(|_| (0..100).map(|n| if n % 4 == 3 { b'-' } else { b'a' + noise() % 26 }).collect())
                .collect(),
            (0..5000).map(|_| b"a".repeat(100_000)).take(900).collect(),
        ];
        for (n, sample) in samples.iter().enumerate() {
            let mut trainer = Trainer::new();
            sample.iter().for_each(|key| trainer.sample(key));
            assert!(trainer.is_full() || n == 3);
            let (mut steps, mut heap) = (0, 0);
            let codec = loop {
                let codec = trainer.step();
                assert!(trainer.work <= STEP_WORK + SAMPLE_KEY * (ENTRY + CUT), "sample {n}: {}", trainer.work);
                heap = heap.max(trainer.heap_bytes());
                steps += 1;
                assert!(steps < 20_000, "sample {n} does not end");
                if let Some(codec) = codec {
                    break codec;
                }
            };
            assert!(heap < 5 << 20, "sample {n}: {heap} bytes");
            assert!(codec.heap_bytes() <= 128 << 10, "sample {n}: {} bytes", codec.heap_bytes());
            assert!(trainer.step().is_none());
        }
    }

    #[test]
    fn the_same_sample_gives_the_same_codec() {
        let train = || {
            let mut trainer = Trainer::new();
            (0..500).for_each(|n| trainer.sample(format!("https://a.com/red-{}-shoes/{n}", n % 7).as_bytes()));
            std::iter::repeat_with(|| trainer.step()).flatten().next().unwrap()
        };
        let (mut one, mut two) = (vec![], vec![]);
        train().encode(b"https://a.com/red-5-shoes/77777", &mut one);
        train().encode(b"https://a.com/red-5-shoes/77777", &mut two);
        assert_eq!(one, two);
    }

    #[test]
    fn histogram_says_what_fits() {
        let mut histogram = Histogram::new();
        for weight in [1, 2, 2, 3, 9_999] {
            histogram.add(weight, 10);
        }
        assert_eq!((histogram.least(2, 100), histogram.ties), (2, 0));
        assert_eq!((histogram.least(3, 100), histogram.ties), (2, 1));
        assert_eq!((histogram.least(4, 100), histogram.ties), (1, 0));
        assert_eq!(histogram.least(9, 25), 2);
        assert_eq!(histogram.least(9, 100), 0);
    }
}
