//! The state document (SPEC.md section 9): one consistent moment, derived from the buckets.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use super::class::{Class, ClassKey, RouteId};
use super::flow::{Minutes, RATE_MINUTES};
use super::keeper::Keeper;
use super::route::InvalidRule;
use super::time::{MINUTE_MS, Minute, end_of_early, start_of};
use super::trust::{Phase, Status, Trust};

/// The edges between lateness bins, in cadences: [0, .25), [.25, 1), [1, 2), [2, 4), [4, inf).
pub const LATENESS_EDGES: [f64; 4] = [0.25, 1.0, 2.0, 4.0];

/// Due rows by lateness.
pub type Bins = [u64; 5];

/// See SPEC.md section 9.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct State {
    schema: u32,
    node: String,
    generated_at: f64,
    /// What is due now.
    pub now: DueNow,
    /// What is coming.
    pub coming: Coming,
    /// How late it is.
    pub lateness: Lateness,
    /// The last hour.
    pub flow: Vec<Minutes>,
    /// What the numbers are worth.
    pub trust: TrustReport,
}

/// What is due now.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs)]
pub struct DueNow {
    pub due: u64,
    pub due_sitemap: u64,
    pub due_discovered: u64,
    pub due_changed: u64,
    /// When the longest overdue changed row was due.
    pub oldest_changed_at: Option<f64>,
    pub due_urgent: u64,
    /// When the longest overdue urgent row was due.
    pub oldest_urgent_at: Option<f64>,
    pub changed_by_demand: Vec<Demand>,
    pub in_flight: u64,
    pub held_keys: u64,
    /// Of these, those whose rows are due.
    pub held_due: u64,
    pub unclaimed: u64,
    /// How many more leases can be granted before the limit.
    pub leases_left: u64,
    pub paused: bool,
    pub status: Status,
    /// ms until nothing is later than its cadence, at the recent rates; null where it never drains.
    pub drain_eta_ms: Option<f64>,
}

/// Due changed rows with one demand period.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs)]
pub struct Demand {
    pub period_ms: Option<f64>,
    pub due: u64,
    pub oldest_due_at: f64,
}

/// Rows that will come due.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs)]
pub struct Coming {
    pub next15m: u64,
    pub next60m: u64,
    pub next24h: u64,
    pub by_hour: Vec<u64>,
}

/// Due rows by lateness.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs)]
pub struct Lateness {
    pub edges: [f64; 4],
    pub sitemap: Bins,
    pub discovered: Bins,
    pub oldest_due_at: Option<f64>,
    pub next_due_at: Option<f64>,
    pub by_route: Vec<RouteLateness>,
    pub classes: Vec<ClassLateness>,
    pub lists_truncated: bool,
}

/// One route's due rows.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs)]
pub struct RouteLateness {
    pub route: Arc<str>,
    pub due: u64,
    pub sitemap: Bins,
    pub discovered: Bins,
}

/// One class's due rows.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs)]
pub struct ClassLateness {
    pub route: Arc<str>,
    pub cadence_ms: f64,
    pub carried: bool,
    pub from_sitemap: bool,
    pub changed: bool,
    pub urgent: bool,
    pub demand_period_ms: Option<f64>,
    pub rows: u64,
    pub due: u64,
    pub oldest_due_at: f64,
    pub oldest_lateness_cadences: Option<f64>,
}

/// What the numbers are worth.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs)]
pub struct TrustReport {
    pub source: &'static str,
    pub live: bool,
    pub phase: Phase,
    pub exact: bool,
    pub state_at: f64,
    pub state_age_ms: f64,
    pub max_age_ms: f64,
    pub keeper: KeeperReport,
}

/// The keeper's own account.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs)]
pub struct KeeperReport {
    pub phase: Phase,
    pub rows: usize,
    /// Of these, rows that carry their own cadence.
    pub carried_rows: u64,
    pub classes: usize,
    pub resyncing: bool,
    pub exact: bool,
    #[serde(flatten)]
    pub trust: Trust,
    pub epoch: u64,
    pub epoch_at: Option<f64>,
    /// ms since the feeder last said that it lives; none where none does.
    pub feeder_silent_ms: Option<f64>,
    pub unverified_rows: u64,
    pub awaiting_read: usize,
    pub invalid_rules: Vec<InvalidRule>,
    pub ring: Vec<String>,
    /// How many minutes `flow` tells of, the current one included.
    pub flow_minutes: u32,
    pub bytes: usize,
}

/// Rates per minute.
#[derive(Clone, Copy, Debug)]
pub struct Rates {
    /// Rows that came to be due, by the clock or by an event.
    pub coming_due: f64,
    /// Due rows done with: rescheduled or removed.
    pub finished: f64,
    /// Jobs given out.
    pub claimed: f64,
}

/// How late a row due in `minute` is, in cadences, by the current minute. `None` where the cadence is not > 0.
fn cadences_late(minute: Minute, now: Minute, cadence: f64) -> Option<f64> {
    (cadence > 0.0).then(|| f64::from(now.saturating_sub(minute)) * MINUTE_MS / cadence)
}

