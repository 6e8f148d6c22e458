//! Counters of one job.
//!
//! Owns: what a person reads to judge a job.
//! Does not own: decisions; nothing reads a counter to decide.

use std::sync::atomic::{AtomicU64, Ordering};

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
    /// Bytes of those entries' rows.
    pub wal_bytes: u64,
    /// Position of the newest appended entry; 0 before the first.
    pub wal_position: WalPosition,
    /// MemTables flushed.
    pub flushes: u64,
    /// Generation of the active MemTable.
    pub active_generation: Generation,
    /// Rows in the active MemTable.
    pub active_rows: u64,
    /// MemTables that wait for their flush.
    pub frozen_memtables: u64,
    /// Bytes in active and frozen MemTables.
    pub memtable_bytes: u64,
    /// Milliseconds that puts waited for memory.
    pub backpressure_ms: u64,
}

/// The counters that a job moves.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub puts: AtomicU64,
    pub rows: AtomicU64,
    pub wal_entries: AtomicU64,
    pub wal_bytes: AtomicU64,
    pub wal_position: AtomicU64,
    pub flushes: AtomicU64,
    pub backpressure_ms: AtomicU64,
}

impl Counters {
    pub fn add(counter: &AtomicU64, amount: usize) {
        counter.fetch_add(amount as u64, Ordering::Relaxed);
    }
}
