//! Which source holds the newest row of each key.
//!
//! Owns: [`KeyChoice`], the answer for all sources above the base table; [`LazyChoice`], which
//! reads the keys when the first row needs them; and [`ComparedSsTables`], the rows of each SSTable
//! that a newer SSTable supersedes.
//! Does not own: rows. A key that is absent here has its newest row in the base table.
//!
//! The keys of SSTables and the keys of MemTables are two key maps. The map of the SSTables is
//! cached from one scan to the next, because SSTables change seldom. The map of the MemTables is
//! small and built for each scan.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_buffer::{BooleanBuffer, BooleanBufferBuilder};
use datafusion::common::runtime::SpawnedTask;
use futures::future::try_join_all;
use lancemem_core::format::{KeyForm, KeyView};
use lancemem_core::types::{Error, Freshness, Result};
use tokio::sync::OnceCell;

use super::{Comparison, DeadRows, MergeCache, NewerKeys, SourceKeys, SsTableId, compare};
use crate::errors::Context;
use crate::snapshot::{Snapshot, Source, SsTableHandle, SsTableKeys};

/// The action that errors name.
const COMPARING: &str = "reading or comparing the keys of SSTables";

/// For every key above the base table, the freshness of its newest row, tombstones included.
///
/// No key is in two shards, so the generations of all shards share one key map.
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

    /// The choice over the sources of `part`, a subset of the sources of `whole`. Compared SSTables
    /// of `whole` are taken from the cache; those of `part` are not cached.
    async fn of_part(whole: &Snapshot, part: &Snapshot, cache: &MergeCache) -> Result<Self> {
        let sstables = match cache.sstables(whole) {
            Some(sstables) => sstables,
            None => Arc::new(ComparedSsTables::of(part).await?),
        };
        Ok(Self { sstables, memory: Arc::new(keys_in_memory(part)?) })
    }

    /// For each of `keys`, of rows in the base, whether no SSTable has a row of it; `None` where
    /// the SSTables have no rows at all.
    #[must_use]
    pub fn not_in_sstables(&self, keys: &KeyView<'_>) -> Option<BooleanBuffer> {
        absent(&self.sstables.keys, keys)
    }

    /// The keys of the SSTables.
    #[must_use]
    pub fn keys_of_sstables(&self) -> &Arc<NewerKeys> {
        &self.sstables.keys
    }

    /// The rows of an SSTable that a newer SSTable supersedes.
    ///
    /// # Errors
    /// An internal error for an SSTable that was not compared.
    pub fn superseded(&self, sstable: SsTableId) -> Result<Arc<DeadRows>> {
        let rows = self.sstables.superseded.get(&sstable).cloned();
        rows.ok_or_else(|| {
            let (shard_id, generation) = sstable;
            Error::internal(format!(
                "the SSTable of generation {generation} in shard {shard_id} was not compared with \
                 the other SSTables"
            ))
        })
    }

    /// For each of `keys`, of rows in a MemTable of this freshness, whether no MemTable has a newer
    /// row. SSTables are not asked: every MemTable of a shard is newer than its SSTables.
    #[must_use]
    pub fn newest_of_memory(&self, keys: &KeyView<'_>, freshness: Freshness) -> BooleanBuffer {
        newest_among(&self.memory, keys, freshness)
    }

    /// For each of `keys`, of rows in the base or an SSTable, whether no MemTable has a row of it;
    /// `None` where the MemTables have no rows at all.
    #[must_use]
    pub fn not_in_memory(&self, keys: &KeyView<'_>) -> Option<BooleanBuffer> {
        absent(&self.memory, keys)
    }

    /// Number of keys above the base table; a key in an SSTable and in memory counts twice.
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

/// The sources of a choice.
#[derive(Debug)]
enum LazySource {
    /// All sources of a snapshot, read through the cache.
    Whole(Arc<Snapshot>, Arc<MergeCache>),
    /// The sources of the second snapshot: every source of the first snapshot that may hold a key
    /// of the scanned rows.
    Part(Arc<Snapshot>, Arc<Snapshot>, Arc<MergeCache>),
    /// The MemTables of a snapshot.
    Memory(Arc<Snapshot>),
}

/// A choice that is computed when the first row needs it, once for all arms of a plan.
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
    /// The choice over all sources of `snapshot`, read through `cache`.
    #[must_use]
    pub fn new(snapshot: Arc<Snapshot>, cache: Arc<MergeCache>) -> Self {
        LazySource::Whole(snapshot, cache).into()
    }

    /// The choice over the sources of `part`, which has every source of `snapshot` that may hold a
    /// key of the scanned rows.
    #[must_use]
    pub fn of_part(snapshot: Arc<Snapshot>, part: Arc<Snapshot>, cache: Arc<MergeCache>) -> Self {
        LazySource::Part(snapshot, part, cache).into()
    }

    /// The choice among the MemTables of `snapshot`. Reads nothing.
    #[must_use]
    pub fn of_memory(snapshot: Arc<Snapshot>) -> Self {
        LazySource::Memory(snapshot).into()
    }

    /// A choice that is computed already.
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

/// For each of `keys` whether `newer` lacks it; `None` where `newer` is empty.
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

/// The keys of a snapshot's SSTables, each with its newest SSTable, and the rows of each SSTable
/// that a newer SSTable supersedes. One comparison of the keys yields both.
#[derive(Debug, Default)]
pub struct ComparedSsTables {
    keys: Arc<NewerKeys>,
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
        // A comparison of millions of keys would block this thread of the runtime.
        let compared = SpawnedTask::spawn_blocking(move || {
            let Comparison { newest, superseded } = compare(form, &sstables)?;
            let dead = superseded.into_iter().map(|rows| Arc::new(DeadRows::of_sstable(rows)));
            let superseded = sstables.into_iter().map(|(sstable, _)| sstable).zip(dead);
            Ok(Self { keys: Arc::new(newest), superseded: superseded.collect() })
        });
        compared.await.context(COMPARING)?
    }

    /// Bytes on the heap.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        let rows: usize = self.superseded.values().map(|rows| rows.heap_bytes()).sum();
        self.keys.heap_bytes() + rows
    }
}

/// The keys of an SSTable, read in a task of their own beside other SSTables.
async fn keys_of_sstable(
    sstable: Arc<SsTableHandle>,
    key: Arc<[String]>,
) -> Result<(SsTableId, Arc<SsTableKeys>)> {
    let id = (sstable.shard_id, sstable.generation);
    if let Some(keys) = sstable.keys_in_memory() {
        return Ok((id, keys));
    }
    let read = SpawnedTask::spawn(async move { sstable.keys(&key).await });
    let keys = read.await.context(COMPARING)??;
    Ok((id, keys))
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
