//! From rows of a call to events, and from events to rows of the table.
//!
//! Owns: what each verb stores: a partial put its given columns, a count 1, a retract the inverse,
//! and which verbs a rule refuses before anything is written.
//! Does not own: casts, keys without nulls and sizes (`format::rows`), or the fold of events.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{
    Array, ArrayRef, BooleanArray, Int64Array, RecordBatch, RecordBatchOptions, new_null_array,
};
use arrow_buffer::{BooleanBuffer, NullBuffer};
use arrow_schema::Field;
use arrow_select::filter::filter_record_batch;
use arrow_select::nullif::nullif;

use super::binding::{Column, GivenColumn, Group, How, Kind};
use super::bitmap;
use super::error::RuleError;
use super::fold::{Fold, given_array};
use super::function::MergeFunction;
use super::groups::KeyGroups;
use super::reduce;
use super::rule::{DeletePolicy, MergeEngine, NullPolicy, place_of};
use crate::types::{Error, Result, TypeName};

/// What a call does with its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Adds the rows to what their keys have.
    Put,
    /// Puts whole rows; older events of their keys count no more.
    Replace,
    /// Removes the keys. With the columns of `sequence_by` a delete is an event like another one;
    /// without them it is a barrier: all that arrived before is gone.
    Delete,
    /// Takes the values of rows back.
    Retract,
}

impl Verb {
    const fn name(self) -> &'static str {
        match self {
            Self::Put => "put",
            Self::Replace => "replace",
            Self::Delete => "delete",
            Self::Retract => "retract",
        }
    }
}

/// Columns of one call, on their way to events.
struct Call<'a> {
    batch: &'a RecordBatch,
    verb: Verb,
    nulls: NullPolicy,
}

impl Fold {
    /// The events of one call, row by row. Each equals its own fold.
    ///
    /// `rows` has the columns that the call gives, in any order and in the types of the table. `nulls`
    /// overrides the table's default in a `partial_update`. A delete of a table whose deletes are
    /// ignored has no event.
    ///
    /// # Errors
    /// An input error that names the column, and the row where a single value is at fault, for all
    /// that the rule cannot do; a [`RuleError`] is its source where the rule refuses the verb.
    pub fn events(
        &self,
        rows: &RecordBatch,
        verb: Verb,
        nulls: Option<NullPolicy>,
    ) -> Result<RecordBatch> {
        if !self.is_whole {
            return Err(Error::internal("events are made by a fold of all columns"));
        }
        self.refuse_misfits(rows)?;
        if nulls == Some(NullPolicy::Keep) && self.rule.engine() != MergeEngine::PartialUpdate {
            return Err(self.refused("nulls='keep'", "only partial_update has columns not given"));
        }
        let verb = match (verb, self.rule.deletes()) {
            (Verb::Delete, DeletePolicy::Ignore) => {
                return Ok(RecordBatch::new_empty(self.events.clone()));
            }
            (Verb::Delete, DeletePolicy::Refuse) => {
                let reason = "the table has deletes='refuse'";
                return Err(self.refused("delete", reason));
            }
            (Verb::Delete, DeletePolicy::Retract) => Verb::Retract,
            (verb, _) => verb,
        };
        let call = Call { batch: rows, verb, nulls: nulls.unwrap_or(self.rule.nulls()) };
        match (&self.kind, verb) {
            (_, Verb::Delete) => self.delete_events(&call),
            (Kind::Choosing { .. }, Verb::Retract) => {
                Err(self.refused("retract", "its rows are whole; delete the keys, or put rows"))
            }
            (Kind::Choosing { .. }, _) => self.whole_events(&call),
            (Kind::Combining { given: Some(_), .. }, Verb::Retract) => {
                Err(self.refused("retract", "a column that was given cannot be taken back"))
            }
            (Kind::Combining { columns, groups, given }, _) => {
                self.combining_events(&call, columns, groups, *given)
            }
        }
    }

    /// Rows of the base table, with the columns of [`Self::row_schema`] in their order, as the oldest
    /// events of their keys.
    ///
    /// # Errors
    /// An internal error for other columns.
    pub fn base_events(&self, rows: &RecordBatch) -> Result<RecordBatch> {
        let count = rows.num_rows();
        let mut columns = rows.columns().to_vec();
        columns.push(constant(false, count));
        self.finish(columns, count, false, |bytes| bytes.fill(u8::MAX))
    }

