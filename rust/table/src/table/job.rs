//! A running job: the writer of one shard with Lance below it.
//!
//! Owns: the sink that makes SSTables of frozen MemTables, and the job's identity.
//! Does not own: the put path, which is the core's.

use std::sync::Arc;

use arrow_array::{BooleanArray, RecordBatch};
use async_trait::async_trait;
use lance::Dataset;
use lancemem_core::format::{SsTable, paths};
use lancemem_core::memtable::MemTableView;
use lancemem_core::shard::{
    Acknowledged, JobStats, ShardIdentity, ShardSnapshot, ShardWriter, SsTableSink, WriteMode,
};
use lancemem_core::store::Store;
use lancemem_core::types::{Error, Mark, Result, ShardId, WriterConfig};

use super::Table;
use crate::errors::Context;
use crate::sstable::{SsTableContext, SsTableInput, sync_table, write_sstable};

/// The one writer of a shard while it runs.
#[derive(Debug)]
pub struct Job {
    pub(super) writer: ShardWriter,
}

impl Table {
    /// Claims a shard and starts its job. A job that ran before is fenced.
    ///
    /// # Errors
    /// An input error for a shard that does not exist or settings that cannot work.
    pub async fn start_job(&self, shard_id: ShardId, config: WriterConfig) -> Result<Arc<Job>> {
        config.validate()?;
        let base = self.latest_base().await?;
        let manifest = self
            .manifests()
            .await?
            .into_iter()
            .find(|manifest| manifest.shard_id == shard_id)
            .ok_or_else(|| {
                Error::input(format!("shard {shard_id} does not exist in table {}", self.uri()))
            })?;
        let ordinal = manifest.bucket(super::create::SHARDING_FIELD);
        let routing = self.sharding().cloned().zip(ordinal);
        let identity = ShardIdentity { shard_id, routing };
        let fsync = config.fsync;
        let sink = LanceSink { base: base.clone(), shard_id, key: self.key().clone(), fsync };
        let sink = Arc::new(sink);
        let store = Store::open(self.uri(), fsync)?;
        let unsynced = paths::unsynced(shard_id);
        if !fsync && !store.exists(&unsynced).await? {
            let synced = Store::open(self.uri(), true)?;
            synced.put(&unsynced, format!("{shard_id}\n").into()).await?;
        }
        let schema = self.rows.clone();
        let writer = ShardWriter::open(store.clone(), identity, schema, sink, config).await?;
        let is_unsynced = !self.writer_defaults().fsync || store.exists(&unsynced).await?;
        if fsync && is_unsynced {
            // What this job will promise rests on what jobs before it left to the system's
            // caches. They are fenced, so nothing is added meanwhile.
            sync_table(&base).await.context("syncing the table")?;
            store.delete(&unsynced).await?;
        }
        Ok(Arc::new(Job { writer }))
    }
}

impl Job {
    /// Adds or replaces rows; see [`ShardWriter::put_with`].
    ///
    /// # Errors
    /// As [`ShardWriter::put`].
    pub async fn put(&self, rows: &RecordBatch, mode: WriteMode) -> Result<Acknowledged> {
        self.writer.put_with(rows, mode).await
    }

    /// Deletes keys; see [`ShardWriter::delete_with`].
    ///
    /// # Errors
    /// As [`ShardWriter::delete`].
    pub async fn delete(&self, keys: &RecordBatch, mode: WriteMode) -> Result<Acknowledged> {
        self.writer.delete_with(keys, mode).await
    }

    /// Adds or replaces rows with their mark; see [`ShardWriter::put_marked`].
    ///
    /// # Errors
    /// As [`ShardWriter::put_marked`].
    pub async fn put_marked(
        &self,
        rows: &RecordBatch,
        mode: WriteMode,
        mark: Option<&Mark>,
    ) -> Result<Acknowledged> {
        self.writer.put_marked(rows, mode, mark).await
    }

    /// Deletes keys with their mark; see [`ShardWriter::delete_marked`].
    ///
    /// # Errors
    /// As [`ShardWriter::delete_marked`].
    pub async fn delete_marked(
        &self,
        keys: &RecordBatch,
        mode: WriteMode,
        mark: Option<&Mark>,
    ) -> Result<Acknowledged> {
        self.writer.delete_marked(keys, mode, mark).await
    }

    /// Rows and deletes in one put; see [`ShardWriter::apply_with`].
    ///
    /// # Errors
    /// As [`ShardWriter::apply_with`].
    pub async fn apply(
        &self,
        rows: &RecordBatch,
        deletes: &BooleanArray,
        mode: WriteMode,
        mark: Option<&Mark>,
    ) -> Result<Acknowledged> {
        self.writer.apply_with(rows, deletes, mode, mark).await
    }

    /// Flushes what was put; see [`ShardWriter::flush`].
    ///
    /// # Errors
    /// As [`ShardWriter::flush`].
    pub async fn flush(&self) -> Result<()> {
        self.writer.flush().await
    }

    /// Ends the job; see [`ShardWriter::close`].
    ///
    /// # Errors
    /// As [`ShardWriter::close`].
    pub async fn close(&self, flush: bool) -> Result<()> {
        self.writer.close(flush).await
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

    pub(crate) fn snapshot(&self) -> Result<ShardSnapshot> {
        self.writer.snapshot()
    }
}

/// Writes frozen MemTables as Lance datasets beside the base table.
#[derive(Debug)]
pub(super) struct LanceSink {
    pub base: Arc<Dataset>,
    pub shard_id: ShardId,
    pub key: Arc<[String]>,
    pub fsync: bool,
}

#[async_trait]
impl SsTableSink for LanceSink {
    async fn write(&self, rows: &MemTableView) -> Result<SsTable> {
        let action =
            format!("flushing generation {} of shard {}", rows.generation(), self.shard_id);
        let mut context = SsTableContext::new(&self.base, self.shard_id).await.context(&action)?;
        context.fsync = self.fsync;
        let view = rows.clone();
        let input = SsTableInput {
            batches: rows.batches().cloned().collect(),
            key_columns: self.key.clone(),
            rows_by_key: Box::new(move || view.rows_by_key()),
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
