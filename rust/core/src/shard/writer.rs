//! The single writer of a shard: its calls, its state, its end.
//!
//! Owns: the calls of a job, the state that its tasks share, and how a job is closed and stopped.
//! Does not own: the order of a put (`placement`), or the work of the MemTable, the log or the
//! flush.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arrow_array::RecordBatch;
use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::ShardIdentity;
use super::admission::Admission;
use super::append::GroupCommit;
use super::batch::{Acknowledged, WriteBatch, WriteOptions};
use super::flush::Flusher;
use super::follow::SchemaFollower;
use super::state::{ShardSnapshot, ShardState};
use super::stats::{JobStats, PutCounters};
use super::turn::PlannedEntry;
use crate::format::{RowSchema, ShardManifest};
use crate::types::{Error, ErrorKind, Result, ShardId, WalPosition, WriterConfig, WriterEpoch};

/// The single writer of a shard. Share it behind an [`Arc`]. After a drop the queued rows are still
/// appended to the log, then the job ends.
#[derive(Debug)]
pub struct ShardWriter {
    pub(super) shared: Arc<Shared>,
}

/// The state that the putting threads, the appending task and the flushing task share. The module's
/// header has the order of the locks.
#[derive(Debug)]
pub(super) struct Shared {
    pub shard_id: ShardId,
    pub identity: ShardIdentity,
    pub epoch: WriterEpoch,
    /// When the claim began.
    pub started: Instant,
    pub config: WriterConfig,
    pub follower: SchemaFollower,
    pub log: GroupCommit,
    pub flusher: Flusher,
    /// Held from a batch's push into the MemTable until the batch is in the queue.
    pub placing: Mutex<()>,
    pub state: RwLock<Arc<ShardState>>,
    pub admission: Admission,
    /// Batches of the job's log that are readable before they are durable, because a put that does
    /// not wait for the log has acknowledged them.
    pub acknowledged: AtomicU64,
    /// Wakes the indexing task.
    pub unindexed: Notify,
    pub counters: PutCounters,
    pub closed: AtomicBool,
    /// The result of the job's end. Locked by the `close` call that ends the job.
    pub closing: tokio::sync::Mutex<Option<JobEnd>>,
    pub stopped: AtomicBool,
}

impl ShardWriter {
    /// Adds, replaces or deletes rows. Returns when they are in memory and, where the write is
    /// durable, in the log. All of them become readable at once.
    ///
    /// Rows that do not fit the job's columns are tried again under the table's newest columns.
    ///
    /// # Errors
    /// Input errors name column and row, and nothing is written. A fenced, stopped or closed job
    /// refuses. Stale where the shard has recorded a newer version of the transaction's
    /// application.
    pub async fn write(
        &self,
        batch: WriteBatch<'_>,
        options: WriteOptions<'_>,
    ) -> Result<Acknowledged> {
        let shared = &self.shared;
        let schema = shared.follower.schema();
        match shared.write(&schema, batch, options).await {
            Err(Error::InvalidInput { .. }) if shared.fits_now(&schema).await? => {
                shared.write(&shared.follower.schema(), batch, options).await
            }
            done => done,
        }
    }

