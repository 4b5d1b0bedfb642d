//! The kept queue as a file, and back.
//!
//! Layout, all numbers little-endian: magic, format version (`u32`), then frames. A frame is its length (`u32`), the CRC-32 of its bytes
//! (`u32`), and the bytes. The first frame is the header, JSON; then one for each codec; then the rows in queue order, class by
//! class, minute by minute, first in first: `C` a class, `M` a minute, `K` a key as its codec's number and its code. The last frame is
//! empty. Keys are written as they are kept, so that neither writing nor reading back has to compress them anew.
//!
//! What is read back is checked as data from outside is: a file that lies is refused, whatever its checksums say.

use std::collections::HashMap;
use std::io::Write;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use super::class::{ClassId, ClassKey};
use super::codec::Codec;
use super::keeper::{Classified, Judge, Keeper};
use super::key::{KeyHasher, is_wtf8};
use super::records::{Arena, NONE, RowId};
use super::row::Row;
use super::time::{Minute, start_of};

const MAGIC: &[u8; 8] = b"QKEEPER\0";
/// The format written, and the only one read.
pub const FORMAT: u32 = 1;
const FRAME: usize = 256 * 1024;
/// Buckets whose rows are followed side by side.
const ABREAST: usize = 32;

/// Why a snapshot cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SnapshotError {
    /// It is not a snapshot, or not whole, or damaged.
    Damaged(String),
    /// It was written in another format.
    Version(u32),
    /// It is of another node.
    Foreign(String),
}

/// The first frame.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Header {
    node: String,
    ring: Vec<String>,
    saved_at: f64,
    rows: u64,
    classes: u64,
    codecs: usize,
}

/// What an image holds besides the records.
pub(super) struct ImageHead {
    classes: Vec<(ClassId, u64, ClassKey, String)>,
    header: Header,
}

/// One moment of a queue, to be written without it.
pub struct Image {
    arena: Arena,
    head: ImageHead,
}

/// The class of rows read back.
#[derive(Clone, Debug, PartialEq)]
struct RestoredClass {
    route: String,
    key: ClassKey,
}

/// A row read back: its key and code are somewhere in the [`Restoring`].
struct RestoredRow {
    hash: u64,
    key: std::ops::Range<usize>,
    codec: u8,
    code: std::ops::Range<usize>,
    minute: Minute,
}

impl Keeper {
    /// Begins an image of this moment; false where one is being taken already.
    pub fn begin_image(&mut self) -> bool {
        if !self.table.begin_image() {
            return false;
        }
        let classes = self.classes.iter();
        let classes =
            classes.map(|(id, class)| (id, class.age, class.key, self.classes.route(class.key.route).to_string()));
        self.image = Some(ImageHead {
            classes: classes.collect(),
            header: Header {
                node: self.config.node.clone(),
                ring: self.ring.nodes().to_vec(),
                saved_at: self.now.wall,
                rows: self.table.len() as u64,
                classes: self.classes.len() as u64,
                codecs: self.table.codecs().len(),
            },
        });
        true
    }

    /// Goes on with the image, a few chunks at a time; returns it once it is whole.
    pub fn go_on_imaging(&mut self) -> Option<Image> {
        let arena = self.table.go_on_imaging(4)?;
        Some(Image { arena, head: self.image.take()? })
    }

    /// Gives up an image being taken.
    pub fn abandon_image(&mut self) {
        self.table.abandon_image();
        self.image = None;
    }

    /// A snapshot was written, in so many ms.
    pub fn snapshot_written(&mut self, ms: f64) {
        self.trust.snapshot_ms = Some(ms);
    }

    /// Whether a snapshot is of this node.
    pub fn check_snapshot(&self, from: &Restoring) -> Result<(), SnapshotError> {
        if from.header.node == self.config.node {
            return Ok(());
        }
        Err(SnapshotError::Foreign(format!(
            "the snapshot was written by node {:?}, and this is {:?}: remove the file or give this node its own",
            from.header.node, self.config.node
        )))
    }

    /// Makes ready for the rows of the snapshot. Its codecs are taken over, as far as there is room for them.
    pub fn begin_restoring(&mut self, from: &mut Restoring) {
        self.table.expect(from.header.rows as usize);
        from.numbers = from.codecs.iter().map(|codec| self.table.take_codec(codec)).collect();
    }

