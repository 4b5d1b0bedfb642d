//! Which page is next: the score, and the merge over class heads.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::ops::Range;

use super::class::{Class, ClassId, ClassKey, Classes};
use super::follow::{ABREAST, Chain, follow};
use super::front::{Fronts, Last, Open};
use super::table::{NONE, RowId, Table};
use super::time::{MINUTE_MS, Minute, end_of_early, start_of};

/// How lateness turns into a score. All of it may change at any time without touching a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Priority {
    /// Factor for rows listed in a sitemap.
    pub sitemap_boost: f64,
    /// Added to changed rows, in cadences.
    pub changed_head_start: f64,
    /// Added to urgent rows, in cadences.
    pub urgent_head_start: f64,
    /// Measure changed rows against the time between bot visits, where it is known.
    pub changed_demand: bool,
}

impl Default for Priority {
    fn default() -> Self {
        Priority { sitemap_boost: 2.0, changed_head_start: 1.0, urgent_head_start: 0.5, changed_demand: true }
    }
}

/// A class's part of the score: everything but how late a row is.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    divisor: f64,
    boost: f64,
    head_start: f64,
}

impl Priority {
    /// The part of the score that all rows of a class share.
    pub fn scale(&self, key: &ClassKey) -> Scale {
        let by_demand = key.changed && self.changed_demand && !key.demand.is_nan();
        let head_start = match (key.changed, key.urgent) {
            (true, _) => self.changed_head_start,
            (false, true) => self.urgent_head_start,
            _ => 0.0,
        };
        let counts = head_start.is_finite() && head_start > 0.0;
        Scale {
            divisor: if by_demand { key.demand } else { key.cadence },
            boost: if key.from_sitemap { self.sitemap_boost } else { 1.0 },
            head_start: if counts { head_start * self.sitemap_boost.max(1.0) } else { 0.0 },
        }
    }
}

impl Scale {
    /// The score, at `now` ms, of a row due in `minute` (SPEC.md section 4).
    pub fn score(&self, minute: Minute, now: f64) -> f64 {
        let late = (now - start_of(minute)).max(0.0);
        let score = if self.divisor > 0.0 { late / self.divisor } else { late };
        // Infinitely late (a cadence next to nothing) and of no weight is of no weight: NaN has no place in an order.
        let score = if self.boost == 0.0 { 0.0 } else { score * self.boost };
        score + self.head_start
    }

    /// About the minute in which a row is due that has this score at `now` ms: no more than a guess, and no number where there is none.
    fn minute_of(&self, score: f64, now: f64) -> f64 {
        let late = (score - self.head_start) / self.boost;
        (now - if self.divisor > 0.0 { late * self.divisor } else { late }) / MINUTE_MS
    }
}

/// Where a row stands: better is greater. Rows of one class and minute are equal, first in first out.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// See [`Scale::score`].
    pub score: f64,
    /// The due minute.
    pub minute: Minute,
    /// The class's age.
    pub age: u64,
}

impl Ord for Place {
    fn cmp(&self, other: &Self) -> Ordering {
        self.score
            .total_cmp(&other.score)
            .then_with(|| other.minute.cmp(&self.minute))
            .then_with(|| other.age.cmp(&self.age))
    }
}

impl PartialOrd for Place {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Place {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Place {}

/// Classes that have anything due: room made beforehand for this many is seldom grown.
const USUAL_CLASSES: usize = 64;

/// Buckets listed at once: likewise.
const USUAL_GROUPS: usize = 64;

/// Where the next rows of a class stand.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Head {
    place: Place,
    class: ClassId,
}

/// A class that has a front.
struct Fronted {
    class: ClassId,
    /// The last of the open rows before it that was listed, and the last there was: a claim that goes on takes listed ones out, and
    /// puts others behind all of them.
    listed: Option<Open>,
    last: Option<Open>,
    /// Where the rows behind it begin, if they are due: the minute, and the row and how many of its minute are before the front where it
    /// is within one.
    behind: Option<(Minute, RowId, u32)>,
}

impl Fronted {
    /// The next open row before the front, and the minute of the row behind it.
    fn next_open(&mut self, fronts: &Fronts) -> Option<(Open, Option<Minute>)> {
        let last = self.last?.place();
        let mut left = fronts.get(self.class)?.open_after(self.listed).take_while(|open| open.place() <= last);
        let next = left.next()?;
        self.listed = Some(next);
        Some((next, left.next().map(|open| open.minute).or(self.behind.map(|behind| behind.0))))
    }
}

/// Where rows are as to the front of their class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// There was none.
    NoFront,
    /// This open row, before it.
    Before(Open),
    /// Behind it.
    Behind,
}

