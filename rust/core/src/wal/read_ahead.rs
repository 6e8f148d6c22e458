//! Many entries on their way at once, handed out in order.
//!
//! Owns: how many reads run ahead, and how they are dealt to tasks, so that several cores decode.
//! Does not own: what an absent or damaged entry means, or where the log ends.

use std::collections::VecDeque;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::FuturesOrdered;
use tokio::task::{JoinError, JoinHandle};

use super::entry_name;
use crate::format::paths;
use crate::store::Store;
use crate::types::{Error, MaxBytes, Result, ShardId, WalPosition};

/// Reads that are asked for at once. It bounds the memory of a replay beside the rows that it
/// keeps.
pub const READ_AHEAD: usize = 16;

/// An ordered pipeline over the positions of one shard's log.
///
/// `load` runs on another task for every position; an object that is absent is `None`. Dropping
/// the pipeline ends its tasks.
pub struct ReadAhead<T, F> {
    store: Store,
    shard_id: ShardId,
    next: WalPosition,
    load: F,
    /// What is read and not yet handed out, before everything that `running` reads.
    ready: VecDeque<(WalPosition, Result<T>)>,
    running: FuturesOrdered<Reads<T>>,
    /// Positions that `running` reads.
    asked: usize,
}

impl<T, F> ReadAhead<T, F>
where
    T: Send + 'static,
    F: Fn(WalPosition, Option<Bytes>) -> Result<T> + Clone + Send + 'static,
{
    /// A pipeline whose first position is `first`; nothing is read before [`Self::fill`].
    pub fn new(store: Store, shard_id: ShardId, first: WalPosition, load: F) -> Self {
        let (ready, running) = (VecDeque::new(), FuturesOrdered::new());
        Self { store, shard_id, next: first, load, ready, running, asked: 0 }
    }

    /// Starts reads of positions below `end` until `width` are asked for or read.
    pub fn fill(&mut self, width: usize, end: WalPosition) {
        let whole = self.store.reads_of_a_task(width);
        while self.ready.len() + self.asked + whole <= width && self.next < end {
            let left = usize::try_from(end.get() - self.next.get()).unwrap_or(usize::MAX);
            self.start(whole.min(left));
        }
    }

    /// One task for the next `count` positions.
    fn start(&mut self, count: usize) {
        let (shard_id, first, load) = (self.shard_id, self.next, self.load.clone());
        let paths = (0..count).map(|place| paths::wal_entry(shard_id, at(first, place))).collect();
        let task = self.store.spawn_each(paths, MaxBytes::LOG_ENTRY, move |place, bytes| {
            let position = at(first, place);
            loaded(shard_id, position, || load(position, named(shard_id, position, bytes)?))
        });
        self.running.push_back(Reads { shard_id, first, count, task });
        self.next = at(first, count);
        self.asked += count;
    }

    /// The oldest position that was asked for; `None` where none is left.
    pub async fn next(&mut self) -> Option<(WalPosition, Result<T>)> {
        if self.ready.is_empty() {
            let (first, read) = self.running.next().await?;
            self.asked -= read.len();
            let each = read.into_iter().enumerate();
            self.ready.extend(each.map(|(place, read)| (at(first, place), read)));
        }
        self.ready.pop_front()
    }
}

/// The position `place` behind `first`.
const fn at(first: WalPosition, place: usize) -> WalPosition {
    WalPosition(first.get() + place as u64)
}

/// Damage that the store reported, under the name of the entry.
fn named<T>(shard_id: ShardId, position: WalPosition, read: Result<T>) -> Result<T> {
    read.map_err(|error| match error {
        Error::Corrupt { kind, detail, source, .. } => {
            Error::Corrupt { what: entry_name(shard_id, position), kind, detail, source }
        }
        other => other,
    })
}

/// An entry without a checksum may hold anything, and the Arrow decoder panics on some of it.
fn loaded<T>(
    shard_id: ShardId,
    position: WalPosition,
    load: impl FnOnce() -> Result<T>,
) -> Result<T> {
    catch_unwind(AssertUnwindSafe(load)).unwrap_or_else(|_| {
        let what = entry_name(shard_id, position);
        Err(Error::corrupt(what, "undecodable", "the decoder panicked"))
    })
}

/// The reads of one task, which is aborted when this is dropped.
struct Reads<T> {
    shard_id: ShardId,
    first: WalPosition,
    count: usize,
    task: JoinHandle<Vec<Result<T>>>,
}

impl<T> Future for Reads<T> {
    type Output = (WalPosition, Vec<Result<T>>);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let ended = std::task::ready!(Pin::new(&mut self.task).poll(context));
        Poll::Ready((self.first, ended.unwrap_or_else(|error| self.unread(&error))))
    }
}

impl<T> Reads<T> {
    /// The results of a task that did not finish.
    fn unread(&self, error: &JoinError) -> Vec<Result<T>> {
        let unread = |place| {
            let what = entry_name(self.shard_id, at(self.first, place));
            Err(if error.is_panic() {
                Error::internal(format!("reading {what}: the store panicked"))
            } else {
                Error::storage(format!("reading {what}"), "the runtime is shutting down")
            })
        };
        (0..self.count).map(unread).collect()
    }
}

impl<T> Drop for Reads<T> {
    fn drop(&mut self) {
        self.task.abort();
    }
}