    /// The rows that readers see of folded events: those that are no deletes, without the columns
    /// behind the table's own.
    ///
    /// # Errors
    /// An internal error for events with other columns.
    pub fn visible_rows(&self, events: &RecordBatch) -> Result<RecordBatch> {
        let internal = |error: arrow_schema::ArrowError| {
            Error::internal(format!("events are no rows: {error}")).with_source(error)
        };
        let places: Vec<usize> = (0..self.rows.fields().len()).collect();
        let is_put = !events.column(places.len()).as_boolean().values();
        let rows = events.project(&places).map_err(internal)?;
        let rows = filter_record_batch(&rows, &BooleanArray::from(is_put)).map_err(internal)?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
        let columns = rows.columns().to_vec();
        RecordBatch::try_new_with_options(self.rows.clone(), columns, &options).map_err(internal)
    }

    /// Deletes: barriers, or with the sequence columns events of the same order as puts.
    fn delete_events(&self, call: &Call<'_>) -> Result<RecordBatch> {
        let batch = call.batch;
        let count = batch.num_rows();
        let sequence = self.delete_sequence(batch)?;
        let mut columns = Vec::with_capacity(self.events.fields().len());
        for field in self.rows.fields() {
            let is_stored = self.key.contains(field.name()) || sequence.contains(&field.name());
            match batch.column_by_name(field.name()) {
                Some(column) if is_stored => columns.push(column.clone()),
                _ => columns.push(new_null_array(field.data_type(), count)),
            }
        }
        columns.push(constant(true, count));
        self.finish(columns, count, sequence.is_empty(), |_| ())
    }

    /// The sequence columns of a delete that has them all; none where it has none.
    pub(super) fn delete_sequence(&self, batch: &RecordBatch) -> Result<Vec<&String>> {
        let groups = self.rule.groups().iter().flat_map(|group| &group.sequence);
        let ids = self.rule.sequence().iter().chain(groups);
        let names =
            ids.filter_map(|id| place_of(*id, &self.rows)).map(|at| self.rows.field(at).name());
        let (given, missing): (Vec<&String>, Vec<&String>) =
            names.partition(|name| batch.column_by_name(name).is_some());
        let Some(first) = given.first() else { return Ok(given) };
        match self.rule.engine() {
            MergeEngine::Deduplicate => {}
            MergeEngine::FirstRow => {
                let reason = "no put can be less than a row that is gone; delete without it";
                return Err(self.refused("delete with a sequence", reason));
            }
            MergeEngine::PartialUpdate | MergeEngine::Aggregation => {
                let reason = "a group has no row to remove; put nulls with the sequence of the \
                              group, or delete without it";
                return Err(self.refused("delete with a sequence", reason));
            }
        }
        if let Some(missing) = missing.first() {
            return Err(Error::input(format!(
                "a delete gives all columns of sequence_by or none of them: '{first}' is given, \
                 '{missing}' is missing"
            )));
        }
        let columns = given.iter().filter_map(|name| batch.column_by_name(name));
        let nulls: Vec<_> = columns.map(Array::logical_nulls).collect();
        let is_barrier = |row: &usize| {
            nulls.iter().all(|nulls| nulls.as_ref().is_some_and(|nulls| nulls.is_null(*row)))
        };
        match (0..batch.num_rows()).find(is_barrier) {
            None => Ok(given),
            Some(row) => Err(Error::input(format!(
                "column '{first}' is null in row {row} of a delete; delete without the columns of \
                 sequence_by to remove all that arrived before"
            ))),
        }
    }

    /// Puts and replaces of a rule that chooses: whole rows.
    fn whole_events(&self, call: &Call<'_>) -> Result<RecordBatch> {
        let count = call.batch.num_rows();
        let mut columns = Vec::with_capacity(self.events.fields().len());
        for field in self.rows.fields() {
            columns.push(self.required(call, field, "rows are put whole")?.clone());
        }
        columns.push(constant(false, count));
        self.finish(columns, count, call.verb == Verb::Replace, |_| ())
    }

