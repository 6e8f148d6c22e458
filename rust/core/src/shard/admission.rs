//! Admission control: a put waits while the shard exceeds its limits of memory or generations.
//!
//! Owns: the count of bytes in memory, when a put waits and for what, and the order of waiting
//! puts: first come, first served.
//! Does not own: the flush that frees memory, or the compaction that frees generations.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::flush::Flusher;
use super::writer::Shared;
use crate::memtable::IndexAccount;
use crate::types::{Error, Result};

const COMPACTION_POLL: Duration = Duration::from_millis(100);

/// Bytes of active and frozen MemTables, and the queue of puts that wait for memory.
#[derive(Debug, Default)]
pub(super) struct Admission {
    bytes: AtomicUsize,
    /// Bytes of secondary indexes of these MemTables.
    pub indexes: IndexAccount,
    waiting: AtomicUsize,
    /// Tokio's mutex is fair: it is locked in the order of the calls.
    turn: tokio::sync::Mutex<()>,
    /// When the first of the waiting puts began to wait.
    since: Mutex<Option<Instant>>,
}

/// Bytes that a put has reserved. A drop releases them, unless the put has placed its rows.
pub(super) struct Admitted<'a> {
    admission: &'a Admission,
    bytes: usize,
}

impl Admission {
    /// An account that starts with the bytes of replayed MemTables.
    pub fn with_recovered(bytes: usize) -> Self {
        Self { bytes: AtomicUsize::new(bytes), ..Self::default() }
    }

    /// Bytes of active and frozen MemTables, their indexes included, and of admitted puts.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Acquire) + self.indexes.bytes()
    }

    /// Number of waiting puts.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Acquire)
    }

    /// Releases the bytes of a MemTable that left memory.
    pub fn release(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::AcqRel);
    }

    /// Reserves `bytes` where the account is within `budget`. One put may exceed the budget, so a
    /// put larger than the budget is possible, and the excess is at most one put.
    fn try_admit(&self, bytes: usize, budget: usize) -> Option<Admitted<'_>> {
        let indexes = self.indexes.bytes();
        let within = |used: usize| (used + indexes <= budget).then(|| used + bytes);
        self.bytes.fetch_update(Ordering::AcqRel, Ordering::Acquire, within).ok()?;
        Some(Admitted { admission: self, bytes })
    }
}

impl Admitted<'_> {
    /// Keeps the bytes reserved: the rows are in a MemTable, whose flush releases them.
    pub fn placed(mut self) {
        self.bytes = 0;
    }
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        self.admission.release(self.bytes);
    }
}

/// Counts a waiting put for as long as it waits. The first and the last waiting put write a line to
/// the program's log.
struct WaitingPut<'a> {
    shared: &'a Shared,
    started: Instant,
}

impl<'a> WaitingPut<'a> {
    fn start(shared: &'a Shared, reason: &str) -> Self {
        let started = Instant::now();
        let mut since = shared.admission.since.lock();
        shared.admission.waiting.fetch_add(1, Ordering::AcqRel);
        if since.is_none() {
            *since = Some(started);
            tracing::info!(shard = %shared.shard_id, reason, "puts wait");
        }
        Self { shared, started }
    }
}

impl Drop for WaitingPut<'_> {
    fn drop(&mut self) {
        let admission = &self.shared.admission;
        let waited_ms = whole_ms(self.started.elapsed());
        self.shared.counters.backpressure_ms.fetch_add(waited_ms, Ordering::Relaxed);
        self.shared.counters.backpressure_puts.fetch_add(1, Ordering::Relaxed);
        let mut since = admission.since.lock();
        if admission.waiting.fetch_sub(1, Ordering::AcqRel) == 1
            && let Some(started) = since.take()
        {
            let waited_ms = whole_ms(started.elapsed());
            tracing::info!(shard = %self.shared.shard_id, waited_ms, "puts go on");
        }
    }
}

impl Shared {
    /// Reserves `bytes`; waits until the shard is within its limits of memory and of generations.
    ///
    /// # Errors
    /// The error that stopped the job or its flushes meanwhile; a backlog that no compaction
    /// reduces in time.
    pub(super) async fn admit(&self, bytes: usize) -> Result<Admitted<'_>> {
        if self.state().uncompacted() >= self.config.max_uncompacted_generations {
            self.wait_for_compaction().await?;
        }
        let budget = self.config.max_unflushed_memtable_bytes;
        if self.admission.waiting() == 0
            && let Some(admitted) = self.admission.try_admit(bytes, budget)
        {
            return Ok(admitted);
        }
        let _waiting = WaitingPut::start(self, "MemTables hold more than their budget");
        let _turn = self.admission.turn.lock().await;
        let mut progress = self.flusher.progress.subscribe();
        loop {
            if let Some(admitted) = self.admission.try_admit(bytes, budget) {
                return Ok(admitted);
            }
            let generation = {
                let placing = self.placing.lock();
                self.flusher.retry_failed();
                let frozen_first = self.state().frozen.first().map(|l| l.memtable.generation());
                frozen_first.or_else(|| self.freeze(&placing))
            };
            match generation {
                Some(generation) => {
                    Flusher::wait_flushed(&mut progress, generation, self.shard_id).await?;
                }
                // All bytes belong to admitted puts that are not placed yet.
                None => tokio::task::yield_now().await,
            }
        }
    }

    /// Waits for a compactor, which removes compacted generations from the shard manifest.
    async fn wait_for_compaction(&self) -> Result<()> {
        let _waiting = WaitingPut::start(self, "too many generations wait for compaction");
        let started = Instant::now();
        loop {
            self.check_open()?;
            self.take_newest_manifest().await?;
            let generations = self.state().uncompacted();
            let limit = self.config.max_uncompacted_generations;
            if generations < limit {
                return Ok(());
            }
            if started.elapsed() >= self.config.max_compaction_wait {
                return Err(Error::Backlog { shard: self.shard_id, generations, limit });
            }
            #[expect(clippy::disallowed_methods, reason = "a poll; another process does the work")]
            tokio::time::sleep(COMPACTION_POLL).await;
        }
    }
}

fn whole_ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
