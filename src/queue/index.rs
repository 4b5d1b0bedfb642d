//! Key hash to row: an open-addressed table in hash order, 8 bytes a slot, that grows without a pause.
//!
//! A slot holds the upper 32 bits of a key's hash and the row. A hash's home is `hash * homes / 2^32`, so homes
//! rise with hashes; entries are kept in hash order (linear probing with ordered insertion), so a look-up
//! may stop at the first greater hash, and the table in slot order *is* the rows in hash order. That makes growing a
//! stream: entries are moved in order to a larger table, a few with each change, never re-reading a key, and
//! the old table's segments are given back as it passes them. Load stays between 0.66 and 0.82.

const SEGMENT: usize = 4096;
/// Slots moved with each change while the table is being resized: enough to be done before the new one fills.
const MOVED_PER_CHANGE: usize = 32;
const MIN_HOMES: u64 = 64;
/// Slots looked at together.
const AT_ONCE: usize = 4;
/// Changes' work done in one call of [`Index::expect_no_more`]: some 0.1 ms.
const WORK_AT_ONCE: usize = 128;

/// A row's number, never 0: see [`crate::queue::table`].
pub type RowId = u32;

#[derive(Default)]
struct Slots {
    /// How many home positions there are; the slots go on behind the last as far as they must.
    homes: u64,
    /// Segments not there yet, or given back, are empty boxes and read as empty slots.
    segments: Vec<Box<[u64]>>,
}

impl Slots {
    fn new(homes: u64) -> Slots {
        Slots { homes, segments: Vec::new() }
    }

    fn home(&self, hash: u32) -> usize {
        home(hash, self.homes)
    }

    fn get(&self, at: usize) -> u64 {
        match self.segments.get(at / SEGMENT) {
            Some(segment) => segment.get(at % SEGMENT).copied().unwrap_or(0),
            None => 0,
        }
    }

    #[inline]
    fn slot_mut(&mut self, at: usize) -> &mut u64 {
        let number = at / SEGMENT;
        if self.segments.get(number).is_none_or(|segment| at % SEGMENT >= segment.len()) {
            self.make_room(at);
        }
        &mut self.segments[number][at % SEGMENT]
    }

    /// Makes the segment of a slot, or makes it whole.
    #[cold]
    fn make_room(&mut self, at: usize) {
        let number = at / SEGMENT;
        if number >= self.segments.len() {
            self.segments.resize_with(number + 1, Box::default);
        }
        let segment = &mut self.segments[number];
        // A table smaller than a segment takes no more than it needs (some slots behind the last home).
        let few = self.homes as usize + 256;
        let len = if segment.is_empty() && self.homes < SEGMENT as u64 / 2 && at < few { few } else { SEGMENT };
        let mut whole = std::mem::take(segment).into_vec();
        whole.resize(len, 0);
        *segment = whole.into_boxed_slice();
    }

    /// The slots from `at` to the end of their segment: most runs end before it does.
    fn from(&self, at: usize) -> &[u64] {
        match self.segments.get(at / SEGMENT) {
            Some(segment) => segment.get(at % SEGMENT..).unwrap_or(&[]),
            None => &[],
        }
    }

    /// The first slot from the hash's home on that is empty or no lower than `least`.
    #[inline(always)]
    fn first(&self, hash: u32, least: u64) -> (usize, u64) {
        self.first_from(self.home(hash), least)
    }

    #[inline(always)]
    fn first_from(&self, mut at: usize, least: u64) -> (usize, u64) {
        loop {
            let slots = self.from(at);
            if let Some(place) = slots.iter().position(|slot| !is_before(*slot, least)) {
                return (at + place, slots[place]);
            }
            if slots.is_empty() {
                // A segment that is not there, or not as long: all empty.
                return (at, 0);
            }
            at += slots.len();
            if !at.is_multiple_of(SEGMENT) {
                return (at, 0);
            }
        }
    }

    /// [`Self::first`], for slots that are in the cache: looked at some at once, without a branch among them, as where a run ends cannot be
    /// foretold. While they are waited for, a branch is better: what is guessed to follow is done meanwhile.
    #[inline(always)]
    fn first_near(&self, hash: u32, least: u64) -> (usize, u64) {
        let mut at = self.home(hash);
        while let Some(few) = self.from(at).first_chunk::<AT_ONCE>() {
            let ends = (0..AT_ONCE).fold(0u32, |ends, at| ends | u32::from(!is_before(few[at], least)) << at);
            if ends != 0 {
                let place = ends.trailing_zeros() as usize;
                return (at + place, few[place]);
            }
            at += AT_ONCE;
        }
        self.first_from(at, least)
    }

