//! Single-flight loads for Lance's cache of file metadata and indexes, for one table handle.
//!
//! Owns: which caller loads a key that is not cached, and how long other callers wait for that
//! load.
//! Does not own: the cache and its eviction, which are Lance's.
//!
//! Lance's own cache runs one load of a key at a time, in the future of the first caller. A scan is
//! polled only while its consumer takes batches. So a scan that pauses during a load would block
//! every other read of the file. Here a caller waits for a limited time, then loads the key itself.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lance::session::{CacheSpec, Session};
use lance_core::Result;
use lance_core::cache::{
    CacheBackend, CacheCodec, CacheEntry, CacheTier, Context, InternalCacheKey, QuickCacheBackend,
    QuickCacheShardPolicy,
};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::timeout;

/// How long a caller waits for the load of another caller: longer than a load takes that does not
/// pause.
const PATIENCE: Duration = Duration::from_millis(500);
/// Bytes of cached file metadata, and of cached indexes: Lance's own defaults.
const METADATA_BYTES: usize = 1 << 30;
const INDEX_BYTES: usize = 6 << 30;

/// A session in which a read that pauses does not block other reads.
pub fn session() -> Arc<Session> {
    let kept = |bytes, shards| {
        let backend: Arc<dyn CacheBackend> = Arc::new(Loads::keeping(bytes, shards));
        CacheSpec::Backend(backend)
    };
    // Parts of indexes are few and large.
    let of_indexes = kept(INDEX_BYTES, QuickCacheShardPolicy::Single);
    let of_files = kept(METADATA_BYTES, QuickCacheShardPolicy::Recommended);
    Arc::new(Session::with_cache_backends(of_indexes, of_files, Arc::default()))
}

type Loading = HashMap<InternalCacheKey, watch::Receiver<()>>;
type Load<'a> = Pin<Box<dyn Future<Output = Result<(CacheEntry, usize)>> + Send + 'a>>;

#[derive(Debug)]
struct Loads {
    kept: QuickCacheBackend,
    loading: Mutex<Loading>,
}

/// The right to load a key, for which other callers wait. Dropping it wakes them, also after an
/// error or a cancelled load.
struct LoadGuard<'a> {
    loads: &'a Loads,
    key: InternalCacheKey,
    _alive: watch::Sender<()>,
}

impl Drop for LoadGuard<'_> {
    fn drop(&mut self) {
        self.loads.loading.lock().remove(&self.key);
    }
}

impl Loads {
    fn keeping(bytes: usize, shards: QuickCacheShardPolicy) -> Self {
        Self {
            kept: QuickCacheBackend::with_shard_policy(bytes, shards),
            loading: Mutex::default(),
        }
    }

    /// The right to load `key`, or a receiver that closes when the running load ends.
    fn turn(
        &self,
        key: &InternalCacheKey,
    ) -> std::result::Result<LoadGuard<'_>, watch::Receiver<()>> {
        let mut loading = self.loading.lock();
        if let Some(running) = loading.get(key) {
            return Err(running.clone());
        }
        let (alive, running) = watch::channel(());
        loading.insert(*key, running);
        Ok(LoadGuard { loads: self, key: *key, _alive: alive })
    }
}

