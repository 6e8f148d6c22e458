//! Memory before rows: a put waits while the shard holds more bytes than it may.
//!
//! Owns: the decision to wait and for what.
//! Does not own: the flush that frees memory.

use std::sync::atomic::Ordering;
use std::time::Instant;

use super::writer::Shared;
use crate::types::Result;

impl Shared {
    /// Returns when active and frozen MemTables are within their budget.
    ///
    /// # Errors
    /// The error that stopped the job or its flushes meanwhile.
    pub(super) async fn wait_for_memory(&self) -> Result<()> {
        if self.state().memtable_bytes() <= self.config.max_unflushed_memtable_bytes {
            return Ok(());
        }
        let started = Instant::now();
        tracing::info!(shard = %self.shard_id, "puts wait: MemTables hold more than their budget");
        let mut progress = self.flushes.subscribe();
        while self.state().memtable_bytes() > self.config.max_unflushed_memtable_bytes {
            let generation = {
                let placing = self.placing.lock();
                self.retry_failed_flush();
                let frozen_first = self.state().frozen.first().map(|l| l.memtable.generation());
                frozen_first.or_else(|| self.freeze(&placing))
            };
            let Some(generation) = generation else { break };
            self.wait_flushed(&mut progress, generation).await?;
        }
        let waited = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.counters.backpressure_ms.fetch_add(waited, Ordering::Relaxed);
        tracing::info!(shard = %self.shard_id, waited_ms = waited, "puts go on");
        Ok(())
    }
}
