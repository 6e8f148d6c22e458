//! A cache of values that were read from storage, under one byte budget.
//!
//! Owns: the slots, the single flight of a read, which values may be evicted, and the counters.
//! Does not own: what the values are, how they are read again, or the order of eviction
//! (`quick_cache`: a form of S3-FIFO, which evicts values that were used rarely).

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lancemem_core::types::Result;
use quick_cache::sync::Cache;
use quick_cache::{DefaultHashBuilder, Lifecycle, OptionsBuilder, Weighter};

/// Values that a cache is expected to hold. `quick_cache` remembers half as many evicted slots, and
/// favours a value that is read again soon after its eviction.
const EXPECTED_VALUES: usize = 1_024;

/// Counters of the cache. They start at 0 when the table is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
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

/// Names a slot among the slots of one budget.
type SlotId = u64;

/// A cached value of any type, and its size.
#[derive(Clone)]
struct Entry {
    value: Arc<dyn Any + Send + Sync>,
    bytes: u64,
}

#[derive(Clone, Debug)]
struct ByBytes;

impl Weighter<SlotId, Entry> for ByBytes {
    fn weight(&self, _: &SlotId, entry: &Entry) -> u64 {
        entry.bytes
    }
}

/// Keeps values that a reader holds: their eviction would free nothing. The reader that inserts a
/// value holds it, so a value that is larger than the whole budget is cached too.
#[derive(Clone, Debug)]
struct KeepHeld;

impl Lifecycle<SlotId, Entry> for KeepHeld {
    /// What a request evicted. Dropped after the lock of the cache is released: a value may be
    /// large, or own other slots.
    type RequestState = Vec<Entry>;

    fn is_pinned(&self, _: &SlotId, entry: &Entry) -> bool {
        Arc::strong_count(&entry.value) > 1
    }

    fn begin_request(&self) -> Vec<Entry> {
        Vec::new()
    }

    fn on_evict(&self, evicted: &mut Vec<Entry>, _: SlotId, entry: Entry) {
        evicted.push(entry);
    }
}

/// A byte budget that many [`Cached`] values share.
#[derive(Debug)]
pub struct CacheBudget {
    limit_bytes: usize,
    values: Cache<SlotId, Entry, ByBytes, DefaultHashBuilder, KeepHeld>,
    next_slot: AtomicU64,
    hits: AtomicU64,
    misses: AtomicU64,
    evictions: AtomicU64,
}

impl CacheBudget {
    /// A budget of `limit_bytes`.
    #[must_use]
    pub fn new(limit_bytes: usize) -> Arc<Self> {
        let options = OptionsBuilder::new()
            // Each shard of `quick_cache` has a budget of its own.
            .shards(1)
            .estimated_items_capacity(EXPECTED_VALUES)
            .weight_capacity(limit_bytes as u64)
            .build();
        let Ok(options) = options else { unreachable!("both capacities are set") };
        let values = Cache::with_options(options, ByBytes, DefaultHashBuilder::default(), KeepHeld);
        Arc::new(Self {
            limit_bytes,
            values,
            next_slot: AtomicU64::new(0),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            evictions: AtomicU64::new(0),
        })
    }

    /// The counters.
    #[must_use]
    pub fn stats(&self) -> CacheStats {
        CacheStats {
            bytes: usize::try_from(self.values.weight()).unwrap_or(usize::MAX),
            limit_bytes: self.limit_bytes,
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
            evictions: self.evictions.load(Ordering::Relaxed),
        }
    }

    fn insert(&self, slot: SlotId, value: Arc<dyn Any + Send + Sync>, bytes: usize) {
        let entry = Entry { value, bytes: bytes as u64 };
        let evicted = self.values.insert_with_lifecycle(slot, entry);
        self.evictions.fetch_add(evicted.len() as u64, Ordering::Relaxed);
    }
}

/// A slot for one value, which is read on demand and cached while the budget allows.
pub struct Cached<T> {
    budget: Arc<CacheBudget>,
    slot: SlotId,
    /// Held while the value is read, so that concurrent callers wait for one read (single flight).
    reading: tokio::sync::Mutex<()>,
    value: PhantomData<fn() -> T>,
}

