//! The table's present columns, and reconciling older rows with them.
//!
//! Owns: [`TableSchema`], the columns of one base version in every form that is needed;
//! [`LatestBase`], the newest version that this process has seen, and the refusal of schema changes
//! that older rows cannot be reconciled with; [`StoredColumns`], the columns that are read from a
//! source, and how they are reconciled; [`ReconcileExec`], the same as a plan node.
//! Does not own: which columns are the same and which types widen, which the core decides for
//! all of these (`lancemem_core::format::reconcile`).

mod exec;
mod latest;
mod plain_types;
mod stored;

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{BooleanArray, RecordBatch};
use arrow_schema::{DataType, Schema, SchemaRef};
use lance::Dataset;
use lance::dataset::mem_wal::{DatasetMemWalExt, arrow_schema_with_field_ids};
use lance_core::datatypes::{Field as LanceField, Schema as LanceSchema};
use lance_file::version::ConcreteFileVersion;
use lancemem_core::format::{RowSchema, TOMBSTONE};
use lancemem_core::merge::{MergeRule, RuleError};
use lancemem_core::types::{Error, Result};

use crate::errors::Context;

pub use exec::ReconcileExec;
pub use latest::{
    BaseVersion, LatestBase, VersionStamp, keep_indexes, newest_of, read_newest, replaced,
    versions_of,
};
pub use plain_types::plain_schema;
pub use stored::StoredColumns;

/// The columns of one base version.
#[derive(Debug)]
pub struct TableSchema {
    /// The columns of results.
    pub columns: SchemaRef,
    /// The columns in which rows are accepted and stored, with field ids.
    pub rows: Arc<RowSchema>,
    /// The merge rule, which fits these columns; `None` for plain `deduplicate`.
    pub rule: Option<Arc<MergeRule>>,
    /// The storage schema with the types of Lance's scans.
    plain_storage: SchemaRef,
}

impl TableSchema {
    /// The columns of `base`, a table with the merge rule `rule`.
    ///
    /// # Errors
    /// An input error for a key that cannot be one, a column with a reserved name, a column that the
    /// table's file format cannot store, or columns that the rule does not fit.
    pub fn of(base: &Dataset, rule: Option<Arc<MergeRule>>) -> Result<Self> {
        refuse_maps_of_old_formats(base)?;
        let with_ids = Arc::new(with_ids(base.schema()));
        let key = key_of(base)?;
        if let Some(rule) = &rule {
            let fits = rule.check(&with_ids, &key);
            fits.map_err(|error| rule_in_table(base.uri(), error))?;
        }
        let rows = RowSchema::with_rule(with_ids, &key, rule.as_deref());
        let rows = rows.map_err(|error| in_table(base.uri(), error))?;
        Ok(Self {
            columns: Arc::new(Schema::from(base.schema())),
            plain_storage: Arc::new(plain_schema(rows.storage())),
            rows: Arc::new(rows),
            rule,
        })
    }

    /// As [`Self::of`], for a past version. A version without a MemWAL index is older than the rule:
    /// it may lack columns of the rule, and no rows are above it.
    ///
    /// # Errors
    /// As [`Self::of`]; a storage error.
    pub async fn of_past(base: &Dataset, rule: Option<Arc<MergeRule>>) -> Result<Self> {
        let is_ruled = rule.is_some() && {
            let details = base.mem_wal_index_details().await;
            details.context("reading the MemWAL index")?.is_some()
        };
        Self::of(base, rule.filter(|_| is_ruled))
    }
}

/// Lance creates a table with maps in a format that cannot store them, and refuses only its first
/// rows. Here these rows would be acknowledged, and no flush would ever succeed.
fn refuse_maps_of_old_formats(base: &Dataset) -> Result<()> {
    use ConcreteFileVersion::{V1, V2_0, V2_1};
    let is_map = |it: &DataType| matches!(it, DataType::Map(_, _));
    refuse_in_formats(base, &[V1, V2_0, V2_1], is_map, "maps, which need file format 2.2")
}

