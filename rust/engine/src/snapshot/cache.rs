//! What a process keeps of what it read, within a number of bytes.
//!
//! Owns: the bound, which thing goes first (the one used longest ago), and the counters.
//! Does not own: what the things are, or how they are read again.

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use lancemem_core::types::Result;
use parking_lot::Mutex;

/// Counters of what is kept. They start at 0 when the table is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeptStats {
    /// Bytes that are kept now.
    pub bytes: usize,
    /// The bound. What readers hold at the moment can exceed it.
    pub limit_bytes: usize,
    /// Times that something was asked for and was there.
    pub hits: u64,
    /// Times that it was read.
    pub misses: u64,
    /// Things that went because of the bound.
    pub evictions: u64,
}

/// A bound that many [`Cached`] share.
#[derive(Debug)]
pub struct KeptBound {
    limit_bytes: usize,
    bytes: AtomicUsize,
    /// Counts uses, so that the order of two of them is known.
    uses: AtomicU64,
    hits: AtomicU64,
    misses: AtomicU64,
    evictions: AtomicU64,
    members: Mutex<Vec<Weak<dyn Evict>>>,
}

/// Something under a bound.
trait Evict: fmt::Debug + Send + Sync {
    /// When it was last used; `None` where nothing is kept, or a reader holds it, so that letting
    /// go of it would free nothing.
    fn last_used(&self) -> Option<u64>;

    /// Lets go of it. False where there is nothing any more.
    fn evict(&self) -> bool;
}

impl KeptBound {
    /// A bound of `limit_bytes`.
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

    /// Lets go of what was used longest ago until the bound is met.
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

/// One thing that is read when it is asked for and kept while the bound allows.
pub struct Cached<T> {
    bound: Arc<KeptBound>,
    used: AtomicU64,
    value: Mutex<Option<(Arc<T>, usize)>>,
    /// Held by the one who reads, so that the others wait instead of reading as well.
    reading: tokio::sync::Mutex<()>,
}

impl<T: Send + Sync + 'static> Cached<T> {
    /// Nothing yet, under `bound`.
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

    /// The thing, if it is there. Counts as a use, not as a hit.
    #[must_use]
    pub fn present(&self) -> Option<Arc<T>> {
        let value = self.value.lock().as_ref().map(|(value, _)| value.clone());
        if value.is_some() {
            self.used.store(self.bound.next_use(), Ordering::Relaxed);
        }
        value
    }

    /// The thing, read by `read` where it is not there. `read` gives it with its bytes.
    ///
    /// # Errors
    /// The error of `read`; then nothing is kept.
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
        // Dropped behind the lock: the value may be large, or hold others of its kind.
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
    async fn what_was_used_longest_ago_goes_first() {
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
    async fn what_a_reader_holds_stays() {
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
    async fn what_is_dropped_is_not_counted_any_more() {
        let bound = KeptBound::new(100);
        let kept = Cached::new(&bound);
        get(&kept, 30).await;
        drop(kept);
        assert_eq!(bound.stats().bytes, 0);
    }

    #[tokio::test]
    async fn many_who_ask_at_once_read_once() {
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
    async fn after_an_error_the_next_one_reads_again() {
        let bound = KeptBound::new(100);
        let kept: Arc<Cached<usize>> = Cached::new(&bound);
        let failed = kept.get_or_read(async { Err(Error::input("no")) }).await;
        assert!(failed.is_err());
        assert_eq!(*get(&kept, 7).await, 7);
    }
}
