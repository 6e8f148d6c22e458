//! Whether a merge rule fits a table.
//!
//! Owns: every refusal of a rule, each with the column, the option and the reason.
//! Does not own: the text of the refusals (`error`), or parameters of functions (`function`).

use std::collections::HashMap;

use arrow_schema::{Field, Schema};

use super::column::{GIVEN, REPLACE};
use super::error::RuleError;
use super::function::{MergeFunction, is_ordered};
use super::rule::{DeletePolicy, MergeEngine, MergeRule, NullPolicy, place_of};
use crate::types::TypeName;

const SEQUENCE_BY: &str = "sequence_by";
const SEQUENCE_GROUPS: &str = "sequence_groups";
const AGGREGATES: &str = "aggregates";
const MERGE_FUNCTIONS: &str = "merge_functions";

/// Refuses `rule` for a table with the columns `schema` and the primary key `key`.
pub(super) fn check(rule: &MergeRule, schema: &Schema, key: &[String]) -> Result<(), RuleError> {
    let engine = rule.engine.name();
    check_options(rule)?;
    if rule.is_plain() {
        return Ok(());
    }
    if key.is_empty() {
        return Err(RuleError::NoKey { engine });
    }
    let mut names = schema.fields().iter().map(|field| field.name());
    if let Some(name) = names.find(|name| [GIVEN, REPLACE].contains(&name.as_str())) {
        return Err(RuleError::ReservedColumn { column: name.clone() });
    }
    if !rule.engine.is_choosing() {
        let is_strict =
            |field: &&std::sync::Arc<Field>| !field.is_nullable() && !key.contains(field.name());
        if let Some(field) = schema.fields().iter().find(is_strict) {
            return Err(RuleError::NotNullable { engine, column: field.name().clone() });
        }
    }
    let mut roles = Roles { schema, key, taken: HashMap::new() };
    for id in &rule.sequence {
        roles.take_sequence(SEQUENCE_BY, *id)?;
    }
    check_groups(rule, &mut roles)?;
    check_functions(rule, &mut roles)?;
    check_defaults(rule, schema, key, &roles)
}

/// Refuses options that the engine does not have.
fn check_options(rule: &MergeRule) -> Result<(), RuleError> {
    use MergeEngine::{Aggregation, Deduplicate, FirstRow, PartialUpdate};
    let engine = rule.engine;
    let refuse =
        |option, reason| Err(RuleError::OptionRefused { option, engine: engine.name(), reason });
    match engine {
        PartialUpdate if !rule.sequence.is_empty() => refuse(
            SEQUENCE_BY,
            "one stored sequence need not be that of the event that gave a column; use \
             sequence_groups, which take their columns whole",
        ),
        Aggregation
            if rule.functions.values().any(|it| it.function.order_matters())
                && !rule.sequence.is_empty() =>
        {
            refuse(
                SEQUENCE_BY,
                "one stored sequence need not be that of the event that gave a value, so functions \
                 such as last_value cannot follow it; use partial_update with sequence_groups",
            )
        }
        Aggregation if !rule.sequence.is_empty() => refuse(
            SEQUENCE_BY,
            "it would change nothing where the order of events does not matter, and other columns \
             have last_non_null_value, which cannot follow it; leave it out",
        ),
        Deduplicate | FirstRow | Aggregation if !rule.groups.is_empty() => {
            refuse(SEQUENCE_GROUPS, "only partial_update takes columns from several events")
        }
        Deduplicate | FirstRow if !rule.functions.is_empty() => refuse(
            rule.functions.values().map(|it| option_of(&it.function)).min().unwrap_or(AGGREGATES),
            "the row of a key is one of its events, as it was put; use aggregation or \
             partial_update",
        ),
        Deduplicate | FirstRow if rule.deletes != DeletePolicy::Remove => {
            refuse("deletes", "a delete removes the row; partial_update and aggregation can choose")
        }
        PartialUpdate if rule.deletes == DeletePolicy::Retract => refuse(
            "deletes='retract'",
            "a column that was given cannot be taken back; use aggregation, 'remove', 'ignore' or \
             'refuse'",
        ),
        Deduplicate | FirstRow | Aggregation if rule.nulls == NullPolicy::Keep => refuse(
            "nulls='keep'",
            "only partial_update tells a null from a column that is not given",
        ),
        _ => Ok(()),
    }
}

/// The role of each column, by its place: a column has one.
struct Roles<'a> {
    schema: &'a Schema,
    key: &'a [String],
    taken: HashMap<usize, &'static str>,
}

