//! Frozen MemTables to flushed SSTables, oldest first, in the background.
//!
//! Owns: freezing, the order SSTable, then manifest, then memory; retries into new folders.
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
use crate::memtable::{MemTable, MemTableView};
use crate::store::ManifestStore;
use crate::types::{Error, ErrorKind, Generation, Result, ShardId, Txns, WalPosition, WriterEpoch};

const MAX_ATTEMPTS: u32 = 4;
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// How far the flushes have come.
#[derive(Clone, Debug, Default)]
pub(super) struct FlushProgress {
    /// Every generation up to this one is flushed.
    pub flushed: Generation,
    /// Why the oldest frozen MemTable could not be flushed; a later attempt clears it.
    pub failure: Option<Error>,
    /// Whether no flush will follow: the failure stays.
    pub ended: bool,
}

/// What turns a frozen MemTable into an SSTable that the shard manifest lists.
#[derive(Debug)]
pub(super) struct Flusher {
    sink: Arc<dyn SsTableSink>,
    pub manifests: Arc<ManifestStore>,
    /// Taken inside the placing lock where a put records its transaction id.
    pub txns: Mutex<JobTxns>,
    /// Wakes the flushing task.
    pub frozen: Notify,
    pub progress: watch::Sender<FlushProgress>,
    pub counters: FlushCounters,
}

/// A generation that the manifest lists, and the time by which applications have expired in it.
struct Listed {
    manifest: Arc<ShardManifest>,
    now: Option<SystemTime>,
}

impl Flusher {
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

    /// Writes the SSTable of `rows`, then the manifest of the job of `epoch` that lists it and covers
    /// the log up to `covered`. `recorded` are the transaction ids that the manifest has.
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
            // An earlier attempt was written, and its answer was lost.
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

    /// Starts the flush again that failed last, if one did.
    pub fn retry_failed(&self) {
        let again = self
            .progress
            .send_if_modified(|progress| !progress.ended && progress.failure.take().is_some());
        if again {
            self.frozen.notify_one();
        }
    }

    /// Answers all callers that wait for a flush, now and later: there will be none, because of `why`.
    pub fn end(&self, why: Error) {
        self.progress.send_modify(|progress| {
            progress.ended = true;
            progress.failure.get_or_insert(why);
        });
    }

    /// Returns when the flush that ran when the job stopped, if one did, is over.
    pub async fn wait_ended(&self) {
        // The sender lives in `self`, so waiting cannot fail.
        let _ = self.progress.subscribe().wait_for(|progress| progress.ended).await;
    }

    /// Waits until `generation` is flushed, as seen by `progress`, which the caller subscribed before
    /// it froze the generation.
    ///
    /// # Errors
    /// Why it could not be flushed.
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
    /// Closes the active MemTable for writes and opens the next; `None` where it is empty.
    ///
    /// The guard proves that no put is between its MemTable and its place in the log.
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

    /// Flushes everything that was put before the call; returns when the manifest lists it.
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

    /// Flushes all that is frozen until the job stops.
    pub(super) async fn run_flushes(self: Arc<Self>) {
        let end = TaskEnd::of(&self, "flush");
        while !self.is_stopped() {
            while let Some(oldest) = self.state().frozen.first().cloned() {
                if let Err(error) = self.flush_with_retries(&oldest).await {
                    if matches!(error.kind(), ErrorKind::Fenced | ErrorKind::Reopen) {
                        self.log.queue.fail(error.clone());
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

    /// Returns when a MemTable was frozen. One that got no put for a whole interval is frozen
    /// here, so rows reach the SSTable that readers elsewhere list even when the stream pauses.
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

    /// Changes with every put.
    fn active_size(&self) -> (Generation, usize) {
        let active = &self.state().active.memtable;
        (active.generation(), active.batches())
    }

    /// [`Flusher::end`] because of what stopped the job.
    pub(super) fn end_flushes(&self) {
        let stopped = self.log.queue.check().err();
        self.flusher.end(stopped.unwrap_or(Error::Closed { shard: self.shard_id }));
    }

    async fn flush_with_retries(&self, oldest: &LiveMemTable) -> Result<()> {
        let mut pause = FIRST_PAUSE;
        let mut attempt = 1;
        loop {
            let error = match self.flush_one(oldest).await {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            let passing = error.kind() == ErrorKind::Retry;
            if !passing || attempt == MAX_ATTEMPTS {
                return Err(error);
            }
            tracing::warn!(shard = %self.shard_id, attempt, %error, "a flush failed and is repeated");
            #[expect(
                clippy::disallowed_methods,
                reason = "the pause is the point; no decision reads the clock"
            )]
            tokio::time::sleep(pause).await;
            pause *= 2;
            attempt += 1;
        }
    }

    /// SSTable, then manifest, then memory: a reader finds the rows in at least one of them.
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
        self.flusher.counters.flushed(bytes, started.elapsed());
        self.follow_table().await;
        self.flusher.progress.send_modify(|progress| {
            progress.flushed = generation;
            progress.failure = None;
        });
        Ok(())
    }
}
