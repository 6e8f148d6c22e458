//! A cache of values that were read from storage, under one byte budget.
//!
//! Owns: the budget, eviction of the least recently used value, and the counters.
//! Does not own: what the values are, or how they are read again.

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use lancemem_core::types::Result;
use parking_lot::Mutex;

/// Counters of the cache. They start at 0 when the table is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeptStats {
    /// Bytes in the cache now.
    pub bytes: usize,
    /// The budget. Values that readers hold now are not evicted, so `bytes` can exceed it.
    pub limit_bytes: usize,
    /// Requests for a value that was in the cache.
    pub hits: u64,
    /// Requests for a value that had to be read.
    pub misses: u64,
    /// Values that were evicted to meet the budget.
    pub evictions: u64,
}

/// A byte budget that many [`Cached`] values share.
#[derive(Debug)]
pub struct KeptBound {
    limit_bytes: usize,
    bytes: AtomicUsize,
    /// A logical clock of uses, which orders values by recency.
    uses: AtomicU64,
    hits: AtomicU64,
    misses: AtomicU64,
    evictions: AtomicU64,
    members: Mutex<Vec<Weak<dyn Evict>>>,
}

/// A slot of the cache.
trait Evict: fmt::Debug + Send + Sync {
    /// When the value was last used. `None` where the slot is empty, or where a reader holds the
    /// value and eviction would free nothing.
    fn last_used(&self) -> Option<u64>;

    /// Drops the value. False where the slot is empty.
    fn evict(&self) -> bool;
}

impl KeptBound {
    /// A budget of `limit_bytes`.
    #[must_use]
    pub fn new(limit_bytes: usize) -> Arc<Self> {
        Arc::new(Self {
            limit_bytes,
            bytes: AtomicUsize::new(0),
            uses: AtomicU64::new(0),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            evictions: AtomicU64::new(0),
            members: Mutex::default(),
        })
    }

    /// The counters.
    #[must_use]
    pub fn stats(&self) -> KeptStats {
        KeptStats {
            bytes: self.bytes.load(Ordering::Relaxed),
            limit_bytes: self.limit_bytes,
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
            evictions: self.evictions.load(Ordering::Relaxed),
        }
    }

    fn next_use(&self) -> u64 {
        self.uses.fetch_add(1, Ordering::Relaxed)
    }

