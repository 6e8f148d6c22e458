//! `Table`: the entry point of the engine.
//!
//! Owns: the state of a table handle, of which each wing uses a part.
//! Does not own: running jobs; a caller holds those and passes them to a scan.
//!
//! The wings: `catalog` (what the table is), `read`, `write` and `maintain`.

mod catalog;
mod maintain;
mod read;
mod write;

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use arrow_schema::SchemaRef;
use async_recursion::async_recursion as boxed;
use lance::Dataset;
use lance::dataset::mem_wal::DatasetMemWalExt;
use lance_index::mem_wal::MemWalIndexDetails;
use lancemem_core::format::{RowSchema, Sharding};
use lancemem_core::store::Store;
use lancemem_core::types::{Error, Generation, Result, ShardId, WriterConfig};
use parking_lot::Mutex;
use tokio::sync::OnceCell;
use uuid::Uuid;

pub use catalog::{CreateOptions, Location, Shard, TableStats, TableVersion};
pub use maintain::{DeletionVectorResult, MaintenanceStats, RelistReport, SsTableReport};
pub use read::{Scan, ScanOptions};
pub use write::{BulkWriter, CommitResult, Job, LiveJob, StagedSsTable, WriteResult};

use crate::deletion_vectors::VectorFiles;
use crate::errors::Context;
pub(crate) use crate::schema::VersionStamp;
use crate::schema::{BaseVersion, LatestBase, key_of};
use crate::snapshot::{Snapshot, SnapshotToken, SsTableCache};
use crate::visibility::MergeCache;
use catalog::{sharding_of, table_id_of};
use maintain::MaintenanceState;
use read::TailCache;

/// Newest compacted generation of each shard.
type Compacted = Arc<HashMap<ShardId, Generation>>;

/// A Lance table with shards that take upserts.
#[derive(Debug)]
pub struct Table {
    location: Location,
    base: Arc<LatestBase>,
    /// The base version that was read last, and its compacted generations.
    compacted: Mutex<Option<(u64, Compacted)>>,
    key: Arc<[String]>,
    sharding: Option<Sharding>,
    /// The sharding as the manifests of its shards record it.
    sharding_record: Option<String>,
    shard_spec_id: u32,
    /// The table identity; `None` in tables of an older lancemem.
    table_id: Option<Uuid>,
    defaults: WriterConfig,
    store: Store,
    sstables: Arc<SsTableCache>,
    tails: TailCache,
    merges: Arc<MergeCache>,
    vectors: VectorFiles,
    /// The newest base version whose files are known to be on disk.
    durable_base: Mutex<Option<Arc<Dataset>>>,
    proven: OnceCell<()>,
    maintenance: tokio::sync::Mutex<MaintenanceState>,
    /// The snapshot that was last opened by its token.
    token_snapshot: tokio::sync::Mutex<Option<(SnapshotToken, Arc<Snapshot>)>>,
    /// The shard whose missing generations are being abandoned; set only in a handle that is opened
    /// for that.
    excused: OnceLock<ShardId>,
}

impl Table {
    /// Opens the table at `location`. Writes nothing; [`Table::enable`] adds the MemWAL index to a
    /// Lance table.
    ///
    /// # Errors
    /// [`Error::NoTable`] where there is no table; an input error where the table has no MemWAL
    /// index, or its key cannot be used.
    pub async fn open(location: impl Into<Location>) -> Result<Arc<Self>> {
        Self::open_at(location.into().resolved()?).await
    }

    #[boxed]
    async fn open_at(location: Location) -> Result<Arc<Self>> {
        let base = location.open().await?;
        let Some(details) = details_of(&base).await? else {
            return Err(Error::input(format!(
                "table {} is a Lance table without a MemWAL index; call lancemem.enable(uri, ...), in \
                 Spark LancememTable.enable(spark, uri, ...)",
                location.uri()
            )));
        };
        Self::with_details(location, base, &details).await
    }

    async fn with_details(
        location: Location,
        base: Dataset,
        details: &MemWalIndexDetails,
    ) -> Result<Arc<Self>> {
        let key: Arc<[String]> = key_of(&base)?.into();
        let (shard_spec_id, sharding) = sharding_of(&base, details)?;
        let (sharding, sharding_record) = sharding.unzip();
        let defaults = WriterConfig::default().with_defaults(&details.writer_config_defaults)?;
        let store = location.store(&base, defaults.fsync).await?;
        let sstables = Arc::new(SsTableCache::default());
        let vectors = VectorFiles::new(sstables.bound());
        let table = Self {
            location,
            compacted: Mutex::new(Some((base.version().version, Arc::new(compacted_in(details))))),
            base: LatestBase::new(base)?,
            key,
            sharding,
            sharding_record,
            shard_spec_id,
            table_id: table_id_of(details)?,
            defaults,
            store,
            sstables,
            tails: TailCache::default(),
            merges: Arc::default(),
            vectors,
            durable_base: Mutex::default(),
            proven: OnceCell::new(),
            maintenance: tokio::sync::Mutex::default(),
            token_snapshot: tokio::sync::Mutex::default(),
            excused: OnceLock::new(),
        };
        Ok(Arc::new(table))
    }

