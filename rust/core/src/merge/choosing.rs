//! A rule that chooses, bound to a table: which of the stored rows of a key is shown.
//!
//! Owns: the columns that decide (those of `sequence_by`, `_tombstone`, `_replace`), and the choice
//! among rows of several sources from these columns alone.
//! Does not own: which rows have the same key, or what becomes of the rows that lose.

use std::sync::Arc;

use arrow_array::{ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions};
use arrow_cast::cast;
use arrow_schema::{ArrowError, SchemaRef};

use super::error::RuleError;
use super::fold::Fold;
use super::groups::KeyGroups;
use super::pick::Winners;
use super::rule::{MergeEngine, MergeRule};
use super::user::PairFunctions;
use crate::types::{Error, Result};

/// A rule that chooses, with the columns of a table that decide.
///
/// ```
/// # use std::collections::HashMap;
/// # use std::sync::Arc;
/// # use arrow_array::{ArrayRef, Int64Array, RecordBatch};
/// # use arrow_schema::{DataType, Field, Schema};
/// # use lancemem_core::merge::*;
/// # let field = |id: i32, name: &str| {
/// #     let metadata = HashMap::from([("lance:field_id".to_owned(), id.to_string())]);
/// #     Field::new(name, DataType::Int64, id > 0).with_metadata(metadata)
/// # };
/// let schema = Arc::new(Schema::new(vec![field(0, "sku"), field(1, "ts")]));
/// let key = ["sku".to_owned()];
/// let options = RuleOptions { sequence_by: vec!["ts".to_owned()], ..RuleOptions::default() };
/// let choosing = Choosing::new(&MergeRule::new(&options, &schema, &key)?, &schema, &key)?;
/// assert_eq!(choosing.sequence(), ["ts"]);
///
/// let rows = |ts: &[i64]| {
///     let ts = Arc::new(Int64Array::from(ts.to_vec())) as ArrayRef;
///     choosing.base_events(&RecordBatch::try_from_iter([("ts", ts)]).unwrap())
/// };
/// // The older source has the greater sequence, so its row is shown.
/// let groups = KeyGroups::from_ordinals(1, &[&[0], &[0]])?;
/// let winners = choosing.winners(&[rows(&[20])?, rows(&[10])?], &groups)?;
/// assert_eq!(winners.rows(), [(0, 0)]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Choosing {
    fold: Fold,
    sequence: Vec<String>,
}

impl Choosing {
    /// The choice of `rule` in a table with the columns `schema` and the primary key `key`.
    ///
    /// # Errors
    /// A [`RuleError`] for a rule that does not fit the table.
    pub fn new(rule: &MergeRule, schema: &SchemaRef, key: &[String]) -> Result<Self, RuleError> {
        let fold = Fold::projected(rule, schema, key, &PairFunctions::new(), &[])?;
        let sequence = fold.rows.fields().iter().map(|field| field.name().clone()).collect();
        Ok(Self { fold, sequence })
    }

    /// The rule.
    #[must_use]
    pub const fn rule(&self) -> &MergeRule {
        &self.fold.rule
    }

    /// Names of the columns of `sequence_by`, in the order of the table.
    #[must_use]
    pub fn sequence(&self) -> &[String] {
        &self.sequence
    }

    /// The columns that decide: those of `sequence_by`, `_tombstone` and `_replace`.
    #[must_use]
    pub const fn event_schema(&self) -> &SchemaRef {
        self.fold.event_schema()
    }

    /// Whether a row of the base table loses only against a delete or a replace: the first row is
    /// shown, and the base table has the first one.
    #[must_use]
    pub fn keeps_oldest(&self) -> bool {
        self.fold.rule.engine() == MergeEngine::FirstRow && self.sequence.is_empty()
    }

    /// The columns that decide, of rows in storage form.
    ///
    /// # Errors
    /// An internal error for rows without one of them.
    pub fn events(&self, rows: &RecordBatch) -> Result<RecordBatch> {
        let events = &self.fold.events;
        let column = |field: &Arc<arrow_schema::Field>| {
            let missing = || format!("rows without the column '{}'", field.name());
            let column =
                rows.column_by_name(field.name()).ok_or_else(|| Error::internal(missing()))?;
            in_type(column, field.data_type()).map_err(|error| failed(&error))
        };
        let columns: Vec<ArrayRef> = events.fields().iter().map(column).collect::<Result<_>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
        RecordBatch::try_new_with_options(events.clone(), columns, &options)
            .map_err(|error| failed(&error))
    }

    /// The columns that decide, of rows of the base table, which have those of `sequence_by`.
    ///
    /// # Errors
    /// An internal error for rows without one of them.
    pub fn base_events(&self, rows: &RecordBatch) -> Result<RecordBatch> {
        let mut columns = Vec::with_capacity(self.sequence.len());
        for field in self.fold.rows.fields() {
            let column = rows.column_by_name(field.name()).ok_or_else(|| {
                Error::internal(format!("base rows without the column '{}'", field.name()))
            })?;
            columns.push(in_type(column, field.data_type()).map_err(|error| failed(&error))?);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
        let rows = RecordBatch::try_new_with_options(self.fold.rows.clone(), columns, &options)
            .map_err(|error| failed(&error))?;
        self.fold.base_events(&rows)
    }

    /// The columns that decide, of deletes with the sequences `rows`, which has the columns of
    /// `sequence_by`.
    ///
    /// # Errors
    /// An internal error for rows without one of them.
    pub fn delete_events(&self, rows: &RecordBatch) -> Result<RecordBatch> {
        let events = self.base_events(rows)?;
        let deletes: ArrayRef = Arc::new(BooleanArray::from(vec![true; events.num_rows()]));
        let mut columns = events.columns().to_vec();
        // `_tombstone` stands behind the columns of the table.
        if let Some(tombstones) = columns.get_mut(self.sequence.len()) {
            *tombstones = deletes;
        }
        RecordBatch::try_new(events.schema(), columns).map_err(|error| failed(&error))
    }

    /// The row that wins in each group; a delete that wins hides the key.
    ///
    /// # Errors
    /// As [`Fold::winners`].
    pub fn winners(&self, sources: &[RecordBatch], groups: &KeyGroups) -> Result<Winners> {
        self.fold.winners(sources, groups)
    }

    /// The sequence columns that a delete stores: all or none of them.
    ///
    /// # Errors
    /// An input error for a part of them, for rows without a value in any, and where the rule has no
    /// deletes with a sequence.
    pub(crate) fn delete_sequence(&self, batch: &RecordBatch) -> Result<Vec<&String>> {
        self.fold.delete_sequence(batch)
    }
}

fn in_type(column: &ArrayRef, to: &arrow_schema::DataType) -> Result<ArrayRef, ArrowError> {
    if column.data_type() == to { Ok(column.clone()) } else { cast(column, to) }
}

fn failed(error: &ArrowError) -> Error {
    Error::internal(format!("rows cannot be compared by the merge rule: {error}"))
}
