//! How far claims have come in each class: where its front is. Of the rows before it, those that are leased, or in the grace after a
//! release, are counted and need not be passed over one by one; the others, few as a rule, are listed.
//!
//! Claims take the rows of a class in its order, so that what is leased of it are its first rows, most of the time. Rows leave from
//! before the front as their results come. A lease that ends with its row where it was, a row that is due earlier, and one that is held
//! are open: before the front, and to be looked at by every claim. A front goes with the last leased row before it.
//!
//! Where leases that end or rows that come would make the open ones too many, the front is taken away, and the next claim passes over the
//! class's rows one by one. Where held rows would, it stays where it is, and claims pass over what is behind it until fewer are held.

use std::cell::Cell;
use std::cmp::Ordering;
use std::num::NonZeroU64;

use super::bucket::Bucket;
use super::class::{Class, ClassId, Classes};
use super::lease::{Leases, Verdict};
use super::order::{Line, Place};
use super::table::{NONE, RowId, Table};
use super::time::Minute;

/// Open rows of a class: as many as are found and moved in next to no time.
const MOST_OPEN: usize = 256;

/// Open rows for which a front that is taken away keeps room.
const KEPT: usize = 16;

/// Told to each row that comes to be before a front. Of the rows of one minute, the later ones have the greater numbers.
pub type Number = NonZeroU64;

/// A row before a front that is neither leased nor in its grace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Open {
    /// When it is due.
    pub minute: Minute,
    /// Which.
    pub row: RowId,
    /// See [`Number`].
    pub number: Number,
}

impl Open {
    /// Where it is, in the order of its class.
    pub fn place(&self) -> (Minute, Number) {
        (self.minute, self.number)
    }
}

/// How far claims have come in one class. Every claim asks this of all classes: what is seldom needed is apart.
#[derive(Default)]
pub struct Front {
    /// Rows before it; 0: there is no front.
    rows: u32,
    /// The minute in which it is.
    minute: Minute,
    /// The last row before it in that minute, and how many there are; [`NONE`] and 0 where there is none.
    last: RowId,
    here: u32,
    /// The number of the first row that was before it: a smaller one was told by another that has been taken away.
    begun: u64,
    /// Kept from one claim to the next: few classes have other rows behind their fronts by then.
    behind: Cell<Behind>,
    others: Option<Box<Others>>,
}

/// Where the rows behind a front begin.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Behind {
    /// To be looked for.
    #[default]
    Unknown,
    /// There are none.
    Nowhere,
    /// With the first row of a minute.
    Minute(Minute),
    /// With this row, within the front's own minute.
    Row(RowId),
}

/// The open rows before a front, in order.
#[derive(Default)]
struct Others {
    open: Vec<Open>,
    /// The claim that found no room for another.
    stopped: u64,
}

impl Front {
    /// The rows before it that are not leased, in order.
    pub fn open(&self) -> &[Open] {
        self.others.as_ref().map_or(&[], |others| &others.open)
    }

    /// Those behind this one, or all.
    pub fn open_after(&self, row: Option<Open>) -> impl Iterator<Item = Open> {
        let open = self.open();
        let from = row.map_or(0, |row| open.partition_point(|open| open.place() <= row.place()));
        open[from..].iter().copied()
    }

    fn others(&mut self) -> &mut Others {
        self.others.get_or_insert_default()
    }

    /// Where the rows behind it begin: the minute, and the row and how many of its minute are before it where it is within one.
    pub fn behind(&self, table: &Table, class: &Class) -> Option<(Minute, RowId, u32)> {
        if self.behind.get() == Behind::Unknown {
            self.behind.set(self.look_behind(table, class));
        }
        match self.behind.get() {
            Behind::Minute(minute) => Some((minute, NONE, 0)),
            Behind::Row(row) => Some((self.minute, row, self.here)),
            Behind::Nowhere | Behind::Unknown => None,
        }
    }

    fn look_behind(&self, table: &Table, class: &Class) -> Behind {
        let next = if self.last == NONE { NONE } else { table.next(self.last) };
        if next != NONE {
            return Behind::Row(next);
        }
        let from = if self.last == NONE { Some(self.minute) } else { self.minute.checked_add(1) };
        from.and_then(|from| class.buckets.first_from(from)).map_or(Behind::Nowhere, Behind::Minute)
    }

