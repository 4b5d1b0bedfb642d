//! The keeper's numbers as OpenMetrics text (the OpenMetrics 1.0 specification, section "Text format"), of gauges and
//! counters only: the parser of the older text format, which autoscalers use, refuses a text with any other type in it.

use std::fmt::{Display, Write};

use super::keeper::Keeper;
use super::trust::Phase;

/// Text being written: families one after the other.
struct Text(String);

impl Text {
    /// Begins a family.
    fn family(&mut self, name: &str, kind: &str, unit: &str, help: &str) {
        let _ = writeln!(self.0, "# TYPE {name} {kind}");
        if !unit.is_empty() {
            let _ = writeln!(self.0, "# UNIT {name} {unit}");
        }
        let _ = writeln!(self.0, "# HELP {name} {}", escaped(help));
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.0.push_str(name);
        for (i, (label, text)) in labels.iter().enumerate() {
            let _ = write!(self.0, "{}{label}=\"{}\"", if i == 0 { '{' } else { ',' }, escaped(text));
        }
        let _ = writeln!(self.0, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }

    fn gauge(&mut self, name: &str, unit: &str, help: &str, value: impl Display) {
        self.family(name, "gauge", unit, help);
        self.sample(name, &[], value);
    }

    fn counter(&mut self, name: &str, help: &str, value: impl Display) {
        self.family(name, "counter", "", help);
        self.sample(&format!("{name}_total"), &[], value);
    }
}

/// Backslash, quote and line feed are what the format escapes.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// A number that may not be known: the format's NaN.
fn known(number: Option<f64>) -> f64 {
    number.unwrap_or(f64::NAN)
}

impl Keeper {
    /// Why the numbers cannot be shown; empty where they can.
    pub fn not_live_because(&self) -> &'static str {
        match self.phase {
            Phase::Live => "",
            Phase::Starting => "starting",
            Phase::WaitingForPeers => "waiting for peers",
            Phase::Loading => "loading",
            Phase::Failed => "failed",
            Phase::Stopped => "stopped",
        }
    }

