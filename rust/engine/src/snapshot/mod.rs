//! The snapshot of one query: a base version and, per shard, the SSTables and rows above it.
//!
//! Owns: [`Snapshot`], which is immutable, the open SSTables, and their cache in memory.
//! Does not own: how a snapshot is gathered from storage and jobs (`table`), or how it is read.

mod base;
mod base_rows;
mod batches;
mod cache;
mod graves;
mod local_files;
mod missing;
mod readers;
mod row_readers;
mod sstable_columns;
mod sstable_keys;
mod sstables;
mod token;
mod vector_rows;

use std::num::NonZero;
use std::sync::Arc;

use arrow_schema::SchemaRef;
use lance::Dataset;
use lancemem_core::format::Sharding;
use lancemem_core::merge::Choosing;
use lancemem_core::types::{Freshness, Generation, ManifestVersion, ShardId, WalPosition};

pub use lancemem_core::memtable::MemTableView;

pub use base::{BaseCache, BaseFragment, OpenBase};
pub use base_rows::{BaseRows, DeletedRows};
pub use batches::{bytes_of, set_batches};
pub use cache::{CacheBudget, CacheStats, Cached};
pub use graves::{GraveCache, Graves, REMEMBERED_AT, graves_of, listed_graves, open_graves};
pub use missing::{MissingRange, missing_generations};
pub use readers::{is_pinned, remember};
pub use row_readers::RowReaders;
pub use sstable_keys::SsTableKeys;
pub use sstables::{SsTableCache, SsTableHandle, read_ahead};
pub use token::{ShardToken, SnapshotToken};
pub use vector_rows::VectorRows;

use crate::schema::TableSchema;

/// Which rows a read must see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Consistency {
    /// The base table and flushed SSTables.
    Flushed,
    /// Also the WAL tail of every shard: every acknowledged durable write of any process.
    #[default]
    Durable,
    /// Also the MemTables of the jobs that the caller passes.
    Live,
}

/// A consistent snapshot of a table. Immutable: reads of one snapshot always agree.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The base table at one version.
    pub base: Arc<Dataset>,
    /// Columns of the result, in the order of the base table.
    pub schema: SchemaRef,
    /// The same columns, with the rules that reconcile stored rows with them.
    pub columns: Arc<TableSchema>,
    /// Names of the key columns in primary-key order; empty for an append-only table.
    pub key: Arc<[String]>,
    /// How keys are spread over the shards; `None` where the writers decide.
    pub sharding: Option<Sharding>,
    /// What the shards hold above the base table.
    pub shards: Vec<SnapshotShard>,
    /// The cache of the base table in this process, for lookups by key.
    pub base_cache: Arc<BaseCache>,
}

/// The part of a snapshot that one shard contributes.
#[derive(Clone, Debug)]
pub struct SnapshotShard {
    /// The shard.
    pub shard_id: ShardId,
    /// The bucket whose keys it holds, where its manifest records one.
    pub bucket: Option<i32>,
    /// Version of the shard manifest that lists the SSTables.
    pub manifest_version: ManifestVersion,
    /// SSTables that compaction has not covered at the snapshot's base version, oldest first.
    pub sstables: Vec<Arc<SsTableHandle>>,
    /// Rows in memory, oldest generation first.
    pub memtables: Vec<MemTableView>,
    /// How the rows in memory can be found again.
    pub log: LogPart,
}

/// The source of the rows in memory of one shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogPart {
    /// The log, up to but without this position; `None` where the log was not read.
    Before(Option<WalPosition>),
    /// A job. No name on storage refers to its memory, so such a snapshot has no token.
    Job,
}

impl Snapshot {
    /// The pinned version of the base table.
    #[must_use]
    pub fn base_version(&self) -> u64 {
        self.base.version().version
    }