    /// To be called again and again when no more rows come, whatever the reason, until it is true: gives back what room was made for more.
    pub fn end_restoring(&mut self) -> bool {
        self.table.expect_no_more()
    }

    /// Keeps the rows that [`Restoring::read_on`] has read, unless something newer is known of their keys.
    pub fn restore(&mut self, from: &mut Restoring) {
        let ClassKey { cadence, carried, from_sitemap, changed, urgent, demand, .. } = from.class.key;
        let given = |yes: bool| if yes { 1.0 } else { f64::NAN };
        let mut row = Row {
            due: 0.0,
            interval: if carried { cadence } else { f64::NAN },
            changed_at: given(changed),
            urgent_at: given(urgent),
            demand,
            from_sitemap,
        };
        let host = self.config.classify.then(|| self.hold_route(&from.class.route));
        let judge = match host {
            Some(route) => Judge::Host(Some(Classified { route, cadence, carried })),
            None => Judge::Rules,
        };
        // So that the waits for a slot of the index overlap.
        std::hint::black_box(from.rows.iter().fold(0, |read, row| read ^ self.table.warm_home(row.hash)));
        for restored in &from.rows {
            let (hash, key) = (restored.hash, &from.keys[restored.key.clone()]);
            if self.table.find(hash, key).is_some() || self.versions.get(hash).is_some() || !self.owns(key) {
                continue;
            }
            row.due = start_of(restored.minute);
            if let Some(target) = self.judge(key, &row, judge, None) {
                let code = &from.bytes[restored.code.clone()];
                let number = match restored.codec {
                    0 => Some(0),
                    number => from.numbers[usize::from(number) - 1],
                };
                self.keep_unverified(hash, key, number.map(|number| (number, code)), target);
                from.kept += 1;
            }
        }
        if let Some(route) = host {
            self.release_route(route);
        }
    }
}

fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_number(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn put_class(out: &mut Vec<u8>, key: &ClassKey, route: &str) {
    let flags = [key.carried, key.from_sitemap, key.changed, key.urgent];
    out.push(b'C');
    put_bytes(out, route.as_bytes());
    out.extend_from_slice(&key.cadence.to_le_bytes());
    out.extend_from_slice(&key.demand.to_le_bytes());
    out.push(flags.iter().fold(0, |bits, flag| bits << 1 | u8::from(*flag)));
}

fn put_frame(out: &mut dyn Write, frame: &[u8]) -> std::io::Result<()> {
    out.write_all(&(frame.len() as u32).to_le_bytes())?;
    out.write_all(&crc32fast::hash(frame).to_le_bytes())?;
    out.write_all(frame)
}

impl Image {
    /// Lists the rows of several buckets, a step in each at a time: where the next row is has to be read from the one before,
    /// and so the waits of all of them overlap.
    fn follow(&self, heads: impl Iterator<Item = RowId>, rows: &mut [Vec<RowId>; ABREAST]) {
        let mut heads: SmallVec<[RowId; ABREAST]> = heads.collect();
        while heads.iter().any(|row| *row != NONE) {
            for (row, list) in heads.iter_mut().zip(&mut *rows).filter(|(row, _)| **row != NONE) {
                list.push(*row);
                *row = self.arena.next(*row);
            }
        }
    }

    /// Rows in it.
    pub fn rows(&self) -> u64 {
        self.head.header.rows
    }

    /// Writes it.
    pub fn write(&self, out: &mut dyn Write) -> std::io::Result<()> {
        out.write_all(MAGIC)?;
        out.write_all(&FORMAT.to_le_bytes())?;
        put_frame(out, &serde_json::to_vec(&self.head.header)?)?;
        let mut frame = Vec::with_capacity(FRAME + FRAME / 4);
        for codec in self.arena.codecs() {
            codec.write(&mut frame);
            put_frame(out, &frame)?;
            frame.clear();
        }
        // The first of every minute of every class, oldest class first.
        let by_id: HashMap<ClassId, usize> =
            self.head.classes.iter().enumerate().map(|(at, class)| (class.0, at)).collect();
        let mut buckets: Vec<(u64, Minute, RowId, usize)> = Vec::new();
        for row in self.arena.rows() {
            if self.arena.previous(row) == NONE
                && let Some(&at) = by_id.get(&self.arena.class(row))
            {
                buckets.push((self.head.classes[at].1, self.arena.due(row), row, at));
            }
        }
        buckets.sort_unstable();
        let mut last_class = usize::MAX;
        let mut rows: [Vec<RowId>; ABREAST] = Default::default();
        for abreast in buckets.chunks(ABREAST) {
            self.follow(abreast.iter().map(|bucket| bucket.2), &mut rows);
            for (&(_, minute, _, class), rows) in abreast.iter().zip(&mut rows) {
                if class != last_class {
                    let (_, _, class_key, route) = &self.head.classes[class];
                    put_class(&mut frame, class_key, route);
                    last_class = class;
                }
                frame.push(b'M');
                put_number(&mut frame, u64::from(minute));
                for row in rows.drain(..) {
                    let (codec, code) = self.arena.coded(row);
                    frame.extend_from_slice(&[b'K', codec]);
                    put_bytes(&mut frame, code);
                    if frame.len() >= FRAME {
                        put_frame(out, &frame)?;
                        frame.clear();
                    }
                }
            }
        }
        if !frame.is_empty() {
            put_frame(out, &frame)?;
        }
        put_frame(out, &[])
    }
}

/// A snapshot being read: the whole file, in memory.
pub struct Restoring {
    bytes: Vec<u8>,
    header: Header,
    codecs: Vec<Arc<Codec>>,
    /// By the codecs' numbers in the file, less one: which they are in the queue; `None` where there is no room for one.
    numbers: Vec<Option<u8>>,
    at: usize,
    end: usize,
    class: RestoredClass,
    minute: Option<Minute>,
    seen: u64,
    kept: u64,
    /// The rows read and not yet taken, all of `class`, and their keys.
    rows: Vec<RestoredRow>,
    keys: Vec<u8>,
}

fn damaged(what: &str) -> SnapshotError {
    SnapshotError::Damaged(format!(
        "the snapshot is damaged ({what}): it is ignored, and the queue loads from the table"
    ))
}

/// Takes `len` bytes from the front.
fn split<'a>(from: &mut &'a [u8], len: usize) -> Result<&'a [u8], SnapshotError> {
    from.split_off(..len).ok_or_else(|| damaged("it ends early"))
}

