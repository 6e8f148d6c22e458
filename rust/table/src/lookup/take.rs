//! Rows of a Lance dataset by fragment and offset.
//!
//! Owns: the columns of an answer in each source, found by field id, and reading no others. The
//! key columns are those of the call.
//! Does not own: which rows are read.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, new_null_array};
use arrow_cast::cast;
use arrow_schema::{Field, Schema, SchemaRef};
use lance::Dataset;
use lance::dataset::ProjectionRequest;
use lance_core::datatypes::{Field as LanceField, Schema as LanceSchema};
use lance_core::{Error as LanceError, Result as LanceResult};
use lancemem_core::format::TOMBSTONE;
use lancemem_core::types::{Error, Result};

use crate::errors::Context;
use crate::view::{ReadView, RowReaders};

/// Field metadata of types that Lance stores in another form than it gives.
const EXTENSION: &str = "ARROW:extension:name";

/// The columns of an answer.
pub(super) struct Columns {
    /// As the caller gets them.
    pub schema: SchemaRef,
    /// For each of them where its values come from.
    pub origins: Vec<Origin>,
    /// Those that are read.
    stored: SchemaRef,
    /// Their field ids in the base table.
    ids: Vec<i32>,
}

/// Where the values of a column come from.
#[derive(Clone, Copy, Debug)]
pub(super) enum Origin {
    /// This column of the call: whoever has found a key need not read it.
    Call(usize),
    /// This one of the columns that are read.
    Source(usize),
}

/// The same columns in one dataset.
pub(super) struct SourceColumns {
    result: SchemaRef,
    /// What is read.
    read: Arc<LanceSchema>,
    /// For each column of the result its name in the dataset; `None` where it has no such column.
    names: Vec<Option<String>>,
}

impl Columns {
    pub fn of(view: &ReadView, columns: &[String]) -> Result<Self> {
        let (mut origins, mut ids) = (Vec::with_capacity(columns.len()), Vec::new());
        let (mut fields, mut stored) = (Vec::with_capacity(columns.len()), Vec::new());
        for column in columns {
            let field = view.schema.field_with_name(column).ok();
            let (Some(field), Some(in_base)) = (field, view.base.schema().field(column)) else {
                let names: Vec<&str> =
                    view.schema.fields().iter().map(|field| field.name().as_str()).collect();
                return Err(Error::input(format!(
                    "column '{column}' is not in the table; it has {}",
                    names.join(", ")
                )));
            };
            fields.push(field.clone());
            if let Some(place) = view.key.iter().position(|name| name == column) {
                origins.push(Origin::Call(place));
                continue;
            }
            origins.push(Origin::Source(ids.len()));
            stored.push(field.clone());
            ids.push(in_base.id);
        }
        let (schema, stored) = (Arc::new(Schema::new(fields)), Arc::new(Schema::new(stored)));
        Ok(Self { schema, origins, stored, ids })
    }

    /// The columns of a batch that names them as the table does.
    pub fn by_name(&self, batch: &RecordBatch) -> Result<Vec<ArrayRef>> {
        let names = self.stored.fields().iter().map(|field| Some(field.name().as_str()));
        in_types_of(&self.stored, batch, names)
    }

    /// In the base table, with the key columns as well.
    pub fn in_base(&self, view: &ReadView, with_key: bool) -> Result<SourceColumns> {
        let extra: &[String] = if with_key { &view.key } else { &[] };
        self.in_dataset(&view.base, extra)
    }

    /// In a run, with the column that marks tombstones.
    pub fn in_run(&self, run: &Dataset) -> Result<SourceColumns> {
        self.in_dataset(run, &[TOMBSTONE.to_owned()])
    }

    fn in_dataset(&self, dataset: &Dataset, extra: &[String]) -> Result<SourceColumns> {
        let fields = &dataset.schema().fields;
        let of_id = |id: &i32| fields.iter().find(|field| field.id == *id);
        let names: Vec<Option<String>> =
            self.ids.iter().map(|id| of_id(id).map(|field| field.name.clone())).collect();
        let mut read: Vec<&str> = names.iter().flatten().map(String::as_str).collect();
        read.extend(extra.iter().map(String::as_str));
        read.sort_unstable();
        read.dedup();
        let read = dataset.schema().project(&read).context("planning a lookup")?;
        Ok(SourceColumns { result: self.stored.clone(), read: Arc::new(read), names })
    }
}

impl SourceColumns {
    /// What was read, as the caller gets it.
    pub fn result(&self, batch: &RecordBatch) -> Result<Vec<ArrayRef>> {
        in_types_of(&self.result, batch, self.names.iter().map(Option::as_deref))
    }

    /// For each row of a run whether it is no tombstone.
    pub fn live_rows(batch: &RecordBatch) -> Result<Vec<bool>> {
        let tombstones = batch
            .column_by_name(TOMBSTONE)
            .ok_or_else(|| Error::Internal("a run was read without its tombstones".to_owned()))?;
        Ok(tombstones.as_boolean().values().iter().map(|dead| !dead).collect())
    }
}

/// Columns of `batch` in the types of `schema`; null where there is no such column.
fn in_types_of<'a>(
    schema: &SchemaRef,
    batch: &RecordBatch,
    names: impl Iterator<Item = Option<&'a str>>,
) -> Result<Vec<ArrayRef>> {
    let action = "reading the rows of a lookup";
    let column = |(field, name): (&Arc<Field>, Option<&str>)| -> Result<ArrayRef> {
        let Some(name) = name else {
            return Ok(new_null_array(field.data_type(), batch.num_rows()));
        };
        let column = batch
            .column_by_name(name)
            .ok_or_else(|| Error::Internal(format!("{action}: no column {name}")))?;
        if column.data_type() == field.data_type() {
            return Ok(column.clone());
        }
        cast(column, field.data_type()).context(action)
    };
    schema.fields().iter().zip(names).map(column).collect()
}

/// The rows at `offsets`, which ascend and are not deleted, of a fragment.
pub(super) async fn take(
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
        let addresses: Vec<u64> = offsets.iter().map(|offset| start | u64::from(*offset)).collect();
        dataset.take_rows(&addresses, ProjectionRequest::Schema(columns.read.clone())).await?
    } else {
        readers.take(dataset, fragment, offsets, &columns.read).await?
    };
    if rows.num_rows() != offsets.len() {
        return Err(LanceError::internal(format!(
            "{} of {} rows were read of fragment {fragment}",
            rows.num_rows(),
            offsets.len()
        )));
    }
    Ok(rows)
}

/// JSON and blobs, which Lance's own take converts.
fn has_another_form(field: &LanceField) -> bool {
    field.metadata.contains_key(EXTENSION) || field.children.iter().any(has_another_form)
}
