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
use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::class::{ClassId, ClassKey, UNROUTED};
use super::codec::Codec;
use super::follow::{ABREAST, Chain, follow};
use super::keeper::{Classified, Keeper};
use super::key::is_wtf8;
use super::records::{Arena, NONE, RowId};
use super::row::{Row, given};
use super::rules::{Ruled, Rules};
use super::table::NewKey;
use super::time::Minute;

const MAGIC: &[u8; 8] = b"QKEEPER\0";
/// The format written, and the only one read.
pub const FORMAT: u32 = 1;
/// Bytes of rows in a frame: what is written or checked between two breaths, well under 1 ms.
const FRAME: usize = 64 * 1024;
/// Rows followed between two breaths.
const FOLLOWED: usize = 1_024;
/// Records looked at between two breaths: more than a chunk has, since a scan begins with the chunk anew.
const SCANNED: usize = 16_384;

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
    classes: Vec<(ClassId, u64, ClassKey, Arc<str>)>,
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

/// What has been found out of a key while it was checked: reading back need not decode it again.
#[derive(Clone, Copy)]
struct CheckedKey {
    hash: u64,
    ruled: Ruled,
}

/// A row read back. Its code is somewhere in the file.
struct RestoredRow {
    key: CheckedKey,
    codec: u8,
    code: Range<usize>,
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
            classes.map(|(id, class)| (id, class.age, class.key, self.classes.route(class.key.route).clone()));
        self.image = Some(ImageHead {
            classes: classes.collect(),
            header: Header {
                node: self.config.node.clone(),
                ring: self.ring().nodes().to_vec(),
                saved_at: self.now.wall,
                rows: self.table.len() as u64,
                classes: self.classes.len() as u64,
                codecs: self.table.codecs().len(),
            },
        });
        true
    }

    /// Goes on with the image, a chunk at a time; returns it once it is whole.
    pub fn go_on_imaging(&mut self) -> Option<Image> {
        let arena = self.table.go_on_imaging()?;
        Some(Image { arena, head: self.image.take()? })
    }

    /// A snapshot was written, in so many ms.
    pub fn snapshot_written(&mut self, ms: f64) {
        self.trust.snapshot_ms = Some(ms);
    }

    /// Whether a snapshot is of this node.
    pub fn check_snapshot(&self, from: &Restoring) -> Result<(), SnapshotError> {
        if from.snapshot.header.node == self.config.node {
            return Ok(());
        }
        Err(SnapshotError::Foreign(format!(
            "the snapshot was written by node {:?}, and this is {:?}: remove the file or give this node its own",
            from.snapshot.header.node, self.config.node
        )))
    }

    /// Makes ready for the rows of the snapshot. Its codecs are taken over, as far as there is room for them.
    pub fn begin_restoring(&mut self, from: &mut Restoring) {
        self.table.expect(from.snapshot.header.rows as usize);
        from.numbers = from.snapshot.codecs.iter().map(|codec| self.table.take_codec(codec)).collect();
    }

    /// To be called again and again when no more rows come, whatever the reason, until it is true: gives back what room was made for more.
    pub fn end_restoring(&mut self) -> bool {
        self.table.expect_no_more()
    }

    /// Keeps the rows that [`Restoring::read_on`] has read, unless something newer is known of their keys.
    pub fn restore(&mut self, from: &mut Restoring) {
        let ClassKey { cadence, carried, from_sitemap, changed, urgent, demand, .. } = from.class.key;
        let told = |yes: bool| if yes { 1.0 } else { f64::NAN };
        let row = Row {
            due: 0.0,
            interval: if carried { cadence } else { f64::NAN },
            changed_at: told(changed),
            urgent_at: told(urgent),
            demand,
            from_sitemap,
        };
        let host = self.config.classify.then(|| self.hold_route(&from.class.route));
        // A host's classifier may have said of a row what no row says.
        let carried = if host.is_some() { carried } else { given(row.interval) };
        // Not so where the configuration has changed since the keys were checked.
        let still_ruled = Arc::ptr_eq(&from.snapshot.rules, &self.rules);
        let mut last: Option<(Option<u32>, ClassKey)> = None;
        // So that the waits for a slot of the index overlap.
        std::hint::black_box(from.rows.iter().fold(0, |read, row| read ^ self.table.warm_home(row.key.hash)));
        for restored in &from.rows {
            let CheckedKey { hash, ruled } = restored.key;
            let code = &from.snapshot.bytes[restored.code.clone()];
            let number = match restored.codec {
                0 => Some(0),
                number => from.numbers[usize::from(number) - 1],
            };
            // The key itself is seldom needed: where a row of its hash is kept, the rules are others, or there is no room for its codec.
            let key = (self.table.guess(hash) != NONE || !still_ruled || number.is_none()).then(|| {
                from.key.clear();
                from.snapshot.decode(restored.codec, code, &mut from.key);
                &from.key[..]
            });
            if key.is_some_and(|key| self.table.find(hash, key).is_some()) || self.versions.get(hash).is_some() {
                continue;
            }
            let ruled = key.filter(|_| !still_ruled).map_or(ruled, |key| self.rules.of(key));
            let Some(rule) = ruled else { continue };
            let class = match last {
                Some((same, class)) if same == rule => class,
                _ => {
                    let routed = || rule.map_or(UNROUTED, |rule| self.rule_routes[rule as usize]);
                    let route = host.unwrap_or_else(routed);
                    let cadence = if host.is_some() || carried { cadence } else { self.cadence_of(route) };
                    Self::class_of(&row, Classified { route, cadence, carried })
                }
            };
            last = Some((rule, class));
            let new = match (number, key) {
                (Some(number), _) => NewKey::Coded(number, code),
                (None, key) => NewKey::Plain(key.unwrap_or_default()),
            };
            self.keep_unverified(hash, new, (class, restored.minute));
            from.kept += 1;
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
    /// Lists the rows of these buckets. One may have all the rows there are.
    fn list(&self, heads: impl Iterator<Item = RowId>, rows: &mut [Vec<RowId>; ABREAST], breathe: &mut dyn FnMut()) {
        let chains = heads.zip(rows).map(|(row, to)| Chain { row, most: usize::MAX, to });
        let mut met = 0usize;
        follow(&self.arena, chains, |rows, row| {
            rows.push(row);
            met += 1;
            if met.is_multiple_of(FOLLOWED) {
                breathe();
            }
        });
    }

    /// Rows in it.
    pub fn rows(&self) -> u64 {
        self.head.header.rows
    }

    /// Writes it; calls `breathe` again and again, far less than 1 ms apart.
    pub fn write(&self, out: &mut dyn Write, breathe: &mut dyn FnMut()) -> std::io::Result<()> {
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
        let mut from = Some(0);
        while let Some(cursor) = from {
            from = self.arena.scan(cursor, SCANNED, |row| {
                if self.arena.previous(row) == NONE
                    && let Some(&at) = by_id.get(&self.arena.class(row))
                {
                    buckets.push((self.head.classes[at].1, self.arena.due(row), row, at));
                }
            });
            breathe();
        }
        buckets.sort_unstable();
        let mut last_class = usize::MAX;
        let mut rows: [Vec<RowId>; ABREAST] = Default::default();
        for abreast in buckets.chunks(ABREAST) {
            self.list(abreast.iter().map(|bucket| bucket.2), &mut rows, breathe);
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
                        breathe();
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

/// A frame of rows that has not been checked.
struct Part {
    bytes: Range<usize>,
    crc: u32,
}

/// A snapshot as it was read, the whole file in memory. Of its rows nothing has been looked at: they come in parts, which are
/// checked each by itself, in any order, and may be so by several threads.
pub struct Snapshot {
    bytes: Vec<u8>,
    header: Header,
    codecs: Vec<Arc<Codec>>,
    parts: Vec<Part>,
    rules: Arc<Rules>,
}

/// What a part of a snapshot has in it.
#[derive(Default)]
pub struct Checked {
    keys: Vec<CheckedKey>,
    /// Its first row is due in a minute that an earlier part must have named.
    inherits: bool,
    /// Whether a minute holds where it ends; `None` where it names neither a class nor a minute.
    minute: Option<bool>,
}

/// A snapshot that was checked to its end, being taken over.
pub struct Restoring {
    snapshot: Snapshot,
    checked: Vec<Checked>,
    /// By the codecs' numbers in the file, less one: which they are in the queue; `None` where there is no room for one.
    numbers: Vec<Option<u8>>,
    /// Which part, where in the file, and which of the part's keys comes next.
    part: usize,
    at: usize,
    next_key: usize,
    class: RestoredClass,
    minute: Option<Minute>,
    kept: u64,
    /// The rows read and not yet taken, all of `class`.
    rows: Vec<RestoredRow>,
    key: Vec<u8>,
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

/// What rows are written as.
enum Entry<'a> {
    Class(RestoredClass),
    Minute(Minute),
    /// The number of a codec, and a code.
    Key(u8, &'a [u8]),
}

fn entry<'a>(from: &mut &'a [u8]) -> Result<Entry<'a>, SnapshotError> {
    match split(from, 1)?[0] {
        b'C' => read_class(from).map(Entry::Class),
        b'M' => Ok(Entry::Minute(Minute::try_from(number(from)?).map_err(|_| damaged("a minute"))?)),
        b'K' => {
            let codec = split(from, 1)?[0];
            let len = number(from)? as usize;
            Ok(Entry::Key(codec, split(from, len)?))
        }
        _ => Err(damaged("an unknown entry")),
    }
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

impl Snapshot {
    /// Opens a snapshot, for a queue of these rules: what it is, and where its parts are.
    pub fn open(bytes: Vec<u8>, rules: Arc<Rules>) -> Result<Snapshot, SnapshotError> {
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
        let mut parts = Vec::new();
        loop {
            let (len, crc) = (word(split(&mut from, 4)?) as usize, word(split(&mut from, 4)?));
            let start = bytes.len() - from.len();
            if split(&mut from, len)?.is_empty() {
                if crc != crc32fast::hash(&[]) {
                    return Err(damaged("a checksum is wrong"));
                }
                if !from.is_empty() {
                    return Err(damaged("something follows its end"));
                }
                return Ok(Snapshot { bytes, header, codecs, parts, rules });
            }
            parts.push(Part { bytes: start..start + len, crc });
        }
    }

    /// How many parts it has.
    pub fn parts(&self) -> usize {
        self.parts.len()
    }

    /// Appends the key of a code to `key`; false where there is no such codec.
    fn decode(&self, codec: u8, code: &[u8], key: &mut Vec<u8>) -> bool {
        match codec.checked_sub(1).map(|number| self.codecs.get(usize::from(number))) {
            None => key.extend_from_slice(code),
            Some(Some(codec)) => codec.decode(code, key),
            Some(None) => return false,
        }
        true
    }

    /// Reads a part to its end: whether it is whole and makes sense.
    pub fn check(&self, part: usize) -> Result<Checked, SnapshotError> {
        let Part { bytes, crc } = &self.parts[part];
        let mut from = &self.bytes[bytes.clone()];
        if crc32fast::hash(from) != *crc {
            return Err(damaged("a checksum is wrong"));
        }
        let mut checked = Checked { keys: Vec::with_capacity(from.len() / 16), ..Checked::default() };
        let mut key = Vec::new();
        while !from.is_empty() {
            match entry(&mut from)? {
                Entry::Class(_) => checked.minute = Some(false),
                Entry::Minute(_) => checked.minute = Some(true),
                Entry::Key(codec, code) => {
                    match checked.minute {
                        Some(false) => return Err(damaged("a row without a minute")),
                        Some(true) => {}
                        None => checked.inherits = true,
                    }
                    key.clear();
                    if !self.decode(codec, code, &mut key) {
                        return Err(damaged("a key's codec"));
                    }
                    if !key.is_ascii() && !is_wtf8(&key) {
                        return Err(damaged("a key that is no string"));
                    }
                    checked.keys.push(CheckedKey { hash: self.rules.hasher.hash(&key), ruled: self.rules.of(&key) });
                }
            }
        }
        Ok(checked)
    }

    /// What it takes to keep the rows: all parts, checked and in their order.
    pub fn restoring(self, checked: Vec<Checked>) -> Result<Restoring, SnapshotError> {
        let mut minute = false;
        for part in &checked {
            if part.inherits && !minute {
                return Err(damaged("a row without a minute"));
            }
            minute = part.minute.unwrap_or(minute);
        }
        let rows: usize = checked.iter().map(|part| part.keys.len()).sum();
        if checked.len() != self.parts.len() || rows as u64 != self.header.rows {
            return Err(damaged("rows are missing"));
        }
        let nothing = ClassKey {
            route: 0,
            cadence: f64::NAN,
            carried: false,
            from_sitemap: false,
            changed: false,
            urgent: false,
            demand: f64::NAN,
        };
        Ok(Restoring {
            at: self.parts.first().map_or(0, |part| part.bytes.start),
            snapshot: self,
            checked,
            numbers: Vec::new(),
            part: 0,
            next_key: 0,
            class: RestoredClass { route: String::new(), key: nothing },
            minute: None,
            kept: 0,
            rows: Vec::new(),
            key: Vec::new(),
        })
    }
}

impl Restoring {
    /// Opens a snapshot and checks it, one part after the other.
    pub fn open(bytes: Vec<u8>, rules: Arc<Rules>) -> Result<Restoring, SnapshotError> {
        let snapshot = Snapshot::open(bytes, rules)?;
        let checked = (0..snapshot.parts()).map(|part| snapshot.check(part)).collect::<Result<_, _>>()?;
        snapshot.restoring(checked)
    }

    /// When it was written, ms since the epoch.
    pub fn saved_at(&self) -> f64 {
        self.snapshot.header.saved_at
    }

    /// Rows kept from it so far.
    pub fn kept(&self) -> u64 {
        self.kept
    }

    /// Reads up to `most` more rows, all of one class, for [`Keeper::restore`]; false at the end.
    pub fn read_on(&mut self, most: usize) -> Result<bool, SnapshotError> {
        self.rows.clear();
        while self.rows.len() < most {
            let Some(Part { bytes, .. }) = self.snapshot.parts.get(self.part) else { return Ok(!self.rows.is_empty()) };
            let (end, checked) = (bytes.end, &mut self.checked[self.part]);
            let mut from = &self.snapshot.bytes[self.at..end];
            if from.is_empty() {
                *checked = Checked::default();
                self.part += 1;
                self.next_key = 0;
                self.at = self.snapshot.parts.get(self.part).map_or(0, |part| part.bytes.start);
                continue;
            }
            match entry(&mut from)? {
                Entry::Class(_) if !self.rows.is_empty() => return Ok(true),
                Entry::Class(class) => {
                    self.class = class;
                    self.minute = None;
                }
                Entry::Minute(minute) => self.minute = Some(minute),
                Entry::Key(codec, code) => {
                    let after = end - from.len();
                    self.rows.push(RestoredRow {
                        key: checked.keys[self.next_key],
                        codec,
                        code: after - code.len()..after,
                        minute: self.minute.ok_or_else(|| damaged("a row without a minute"))?,
                    });
                    self.next_key += 1;
                }
            }
            self.at = end - from.len();
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::super::config::Config;
    use super::super::keeper::{Event, Judge};
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
        image.write(&mut bytes, &mut || ()).expect("memory takes it");
        bytes
    }

    fn restored(bytes: &[u8]) -> Result<Keeper, SnapshotError> {
        let mut keeper = Keeper::new(Config::default(), NOW);
        let mut from = Restoring::open(bytes.to_vec(), keeper.rules())?;
        keeper.check_snapshot(&from)?;
        keeper.begin_restoring(&mut from);
        while from.read_on(64)? {
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
        for handed_over in 0..2 {
            let mut keeper = filled();
            let before = saved(&mut keeper);
            assert!(keeper.begin_image());
            assert!(!keeper.begin_image(), "one at a time");
            for _ in 0..handed_over {
                assert!(keeper.go_on_imaging().is_none(), "there are several chunks");
            }
            for (i, key) in keeper.keys().into_iter().enumerate() {
                // Records of one length are used again by other keys.
                let event =
                    if i % 3 == 0 { Event::Gone } else { Event::Put(Row::due_at(77.0 * 60_000.0), Judge::Rules) };
                keeper.apply(&key, event, f64::NAN);
                keeper.apply(&[b"new ", &key[..]].concat(), Event::Put(Row::due_at(5.0), Judge::Rules), f64::NAN);
            }
            for key in keeper.keys() {
                keeper.apply(&key, Event::Gone, f64::NAN);
            }
            assert!(keeper.is_empty());
            keeper.apply(b"in the first chunk of a new arena", Event::Put(Row::due_at(5.0), Judge::Rules), f64::NAN);
            let image = std::iter::repeat_with(|| keeper.go_on_imaging()).find_map(|image| image);
            let mut after = Vec::new();
            image.expect("it ends").write(&mut after, &mut || ()).expect("memory takes it");
            assert!(before == after);
        }
    }

    #[test]
    fn a_bucket_of_many_rows_is_followed_with_breaths_on_the_way() {
        let mut keeper = Keeper::new(Config::default(), NOW);
        for i in 0..5_000u32 {
            keeper.apply(i.to_string().as_bytes(), Event::Put(Row::due_at(0.0), Judge::Rules), f64::NAN);
        }
        assert!(keeper.begin_image());
        let image = std::iter::repeat_with(|| keeper.go_on_imaging()).find_map(|image| image).expect("it ends");
        let head = image.arena.rows().into_iter().find(|row| image.arena.previous(*row) == NONE);
        let (mut rows, mut breaths): ([Vec<RowId>; ABREAST], _) = Default::default();
        image.list(head.into_iter(), &mut rows, &mut || breaths += 1);
        assert_eq!((rows[0].len(), breaths), (5_000, 5_000 / FOLLOWED));
    }

    #[test]
    fn what_only_a_hosts_classifier_says_of_a_row_is_not_kept_by_rules() {
        let config = Config { classify: true, ..Config::default() };
        for cadence in [0.0, -1.0, f64::NAN, f64::INFINITY, 7.0] {
            let mut keeper = Keeper::new(config.clone(), NOW);
            let route = keeper.hold_route("a");
            let said = Judge::Host(Some(Classified { route, cadence, carried: true }));
            keeper.apply(b"https://a.com/", Event::Put(Row::due_at(0.0), said), f64::NAN);
            let back = restored(&saved(&mut keeper)).expect("it is whole");
            let (class, route, _) = back.describe(b"https://a.com/").expect("it is kept");
            let wanted = if cadence == 7.0 { (true, 7.0) } else { (false, config.default_interval) };
            assert_eq!((class.carried, class.cadence, route), (wanted.0, wanted.1, "unrouted"), "{cadence}");
        }
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
        assert!(restored(&[&bytes[..], b"x"].concat()).is_err(), "a byte too many");
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
