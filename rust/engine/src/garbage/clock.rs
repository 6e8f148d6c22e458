//! The clock of a collector, compared with the clock of the store.
//!
//! Owns: the largest skew that is accepted, and the time against which a collection measures ages.
//! Does not own: reading the clocks (`lancemem_core::store`).
//!
//! The store sets the modification times of files, and a collector subtracts them from its own
//! time. If the collector's clock is a week ahead, every file looks a week old. The collector would
//! remove fence sentinels of the last minute, and a fenced writer could then acknowledge rows that
//! no reader sees.

use std::time::{Duration, SystemTime};

use lancemem_core::store::ClockReading;
use lancemem_core::types::{Error, Result};

/// The accepted skew is the grace period divided by this number.
const PARTS: u32 = 4;
/// The skew that is always accepted, however short the grace period: clocks of servers differ.
const MIN_SKEW: Duration = Duration::from_mins(1);
/// The largest skew that is accepted, however long the grace period: fence sentinels, manifests and
/// staged SSTables have fixed ages of a day and more.
const MAX_SKEW: Duration = Duration::from_hours(1);

/// The largest skew between the clock of a collector with this grace period and the store's.
fn tolerance(grace: Duration) -> Duration {
    (grace / PARTS).clamp(MIN_SKEW, MAX_SKEW)
}

/// The present, for ages of files of the table at `uri`: the time of the clock that is behind, so
/// that skew never makes a file look older.
///
/// # Errors
/// An input error where the skew is too large.
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
