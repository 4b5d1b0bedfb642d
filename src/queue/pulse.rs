//! Whether somebody feeds: the feeder says so again and again, where its host has it do that.

/// A feeder that has not been heard of for so long may have events that the queue has not.
const SILENT_MS: f64 = 2_000.0;

/// The feeder's pulse. Times are on the monotonic clock.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Pulse {
    /// No feeder has ever said that it lives: the queue is fed by hand, or its feeder has no pulse.
    #[default]
    None,
    /// When the feeder last said so.
    At(f64),
    /// Nobody feeds any more.
    Vacant,
}

impl Pulse {
    /// How long the feeder has been silent at `mono`, in ms; without end where nobody feeds.
    pub fn silence(self, mono: f64) -> f64 {
        match self {
            Pulse::At(beat) => mono - beat,
            Pulse::None | Pulse::Vacant => f64::INFINITY,
        }
    }

    /// Whether a queue with this pulse has been left alone by a feeder that it had.
    pub fn is_lost(self, mono: f64) -> bool {
        self != Pulse::None && self.silence(mono) > SILENT_MS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pulse_is_lost_where_there_was_one() {
        assert!(!Pulse::None.is_lost(1e9), "fed by hand");
        assert!(!Pulse::At(1_000.0).is_lost(3_000.0));
        assert!(Pulse::At(1_000.0).is_lost(3_001.0));
        assert!(Pulse::Vacant.is_lost(0.0));
        assert_eq!((Pulse::None.silence(5.0), Pulse::At(1.0).silence(5.0)), (f64::INFINITY, 4.0));
    }
}