    /// Puts, replaces and retracts of a rule that combines.
    fn combining_events(
        &self,
        call: &Call<'_>,
        columns: &[Column],
        groups: &[Group],
        given: Option<GivenColumn>,
    ) -> Result<RecordBatch> {
        let count = call.batch.num_rows();
        let mut made: Vec<Option<ArrayRef>> = vec![None; self.rows.fields().len()];
        for place in &self.key_places {
            let field = self.rows.field(*place);
            made[*place] = Some(self.required(call, field, "events have a key")?.clone());
        }
        let touched = self.touched_groups(call, columns, groups)?;
        let mut bits = Vec::with_capacity(columns.len());
        for column in columns {
            let (array, is_given) = self.lifted(call, column, &touched)?;
            made[column.place] = Some(array);
            bits.push((column.bit, is_given));
        }
        let mut made: Vec<ArrayRef> = made.into_iter().flatten().collect();
        made.push(constant(false, count));
        let is_replace = call.verb == Verb::Replace;
        made.push(constant(is_replace, count));
        if let Some(given) = given {
            let width = usize::try_from(given.bytes).unwrap_or_default();
            let mut bytes = vec![0_u8; width * count];
            for (row, bytes) in bytes.chunks_mut(width).enumerate() {
                for (bit, _) in bits.iter().filter(|(_, is_given)| is_given.value(row)) {
                    bytes[bit / 8] |= 1 << (bit % 8);
                }
            }
            made.push(given_array(given, bytes)?);
        }
        self.batch(made, count)
    }

    /// The rows that touch each group: those with a sequence. A replace has whole rows.
    fn touched_groups(
        &self,
        call: &Call<'_>,
        columns: &[Column],
        groups: &[Group],
    ) -> Result<Vec<BooleanBuffer>> {
        let count = call.batch.num_rows();
        let mut touched = Vec::with_capacity(groups.len());
        for (number, group) in groups.iter().enumerate() {
            let of_group =
                columns.iter().filter(|it| matches!(it.how, How::Group(of) if of == number));
            let names = of_group.map(|column| self.rows.field(column.place).name());
            let (given, missing): (Vec<&String>, Vec<&String>) =
                names.partition(|name| call.batch.column_by_name(name).is_some());
            if let (Some(given), Some(missing)) = (given.first(), missing.first()) {
                return Err(Error::input(format!(
                    "a put gives all columns of a sequence group or none of them: '{given}' is \
                     given, '{missing}' is missing"
                )));
            }
            if call.verb == Verb::Replace {
                touched.push(BooleanBuffer::new_set(count));
                continue;
            }
            let mut rows = BooleanBuffer::new_unset(count);
            for place in &group.sequence {
                if let Some(column) = call.batch.column_by_name(self.rows.field(*place).name()) {
                    rows = &rows | &valid(column);
                }
            }
            touched.push(rows);
        }
        Ok(touched)
    }

    /// A column as its events store it, and the rows that give it.
    fn lifted(
        &self,
        call: &Call<'_>,
        column: &Column,
        touched: &[BooleanBuffer],
    ) -> Result<(ArrayRef, BooleanBuffer)> {
        let field = self.rows.field(column.place);
        let count = call.batch.num_rows();
        let all = BooleanBuffer::new_set(count);
        if let How::Function { function: MergeFunction::Count, ignore_retract } = column.how {
            if call.batch.column_by_name(field.name()).is_some() {
                return Err(Error::input(format!(
                    "column '{}' counts rows and takes no values; leave it out",
                    field.name()
                )));
            }
            return Ok((counted(call.verb, ignore_retract, count), all));
        }
        if call.verb == Verb::Replace {
            let array = self.required(call, field, "a replace puts whole rows")?;
            return Ok((self.normalized(array.clone(), column)?, all));
        }
        if let How::Function { function, .. } = &column.how
            && function.counts_nulls()
            && self.rule.engine() == MergeEngine::Aggregation
        {
            self.required(call, field, "its function takes a missing value as a null")?;
        }
        let Some(array) = call.batch.column_by_name(field.name()) else {
            let missing = new_null_array(field.data_type(), count);
            if call.verb == Verb::Retract {
                self.retracted(&missing, column)?;
            }
            return Ok((missing, BooleanBuffer::new_unset(count)));
        };
        if call.verb == Verb::Retract {
            return Ok((self.retracted(array, column)?, all));
        }
        if let How::Group(group) = column.how {
            let untouched = BooleanArray::from(!&touched[group]);
            let array =
                nullif(array, &untouched).map_err(|error| self.broken(column.place, error))?;
            return Ok((array, touched[group].clone()));
        }
        let is_given = if call.nulls == NullPolicy::Keep { valid(array) } else { all };
        Ok((self.normalized(array.clone(), column)?, is_given))
    }

