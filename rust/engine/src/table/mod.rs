//! `Table`: the entry point of the engine.
//!
//! Owns: a table handle, which is its catalog, its reader and the turn of its maintenance.
//! Does not own: running jobs; a caller holds those, and `write` records them for the process.
//!
//! The public methods stand in the wing whose work they do:
//!
//! - `catalog`: what the table is. Create, enable, shards, columns, history.
//! - `read`: snapshots, scans, lookups and changes.
//! - `write`: jobs, writers of all shards, upserts, deletes and bulk writes.
//! - `maintain`: flushes of logs, compaction, collection, indexes, deletion vectors and repair.
//!
//! A wing names only wings above it in this list, with one exception: `write` and `maintain` need
//! each other, and their headers say why.

mod catalog;
mod maintain;
mod read;
mod write;

use std::sync::Arc;

use arrow_schema::SchemaRef;
use futures::future::BoxFuture;
use lance::Dataset;
use lance_table::format::IndexMetadata;
use lancemem_core::format::Sharding;
use lancemem_core::merge::RuleOptions;
use lancemem_core::types::{Result, WriterConfig};

pub use catalog::{
    Catalog, CreateOptions, FunctionLoader, Location, MaintenanceConfig, Shard, ShardLog,
    TableStats, TableVersion,
};
pub use maintain::{
    DeletionVectorResult, FlushResult, FlushedLog, MaintenanceStats, MaxTokenLength,
    OptimizedIndex, RelistReport, SkippedLog, SsTableReport, TableIndexInfo, TableIndexOptions,
    TableIndexType, TextIndexOptions, VectorIndexOptions,
};
pub use read::{ConsumerInfo, FlushedConsumer, LiveJob, Scan, ScanOptions, SnapshotQuery};
pub use write::{
    BulkWriter, CommitResult, Job, StagedSsTable, TableWriteOptions, TableWriter, WriteResult,
    WriterStats,
};

use crate::memory_indexes::MakeLists;
use maintain::{IndexNotes, MaintenanceState, PublishedState};
use read::Reader;

/// A Lance table with shards that take upserts.
#[derive(Debug)]
pub struct Table {
    catalog: Arc<Catalog>,
    reader: Reader,
    /// Held by the round of maintenance that runs.
    maintenance: tokio::sync::Mutex<MaintenanceState>,
    published: PublishedState,
    index_notes: IndexNotes,
}

impl Table {
    /// Opens the table at `location`. Writes nothing; [`Table::enable`] adds the MemWAL index to a
    /// Lance table.
    ///
    /// ```no_run
    /// use lancemem::{Location, Table};
    ///
    /// # async fn example() -> lancemem::Result<()> {
    /// let local = Table::open("/data/board.lance").await?;
    ///
    /// let region = ("aws_region".to_owned(), "eu-central-1".to_owned());
    /// let location = Location::new("s3://bucket/board.lance");
    /// let remote = Table::open(location.with_storage_options([region].into())).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::NoTable`](crate::Error::NoTable) where there is no table; an input error where the
    /// table has no MemWAL index, or its key cannot be used.
    pub async fn open(location: impl Into<Location>) -> Result<Arc<Self>> {
        Self::open_at(location.into().resolved()?).await
    }

    async fn open_at(location: Location) -> Result<Arc<Self>> {
        Catalog::open_at(location).await.map(Self::over)
    }

    /// The handle of a table that was created or opened.
    fn over(catalog: Catalog) -> Arc<Self> {
        let catalog = Arc::new(catalog);
        let reader = Reader::new(catalog.clone(), write::running_snapshot);
        let maintenance = tokio::sync::Mutex::default();
        let (published, index_notes) = (PublishedState::default(), IndexNotes::default());
        Arc::new(Self { catalog, reader, maintenance, published, index_notes })
    }

    /// The URI of the table.
    #[must_use]
    pub fn uri(&self) -> &str {
        self.catalog.uri()
    }

    /// Columns of the table in the newest version that this handle has read.
    #[must_use]
    pub fn schema(&self) -> SchemaRef {
        self.catalog.base.known().schema.columns.clone()
    }

    /// Names of the key columns in primary-key order.
    #[must_use]
    pub fn primary_key(&self) -> &[String] {
        &self.catalog.key
    }

    /// How rows are spread over shards; `None` where the caller names shards.
    #[must_use]
    pub fn sharding(&self) -> Option<&Sharding> {
        self.catalog.sharding.as_ref()
    }

    /// The maker of lists of rows in memory by the centroids of `index`, a segment of a vector index
    /// of `base`.
    pub(crate) async fn memory_lists(
        &self,
        base: &Dataset,
        index: &IndexMetadata,
    ) -> Option<Arc<MakeLists>> {
        self.catalog.index_makers.lists(base, index).await
    }

    /// The merge rule, with present column names; `None` for plain `deduplicate`.
    #[must_use]
    pub fn merge_rule(&self) -> Option<RuleOptions> {
        self.catalog.rule.is_some().then(|| self.catalog.rule_options())
    }

    /// The defaults of the table's jobs.
    #[must_use]
    pub fn writer_defaults(&self) -> &WriterConfig {
        &self.catalog.defaults
    }

    /// The defaults of the maintenance beside the table's jobs.
    #[must_use]
    pub fn maintenance_defaults(&self) -> &MaintenanceConfig {
        &self.catalog.maintenance_defaults
    }

    /// The newest version of the base table.
    ///
    /// # Errors
    /// A storage error, or an input error for a schema change that stored rows cannot be cast to.
    pub fn latest_base(&self) -> BoxFuture<'_, Result<Arc<Dataset>>> {
        self.catalog.latest_base()
    }

    /// Reads the newest version of the base table and its index.
    ///
    /// # Errors
    /// As [`Self::latest_base`]; an input error where the table has another index than this handle.
    pub fn refresh(&self) -> BoxFuture<'_, Result<()>> {
        self.catalog.refresh()
    }
}
