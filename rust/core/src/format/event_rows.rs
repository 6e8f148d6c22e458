//! Rows of calls as events, in tables whose rule makes a row of several.
//!
//! Owns: the rule of a table bound to its columns, the mode of a put, and which columns of a call
//! become events: those that a put gives, the keys of a delete, and puts and deletes in one batch,
//! in their order.
//! Does not own: what the rule makes of them (`merge`), or casts and checks of columns (`rows`).

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, BooleanArray, FixedSizeBinaryArray, RecordBatch, RecordBatchOptions};
use arrow_schema::{ArrowError, Schema, SchemaRef};
use arrow_select::filter::filter_record_batch;
use arrow_select::interleave::interleave_record_batch;
use arrow_select::nullif::nullif;

use super::rows::{AcceptedRows, RowSchema};
use crate::merge::{
    Choosing, DeletePolicy, Fold, MergeRule, NullPolicy, PairFunctions, REPLACE, RuleError, Verb,
};
use crate::types::{Error, Result};

/// What a write does with its rows, beside deletes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PutMode {
    /// Whether the rows are whole, and older events of their keys count no more.
    pub replace: bool,
    /// What a null does in a table with `partial_update`; `None` for the default of the table.
    pub nulls: Option<NullPolicy>,
}

impl RowSchema {
    /// As [`Self::new`], for a table with the merge rule `rule`. `functions` has the functions of
    /// users that this process has loaded.
    ///
    /// # Errors
    /// As [`Self::new`], and for a rule that does not fit the columns or names a function that is
    /// not loaded.
    pub fn with_rule(
        logical: SchemaRef,
        key: &[String],
        rule: Option<&MergeRule>,
        functions: &PairFunctions,
    ) -> Result<Self> {
        let (mut choosing, mut fold) = (None, None);
        match rule.filter(|rule| !rule.is_plain()) {
            Some(rule) if rule.engine().is_choosing() => {
                let made = Choosing::new(rule, &logical, key).map_err(RuleError::into_error)?;
                choosing = Some(Arc::new(made));
            }
            Some(rule) => {
                let made = Fold::new(rule, &logical, key, functions);
                fold = Some(Arc::new(made.map_err(RuleError::into_error)?));
            }
            None => {}
        }
        Self::with_bound_rule(logical, key, choosing, fold)
    }

    /// As [`Self::accept`], with a mode. In a table with `partial_update` or `aggregation` a put gives
    /// some of the columns.
    ///
    /// # Errors
    /// As [`Self::accept`]; an input error for a mode that the table's rule does not have.
    pub fn accept_put(&self, batch: &RecordBatch, mode: PutMode) -> Result<AcceptedRows> {
        if let Some(fold) = self.fold() {
            let verb = if mode.replace { Verb::Replace } else { Verb::Put };
            return self.accept_events(fold, &self.given_columns(batch)?, verb, mode.nulls);
        }
        if mode.nulls == Some(NullPolicy::Keep) {
            return Err(Error::input(
                "nulls='keep' is of tables with merge_engine='partial_update'; here a null is the \
                 new value: leave nulls out",
            ));
        }
        let accepted = self.accept_whole(batch)?;
        if mode.replace && self.rule().is_some() { self.replacing(&accepted) } else { Ok(accepted) }
    }

    /// The columns that a put gives, in the types of the table.
    pub(super) fn given_columns(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        self.refuse_unknown_columns(batch)?;
        self.columns_of(batch, |_| true)
    }

    /// The columns that a delete needs: the key, the sequences of groups, so that the rule refuses
    /// them, and all of them where a delete takes its values back.
    pub(super) fn deleted_columns(&self, fold: &Fold, batch: &RecordBatch) -> Result<RecordBatch> {
        let takes_back = fold.rule().deletes() == DeletePolicy::Retract;
        if takes_back {
            self.refuse_unknown_columns(batch)?;
        }
        let sequences = fold.group_sequences();
        let keys = self.key().names();
        let is_needed =
            |name: &String| takes_back || keys.contains(name) || sequences.contains(&name.as_str());
        self.columns_of(batch, is_needed)
    }

    /// Columns of `batch` in the order and the types of the table.
    fn columns_of(
        &self,
        batch: &RecordBatch,
        is_wanted: impl Fn(&String) -> bool,
    ) -> Result<RecordBatch> {
        let (mut fields, mut columns) = (Vec::new(), Vec::new());
        for place in 0..self.logical().fields().len() {
            let field = &self.storage().fields()[place];
            if !is_wanted(field.name()) {
                continue;
            }
            let Some(array) = batch.column_by_name(field.name()) else { continue };
            columns.push(self.accept_column(field, array)?);
            fields.push(field.clone());
        }
        made(fields.into_iter().collect::<Vec<_>>(), columns, batch.num_rows())
    }

    /// The events of a call, whose columns have the types of the table.
    pub(super) fn accept_events(
        &self,
        fold: &Fold,
        rows: &RecordBatch,
        verb: Verb,
        nulls: Option<NullPolicy>,
    ) -> Result<AcceptedRows> {
        let events = fold.events(rows, verb, nulls)?;
        self.accepted(events.columns().to_vec(), events.num_rows())
    }

