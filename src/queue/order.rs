//! Which page is next: the score, and the merge over class heads.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::ops::Range;

use smallvec::SmallVec;

use super::class::{Class, ClassId, ClassKey, Classes};
use super::table::{NONE, RowId, Table};
use super::time::{Minute, start_of};

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

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Head {
    place: Place,
    class: ClassId,
}

/// Buckets whose rows are followed side by side.
const ABREAST: usize = 32;

/// The due rows, best first. Costs one look at each class that has anything due, then a few steps a minute bucket;
/// a row costs following one link.
pub struct Merge<'a> {
    table: &'a Table,
    classes: &'a Classes,
    priority: &'a Priority,
    now: f64,
    minute: Minute,
    heads: BinaryHeap<Head>,
    /// The bucket under way, the next of its rows, and how many there are.
    rest: Option<(Head, RowId, usize)>,
}

impl<'a> Merge<'a> {
    /// The rows due in `minute` or before, at `now` ms.
    pub fn new(table: &'a Table, classes: &'a Classes, priority: &'a Priority, now: f64, minute: Minute) -> Self {
        let heads: Vec<Head> = classes
            .due_by(minute)
            .map(|(id, first)| Head { place: place_of(classes.get(id), priority, first, now), class: id })
            .collect();
        Merge { table, classes, priority, now, minute, heads: heads.into(), rest: None }
    }

    /// The next bucket, its first row, and how many there are. The next one of its class takes its place.
    fn bucket(&mut self) -> Option<(Head, RowId, usize)> {
        let mut top = self.heads.peek_mut()?;
        let (place, class) = (top.place, top.class);
        let buckets = &self.classes.get(class).buckets;
        let bucket = buckets.get(place.minute);
        let next = place.minute.checked_add(1).and_then(|from| buckets.first_from(from));
        match next.filter(|next| *next <= self.minute) {
            Some(next) => top.place = place_of(self.classes.get(class), self.priority, next, self.now),
            None => drop(PeekMut::pop(top)),
        }
        Some((Head { place, class }, bucket.head, bucket.rows as usize))
    }

    /// The next rows, `most` of them at most; none at the end. For whoever wants many: several buckets are followed side by side, as where
    /// a row is has to be read from the one before it in its bucket, and so the waits for memory of all of them overlap.
    pub fn list(&mut self, most: usize) -> Vec<(RowId, Place)> {
        let mut listed = Vec::with_capacity(most);
        // Of each bucket the next row, and the places in the list where its rows go.
        let mut chains: SmallVec<[(RowId, Range<usize>); ABREAST]> = SmallVec::new();
        let mut cut = None;
        while listed.len() < most && chains.len() < ABREAST {
            let Some((head, row, rows)) = self.rest.take().or_else(|| self.bucket()) else { break };
            let from = listed.len();
            let to = most.min(from + rows);
            listed.resize(to, (NONE, head.place));
            chains.push((row, from..to));
            if to - from < rows {
                cut = Some((head, rows - (to - from)));
            }
        }
        let mut read = 0;
        let mut more = true;
        while more {
            more = false;
            for (row, places) in &mut chains {
                if let Some(place) = places.next() {
                    read ^= self.table.warm_record(*row);
                    listed[place].0 = *row;
                    *row = self.table.next(*row);
                    more = true;
                }
            }
        }
        std::hint::black_box(read);
        // It was the last: nothing comes between its rows.
        self.rest = cut.zip(chains.last()).map(|((head, rows), (row, _))| (head, *row, rows));
        listed
    }
}

/// Where the rows of a class that are due in `minute` stand at `now` ms.
pub fn place_of(class: &Class, priority: &Priority, minute: Minute, now: f64) -> Place {
    Place { score: priority.scale(&class.key).score(minute, now), minute, age: class.age }
}

impl Iterator for Merge<'_> {
    type Item = (RowId, Place);

    fn next(&mut self) -> Option<Self::Item> {
        let (head, row, rows) = self.rest.take().or_else(|| self.bucket())?;
        let place = head.place;
        if rows > 1 {
            self.rest = Some((head, self.table.next(row), rows - 1));
        }
        Some((row, place))
    }
}

/// How many due rows stand before one in `place`, rows of its own class and minute left out. No row is looked at: in
/// each class, what stands before is everything up to some minute, found by bisection.
pub fn rows_before(classes: &Classes, priority: &Priority, now: f64, minute: Minute, place: Place) -> u64 {
    let mut before = 0;
    for (id, first) in classes.due_by(minute) {
        let class = classes.get(id);
        let (mut low, mut high) = (u64::from(first), u64::from(minute) + 1);
        while low < high {
            let middle = ((low + high) / 2) as Minute;
            if place_of(class, priority, middle, now) > place {
                low = u64::from(middle) + 1;
            } else {
                high = u64::from(middle);
            }
        }
        if low > u64::from(first) {
            before += class.buckets.rows_to((low - 1) as Minute);
        }
    }
    before
}
