//! The fold: one event of all events of a key.
//!
//! Owns: the order of its steps.
//! Does not own: the functions (`pick`, `reduce`, `list`, `map`, `text`, `bitmap`, `user`), how a rule
//! is bound to columns (`binding`), or how many keys a caller folds at a time.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::{ArrayRef, BooleanArray, FixedSizeBinaryArray, RecordBatch, RecordBatchOptions};
use arrow_schema::{ArrowError, Field, Schema, SchemaRef};

use super::binding::{
    Column, GivenColumn, Group, How, Kind, combining, event_schema, given_bytes, needed_columns,
};
use super::bitmap;
use super::column::{Events, Given, Picks, REPLACE};
use super::error::RuleError;
use super::function::MergeFunction;
use super::groups::KeyGroups;
use super::list::{self, Kept};
use super::live::Live;
use super::map;
use super::order::{Order, Wins};
use super::pick::{self, Ties, Winners};
use super::reduce;
use super::rule::{MergeEngine, MergeRule, place_of};
use super::text::{self, Joined};
use super::user::{self, PairFunctions};
use crate::types::{Error, Result};

/// A merge rule bound to the columns of a table.
///
/// A fold of events is an event. Folding folds, oldest first, equals folding all of their events;
/// an empty source changes nothing. Floats of a `sum` are equal to the last bits.
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
/// let schema = Arc::new(Schema::new(vec![field(0, "page"), field(1, "clicks")]));
/// let key = ["page".to_owned()];
/// let options = RuleOptions {
///     merge_engine: MergeEngine::Aggregation,
///     aggregates: [("clicks".to_owned(), MergeFunction::Sum.into())].into(),
///     ..RuleOptions::default()
/// };
/// let rule = MergeRule::new(&options, &schema, &key)?;
/// let fold = Fold::new(&rule, &schema, &key, &PairFunctions::new())?;
///
/// let int64s = |values: &[i64]| Arc::new(Int64Array::from(values.to_vec())) as ArrayRef;
/// let rows = |page: &[i64], clicks: &[i64]| {
///     RecordBatch::try_new(schema.clone(), vec![int64s(page), int64s(clicks)])
/// };
/// let older = fold.events(&rows(&[1, 2], &[10, 20])?, Verb::Put, None)?;
/// let newer = fold.events(&rows(&[2], &[3])?, Verb::Put, None)?;
/// let groups = KeyGroups::from_ordinals(2, &[&[0, 1], &[1]])?;
/// let merged = fold.fold(&[older, newer], &groups)?;
/// assert_eq!(fold.visible_rows(&merged)?, rows(&[1, 2], &[10, 23])?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Fold {
    pub(super) rule: MergeRule,
    /// Columns of the table that the fold reads and makes.
    pub(super) rows: SchemaRef,
    /// The same columns with those behind them.
    pub(super) events: SchemaRef,
    pub(super) key: Vec<String>,
    /// Places of the key columns.
    pub(super) key_places: Vec<usize>,
    pub(super) kind: Kind,
    /// Whether the fold has all columns of the table.
    pub(super) is_whole: bool,
    replace: Option<usize>,
}

impl Fold {
    /// The fold of a table with the columns `schema` and the primary key `key`. `functions` has the
    /// functions of users that this process has loaded.
    ///
    /// # Errors
    /// A [`RuleError`] for a rule that does not fit the table, or a function that is not loaded.
    pub fn new(
        rule: &MergeRule,
        schema: &SchemaRef,
        key: &[String],
        functions: &PairFunctions,
    ) -> Result<Self, RuleError> {
        let all: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        Self::projected(rule, schema, key, functions, &all)
    }

