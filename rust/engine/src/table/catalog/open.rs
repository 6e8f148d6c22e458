//! Opens the catalog of a table, and gives access to its newest base version and its store.
//!
//! Owns: reading key, sharding, merge rule and settings from the MemWAL index, and the proof that an object
//! store honours conditional writes.
//! Does not own: loading functions of users (`merge_functions`), looking for a newer version
//! (`crate::schema`), or the location (`location`).

use std::sync::{Arc, OnceLock};

use async_recursion::async_recursion as boxed;
use lance::Dataset;
use lance_index::mem_wal::MemWalIndexDetails;
use lancemem_core::format::RowSchema;
use lancemem_core::store::Store;
use lancemem_core::types::{Error, Result, ShardId, WriterConfig};
use parking_lot::Mutex;
use tokio::sync::OnceCell;

use super::Catalog;
use super::create::table_id_of;
use super::location::Location;
use super::maintenance_config::MaintenanceConfig;
use super::merge_functions::load;
use super::progress::{compacted_in, details_of};
use super::specifications::Specifications;
use crate::schema::{BaseVersion, LatestBase, VersionStamp, key_of, with_ids};

impl Catalog {
    /// As [`crate::table::Table::open`].
    #[boxed]
    pub(in crate::table) async fn open_at(location: Location) -> Result<Self> {
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

    pub(super) async fn with_details(
        location: Location,
        base: Dataset,
        details: &MemWalIndexDetails,
    ) -> Result<Self> {
        let key: Arc<[String]> = key_of(&base)?.into();
        let Specifications { spec_id: shard_spec_id, sharding, rule } =
            Specifications::of(&base, details)?;
        let (sharding, sharding_record) = sharding.unzip();
        let persisted = &details.writer_config_defaults;
        let defaults = WriterConfig::default().with_defaults(persisted)?;
        let maintenance_defaults = MaintenanceConfig::default().with_defaults(persisted)?;
        let functions = load(&location, rule.as_deref(), &with_ids(base.schema())).await?;
        let store = location.store(&base, defaults.fsync).await?;
        Ok(Self {
            location,
            flushed_indexes: Arc::default(),
            index_makers: Arc::default(),
            compacted: Mutex::new(Some((base.version().version, Arc::new(compacted_in(details))))),
            base: LatestBase::new(base, rule.clone(), functions)?,
            key,
            sharding,
            sharding_record,
            rule,
            shard_spec_id,
            table_id: table_id_of(details)?,
            defaults,
            maintenance_defaults,
            store,
            durable_base: Mutex::default(),
            proven: OnceCell::new(),
            excused: OnceLock::new(),
        })
    }

    /// The URI of the table.
    #[must_use]
    pub fn uri(&self) -> &str {
        self.location.uri()
    }

    /// The location of the table.
    #[must_use]
    pub const fn location(&self) -> &Location {
        &self.location
    }

    /// The columns of the newest version that this handle has read.
    #[must_use]
    pub fn row_schema(&self) -> Arc<RowSchema> {
        self.base.known().schema.rows.clone()
    }

    /// Whether `stamp`, which another process has read, belongs to a version of this table. A
    /// version that was cleaned up cannot be compared and counts as one.
    ///
    /// # Errors
    /// As [`LatestBase::newest`].
    #[boxed]
    pub async fn has_had(&self, stamp: VersionStamp) -> Result<bool> {
        self.base.has_had(stamp).await
    }

    /// The newest version of the base table.
    ///
    /// # Errors
    /// A storage error, or an input error for a schema change that stored rows cannot be cast to.
    #[boxed]
    pub(in crate::table) async fn latest_base(&self) -> Result<Arc<Dataset>> {
        Ok(self.latest().await?.dataset)
    }

    /// The newest version of the base table and its columns.
    pub(in crate::table) async fn latest(&self) -> Result<BaseVersion> {
        self.base.newest().await
    }

    /// Reads the newest version of the base table and its index.
    ///
    /// # Errors
    /// As [`Self::latest_base`]; an input error where the table has another index than this handle.
    #[boxed]
    pub(in crate::table) async fn refresh(&self) -> Result<()> {
        let base = self.latest_base().await?;
        self.compacted_at(&base).await.map(|_| ())
    }

    /// The store of the shards, for writes. An object store must prove once for each handle that it
    /// honours conditional writes: it must create an object at most once. A local disk does.
    pub(in crate::table) async fn writable_store(&self, fsync: bool) -> Result<Store> {
        if self.location.is_local() {
            return Store::open(self.uri(), fsync);
        }
        self.proven.get_or_try_init(|| self.store.prove_conditional_put()).await?;
        Ok(self.store.clone())
    }

    /// Refuses a table without a primary key.
    pub(in crate::table) fn require_key(&self) -> Result<()> {
        if self.key.is_empty() {
            return Err(Error::input(format!(
                "table {} has no primary key, so rows cannot be found by key",
                self.uri()
            )));
        }
        Ok(())
    }

    /// Lets this handle use a shard with missing generations, to abandon these.
    pub(in crate::table) fn excuse(&self, shard_id: ShardId) {
        let _ = self.excused.set(shard_id);
    }
}
