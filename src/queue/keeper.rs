//! The queue: the one struct that owns the parts and keeps them in step.
//!
//! Everything that changes which rows are kept, and where, goes through `Keeper::change`. Time enters through
//! [`Keeper::advance`]; nothing here reads a clock.

use std::collections::HashSet;
use std::sync::Arc;

use smallvec::SmallVec;

use super::class::{ClassId, ClassKey, Classes, RouteId, UNROUTED};
use super::codec::Codec;
use super::config::{Config, Patch};
use super::counts::MinuteCounts;
use super::flow::Flow;
use super::front::{Fronts, Open};
use super::key::KeyHasher;
use super::late::Unheard;
use super::lease::{Leases, Verdict};
use super::owner::Ring;
use super::pulse::Pulse;
use super::route::{Devices, InvalidRule, Routes};
use super::row::{Row, given};
use super::rules::Rules;
use super::snapshot::ImageHead;
use super::table::{Mark, NONE, NewKey, RowId, Table};
use super::time::{Minute, Now, due_minute};
use super::trust::{Phase, Status, Trust};
use super::version::RecentVersions;
use super::walk::Walk;
use super::watch::{Touch, Watch};

/// Rows whose memory is read ahead at once: more would drive one another out of the cache.
pub const WARMED: usize = 64;
/// Characters of an error that the state tells.
const LONGEST_ERROR: usize = 500;

/// What a host's own classifier said of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Classified {
    /// From [`Keeper::hold_route`].
    pub route: RouteId,
    /// ms.
    pub cadence: f64,
    /// The cadence came with the row.
    pub carried: bool,
}

/// Who says whether a row is kept, and in which class.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Judge {
    /// The keeper's own rules.
    Rules,
    /// The host's classifier; `None` where it said not to keep the row.
    Host(Option<Classified>),
}

/// What an event says of a key.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// There is a row, and this is it.
    Put(Row, Judge),
    /// There is no row.
    Gone,
    /// The row has changed, but not to what.
    Changed,
    /// Nothing.
    Other,
}

/// What became of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was about a row of this node, and was taken.
    Applied,
    /// It said nothing of a row of this node, or an event of a later version had come.
    Ignored,
}

/// What a change did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Changed {
    Nothing,
    Added(RowId),
    Moved,
    Removed,
}

impl Changed {
    /// The row that is kept now, where `found` was before.
    pub(super) fn row(self, found: Option<RowId>) -> Option<RowId> {
        match self {
            Changed::Added(row) => Some(row),
            Changed::Removed => None,
            Changed::Moved | Changed::Nothing => found,
        }
    }
}

/// Who has read a key from the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reader {
    /// Whoever leased it.
    Lease,
    /// A walk, or whoever was to repair it.
    Feeder,
}

/// Whether a change is one that flows, or puts right what is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Event,
    Repair,
}

/// What a change of the configuration did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reclassified {
    /// Rows that are in another class now.
    pub moved: u64,
    /// Rows dropped since another node owns them.
    pub dropped: u64,
}

/// The classes still to be gone through after a change of the configuration, and the row to go on with.
struct Reclassify {
    classes: std::vec::IntoIter<(ClassId, u64)>,
    class: Option<(ClassId, u64)>,
    minute: Minute,
    row: RowId,
    done: Reclassified,
}

/// The render queue of one node.
pub struct Keeper {
    pub(super) config: Config,
    pub(super) rules: Arc<Rules>,
    /// Rings since the last whole walk: a row that any of them gave to another node was not missed but gained.
    pub(super) former_rings: Vec<Ring>,
    pub(super) rule_routes: Vec<RouteId>,
    pub(super) invalid_rules: Vec<InvalidRule>,

    pub(super) table: Table,
    pub(super) classes: Classes,
    pub(super) counts: MinuteCounts,
    pub(super) due: u64,
    pub(super) flow: Flow,
    pub(super) leases: Leases,
    pub(super) fronts: Fronts,
    pub(super) versions: RecentVersions,
    pub(super) watch: Watch,
    pub(super) unheard: Unheard,
    pub(super) walk: Option<Walk>,
    pub(super) walks: u64,
    /// The walk that the last verification's report is of.
    pub(super) last_verified: u64,
    /// Rows that no walk has read since the load, at most: as many may be found without a write having been missed.
    pub(super) unread: u64,
    /// The parity of the last walk's marks: see [`Mark`].
    pub(super) parity: bool,
    /// A walk that did not end has left rows of both parities: from this one on.
    pub(super) stale_marks: Option<RowId>,
    /// Rows dropped through changes of nodes since the last walk ended.
    pub(super) lost_since_walk: u64,
    pub(super) unverified: u64,
    reclassify: Option<Reclassify>,
    pub(super) image: Option<ImageHead>,

    pub(super) now: Now,
    pub(super) minute: Minute,
    /// The minute in which the queue was made: rates count from the next one on.
    pub(super) began: Minute,
    pub(super) version: u64,
    pub(super) paused: bool,
    pub(super) phase: Phase,
    pub(super) resyncing: bool,
    /// Everything of this node's that the table has is kept.
    pub(super) whole: bool,
    pub(super) epoch: u64,
    pub(super) epoch_at: Option<f64>,
    pub(super) pulse: Pulse,
    pub(super) trust: Trust,
}

