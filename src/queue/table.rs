//! The rows, by key: records in an arena, found through the index; keys compressed as they come in.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use super::codec::{Codec, MOST_TRAILED, Trail, Trainer};
use super::index::Index;
use super::key::KeyHasher;
use super::records::{CODECS, Records};
pub use super::records::{NONE, RowId};
use super::time::Minute;

const UNVERIFIED: u8 = 1;
const NOTED: u8 = 2;
const WATCHED: u8 = 4;
const TOUCHED: u8 = 8;
const PARITY: u8 = 16;

/// A codec is replaced by a newly learnt one when keys take this much more than they did at first.
const WORSE: f64 = 1.2;
/// When a codec is learnt whatever happens: at how many rows, from every how manieth key, and from how many.
const PLANNED: [(usize, usize, usize); 3] = [(0, 1, 1_000), (16_384, 4, usize::MAX), (131_072, 24, usize::MAX)];
/// Longer keys are kept as they are: reading one would hold up others.
const LONGEST_CODED: usize = MOST_TRAILED;
/// Bytes of keys over which a codec is judged.
const JUDGED_OVER: u64 = 4 << 20;

/// What a walk knows of a row. Marks are relative to the walk's parity, which changes with each walk: what the last walk
/// has marked is unseen for the next, and no mark needs taking off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// Nothing yet.
    Unseen,
    /// The walk has seen it.
    Seen,
    /// An event has touched it since the walk began.
    Touched,
}

/// A key to be kept.
#[derive(Clone, Copy)]
pub enum NewKey<'a> {
    /// As it is.
    Plain(&'a [u8]),
    /// As the codec of this number wrote it; 0: as it is.
    Coded(u8, &'a [u8]),
}

/// The rows of a queue.
#[derive(Default)]
pub struct Table {
    records: Records,
    index: Index,
    hasher: KeyHasher,
    learning: Learning,
}

/// The codec being learnt, and how well the newest one does.
#[derive(Default)]
struct Learning {
    trainer: Option<Box<Trainer>>,
    /// Bytes of keys, and of their codes, since the count was last begun.
    raw: u64,
    coded: u64,
    /// Codes to keys, when the newest codec was new.
    first_ratio: Option<f64>,
    coder: Coder,
    /// How many of [`PLANNED`] have been begun, and how the one under way takes its sample.
    begun: usize,
    /// A codec was taken over that knows keys from all over the queue.
    from_all: bool,
    every: usize,
    enough: usize,
    sampled: usize,
    calls: u32,
}

/// Writes keys by the codecs.
#[derive(Default)]
struct Coder {
    /// What the newest codec has made of the last key, and how many codecs there were.
    trail: Trail,
    codecs: usize,
    /// What another codec makes of a key.
    other: Vec<u8>,
    best: Vec<u8>,
}

impl Coder {
    /// The number of the codec by which a key is kept, and its code. The newest codec is tried first, and the others where it does not halve
    /// the key: it may have been learnt from keys that were alike, and know little of others.
    fn encode<'a>(&'a mut self, codecs: &[Arc<Codec>], key: &'a [u8]) -> (u8, &'a [u8]) {
        let Some((newest, others)) = codecs.split_last().filter(|_| key.len() <= LONGEST_CODED) else {
            return (0, key);
        };
        if self.codecs != codecs.len() {
            *self = Coder { codecs: codecs.len(), ..Coder::default() };
        }
        let code = newest.encode_after(&mut self.trail, key);
        if code.len() * 2 <= key.len() {
            return (codecs.len() as u8, code);
        }
        let (code, mut number) = if code.len() < key.len() { (code, codecs.len()) } else { (key, 0) };
        self.best.clear();
        self.best.extend_from_slice(code);
        for (place, codec) in others.iter().enumerate().rev() {
            self.other.clear();
            codec.encode(key, &mut self.other);
            if self.other.len() < self.best.len() {
                std::mem::swap(&mut self.best, &mut self.other);
                number = place + 1;
            }
            if self.best.len() * 2 <= key.len() {
                break;
            }
        }
        (number as u8, &self.best)
    }

    fn bytes(&self) -> usize {
        self.trail.heap_bytes() + self.other.capacity() + self.best.capacity()
    }
}

