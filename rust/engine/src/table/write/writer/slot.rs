//! The job of one shard of a writer.
//!
//! Owns: the job that takes the rows of the shard, whether the writer started it, and its end.
//! Does not own: the start of a job, or the choice to share one (`writer`).

use std::sync::Arc;

use arrow_array::RecordBatch;
use lancemem_core::shard::{WriteBatch, WriteOptions};
use lancemem_core::types::{Error, Result, ShardId};
use parking_lot::RwLock;

use super::Job;

/// The job of a shard, once there is one.
#[derive(Debug)]
pub(super) struct ShardSlot {
    pub shard_id: ShardId,
    held: RwLock<Option<HeldJob>>,
    /// Held while the job is looked up or started, and while it is closed.
    pub starting: tokio::sync::Mutex<()>,
}

#[derive(Clone, Debug)]
pub(super) struct HeldJob {
    pub job: Arc<Job>,
    /// Whether the writer started the job, and so closes it.
    pub is_own: bool,
}

impl HeldJob {
    /// Whether the program that started the job has closed it, so that the writer may claim the
    /// shard. A fenced or stopped job was taken from the writer instead.
    fn was_given_back(&self) -> bool {
        !self.is_own && self.job.has_ended() && self.job.writer.failure().is_none()
    }
}

impl ShardSlot {
    pub fn new(shard_id: ShardId) -> Self {
        Self { shard_id, held: RwLock::default(), starting: tokio::sync::Mutex::default() }
    }

    /// The job that the writer has used last, also where it ended.
    pub fn held(&self) -> Option<HeldJob> {
        self.held.read().clone()
    }

    /// The job that takes the rows of the shard, or refuses them; `None` where the writer may start
    /// one.
    pub fn job(&self) -> Option<Arc<Job>> {
        self.held.read().as_ref().filter(|held| !held.was_given_back()).map(|held| held.job.clone())
    }

    /// Sets the job of the shard; the caller holds `starting`, unless it opens the writer.
    pub fn hold(&self, job: Arc<Job>, is_own: bool) {
        *self.held.write() = Some(HeldJob { job, is_own });
    }

    /// Ends the job of the shard if the writer started it. Rows in a shared job become durable, and
    /// with `flush` they are flushed; the job goes on.
    pub async fn close(&self, flush: bool) -> Result<()> {
        // A start that is under way ends first.
        let _starting = self.starting.lock().await;
        let Some(HeldJob { job, is_own }) = self.held() else { return Ok(()) };
        if is_own {
            return job.close(flush).await;
        }
        if job.has_ended() {
            return Ok(());
        }
        if flush {
            return job.flush().await;
        }
        // A durable put returns when all earlier puts are durable.
        let nothing = RecordBatch::new_empty(job.row_schema().logical().clone());
        let options = WriteOptions::default().durable(true);
        match job.write(WriteBatch::upserts(&nothing), options).await {
            // The program that started the job closes it: that makes the rows durable too.
            Err(Error::Closed { .. }) => Ok(()),
            written => written.map(|_| ()),
        }
    }
}
