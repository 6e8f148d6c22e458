//! Which source holds the newest row of each key.
//!
//! Owns: [`KeyChoice`], the answer over everything above the base table, [`LazyChoice`], which
//! reads the keys when the first row needs them, and [`ComparedSsTables`], which rows of an SSTable a newer
//! one supersedes.
//! Does not own: rows. A key that is absent here has its newest row in the base table.
//!
//! Keys of flushed SSTables and keys in memory are two tables: runs change seldom, so their table is
//! kept from one scan to the next, while the one of the MemTables is small and made anew.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_buffer::{BooleanBuffer, BooleanBufferBuilder};
use datafusion::common::runtime::SpawnedTask;
use futures::future::try_join_all;
use lancemem_core::format::{KeyForm, KeyView};
use lancemem_core::types::{Error, Freshness, Result};
use tokio::sync::OnceCell;
use tokio::task::JoinError;

use super::{Comparison, DeadRows, MergeCache, NewerKeys, SourceKeys, SsTableId, compare};
use crate::snapshot::{Snapshot, Source, SsTableHandle, SsTableKeys};

/// For every key above the base table the freshness of its newest row, tombstones included.
///
/// Keys of different shards never meet, so generations of all shards share one table.
#[derive(Debug, Default)]
pub struct KeyChoice {
    sstables: Arc<ComparedSsTables>,
    memory: Arc<NewerKeys>,
}

impl KeyChoice {
    /// The choice over all sources of `snapshot`.
    ///
    /// # Errors
    /// A storage error while keys of an SSTable are read.
    pub async fn of(snapshot: &Snapshot) -> Result<Self> {
        Self::with_cache(snapshot, &MergeCache::default()).await
    }

    async fn with_cache(snapshot: &Snapshot, cache: &MergeCache) -> Result<Self> {
        let sstables = match cache.sstables(snapshot) {
            Some(sstables) => sstables,
            None => cache.keep_sstables(snapshot, ComparedSsTables::of(snapshot).await?),
        };
        Ok(Self { sstables, memory: Arc::new(keys_in_memory(snapshot)?) })
    }

    /// The choice among the MemTables of `snapshot` alone.
    fn of_memory(snapshot: &Snapshot) -> Result<Self> {
        Ok(Self { sstables: Arc::default(), memory: Arc::new(keys_in_memory(snapshot)?) })
    }

    /// The choice over the sources that `partition` has of those of `whole`.
    async fn of_part(whole: &Snapshot, part: &Snapshot, cache: &MergeCache) -> Result<Self> {
        let sstables = match cache.sstables(whole) {
            Some(sstables) => sstables,
            None => Arc::new(ComparedSsTables::of(part).await?),
        };
        Ok(Self { sstables, memory: Arc::new(keys_in_memory(part)?) })
    }

    /// For each of `keys`, of rows in the base, whether no SSTable has a row; `None` where none has any.
    #[must_use]
    pub fn not_in_sstables(&self, keys: &KeyView<'_>) -> Option<BooleanBuffer> {
        absent(&self.sstables.keys, keys)
    }

    /// The rows of an SSTable that a newer SSTable supersedes.
    ///
    /// # Errors
    /// An internal error for an SSTable that was not compared.
    pub fn superseded(&self, sstable: SsTableId) -> Result<Arc<DeadRows>> {
        let rows = self.sstables.superseded.get(&sstable).cloned();
        rows.ok_or_else(|| {
            let (shard_id, generation) = sstable;
            Error::Internal(format!(
                "the SSTable of generation {generation} in shard {shard_id} was not compared with \
                 the other SSTables"
            ))
        })
    }

    /// For each of `keys`, of rows in a MemTable of this freshness, whether no MemTable has a
    /// newer row. Every MemTable of a shard is newer than every SSTable of it.
    #[must_use]
    pub fn newest_of_memory(&self, keys: &KeyView<'_>, freshness: Freshness) -> BooleanBuffer {
        newest_among(&self.memory, keys, freshness)
    }

    /// For each of `keys`, of rows in the base or an SSTable, whether no MemTable has a row; `None`
    /// where none has any.
    #[must_use]
    pub fn not_in_memory(&self, keys: &KeyView<'_>) -> Option<BooleanBuffer> {
        absent(&self.memory, keys)
    }

    /// Keys that have a row above the base table; one in an SSTable and in memory counts twice.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sstables.keys.len() + self.memory.len()
    }

    /// Whether no key has a row above the base table.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sstables.keys.is_empty() && self.memory.is_empty()
    }

    /// Whether `key` has a row above the base table.
    #[must_use]
    pub fn contains(&self, key: &[u8]) -> bool {
        self.memory.newest(key).or_else(|| self.sstables.keys.newest(key)).is_some()
    }
}

/// What a choice is made of.
#[derive(Debug)]
enum LazySource {
    /// All sources of a snapshot, with what the cache has of them.
    Whole(Arc<Snapshot>, Arc<MergeCache>),
    /// The sources of the second view, which has every source of the first that may hold a key of
    /// the rows in question.
    Part(Arc<Snapshot>, Arc<Snapshot>, Arc<MergeCache>),
    /// The MemTables of a snapshot.
    Memory(Arc<Snapshot>),
}

