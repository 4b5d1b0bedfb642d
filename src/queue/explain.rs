//! Everything about one key (SPEC.md section 9), without a scan of the rows.

use serde::Serialize;

use super::keeper::Keeper;
use super::lease::Lease;
use super::order::{Line, rows_before};
use super::table::NONE;
use super::time::{MINUTE_MS, start_of};

/// Why a page is, or is not, being rendered. The key itself is the caller's.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs)]
pub struct Explanation {
    pub kept: bool,
    pub reason: Option<&'static str>,
    pub owner: String,
    pub route: String,
    pub cadence_ms: f64,
    /// What the cadence would be if the row carried none; null with a host's own classifier.
    pub route_cadence_ms: Option<f64>,
    pub carried: bool,
    pub from_sitemap: bool,
    pub changed: bool,
    pub urgent: bool,
    pub demand_period_ms: Option<f64>,
    pub due_at: Option<f64>,
    pub due: bool,
    pub score: Option<f64>,
    pub rank: Option<u64>,
    pub wait_ms: Option<f64>,
    pub lease: Option<LeaseTold>,
    pub misses: u32,
    pub hold: Option<Hold>,
}

/// A live lease, ms since the epoch, and the version of the row that it was confirmed with.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs)]
pub struct LeaseTold {
    pub granted_at: f64,
    pub expires_at: f64,
    pub version: Option<f64>,
}

/// A hold, until ms since the epoch.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[allow(missing_docs)]
pub struct Hold {
    pub misses: u32,
    pub until: f64,
}

impl Keeper {
    /// Explains a key. The row's place in its own minute is counted along that minute's rows; all else is looked up.
    pub fn explain(&self, key: &[u8]) -> Explanation {
        let owner = if self.config.classify { self.ring().node() } else { self.ring().owner(self.url(key)) };
        let row = self.find(key);
        let wall = |mono: f64| self.now.wall + (mono - self.now.mono);
        let standing = self.leases.standing(row.unwrap_or(NONE), key);
        let hold = standing.held_until.map(|until| Hold { misses: standing.misses, until: wall(until) });
        let lease = standing.lease.map(|Lease { granted_at, until, version, .. }| LeaseTold {
            granted_at,
            expires_at: wall(until),
            version: version.is_finite().then_some(version),
        });
        let mut explanation = Explanation {
            kept: row.is_some(),
            reason: None,
            owner: owner.to_owned(),
            route: String::new(),
            cadence_ms: 0.0,
            route_cadence_ms: None,
            carried: false,
            from_sitemap: false,
            changed: false,
            urgent: false,
            demand_period_ms: None,
            due_at: None,
            due: false,
            score: None,
            rank: None,
            wait_ms: None,
            lease,
            misses: standing.misses,
            hold,
        };
        let (route, cadence) = self.route_and_cadence(key);
        explanation.route_cadence_ms = (!self.config.classify).then_some(cadence);
        let Some(row) = row else {
            explanation.reason = Some(if self.owns(key) { "unknown" } else { "not-owned" });
            explanation.route = route.to_owned();
            explanation.cadence_ms = cadence;
            return explanation;
        };
        let class = self.classes.get(self.table.class(row));
        let minute = self.table.due(row);
        explanation.route = self.classes.route(class.key.route).to_string();
        explanation.cadence_ms = class.key.cadence;
        explanation.carried = class.key.carried;
        explanation.from_sitemap = class.key.from_sitemap;
        explanation.changed = class.key.changed;
        explanation.urgent = class.key.urgent;
        explanation.demand_period_ms = (!class.key.demand.is_nan()).then_some(class.key.demand);
        explanation.due_at = Some(start_of(minute));
        explanation.due = minute <= self.minute;
        if explanation.due {
            let place = Line::of(class, &self.config.priority, self.now.wall).place(minute);
            let before = rows_before(&self.classes, &self.config.priority, self.now.wall, self.minute, place);
            let rank = before + u64::from(class.buckets.before(&self.table, row, minute)) + 1;
            explanation.score = Some(place.score);
            explanation.rank = Some(rank);
            let rate = self.rates().map(|rates| rates.claimed).filter(|rate| *rate > 0.0);
            explanation.wait_ms = rate.map(|rate| rank as f64 / rate * MINUTE_MS);
        }
        explanation
    }
}