impl Deref for Table {
    type Target = Records;

    fn deref(&self) -> &Records {
        &self.records
    }
}

impl DerefMut for Table {
    fn deref_mut(&mut self) -> &mut Records {
        &mut self.records
    }
}

impl Table {
    /// Rows in it.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes allocated, everything counted.
    pub fn bytes(&self) -> usize {
        let codecs =
            self.records.codecs().iter().map(|codec| codec.heap_bytes() + size_of_val(&**codec)).sum::<usize>();
        let trainer = self.learning.trainer.as_ref().map_or(0, |trainer| size_of::<Trainer>() + trainer.heap_bytes());
        self.records.bytes() + self.index.bytes() + codecs + trainer + self.learning.coder.bytes()
    }

    /// The hash of a key, for the calls that take one.
    pub fn hash(&self, key: &[u8]) -> u64 {
        self.hasher.hash(key)
    }

    /// How keys are hashed: a copy.
    pub fn hasher(&self) -> KeyHasher {
        self.hasher.clone()
    }

    /// The row of a key.
    pub fn find(&self, hash: u64, key: &[u8]) -> Option<RowId> {
        self.index.find(hash, |row| self.has_key(row, key))
    }

    /// Reads the slot where a look-up of this hash starts. Returns something of what was read, for the read not to be optimised away.
    pub fn warm_home(&self, hash: u64) -> u32 {
        self.index.peek(hash) as u32
    }

    /// The row that this hash is likely to be of, for `Arena::warm_record`; [`NONE`] where none is.
    pub fn guess(&self, hash: u64) -> RowId {
        self.index.guess(hash)
    }

    /// The row's key.
    pub fn key(&self, row: RowId) -> Vec<u8> {
        let mut key = Vec::new();
        self.key_into(row, &mut key);
        key
    }

    /// Adds a row for a key that has none. It is in no bucket yet.
    pub fn insert(&mut self, hash: u64, key: NewKey<'_>, due: Minute, class: u32) -> RowId {
        let row = match key {
            NewKey::Coded(codec, code) => self.records.add(codec, code, due, class),
            NewKey::Plain(key) => {
                let Table { records, learning, .. } = self;
                let (codec, code) = learning.coder.encode(records.codecs(), key);
                let row = records.add(codec, code, due, class);
                let len = code.len();
                self.note_key(key, len);
                row
            }
        };
        self.index.insert(hash, row);
        row
    }

    /// Takes over a codec of a snapshot. Returns its number; `None` where there is no room for it.
    pub fn take_codec(&mut self, codec: &Arc<Codec>) -> Option<u8> {
        // What was learnt from a whole queue is not learnt again from its first keys.
        self.learning = Learning { begun: PLANNED.len(), from_all: true, ..Learning::default() };
        (self.codecs().len() < CODECS).then(|| self.records.add_codec(codec.clone()))
    }

    /// Takes over a codec learnt from a sample, once: false where there has been one, or one of a snapshot.
    pub fn take_sampled(&mut self, codec: &Arc<Codec>) -> bool {
        if self.learning.from_all || self.take_codec(codec).is_none() {
            return false;
        }
        // It says little of the keys that come if it does not halve them.
        self.learning.first_ratio = Some(0.5 / WORSE);
        true
    }

