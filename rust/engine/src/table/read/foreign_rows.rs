//! Rows of foreign shards, of which a snapshot shows each key once.
//!
//! Owns: the choice of one row where several shards have a key, and the MemTable of the rows that
//! are shown.
//! Does not own: which shards are foreign, and the rule (`foreign` in `catalog`).

use std::collections::HashSet;
use std::sync::Arc;

use arrow::compute::filter_record_batch;
use arrow_array::{BooleanArray, RecordBatch, RecordBatchOptions};
use futures::TryStreamExt;
use lancemem_core::format::{AcceptedRows, RowSchema};
use lancemem_core::memtable::MemTable;
use lancemem_core::shard::memtable_layout;
use lancemem_core::types::{Error, Generation, KeyIndexKind, Result, ShardId};

use super::Reader;
use crate::errors::{Context, SsTableErrors};
use crate::snapshot::{Snapshot, SnapshotShard, SsTableHandle};
use crate::visibility::{KeyChoice, LazyChoice};

/// Bytes of rows of foreign shards that a reader holds in memory.
const MAX_BYTES: usize = 1 << 30;

impl Reader {
    /// The same snapshot, in which each key has rows of one shard only. Rows of `foreign` shards
    /// are kept where no own shard has the key; they are read into one MemTable.
    ///
    /// # Errors
    /// A storage error or damage; an input error where those rows exceed [`MAX_BYTES`].
    pub(super) async fn each_key_once(
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
        let rows = ForeignRows::new(self.catalog.uri(), &snapshot, newer);
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
    fn new(uri: &str, snapshot: &Snapshot, newer: Arc<KeyChoice>) -> Self {
        let schema = snapshot.columns.rows.clone();
        let layout = memtable_layout(&schema, KeyIndexKind::default());
        let memtable = Arc::new(MemTable::new(Generation(0), layout));
        Self { uri: uri.to_owned(), schema, newer, memtable }
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
                Error::internal(format!("{name} was read without one of its columns"))
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
        if self.memtable.bytes() + bytes > MAX_BYTES {
            return Err(Error::input(format!(
                "shard {shard_id} of table {0} was opened by another program and is not part of the \
                 table's sharding. A reader holds the rows of such shards in memory, limited to \
                 {MAX_BYTES} bytes. Move them into the base table: Table.compact(), or python -m \
                 lancemem maintain {0} --once",
                self.uri
            )));
        }
        let batches = self.memtable.push(rows.batch, rows.keys, bytes);
        self.memtable.index_through(batches);
        Ok(())
    }
}
