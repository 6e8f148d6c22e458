//! A running job: the writer of one shard, with Lance below it.
//!
//! Owns: the sink that makes SSTables of frozen MemTables, and the job's identity, start and end.
//! Does not own: the put path, which is the core's.

use std::sync::Arc;

use arrow_array::RecordBatch;
use async_recursion::async_recursion as boxed;
use async_trait::async_trait;
use futures::FutureExt;
use futures::future::BoxFuture;
use lance::Dataset;
use lancemem_core::format::{RowSchema, SsTable, fsync_note, paths, round_floats};
use lancemem_core::memtable::{MakeIndex, MemTableView};
use lancemem_core::shard::{
    Acknowledged, ClaimTurn, JobStats, SchemaSource, ShardIdentity, ShardSnapshot, ShardWriter,
    SsTableSink, WriteBatch, WriteOptions,
};
use lancemem_core::store::Store;
use lancemem_core::types::{Error, MaxBytes, Result, ShardId, WriterConfig, WriterEpoch};
use tokio::sync::watch;
use uuid::Uuid;

use super::flushed_rows::{FlushedRows, flushed_rows};
use super::lingering::close_lingering;
use super::running::{self, JobAddress};
use crate::errors::Context;
use crate::memory_indexes::IndexMakers;
use crate::schema::{BaseVersion, LatestBase, VersionStamp};
use crate::sstable::{
    BUFFER_BYTES, FlushedIndexes, IndexSpecs, SsTableContext, SsTableInput, sync_table,
    write_sstable,
};
use crate::table::Table;
use crate::table::catalog::{
    Catalog, MaintenanceConfig, SHARDING_FIELD, ShardTurns, refuse_unwritable,
};
use crate::table::maintain::{Maintenance, MaintenanceStats};
use crate::table::read::LiveJob;

/// A log of more puts or bytes than this is long: the next job, or a reader in another process,
/// opens a file for each put and indexes every row again.
const LONG_LOG_PUTS: u64 = 64;
const LONG_LOG_BYTES: u64 = 32 << 20;

/// The one writer of a shard while it runs.
#[derive(Debug)]
pub struct Job {
    pub(super) writer: ShardWriter,
    base: Arc<LatestBase>,
    table: String,
    /// The table's location and id. The id distinguishes the table from a later table at the same
    /// location, whose shards may have the same ids.
    home: String,
    table_id: Option<Uuid>,
    /// True once the job takes no more rows. Dropped with the job.
    ended: watch::Sender<bool>,
    /// Held while the job is being closed.
    closing: tokio::sync::Mutex<()>,
    pub(in crate::table) maintenance: Option<Maintenance>,
}

#[async_trait]
impl LiveJob for Job {
    fn shard_id(&self) -> ShardId {
        self.writer.shard_id()
    }

    async fn snapshot(&self, table: &Catalog) -> Result<ShardSnapshot> {
        let asked = table.location.home();
        if self.home != asked || self.table_id != table.table_id {
            let which = if self.home == asked {
                "another table at that location".to_owned()
            } else {
                format!("table {asked}")
            };
            return Err(Error::input(format!(
                "the job of shard {} writes to table {}, the read is of {which}; name only jobs of \
                 the table that is read",
                self.writer.shard_id(),
                self.home
            )));
        }
        // After its end another job may have written newer rows.
        if self.has_ended() {
            return Err(Error::Closed { shard: self.writer.shard_id() });
        }
        // An idle job may not have noticed a later claim yet, so storage is asked.
        self.owned_snapshot().await
    }
}

impl Table {
    /// Claims a shard and starts its job. A job that runs on the shard is fenced.
    ///
    /// Waits for the writes of this process that hold a claim of the shard. Later writes of this
    /// process go through the job.
    ///
    /// With `maintenance.enabled` a task beside the job compacts and collects. In deletion-vector
    /// mode the task looks up the rows that the job's SSTables supersede, enabled or not.
    ///
    /// # Errors
    /// An input error for a shard that does not exist or settings that cannot work.
    pub async fn start_job(
        self: &Arc<Self>,
        shard_id: ShardId,
        config: WriterConfig,
        maintenance: MaintenanceConfig,
    ) -> Result<Arc<Job>> {
        maintenance.validate()?;
        let turns = ShardTurns::of(self.catalog.location.home(), shard_id);
        let _turn = turns.queue.lock().await;
        self.start_in_turn(shard_id, config, maintenance).await
    }