    /// Notes a new key: for the sample, and for how well the newest codec does. A codec is learnt as soon as there are keys, again
    /// when there are many more (a walk comes in key order, so that the first keys are a poor sample), and whenever keys
    /// take more than they did.
    fn note_key(&mut self, key: &[u8], code: usize) {
        let learning = &mut self.learning;
        if let Some(trainer) = &mut learning.trainer {
            if learning.sampled < learning.enough
                && !trainer.is_full()
                && self.index.len().is_multiple_of(learning.every)
            {
                trainer.sample(key);
                learning.sampled += 1;
            }
            return;
        }
        learning.raw += key.len() as u64;
        learning.coded += code as u64;
        let codecs = self.records.codecs().len();
        if codecs >= CODECS {
            return;
        }
        let mut begin = PLANNED.get(learning.begun).is_some_and(|plan| self.index.len() >= plan.0);
        if begin {
            (_, learning.every, learning.enough) = PLANNED[learning.begun];
            learning.begun += 1;
        } else if codecs > 0 && learning.raw >= JUDGED_OVER {
            let ratio = learning.coded as f64 / learning.raw as f64;
            (learning.raw, learning.coded) = (0, 0);
            match learning.first_ratio {
                None => learning.first_ratio = Some(ratio),
                Some(first) => begin = ratio > first * WORSE,
            }
            (learning.every, learning.enough) = (4, usize::MAX);
        }
        if begin {
            learning.trainer = Some(Box::new(Trainer::new()));
            learning.sampled = 0;
        }
    }

    /// Goes on learning the next codec, if one is being learnt: a step of some 0.1 ms, seldom half a millisecond, at every 64th call, so that no batch of
    /// changes waits long for it. To be called with every change.
    pub fn learn(&mut self) {
        let learning = &mut self.learning;
        let Some(trainer) = &mut learning.trainer else { return };
        if learning.sampled < learning.enough && !trainer.is_full() {
            return;
        }
        learning.calls = learning.calls.wrapping_add(1);
        if learning.calls.is_multiple_of(64)
            && let Some(codec) = trainer.step()
        {
            learning.trainer = None;
            (learning.raw, learning.coded, learning.first_ratio) = (0, 0, None);
            self.records.add_codec(Arc::new(codec));
        }
    }

    /// So many rows are about to come.
    pub fn expect(&mut self, rows: usize) {
        self.index.expect(rows);
    }

    /// No more of them: gives a part of the room back that is too much; true once all of that is done.
    pub fn expect_no_more(&mut self) -> bool {
        self.index.expect_no_more()
    }

    /// Takes a row out. It must be in no bucket any more.
    pub fn remove(&mut self, hash: u64, row: RowId) {
        self.index.remove(hash, row);
        self.records.remove(row);
        if self.index.is_empty() {
            self.records.clear();
        }
    }

    fn has(&self, row: RowId, flag: u8) -> bool {
        self.flags(row) & flag != 0
    }

    fn set(&mut self, row: RowId, flag: u8, on: bool) {
        self.set_flags(row, flag, if on { flag } else { 0 });
    }

    /// Came from a snapshot, and nothing has confirmed it since.
    pub fn unverified(&self, row: RowId) -> bool {
        self.has(row, UNVERIFIED)
    }

    /// See [`Self::unverified`].
    pub fn set_unverified(&mut self, row: RowId, on: bool) {
        self.set(row, UNVERIFIED, on);
    }

    /// The lease table has an entry for it.
    pub fn noted(&self, row: RowId) -> bool {
        self.has(row, NOTED)
    }

    /// See [`Self::noted`].
    pub fn set_noted(&mut self, row: RowId, on: bool) {
        self.set(row, NOTED, on);
    }

    /// Handed out to be read, and no event has touched it since.
    pub fn watched(&self, row: RowId) -> bool {
        self.has(row, WATCHED)
    }

    /// See [`Self::watched`].
    pub fn set_watched(&mut self, row: RowId, on: bool) {
        self.set(row, WATCHED, on);
    }

    /// What the walk of this parity knows of the row.
    pub fn mark(&self, row: RowId, parity: bool) -> Mark {
        let flags = self.flags(row);
        match (flags & PARITY != 0) == parity {
            false => Mark::Unseen,
            true if flags & TOUCHED != 0 => Mark::Touched,
            true => Mark::Seen,
        }
    }

    /// See [`Self::mark`].
    pub fn set_mark(&mut self, row: RowId, parity: bool, mark: Mark) {
        let parity = if parity == (mark != Mark::Unseen) { PARITY } else { 0 };
        let touched = if mark == Mark::Touched { TOUCHED } else { 0 };
        self.set_flags(row, PARITY | TOUCHED, parity | touched);
    }