impl Keeper {
    /// An empty queue. It is live until a feeder says otherwise.
    pub fn new(config: Config, now: Now) -> Keeper {
        let table = Table::default();
        let rules = Rules {
            hasher: table.hasher(),
            ring: Ring::new(&config.node, &config.nodes),
            routes: Routes::default(),
            devices: Devices::new(&config.delimiter, &config.device_types),
            classify: config.classify,
        };
        let ring = rules.ring.clone();
        let mut keeper = Keeper {
            rules: Arc::new(rules),
            former_rings: Vec::new(),
            rule_routes: Vec::new(),
            invalid_rules: Vec::new(),
            flow: Flow::new(config.flow_minutes),
            config,
            table,
            classes: Classes::default(),
            counts: MinuteCounts::default(),
            due: 0,
            leases: Leases::default(),
            fronts: Fronts::default(),
            versions: RecentVersions::default(),
            watch: Watch::default(),
            unheard: Unheard::default(),
            walk: None,
            walks: 0,
            last_verified: 0,
            unread: 0,
            parity: false,
            stale_marks: None,
            lost_since_walk: 0,
            unverified: 0,
            reclassify: None,
            image: None,
            now,
            minute: now.minute(),
            began: now.minute(),
            version: 0,
            paused: false,
            phase: Phase::Live,
            resyncing: false,
            whole: true,
            epoch: 0,
            epoch_at: None,
            pulse: Pulse::None,
            trust: Trust::default(),
        };
        keeper.versions.advance(now.mono);
        keeper.set_rules(ring);
        keeper
    }

    fn set_rules(&mut self, ring: Ring) {
        let (routes, invalid) = Routes::new(&self.config.routes, &self.config.exclude_path_patterns);
        let held = (0..routes.rules().len()).map(|rule| self.classes.hold_route(routes.name(rule))).collect();
        for route in std::mem::replace(&mut self.rule_routes, held) {
            self.classes.release_route(route);
        }
        let Rules { hasher, devices, classify, .. } = &*self.rules;
        let (hasher, devices) = (hasher.clone(), devices.clone());
        self.rules = Arc::new(Rules { hasher, ring, routes, devices, classify: *classify });
        self.invalid_rules = invalid;
    }

    /// The configuration in force.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Rows kept.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether no row is kept.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Classes that have rows.
    pub fn class_count(&self) -> usize {
        self.classes.len()
    }

    /// Grows with every change of what is kept.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Bytes of memory allocated, everything counted that grows.
    pub fn bytes(&self) -> usize {
        size_of::<Keeper>()
            + self.table.bytes()
            + self.classes.bytes()
            + self.counts.bytes()
            + self.flow.bytes()
            + self.leases.bytes()
            + self.fronts.bytes()
            + self.versions.bytes()
            + self.watch.bytes()
            + self.unheard.bytes()
            + self.walk.as_ref().map_or(0, Walk::bytes)
    }

    /// Brings the queue to `now`: rows come due, leases end.
    pub fn advance(&mut self, now: Now) {
        let minute = now.minute();
        if minute > self.minute {
            self.due += self.counts.between(self.minute + 1, minute);
            self.flow.turn(self.minute, minute);
            let seen = minute - self.minute;
            for back in (0..seen.min(self.flow.window())).rev() {
                let at = minute - back;
                let came = self.counts.between(at, at);
                if came > 0 {
                    self.flow.at(at).came_due += came;
                }
            }
        } else if minute < self.minute {
            // A clock that is put right makes the queue no older than it is.
            self.began = self.began.min(minute);
            self.due -= self.counts.between(minute + 1, self.minute);
            self.flow.turn(self.minute, minute);
            // They may be in minutes that are yet to come.
            self.fronts.clear();
        }
        self.minute = minute;
        self.now = Now { wall: now.wall, mono: now.mono.max(self.now.mono) };
        self.leases.advance(self.now.mono);
        self.take_off_notes();
        self.versions.advance(self.now.mono);
    }

    /// The time the queue was last brought to.
    pub fn now(&self) -> Now {
        self.now
    }

