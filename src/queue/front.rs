//! How far claims have come in each class. All rows before a front are leased, or in the grace after a release: they are counted, and
//! need not be passed over one by one.
//!
//! Claims take the rows of a class in its order, so that what is leased of it are its first rows, most of the time. Rows leave from
//! before the front as their results come. Whatever else happens there (a lease that ends and leaves its row where it is, a row that is
//! due earlier) takes the front away, and the next claim passes over the class's rows one by one, once.

use super::class::{Class, ClassId, Classes};
use super::lease::{Leases, Verdict};
use super::order::{Place, Priority, place_of};
use super::table::{NONE, RowId, Table};
use super::time::Minute;

/// How far claims have come in one class.
#[derive(Clone, Copy, Default)]
pub struct Front {
    /// Rows before it; 0: there is no front.
    rows: u32,
    /// The minute in which it is.
    minute: Minute,
    /// The last row before it in that minute, and how many there are; [`NONE`] and 0 where there is none.
    last: RowId,
    here: u32,
    /// What the lease entries of the rows before it name, and no others.
    stamp: u64,
    /// The claim that has last met a row of the class which is neither leased nor could be granted.
    stopped: u64,
}

impl Front {
    /// Where the rows behind it begin: the minute, and the row and how many of its minute are before it where it is within one.
    pub fn next(&self, table: &Table, class: &Class) -> Option<(Minute, RowId, u32)> {
        let next = if self.last == NONE { NONE } else { table.next(self.last) };
        if next != NONE {
            return Some((self.minute, next, self.here));
        }
        let from = if self.last == NONE { self.minute } else { self.minute.checked_add(1)? };
        class.buckets.first_from(from).map(|minute| (minute, NONE, 0))
    }

    /// Rows before it.
    pub fn rows(&self) -> u64 {
        self.rows.into()
    }

    /// Rows before it that stand at `place` or better, at `now` ms.
    pub fn rows_to(&self, class: &Class, priority: &Priority, place: Place, now: f64) -> u64 {
        let counts = |minute| place_of(class, priority, minute, now) >= place;
        if counts(self.minute) {
            return self.rows.into();
        }
        // All rows of the minutes before its own are before it.
        let (mut low, mut high) = (0, self.minute);
        while low < high {
            let middle = low + (high - low) / 2;
            if counts(middle) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low.checked_sub(1).map_or(0, |minute| class.buckets.rows_to(minute))
    }
}

/// The fronts of all classes.
#[derive(Default)]
pub struct Fronts {
    fronts: Vec<Front>,
    stamp: u64,
    /// Claims so far.
    claims: u64,
}

impl Fronts {
    /// The front of a class, where it has one that is not past `minute`.
    pub fn get(&self, class: ClassId, minute: Minute) -> Option<Front> {
        self.fronts.get(class as usize).copied().filter(|front| front.rows > 0 && front.minute <= minute)
    }

    /// A claim begins.
    pub fn begin_claim(&mut self) {
        self.claims += 1;
    }

    /// Whether a class's front can move on in this claim: not where it is past `minute`, nor behind a row that stays where it is.
    pub fn moves(&self, class: ClassId, minute: Minute) -> bool {
        self.fronts.get(class as usize).is_none_or(|front| front.minute <= minute && front.stopped != self.claims)
    }

    /// A row that is neither leased nor granted: the front stays before it for this claim.
    pub fn stop(&mut self, class: ClassId) {
        self.at(class).stopped = self.claims;
    }

    fn at(&mut self, class: ClassId) -> &mut Front {
        let class = class as usize;
        if self.fronts.len() <= class {
            self.fronts.resize(class + 1, Front::default());
        }
        &mut self.fronts[class]
    }

    /// Takes a class's front away.
    pub fn reset(&mut self, class: ClassId) {
        if let Some(front) = self.fronts.get_mut(class as usize) {
            *front = Front::default();
        }
    }

    /// The first row behind the front, or of the class where there is none, is leased: the front moves on behind it. Returns what its lease entry is to name.
    pub fn pass(&mut self, class: ClassId, row: RowId, minute: Minute) -> u64 {
        let next = self.stamp + 1;
        let front = self.at(class);
        if front.rows == 0 {
            front.stamp = next;
        }
        if front.minute != minute {
            (front.minute, front.here) = (minute, 0);
        }
        front.rows += 1;
        front.here += 1;
        front.last = row;
        let stamp = front.stamp;
        self.stamp = self.stamp.max(stamp);
        stamp
    }

    /// A row whose lease entry named `stamp`, or 0, is about to leave its minute.
    pub fn leave(&mut self, table: &Table, class: ClassId, row: RowId, minute: Minute, stamp: u64) {
        let Some(front) = self.fronts.get_mut(class as usize).filter(|front| front.stamp == stamp && stamp != 0) else {
            return;
        };
        front.rows -= 1;
        if minute == front.minute {
            front.here -= 1;
            if row == front.last {
                front.last = table.previous(row);
            }
        }
        if front.rows == 0 {
            *front = Front::default();
        }
    }

