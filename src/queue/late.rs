//! Events that are merely late: what a verification or a single read put right, for as long as the event of that write may still come.

use super::version::ByHash;

/// An event that says no more than that a row has gone is told from a later one of its kind by its time only.
const GONE_WITHIN_MS: f64 = 60_000.0;
/// How long a single read is remembered; what a verification found is until the next one.
const READ_WITHIN_MS: f64 = 600_000.0;
/// Writes remembered; a verification that puts more right has found more than late events.
const MOST: usize = 65_536;

/// How what was kept was wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// A row was missing.
    Missing,
    /// A row was kept otherwise than the table had it.
    Mismatched,
    /// A row was kept that the table did not have.
    Phantom,
}

impl Wrong {
    /// How one was that a single read has put right.
    pub fn as_read(is_there: bool) -> Wrong {
        if is_there { Wrong::Mismatched } else { Wrong::Phantom }
    }
}

struct Write {
    wrong: Wrong,
    /// Of the row as it was read; NaN where it was gone.
    version: f64,
    /// On the monotonic clock.
    at: f64,
}

impl Write {
    /// Whether this event is its own.
    fn is_told_by(&self, gone: bool, version: f64, mono: f64) -> bool {
        match self.wrong {
            Wrong::Phantom => gone && mono - self.at < GONE_WITHIN_MS,
            _ => version == self.version,
        }
    }
}

/// Writes that were found without their event.
#[derive(Default)]
pub struct Unheard {
    /// By a walk, and by which.
    walked: ByHash<(Write, u64)>,
    /// By a claim or a check of the head.
    read: ByHash<Write>,
}

impl Unheard {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.walked.is_empty() && self.read.is_empty()
    }

    /// A walk has put a key right. A row without a version is not remembered: no event could be told to be its own.
    pub fn walked(&mut self, hash: u64, wrong: Wrong, version: f64, walk: u64, mono: f64) {
        if (version.is_finite() || wrong == Wrong::Phantom) && self.walked.len() < MOST {
            self.walked.insert(hash, (Write { wrong, version, at: mono }, walk));
        }
    }

    /// A single read has, likewise.
    pub fn read(&mut self, hash: u64, wrong: Wrong, version: f64, mono: f64) {
        if (version.is_finite() || wrong == Wrong::Phantom) && self.read.len() < MOST {
            self.read.insert(hash, Write { wrong, version, at: mono });
        }
    }

    /// An event has come. If it is that of a write that a walk has found, returns what was wrong, and the number of the walk.
    pub fn heard(&mut self, hash: u64, gone: bool, version: f64, mono: f64) -> Option<(Wrong, u64)> {
        self.walked.get(&hash).filter(|(write, _)| write.is_told_by(gone, version, mono))?;
        self.walked.remove(&hash).map(|(write, walk)| (write.wrong, walk))
    }

    /// An event has come. Returns whether it is that of a write that a single read has found.
    pub fn heard_of_read(&mut self, hash: u64, gone: bool, version: f64, mono: f64) -> bool {
        let its_own = self.read.get(&hash).is_some_and(|write| write.is_told_by(gone, version, mono));
        its_own && self.read.remove(&hash).is_some()
    }

    /// Nothing counts any more what other walks than this one have found.
    pub fn keep_only(&mut self, walk: u64) {
        self.walked.retain(|_, (_, of)| *of == walk);
    }

    /// This walk has no report any more: what it has found is as if single reads had.
    pub fn abandoned(&mut self, walk: u64) {
        for (hash, (write, _)) in self.walked.extract_if(|_, (_, of)| *of == walk) {
            if self.read.len() < MOST {
                self.read.insert(hash, write);
            }
        }
    }

    /// Forgets reads whose event will not come any more.
    pub fn prune(&mut self, mono: f64) {
        self.read.retain(|_, write| mono - write.at < READ_WITHIN_MS);
    }

    /// Bytes allocated.
    pub fn bytes(&self) -> usize {
        (self.walked.capacity() * (size_of::<(u64, (Write, u64))>() + 1)
            + self.read.capacity() * (size_of::<(u64, Write)>() + 1))
            * 8
            / 7
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_late_where_it_is_of_the_version_that_was_read() {
        let mut unheard = Unheard::default();
        unheard.walked(1, Wrong::Missing, 5.0, 1, 0.0);
        unheard.walked(2, Wrong::Mismatched, f64::NAN, 1, 0.0);
        assert_eq!(unheard.heard(1, false, 6.0, 0.0), None, "of a later write");
        assert_eq!(unheard.heard(1, false, f64::NAN, 0.0), None, "of who knows which write");
        assert_eq!(unheard.heard(2, false, f64::NAN, 0.0), None, "nothing says that it is the same");
        assert_eq!(unheard.heard(1, false, 5.0, 1e9), Some((Wrong::Missing, 1)));
        assert_eq!(unheard.heard(1, false, 5.0, 1e9), None, "twice is a replay");
    }

    #[test]
    fn a_deletion_is_late_for_a_minute() {
        let mut unheard = Unheard::default();
        unheard.walked(1, Wrong::Phantom, f64::NAN, 1, 0.0);
        unheard.walked(2, Wrong::Phantom, f64::NAN, 1, 0.0);
        assert_eq!(unheard.heard(1, false, 5.0, 0.0), None, "it is back");
        assert_eq!(unheard.heard(1, true, 5.0, 59_999.0), Some((Wrong::Phantom, 1)));
        assert_eq!(unheard.heard(2, true, 5.0, 60_000.0), None);
    }

    #[test]
    fn memory_is_bounded_and_ends_with_the_next_walk() {
        let mut unheard = Unheard::default();
        for hash in 0..1_000_000 {
            unheard.walked(hash, Wrong::Missing, 1.0, 1, 0.0);
        }
        assert!(unheard.bytes() < 8 << 20, "{}", unheard.bytes());
        unheard.keep_only(2);
        assert!(unheard.is_empty());
    }
}
