//! What happened, by the minute, lately.

use std::collections::VecDeque;

use super::time::Minute;

/// What happened in one minute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Minutes {
    /// Which minute.
    pub minute: Minute,
    /// Rows that became due by the clock.
    pub came_due: u64,
    /// Rows that were not kept, and now are.
    pub added: u64,
    /// Rows that were not due, and now are, by an event.
    pub triggered: u64,
    /// Rows that were due, and now are not, by an event.
    pub rescheduled: u64,
    /// Rows that were kept, and now are not.
    pub removed: u64,
    /// Of the added, those that were due.
    #[serde(skip)]
    pub added_due: u64,
    /// Of the removed, those that were due.
    #[serde(skip)]
    pub removed_due: u64,
    /// Jobs given out: leases granted, and neither found stale nor given back.
    #[serde(skip)]
    pub claimed: u64,
}

impl Minutes {
    fn at(minute: Minute) -> Self {
        Minutes { minute, ..Default::default() }
    }

    fn is_empty(&self) -> bool {
        *self == Minutes { claimed: self.claimed, ..Minutes::at(self.minute) }
    }
}

/// Rates are over this many minutes at most.
pub const RATE_MINUTES: u32 = 10;

/// The last minutes, only those with something in them, oldest first: as many as are told, or as rates take.
pub struct Flow {
    told: u32,
    minutes: VecDeque<Minutes>,
}

impl Flow {
    /// A flow that tells of `told` minutes, the current one included.
    pub fn new(told: u32) -> Self {
        Flow { told, minutes: VecDeque::new() }
    }

    /// How many minutes are remembered, the current one included.
    pub fn window(&self) -> u32 {
        self.told.max(RATE_MINUTES + 1)
    }

    /// The clock goes from `before` to `now`. Forgets what the window does not reach any more; where it steps back, what it has yet to come
    /// to, and what was not told of any more: it is not told of again.
    pub fn turn(&mut self, before: Minute, now: Minute) {
        if now < before {
            self.minutes.retain(|minute| before.saturating_sub(minute.minute) < self.told);
        }
        while self.minutes.front().is_some_and(|first| now.saturating_sub(first.minute) >= self.window()) {
            self.minutes.pop_front();
        }
        while self.minutes.back().is_some_and(|last| last.minute > now) {
            self.minutes.pop_back();
        }
    }

    /// The entry of the minute, which is not before the last one.
    pub fn at(&mut self, minute: Minute) -> &mut Minutes {
        if self.minutes.back().is_none_or(|last| last.minute != minute) {
            self.minutes.push_back(Minutes::at(minute));
        }
        let last = self.minutes.len() - 1;
        &mut self.minutes[last]
    }

    /// A lease that was granted in this minute was no job given out.
    pub fn not_given_out(&mut self, minute: Minute) {
        if let Ok(at) = self.minutes.binary_search_by_key(&minute, |minutes| minutes.minute) {
            let claimed = &mut self.minutes[at].claimed;
            *claimed = claimed.saturating_sub(1);
        }
    }

    /// The minutes to be told of that have something in them.
    pub fn minutes(&self, now: Minute) -> impl Iterator<Item = &Minutes> {
        self.minutes.iter().filter(move |minute| !minute.is_empty() && now.saturating_sub(minute.minute) < self.told)
    }

    /// Sums of what rates are made of over the last `span` minutes before `now`, no more than [`RATE_MINUTES`]: the current one is not over.
    pub fn recent(&self, now: Minute, span: u32) -> Minutes {
        let mut sum = Minutes::at(now);
        for minute in &self.minutes {
            if minute.minute < now && now - minute.minute <= span {
                sum.came_due += minute.came_due;
                sum.triggered += minute.triggered;
                sum.rescheduled += minute.rescheduled;
                sum.added_due += minute.added_due;
                sum.removed_due += minute.removed_due;
                sum.claimed += minute.claimed;
            }
        }
        sum
    }

    /// Bytes allocated.
    pub fn bytes(&self) -> usize {
        self.minutes.capacity() * size_of::<Minutes>()
    }
}