    /// Evicts the least recently used values until the budget is met.
    fn shrink(&self) {
        if self.bytes.load(Ordering::Relaxed) <= self.limit_bytes {
            return;
        }
        let mut members = self.members.lock();
        members.retain(|member| member.strong_count() > 0);
        let living: Vec<Arc<dyn Evict>> = members.iter().filter_map(Weak::upgrade).collect();
        drop(members);
        let mut by_use: Vec<(u64, &Arc<dyn Evict>)> =
            living.iter().filter_map(|member| Some((member.last_used()?, member))).collect();
        by_use.sort_unstable_by_key(|(used, _)| *used);
        for (_, member) in by_use {
            if self.bytes.load(Ordering::Relaxed) <= self.limit_bytes {
                return;
            }
            if member.evict() {
                self.evictions.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// A slot for one value, which is read on demand and cached while the budget allows.
pub struct Cached<T> {
    bound: Arc<KeptBound>,
    used: AtomicU64,
    value: Mutex<Option<(Arc<T>, usize)>>,
    /// Held while the value is read, so that concurrent callers wait for one read (single flight).
    reading: tokio::sync::Mutex<()>,
}

impl<T: Send + Sync + 'static> Cached<T> {
    /// An empty slot under `bound`.
    #[must_use]
    pub fn new(bound: &Arc<KeptBound>) -> Arc<Self> {
        let kept = Arc::new(Self {
            bound: bound.clone(),
            used: AtomicU64::new(0),
            value: Mutex::new(None),
            reading: tokio::sync::Mutex::new(()),
        });
        let member: Weak<Self> = Arc::downgrade(&kept);
        let mut members = bound.members.lock();
        if members.len() == members.capacity() {
            members.retain(|member| member.strong_count() > 0);
        }
        members.push(member);
        drop(members);
        kept
    }

    /// The value, if it is cached. Counts as a use, not as a hit.
    #[must_use]
    pub fn present(&self) -> Option<Arc<T>> {
        let value = self.value.lock().as_ref().map(|(value, _)| value.clone());
        if value.is_some() {
            self.used.store(self.bound.next_use(), Ordering::Relaxed);
        }
        value
    }

    /// The value, read by `read` where it is not cached. `read` returns it with its size in bytes.
    ///
    /// # Errors
    /// The error of `read`; the slot stays empty.
    pub async fn get_or_read(
        &self,
        read: impl Future<Output = Result<(T, usize)>>,
    ) -> Result<Arc<T>> {
        if let Some(value) = self.present() {
            self.bound.hits.fetch_add(1, Ordering::Relaxed);
            return Ok(value);
        }
        let _reading = self.reading.lock().await;
        if let Some(value) = self.present() {
            self.bound.hits.fetch_add(1, Ordering::Relaxed);
            return Ok(value);
        }
        self.bound.misses.fetch_add(1, Ordering::Relaxed);
        let (value, bytes) = read.await?;
        let value = Arc::new(value);
        self.bound.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.used.store(self.bound.next_use(), Ordering::Relaxed);
        *self.value.lock() = Some((value.clone(), bytes));
        self.bound.shrink();
        Ok(value)
    }
}

impl<T> Cached<T> {
    fn let_go(&self) -> bool {
        // Dropped after the lock is released: the value may be large, or own other cached values.
        let value = self.value.lock().take();
        if let Some((_, bytes)) = &value {
            self.bound.bytes.fetch_sub(*bytes, Ordering::Relaxed);
        }
        value.is_some()
    }
}

impl<T: Send + Sync> Evict for Cached<T> {
    fn last_used(&self) -> Option<u64> {
        let value = self.value.lock();
        let (value, _) = value.as_ref()?;
        (Arc::strong_count(value) == 1).then(|| self.used.load(Ordering::Relaxed))
    }

    fn evict(&self) -> bool {
        self.let_go()
    }
}

impl<T> Drop for Cached<T> {
    fn drop(&mut self) {
        self.let_go();
    }
}

impl<T> fmt::Debug for Cached<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.value.lock().as_ref().map(|(_, bytes)| *bytes);
        f.debug_struct("Kept").field("bytes", &bytes).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use lancemem_core::types::Error;

    use super::*;

    async fn get(kept: &Cached<usize>, bytes: usize) -> Arc<usize> {
        kept.get_or_read(async { Ok((bytes, bytes)) }).await.unwrap()
    }

    #[tokio::test]
    async fn the_least_recently_used_value_is_evicted_first() {
        let bound = KeptBound::new(100);
        let kept: Vec<_> = (0..4).map(|_| Cached::<usize>::new(&bound)).collect();
        for one in &kept[..3] {
            get(one, 30).await;
        }
        get(&kept[0], 30).await;
        get(&kept[3], 30).await;
        let there: Vec<bool> = kept.iter().map(|one| one.present().is_some()).collect();
        assert_eq!(there, [true, false, true, true]);
        let stats = bound.stats();
        assert_eq!((stats.bytes, stats.hits, stats.misses, stats.evictions), (90, 1, 4, 1));
    }

    #[tokio::test]
    async fn a_value_that_a_reader_holds_is_not_evicted() {
        let bound = KeptBound::new(10);
        let (first, second) = (Cached::new(&bound), Cached::new(&bound));
        let held = get(&first, 8).await;
        get(&second, 8).await;
        assert!(first.present().is_some(), "held");
        drop(held);
        get(&second, 8).await;
        let third = Cached::new(&bound);
        get(&third, 8).await;
        assert!(first.present().is_none());
        assert_eq!(bound.stats().bytes, 8);
    }

    #[tokio::test]
    async fn a_dropped_value_is_not_counted() {
        let bound = KeptBound::new(100);
        let kept = Cached::new(&bound);
        get(&kept, 30).await;
        drop(kept);
        assert_eq!(bound.stats().bytes, 0);
    }

    #[tokio::test]
    async fn concurrent_requests_read_once() {
        let bound = KeptBound::new(100);
        let kept = Cached::new(&bound);
        let gets = (0..8).map(|_| {
            kept.get_or_read(async {
                tokio::task::yield_now().await;
                Ok((7, 7))
            })
        });
        let values = futures::future::try_join_all(gets).await.unwrap();
        assert_eq!(values.len(), 8);
        assert_eq!((bound.stats().misses, bound.stats().hits), (1, 7));
    }

    #[tokio::test]
    async fn after_an_error_the_next_request_reads_again() {
        let bound = KeptBound::new(100);
        let kept: Arc<Cached<usize>> = Cached::new(&bound);
        let failed = kept.get_or_read(async { Err(Error::input("no")) }).await;
        assert!(failed.is_err());
        assert_eq!(*get(&kept, 7).await, 7);
    }
}
