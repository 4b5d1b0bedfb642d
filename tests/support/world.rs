//! A keeper, the model, and the table that both are told of. Every call goes to both, and both must say the same.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::rc::Rc;

use queue_keeper::queue::claim::{Refused, Rows};
use queue_keeper::queue::codec::Codec;
use queue_keeper::queue::config::{Config, Patch};
use queue_keeper::queue::keeper::{Classified, Event, Judge, Keeper, Reclassified};
use queue_keeper::queue::lease::Released;
use queue_keeper::queue::row::Row;
use queue_keeper::queue::snapshot::{Restoring, SnapshotError};
use queue_keeper::queue::time::Now;
use queue_keeper::queue::trust::Phase;
use queue_keeper::queue::walk::{WalkKind, WalkedRow};
use serde_json::{Value, json};

use super::naive::{Class, Expected, Judged, Key, KeyId, Model, Read, Said, Saved, State, Told};

pub struct World {
    pub keeper: Keeper,
    pub model: Model,
    pub keys: Rc<Vec<Key>>,
    by_bytes: Rc<HashMap<Vec<u8>, KeyId>>,
    /// What the durable table has.
    pub table: BTreeMap<KeyId, (Row, Judged, f64)>,
    pub next_version: f64,
    /// Events of it that are still under way.
    pub under_way: Vec<(KeyId, Told, f64)>,
    /// Tokens given out, and what the table had then.
    pub tokens: Vec<(u64, KeyId, Read)>,
    /// Keys handed out to be read, and what the table had then.
    pub reads: VecDeque<(KeyId, Read)>,
    /// The keys that the walk under way has yet to come to.
    pub to_walk: VecDeque<KeyId>,
    pub partial: bool,
    imaging: Option<Moment>,
    pub file: Option<(Vec<u8>, Moment)>,
    pub restoring: Option<(Restoring, VecDeque<Saved>)>,
    last_token: u64,
    /// What has been done, where somebody wants to read it.
    pub log: Option<Vec<String>>,
    checks: u64,
}

/// What a snapshot must hold.
#[derive(Clone)]
pub struct Moment {
    rows: Vec<Saved>,
    config: Config,
    reclassifying: bool,
    order: Vec<(KeyId, u64)>,
    now: Now,
}

/// The first difference between two documents; the keeper may have names that the model does not know.
fn difference(path: &str, keeper: &Value, model: &Value) -> Option<String> {
    match (keeper, model) {
        (Value::Object(a), Value::Object(b)) => {
            let absent = json!("(absent)");
            b.iter().find_map(|(name, b)| difference(&format!("{path}.{name}"), a.get(name).unwrap_or(&absent), b))
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            a.iter().zip(b).enumerate().find_map(|(i, (a, b))| difference(&format!("{path}[{i}]"), a, b))
        }
        (a, b) if a == b => None,
        (a, b) => Some(format!("{path}: the keeper says {a}, the model {b}")),
    }
}

fn must_agree(what: &str, keeper: &Value, model: &Value) {
    if let Some(difference) = difference(what, keeper, model) {
        panic!("{difference}");
    }
}

macro_rules! log {
    ($world:expr, $($text:tt)*) => {
        if let Some(log) = &mut $world.log {
            log.push(format!($($text)*));
        }
    };
}
pub(super) use log;

impl World {
    pub fn new(keys: Vec<Key>, config: Config, now: Now, log: bool) -> World {
        let mut by_bytes = HashMap::new();
        for (id, key) in keys.iter().enumerate() {
            assert!(by_bytes.insert(key.bytes.clone(), id).is_none(), "the pool has a key twice");
        }
        let keys = Rc::new(keys);
        World {
            keeper: Keeper::new(config.clone(), now),
            model: Model::new(keys.clone(), config, now),
            keys,
            by_bytes: Rc::new(by_bytes),
            table: BTreeMap::new(),
            next_version: 1.0,
            under_way: Vec::new(),
            tokens: Vec::new(),
            reads: VecDeque::new(),
            to_walk: VecDeque::new(),
            partial: false,
            imaging: None,
            file: None,
            restoring: None,
            last_token: 0,
            log: log.then(Vec::new),
            checks: 0,
        }
    }

