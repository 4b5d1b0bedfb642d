//! Keys handed out to be read from the table: what is read is the truth, unless an event comes in between.

use std::collections::VecDeque;

use super::version::ByHash;

/// A key is looked at by the head check at most this often.
const CHECK_EVERY_MS: f64 = 60_000.0;
/// Whoever asked for a key and has not answered by now never will.
const FORGET_MS: f64 = 600_000.0;
/// Flagged keys waiting to be read.
const MOST_FLAGGED: usize = 65_536;

/// What has happened to a key since a read of it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Touch {
    /// Nothing.
    #[default]
    None,
    /// Another read has put something else in place: which of the two is the newer nobody can say.
    Read,
    /// An event has come: it is newer.
    Event,
}

/// A key that is being read since it was flagged.
struct Reading {
    key: Box<[u8]>,
    /// When it was handed out.
    at: f64,
    /// How many walks had begun.
    walks: u64,
    is_told: bool,
}

/// A key that could not be read.
struct Failed {
    hash: u64,
    key: Box<[u8]>,
    /// When it is to be read again.
    again_at: f64,
}

/// Keys that wait to be read, and keys that are being read. Kept rows being read carry a flag in their record; keys
/// are otherwise told apart by their 64-bit hash.
///
/// A flagged key is told of where an event has said that it changed, or reads did not agree: what is wrong with it then was not missed.
/// One that is not is a suspect which is to be read again.
#[derive(Default)]
pub struct Watch {
    flagged: VecDeque<Box<[u8]>>,
    /// Each of them, and whether it is told of.
    is_flagged: ByHash<bool>,
    /// Keys that could not be read, each once.
    failed: VecDeque<Failed>,
    /// How many walks had begun when each last could not, and whether it is told of.
    is_failed: ByHash<(u64, bool)>,
    /// Being read, and no row is kept for it; when it was handed out.
    unkept: ByHash<f64>,
    /// Was being read when something touched it; when that was.
    touched: ByHash<(Touch, f64)>,
    by_flag: ByHash<Reading>,
    /// Being read since a walk did not see it.
    suspects: ByHash<f64>,
    checked: ByHash<f64>,
    /// Keys were to be read and are not remembered any more: how many walks had begun when that last happened.
    lost: Option<u64>,
    /// How many walks have begun.
    walks: u64,
}

impl Watch {
    /// A key is to be read: it is told of.
    pub fn flag(&mut self, hash: u64, key: &[u8]) {
        self.line_up(hash, key, true);
    }

    fn line_up(&mut self, hash: u64, key: &[u8], is_told: bool) {
        if let Some(told) = self.is_flagged.get_mut(&hash) {
            *told |= is_told;
        } else if self.flagged.len() >= MOST_FLAGGED {
            self.lost = Some(self.walks);
        } else {
            self.is_flagged.insert(hash, is_told);
            self.flagged.push_back(key.into());
        }
    }

    /// The next flagged key: it is being read now.
    pub fn next_flagged(&mut self, mono: f64, hash: impl Fn(&[u8]) -> u64) -> Option<Box<[u8]>> {
        while let Some(failed) = self.failed.pop_front_if(|failed| failed.again_at <= mono) {
            let is_told = self.is_failed.remove(&failed.hash).is_some_and(|(_, is_told)| is_told);
            self.line_up(failed.hash, &failed.key, is_told);
        }
        let key = self.flagged.pop_front()?;
        let hash = hash(&key);
        let is_told = self.is_flagged.remove(&hash).unwrap_or(false);
        self.by_flag.insert(hash, Reading { key: key.clone(), at: mono, walks: self.walks, is_told });
        self.touched.remove(&hash);
        Some(key)
    }

    /// A key that was handed out to be read could not be: where it must be read, it will be handed out again in a minute, or when that
    /// was said of it already.
    pub fn failed(&mut self, hash: u64, key: &[u8], mono: f64) {
        self.unkept.remove(&hash);
        self.touched.remove(&hash);
        let reading = self.by_flag.remove(&hash);
        if reading.is_none() && !self.suspects.contains_key(&hash) {
            return;
        }
        let is_told = reading.is_some_and(|reading| reading.is_told);
        if let Some(told) = self.is_flagged.get_mut(&hash) {
            *told |= is_told;
        } else if let Some((walks, told)) = self.is_failed.get_mut(&hash) {
            *walks = self.walks;
            *told |= is_told;
        } else if self.failed.len() >= MOST_FLAGGED {
            self.lost = Some(self.walks);
        } else {
            self.is_failed.insert(hash, (self.walks, is_told));
            self.failed.push_back(Failed { hash, key: key.into(), again_at: mono + CHECK_EVERY_MS });
        }
    }

    /// Whoever was reading reads no more: what was flagged is to be read by another.
    pub fn abandon(&mut self) {
        let mut keys: Vec<_> = std::mem::take(&mut self.by_flag).into_iter().collect();
        keys.sort_unstable_by(|(_, a), (_, b)| a.key.cmp(&b.key));
        for (hash, Reading { key, is_told, .. }) in keys {
            self.line_up(hash, &key, is_told);
        }
    }

    /// Whether the head check may look at this key again; if so it is taken as looked at.
    pub fn check(&mut self, hash: u64, mono: f64) -> bool {
        let due = self.checked.get(&hash).is_none_or(|at| mono - at >= CHECK_EVERY_MS);
        if due {
            self.checked.insert(hash, mono);
            self.touched.remove(&hash);
        }
        due
    }

    /// A key without a row is being read.
    pub fn read_unkept(&mut self, hash: u64, mono: f64) {
        self.unkept.insert(hash, mono);
    }

