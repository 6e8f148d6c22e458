//! The flush: frozen MemTables to SSTables, oldest first, in the background.
//!
//! Owns: the freeze, the order SSTable, then manifest, then memory, and retries into new folders.
//! Does not own: the files of an SSTable.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::state::LiveMemTable;
use super::stats::FlushCounters;
use super::task_guard::TaskEnd;
use super::transactions::{JobTxns, expiry};
use super::writer::Shared;
use super::{SsTableSink, memtable_layout};
use crate::format::ShardManifest;
use crate::memtable::{MakeIndex, MemTable, MemTableView};
use crate::store::{Backoff, ManifestStore};
use crate::types::{Error, ErrorKind, Generation, Result, ShardId, Txns, WalPosition, WriterEpoch};

const MAX_ATTEMPTS: usize = 4;
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// The progress of the flushes of a job.
#[derive(Clone, Debug, Default)]
pub(super) struct FlushProgress {
    /// Every generation up to this one is flushed.
    pub flushed: Generation,
    /// The error of the flush of the oldest frozen MemTable; a later attempt clears it.
    pub failure: Option<Error>,
    /// Whether no flush will follow; `failure` is then final.
    pub ended: bool,
}

/// Writes a frozen MemTable as an SSTable and lists it in the shard manifest.
#[derive(Debug)]
pub(super) struct Flusher {
    sink: Arc<dyn SsTableSink>,
    pub manifests: Arc<ManifestStore>,
    /// Locked inside the `placing` lock where a put records its transaction id.
    pub txns: Mutex<JobTxns>,
    /// Wakes the flushing task.
    pub frozen: Notify,
    pub progress: watch::Sender<FlushProgress>,
    pub counters: FlushCounters,
}

/// The manifest that lists a generation, and the time by which expired applications were removed.
struct Listed {
    manifest: Arc<ShardManifest>,
    now: Option<SystemTime>,
}

impl Flusher {
    pub fn search_indexes(&self) -> Arc<[Arc<dyn MakeIndex>]> {
        self.sink.search_indexes()
    }

    pub fn new(sink: Arc<dyn SsTableSink>, manifests: Arc<ManifestStore>, txns: JobTxns) -> Self {
        Self {
            sink,
            manifests,
            txns: Mutex::new(txns),
            frozen: Notify::new(),
            progress: watch::channel(FlushProgress::default()).0,
            counters: FlushCounters::default(),
        }
    }

    /// Writes the SSTable of `rows`, then the manifest version that lists the SSTable and covers
    /// the log through `covered`. `recorded` are the transaction ids in the manifest before.
    async fn list(
        &self,
        epoch: WriterEpoch,
        rows: &MemTableView,
        covered: WalPosition,
        recorded: &Txns,
    ) -> Result<Listed> {
        let generation = rows.generation();
        let sstable = self.sink.write(rows).await?;
        let txns = self.txns.lock().of(generation);
        let now = expiry(&self.manifests, recorded).await;
        let list = |manifest: &mut ShardManifest| {
            // An earlier attempt succeeded, and its answer was lost.
            if manifest.current_generation > generation {
                return;
            }
            manifest.sstables.push(sstable.clone());
            manifest.txns.merge(&txns);
            manifest.txns.forget_old(&txns, now);
            manifest.current_generation = generation.next();
            manifest.replay_after_wal_entry_position = covered;
            manifest.wal_entry_position_last_seen =
                manifest.wal_entry_position_last_seen.max(covered);
        };
        let manifest = self.manifests.update(epoch, list).await?;
        Ok(Listed { manifest, now })
    }

    /// Starts the failed flush again, if the last flush failed.
    pub fn retry_failed(&self) {
        let again = self
            .progress
            .send_if_modified(|progress| !progress.ended && progress.failure.take().is_some());
        if again {
            self.frozen.notify_one();
        }
    }

    /// Ends the flushes: all present and later waits for a flush return an error, `why` by default.
    pub fn end(&self, why: Error) {
        self.progress.send_modify(|progress| {
            progress.ended = true;
            progress.failure.get_or_insert(why);
        });
    }

    /// Returns when the flushing task has ended, after the flush that ran when the job stopped.
    pub async fn wait_ended(&self) {
        // The sender lives in `self`, so waiting cannot fail.
        let _ = self.progress.subscribe().wait_for(|progress| progress.ended).await;
    }

    /// Waits until `generation` is flushed. The caller subscribes to `progress` before it freezes
    /// the generation, so that no change is missed.
    ///
    /// # Errors
    /// The error of the flush.
    pub async fn wait_flushed(
        progress: &mut watch::Receiver<FlushProgress>,
        generation: Generation,
        shard: ShardId,
    ) -> Result<()> {
        let reached = progress
            .wait_for(|progress| progress.flushed >= generation || progress.failure.is_some())
            .await
            .map_err(|_| Error::Closed { shard })?;
        if reached.flushed >= generation {
            return Ok(());
        }
        reached.failure.clone().map_or(Ok(()), Err)
    }
}