/// A class's due rows by lateness. Lateness falls as minutes rise, so each edge is one minute, and what lies before it
/// one sum over the buckets. Rows whose cadence is not > 0 are never late: the first bin.
fn bins(class: &Class, now: Minute, due: u64) -> Bins {
    let mut bins = [0; 5];
    let mut later = 0;
    for (bin, edge) in LATENESS_EDGES.iter().enumerate().rev() {
        let cadence = class.key.cadence;
        let late = |minute| cadences_late(minute, now, cadence).is_some_and(|late| late >= *edge);
        // The minutes in which a row is at least as late as the edge come first.
        let end = end_of_early(0..u64::from(now) + 1, f64::from(now) - edge * cadence / MINUTE_MS, late);
        let rows = class.buckets.rows_before(end);
        bins[bin + 1] = rows - later;
        later = rows;
    }
    bins[0] = due - later;
    bins
}

fn add(into: &mut Bins, bins: &Bins) {
    for (sum, rows) in into.iter_mut().zip(bins) {
        *sum += rows;
    }
}

fn earliest(first: &mut Option<f64>, at: f64) {
    *first = Some(first.map_or(at, |first| first.min(at)));
}

impl Keeper {
    /// Whether the numbers can be shown at all.
    pub fn live(&self) -> bool {
        self.phase == Phase::Live
    }

    /// Whether they are known to be what the table says.
    pub fn exact(&self) -> bool {
        // A key that must be read and has not been is one that is known to differ.
        let unread = !self.watch.all_read() || self.watch.lost();
        // Whoever should feed may have events that have not come here.
        let unfed = self.pulse.is_lost(self.now.mono);
        self.live()
            && !self.resyncing
            && self.whole
            && self.unverified == 0
            && !self.trust.missed()
            && !unread
            && !unfed
    }

    /// Rates over the last ten whole minutes, or over as many as there have been; `None` before the first is over.
    pub fn rates(&self) -> Option<Rates> {
        let minutes = self.minute.saturating_sub(self.began).min(RATE_MINUTES);
        if minutes == 0 {
            return None;
        }
        let sum = self.flow.recent(self.minute, minutes);
        let per_minute = |rows: u64| rows as f64 / f64::from(minutes);
        Some(Rates {
            coming_due: per_minute(sum.came_due + sum.triggered + sum.added_due),
            finished: per_minute(sum.rescheduled + sum.removed_due),
            claimed: per_minute(sum.claimed),
        })
    }

    /// How late the latest row is, in its own cadences; 0 where nothing is due.
    pub fn worst_lateness(&self) -> f64 {
        let late = self
            .classes
            .due_by(self.minute)
            .filter_map(|(id, first)| cadences_late(first, self.minute, self.classes.get(id).key.cadence));
        late.fold(0.0, f64::max)
    }

    /// Rows that carry their own cadence.
    pub fn carried_rows(&self) -> u64 {
        self.classes.iter().filter(|(_, class)| class.key.carried).map(|(_, class)| class.rows).sum()
    }

    /// ms until nothing is later than its cadence: rows later than that, divided by how much faster rows are finished
    /// than they come due (a fluid queue: Kleinrock, Queueing Systems II, 1976, chapter 2). 0 where none is, `None`
    /// where the backlog does not shrink.
    fn drain_eta(&self, later_than_cadence: u64) -> Option<f64> {
        let gain = self.rates().map_or(0.0, |rates| rates.finished - rates.coming_due);
        match later_than_cadence {
            0 => Some(0.0),
            rows if gain > 0.0 => Some(rows as f64 / gain * MINUTE_MS),
            _ => None,
        }
    }

