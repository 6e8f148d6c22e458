//! A merge rule bound to the columns of a table.
//!
//! Owns: which columns a fold reads, how each is combined, and the schema of events.
//! Does not own: the fold, or whether the rule fits the table (`check`).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema};

use super::column::{GIVEN, REPLACE};
use super::error::RuleError;
use super::function::MergeFunction;
use super::rule::{MergeRule, place_of};
use super::user::{PairFunction, PairFunctions};
use crate::format::TOMBSTONE;

/// How rows come to be.
#[derive(Clone, Debug)]
pub(super) enum Kind {
    /// One event wins; places of its sequence.
    Choosing { sequence: Vec<usize> },
    /// Each column by itself.
    Combining { columns: Vec<Column>, groups: Vec<Group>, given: Option<GivenColumn> },
}

/// A column beside the key.
#[derive(Clone, Debug)]
pub(super) struct Column {
    pub place: usize,
    /// Its bit in `_given`.
    pub bit: usize,
    pub how: How,
}

/// How a column is combined.
#[derive(Clone, Debug)]
pub(super) enum How {
    /// The newest event that gave it.
    LastGiven,
    /// With the group of this number.
    Group(usize),
    Function {
        function: MergeFunction,
        ignore_retract: bool,
    },
    User {
        name: String,
        function: Arc<dyn PairFunction>,
    },
}

/// A sequence group.
#[derive(Clone, Debug)]
pub(super) struct Group {
    /// Places of its sequence.
    pub sequence: Vec<usize>,
    /// The bit of the first of them: an event gives a group whole.
    pub bit: usize,
}

/// The column `_given`.
#[derive(Clone, Copy, Debug)]
pub(super) struct GivenColumn {
    pub place: usize,
    pub bytes: i32,
}

/// The bytes that `_given` has: a bit for each column beside the key, and at least one byte, because
/// Arrow has no values of zero bytes.
pub(super) fn given_bytes(schema: &Schema, key: &[String]) -> i32 {
    let columns = schema.fields().iter().filter(|field| !key.contains(field.name())).count();
    i32::try_from(columns.div_ceil(8).max(1)).unwrap_or(i32::MAX)
}

/// Places of the columns that are asked for, and of those that decide them.
pub(super) fn needed_columns(rule: &MergeRule, schema: &Schema, asked: &[&str]) -> Vec<usize> {
    let asked: HashSet<&str> = asked.iter().copied().collect();
    let is_asked = |place: usize| asked.contains(schema.field(place).name().as_str());
    let place = |id: &i32| place_of(*id, schema);
    let mut needed: Vec<usize> = rule.sequence().iter().filter_map(place).collect();
    for group in rule.groups() {
        if group.columns.iter().chain(&group.sequence).filter_map(place).any(is_asked) {
            needed.extend(group.sequence.iter().filter_map(place));
        }
    }
    (0..schema.fields().len()).filter(|at| is_asked(*at) || needed.contains(at)).collect()
}

pub(super) fn event_schema(
    rule: &MergeRule,
    rows: &Schema,
    key: &[String],
    given_bytes: Option<i32>,
) -> Schema {
    let stored = |field: &Arc<Field>| {
        let is_key = key.contains(field.name());
        field.as_ref().clone().with_nullable(field.is_nullable() || !is_key)
    };
    let mut fields: Vec<Field> = rows.fields().iter().map(stored).collect();
    fields.push(Field::new(TOMBSTONE, DataType::Boolean, false));
    if !rule.is_plain() {
        fields.push(Field::new(REPLACE, DataType::Boolean, false));
    }
    if let Some(bytes) = given_bytes {
        fields.push(Field::new(GIVEN, DataType::FixedSizeBinary(bytes), false));
    }
    Schema::new_with_metadata(fields, rows.metadata().clone())
}

/// Binds a rule that combines to the columns `rows` of the table `schema`.
pub(super) fn combining(
    rule: &MergeRule,
    schema: &Schema,
    rows: &Schema,
    key: &[String],
    functions: &PairFunctions,
    given: Option<GivenColumn>,
) -> Result<Kind, RuleError> {
    // Bits count the columns of the table, whichever of them are read.
    let values = schema.fields().iter().map(|field| field.name()).filter(|it| !key.contains(it));
    let bits: HashMap<&String, usize> = values.zip(0..).collect();
    let bit = |place: usize| bits.get(rows.field(place).name()).copied().unwrap_or_default();
    let mut groups = Vec::new();
    let mut group_of = vec![None; rows.fields().len()];
    for group in rule.groups() {
        let sequence: Vec<usize> =
            group.sequence.iter().filter_map(|id| place_of(*id, rows)).collect();
        let Some(first) = sequence.first() else { continue };
        let columns = group.columns.iter().filter_map(|id| place_of(*id, rows));
        for place in columns.chain(sequence.iter().copied()) {
            group_of[place] = Some(groups.len());
        }
        groups.push(Group { bit: bit(*first), sequence });
    }
    let mut columns = Vec::new();
    for (place, field) in rows.fields().iter().enumerate() {
        if key.contains(field.name()) {
            continue;
        }
        let how = match (group_of[place], rule.function_of(field)) {
            (Some(group), _) => How::Group(group),
            (None, Some(aggregate)) => match &aggregate.function {
                MergeFunction::User { name } => {
                    let function = functions.get(name).cloned().ok_or_else(|| {
                        let (column, function) = (field.name().clone(), name.clone());
                        RuleError::NotLoaded { column, function }
                    })?;
                    How::User { name: name.clone(), function }
                }
                function => How::Function {
                    function: function.clone(),
                    ignore_retract: aggregate.ignore_retract,
                },
            },
            (None, None) if given.is_some() => How::LastGiven,
            (None, None) => {
                How::Function { function: MergeFunction::LastNonNullValue, ignore_retract: false }
            }
        };
        columns.push(Column { place, bit: bit(place), how });
    }
    Ok(Kind::Combining { columns, groups, given })
}
