//! The put path: from a batch to its position in a MemTable and in the log.
//!
//! Owns: the order of a put: check, accept, admit, place, queue, index, wait.
//! Does not own: the work of the MemTable, the log or the flush.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::time::Instant;

use super::batch::{Acknowledged, WriteBatch, WriteOptions, refuse_too_much};
use super::stats::count;
use super::task_guard::TaskEnd;
use super::writer::Shared;
use crate::format::{AcceptedRows, RowSchema};
use crate::memtable::MemTable;
use crate::types::{Result, Txn};
use crate::wal::Queued;

/// A durable put of this many rows or more is indexed by the indexing task while the log is
/// written.
const INDEXED_BESIDE: usize = 256;
/// Batches that the indexing task takes before it yields.
const INDEX_STEP: usize = 16;

/// The outcome of a placement.
enum Outcome {
    Placed(Placed),
    /// The transaction id is recorded already. Its rows are durable once this many batches of the
    /// job's log are.
    AlreadyWritten(u64),
}

struct Placed {
    memtable: Arc<MemTable>,
    /// Batches of the MemTable through this put's batch.
    batches: usize,
    /// Batches of the job's log through this put's batch.
    queued: u64,
}

impl Placed {
    /// Batches of the job's log that are durable once this put is.
    fn batches_to_wait_for(&self) -> u64 {
        if mutant!("B9") {
            return 0;
        }
        if mutant!("B8") { self.batches as u64 } else { self.queued }
    }
}

impl Shared {
    /// One attempt of a write under `schema`. The order is the contract: accept, route, admit,
    /// place, then wait for the guarantees. A put is never split: all its rows are in one MemTable
    /// and in one WAL entry, so readers and replay see all of it or nothing.
    pub(super) async fn write(
        self: &Arc<Self>,
        schema: &RowSchema,
        batch: WriteBatch<'_>,
        options: WriteOptions<'_>,
    ) -> Result<Acknowledged> {
        self.check_open()?;
        let rows = batch.accept(schema)?;
        let durable = options.durable.unwrap_or(self.config.durable_write);
        let indexed = options.sync_index.unwrap_or(self.config.sync_indexed_write);
        let num_rows = rows.batch.num_rows();
        if num_rows == 0 {
            // As every durable put, it returns only when all earlier puts are durable.
            if durable {
                self.wait_appended(self.log.queue.queued()).await?;
            }
            return Ok(Acknowledged { rows: 0, durable, indexed, already_written: false });
        }
        refuse_too_much(num_rows, rows.payload_bytes)?;
        self.identity.refuse_foreign_rows(&rows.batch)?;
        let keys = (indexed && schema.has_key()).then(|| schema.encode_keys(&rows));
        let bytes = rows.memory_bytes();
        let admitted = self.admit(bytes).await?;
        let placed = match self.push(AcceptedRows { keys, ..rows }, bytes, options.txn)? {
            Outcome::Placed(placed) => placed,
            Outcome::AlreadyWritten(queued) => {
                self.wait_appended(queued).await?;
                return Ok(Acknowledged { rows: 0, durable: true, indexed, already_written: true });
            }
        };
        admitted.placed();
        let placed_at = Instant::now();
        if durable {
            self.start_append(&placed, num_rows, options.inline);
        }
        if options.sync_search_index.unwrap_or(self.config.sync_search_index) {
            for maker in self.flusher.search_indexes().iter() {
                placed.memtable.index_search_through(maker.as_ref(), placed.batches);
            }
        }
        if indexed {
            placed.memtable.index_through(placed.batches);
        } else {
            self.unindexed.notify_one();
        }
        if durable {
            self.log.wait_durable(placed.batches_to_wait_for(), placed_at).await?;
        } else {
            self.acknowledged.fetch_max(placed.queued, Ordering::AcqRel);
        }
        count(&self.counters.puts, 1);
        count(&self.counters.rows, num_rows);
        Ok(Acknowledged { rows: num_rows, durable, indexed, already_written: false })
    }

    /// Asks for an append now, and waits until the first `queued` batches are durable.
    async fn wait_appended(&self, queued: u64) -> Result<()> {
        let asked_at = Instant::now();
        self.log.queue.hurry();
        self.log.wait_durable(queued, asked_at).await
    }

    /// Appends the rows of a put on this thread, or wakes the appending task. The keys of a large
    /// put are indexed at the same time.
    fn start_append(self: &Arc<Self>, placed: &Placed, num_rows: usize, inline: bool) {
        if num_rows >= INDEXED_BESIDE && !self.log.is_crowded() {
            self.unindexed.notify_one();
        }
        if !(inline && self.append_here(placed.queued)) {
            self.log.queue.hurry();
        }
    }

    /// Places the rows in the active MemTable and in the log's queue under one short lock, so that
    /// both have the same order.
    fn push(&self, rows: AcceptedRows, bytes: usize, txn: Option<&Txn>) -> Result<Outcome> {
        let placing = self.placing.lock();
        self.check_open()?;
        self.follower.check()?;
        let rows = self.follower.schema().conform_accepted(rows)?;
        if let Some(txn) = txn
            && !self.flusher.txns.lock().is_new(self.shard_id, txn)?
        {
            return Ok(Outcome::AlreadyWritten(self.log.queue.queued()));
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
            self.flusher.txns.lock().record(queued.generation, txn);
        }
        memtable.count_indexes_in(&self.admission.indexes);
        let batches = memtable.push(rows.batch, rows.keys, bytes);
        Ok(Outcome::Placed(Placed { batches, queued: self.log.queue.push(queued), memtable }))
    }

    /// Whether `more` rows have to go into the next MemTable. The limits of batches and rows are
    /// exact: lance refuses to replay a generation above its own limits, unless one put wrote all
    /// of its rows.
    fn is_full_for(&self, more: usize) -> bool {
        let active = &self.state().active.memtable;
        active.rows() > 0
            && (active.rows() + more > self.config.max_memtable_rows
                || active.batches() + 1 > self.config.max_memtable_batches
                || active.bytes() >= self.config.max_memtable_size)
    }

    /// Indexes the batches that puts left to this task, a few at a time.
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
}
