//! Events that are merely late: what a verification put right, for as long as the event of that write may still come.

use super::version::ByHash;

/// An event that says no more than that a row has gone is told from a later one of its kind by its time only.
const GONE_WITHIN_MS: f64 = 60_000.0;
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

struct Write {
    wrong: Wrong,
    /// Of the row as it was read; NaN where it was gone.
    version: f64,
    walk: u64,
    /// On the monotonic clock.
    at: f64,
}

/// Writes that a verification has found without their event.
#[derive(Default)]
pub struct Unheard {
    writes: ByHash<Write>,
}

impl Unheard {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// A walk has put a key right. A row without a version is not remembered: no event could be told to be its own.
    pub fn found(&mut self, hash: u64, wrong: Wrong, version: f64, walk: u64, mono: f64) {
        if (version.is_finite() || wrong == Wrong::Phantom) && self.writes.len() < MOST {
            self.writes.insert(hash, Write { wrong, version, walk, at: mono });
        }
    }

    /// An event has come. If it is that of a write found before, returns what was wrong, and the number of the walk.
    pub fn heard(&mut self, hash: u64, gone: bool, version: f64, mono: f64) -> Option<(Wrong, u64)> {
        let write = self.writes.get(&hash)?;
        let its_own = match write.wrong {
            Wrong::Phantom => gone && mono - write.at < GONE_WITHIN_MS,
            _ => version == write.version,
        };
        if !its_own {
            return None;
        }
        self.writes.remove(&hash).map(|write| (write.wrong, write.walk))
    }

    /// Nothing counts any more what other walks than this one have found.
    pub fn keep_only(&mut self, walk: u64) {
        self.writes.retain(|_, write| write.walk == walk);
    }

    /// Nothing counts what this walk has found.
    pub fn forget(&mut self, walk: u64) {
        self.writes.retain(|_, write| write.walk != walk);
    }

    /// Bytes allocated.
    pub fn bytes(&self) -> usize {
        self.writes.capacity() * 8 / 7 * (size_of::<(u64, Write)>() + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_late_where_it_is_of_the_version_that_was_read() {
        let mut unheard = Unheard::default();
        unheard.found(1, Wrong::Missing, 5.0, 1, 0.0);
        unheard.found(2, Wrong::Mismatched, f64::NAN, 1, 0.0);
        assert_eq!(unheard.heard(1, false, 6.0, 0.0), None, "of a later write");
        assert_eq!(unheard.heard(1, false, f64::NAN, 0.0), None, "of who knows which write");
        assert_eq!(unheard.heard(2, false, f64::NAN, 0.0), None, "nothing says that it is the same");
        assert_eq!(unheard.heard(1, false, 5.0, 1e9), Some((Wrong::Missing, 1)));
        assert_eq!(unheard.heard(1, false, 5.0, 1e9), None, "twice is a replay");
    }

    #[test]
    fn a_deletion_is_late_for_a_minute() {
        let mut unheard = Unheard::default();
        unheard.found(1, Wrong::Phantom, f64::NAN, 1, 0.0);
        unheard.found(2, Wrong::Phantom, f64::NAN, 1, 0.0);
        assert_eq!(unheard.heard(1, false, 5.0, 0.0), None, "it is back");
        assert_eq!(unheard.heard(1, true, 5.0, 59_999.0), Some((Wrong::Phantom, 1)));
        assert_eq!(unheard.heard(2, true, 5.0, 60_000.0), None);
    }

    #[test]
    fn memory_is_bounded_and_ends_with_the_next_walk() {
        let mut unheard = Unheard::default();
        for hash in 0..1_000_000 {
            unheard.found(hash, Wrong::Missing, 1.0, 1, 0.0);
        }
        assert!(unheard.bytes() < 8 << 20, "{}", unheard.bytes());
        unheard.keep_only(2);
        assert!(unheard.is_empty());
    }
}