    /// [`Self::write`] of rows that are added or replace rows, by the job's settings.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub async fn put(&self, rows: &RecordBatch) -> Result<Acknowledged> {
        self.write(WriteBatch::upserts(rows), WriteOptions::default()).await
    }

    /// [`Self::write`] of keys that are deleted, by the job's settings.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub async fn delete(&self, keys: &RecordBatch) -> Result<Acknowledged> {
        self.write(WriteBatch::deletes(keys), WriteOptions::default()).await
    }

    /// Flushes all rows that were put before the call; returns when the manifest lists them.
    ///
    /// # Errors
    /// The error of the flush; the rows stay durable in the log.
    pub async fn flush(&self) -> Result<()> {
        let shared = &self.shared;
        shared.check_open()?;
        shared.flush_all().await
    }

    /// Ends the job: waits until every put is durable, and with `flush` until it is flushed. After
    /// the call has returned, the job writes nothing more.
    ///
    /// A second call waits for the first call, and continues where the first call was cancelled.
    /// After the end it returns the same result.
    ///
    /// # Errors
    /// The error that kept rows from being durable or flushed. A flush that failed by a transient
    /// fault of storage is an error of kind reopen, because this job cannot retry it.
    pub async fn close(&self, flush: bool) -> Result<()> {
        let shared = &self.shared;
        {
            let _placing = shared.placing.lock();
            shared.closed.store(true, Ordering::Release);
        }
        let mut end = shared.closing.lock().await;
        if end.is_none() {
            let durable = shared.log.drain().await;
            let flushed = if flush && durable.is_ok() {
                shared.flush_all().await.map_err(|error| shared.at_its_end(error))
            } else {
                Err(Error::Closed { shard: shared.shard_id })
            };
            *end = Some(JobEnd { durable, flushed });
            shared.stop();
        }
        shared.wait_tasks_ended().await;
        end.clone().map_or(Ok(()), |end| end.told(flush))
    }

    /// Whether the claim of this job is not released yet.
    #[must_use]
    pub fn is_release_due(&self) -> bool {
        !self.shared.state().manifest.is_released()
    }

    /// Records in the shard manifest that the claim of this job, which is closed, is released:
    /// another process can claim the shard without stopping a job.
    ///
    /// # Errors
    /// Fenced where a later claim took the shard; a storage error.
    pub async fn release(&self) -> Result<()> {
        let shared = &self.shared;
        let epoch = shared.epoch;
        let record = move |manifest: &mut ShardManifest| manifest.released = Some(epoch);
        let manifest = shared.flusher.manifests.update(epoch, record).await?;
        let _placing = shared.placing.lock();
        shared.publish(shared.state().with_manifest(manifest));
        Ok(())
    }

    /// The readable rows in memory and the manifest below them, as one snapshot.
    ///
    /// # Errors
    /// A fenced or stopped job refuses: its memory may hold rows that other readers will never see.
    pub fn snapshot(&self) -> Result<ShardSnapshot> {
        if !mutant!("B10") {
            self.shared.log.queue.check()?;
        }
        Ok(self.shared.snapshot())
    }

    /// Proves by a read of storage that no later claim has taken the shard. A snapshot that was
    /// taken before this call lacks no durable row of the shard.
    ///
    /// # Errors
    /// A fenced, stopped or closed job refuses; a storage error.
    pub async fn check_owned(&self) -> Result<()> {
        self.shared.check_open()?;
        let owned = self.shared.flusher.manifests.check_fenced(self.shared.epoch).await;
        self.shared.stop_where_fenced(owned)
    }

    /// What fenced or stopped the job, if it has noticed that. A job that was closed has no failure.
    #[must_use]
    pub fn failure(&self) -> Option<Error> {
        self.shared.log.queue.check().err()
    }

    /// The settings of the job.
    #[must_use]
    pub fn config(&self) -> &WriterConfig {
        &self.shared.config
    }

    /// The columns and key that puts are accepted under now.
    #[must_use]
    pub fn schema(&self) -> Arc<RowSchema> {
        self.shared.follower.schema()
    }

    /// The shard.
    #[must_use]
    pub fn shard_id(&self) -> ShardId {
        self.shared.shard_id
    }

    /// The epoch that this job holds.
    #[must_use]
    pub fn epoch(&self) -> WriterEpoch {
        self.shared.epoch
    }

    /// The place of the entry that the next put of this job becomes, for
    /// [`PlannedEntry::standing`]. The caller is the only one that puts, and its last put was
    /// durable.
    #[must_use]
    pub fn next_entry(&self) -> PlannedEntry {
        let newest = self.newest_entry();
        PlannedEntry { position: newest.position.next(), ..newest }
    }

    /// The place of the newest entry of this job, for [`PlannedEntry::is_stored`]; before the first
    /// put, of its fence sentinel.
    #[must_use]
    pub fn newest_entry(&self) -> PlannedEntry {
        let shared = &self.shared;
        let position = shared.log.newest_position();
        PlannedEntry { shard_id: shared.shard_id, position, epoch: shared.epoch }
    }

    /// The job's counters.
    #[must_use]
    pub fn stats(&self) -> JobStats {
        self.shared.stats()
    }
}

/// The result of a job's end. A job that was closed without a flush cannot flush any more.
#[derive(Clone, Debug)]
pub(super) struct JobEnd {
    durable: Result<()>,
    flushed: Result<()>,
}