impl Shared {
    /// Freezes the active MemTable and opens the next one; `None` where the active one is empty.
    ///
    /// The guard proves that every batch in the MemTable is in the log's queue too.
    pub(super) fn freeze(&self, _placing: &MutexGuard<'_, ()>) -> Option<Generation> {
        let state = self.state();
        let generation = state.active.memtable.generation();
        if state.active.memtable.rows() == 0 {
            return None;
        }
        let layout = memtable_layout(&self.follower.schema(), self.config.key_index);
        let memtable = Arc::new(MemTable::new(generation.next(), layout));
        let next = LiveMemTable { memtable, recovered: 0, first_queued: self.log.queue.queued() };
        self.publish(state.with_frozen(next));
        self.log.queue.hurry();
        self.flusher.frozen.notify_one();
        Some(generation)
    }

    /// Flushes all rows that were put before the call; returns when the manifest lists them.
    pub(super) async fn flush_all(&self) -> Result<()> {
        let mut progress = self.flusher.progress.subscribe();
        let generation = {
            let placing = self.placing.lock();
            self.flusher.retry_failed();
            let frozen_last = self.state().frozen.last().map(|live| live.memtable.generation());
            self.freeze(&placing).or(frozen_last)
        };
        let Some(generation) = generation else {
            self.follow_table().await;
            return Ok(());
        };
        Flusher::wait_flushed(&mut progress, generation, self.shard_id).await
    }

    /// Flushes frozen MemTables until the job stops.
    pub(super) async fn run_flushes(self: Arc<Self>) {
        let end = TaskEnd::of(&self, "flush");
        while !self.is_stopped() {
            while let Some(oldest) = self.state().frozen.first().cloned() {
                if let Err(error) = self.flush_with_retries(&oldest).await {
                    if matches!(error.kind(), ErrorKind::Fenced | ErrorKind::Reopen) {
                        self.fail(error.clone());
                    }
                    self.flusher.progress.send_modify(|progress| progress.failure = Some(error));
                    break;
                }
            }
            if !self.is_stopped() {
                self.wait_for_frozen().await;
            }
        }
        self.end_flushes();
        end.expected();
    }

    /// Returns when a MemTable was frozen. A MemTable without a put for a whole interval is frozen
    /// here (idle flush), so `flushed` readers see the rows even when the stream pauses.
    async fn wait_for_frozen(&self) {
        let interval = self.config.idle_flush_interval;
        let frozen = self.flusher.frozen.notified();
        if interval.is_zero() {
            return frozen.await;
        }
        let before = self.active_size();
        if tokio::time::timeout(interval, frozen).await.is_ok() {
            return;
        }
        let placing = self.placing.lock();
        if self.active_size() == before && !self.is_closed() {
            self.freeze(&placing);
        }
    }

    /// Generation and batches of the active MemTable; changes with every put.
    fn active_size(&self) -> (Generation, usize) {
        let active = &self.state().active.memtable;
        (active.generation(), active.batches())
    }

    /// [`Flusher::end`] with the error that stopped the job.
    pub(super) fn end_flushes(&self) {
        let stopped = self.log.queue.check().err();
        self.flusher.end(stopped.unwrap_or(Error::Closed { shard: self.shard_id }));
    }

    async fn flush_with_retries(&self, oldest: &LiveMemTable) -> Result<()> {
        let mut backoff = Backoff::exponential(MAX_ATTEMPTS, FIRST_PAUSE, Duration::MAX);
        loop {
            let error = match self.flush_one(oldest).await {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            let passing = error.kind() == ErrorKind::Retry;
            if !passing || backoff.is_last() {
                return Err(error);
            }
            let attempt = backoff.attempt();
            tracing::warn!(shard = %self.shard_id, attempt, %error, "a flush failed and is repeated");
            backoff.wait().await;
        }
    }

    /// Flushes one MemTable. The order SSTable, manifest, memory guarantees that a reader finds the
    /// rows in at least one of the places.
    async fn flush_one(&self, oldest: &LiveMemTable) -> Result<()> {
        self.log.queue.wait_durable(oldest.last_queued()).await?;
        let generation = oldest.memtable.generation();
        let covered = self.log.covered_position(generation)?;
        let started = Instant::now();
        let rows = oldest.memtable.view(oldest.memtable.batches());
        let before = self.state().manifest.clone();
        let listed = self.flusher.list(self.epoch, &rows, covered, &before.txns).await?;
        {
            let _placing = self.placing.lock();
            let state = self.state().with_flushed(generation, listed.manifest);
            self.publish(state);
        }
        self.log.forget(generation);
        self.flusher.txns.lock().flushed(generation, listed.now);
        let bytes = oldest.memtable.bytes();
        self.admission.release(bytes);
        oldest.memtable.close_index_account();
        let time = started.elapsed();
        self.flusher.counters.flushed(bytes, time);
        self.log_flush(&rows, bytes, time);
        self.follow_table().await;
        self.flusher.progress.send_modify(|progress| {
            progress.flushed = generation;
            progress.failure = None;
        });
        Ok(())
    }
}
