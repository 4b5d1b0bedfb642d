//! Which rows of a class are due when: minute buckets, first in, first out.
//!
//! Minutes are held in pages of 256, in order. A page with few minutes in use is a short sorted list, so that a class
//! of one row costs little; a page with many is indexed directly. The rows of a minute are linked through their records.

use smallvec::SmallVec;

use super::pages::{PAGE, Pages, split};
use super::table::{NONE, RowId, Table};
use super::time::Minute;

const SPARSE_MOST: usize = 24;

/// The rows of one class that are due in one minute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bucket {
    /// First in.
    pub head: RowId,
    /// Last in.
    pub tail: RowId,
    /// How many.
    pub rows: u32,
}

enum Minutes {
    Sparse(SmallVec<[(u8, Bucket); 1]>),
    Dense(Box<Dense>),
}

struct Dense {
    used: [u64; 4],
    buckets: [Bucket; PAGE],
}

struct Page {
    rows: u32,
    minutes: Minutes,
}

impl Default for Page {
    fn default() -> Self {
        Page { rows: 0, minutes: Minutes::Sparse(SmallVec::new()) }
    }
}

impl Page {
    fn get(&self, slot: u8) -> Bucket {
        match &self.minutes {
            Minutes::Dense(dense) => dense.buckets[usize::from(slot)],
            Minutes::Sparse(list) => {
                list.binary_search_by_key(&slot, |entry| entry.0).map_or(Bucket::default(), |at| list[at].1)
            }
        }
    }

    /// The bucket of a minute that is to have a row more.
    fn enter(&mut self, slot: u8) -> &mut Bucket {
        self.rows += 1;
        if let Minutes::Sparse(list) = &self.minutes
            && list.len() >= SPARSE_MOST
            && !list.iter().any(|entry| entry.0 == slot)
        {
            let mut dense = Box::new(Dense { used: [0; 4], buckets: [Bucket::default(); PAGE] });
            for &(slot, bucket) in list {
                dense.buckets[usize::from(slot)] = bucket;
                dense.used[usize::from(slot >> 6)] |= 1 << (slot & 63);
            }
            self.minutes = Minutes::Dense(dense);
        }
        match &mut self.minutes {
            Minutes::Dense(dense) => {
                dense.used[usize::from(slot >> 6)] |= 1 << (slot & 63);
                &mut dense.buckets[usize::from(slot)]
            }
            Minutes::Sparse(list) => {
                let at = list.binary_search_by_key(&slot, |entry| entry.0).unwrap_or_else(|at| {
                    list.insert(at, (slot, Bucket::default()));
                    at
                });
                &mut list[at].1
            }
        }
    }

    /// A row has left its minute: `leave` changes the bucket.
    fn leave(&mut self, slot: u8, leave: impl FnOnce(&mut Bucket)) {
        self.rows -= 1;
        match &mut self.minutes {
            Minutes::Dense(dense) => {
                let bucket = &mut dense.buckets[usize::from(slot)];
                leave(bucket);
                if bucket.rows == 0 {
                    dense.used[usize::from(slot >> 6)] &= !(1 << (slot & 63));
                }
            }
            Minutes::Sparse(list) => {
                let at = list.binary_search_by_key(&slot, |entry| entry.0).expect("a row's bucket is there");
                leave(&mut list[at].1);
                if list[at].1.rows == 0 {
                    list.remove(at);
                }
            }
        }
    }

    /// The first used minute at or behind `slot`.
    fn first_from(&self, slot: u8) -> Option<u8> {
        match &self.minutes {
            Minutes::Sparse(list) => list.get(list.partition_point(|entry| entry.0 < slot)).map(|entry| entry.0),
            Minutes::Dense(dense) => {
                let mut word = usize::from(slot >> 6);
                let mut bits = dense.used[word] & (!0 << (slot & 63));
                loop {
                    if bits != 0 {
                        return Some((word * 64) as u8 + bits.trailing_zeros() as u8);
                    }
                    word += 1;
                    bits = *dense.used.get(word)?;
                }
            }
        }
    }

    /// How many rows are in minutes up to and including `slot`.
    fn rows_to(&self, slot: u8) -> u32 {
        match &self.minutes {
            Minutes::Sparse(list) => list.iter().take_while(|entry| entry.0 <= slot).map(|entry| entry.1.rows).sum(),
            Minutes::Dense(dense) => dense.buckets[..=usize::from(slot)].iter().map(|bucket| bucket.rows).sum(),
        }
    }

    fn bytes(&self) -> usize {
        match &self.minutes {
            Minutes::Sparse(list) if list.spilled() => list.capacity() * size_of::<(u8, Bucket)>(),
            Minutes::Sparse(_) => 0,
            Minutes::Dense(_) => size_of::<Dense>(),
        }
    }
}

/// The minutes of one class.
#[derive(Default)]
pub struct Buckets {
    pages: Pages<Page>,
}

impl Buckets {
    /// The bucket of a minute; empty where there is none.
    pub fn get(&self, minute: Minute) -> Bucket {
        let (number, slot) = split(minute);
        self.pages.get(number).map_or(Bucket::default(), |page| page.get(slot))
    }

    /// Puts a row behind the others of its minute.
    pub fn push(&mut self, table: &mut Table, row: RowId, minute: Minute) {
        let (number, slot) = split(minute);
        let bucket = self.pages.enter(number, Page::default).enter(slot);
        table.link(row, bucket.tail, NONE);
        if bucket.tail == NONE {
            bucket.head = row;
        } else {
            table.set_next(bucket.tail, row);
        }
        bucket.tail = row;
        bucket.rows += 1;
    }