    /// The URI of the table.
    #[must_use]
    pub fn uri(&self) -> &str {
        self.location.uri()
    }

    /// Columns of the table in the newest version that this handle has read.
    #[must_use]
    pub fn schema(&self) -> SchemaRef {
        self.base.known().schema.columns.clone()
    }

    /// Names of the key columns in primary-key order.
    #[must_use]
    pub fn primary_key(&self) -> &[String] {
        &self.key
    }

    /// How rows are spread over shards; `None` where the caller names shards.
    #[must_use]
    pub const fn sharding(&self) -> Option<&Sharding> {
        self.sharding.as_ref()
    }

    /// The defaults of the table's jobs.
    #[must_use]
    pub const fn writer_defaults(&self) -> &WriterConfig {
        &self.defaults
    }

    /// A lazy read. `jobs` are running jobs, of this process or served by another, whose MemTables
    /// a live scan reads.
    #[must_use]
    pub fn scan(self: &Arc<Self>, options: ScanOptions, jobs: Vec<Arc<dyn LiveJob>>) -> Scan {
        Scan::new(self.clone(), jobs, options)
    }

    /// Sets whether checksums of SSTables on a local disk are verified: of small ones when they are
    /// opened, of all when they are compacted. They are by default. Without it the rest of a
    /// damaged SSTable can be read. SSTables that are open already are not affected.
    pub fn set_verify_sstables(&self, verifies: bool) {
        self.sstables.set_verifies(verifies);
    }

    /// The newest version of the base table.
    ///
    /// # Errors
    /// A storage error, or an input error for a schema change that stored rows cannot be cast to.
    #[boxed]
    pub async fn latest_base(&self) -> Result<Arc<Dataset>> {
        Ok(self.latest().await?.dataset)
    }

    /// The newest version of the base table and its columns.
    pub(crate) async fn latest(&self) -> Result<BaseVersion> {
        self.base.newest().await
    }

    /// Reads the newest version of the base table and its index.
    ///
    /// # Errors
    /// As [`Self::latest_base`]; an input error where the table has another index than this handle.
    #[boxed]
    pub async fn refresh(&self) -> Result<()> {
        let base = self.latest_base().await?;
        self.compacted_at(&base).await.map(|_| ())
    }

    /// The store of the shards, for writes. An object store must prove once for each handle that it
    /// honours conditional writes: it must create an object at most once. A local disk does.
    pub(crate) async fn writable_store(&self, fsync: bool) -> Result<Store> {
        if self.location.is_local() {
            return Store::open(self.uri(), fsync);
        }
        self.proven.get_or_try_init(|| self.store.prove_conditional_put()).await?;
        Ok(self.store.clone())
    }

    /// As [`LatestBase::has_had`].
    pub(crate) async fn has_had(&self, stamp: VersionStamp) -> Result<bool> {
        self.base.has_had(stamp).await
    }

    pub(crate) const fn location(&self) -> &Location {
        &self.location
    }

    pub(crate) fn row_schema(&self) -> Arc<RowSchema> {
        self.base.known().schema.rows.clone()
    }

    pub(crate) const fn store(&self) -> &Store {
        &self.store
    }

    const fn maintenance_turn(&self) -> &tokio::sync::Mutex<MaintenanceState> {
        &self.maintenance
    }

    pub(crate) const fn key(&self) -> &Arc<[String]> {
        &self.key
    }
}

/// The MemWAL index of a base version.
#[boxed]
pub async fn details_of(base: &Dataset) -> Result<Option<MemWalIndexDetails>> {
    base.mem_wal_index_details().await.context("reading the MemWAL index")
}

/// The MemWAL index of a base version, which must have one.
async fn index_of(base: &Dataset) -> Result<MemWalIndexDetails> {
    let missing = || {
        Error::input(format!(
            "the MemWAL index of table {} was dropped; restore a version that has it, or enable the \
             table again",
            base.uri()
        ))
    };
    details_of(base).await?.ok_or_else(missing)
}

/// Newest compacted generation of each shard at a base version.
#[boxed]
pub async fn compacted_of(base: &Dataset) -> Result<HashMap<ShardId, Generation>> {
    Ok(compacted_in(&index_of(base).await?))
}

fn compacted_in(details: &MemWalIndexDetails) -> HashMap<ShardId, Generation> {
    let compacted = details.compacted_sstables.iter();
    compacted.map(|it| (it.shard_id, Generation(it.generation))).collect()
}
