//! Rows of a Lance dataset by fragment and offset.
//!
//! Owns: the columns of an answer in each source, found by field id, and reading only these. Key
//! columns are taken from the call, not read.
//! Does not own: which rows are read.

use std::sync::Arc;

use arrow::compute::take_record_batch;
use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow_cast::cast;
use arrow_schema::{Field, Schema, SchemaRef};
use futures::TryStreamExt;
use lance::Dataset;
use lance::dataset::fragment::FileFragment;
use lance::dataset::{ProjectionRequest, TakeBuilder};
use lance_core::datatypes::{Field as LanceField, Schema as LanceSchema};
use lance_core::{Error as LanceError, Result as LanceResult};
use lancemem_core::types::{Error, Result};

use crate::errors::{Context, is_overflow};
use crate::record_index::all_batches;
use crate::schema::{StoredColumns, TableSchema};
use crate::snapshot::{MemTableView, RowReaders, Snapshot, SsTableHandle};

/// Rows from which on reading all rows of a fragment may cost less than taking these alone: where the
/// fragment has at most so many rows for each of them.
const MANY: usize = 4_096;
const SCANNED_FOR_ONE: usize = 32;
/// Rows of a batch of a fragment that is read whole.
const SCANNED_ROWS: u32 = 8_192;
/// Field metadata of types whose stored form differs from the one that Lance returns.
const EXTENSION: &str = "ARROW:extension:name";

/// The columns of an answer.
pub(super) struct Columns {
    /// The columns of the result.
    pub schema: SchemaRef,
    /// For each of them the origin of its values.
    pub origins: Vec<Origin>,
    /// The columns that are read.
    stored: SchemaRef,
    names: Vec<String>,
    table: Arc<TableSchema>,
}

/// Where the values of a column come from.
#[derive(Clone, Copy, Debug)]
pub(super) enum Origin {
    /// A column of the call: the values of a found key are known.
    Call(usize),
    /// A column that is read.
    Source(usize),
}

/// The same columns in one dataset.
pub(super) struct SourceColumns {
    result: SchemaRef,
    /// The columns that are read.
    read: Arc<LanceSchema>,
    /// Reconciles them in an SSTable of an older schema; `None` where the columns are the table's.
    stored: Option<StoredColumns>,
}

impl Columns {
    pub fn of(snapshot: &Snapshot, columns: &[String]) -> Result<Self> {
        let (mut origins, mut names) = (Vec::with_capacity(columns.len()), Vec::new());
        let (mut fields, mut stored) = (Vec::with_capacity(columns.len()), Vec::new());
        for column in columns {
            let Ok(field) = snapshot.schema.field_with_name(column) else {
                let known: Vec<&str> =
                    snapshot.schema.fields().iter().map(|field| field.name().as_str()).collect();
                return Err(Error::input(format!(
                    "column '{column}' is not in the table; it has {}",
                    known.join(", ")
                )));
            };
            fields.push(field.clone());
            if let Some(place) = snapshot.key.iter().position(|name| name == column) {
                origins.push(Origin::Call(place));
                continue;
            }
            origins.push(Origin::Source(names.len()));
            stored.push(field.clone());
            names.push(column.clone());
        }
        let metadata = snapshot.schema.metadata().clone();
        let schema = Arc::new(Schema::new_with_metadata(fields, metadata));
        let stored = Arc::new(Schema::new(stored));
        Ok(Self { schema, origins, stored, names, table: snapshot.columns.clone() })
    }

    /// In a MemTable.
    pub fn in_memtable(&self, memtable: &MemTableView) -> Result<StoredColumns> {
        StoredColumns::of(memtable.schema(), &self.table, &self.names)
    }

    /// In the base table, with the key columns as well.
    pub fn in_base(&self, snapshot: &Snapshot, with_key: bool) -> Result<SourceColumns> {
        let extra: &[String] = if with_key { &snapshot.key } else { &[] };
        self.in_dataset(&snapshot.base, &self.names, extra, None)
    }

