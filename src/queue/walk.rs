//! Walks over the table against what is kept, and single rows read to repair.
//!
//! What a walk or a read finds is the truth, unless an event has touched the key meanwhile: the event is newer.

use std::collections::HashSet;

use smallvec::SmallVec;

use super::class::{ClassId, ClassKey};
use super::keeper::{Changed, Judge, Keeper, Kind, Reader, WARMED};
use super::late::Wrong;
use super::row::Row;
use super::rules::Before;
use super::table::{Mark, NONE, RowId};
use super::time::Minute;
use super::trust::WalkReport;
use super::watch::Touch;

/// What a walk is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalkKind {
    /// The first: what it finds was not missed.
    Load,
    /// Any later one.
    Verify,
}

/// A walk under way.
pub struct Walk {
    id: u64,
    kind: WalkKind,
    started_mono: f64,
    /// Keys without a row that were touched since the walk began. Kept rows carry a mark.
    touched: HashSet<u64>,
    report: WalkReport,
    /// How many rings the queue had had when it began.
    former_rings: usize,
    /// There were some: of what it cannot read, there may be rows that came with a change of nodes.
    may_gain: bool,
    /// A node has left since: rows gained through that may lie where it had been already.
    gaining: bool,
    /// Kept rows that it has neither seen nor found touched.
    unseen: u64,
    /// Where the end's pass over the rows has come to, once it has begun.
    cursor: Option<RowId>,
    suspects: Vec<Vec<u8>>,
}

impl Walk {
    pub(super) fn touch_unkept(&mut self, hash: u64) {
        self.touched.insert(hash);
    }

    /// Whether a key was touched while no row was kept for it.
    pub(super) fn has_touched(&self, hash: u64) -> bool {
        self.touched.contains(&hash)
    }

    /// A row is kept that was not: unseen, unless the walk is ending and would not come to it any more. Returns which.
    pub(super) fn row_added(&mut self) -> bool {
        let unseen = self.cursor.is_none();
        self.unseen += u64::from(unseen);
        unseen
    }

    /// The former ring at this place was left again, and is the last of them now.
    pub(super) fn ring_moved(&mut self, at: usize) {
        self.former_rings -= usize::from(at < self.former_rings);
    }

    /// A node has left.
    pub(super) fn gaining(&mut self) {
        self.gaining = true;
    }

    /// Whether this is its number.
    pub(super) fn is(&self, id: u64) -> bool {
        self.id == id
    }

    /// The event of a write that it has put right has come.
    pub(super) fn heard(&mut self, wrong: Wrong) {
        self.report.heard(wrong);
    }

    pub(super) fn unseen_gone(&mut self) {
        self.unseen -= 1;
    }

    pub(super) fn unseen(&self) -> u64 {
        self.unseen
    }

    pub(super) fn bytes(&self) -> usize {
        self.touched.capacity() * 10 + self.suspects.iter().map(|key| key.len() + 24).sum::<usize>()
    }
}

/// A row as a walk has read it.
pub struct WalkedRow<'a> {
    /// Its key.
    pub key: &'a [u8],
    /// The key's hash, by [`Keeper::hasher`].
    pub hash: u64,
    /// What it says.
    pub row: Row,
    /// Who judges it.
    pub judge: Judge,
    /// NaN where it has none.
    pub version: f64,
}

/// Tells of each hash whether it is the first like it; may say no where it is.
#[derive(Default)]
struct Once([u64; 32]);

impl Once {
    fn first(&mut self, hash: u64) -> bool {
        // The bits that the index goes by: what it may take for one another, this does, too.
        let bit = hash >> 32;
        let (word, bit) = (&mut self.0[bit as usize / 64 % 32], 1 << (bit % 64));
        let first = *word & bit == 0;
        *word |= bit;
        first
    }
}

/// What is found beforehand of a row that is new.
struct News {
    owned: bool,
    target: Option<(ClassKey, Minute)>,
    /// The class that it comes to, where there is one already, and the minute.
    place: Option<(ClassId, Minute)>,
}

/// What a walk came to: the report, and the keys that are kept although the walk did not see them.
#[derive(Clone, Debug, PartialEq)]
pub struct Walked {
    /// What was found.
    pub report: WalkReport,
    /// Each to be read, and handed to [`Keeper::repair`].
    pub suspects: Vec<Vec<u8>>,
}