    fn id(&self, key: &[u8]) -> KeyId {
        *self.by_bytes.get(key).unwrap_or_else(|| panic!("the keeper made up a key: {key:?}"))
    }

    pub fn read(&self, key: KeyId) -> Read {
        self.table.get(&key).cloned()
    }

    /// Gives the keeper the host's verdict as the binding does: the route's name is held for the length of the call.
    fn judging<R>(&mut self, judged: &Judged, f: impl FnOnce(&mut Keeper, Judge) -> R) -> R {
        let judge = self.judge(judged);
        let result = f(&mut self.keeper, judge);
        self.judged(judge);
        result
    }

    fn judge(&mut self, judged: &Judged) -> Judge {
        match judged {
            Judged::Rules => Judge::Rules,
            Judged::Host(said) => Judge::Host(said.as_ref().map(|Said { route, cadence, carried }| {
                let route = self.keeper.hold_route(route);
                Classified { route, cadence: *cadence, carried: *carried }
            })),
        }
    }

    fn judged(&mut self, judge: Judge) {
        if let Judge::Host(Some(said)) = judge {
            self.keeper.release_route(said.route);
        }
    }

    fn reading<R>(&mut self, read: &Read, f: impl FnOnce(&mut Keeper, Option<(Row, Judge)>, f64) -> R) -> R {
        match read {
            None => f(&mut self.keeper, None, f64::NAN),
            Some((row, judged, version)) => {
                let (row, version) = (*row, *version);
                self.judging(judged, |keeper, judge| f(keeper, Some((row, judge)), version))
            }
        }
    }

    /// A read without its version, where it is not certain what the keeper remembers.
    fn surely(&self, key: KeyId, read: &Read) -> Read {
        let mut read = read.clone();
        if let Some((_, _, version)) = &mut read
            && self.model.is_unsure(key, *version)
        {
            *version = f64::NAN;
        }
        read
    }

    // --- calls

    pub fn advance(&mut self, wall: f64, mono: f64) {
        log!(self, "advance to wall {wall} mono {mono}");
        self.keeper.advance(Now { wall, mono });
        self.model.advance(Now { wall, mono });
    }

    pub fn apply(&mut self, key: KeyId, told: &Told, version: f64) {
        // Of a key of another node nothing tells whether the version was news.
        let tells = self.model.owns(key) || !self.model.is_unsure(key, version);
        let version = if tells { version } else { f64::NAN };
        log!(self, "apply key {key} {told:?} version {version}");
        let bytes = self.keys.clone();
        let bytes = &bytes[key].bytes;
        let outcome = match told {
            Told::Put(row, judged) => {
                let row = *row;
                self.judging(judged, |keeper, judge| keeper.apply(bytes, Event::Put(row, judge), version))
            }
            Told::Gone => self.keeper.apply(bytes, Event::Gone, version),
            Told::Changed => self.keeper.apply(bytes, Event::Changed, version),
            Told::Other => self.keeper.apply(bytes, Event::Other, version),
        };
        let expected = self.model.apply(key, told, version, outcome);
        assert_eq!(outcome, expected, "what became of an event");
    }

    pub fn malformed(&mut self) {
        log!(self, "malformed");
        self.keeper.malformed("no key");
        self.model.malformed("no key");
    }

    fn compare_rows(&self, what: &str, rows: &Rows, expected: &[Expected]) {
        let got: Vec<(KeyId, f64)> = rows.iter().map(|(key, row)| (self.id(key), row.score)).collect();
        let wanted: Vec<(KeyId, f64)> = expected.iter().map(|row| (row.key, row.score)).collect();
        let same = |a: &(KeyId, f64), b: &(KeyId, f64)| a.0 == b.0 && a.1 == b.1;
        let at = got.iter().zip(&wanted).position(|(a, b)| !same(a, b));
        let at = at.or_else(|| (got.len() != wanted.len()).then(|| got.len().min(wanted.len())));
        if let Some(at) = at {
            panic!("{what}: at place {at} the keeper has {:?}, the model {:?}", got.get(at), wanted.get(at));
        }
        for ((_, row), expected) in rows.iter().zip(expected) {
            let (class, minute) = self.model.class(expected.key).expect("a due row is kept");
            let got = (row.due_at, row.from_sitemap, row.changed, row.urgent);
            let wanted = (f64::from(minute) * 60_000.0, class.from_sitemap, class.changed, class.urgent);
            assert_eq!(got, wanted, "{what}: key {}", expected.key);
        }
    }