    /// Values as a fold leaves them.
    fn normalized(&self, array: ArrayRef, column: &Column) -> Result<ArrayRef> {
        let How::Function { function, .. } = &column.how else { return Ok(array) };
        if !function.normalizes() {
            return Ok(array);
        }
        let groups = KeyGroups::singles(array.len());
        let ranges: Vec<_> = groups.offsets().windows(2).map(|pair| pair[0]..pair[1]).collect();
        if let MergeFunction::Rbm32 | MergeFunction::Rbm64 = function {
            let is_wide = *function == MergeFunction::Rbm64;
            return bitmap::union(&array, &ranges, is_wide).map_err(|(row, reason)| {
                let column = self.name(column.place);
                let bits = if is_wide { 64 } else { 32 };
                Error::input(format!(
                    "column '{column}' is no roaring bitmap of {bits}-bit numbers in row {row}: \
                     {reason}"
                ))
            });
        }
        self.reduced(&array, column.place, function, &ranges)
    }

    /// The inverse of values.
    fn retracted(&self, array: &ArrayRef, column: &Column) -> Result<ArrayRef> {
        let name = self.name(column.place);
        match &column.how {
            How::Function { ignore_retract: true, .. } => {
                Ok(new_null_array(array.data_type(), array.len()))
            }
            How::Function { function, .. } => {
                function.check_retract(name, array.data_type()).map_err(RuleError::into_error)?;
                reduce::negated(array).map_err(|error| self.broken(column.place, error))
            }
            How::User { name: function, .. } => {
                MergeFunction::User { name: function.clone() }
                    .check_retract(name, array.data_type())
                    .map_err(RuleError::into_error)?;
                Err(Error::internal("a function of a user has no inverse"))
            }
            How::LastGiven | How::Group(_) => Err(Error::internal("a retract of a given column")),
        }
    }

    /// Events of `columns`, which end with `_tombstone`, with the columns behind it.
    fn finish(
        &self,
        mut columns: Vec<ArrayRef>,
        rows: usize,
        replace: bool,
        fill: impl Fn(&mut [u8]),
    ) -> Result<RecordBatch> {
        if !self.rule.is_plain() {
            columns.push(constant(replace, rows));
        }
        if let Kind::Combining { given: Some(given), .. } = self.kind {
            let width = usize::try_from(given.bytes).unwrap_or_default();
            let mut bytes = vec![0_u8; width * rows];
            fill(&mut bytes);
            columns.push(given_array(given, bytes)?);
        }
        self.batch(columns, rows)
    }

    fn refuse_misfits(&self, batch: &RecordBatch) -> Result<()> {
        for field in batch.schema_ref().fields() {
            let Some((_, ours)) = self.rows.column_with_name(field.name()) else {
                return Err(Error::input(format!("column '{}' is not in the table", field.name())));
            };
            if ours.data_type() != field.data_type() {
                let (found, expected) = (TypeName(field.data_type()), TypeName(ours.data_type()));
                return Err(Error::input(format!(
                    "column '{}' is of type {found}, expected {expected}",
                    field.name()
                )));
            }
        }
        match self.key.iter().find(|name| batch.column_by_name(name).is_none()) {
            Some(name) => Err(Error::input(format!("primary key column '{name}' is missing"))),
            None => Ok(()),
        }
    }

    fn required<'a>(&self, call: &Call<'a>, field: &Field, why: &str) -> Result<&'a ArrayRef> {
        call.batch.column_by_name(field.name()).ok_or_else(|| {
            let (name, verb) = (field.name(), call.verb.name());
            let engine = self.rule.engine().name();
            Error::input(format!(
                "column '{name}' is missing in a {verb} with merge_engine '{engine}': {why}"
            ))
        })
    }

    fn refused(&self, option: &'static str, reason: &'static str) -> Error {
        let engine = self.rule.engine().name();
        RuleError::OptionRefused { option, engine, reason }.into_error()
    }
}

/// The values that `count` stores.
fn counted(verb: Verb, ignore_retract: bool, rows: usize) -> ArrayRef {
    let one = match verb {
        Verb::Retract if ignore_retract => None,
        Verb::Retract => Some(-1),
        Verb::Put | Verb::Replace | Verb::Delete => Some(1),
    };
    Arc::new(std::iter::repeat_n(one, rows).collect::<Int64Array>())
}

fn valid(array: &ArrayRef) -> BooleanBuffer {
    let nulls = array.logical_nulls();
    nulls.map_or_else(|| BooleanBuffer::new_set(array.len()), NullBuffer::into_inner)
}

fn constant(value: bool, rows: usize) -> ArrayRef {
    let bits = if value { BooleanBuffer::new_set(rows) } else { BooleanBuffer::new_unset(rows) };
    Arc::new(BooleanArray::new(bits, None))
}
