//! The log lines of a shard: one for each claim, flush and fence.
//!
//! Owns: the fields of these lines, which a program shows at level INFO.
//! Does not own: when an action has ended, which the caller knows, or lines about failures.

use std::time::Duration;

use super::state::LiveMemTable;
use super::writer::Shared;
use crate::memtable::MemTableView;
use crate::types::WriterEpoch;

/// The seconds of a log line, in whole milliseconds.
#[must_use]
pub fn rounded_seconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e3).round() / 1e3
}

impl Shared {
    /// The line of a claim: the rows that its replay brought into memory.
    pub(super) fn log_claim(&self) {
        let rows = |live: &LiveMemTable| live.memtable.rows();
        tracing::info!(
            table = self.identity.table.as_deref(),
            shard = %self.shard_id,
            epoch = self.epoch.get(),
            rows = self.state().memtables().map(rows).sum::<usize>(),
            bytes = self.admission.bytes(),
            seconds = rounded_seconds(self.started.elapsed()),
            "claimed"
        );
    }

    /// The line of a flush of `flushed`, whose MemTable had `bytes` in memory.
    pub(super) fn log_flush(&self, flushed: &MemTableView, bytes: usize, time: Duration) {
        tracing::info!(
            table = self.identity.table.as_deref(),
            shard = %self.shard_id,
            generation = flushed.generation().get(),
            rows = flushed.rows(),
            bytes,
            seconds = rounded_seconds(time),
            "flushed"
        );
    }

    /// The line of a job that has lost its shard to the claim of epoch `by`: the rows that it has
    /// accepted, the bytes that it has appended, and how long it was the writer.
    pub(super) fn log_fence(&self, by: WriterEpoch) {
        let stats = self.stats();
        tracing::info!(
            table = self.identity.table.as_deref(),
            shard = %self.shard_id,
            epoch = self.epoch.get(),
            by_epoch = by.get(),
            rows = stats.rows,
            bytes = stats.wal_bytes,
            seconds = rounded_seconds(self.started.elapsed()),
            "fenced"
        );
    }
}