    pub fn top(&self, n: usize) {
        let (got, expected) = (self.keeper.top(n), self.model.top(n));
        self.compare_rows("topK", &got.rows, &expected.rows);
        let numbers = (got.skipped_leased, got.complete);
        assert_eq!(numbers, (expected.skipped_leased, expected.complete), "topK({n}): skippedLeased, complete");
    }

    pub fn claim(&mut self, n: usize) {
        log!(self, "claim {n}");
        let got = self.keeper.claim(n);
        let expected = self.model.claim(n);
        log!(self, "    -> {} jobs, refused {:?}", got.tokens.len(), got.refused);
        self.compare_rows("claim", &got.jobs, &expected.rows);
        let held: Vec<(KeyId, u32, f64)> =
            got.held.iter().map(|held| (self.id(&held.key), held.misses, held.until)).collect();
        let now = self.model.now;
        let wanted: Vec<(KeyId, u32, f64)> =
            expected.held.iter().map(|(key, misses, until)| (*key, *misses, now.wall + (until - now.mono))).collect();
        assert_eq!(held, wanted, "claim: held");
        let refused = got.refused.map(|cause| match cause {
            Refused::Limit => "limit",
            Refused::Paused => "paused",
            Refused::Unready => "unready",
        });
        assert_eq!(
            (got.skipped_leased, got.complete, got.due, got.status.name(), refused),
            (expected.skipped_leased, expected.complete, expected.due, expected.status, expected.refused),
            "claim({n}): skippedLeased, complete, due, status, refused"
        );
        assert_eq!(got.expires_at, now.wall + self.model.config.leases.lease_ms, "claim: expiresAt");
        assert_eq!(got.tokens.len(), expected.rows.len(), "a token each");
        for (token, row) in got.tokens.iter().zip(&expected.rows) {
            assert!(*token > self.last_token, "a token names one grant and no other");
            self.last_token = *token;
            self.model.granted(row.key, *token);
            self.tokens.push((*token, row.key, self.read(row.key)));
        }
    }

    pub fn confirm(&mut self, token: u64, read: &Read) -> bool {
        log!(self, "confirm token {token} of key {:?} with {read:?}", self.model.leased_key(token));
        let key = self.keeper.leased_key(token).map(|key| self.id(&key));
        assert_eq!(key, self.model.leased_key(token), "the key of a lease");
        let read = key.map_or(read.clone(), |key| self.surely(key, read));
        let got = self.reading(&read, |keeper, row, version| keeper.confirm(token, row, version));
        assert_eq!(got, self.model.confirm(token, &read), "confirm");
        got
    }

    pub fn release(&mut self, key: KeyId, token: Option<u64>) -> Released {
        log!(self, "release key {key} token {token:?}");
        let got = self.keeper.release(&self.keys[key].bytes, token);
        assert_eq!(got, self.model.release(key, token), "release");
        got
    }

    pub fn give_back(&mut self, token: u64) {
        log!(self, "give back token {token}");
        assert_eq!(self.keeper.give_back(token), self.model.give_back(token), "give back");
    }

    pub fn extend(&mut self, token: u64, ms: Option<f64>) {
        log!(self, "extend token {token} by {ms:?}");
        assert_eq!(self.keeper.extend(token, ms), self.model.extend(token, ms), "extend");
    }

    pub fn set_paused(&mut self, paused: bool) {
        log!(self, "paused {paused}");
        self.keeper.set_paused(paused);
        self.model.paused = paused;
    }

    pub fn set_phase(&mut self, phase: Phase, resyncing: Option<bool>, error: Option<&str>) {
        log!(self, "phase {phase:?} resyncing {resyncing:?} error {error:?}");
        self.keeper.set_phase(phase, resyncing, error.map(str::to_owned));
        self.model.set_phase(phase, resyncing, error.map(str::to_owned));
    }