impl Keeper {
    /// Goes on taking off the marks that an abandoned walk has left, up to `most` rows; true once there are none.
    pub fn clean_marks(&mut self, most: usize) -> bool {
        let Some(cursor) = self.stale_marks else { return true };
        let mut slice = Vec::new();
        self.stale_marks = self.table.scan(cursor, most, |row| slice.push(row));
        for row in slice {
            self.table.set_mark(row, self.parity, Mark::Seen);
        }
        self.stale_marks.is_none()
    }

    /// Begins a walk; one under way is abandoned. Returns its number. Where marks are left to be cleaned, all are cleaned now.
    pub fn begin_walk(&mut self, kind: WalkKind) -> u64 {
        self.abandon_walk();
        self.clean_marks(usize::MAX);
        if kind == WalkKind::Load {
            self.trust.load_started_at = Some(self.now.wall);
        }
        self.walks += 1;
        self.watch.walk_begun(self.walks);
        self.parity = !self.parity;
        self.walk = Some(Walk {
            id: self.walks,
            kind,
            started_mono: self.now.mono,
            touched: HashSet::new(),
            report: WalkReport::default(),
            former_rings: self.former_rings.len(),
            may_gain: !self.former_rings.is_empty(),
            gaining: false,
            unseen: self.table.len() as u64,
            cursor: None,
            suspects: Vec::new(),
        });
        self.walks
    }

    /// Whether this walk is the one under way.
    pub fn walking(&self, id: u64) -> bool {
        self.walk.as_ref().is_some_and(|walk| walk.is(id))
    }

    /// Gives up the walk under way.
    pub fn abandon_walk(&mut self) {
        if let Some(walk) = self.walk.take() {
            self.unheard.abandoned(walk.id);
            self.stale_marks = Some(0);
        }
    }

    /// Rows as the walk has read them, one after the other; [`WARMED`] at most, or reading ahead is for nothing.
    pub fn walk_rows(&mut self, rows: &[WalkedRow<'_>]) {
        let (mut read, found) = self.warm_found(rows.iter().map(|row| (row.hash, row.row.due)));
        let mut before = Before::default();
        let mut seen = Once::default();
        let news: SmallVec<[Option<News>; WARMED]> = rows
            .iter()
            .zip(&found)
            // It is not known what a row of the same hash will have done.
            .map(|(row, found)| (*found == NONE && seen.first(row.hash)).then(|| self.news(row, &mut before)))
            .collect();
        // Found first, then read: the loop that waits for memory should hold as many of them as it can.
        let tails: SmallVec<[RowId; WARMED]> = news
            .iter()
            .flatten()
            .filter_map(|news| news.place)
            .map(|(class, minute)| self.classes.get(class).buckets.get(minute).tail)
            .collect();
        read = tails.iter().fold(read, |read, tail| read ^ self.table.warm_link(*tail));
        std::hint::black_box(read);
        for (row, news) in rows.iter().zip(&news) {
            self.take_walked(row, news.as_ref());
        }
    }

    /// What a row comes to that is not kept yet.
    fn news<'a>(&mut self, walked: &WalkedRow<'a>, before: &mut Before<'a>) -> News {
        let &WalkedRow { key, ref row, judge, .. } = walked;
        let (owned, rule) = match judge {
            Judge::Rules => self.rules.next(before, key),
            Judge::Host(said) => (said.is_some(), None),
        };
        let target = if owned { self.judge_by(row, judge, None, || rule) } else { None };
        let place = target.and_then(|(class, minute)| Some((self.classes.find(&class)?, minute)));
        News { owned, target, place }
    }

    fn owns_walked(&self, row: &WalkedRow<'_>) -> bool {
        match row.judge {
            Judge::Rules => self.owns(row.key),
            Judge::Host(said) => said.is_some(),
        }
    }