/// A choice that is made when the first row needs it, once for all arms of a plan.
#[derive(Debug)]
pub struct LazyChoice {
    source: Option<LazySource>,
    choice: OnceCell<Arc<KeyChoice>>,
}

impl From<LazySource> for LazyChoice {
    fn from(source: LazySource) -> Self {
        Self { source: Some(source), choice: OnceCell::new() }
    }
}

impl LazyChoice {
    /// The choice over `snapshot`, with what `cache` has of it.
    #[must_use]
    pub fn new(snapshot: Arc<Snapshot>, cache: Arc<MergeCache>) -> Self {
        LazySource::Whole(snapshot, cache).into()
    }

    /// The choice over the sources of `partition`, which has every source of `snapshot` that may hold a
    /// key of the rows in question.
    #[must_use]
    pub fn of_part(snapshot: Arc<Snapshot>, part: Arc<Snapshot>, cache: Arc<MergeCache>) -> Self {
        LazySource::Part(snapshot, part, cache).into()
    }

    /// The choice among the MemTables of `snapshot`. Reads nothing.
    #[must_use]
    pub fn of_memory(snapshot: Arc<Snapshot>) -> Self {
        LazySource::Memory(snapshot).into()
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
            Some(LazySource::Whole(snapshot, cache)) => {
                KeyChoice::with_cache(snapshot, cache).await.map(Arc::new)
            }
            Some(LazySource::Part(snapshot, part, cache)) => {
                KeyChoice::of_part(snapshot, part, cache).await.map(Arc::new)
            }
            Some(LazySource::Memory(snapshot)) => KeyChoice::of_memory(snapshot).map(Arc::new),
            None => Ok(Arc::default()),
        };
        self.choice.get_or_try_init(make).await.cloned()
    }
}

/// For each of `keys` whether `newer` has no row of it; `None` where it has none of any.
fn absent(newer: &NewerKeys, keys: &KeyView<'_>) -> Option<BooleanBuffer> {
    (!newer.is_empty()).then(|| newer.absent(keys))
}

/// For each of `keys` whether `newer` has its newest row at `freshness`.
fn newest_among(newer: &NewerKeys, keys: &KeyView<'_>, freshness: Freshness) -> BooleanBuffer {
    let mut newest = BooleanBufferBuilder::new(keys.len());
    newest.append_n(keys.len(), false);
    newer.visit_found(keys, |row, found| newest.set_bit(row, found == freshness));
    newest.finish()
}

/// The keys of the SSTables of a snapshot, each with its newest SSTable, and the rows of each SSTable that a newer
/// one supersedes: those come to light while the keys are compared with each other.
#[derive(Debug, Default)]
pub struct ComparedSsTables {
    keys: NewerKeys,
    superseded: HashMap<SsTableId, Arc<DeadRows>>,
}

impl ComparedSsTables {
    async fn of(snapshot: &Snapshot) -> Result<Self> {
        let sstables = snapshot.sources().filter_map(|(_, source)| match source {
            Source::SsTable(sstable) => {
                Some(keys_of_sstable(sstable.clone(), snapshot.key.clone()))
            }
            Source::MemTable(_) => None,
        });
        let sstables = try_join_all(sstables).await?;
        let form = form_of(snapshot);
        // Millions of keys take a while, and others need this thread.
        let compared = SpawnedTask::spawn_blocking(move || {
            let Comparison { newest, superseded } = compare(form, &sstables)?;
            let dead = superseded.into_iter().map(|rows| Arc::new(DeadRows::of_sstable(rows)));
            let superseded = sstables.into_iter().map(|(sstable, _)| sstable).zip(dead);
            Ok(Self { keys: newest, superseded: superseded.collect() })
        });
        compared.await.map_err(|error| ended(&error))?
    }

    /// Bytes on the heap.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        let rows: usize = self.superseded.values().map(|rows| rows.heap_bytes()).sum();
        self.keys.heap_bytes() + rows
    }
}

/// The keys of an SSTable, which is read beside the others.
async fn keys_of_sstable(
    sstable: Arc<SsTableHandle>,
    key: Arc<[String]>,
) -> Result<(SsTableId, Arc<SsTableKeys>)> {
    let id = (sstable.shard_id, sstable.generation);
    if let Some(keys) = sstable.keys_in_memory() {
        return Ok((id, keys));
    }
    let read = SpawnedTask::spawn(async move { sstable.keys(&key).await });
    let keys = read.await.map_err(|error| ended(&error))??;
    Ok((id, keys))
}

fn ended(error: &JoinError) -> Error {
    Error::Internal(format!("reading or comparing the keys of SSTables: {error}"))
}

fn form_of(snapshot: &Snapshot) -> KeyForm {
    KeyForm::of(&snapshot.schema, &snapshot.key)
}

fn keys_in_memory(snapshot: &Snapshot) -> Result<NewerKeys> {
    let memtables = snapshot.sources().filter_map(|(freshness, source)| match source {
        Source::MemTable(rows) => {
            Some(SourceKeys { freshness, at_most: rows.rows(), keys: rows.newest_keys() })
        }
        Source::SsTable(_) => None,
    });
    NewerKeys::of(form_of(snapshot), memtables.collect())
}
