//! The leaf of a plan that reads rows in memory.
//!
//! Owns: the newest row of each key inside one MemTable of a snapshot, batch by batch.
//! Does not own: other sources of the same key.

use std::fmt;
use std::sync::Arc;

use arrow::compute::{BatchCoalescer, nullif};
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions, StructArray};
use arrow_schema::{DataType, SchemaRef};
use datafusion::common::Result as PlanResult;
use datafusion::physical_plan::metrics::{BaselineMetrics, RecordOutput};
use futures::StreamExt;
use futures::stream::BoxStream;
use lancemem_core::format::size::payload_bytes;
use lancemem_core::memtable::MemTableView;

use super::source_exec::Leaf;
use crate::errors::external;
use crate::schema::StoredColumns;

/// Rows of an output batch, as in Lance's scans.
const BATCH_ROWS: usize = 8192;
/// Most bytes of the rows of several puts in one output batch.
const BATCH_BYTES: usize = 64 << 20;

/// Reads the newest rows of one MemTable in arrival order.
#[derive(Debug)]
pub struct MemTableScan {
    memtable: MemTableView,
    columns: Arc<StoredColumns>,
    /// The rows to read; `None` for the newest row of each key.
    shown: Option<BooleanArray>,
}

impl MemTableScan {
    /// Reads the columns `columns` of the table, which the rows may have under an older schema.
    /// `shown` says for each row whether it is read; `None` for the newest row of each key.
    #[must_use]
    pub fn new(
        memtable: MemTableView,
        columns: StoredColumns,
        shown: Option<BooleanArray>,
    ) -> Self {
        Self { memtable, columns: Arc::new(columns), shown }
    }
}

impl fmt::Display for MemTableScan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> =
            self.columns.schema.fields().iter().map(|field| field.name().as_str()).collect();
        write!(
            f,
            "generation={}, rows={}, columns=[{}]",
            self.memtable.generation(),
            self.memtable.rows(),
            names.join(", ")
        )
    }
}

impl Leaf for MemTableScan {
    const NAME: &'static str = "MemTableScanExec";

    fn schema(&self) -> SchemaRef {
        self.columns.schema.clone()
    }

    fn batches(&self, metrics: BaselineMetrics) -> BoxStream<'static, PlanResult<RecordBatch>> {
        let mut rows =
            NewestBatches::new(self.memtable.clone(), self.columns.clone(), self.shown.clone());
        let batches = std::iter::from_fn(move || {
            let _timer = metrics.elapsed_compute().timer();
            let batch = rows.next_batch().transpose()?;
            Some(batch.record_output(&metrics))
        });
        futures::stream::iter(batches).boxed()
    }
}

/// The newest rows of a MemTable in batches of a useful size: a put may have one row, or a million.
struct NewestBatches {
    memtable: MemTableView,
    columns: Arc<StoredColumns>,
    shown: Option<BooleanArray>,
    /// Position of the first row of the next batch.
    first_row: usize,
    /// The next batch, and its next row: a large batch is output in slices.
    next: usize,
    row: usize,
    ready: BatchCoalescer,
    /// Upper bound of the bytes that `ready` holds.
    held_bytes: usize,
}

impl NewestBatches {
    fn new(
        memtable: MemTableView,
        columns: Arc<StoredColumns>,
        shown: Option<BooleanArray>,
    ) -> Self {
        let ready = BatchCoalescer::new(columns.schema.clone(), BATCH_ROWS)
            .with_biggest_coalesce_batch_size(Some(BATCH_ROWS / 2));
        Self { memtable, columns, shown, first_row: 0, next: 0, row: 0, ready, held_bytes: 0 }
    }

    fn next_batch(&mut self) -> PlanResult<Option<RecordBatch>> {
        loop {
            if let Some(batch) = self.ready.next_completed_batch() {
                return Ok(Some(batch));
            }
            if self.next == self.memtable.batches().len() {
                self.ready.finish_buffered_batch()?;
                return Ok(self.ready.next_completed_batch());
            }
            let batch = self.memtable.batch(self.next);
            let all = batch.num_rows();
            let rows = BATCH_ROWS.min(all - self.row);
            let newest = match &self.shown {
                Some(shown) => shown.slice(self.first_row + self.row, rows),
                None => self.memtable.newest_rows_of_batch(self.next).slice(self.row, rows),
            };
            let brought = self.columns.bring(&batch.slice(self.row, rows)).map_err(external)?;
            let brought = with_null_parts(brought)?;
            self.push(brought, &newest)?;
            self.row += rows;
            if self.row == all {
                (self.next, self.row) = (self.next + 1, 0);
                self.first_row += all;
            }
        }
    }
}

impl NewestBatches {
    /// Adds the rows `newest` of `batch`. Gathered rows are output before they exceed the bytes of
    /// one batch.
    fn push(&mut self, batch: RecordBatch, newest: &BooleanArray) -> PlanResult<()> {
        let bytes = payload_bytes(&batch);
        if self.held_bytes + bytes > BATCH_BYTES {
            self.ready.finish_buffered_batch()?;
            self.held_bytes = 0;
        }
        self.ready.push_batch_with_filter(batch, newest)?;
        // After a completed batch, only rows of the last push are left.
        let held = if self.ready.has_completed_batch() { 0 } else { self.held_bytes };
        self.held_bytes = held + bytes;
        Ok(())
    }
}

/// The batch with nulls in the children of null structs. Arrow leaves these children undefined, and
/// a condition on a child would see them; from a file Lance reads nulls.
fn with_null_parts(batch: RecordBatch) -> PlanResult<RecordBatch> {
    let is_struct = |column: &ArrayRef| matches!(column.data_type(), DataType::Struct(_));
    if !batch.columns().iter().any(is_struct) {
        return Ok(batch);
    }
    let (schema, columns, rows) = batch.into_parts();
    let columns = columns.into_iter().map(null_parts).collect::<PlanResult<_>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(schema, columns, &options)?)
}

fn null_parts(array: ArrayRef) -> PlanResult<ArrayRef> {
    let Some(of) = array.as_struct_opt() else { return Ok(array) };
    let (fields, parts, nulls) = of.clone().into_parts();
    let missing = nulls.as_ref().map(|nulls| BooleanArray::new(!nulls.inner(), None));
    let parts = parts.into_iter().map(|part| match &missing {
        Some(missing) => null_parts(nullif(&part, missing)?),
        None => null_parts(part),
    });
    let parts = parts.collect::<PlanResult<_>>()?;
    Ok(Arc::new(StructArray::try_new_with_length(fields, parts, nulls, array.len())?))
}
