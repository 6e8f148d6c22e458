//! The columns and the condition of a feed of events.
//!
//! Owns: the checks of a caller's options against the columns of the table, the columns of the
//! feed, and which events meet the condition.
//! Does not own: which events are read.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{
    ArrayRef, BooleanArray, Int64Array, RecordBatch, RecordBatchOptions, StringArray,
};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use arrow_select::filter::filter_record_batch;
use lancemem_core::format::TOMBSTONE;
use lancemem_core::types::{Error, Result};

use super::feed::Piece;
use crate::changes::types::CHANGE_TYPE;
use crate::errors::Context;
use crate::plan::{Condition, Filter, invalid, session};
use crate::schema::{BaseVersion, StoredColumns, TableSchema, key_of};

/// The column with the id of the shard.
const SHARD: &str = "_shard";
/// The column with the generation of the event.
const GENERATION: &str = "_generation";
/// The column with the row of the event within its generation.
const ROW: &str = "_row";
/// The names that a table whose events are read must not give to its own columns.
const RESERVED: [&str; 4] = [CHANGE_TYPE, SHARD, GENERATION, ROW];
const ACTION: &str = "adding the columns of a change feed";

/// What to read of the events: by default all columns of all events.
///
/// ```
/// # use lancemem::{Condition, InputOptions};
/// let options = InputOptions::default().with_filter(Condition::from("price > 3"));
/// assert!(options.columns.is_none());
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct InputOptions {
    /// Columns of the table in the result, in order; `None` for all.
    pub columns: Option<Vec<String>>,
    /// A condition on the table's columns. A delete has its key alone: it is left out only where
    /// the condition is false with null in the other columns.
    pub filter: Option<Condition>,
}

impl InputOptions {
    /// Sets [`Self::columns`].
    #[must_use]
    pub fn with_columns(self, columns: impl Into<Option<Vec<String>>>) -> Self {
        Self { columns: columns.into(), ..self }
    }

    /// Sets [`Self::filter`].
    #[must_use]
    pub fn with_filter(self, filter: impl Into<Option<Condition>>) -> Self {
        Self { filter: filter.into(), ..self }
    }
}

/// What all events of a feed have in common.
#[derive(Debug)]
pub struct InputShape {
    table: Arc<TableSchema>,
    /// The columns of the table that are read: those of the feed first, then those that the
    /// condition needs, then `_tombstone`.
    read: Vec<String>,
    /// How many of them are columns of the feed.
    shown: usize,
    pub schema: SchemaRef,
    filter: Option<Filter>,
}

impl InputShape {
    /// The shape of a feed with the columns of `base`.
    ///
    /// # Errors
    /// An input error where the table has a column with a reserved name, or where columns or
    /// condition do not fit the table.
    pub async fn new(uri: &str, base: &BaseVersion, options: &InputOptions) -> Result<Self> {
        let table = base.schema.clone();
        if let Some(fold) = table.rows.fold() {
            return Err(Error::input(format!(
                "table {uri} has merge_engine '{}', whose flushes store one event for all events of a \
                 key, so there is no feed of level \"input\"; read the changes of versions",
                fold.rule().engine().name()
            )));
        }
        let all: Vec<String> =
            table.columns.fields().iter().map(|field| field.name().clone()).collect();
        if let Some(name) = all.iter().find(|name| RESERVED.contains(&name.as_str())) {
            return Err(Error::input(format!(
                "table {uri} has a column '{name}', a name that a change feed of level \"input\" \
                 adds; rename the column to read its events"
            )));
        }
        let mut read = options.columns.clone().unwrap_or_else(|| all.clone());
        refuse_unknown(uri, &read, &all)?;
        let shown = read.len();
        let filter = match &options.filter {
            Some(condition) => Some(condition.resolve(&session(), &table.columns).await?),
            None => None,
        };
        let schema = schema_of(&table.columns, &read, &key_of(&base.dataset)?)?;
        let needed = filter.iter().flat_map(Filter::columns);
        let needed: Vec<String> = needed.filter(|name| !read.contains(name)).collect();
        read.extend(needed);
        read.push(TOMBSTONE.to_owned());
        Ok(Self { table, read, shown, schema, filter })
    }