    /// The state document.
    pub fn state(&self) -> State {
        let now_minute = self.minute;
        let mut now = DueNow {
            due: self.due,
            due_sitemap: 0,
            due_discovered: 0,
            due_changed: 0,
            oldest_changed_at: None,
            due_urgent: 0,
            oldest_urgent_at: None,
            changed_by_demand: Vec::new(),
            in_flight: self.leases.in_flight(),
            held_keys: self.leases.held(),
            held_due: self.leases.held_due(now_minute),
            unclaimed: self.due.saturating_sub(self.leases.in_flight()),
            leases_left: self.config.leases.max_leases.saturating_sub(self.leases.in_flight()),
            paused: self.paused,
            status: self.status(),
            drain_eta_ms: None,
        };
        let (mut sitemap, mut discovered) = ([0; 5], [0; 5]);
        let mut by_route: BTreeMap<RouteId, RouteLateness> = BTreeMap::new();
        let mut by_demand: BTreeMap<u64, Demand> = BTreeMap::new();
        let mut classes = Vec::new();
        for (id, first) in self.classes.due_by(now_minute) {
            let class = self.classes.get(id);
            let ClassKey { route, cadence, from_sitemap, changed, urgent, demand, .. } = class.key;
            let due = class.buckets.rows_before(u64::from(now_minute) + 1);
            let oldest = start_of(first);
            let bins = bins(class, now_minute, due);
            let name = self.classes.route(route);
            let of_route = by_route.entry(route).or_insert_with(|| RouteLateness {
                route: name.clone(),
                due: 0,
                sitemap: [0; 5],
                discovered: [0; 5],
            });
            of_route.due += due;
            if from_sitemap {
                now.due_sitemap += due;
                add(&mut sitemap, &bins);
                add(&mut of_route.sitemap, &bins);
            } else {
                now.due_discovered += due;
                add(&mut discovered, &bins);
                add(&mut of_route.discovered, &bins);
            }
            let period_ms = (!demand.is_nan()).then_some(demand);
            if changed {
                now.due_changed += due;
                earliest(&mut now.oldest_changed_at, oldest);
                // Unknown periods last: positive numbers sort by their bits.
                let of_demand = by_demand.entry(period_ms.map_or(u64::MAX, f64::to_bits));
                let of_demand = of_demand.or_insert(Demand { period_ms, due: 0, oldest_due_at: oldest });
                of_demand.due += due;
                of_demand.oldest_due_at = of_demand.oldest_due_at.min(oldest);
            }
            if urgent {
                now.due_urgent += due;
                earliest(&mut now.oldest_urgent_at, oldest);
            }
            let late = cadences_late(first, now_minute, cadence);
            let sort = (late.map_or(-1.0, |late| late), due, class.age);
            classes.push((sort, id, first, late));
        }
        now.changed_by_demand = by_demand.into_values().collect();
        now.drain_eta_ms = self.drain_eta((2..5).map(|bin| sitemap[bin] + discovered[bin]).sum());

        let most = self.config.max_listed;
        let mut by_route: Vec<RouteLateness> = by_route.into_values().collect();
        by_route.sort_by(|a, b| b.due.cmp(&a.due).then_with(|| a.route.cmp(&b.route)));
        let lists_truncated = by_route.len() > most || classes.len() > most;
        by_route.truncate(most);
        let latest_first = |a: &(f64, u64, u64), b: &(f64, u64, u64)| {
            b.0.total_cmp(&a.0).then_with(|| b.1.cmp(&a.1)).then_with(|| a.2.cmp(&b.2))
        };
        if classes.len() > most && most > 0 {
            classes.select_nth_unstable_by(most - 1, |a, b| latest_first(&a.0, &b.0));
        }
        classes.truncate(most);
        classes.sort_by(|a, b| latest_first(&a.0, &b.0));
        let classes = classes.into_iter().map(|((_, due, _), id, first, late)| {
            let Class { key, rows, .. } = self.classes.get(id);
            ClassLateness {
                route: self.classes.route(key.route).clone(),
                cadence_ms: key.cadence,
                carried: key.carried,
                from_sitemap: key.from_sitemap,
                changed: key.changed,
                urgent: key.urgent,
                demand_period_ms: (!key.demand.is_nan()).then_some(key.demand),
                rows: *rows,
                due,
                oldest_due_at: start_of(first),
                oldest_lateness_cadences: late,
            }
        });
        let classes = classes.collect();
        let (.., first_due, next_due) = self.due_summary();
        State {
            schema: 1,
            node: self.config.node.clone(),
            generated_at: self.now.wall,
            now,
            coming: self.coming(),
            lateness: Lateness {
                edges: LATENESS_EDGES,
                sitemap,
                discovered,
                oldest_due_at: first_due.map(start_of),
                next_due_at: next_due.map(start_of),
                by_route,
                classes,
                lists_truncated,
            },
            flow: self.flow.minutes(self.minute).copied().collect(),
            trust: self.trust_report(),
        }
    }

    /// By minutes from the current one: 15 and 60 are included, and hour `h` is minutes 60h to 60h + 59.
    fn coming(&self) -> Coming {
        let from_now = |from: u32, to: u32| match self.minute.checked_add(from) {
            Some(from) => self.counts.between(from, self.minute.saturating_add(to)),
            None => 0,
        };
        let by_hour: Vec<u64> = (0..24).map(|hour| from_now((hour * 60).max(1), hour * 60 + 59)).collect();
        Coming { next15m: from_now(1, 15), next60m: from_now(1, 60), next24h: by_hour.iter().sum(), by_hour }
    }

    fn trust_report(&self) -> TrustReport {
        let keeper = KeeperReport {
            phase: self.phase,
            rows: self.table.len(),
            carried_rows: self.carried_rows(),
            classes: self.classes.len(),
            resyncing: self.resyncing,
            exact: self.exact(),
            trust: self.trust.clone(),
            epoch: self.epoch,
            epoch_at: self.epoch_at,
            feeder_silent_ms: Some(self.feeder_silence()).filter(|ms| ms.is_finite()),
            unverified_rows: self.unverified,
            awaiting_read: self.watch.unread(),
            invalid_rules: self.invalid_rules.clone(),
            ring: self.ring().nodes().to_vec(),
            flow_minutes: self.config.flow_minutes,
            bytes: self.bytes(),
        };
        TrustReport {
            source: "keeper",
            live: self.live(),
            phase: self.phase,
            exact: self.exact(),
            state_at: self.now.wall,
            state_age_ms: 0.0,
            max_age_ms: 5_000.0,
            keeper,
        }
    }
}
