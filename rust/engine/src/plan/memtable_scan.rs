//! The leaf of a plan that reads rows in memory.
//!
//! Owns: the newest row of each key inside one MemTable of a snapshot, batch by batch; of a MemTable
//! with an ordered index of a column of the filter, only rows that may meet the filter.
//! Does not own: other sources of the same key, or the filter.

use std::fmt;
use std::sync::Arc;

use arrow::compute::{BatchCoalescer, nullif};
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions, StructArray};
use arrow_buffer::BooleanBufferBuilder;
use arrow_schema::{DataType, SchemaRef};
use datafusion::common::Result as PlanResult;
use datafusion::physical_plan::metrics::{BaselineMetrics, RecordOutput};
use futures::StreamExt;
use futures::stream::BoxStream;
use lancemem_core::format::size::payload_bytes;
use lancemem_core::memtable::MemTableView;
use lancemem_core::types::RowPosition;

use super::memory_order::OrderedCandidates;
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
    /// The rows that may meet the filter above; `None` for all.
    candidates: Option<OrderedCandidates>,
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
        Self { memtable, columns: Arc::new(columns), shown, candidates: None }
    }

    /// Reads of these rows those among `candidates`.
    #[must_use]
    pub fn among(self, candidates: Option<OrderedCandidates>) -> Self {
        Self { candidates, ..self }
    }

    /// The positions of the rows to read, ascending, where they are known one by one.
    fn chosen(&self) -> Option<Vec<u32>> {
        let mut rows = self.candidates.as_ref()?.rows()?;
        match &self.shown {
            Some(shown) => rows.retain(|row| shown.value(*row as usize)),
            None => rows.retain(|row| self.memtable.is_newest(RowPosition(*row))),
        }
        Some(rows)
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
        )?;
        self.candidates.as_ref().map_or(Ok(()), |candidates| write!(f, ", {candidates}"))
    }
}

impl Leaf for MemTableScan {
    const NAME: &'static str = "MemTableScanExec";

    fn schema(&self) -> SchemaRef {
        self.columns.schema.clone()
    }

    fn batches(&self, metrics: BaselineMetrics) -> BoxStream<'static, PlanResult<RecordBatch>> {
        let mut rows = NewestBatches::new(self);
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
    /// The positions of the rows to read, where they are known one by one.
    chosen: Option<Vec<u32>>,
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
    fn new(scan: &MemTableScan) -> Self {
        let ready = BatchCoalescer::new(scan.columns.schema.clone(), BATCH_ROWS)
            .with_biggest_coalesce_batch_size(Some(BATCH_ROWS / 2));
        let (memtable, columns) = (scan.memtable.clone(), scan.columns.clone());
        let (shown, chosen) = (scan.shown.clone(), scan.chosen());
        let (first_row, next, row, held_bytes) = (0, 0, 0, 0);
        Self { memtable, columns, shown, chosen, first_row, next, row, ready, held_bytes }
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
            let (skipped, newest) = self.rows_to_read(rows);
            if !newest.is_empty() {
                let slice = batch.slice(self.row + skipped, newest.len());
                let brought = self.columns.bring(&slice).map_err(external)?;
                self.push(with_null_parts(brought)?, &newest)?;
            }
            self.row += rows;
            if self.row == all {
                (self.next, self.row) = (self.next + 1, 0);
                self.first_row += all;
            }
        }
    }
}

impl NewestBatches {
    /// Which of the next `rows` rows of the batch are read: how many are skipped first, and the choice
    /// among those that follow.
    fn rows_to_read(&self, rows: usize) -> (usize, BooleanArray) {
        let first = self.first_row + self.row;
        let Some(chosen) = &self.chosen else {
            let newest = match &self.shown {
                Some(shown) => shown.slice(first, rows),
                None => self.memtable.newest_rows_of_batch(self.next).slice(self.row, rows),
            };
            return (0, newest);
        };
        let below = |end: usize| chosen.partition_point(|row| (*row as usize) < end);
        let chosen = &chosen[below(first)..below(first + rows)];
        let (Some(least), Some(greatest)) = (chosen.first(), chosen.last()) else {
            return (0, BooleanArray::new_null(0));
        };
        let least = *least as usize;
        let mut choice = BooleanBufferBuilder::new(*greatest as usize + 1 - least);
        choice.append_n(*greatest as usize + 1 - least, false);
        for row in chosen {
            choice.set_bit(*row as usize - least, true);
        }
        (least - first, BooleanArray::new(choice.finish(), None))
    }

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