    /// The token by which another process opens the same snapshot ([`crate::Table::snapshot_at`]).
    /// `None` where the snapshot has rows of a job that storage does not have.
    #[must_use]
    pub fn token(&self) -> Option<SnapshotToken> {
        let shards = self.shards.iter().map(|shard| {
            let LogPart::Before(log_end) = shard.log else { return None };
            let (shard_id, manifest_version) = (shard.shard_id, shard.manifest_version);
            Some(ShardToken { shard_id, manifest_version, log_end })
        });
        Some(SnapshotToken {
            base_version: self.base_version(),
            shards: shards.collect::<Option<_>>()?,
        })
    }

    /// The rule that chooses among the rows of a key; `None` where the newest row is shown.
    #[must_use]
    pub fn rule(&self) -> Option<&Arc<Choosing>> {
        self.columns.rows.rule()
    }

    /// Whether no source lies above the base table, so that no merge by key is needed.
    #[must_use]
    pub fn is_base_only(&self) -> bool {
        self.shards.iter().all(|shard| shard.sstables.is_empty() && shard.memtables.is_empty())
    }

    /// Whether the source at `index` of [`Self::sources`] is the newest of its shard.
    #[must_use]
    pub fn is_newest_source(&self, index: usize) -> bool {
        let mut end = 0;
        for shard in &self.shards {
            end += shard.sstables.len() + shard.memtables.len();
            if index < end {
                return index + 1 == end;
            }
        }
        false
    }

    /// The same snapshot with no other sources than those that are newer than the source at `index`
    /// of [`Self::sources`], in its shard: the only ones whose rows may supersede its rows.
    #[must_use]
    pub fn newer_than(&self, index: usize) -> Self {
        let mut end = 0;
        for shard in &self.shards {
            end += shard.sstables.len() + shard.memtables.len();
            if index < end {
                break;
            }
        }
        self.without(|place| place <= index || place >= end)
    }

    /// Bytes of the data files of the base table and of the SSTables. Files whose size no manifest
    /// has count nothing.
    #[must_use]
    pub fn stored_bytes(&self) -> u64 {
        let sstables = self.shards.iter().flat_map(|shard| &shard.sstables);
        let datasets = sstables.map(|sstable| &sstable.dataset).chain([&self.base]);
        let files = datasets.flat_map(|it| it.fragments().iter()).flat_map(|it| &it.files);
        files.filter_map(|file| file.file_size_bytes.get()).map(NonZero::get).sum()
    }

    /// The same snapshot without the sources for whose index in [`Self::sources`] `leaves_out` is
    /// true.
    #[must_use]
    pub fn without(&self, leaves_out: impl Fn(usize) -> bool) -> Self {
        let mut snapshot = self.clone();
        let mut place = 0;
        let mut stays = || {
            place += 1;
            !leaves_out(place - 1)
        };
        for shard in &mut snapshot.shards {
            shard.sstables.retain(|_| stays());
            shard.memtables.retain(|_| stays());
        }
        snapshot
    }

    /// Every source above the base table.
    pub fn sources(&self) -> impl Iterator<Item = (Freshness, Source<'_>)> {
        self.shards.iter().flat_map(|shard| {
            let sstables = shard
                .sstables
                .iter()
                .map(|sstable| (Freshness::SsTable(sstable.generation), Source::SsTable(sstable)));
            let memory = shard.memtables.iter().map(|memtable| {
                (Freshness::MemTable(memtable.generation()), Source::MemTable(memtable))
            });
            sstables.chain(memory)
        })
    }
}

/// A source of rows above the base table.
#[derive(Clone, Copy, Debug)]
pub enum Source<'a> {
    /// A flushed SSTable.
    SsTable(&'a Arc<SsTableHandle>),
    /// Rows in memory.
    MemTable(&'a MemTableView),
}

/// Whether the base version that records the progress `compacted` contains `generation`.
#[must_use]
pub fn is_compacted(compacted: Option<Generation>, generation: Generation) -> bool {
    compacted.is_some_and(|through| generation <= through)
}
