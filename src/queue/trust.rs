//! What the numbers are worth: phases, loads, verifications, repairs.

use serde::Serialize;

use super::late::Wrong;

/// Where the keeper is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Nothing has begun.
    Starting,
    /// Ownership is not knowable yet.
    WaitingForPeers,
    /// The first walk is under way.
    Loading,
    /// What is kept follows the table.
    Live,
    /// The feeder has given up for now.
    Failed,
    /// Closed for good.
    Stopped,
}

impl Phase {
    /// The phase of this name.
    pub fn named(name: &str) -> Option<Phase> {
        Some(match name {
            "starting" => Phase::Starting,
            "waiting-for-peers" => Phase::WaitingForPeers,
            "loading" => Phase::Loading,
            "live" => Phase::Live,
            "failed" => Phase::Failed,
            "stopped" => Phase::Stopped,
            _ => return None,
        })
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Starting => "starting",
            Phase::WaitingForPeers => "waiting-for-peers",
            Phase::Loading => "loading",
            Phase::Live => "live",
            Phase::Failed => "failed",
            Phase::Stopped => "stopped",
        }
    }
}

/// What the fleet is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// Something is due, in flight included.
    Queued,
    /// Nothing is due, and that is known of the whole table.
    Empty,
    /// Nothing is due as far as is known, or claims are not served.
    Unready,
    /// Claims grant nothing until resumed.
    Paused,
}

impl Status {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Status::Queued => "queued",
            Status::Empty => "empty",
            Status::Unready => "unready",
            Status::Paused => "paused",
        }
    }
}

/// What a walk found, against what was kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WalkReport {
    /// When it ended, ms since the epoch.
    pub at: f64,
    /// Rows read.
    pub scanned: u64,
    /// Of these, rows of this node.
    pub owned: u64,
    /// Of these, rows of other nodes.
    pub unowned: u64,
    /// Rows that should have been kept and were not: missed writes.
    pub missing: u64,
    /// Rows kept otherwise than the table has them: missed writes.
    pub mismatched: u64,
    /// Rows kept that the table does not have: missed deletions.
    pub phantoms: u64,
    /// Rows not kept since another node owned them when they were last written.
    pub gained: u64,
    /// Rows dropped since the last walk because another node owns them now.
    pub lost: u64,
    /// Rows that could not be read.
    pub unreadable_rows: u64,
    /// Rows whose key is not a string.
    pub malformed: u64,
    /// Part of the table was not read.
    pub partial: bool,
    /// Missed writes put right: missing, mismatched and phantoms.
    pub repaired: u64,
    /// Writes put right whose event came afterwards: they were not missed, and are no longer counted above.
    pub late: u64,
    /// How long it took.
    pub ms: f64,
}

impl WalkReport {
    fn count(&mut self, wrong: Wrong) -> &mut u64 {
        match wrong {
            Wrong::Missing => &mut self.missing,
            Wrong::Mismatched => &mut self.mismatched,
            Wrong::Phantom => &mut self.phantoms,
        }
    }

    /// A missed write was put right.
    pub(super) fn found(&mut self, wrong: Wrong) {
        *self.count(wrong) += 1;
        self.repaired += 1;
    }

    /// The event of a write that was put right has come.
    pub(super) fn heard(&mut self, wrong: Wrong) {
        *self.count(wrong) -= 1;
        self.repaired -= 1;
        self.late += 1;
    }
}

/// What a check of the queue's head found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TopCheck {
    /// When keys were last handed out to be read, ms since the epoch.
    pub at: Option<f64>,
    /// Keys handed out since the start.
    pub checked: u64,
    /// Of these, found wrong and put right.
    pub repaired: u64,
}

/// Counts since the start, and what is known of loads and walks: part of the state as it is.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Trust {
    /// Events taken: puts and deletions of this node's rows.
    pub events_applied: u64,
    /// Events that say nothing of a row of this node.
    pub events_ignored: u64,
    /// Of the ignored: an event of a later version had come.
    pub events_outdated: u64,
    /// Events that said that a row changed but not to what.
    pub events_flagged: u64,
    /// Events and rows that cannot be read.
    pub malformed: u64,
    /// ms since the epoch.
    pub last_event_at: Option<f64>,
    /// When the load began.
    pub load_started_at: Option<f64>,
    /// When the load ended.
    pub loaded_at: Option<f64>,
    /// How long it took.
    pub load_ms: Option<f64>,
    /// Rows it read.
    pub load_rows: u64,
    /// Rows the last walk could not read.
    pub unreadable_rows: u64,
    /// The load did not read the whole table.
    pub partial_load: bool,
    /// The last verification.
    pub verify: Option<WalkReport>,
    /// The last walk that followed a gap.
    pub last_resync: Option<WalkReport>,
    /// It was the last verification.
    #[serde(skip)]
    pub resync_was_last: bool,
    /// When the last verification ended that read the whole table, ms since the epoch.
    pub verified_at: Option<f64>,
    /// One had put missed writes right, and none has read the whole table since.
    #[serde(skip)]
    pub missed_before: bool,
    /// The check of the head.
    pub top_check: TopCheck,
    /// Writes put right before their event had come, by a walk or a single read, since the start. What a snapshot had is none, nor what an
    /// event had flagged or the load could not read.
    pub repaired_total: u64,
    /// Of these, writes whose event came afterwards.
    pub late_total: u64,
    /// Rows gained through changes of nodes since the start.
    pub gained_total: u64,
    /// Rows dropped through changes of nodes since the start.
    pub lost_total: u64,
    /// What went wrong last, in words.
    pub last_error: Option<String>,
    /// Claim calls refused: at the limit of leases, while paused, while unready.
    #[serde(skip)]
    pub refused: [u64; 3],
    /// How long the last snapshot took to write, ms.
    pub snapshot_ms: Option<f64>,
}

impl Trust {
    /// A verification has ended.
    pub(super) fn verified(&mut self, report: WalkReport, resyncing: bool) {
        self.missed_before = report.partial && self.missed();
        self.verified_at = if report.partial { self.verified_at } else { Some(report.at) };
        self.verify = Some(report);
        self.resync_was_last = resyncing;
        if resyncing {
            self.last_resync = Some(report);
        }
    }

    /// Whether writes were missed, as far as is known since a verification last read the whole table.
    pub(super) fn missed(&self) -> bool {
        self.missed_before || self.verify.is_some_and(|verify| verify.repaired > 0)
    }

    /// Something more is known of what the last verification found. Returns whether there was one.
    pub(super) fn amend_verify(&mut self, amend: impl Fn(&mut WalkReport)) -> bool {
        let Some(verify) = &mut self.verify else { return false };
        if let Some(resync) = self.last_resync.as_mut().filter(|_| self.resync_was_last) {
            amend(resync);
        }
        amend(verify);
        true
    }
}