    /// Puts and deletes in one batch, in their order.
    pub(super) fn accept_mixed(
        &self,
        batch: &RecordBatch,
        deletes: &BooleanArray,
    ) -> Result<AcceptedRows> {
        let Some(fold) = self.fold() else {
            return Err(Error::internal("a table without a fold takes no events"));
        };
        let rows = self.given_columns(&self.without_values_of(fold, batch, deletes)?)?;
        let is_put: BooleanArray = deletes.values().iter().map(|delete| Some(!delete)).collect();
        let puts = filter_record_batch(&rows, &is_put).map_err(|error| internal(&error))?;
        let puts = fold.events(&puts, Verb::Put, None)?;
        let deleted = filter_record_batch(&rows, deletes).map_err(|error| internal(&error))?;
        let deleted = match fold.rule().deletes() {
            DeletePolicy::Retract => deleted,
            _ => self.columns_of(&deleted, |name| self.key().names().contains(name))?,
        };
        let deleted = fold.events(&deleted, Verb::Delete, None)?;
        if deleted.num_rows() == 0 {
            return self.accepted(puts.columns().to_vec(), puts.num_rows());
        }
        let mut next = [0_usize; 2];
        let places = deletes.values().iter().map(|delete| {
            let source = usize::from(delete);
            next[source] += 1;
            (source, next[source] - 1)
        });
        let places: Vec<(usize, usize)> = places.collect();
        let events = interleave_record_batch(&[&puts, &deleted], &places);
        let events = events.map_err(|error| internal(&error))?;
        self.accepted(events.columns().to_vec(), events.num_rows())
    }

    /// `batch` without the values of deletes that only name a key: they are ignored, whatever they
    /// are.
    fn without_values_of(
        &self,
        fold: &Fold,
        batch: &RecordBatch,
        deletes: &BooleanArray,
    ) -> Result<RecordBatch> {
        if fold.rule().deletes() == DeletePolicy::Retract {
            return Ok(batch.clone());
        }
        let (mut fields, mut columns) = (Vec::new(), Vec::new());
        for (field, array) in batch.schema_ref().fields().iter().zip(batch.columns()) {
            if self.key().names().contains(field.name()) {
                columns.push(array.clone());
                fields.push(field.clone());
                continue;
            }
            let array = nullif(array, deletes)
                .map_err(|error| Error::input(error.to_string()).with_source(error))?;
            columns.push(array);
            fields.push(Arc::new(field.as_ref().clone().with_nullable(true)));
        }
        made(fields, columns, batch.num_rows())
    }

    /// Accepted rows of a rule that chooses, behind which older events count no more.
    pub(super) fn replacing(&self, rows: &AcceptedRows) -> Result<AcceptedRows> {
        let place = self.storage().index_of(REPLACE).map_err(|error| internal(&error))?;
        let mut columns = rows.batch.columns().to_vec();
        let all = vec![true; columns[place].as_boolean().len()];
        columns[place] = Arc::new(BooleanArray::from(all));
        self.accepted(columns, rows.batch.num_rows())
    }
}

/// A column `_given` in which no column was given.
pub(super) fn no_bits(bytes: i32, rows: usize) -> Result<ArrayRef> {
    let width = usize::try_from(bytes).unwrap_or_default();
    let array = FixedSizeBinaryArray::try_new(bytes, vec![0_u8; width * rows].into(), None);
    let array = array.map_err(|error| Error::internal(error.to_string()).with_source(error))?;
    Ok(Arc::new(array))
}

fn made(
    fields: Vec<arrow_schema::FieldRef>,
    columns: Vec<ArrayRef>,
    rows: usize,
) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    let schema = Arc::new(Schema::new(fields));
    RecordBatch::try_new_with_options(schema, columns, &options)
        .map_err(|error| Error::input(error.to_string()).with_source(error))
}

fn internal(error: &ArrowError) -> Error {
    Error::internal(format!("events of a call: {error}"))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use arrow_array::Int64Array;
    use arrow_schema::{DataType, Field};
    use bytes::Bytes;

    use super::*;
    use crate::format::{LogAddress, WalEntry, wal_entry};
    use crate::merge::{MergeEngine, MergeRule, RuleOptions};
    use crate::types::{Generation, ShardId, WalPosition, WriterEpoch};

    #[test]
    fn an_entry_of_a_partial_put_has_the_bytes_of_the_golden_file() {
        let field = |id: i32, name: &str| {
            let metadata = HashMap::from([("lance:field_id".to_owned(), id.to_string())]);
            Field::new(name, DataType::Int64, id > 0).with_metadata(metadata)
        };
        let schema = Arc::new(Schema::new(vec![field(0, "k"), field(1, "v"), field(2, "w")]));
        let key = ["k".to_owned()];
        let options =
            RuleOptions { merge_engine: MergeEngine::PartialUpdate, ..RuleOptions::default() };
        let rule = MergeRule::new(&options, &schema, &key).unwrap();
        let none = PairFunctions::new();
        let table = RowSchema::with_rule(schema, &key, Some(&rule), &none).unwrap();
        let numbers = |values: [i64; 2]| Arc::new(Int64Array::from(values.to_vec())) as ArrayRef;
        let put = RecordBatch::try_from_iter([("k", numbers([1, 2])), ("w", numbers([7, 8]))]);
        let stored = table.accept(&put.unwrap()).unwrap().batch;
        let place = LogAddress { shard_id: ShardId::from_u128(11), position: WalPosition(5) };
        let rows = std::slice::from_ref(&stored);
        let bytes = wal_entry::encode(rows, place, WriterEpoch(7), Generation(3)).unwrap();
        let golden: &[u8] = include_bytes!("golden/merged_event.arrow");
        assert_eq!(bytes, golden);
        let read: WalEntry = wal_entry::decode(&Bytes::from_static(golden), "e").unwrap();
        assert_eq!(table.conform(&read.batches[0]).unwrap().batch, stored);
    }
}