    pub fn take_feeder(&mut self) {
        log!(self, "take_feeder");
        assert_eq!(self.keeper.take_feeder(), self.model.take_feeder(), "epoch");
        self.to_walk.clear();
    }

    pub fn configure(&mut self, patch: &Value) {
        log!(self, "configure {patch}");
        let parsed: Patch = serde_json::from_value(patch.clone()).expect("the patch is one");
        self.keeper.configure(parsed);
        self.model.configure(patch);
    }

    /// Returns whether all rows have been gone through.
    pub fn reclassify(&mut self, most: usize) -> bool {
        log!(self, "reclassify {most}");
        let got = self.keeper.reclassify(most);
        let expected = self.model.reclassify(most).map(|(moved, dropped)| Reclassified { moved, dropped });
        assert_eq!(got, expected, "reclassify");
        got.is_some()
    }

    pub fn begin_walk(&mut self, kind: WalkKind) {
        log!(self, "begin_walk {kind:?}");
        let id = self.keeper.begin_walk(kind);
        self.model.begin_walk(kind);
        assert!(self.keeper.walking(id) && !self.keeper.walking(id + 1), "walking");
        self.to_walk = self.table.keys().copied().collect();
        self.partial = false;
    }

    pub fn abandon_walk(&mut self) {
        log!(self, "abandon_walk");
        self.keeper.abandon_walk();
        self.model.abandon_walk();
        self.to_walk.clear();
    }

    /// Something that must not be seen from outside.
    pub fn clean_marks(&mut self, most: usize) {
        log!(self, "clean_marks {most}");
        self.keeper.clean_marks(most);
    }

    pub fn walk_row(&mut self, key: KeyId, row: &Row, judged: &Judged, version: f64) {
        self.walk_rows(&[(key, *row, judged.clone(), version)]);
    }

    pub fn walk_rows(&mut self, rows: &[(KeyId, Row, Judged, f64)]) {
        for (key, row, judged, version) in rows {
            log!(self, "walk_row key {key} {row:?} {judged:?} version {version}");
        }
        let keys = self.keys.clone();
        let judges: Vec<Judge> = rows.iter().map(|(_, _, judged, _)| self.judge(judged)).collect();
        let hasher = self.keeper.hasher();
        let walked = rows.iter().zip(&judges).map(|((key, row, _, version), judge)| {
            let key = &*keys[*key].bytes;
            WalkedRow { key, hash: hasher.hash(key), row: *row, judge: *judge, version: *version }
        });
        self.keeper.walk_rows(&walked.collect::<Vec<_>>());
        judges.into_iter().for_each(|judge| self.judged(judge));
        for (key, row, judged, version) in rows {
            self.model.walk_row(*key, row, judged, *version);
        }
    }

    pub fn walk_malformed(&mut self) {
        log!(self, "walk_malformed");
        self.keeper.walk_malformed();
        self.model.walk_malformed();
    }

    /// Goes on ending the walk; returns whether it has ended.
    pub fn end_walk(&mut self, unreadable: u64, most: usize) -> bool {
        log!(self, "end_walk partial {} unreadable {unreadable} most {most}", self.partial);
        if !self.model.ending() {
            self.model.begin_ending(self.partial);
        }
        let Some(walked) = self.keeper.end_walk(self.partial, unreadable, most) else { return false };
        let suspects: Vec<KeyId> = walked.suspects.iter().map(|key| self.id(key)).collect();
        log!(self, "    -> suspects {suspects:?}");
        let (report, unsure) = self.model.end_walk(self.partial, unreadable, &suspects);
        let got = serde_json::to_value(walked.report).expect("it is JSON");
        must_agree("report", &got, &report.json());
        for key in suspects {
            self.reads.push_back((key, self.read(key)));
        }
        // Something happened to these before or after their turn: from here on it is certain that something has.
        for key in &unsure {
            self.apply(*key, &Told::Changed, f64::NAN);
        }
        if !unsure.is_empty() {
            // All of them are flagged now; in which order cannot be told from outside.
            let (mut got, mut expected) = (self.keys_to_check(usize::MAX), self.model.head_check(usize::MAX));
            got.sort_unstable();
            expected.sort_unstable();
            self.checked(got, expected);
        }
        true
    }

