//! Which source holds the newest row of each key.
//!
//! Owns: [`KeyChoice`], the answer over everything above the base table, and [`LazyChoice`],
//! which reads the keys when the first row needs them.
//! Does not own: rows. A key that is absent here has its newest row in the base table.
//!
//! Keys of flushed runs and keys in memory are two tables: runs change seldom, so their table is
//! kept from one scan to the next, while the one of the MemTables is small and made anew.

use std::sync::Arc;

use arrow_buffer::BooleanBuffer;
use futures::future::try_join_all;
use lancemem_core::memtable::MemTableView;
use lancemem_core::types::{Freshness, KeyBlock, Result};
use tokio::sync::OnceCell;

use super::{MergeCache, NewerKeys};
use crate::view::{ReadView, RunKeys, Source, SsTableHandle};

/// Bytes of a key for which room is made at first: an integer's.
const USUAL_KEY_BYTES: usize = 9;

/// For every key above the base table the freshness of its newest row, tombstones included.
///
/// Keys of different shards never meet, so generations of all shards share one table.
#[derive(Debug, Default)]
pub struct KeyChoice {
    runs: Arc<NewerKeys>,
    memory: Arc<NewerKeys>,
}

impl KeyChoice {
    /// The choice over all sources of `view`.
    ///
    /// # Errors
    /// A storage error while keys of an SSTable are read.
    pub async fn of(view: &ReadView) -> Result<Self> {
        Self::with_cache(view, &MergeCache::default()).await
    }

    async fn with_cache(view: &ReadView, cache: &MergeCache) -> Result<Self> {
        let runs = match cache.keys_of_runs(view) {
            Some(runs) => runs,
            None => cache.keep_keys_of_runs(view, keys_of_runs(view).await?),
        };
        Ok(Self { runs, memory: Arc::new(keys_in_memory(view)?) })
    }

    /// Whether the newest row of `key` is in a source of this freshness.
    #[must_use]
    pub fn is_newest(&self, key: &[u8], freshness: Freshness) -> bool {
        // Every MemTable of a shard is newer than every run of it.
        let newest = self.memory.newest(key).or_else(|| self.runs.newest(key));
        newest.unwrap_or(Freshness::Base) == freshness
    }

    /// For each of `keys` whether its newest row is in a source of this freshness.
    #[must_use]
    pub fn newest_at(&self, keys: &KeyBlock, freshness: Freshness) -> BooleanBuffer {
        let memory = self.memory.newest_of(keys);
        let runs = self.runs.newest_of(keys);
        BooleanBuffer::collect_bool(keys.len(), |row| {
            let newest = memory.get(row).or_else(|| runs.get(row));
            newest.unwrap_or(Freshness::Base) == freshness
        })
    }

    /// Keys that have a row above the base table; one in a run and in memory counts twice.
    #[must_use]
    pub fn len(&self) -> usize {
        self.runs.len() + self.memory.len()
    }

    /// Whether no key has a row above the base table.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty() && self.memory.is_empty()
    }

    /// Whether `key` has a row above the base table.
    #[must_use]
    pub fn contains(&self, key: &[u8]) -> bool {
        self.memory.newest(key).or_else(|| self.runs.newest(key)).is_some()
    }
}

/// A choice that is made when the first row needs it, once for all arms of a plan.
#[derive(Debug)]
pub struct LazyChoice {
    source: Option<(Arc<ReadView>, Arc<MergeCache>)>,
    choice: OnceCell<Arc<KeyChoice>>,
}

impl LazyChoice {
    /// The choice over `view`, with what `cache` has of it.
    #[must_use]
    pub fn new(view: Arc<ReadView>, cache: Arc<MergeCache>) -> Self {
        Self { source: Some((view, cache)), choice: OnceCell::new() }
    }

    /// A choice that is made already.
    #[must_use]
    pub fn made(choice: Arc<KeyChoice>) -> Self {
        Self { source: None, choice: OnceCell::new_with(Some(choice)) }
    }

    /// The choice.
    ///
    /// # Errors
    /// A storage error while keys of an SSTable are read.
    pub async fn get(&self) -> Result<Arc<KeyChoice>> {
        let make = async || match &self.source {
            Some((view, cache)) => KeyChoice::with_cache(view, cache).await.map(Arc::new),
            None => Ok(Arc::default()),
        };
        self.choice.get_or_try_init(make).await.cloned()
    }
}

async fn keys_of_runs(view: &ReadView) -> Result<NewerKeys> {
    let runs = view.sources().filter_map(|(freshness, source)| match source {
        Source::SsTable(run) => Some(keys_of_run(run, freshness, &view.key)),
        Source::MemTable(_) => None,
    });
    let runs = try_join_all(runs).await?;
    let count = runs.iter().map(|(_, keys)| keys.len()).sum();
    let mut newer = NewerKeys::with_capacity(count, count * USUAL_KEY_BYTES);
    for (freshness, keys) in &runs {
        newer.add(*freshness, keys.iter().map(|(key, _)| key))?;
    }
    Ok(newer)
}

async fn keys_of_run(
    run: &SsTableHandle,
    freshness: Freshness,
    key: &[String],
) -> Result<(Freshness, Arc<RunKeys>)> {
    Ok((freshness, run.keys(key).await?))
}

fn keys_in_memory(view: &ReadView) -> Result<NewerKeys> {
    let memtables: Vec<(Freshness, &MemTableView)> = view
        .sources()
        .filter_map(|(freshness, source)| match source {
            Source::MemTable(rows) => Some((freshness, rows)),
            Source::SsTable(_) => None,
        })
        .collect();
    let count = memtables.iter().map(|(_, rows)| rows.rows()).sum();
    let mut newer = NewerKeys::with_capacity(count, count * USUAL_KEY_BYTES);
    for (freshness, rows) in memtables {
        newer.add(freshness, rows.newest_keys())?;
    }
    Ok(newer)
}