fn word(bytes: &[u8]) -> u32 {
    bytes.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

/// The next frame, checked.
fn frame<'a>(from: &mut &'a [u8]) -> Result<&'a [u8], SnapshotError> {
    let (len, crc) = (word(split(from, 4)?) as usize, word(split(from, 4)?));
    let frame = split(from, len)?;
    if crc32fast::hash(frame) != crc {
        return Err(damaged("a checksum is wrong"));
    }
    Ok(frame)
}

fn number(from: &mut &[u8]) -> Result<u64, SnapshotError> {
    let (mut number, mut shift) = (0u64, 0);
    loop {
        let byte = split(from, 1)?[0];
        number |= u64::from(byte & 0x7F).checked_shl(shift).ok_or_else(|| damaged("a number"))?;
        if byte < 0x80 {
            return Ok(number);
        }
        shift += 7;
    }
}

fn float(from: &mut &[u8]) -> Result<f64, SnapshotError> {
    Ok(split(from, 8)?.first_chunk().map_or(f64::NAN, |bytes| f64::from_le_bytes(*bytes)))
}

fn read_class(from: &mut &[u8]) -> Result<RestoredClass, SnapshotError> {
    let len = number(from)? as usize;
    let route = std::str::from_utf8(split(from, len)?).map_err(|_| damaged("a route"))?.to_owned();
    let (cadence, demand) = (float(from)?, float(from)?);
    let flags = split(from, 1)?[0];
    let key = ClassKey {
        route: 0,
        cadence,
        carried: flags & 8 != 0,
        from_sitemap: flags & 4 != 0,
        changed: flags & 2 != 0,
        urgent: flags & 1 != 0,
        demand,
    };
    Ok(RestoredClass { route, key })
}