    pub fn head_check(&mut self, n: usize) {
        let (got, expected) = (self.keys_to_check(n), self.model.head_check(n));
        self.checked(got, expected);
    }

    fn keys_to_check(&mut self, n: usize) -> Vec<KeyId> {
        log!(self, "head_check {n}");
        self.keeper.head_check(n).iter().map(|key| self.id(key)).collect()
    }

    fn checked(&mut self, got: Vec<KeyId>, expected: Vec<KeyId>) {
        log!(self, "    -> {got:?}");
        assert_eq!(got, expected, "headCheck");
        for key in got {
            self.reads.push_back((key, self.read(key)));
        }
    }

    pub fn read_failed(&mut self, key: KeyId) {
        log!(self, "read_failed key {key}");
        self.keeper.read_failed(&self.keys[key].bytes);
        self.model.read_failed(key);
    }

    pub fn repair(&mut self, key: KeyId, read: &Read) -> bool {
        log!(self, "repair key {key} with {read:?}");
        let keys = self.keys.clone();
        let read = self.surely(key, read);
        let got = self.reading(&read, |keeper, row, version| keeper.repair(&keys[key].bytes, row, version));
        assert_eq!(got, self.model.repair(key, &read), "repair");
        got
    }

    // --- snapshots

    pub fn begin_image(&mut self) {
        let begun = self.keeper.begin_image();
        log!(self, "begin_image -> {begun}");
        assert_eq!(begun, self.imaging.is_none(), "one image at a time");
        if begun {
            let top = self.model.order();
            self.imaging = Some(Moment {
                rows: self.model.saved(),
                config: self.model.config.clone(),
                reclassifying: self.model.reclassifying(),
                order: top.iter().map(|row| (row.key, row.score.to_bits())).collect(),
                now: self.model.now,
            });
        }
    }

    /// Goes on with the image; once it is whole, writes it, and reads it back into another keeper.
    pub fn go_on_imaging(&mut self) -> bool {
        let image = self.keeper.go_on_imaging();
        log!(self, "go_on_imaging -> {}", if image.is_some() { "whole" } else { "not yet" });
        let Some(image) = image else { return false };
        let moment = self.imaging.take().expect("an image was begun");
        let mut bytes = Vec::new();
        image.write(&mut bytes, &mut || ()).expect("memory takes it");
        assert_eq!(image.rows(), moment.rows.len() as u64, "rows of the image");
        assert!(self.parsed(&bytes) == moment.rows, "a snapshot is the queue of one moment, in its order");
        let mut other = Keeper::new(moment.config.clone(), moment.now);
        let mut from = Restoring::open(bytes.clone(), other.rules()).expect("it is whole");
        other.check_snapshot(&from).expect("it is of this node");
        other.begin_restoring(&mut from);
        while from.read_on(5).expect("it is whole") {
            other.restore(&mut from);
        }
        other.validate();
        if !moment.reclassifying {
            assert_eq!(from.kept(), moment.rows.len() as u64, "every row of a snapshot comes back");
            let top = other.top(usize::MAX);
            let order: Vec<(KeyId, u64)> =
                top.rows.iter().map(|(key, row)| (self.id(key), row.score.to_bits())).collect();
            assert_eq!(order, moment.order, "a restarted queue has the same order");
        }
        self.file = Some((bytes, moment));
        true
    }

