//! Which versions came lately: what keeps an older event that is still under way from overwriting a newer one.
//!
//! Versions are remembered by the key's 64-bit hash, deletions included, for at least ten minutes and at most twenty;
//! in heavy traffic for the last 114,688 keys at least, whichever is less. 16 bytes an entry, 4 MiB at the most.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

const REMEMBER_MS: f64 = 600_000.0;
/// As many as fit a table of 2^17 slots.
const MOST: usize = 114_688;

/// The keys are hashes already.
#[derive(Default)]
pub struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0 << 8 | u64::from(*byte);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// A map by key hash.
pub type ByHash<V> = HashMap<u64, V, BuildHasherDefault<AsItIs>>;

/// The versions remembered: two generations, the older one forgotten whole.
#[derive(Default)]
pub struct RecentVersions {
    current: ByHash<f64>,
    previous: ByHash<f64>,
    /// When the current generation began, on the monotonic clock.
    since: f64,
}

impl RecentVersions {
    /// The version remembered for a key.
    pub fn get(&self, hash: u64) -> Option<f64> {
        self.current.get(&hash).or_else(|| self.previous.get(&hash)).copied()
    }

    /// Remembers a key's version, unless a newer one is remembered: then returns false. What is not finite is no version.
    pub fn take(&mut self, hash: u64, version: f64, mono: f64) -> bool {
        if !version.is_finite() {
            return true;
        }
        if let Some(known) = self.current.get_mut(&hash) {
            if *known > version {
                return false;
            }
            *known = version;
            return true;
        }
        if self.previous.get(&hash).is_some_and(|known| *known > version) {
            return false;
        }
        if self.current.len() >= MOST {
            self.turn(mono);
        }
        self.current.insert(hash, version);
        true
    }

    /// Forgets what is too old.
    pub fn advance(&mut self, mono: f64) {
        let age = mono - self.since;
        if age >= 2.0 * REMEMBER_MS {
            self.turn(mono);
        }
        if age >= REMEMBER_MS {
            self.turn(mono);
        }
    }

    fn turn(&mut self, mono: f64) {
        self.previous = std::mem::take(&mut self.current);
        self.since = mono;
    }

    /// Bytes allocated.
    pub fn bytes(&self) -> usize {
        // hashbrown: an entry and a control byte a slot, 8 slots for every 7 entries.
        let bytes = |map: &ByHash<f64>| map.capacity() * 8 / 7 * (16 + 1);
        bytes(&self.current) + bytes(&self.previous)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_version_is_refused_for_ten_minutes_and_not_for_ever() {
        let mut versions = RecentVersions::default();
        assert!(versions.take(1, 5.0, 0.0));
        assert!(!versions.take(1, 4.5, 0.0));
        assert!(versions.take(1, 5.0, 0.0), "the same version is not older");
        versions.advance(599_999.0);
        versions.advance(600_000.0);
        versions.advance(1_100_000.0);
        assert!(!versions.take(1, 4.0, 1_100_000.0));
        versions.advance(1_300_000.0);
        assert_eq!(versions.get(1), None);
        assert!(versions.take(1, 4.0, 1_300_000.0));
    }

    #[test]
    fn memory_is_bounded() {
        let mut versions = RecentVersions::default();
        let hash = |key: u64| key.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(32);
        for key in 0..1_000_000 {
            versions.take(hash(key), 1.0, 0.0);
        }
        assert!(versions.bytes() < 5 << 20, "{}", versions.bytes());
        assert!(!versions.take(hash(999_999), 0.5, 0.0));
    }
}