    /// When something may change by itself, on the wall clock: the next row coming due, or the end of a lease or hold.
    pub fn next_change(&self) -> Option<f64> {
        let due = self.minute.checked_add(1).and_then(|from| self.counts.first_from(from)).map(super::time::start_of);
        let end = self.leases.next_end().map(|end| self.now.wall + (end - self.now.mono).max(0.0));
        match (due, end) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Rows whose lease entry has gone lose their flag. Must follow every call that may drop an entry, before any row is removed.
    pub(super) fn take_off_notes(&mut self) {
        for (row, number) in self.leases.take_ended() {
            self.fronts.open(self.table.class(row), Open { minute: self.table.due(row), row, number });
        }
        if self.leases.any_dropped() {
            for row in self.leases.take_dropped() {
                self.table.set_noted(row, false);
            }
        }
    }

    /// The number of a route's name, for [`Classified`]; to be given back with [`Self::release_route`].
    pub fn hold_route(&mut self, name: &str) -> RouteId {
        self.classes.hold_route(name)
    }

    /// See [`Self::hold_route`].
    pub fn release_route(&mut self, route: RouteId) {
        self.classes.release_route(route);
    }

    /// What is said of keys now: to ask without the queue.
    pub fn rules(&self) -> Arc<Rules> {
        self.rules.clone()
    }

    pub(super) fn ring(&self) -> &Ring {
        &self.rules.ring
    }

    pub(super) fn url<'a>(&self, key: &'a [u8]) -> &'a [u8] {
        self.rules.url(key)
    }

    pub(super) fn owns(&self, key: &[u8]) -> bool {
        self.rules.owns(key)
    }

    /// The class and minute that a row of this node would have; `None` where it would not be kept. `known` is the row
    /// that is kept for the key: a key's route does not change while the rules do not.
    pub(super) fn judge(
        &self,
        key: &[u8],
        row: &Row,
        judge: Judge,
        known: Option<RowId>,
    ) -> Option<(ClassKey, Minute)> {
        self.judge_by(row, judge, known, || self.route_of(key))
    }

    /// [`Self::judge`], where it is known how to find which rule gives the key its route.
    #[inline(always)]
    pub(super) fn judge_by(
        &self,
        row: &Row,
        judge: Judge,
        known: Option<RowId>,
        rule: impl FnOnce() -> Option<usize>,
    ) -> Option<(ClassKey, Minute)> {
        let minute = due_minute(row.due)?;
        let said = match judge {
            Judge::Host(said) => said?,
            Judge::Rules => {
                // While rows are being reclassified, what a row's class says may be of the former rules.
                let known = known.filter(|_| self.reclassify.is_none());
                let known = known.map(|row| &self.classes.get(self.table.class(row)).key);
                let route = match known {
                    Some(class) => class.route,
                    None => rule().map_or(UNROUTED, |rule| self.rule_routes[rule]),
                };
                let carried = given(row.interval);
                let cadence = match known {
                    _ if carried => row.interval,
                    Some(class) if !class.carried => class.cadence,
                    _ => self.cadence_of(route),
                };
                Classified { route, cadence, carried }
            }
        };
        Some((Self::class_of(row, said), minute))
    }

    /// The class that a row has, where this is said of it.
    pub(super) fn class_of(row: &Row, Classified { route, cadence, carried }: Classified) -> ClassKey {
        let changed = given(row.changed_at);
        ClassKey {
            route,
            cadence,
            carried,
            from_sitemap: row.from_sitemap,
            changed,
            urgent: given(row.urgent_at) && !changed,
            demand: if changed && given(row.demand) { row.demand } else { f64::NAN },
        }
    }

    fn route_of(&self, key: &[u8]) -> Option<usize> {
        self.rules.route_of(key)
    }

    /// The cadence of rows that carry none.
    pub(super) fn cadence_of(&self, route: RouteId) -> f64 {
        let rule = self.rule_routes.iter().position(|other| *other == route);
        rule.and_then(|rule| self.rules.routes.render_interval(rule)).unwrap_or(self.config.default_interval)
    }

    /// The route of a key by the rules, and the cadence of its row if that carries none.
    pub(super) fn route_and_cadence(&self, key: &[u8]) -> (&str, f64) {
        let rule = self.route_of(key);
        let name = rule.map_or("unrouted", |rule| self.rules.routes.name(rule));
        (name, rule.and_then(|rule| self.rules.routes.render_interval(rule)).unwrap_or(self.config.default_interval))
    }

    fn count_in(&mut self, minute: Minute) {
        self.counts.add(minute);
        self.due += u64::from(minute <= self.minute);
    }

    fn count_out(&mut self, minute: Minute) {
        self.counts.remove(minute);
        self.due -= u64::from(minute <= self.minute);
    }

    /// Links a row into its class.
    fn link(&mut self, row: RowId, class: ClassId, minute: Minute) {
        let is_leased = || self.table.noted(row) && self.leases.peek(row) == Verdict::Leased;
        if let Some(number) = self.fronts.came(class, row, minute, is_leased) {
            self.leases.set_number(row, Some(number));
        }
        let entered = self.classes.get_mut(class);
        entered.rows += 1;
        entered.buckets.push(&mut self.table, row, minute);
    }

    /// Takes a row out of its class, which the caller refreshes.
    fn unlink(&mut self, row: RowId, class: ClassId, minute: Minute) {
        if let Some(reclassify) = &mut self.reclassify
            && reclassify.row == row
        {
            reclassify.row = self.table.next(row);
        }
        let number = if self.table.noted(row) { self.leases.set_number(row, None) } else { None };
        self.fronts.leave(&self.table, class, row, minute, number);
        let left = self.classes.get_mut(class);
        left.rows -= 1;
        left.buckets.unlink(&mut self.table, row, minute);
    }

    /// Makes what is kept for a key what it should be: the one place where a row changes.
    pub(super) fn change(
        &mut self,
        hash: u64,
        found: Option<RowId>,
        key: &[u8],
        target: Option<(ClassKey, Minute)>,
        kind: Kind,
    ) -> Changed {
        let flows = kind == Kind::Event;
        match (found, target) {
            (None, None) => Changed::Nothing,
            (None, Some(target)) => {
                let row = self.add(hash, NewKey::Plain(key), target);
                if flows {
                    let flow = self.flow.at(self.minute);
                    flow.added += 1;
                    flow.added_due += u64::from(target.1 <= self.minute);
                }
                Changed::Added(row)
            }
            (Some(row), None) => {
                let (class, minute) = (self.table.class(row), self.table.due(row));
                // What is known of the key beyond its row outlives it.
                if self.table.watched(row) {
                    self.watch.read_unkept(hash, self.now.mono);
                }
                self.unverified -= u64::from(self.table.unverified(row));
                if let Some(walk) = &mut self.walk {
                    match self.table.mark(row, self.parity) {
                        Mark::Unseen => walk.unseen_gone(),
                        Mark::Touched => walk.touch_unkept(hash),
                        Mark::Seen => {}
                    }
                }
                let (version, age) = self.table.version(row);
                if !version.is_nan() {
                    self.versions.keep(hash, version, age);
                }
                self.unlink(row, class, minute);
                if self.table.noted(row) {
                    self.leases.gone(row, key);
                }
                self.classes.refresh(class, minute);
                self.table.remove(hash, row);
                self.count_out(minute);
                if flows {
                    let flow = self.flow.at(self.minute);
                    flow.removed += 1;
                    flow.removed_due += u64::from(minute <= self.minute);
                }
                self.version += 1;
                Changed::Removed
            }
            (Some(row), Some((class_key, minute))) => {
                let (old_class, old_minute) = (self.table.class(row), self.table.due(row));
                let same_class = self.classes.get(old_class).key == class_key;
                if same_class && old_minute == minute {
                    return Changed::Nothing;
                }
                // Entered before the old one is left: a class that loses its last row to this one is younger.
                let class = if same_class { old_class } else { self.classes.enter(class_key) };
                self.unlink(row, old_class, old_minute);
                self.table.place(row, minute, class);
                self.link(row, class, minute);
                self.classes.refresh(old_class, old_minute);
                self.classes.refresh(class, minute);
                if minute != old_minute {
                    self.count_out(old_minute);
                    self.count_in(minute);
                    if self.table.noted(row) {
                        self.leases.moved(row, minute);
                        self.take_off_notes();
                    }
                }
                if flows {
                    match (old_minute <= self.minute, minute <= self.minute) {
                        (false, true) => self.flow.at(self.minute).triggered += 1,
                        (true, false) => self.flow.at(self.minute).rescheduled += 1,
                        _ => {}
                    }
                }
                self.version += 1;
                self.table.learn();
                Changed::Moved
            }
        }
    }

    /// Keeps a row for a key that has none.
    fn add(&mut self, hash: u64, key: NewKey<'_>, target: (ClassKey, Minute)) -> RowId {
        let (class_key, minute) = target;
        let class = self.classes.enter(class_key);
        let row = self.table.insert(hash, key, minute, class);
        if !self.versions.is_empty()
            && let Some((version, age)) = self.versions.get(hash)
        {
            self.table.set_version(row, version, age);
        }
        let unseen = self.walk.as_mut().is_some_and(Walk::row_added);
        self.table.set_mark(row, self.parity, if unseen { Mark::Unseen } else { Mark::Seen });
        if self.leases.any_orphans() {
            let noted = match key {
                NewKey::Plain(key) => self.leases.came(row, key, minute),
                NewKey::Coded(..) => self.leases.came(row, &self.table.key(row), minute),
            };
            if noted {
                self.table.set_noted(row, true);
            }
        }
        self.link(row, class, minute);
        self.classes.refresh(class, minute);
        self.count_in(minute);
        // Still being read: an event from here on must be noticed all the same.
        if self.watch.stop_unkept(hash) {
            self.table.set_watched(row, true);
        }
        self.version += 1;
        self.table.learn();
        row
    }

    /// Takes over how keys are compressed, learnt from a sample of those that are about to come. False where that has been done, or
    /// a snapshot has brought it.
    pub fn take_codec(&mut self, codec: Codec) -> bool {
        self.table.take_sampled(&Arc::new(codec))
    }

    /// Takes one event of the table's subscription. `version` is NaN where the event has none; what is not finite counts as none.
    pub fn apply(&mut self, key: &[u8], event: Event, version: f64) -> Outcome {
        let hash = self.table.hash(key);
        self.apply_hashed(hash, key, event, version)
    }

    /// How keys are hashed for [`Self::apply_hashed`], [`Self::walk_rows`] and [`Self::warm`]: a copy, to use without the queue.
    pub fn hasher(&self) -> KeyHasher {
        self.table.hasher()
    }

    /// [`Self::apply`], where the hash is known.
    pub fn apply_hashed(&mut self, hash: u64, key: &[u8], event: Event, version: f64) -> Outcome {
        self.trust.last_event_at = Some(self.now.wall);
        let version = if version.is_finite() { version } else { f64::NAN };
        let outcome = self.take(hash, key, event, version);
        match outcome {
            Outcome::Applied => self.trust.events_applied += 1,
            Outcome::Ignored => self.trust.events_ignored += 1,
        }
        outcome
    }

    fn take(&mut self, hash: u64, key: &[u8], event: Event, version: f64) -> Outcome {
        if matches!(event, Event::Other) {
            return Outcome::Ignored;
        }
        let found = self.table.find(hash, key);
        // A kept row is this node's, once what is not has been dropped after a change of nodes.
        if (found.is_none() || self.reclassify.is_some()) && !self.owns(key) {
            self.touch(hash, found, key, Touch::Event);
            let changed = self.change(hash, found, key, None, Kind::Repair);
            self.mark_touched(hash, found, changed);
            // Owned again, the key is not taken back to before this event.
            self.note_version(hash, None, version);
            self.count_lost(changed);
            return Outcome::Ignored;
        }
        if !self.unheard.is_empty() {
            self.hear(hash, matches!(event, Event::Gone), version);
        }
        let target = match event {
            Event::Changed => {
                self.trust.events_flagged += 1;
                self.touch(hash, found, key, Touch::Event);
                self.mark_touched(hash, found, Changed::Nothing);
                self.watch.flag(hash, key);
                return Outcome::Ignored;
            }
            Event::Put(row, judge) => Some((row, judge)),
            _ => None,
        };
        if self.known_version(hash, found).is_some_and(|known| known > version) {
            self.trust.events_outdated += 1;
            return Outcome::Ignored;
        }
        self.touch(hash, found, key, Touch::Event);
        if let Some(row) = found {
            // Not so by an event that does not say what the row is now.
            self.set_verified(row);
        }
        let target = target.and_then(|(row, judge)| self.judge(key, &row, judge, found));
        let changed = self.change(hash, found, key, target, Kind::Event);
        self.note_version(hash, changed.row(found), version);
        self.mark_touched(hash, found, changed);
        Outcome::Applied
    }

    /// The version remembered for a key.
    fn known_version(&self, hash: u64, row: Option<RowId>) -> Option<f64> {
        let (version, age) = match row {
            Some(row) => self.table.version(row),
            None => self.versions.get(hash)?,
        };
        (!version.is_nan() && self.versions.counts(age)).then_some(version)
    }

    /// Remembers the version of what is known of a key now, unless a newer one is remembered. What is not finite is no version.
    pub(super) fn note_version(&mut self, hash: u64, row: Option<RowId>, version: f64) {
        if !version.is_finite() {
            return;
        }
        let age = self.versions.age();
        match row {
            Some(row) if self.known_version(hash, Some(row)).is_none_or(|known| known <= version) => {
                self.table.set_version(row, version, age);
            }
            Some(_) => {}
            None => self.versions.keep(hash, version, age),
        }
    }

    /// Whatever was read of a key before may be old now.
    fn touch(&mut self, hash: u64, row: Option<RowId>, key: &[u8], by: Touch) {
        match row {
            Some(row) if self.table.noted(row) => self.leases.touch(row, key, by),
            None if self.leases.any_orphans() => self.leases.touch(NONE, key, by),
            _ => {}
        }
        self.touch_watched(hash, row, by);
    }

    /// [`Self::touch`], but for leases.
    fn touch_watched(&mut self, hash: u64, row: Option<RowId>, by: Touch) {
        match row {
            None => self.watch.touch_unkept(hash, by, self.now.mono),
            Some(row) if self.table.watched(row) => {
                self.table.set_watched(row, false);
                self.watch.touch_watched(hash, by, self.now.mono);
            }
            Some(_) => {}
        }
    }

    /// A read has put right what was kept: whoever else is reading the key may have read it before, or after.
    pub(super) fn overtake(&mut self, hash: u64, found: Option<RowId>, key: &[u8], changed: Changed, by: Reader) {
        let row = changed.row(found);
        match by {
            _ if changed == Changed::Nothing => {}
            Reader::Lease => self.touch_watched(hash, row, Touch::Read),
            Reader::Feeder => self.touch(hash, row, key, Touch::Read),
        }
    }

    /// A read does not count, since another has put something else in place meanwhile. If what it says is not what is kept, nobody
    /// can say which of the two is right: the key is read again.
    pub(super) fn doubt(&mut self, hash: u64, key: &[u8], found: Option<RowId>, target: Option<(ClassKey, Minute)>) {
        let kept = found.map(|row| (self.classes.get(self.table.class(row)).key, self.table.due(row)));
        if kept != target {
            self.watch.flag(hash, key);
        }
    }

    /// An event has come: a write that was found without it was not missed.
    fn hear(&mut self, hash: u64, gone: bool, version: f64) {
        if self.unheard.heard_of_read(hash, gone, version, self.now.mono) {
            self.trust.late_total += 1;
        }
        let Some((wrong, walk)) = self.unheard.heard(hash, gone, version, self.now.mono) else { return };
        self.trust.late_total += 1;
        match &mut self.walk {
            Some(under_way) if under_way.is(walk) => under_way.heard(wrong),
            _ => {
                self.trust.amend_verify(|report| report.heard(wrong));
            }
        }
    }

    pub(super) fn set_verified(&mut self, row: RowId) {
        if self.table.unverified(row) {
            self.table.set_unverified(row, false);
            self.unverified -= 1;
        }
    }

    /// Keeps a row that a snapshot had: nothing else is known of its key.
    pub(super) fn keep_unverified(&mut self, hash: u64, key: NewKey<'_>, target: (ClassKey, Minute)) {
        let row = self.add(hash, key, target);
        self.table.set_unverified(row, true);
        self.unverified += 1;
    }

    /// A walk under way must not overwrite what has just been said of a key.
    pub(super) fn mark_touched(&mut self, hash: u64, found: Option<RowId>, changed: Changed) {
        let Some(walk) = &mut self.walk else { return };
        match changed.row(found) {
            Some(row) => self.set_mark(row, Mark::Touched),
            None => walk.touch_unkept(hash),
        }
    }

    /// Marks a row for the walk under way.
    pub(super) fn set_mark(&mut self, row: RowId, mark: Mark) {
        if let Some(walk) = &mut self.walk {
            if self.table.mark(row, self.parity) == Mark::Unseen {
                walk.unseen_gone();
            }
            self.table.set_mark(row, self.parity, mark);
        }
    }

    /// Reads what putting these rows (hash of the key, due time) will read, so that the cache misses of all of them overlap instead of
    /// adding up. Changes nothing. Returns something of what was read, for the compiler to keep the reads.
    ///
    /// Each pass reads one thing of every row and decides next to nothing by it: a branch that waits for memory and is guessed wrong
    /// throws away the reads begun behind it.
    pub fn warm(&self, rows: impl Iterator<Item = (u64, f64)> + Clone) -> u32 {
        self.warm_found(rows).0
    }

    /// [`Self::warm`]; returns the rows that the hashes are likely to be of, too.
    #[inline(always)]
    pub(super) fn warm_found(
        &self,
        rows: impl Iterator<Item = (u64, f64)> + Clone,
    ) -> (u32, SmallVec<[RowId; WARMED]>) {
        let table = &self.table;
        let mut read = rows.clone().fold(0, |read, (hash, _)| read ^ table.warm_home(hash));
        let found: SmallVec<[RowId; WARMED]> = rows.clone().map(|(hash, _)| table.guess(hash)).collect();
        for row in &found {
            read ^= table.warm_record(*row);
        }
        for row in found.iter().filter(|row| **row != NONE) {
            read ^= table.warm_link(table.previous(*row)) ^ table.warm_link(table.next(*row));
        }
        // Most rows stay in their class: this is where each will be put, if it does.
        let tails: SmallVec<[RowId; WARMED]> = found
            .iter()
            .zip(rows)
            .filter(|(row, _)| **row != NONE)
            .map(|(row, (_, due))| {
                let buckets = &self.classes.get(table.class(*row)).buckets;
                read ^= buckets.get(table.due(*row)).rows;
                due_minute(due).map_or(NONE, |minute| buckets.get(minute).tail)
            })
            .collect();
        (tails.iter().fold(read, |read, tail| read ^ table.warm_link(*tail)), found)
    }

    /// An event or row that cannot be read, in words.
    pub fn malformed(&mut self, what: &str) {
        self.trust.malformed += 1;
        self.say(what);
    }

    /// Keeps what went wrong last, as much of it as an operator will read.
    fn say(&mut self, what: &str) {
        let mut said: String = what.chars().take(LONGEST_ERROR).collect();
        if said.len() < what.len() {
            said.push('…');
        }
        self.trust.last_error = Some(said);
    }

    /// What the fleet is told.
    pub fn status(&self) -> Status {
        match () {
            () if self.paused => Status::Paused,
            () if !self.serving() => Status::Unready,
            () if self.due > 0 => Status::Queued,
            () if self.whole => Status::Empty,
            () => Status::Unready,
        }
    }

    /// Whether claims are served in this phase.
    pub(super) fn serving(&self) -> bool {
        !matches!(self.phase, Phase::Starting | Phase::Stopped)
    }

    /// Rows due, rows kept, the first due minute and the first that is yet to come.
    pub fn due_summary(&self) -> (u64, usize, Option<Minute>, Option<Minute>) {
        let first = self.counts.first_from(0).filter(|first| *first <= self.minute);
        let coming = self.minute.checked_add(1).and_then(|from| self.counts.first_from(from));
        (self.due, self.table.len(), first, coming)
    }

    /// Changes the configuration. Rows are still in their old classes until [`Self::reclassify`] has returned its result.
    pub fn configure(&mut self, patch: Patch) {
        let mut config = self.config.clone();
        if let Some(node) = patch.node {
            config.node = node;
        }
        if let Some(nodes) = patch.nodes
            && (!nodes.is_empty() || config.nodes.is_empty())
        {
            config.nodes = nodes;
        }
        if let Some(routes) = patch.routes {
            config.routes = routes;
        }
        if let Some(patterns) = patch.exclude_path_patterns {
            config.exclude_path_patterns = patterns;
        }
        if let Some(interval) = patch.default_interval {
            config.default_interval = interval;
        }
        if let Some(priority) = patch.priority {
            config.priority = priority.over(config.priority);
        }
        if let Some(leases) = patch.leases {
            config.leases = leases.over(config.leases);
        }
        let old = std::mem::replace(&mut self.config, config);
        let ring = Ring::new(&self.config.node, &self.config.nodes);
        let ring_changed = ring != *self.ring();
        if ring_changed && self.epoch > 0 && self.ring().nodes().iter().any(|node| !ring.nodes().contains(node)) {
            // Rows of a node that has left are this node's now, some of them, and only a walk that begins from here on finds them.
            self.whole = false;
            if let Some(walk) = &mut self.walk {
                walk.gaining();
            }
        }
        if ring_changed {
            let former = self.ring().clone();
            // Peers that come and go while no walk ends must not pile up: a ring is remembered once, where it was left last.
            if let Some(at) = self.former_rings.iter().position(|ring| *ring == former) {
                self.former_rings.remove(at);
                if let Some(walk) = &mut self.walk {
                    walk.ring_moved(at);
                }
            }
            self.former_rings.push(former);
        }
        let rules_changed = old.routes != self.config.routes
            || old.exclude_path_patterns != self.config.exclude_path_patterns
            || old.default_interval != self.config.default_interval;
        if ring_changed || rules_changed {
            self.set_rules(ring);
        }
        if (ring_changed || rules_changed) && !self.config.classify {
            // Oldest class first, so that the order of what lands together is the same on every run.
            let mut classes: Vec<_> = self.classes.iter().map(|(id, class)| (id, class.age)).collect();
            classes.sort_unstable_by_key(|(_, age)| *age);
            // A change on top of one that is not through yet begins anew, and counts on.
            let done = self.reclassify.take().map_or(Reclassified::default(), |reclassify| reclassify.done);
            self.reclassify =
                Some(Reclassify { classes: classes.into_iter(), class: None, minute: 0, row: NONE, done });
        }
    }

    /// Goes on putting kept rows where the configuration now has them, up to `most` rows; returns what was done in all once all rows
    /// have been gone through. In between every row is in one class or the other, and all counts are right.
    pub fn reclassify(&mut self, most: usize) -> Option<Reclassified> {
        let mut key = Vec::new();
        for _ in 0..most {
            let Some(row) = self.next_to_reclassify() else {
                return Some(self.reclassify.take().map_or(Reclassified::default(), |reclassify| reclassify.done));
            };
            key.clear();
            self.table.key_into(row, &mut key);
            let hash = self.table.hash(&key);
            self.settle(hash, row, &key);
        }
        None
    }

    /// Puts a kept row where the configuration has it. Returns the row, if it is still kept.
    fn settle(&mut self, hash: u64, row: RowId, key: &[u8]) -> Option<RowId> {
        let target = self.owns(key).then(|| {
            let mut class = self.classes.get(self.table.class(row)).key;
            class.route = self.route_of(key).map_or(UNROUTED, |rule| self.rule_routes[rule]);
            if !class.carried {
                class.cadence = self.cadence_of(class.route);
            }
            (class, self.table.due(row))
        });
        let watched = target.is_none() && self.table.watched(row);
        let changed = self.change(hash, Some(row), key, target, Kind::Repair);
        if watched {
            self.watch.touch_watched(hash, Touch::Event, self.now.mono);
        }
        if let (Changed::Moved, Some(reclassify)) = (changed, &mut self.reclassify) {
            reclassify.done.moved += 1;
        }
        self.count_lost(changed);
        changed.row(Some(row))
    }

    /// The row kept for a key, where the configuration has it: for whoever compares it with what was read. A row that a change of
    /// the configuration has not come to yet would look like a missed write.
    pub(super) fn find_settled(&mut self, hash: u64, key: &[u8]) -> Option<RowId> {
        let found = self.table.find(hash, key);
        match found {
            Some(row) if self.reclassify.is_some() => self.settle(hash, row, key),
            _ => found,
        }
    }

    /// Counts a row that was dropped since another node owns it now.
    fn count_lost(&mut self, changed: Changed) {
        if changed == Changed::Removed {
            self.trust.lost_total += 1;
            self.lost_since_walk += 1;
            if let Some(reclassify) = &mut self.reclassify {
                reclassify.done.dropped += 1;
            }
        }
    }

    /// The row whose turn it is. The place behind it is kept in step by `unlink`.
    fn next_to_reclassify(&mut self) -> Option<RowId> {
        let reclassify = self.reclassify.as_mut()?;
        loop {
            if reclassify.row != NONE {
                let row = reclassify.row;
                reclassify.row = self.table.next(row);
                return Some(row);
            }
            let class = match reclassify.class {
                Some((id, age)) => self.classes.living(id, age),
                None => None,
            };
            let next = class.and_then(|class| {
                let minute = class.buckets.first_from(reclassify.minute)?;
                Some((minute, class.buckets.get(minute).head))
            });
            match next {
                Some((minute, head)) => {
                    reclassify.row = head;
                    match minute.checked_add(1) {
                        Some(next) => reclassify.minute = next,
                        None => reclassify.class = None,
                    }
                }
                None => {
                    reclassify.class = Some(reclassify.classes.next()?);
                    reclassify.minute = 0;
                }
            }
        }
    }

    /// Stops or resumes granting claims.
    pub fn set_paused(&mut self, paused: bool) {
        self.paused = paused;
    }

    /// Whether claims are paused.
    pub fn paused(&self) -> bool {
        self.paused
    }

    /// The phase.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Sets the phase, by the feeder. What is kept is the whole table from the end of the first walk on.
    pub fn set_phase(&mut self, phase: Phase, resyncing: Option<bool>, error: Option<String>) {
        if !self.walked() {
            self.whole = phase == Phase::Live && self.epoch == 0;
        }
        self.phase = phase;
        if let Some(resyncing) = resyncing {
            self.resyncing = resyncing;
        }
        if let Some(error) = error {
            self.say(&error);
        }
    }

    /// Whether a walk has ended, a load or a verification: from then on it is walks that say whether the table is kept whole.
    fn walked(&self) -> bool {
        self.trust.loaded_at.is_some() || self.trust.verify.is_some()
    }

    /// Says that there will be a feeder: before the first, what is kept is nothing that could be answered for.
    pub fn expect_feeder(&mut self) {
        if self.epoch == 0 && !self.walked() {
            self.whole = false;
            self.phase = Phase::Starting;
        }
    }

    /// Makes whoever calls the feeder: returns its epoch.
    pub fn take_feeder(&mut self) -> u64 {
        // From here on a feeder answers for what is kept, and has not walked the table yet.
        self.expect_feeder();
        self.epoch += 1;
        self.epoch_at = Some(self.now.wall);
        self.abandon_walk();
        self.watch.abandon();
        self.epoch
    }

    /// The feeder of this epoch lives; nothing where another has taken over.
    pub fn beat(&mut self, epoch: u64) {
        if epoch == self.epoch && epoch != 0 {
            self.pulse = Pulse::At(self.now.mono);
        }
    }

    /// The feeder of this epoch is gone, or going; nothing where another has taken over.
    pub fn vacate(&mut self, epoch: u64) {
        if epoch == self.epoch && self.pulse != Pulse::None {
            self.pulse = Pulse::Vacant;
        }
    }

    /// How long the feeder has not said that it lives, in ms; without end where nobody feeds.
    pub fn feeder_silence(&self) -> f64 {
        self.pulse.silence(self.now.mono)
    }

    /// True where the feeder was silent for longer than `silence` ms: to one caller only, who then has as long to take over.
    pub fn seize_feeder(&mut self, silence: f64) -> bool {
        let free = self.feeder_silence() > silence;
        if free {
            self.pulse = Pulse::At(self.now.mono);
        }
        free
    }

    /// The epoch of the feeder; 0 before there was one.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Every kept key.
    pub fn keys(&self) -> Vec<Vec<u8>> {
        self.table.rows().into_iter().map(|row| self.table.key(row)).collect()
    }

    /// The row kept for a key.
    pub(super) fn find(&self, key: &[u8]) -> Option<RowId> {
        self.table.find(self.table.hash(key), key)
    }

    /// The class and due minute of the row kept for a key.
    pub fn describe(&self, key: &[u8]) -> Option<(&ClassKey, &str, Minute)> {
        let row = self.find(key)?;
        let class = &self.classes.get(self.table.class(row)).key;
        Some((class, self.classes.route(class.route), self.table.due(row)))
    }

    /// Panics where any invariant does not hold, or any number kept beside the rows differs from what the rows say. For tests.
    pub fn validate(&self) {
        self.table.validate();
        self.classes.validate();
        self.leases.validate();
        self.fronts.validate(&self.table, &self.classes, &self.leases);
        let mut linked = 0;
        for (id, class) in self.classes.iter() {
            let rows = class.buckets.validate(&self.table, id);
            assert_eq!(rows, class.rows, "keeper: rows of a class");
            linked += rows;
        }
        let rows = self.table.rows();
        assert_eq!(linked, rows.len() as u64, "keeper: rows in buckets");
        let due = rows.iter().filter(|row| self.table.due(**row) <= self.minute).count() as u64;
        assert_eq!(due, self.due, "keeper: due");
        assert_eq!(due, self.counts.between(0, self.minute), "keeper: due by minute");
        assert_eq!(rows.len() as u64, self.counts.between(0, Minute::MAX), "keeper: rows by minute");
        let unverified = rows.iter().filter(|row| self.table.unverified(**row)).count() as u64;
        assert_eq!(unverified, self.unverified, "keeper: unverified rows");
        let noted: HashSet<RowId> = rows.iter().copied().filter(|row| self.table.noted(*row)).collect();
        assert_eq!(noted, self.leases.rows().collect(), "keeper: rows with a lease entry");
        if self.stale_marks.is_none() {
            let unseen = rows.iter().filter(|row| self.table.mark(**row, self.parity) == Mark::Unseen).count() as u64;
            assert_eq!(unseen, self.walk.as_ref().map_or(0, Walk::unseen), "keeper: rows that the walk has not seen");
        }
        if !self.config.classify && self.reclassify.is_none() {
            for row in rows {
                let key = self.table.key(row);
                let class = &self.classes.get(self.table.class(row)).key;
                let route = self.route_of(&key).map_or(UNROUTED, |rule| self.rule_routes[rule]);
                assert_eq!(class.route, route, "keeper: route");
                assert!(class.carried || class.cadence == self.cadence_of(route), "keeper: cadence");
                assert!(self.owns(&key), "keeper: a row of another node");
            }
        }
    }
}
