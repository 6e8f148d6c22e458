//! Rows that wait for their append, and the count of those that are durable.
//!
//! Owns: grouping: puts that arrive while an append runs share the next entry.
//! Does not own: the append itself, or MemTables.

use std::collections::{BTreeMap, VecDeque};

use arrow_array::RecordBatch;
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use crate::types::{Error, Generation, MAX_PUT_BYTES, Result, Txn};

/// A batch on its way into the log.
#[derive(Clone, Debug)]
pub struct Queued {
    /// Generation of the MemTable that holds it.
    pub generation: Generation,
    /// The rows under the storage schema.
    pub batch: RecordBatch,
    /// Their bytes.
    pub bytes: usize,
    /// The transaction id of the put.
    pub txn: Option<Txn>,
}

/// How far the log has come, counted in batches since the job started, and its end if it failed.
#[derive(Clone, Debug, Default)]
pub struct Durable {
    /// Batches that are durable.
    pub batches: u64,
    /// The error that stopped the job.
    pub failure: Option<Error>,
}

#[derive(Debug, Default)]
struct Pending {
    batches: VecDeque<Queued>,
    bytes: usize,
    /// Batches queued since the job started.
    queued: u64,
    urgent: bool,
    closed: bool,
}

/// The queue between putting threads and the one appending task.
#[derive(Debug)]
pub struct WalQueue {
    pending: Mutex<Pending>,
    arrived: Notify,
    urgent: Notify,
    durable: Mutex<Durable>,
    /// The waiting callers, by the number of batches that have to be durable first. An append wakes
    /// only those it served: with many producers the others would wake only to wait again.
    waiting: Mutex<BTreeMap<u64, Vec<oneshot::Sender<()>>>>,
    max_bytes: usize,
}

impl WalQueue {
    /// A queue that asks for an append once `max_bytes` wait, and that fills an entry only until it
    /// reaches that size, because an entry is a copy of its rows in memory.
    #[must_use]
    pub fn new(max_bytes: usize) -> Self {
        Self {
            pending: Mutex::default(),
            arrived: Notify::new(),
            urgent: Notify::new(),
            durable: Mutex::default(),
            waiting: Mutex::default(),
            max_bytes,
        }
    }

    /// Queues a batch and returns how many were queued before and with it. The caller holds the
    /// shard's placing lock, so queue order is row order.
    pub fn push(&self, queued: Queued) -> u64 {
        let mut pending = self.pending.lock();
        pending.bytes += queued.bytes;
        let last = pending.batches.back().map(|last| last.generation);
        if mutant!("B13") && last.is_some_and(|last| last < queued.generation) {
            pending.batches.push_front(queued);
        } else {
            pending.batches.push_back(queued);
        }
        pending.queued += 1;
        if pending.bytes >= self.max_bytes {
            pending.urgent = true;
            self.urgent.notify_one();
        }
        self.arrived.notify_one();
        pending.queued
    }

    /// Asks for an append now, because a caller waits for it. Applies to the batches that are
    /// queued, not to those that were taken already or come later.
    pub fn hurry(&self) {
        let mut pending = self.pending.lock();
        if !pending.batches.is_empty() {
            pending.urgent = true;
            self.urgent.notify_one();
        }
    }

    /// Lets [`Self::is_due`] end once everything queued was taken.
    pub fn close(&self) {
        let mut pending = self.pending.lock();
        pending.closed = true;
        pending.urgent = true;
        self.urgent.notify_one();
        self.arrived.notify_one();
    }

    /// Batches queued since the job started.
    pub fn queued(&self) -> u64 {
        self.pending.lock().queued
    }

    /// Bytes of the batches that are not taken yet.
    pub fn waiting_bytes(&self) -> usize {
        self.pending.lock().bytes
    }

    /// Waits until an append is due: until batches are queued, and without [`Self::hurry`] at most
    /// `interval` longer. False once the queue is closed and empty.
    pub async fn is_due(&self, interval: std::time::Duration) -> bool {
        loop {
            let (empty, urgent, closed) = {
                let pending = self.pending.lock();
                (pending.batches.is_empty(), pending.urgent, pending.closed)
            };
            if empty && closed {
                return false;
            }
            if empty {
                self.arrived.notified().await;
                continue;
            }
            if !urgent {
                let _ = tokio::time::timeout(interval, self.urgent_group()).await;
            }
            return true;
        }
    }

    /// Returns once an append of the batches queued now is asked for. A notification of an earlier
    /// call that is served already does not count.
    async fn urgent_group(&self) {
        loop {
            self.urgent.notified().await;
            if self.pending.lock().urgent {
                return;
            }
        }
    }