    /// In an SSTable.
    pub fn in_sstable(&self, sstable: &SsTableHandle) -> Result<SourceColumns> {
        let stored = StoredColumns::of(&sstable.columns, &self.table, &self.names)?;
        let names = stored.names.clone();
        let stored = Some(stored).filter(|stored| !stored.is_same());
        self.in_dataset(&sstable.dataset, &names, &[], stored)
    }

    /// The columns that are read, under their names.
    pub fn stored_schema(&self) -> &Schema {
        &self.stored
    }

    /// In an SSTable, with the columns `deciding` of a merge rule, `_tombstone` and `_replace` among
    /// them.
    pub fn with_events(&self, sstable: &SsTableHandle, deciding: &[String]) -> Result<WithEvents> {
        let behind = deciding.iter().filter(|name| !self.names.contains(name));
        let all: Vec<String> = self.names.iter().chain(behind).cloned().collect();
        let stored = StoredColumns::of(&sstable.columns, &self.table, &all)?;
        let names = stored.names.clone();
        let read = self.in_dataset(&sstable.dataset, &names, &[], Some(stored))?;
        Ok(WithEvents { read })
    }

    fn in_dataset(
        &self,
        dataset: &Dataset,
        names: &[String],
        extra: &[String],
        stored: Option<StoredColumns>,
    ) -> Result<SourceColumns> {
        let mut read: Vec<&str> = names.iter().chain(extra).map(String::as_str).collect();
        read.sort_unstable();
        read.dedup();
        let read = dataset.schema().project(&read).context("planning a lookup")?;
        Ok(SourceColumns { result: self.stored.clone(), read: Arc::new(read), stored })
    }
}

/// The columns of an answer in an SSTable, with those by which a merge rule decides.
pub(super) struct WithEvents {
    read: SourceColumns,
}

impl WithEvents {
    /// The columns that are read.
    pub const fn read(&self) -> &SourceColumns {
        &self.read
    }

    /// The columns of the result, and rows with the columns that decide.
    pub fn result(&self, batch: &RecordBatch) -> Result<(Vec<ArrayRef>, RecordBatch)> {
        let Some(stored) = &self.read.stored else {
            return Err(Error::internal("a merge rule's columns are read by name"));
        };
        let rows = stored.bring(batch)?;
        Ok((in_types_of(&self.read.result, &rows)?, rows))
    }
}

impl SourceColumns {
    /// The columns of the result, from a batch that was read.
    pub fn result(&self, batch: &RecordBatch) -> Result<Vec<ArrayRef>> {
        match &self.stored {
            Some(stored) => Ok(stored.bring(batch)?.columns().to_vec()),
            None => in_types_of(&self.result, batch),
        }
    }
}

/// Columns of `batch` in the types of `schema`.
fn in_types_of(schema: &SchemaRef, batch: &RecordBatch) -> Result<Vec<ArrayRef>> {
    let action = "reading the rows of a lookup";
    let column = |field: &Arc<Field>| -> Result<ArrayRef> {
        let name = field.name();
        let column = batch
            .column_by_name(name)
            .ok_or_else(|| Error::internal(format!("{action}: column '{name}' was not read")))?;
        if column.data_type() == field.data_type() {
            return Ok(column.clone());
        }
        cast(column, field.data_type()).context(action)
    };
    schema.fields().iter().map(column).collect()
}

/// All columns of the rows at `offsets` of a fragment, in the order of the dataset's columns; otherwise
/// as [`take`]. Where they are many, all rows are read.
pub async fn whole_rows(
    readers: &RowReaders,
    dataset: &Dataset,
    fragment: u32,
    offsets: &[u32],
) -> LanceResult<Vec<RecordBatch>> {
    let read = Arc::new(dataset.schema().clone());
    let file = dataset.get_fragment(fragment as usize);
    if let Some(file) = file.filter(|_| offsets.len() >= MANY)
        && !read.fields.iter().any(has_another_form)
    {
        let physical = file.metadata().physical_rows.unwrap_or(usize::MAX);
        if offsets.len() >= physical / SCANNED_FOR_ONE {
            return kept_by_scan(&file, offsets, &read).await;
        }
    }
    rows_at(readers, dataset, fragment, offsets, read).await
}