    /// Reads a snapshot by its description: magic, version, frames; the first is the header, then come the codecs.
    fn parsed(&self, bytes: &[u8]) -> Vec<Saved> {
        assert_eq!(&bytes[..12], b"QKEEPER\0\x01\0\0\0", "magic and version");
        let (mut at, mut frames) = (12, Vec::new());
        while at < bytes.len() {
            let length = u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes")) as usize;
            frames.push(&bytes[at + 8..at + 8 + length]);
            at += 8 + length;
        }
        assert_eq!(frames.pop(), Some(&[][..]), "the last frame is empty");
        let header: Value = serde_json::from_slice(frames[0]).expect("the header is JSON");
        let first = 1 + header["codecs"].as_u64().expect("a count") as usize;
        let codecs: Vec<Codec> = frames[1..first].iter().map(|frame| Codec::read(frame).expect("a codec")).collect();
        let text: Vec<u8> = frames[first..].concat();
        let mut text = Text(&text);
        let (mut class, mut minute, mut rows) = (None, None, Vec::new());
        while !text.0.is_empty() {
            match text.take(1)[0] {
                b'C' => {
                    let length = text.number();
                    let route = String::from_utf8(text.take(length).to_vec()).expect("a route");
                    let (cadence, demand) = (text.float(), text.float());
                    let flags = text.take(1)[0];
                    class = Some(Class {
                        route,
                        cadence,
                        carried: flags & 8 != 0,
                        from_sitemap: flags & 4 != 0,
                        changed: flags & 2 != 0,
                        urgent: flags & 1 != 0,
                        demand: (!demand.is_nan()).then_some(demand),
                    });
                }
                b'M' => minute = Some(text.number() as u32),
                b'K' => {
                    let (codec, length) = (usize::from(text.take(1)[0]), text.number());
                    let code = text.take(length);
                    let mut key = Vec::new();
                    match codec {
                        0 => key.extend_from_slice(code),
                        number => codecs[number - 1].decode(code, &mut key),
                    }
                    let (class, minute) = (class.clone().expect("a class"), minute.expect("a minute"));
                    rows.push(Saved { class, minute, key: self.id(&key) });
                }
                other => panic!("an unknown entry: {other}"),
            }
        }
        rows
    }

    /// The process starts again with the last snapshot, if there is one. Events may come before it has been read.
    pub fn restart(&mut self) {
        log!(self, "restart");
        let config = self.model.config.clone();
        let now = self.model.now;
        self.keeper = Keeper::new(config.clone(), now);
        self.model = Model::new(self.keys.clone(), config, now);
        self.imaging = None;
        // Tokens go on from the wall clock, which has not moved here.
        self.last_token = 0;
        self.to_walk.clear();
        self.tokens.clear();
        self.reads.clear();
        self.restoring = None;
        let Some((bytes, moment)) = &self.file else { return };
        let mut from = Restoring::open(bytes.clone(), self.keeper.rules()).expect("it is whole");
        let checked = self.keeper.check_snapshot(&from);
        if moment.config.node == self.model.config.node {
            assert_eq!(checked, Ok(()));
            self.keeper.begin_restoring(&mut from);
            self.restoring = Some((from, moment.rows.clone().into()));
        } else {
            assert!(matches!(checked, Err(SnapshotError::Foreign(_))), "a snapshot of another node is refused");
        }
    }

    pub fn go_on_restoring(&mut self, most: usize) -> bool {
        let Some((mut from, mut rows)) = self.restoring.take() else { return true };
        log!(self, "go_on_restoring {most}");
        for _ in 0..most {
            let before = from.kept();
            if !from.read_on(1).expect("it is whole") {
                assert!(rows.is_empty(), "a row of the snapshot was left out");
                return true;
            }
            self.keeper.restore(&mut from);
            let did = from.kept() > before;
            let saved = rows.pop_front().expect("a row that the snapshot has");
            assert_eq!(did, self.model.restore(&saved, did), "whether a row of the snapshot is kept");
        }
        self.restoring = Some((from, rows));
        false
    }

    // --- everything that can be seen, from both

