//! Counters of one job.
//!
//! Owns: what an operator reads to judge a job.
//! Does not own: decisions; nothing reads a counter to decide.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hdrhistogram::Histogram;
use parking_lot::Mutex;

use crate::types::{Generation, ShardId, WalPosition, WriterEpoch};

/// A job's counters at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobStats {
    /// The shard.
    pub shard_id: ShardId,
    /// The epoch that the job holds.
    pub writer_epoch: WriterEpoch,
    /// Calls of `put` and `delete` that were accepted.
    pub puts: u64,
    /// Rows accepted, tombstones included.
    pub rows: u64,
    /// WAL entries appended.
    pub wal_entries: u64,
    /// Puts in those entries; divided by `wal_entries` it is the mean size of a group.
    pub wal_batches: u64,
    /// Bytes of those entries' rows.
    pub wal_bytes: u64,
    /// Position of the newest appended entry; 0 before the first.
    pub wal_position: WalPosition,
    /// Median of the microseconds that a durable put waited for its entry.
    pub durable_wait_p50_us: u64,
    /// 99th percentile of the same.
    pub durable_wait_p99_us: u64,
    /// MemTables flushed.
    pub flushes: u64,
    /// Bytes in memory of the MemTables that were flushed.
    pub flushed_bytes: u64,
    /// Milliseconds that those flushes took; with `flushed_bytes` the flush rate.
    pub flush_ms: u64,
    /// Generation of the active MemTable.
    pub active_generation: Generation,
    /// Rows in the active MemTable.
    pub active_rows: u64,
    /// Puts that brought those rows; the next claim of the shard reads about as many WAL entries.
    pub active_batches: u64,
    /// MemTables that wait for their flush.
    pub frozen_memtables: u64,
    /// Flushed generations that the manifest lists and that wait for compaction.
    pub uncompacted_generations: u64,
    /// Bytes in active and frozen MemTables.
    pub memtable_bytes: u64,
    /// Rows that wait for the key index.
    pub unindexed_rows: u64,
    /// Milliseconds that puts waited for memory or for a compaction, added up.
    pub backpressure_ms: u64,
    /// Puts that waited so.
    pub backpressure_puts: u64,
    /// Puts that wait so now.
    pub waiting_puts: u64,
}

/// Counters of what was put.
#[derive(Debug, Default)]
pub(super) struct PutCounters {
    pub puts: AtomicU64,
    pub rows: AtomicU64,
    pub backpressure_ms: AtomicU64,
    pub backpressure_puts: AtomicU64,
}

/// Counters of what was appended to the log.
#[derive(Debug, Default)]
pub(super) struct AppendCounters {
    pub wal_entries: AtomicU64,
    pub wal_batches: AtomicU64,
    pub wal_bytes: AtomicU64,
    pub wal_position: AtomicU64,
    pub durable_waits: Waits,
}

/// Counters of what was flushed.
#[derive(Debug, Default)]
pub(super) struct FlushCounters {
    pub flushes: AtomicU64,
    pub flushed_bytes: AtomicU64,
    pub flush_ms: AtomicU64,
}

impl FlushCounters {
    /// Adds a MemTable of `bytes` whose flush took `time`.
    pub fn flushed(&self, bytes: usize, time: Duration) {
        count(&self.flushes, 1);
        count(&self.flushed_bytes, bytes);
        count(&self.flush_ms, usize::try_from(time.as_millis()).unwrap_or(usize::MAX));
    }
}

/// Adds `amount` to a counter.
pub(super) fn count(counter: &AtomicU64, amount: usize) {
    counter.fetch_add(amount as u64, Ordering::Relaxed);
}

/// A longer wait counts as this: one hour, up to which a histogram takes less than 200 KiB.
const MAX_WAIT_US: u64 = 3_600_000_000;

/// How long something took, each time, to three digits.
#[derive(Debug, Default)]
pub(super) struct Waits(Mutex<Option<Histogram<u64>>>);

impl Waits {
    pub fn record(&self, time: Duration) {
        let mut waits = self.0.lock();
        if waits.is_none() {
            *waits = Histogram::new(3).ok();
        }
        if let Some(waits) = waits.as_mut() {
            // Not `saturating_record`, which never makes room: it would count every longer wait as
            // 2 us.
            let time = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
            let _ = waits.record(time.min(MAX_WAIT_US));
        }
    }

    /// The waits in microseconds below which a share `quantile` of them stayed.
    pub fn quantile_us(&self, quantile: f64) -> u64 {
        self.0.lock().as_ref().map_or(0, |waits| waits.value_at_quantile(quantile))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_of_any_length_are_recorded_to_three_digits() {
        let waits = Waits::default();
        assert_eq!(waits.quantile_us(0.5), 0);
        let times = [1, 2_048, 50_000, 1_500_000, 60_000_000, u64::MAX];
        for micros in times {
            waits.record(Duration::from_micros(micros));
        }
        for (nth, micros) in (1_u32..).zip(times) {
            let expected = micros.min(MAX_WAIT_US);
            let found = waits.quantile_us(f64::from(nth) / 6.0 - 0.01);
            assert!(found.abs_diff(expected) <= expected / 1000, "{found} is not {expected}");
        }
    }
}
