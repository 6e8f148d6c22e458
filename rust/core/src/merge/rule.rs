//! The merge rule of a table: what its creator chose, by field id.
//!
//! Owns: the values of a rule and the names of its choices.
//! Does not own: whether a rule fits a table (`check`), or its stored form (`json`).

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

use arrow_schema::{Field, Schema};

use super::check;
use super::error::RuleError;
use super::function::{Aggregate, MergeFunction};
use crate::format::reconcile::{field_id, is_field};

/// How long a delete with a sequence is remembered after a compaction, unless the table sets another
/// time: 7 days, in milliseconds.
pub(super) const DELETE_RETENTION_MS: u64 = 604_800_000;

/// How the events of a key become one row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MergeEngine {
    /// The last event, or with a sequence the greatest one.
    #[default]
    Deduplicate,
    /// The first put, or with a sequence the least one.
    FirstRow,
    /// Each column from the last put that gave it.
    PartialUpdate,
    /// Each column by its function.
    Aggregation,
}

impl MergeEngine {
    const ALL: [Self; 4] =
        [Self::Deduplicate, Self::FirstRow, Self::PartialUpdate, Self::Aggregation];

    /// The name, such as `partial_update`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Deduplicate => "deduplicate",
            Self::FirstRow => "first_row",
            Self::PartialUpdate => "partial_update",
            Self::Aggregation => "aggregation",
        }
    }

    /// The engine of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.name() == name)
    }

    /// Whether the row of a key is one of its events, as it was put.
    #[must_use]
    pub const fn is_choosing(self) -> bool {
        matches!(self, Self::Deduplicate | Self::FirstRow)
    }
}

/// What a delete without a sequence does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeletePolicy {
    /// It removes the row; what comes later counts from nothing.
    #[default]
    Remove,
    /// It is accepted and does nothing.
    Ignore,
    /// It is an error.
    Refuse,
    /// It takes its values back: the row stays, with smaller totals.
    Retract,
}

impl DeletePolicy {
    const ALL: [Self; 4] = [Self::Remove, Self::Ignore, Self::Refuse, Self::Retract];

    /// The name, such as `remove`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Remove => "remove",
            Self::Ignore => "ignore",
            Self::Refuse => "refuse",
            Self::Retract => "retract",
        }
    }

    /// The policy of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.name() == name)
    }
}

/// What a null in a partial put does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NullPolicy {
    /// It is the new value.
    #[default]
    Set,
    /// The column keeps its value, as if it were not given.
    Keep,
}

impl NullPolicy {
    const ALL: [Self; 2] = [Self::Set, Self::Keep];

    /// The name, such as `set`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Set => "set",
            Self::Keep => "keep",
        }
    }

    /// The policy of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.name() == name)
    }
}

/// Columns that are taken together from the event with the greatest sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SequenceGroup {
    /// Field ids of the sequence, the most significant first.
    pub sequence: Vec<i32>,
    /// Field ids of the other columns.
    pub columns: Vec<i32>,
}

/// What the creator of a table chooses, by column names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleOptions {
    /// The engine.
    pub merge_engine: MergeEngine,
    /// Columns by which the events of a key are ordered, the most significant first.
    pub sequence_by: Vec<String>,
    /// Functions of columns. In an `aggregation`, columns without one have `last_non_null_value`.
    pub aggregates: BTreeMap<String, Aggregate>,
    /// Importable names of functions of the user, by column.
    pub merge_functions: BTreeMap<String, String>,
    /// Sequence columns with the columns that follow them.
    pub sequence_groups: Vec<(Vec<String>, Vec<String>)>,
    /// What a delete does.
    pub deletes: DeletePolicy,
    /// What a null in a partial put does, where the call does not choose.
    pub nulls: NullPolicy,
    /// How long, in milliseconds, a delete with a sequence is remembered after a compaction; 0 is not
    /// at all.
    pub delete_retention_ms: Option<u64>,
}

impl RuleOptions {
    /// Whether a table that is created with these options has no rule: `deduplicate`, and nothing
    /// beside it.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        *self == Self::default()
    }

    /// These options with the default retention of deletes where deletes are remembered and no other
    /// one is chosen.
    #[must_use]
    pub fn with_defaults(mut self) -> Self {
        if self.merge_engine == MergeEngine::Deduplicate && !self.sequence_by.is_empty() {
            self.delete_retention_ms.get_or_insert(DELETE_RETENTION_MS);
        }
        self
    }
}

