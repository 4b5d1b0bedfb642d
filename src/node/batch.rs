//! Events and rows on their way in: all their keys in one string, and [`STRIDE`] numbers each.

use std::cell::RefCell;
use std::ops::Range;

use super::error::{Code, Result, error};
use super::raw::{Arguments, Read, Text};
use crate::queue::keeper::{Classified, Judge};
use crate::queue::key::{KeyHasher, from_utf16};
use crate::queue::row::Row;

/// Numbers an event or row takes: due, interval (or the classifier's cadence), changedAt, urgentAt, demandPeriod, version,
/// what it is, and the length of its key in UTF-16 code units.
pub const STRIDE: usize = 8;
/// Bytes of room that are kept for the next batch.
const KEPT: usize = 512 * 1024;

/// An event or row on its way in.
pub struct Packed<'a> {
    pub key: &'a [u8],
    pub hash: u64,
    pub kind: u32,
    pub row: Row,
    pub judge: Judge,
    pub version: f64,
}

/// What a batch is unpacked into.
#[derive(Default)]
struct Room {
    text: Text,
    /// The keys' WTF-8, where it is not what `text` has.
    keys: Vec<u8>,
    ends: Vec<usize>,
    hashes: Vec<u64>,
}

thread_local! {
    /// Memory that batches of this thread take in turn.
    static ROOM: RefCell<Room> = RefCell::default();
}

/// What came in, unpacked up to the keys' hashes.
pub struct Batch<'a> {
    keys: &'a [u8],
    ends: &'a [usize],
    hashes: &'a [u64],
    numbers: &'a [f64],
}

/// Unpacks a batch, the keys of which are argument `keys`, for `f`, which takes no room itself.
pub fn unpacked<R>(
    arguments: &Arguments<'_>,
    keys: usize,
    numbers: &[f64],
    count: usize,
    hasher: &KeyHasher,
    f: impl FnOnce(&Batch<'_>) -> Result<R>,
) -> Result<R> {
    ROOM.with_borrow_mut(|room| {
        let result = room.fill(arguments, keys, numbers, count, hasher).and_then(|batch| f(&batch));
        room.trim();
        result
    })
}

/// Reads one key, argument `at`, for `f`, which takes no room itself.
pub fn key<R>(arguments: &Arguments<'_>, at: usize, f: impl FnOnce(&[u8]) -> Result<R>) -> Result<R> {
    ROOM.with_borrow_mut(|room| {
        let result = arguments.text(at, &mut room.text).and_then(|()| match room.text.read() {
            Read::Ascii(key) => f(key),
            Read::Units(units) => {
                room.keys.clear();
                from_utf16(units, &mut room.keys);
                f(&room.keys)
            }
        });
        room.trim();
        result
    })
}

impl Room {
    fn fill<'a>(
        &'a mut self,
        arguments: &Arguments<'_>,
        keys: usize,
        numbers: &'a [f64],
        count: usize,
        hasher: &KeyHasher,
    ) -> Result<Batch<'a>> {
        let short = || error(Code::Argument, "a batch is shorter than it says");
        let Room { text, keys: wtf8, ends, hashes } = self;
        arguments.text(keys, text)?;
        ends.clear();
        hashes.clear();
        wtf8.clear();
        let lengths = numbers.chunks_exact(STRIDE).take(count).map(|numbers| numbers[7] as usize);
        let mut at = 0;
        let keys = match text.read() {
            Read::Ascii(bytes) => {
                for length in lengths {
                    let key = bytes.get(at..at + length).ok_or_else(short)?;
                    hashes.push(hasher.hash(key));
                    at += length;
                    ends.push(at);
                }
                bytes
            }
            Read::Units(units) => {
                for length in lengths {
                    let start = wtf8.len();
                    from_utf16(units.get(at..at + length).ok_or_else(short)?, wtf8);
                    hashes.push(hasher.hash(&wtf8[start..]));
                    at += length;
                    ends.push(wtf8.len());
                }
                wtf8
            }
        };
        if ends.len() < count { Err(short()) } else { Ok(Batch { keys, ends, hashes, numbers }) }
    }

    /// What an unusually large batch took is given back.
    fn trim(&mut self) {
        let places = self.ends.capacity() * size_of::<usize>() + self.hashes.capacity() * size_of::<u64>();
        if self.text.room() + self.keys.capacity() + places > KEPT {
            *self = Room::default();
        }
    }
}

impl<'a> Batch<'a> {
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// What [`Keeper::warm`](crate::queue::keeper::Keeper::warm) wants of some of them.
    pub fn to_warm(&self, places: Range<usize>) -> impl Iterator<Item = (u64, f64)> + Clone + use<'a> {
        let due = self.numbers[places.start * STRIDE..].iter().step_by(STRIDE);
        self.hashes[places].iter().copied().zip(due.copied())
    }

    // Inlined, or each event would be put together in memory and copied from there, in other pieces.
    #[inline(always)]
    pub fn get(&self, i: usize, routes: &[u32]) -> Packed<'a> {
        let start = if i == 0 { 0 } else { self.ends[i - 1] };
        let numbers = &self.numbers[i * STRIDE..][..STRIDE];
        let (row, judge, kind) = unpack(numbers, routes);
        Packed { key: &self.keys[start..self.ends[i]], hash: self.hashes[i], kind, row, judge, version: numbers[5] }
    }
}

/// What the packed number "what it is" says: its lowest two bits are the kind, then flags, then the place of the route.
const FROM_SITEMAP: u32 = 4;
const HOST_JUDGED: u32 = 8;
const CARRIED: u32 = 16;
const REFUSED: u32 = 32;
const ROUTE_SHIFT: u32 = 6;

#[inline(always)]
pub fn unpack(numbers: &[f64], routes: &[u32]) -> (Row, Judge, u32) {
    let what = numbers[6] as u32;
    let row = Row {
        due: numbers[0],
        interval: numbers[1],
        changed_at: numbers[2],
        urgent_at: numbers[3],
        demand: numbers[4],
        from_sitemap: what & FROM_SITEMAP != 0,
    };
    let judge = match routes.get((what >> ROUTE_SHIFT) as usize) {
        _ if what & HOST_JUDGED == 0 => Judge::Rules,
        Some(&route) if what & REFUSED == 0 => {
            Judge::Host(Some(Classified { route, cadence: numbers[1], carried: what & CARRIED != 0 }))
        }
        _ => Judge::Host(None),
    };
    (row, judge, what & 3)
}

/// The version of a row on its way in; NaN where it has none.
pub fn version_of(numbers: Option<&[f64]>) -> f64 {
    numbers.and_then(|numbers| numbers.get(5)).copied().unwrap_or(f64::NAN)
}