/// The bucket under way: where its rows stand, the next of them, and how many there are.
struct Rest {
    place: Place,
    class: ClassId,
    side: Side,
    row: RowId,
    rows: usize,
}

/// Rows of one bucket that were listed.
pub struct Group {
    /// Where they stand.
    pub place: Place,
    /// Their class.
    pub class: ClassId,
    /// Where they are as to the front that there was when the merge began.
    pub side: Side,
    first: RowId,
    rows: usize,
}

impl Group {
    /// As what was looked at last.
    pub fn last(&self) -> Last {
        let open = if let Side::Before(open) = self.side { Some(open) } else { None };
        Last { place: self.place, open }
    }
}

/// Due rows, best first.
#[derive(Default)]
pub struct Listed {
    rows: Vec<RowId>,
    groups: Vec<Group>,
}

impl Listed {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The rows, those of one bucket together.
    pub fn groups(&self) -> impl Iterator<Item = (&Group, &[RowId])> {
        let mut rest = &self.rows[..];
        self.groups.iter().filter_map(move |group| Some((group, rest.split_off(..group.rows)?)))
    }
}

/// The due rows, best first. Costs one look at each class that has anything due, then a few steps a minute bucket;
/// a row costs following one link.
pub struct Merge<'a> {
    table: &'a Table,
    classes: &'a Classes,
    priority: &'a Priority,
    now: f64,
    minute: Minute,
    heads: BinaryHeap<Head>,
    rest: Option<Rest>,
    /// Classes that have a front, by their numbers.
    fronted: Vec<Fronted>,
}

impl<'a> Merge<'a> {
    /// The rows due in `minute` or before, at `now` ms, but for those that are leased and before the fronts of their classes.
    pub fn new(
        table: &'a Table,
        classes: &'a Classes,
        fronts: &Fronts,
        priority: &'a Priority,
        now: f64,
        minute: Minute,
    ) -> Self {
        let mut heads = Vec::with_capacity(classes.len().min(USUAL_CLASSES));
        let mut fronted = Vec::new();
        for (id, mut first) in classes.due_by(minute) {
            let class = classes.get(id);
            if let Some(front) = fronts.get(id) {
                let behind = front.behind(table, class).filter(|next| next.0 <= minute);
                fronted.push(Fronted { class: id, listed: None, last: front.open().last().copied(), behind });
                let next = front.open().first().map(|open| open.minute).or(behind.map(|behind| behind.0));
                match next {
                    Some(minute) => first = minute,
                    None => continue,
                }
            }
            heads.push(Head { place: Line::of(class, priority, now).place(first), class: id });
        }
        let heads = BinaryHeap::from(heads);
        // Read ahead, so that the waits overlap: the best are among the first of a heap.
        let first = heads.iter().take(ABREAST).map(|head| classes.get(head.class).buckets.get(head.place.minute).head);
        std::hint::black_box(first.fold(0, |read, row| read ^ row));
        Merge { table, classes, priority, now, minute, heads, rest: None, fronted }
    }