impl Display for RuleOptions {
    /// The options that differ from their defaults, after the engine.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.merge_engine.name())?;
        if !self.sequence_by.is_empty() {
            write!(f, ", sequence_by {}", self.sequence_by.join(", "))?;
        }
        for (column, aggregate) in &self.aggregates {
            write!(f, ", {} of {column}", aggregate.function.name())?;
        }
        for (column, name) in &self.merge_functions {
            write!(f, ", {name} of {column}")?;
        }
        for (sequence, columns) in &self.sequence_groups {
            write!(f, ", {} by {}", columns.join(", "), sequence.join(", "))?;
        }
        if self.deletes != DeletePolicy::Remove {
            write!(f, ", deletes '{}'", self.deletes.name())?;
        }
        if self.nulls != NullPolicy::Set {
            write!(f, ", nulls '{}'", self.nulls.name())?;
        }
        match self.delete_retention_ms {
            Some(ms) => write!(f, ", deletes remembered for {ms} ms"),
            None => Ok(()),
        }
    }
}

/// The merge rule of a table. Never changes once the table has it.
///
/// Columns are field ids, so renames change nothing. A rule from [`MergeRule::new`] fits its table; one
/// from [`MergeRule::from_json`] is checked against the columns by [`Fold::new`](super::Fold::new).
///
/// ```
/// # use std::collections::HashMap;
/// # use arrow_schema::{DataType, Field, Schema};
/// # use lancemem_core::merge::{MergeEngine, MergeFunction, MergeRule, RuleOptions};
/// let field = |id: i32, name: &str| {
///     let id = HashMap::from([("lance:field_id".to_owned(), id.to_string())]);
///     Field::new(name, DataType::Int64, true).with_metadata(id)
/// };
/// let schema = Schema::new(vec![field(0, "page"), field(1, "clicks")]);
/// let options = RuleOptions {
///     merge_engine: MergeEngine::Aggregation,
///     aggregates: [("clicks".to_owned(), MergeFunction::Sum.into())].into(),
///     ..RuleOptions::default()
/// };
/// let rule = MergeRule::new(&options, &schema, &["page".to_owned()])?;
/// assert!(rule.to_json().contains(r#""functions":{"1":{"name":"sum"}}"#));
/// assert_eq!(MergeRule::from_json(&rule.to_json())?, rule);
/// # Ok::<(), lancemem_core::merge::RuleError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MergeRule {
    pub(super) engine: MergeEngine,
    pub(super) sequence: Vec<i32>,
    pub(super) groups: Vec<SequenceGroup>,
    pub(super) functions: BTreeMap<i32, Aggregate>,
    pub(super) deletes: DeletePolicy,
    pub(super) nulls: NullPolicy,
    pub(super) delete_retention_ms: u64,
}

impl MergeRule {
    /// The rule of a table with the columns `schema`, which carry field ids, and the primary key
    /// `key`.
    ///
    /// # Errors
    /// A [`RuleError`] that names column, option and reason, for everything that such a table cannot
    /// have.
    pub fn new(options: &RuleOptions, schema: &Schema, key: &[String]) -> Result<Self, RuleError> {
        let ids = |option, names: &[String]| -> Result<Vec<i32>, RuleError> {
            names.iter().map(|name| id_of(option, name, schema)).collect()
        };
        let mut functions = BTreeMap::new();
        for (name, aggregate) in &options.aggregates {
            functions.insert(id_of("aggregates", name, schema)?, aggregate.clone());
        }
        for (column, name) in &options.merge_functions {
            if options.aggregates.contains_key(column) {
                return Err(check::two_functions(column));
            }
            let function = MergeFunction::User { name: name.clone() };
            functions.insert(id_of("merge_functions", column, schema)?, function.into());
        }
        let mut groups = Vec::with_capacity(options.sequence_groups.len());
        for (sequence, columns) in &options.sequence_groups {
            groups.push(SequenceGroup {
                sequence: ids("sequence_groups", sequence)?,
                columns: ids("sequence_groups", columns)?,
            });
        }
        let rule = Self {
            engine: options.merge_engine,
            sequence: ids("sequence_by", &options.sequence_by)?,
            groups,
            functions,
            deletes: options.deletes,
            nulls: options.nulls,
            delete_retention_ms: options.delete_retention_ms.unwrap_or(DELETE_RETENTION_MS),
        };
        if options.delete_retention_ms.is_some() && !rule.remembers_deletes() {
            return Err(check::useless_retention(rule.engine));
        }
        rule.check(schema, key)?;
        Ok(rule)
    }

