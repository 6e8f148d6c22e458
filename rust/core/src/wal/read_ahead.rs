//! Many entries on their way at once, handed out in order.
//!
//! Owns: how many reads run ahead, and a task for each, so that several cores decode.
//! Does not own: what an absent or damaged entry means, or where the log ends.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::FuturesOrdered;
use tokio::task::{JoinError, JoinHandle};

use super::entry_name;
use crate::format::paths;
use crate::store::Store;
use crate::types::{Error, Result, ShardId, WalPosition};

/// Reads that run at once. It bounds the memory of a replay beside the rows that it keeps.
pub const READ_AHEAD: usize = 16;

/// An ordered pipeline over the positions of one shard's log.
///
/// `load` runs on a task of its own for every position; an object that is absent is `None`.
/// Dropping the pipeline ends its tasks.
pub struct ReadAhead<T, F> {
    store: Store,
    shard_id: ShardId,
    next: WalPosition,
    load: F,
    running: FuturesOrdered<Read<T>>,
}

impl<T, F> ReadAhead<T, F>
where
    T: Send + 'static,
    F: Fn(WalPosition, Option<Bytes>) -> Result<T> + Clone + Send + 'static,
{
    /// A pipeline whose first position is `first`; nothing is read before [`Self::fill`].
    pub fn new(store: Store, shard_id: ShardId, first: WalPosition, load: F) -> Self {
        Self { store, shard_id, next: first, load, running: FuturesOrdered::new() }
    }

    /// Starts reads of positions below `end` until `width` run.
    pub fn fill(&mut self, width: usize, end: WalPosition) {
        while self.running.len() < width && self.next < end {
            let (shard_id, position) = (self.shard_id, self.next);
            let load = self.load.clone();
            let path = paths::wal_entry(shard_id, position);
            let task = self.store.spawn_get(path, move |bytes| load(position, bytes));
            self.running.push_back(Read { shard_id, position, task });
            self.next = position.next();
        }
    }

    /// The oldest read that runs; `None` where none does.
    pub async fn next(&mut self) -> Option<(WalPosition, Result<T>)> {
        self.running.next().await
    }
}

/// One read on its task, which ends when nobody waits for it any more.
struct Read<T> {
    shard_id: ShardId,
    position: WalPosition,
    task: JoinHandle<Result<T>>,
}

impl<T> Future for Read<T> {
    type Output = (WalPosition, Result<T>);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let ended = std::task::ready!(Pin::new(&mut self.task).poll(context));
        let loaded = ended.unwrap_or_else(|error| Err(self.broken(&error)));
        Poll::Ready((self.position, loaded))
    }
}

impl<T> Read<T> {
    /// An entry without a checksum may hold anything, and the Arrow decoder panics on some of it.
    fn broken(&self, error: &JoinError) -> Error {
        let what = entry_name(self.shard_id, self.position);
        if error.is_panic() {
            return Error::corrupt(what, "undecodable", "the decoder panicked");
        }
        Error::storage(format!("reading {what}"), "the runtime is shutting down")
    }
}

impl<T> Drop for Read<T> {
    fn drop(&mut self) {
        self.task.abort();
    }
}