    /// The batches of the next entry, all of one generation; empty where another thread took them.
    /// The caller appends them before any thread takes the next ones.
    pub fn take_group(&self) -> Vec<Queued> {
        let mut pending = self.pending.lock();
        let Some(generation) = pending.batches.front().map(|queued| queued.generation) else {
            return Vec::new();
        };
        let mut taken = 0;
        let end = pending
            .batches
            .iter()
            .position(|queued| {
                let is_too_much = taken > 0 && taken + queued.bytes > MAX_PUT_BYTES;
                let full = taken >= self.max_bytes || is_too_much;
                taken += queued.bytes;
                full || queued.generation != generation
            })
            .unwrap_or(pending.batches.len());
        let group: Vec<Queued> = pending.batches.drain(..end).collect();
        let taken: usize = group.iter().map(|queued| queued.bytes).sum();
        pending.bytes = pending.bytes.saturating_sub(taken);
        // What is left belongs to the next entry; the caller that hurried may wait for that part.
        pending.urgent = pending.urgent && (pending.closed || !pending.batches.is_empty());
        group
    }

    /// Publishes that `batches` more are durable; false where the job has learned meanwhile that
    /// another writer claimed its shard: then they are never acknowledged.
    pub fn advance(&self, batches: usize) -> bool {
        let durable = {
            let mut durable = self.durable.lock();
            if matches!(durable.failure, Some(Error::Fenced { .. })) {
                return false;
            }
            durable.batches += batches as u64;
            durable.batches
        };
        let served = {
            let mut waiting = self.waiting.lock();
            let later = waiting.split_off(&(durable + 1));
            std::mem::replace(&mut *waiting, later)
        };
        wake(served);
        true
    }

    /// Publishes the error that stops the job; false where an earlier error has stopped it, which
    /// stays.
    pub fn fail(&self, error: Error) -> bool {
        let is_first = {
            let mut durable = self.durable.lock();
            let is_first = durable.failure.is_none();
            durable.failure.get_or_insert(error);
            is_first
        };
        let all = std::mem::take(&mut *self.waiting.lock());
        wake(all);
        is_first
    }

    /// How far the log has come.
    #[must_use]
    pub fn durable(&self) -> Durable {
        self.durable.lock().clone()
    }

    /// The error that stopped the job, if one did.
    ///
    /// # Errors
    /// That error.
    pub fn check(&self) -> Result<()> {
        self.durable.lock().failure.clone().map_or(Ok(()), Err)
    }

    /// Waits until the first `batches` batches are durable.
    ///
    /// # Errors
    /// The error that stopped the job before.
    pub async fn wait_durable(&self, batches: u64) -> Result<()> {
        loop {
            let served = {
                // Looked at inside the lock: an append publishes first and takes the lock then.
                let mut waiting = self.waiting.lock();
                let durable = self.durable.lock();
                if durable.batches >= batches {
                    return Ok(());
                }
                if let Some(failure) = &durable.failure {
                    return Err(failure.clone());
                }
                let (sender, served) = oneshot::channel();
                waiting.entry(batches).or_default().push(sender);
                served
            };
            // A dropped sender counts like a message: the loop checks the state again.
            let _ = served.await;
        }
    }
}

fn wake(served: BTreeMap<u64, Vec<oneshot::Sender<()>>>) {
    for waiter in served.into_values().flatten() {
        let _ = waiter.send(());
    }
}

#[cfg(test)]
mod tests {
    use arrow_schema::Schema;

    use super::*;
    use crate::types::{ErrorKind, ShardId, WriterEpoch};

    #[tokio::test]
    async fn batches_whose_job_was_fenced_during_their_append_are_never_acknowledged() {
        let queue = WalQueue::new(1);
        assert!(queue.advance(1));
        let (shard, local, stored) = (ShardId::from_u128(7), WriterEpoch(1), WriterEpoch(2));
        queue.fail(Error::Fenced { shard, local, stored });
        assert!(!queue.advance(1));
        queue.wait_durable(1).await.unwrap();
        let refused = queue.wait_durable(2).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Fenced);
    }

    #[test]
    fn an_entry_has_no_more_than_a_put_may_have_whatever_the_buffer() {
        let queue = WalQueue::new(usize::MAX);
        let batch = RecordBatch::new_empty(Schema::empty().into());
        for bytes in [MAX_PUT_BYTES, 1, MAX_PUT_BYTES - 1, 2] {
            let (generation, batch) = (Generation(1), batch.clone());
            queue.push(Queued { generation, batch, bytes, txn: None });
        }
        let taken = || queue.take_group().iter().map(|queued| queued.bytes).collect::<Vec<_>>();
        assert_eq!(taken(), [MAX_PUT_BYTES]);
        assert_eq!(taken(), [1, MAX_PUT_BYTES - 1]);
        assert_eq!(taken(), [2]);
        assert!(taken().is_empty());
    }
}