#[async_trait]
impl CacheBackend for Loads {
    async fn get_or_insert<'a>(
        &self,
        key: &InternalCacheKey,
        loader: Load<'a>,
        codec: Option<CacheCodec>,
    ) -> Result<(CacheEntry, bool)> {
        if let Some(entry) = self.kept.get(key, codec).await {
            return Ok((entry, true));
        }
        let turn = match self.turn(key) {
            Ok(turn) => Some(turn),
            Err(mut running) => {
                // Nothing is ever sent: this returns when the running load ends.
                let _ = timeout(PATIENCE, running.changed()).await;
                if let Some(entry) = self.kept.get(key, codec).await {
                    return Ok((entry, true));
                }
                None
            }
        };
        let (entry, bytes) = loader.await?;
        self.kept.insert(key, entry.clone(), bytes, codec).await;
        drop(turn);
        Ok((entry, false))
    }

    async fn get(&self, key: &InternalCacheKey, codec: Option<CacheCodec>) -> Option<CacheEntry> {
        self.kept.get(key, codec).await
    }

    async fn insert(
        &self,
        key: &InternalCacheKey,
        entry: CacheEntry,
        size_bytes: usize,
        codec: Option<CacheCodec>,
    ) {
        self.kept.insert(key, entry, size_bytes, codec).await;
    }

    async fn get_resident(&self, key: &InternalCacheKey) -> Option<CacheEntry> {
        self.kept.get_resident(key).await
    }

    async fn peek_resident(&self, key: &InternalCacheKey) -> bool {
        self.kept.peek_resident(key).await
    }

    async fn peek_tier(&self, key: &InternalCacheKey) -> CacheTier {
        self.kept.peek_tier(key).await
    }

    async fn clear(&self) {
        self.kept.clear().await;
    }

    async fn num_entries(&self) -> usize {
        self.kept.num_entries().await
    }

    async fn size_bytes(&self) -> usize {
        self.kept.size_bytes().await
    }

    fn approx_num_entries(&self) -> usize {
        self.kept.approx_num_entries()
    }

    fn approx_size_bytes(&self) -> usize {
        self.kept.approx_size_bytes()
    }

    fn capacity_bytes(&self) -> Option<usize> {
        self.kept.capacity_bytes()
    }

    fn deep_size_of_entries(
        &self,
        context: &mut Context,
        size_of_entry: &dyn Fn(&CacheEntry, &mut Context) -> Option<usize>,
    ) -> Option<usize> {
        self.kept.deep_size_of_entries(context, size_of_entry)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::{FutureExt, poll};

    use super::*;

    fn loads() -> Loads {
        Loads::keeping(1 << 20, QuickCacheShardPolicy::Single)
    }

    fn entry(value: u64) -> CacheEntry {
        Arc::new(value)
    }

    #[tokio::test]
    async fn a_load_that_pauses_does_not_block_another() {
        let loads = loads();
        let key = InternalCacheKey::from_bytes([1; 16]);
        let never = std::future::pending().boxed();
        let mut paused = std::pin::pin!(loads.get_or_insert(&key, never, None));
        assert!(poll!(paused.as_mut()).is_pending());
        let other = async { Ok((entry(2), 8)) }.boxed();
        let (found, was_kept) = loads.get_or_insert(&key, other, None).await.unwrap();
        assert_eq!((found.downcast_ref::<u64>(), was_kept), (Some(&2), false));
        assert!(loads.get(&key, None).await.is_some());
    }

    #[tokio::test]
    async fn concurrent_loads_of_a_key_are_one() {
        let (loads, count) = (loads(), AtomicUsize::new(0));
        let key = InternalCacheKey::from_bytes([1; 16]);
        let load = || {
            let slow = async {
                tokio::task::yield_now().await;
                count.fetch_add(1, Ordering::SeqCst);
                Ok((entry(3), 8))
            };
            loads.get_or_insert(&key, slow.boxed(), None)
        };
        let all = futures::future::try_join_all((0..10).map(|_| load())).await.unwrap();
        assert_eq!((count.load(Ordering::SeqCst), all.len()), (1, 10));
        assert!(loads.loading.lock().is_empty());
    }

    #[tokio::test]
    async fn a_load_that_fails_or_is_dropped_leaves_the_turn_to_the_next() {
        let loads = loads();
        let key = InternalCacheKey::from_bytes([1; 16]);
        let fails = async { Err(lance_core::Error::invalid_input("no")) }.boxed();
        assert!(loads.get_or_insert(&key, fails, None).await.is_err());
        {
            let never = std::future::pending().boxed();
            let mut dropped = std::pin::pin!(loads.get_or_insert(&key, never, None));
            assert!(poll!(dropped.as_mut()).is_pending());
        }
        let loaded = async { Ok((entry(4), 8)) }.boxed();
        let (_, was_kept) = loads.get_or_insert(&key, loaded, None).await.unwrap();
        assert!(!was_kept && loads.loading.lock().is_empty());
    }
}