    /// All numbers, as they are now. Times are in seconds, as the format wants them. What cannot be vouched for while the keeper
    /// is not live is left out, and `keeper_live` is 0.
    pub fn metrics(&self) -> String {
        let mut text = Text(String::with_capacity(8 * 1024));
        let state = self.state();
        let trust = &self.trust;
        let leases = self.leases.counts();
        let seconds = |ms: f64| ms / 1000.0;

        text.family("keeper_live", "gauge", "", "1 where the numbers can be vouched for; the label says why not.");
        text.sample("keeper_live", &[("reason", self.not_live_because())], u8::from(self.live()));
        text.family("keeper_phase", "gauge", "", "1 for the phase that the keeper is in.");
        for phase in
            [Phase::Starting, Phase::WaitingForPeers, Phase::Loading, Phase::Live, Phase::Failed, Phase::Stopped]
        {
            text.sample("keeper_phase", &[("phase", phase.name())], u8::from(phase == self.phase));
        }
        text.gauge(
            "keeper_exact",
            "",
            "1 where the numbers are known to be what the table says.",
            u8::from(self.exact()),
        );
        text.gauge(
            "keeper_resyncing",
            "",
            "1 while a walk looks for what may have been missed or gained.",
            u8::from(self.resyncing),
        );
        text.gauge("keeper_paused", "", "1 while claims are paused.", u8::from(self.paused));
        if self.live() {
            text.family("keeper_due", "gauge", "", "Rows due now, in flight included.");
            text.sample("keeper_due", &[("source", "sitemap")], state.now.due_sitemap);
            text.sample("keeper_due", &[("source", "discovered")], state.now.due_discovered);
            text.gauge("keeper_due_rows", "", "Rows due now, all together: what to scale the fleet on.", self.due);
            text.gauge(
                "keeper_due_changed",
                "",
                "Of these, rows of pages known to have changed.",
                state.now.due_changed,
            );
            text.gauge("keeper_due_urgent", "", "Of these, rows of pages that were asked for.", state.now.due_urgent);
            text.gauge("keeper_unclaimed", "", "Rows due now less those in flight.", state.now.unclaimed);
            let oldest = state.lateness.oldest_due_at.map_or(0.0, |at| seconds(self.now.wall - at));
            text.gauge(
                "keeper_oldest_due_age_seconds",
                "seconds",
                "How long the longest overdue row has been due.",
                oldest,
            );
            text.gauge(
                "keeper_worst_lateness_cadences",
                "cadences",
                "How late the latest row is, in its own cadences.",
                self.worst_lateness(),
            );
            let rates = self.rates();
            let per_minute = "rows a minute, over the last ten whole minutes; NaN before the first.";
            text.gauge(
                "keeper_came_due_rate",
                "",
                &format!("Rows coming due: {per_minute}"),
                known(rates.map(|rates| rates.coming_due)),
            );
            text.gauge(
                "keeper_finished_rate",
                "",
                &format!("Due rows done with: {per_minute}"),
                known(rates.map(|rates| rates.finished)),
            );
            text.gauge(
                "keeper_claimed_rate",
                "",
                &format!("Jobs given out, neither found stale nor given back: {per_minute}"),
                known(rates.map(|rates| rates.claimed)),
            );
            text.gauge(
                "keeper_drain_eta_seconds",
                "seconds",
                "Until nothing is later than its cadence, at the recent rates; NaN where it never drains.",
                known(state.now.drain_eta_ms.map(seconds)),
            );
        }
        text.gauge("keeper_in_flight", "", "Leases live now.", self.leases.in_flight());
        text.gauge("keeper_held_keys", "", "Keys held back from claims now.", self.leases.held());
        text.counter("keeper_claims_granted", "Leases granted.", leases.granted);
        text.counter(
            "keeper_claims_given_back",
            "Leases given back: whoever asked has not got the job.",
            leases.given_back,
        );
        text.counter("keeper_claims_stale", "Claimed rows that the table no longer had due.", leases.stale);
        text.family("keeper_claims_refused", "counter", "", "Claim calls refused, by cause.");
        for (cause, count) in ["limit", "paused", "unready"].iter().zip(trust.refused) {
            text.sample("keeper_claims_refused_total", &[("cause", cause)], count);
        }
        text.counter("keeper_leases_released", "Leases ended by a result.", leases.released);
        text.counter("keeper_leases_expired", "Leases that ran out without a result.", leases.expired);
        text.counter("keeper_holds", "Times a key was held back after too many misses.", leases.holds);
        text.counter("keeper_events_applied", "Events of this node's rows.", trust.events_applied);
        text.counter("keeper_events_ignored", "Events that said nothing of this node's rows.", trust.events_ignored);
        text.counter("keeper_events_outdated", "Events older than one that had come.", trust.events_outdated);
        text.counter(
            "keeper_events_flagged",
            "Events that said that a row changed but not to what.",
            trust.events_flagged,
        );
        text.counter("keeper_malformed", "Events and rows that cannot be read.", trust.malformed);
        text.family(
            "keeper_repaired",
            "counter",
            "",
            "Rows put right, by cause: a missed write, or a change of nodes.",
        );
        text.sample("keeper_repaired_total", &[("cause", "missed")], trust.repaired_total);
        text.sample("keeper_repaired_total", &[("cause", "gained")], trust.gained_total);
        text.counter(
            "keeper_late",
            "Of the missed writes put right, those whose event came afterwards.",
            trust.late_total,
        );
        text.counter("keeper_lost", "Rows dropped through changes of nodes.", trust.lost_total);
        text.gauge("keeper_rows", "", "Rows kept.", self.table.len());
        text.gauge("keeper_carried_rows", "", "Rows kept that carry their own cadence.", self.carried_rows());
        text.gauge(
            "keeper_unverified_rows",
            "",
            "Rows from a snapshot that nothing has confirmed yet.",
            self.unverified,
        );
        text.gauge("keeper_classes", "", "Classes that have rows.", self.classes.len());
        text.gauge("keeper_ring_nodes", "", "Nodes of the ring, this one included.", self.ring().nodes().len());
        text.gauge("keeper_memory_bytes", "bytes", "Native memory of the queue.", self.bytes());
        text.gauge("keeper_feeder_epoch", "", "Which feeder, counted from 1; 0 where there is none.", self.epoch);
        text.gauge(
            "keeper_last_event_timestamp_seconds",
            "seconds",
            "When the last event came; NaN before the first.",
            known(trust.last_event_at.map(seconds)),
        );
        text.gauge(
            "keeper_verified_timestamp_seconds",
            "seconds",
            "When the last verification of the whole table ended; NaN before the first.",
            known(trust.verified_at.map(seconds)),
        );
        text.gauge("keeper_load_seconds", "seconds", "How long the load took.", known(trust.load_ms.map(seconds)));
        let verify = trust.verify.map(|report| seconds(report.ms));
        text.gauge("keeper_verify_seconds", "seconds", "How long the last verification took.", known(verify));
        text.gauge(
            "keeper_publish_seconds",
            "seconds",
            "How long the last snapshot took to write.",
            known(trust.snapshot_ms.map(seconds)),
        );
        text.0.push_str("# EOF\n");
        text.0
    }
}
