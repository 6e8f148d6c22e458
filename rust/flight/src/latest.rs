//! The newest rows in a job's memory as a plain table: one row for each key, no tombstones, and the
//! table's columns, so that any Flight client can read them.
//!
//! Owns: the choice of the newest row over the MemTables of one job.
//! Does not own: older rows; those are in the table.

use std::sync::Arc;

use arrow::compute::filter_record_batch;
use arrow_array::{BooleanArray, RecordBatch};
use arrow_buffer::BooleanBufferBuilder;
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Schema, SchemaRef};
use lancemem_core::format::reconcile::FIELD_ID;
use lancemem_core::format::{Reconcile, RowSchema, TOMBSTONE};
use lancemem_core::memtable::MemTableView;
use lancemem_core::types::RowPosition;

/// The columns of [`NewestRows`], without field ids, which have a meaning in their table only.
pub(crate) fn columns(rows: &RowSchema) -> SchemaRef {
    let fields = rows.logical().fields().iter().map(|field| without_ids(field));
    Arc::new(Schema::new(fields.collect::<Vec<Field>>()))
}

/// A field without its id and the ids of its children. A client could otherwise put rows with these
/// ids into another table.
fn without_ids(field: &Field) -> Field {
    let mut metadata = field.metadata().clone();
    metadata.remove(FIELD_ID);
    let without = |part: &FieldRef| Arc::new(without_ids(part));
    let data_type = match field.data_type() {
        DataType::Struct(parts) => DataType::Struct(parts.iter().map(without).collect()),
        DataType::List(item) => DataType::List(without(item)),
        DataType::LargeList(item) => DataType::LargeList(without(item)),
        DataType::FixedSizeList(item, width) => DataType::FixedSizeList(without(item), *width),
        DataType::Map(entries, sorted) => DataType::Map(without(entries), *sorted),
        other => other.clone(),
    };
    field.clone().with_metadata(metadata).with_data_type(data_type)
}

/// The newest live row of each key, one batch of the snapshot at a time.
pub(crate) struct NewestRows {
    schema: SchemaRef,
    /// The job's columns, to which rows of older MemTables are reconciled.
    rows: Arc<RowSchema>,
    /// Each MemTable, and a mask of its rows in the answer.
    sources: Vec<(MemTableView, BooleanArray)>,
    /// The next batch: the number of its source, its number there, and its first row.
    next: (usize, usize, usize),
}

impl NewestRows {
    /// Chooses among `memtables`, oldest first. It blocks: every key of an older MemTable is looked
    /// up in the newer ones.
    pub fn of(schema: SchemaRef, rows: Arc<RowSchema>, memtables: Vec<MemTableView>) -> Self {
        let masks: Vec<BooleanArray> = (0..memtables.len())
            .map(|index| {
                let (view, newer) = (&memtables[index], &memtables[index + 1..]);
                let mut kept = BooleanBufferBuilder::new(view.rows());
                kept.append_buffer(view.newest_rows().values());
                let mut drop_replaced = |key: &[u8], RowPosition(row): RowPosition| {
                    if newer.iter().any(|newer| newer.newest(key).is_some()) {
                        kept.set_bit(row as usize, false);
                    }
                };
                if !newer.is_empty() {
                    view.for_each_newest(&mut drop_replaced);
                }
                BooleanArray::new(kept.finish(), None)
            })
            .collect();
        Self { schema, rows, sources: memtables.into_iter().zip(masks).collect(), next: (0, 0, 0) }
    }

    fn read(&self, batch: &RecordBatch, kept: &BooleanArray) -> Result<RecordBatch, ArrowError> {
        let dead = batch.column_by_name(TOMBSTONE).map(arrow_array::cast::AsArray::as_boolean);
        let live = match dead {
            Some(dead) => BooleanArray::new(kept.values() & &!dead.values(), None),
            None => kept.clone(),
        };
        let rows = filter_record_batch(batch, &live)?;
        let rows = self.rows.reconcile(&rows).and_then(|rows| {
            // Columns are matched by field id up to here. The answer has no ids, so from here on
            // they are matched by name.
            Reconcile::between(rows.schema_ref(), &self.schema)?.apply(&rows, &self.schema)
        });
        rows.map_err(|error| ArrowError::ExternalError(Box::new(error)))
    }
}

impl Iterator for NewestRows {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (source, batch, first_row) = self.next;
            let (view, kept) = self.sources.get(source)?;
            if batch == view.batches().len() {
                self.next = (source + 1, 0, 0);
                continue;
            }
            let rows = view.batch(batch);
            self.next = (source, batch + 1, first_row + rows.num_rows());
            return Some(self.read(rows, &kept.slice(first_row, rows.num_rows())));
        }
    }
}