    /// As [`Self::start_job`], for a caller that has the turn of this process at the shard: a write
    /// that looked for a running job before this claim would fence the job.
    pub(super) async fn start_in_turn(
        self: &Arc<Self>,
        shard_id: ShardId,
        config: WriterConfig,
        maintenance: MaintenanceConfig,
    ) -> Result<Arc<Job>> {
        close_lingering(&self.catalog, shard_id).await;
        let backlog = config.max_uncompacted_generations;
        let mut job = Job::open(&self.catalog, shard_id, config).await?;
        if maintenance.enabled || self.has_deletion_vectors() {
            let watch = job.writer.watch();
            job.maintenance = Some(Maintenance::start(self.clone(), watch, maintenance, backlog));
        }
        let job = Arc::new(job);
        running::record(&job);
        Ok(job)
    }
}

impl Job {
    /// The job alone, for a call that opens and closes one.
    ///
    /// # Errors
    /// As [`Table::start_job`].
    #[boxed]
    pub(in crate::table) async fn open(
        catalog: &Catalog,
        shard_id: ShardId,
        config: WriterConfig,
    ) -> Result<Self> {
        Self::open_in_turn(catalog, shard_id, config, None).await
    }

    /// As [`Self::open_job`]; with `turn`, a recent claim of another process is left alone for as
    /// long as `turn` permits.
    ///
    /// # Errors
    /// As [`Table::start_job`]; retry where the turn does not come in time.
    #[boxed]
    pub(super) async fn open_in_turn(
        catalog: &Catalog,
        shard_id: ShardId,
        config: WriterConfig,
        turn: Option<&ClaimTurn>,
    ) -> Result<Self> {
        config.validate()?;
        let base = catalog.without_reused_ids().await?;
        refuse_unwritable(&base.dataset)?;
        let manifest = catalog.manifest_of(shard_id).await?.ok_or_else(|| {
            Error::input(format!("shard {shard_id} does not exist in table {}", catalog.uri()))
        })?;
        catalog.refuse_older(&base.dataset, &manifest).await?;
        catalog.check_complete(&base.dataset, &manifest).await?;
        catalog.make_own(std::slice::from_ref(&manifest)).await?;
        let ordinal = manifest.bucket(SHARDING_FIELD);
        let routing = catalog.sharding.clone().zip(ordinal);
        let is_foreign = catalog.is_foreign(&manifest).await?;
        let sharding = if is_foreign { &manifest.sharding } else { &catalog.sharding_record };
        let sharding = sharding.clone();
        let identity = ShardIdentity::new(shard_id)
            .with_routing(routing)
            .with_sharding(sharding)
            .with_table(catalog.uri().to_owned());
        let fsync = config.fsync;
        catalog.index_makers.read(&base.dataset).await;
        let sink = Arc::new(LanceSink {
            base: catalog.base.clone(),
            shard_id,
            key: catalog.key.clone(),
            fsync,
            buffer_bytes: config.buffer_bytes(BUFFER_BYTES),
            indexes: config.index_flushed.then(|| catalog.flushed_indexes.clone()),
            index_makers: catalog.index_makers.clone(),
            routed_by: None,
        });
        let store = catalog.writable_store(fsync).await?;
        let is_local = catalog.location.is_local();
        let note = paths::unsynced(shard_id);
        if is_local && !fsync && !store.exists(&note).await? {
            let synced = catalog.writable_store(true).await?;
            let nothing = fsync_note::encode(shard_id, WriterEpoch(0));
            synced.put_if_absent(&note, nothing.into()).await?;
        }
        let columns = TableColumns { base: catalog.base.clone(), known: base.schema.rows.clone() };
        let columns = Arc::new(columns);
        let own = store.clone();
        let writer = match turn {
            None => ShardWriter::open(own, identity, columns, sink, config).await?,
            Some(turn) => {
                ShardWriter::open_in_turn(own, identity, columns, sink, config, turn).await?
            }
        };
        let home = catalog.location.home();
        ShardTurns::of(home.clone(), shard_id).claimed(writer.epoch());
        if is_local && fsync {
            sync_before(catalog, &base.dataset, &store, shard_id, writer.epoch()).await?;
        }
        let table = catalog.location.name().to_owned();
        let (base, ended) = (catalog.base.clone(), watch::Sender::new(false));
        let (table_id, closing) = (catalog.table_id, tokio::sync::Mutex::default());
        Ok(Self { writer, base, table, home, table_id, ended, closing, maintenance: None })
    }
}