    /// What a creator would choose to get this rule in a table with the columns `schema`: present
    /// names of the columns, without those that were dropped.
    #[must_use]
    pub fn options(&self, schema: &Schema) -> RuleOptions {
        let name = |id: &i32| place_of(*id, schema).map(|place| schema.field(place).name().clone());
        let names = |ids: &[i32]| -> Vec<String> { ids.iter().filter_map(name).collect() };
        let mut aggregates = BTreeMap::new();
        let mut merge_functions = BTreeMap::new();
        for (id, aggregate) in &self.functions {
            let Some(column) = name(id) else { continue };
            match &aggregate.function {
                MergeFunction::User { name } => {
                    merge_functions.insert(column, name.clone());
                }
                _ => {
                    aggregates.insert(column, aggregate.clone());
                }
            }
        }
        let groups = self.groups.iter();
        RuleOptions {
            merge_engine: self.engine,
            sequence_by: names(&self.sequence),
            aggregates,
            merge_functions,
            sequence_groups: groups.map(|it| (names(&it.sequence), names(&it.columns))).collect(),
            deletes: self.deletes,
            nulls: self.nulls,
            delete_retention_ms: self.delete_retention_ms(),
        }
    }

    /// The engine.
    #[must_use]
    pub const fn engine(&self) -> MergeEngine {
        self.engine
    }

    /// Field ids of the columns of `sequence_by`, the most significant first.
    #[must_use]
    pub fn sequence(&self) -> &[i32] {
        &self.sequence
    }

    /// The sequence groups.
    #[must_use]
    pub fn groups(&self) -> &[SequenceGroup] {
        &self.groups
    }

    /// The functions by field id.
    #[must_use]
    pub const fn functions(&self) -> &BTreeMap<i32, Aggregate> {
        &self.functions
    }

    /// What a delete does.
    #[must_use]
    pub const fn deletes(&self) -> DeletePolicy {
        self.deletes
    }

    /// What a null in a partial put does, where the call does not choose.
    #[must_use]
    pub const fn nulls(&self) -> NullPolicy {
        self.nulls
    }

    /// How long, in milliseconds, a delete with a sequence is remembered after a compaction; `None`
    /// where no delete has a sequence.
    #[must_use]
    pub fn delete_retention_ms(&self) -> Option<u64> {
        self.remembers_deletes().then_some(self.delete_retention_ms)
    }

    /// Whether this is `deduplicate` without a sequence, which a table has without any rule.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.engine == MergeEngine::Deduplicate && self.sequence.is_empty()
    }

    /// Whether deletes can have a sequence.
    #[must_use]
    pub fn remembers_deletes(&self) -> bool {
        self.engine == MergeEngine::Deduplicate && !self.sequence.is_empty()
    }

    /// Refuses this rule for a table with the columns `schema` and the primary key `key`. Functions
    /// and group columns that were dropped from the table are passed over.
    ///
    /// # Errors
    /// A [`RuleError`] that names column, option and reason.
    pub fn check(&self, schema: &Schema, key: &[String]) -> Result<(), RuleError> {
        check::check(self, schema, key)
    }

    /// The function of a column; `None` for a column that its engine treats by default.
    pub(super) fn function_of(&self, field: &Field) -> Option<&Aggregate> {
        self.functions.iter().find(|(id, _)| is_field(field, **id)).map(|(_, function)| function)
    }
}

/// The place of the column with field id `id`.
pub(super) fn place_of(id: i32, schema: &Schema) -> Option<usize> {
    let exact = schema.fields().iter().position(|field| field_id(field) == Some(id));
    exact.or_else(|| schema.fields().iter().position(|field| is_field(field, id)))
}

fn id_of(option: &'static str, name: &str, schema: &Schema) -> Result<i32, RuleError> {
    let column = || name.to_owned();
    let (_, field) = schema
        .column_with_name(name)
        .ok_or_else(|| RuleError::UnknownColumn { option, column: column() })?;
    field_id(field).ok_or_else(|| RuleError::NoFieldId { option, column: column() })
}
