//! The columns and the condition of a feed of flushed changes.
//!
//! Owns: the checks of a caller's options against the columns of the table, and the columns of the
//! feed.
//! Does not own: which rows are read.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef};
use lance::Dataset;
use lancemem_core::types::{Error, Result};

use super::ROW;
use crate::changes::shape::{fields_of, refuse_unknown};
use crate::changes::types::{CHANGE_TYPE, ChangeOptions, RowKinds};
use crate::plan::{Filter, session};
use crate::schema::{BaseVersion, StoredColumns, TableSchema, key_of, with_ids};

/// The column with the id of the shard.
const SHARD: &str = "_shard";
/// The column with the generation of the change.
const GENERATION: &str = "_generation";
/// The names that a table with changes of flushes must not give to its own columns.
const RESERVED: [&str; 4] = [CHANGE_TYPE, SHARD, GENERATION, ROW];
/// How many of them a feed adds.
const ADDED: usize = 3;

/// What all changes of a feed have in common.
#[derive(Debug)]
pub struct FlushedShape {
    table: Arc<TableSchema>,
    /// The columns of the table in the feed.
    pub columns: Vec<String>,
    pub schema: SchemaRef,
    pub filter: Option<Filter>,
    pub skip_unchanged: bool,
    pub row_kinds: RowKinds,
}

impl FlushedShape {
    /// The shape of a feed with the columns of `base`.
    ///
    /// # Errors
    /// An input error where the table has a column with a reserved name, or where columns or
    /// condition do not fit the table.
    pub async fn new(uri: &str, base: &BaseVersion, options: &ChangeOptions) -> Result<Self> {
        let table = base.schema.clone();
        refuse_reserved(uri, &table.columns)?;
        let all: Vec<String> =
            table.columns.fields().iter().map(|field| field.name().clone()).collect();
        let columns = options.columns.clone().unwrap_or_else(|| all.clone());
        refuse_unknown(uri, &columns, &all, &RESERVED[..ADDED])?;
        let filter = match &options.filter {
            Some(condition) => Some(condition.resolve(&session(), &table.columns).await?),
            None => None,
        };
        let mut fields = fields_of(&table.columns, &columns, &key_of(&base.dataset)?)?;
        fields.push(Field::new(CHANGE_TYPE, DataType::Utf8, false));
        fields.push(Field::new(SHARD, DataType::Utf8, false));
        fields.push(Field::new(GENERATION, DataType::Int64, false));
        let schema = Arc::new(Schema::new(fields));
        let (skip_unchanged, row_kinds) = (options.skip_unchanged, options.row_kinds);
        Ok(Self { table, columns, schema, filter, skip_unchanged, row_kinds })
    }

    /// The columns `names` of the table in the change rows of `dataset`.
    ///
    /// # Errors
    /// An input error where its rows do not fit the columns of the table.
    pub fn stored(&self, dataset: &Dataset, names: &[String]) -> Result<StoredColumns> {
        let stored = with_ids(dataset.schema());
        // These are no columns of the table, whose next ones may get their ids.
        let is_of_table =
            |field: &&Arc<Field>| ![CHANGE_TYPE, ROW].contains(&field.name().as_str());
        let fields: Vec<Arc<Field>> = stored.fields().iter().filter(is_of_table).cloned().collect();
        let stored = Schema::new_with_metadata(fields, stored.metadata().clone());
        StoredColumns::of(&stored, &self.table, names)
    }
}

/// Refuses a table with a column that a feed of flushed changes adds, or that its rows have.
///
/// # Errors
/// An input error that names the column.
pub fn refuse_reserved(uri: &str, columns: &Schema) -> Result<()> {
    let mut names = columns.fields().iter().map(|field| field.name());
    match names.find(|name| RESERVED.contains(&name.as_str())) {
        None => Ok(()),
        Some(name) => Err(Error::input(format!(
            "table {uri} has a column '{name}', a name that changes of level \"flushed\" add; \
             rename the column, or end the level with alter(changelog=None)"
        ))),
    }
}
