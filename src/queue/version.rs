//! Which versions came lately: what keeps an older event that is still under way from overwriting a newer one.
//!
//! A kept row's version is in its record; that of a key without a row (deletions, and rows of other nodes) is here, by the key's
//! 64-bit hash. Either is remembered for at least ten minutes and at most twenty, and forgotten by age: time is cut in ages of
//! ten minutes, and what was told in this age or the one before still counts. Of keys without a row, in heavy traffic, at least
//! the last 114,688 are remembered, if that is less. 16 bytes an entry, 4 MiB at the most.

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

/// Which age it is. It comes round again after a year.
fn age_of(mono: f64) -> u16 {
    (mono / REMEMBER_MS) as u64 as u16
}

/// Versions of keys without a row: those told in this age, and those told in the one before.
#[derive(Default)]
pub struct RecentVersions {
    current: ByHash<f64>,
    previous: ByHash<f64>,
    age: u16,
}

impl RecentVersions {
    /// The present age.
    #[inline]
    pub fn age(&self) -> u16 {
        self.age
    }

    /// Whether what was told in that age still counts.
    #[inline]
    pub fn counts(&self, age: u16) -> bool {
        self.age.wrapping_sub(age) <= 1
    }

    /// The version remembered for a key, and in which age it was told.
    pub fn get(&self, hash: u64) -> Option<(f64, u16)> {
        let current = self.current.get(&hash).map(|version| (*version, self.age));
        current.or_else(|| self.previous.get(&hash).map(|version| (*version, self.age.wrapping_sub(1))))
    }

    /// Whether nothing is remembered.
    pub fn is_empty(&self) -> bool {
        self.current.is_empty() && self.previous.is_empty()
    }

    /// Remembers a key's version, told in this age, unless a newer one is remembered.
    pub fn keep(&mut self, hash: u64, version: f64, age: u16) {
        if !self.counts(age) || self.get(hash).is_some_and(|(known, _)| known > version) {
            return;
        }
        if age != self.age {
            if self.previous.len() < MOST || self.previous.contains_key(&hash) {
                self.previous.insert(hash, version);
            }
            return;
        }
        if self.current.len() >= MOST && !self.current.contains_key(&hash) {
            self.previous = std::mem::take(&mut self.current);
        }
        self.current.insert(hash, version);
    }

    /// Forgets what is too old.
    pub fn advance(&mut self, mono: f64) {
        let age = age_of(mono);
        match age.wrapping_sub(self.age) {
            0 => return,
            1 => self.previous = std::mem::take(&mut self.current),
            _ => (self.current, self.previous) = Default::default(),
        }
        self.age = age;
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
    fn a_version_counts_for_ten_minutes_and_not_for_ever() {
        let mut versions = RecentVersions::default();
        versions.advance(599_999.0);
        versions.keep(1, 5.0, versions.age());
        versions.keep(1, 4.5, versions.age());
        versions.advance(600_000.0);
        assert_eq!(versions.get(1), Some((5.0, 0)));
        versions.keep(1, 4.0, versions.age());
        assert_eq!(versions.get(1), Some((5.0, 0)), "an older one does not make it younger");
        versions.keep(2, 3.0, 0);
        versions.advance(1_199_999.0);
        assert_eq!(versions.get(1), Some((5.0, 0)));
        versions.advance(1_200_000.0);
        assert!(versions.get(1).is_none() && versions.get(2).is_none());
        versions.keep(1, 5.0, 0);
        assert!(versions.is_empty(), "told too long ago");
        versions.keep(1, 5.0, versions.age());
        versions.advance(1e9);
        assert!(versions.is_empty());
    }

    #[test]
    fn memory_is_bounded() {
        let mut versions = RecentVersions::default();
        let hash = |key: u64| key.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(32);
        for key in 0..1_000_000 {
            versions.keep(hash(key), 1.0, 0);
        }
        assert!(versions.bytes() < 5 << 20, "{}", versions.bytes());
        assert_eq!(versions.get(hash(999_999)), Some((1.0, 0)));
        versions.advance(REMEMBER_MS);
        for key in 1_000_000..2_000_000 {
            versions.keep(hash(key), 1.0, 0);
            versions.keep(hash(key + 1_000_000), 1.0, 1);
        }
        assert!(versions.bytes() < 5 << 20, "{}", versions.bytes());
    }
}