    /// Takes a row out of its minute.
    pub fn unlink(&mut self, table: &mut Table, row: RowId, minute: Minute) {
        let (previous, next) = (table.previous(row), table.next(row));
        if previous != NONE {
            table.set_next(previous, next);
        }
        if next != NONE {
            table.set_previous(next, previous);
        }
        let (number, slot) = split(minute);
        let page = self.pages.get_mut(number).expect("a row's page is there");
        page.leave(slot, |bucket| {
            if previous == NONE {
                bucket.head = next;
            }
            if next == NONE {
                bucket.tail = previous;
            }
            bucket.rows -= 1;
        });
        if page.rows == 0 {
            self.pages.remove(number);
        }
    }

    /// The first minute at or behind `minute` in which a row is due.
    pub fn first_from(&self, minute: Minute) -> Option<Minute> {
        let (number, slot) = split(minute);
        self.pages.from(number).find_map(|(at, page)| {
            let slot = page.first_from(if at == number { slot } else { 0 })?;
            Some(at << 8 | u32::from(slot))
        })
    }

    /// How many rows are due before `minute`, which may be the one behind the last that there is.
    pub fn rows_before(&self, minute: u64) -> u64 {
        let Some(last) = minute.checked_sub(1) else { return 0 };
        let (number, slot) = split(last as Minute);
        let pages = self.pages.iter().take_while(|(at, _)| *at <= number);
        pages.map(|(at, page)| u64::from(if at < number { page.rows } else { page.rows_to(slot) })).sum()
    }

    /// How many rows of its minute are before this one. They are followed from it both ways, side by side, until one way ends.
    pub fn before(&self, table: &Table, row: RowId, minute: Minute) -> u32 {
        let (mut back, mut on) = (row, row);
        let mut steps = 0;
        loop {
            (back, on) = (table.previous(back), table.next(on));
            if back == NONE {
                return steps;
            }
            if on == NONE {
                return self.get(minute).rows - 1 - steps;
            }
            steps += 1;
        }
    }

    /// Bytes allocated.
    pub fn bytes(&self) -> usize {
        self.pages.bytes() + self.pages.iter().map(|(_, page)| page.bytes()).sum::<usize>()
    }

    /// Panics where the links, the counts and the records do not agree. Returns the rows. For tests.
    pub fn validate(&self, table: &Table, class: u32) -> u64 {
        let mut all = 0;
        let mut minute = self.first_from(0);
        let mut last_page = None;
        while let Some(at) = minute {
            let bucket = self.get(at);
            let (mut count, mut previous, mut row) = (0, NONE, bucket.head);
            while row != NONE {
                assert_eq!((table.due(row), table.class(row)), (at, class), "bucket: a row in the wrong place");
                assert_eq!(table.previous(row), previous, "bucket: a broken link");
                (previous, row) = (row, table.next(row));
                count += 1;
            }
            assert_eq!((previous, count), (bucket.tail, bucket.rows), "bucket: tail or count");
            assert!(count > 0, "bucket: an empty minute counts as used");
            all += u64::from(count);
            last_page = last_page.max(Some(at >> 8));
            minute = at.checked_add(1).and_then(|next| self.first_from(next));
        }
        self.pages.validate();
        assert_eq!(self.pages.iter().map(|(_, page)| u64::from(page.rows)).sum::<u64>(), all, "bucket: page counts");
        assert_eq!(self.pages.iter().last().map(|(number, _)| number), last_page, "bucket: an empty page");
        all
    }
}

#[cfg(test)]
mod tests {
    use super::super::table::NewKey;
    use super::*;

    #[test]
    fn minutes_from_the_first_to_the_last_keep_their_rows_in_order() {
        let mut table = Table::default();
        let mut buckets = Buckets::default();
        let minutes: Vec<Minute> =
            (0..600).map(|i| i * 7 % 400).chain([0, 255, 256, Minute::MAX, Minute::MAX - 1]).collect();
        let mut rows = Vec::new();
        for (i, &minute) in minutes.iter().enumerate() {
            let key = format!("{i}").into_bytes();
            let row = table.insert(table.hash(&key), NewKey::Plain(&key), minute, 3);
            buckets.push(&mut table, row, minute);
            rows.push((row, minute));
        }
        assert_eq!(buckets.validate(&table, 3), minutes.len() as u64);
        for (i, (row, minute)) in rows.iter().enumerate() {
            let before = rows[..i].iter().filter(|other| other.1 == *minute).count();
            assert_eq!(buckets.before(&table, *row, *minute), before as u32);
        }
        assert_eq!(buckets.first_from(401), Some(Minute::MAX - 1));
        for bound in [0, 1, 101, 256, 257, 400, u64::from(Minute::MAX), u64::from(Minute::MAX) + 1] {
            let expected = minutes.iter().filter(|minute| u64::from(**minute) < bound).count() as u64;
            assert_eq!(buckets.rows_before(bound), expected);
        }
        for (i, (row, minute)) in rows.iter().enumerate() {
            buckets.unlink(&mut table, *row, *minute);
            if i % 50 == 0 {
                buckets.validate(&table, 3);
            }
        }
        assert_eq!(buckets.first_from(0), None);
        assert_eq!(buckets.bytes(), buckets.pages.bytes());
    }
}
