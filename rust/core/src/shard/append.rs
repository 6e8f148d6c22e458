//! From the queue into the log, an entry at a time.
//!
//! Owns: who appends. A put that waits for a local disk anyway appends what is queued itself; else
//! the appending task does. Handing rows to another thread and back costs as much as a file.
//! Does not own: which rows share an entry (`wal`), or what an acknowledgement waits for.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;

use arrow_array::RecordBatch;
use futures::FutureExt;
use tokio::sync::OwnedMutexGuard;

use super::stats::Counters;
use super::task_guard::TaskEnd;
use super::writer::Shared;
use crate::store::may_wait_here;
use crate::types::{Generation, Txns, WalPosition};
use crate::wal::{Queued, WalAppender};

/// An entry of so many bytes takes hardly longer than one of fewer. Larger ones are worth beginning:
/// their puts are indexed, and others come, while they are written.
const SMALL_BYTES: usize = 64 << 10;
/// Turns of the runtime without a new put after which nobody is expected to come at once.
const IDLE_TURNS: usize = 2;
/// Turns that are given at most: a put that is durable waits for others no longer.
const MOST_TURNS: usize = 32;

/// The right to append, while it is held.
type AppendGuard = OwnedMutexGuard<Option<WalAppender>>;

/// Comes back behind the tasks that are ready now, on any thread. `tokio::task::yield_now` comes back
/// on this thread alone, and not before its whole queue is empty: behind every scan that runs there.
async fn give_way() {
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

impl Shared {
    /// Appends group by group until the queue is closed or the log refuses.
    pub(super) async fn run_appends(self: Arc<Self>) {
        let end = TaskEnd::of(&self, "append");
        let _may_write = self.appending.lock().await;
        while self.queue.is_due(self.config.max_wal_flush_interval).await {
            let turn = self.appender.clone().lock_owned().await;
            if !self.clone().append_group(turn).await {
                break;
            }
            self.let_served_put_again().await;
        }
        // A put that appends right now is waited for, and none will after it.
        self.appender.lock().await.take();
        end.expected();
        self.frozen.notify_one();
    }

    /// Gives way to tasks that the last entry served, as long as each turn brings a put: those of the
    /// others are queued by then, and without this the two halves would go on taking turns, each
    /// waiting for the other's entry.
    ///
    /// A turn is a microsecond where no task is ready. Who comes back later, as threads do, is not
    /// waited for, and the turns are counted (docs/decisions/0019).
    async fn let_served_put_again(&self) {
        let mut queued = self.queue.queued();
        let is_alone = queued == self.queue.durable().batches;
        if is_alone && !self.crowded.load(Ordering::Relaxed) {
            return;
        }
        let mut idle_turns = 0;
        for _ in 0..MOST_TURNS {
            if idle_turns == IDLE_TURNS || self.queue.waiting_bytes() >= SMALL_BYTES {
                return;
            }
            give_way().await;
            let now = self.queue.queued();
            idle_turns = if now == queued { idle_turns + 1 } else { 0 };
            queued = now;
        }
    }

    /// Appends on the calling thread, if it waits for a disk anyway and nobody appends, until the
    /// first `queued` batches are durable; whether they are, or never will be.
    ///
    /// Not where puts come together: the first of them would append its own rows alone, while the
    /// appending task takes long enough to begin that the others join.
    pub(super) fn append_here(self: &Arc<Self>, queued: u64) -> bool {
        while may_wait_here() && !self.crowded.load(Ordering::Relaxed) {
            let Ok(turn) = self.appender.clone().try_lock_owned() else { return false };
            let shared = self.clone();
            let mut append = Box::pin(async move {
                let goes_on = shared.clone().append_group(turn).await;
                if !goes_on {
                    // The appending task learns of it.
                    shared.queue.close();
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
            if self.queue.durable().batches >= queued {
                return true;
            }
        }
        false
    }

    /// Appends what is queued of one generation as one entry; whether more may follow.
    async fn append_group(self: Arc<Self>, mut turn: AppendGuard) -> bool {
        let end = TaskEnd::of(&self, "append");
        let goes_on = match turn.as_mut() {
            Some(appender) => self.append_next(appender).await,
            None => false,
        };
        end.expected();
        goes_on
    }

    async fn append_next(&self, appender: &mut WalAppender) -> bool {
        // A flush that was fenced has stopped the job: nobody waits for these rows any more.
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
        self.last_positions.lock().insert(generation, position);
        self.crowded.store(batches > 1, Ordering::Relaxed);
        Counters::add(&self.counters.wal_entries, 1);
        Counters::add(&self.counters.wal_batches, batches);
        Counters::add(&self.counters.wal_bytes, bytes);
        self.counters.wal_position.store(position.get(), Ordering::Relaxed);
        self.queue.advance(batches)
    }
}

fn txns_of(group: &[Queued]) -> Txns {
    let mut txns = Txns::default();
    for txn in group.iter().filter_map(|queued| queued.txn.as_ref()) {
        txns.record(txn.app_id(), txn.version());
    }
    txns
}
