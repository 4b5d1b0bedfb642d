//! The records of the rows, in an arena.
//!
//! A record is `due, previous, next, class` (four bytes each), the version of its row (eight) and its age (two), a byte of
//! flags, the length of the key's code in one or two bytes, and the code itself: the key as the [`Codec`] of that time wrote it. Records lie
//! in chunks on 4-byte boundaries; a [`RowId`] is that position, so following a link is one look, and 32
//! bits reach 16 GiB. A record never moves: a row's number is good until the row is removed.
//!
//! A freed record goes to a list of its size and is used again for the next key of that size. Before a new chunk is
//! taken, a longer one is cut in two, and neighbours that are both free are joined, some chunks at a time. A freed record
//! stays readable as a record of its length, so the arena can be walked end to end.
//!
//! An image of one moment is taken without holding anybody up: chunks are handed over one at a time, and what is written to before
//! its chunk's turn is copied first, in blocks of 1 KiB: whole chunks would make a batch of changes, of which each writes to
//! several, wait for all of them.

use std::sync::Arc;

use super::codec::Codec;
pub use super::index::RowId;
use super::time::Minute;

/// No row: 0 is never a row's number.
pub const NONE: RowId = 0;

/// Bytes in a chunk: large enough that chunks are few, small enough that copying one holds nobody up.
const CHUNK: usize = 256 * 1024;
const UNIT: usize = 4;
const UNITS: u32 = (CHUNK / UNIT) as u32;
const MOST_CHUNKS: u32 = u32::MAX / UNITS;
/// Bytes copied when a record is written to while an image is taken.
const BLOCK: usize = 1024;
const BLOCKS: usize = CHUNK / BLOCK;
const VERSION: usize = 16;
const AGE: usize = 24;
const FLAGS: usize = 26;
const LENGTH: usize = 27;
/// Bytes that every record has.
const HEAD: usize = 28;
const SMALLEST: usize = HEAD / UNIT;
/// Bytes that say what a freed record is.
const FREED_HEAD: usize = 16;
/// The longest code that lies in a record; a longer one has its own allocation, and the record its place there.
const LONGEST_INLINE: usize = 8 * 1024;
const LONG: usize = 0x7FFF;
/// The class of a freed record: no class ever has this number.
const FREED: u32 = u32::MAX;
/// Chunks in which freed neighbours are joined before a new one is taken: bounds what one insert may have to do.
const JOINED_AT_ONCE: usize = 16;
const CODEC_SHIFT: u8 = 5;
const CODEC: u8 = 7 << CODEC_SHIFT;
/// How many codecs a record can name besides "the key as it is".
pub const CODECS: usize = 7;

#[inline(always)]
fn word(bytes: &[u8], at: usize) -> u32 {
    bytes[at..].first_chunk().map_or(0, |word| u32::from_le_bytes(*word))
}