    /// A row comes to this minute, as its last.
    fn comes(&self, minute: Minute) {
        let is_first = match self.behind.get() {
            Behind::Nowhere => true,
            Behind::Minute(first) => minute < first,
            Behind::Row(_) | Behind::Unknown => false,
        };
        if is_first && minute >= self.minute {
            self.behind.set(Behind::Unknown);
        }
    }

    /// A row is about to leave this minute.
    fn leaves(&self, row: RowId, minute: Minute) {
        let is_first = match self.behind.get() {
            Behind::Minute(first) => minute == first,
            Behind::Row(first) => row == first,
            Behind::Nowhere | Behind::Unknown => false,
        };
        if is_first {
            self.behind.set(Behind::Unknown);
        }
    }

    /// Leased rows before it, up to the last row that a claim has looked at; all of them where it has looked at all rows. The front is
    /// that of `class`, the rows of which stand on `line`.
    pub fn leased_before(&self, class: &Class, last: Option<Last>, line: &Line, table: &Table) -> u64 {
        match last {
            None => self.leased(),
            Some(Last { place, open: Some(last) }) if place.age == class.age => {
                let open = self.open().partition_point(|open| open.place() <= last.place());
                let earlier = class.buckets.rows_before(u64::from(last.minute));
                earlier + u64::from(self.rank(class, last, table)) - open as u64
            }
            Some(last) if line.place(self.minute) >= last.place => self.leased(),
            // In minutes before the front's own, all rows are before it.
            Some(last) => {
                let end = line.before(last.place, 0..u64::from(self.minute), Ordering::is_ge);
                let open = self.open().partition_point(|open| u64::from(open.minute) < end);
                class.buckets.rows_before(end) - open as u64
            }
        }
    }

    /// Which of the rows of its minute a row before the front is: 1 is the first. Sought from both ends: it is near one of them as a rule, as leases
    /// end in much the order in which they began.
    fn rank(&self, class: &Class, row: Open, table: &Table) -> u32 {
        let Bucket { tail, rows, .. } = class.buckets.get(row.minute);
        let (end, here) = if row.minute == self.minute { (self.last, self.here) } else { (tail, rows) };
        let (mut back, mut ahead, mut steps) = (row.row, row.row, 0);
        loop {
            if ahead == end {
                return here - steps;
            }
            back = table.previous(back);
            if back == NONE {
                return steps + 1;
            }
            ahead = table.next(ahead);
            steps += 1;
        }
    }

    /// Moves on behind the next row.
    fn pass(&mut self, row: RowId, minute: Minute, number: Number) {
        if self.rows == 0 {
            self.begun = number.get();
        }
        if self.rows == 0 || self.minute != minute {
            (self.minute, self.here) = (minute, 0);
        }
        self.rows += 1;
        self.here += 1;
        self.last = row;
        self.behind.set(Behind::Unknown);
    }

    /// Whether a leased row that was told this number is before it.
    fn has(&self, number: Number) -> bool {
        number.get() >= self.begun
    }

    /// Rows before it that are leased.
    fn leased(&self) -> u64 {
        u64::from(self.rows) - self.open().len() as u64
    }

    /// Takes it away where no row before it is leased: there is nothing to pass over.
    fn settle(&mut self) {
        if self.leased() == 0 {
            self.clear();
        }
    }

    fn clear(&mut self) {
        self.rows = 0;
        self.behind.set(Behind::Unknown);
        match &mut self.others {
            Some(others) if others.open.capacity() <= KEPT => others.open.clear(),
            others => *others = None,
        }
    }
}

impl Others {
    /// False where there is no room.
    fn add(&mut self, open: Open) -> bool {
        let room = self.open.len() < MOST_OPEN;
        if room {
            self.open.insert(self.open.partition_point(|other| other.place() < open.place()), open);
        }
        room
    }

    fn take(&mut self, row: RowId, minute: Minute) -> bool {
        let from = self.open.partition_point(|open| open.minute < minute);
        let mut here = self.open[from..].iter().take_while(|open| open.minute == minute);
        let at = here.position(|open| open.row == row);
        at.map(|at| self.open.remove(from + at)).is_some()
    }
}

/// The last row that a claim has looked at.
#[derive(Clone, Copy)]
pub struct Last {
    /// Where it stands.
    pub place: Place,
    /// Which it was, where it was an open one.
    pub open: Option<Open>,
}