/// The columns `read` of the rows at `offsets` of a fragment, as they are stored; otherwise as
/// [`take`].
pub async fn rows_at(
    readers: &RowReaders,
    dataset: &Dataset,
    fragment: u32,
    offsets: &[u32],
    read: Arc<LanceSchema>,
) -> LanceResult<Vec<RecordBatch>> {
    let result = Arc::new(Schema::empty());
    take(readers, dataset, fragment, offsets, &SourceColumns { result, read, stored: None }).await
}

/// The rows at `offsets` of a fragment, of which all rows are read.
async fn kept_by_scan(
    fragment: &FileFragment,
    offsets: &[u32],
    columns: &LanceSchema,
) -> LanceResult<Vec<RecordBatch>> {
    let mut batches = all_batches(fragment, columns, SCANNED_ROWS).await?;
    let (mut kept, mut first, mut left) = (Vec::new(), 0_u32, offsets);
    while let Some(batch) = batches.try_next().await? {
        let end = u64::from(first) + batch.num_rows() as u64;
        let (here, behind) = left.split_at(left.partition_point(|at| u64::from(*at) < end));
        left = behind;
        if !here.is_empty() {
            let places = UInt32Array::from_iter_values(here.iter().map(|at| at - first));
            kept.push(take_record_batch(&batch, &places)?);
        }
        let Ok(end) = u32::try_from(end) else { break };
        first = end;
    }
    if left.is_empty() {
        return Ok(kept);
    }
    let (id, missing) = (fragment.id(), left.len());
    Err(LanceError::internal(format!("fragment {id} ends before {missing} of its rows")))
}

/// The rows at `offsets` of a fragment, in several batches where their values are too large for
/// one. `offsets` ascend, and none of their rows is deleted.
pub(super) async fn take(
    readers: &RowReaders,
    dataset: &Dataset,
    fragment: u32,
    offsets: &[u32],
    columns: &SourceColumns,
) -> LanceResult<Vec<RecordBatch>> {
    let (mut batches, mut left) = (Vec::new(), vec![offsets]);
    while let Some(offsets) = left.pop() {
        match take_batch(readers, dataset, fragment, offsets, columns).await {
            Ok(batch) => batches.push(batch),
            Err(error) if is_overflow(&error) && offsets.len() > 1 => {
                let (first, second) = offsets.split_at(offsets.len() / 2);
                left.extend([second, first]);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(batches)
}

async fn take_batch(
    readers: &RowReaders,
    dataset: &Dataset,
    fragment: u32,
    offsets: &[u32],
    columns: &SourceColumns,
) -> LanceResult<RecordBatch> {
    if columns.read.fields.is_empty() {
        let options = RecordBatchOptions::new().with_row_count(Some(offsets.len()));
        let none = Arc::new(Schema::empty());
        return Ok(RecordBatch::try_new_with_options(none, Vec::new(), &options)?);
    }
    let rows = if columns.read.fields.iter().any(has_another_form) {
        let start = u64::from(fragment) << 32;
        let addresses = offsets.iter().map(|offset| start | u64::from(*offset)).collect();
        let dataset = Arc::new(dataset.clone());
        let columns = ProjectionRequest::Schema(columns.read.clone());
        let columns = Arc::new(columns.into_projection_plan(dataset.clone())?);
        // By address: a stable row id is not the address of the row.
        TakeBuilder::try_new_from_addresses(dataset, addresses, columns)?.execute().await?
    } else {
        readers.take(dataset, fragment, offsets, &columns.read).await?
    };
    if rows.num_rows() != offsets.len() {
        return Err(LanceError::internal(format!(
            "fragment {fragment}: expected {} rows, read {}",
            offsets.len(),
            rows.num_rows()
        )));
    }
    Ok(rows)
}

/// JSON and blobs, which Lance's own take converts.
fn has_another_form(field: &LanceField) -> bool {
    field.metadata.contains_key(EXTENSION) || field.children.iter().any(has_another_form)
}
