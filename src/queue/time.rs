//! Minutes and the two clocks. The queue never reads a clock: whoever calls it says what time it is.

use std::ops::Range;

/// Minutes since the epoch. The largest, 4,294,967,295, lies in the year 10136.
pub type Minute = u32;

/// Milliseconds in a minute.
pub const MINUTE_MS: f64 = 60_000.0;

/// What time it is, on both clocks, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Now {
    /// Since the epoch; may step either way.
    pub wall: f64,
    /// Since any fixed moment; never steps back. Leases run on it.
    pub mono: f64,
}

impl Now {
    /// The current minute.
    pub fn minute(self) -> Minute {
        // `as` cuts off what is behind the point, and saturates: before the epoch is minute 0, and NaN cannot get in (the binding refuses it).
        (self.wall / MINUTE_MS) as Minute
    }
}

/// The due minute of a due time in ms, or `None` where no row can be kept for it: not finite,
/// negative, or past the last minute that can be told.
pub fn due_minute(ms: f64) -> Option<Minute> {
    if !(ms.is_finite() && ms >= 0.0) {
        return None;
    }
    // `as` cuts off what is behind the point, which for what is not negative is the floor.
    let minute = ms / MINUTE_MS;
    (minute < f64::from(Minute::MAX) + 1.0).then_some(minute as Minute)
}

/// The ms since the epoch at which `minute` begins.
pub fn start_of(minute: Minute) -> f64 {
    f64::from(minute) * MINUTE_MS
}

/// The end of those of `minutes` that are early, which come before the others. `guess` is about where that is; NaN where nothing is known.
/// Found by bisection, which has next to nothing left where the guess is good.
pub fn end_of_early(minutes: Range<u64>, guess: f64, is_early: impl Fn(Minute) -> bool) -> u64 {
    let Range { mut start, mut end } = minutes;
    // `as` saturates.
    let guess = guess as u64;
    let mut guesses = [guess.saturating_sub(1), guess.saturating_add(1)].into_iter();
    while start < end {
        let at = guesses.find(|guess| (start..end).contains(guess)).unwrap_or(start + (end - start) / 2);
        if is_early(at as Minute) {
            start = at + 1;
        } else {
            end = at;
        }
    }
    start
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_the_early_ones_is_found_whatever_the_guess() {
        let last = u64::from(Minute::MAX) + 1;
        for (start, end) in [(0, 0), (0, 1), (3, 9), (5, 5), (last - 3, last), (0, last)] {
            for early in [0, 1, 4, 5, 6, 9, 10, last - 2, last - 1, last] {
                let expected = early.clamp(start, end);
                for guess in [f64::NAN, f64::NEG_INFINITY, -1.0, 0.0, 0.5, 1.0, 4.0, 5.0, 5.5, 6.0, 9.0, 1e300] {
                    let found = end_of_early(start..end, guess, |minute| u64::from(minute) < early);
                    assert_eq!(found, expected, "{start}..{end}, {early} are early, {guess}");
                }
                let looks = std::cell::Cell::new(0);
                end_of_early(start..end, early as f64, |minute| {
                    looks.set(looks.get() + 1);
                    u64::from(minute) < early
                });
                assert!(looks.get() <= 4 || expected != early, "{start}..{end}, {early}: {} looks", looks.get());
            }
        }
    }

    #[test]
    fn a_due_time_is_never_coerced() {
        for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0, -0.5, 1e300, 2.6e14] {
            assert_eq!(due_minute(bad), None, "{bad}");
        }
        assert_eq!(due_minute(-0.0), Some(0));
        assert_eq!(due_minute(59_999.9), Some(0));
        assert_eq!(due_minute(60_000.0), Some(1));
        let year_9999 = 253_402_300_799_999.0;
        assert_eq!(due_minute(year_9999), Some(4_223_371_679));
    }
}