    /// A row has come to this minute.
    pub fn came(&mut self, class: ClassId, minute: Minute) {
        if self.fronts.get(class as usize).is_some_and(|front| minute < front.minute) {
            self.reset(class);
        }
    }

    /// Bytes allocated.
    pub fn bytes(&self) -> usize {
        self.fronts.capacity() * size_of::<Front>()
    }

    /// Panics where a row before a front is not leased, or not counted. For tests.
    pub fn validate(&self, table: &Table, classes: &Classes, leases: &Leases) {
        let mut named = 0;
        for (id, class) in classes.iter() {
            let Some(front) = self.get(id, Minute::MAX) else { continue };
            let (mut rows, mut here, mut last) = (0, 0, NONE);
            let mut minute = class.buckets.first_from(0);
            while let Some(at) = minute.filter(|at| *at <= front.minute) {
                let mut row = class.buckets.get(at).head;
                while row != NONE && (at < front.minute || here < front.here) {
                    assert_eq!(leases.peek(row), Verdict::Leased, "front: a row before it can be granted");
                    assert_eq!(leases.passed(row), front.stamp, "front: a row before it is not named");
                    rows += 1;
                    if at == front.minute {
                        (here, last) = (here + 1, row);
                    }
                    row = table.next(row);
                }
                minute = at.checked_add(1).and_then(|from| class.buckets.first_from(from));
            }
            assert_eq!((rows, here, last), (front.rows, front.here, front.last), "front: rows before it");
            named += leases.rows().filter(|row| leases.passed(*row) == front.stamp).count() - rows as usize;
        }
        assert_eq!(named, 0, "front: a row behind it is named");
    }
}

#[cfg(test)]
mod tests {
    use super::super::config::Config;
    use super::super::keeper::{Event, Judge, Keeper};
    use super::super::row::Row;
    use super::super::time::Now;

    const NOW: f64 = 6e9;
    const LATER: f64 = 7e9;

    fn at(mono: f64) -> Now {
        Now { wall: NOW + mono, mono }
    }

    /// Rows before all fronts.
    fn passed(keeper: &Keeper) -> u32 {
        keeper.validate();
        keeper.fronts.fronts.iter().map(|front| front.rows).sum()
    }

    fn put(keeper: &mut Keeper, key: &str, due: f64, from_sitemap: bool) {
        let row = Row { from_sitemap, ..Row::due_at(due) };
        keeper.apply(key.as_bytes(), Event::Put(row, Judge::Rules), f64::NAN);
    }

    #[test]
    fn what_is_in_flight_is_before_the_fronts_until_its_result_comes_or_its_lease_ends() {
        let mut keeper = Keeper::new(Config::default(), at(0.0));
        for i in 0..60 {
            put(&mut keeper, &format!("https://a.com/{i}"), NOW - f64::from(i % 5) * 60_000.0, i % 3 == 0);
        }
        let first = keeper.claim(25);
        assert_eq!((first.tokens.len(), first.skipped_leased, passed(&keeper)), (25, 0, 25));
        let second = keeper.claim(10);
        assert_eq!((second.skipped_leased, passed(&keeper)), (25, 35));
        assert_eq!((keeper.top(5).skipped_leased, keeper.top(0).skipped_leased), (35, 0));
        // What stands before the last row looked at is counted, and no more of what is in flight.
        put(&mut keeper, "https://a.com/urgent", NOW - 6e7, true);
        assert_eq!((keeper.top(1).skipped_leased, keeper.top(2).skipped_leased), (0, 35));
        put(&mut keeper, "https://a.com/urgent", LATER, true);

        let keys: Vec<Vec<u8>> = first.jobs.iter().map(|(key, _)| key.to_vec()).collect();
        for (key, token) in keys.iter().zip(&first.tokens) {
            let before = keeper.claim(1).skipped_leased;
            keeper.apply(key, Event::Put(Row::due_at(LATER), Judge::Rules), f64::NAN);
            keeper.release(key, Some(*token));
            assert_eq!(keeper.top(1).skipped_leased, before, "one granted, one done");
            keeper.validate();
        }
        let lease = keeper.config().leases.lease_ms;
        keeper.advance(at(lease));
        assert_eq!(passed(&keeper), 0, "all leases have ended");
        assert_eq!(keeper.claim(1).skipped_leased, 0);
        // A clock that is put back: what is in flight is not due.
        keeper.advance(Now { wall: NOW - 120_000.0, mono: lease + 1.0 });
        passed(&keeper);
        keeper.claim(3);
        passed(&keeper);
    }
}
