//! The single writer of a shard and its put path.
//!
//! Owns: the order of a put: check, accept, admit, place, queue, wait.
//! Does not own: how a MemTable, the log or a flush do their part.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow_array::RecordBatch;
use parking_lot::{Mutex, RwLock};
use tokio::sync::{Notify, watch};

use super::flush::FlushProgress;
use super::state::{ShardSnapshot, ShardState};
use super::stats::{Counters, JobStats};
use super::task_end::TaskEnd;
use super::{ShardIdentity, SsTableSink};
use crate::format::wal_entry::row_bytes;
use crate::format::{AcceptedRows, RowSchema};
use crate::store::ManifestStore;
use crate::types::{Error, Generation, Result, ShardId, WalPosition, WriterConfig, WriterEpoch};
use crate::wal::{Queued, WalAppender, WalQueue};

/// What a put promises once it returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acknowledged {
    /// Rows accepted.
    pub rows: usize,
    /// Whether they are in the WAL, on disk where the job syncs files.
    pub durable: bool,
}

/// The single writer of a shard. Share it behind an [`Arc`]; dropping it ends the job after
/// what was queued is in the log.
#[derive(Debug)]
pub struct ShardWriter {
    pub(super) shared: Arc<Shared>,
}

/// What the putting threads, the appending task and the flushing task share.
#[derive(Debug)]
pub(super) struct Shared {
    pub shard_id: ShardId,
    pub identity: ShardIdentity,
    pub epoch: WriterEpoch,
    pub schema: Arc<RowSchema>,
    pub config: WriterConfig,
    pub manifests: Arc<ManifestStore>,
    pub sink: Arc<dyn SsTableSink>,
    pub queue: WalQueue,
    /// Held from a batch's push into the MemTable to its place in the queue.
    pub placing: Mutex<()>,
    pub state: RwLock<Arc<ShardState>>,
    /// The newest entry of every generation that is not flushed.
    pub last_positions: Mutex<BTreeMap<Generation, WalPosition>>,
    pub frozen: Notify,
    pub flushes: watch::Sender<FlushProgress>,
    pub counters: Counters,
    pub closed: AtomicBool,
    pub stopped: AtomicBool,
}

impl ShardWriter {
    /// Adds or replaces rows. Returns when they are in memory and, with `durable_write`, in the
    /// log.
    ///
    /// # Errors
    /// Input errors name column and row and leave nothing written. A fenced, stopped or closed
    /// job refuses.
    pub async fn put(&self, rows: &RecordBatch) -> Result<Acknowledged> {
        self.shared.check_open()?;
        let rows = self.shared.schema.accept(rows)?;
        self.shared.place(rows).await
    }

    /// Deletes the rows with these keys, whether they exist or not.
    ///
    /// # Errors
    /// As [`Self::put`].
    pub async fn delete(&self, keys: &RecordBatch) -> Result<Acknowledged> {
        self.shared.check_open()?;
        let rows = self.shared.schema.accept_keys(keys)?;
        self.shared.place(rows).await
    }

    /// Flushes everything that was put before the call; returns when the manifest lists it.
    ///
    /// # Errors
    /// Why the flush failed; the rows stay durable in the log.
    pub async fn flush(&self) -> Result<()> {
        let shared = &self.shared;
        shared.check_open()?;
        shared.flush_all().await
    }

    /// Ends the job: waits until every put is durable, and with `flush` until it is flushed.
    ///
    /// # Errors
    /// Why rows that were put could not be made durable. A second call does nothing.
    pub async fn close(&self, flush: bool) -> Result<()> {
        let shared = &self.shared;
        {
            let _placing = shared.placing.lock();
            if shared.closed.swap(true, Ordering::AcqRel) {
                return Ok(());
            }
        }
        shared.queue.hurry();
        let durable = shared.queue.wait_durable(shared.queue.queued()).await;
        let flushed = if flush && durable.is_ok() { shared.flush_all().await } else { Ok(()) };
        shared.stop();
        durable.and(flushed)
    }

    /// The readable rows in memory and the manifest below them, as one cut.
    ///
    /// # Errors
    /// A fenced or stopped job refuses: its memory may hold rows that nobody else will see.
    pub fn snapshot(&self) -> Result<ShardSnapshot> {
        self.shared.queue.check()?;
        Ok(self.shared.snapshot())
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

    /// The job's counters.
    #[must_use]
    pub fn stats(&self) -> JobStats {
        self.shared.stats()
    }
}

impl Drop for ShardWriter {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::Release);
        self.shared.stop();
    }
}

impl Shared {
    /// The write path after acceptance. The order is the contract: route, admit, place, wait.
    async fn place(&self, rows: AcceptedRows) -> Result<Acknowledged> {
        self.identity.refuse_foreign_rows(&rows.batch)?;
        let total = rows.batch.num_rows();
        let piece = self.config.max_memtable_rows;
        for offset in (0..total).step_by(piece) {
            let rows = rows.slice(offset, piece.min(total - offset));
            self.wait_for_memory().await?;
            let queued = self.place_piece(rows)?;
            if self.config.durable_write {
                self.queue.hurry();
                self.queue.wait_durable(queued).await?;
            }
        }
        Counters::add(&self.counters.puts, 1);
        Counters::add(&self.counters.rows, total);
        Ok(Acknowledged { rows: total, durable: self.config.durable_write })
    }