    /// The columns that are read of a source with the columns `stored`.
    ///
    /// # Errors
    /// An input error where its rows do not fit the columns of the table.
    pub fn stored(&self, stored: &Schema) -> Result<StoredColumns> {
        StoredColumns::of(stored, &self.table, &self.read)
    }

    /// The events `rows`, brought to the columns that are read, of which the first is row `first`
    /// of the piece's generation. Those that do not meet the condition are left out.
    ///
    /// # Errors
    /// An input error where the condition fails for a row.
    pub fn events(&self, rows: &RecordBatch, piece: &Piece, first: u64) -> Result<RecordBatch> {
        let count = rows.num_rows();
        let deletes = tombstones(rows, "reading events")?;
        let kind = |delete: Option<bool>| {
            if delete == Some(true) { "delete" } else { "upsert" }
        };
        let start = i64::try_from(first).unwrap_or(i64::MAX);
        let generation = i64::try_from(piece.generation.get()).unwrap_or(i64::MAX);
        let shard = piece.shard_id.to_string();
        let added: [ArrayRef; 4] = [
            Arc::new(StringArray::from_iter_values(deletes.iter().map(kind))),
            Arc::new(StringArray::from_iter_values(std::iter::repeat_n(&shard, count))),
            Arc::new(Int64Array::from_value(generation, count)),
            Arc::new(Int64Array::from_iter_values((start..).take(count))),
        ];
        let shown = rows.columns().iter().take(self.shown).cloned();
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        let columns = shown.chain(added).collect();
        let events = RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)
            .context(ACTION)?;
        match &self.filter {
            Some(filter) => {
                filter_record_batch(&events, &met(filter, rows, deletes)?).context(ACTION)
            }
            None => Ok(events),
        }
    }
}

/// Which rows meet the condition. A null meets it for a delete alone: the columns that the delete
/// lacks may have any value.
fn met(filter: &Filter, rows: &RecordBatch, deletes: &BooleanArray) -> Result<BooleanArray> {
    let check = filter.physical(&session(), &rows.schema())?;
    let met = check.evaluate(rows).and_then(|met| met.into_array(rows.num_rows()));
    let met = met.map_err(|error| invalid("evaluating the filter of a change feed", error))?;
    let met = met
        .as_boolean_opt()
        .ok_or_else(|| Error::internal("the filter of a change feed is no boolean"))?;
    let of = |(met, delete): (Option<bool>, Option<bool>)| met.unwrap_or(delete == Some(true));
    Ok(met.iter().zip(deletes).map(|row| Some(of(row))).collect())
}

fn refuse_unknown(uri: &str, columns: &[String], all: &[String]) -> Result<()> {
    for (place, name) in columns.iter().enumerate() {
        if RESERVED.contains(&name.as_str()) {
            return Err(Error::input(format!(
                "columns: every change feed of level \"input\" has the column '{name}'; leave it \
                 out"
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

/// The columns of a feed. A delete has its key alone, so all but key columns are nullable.
fn schema_of(table: &Schema, columns: &[String], key: &[String]) -> Result<SchemaRef> {
    let mut fields = Vec::with_capacity(columns.len() + RESERVED.len());
    for name in columns {
        let missing = || Error::internal(format!("column '{name}' is not in the table"));
        let field = table.field_with_name(name).map_err(|_| missing())?.clone();
        let is_nullable = field.is_nullable() || !key.contains(name);
        fields.push(field.with_nullable(is_nullable));
    }
    fields.push(Field::new(CHANGE_TYPE, DataType::Utf8, false));
    fields.push(Field::new(SHARD, DataType::Utf8, false));
    fields.push(Field::new(GENERATION, DataType::Int64, false));
    fields.push(Field::new(ROW, DataType::Int64, false));
    Ok(Arc::new(Schema::new(fields)))
}
