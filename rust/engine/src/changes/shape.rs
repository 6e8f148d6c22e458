//! The columns and the condition of one feed.
//!
//! Owns: the checks of a caller's options against the columns of the table, the columns of the
//! feed, and how the rows of a version are brought to them.
//! Does not own: which rows are read.

use std::collections::HashSet;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, BooleanArray, RecordBatch};
use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};
use arrow_select::filter::prep_null_mask_filter;
use datafusion::physical_expr::PhysicalExpr;
use lance::Dataset;
use lancemem_core::format::reconcile::{FIELD_ID, field_id};
use lancemem_core::types::{Error, Result};

use super::errors::misfit;
use super::types::{
    CHANGE_TYPE, COMMIT_TIMESTAMP, COMMIT_VERSION, ChangeOptions, RESERVED, RowKinds,
};
use crate::plan::{Filter, invalid, session};
use crate::schema::{BaseVersion, StoredColumns, TableSchema, key_of, plain_schema, with_ids};

/// What every step of a feed has in common.
#[derive(Debug)]
pub struct Shape {
    pub uri: String,
    /// The columns of the version that the feed reaches.
    pub table: Arc<TableSchema>,
    /// Names of the key columns in that version; empty for a table without a key.
    pub key: Vec<String>,
    /// Their field ids.
    pub key_ids: Vec<i32>,
    /// Every column of the table.
    pub all: Vec<String>,
    /// The columns of the feed, without those that it adds.
    pub columns: Vec<String>,
    /// The columns of the feed.
    pub schema: SchemaRef,
    pub filter: Option<Filter>,
    pub skip_unchanged: bool,
    pub row_kinds: RowKinds,
}

impl Shape {
    /// The shape of a feed that reaches `until`.
    ///
    /// # Errors
    /// An input error where the table has a column with a reserved name, or where columns or
    /// condition do not fit the table.
    pub async fn new(uri: &str, until: &BaseVersion, options: &ChangeOptions) -> Result<Self> {
        let table = until.schema.clone();
        let all: Vec<String> =
            table.columns.fields().iter().map(|field| field.name().clone()).collect();
        refuse_reserved(uri, &table.columns)?;
        let columns = options.columns.clone().unwrap_or_else(|| all.clone());
        refuse_unknown(uri, &columns, &all, &RESERVED)?;
        let filter = match &options.filter {
            Some(condition) => Some(condition.resolve(&session(), &table.columns).await?),
            None => None,
        };
        let key = key_of(&until.dataset)?;
        let key_ids = key_ids(&until.dataset);
        let schema = schema_of(&table.columns, &columns, &key)?;
        let (skip_unchanged, row_kinds) = (options.skip_unchanged, options.row_kinds);
        let uri = uri.to_owned();
        Ok(Self {
            uri,
            table,
            key,
            key_ids,
            all,
            columns,
            schema,
            filter,
            skip_unchanged,
            row_kinds,
        })
    }

    /// All columns of the version of `dataset`, with field ids. An overwrite gives every column
    /// another id, so where no id is one of the table's, columns have no ids: names count. The kind
    /// of stored changes is no column of the table, whose next one may get its id.
    pub fn columns_of(&self, dataset: &Dataset) -> Schema {
        let stored = with_ids(dataset.schema());
        let columns = stored.fields().iter().filter(|field| field.name() != CHANGE_TYPE);
        let stored = Schema::new_with_metadata(
            columns.cloned().collect::<Vec<_>>(),
            stored.metadata().clone(),
        );
        let known: HashSet<i32> =
            self.table.rows.storage().fields().iter().filter_map(|it| field_id(it)).collect();
        if stored.fields().iter().filter_map(|it| field_id(it)).any(|id| known.contains(&id)) {
            return stored;
        }
        // Parts of columns lose their ids here.
        let plain = plain_schema(&stored);
        let fields = plain.fields().iter().map(|field| {
            let mut metadata = field.metadata().clone();
            metadata.remove(FIELD_ID);
            field.as_ref().clone().with_metadata(metadata)
        });
        Schema::new(fields.collect::<Vec<Field>>())
    }