    /// The fold of the columns `asked` alone, with the sequence columns that they need. Other names
    /// are passed over.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn projected(
        rule: &MergeRule,
        schema: &SchemaRef,
        key: &[String],
        functions: &PairFunctions,
        asked: &[&str],
    ) -> Result<Self, RuleError> {
        rule.check(schema, key)?;
        let needed = needed_columns(rule, schema, asked);
        let kept: Vec<Arc<Field>> =
            needed.iter().map(|place| schema.fields()[*place].clone()).collect();
        let rows = Arc::new(Schema::new_with_metadata(kept, schema.metadata().clone()));
        let given_bytes =
            (rule.engine() == MergeEngine::PartialUpdate).then(|| given_bytes(schema, key));
        let events = Arc::new(event_schema(rule, &rows, key, given_bytes));
        let is_key = |place: &usize| key.contains(rows.field(*place).name());
        let key_places = (0..rows.fields().len()).filter(is_key).collect();
        let kind = if rule.engine().is_choosing() {
            let places = rule.sequence().iter().filter_map(|id| place_of(*id, &rows));
            Kind::Choosing { sequence: places.collect() }
        } else {
            let place = rows.fields().len() + 2;
            let given = given_bytes.map(|bytes| GivenColumn { place, bytes });
            combining(rule, schema, &rows, key, functions, given)?
        };
        Ok(Self {
            replace: events.index_of(REPLACE).ok(),
            rule: rule.clone(),
            is_whole: rows.fields().len() == schema.fields().len(),
            rows,
            events,
            key: key.to_vec(),
            key_places,
            kind,
        })
    }

    /// The rule.
    #[must_use]
    pub const fn rule(&self) -> &MergeRule {
        &self.rule
    }

    /// Names of the sequence columns of groups.
    #[must_use]
    pub fn group_sequences(&self) -> Vec<&str> {
        let ids = self.rule.groups().iter().flat_map(|group| &group.sequence);
        let places = ids.filter_map(|id| place_of(*id, &self.rows));
        places.map(|place| self.rows.field(place).name().as_str()).collect()
    }

    /// The columns of events: those of the table that the fold reads, then `_tombstone`, with a rule
    /// `_replace`, and with `partial_update` `_given`.
    #[must_use]
    pub const fn event_schema(&self) -> &SchemaRef {
        &self.events
    }

    /// The columns of the table that the fold makes.
    #[must_use]
    pub const fn row_schema(&self) -> &SchemaRef {
        &self.rows
    }

    /// One event for each group: the fold of its events in `sources`, which have the columns of
    /// [`Self::event_schema`].
    ///
    /// # Errors
    /// Damage for stored bytes that are no bitmap, an input error of a function of a user, and an
    /// internal error for sources with other columns.
    pub fn fold(&self, sources: &[RecordBatch], groups: &KeyGroups) -> Result<RecordBatch> {
        let events = Events::new(&self.events, sources, groups)?;
        if groups.is_empty() {
            return Ok(RecordBatch::new_empty(self.events.clone()));
        }
        match &self.kind {
            Kind::Choosing { sequence } => self.chosen(&events, sequence),
            Kind::Combining { columns, groups, given } => {
                self.combined(&events, columns, groups, *given)
            }
        }
    }

    /// The event that wins in each group, for a rule that chooses.
    ///
    /// # Errors
    /// An internal error for a rule that combines, and as [`Self::fold`].
    pub fn winners(&self, sources: &[RecordBatch], groups: &KeyGroups) -> Result<Winners> {
        let Kind::Choosing { sequence } = &self.kind else {
            let engine = self.rule.engine().name();
            return Err(Error::internal(format!("{engine} combines events, none of them wins")));
        };
        self.choose(&Events::new(&self.events, sources, groups)?, sequence)
    }

    fn choose(&self, events: &Events<'_>, sequence: &[usize]) -> Result<Winners> {
        let groups = events.groups();
        let is_first = self.rule.engine() == MergeEngine::FirstRow;
        let (wins, ties) =
            if is_first { (Wins::Least, Ties::Older) } else { (Wins::Greatest, Ties::Newer) };
        let order = if sequence.is_empty() || groups.is_empty() {
            None
        } else {
            let columns = sequence.iter().map(|place| self.values(events, *place));
            let columns = columns.collect::<Result<Vec<_>>>()?;
            let order = Order::new(&columns, wins);
            Some(order.map_err(|error| self.broken(sequence[0], error))?)
        };
        let tombstones = events.flags(self.rows.fields().len());
        // A delete with a sequence is an event like another one, where the rule has such deletes.
        let has_sequence = |at| !is_first && order.as_ref().is_some_and(|order| !order.is_null(at));
        let live = self.live(events, |at| tombstones[at] && !has_sequence(at));
        let picks = match &order {
            Some(order) => pick::by_sequence(&live.ranges, order, ties),
            None if is_first => pick::first(&live.ranges),
            None => pick::last(&live.ranges),
        };
        let positions = picks.iter().zip(&live.barriers).filter_map(|(pick, end)| pick.or(*end));
        let positions: Vec<usize> = positions.collect();
        let rows = positions.iter().map(|at| groups.rows()[*at]).collect();
        Ok(Winners { positions, rows, replaces: live.replaces })
    }

    fn chosen(&self, events: &Events<'_>, sequence: &[usize]) -> Result<RecordBatch> {
        let winners = self.choose(events, sequence)?;
        let picks: Picks = winners.positions.iter().copied().map(Some).collect();
        let mut columns = Vec::with_capacity(self.events.fields().len());
        for place in 0..=self.rows.fields().len() {
            columns.push(self.picked(events, place, &picks)?);
        }
        if self.replace.is_some() {
            columns.push(Arc::new(BooleanArray::from(winners.replaces)));
        }
        self.batch(columns, picks.len())
    }

    fn combined(
        &self,
        events: &Events<'_>,
        columns: &[Column],
        groups: &[Group],
        given: Option<GivenColumn>,
    ) -> Result<RecordBatch> {
        let tombstones = events.flags(self.rows.fields().len());
        let live = self.live(events, |at| tombstones[at]);
        let bits = given.map(|given| events.given(given.place));
        let mut picks = Vec::with_capacity(groups.len());
        for group in groups {
            picks.push(self.group_picks(events, group, &live.ranges, bits.as_ref())?);
        }
        let newest: Picks =
            events.groups().offsets()[1..].iter().map(|end| Some(end - 1)).collect();
        let mut made: Vec<Option<ArrayRef>> = vec![None; self.rows.fields().len()];
        for place in &self.key_places {
            made[*place] = Some(self.picked(events, *place, &newest)?);
        }
        for column in columns {
            let array = match (&column.how, &bits) {
                (How::Group(group), _) => self.picked(events, column.place, &picks[*group])?,
                (How::LastGiven, Some(bits)) => {
                    let picks = pick::last_where(&live.ranges, |at| bits.has(at, column.bit));
                    self.picked(events, column.place, &picks)?
                }
                (How::LastGiven, None) => {
                    self.picked(events, column.place, &pick::last(&live.ranges))?
                }
                (How::Function { function, .. }, bits) => {
                    self.computed(events, column, function, &live.ranges, bits.as_ref())?
                }
                (How::User { name, function }, _) => {
                    let values = self.values(events, column.place)?;
                    let (ranges, of) = (&live.ranges, self.name(column.place));
                    user::combined(of, name, function.as_ref(), &values, ranges)?
                }
            };
            made[column.place] = Some(array);
        }
        let mut made: Vec<ArrayRef> = made.into_iter().flatten().collect();
        let removed: Vec<bool> = live.ranges.iter().map(Range::is_empty).collect();
        made.push(Arc::new(BooleanArray::from(removed)));
        made.push(Arc::new(BooleanArray::from(live.replaces)));
        if let (Some(given), Some(bits)) = (given, &bits) {
            made.push(given_of(&live.ranges, given, bits)?);
        }
        self.batch(made, events.groups().len())
    }

    fn group_picks(
        &self,
        events: &Events<'_>,
        group: &Group,
        ranges: &[Range<usize>],
        given: Option<&Given<'_>>,
    ) -> Result<Picks> {
        let columns = group.sequence.iter().map(|place| self.values(events, *place));
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let order = Order::new(&columns, Wins::Greatest)
            .map_err(|error| self.broken(group.sequence[0], error))?;
        let is_given = |at| given.is_none_or(|given| given.has(at, group.bit));
        Ok(pick::by_group(ranges, &order, is_given))
    }

    /// A column by its function.
    fn computed(
        &self,
        events: &Events<'_>,
        column: &Column,
        function: &MergeFunction,
        ranges: &[Range<usize>],
        given: Option<&Given<'_>>,
    ) -> Result<ArrayRef> {
        let place = column.place;
        let picks = match function {
            // A column that was not given has no value, not even a null.
            MergeFunction::LastValue => {
                pick::last_where(ranges, |at| given.is_none_or(|given| given.has(at, column.bit)))
            }
            MergeFunction::FirstValue => pick::first(ranges),
            MergeFunction::LastNonNullValue => {
                let is_valid = events.validity(place);
                pick::last_where(ranges, |at| is_valid[at])
            }
            MergeFunction::FirstNonNullValue => {
                let is_valid = events.validity(place);
                pick::first_where(ranges, |at| is_valid[at])
            }
            MergeFunction::Min | MergeFunction::Max => {
                let is_max = *function == MergeFunction::Max;
                let wins = if is_max { Wins::Greatest } else { Wins::Least };
                let values = self.values(events, place)?;
                let order = Order::new(&[values], wins);
                pick::by_value(ranges, &order.map_err(|error| self.broken(place, error))?)
            }
            _ => return self.reduced(&self.values(events, place)?, place, function, ranges),
        };
        self.picked(events, place, &picks)
    }

    /// Values made of several by a function that picks none of them.
    pub(super) fn reduced(
        &self,
        values: &ArrayRef,
        place: usize,
        function: &MergeFunction,
        ranges: &[Range<usize>],
    ) -> Result<ArrayRef> {
        let made = match function {
            MergeFunction::Sum | MergeFunction::Count => reduce::sum(values, ranges),
            MergeFunction::BoolAnd => Ok(reduce::all_or_any(values, ranges, true)),
            MergeFunction::BoolOr => Ok(reduce::all_or_any(values, ranges, false)),
            MergeFunction::ListAgg { separator, distinct, limit } => {
                let how = Joined { separator, distinct: *distinct, limit: *limit };
                text::joined(values, ranges, how)
            }
            MergeFunction::Collect { distinct, limit, keep } => {
                let kept = Kept { distinct: *distinct, limit: *limit, end: *keep };
                list::collect(values, ranges, kept)
            }
            MergeFunction::MergeMap => map::merged(values, ranges),
            MergeFunction::Rbm32 | MergeFunction::Rbm64 => {
                let is_wide = *function == MergeFunction::Rbm64;
                return bitmap::union(values, ranges, is_wide).map_err(|(_, reason)| {
                    let what = format!("a stored value of column '{}'", self.name(place));
                    Error::corrupt(what, "roaring", reason)
                });
            }
            _ => Err(ArrowError::NotYetImplemented(format!("{} of arrays", function.name()))),
        };
        made.map_err(|error| self.broken(place, error))
    }

    fn live(&self, events: &Events<'_>, is_barrier: impl Fn(usize) -> bool) -> Live {
        let replaces = self.replace.map(|place| events.flags(place));
        let is_replace = |at: usize| replaces.as_ref().is_some_and(|replaces| replaces[at]);
        Live::new(events.groups().offsets(), is_replace, is_barrier)
    }

    fn values(&self, events: &Events<'_>, place: usize) -> Result<ArrayRef> {
        events.values(place).map_err(|error| self.broken(place, error))
    }

    fn picked(&self, events: &Events<'_>, place: usize, picks: &Picks) -> Result<ArrayRef> {
        events.picked(place, picks).map_err(|error| self.broken(place, error))
    }

    pub(super) fn name(&self, place: usize) -> &str {
        self.events.field(place).name()
    }

    /// An error of arrow in the column at `place`.
    pub(super) fn broken(&self, place: usize, error: ArrowError) -> Error {
        let column = self.name(place);
        let made = match &error {
            ArrowError::OffsetOverflowError(_) => Error::input(format!(
                "column '{column}': the merged values have more bytes than their type can count; \
                 read or compact fewer keys at a time, or widen the column to its large type"
            )),
            _ => Error::internal(format!("a fold of column '{column}' failed: {error}")),
        };
        made.with_source(error)
    }

    /// Events of these columns.
    pub(super) fn batch(&self, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch> {
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(self.events.clone(), columns, &options).map_err(|error| {
            Error::internal(format!("a fold made no event: {error}")).with_source(error)
        })
    }
}

/// The columns that one of the live events gave.
fn given_of(ranges: &[Range<usize>], given: GivenColumn, bits: &Given<'_>) -> Result<ArrayRef> {
    let width = usize::try_from(given.bytes).unwrap_or_default();
    let mut bytes = vec![0_u8; ranges.len() * width];
    for (range, bytes) in ranges.iter().zip(bytes.chunks_mut(width)) {
        for at in range.clone() {
            bits.add_to(bytes, at);
        }
    }
    given_array(given, bytes)
}

/// A column `_given` of these bytes.
pub(super) fn given_array(given: GivenColumn, bytes: Vec<u8>) -> Result<ArrayRef> {
    let array = FixedSizeBinaryArray::try_new(given.bytes, bytes.into(), None)
        .map_err(|error| Error::internal(error.to_string()).with_source(error))?;
    Ok(Arc::new(array))
}