impl<T: Send + Sync + 'static> Cached<T> {
    /// An empty slot under `budget`.
    #[must_use]
    pub fn new(budget: &Arc<CacheBudget>) -> Arc<Self> {
        Arc::new(Self {
            budget: budget.clone(),
            slot: budget.next_slot.fetch_add(1, Ordering::Relaxed),
            reading: tokio::sync::Mutex::new(()),
            value: PhantomData,
        })
    }

    /// The value, if it is cached. Counts as a use, not as a hit.
    #[must_use]
    pub fn present(&self) -> Option<Arc<T>> {
        self.budget.values.get(&self.slot)?.value.downcast().ok()
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
            self.budget.hits.fetch_add(1, Ordering::Relaxed);
            return Ok(value);
        }
        let _reading = self.reading.lock().await;
        if let Some(value) = self.present() {
            self.budget.hits.fetch_add(1, Ordering::Relaxed);
            return Ok(value);
        }
        self.budget.misses.fetch_add(1, Ordering::Relaxed);
        let (value, bytes) = read.await?;
        let value = Arc::new(value);
        self.budget.insert(self.slot, value.clone(), bytes);
        Ok(value)
    }
}

impl<T> Drop for Cached<T> {
    fn drop(&mut self) {
        self.budget.values.remove(&self.slot);
    }
}

impl<T> fmt::Debug for Cached<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cached").field("slot", &self.slot).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use lancemem_core::types::Error;

    use super::*;

    async fn get(cached: &Cached<usize>, bytes: usize) -> Arc<usize> {
        cached.get_or_read(async { Ok((bytes, bytes)) }).await.unwrap()
    }

    #[tokio::test]
    async fn the_least_recently_used_value_is_evicted_first() {
        let budget = CacheBudget::new(100);
        let cached: Vec<_> = (0..4).map(|_| Cached::<usize>::new(&budget)).collect();
        for one in &cached[..3] {
            get(one, 30).await;
        }
        get(&cached[0], 30).await;
        get(&cached[3], 30).await;
        let there: Vec<bool> = cached.iter().map(|one| one.present().is_some()).collect();
        assert_eq!(there, [true, false, true, true]);
        let stats = budget.stats();
        assert_eq!((stats.bytes, stats.hits, stats.misses, stats.evictions), (90, 1, 4, 1));
    }

    #[tokio::test]
    async fn a_value_that_a_reader_holds_is_not_evicted() {
        let budget = CacheBudget::new(10);
        let (first, second) = (Cached::new(&budget), Cached::new(&budget));
        let held = get(&first, 8).await;
        get(&second, 8).await;
        assert!(first.present().is_some(), "held");
        drop(held);
        get(&second, 8).await;
        let third = Cached::new(&budget);
        get(&third, 8).await;
        assert!(first.present().is_none());
        assert_eq!(budget.stats().bytes, 8);
    }

    #[tokio::test]
    async fn a_value_larger_than_the_budget_stays_until_another_is_read() {
        let budget = CacheBudget::new(10);
        let (large, small) = (Cached::new(&budget), Cached::new(&budget));
        get(&large, 1_000).await;
        get(&large, 1_000).await;
        assert_eq!((budget.stats().misses, budget.stats().hits), (1, 1));
        get(&small, 8).await;
        assert!(large.present().is_none() && small.present().is_some());
        assert_eq!(budget.stats().bytes, 8);
    }

    #[tokio::test]
    async fn an_evicted_value_that_owns_slots_empties_them() {
        let budget = CacheBudget::new(100);
        let outer: Arc<Cached<Arc<Cached<usize>>>> = Cached::new(&budget);
        let inner = outer.get_or_read(async { Ok((Cached::new(&budget), 10)) }).await.unwrap();
        get(&inner, 50).await;
        drop(inner);
        let large = Cached::new(&budget);
        get(&large, 95).await;
        assert!(outer.present().is_none());
        assert_eq!(budget.stats().bytes, 95);
    }

    #[tokio::test]
    async fn a_dropped_value_is_not_counted() {
        let budget = CacheBudget::new(100);
        let cached = Cached::new(&budget);
        get(&cached, 30).await;
        drop(cached);
        assert_eq!(budget.stats().bytes, 0);
    }

    #[tokio::test]
    async fn concurrent_requests_read_once() {
        let budget = CacheBudget::new(100);
        let cached = Cached::new(&budget);
        let gets = (0..8).map(|_| {
            cached.get_or_read(async {
                tokio::task::yield_now().await;
                Ok((7, 7))
            })
        });
        let values = futures::future::try_join_all(gets).await.unwrap();
        assert_eq!(values.len(), 8);
        assert_eq!((budget.stats().misses, budget.stats().hits), (1, 7));
    }

    #[tokio::test]
    async fn after_an_error_the_next_request_reads_again() {
        let budget = CacheBudget::new(100);
        let cached: Arc<Cached<usize>> = Cached::new(&budget);
        let failed = cached.get_or_read(async { Err(Error::input("no")) }).await;
        assert!(failed.is_err());
        assert_eq!(*get(&cached, 7).await, 7);
    }
}