impl Job {
    /// Adds, replaces or deletes rows; see [`ShardWriter::write`].
    ///
    /// ```no_run
    /// use arrow_array::record_batch;
    /// use lancemem::{MaintenanceConfig, Table, WriteBatch, WriteOptions, WriterConfig};
    ///
    /// # async fn example() -> lancemem::Result<()> {
    /// let table = Table::open("/data/board.lance").await?;
    /// let shard_id = table.shard_of(0).await?;
    /// let (config, maintenance) = (WriterConfig::default(), MaintenanceConfig::default());
    /// let job = table.start_job(shard_id, config, maintenance).await?;
    /// let rows = record_batch!(("id", Int64, [1, 2]), ("price", Float64, [9.5, 12.0])).unwrap();
    /// // The call returns when the rows are in memory; the log has them soon after.
    /// let options = WriteOptions::default().durable(false);
    /// job.write(WriteBatch::upserts(&rows), options).await?;
    /// job.close(true).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`ShardWriter::write`].
    pub fn write<'a>(
        &'a self,
        batch: WriteBatch<'a>,
        options: WriteOptions<'a>,
    ) -> BoxFuture<'a, Result<Acknowledged>> {
        self.writer.write(batch, options).boxed()
    }

    /// Adds or replaces rows; see [`ShardWriter::put`].
    ///
    /// # Errors
    /// As [`ShardWriter::write`].
    #[boxed]
    pub async fn put(&self, rows: &RecordBatch) -> Result<Acknowledged> {
        self.writer.put(rows).await
    }

    /// Deletes keys; see [`ShardWriter::delete`].
    ///
    /// # Errors
    /// As [`ShardWriter::write`].
    #[boxed]
    pub async fn delete(&self, keys: &RecordBatch) -> Result<Acknowledged> {
        self.writer.delete(keys).await
    }

    /// As [`Table::round_floats`], for the present columns of the job.
    ///
    /// # Errors
    /// As [`Table::round_floats`].
    pub fn round_floats(&self, rows: &RecordBatch) -> Result<RecordBatch> {
        round_floats(rows, self.row_schema().logical())
    }

    /// Flushes all rows that were put; see [`ShardWriter::flush`].
    ///
    /// # Errors
    /// As [`ShardWriter::flush`].
    #[boxed]
    pub async fn flush(&self) -> Result<()> {
        self.writer.flush().await
    }

    /// Ends the job, its maintenance first; see [`ShardWriter::close`]. In deletion-vector mode the
    /// rows that its SSTables supersede are looked up before the call returns.
    ///
    /// # Errors
    /// As [`ShardWriter::close`].
    #[boxed]
    pub async fn close(&self, flush: bool) -> Result<()> {
        let _closing = self.closing.lock().await;
        self.ended.send_replace(true);
        if let Some(maintenance) = &self.maintenance {
            maintenance.stop().await;
        }
        self.writer.close(flush).await?;
        self.release().await;
        if let Some(maintenance) = &self.maintenance {
            maintenance.look_up().await;
        }
        Ok(())
    }

    /// Records that the claim is released. Without the record the rows are as safe; calls and
    /// maintenance of another process then take the job for a running one.
    async fn release(&self) {
        if !self.writer.is_release_due() {
            return;
        }
        // A manifest in the folder of a table that is gone would belong to no table, or to another
        // one.
        let released = match self.base.check_there().await {
            Ok(()) => self.writer.release().await,
            Err(error) => Err(error),
        };
        if let Err(error) = released {
            tracing::debug!(shard = %self.shard_id(), %error, "the claim was not released");
        }
    }

    /// Ends a job that was started for one write, whose rows are durable. A long log is flushed, a
    /// short log stays. Where the flush fails, the rows stay in the log for the next job.
    ///
    /// # Errors
    /// As [`ShardWriter::close`] without a flush.
    #[boxed]
    pub async fn close_brief(&self) -> Result<()> {
        let flushed = self.flush_log_of(1).await;
        self.close(flushed).await
    }

    /// Flushes a log of more than `times` the length of a long log. Returns whether it was flushed.
    pub(super) async fn flush_log_of(&self, times: u64) -> bool {
        let stats = self.stats();
        let is_long = stats.active_batches >= times * LONG_LOG_PUTS
            || stats.memtable_bytes > times * LONG_LOG_BYTES;
        is_long && self.flush_or_warn().await
    }

    async fn flush_or_warn(&self) -> bool {
        let flushed = self.flush().await;
        if let Err(error) = &flushed {
            tracing::warn!(shard = %self.shard_id(), %error, "a long log could not be flushed");
        }
        flushed.is_ok()
    }

    /// Fails if the job no longer runs. It does not ask storage, so a job that another process has
    /// fenced may not have noticed that.
    ///
    /// # Errors
    /// The error that stopped the job.
    pub fn check_running(&self) -> Result<()> {
        self.writer.snapshot().map(drop)
    }

    /// The shard.
    #[must_use]
    pub fn shard_id(&self) -> ShardId {
        self.writer.shard_id()
    }

    /// The job's counters.
    #[must_use]
    pub fn stats(&self) -> JobStats {
        self.writer.stats()
    }

    /// The counters of the job's maintenance; all zero without maintenance.
    #[must_use]
    pub fn maintenance_stats(&self) -> MaintenanceStats {
        self.maintenance.as_ref().map(Maintenance::stats).unwrap_or_default()
    }

    /// The name of the job's table, the last part of its URI.
    #[must_use]
    pub fn table_name(&self) -> &str {
        &self.table
    }

    /// The version of the base table that the job has seen last.
    #[must_use]
    pub fn base_stamp(&self) -> VersionStamp {
        self.base.stamp()
    }

    /// The epoch that the job holds.
    #[must_use]
    pub fn epoch(&self) -> WriterEpoch {
        self.writer.epoch()
    }

    /// The columns and key that the job accepts now.
    #[must_use]
    pub fn row_schema(&self) -> Arc<RowSchema> {
        self.writer.schema()
    }

    /// A snapshot that was taken while the job owned the shard, which storage confirms afterwards.
    ///
    /// # Errors
    /// The error that stopped the job, which includes a claim of the shard by another writer; a
    /// storage error.
    #[boxed]
    pub async fn owned_snapshot(&self) -> Result<ShardSnapshot> {
        let snapshot = self.writer.snapshot()?;
        self.writer.check_owned().await?;
        Ok(snapshot)
    }

    /// The table and the shard of the job, as [`running`] records them.
    pub(super) fn address(&self) -> JobAddress {
        (self.home.clone(), self.table_id, self.writer.shard_id())
    }

    /// Whether a close of the job has begun.
    pub(super) fn has_ended(&self) -> bool {
        *self.ended.borrow()
    }

    /// Whether the job was closed and is not being closed any more.
    pub(super) fn is_closed(&self) -> bool {
        self.has_ended() && self.closing.try_lock().is_ok()
    }

    /// Waits for a close that has begun.
    pub(super) async fn wait_closed(&self) {
        drop(self.closing.lock().await);
    }

    /// A channel that becomes true when the job ends, and closes when the job is dropped.
    #[must_use]
    pub fn ended(&self) -> watch::Receiver<bool> {
        self.ended.subscribe()
    }
}

