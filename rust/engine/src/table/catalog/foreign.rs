//! Foreign shards: shards that another program opened beside the shards of the table's sharding.
//!
//! Owns: which shards are foreign, the choice of one row where several shards have a key, and
//! moving their rows into the base table.
//! Does not own: the table's own shards, which share no key (`shards`).
//!
//! The rule: if several shards have a key, the row of the own shard is shown; among foreign shards,
//! the row of the shard whose id sorts last. Neither generations nor epochs of two shards tell
//! which row is newer. Compaction keeps the result the same: it moves the rows of foreign shards
//! first, in the order of their ids, and then the rows of own shards.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use arrow::compute::filter_record_batch;
use arrow_array::{BooleanArray, RecordBatch, RecordBatchOptions};
use futures::TryStreamExt;
use lancemem_core::format::{AcceptedRows, RowSchema, ShardManifest, Sharding};
use lancemem_core::memtable::MemTable;
use lancemem_core::shard::memtable_layout;
use lancemem_core::types::{Error, ErrorKind, Generation, KeyIndexKind, Result, ShardId};

use super::create::SHARDING_FIELD;
use crate::compaction::CompactionSettings;
use crate::errors::{Context, SsTableErrors};
use crate::snapshot::{Consistency, Snapshot, SnapshotShard, SsTableHandle};
use crate::table::Table;
use crate::table::maintain::Moved;
use crate::table::read::{Purpose, Reading, Sources};
use crate::visibility::{KeyChoice, LazyChoice};

/// Bytes of rows of foreign shards that a reader holds in memory.
const MOST_BYTES: usize = 1 << 30;
/// Attempts to claim and flush a foreign shard whose writer claims it too.
const ATTEMPTS: u32 = 8;

impl Table {
    /// The foreign shards among `manifests`, the manifests of all shards: those that record no
    /// bucket. There are none where callers name the shards, where no shard of a bucketed table
    /// records its bucket, and where an unsharded table has one shard only.
    pub(in crate::table) fn foreign_among<'a>(
        &self,
        manifests: impl Iterator<Item = &'a ShardManifest>,
    ) -> HashSet<ShardId> {
        let (recorded, unrecorded): (Vec<_>, Vec<_>) =
            manifests.partition(|manifest| manifest.bucket(SHARDING_FIELD).is_some());
        let is_own = match &self.sharding {
            None => true,
            Some(Sharding::Unsharded) => recorded.is_empty() && unrecorded.len() < 2,
            Some(Sharding::Bucket { .. }) => recorded.is_empty(),
        };
        if is_own {
            return HashSet::new();
        }
        unrecorded.into_iter().map(|manifest| manifest.shard_id).collect()
    }

    /// Whether an existing shard is foreign.
    pub(in crate::table) async fn is_foreign(&self, manifest: &ShardManifest) -> Result<bool> {
        if self.sharding.is_none() || manifest.bucket(SHARDING_FIELD).is_some() {
            return Ok(false);
        }
        let manifests = self.manifests().await?;
        let foreign = self.foreign_among(manifests.iter().map(|manifest| &**manifest));
        Ok(foreign.contains(&manifest.shard_id))
    }

    /// The same snapshot, in which each key has rows of one shard only. Rows of `foreign` shards
    /// are kept where no own shard has the key; they are read into one MemTable.
    ///
    /// # Errors
    /// A storage error or damage; an input error where those rows exceed [`MOST_BYTES`].
    pub(in crate::table) async fn each_key_once(
        &self,
        snapshot: Snapshot,
        foreign: &HashSet<ShardId>,
    ) -> Result<Snapshot> {
        if snapshot.key.is_empty() {
            return Ok(snapshot);
        }
        let shards = snapshot.shards.iter().cloned();
        let (mut others, shards): (Vec<SnapshotShard>, Vec<SnapshotShard>) =
            shards.partition(|shard| foreign.contains(&shard.shard_id));
        others.retain(|shard| !shard.sstables.is_empty() || !shard.memtables.is_empty());
        others.sort_by_key(|shard| shard.shard_id);
        let Some(last) = others.last().map(|shard| shard.shard_id) else { return Ok(snapshot) };
        let own = Snapshot { shards, ..snapshot.clone() };
        let newer = LazyChoice::new(Arc::new(own), self.merges.clone()).get().await?;
        let rows = ForeignRows::new(self, &snapshot, newer);
        for shard in &others {
            rows.add(shard).await?;
        }
        let shown = rows.memtable.view(rows.memtable.batches());
        let mut snapshot = snapshot;
        for shard in snapshot.shards.iter_mut().filter(|shard| foreign.contains(&shard.shard_id)) {
            shard.bucket = None;
            shard.sstables.clear();
            shard.memtables.clear();
            if shard.shard_id == last && shown.rows() > 0 {
                shard.memtables.push(shown.clone());
            }
        }
        Ok(snapshot)
    }

    /// Moves the rows of foreign shards into the base table, one shard after the other. Where a log
    /// has rows, they are flushed first, which fences the shard's writer.
    ///
    /// # Errors
    /// As a compaction; fenced where another program keeps claiming a foreign shard.
    pub(in crate::table) async fn take_in_foreign(
        &self,
        settings: &CompactionSettings,
    ) -> Result<Moved> {
        let mut moved = Moved::default();
        let manifests = self.manifests().await?;
        let foreign = self.foreign_among(manifests.iter().map(|manifest| &**manifest));
        for shard_id in foreign.into_iter().collect::<BTreeSet<_>>() {
            self.flush_foreign(shard_id).await?;
            let of_shard = self.move_sstables(settings, Sources::Shard(shard_id)).await?;
            self.drain_manifests(&of_shard.sstables).await?;
            moved.add(of_shard);
        }
        Ok(moved)
    }

    /// Flushes the log of a foreign shard. Claims the shard only where the log has rows.
    async fn flush_foreign(&self, shard_id: ShardId) -> Result<()> {
        let mut attempt = 1;
        while self.has_log(shard_id).await? {
            let job = self.open_job(shard_id, self.writer_defaults().clone()).await;
            let flushed = match job {
                Ok(job) => job.close(true).await,
                Err(error) => Err(error),
            };
            match flushed {
                Ok(()) => {
                    tracing::info!(table = self.uri(), shard = %shard_id, "flushed a shard of another program");
                }
                Err(error) if error.kind() == ErrorKind::Fenced && attempt < ATTEMPTS => {}
                Err(error) => return Err(error),
            }
            attempt += 1;
        }
        Ok(())
    }

    async fn has_log(&self, shard_id: ShardId) -> Result<bool> {
        let rows = self.latest().await?.schema.rows.clone();
        let reading = Reading {
            consistency: Consistency::Durable,
            jobs: &[],
            rows: &rows,
            purpose: Purpose::Scan,
        };
        let parts = self.shard_parts(shard_id, reading).await?;
        Ok(parts.is_some_and(|parts| parts.memtables.iter().any(|rows| rows.rows() > 0)))
    }
}

