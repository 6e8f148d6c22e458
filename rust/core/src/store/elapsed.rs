//! How long ago something was, by two clocks.
//!
//! Owns: a reading of both clocks, and the longer of the two elapsed times. The calendar can be set
//! back and forward; the monotonic clock stands still while the machine is suspended.
//! Does not own: how old is too old.

use std::time::{Duration, SystemTime};

use tokio::time::Instant;

/// A reading of both clocks.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    running: Instant,
    calendar: SystemTime,
}

impl Moment {
    /// Now.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "a suspended machine's other clocks stand still")]
    pub fn now() -> Self {
        Self { running: Instant::now(), calendar: SystemTime::now() }
    }

    /// The elapsed time, by the clock that shows more.
    #[must_use]
    pub fn age(self) -> Duration {
        let now = Self::now();
        // A calendar that was set back shows no elapsed time.
        let calendar = now.calendar.duration_since(self.calendar).unwrap_or_default();
        now.running.duration_since(self.running).max(calendar)
    }
}

#[cfg(test)]
impl Moment {
    /// The same moment, if the machine had been suspended for so long since.
    pub(crate) fn before_a_sleep_of(self, time: Duration) -> Self {
        Self { calendar: self.calendar - time, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_is_that_of_the_clock_that_went_on() {
        let slept = Moment::now().before_a_sleep_of(Duration::from_hours(1));
        assert!(slept.age() >= Duration::from_hours(1));
        let set_back = Moment { calendar: slept.calendar + Duration::from_hours(2), ..slept };
        assert!(set_back.age() < Duration::from_mins(1));
    }
}