impl<'a> Roles<'a> {
    /// Gives the column at `place` a role.
    fn take(&mut self, option: &'static str, place: usize) -> Result<&'a Field, RuleError> {
        let field = self.schema.field(place);
        let column = || field.name().clone();
        if self.key.contains(field.name()) {
            return Err(RuleError::KeyColumn { option, column: column() });
        }
        match self.taken.insert(place, option) {
            None => Ok(field),
            Some(first) => {
                let reason = if first == option {
                    "a column is named once"
                } else {
                    "a sequence group takes its columns whole from one event, a function combines \
                     several"
                };
                Err(RuleError::TwoRoles { column: column(), first, second: option, reason })
            }
        }
    }

    fn take_sequence(&mut self, option: &'static str, id: i32) -> Result<(), RuleError> {
        let place = place_of(id, self.schema).ok_or(RuleError::DroppedColumn { option, id })?;
        let field = self.take(option, place)?;
        if is_ordered(field.data_type()) {
            return Ok(());
        }
        let found = TypeName(field.data_type()).to_string();
        Err(RuleError::SequenceType { option, column: field.name().clone(), found })
    }
}

fn check_groups(rule: &MergeRule, roles: &mut Roles<'_>) -> Result<(), RuleError> {
    for (place, group) in rule.groups.iter().enumerate() {
        let number = place + 1;
        if group.sequence.is_empty() {
            let reason = format!("group {number} has no sequence column");
            return Err(RuleError::EmptyGroup { reason });
        }
        if group.columns.is_empty() {
            let reason = format!("group {number} has only sequence columns; give them 'max'");
            return Err(RuleError::EmptyGroup { reason });
        }
        for id in &group.sequence {
            roles.take_sequence(SEQUENCE_GROUPS, *id)?;
        }
        for place in group.columns.iter().filter_map(|id| place_of(*id, roles.schema)) {
            roles.take(SEQUENCE_GROUPS, place)?;
        }
    }
    Ok(())
}

/// The option that gives a column this function.
const fn option_of(function: &MergeFunction) -> &'static str {
    match function {
        MergeFunction::User { .. } => MERGE_FUNCTIONS,
        _ => AGGREGATES,
    }
}

fn check_functions(rule: &MergeRule, roles: &mut Roles<'_>) -> Result<(), RuleError> {
    for (id, aggregate) in &rule.functions {
        let Some(place) = place_of(*id, roles.schema) else { continue };
        let function = &aggregate.function;
        let field = roles.take(option_of(function), place)?;
        let (column, name) = (field.name().clone(), function.name());
        function.check_parameters(&column)?;
        if !function.takes(field.data_type()) {
            let found = TypeName(field.data_type()).to_string();
            let takes = function.taken_types();
            return Err(RuleError::FunctionType { column, function: name, found, takes });
        }
        if rule.engine == MergeEngine::PartialUpdate && *function == MergeFunction::FirstValue {
            let reason = "a row of the base table does not record whether a null was given first; \
                          use 'first_non_null_value'";
            let engine = rule.engine.name();
            return Err(RuleError::FunctionEngine { column, function: name, engine, reason });
        }
        if aggregate.ignore_retract && function.counts_nulls() {
            let reason = "a null is a value to the function, so no event leaves the column as it \
                          is; use the function of values that are not null";
            return Err(RuleError::NotRetractable { column, function: name, reason });
        }
        if rule.deletes == DeletePolicy::Retract && !aggregate.ignore_retract {
            function.check_retract(&column, field.data_type())?;
        }
    }
    Ok(())
}

/// Refuses columns whose default function cannot do what the rule asks of every column.
fn check_defaults(
    rule: &MergeRule,
    schema: &Schema,
    key: &[String],
    roles: &Roles<'_>,
) -> Result<(), RuleError> {
    if rule.deletes != DeletePolicy::Retract {
        return Ok(());
    }
    for (place, field) in schema.fields().iter().enumerate() {
        if !key.contains(field.name()) && !roles.taken.contains_key(&place) {
            MergeFunction::LastNonNullValue.check_retract(field.name(), field.data_type())?;
        }
    }
    Ok(())
}

/// The refusal of a column in `aggregates` and `merge_functions`.
pub(super) fn two_functions(column: &str) -> RuleError {
    RuleError::TwoRoles {
        column: column.to_owned(),
        first: AGGREGATES,
        second: MERGE_FUNCTIONS,
        reason: "a column has one function",
    }
}

/// The refusal of a retention where no delete is remembered.
pub(super) const fn useless_retention(engine: MergeEngine) -> RuleError {
    RuleError::OptionRefused {
        option: "delete_retention_ms",
        engine: engine.name(),
        reason: "only deduplicate with sequence_by remembers deletes",
    }
}
