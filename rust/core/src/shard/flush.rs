//! Frozen MemTables to flushed SSTables, oldest first, in the background.
//!
//! Owns: freezing, the order run file, then manifest, then memory; retries into new folders.
//! Does not own: the files of an SSTable.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::MutexGuard;
use tokio::sync::watch;
use tokio::time::Instant;

use super::memtable_layout;
use super::state::LiveMemTable;
use super::stats::Counters;
use super::task_guard::TaskEnd;
use super::transactions::expiry;
use super::writer::Shared;
use crate::format::ShardManifest;
use crate::memtable::MemTable;
use crate::types::{Error, ErrorKind, Generation, Result, WalPosition};

const ATTEMPTS: u32 = 4;
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
        let layout = memtable_layout(&self.schema(), self.config.key_index);
        let memtable = Arc::new(MemTable::new(generation.next(), layout));
        let next = LiveMemTable { memtable, recovered: 0, first_queued: self.queue.queued() };
        self.publish(state.with_frozen(next));
        self.queue.hurry();
        self.frozen.notify_one();
        Some(generation)
    }

    /// Flushes whatever is frozen until the job stops.
    pub(super) async fn run_flushes(self: Arc<Self>) {
        let end = TaskEnd::of(&self, "flush");
        while !self.is_stopped() {
            while let Some(oldest) = self.state().frozen.first().cloned() {
                if let Err(error) = self.flush_with_retries(&oldest).await {
                    if matches!(error.kind(), ErrorKind::Fenced | ErrorKind::Reopen) {
                        self.queue.fail(error.clone());
                    }
                    self.flushes.send_modify(|progress| progress.failure = Some(error));
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
        if interval.is_zero() {
            return self.frozen.notified().await;
        }
        let before = self.active_size();
        if tokio::time::timeout(interval, self.frozen.notified()).await.is_ok() {
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

    /// Answers everybody who waits for a flush, now and later: there will be none.
    pub(super) fn end_flushes(&self) {
        let why = self.queue.check().err().unwrap_or(Error::Closed { shard: self.shard_id });
        self.flushes.send_modify(|progress| {
            progress.ended = true;
            progress.failure.get_or_insert(why);
        });
    }

    /// Starts the flush again that failed last, if one did.
    pub(super) fn retry_failed_flush(&self) {
        let again = self
            .flushes
            .send_if_modified(|progress| !progress.ended && progress.failure.take().is_some());
        if again {
            self.frozen.notify_one();
        }
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
            if !passing || attempt == ATTEMPTS {
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

    /// Run, then manifest, then memory: a reader finds the rows in at least one of them.
    async fn flush_one(&self, oldest: &LiveMemTable) -> Result<()> {
        self.queue.wait_durable(oldest.last_queued()).await?;
        let generation = oldest.memtable.generation();
        let covered = self.covered_position(generation)?;
        let started = Instant::now();
        let rows = oldest.memtable.view(oldest.memtable.batches());
        let sstable = self.sink.write(&rows).await?;
        let txns = self.txns.lock().of(generation);
        let now = expiry(&self.manifests, &self.state().manifest.txns).await;
        let manifest = self
            .manifests
            .update(self.epoch, |manifest: &mut ShardManifest| {
                // An earlier attempt landed although nobody saw its answer.
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
            })
            .await?;
        {
            let _placing = self.placing.lock();
            let state = self.state().with_flushed(generation, manifest);
            self.publish(state);
        }
        self.last_positions.lock().remove(&generation);
        self.txns.lock().flushed(generation, now);
        let bytes = oldest.memtable.bytes();
        self.admission.release(bytes);
        Counters::add(&self.counters.flushes, 1);
        Counters::add(&self.counters.flushed_bytes, bytes);
        let took = usize::try_from(started.elapsed().as_millis()).unwrap_or(usize::MAX);
        Counters::add(&self.counters.flush_ms, took);
        self.follow_table().await;
        self.flushes.send_modify(|progress| {
            progress.flushed = generation;
            progress.failure = None;
        });
        Ok(())
    }

    /// Returns when the flush that ran when the job stopped, if one did, is over.
    pub(super) async fn wait_flushes_ended(&self) {
        // The sender lives in `self`, so waiting cannot fail.
        let _ = self.flushes.subscribe().wait_for(|progress| progress.ended).await;
    }

    fn covered_position(&self, generation: Generation) -> Result<WalPosition> {
        if mutant!("B3") {
            let newest = self.last_positions.lock().values().max().copied();
            return newest.ok_or_else(|| Error::Internal("no WAL entry".to_owned()));
        }
        self.last_positions.lock().get(&generation).copied().ok_or_else(|| {
            Error::Internal(format!("generation {generation} is durable but has no WAL entry"))
        })
    }

    /// Waits until `generation` is flushed.
    ///
    /// # Errors
    /// Why it could not be flushed.
    pub(super) async fn wait_flushed(
        &self,
        progress: &mut watch::Receiver<FlushProgress>,
        generation: Generation,
    ) -> Result<()> {
        let reached = progress
            .wait_for(|progress| progress.flushed >= generation || progress.failure.is_some())
            .await
            .map_err(|_| Error::Closed { shard: self.shard_id })?;
        if reached.flushed >= generation {
            return Ok(());
        }
        reached.failure.clone().map_or(Ok(()), Err)
    }
}