    /// One lock from memory to log, so that the log's order is the rows' order.
    fn place_piece(&self, rows: AcceptedRows) -> Result<u64> {
        let placing = self.placing.lock();
        self.check_open()?;
        if self.is_full_for(rows.batch.num_rows()) {
            self.freeze(&placing);
        }
        let active = self.state().active.memtable.clone();
        let queued = Queued { generation: active.generation(), batch: rows.batch.clone() };
        active.push(rows.batch, rows.keys);
        Ok(self.queue.push(queued))
    }

    /// Whether `more` rows belong into the next MemTable. Batches and rows are bounded exactly:
    /// lance refuses to replay a generation that its own limits could not have held.
    fn is_full_for(&self, more: usize) -> bool {
        let active = &self.state().active.memtable;
        active.rows() > 0
            && (active.rows() + more > self.config.max_memtable_rows
                || active.batches() + 1 > self.config.max_memtable_batches
                || active.bytes() >= self.config.max_memtable_size)
    }

    /// Appends group by group until the queue is closed or the log refuses.
    pub(super) async fn run_appends(self: Arc<Self>, mut appender: WalAppender) {
        let end = TaskEnd::of(&self, "append");
        while let Some(group) = self.queue.next_group(self.config.max_wal_flush_interval).await {
            let Some(generation) = group.first().map(|queued| queued.generation) else { continue };
            let batches: Vec<RecordBatch> = group.into_iter().map(|queued| queued.batch).collect();
            match appender.append(&batches, generation).await {
                Ok(position) => self.appended(generation, position, &batches),
                Err(error) => {
                    tracing::error!(shard = %self.shard_id, %error, "the job stops");
                    self.queue.fail(error);
                    break;
                }
            }
        }
        end.expected();
        self.frozen.notify_one();
    }

    /// Records the position before anybody learns that the rows are durable.
    fn appended(&self, generation: Generation, position: WalPosition, batches: &[RecordBatch]) {
        self.last_positions.lock().insert(generation, position);
        let bytes = batches.iter().map(row_bytes).sum();
        Counters::add(&self.counters.wal_entries, 1);
        Counters::add(&self.counters.wal_bytes, bytes);
        self.counters.wal_position.store(position.get(), Ordering::Relaxed);
        self.queue.advance(batches.len());
    }

    async fn flush_all(&self) -> Result<()> {
        let mut progress = self.flushes.subscribe();
        let generation = {
            let placing = self.placing.lock();
            self.retry_failed_flush();
            let frozen_last = self.state().frozen.last().map(|live| live.memtable.generation());
            self.freeze(&placing).or(frozen_last)
        };
        let Some(generation) = generation else { return Ok(()) };
        self.wait_flushed(&mut progress, generation).await
    }

    fn snapshot(&self) -> ShardSnapshot {
        let durable = self.queue.durable().batches;
        let state = self.state();
        let memtables = state
            .memtables()
            .map(|live| {
                let batches = if self.config.durable_write {
                    live.durable_batches(durable)
                } else {
                    live.memtable.batches()
                };
                live.memtable.view(batches)
            })
            .filter(|view| view.rows() > 0)
            .collect();
        ShardSnapshot { manifest: state.manifest.clone(), memtables }
    }

    fn stats(&self) -> JobStats {
        let state = self.state();
        let read = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        JobStats {
            shard_id: self.shard_id,
            writer_epoch: self.epoch,
            puts: read(&self.counters.puts),
            rows: read(&self.counters.rows),
            wal_entries: read(&self.counters.wal_entries),
            wal_bytes: read(&self.counters.wal_bytes),
            wal_position: WalPosition(read(&self.counters.wal_position)),
            flushes: read(&self.counters.flushes),
            active_generation: state.active.memtable.generation(),
            active_rows: state.active.memtable.rows() as u64,
            frozen_memtables: state.frozen.len() as u64,
            memtable_bytes: state.memtable_bytes() as u64,
            backpressure_ms: read(&self.counters.backpressure_ms),
        }
    }

    pub(super) fn state(&self) -> Arc<ShardState> {
        self.state.read().clone()
    }

    /// Swaps the state; the caller holds the placing lock.
    pub(super) fn publish(&self, state: ShardState) {
        *self.state.write() = Arc::new(state);
    }

    pub(super) fn has_key(&self) -> bool {
        !self.schema.key().names().is_empty()
    }

    fn check_open(&self) -> Result<()> {
        self.queue.check()?;
        if self.is_closed() { Err(Error::Closed { shard: self.shard_id }) } else { Ok(()) }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire) || self.queue.check().is_err()
    }

    fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.queue.close();
        self.frozen.notify_one();
    }
}