    /// Compares all there is to see. What takes longest is done for some keys at a time, unless it is the end of a story.
    pub fn check(&mut self, thorough: bool, all: bool) {
        self.checks += 1;
        let keeper = &self.keeper;
        keeper.validate();
        let model = &self.model;
        assert_eq!(keeper.version(), model.version, "version: grows with every change, and with nothing else");
        assert_eq!((keeper.len(), keeper.class_count()), (model.rows.len(), model.classes.len()), "rows, classes");
        assert_eq!(keeper.due_summary(), model.due_summary(), "dueSummary");
        assert_eq!(keeper.status().name(), model.status(), "status");
        // While a walk ends it may have found suspects already, which is not seen from outside.
        assert!(keeper.exact() == model.exact() || (model.ending() && !keeper.exact()), "exact: {}", keeper.exact());
        assert_eq!(keeper.now(), model.now, "now");
        self.top(usize::MAX);
        self.top(3);

        let mut keys: Vec<KeyId> = keeper.keys().iter().map(|key| self.id(key)).collect();
        keys.sort_unstable();
        assert!(keys.iter().eq(model.rows.keys()), "keys");

        let order = model.order();
        for (id, key) in self.keys.iter().enumerate() {
            // A look at a key of 100 KiB takes longer than all the others together.
            if (key.bytes.len() > 10_000 || !thorough) && !(id as u64 + self.checks).is_multiple_of(16) {
                continue;
            }
            match (keeper.describe(&key.bytes), model.class(id)) {
                (None, None) => assert_eq!(keeper.due_minute_of(&key.bytes), None),
                (Some((class, route, minute)), Some((expected, expected_minute))) => {
                    let got = Class {
                        route: route.to_owned(),
                        cadence: class.cadence,
                        carried: class.carried,
                        from_sitemap: class.from_sitemap,
                        changed: class.changed,
                        urgent: class.urgent,
                        demand: (!class.demand.is_nan()).then_some(class.demand),
                    };
                    assert_eq!((&got, minute), (expected, expected_minute), "describe key {id}");
                    assert_eq!(keeper.due_minute_of(&key.bytes), Some(minute), "due minute of key {id}");
                }
                (got, expected) => panic!("key {id}: the keeper has {got:?}, the model {expected:?}"),
            }
            // All in turn.
            if !(id as u64 + self.checks).is_multiple_of(4) && !all {
                continue;
            }
            let explained = serde_json::to_value(keeper.explain(&key.bytes)).expect("it is JSON");
            must_agree(&format!("explain key {id}"), &explained, &model.explain(id, &order));
        }

        let mut state = serde_json::to_value(keeper.state()).expect("it is JSON");
        self.sums(&state);
        let of_keeper = state["trust"]["keeper"].as_object_mut().expect("the keeper's account");
        assert_eq!(of_keeper.remove("bytes"), Some(json!(keeper.bytes())), "bytes");
        let rules = of_keeper["invalidRules"].as_array().expect("a list").iter();
        of_keeper["invalidRules"] = rules.map(|rule| rule["index"].clone()).collect();
        let mut expected = model.state();
        if model.ending() {
            let trust = &mut state["trust"];
            let waiting = |trust: &mut Value| trust["keeper"]["awaitingRead"].take().as_u64();
            assert!(waiting(trust) >= waiting(&mut expected["trust"]), "awaitingRead");
            expected["trust"]["exact"] = json!(keeper.exact());
            expected["trust"]["keeper"]["exact"] = json!(keeper.exact());
        }
        must_agree("state", &state, &expected);

        match (keeper.next_change(), model.next_change()) {
            (_, None) => {}
            (Some(got), Some(expected)) if got <= expected => {}
            (got, expected) => panic!("nextChange: {got:?}, and something changes at {expected:?}"),
        }
        if self.checks.is_multiple_of(8) && !model.ending() {
            self.check_metrics();
        }
    }