    /// The columns `names` in the version of `dataset`.
    ///
    /// # Errors
    /// [`Error::ChangesUnavailable`] where the columns changed so that older rows do not fit.
    pub fn stored(&self, dataset: &Dataset, names: &[String]) -> Result<StoredColumns> {
        let stored = StoredColumns::of(&self.columns_of(dataset), &self.table, names);
        stored.map_err(|error| match error {
            Error::InvalidInput { message, .. } => misfit(dataset.version().version, message),
            other => other,
        })
    }
}

/// Refuses a table with a column that a change feed adds.
///
/// # Errors
/// An input error that names the column.
pub fn refuse_reserved(uri: &str, columns: &Schema) -> Result<()> {
    let mut names = columns.fields().iter().map(|field| field.name());
    match names.find(|name| RESERVED.contains(&name.as_str())) {
        None => Ok(()),
        Some(name) => Err(Error::input(format!(
            "table {uri} has a column '{name}', a name that every change feed adds; rename the \
             column to read changes"
        ))),
    }
}

/// The field ids of the key columns of a dataset.
pub fn key_ids(dataset: &Dataset) -> Vec<i32> {
    dataset.schema().unenforced_primary_key().into_iter().map(|field| field.id).collect()
}

/// Refuses columns that `all`, those of the table, do not have, that are named twice, or that a feed
/// adds.
///
/// # Errors
/// An input error that names the column.
pub fn refuse_unknown(
    uri: &str,
    columns: &[String],
    all: &[String],
    reserved: &[&str],
) -> Result<()> {
    for (place, name) in columns.iter().enumerate() {
        if reserved.contains(&name.as_str()) {
            return Err(Error::input(format!(
                "columns: every change feed has the column '{name}'; leave it out"
            )));
        }
        if !all.contains(name) {
            return Err(Error::input(format!(
                "table {uri} has no column '{name}'; its columns are {}",
                all.join(", ")
            )));
        }
        if columns[..place].contains(name) {
            return Err(Error::input(format!("columns: '{name}' is named twice")));
        }
    }
    Ok(())
}

/// The columns of a feed.
fn schema_of(table: &Schema, columns: &[String], key: &[String]) -> Result<SchemaRef> {
    let mut fields = fields_of(table, columns, key)?;
    let instant = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    fields.push(Field::new(CHANGE_TYPE, DataType::Utf8, false));
    fields.push(Field::new(COMMIT_VERSION, DataType::Int64, false));
    fields.push(Field::new(COMMIT_TIMESTAMP, instant, false));
    Ok(Arc::new(Schema::new(fields)))
}

/// The columns `columns` of a table in a feed. An image before may be older than a column, so all
/// but key columns are nullable.
///
/// # Errors
/// An internal error for a column that the table lacks.
pub fn fields_of(table: &Schema, columns: &[String], key: &[String]) -> Result<Vec<Field>> {
    let mut fields = Vec::with_capacity(columns.len());
    for name in columns {
        let missing = || Error::internal(format!("column '{name}' is not in the table"));
        let field = table.field_with_name(name).map_err(|_| missing())?.clone();
        let is_nullable = field.is_nullable() || !key.contains(name);
        fields.push(field.with_nullable(is_nullable));
    }
    Ok(fields)
}

/// A condition for batches of one schema.
#[derive(Clone, Debug)]
pub struct Check(Arc<dyn PhysicalExpr>);

impl Check {
    /// # Errors
    /// An input error where a column of the condition is not in `schema`.
    pub fn new(filter: &Filter, schema: &SchemaRef) -> Result<Self> {
        filter.physical(&session(), schema).map(Self)
    }

    /// Which rows meet the condition; a null is false.
    ///
    /// # Errors
    /// An input error where the condition fails for a row.
    pub fn of(&self, rows: &RecordBatch) -> Result<BooleanArray> {
        let met = self.0.evaluate(rows).and_then(|met| met.into_array(rows.num_rows()));
        let met = met.map_err(|error| invalid("evaluating the filter of a change feed", error))?;
        let met = met
            .as_boolean_opt()
            .ok_or_else(|| Error::internal("the filter of a change feed is no boolean"))?;
        Ok(if met.null_count() == 0 { met.clone() } else { prep_null_mask_filter(met) })
    }
}
