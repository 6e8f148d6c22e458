//! From the queue into the log, an entry at a time.
//!
//! Owns: who appends. A put that waits for a local disk anyway appends what is queued itself; else
//! the appending task does. Handing rows to another thread and back costs as much as a file.
//! Does not own: which rows share an entry (`wal`), or what an acknowledgement waits for.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
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

/// An entry of so many bytes takes hardly longer than one of fewer. Larger ones are worth beginning:
/// their puts are indexed, and others come, while they are written.
const SMALL_BYTES: usize = 64 << 10;
/// Yields without a new put after which no other put is expected to come at once.
const IDLE_YIELDS: usize = 2;
/// Yields in a row at most: a put that is durable waits for others no longer.
const MAX_YIELDS: usize = 32;

/// The right to append, while it is held.
type AppendGuard = OwnedMutexGuard<Option<WalAppender>>;

/// Comes back behind the tasks that are ready now, on any thread. `tokio::task::yield_now` comes back
/// on this thread alone, and not before its whole queue is empty: behind every scan that runs there.
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
    /// The entry of the claim's fence: the first entry of the job is the next one.
    pub sentinel: WalPosition,
    /// Held by the appending task for as long as it runs.
    running: tokio::sync::Mutex<()>,
    /// Held by the put or task that appends; `None` once the appending task has ended.
    appender: Arc<tokio::sync::Mutex<Option<WalAppender>>>,
    /// Whether the newest entry has rows of several puts.
    crowded: AtomicBool,
    /// The newest entry of every generation that is not flushed.
    positions: Mutex<BTreeMap<Generation, WalPosition>>,
}

impl GroupCommit {
    /// `positions` are those of the entries that replay read.
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
            sentinel: appender.sentinel(),
            running: tokio::sync::Mutex::new(()),
            appender: Arc::new(tokio::sync::Mutex::new(Some(appender))),
            crowded: AtomicBool::new(false),
            positions: Mutex::new(positions),
        }
    }

    /// Whether puts of several threads come together.
    pub fn is_crowded(&self) -> bool {
        self.crowded.load(Ordering::Relaxed)
    }

    /// Waits for a put's entry; the wait counts from `since`, because the entry may be written
    /// while the put still indexes its keys.
    pub async fn wait_durable(&self, queued: u64, since: Instant) -> Result<()> {
        self.queue.wait_durable(queued).await?;
        self.counters.durable_waits.record(since.elapsed());
        Ok(())
    }

    /// Makes everything durable that was queued before the call.
    pub async fn drain(&self) -> Result<()> {
        self.queue.hurry();
        self.queue.wait_durable(self.queue.queued()).await
    }

    /// Returns when no append is on its way.
    pub async fn wait_ended(&self) {
        if !mutant!("L2") {
            drop(self.running.lock().await);
        }
    }

    /// The newest entry with rows of `generation`, which is durable: what its flush covers.
    pub fn covered_position(&self, generation: Generation) -> Result<WalPosition> {
        if mutant!("B3") {
            let newest = self.positions.lock().values().max().copied();
            return newest.ok_or_else(|| Error::Internal("no WAL entry".to_owned()));
        }
        self.positions.lock().get(&generation).copied().ok_or_else(|| {
            let shard_id = self.shard_id;
            Error::Internal(format!(
                "generation {generation} of shard {shard_id} is durable but has no WAL entry"
            ))
        })
    }

    /// Forgets the entries of a generation that is flushed.
    pub fn forget(&self, generation: Generation) {
        self.positions.lock().remove(&generation);
    }

    /// Yields to tasks that the last entry served, as long as each yield brings a put: those of the
    /// others are queued by then, and without this the two halves would go on taking turns, each
    /// waiting for the other's entry.
    ///
    /// A yield is a microsecond where no task is ready. Threads that come back later are not waited
    /// for, and the yields are counted (docs/decisions/0019).
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

    /// Appends what is queued of one generation as one entry; whether more may follow.
    async fn append_next(&self, appender: &mut WalAppender) -> bool {
        // A flush that was fenced has stopped the job: no put waits for these rows any more.
        if self.queue.check().is_err() && !mutant!("L2") && !mutant!("B22") {
            return false;
        }
        let group = self.queue.take_group();
        let Some(generation) = group.first().map(|queued| queued.generation) else { return true };
        let bytes = group.iter().map(|queued| queued.bytes).sum();
        let txns = txns_of(&group);
        let batches: Vec<RecordBatch> = group.into_iter().map(|queued| queued.batch).collect();
        match appender.append(&batches, generation, &txns).await {
            Ok(position) => self.appended(generation, position, batches.len(), bytes),
            Err(error) => {
                tracing::error!(shard = %self.shard_id, %error, "the job stops");
                self.queue.fail(error);
                mutant!("B22")
            }
        }
    }

    /// Records the position before any caller learns that the rows are durable; false where none ever
    /// does, because a flush or a reader has learned meanwhile that the shard was claimed.
    fn appended(
        &self,
        generation: Generation,
        position: WalPosition,
        batches: usize,
        bytes: usize,
    ) -> bool {
        self.positions.lock().insert(generation, position);
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
        // A put that appends right now is waited for, and none will after it.
        log.appender.lock().await.take();
        end.expected();
        self.flusher.frozen.notify_one();
    }

    /// Appends on the calling thread, if it waits for a disk anyway and no other appends, until the
    /// first `queued` batches are durable; whether they are, or never will be.
    ///
    /// Not where puts come together: the first of them would append its own rows alone, while the
    /// appending task takes long enough to begin that the others join.
    pub(super) fn append_here(self: &Arc<Self>, queued: u64) -> bool {
        while may_wait_here() && !self.log.is_crowded() {
            let Ok(guard) = self.log.appender.clone().try_lock_owned() else { return false };
            let shared = self.clone();
            let mut append = Box::pin(async move {
                let goes_on = shared.clone().append_group(guard).await;
                if !goes_on {
                    // The appending task learns of it.
                    shared.log.queue.close();
                }
                goes_on
            });
            match append.as_mut().now_or_never() {
                Some(true) => {}
                Some(false) => return true,
                None => {
                    // What has begun must come to its end, also where the put is cancelled.
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

    /// [`GroupCommit::append_next`] by the holder of `guard`. A panic in it stops the job.
    async fn append_group(self: Arc<Self>, mut guard: AppendGuard) -> bool {
        let end = TaskEnd::of(&self, "append");
        let goes_on = match guard.as_mut() {
            Some(appender) => self.log.append_next(appender).await,
            None => false,
        };
        end.expected();
        goes_on
    }
}

fn txns_of(group: &[Queued]) -> Txns {
    let mut txns = Txns::default();
    for txn in group.iter().filter_map(|queued| queued.txn.as_ref()) {
        txns.record(txn.app_id(), txn.version());
    }
    txns
}