/// Refuses to enable a table with structs in a format that cannot store null structs. A tombstone
/// has null structs: it would be acknowledged, and no flush would ever succeed.
///
/// # Errors
/// An input error that names the column.
pub fn refuse_structs_of_old_formats(base: &Dataset) -> Result<()> {
    use ConcreteFileVersion::{V1, V2_0, V2_1};
    // First, so that the error names the map and not the structs inside it.
    refuse_maps_of_old_formats(base)?;
    if base.manifest().data_storage_format.lance_file_format() == V1 {
        return Err(Error::input(format!(
            "table {}: its files have Lance's first file format, which writes a null of a number \
             as 0 and an empty text as null; write it again with data_storage_version='stable'",
            base.uri()
        )));
    }
    let is_empty = |it: &DataType| matches!(it, DataType::FixedSizeBinary(0));
    refuse_in_formats(
        base,
        &[V2_0, V2_1],
        is_empty,
        "values of no bytes, which need file format 2.2",
    )?;
    let is_struct = |it: &DataType| matches!(it, DataType::Struct(_));
    refuse_in_formats(base, &[V1, V2_0], is_struct, "structs, whose nulls need file format 2.1")
}

fn refuse_in_formats(
    base: &Dataset,
    formats: &[ConcreteFileVersion],
    is_it: fn(&DataType) -> bool,
    what: &str,
) -> Result<()> {
    let format = base.manifest().data_storage_format.lance_file_format();
    if !formats.contains(&format) {
        return Ok(());
    }
    let Some(column) = base.schema().fields.iter().find(|field| has_type(field, is_it)) else {
        return Ok(());
    };
    Err(Error::input(format!(
        "table {}: column '{}' has {what}, but the table has file format {format}; write the table \
         again with a newer data_storage_version",
        base.uri(),
        column.name,
    )))
}

fn has_type(field: &LanceField, is_it: fn(&DataType) -> bool) -> bool {
    is_it(&field.data_type()) || field.children.iter().any(|part| has_type(part, is_it))
}

/// Columns of a dataset with their field ids.
pub fn with_ids(schema: &LanceSchema) -> Schema {
    arrow_schema_with_field_ids(schema)
}

/// Names of the key columns in primary-key order.
///
/// # Errors
/// An input error where part of a column is in the key.
pub fn key_of(base: &Dataset) -> Result<Vec<String>> {
    let schema = base.schema();
    let name_of = |field: &LanceField| {
        if schema.fields.iter().any(|column| column.id == field.id) {
            return Ok(field.name.clone());
        }
        let path = schema.field_ancestry_by_id(field.id).unwrap_or_default();
        let path: Vec<&str> = path.iter().map(|part| part.name.as_str()).collect();
        let error = format!(
            "the primary key names '{}', a part of the column '{}', and a key consists of whole \
             columns; make a table in which that part is a column",
            path.join("."),
            path.first().unwrap_or(&"")
        );
        Err(in_table(base.uri(), Error::input(error)))
    };
    schema.unenforced_primary_key().into_iter().map(name_of).collect()
}

/// Which rows of `batch` are deletes. `action` begins the text of an error.
///
/// # Errors
/// An internal error where the column was not read.
pub fn tombstones<'a>(batch: &'a RecordBatch, action: &str) -> Result<&'a BooleanArray> {
    let column = batch.column_by_name(TOMBSTONE).and_then(AsArray::as_boolean_opt);
    column.ok_or_else(|| Error::internal(format!("{action}: column {TOMBSTONE} was not read")))
}

/// The error of a merge rule, with the table.
pub fn rule_in_table(uri: &str, error: RuleError) -> Error {
    if let RuleError::Undecodable { reason } = &error {
        let what = format!("the merge rule of table {uri}");
        return Error::corrupt(what, "undecodable", reason).with_source(error.clone());
    }
    in_table(uri, error.into_error())
}

/// Adds the table to the text of an input error.
pub fn in_table(uri: &str, error: Error) -> Error {
    error.input_at(format_args!("table {uri}"))
}