/// The rows of foreign shards whose keys no own shard has.
struct ForeignRows {
    uri: String,
    schema: Arc<RowSchema>,
    newer: Arc<KeyChoice>,
    /// Oldest first: the last row of a key counts.
    memtable: Arc<MemTable>,
}

impl ForeignRows {
    fn new(table: &Table, snapshot: &Snapshot, newer: Arc<KeyChoice>) -> Self {
        let schema = snapshot.columns.rows.clone();
        let layout = memtable_layout(&schema, KeyIndexKind::default());
        let memtable = Arc::new(MemTable::new(Generation(0), layout));
        Self { uri: table.uri().to_owned(), schema, newer, memtable }
    }

    async fn add(&self, shard: &SnapshotShard) -> Result<()> {
        for sstable in &shard.sstables {
            self.add_sstable(sstable).await?;
        }
        for rows in &shard.memtables {
            for batch in rows.batches() {
                self.push(shard.shard_id, self.schema.conform(batch)?)?;
            }
        }
        Ok(())
    }

    /// Adds the rows of an SSTable. Rows that are superseded inside the SSTable are not read.
    async fn add_sstable(&self, sstable: &SsTableHandle) -> Result<()> {
        let name = sstable.name();
        let names: Vec<&str> =
            sstable.columns.fields().iter().map(|field| field.name().as_str()).collect();
        let mut scanner = sstable.dataset.scan();
        scanner.project(&names).in_sstable(&name)?;
        let mut batches = Box::pin(scanner.try_into_stream().await.in_sstable(&name)?);
        while let Some(batch) = batches.try_next().await.in_sstable(&name)? {
            let columns = names.iter().map(|name| batch.column_by_name(name).cloned());
            let columns: Vec<_> = columns.collect::<Option<_>>().ok_or_else(|| {
                Error::Internal(format!("{name} was read without one of its columns"))
            })?;
            let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
            let batch =
                RecordBatch::try_new_with_options(sstable.columns.clone(), columns, &options);
            self.push(sstable.shard_id, self.schema.conform(&batch.context(&name)?)?)?;
        }
        Ok(())
    }

    fn push(&self, shard_id: ShardId, rows: AcceptedRows) -> Result<()> {
        let Some(keys) = &rows.keys else { return Ok(()) };
        let stays: BooleanArray = keys.iter().map(|key| Some(!self.newer.contains(key))).collect();
        let rows = match stays.true_count() {
            0 => return Ok(()),
            all if all == rows.batch.num_rows() => rows,
            _ => {
                let batch = filter_record_batch(&rows.batch, &stays);
                self.schema.conform(&batch.context("leaving rows out")?)?
            }
        };
        let bytes = rows.memory_bytes();
        if self.memtable.bytes() + bytes > MOST_BYTES {
            return Err(Error::input(format!(
                "shard {shard_id} of table {0} was opened by another program and is not part of the \
                 table's sharding. A reader holds the rows of such shards in memory, limited to \
                 {MOST_BYTES} bytes. Move them into the base table: Table.compact(), or python -m \
                 lancemem maintain {0} --once",
                self.uri
            )));
        }
        let batches = self.memtable.push(rows.batch, rows.keys, bytes);
        self.memtable.index_through(batches);
        Ok(())
    }
}