/// Syncs what jobs before that of `epoch` left to the system's caches: what it will promise rests on it. They
/// are fenced, so nothing is added meanwhile.
async fn sync_before(
    catalog: &Catalog,
    base: &Dataset,
    store: &Store,
    shard_id: ShardId,
    epoch: WriterEpoch,
) -> Result<()> {
    let through = synced_through(catalog, shard_id).await?;
    let is_left = through.is_some_and(|through| through.get() + 1 < epoch.get());
    if is_left || !catalog.defaults.fsync {
        sync_table(base).await.context("syncing the table")?;
    }
    if through.is_some() {
        let note = fsync_note::encode(shard_id, epoch);
        store.put(&paths::unsynced(shard_id), note.into()).await?;
    }
    Ok(())
}

/// Through which epoch all that writers of the shard left is on disk; `None` where none of lancemem's ever
/// left anything to the system's caches.
pub(in crate::table) async fn synced_through(
    catalog: &Catalog,
    shard_id: ShardId,
) -> Result<Option<WriterEpoch>> {
    let note = catalog.store.get(&paths::unsynced(shard_id), MaxBytes::NOTE).await;
    match note {
        // It says nothing, and there is one.
        Err(Error::Corrupt { .. }) => Ok(Some(WriterEpoch(0))),
        note => Ok(note?.map(|bytes| fsync_note::decode(&bytes, shard_id))),
    }
}

