//! Keys handed out to be read from the table: what is read is the truth, unless an event comes in between.

use std::collections::{HashSet, VecDeque};

use super::version::ByHash;

/// A key is looked at by the head check at most this often.
const CHECK_EVERY_MS: f64 = 60_000.0;
/// Whoever asked for a key and has not answered by now never will.
const FORGET_MS: f64 = 600_000.0;
/// Flagged keys waiting to be read.
const MOST_FLAGGED: usize = 65_536;

/// Keys that wait to be read, and keys that are being read. Kept rows being read carry a flag in their record; keys
/// are otherwise told apart by their 64-bit hash.
#[derive(Default)]
pub struct Watch {
    flagged: VecDeque<Box<[u8]>>,
    is_flagged: HashSet<u64>,
    /// Being read, and no row is kept for it; when it was handed out.
    unkept: ByHash<f64>,
    /// Was being read when an event touched it; when that was.
    touched: ByHash<f64>,
    /// Being read since an event flagged it.
    by_flag: ByHash<f64>,
    /// Being read since a walk did not see it.
    suspects: ByHash<f64>,
    checked: ByHash<f64>,
    /// Keys were flagged that there was no room to remember.
    overflowed: bool,
}

impl Watch {
    /// A key is to be read.
    pub fn flag(&mut self, hash: u64, key: &[u8]) {
        if self.flagged.len() >= MOST_FLAGGED {
            self.overflowed = true;
        } else if self.is_flagged.insert(hash) {
            self.flagged.push_back(key.into());
        }
    }

    /// The next flagged key: it is being read now.
    pub fn next_flagged(&mut self, mono: f64, hash: impl Fn(&[u8]) -> u64) -> Option<Box<[u8]>> {
        let key = self.flagged.pop_front()?;
        let hash = hash(&key);
        self.is_flagged.remove(&hash);
        self.by_flag.insert(hash, mono);
        self.touched.remove(&hash);
        Some(key)
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

    /// A walk has seen the whole table since.
    pub fn forget_suspects(&mut self) {
        self.suspects.clear();
    }

    /// An event touched a kept row that was being read.
    pub fn touch_watched(&mut self, hash: u64, mono: f64) {
        self.touched.insert(hash, mono);
    }

    /// An event touched a key without a row. Returns whether it was being read.
    pub fn touch_unkept(&mut self, hash: u64, mono: f64) -> bool {
        let reading = !self.unkept.is_empty() && self.unkept.remove(&hash).is_some();
        if reading {
            self.touched.insert(hash, mono);
        }
        reading
    }

    /// A key has been read. Returns whether the read counts, and whether the key was a suspect. A flagged key whose
    /// read does not count is flagged again.
    pub fn read(&mut self, hash: u64, key: &[u8]) -> (bool, bool) {
        self.unkept.remove(&hash);
        let suspect = self.suspects.remove(&hash).is_some();
        let flagged = self.by_flag.remove(&hash).is_some();
        let touched = self.touched.remove(&hash).is_some();
        if touched && flagged {
            self.flag(hash, key);
        }
        (!touched, suspect)
    }

    /// Keys waiting to be read.
    pub fn waiting(&self) -> usize {
        self.flagged.len()
    }

    /// Suspects not read yet.
    pub fn suspects(&self) -> usize {
        self.suspects.len()
    }

    /// Whether flags were lost since this was last asked.
    pub fn overflowed(&self) -> bool {
        self.overflowed
    }

    /// A walk has seen the whole table: lost flags are made good.
    pub fn walked(&mut self) {
        self.overflowed = false;
    }

    /// Forgets what nobody will ask for any more.
    pub fn prune(&mut self, mono: f64) {
        self.checked.retain(|_, at| mono - *at < CHECK_EVERY_MS);
        for map in [&mut self.unkept, &mut self.touched, &mut self.by_flag, &mut self.suspects] {
            map.retain(|_, at| mono - *at < FORGET_MS);
        }
    }

    /// Bytes allocated.
    pub fn bytes(&self) -> usize {
        let maps = [&self.unkept, &self.touched, &self.by_flag, &self.suspects, &self.checked];
        maps.iter().map(|map| map.capacity() * 20).sum::<usize>()
            + self.is_flagged.capacity() * 10
            + self.flagged.capacity() * 16
            + self.flagged.iter().map(|key| key.len()).sum::<usize>()
    }
}
