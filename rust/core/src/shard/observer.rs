//! A weak observer of a job, for a task beside it.
//!
//! Owns: the wait for the next flush, and the newest manifest for a job whose SSTables were
//! compacted.
//! Does not own: what such a task does. It never claims the shard and never holds a lock of the
//! put path for longer than a swap.

use std::sync::{Arc, Weak};

use tokio::sync::watch;

use super::flush::FlushProgress;
use super::writer::{ShardWriter, Shared};
use crate::types::{Result, ShardId};

/// Observes a running job from a task beside it. It does not keep the job alive.
#[derive(Debug)]
pub struct JobWatch {
    shard_id: ShardId,
    shared: Weak<Shared>,
    flushes: watch::Receiver<FlushProgress>,
}

impl ShardWriter {
    /// An observer of this job.
    #[must_use]
    pub fn watch(&self) -> JobWatch {
        let (shard_id, shared) = (self.shard_id(), Arc::downgrade(&self.shared));
        JobWatch { shard_id, shared, flushes: self.shared.flusher.progress.subscribe() }
    }
}

impl JobWatch {
    /// The job's shard.
    #[must_use]
    pub const fn shard_id(&self) -> ShardId {
        self.shard_id
    }

    /// Returns true after the next flush, and false once the job has ended.
    pub async fn flushed(&mut self) -> bool {
        self.flushes.changed().await.is_ok() && !self.flushes.borrow_and_update().ended
    }

    /// Flushed generations that wait for compaction, in the job's newest manifest; `None` once it
    /// has ended.
    #[must_use]
    pub fn uncompacted_generations(&self) -> Option<usize> {
        let shared = self.running()?;
        Some(shared.state().manifest.sstables.len())
    }

    /// The same, after reading the newest manifest, which compactors change.
    ///
    /// # Errors
    /// A storage error.
    pub async fn refresh(&self) -> Result<Option<usize>> {
        let Some(shared) = self.running() else { return Ok(None) };
        shared.take_newest_manifest().await?;
        Ok(Some(shared.state().manifest.sstables.len()))
    }

    fn running(&self) -> Option<Arc<Shared>> {
        self.shared.upgrade().filter(|shared| shared.check_open().is_ok())
    }
}

impl Shared {
    /// Takes over the changes that compactors made to the shard manifest beside the job.
    ///
    /// # Errors
    /// A storage error; fenced where a later claim took the shard, which stops the job.
    pub(super) async fn take_newest_manifest(&self) -> Result<()> {
        let Some(manifest) = self.flusher.manifests.latest().await? else { return Ok(()) };
        if manifest.writer_epoch > self.epoch {
            let fenced = self.flusher.manifests.fenced(self.epoch, manifest.writer_epoch);
            return self.stop_where_fenced(Err(fenced));
        }
        let _placing = self.placing.lock();
        let state = self.state();
        // A flush of this job publishes its own manifest, and a later read may have arrived here
        // first.
        let is_next = manifest.current_generation == state.manifest.current_generation
            && manifest.version > state.manifest.version;
        if is_next {
            self.publish(state.with_manifest(manifest));
        }
        Ok(())
    }
}
