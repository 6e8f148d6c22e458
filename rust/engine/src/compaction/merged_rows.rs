//! The rows that a merge rule made of several, as the base table gets them.
//!
//! Owns: the rows of a snapshot's merged MemTables that are no deletes, with the columns of the base
//! table.
//! Does not own: how they were merged (`merged`), or the file that they are written to (`rewrite`).

use arrow::compute::filter_record_batch;
use arrow_array::{BooleanArray, RecordBatch, RecordBatchOptions};
use lancemem_core::types::Result;

use crate::errors::Context;
use crate::schema::{StoredColumns, tombstones};
use crate::snapshot::Snapshot;

const MERGED: &str = "writing merged rows";

/// Merged rows; none in tables whose rule makes no row of several.
#[derive(Debug, Default)]
pub struct MergedRows {
    /// The rows, under the columns of results.
    pub batches: Vec<RecordBatch>,
}

impl MergedRows {
    /// The merged rows of `snapshot`, which has no other rows in memory.
    ///
    /// # Errors
    /// An internal error for rows without a column.
    pub fn of(snapshot: &Snapshot) -> Result<Self> {
        let schema = &snapshot.columns.columns;
        let names: Vec<String> = schema.fields().iter().map(|field| field.name().clone()).collect();
        let mut batches = Vec::new();
        for memtable in snapshot.shards.iter().flat_map(|shard| &shard.memtables) {
            let stored = StoredColumns::of(memtable.schema(), &snapshot.columns, &names)?;
            for batch in memtable.batches() {
                let is_row = BooleanArray::from(!tombstones(batch, MERGED)?.values());
                let rows = filter_record_batch(batch, &is_row).context(MERGED)?;
                if rows.num_rows() == 0 {
                    continue;
                }
                let columns = stored.bring(&rows)?.columns().to_vec();
                let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
                let rows = RecordBatch::try_new_with_options(schema.clone(), columns, &options);
                batches.push(rows.context(MERGED)?);
            }
        }
        Ok(Self { batches })
    }

    /// Number of rows.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.batches.iter().map(|batch| batch.num_rows() as u64).sum()
    }
}
