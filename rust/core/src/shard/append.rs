//! Group commit: from the queue into the log, one entry at a time.
//!
//! Owns: which thread appends: the thread of a put that waits for a local disk anyway, or the
//! appending task. A hand-over to another thread and back costs as much as a file.
//! Does not own: which rows share an entry (`wal`), or what an acknowledgement waits for.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;

use arrow_array::RecordBatch;
use futures::FutureExt;
use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;

use super::stats::{AppendCounters, count};
use super::task_guard::TaskEnd;
use super::writer::Shared;
use crate::store::may_wait_here;
use crate::types::{Error, Generation, Result, ShardId, Txns, WalPosition};
use crate::wal::{Queued, WalAppender, WalQueue};

/// Below this size an entry takes about the same time, whatever its size, so waiting for more puts
/// is free. A larger entry is written at once; its puts are indexed, and others queue, meanwhile.
const SMALL_BYTES: usize = 64 << 10;
/// Yields without a new put after which no other put is expected soon.
const IDLE_YIELDS: usize = 2;
/// Most yields in a row: a durable put waits no longer for other puts.
const MAX_YIELDS: usize = 32;

/// The right to append, while it is held.
type AppendGuard = OwnedMutexGuard<Option<WalAppender>>;

/// Yields to the tasks that are ready now, and resumes on any thread. `tokio::task::yield_now`
/// resumes on this thread only, after its whole queue: behind every scan that runs there.
async fn yield_to_ready_tasks() {
    let mut is_back = false;
    poll_fn(|context| {
        if std::mem::replace(&mut is_back, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Group commit: puts that arrive while an entry is written share the next one.
#[derive(Debug)]
pub(super) struct GroupCommit {
    shard_id: ShardId,
    pub queue: WalQueue,
    pub counters: AppendCounters,
    /// The position of the newest entry of the job; before the first entry, of its fence sentinel.
    newest: AtomicU64,
    /// Locked by the appending task for as long as it runs.
    running: tokio::sync::Mutex<()>,
    /// Locked by the put or task that appends; `None` once the appending task has ended.
    appender: Arc<tokio::sync::Mutex<Option<WalAppender>>>,
    /// Whether the newest entry has rows of several puts.
    crowded: AtomicBool,
    /// The position of the newest entry of each generation that is not flushed.
    positions: Mutex<BTreeMap<Generation, WalPosition>>,
}

impl GroupCommit {
    /// `positions` has the newest entry of each replayed generation.
    pub fn new(
        shard_id: ShardId,
        queue: WalQueue,
        appender: WalAppender,
        positions: BTreeMap<Generation, WalPosition>,
    ) -> Self {
        Self {
            shard_id,
            queue,
            counters: AppendCounters::default(),
            newest: AtomicU64::new(appender.sentinel().get()),
            running: tokio::sync::Mutex::new(()),
            appender: Arc::new(tokio::sync::Mutex::new(Some(appender))),
            crowded: AtomicBool::new(false),
            positions: Mutex::new(positions),
        }
    }

    /// Whether puts of several threads come at the same time.
    pub fn is_crowded(&self) -> bool {
        self.crowded.load(Ordering::Relaxed)
    }

    /// The position of the newest entry of the job; before the first entry, of its fence sentinel.
    pub fn newest_position(&self) -> WalPosition {
        WalPosition(self.newest.load(Ordering::Acquire))
    }

    /// Waits for a put's entry; the wait counts from `since`, because the entry may be written
    /// while the put still indexes its keys.
    pub async fn wait_durable(&self, queued: u64, since: Instant) -> Result<()> {
        self.queue.wait_durable(queued).await?;
        self.counters.durable_waits.record(since.elapsed());
        Ok(())
    }

    /// Makes all batches durable that were queued before the call.
    pub async fn drain(&self) -> Result<()> {
        self.queue.hurry();
        self.queue.wait_durable(self.queue.queued()).await
    }

    /// Returns when the appending task has ended and no append runs any more.
    pub async fn wait_ended(&self) {
        if !mutant!("L2") {
            drop(self.running.lock().await);
        }
    }

    /// The newest entry with rows of `generation`. All rows of the generation are durable, so its
    /// flush covers the log through this entry.
    pub fn covered_position(&self, generation: Generation) -> Result<WalPosition> {
        self.newest_entry(generation).ok_or_else(|| {
            let shard_id = self.shard_id;
            Error::internal(format!(
                "generation {generation} of shard {shard_id} is durable but has no WAL entry"
            ))
        })
    }

    /// The position of the newest entry with rows of `generation`.
    fn newest_entry(&self, generation: Generation) -> Option<WalPosition> {
        let positions = self.positions.lock();
        if mutant!("B3") {
            return positions.values().max().copied();
        }
        positions.get(&generation).copied()
    }

    /// Removes the position of a generation that is flushed.
    pub fn forget(&self, generation: Generation) {
        self.positions.lock().remove(&generation);
    }

    /// Yields to the tasks whose puts the last entry acknowledged, as long as yields bring new
    /// puts.
    ///
    /// While an entry is written, the other tasks queue their puts. Without the yields the tasks
    /// would split into two halves, each of which waits for the other's entry. A yield takes a
    /// microsecond where no task is ready. The number of yields is limited, so slow threads are not
    /// waited for (docs/decisions/0019).
    async fn let_served_put_again(&self) {
        let mut queued = self.queue.queued();
        let is_alone = queued == self.queue.durable().batches;
        if is_alone && !self.is_crowded() {
            return;
        }
        let mut idle_yields = 0;
        for _ in 0..MAX_YIELDS {
            if idle_yields == IDLE_YIELDS || self.queue.waiting_bytes() >= SMALL_BYTES {
                return;
            }
            yield_to_ready_tasks().await;
            let now = self.queue.queued();
            idle_yields = if now == queued { idle_yields + 1 } else { 0 };
            queued = now;
        }
    }

    /// Appends the queued batches of one generation as one entry. Returns whether more may follow.
    ///
    /// # Errors
    /// The error of the append, which stops the job.
    async fn append_next(&self, appender: &mut WalAppender) -> Result<bool> {
        if self.is_stopped() {
            return Ok(false);
        }
        let group = self.queue.take_group();
        let Some(generation) = group.first().map(|queued| queued.generation) else {
            return Ok(true);
        };
        let bytes = group.iter().map(|queued| queued.bytes).sum();
        let txns = txns_of(&group);
        let batches: Vec<RecordBatch> = group.into_iter().map(|queued| queued.batch).collect();
        let position = appender.append(&batches, generation, &txns).await?;
        Ok(self.appended(generation, position, batches.len(), bytes))
    }

    /// Whether the job was stopped, for example by a fenced flush: no put waits for the queued rows
    /// any more.
    fn is_stopped(&self) -> bool {
        self.queue.check().is_err() && !mutant!("L2") && !mutant!("B22")
    }

    /// Records the position, then acknowledges the rows as durable. False where the rows are never
    /// acknowledged, because a flush or a reader found meanwhile that the job was fenced.
    fn appended(
        &self,
        generation: Generation,
        position: WalPosition,
        batches: usize,
        bytes: usize,
    ) -> bool {
        self.positions.lock().insert(generation, position);
        // Before the acknowledgement: the next put of an acknowledged caller is behind this entry.
        self.newest.store(position.get(), Ordering::Release);
        self.crowded.store(batches > 1, Ordering::Relaxed);
        count(&self.counters.wal_entries, 1);
        count(&self.counters.wal_batches, batches);
        count(&self.counters.wal_bytes, bytes);
        self.counters.wal_position.store(position.get(), Ordering::Relaxed);
        self.queue.advance(batches)
    }
}

impl Shared {
    /// Appends group by group until the queue is closed or the log refuses.
    pub(super) async fn run_appends(self: Arc<Self>) {
        let end = TaskEnd::of(&self, "append");
        let log = &self.log;
        let _may_write = log.running.lock().await;
        while log.queue.is_due(self.config.max_wal_flush_interval).await {
            let guard = log.appender.clone().lock_owned().await;
            if !self.clone().append_group(guard).await {
                break;
            }
            log.let_served_put_again().await;
        }
        // Waits for a put that appends right now; later puts find no appender.
        log.appender.lock().await.take();
        end.expected();
        self.flusher.frozen.notify_one();
    }

    /// Appends on the calling thread until the first `queued` batches are durable, if the thread
    /// may wait for a disk and no other thread appends. Returns whether the batches are durable or
    /// never will be.
    ///
    /// Where puts come at the same time, the appending task appends: it takes long enough to begin
    /// that several puts share the entry. The first put would append its own rows alone.
    pub(super) fn append_here(self: &Arc<Self>, queued: u64) -> bool {
        while may_wait_here() && !self.log.is_crowded() {
            let Ok(guard) = self.log.appender.clone().try_lock_owned() else { return false };
            let shared = self.clone();
            let mut append = Box::pin(async move {
                let goes_on = shared.clone().append_group(guard).await;
                if !goes_on {
                    // Wakes the appending task, which then ends.
                    shared.log.queue.close();
                }
                goes_on
            });
            match append.as_mut().now_or_never() {
                Some(true) => {}
                Some(false) => return true,
                None => {
                    // A started append must complete, also where the put is cancelled.
                    tokio::spawn(append);
                    return false;
                }
            }
            if self.log.queue.durable().batches >= queued {
                return true;
            }
        }
        false
    }

    /// [`GroupCommit::append_next`] by the holder of `guard`. A panic in the append stops the job.
    async fn append_group(self: Arc<Self>, mut guard: AppendGuard) -> bool {
        let end = TaskEnd::of(&self, "append");
        let goes_on = match guard.as_mut() {
            Some(appender) => self
                .log
                .append_next(appender)
                .await
                .unwrap_or_else(|error| self.stop_appends(error)),
            None => false,
        };
        end.expected();
        goes_on
    }

    /// Stops the job with the error of an append. Returns whether more entries may follow: none may
    /// stand behind one that failed.
    fn stop_appends(&self, error: Error) -> bool {
        // A fence has a line of its own.
        if !matches!(error, Error::Fenced { .. }) {
            tracing::error!(shard = %self.shard_id, %error, "the job stops");
        }
        self.fail(error);
        mutant!("B22")
    }
}

fn txns_of(group: &[Queued]) -> Txns {
    let mut txns = Txns::default();
    for txn in group.iter().filter_map(|queued| queued.txn.as_ref()) {
        txns.record(txn.app_id(), txn.version());
    }
    txns
}
