//! The single writer of a shard and its put path.
//!
//! Owns: the order of a put: check, accept, admit, place, queue, wait.
//! Does not own: how a MemTable, the log or a flush do their part.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arrow_array::RecordBatch;
use parking_lot::{Mutex, RwLock};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::admission::Admission;
use super::flush::FlushProgress;
use super::state::{ShardSnapshot, ShardState};
use super::stats::{Counters, JobStats};
use super::task_guard::TaskEnd;
use super::transactions::JobTxns;
use super::turn::PlannedEntry;
use super::{ShardIdentity, SsTableSink};
use crate::format::{AcceptedRows, RowSchema};
use crate::memtable::MemTable;
use crate::store::ManifestStore;
use crate::types::{
    Error, ErrorKind, Generation, MAX_PUT_BYTES, Result, ShardId, Txn, WalPosition, WriterConfig,
    WriterEpoch,
};
use crate::wal::{Queued, WalAppender, WalQueue};

/// Rows of a durable put whose keys the indexing task may index while the log is written.
const INDEXED_BESIDE: usize = 256;
/// Batches that the indexing task takes before it lets others run.
const INDEX_STEP: usize = 16;

/// What one put asks for; where it says nothing, the job's settings hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteMode {
    /// Whether to return only after the rows are in the WAL.
    pub durable: Option<bool>,
    /// Whether to return only after the keys are in the key index.
    pub sync_index: Option<bool>,
    /// Whether the thread that polls the put does nothing else meanwhile. One that may wait for a
    /// disk ([`waiting_here`](crate::store::waiting_here)) then writes the log itself.
    pub alone: bool,
}

/// What a put promises once it returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acknowledged {
    /// Rows accepted.
    pub rows: usize,
    /// Whether they are in the WAL, on disk where the job syncs files.
    pub durable: bool,
    /// Whether the key index has them; without it reads that need the index add them first.
    pub indexed: bool,
    /// Whether the put's transaction id said that this was written before; then nothing was.
    pub already_written: bool,
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
    /// Where the fence of its claim stands: its first entry is the next one.
    pub sentinel: WalPosition,
    /// What puts are accepted and stored as now; swapped under the placing lock.
    pub schema: RwLock<Arc<RowSchema>>,
    /// Held from a look at the table's columns until they are followed: the newest look that was.
    pub following: tokio::sync::Mutex<u64>,
    /// Looks that were begun.
    pub looks: AtomicU64,
    /// Why nothing is accepted: the table changed in a way that the job cannot follow.
    pub refused: Mutex<Option<Error>>,
    pub config: WriterConfig,
    pub manifests: Arc<ManifestStore>,
    pub sink: Arc<dyn SsTableSink>,
    pub queue: WalQueue,
    /// Held from a batch's push into the MemTable to its place in the queue.
    pub placing: Mutex<()>,
    pub state: RwLock<Arc<ShardState>>,
    /// The newest entry of every generation that is not flushed.
    pub last_positions: Mutex<BTreeMap<Generation, WalPosition>>,
    /// Taken inside the placing lock where a put records its transaction id.
    pub txns: Mutex<JobTxns>,
    pub admission: Admission,
    /// Batches that a put which did not wait for the log has acknowledged: readable all the same.
    pub acknowledged: AtomicU64,
    pub unindexed: Notify,
    pub frozen: Notify,
    pub flushes: watch::Sender<FlushProgress>,
    pub counters: Counters,
    pub closed: AtomicBool,
    /// Held by the call of `close` that ends the job; how it ended.
    pub closing: tokio::sync::Mutex<Option<JobEnd>>,
    pub stopped: AtomicBool,
    /// Held by the appending task for as long as it runs.
    pub appending: tokio::sync::Mutex<()>,
    /// Held by whoever appends; gone with the appending task, and then nobody does.
    pub appender: Arc<tokio::sync::Mutex<Option<WalAppender>>>,
    /// Whether the newest entry has rows of several puts.
    pub crowded: AtomicBool,
}

impl ShardWriter {
    /// Adds or replaces rows. Returns when they are in memory and, with `durable_write`, in the
    /// log.
    ///
    /// # Errors
    /// Input errors name column and row and leave nothing written. A fenced, stopped or closed
    /// job refuses.
    pub async fn put(&self, rows: &RecordBatch) -> Result<Acknowledged> {
        self.put_with(rows, WriteMode::default()).await
    }

    /// [`Self::put`] with another promise than the job's.
    ///
    /// # Errors
    /// As [`Self::put`].
    pub async fn put_with(&self, rows: &RecordBatch, mode: WriteMode) -> Result<Acknowledged> {
        self.put_txn(rows, mode, None).await
    }