impl Restoring {
    /// Opens a snapshot and reads it to its end: what it is, and whether it is whole and makes sense. Nothing is kept yet.
    pub fn open(bytes: Vec<u8>) -> Result<Restoring, SnapshotError> {
        let mut from = &bytes[..];
        if split(&mut from, MAGIC.len())? != MAGIC {
            return Err(damaged("it does not begin as a snapshot does"));
        }
        let version = word(split(&mut from, 4)?);
        if version != FORMAT {
            return Err(SnapshotError::Version(version));
        }
        let header: Header = serde_json::from_slice(frame(&mut from)?).map_err(|_| damaged("its header"))?;
        let mut codecs = Vec::new();
        for _ in 0..header.codecs {
            codecs.push(Arc::new(Codec::read(frame(&mut from)?).ok_or_else(|| damaged("a codec"))?));
        }
        let first = bytes.len() - from.len();
        while !frame(&mut from)?.is_empty() {}
        let nothing = ClassKey {
            route: 0,
            cadence: f64::NAN,
            carried: false,
            from_sitemap: false,
            changed: false,
            urgent: false,
            demand: f64::NAN,
        };
        let mut restoring = Restoring {
            bytes,
            header,
            codecs,
            numbers: Vec::new(),
            at: first,
            end: first,
            class: RestoredClass { route: String::new(), key: nothing },
            minute: None,
            seen: 0,
            kept: 0,
            rows: Vec::new(),
            keys: Vec::new(),
        };
        while restoring.read_on(4096, None)? {}
        if restoring.seen != restoring.header.rows {
            return Err(damaged("rows are missing"));
        }
        (restoring.at, restoring.end) = (first, first);
        Ok(restoring)
    }

    /// When it was written, ms since the epoch.
    pub fn saved_at(&self) -> f64 {
        self.header.saved_at
    }

    /// Rows kept from it so far.
    pub fn kept(&self) -> u64 {
        self.kept
    }