impl JobEnd {
    /// The result for a `close` call with or without a flush.
    fn told(self, flush: bool) -> Result<()> {
        self.durable.and(if flush { self.flushed } else { Ok(()) })
    }
}

impl Drop for ShardWriter {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::Release);
        self.shared.stop();
    }
}

impl Shared {
    /// Returns when no append and no flush is running any more.
    async fn wait_tasks_ended(&self) {
        self.log.wait_ended().await;
        self.flusher.wait_ended().await;
    }

    /// The rows that are durable, or acknowledged without being durable, in put order.
    fn snapshot(&self) -> ShardSnapshot {
        let acknowledged = self.acknowledged.load(Ordering::Acquire);
        let readable = self.log.queue.durable().batches.max(acknowledged);
        let state = self.state();
        let memtables = state
            .memtables()
            .map(|live| live.memtable.view(live.batches_among(readable)))
            .filter(|view| view.rows() > 0)
            .collect();
        ShardSnapshot { manifest: state.manifest.clone(), memtables }
    }

    /// Stops the job with `error`, unless it has stopped before. A fence is logged once.
    pub(super) fn fail(&self, error: Error) {
        let fenced_by = match &error {
            Error::Fenced { stored, .. } => Some(*stored),
            _ => None,
        };
        if self.log.queue.fail(error)
            && let Some(epoch) = fenced_by
        {
            self.log_fence(epoch);
        }
    }

    /// Stops the job where `answer` is a fencing error. No running put is acknowledged any more.
    pub(super) fn stop_where_fenced<T>(&self, answer: Result<T>) -> Result<T> {
        if let Err(fenced @ Error::Fenced { .. }) = &answer {
            self.fail(fenced.clone());
        }
        answer
    }

    /// Turns a transient error of the closing flush into one that stops the job: no later call
    /// retries this flush.
    fn at_its_end(&self, error: Error) -> Error {
        if error.kind() != ErrorKind::Retry {
            return error;
        }
        let reason = format!("the flush of its close failed: {error}");
        let stopped = Error::poisoned(self.shard_id, reason).with_source(error);
        self.log.queue.fail(stopped.clone());
        stopped
    }

    pub(super) fn stats(&self) -> JobStats {
        let state = self.state();
        let (puts, log, flush) = (&self.counters, &self.log.counters, &self.flusher.counters);
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let unindexed: usize = state.memtables().map(|live| live.memtable.unindexed_rows()).sum();
        JobStats {
            shard_id: self.shard_id,
            writer_epoch: self.epoch,
            puts: read(&puts.puts),
            rows: read(&puts.rows),
            wal_entries: read(&log.wal_entries),
            wal_batches: read(&log.wal_batches),
            wal_bytes: read(&log.wal_bytes),
            wal_position: WalPosition(read(&log.wal_position)),
            durable_wait_p50_us: log.durable_waits.quantile_us(0.5),
            durable_wait_p99_us: log.durable_waits.quantile_us(0.99),
            flushes: read(&flush.flushes),
            flushed_bytes: read(&flush.flushed_bytes),
            flush_ms: read(&flush.flush_ms),
            active_generation: state.active.memtable.generation(),
            active_rows: state.active.memtable.rows() as u64,
            active_batches: state.active.memtable.batches() as u64,
            frozen_memtables: state.frozen.len() as u64,
            uncompacted_generations: state.manifest.sstables.len() as u64,
            memtable_bytes: self.admission.bytes() as u64,
            unindexed_rows: unindexed as u64,
            backpressure_ms: read(&puts.backpressure_ms),
            backpressure_puts: read(&puts.backpressure_puts),
            waiting_puts: self.admission.waiting() as u64,
        }
    }

    pub(super) fn state(&self) -> Arc<ShardState> {
        self.state.read().clone()
    }

    /// Swaps the state. The caller holds the `placing` lock.
    pub(super) fn publish(&self, state: ShardState) {
        *self.state.write() = Arc::new(state);
    }

    pub(super) fn check_open(&self) -> Result<()> {
        self.log.queue.check()?;
        if self.is_closed() { Err(Error::Closed { shard: self.shard_id }) } else { Ok(()) }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire) || self.log.queue.check().is_err()
    }

    fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.log.queue.close();
        self.flusher.frozen.notify_one();
        self.unindexed.notify_one();
    }
}