    fn find(&self, hash: u32, mut is_it: impl FnMut(RowId) -> bool) -> Option<usize> {
        let (mut at, mut slot) = self.first(hash, slot_of(hash, 1));
        while slot != 0 && hash_of(slot) == hash {
            if is_it(row_of(slot)) {
                return Some(at);
            }
            (at, slot) = self.first_from(at + 1, slot_of(hash, 1));
        }
        None
    }

    fn insert(&mut self, hash: u32, row: RowId) {
        let (at, slot) = self.first_near(hash, behind(hash));
        let new = slot_of(hash, row);
        if slot == 0 {
            *self.slot_mut(at) = new;
            return;
        }
        // The rest of the run moves on by one: slot by slot, as most runs are too short for a copy to pay.
        let (mut carried, mut at) = (new, at);
        while carried != 0 {
            // Makes its segment, or makes that whole.
            self.slot_mut(at);
            for slot in &mut self.segments[at / SEGMENT][at % SEGMENT..] {
                std::mem::swap(&mut carried, slot);
                at += 1;
                if carried == 0 {
                    break;
                }
            }
        }
    }

    /// Adds entries in the order of their hashes, which are no lower than any other, at `at` or behind; empty slots are passed over.
    /// Returns the place behind the last.
    fn append(&mut self, mut at: usize, slots: &[u64]) -> usize {
        let mut slots = slots.iter().copied().filter(|slot| *slot != 0).peekable();
        let homes = self.homes;
        while let Some(&first) = slots.peek() {
            at = at.max(self.home(hash_of(first)));
            // Makes its segment, or makes that whole.
            self.slot_mut(at);
            let (start, segment) = (at / SEGMENT * SEGMENT, &mut self.segments[at / SEGMENT]);
            while let Some(&slot) = slots.peek() {
                at = at.max(home(hash_of(slot), homes));
                let Some(place) = segment.get_mut(at - start) else { break };
                if *place == 0 {
                    *place = slot;
                    slots.next();
                }
                at += 1;
            }
        }
        at
    }

    /// Empties a slot and closes the gap, so that no entry is ever cut off from its home.
    fn remove_at(&mut self, mut at: usize) {
        loop {
            let next = self.get(at + 1);
            if next == 0 || self.home(hash_of(next)) > at {
                *self.slot_mut(at) = 0;
                return;
            }
            *self.slot_mut(at) = next;
            at += 1;
        }
    }

    fn bytes(&self) -> usize {
        self.segments.capacity() * size_of::<Box<[u64]>>() + self.segments.iter().map(|s| s.len() * 8).sum::<usize>()
    }
}

fn home(hash: u32, homes: u64) -> usize {
    ((u64::from(hash) * homes) >> 32) as usize
}

/// The least that a slot of a greater hash holds; 0, below which is nothing but the empty slot's, where there is none.
fn behind(hash: u32) -> u64 {
    (u64::from(hash) + 1) << 32
}

/// Whether a slot is neither empty nor as much as `least`: what an empty one comes to here is more than any other.
fn is_before(slot: u64, least: u64) -> bool {
    slot.wrapping_sub(1) < least.wrapping_sub(1)
}

fn hash_of(slot: u64) -> u32 {
    (slot >> 32) as u32
}

fn row_of(slot: u64) -> RowId {
    slot as u32
}

fn slot_of(hash: u32, row: RowId) -> u64 {
    u64::from(hash) << 32 | u64::from(row)
}

/// A resize under way: `old` still holds the hashes from `bound` up, which begin at slot `from`.
struct Resize {
    old: Slots,
    from: usize,
    bound: u64,
}

/// The index. It holds no keys: callers say whether a row of the same hash is the one they look for.
pub struct Index {
    slots: Slots,
    resize: Option<Resize>,
    len: usize,
    /// Changes in which it does not shrink: see [`Index::expect`].
    expected: usize,
}

impl Default for Index {
    fn default() -> Self {
        Index { slots: Slots::new(MIN_HOMES), resize: None, len: 0, expected: 0 }
    }
}

impl Index {
    /// How many rows are in it.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes allocated.
    pub fn bytes(&self) -> usize {
        self.slots.bytes() + self.resize.as_ref().map_or(0, |resize| resize.old.bytes())
    }