    /// Reads up to `most` more rows, all of one class, for [`Keeper::restore`]; false at the end. Without a hasher rows are only checked.
    pub fn read_on(&mut self, most: usize, hasher: Option<&KeyHasher>) -> Result<bool, SnapshotError> {
        self.rows.clear();
        self.keys.clear();
        while self.rows.len() < most {
            if self.at == self.end {
                // The checksum has been seen to: the first pass went through all frames.
                let mut from = &self.bytes[self.at..];
                let len = word(split(&mut from, 4)?) as usize;
                self.at += 8;
                self.end = self.at + len;
                if len == 0 {
                    self.end = self.at - 8;
                    self.at = self.end;
                    return Ok(!self.rows.is_empty());
                }
            }
            let mut from = self.bytes.get(self.at..self.end).ok_or_else(|| damaged("it ends early"))?;
            match split(&mut from, 1)?[0] {
                b'C' if !self.rows.is_empty() => return Ok(true),
                b'C' => {
                    self.class = read_class(&mut from)?;
                    self.minute = None;
                }
                b'M' => {
                    let minute = number(&mut from)?;
                    self.minute = Some(Minute::try_from(minute).map_err(|_| damaged("a minute"))?);
                }
                b'K' => {
                    let codec = split(&mut from, 1)?[0];
                    let len = number(&mut from)? as usize;
                    let code = split(&mut from, len)?;
                    let minute = self.minute.ok_or_else(|| damaged("a row without a minute"))?;
                    let start = self.keys.len();
                    match codec.checked_sub(1) {
                        None => self.keys.extend_from_slice(code),
                        Some(number) => match self.codecs.get(usize::from(number)) {
                            Some(codec) => codec.decode(code, &mut self.keys),
                            None => return Err(damaged("a key's codec")),
                        },
                    }
                    let key = &self.keys[start..];
                    if !is_wtf8(key) {
                        return Err(damaged("a key that is no string"));
                    }
                    let end = self.end - from.len();
                    self.rows.push(RestoredRow {
                        hash: hasher.map_or(0, |hasher| hasher.hash(key)),
                        key: start..self.keys.len(),
                        codec,
                        code: end - len..end,
                        minute,
                    });
                    self.seen += 1;
                }
                _ => return Err(damaged("an unknown entry")),
            }
            self.at = self.end - from.len();
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::super::config::Config;
    use super::super::keeper::Event;
    use super::super::time::Now;
    use super::*;

    const NOW: Now = Now { wall: 1e9, mono: 0.0 };

    fn filled() -> Keeper {
        let mut keeper = Keeper::new(Config::default(), NOW);
        for i in 0..5_000u32 {
            let key = match i % 50 {
                0 => format!("{}\u{0}{i}", "long".repeat(i as usize)).into_bytes(),
                _ => format!("https://www.example.com/p/{}?x={i}", i % 97).into_bytes(),
            };
            let mut row = Row::due_at(f64::from(i % 37) * 60_000.0);
            row.from_sitemap = i % 3 == 0;
            row.interval = if i % 5 == 0 { f64::from(i % 7 + 1) * 1e6 } else { f64::NAN };
            row.changed_at = if i % 11 == 0 { 5.0 } else { f64::NAN };
            row.demand = if i % 22 == 0 { 9.0 } else { f64::NAN };
            keeper.apply(&key, Event::Put(row, Judge::Rules), f64::NAN);
        }
        keeper
    }

    fn saved(keeper: &mut Keeper) -> Vec<u8> {
        assert!(keeper.begin_image());
        let image = loop {
            if let Some(image) = keeper.go_on_imaging() {
                break image;
            }
        };
        let mut bytes = Vec::new();
        image.write(&mut bytes).expect("memory takes it");
        bytes
    }

    fn restored(bytes: &[u8]) -> Result<Keeper, SnapshotError> {
        let mut keeper = Keeper::new(Config::default(), NOW);
        let mut from = Restoring::open(bytes.to_vec())?;
        keeper.check_snapshot(&from)?;
        keeper.begin_restoring(&mut from);
        let hasher = keeper.hasher();
        while from.read_on(64, Some(&hasher))? {
            keeper.restore(&mut from);
        }
        while !keeper.end_restoring() {}
        keeper.validate();
        Ok(keeper)
    }

    #[test]
    fn a_queue_comes_back_in_its_order() {
        let mut keeper = filled();
        let bytes = saved(&mut keeper);
        let back = restored(&bytes).expect("it is whole");
        assert_eq!(back.len(), keeper.len());
        assert_eq!(back.unverified, back.len() as u64);
        assert_eq!(back.top(10_000), keeper.top(10_000));
    }

    #[test]
    fn an_image_is_of_one_moment_however_much_is_written_meanwhile() {
        let mut keeper = filled();
        let before = saved(&mut keeper);
        assert!(keeper.begin_image());
        assert!(!keeper.begin_image(), "one at a time");
        for key in keeper.keys() {
            keeper.apply(&key, Event::Put(Row::due_at(77.0 * 60_000.0), Judge::Rules), f64::NAN);
        }
        for key in keeper.keys() {
            keeper.apply(&key, Event::Gone, f64::NAN);
        }
        let image = keeper.go_on_imaging().or_else(|| keeper.go_on_imaging()).or_else(|| keeper.go_on_imaging());
        let mut after = Vec::new();
        image.expect("a few chunks").write(&mut after).expect("memory takes it");
        assert!(before == after);
    }

    #[test]
    fn no_damage_passes_or_panics() {
        let bytes = saved(&mut filled());
        let mut state = 1u64;
        for round in 0..400 {
            let mut copy = bytes.clone();
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let at = (state >> 33) as usize % copy.len();
            if round % 2 == 0 {
                copy[at] ^= 1 << (state >> 20 & 7);
            } else {
                copy.truncate(at);
            }
            assert!(restored(&copy).is_err(), "round {round}, byte {at} of {}", bytes.len());
        }
        assert_eq!(restored(b"QKEEPER\0\x02\0\0\0").err(), Some(SnapshotError::Version(2)));
    }

    #[test]
    fn a_lie_with_the_right_checksum_is_refused() {
        let mut bytes = saved(&mut Keeper::new(Config::default(), NOW));
        bytes.truncate(bytes.len() - 8);
        for frame in [
            &b"K\x05\x01a"[..],
            b"K\0\x01a",
            b"M\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01",
            b"C\x10",
            b"Z",
            b"M\x01K\0\xFF\xFF\xFF\xFF\x0F",
        ] {
            let mut lie = bytes.clone();
            put_frame(&mut lie, frame).expect("memory takes it");
            put_frame(&mut lie, &[]).expect("memory takes it");
            assert!(matches!(restored(&lie), Err(SnapshotError::Damaged(_))), "{frame:?}");
        }
    }
}
