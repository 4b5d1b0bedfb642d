//! The kept queue as a file, and back.
//!
//! Layout, all numbers little-endian: magic, format version (`u32`), then frames. A frame is its length (`u32`), the CRC-32 of its bytes
//! (`u32`), and the bytes. The first frame is the header, JSON; the last is empty. The others hold the rows in queue order, class by
//! class, minute by minute, first in first: `C` a class, `M` a minute, `K` a key as the number of bytes it shares with the key before, and the rest.
//! What is read back is checked as data from outside is: a file that lies is refused, whatever its checksums say.

use std::collections::HashMap;
use std::io::{Read, Write};

use serde::{Deserialize, Serialize};

use super::class::{ClassId, ClassKey};
use super::keeper::{Classified, Judge, Keeper};
use super::key::is_wtf8;
use super::records::{Arena, NONE, RowId};
use super::row::Row;
use super::time::{Minute, start_of};

const MAGIC: &[u8; 8] = b"QKEEPER\0";
/// The format written, and the only one read.
pub const FORMAT: u32 = 1;
const FRAME: usize = 256 * 1024;
/// No frame is longer than this: a key of any length the queue takes fits.
const LONGEST_FRAME: usize = 1 << 30;

/// Why a snapshot cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SnapshotError {
    /// It is not a snapshot, or not whole, or damaged.
    Damaged(String),
    /// It was written in another format.
    Version(u32),
    /// It is of another node.
    Foreign(String),
    /// It cannot be read.
    Io(String),
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
            },
        });
        true
    }

    /// Goes on with the image, some 100 µs at a time; returns it once it is whole.
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

    /// Keeps a row of a snapshot, unless something newer is known of its key. Returns whether it did.
    fn restore(&mut self, key: &[u8], class: &RestoredClass, minute: Minute) -> bool {
        let hash = self.table.hash(key);
        if self.table.find(hash, key).is_some() || self.versions.get(hash).is_some() || !self.owns(key) {
            return false;
        }
        let ClassKey { cadence, carried, from_sitemap, changed, urgent, demand, .. } = class.key;
        let given = |yes: bool| if yes { 1.0 } else { f64::NAN };
        let row = Row {
            due: start_of(minute),
            interval: if carried { cadence } else { f64::NAN },
            changed_at: given(changed),
            urgent_at: given(urgent),
            demand,
            from_sitemap,
        };
        let judge = if self.config.classify {
            Judge::Host(Some(Classified { route: self.hold_route(&class.route), cadence, carried }))
        } else {
            Judge::Rules
        };
        let target = self.judge(key, &row, judge, None);
        let kept = target.is_some();
        if let Some(target) = target {
            self.keep_unverified(hash, key, target);
        }
        if let Judge::Host(Some(said)) = judge {
            self.release_route(said.route);
        }
        kept
    }

    /// Keeps up to `most` more rows of a snapshot; returns how many rows were kept in all once there are no more.
    pub fn go_on_restoring(&mut self, from: &mut Restoring, most: usize) -> Result<Option<u64>, SnapshotError> {
        for _ in 0..most {
            match from.next()? {
                None => return Ok(Some(from.kept)),
                Some(minute) => from.kept += u64::from(self.restore(&from.key, &from.class, minute)),
            }
        }
        Ok(None)
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
    /// Rows in it.
    pub fn rows(&self) -> u64 {
        self.head.header.rows
    }

    /// Writes it.
    pub fn write(&self, out: &mut dyn Write) -> std::io::Result<()> {
        out.write_all(MAGIC)?;
        out.write_all(&FORMAT.to_le_bytes())?;
        put_frame(out, &serde_json::to_vec(&self.head.header)?)?;
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
        let mut frame = Vec::with_capacity(FRAME + FRAME / 4);
        let (mut last_class, mut key, mut last_key) = (usize::MAX, Vec::new(), Vec::new());
        for (_, minute, head, class) in buckets {
            if class != last_class {
                let (_, _, class_key, route) = &self.head.classes[class];
                put_class(&mut frame, class_key, route);
                last_class = class;
            }
            frame.push(b'M');
            put_number(&mut frame, u64::from(minute));
            let mut row = head;
            while row != NONE {
                key.clear();
                self.arena.key_into(row, &mut key);
                let shared = key.iter().zip(&last_key).take_while(|(a, b)| a == b).count();
                frame.push(b'K');
                put_number(&mut frame, shared as u64);
                put_bytes(&mut frame, &key[shared..]);
                std::mem::swap(&mut key, &mut last_key);
                row = self.arena.next(row);
                if frame.len() >= FRAME {
                    put_frame(out, &frame)?;
                    frame.clear();
                }
            }
        }
        if !frame.is_empty() {
            put_frame(out, &frame)?;
        }
        put_frame(out, &[])
    }
}

/// A snapshot being read.
pub struct Restoring {
    from: Box<dyn Read + Send>,
    header: Header,
    frame: Vec<u8>,
    at: usize,
    class: RestoredClass,
    minute: Option<Minute>,
    key: Vec<u8>,
    rows: u64,
    kept: u64,
}

fn damaged(what: &str) -> SnapshotError {
    SnapshotError::Damaged(format!(
        "the snapshot is damaged ({what}): it is ignored, and the queue loads from the table"
    ))
}

/// What a failed read says of the file: that it ends early, or nothing.
fn unread(err: &std::io::Error) -> SnapshotError {
    match err.kind() {
        std::io::ErrorKind::UnexpectedEof => damaged("it ends early"),
        _ => SnapshotError::Io(format!("the snapshot cannot be read: {err}")),
    }
}