    /// The next bucket. The next one of its class takes its place.
    fn bucket(&mut self, fronts: &Fronts) -> Option<Rest> {
        let mut top = self.heads.peek_mut()?;
        let Head { place, class } = *top;
        let at = self.fronted.binary_search_by_key(&class, |fronted| fronted.class);
        let mut fronted = at.ok().map(|at| &mut self.fronted[at]);
        let side = if fronted.is_some() { Side::Behind } else { Side::NoFront };
        let (rest, next) = match fronted.as_mut().and_then(|fronted| fronted.next_open(fronts)) {
            Some((open, next)) => (Rest { place, class, side: Side::Before(open), row: open.row, rows: 1 }, next),
            None => {
                let buckets = &self.classes.get(class).buckets;
                let bucket = buckets.get(place.minute);
                let within = fronted.and_then(|fronted| fronted.behind.take()).filter(|behind| behind.1 != NONE);
                let (row, before) = within.map_or((bucket.head, 0), |(_, row, before)| (row, before));
                let next = place.minute.checked_add(1).and_then(|from| buckets.first_from(from));
                let rest = Rest { place, class, side, row, rows: (bucket.rows - before) as usize };
                (rest, next.filter(|next| *next <= self.minute))
            }
        };
        match next {
            // Where it was: the heap need not be put in order.
            Some(next) if next == place.minute => {}
            Some(next) => top.place = Line::of(self.classes.get(class), self.priority, self.now).place(next),
            None => drop(PeekMut::pop(top)),
        }
        Some(rest)
    }

    /// Leased rows before the fronts that there were, up to the last row looked at; all of them where all rows were.
    pub fn leased_before(&self, fronts: &Fronts, last: Option<Last>) -> u64 {
        let fronts = self.fronted.iter().filter_map(|fronted| Some((fronted.class, fronts.get(fronted.class)?)));
        let leased = fronts.map(|(id, front)| {
            let class = self.classes.get(id);
            front.leased_before(class, last, &Line::of(class, self.priority, self.now), self.table)
        });
        leased.sum()
    }

    /// Lists the next rows, `most` of them at most; none at the end.
    pub fn list(&mut self, fronts: &Fronts, most: usize, listed: &mut Listed) {
        let Listed { rows, groups } = listed;
        rows.clear();
        groups.clear();
        groups.reserve(most.min(USUAL_GROUPS));
        let mut wanted = most;
        while wanted > 0
            && let Some(mut bucket) = self.rest.take().or_else(|| self.bucket(fronts))
        {
            let some = wanted.min(bucket.rows);
            let Rest { place, class, side, row: first, .. } = bucket;
            groups.push(Group { place, class, side, first, rows: some });
            wanted -= some;
            bucket.rows -= some;
            if bucket.rows > 0 {
                self.rest = Some(bucket);
            }
        }
        rows.resize(most - wanted, NONE);
        let mut places = &mut rows[..];
        let chains = groups.iter().filter_map(|group| {
            let places = places.split_off_mut(..group.rows)?;
            Some(Chain { row: group.first, most: group.rows, to: places.iter_mut() })
        });
        follow(self.table, chains, |places, row| {
            if let Some(place) = places.next() {
                *place = row;
            }
        });
        if let (Some(rest), Some(last)) = (&mut self.rest, rows.last()) {
            rest.row = self.table.next(*last);
        }
    }
}

/// Where the rows of one class stand at one moment.
pub struct Line {
    scale: Scale,
    age: u64,
    now: f64,
}

impl Line {
    /// Of `class`, at `now` ms.
    pub fn of(class: &Class, priority: &Priority, now: f64) -> Line {
        Line { scale: priority.scale(&class.key), age: class.age, now }
    }

    /// Where those stand that are due in `minute`.
    pub fn place(&self, minute: Minute) -> Place {
        Place { score: self.scale.score(minute, self.now), minute, age: self.age }
    }

    /// The end of those of `minutes` whose rows stand before `place`, or where `counts` says so of how they compare: the earlier ones.
    pub fn before(&self, place: Place, minutes: Range<u64>, counts: impl Fn(Ordering) -> bool) -> u64 {
        let guess = self.scale.minute_of(place.score, self.now);
        end_of_early(minutes, guess, |minute| counts(self.place(minute).cmp(&place)))
    }
}

/// How many due rows stand before one in `place`, rows of its own class and minute left out. No row is looked at: in
/// each class, what stands before is everything up to some minute.
pub fn rows_before(classes: &Classes, priority: &Priority, now: f64, minute: Minute, place: Place) -> u64 {
    let before = classes.due_by(minute).map(|(id, first)| {
        let class = classes.get(id);
        let minutes = u64::from(first)..u64::from(minute) + 1;
        let end = Line::of(class, priority, now).before(place, minutes, Ordering::is_gt);
        class.buckets.rows_before(end)
    });
    before.sum()
}