    fn take_walked(&mut self, walked: &WalkedRow<'_>, news: Option<&News>) {
        let &WalkedRow { key, hash, ref row, judge, version } = walked;
        let (found, owned) = match news {
            Some(news) => (None, news.owned),
            None => (self.find_settled(hash, key), self.owns_walked(walked)),
        };
        let Some(walk) = &mut self.walk else { return };
        walk.report.scanned += 1;
        if owned {
            walk.report.owned += 1;
        } else {
            walk.report.unowned += 1;
        }
        match found {
            Some(row) if self.table.mark(row, self.parity) == Mark::Touched => return,
            None if walk.has_touched(hash) => return,
            _ => {}
        }
        let (kind, id) = (walk.kind, walk.id);
        let doubtful = self.is_doubtful(hash, found);
        let target = match news {
            Some(news) => news.target,
            None if owned => self.judge(key, row, judge, found),
            None => None,
        };
        let changed = self.change(hash, found, key, target, Kind::Repair);
        let gained = matches!(changed, Changed::Added(_)) && kind == WalkKind::Verify && self.is_gained(key);
        if owned {
            // Those of other nodes' rows, of which there may be any number, would drive out what is remembered of deletions.
            self.note_version(hash, changed.row(found), version);
        }
        self.overtake(hash, found, key, changed, Reader::Feeder);
        if let Some(row) = changed.row(found) {
            self.set_mark(row, Mark::Seen);
            self.set_verified(row);
        }
        let wrong = match changed {
            Changed::Nothing => return,
            Changed::Added(_) => Wrong::Missing,
            Changed::Moved | Changed::Removed => Wrong::Mismatched,
        };
        if kind == WalkKind::Load {
            // Nothing was missed: what was kept had come from a snapshot, or without a feeder.
            self.note(|report| report.mismatched += u64::from(wrong == Wrong::Mismatched));
        } else if gained {
            self.trust.gained_total += 1;
            self.note(|report| report.gained += 1);
        } else if !doubtful && wrong == Wrong::Missing && self.unread > 0 {
            self.unread -= 1;
        } else if !doubtful {
            self.trust.repaired_total += 1;
            self.unheard.walked(hash, wrong, version, id, self.now.mono);
            self.note(|report| report.found(wrong));
        }
    }

    fn note(&mut self, note: impl FnOnce(&mut WalkReport)) {
        if let Some(walk) = &mut self.walk {
            note(&mut walk.report);
        }
    }

    /// A row of the walk whose key cannot be read.
    pub fn walk_malformed(&mut self) {
        self.trust.malformed += 1;
        if let Some(walk) = &mut self.walk {
            walk.report.scanned += 1;
            walk.report.malformed += 1;
        }
    }

    /// Whether another node owned the key at some time since the last whole walk.
    fn is_gained(&self, key: &[u8]) -> bool {
        !self.config.classify && self.former_rings.iter().any(|ring| !ring.owns(self.url(key)))
    }

    /// Goes on ending the walk, up to `most` rows; returns its result once it has gone through all.
    pub fn end_walk(&mut self, partial: bool, unreadable: u64, most: usize) -> Option<Walked> {
        let walk = self.walk.as_mut()?;
        if walk.cursor.is_none() && !partial {
            // Those of an earlier walk that nobody has read: this one has seen them, or suspects them anew.
            self.watch.forget_suspects(walk.unseen as usize);
            walk.suspects.reserve(walk.unseen as usize);
        }
        if walk.unseen > 0 {
            let mut slice = Vec::new();
            walk.cursor = self.table.scan(walk.cursor.unwrap_or(0), most, |row| slice.push(row));
            let ended = walk.cursor.is_none();
            for row in slice {
                if self.table.mark(row, self.parity) != Mark::Unseen {
                    continue;
                }
                self.set_mark(row, Mark::Seen);
                if !partial {
                    let key = self.table.key(row);
                    self.watch.suspect(self.table.hash(&key), self.now.mono);
                    self.table.set_watched(row, true);
                    if let Some(walk) = &mut self.walk {
                        walk.suspects.push(key);
                    }
                }
            }
            if !ended && self.walk.as_ref().is_some_and(|walk| walk.unseen > 0) {
                return None;
            }
        }
        let mut walk = self.walk.take()?;
        let report = &mut walk.report;
        report.at = self.now.wall;
        report.ms = self.now.mono - walk.started_mono;
        report.partial = partial;
        report.unreadable_rows = unreadable;
        report.lost = std::mem::take(&mut self.lost_since_walk);
        self.trust.unreadable_rows = unreadable;
        let left = if partial { u64::MAX } else { unreadable };
        let may_be_new = walk.kind == WalkKind::Load || walk.may_gain;
        self.unread = if may_be_new { left } else { left.min(self.unread) };
        if walk.kind == WalkKind::Load {
            self.trust.loaded_at = Some(self.now.wall);
            self.trust.load_ms = Some(report.ms);
            self.trust.load_rows = report.scanned;
            self.trust.partial_load = partial;
        } else {
            self.unheard.keep_only(walk.id);
            self.last_verified = walk.id;
            self.trust.verified(*report, self.resyncing);
        }
        if !partial {
            self.trust.partial_load = false;
            self.whole = !walk.gaining;
            // Rows gained through a change since it began may lie where it had been already.
            self.former_rings.drain(..walk.former_rings);
            if unreadable == 0 {
                self.watch.walked(walk.id);
            }
        }
        Some(Walked { report: walk.report, suspects: walk.suspects })
    }