    /// [`Self::put_with`] of all rows that `txn` has in this shard. They become durable with
    /// the transaction id or not at all, and only where it is not recorded yet. A put without rows records
    /// nothing.
    ///
    /// # Errors
    /// As [`Self::put`]; stale where a newer version of the application is written.
    pub async fn put_txn(
        &self,
        rows: &RecordBatch,
        mode: WriteMode,
        txn: Option<&Txn>,
    ) -> Result<Acknowledged> {
        self.shared.check_open()?;
        let schema = self.shared.schema();
        let rows = schema.accept(rows)?;
        self.shared.place(&schema, rows, mode, txn).await
    }

    /// Deletes the rows with these keys, whether they exist or not.
    ///
    /// # Errors
    /// As [`Self::put`].
    pub async fn delete(&self, keys: &RecordBatch) -> Result<Acknowledged> {
        self.delete_with(keys, WriteMode::default()).await
    }

    /// [`Self::delete`] with another promise than the job's.
    ///
    /// # Errors
    /// As [`Self::put`].
    pub async fn delete_with(&self, keys: &RecordBatch, mode: WriteMode) -> Result<Acknowledged> {
        self.delete_txn(keys, mode, None).await
    }

    /// [`Self::delete_with`] of all keys that `txn` deletes in this shard, as
    /// [`Self::put_txn`].
    ///
    /// # Errors
    /// As [`Self::put_txn`].
    pub async fn delete_txn(
        &self,
        keys: &RecordBatch,
        mode: WriteMode,
        txn: Option<&Txn>,
    ) -> Result<Acknowledged> {
        self.shared.check_open()?;
        let schema = self.shared.schema();
        let rows = schema.accept_keys(keys)?;
        self.shared.place(&schema, rows, mode, txn).await
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
    /// When it returns, the job writes nothing any more.
    ///
    /// # Errors
    /// Why rows that were put could not be made durable, or flushed; where that was a passing fault
    /// of the storage, of kind reopen, because this job is at its end. A second call waits for the
    /// first one and goes on where that was cancelled; after the end it says how the job ended.
    pub async fn close(&self, flush: bool) -> Result<()> {
        let shared = &self.shared;
        {
            let _placing = shared.placing.lock();
            shared.closed.store(true, Ordering::Release);
        }
        let mut end = shared.closing.lock().await;
        if end.is_none() {
            shared.queue.hurry();
            let durable = shared.queue.wait_durable(shared.queue.queued()).await;
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

    /// The readable rows in memory and the manifest below them, as one cut.
    ///
    /// # Errors
    /// A fenced or stopped job refuses: its memory may hold rows that nobody else will see.
    pub fn snapshot(&self) -> Result<ShardSnapshot> {
        if !mutant!("B10") {
            self.shared.queue.check()?;
        }
        Ok(self.shared.snapshot())
    }

    /// Proves that the shard is still this job's: storage knows a later claim before the job
    /// does. A snapshot taken before this call lacks no durable row of the shard.
    ///
    /// # Errors
    /// A fenced, stopped or closed job refuses; a storage error.
    pub async fn check_owned(&self) -> Result<()> {
        self.shared.check_open()?;
        let owned = self.shared.manifests.check_fenced(self.shared.epoch).await;
        self.shared.stop_where_fenced(owned)
    }

    /// The columns and key of the rows that are put now.
    #[must_use]
    pub fn schema(&self) -> Arc<RowSchema> {
        self.shared.schema()
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

    /// The entry that the first put of this job becomes, for [`PlannedEntry::standing`].
    #[must_use]
    pub fn first_entry(&self) -> PlannedEntry {
        let shared = &self.shared;
        let position = shared.sentinel.next();
        PlannedEntry { shard_id: shared.shard_id, position, epoch: shared.epoch }
    }

    /// The job's counters.
    #[must_use]
    pub fn stats(&self) -> JobStats {
        self.shared.stats()
    }
}

/// What became of the rows of a job that was closed: one that was closed without a flush does not flush
/// any more.
#[derive(Clone, Debug)]
pub(super) struct JobEnd {
    durable: Result<()>,
    flushed: Result<()>,
}

impl JobEnd {
    /// To a call that asked for a flush, or for none.
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

/// Where a put's rows are.
enum Outcome {
    Placed(Placed),
    /// The transaction id is recorded; its rows are among the first so many batches of the job's log.
    AlreadyWritten(u64),
}

struct Placed {
    memtable: Arc<MemTable>,
    /// Batches of the MemTable up to and with this put's.
    batches: usize,
    /// Batches of the job's log up to and with this put's.
    queued: u64,
}

/// A put is never split.
fn refuse_too_much(rows: usize, bytes: usize) -> Result<()> {
    if u32::try_from(rows).is_err() {
        return Err(Error::input(format!("a put takes less than 2^32 rows, got {rows}")));
    }
    if bytes <= MAX_PUT_BYTES {
        return Ok(());
    }
    Err(Error::input(format!(
        "a put takes at most {MAX_PUT_BYTES} bytes, because it stands whole in one entry of the \
         log; got {bytes} in {rows} rows: put them in several batches"
    )))
}

impl Shared {
    /// The write path after acceptance. The order is the contract: route, admit, place, then
    /// wait for what was promised. A put is never split: it stands whole in one MemTable and in
    /// one WAL entry, so readers and replay see all of it or nothing.
    pub(super) async fn place(
        self: &Arc<Self>,
        schema: &RowSchema,
        rows: AcceptedRows,
        mode: WriteMode,
        txn: Option<&Txn>,
    ) -> Result<Acknowledged> {
        let durable = mode.durable.unwrap_or(self.config.durable_write);
        let indexed = mode.sync_index.unwrap_or(self.config.sync_indexed_write);
        let count = rows.batch.num_rows();
        if count == 0 {
            // The promise is that of any put: with it, all rows that were put before are durable.
            if durable {
                self.queue.hurry();
                self.wait_durable(self.queue.queued(), Instant::now()).await?;
            }
            return Ok(Acknowledged { rows: 0, durable, indexed, already_written: false });
        }
        refuse_too_much(count, rows.payload_bytes)?;
        self.identity.refuse_foreign_rows(&rows.batch)?;
        let keys = (indexed && schema.has_key()).then(|| schema.encode_keys(&rows));
        let bytes = rows.memory_bytes();
        let admitted = self.admit(bytes).await?;
        let placed = match self.push(AcceptedRows { keys, ..rows }, bytes, txn)? {
            Outcome::Placed(placed) => placed,
            Outcome::AlreadyWritten(queued) => {
                let asked_at = Instant::now();
                self.queue.hurry();
                self.wait_durable(queued, asked_at).await?;
                return Ok(Acknowledged { rows: 0, durable: true, indexed, already_written: true });
            }
        };
        admitted.placed();
        let queued_at = Instant::now();
        if durable && count >= INDEXED_BESIDE && !self.crowded.load(Ordering::Relaxed) {
            self.unindexed.notify_one();
        }
        if durable && !(mode.alone && self.append_here(placed.queued)) {
            self.queue.hurry();
        }
        if indexed {
            placed.memtable.index_through(placed.batches);
        } else {
            self.unindexed.notify_one();
        }
        if durable {
            let until = if mutant!("B8") { placed.batches as u64 } else { placed.queued };
            let until = if mutant!("B9") { 0 } else { until };
            self.wait_durable(until, queued_at).await?;
        } else {
            self.acknowledged.fetch_max(placed.queued, Ordering::AcqRel);
        }
        Counters::add(&self.counters.puts, 1);
        Counters::add(&self.counters.rows, count);
        Ok(Acknowledged { rows: count, durable, indexed, already_written: false })
    }

    /// One short lock from memory to log, so that the log's order is the rows' order.
    fn push(&self, rows: AcceptedRows, bytes: usize, txn: Option<&Txn>) -> Result<Outcome> {
        let placing = self.placing.lock();
        self.check_open()?;
        self.check_schema()?;
        let rows = self.schema().conform_accepted(rows)?;
        if let Some(txn) = txn
            && !self.txns.lock().is_new(self.shard_id, txn)?
        {
            return Ok(Outcome::AlreadyWritten(self.queue.queued()));
        }
        if self.is_full_for(rows.batch.num_rows()) {
            self.freeze(&placing);
        }
        let memtable = self.state().active.memtable.clone();
        let queued = Queued {
            generation: memtable.generation(),
            batch: rows.batch.clone(),
            bytes: rows.payload_bytes,
            txn: txn.cloned(),
        };
        if let Some(txn) = txn {
            self.txns.lock().record(queued.generation, txn);
        }
        let batches = memtable.push(rows.batch, rows.keys, bytes);
        Ok(Outcome::Placed(Placed { batches, queued: self.queue.push(queued), memtable }))
    }

    /// Whether `more` rows belong into the next MemTable. Batches and rows are bounded exactly:
    /// lance refuses to replay a generation that its own limits could not have held, unless a
    /// single put brought all of it.
    fn is_full_for(&self, more: usize) -> bool {
        let active = &self.state().active.memtable;
        active.rows() > 0
            && (active.rows() + more > self.config.max_memtable_rows
                || active.batches() + 1 > self.config.max_memtable_batches
                || active.bytes() >= self.config.max_memtable_size)
    }

    /// Waits for a put's entry; the wait counts from `since`, because the entry may be written
    /// while the put still indexes its keys.
    async fn wait_durable(&self, queued: u64, since: Instant) -> Result<()> {
        self.queue.wait_durable(queued).await?;
        self.counters.durable_waits.record(since.elapsed());
        Ok(())
    }

    /// Indexes what puts left to this task, a few batches at a time.
    pub(super) async fn run_indexing(self: Arc<Self>) {
        let end = TaskEnd::of(&self, "indexing");
        while !self.is_stopped() {
            for live in self.state().memtables() {
                while live.memtable.index_more(INDEX_STEP) && !self.is_stopped() {
                    tokio::task::yield_now().await;
                }
            }
            self.unindexed.notified().await;
        }
        end.expected();
    }

    /// Returns when neither an append nor a flush is on its way.
    async fn wait_tasks_ended(&self) {
        if !mutant!("L2") {
            drop(self.appending.lock().await);
        }
        self.wait_flushes_ended().await;
    }

    pub(super) async fn flush_all(&self) -> Result<()> {
        let mut progress = self.flushes.subscribe();
        let generation = {
            let placing = self.placing.lock();
            self.retry_failed_flush();
            let frozen_last = self.state().frozen.last().map(|live| live.memtable.generation());
            self.freeze(&placing).or(frozen_last)
        };
        let Some(generation) = generation else {
            self.follow_table().await;
            return Ok(());
        };
        self.wait_flushed(&mut progress, generation).await
    }

    /// Rows are readable once they are durable or acknowledged without that, in put order.
    fn snapshot(&self) -> ShardSnapshot {
        let acknowledged = self.acknowledged.load(Ordering::Acquire);
        let readable = self.queue.durable().batches.max(acknowledged);
        let state = self.state();
        let memtables = state
            .memtables()
            .map(|live| live.memtable.view(live.batches_among(readable)))
            .filter(|view| view.rows() > 0)
            .collect();
        ShardSnapshot { manifest: state.manifest.clone(), memtables }
    }

    /// Stops the job where `answer` is that a later claim took the shard: no put that is on its way is
    /// acknowledged any more.
    pub(super) fn stop_where_fenced<T>(&self, answer: Result<T>) -> Result<T> {
        if let Err(fenced @ Error::Fenced { .. }) = &answer {
            self.queue.fail(fenced.clone());
        }
        answer
    }

    /// Stops the job, because what its closing flush could not do no later call does.
    fn at_its_end(&self, error: Error) -> Error {
        if error.kind() != ErrorKind::Retry {
            return error;
        }
        let reason = format!("it could not be flushed when it was closed: {error}");
        let stopped = Error::Poisoned { shard: self.shard_id, reason };
        self.queue.fail(stopped.clone());
        stopped
    }

    fn stats(&self) -> JobStats {
        let state = self.state();
        let counters = &self.counters;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let unindexed: usize = state.memtables().map(|live| live.memtable.unindexed_rows()).sum();
        JobStats {
            shard_id: self.shard_id,
            writer_epoch: self.epoch,
            puts: read(&counters.puts),
            rows: read(&counters.rows),
            wal_entries: read(&counters.wal_entries),
            wal_batches: read(&counters.wal_batches),
            wal_bytes: read(&counters.wal_bytes),
            wal_position: WalPosition(read(&counters.wal_position)),
            durable_wait_p50_us: counters.durable_waits.quantile_us(0.5),
            durable_wait_p99_us: counters.durable_waits.quantile_us(0.99),
            flushes: read(&counters.flushes),
            flushed_bytes: read(&counters.flushed_bytes),
            flush_ms: read(&counters.flush_ms),
            active_generation: state.active.memtable.generation(),
            active_rows: state.active.memtable.rows() as u64,
            active_batches: state.active.memtable.batches() as u64,
            frozen_memtables: state.frozen.len() as u64,
            uncompacted_generations: state.manifest.sstables.len() as u64,
            memtable_bytes: self.admission.bytes() as u64,
            unindexed_rows: unindexed as u64,
            backpressure_ms: read(&counters.backpressure_ms),
            backpressure_puts: read(&counters.backpressure_puts),
            waiting_puts: self.admission.waiting() as u64,
        }
    }

    pub(super) fn state(&self) -> Arc<ShardState> {
        self.state.read().clone()
    }

    /// Swaps the state; the caller holds the placing lock.
    pub(super) fn publish(&self, state: ShardState) {
        *self.state.write() = Arc::new(state);
    }

    pub(super) fn check_open(&self) -> Result<()> {
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
        self.unindexed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_put_that_no_entry_of_the_log_can_hold_is_refused() {
        refuse_too_much(1, MAX_PUT_BYTES).unwrap();
        let error = refuse_too_much(7, MAX_PUT_BYTES + 1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains("got 4294967297 in 7 rows"), "{error}");
        assert_eq!(refuse_too_much(1 << 32, 1).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
}
