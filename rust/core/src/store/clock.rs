//! The clock of a store beside the clock of this process.
//!
//! Owns: one reading of both clocks, from an object that is written for it.
//! Does not own: how far the clocks may be apart.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use object_store::ObjectStoreExt;

use super::{Store, failed};
use crate::format::paths;
use crate::types::Result;

/// Two clocks at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockReading {
    /// The clock of this process, after the object was written. A write that took long, or a
    /// machine that was suspended in it, makes it later, so an early clock of the store is never
    /// missed.
    pub local: SystemTime,
    /// The time that the store gave to the object.
    pub stored: SystemTime,
}

impl ClockReading {
    /// How far this process is ahead of the store; zero where it is behind.
    #[must_use]
    pub fn ahead(&self) -> Duration {
        self.local.duration_since(self.stored).unwrap_or_default()
    }

    /// How far this process is behind the store; zero where it is ahead.
    #[must_use]
    pub fn behind(&self) -> Duration {
        self.stored.duration_since(self.local).unwrap_or_default()
    }

    /// The clock that is behind: an age that is measured against it is never too high.
    #[must_use]
    pub fn earlier(&self) -> SystemTime {
        self.local.min(self.stored)
    }

    /// The clock that is ahead: an age that is measured against it is never too low.
    #[must_use]
    pub fn later(&self) -> SystemTime {
        self.local.max(self.stored)
    }
}

impl Store {
    /// Reads both clocks. A local disk takes its time from the system of the process that writes,
    /// and then both readings come from one clock.
    ///
    /// # Errors
    /// A storage error.
    #[expect(clippy::disallowed_methods, reason = "this clock is what is compared")]
    pub async fn read_clock(&self) -> Result<ClockReading> {
        let text = Bytes::from_static(b"lancemem: its time is what the clock of the store says\n");
        self.put_hint(paths::CLOCK, text).await?;
        let local = SystemTime::now();
        let found = self.inner.head(&self.at(paths::CLOCK)).await;
        let action = || format!("looking for {}", paths::CLOCK);
        let found = found.map_err(|error| failed(action(), error))?;
        Ok(ClockReading { local, stored: found.last_modified.into() })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use lancemem_testkit::FaultyStore;

    use super::*;

    const WEEK: Duration = Duration::from_hours(7 * 24);

    #[tokio::test]
    async fn a_store_whose_clock_is_a_week_behind_shows_how_far_this_process_is_ahead() {
        let storage = Arc::new(FaultyStore::default());
        let store = Store::new(storage.clone(), "table".into());
        let reading = store.read_clock().await.unwrap();
        assert!(reading.ahead() < WEEK / 2 && reading.behind() < WEEK / 2, "{reading:?}");
        storage.set_clock_back(WEEK);
        let reading = store.read_clock().await.unwrap();
        assert!(reading.ahead() + Duration::from_secs(1) >= WEEK, "{reading:?}");
        assert_eq!(reading.behind(), Duration::ZERO);
        assert_eq!((reading.earlier(), reading.later()), (reading.stored, reading.local));
    }

    #[tokio::test]
    async fn both_clocks_of_a_local_disk_agree_whether_the_object_was_there_or_not() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path().to_str().unwrap(), true).unwrap();
        for _ in 0..2 {
            let reading = store.read_clock().await.unwrap();
            assert!(reading.ahead().max(reading.behind()) < WEEK, "{reading:?}");
        }
    }
}