/// The fronts of all classes.
#[derive(Default)]
pub struct Fronts {
    fronts: Vec<Front>,
    /// Numbers told so far.
    numbers: u64,
    /// Claims so far.
    claims: u64,
}

impl Fronts {
    /// The front of a class, where it has one.
    pub fn get(&self, class: ClassId) -> Option<&Front> {
        self.fronts.get(class as usize).filter(|front| front.rows > 0)
    }

    fn get_mut(&mut self, class: ClassId) -> Option<&mut Front> {
        self.fronts.get_mut(class as usize).filter(|front| front.rows > 0)
    }

    fn enter(&mut self, class: ClassId) -> &mut Front {
        let class = class as usize;
        if self.fronts.len() <= class {
            self.fronts.resize_with(class + 1, Front::default);
        }
        &mut self.fronts[class]
    }

    fn number(&mut self) -> Number {
        self.numbers += 1;
        Number::MIN.saturating_add(self.numbers)
    }

    /// A claim begins.
    pub fn begin_claim(&mut self) {
        self.claims += 1;
    }

    /// Whether a class's front can move on in this claim: not behind a row that stays where it is.
    pub fn moves(&self, class: ClassId) -> bool {
        let others = self.get(class).and_then(|front| front.others.as_ref());
        others.is_none_or(|others| others.stopped != self.claims)
    }

    /// The first row behind the front, or of the class where there is none, is leased: the front moves on behind it.
    pub fn pass(&mut self, class: ClassId, row: RowId, minute: Minute) -> Number {
        let number = self.number();
        self.enter(class).pass(row, minute, number);
        number
    }

    /// The first row behind the front is held: the front moves on behind it, or, where there is no room, stays before it for this claim; returns which.
    pub fn hold(&mut self, class: ClassId, row: RowId, minute: Minute) -> bool {
        let (number, claims) = (self.number(), self.claims);
        let front = self.enter(class);
        let room = front.others().add(Open { minute, row, number });
        if room {
            front.pass(row, minute, number);
        } else {
            front.others().stopped = claims;
        }
        room
    }

    /// An open row is leased now.
    pub fn close(&mut self, class: ClassId, row: Open) {
        if let Some(others) = self.get_mut(class).and_then(|front| front.others.as_mut())
            && let Ok(at) = others.open.binary_search_by_key(&row.place(), Open::place)
        {
            others.open.remove(at);
        }
    }

    /// A row that was told this number is leased no more, and is where it was.
    pub fn open(&mut self, class: ClassId, open: Open) {
        let Some(front) = self.get_mut(class).filter(|front| front.has(open.number)) else { return };
        if front.others().add(open) {
            front.settle();
        } else {
            front.clear();
        }
    }

    /// A row has come to this minute, behind the others there. Returns the number that it is told where it is leased, and before a front.
    pub fn came(
        &mut self,
        class: ClassId,
        row: RowId,
        minute: Minute,
        is_leased: impl FnOnce() -> bool,
    ) -> Option<Number> {
        let front = self.get(class)?;
        front.comes(minute);
        if minute >= front.minute {
            return None;
        }
        let number = self.number();
        let front = self.get_mut(class)?;
        let leased = is_leased();
        if leased || front.others().add(Open { minute, row, number }) {
            front.rows += 1;
        } else {
            front.clear();
        }
        leased.then_some(number)
    }

    /// A row is about to leave its minute; `number` is the one that its lease entry has, if any.
    pub fn leave(&mut self, table: &Table, class: ClassId, row: RowId, minute: Minute, number: Option<Number>) {
        let Some(front) = self.get_mut(class) else { return };
        front.leaves(row, minute);
        if minute > front.minute {
            return;
        }
        let leased = number.is_some_and(|number| front.has(number));
        if !leased && front.others.as_mut().is_none_or(|others| !others.take(row, minute)) {
            return;
        }
        front.rows -= 1;
        if minute == front.minute {
            front.here -= 1;
            if row == front.last {
                front.last = table.previous(row);
            }
        }
        front.settle();
    }

    /// Takes all fronts away.
    pub fn clear(&mut self) {
        self.fronts.clear();
    }

    /// Bytes allocated.
    pub fn bytes(&self) -> usize {
        let others = self.fronts.iter().filter_map(|front| front.others.as_ref());
        self.fronts.capacity() * size_of::<Front>()
            + others.map(|others| size_of::<Others>() + others.open.capacity() * size_of::<Open>()).sum::<usize>()
    }