    fn check_metrics(&self) {
        let text = self.keeper.metrics();
        assert!(text.ends_with("# EOF\n"), "metrics end");
        let samples: HashMap<&str, &str> =
            text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.rsplit_once(' ')).collect();
        for (name, expected) in self.model.metrics() {
            let got = samples.get(&name[..]).unwrap_or_else(|| panic!("metrics lack {name}"));
            assert_eq!(*got, expected.to_string(), "metrics: {name}");
        }
        let parsed: Value = serde_json::to_value(self.keeper.state()).expect("it is JSON");
        assert_eq!(parsed["now"]["due"], json!(self.model.due()), "stateJson");
    }

    /// due = sitemap + discovered = bins = by route = by class.
    fn sums(&self, state: &Value) {
        let sum = |list: &Value| -> u64 { list.as_array().expect("a list").iter().filter_map(Value::as_u64).sum() };
        let number = |value: &Value| value.as_u64().expect("a count");
        let (now, lateness) = (&state["now"], &state["lateness"]);
        let due = number(&now["due"]);
        assert_eq!(number(&now["dueSitemap"]) + number(&now["dueDiscovered"]), due, "by source");
        assert_eq!(sum(&lateness["sitemap"]), number(&now["dueSitemap"]), "bins of sitemap rows");
        assert_eq!(sum(&lateness["discovered"]), number(&now["dueDiscovered"]), "bins of discovered rows");
        let demands = now["changedByDemand"].as_array().expect("a list").iter().map(|demand| number(&demand["due"]));
        assert_eq!(demands.sum::<u64>(), number(&now["dueChanged"]), "by demand");
        if lateness["listsTruncated"] == json!(false) {
            for list in ["byRoute", "classes"] {
                let parts = lateness[list].as_array().expect("a list").iter().map(|part| number(&part["due"]));
                assert_eq!(parts.sum::<u64>(), due, "{list}");
            }
            for route in lateness["byRoute"].as_array().expect("a list") {
                assert_eq!(
                    sum(&route["sitemap"]) + sum(&route["discovered"]),
                    number(&route["due"]),
                    "bins of a route"
                );
            }
        }
    }

    /// The end of every story: all events arrive, the table is walked and what is suspect is read. Then the queue is the table.
    pub fn settle(&mut self) {
        log!(self, "settle");
        while !self.go_on_restoring(1_000) {}
        while !self.reclassify(1_000) {}
        if self.imaging.is_some() {
            while !self.go_on_imaging() {}
        }
        if self.model.ending() {
            while !self.end_walk(0, 1_000) {}
        }
        for (key, told, version) in std::mem::take(&mut self.under_way) {
            self.apply(key, &told, version);
        }
        self.set_phase(Phase::Live, Some(false), None);
        for round in 0..2 {
            self.begin_walk(WalkKind::Verify);
            for keys in std::mem::take(&mut self.to_walk).make_contiguous().chunks(64) {
                let rows = keys.iter().map(|key| {
                    let (row, judged, version) = self.table[key].clone();
                    (*key, row, judged, version)
                });
                let rows: Vec<_> = rows.collect();
                self.walk_rows(&rows);
            }
            self.reads.clear();
            assert!(self.end_walk(0, usize::MAX), "it is gone through in one");
            assert!(round == 0 || self.reads.is_empty(), "nothing is suspect after a verification: {:?}", self.reads);
            // What an event flagged is told first.
            self.head_check(100_000);
            while let Some((key, _)) = self.reads.pop_front() {
                let read = self.read(key);
                let repaired = self.repair(key, &read);
                assert!(round == 0 || !repaired, "nothing is wrong after a verification: key {key}");
            }
        }
        self.check(true, true);
        for key in 0..self.keys.len() {
            let wanted = self.model.wanted(key, &self.read(key));
            let kept = self.model.class(key).map(|(class, minute)| (class.clone(), minute));
            assert_eq!(kept, wanted, "after a verification the queue is the table: key {key}");
        }
        assert!(self.keeper.exact(), "after a verification that repaired nothing the queue is exact");
    }

    /// Live tokens, those that have ended left out.
    pub fn live_tokens(&self) -> Vec<(u64, KeyId, Read)> {
        let live = |token: u64, key: KeyId| {
            self.model.leases.get(&key).is_some_and(|entry| entry.state == State::Leased)
                && self.model.leased_key(token) == Some(key)
        };
        self.tokens.iter().filter(|(token, key, _)| live(*token, *key)).cloned().collect()
    }
}

/// What is left of a snapshot's entries.
struct Text<'a>(&'a [u8]);

impl<'a> Text<'a> {
    fn take(&mut self, n: usize) -> &'a [u8] {
        let (taken, left) = self.0.split_at(n);
        self.0 = left;
        taken
    }

    fn number(&mut self) -> usize {
        let (mut number, mut shift) = (0, 0);
        loop {
            let byte = self.take(1)[0];
            number |= usize::from(byte & 0x7F) << shift;
            shift += 7;
            if byte < 0x80 {
                return number;
            }
        }
    }

    fn float(&mut self) -> f64 {
        f64::from_le_bytes(self.take(8).try_into().expect("eight bytes"))
    }
}
