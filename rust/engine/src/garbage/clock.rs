//! The clock of a collector, against the clock of the store.
//!
//! Owns: how far the two may be apart, and the time against which a collection measures ages.
//! Does not own: the reading of the clocks (`lancemem_core::store`).
//!
//! The store writes the times of files, and a collector subtracts them from its own time. A collector
//! that is a week ahead takes every file for a week old. It would remove the fences of last minute, and
//! a fenced writer could then acknowledge rows that no reader sees.

use std::time::{Duration, SystemTime};

use lancemem_core::store::ClockReading;
use lancemem_core::types::{Error, Result};

/// The clocks may be apart by one part of so many of the grace period.
const PARTS: u32 = 4;
/// With a short grace period they may be apart by so much all the same: clocks of servers are.
const LEAST: Duration = Duration::from_mins(1);
/// With a long one they may be apart by no more: fences, manifests and staged SSTables have ages of
/// their own, of a day and more.
const MOST: Duration = Duration::from_hours(1);

/// How far the clock of a collector with this grace period may be from the clock of the store.
fn tolerance(grace: Duration) -> Duration {
    (grace / PARTS).clamp(LEAST, MOST)
}

/// The present, for ages of files of the table at `uri`: the clock that is behind.
///
/// # Errors
/// An input error where the clocks are too far apart.
pub fn present(reading: &ClockReading, uri: &str, grace: Duration) -> Result<SystemTime> {
    let tolerance = tolerance(grace);
    let apart = reading.ahead().max(reading.behind());
    if apart <= tolerance {
        return Ok(reading.earlier());
    }
    let side = if reading.ahead().is_zero() { "behind" } else { "ahead of" };
    Err(Error::input(format!(
        "no garbage of table {uri} was collected: the clock of this process is {} s {side} the clock \
         of the table's store, and with older_than = {} s the difference is limited to {} s. Set the \
         clock of this machine and collect again",
        apart.as_secs(),
        grace.as_secs(),
        tolerance.as_secs()
    )))
}

#[cfg(test)]
mod tests {
    use lancemem_core::types::ErrorKind;

    use super::*;

    const HOUR: Duration = Duration::from_hours(1);
    const WEEK: Duration = Duration::from_hours(7 * 24);

    fn reading(local: Duration, stored: Duration) -> ClockReading {
        let start = SystemTime::UNIX_EPOCH + WEEK * 1_000;
        ClockReading { local: start + local, stored: start + stored }
    }

    #[test]
    fn a_collector_whose_clock_is_a_week_off_is_refused_with_any_grace_period() {
        for grace in [Duration::ZERO, HOUR, WEEK, WEEK * 10, Duration::MAX] {
            for (clocks, side) in [
                (reading(WEEK, Duration::ZERO), "604800 s ahead of"),
                (reading(Duration::ZERO, WEEK), "604800 s behind"),
            ] {
                let error = present(&clocks, "a/table", grace).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::InvalidInput);
                assert!(error.to_string().contains(side), "{error}");
            }
        }
    }

    #[test]
    fn clocks_may_be_apart_by_a_quarter_of_the_grace_period_a_minute_and_at_most_an_hour() {
        for (grace, seconds) in [(Duration::ZERO, 60), (HOUR, 900), (WEEK, 3_600)] {
            for (apart, is_taken) in [(seconds, true), (seconds + 1, false)] {
                let clocks = reading(Duration::from_secs(apart), Duration::ZERO);
                let taken = present(&clocks, "a/table", grace);
                assert_eq!(taken.is_ok(), is_taken, "{grace:?} {apart}");
            }
        }
    }

    #[test]
    fn ages_are_measured_against_the_clock_that_is_behind() {
        let second = Duration::from_secs(1);
        for clocks in [reading(second, second * 9), reading(second * 9, second)] {
            assert_eq!(present(&clocks, "a/table", HOUR).unwrap(), clocks.earlier());
        }
    }
}