    /// Panics where the table's own rules do not hold. For tests.
    pub fn validate(&self) {
        self.index.validate();
        self.records.validate();
        let rows = self.rows();
        assert_eq!(rows.len(), self.index.len(), "table: the arena and the index hold different rows");
        let mut indexed: Vec<_> = self.index.rows().collect();
        indexed.sort_unstable();
        assert_eq!(rows, indexed, "table: the arena and the index hold different rows");
        for row in rows {
            let key = self.key(row);
            assert_eq!(self.find(self.hash(&key), &key), Some(row), "table: a row is not found by its key");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::codec;
    use super::*;

    #[test]
    fn keys_of_any_length_come_and_go() {
        let mut table = Table::default();
        let lengths = [0, 1, 2, 3, 100, 109, 127, 128, 129, 300, 8_191, 8_192, 8_193, 200_000, 1 << 20];
        let key = |i: usize| {
            vec![b'a' + (i % 26) as u8; lengths[i % lengths.len()]]
                .into_iter()
                .chain(format!("{i}").into_bytes())
                .collect::<Vec<u8>>()
        };
        let mut rows = Vec::new();
        for round in 0..3 {
            for i in 0..300 {
                let key = key(i);
                let hash = table.hash(&key);
                assert_eq!(table.find(hash, &key), None);
                let row = table.insert(hash, NewKey::Plain(&key), i as u32, 7);
                rows.push((row, key));
            }
            table.validate();
            for (row, key) in &rows {
                assert_eq!(&table.key(*row), key);
                assert_eq!(table.find(table.hash(key), key), Some(*row));
            }
            let bytes = table.bytes();
            for (row, key) in rows.drain(..) {
                table.remove(table.hash(&key), row);
            }
            table.validate();
            assert_eq!(table.len(), 0);
            assert!(table.bytes() < bytes / 10, "round {round}");
        }
    }

    #[test]
    fn keys_unlike_those_a_newer_codec_was_learnt_from_are_written_by_an_older_one() {
        let old =
            |i: u32| format!("https://www.one-shop.com/products/shoes/{}", i.wrapping_mul(2_654_435_761)).into_bytes();
        let new = |i: u32| format!("http://other.example/zzz/{}/?qq={i}", i % 13).into_bytes();
        let learnt = |key: &dyn Fn(u32) -> Vec<u8>| {
            let keys: Vec<_> = (0..1_000).map(key).collect();
            Arc::new(codec::learn(keys.iter().map(Vec::as_slice)))
        };
        let mut table = Table::default();
        assert_eq!([learnt(&old), learnt(&new)].map(|codec| table.take_codec(&codec)), [Some(1), Some(2)]);
        for i in 5_000..6_000 {
            for (key, codec) in [(old(i), 1), (new(i), 2)] {
                let hash = table.hash(&key);
                let row = table.insert(hash, NewKey::Plain(&key), i, 0);
                assert_eq!((table.coded(row).0, table.find(hash, &key)), (codec, Some(row)));
            }
        }
        table.validate();
    }

    #[test]
    fn freed_records_are_used_again() {
        let mut table = Table::default();
        let key = |i: u32| {
            format!("https://www.example.com/product/some-shoes-{}?v={i}", i.wrapping_mul(2_654_435_761)).into_bytes()
        };
        for i in 0..50_000 {
            let key = key(i);
            table.insert(table.hash(&key), NewKey::Plain(&key), i, 0);
        }
        let full = table.bytes();
        for round in 0..4u32 {
            for i in 0..50_000 {
                let old = key(i + round * 50_000);
                let hash = table.hash(&old);
                let row = table.find(hash, &old).expect("it is there");
                table.remove(hash, row);
                let new = key(i + (round + 1) * 50_000);
                table.insert(table.hash(&new), NewKey::Plain(&new), i, 0);
            }
        }
        table.validate();
        // An eighth may lie free before neighbours are joined, and the later keys are longer.
        assert!(table.bytes() < full * 5 / 4, "{} after {full}", table.bytes());
    }
}
