//! Fast upserts and consistent reads on Lance tables.
//!
//! Owns: SSTables as Lance datasets, the snapshot that a query reads, which rows are shown and
//! which are dead, the DataFusion plan, the changes between versions, compaction into the base table, garbage collection, and the
//! table that ties them together.
//! Does not own: the write path of a shard (`lancemem-core`), the rows of a running job for other
//! processes (`lancemem-flight`), or Python.
//!
//! Reading order: [`table`] for the entry points, then `schema`, `sstable`, `record_index`,
//! `snapshot`, `visibility`, `plan`, `deletion_vectors`, `lookup`, `changes`, `compaction`, `garbage`; `provider`
//! for SQL over a table, `search` for its nearest rows. `examples/scan.rs` reads a table.

#![forbid(unsafe_code)]
#![recursion_limit = "256"]

pub mod changes;
pub mod compaction;
mod damage;
pub mod deletion_vectors;
mod errors;
pub mod garbage;
mod holds;
mod lance_threads;
pub mod lookup;
mod memory_indexes;
mod merged;
mod metric;
pub mod plan;
pub mod provider;
pub mod record_index;
mod row_address;
pub mod schema;
pub mod search;
pub mod snapshot;
pub mod sstable;
mod stages;
pub mod table;
pub mod visibility;

pub use changes::{
    ChangeCounts, ChangeFeed, ChangeOptions, ChangePart, ChangeSlice, ChangeVersion, Changelog,
    FlushedFeed, FlushedPosition, InputFeed, InputOptions, InputPosition, Moment, RowKinds,
    ShardPosition,
};
pub use compaction::{
    CompactedIndex, CompactedSsTable, CompactionMode, CompactionResult, CompactionSettings,
    Decision, LogHandling, Treatment,
};
pub use errors::{FEW_THREADS, NO_THREAD};
pub use garbage::{CollectionResult, CollectionSettings, Garbage, GarbageKind};
pub use lance_threads::start_lance_threads;
pub use lancemem_core::format::{PutMode, Sharding};
pub use lancemem_core::merge::{
    Aggregate, DeletePolicy, KeepEnd, MergeEngine, MergeFunction, MergeRule, NullPolicy,
    PairFunction, RuleError, RuleOptions,
};
pub use lancemem_core::shard::{
    Acknowledged, Deletes, JobStats, WalDamage, WalFinding, WalReport, WriteBatch, WriteOptions,
};
pub use lancemem_core::store::{scrub, waiting_here};
pub use lancemem_core::types::{
    Error, ErrorKind, ErrorSource, Generation, KeyIndexKind, MAX_PUT_BYTES, PerProcess, Result,
    ShardId, Txn, TypeName, WalPosition, WriterConfig, WriterEpoch,
};
pub use lookup::FoundRows;
#[doc(hidden)]
pub use memory_indexes::set_bounds as set_memory_index_bounds;
pub use metric::Metric;
pub use plan::{Condition, NamedSql, OrderBy, ReadPart, evaluate};
pub use provider::TableSource;
pub use record_index::RecordIndexReport;
pub use schema::VersionStamp;
pub use search::{QueryVectors, Rerank, Reranker, SearchOptions, TextQuery, TextSearch};
pub use snapshot::{CacheStats, Consistency, Snapshot, SnapshotToken};
pub use stages::{StageCount, StageName, Stages};
pub use table::{
    BulkWriter, Catalog, CommitResult, ConsumerInfo, DeletionVectorResult, FlushResult,
    FlushedConsumer, FlushedLog, FunctionLoader, Job, LiveJob, Location, MaintenanceConfig,
    MaintenanceStats, MaxTokenLength, OptimizedIndex, RelistReport, Scan, ScanOptions, Shard,
    ShardLog, SkippedLog, SnapshotQuery, SsTableReport, StagedSsTable, Table, TableIndexInfo,
    TableIndexOptions, TableIndexType, TableStats, TableVersion, TableWriteOptions, TableWriter,
    TextIndexOptions, VectorIndexOptions, WriteResult, WriterStats,
};