    /// A row is kept now for a key that had none. Returns whether it is being read: its record tells from here on.
    pub fn stop_unkept(&mut self, hash: u64) -> bool {
        !self.unkept.is_empty() && self.unkept.remove(&hash).is_some()
    }

    /// A kept row that the walk did not see is being read.
    pub fn suspect(&mut self, hash: u64, mono: f64) {
        self.suspects.insert(hash, mono);
        self.touched.remove(&hash);
    }

    /// A walk has seen the whole table since; about so many keys it has not seen.
    pub fn forget_suspects(&mut self, more: usize) {
        // One that grows when it is large holds everybody up; one that was large once need not stay so.
        self.suspects = ByHash::with_capacity_and_hasher(more, Default::default());
    }

    /// Something touched a kept row that was being read.
    pub fn touch_watched(&mut self, hash: u64, by: Touch, mono: f64) {
        self.touched.insert(hash, (by, mono));
    }

    /// Something touched a key without a row.
    pub fn touch_unkept(&mut self, hash: u64, by: Touch, mono: f64) {
        if !self.unkept.is_empty() && self.unkept.remove(&hash).is_some() {
            self.touched.insert(hash, (by, mono));
        }
    }

    /// A key has been read. Returns what has touched it meanwhile: anything, and the read does not count; and whether the key was a
    /// suspect. A flagged key whose read does not count is flagged again.
    pub fn read(&mut self, hash: u64, key: &[u8]) -> (Touch, bool) {
        self.unkept.remove(&hash);
        let suspect = self.suspects.remove(&hash).is_some();
        let reading = self.by_flag.remove(&hash);
        let touched = self.touched.remove(&hash).map_or(Touch::None, |(by, _)| by);
        if let Some(Reading { is_told, .. }) = reading.filter(|_| touched != Touch::None) {
            self.line_up(hash, key, is_told);
        }
        (touched, suspect)
    }

    /// Whether an event, or reads that did not agree, have said that this key is to be read, and it has not been since.
    pub fn is_told(&self, hash: u64) -> bool {
        self.is_flagged.get(&hash).is_some_and(|told| *told)
            || self.by_flag.get(&hash).is_some_and(|reading| reading.is_told)
            || self.is_failed.get(&hash).is_some_and(|(_, told)| *told)
    }

    /// Keys that must be read and have not been: suspects, and those flagged, being read since they were, or not to be read. One that is
    /// several of these is one.
    pub fn unread(&self) -> usize {
        let being_read = self.by_flag.keys().filter(|hash| !self.suspects.contains_key(hash));
        let read_or_suspect = |hash: &u64| self.suspects.contains_key(hash) || self.by_flag.contains_key(hash);
        let flagged = self.is_flagged.keys().filter(|hash| !read_or_suspect(hash));
        let failed = self.is_failed.keys().filter(|hash| !read_or_suspect(hash) && !self.is_flagged.contains_key(hash));
        self.suspects.len() + being_read.count() + flagged.count() + failed.count()
    }

    /// Whether there are none.
    pub fn all_read(&self) -> bool {
        self.suspects.is_empty() && self.flagged.is_empty() && self.by_flag.is_empty() && self.failed.is_empty()
    }

    /// Whether keys that must be read have been lost since the last whole walk.
    pub fn lost(&self) -> bool {
        self.lost.is_some()
    }

    /// A walk begins: the `walks`-th.
    pub fn walk_begun(&mut self, walks: u64) {
        self.walks = walks;
    }

    /// The `walks`-th walk has read the whole table: what was to be read when it began has been.
    pub fn walked(&mut self, walks: u64) {
        self.lost = self.lost.filter(|lost| *lost >= walks);
        self.by_flag.retain(|_, reading| reading.walks >= walks);
        self.is_failed.retain(|_, (before, _)| *before >= walks);
        self.failed.retain(|failed| self.is_failed.contains_key(&failed.hash));
    }

    /// Forgets what nobody will answer any more.
    pub fn prune(&mut self, mono: f64) {
        self.checked.retain(|_, at| mono - *at < CHECK_EVERY_MS);
        self.unkept.retain(|_, at| mono - *at < FORGET_MS);
        self.touched.retain(|_, (_, at)| mono - *at < FORGET_MS);
        let before = self.by_flag.len() + self.suspects.len();
        self.by_flag.retain(|_, reading| mono - reading.at < FORGET_MS);
        // One that waits to be read again is not forgotten, however long that takes.
        let Watch { is_flagged, is_failed, by_flag, .. } = self;
        let waits =
            |hash: &u64| is_failed.contains_key(hash) || is_flagged.contains_key(hash) || by_flag.contains_key(hash);
        self.suspects.retain(|hash, at| mono - *at < FORGET_MS || waits(hash));
        if self.by_flag.len() + self.suspects.len() < before {
            self.lost = Some(self.walks);
        }
    }

    /// Bytes allocated.
    pub fn bytes(&self) -> usize {
        let maps = [&self.unkept, &self.suspects, &self.checked];
        maps.iter().map(|map| map.capacity() * 20).sum::<usize>()
            + self.is_failed.capacity() * 28
            + self.touched.capacity() * 28
            + self.by_flag.capacity() * 49
            + self.is_flagged.capacity() * 18
            + self.flagged.capacity() * 16
            + self.failed.capacity() * size_of::<Failed>()
            + self.flagged.iter().map(|key| key.len()).sum::<usize>()
            + self.failed.iter().map(|failed| failed.key.len()).sum::<usize>()
            + self.by_flag.values().map(|reading| reading.key.len()).sum::<usize>()
    }
}