    /// Keys to be read now and handed to [`Self::repair`]: those that an event flagged, then the best of the queue
    /// that have not been looked at for a minute. At most `n` of each.
    pub fn head_check(&mut self, n: usize) -> Vec<Vec<u8>> {
        let mono = self.now.mono;
        self.watch.prune(mono);
        self.unheard.prune(mono);
        let mut keys = Vec::new();
        while keys.len() < n {
            let table = &self.table;
            let Some(key) = self.watch.next_flagged(mono, |key| table.hash(key)) else { break };
            match self.find(&key) {
                Some(row) => self.table.set_watched(row, true),
                None => self.watch.read_unkept(self.table.hash(&key), mono),
            }
            keys.push(key.into_vec());
        }
        let flagged = keys.len();
        for (key, _) in self.top(n).rows.iter() {
            let hash = self.table.hash(key);
            if keys[..flagged].iter().any(|other| other == key) || !self.watch.check(hash, mono) {
                continue;
            }
            if let Some(row) = self.table.find(hash, key) {
                self.table.set_watched(row, true);
                keys.push(key.to_vec());
            }
        }
        if !keys.is_empty() {
            self.trust.top_check.at = Some(self.now.wall);
            self.trust.top_check.checked += keys.len() as u64;
        }
        keys
    }

    /// A key that was handed out could not be read: where it must be, because an event or a walk has said so, it is handed out again
    /// by a head check a minute from now.
    pub fn read_failed(&mut self, key: &[u8]) {
        let hash = self.table.hash(key);
        if let Some(row) = self.table.find(hash, key) {
            self.table.set_watched(row, false);
        }
        self.watch.failed(hash, key, self.now.mono);
    }

    /// A key has been read from the table: `row` is what is there, `version` its version or NaN. Returns whether what was kept was wrong; false, too, where an event
    /// came in between.
    pub fn repair(&mut self, key: &[u8], row: Option<(Row, Judge)>, version: f64) -> bool {
        let hash = self.table.hash(key);
        let found = self.find_settled(hash, key);
        if let Some(row) = found {
            self.table.set_watched(row, false);
        }
        let doubtful = self.is_doubtful(hash, found);
        let (touched, suspect) = self.watch.read(hash, key);
        let target = row.filter(|_| self.owns(key)).and_then(|(row, judge)| self.judge(key, &row, judge, found));
        match touched {
            Touch::None => {}
            Touch::Read => {
                self.doubt(hash, key, found, target);
                return false;
            }
            Touch::Event => return false,
        }
        let changed = self.change(hash, found, key, target, Kind::Repair);
        self.note_version(hash, changed.row(found), version);
        if let (Some(row), true) = (found, changed != Changed::Removed) {
            self.set_verified(row);
        }
        self.mark_touched(hash, found, changed);
        self.overtake(hash, found, key, changed, Reader::Feeder);
        if changed == Changed::Nothing {
            return false;
        }
        if matches!(changed, Changed::Added(_)) && self.is_gained(key) {
            self.trust.gained_total += 1;
            return true;
        }
        let wrong = Wrong::as_read(row.is_some());
        if suspect {
            // What a load suspects was not missed: it had come from a snapshot, or without a feeder.
            if !doubtful && self.trust.amend_verify(|report| report.found(wrong)) {
                self.trust.repaired_total += 1;
                self.unheard.walked(hash, wrong, version, self.last_verified, self.now.mono);
            }
            return true;
        }
        self.trust.top_check.repaired += 1;
        if !doubtful {
            self.count_repair(hash, wrong, version);
        }
        true
    }
}