/// Writes frozen MemTables as Lance datasets beside the base table.
#[derive(Debug)]
pub(super) struct LanceSink {
    pub base: Arc<LatestBase>,
    pub shard_id: ShardId,
    pub key: Arc<[String]>,
    pub fsync: bool,
    pub buffer_bytes: usize,
    /// The indexes of SSTables; `None` where they get none.
    pub indexes: Option<Arc<FlushedIndexes>>,
    /// The indexes of rows in memory that a put may fill.
    pub index_makers: Arc<IndexMakers>,
    /// The sharding that an SSTable of an unclaimed shard records. For claimed shards the shard
    /// manifest records it.
    pub routed_by: Option<String>,
}

impl LanceSink {
    /// Stops the job where another table was created at its table's location. Without this check
    /// the job's SSTable would be listed as an SSTable of the other table.
    async fn check_there(&self) -> Result<()> {
        match self.base.check_there().await {
            Err(Error::InvalidInput { message, source }) => {
                Err(Error::Poisoned { shard: self.shard_id, reason: message, source })
            }
            checked => checked,
        }
    }
}

#[async_trait]
impl SsTableSink for LanceSink {
    fn search_indexes(&self) -> Arc<[Arc<dyn MakeIndex>]> {
        self.index_makers.known()
    }

    async fn write(&self, rows: &MemTableView) -> Result<SsTable> {
        let action =
            format!("flushing generation {} of shard {}", rows.generation(), self.shard_id);
        self.check_there().await?;
        let BaseVersion { dataset: base, schema } = self.base.known();
        self.index_makers.read(&base).await;
        let context = SsTableContext::new(&base, self.shard_id).await;
        let mut context = context.context(&action)?.with_rule(schema.rule.as_deref());
        context.fsync = self.fsync;
        context.routed_by = self.routed_by.clone();
        context.buffer_bytes = self.buffer_bytes;
        let indexes = match &self.indexes {
            Some(indexes) => indexes.of(&base).await,
            None => IndexSpecs::default(),
        };
        let snapshot = rows.clone();
        let FlushedRows { batches, hidden } = flushed_rows(rows.clone()).await?;
        let input = SsTableInput {
            schema: rows.schema().clone(),
            batches,
            key_columns: self.key.clone(),
            rows_by_key: Box::new(move || snapshot.rows_by_key()),
            hidden,
            indexes,
        };
        let written = write_sstable(&context, rows.generation(), input).await.context(&action)?;
        Ok(SsTable {
            generation: rows.generation(),
            path: written.path,
            in_memory_bytes: Some(written.in_memory_bytes),
            physical_rows: Some(written.physical_rows),
            primary_key_bytes: Some(written.primary_key_bytes).filter(|bytes| *bytes > 0),
        })
    }
}

/// The columns of the base table.
#[derive(Debug)]
struct TableColumns {
    base: Arc<LatestBase>,
    /// The columns when the job was asked for.
    known: Arc<RowSchema>,
}

#[async_trait]
impl SchemaSource for TableColumns {
    fn known(&self) -> Arc<RowSchema> {
        self.known.clone()
    }

    async fn newest(&self) -> Result<Arc<RowSchema>> {
        let newest = self.base.newest().await?;
        refuse_unwritable(&newest.dataset)?;
        Ok(newest.schema.rows.clone())
    }
}