    /// Makes homes for so many rows, which are about to come, if there are none yet: they need not move from table to table then.
    pub fn expect(&mut self, rows: usize) {
        if self.is_empty() && self.resize.is_none() {
            self.slots = Slots::new((rows as u64 * 4 / 3).max(MIN_HOMES));
            self.expected = rows;
        }
    }

    /// Ends [`Self::expect`], and goes on with the resize that follows from it, if any; true once there is none under way.
    pub fn expect_no_more(&mut self) -> bool {
        for _ in 0..WORK_AT_ONCE {
            self.expected = 0;
            self.work();
            if self.resize.is_none() {
                return true;
            }
        }
        false
    }

    fn side(&self, hash: u32) -> &Slots {
        match &self.resize {
            Some(resize) if u64::from(hash) >= resize.bound => &resize.old,
            _ => &self.slots,
        }
    }

    fn side_mut(&mut self, hash: u32) -> &mut Slots {
        match &mut self.resize {
            Some(resize) if u64::from(hash) >= resize.bound => &mut resize.old,
            _ => &mut self.slots,
        }
    }

    /// Reads the slot in which a look-up of `hash` starts, and decides nothing by it: the first step of reading ahead for many.
    pub fn peek(&self, hash: u64) -> u64 {
        let hash = (hash >> 32) as u32;
        let side = self.side(hash);
        side.get(side.home(hash))
    }

    /// The row that a look-up of `hash` would try first; 0 where there is none.
    pub fn guess(&self, hash: u64) -> RowId {
        let hash = (hash >> 32) as u32;
        let (_, slot) = self.side(hash).first(hash, slot_of(hash, 1));
        if hash_of(slot) == hash { row_of(slot) } else { 0 }
    }

    /// The row of this hash for which `is_it` is true.
    pub fn find(&self, hash: u64, is_it: impl FnMut(RowId) -> bool) -> Option<RowId> {
        let hash = (hash >> 32) as u32;
        let side = self.side(hash);
        side.find(hash, is_it).map(|at| row_of(side.get(at)))
    }

    /// Adds a row that is not in it.
    pub fn insert(&mut self, hash: u64, row: RowId) {
        let hash = (hash >> 32) as u32;
        self.side_mut(hash).insert(hash, row);
        self.len += 1;
        self.work();
    }

    /// Takes out a row that is in it.
    pub fn remove(&mut self, hash: u64, row: RowId) {
        let hash = (hash >> 32) as u32;
        let side = self.side_mut(hash);
        if let Some(at) = side.find(hash, |other| other == row) {
            side.remove_at(at);
            self.len -= 1;
        }
        self.work();
    }

    /// Begins a resize where one is due, and moves one under way a little further.
    fn work(&mut self) {
        self.expected = self.expected.saturating_sub(1);
        let Some(resize) = &mut self.resize else {
            let homes = self.slots.homes;
            let len = self.len as u64;
            let wanted = if len * 100 > homes * 82 {
                (homes * 5 / 4).max(homes + MIN_HOMES)
            } else if homes > MIN_HOMES && len * 100 < homes * 30 && self.expected == 0 {
                (len * 3 / 2).max(MIN_HOMES)
            } else {
                return;
            };
            let old = std::mem::replace(&mut self.slots, Slots::new(wanted));
            self.resize = Some(Resize { old, from: 0, bound: 0 });
            return self.work();
        };
        // Behind this place of the new table nothing has been put yet in this call.
        let mut place = 0;
        let mut left = MOVED_PER_CHANGE;
        loop {
            let rest = resize.old.from(resize.from);
            // Ends only behind an empty slot: what comes next has its home at or behind it.
            let end = rest.iter().skip(left).position(|slot| *slot == 0).map(|empty| left + empty + 1);
            place = self.slots.append(place, &rest[..end.unwrap_or(rest.len())]);
            if let Some(end) = end {
                resize.from += end;
                resize.bound = ((resize.from as u64) << 32).div_ceil(resize.old.homes);
                return;
            }
            left = left.saturating_sub(rest.len());
            // Behind this segment, or where there is none.
            let segment = resize.from / SEGMENT;
            resize.from = (segment + 1) * SEGMENT;
            match resize.old.segments.get_mut(segment) {
                Some(segment) => *segment = Box::default(),
                None => {
                    self.resize = None;
                    return;
                }
            }
        }
    }