#[inline(always)]
fn set_word(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

/// The length of a code as a record tells it, and where the code begins.
fn code_len(record: &[u8]) -> (usize, usize) {
    let first = usize::from(record[LENGTH]);
    if first < 0x80 { (first, LENGTH + 1) } else { ((first & 0x7F) << 8 | usize::from(record[LENGTH + 1]), LENGTH + 2) }
}

fn units_for(code: usize) -> u32 {
    let bytes = match code {
        0..0x80 => LENGTH + 1 + code,
        0x80..=LONGEST_INLINE => LENGTH + 2 + code,
        _ => LENGTH + 2 + 4,
    };
    bytes.div_ceil(UNIT) as u32
}

fn units_of(record: &[u8]) -> u32 {
    if word(record, 12) == FREED {
        return word(record, 4);
    }
    match code_len(record) {
        (LONG, _) => units_for(LONG),
        (len, _) => units_for(len),
    }
}

/// What records lie in: all that reading them takes.
#[derive(Default)]
pub struct Arena {
    chunks: Vec<Box<[u8]>>,
    /// The first free unit of the last chunk.
    bump: u32,
    long: Vec<Arc<[u8]>>,
    codecs: Vec<Arc<Codec>>,
}

impl Arena {
    #[inline(always)]
    fn record(&self, row: RowId) -> &[u8] {
        &self.chunks[(row / UNITS) as usize][(row % UNITS) as usize * UNIT..]
    }

    #[inline(always)]
    fn head(&self, row: RowId) -> &[u8; HEAD] {
        self.record(row).first_chunk().expect("a record has a head")
    }

    /// When the row is due.
    #[inline]
    pub fn due(&self, row: RowId) -> Minute {
        word(self.head(row), 0)
    }

    /// The row before it in its bucket.
    #[inline]
    pub fn previous(&self, row: RowId) -> RowId {
        word(self.head(row), 4)
    }

    /// The row behind it in its bucket.
    #[inline]
    pub fn next(&self, row: RowId) -> RowId {
        word(self.head(row), 8)
    }

    /// The row's class.
    #[inline]
    pub fn class(&self, row: RowId) -> u32 {
        word(self.head(row), 12)
    }

    /// The row's version, NaN where it has none, and in which age that was told: see [`super::version`].
    #[inline]
    pub fn version(&self, row: RowId) -> (f64, u16) {
        let head = self.head(row);
        let version = head[VERSION..].first_chunk().map_or(f64::NAN, |version| f64::from_le_bytes(*version));
        (version, u16::from_le_bytes([head[AGE], head[AGE + 1]]))
    }

    /// The row's flags; the highest three bits are not for others.
    #[inline]
    pub fn flags(&self, row: RowId) -> u8 {
        self.head(row)[FLAGS] & !CODEC
    }

    fn code(&self, row: RowId) -> (Option<&Codec>, &[u8]) {
        let record = self.record(row);
        let (len, at) = code_len(record);
        let code = if len == LONG { &*self.long[word(record, at) as usize] } else { &record[at..at + len] };
        let number = usize::from(record[FLAGS] >> CODEC_SHIFT);
        (number.checked_sub(1).map(|number| &*self.codecs[number]), code)
    }

    /// The row's key as it is kept: the number of its codec, 0 where it is kept as it is, and its code.
    pub fn coded(&self, row: RowId) -> (u8, &[u8]) {
        (self.record(row)[FLAGS] >> CODEC_SHIFT, self.code(row).1)
    }

    /// Whether the row's key is `key`.
    pub fn has_key(&self, row: RowId, key: &[u8]) -> bool {
        match self.code(row) {
            (None, code) => code == key,
            (Some(codec), code) => codec.matches(code, key),
        }
    }

    /// Appends the row's key to `out`.
    pub fn key_into(&self, row: RowId, out: &mut Vec<u8>) {
        match self.code(row) {
            (None, code) => out.extend_from_slice(code),
            (Some(codec), code) => codec.decode(code, out),
        }
    }

    /// Reads the row's record. Returns something of what was read, for the read not to be optimised away.
    #[inline]
    pub fn warm_record(&self, row: RowId) -> u32 {
        if row == NONE {
            return 0;
        }
        let record = self.record(row);
        // A record reaches into the next cache line more often than not.
        u32::from(record[FLAGS]) ^ record.get(44).map_or(0, |byte| u32::from(*byte))
    }

    /// The row behind it in its bucket; reads its record ahead, too.
    #[inline]
    pub fn warm_next(&self, row: RowId) -> (RowId, u32) {
        let record = self.record(row);
        (word(record, 8), record.get(44).map_or(0, |byte| u32::from(*byte)))
    }

    /// Reads the part of the row's record that links it to others, if there is a row.
    #[inline]
    pub fn warm_link(&self, row: RowId) -> u32 {
        if row == NONE { 0 } else { self.due(row) }
    }

    /// Calls `each` for the rows among the next `most` records from `cursor` on, in the order in which they lie, and
    /// returns where to go on, or `None` at the end. Start with 0. A row that is there throughout a scan is met exactly once.
    pub fn scan(&self, cursor: RowId, most: usize, mut each: impl FnMut(RowId)) -> Option<RowId> {
        let cursor = cursor.max(1);
        // Freed records may have been joined, cut or cleared away since: only a chunk's begin is sure to be a record's.
        let mut at = (cursor / UNITS * UNITS).max(1);
        let mut left = most;
        loop {
            let chunk = (at / UNITS) as usize;
            let last = chunk + 1 == self.chunks.len();
            if chunk >= self.chunks.len() || (last && at % UNITS >= self.bump) {
                return None;
            }
            if UNITS - at % UNITS < SMALLEST as u32 {
                at = (chunk as u32 + 1) * UNITS;
                continue;
            }
            if at >= cursor && left == 0 {
                return Some(at);
            }
            let record = self.record(at);
            if at >= cursor {
                left -= 1;
                if word(record, 12) != FREED {
                    each(at);
                }
            }
            at += units_of(record);
        }
    }

    /// Every row, in the order in which they lie.
    pub fn rows(&self) -> Vec<RowId> {
        let mut rows = Vec::new();
        let mut at = Some(0);
        while let Some(cursor) = at {
            at = self.scan(cursor, usize::MAX, |row| rows.push(row));
        }
        rows
    }

    /// The codecs in use, oldest first.
    pub fn codecs(&self) -> &[Arc<Codec>] {
        &self.codecs
    }
}

/// An image being taken: chunks from `next` on are still to be handed over, as `before` has them.
struct Imaging {
    next: usize,
    before: Vec<Before>,
    image: Arena,
}

/// What has become of a chunk since the image was begun.
#[derive(Default)]
struct Before {
    /// The chunk, where it was given up.
    chunk: Option<Box<[u8]>>,
    /// Blocks as they were before they were written to, and which they are.
    blocks: Vec<(u8, Box<[u8]>)>,
    written: [u64; BLOCKS / 64],
}

impl Before {
    /// Before `len` bytes from `at` on are written to.
    fn keep(&mut self, chunk: &[u8], at: usize, len: usize) {
        if self.chunk.is_some() {
            return;
        }
        for block in at / BLOCK..(at + len).div_ceil(BLOCK) {
            let (word, bit) = (&mut self.written[block / 64], 1 << (block % 64));
            if *word & bit == 0 {
                *word |= bit;
                self.blocks.push((block as u8, chunk[block * BLOCK..][..BLOCK].into()));
            }
        }
    }

    /// The chunk as it was; `now` is what it is, where it has not been given up.
    fn restore(self, now: impl FnOnce() -> Box<[u8]>) -> Box<[u8]> {
        let mut chunk = self.chunk.unwrap_or_else(now);
        for (block, bytes) in self.blocks {
            chunk[usize::from(block) * BLOCK..][..BLOCK].copy_from_slice(&bytes);
        }
        chunk
    }
}

/// The records, and room for more.
#[derive(Default)]
pub struct Records {
    arena: Arena,
    /// Heads of the lists of freed records, by their length in units.
    freed: Vec<RowId>,
    freed_units: u64,
    /// The chunk in which joining goes on.
    joined: usize,
    long_free: Vec<u32>,
    imaging: Option<Box<Imaging>>,
}

impl std::ops::Deref for Records {
    type Target = Arena;

    fn deref(&self) -> &Arena {
        &self.arena
    }
}

impl Records {
    /// Bytes allocated, the codecs left out.
    pub fn bytes(&self) -> usize {
        let arena = &self.arena;
        let before = self.imaging.iter().flat_map(|imaging| &imaging.before);
        let before = before.map(|before| {
            let chunk = before.chunk.as_ref().map_or(0, |chunk| chunk.len());
            size_of::<Before>()
                + chunk
                + before.blocks.len() * BLOCK
                + before.blocks.capacity() * size_of::<(u8, Box<[u8]>)>()
        });
        arena.chunks.len() * CHUNK
            + before.sum::<usize>()
            + arena.chunks.capacity() * size_of::<Box<[u8]>>()
            + self.freed.capacity() * 4
            + arena.long.iter().map(|key| key.len() + 16).sum::<usize>()
            + arena.long.capacity() * size_of::<Arc<[u8]>>()
            + self.long_free.capacity() * 4
    }

    /// The one way to write to a record: `len` bytes of it.
    #[inline(always)]
    fn record_mut(&mut self, row: RowId, len: usize) -> &mut [u8] {
        let (number, at) = ((row / UNITS) as usize, (row % UNITS) as usize * UNIT);
        if self.imaging.is_some() {
            self.keep_for_image(number, at, len);
        }
        &mut self.arena.chunks[number][at..][..len]
    }

    #[inline(always)]
    fn head_mut(&mut self, row: RowId) -> &mut [u8; HEAD] {
        self.record_mut(row, HEAD).first_chunk_mut().expect("a record has a head")
    }

    /// An image under way has what is written to as it was.
    #[cold]
    fn keep_for_image(&mut self, number: usize, at: usize, len: usize) {
        if let Some(imaging) = &mut self.imaging
            && number >= imaging.next
            && let Some(before) = imaging.before.get_mut(number)
        {
            before.keep(&self.arena.chunks[number], at, len);
        }
    }

    /// A codec for the records to come. Returns its number; there is room for [`CODECS`].
    pub fn add_codec(&mut self, codec: Arc<Codec>) -> u8 {
        self.arena.codecs.push(codec);
        self.arena.codecs.len() as u8
    }

    /// Adds a record, in no bucket yet. `code` was written by the codec of this number; 0 is the key as it is.
    pub fn add(&mut self, codec: u8, code: &[u8], due: Minute, class: u32) -> RowId {
        let units = units_for(code.len());
        let row = self.allocate(units);
        let place = (code.len() > LONGEST_INLINE).then(|| self.add_long(code));
        let record = self.record_mut(row, units as usize * UNIT);
        set_word(record, 0, due);
        set_word(record, 4, NONE);
        set_word(record, 8, NONE);
        set_word(record, 12, class);
        record[VERSION..AGE].copy_from_slice(&f64::NAN.to_le_bytes());
        record[FLAGS] = codec << CODEC_SHIFT;
        let len = if place.is_some() { LONG } else { code.len() };
        if len < 0x80 {
            record[LENGTH] = len as u8;
        } else {
            record[LENGTH] = 0x80 | (len >> 8) as u8;
            record[LENGTH + 1] = len as u8;
        }
        let at = code_len(record).1;
        match place {
            Some(place) => set_word(record, at, place),
            None => record[at..at + code.len()].copy_from_slice(code),
        }
        row
    }

    fn add_long(&mut self, code: &[u8]) -> u32 {
        match self.long_free.pop() {
            Some(place) => {
                self.arena.long[place as usize] = code.into();
                place
            }
            None => {
                self.arena.long.push(code.into());
                self.arena.long.len() as u32 - 1
            }
        }
    }

    /// Takes a record out. It must be in no bucket any more.
    pub fn remove(&mut self, row: RowId) {
        let record = self.record(row);
        let units = units_of(record);
        if let (LONG, at) = code_len(record) {
            let place = word(record, at);
            self.arena.long[place as usize] = Arc::default();
            self.long_free.push(place);
        }
        self.free(row, units);
    }

    /// Gives all memory back. There must be no row left.
    pub fn clear(&mut self) {
        let chunks = std::mem::take(&mut self.arena.chunks);
        if let Some(imaging) = &mut self.imaging {
            for (number, chunk) in chunks.into_iter().enumerate().skip(imaging.next) {
                if let Some(before) = imaging.before.get_mut(number) {
                    before.chunk.get_or_insert(chunk);
                }
            }
        }
        self.arena.bump = 0;
        self.arena.long = Vec::new();
        self.freed = Vec::new();
        self.freed_units = 0;
        self.joined = 0;
        self.long_free = Vec::new();
    }

    /// Puts `units` from `row` on at the head of the list of their length.
    fn free(&mut self, row: RowId, units: u32) {
        if self.freed.len() <= units as usize {
            self.freed.resize(units as usize + 1, NONE);
        }
        let next = std::mem::replace(&mut self.freed[units as usize], row);
        let record = self.record_mut(row, FREED_HEAD);
        set_word(record, 0, next);
        set_word(record, 4, units);
        set_word(record, 8, NONE);
        set_word(record, 12, FREED);
        if next != NONE {
            set_word(self.record_mut(next, FREED_HEAD), 8, row);
        }
        self.freed_units += u64::from(units);
    }

    /// Takes a freed record off its list.
    fn unfree(&mut self, row: RowId) {
        let record = self.record(row);
        let (next, units, previous) = (word(record, 0), word(record, 4), word(record, 8));
        match previous {
            NONE => self.freed[units as usize] = next,
            _ => set_word(self.record_mut(previous, FREED_HEAD), 0, next),
        }
        if next != NONE {
            set_word(self.record_mut(next, FREED_HEAD), 8, previous);
        }
        self.freed_units -= u64::from(units);
    }

    fn take_freed(&mut self, units: usize) -> Option<RowId> {
        let row = self.freed.get(units).copied().filter(|row| *row != NONE)?;
        self.unfree(row);
        Some(row)
    }

    /// Cuts what is needed off a longer freed record.
    fn cut(&mut self, units: u32) -> Option<RowId> {
        let longer = (units as usize + SMALLEST..self.freed.len()).find(|longer| self.freed[*longer] != NONE)?;
        let row = self.take_freed(longer)?;
        self.free(row + units, longer as u32 - units);
        Some(row)
    }

    /// Joins freed neighbours in the next few chunks.
    fn join(&mut self) {
        for _ in 0..JOINED_AT_ONCE.min(self.arena.chunks.len()) {
            self.joined = (self.joined + 1) % self.arena.chunks.len();
            let last = self.joined + 1 == self.arena.chunks.len();
            let end = if last { self.arena.bump } else { UNITS };
            let mut at = u32::from(self.joined == 0);
            let mut free_from = None;
            loop {
                let row = self.joined as u32 * UNITS + at;
                let in_use = end - at < SMALLEST as u32 || word(self.record(row), 12) != FREED;
                match (in_use, free_from) {
                    (false, None) => free_from = Some((row, false)),
                    (false, Some((from, _))) => free_from = Some((from, true)),
                    (true, Some((from, true))) => {
                        let mut part = from;
                        while part < row {
                            let units = units_of(self.record(part));
                            self.unfree(part);
                            part += units;
                        }
                        self.free(from, row - from);
                        free_from = None;
                    }
                    (true, _) => free_from = None,
                }
                if end - at < SMALLEST as u32 {
                    break;
                }
                at += units_of(self.record(row));
            }
        }
    }

    fn allocate(&mut self, units: u32) -> RowId {
        if let Some(row) = self.take_freed(units as usize) {
            return row;
        }
        if self.arena.chunks.is_empty() || self.arena.bump + units > UNITS {
            if let Some(row) = self.cut(units) {
                return row;
            }
            if self.freed_units * 8 > self.arena.chunks.len() as u64 * u64::from(UNITS) {
                self.join();
                if let Some(row) = self.cut(units) {
                    return row;
                }
            }
            self.new_chunk();
        }
        let row = (self.arena.chunks.len() as u32 - 1) * UNITS + self.arena.bump;
        self.arena.bump += units;
        row
    }

    fn new_chunk(&mut self) {
        let chunks = self.arena.chunks.len() as u32;
        // Better none than a row in another's place.
        assert!(chunks < MOST_CHUNKS, "records: 16 GiB are full");
        if chunks > 0 {
            // What is left of the last one is a freed record, or too short for any: the scan knows.
            let rest = UNITS - self.arena.bump;
            if rest as usize >= SMALLEST {
                self.free((chunks - 1) * UNITS + self.arena.bump, rest);
            }
        }
        self.arena.chunks.push(vec![0; CHUNK].into_boxed_slice());
        // Unit 0 of the first chunk stays unused: number 0 is no row.
        self.arena.bump = u32::from(chunks == 0);
    }

    /// Sets the row before it.
    #[inline]
    pub fn set_previous(&mut self, row: RowId, other: RowId) {
        set_word(self.head_mut(row), 4, other);
    }

    /// Sets the row behind it.
    #[inline]
    pub fn set_next(&mut self, row: RowId, other: RowId) {
        set_word(self.head_mut(row), 8, other);
    }

    /// Puts the row between two others.
    #[inline]
    pub fn link(&mut self, row: RowId, previous: RowId, next: RowId) {
        let head = self.head_mut(row);
        set_word(head, 4, previous);
        set_word(head, 8, next);
    }

    /// Gives the row its due minute and class.
    #[inline]
    pub fn place(&mut self, row: RowId, due: Minute, class: u32) {
        let head = self.head_mut(row);
        set_word(head, 0, due);
        set_word(head, 12, class);
    }

    /// Gives the row its version, told in this age.
    #[inline]
    pub fn set_version(&mut self, row: RowId, version: f64, age: u16) {
        let head = self.head_mut(row);
        head[VERSION..AGE].copy_from_slice(&version.to_le_bytes());
        head[AGE..FLAGS].copy_from_slice(&age.to_le_bytes());
    }

    /// Sets the row's flags: of the bits of `mask`, those of `flags` are on afterwards.
    pub fn set_flags(&mut self, row: RowId, mask: u8, flags: u8) {
        let byte = &mut self.head_mut(row)[FLAGS];
        *byte = *byte & !mask | flags;
    }

    /// Begins an image of this moment; false where one is being taken already.
    pub fn begin_image(&mut self) -> bool {
        if self.imaging.is_some() {
            return false;
        }
        let Arena { chunks, bump, long, codecs } = &self.arena;
        let image = Arena { chunks: Vec::new(), bump: *bump, long: long.clone(), codecs: codecs.clone() };
        let before = chunks.iter().map(|_| Before::default()).collect();
        self.imaging = Some(Box::new(Imaging { next: 0, before, image }));
        true
    }

    /// Goes on with the image by a chunk of 256 KiB; returns it once it is whole.
    pub fn go_on_imaging(&mut self) -> Option<Arena> {
        let imaging = self.imaging.as_mut()?;
        if let Some(before) = imaging.before.get_mut(imaging.next) {
            let chunk = std::mem::take(before).restore(|| self.arena.chunks[imaging.next].clone());
            imaging.image.chunks.push(chunk);
            imaging.next += 1;
        }
        if imaging.next < imaging.before.len() {
            return None;
        }
        self.imaging.take().map(|imaging| imaging.image)
    }

    /// Panics where the lists of freed records are not what they should be. For tests.
    pub fn validate(&self) {
        let mut all = 0;
        for (units, &head) in self.freed.iter().enumerate() {
            let (mut row, mut previous) = (head, NONE);
            while row != NONE {
                let record = self.record(row);
                let expected = (FREED, units as u32, previous);
                assert_eq!((word(record, 12), word(record, 4), word(record, 8)), expected, "records: a freed list");
                (previous, row) = (row, word(record, 0));
                all += units as u64;
            }
        }
        assert_eq!(all, self.freed_units, "records: freed units");
    }
}
