//! The events of contested keys, source by source.
//!
//! Owns: reading their rows by position, and bringing them to the table's present columns.
//! Does not own: which keys are contested.

use std::sync::Arc;

use arrow::compute::take_record_batch;
use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow_cast::cast;
use arrow_schema::{Field, Schema};
use lancemem_core::merge::Fold;
use lancemem_core::types::{Error, Result};

use super::MERGING;
use crate::errors::{BaseContext, Context, SsTableErrors};
use crate::lookup::whole_rows;
use crate::snapshot::{MemTableView, Snapshot, SsTableHandle};

/// Events of one source, in the table's storage schema.
pub(super) struct SourceEvents {
    pub rows: RecordBatch,
    /// The number of each row's key among the contested ones.
    pub groups: Vec<u32>,
}

/// The rows of the base fragment `id`: positions, ascending, with the groups of their keys.
pub(super) async fn of_base(
    snapshot: &Snapshot,
    id: u64,
    rows: Vec<(u32, u32)>,
    fold: &Fold,
) -> Result<Vec<SourceEvents>> {
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let fragment = u32::try_from(id)
        .map_err(|_| Error::internal(format!("fragment {id} of the base table")))?;
    let offsets: Vec<u32> = rows.iter().map(|(offset, _)| *offset).collect();
    let base = snapshot.base_cache.open(&snapshot.base, &snapshot.key).await?;
    let taken = whole_rows(&base.rows, &snapshot.base, fragment, &offsets).await;
    let events = taken.in_base(MERGING)?;
    let events = events.iter().map(|taken| base_events(fold, taken)).collect::<Result<Vec<_>>>()?;
    Ok(with_groups(events, &rows))
}

/// Rows of the base table as the oldest events of their keys.
pub(super) fn base_events(fold: &Fold, taken: &RecordBatch) -> Result<RecordBatch> {
    let columns = fold.row_schema().fields().iter().map(|field| in_type_of(field, taken));
    let columns = columns.collect::<Result<Vec<_>>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(taken.num_rows()));
    let rows = RecordBatch::try_new_with_options(fold.row_schema().clone(), columns, &options);
    fold.base_events(&rows.context(MERGING)?)
}

/// The rows of an SSTable, as [`of_base`].
pub(super) async fn of_sstable(
    snapshot: &Snapshot,
    sstable: &SsTableHandle,
    rows: Vec<(u32, u32)>,
) -> Result<Vec<SourceEvents>> {
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let name = sstable.name();
    let offsets: Vec<u32> = rows.iter().map(|(position, _)| *position).collect();
    let taken = whole_rows(&sstable.row_readers, &sstable.dataset, 0, &offsets).await;
    let mut events = Vec::new();
    for taken in taken.in_sstable(&name)? {
        let (mut fields, mut columns) = (Vec::new(), Vec::new());
        for field in sstable.columns.fields() {
            let column = taken.column_by_name(field.name()).ok_or_else(|| {
                Error::internal(format!("{name} was read without one of its columns"))
            })?;
            fields.push(field.as_ref().clone().with_data_type(column.data_type().clone()));
            columns.push(column.clone());
        }
        let metadata = sstable.columns.metadata().clone();
        let schema = Arc::new(Schema::new_with_metadata(fields, metadata));
        let options = RecordBatchOptions::new().with_row_count(Some(taken.num_rows()));
        let rows = RecordBatch::try_new_with_options(schema, columns, &options);
        events.push(snapshot.columns.rows.reconcile(&rows.context(&name)?)?);
    }
    Ok(with_groups(events, &rows))
}

/// The rows of a MemTable, as [`of_base`]. Positions count over all of its batches.
pub(super) fn of_memtable(
    snapshot: &Snapshot,
    memtable: &MemTableView,
    rows: &[(u32, u32)],
) -> Result<Vec<SourceEvents>> {
    let (mut events, mut first, mut rows) = (Vec::new(), 0_usize, rows);
    for batch in memtable.batches() {
        let end = first + batch.num_rows();
        let split = rows.partition_point(|(position, _)| (*position as usize) < end);
        let (of_batch, behind) = rows.split_at(split);
        rows = behind;
        if !of_batch.is_empty() {
            let start = u32::try_from(first)
                .map_err(|_| Error::internal("a MemTable is limited to 2^32 - 1 rows"))?;
            let places: UInt32Array = of_batch.iter().map(|(at, _)| Some(at - start)).collect();
            let taken = take_record_batch(batch, &places).context(MERGING)?;
            let taken = snapshot.columns.rows.reconcile(&taken)?;
            let groups = of_batch.iter().map(|(_, group)| *group).collect();
            events.push(SourceEvents { rows: taken, groups });
        }
        first = end;
    }
    Ok(events)
}

/// The batches with the groups of their rows, which are `rows` one after the other.
fn with_groups(batches: Vec<RecordBatch>, rows: &[(u32, u32)]) -> Vec<SourceEvents> {
    let mut rows = rows;
    let split = |batch: RecordBatch| {
        let (own, behind) = rows.split_at(batch.num_rows());
        rows = behind;
        SourceEvents { rows: batch, groups: own.iter().map(|(_, group)| *group).collect() }
    };
    batches.into_iter().map(split).collect()
}

fn in_type_of(field: &Arc<Field>, rows: &RecordBatch) -> Result<ArrayRef> {
    let column = rows.column_by_name(field.name()).ok_or_else(|| {
        Error::internal(format!("{MERGING}: column '{}' was not read", field.name()))
    })?;
    if column.data_type() == field.data_type() {
        return Ok(column.clone());
    }
    cast(column, field.data_type()).context(MERGING)
}