    /// Every row, in no order that means anything.
    pub fn rows(&self) -> impl Iterator<Item = RowId> + '_ {
        let old = self.resize.iter().flat_map(|resize| {
            let from = resize.from;
            (from..resize.old.segments.len() * SEGMENT).map(move |at| resize.old.get(at))
        });
        let new = (0..self.slots.segments.len() * SEGMENT).map(|at| self.slots.get(at));
        old.chain(new).filter(|slot| *slot != 0).map(row_of)
    }

    /// Panics where the table's own rules do not hold. For tests.
    pub fn validate(&self) {
        let check = |slots: &Slots, from: usize, low: u64, high: u64| {
            let mut count = 0;
            let mut last = 0;
            for at in from..slots.segments.len() * SEGMENT {
                let slot = slots.get(at);
                if slot == 0 {
                    continue;
                }
                let hash = hash_of(slot);
                assert!(hash >= last, "index: hashes out of order");
                assert!((low..high).contains(&u64::from(hash)), "index: a hash on the wrong side of a resize");
                let home = slots.home(hash);
                assert!(home <= at, "index: an entry before its home");
                assert!((home..at).all(|between| slots.get(between) != 0), "index: an entry cut off from its home");
                last = hash;
                count += 1;
            }
            count
        };
        let bound = self.resize.as_ref().map_or(1 << 32, |resize| resize.bound);
        let mut count = check(&self.slots, 0, 0, bound);
        if let Some(resize) = &self.resize {
            count += check(&resize.old, resize.from, bound, 1 << 32);
        }
        assert_eq!(count, self.len, "index: length");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn spread(seed: u64) -> u64 {
        let x = (seed ^ 0x9E37_79B9_7F4A_7C15).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        (x ^ x >> 29).wrapping_mul(0x94D0_49BB_1331_11EB)
    }

    #[test]
    fn grows_and_shrinks_and_loses_nothing() {
        let mut index = Index::default();
        let mut model = HashMap::new();
        let mut state = 1u64;
        for step in 0..60_000u32 {
            state = spread(state);
            // Grow, then shrink to nothing, with equal hashes on the way.
            let hash = if step % 7 == 0 { 0xFFFF_FFFF_0000_0000 } else { state };
            if step < 40_000 && state % 10 < 8 {
                index.insert(hash, step + 1);
                model.insert(step + 1, hash);
            } else if let Some((&row, &hash)) = model.iter().next() {
                index.remove(hash, row);
                model.remove(&row);
            }
            if step % 997 == 0 || (1_000..1_100).contains(&step) {
                index.validate();
                assert_eq!(index.rows().count(), model.len());
                for (&row, &hash) in model.iter().take(200) {
                    assert_eq!(index.find(hash, |other| other == row), Some(row));
                }
            }
        }
        while let Some((&row, &hash)) = model.iter().next() {
            index.remove(hash, row);
            model.remove(&row);
        }
        index.validate();
        assert_eq!(index.len(), 0);
        assert!(index.bytes() < 50_000, "{} bytes for nothing", index.bytes());
    }

    #[test]
    fn rows_that_are_expected_move_no_others_and_if_they_do_not_come_the_room_is_given_back() {
        let mut index = Index::default();
        index.expect(50_000);
        for row in 1..=50_000u32 {
            index.insert(spread(u64::from(row)), row);
            assert!(index.resize.is_none(), "at {row}");
        }
        index.validate();
        let mut index = Index::default();
        index.expect(50_000);
        index.insert(spread(1), 1);
        while !index.expect_no_more() {}
        index.validate();
        assert!(index.bytes() < 50_000, "{} bytes for one", index.bytes());
        let mut index = Index::default();
        index.expect(50_000);
        for row in 1..=60_000u32 {
            index.insert(spread(u64::from(row)), row);
            index.remove(spread(u64::from(row)), row);
        }
        index.validate();
        assert!(index.bytes() < 50_000, "{} bytes for nothing", index.bytes());
    }

    #[test]
    fn stays_within_thirteen_bytes_a_row() {
        let mut index = Index::default();
        for row in 1..=200_000u32 {
            index.insert(spread(u64::from(row)), row);
            if row > 100_000 && row % 1_000 == 0 {
                let each = index.bytes() as f64 / f64::from(row);
                assert!(each < 12.8, "{each} bytes a row at {row}");
            }
        }
        index.validate();
    }
}