    /// Panics where a front does not know the rows before it as they are. For tests.
    pub fn validate(&self, table: &Table, classes: &Classes, leases: &Leases) {
        for (id, front) in self.fronts.iter().enumerate() {
            if front.rows == 0 {
                assert!(front.open().is_empty(), "front: open rows before none");
                continue;
            }
            let class = classes.get(id as ClassId);
            let mut open = front.open().iter();
            let (mut rows, mut here, mut last, mut before) = (0, 0, NONE, None);
            let mut minute = class.buckets.first_from(0);
            while let Some(at) = minute.filter(|at| *at <= front.minute) {
                let mut row = class.buckets.get(at).head;
                while row != NONE && (at < front.minute || here < front.here) {
                    let number = if leases.peek(row) == Verdict::Leased {
                        leases.number(row).filter(|number| front.has(*number))
                    } else {
                        open.next().filter(|open| (open.minute, open.row) == (at, row)).map(|open| open.number)
                    };
                    let place = number.map(|number| (at, number));
                    assert!(place > before, "front: a row before it is not known, or not in its place");
                    (rows, before) = (rows + 1, place);
                    if at == front.minute {
                        (here, last) = (here + 1, row);
                    }
                    row = table.next(row);
                }
                minute = at.checked_add(1).and_then(|from| class.buckets.first_from(from));
            }
            assert_eq!((rows, here, last), (front.rows, front.here, front.last), "front: where it is");
            let known = front.behind.get();
            let first = |behind: Behind| match behind {
                Behind::Minute(minute) => class.buckets.get(minute).head,
                Behind::Row(row) => row,
                Behind::Nowhere | Behind::Unknown => NONE,
            };
            let is_right = known == Behind::Unknown || first(known) == first(front.look_behind(table, class));
            assert!(is_right, "front: what is behind it");
            assert!(open.next().is_none(), "front: an open row that is not before it");
            let told = leases.rows().filter(|row| table.class(*row) == id as ClassId);
            let told = told.filter(|row| leases.number(*row).is_some_and(|number| front.has(number)));
            assert_eq!(told.count() + front.open().len(), rows as usize, "front: a row behind it has a number");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::config::Config;
    use super::super::keeper::{Event, Judge, Keeper};
    use super::super::row::Row;
    use super::super::time::Now;
    use super::MOST_OPEN;

    const NOW: f64 = 6e9;
    const LATER: f64 = 7e9;

    fn at(mono: f64) -> Now {
        Now { wall: NOW + mono, mono }
    }

    /// Rows before all fronts: leased, and open.
    fn before(keeper: &Keeper) -> (usize, usize) {
        keeper.validate();
        keeper.fronts.fronts.iter().fold((0, 0), |(leased, open), front| {
            (leased + front.rows as usize - front.open().len(), open + front.open().len())
        })
    }

    fn put(keeper: &mut Keeper, key: &str, due: f64, from_sitemap: bool) {
        let row = Row { from_sitemap, ..Row::due_at(due) };
        keeper.apply(key.as_bytes(), Event::Put(row, Judge::Rules), f64::NAN);
    }

    fn url(i: u32) -> String {
        format!("https://a.com/{i}")
    }

    fn granted(keeper: &mut Keeper, n: usize) -> Vec<String> {
        let claim = keeper.claim(n);
        claim.jobs.iter().map(|(key, _)| String::from_utf8_lossy(key).into_owned()).collect()
    }

    #[test]
    fn what_is_in_flight_is_before_the_fronts_until_its_result_comes() {
        let mut keeper = Keeper::new(Config::default(), at(0.0));
        for i in 0..60 {
            put(&mut keeper, &url(i), NOW - f64::from(i % 5) * 60_000.0, i % 3 == 0);
        }
        let first = keeper.claim(25);
        assert_eq!((first.tokens.len(), first.skipped_leased, before(&keeper)), (25, 0, (25, 0)));
        let second = keeper.claim(10);
        assert_eq!((second.skipped_leased, before(&keeper)), (25, (35, 0)));
        assert_eq!((keeper.top(5).skipped_leased, keeper.top(0).skipped_leased), (35, 0));
        // What stands before the last row looked at is counted, and no more of what is in flight.
        put(&mut keeper, "https://a.com/urgent", NOW - 6e7, true);
        assert_eq!(before(&keeper), (35, 1));
        assert_eq!((keeper.top(1).skipped_leased, keeper.top(2).skipped_leased), (0, 35));
        put(&mut keeper, "https://a.com/urgent", LATER, true);

        let keys: Vec<Vec<u8>> = first.jobs.iter().map(|(key, _)| key.to_vec()).collect();
        for (key, token) in keys.iter().zip(&first.tokens) {
            let skipped = keeper.claim(1).skipped_leased;
            keeper.apply(key, Event::Put(Row::due_at(LATER), Judge::Rules), f64::NAN);
            keeper.release(key, Some(*token));
            assert_eq!(keeper.top(1).skipped_leased, skipped, "one granted, one done");
            before(&keeper);
        }
        // A clock that is put back: what is in flight is not due.
        keeper.advance(Now { wall: NOW - 120_000.0, mono: 1.0 });
        assert_eq!(before(&keeper), (0, 0));
        keeper.claim(3);
        before(&keeper);
    }

    #[test]
    fn rows_whose_lease_has_ended_are_granted_first_and_in_their_order() {
        let mut keeper = Keeper::new(Config::default(), at(0.0));
        for i in 0..12 {
            put(&mut keeper, &url(i), NOW - f64::from(i / 6) * 60_000.0, false);
        }
        let first = keeper.claim(4);
        assert_eq!(granted(&mut keeper, 4), [10, 11, 0, 1].map(url));
        // Two of the first four come back, in another order than theirs.
        let lease = keeper.config().leases.lease_ms;
        for i in [1, 3] {
            keeper.extend(first.tokens[i], Some(lease * 3.0));
        }
        keeper.extend(first.tokens[0], Some(lease * 1.5));
        keeper.advance(at(lease));
        // The second four and one of the first.
        assert_eq!(before(&keeper), (3, 5));
        keeper.advance(at(lease * 1.5));
        assert_eq!(before(&keeper), (2, 6));
        assert_eq!(keeper.top(1).skipped_leased, 0);
        assert_eq!(keeper.top(2).skipped_leased, 1);
        let claim = keeper.claim(2);
        assert_eq!(claim.skipped_leased, 1);
        let keys: Vec<_> = claim.jobs.iter().map(|(key, _)| key.to_vec()).collect();
        assert_eq!(keys, [6, 8].map(|i| url(i).into_bytes()));
        assert_eq!((before(&keeper), keeper.top(1).skipped_leased), ((4, 4), 4));
        // One that is open is rescheduled, another goes.
        put(&mut keeper, &url(10), LATER, false);
        keeper.apply(url(0).as_bytes(), Event::Gone, f64::NAN);
        assert_eq!(before(&keeper), (4, 2));
        assert_eq!(granted(&mut keeper, 9), [11, 1, 2, 3, 4, 5].map(url));
    }

    #[test]
    fn what_is_due_earlier_than_a_front_is_granted_in_its_place() {
        let mut keeper = Keeper::new(Config::default(), at(0.0));
        for i in 0..6 {
            put(&mut keeper, &url(i), NOW - f64::from(i % 3) * 60_000.0, false);
        }
        assert_eq!(granted(&mut keeper, 5), [2, 5, 1, 4, 0].map(url));
        put(&mut keeper, &url(6), NOW - 60_000.0, false);
        put(&mut keeper, &url(7), NOW - 120_000.0, false);
        // One in flight is due earlier than it was, and stays in flight.
        put(&mut keeper, &url(4), NOW - 120_000.0, false);
        assert_eq!(before(&keeper), (5, 2));
        assert_eq!(granted(&mut keeper, 9), [7, 6, 3].map(url));
        assert_eq!((before(&keeper), keeper.top(1).skipped_leased), ((8, 0), 8));
    }

    #[test]
    fn what_comes_and_goes_behind_a_front_is_seen_at_once() {
        let mut keeper = Keeper::new(Config::default(), at(0.0));
        let minutes_ago = |minutes: f64| NOW - minutes * 60_000.0;
        put(&mut keeper, &url(0), minutes_ago(5.0), false);
        assert_eq!(granted(&mut keeper, 1), [url(0)]);
        let first = |keeper: &Keeper| {
            before(keeper);
            keeper.top(1).rows.iter().next().map(|(key, _)| String::from_utf8_lossy(key).into_owned())
        };
        assert_eq!(first(&keeper), None);
        let steps = [(2, 1.0, 2), (1, 3.0, 1), (3, 4.0, 3), (4, 5.0, 4)];
        let steps = steps.map(|(i, minutes, best)| (i, minutes_ago(minutes), best));
        for (i, due, best) in steps.into_iter().chain([(4, LATER, 3), (3, LATER, 1), (1, LATER, 2)]) {
            put(&mut keeper, &url(i), due, false);
            assert_eq!(first(&keeper), Some(url(best)), "after {i} at {due}");
        }
        keeper.apply(url(2).as_bytes(), Event::Gone, f64::NAN);
        assert_eq!(first(&keeper), None);
        put(&mut keeper, &url(5), minutes_ago(1.0), false);
        assert_eq!(first(&keeper), Some(url(5)));
    }

    #[test]
    fn a_key_without_a_row_that_is_in_flight_is_so_when_its_row_is_back() {
        let mut keeper = Keeper::new(Config::default(), at(0.0));
        for i in 0..6 {
            put(&mut keeper, &url(i), NOW - f64::from(i % 2) * 60_000.0, false);
        }
        assert_eq!(granted(&mut keeper, 4), [1, 3, 5, 0].map(url));
        keeper.apply(url(3).as_bytes(), Event::Gone, f64::NAN);
        assert_eq!(before(&keeper), (3, 0));
        put(&mut keeper, &url(3), NOW - 60_000.0, false);
        assert_eq!(before(&keeper), (4, 0));
        assert_eq!(granted(&mut keeper, 9), [2, 4].map(url));
    }

    #[test]
    fn held_rows_do_not_stop_a_front_but_where_they_are_too_many() {
        let mut keeper = Keeper::new(Config::default(), at(0.0));
        let rows = MOST_OPEN as u32 * 3 / 2;
        for i in 0..rows {
            put(&mut keeper, &url(i), NOW - 60_000.0, false);
        }
        let settings = keeper.config().leases;
        let mut mono = 0.0;
        for _ in 0..=settings.miss_limit {
            assert_eq!(keeper.claim(10).tokens.len(), 10);
            mono += settings.lease_ms;
            keeper.advance(at(mono));
        }
        let claim = keeper.claim(20);
        assert_eq!((claim.held.len(), claim.tokens.len(), before(&keeper)), (10, 20, (20, 10)));
        let claim = keeper.claim(20);
        assert_eq!((claim.held.len(), claim.skipped_leased, before(&keeper)), (10, 20, (40, 10)));

        for _ in 0..=settings.miss_limit {
            mono += settings.lease_ms * 2.0;
            keeper.advance(at(mono));
            keeper.claim(rows as usize - 10);
        }
        mono += settings.lease_ms;
        keeper.advance(at(mono));
        let claim = keeper.claim(rows as usize);
        let held = keeper.leases.held() as usize;
        assert!(held > MOST_OPEN && claim.tokens.len() + held == rows as usize, "{held} held");
        assert_eq!(before(&keeper).1, MOST_OPEN);
        let again = keeper.claim(rows as usize);
        assert_eq!((again.tokens.len(), again.skipped_leased), (0, claim.tokens.len() as u64));
        before(&keeper);
    }

    #[test]
    fn where_too_many_leases_end_at_once_the_front_is_begun_anew() {
        let mut keeper = Keeper::new(Config::default(), at(0.0));
        let rows = MOST_OPEN * 3;
        for i in 0..rows as u32 {
            put(&mut keeper, &url(i), NOW, false);
        }
        assert_eq!(keeper.claim(MOST_OPEN * 2).tokens.len(), MOST_OPEN * 2);
        let lease = keeper.config().leases.lease_ms;
        keeper.advance(at(lease / 2.0));
        assert_eq!(keeper.claim(100).skipped_leased, MOST_OPEN as u64 * 2);
        assert_eq!(before(&keeper), (MOST_OPEN * 2 + 100, 0));
        keeper.advance(at(lease));
        assert_eq!(before(&keeper), (0, 0));
        let all = keeper.claim(rows);
        assert_eq!((all.tokens.len(), all.skipped_leased, before(&keeper)), (rows - 100, 100, (rows, 0)));
    }
}