fn read_frame(from: &mut dyn Read, frame: &mut Vec<u8>) -> Result<(), SnapshotError> {
    let mut head = [0; 8];
    from.read_exact(&mut head).map_err(|err| unread(&err))?;
    let [a, b, c, d, crc @ ..] = head;
    let len = u32::from_le_bytes([a, b, c, d]) as usize;
    if len > LONGEST_FRAME {
        return Err(damaged("a frame is too long"));
    }
    frame.clear();
    let read = from.take(len as u64).read_to_end(frame).map_err(|err| unread(&err))?;
    if read < len {
        return Err(damaged("it ends early"));
    }
    if crc32fast::hash(frame) != u32::from_le_bytes(crc) {
        return Err(damaged("a checksum is wrong"));
    }
    Ok(())
}

impl Restoring {
    /// Opens a snapshot: checks what it is before anything is kept.
    pub fn open(mut from: Box<dyn Read + Send>) -> Result<Restoring, SnapshotError> {
        let mut magic = [0; 12];
        from.read_exact(&mut magic).map_err(|err| unread(&err))?;
        let [magic @ .., a, b, c, d] = magic;
        if magic != *MAGIC {
            return Err(damaged("it does not begin as a snapshot does"));
        }
        let version = u32::from_le_bytes([a, b, c, d]);
        if version != FORMAT {
            return Err(SnapshotError::Version(version));
        }
        let mut frame = Vec::new();
        read_frame(&mut *from, &mut frame)?;
        let header = serde_json::from_slice(&frame).map_err(|_| damaged("its header"))?;
        let key = ClassKey {
            route: 0,
            cadence: f64::NAN,
            carried: false,
            from_sitemap: false,
            changed: false,
            urgent: false,
            demand: f64::NAN,
        };
        Ok(Restoring {
            from,
            header,
            frame: Vec::new(),
            at: 0,
            class: RestoredClass { route: String::new(), key },
            minute: None,
            key: Vec::new(),
            rows: 0,
            kept: 0,
        })
    }

    /// When it was written, ms since the epoch.
    pub fn saved_at(&self) -> f64 {
        self.header.saved_at
    }

    /// Reads it to the end and keeps nothing: whether it is whole.
    pub fn check(&mut self) -> Result<(), SnapshotError> {
        while self.next()?.is_some() {}
        Ok(())
    }

    fn bytes(&mut self, len: usize) -> Result<&[u8], SnapshotError> {
        let end = self.at.checked_add(len).ok_or_else(|| damaged("a length"))?;
        let bytes = self.frame.get(self.at..end).ok_or_else(|| damaged("a length"))?;
        self.at = end;
        Ok(bytes)
    }

    fn number(&mut self) -> Result<u64, SnapshotError> {
        let (mut number, mut shift) = (0u64, 0);
        loop {
            let byte = self.bytes(1)?[0];
            number |= u64::from(byte & 0x7F).checked_shl(shift).ok_or_else(|| damaged("a number"))?;
            if byte < 0x80 {
                return Ok(number);
            }
            shift += 7;
        }
    }

    fn float(&mut self) -> Result<f64, SnapshotError> {
        let bytes = self.bytes(8)?;
        Ok(bytes.first_chunk().map_or(f64::NAN, |bytes| f64::from_le_bytes(*bytes)))
    }

    /// Reads on to the next row: its minute; class and key are in `self`. `None` at the end.
    fn next(&mut self) -> Result<Option<Minute>, SnapshotError> {
        loop {
            if self.at == self.frame.len() {
                read_frame(&mut *self.from, &mut self.frame)?;
                self.at = 0;
                if self.frame.is_empty() {
                    if self.rows != self.header.rows {
                        return Err(damaged("rows are missing"));
                    }
                    return Ok(None);
                }
            }
            match self.bytes(1)?[0] {
                b'C' => {
                    let len = self.number()? as usize;
                    let route = std::str::from_utf8(self.bytes(len)?).map_err(|_| damaged("a route"))?.to_owned();
                    let (cadence, demand) = (self.float()?, self.float()?);
                    let flags = self.bytes(1)?[0];
                    self.class.route = route;
                    self.class.key = ClassKey {
                        route: 0,
                        cadence,
                        carried: flags & 8 != 0,
                        from_sitemap: flags & 4 != 0,
                        changed: flags & 2 != 0,
                        urgent: flags & 1 != 0,
                        demand,
                    };
                    self.minute = None;
                }
                b'M' => {
                    let minute = self.number()?;
                    self.minute = Some(Minute::try_from(minute).map_err(|_| damaged("a minute"))?);
                }
                b'K' => {
                    let (shared, len) = (self.number()? as usize, self.number()? as usize);
                    if shared > self.key.len() {
                        return Err(damaged("a key"));
                    }
                    self.key.truncate(shared);
                    let mut key = std::mem::take(&mut self.key);
                    key.extend_from_slice(self.bytes(len)?);
                    self.key = key;
                    if !is_wtf8(&self.key) {
                        return Err(damaged("a key that is no string"));
                    }
                    self.rows += 1;
                    return self.minute.map(Some).ok_or_else(|| damaged("a row without a minute"));
                }
                _ => return Err(damaged("an unknown entry")),
            }
        }
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
        let mut from = Restoring::open(Box::new(std::io::Cursor::new(bytes.to_vec())))?;
        keeper.check_snapshot(&from)?;
        while keeper.go_on_restoring(&mut from, 64)?.is_none() {}
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
