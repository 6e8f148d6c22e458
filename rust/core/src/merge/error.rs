//! Why a merge rule is refused.
//!
//! Owns: one variant for each reason, with the column, the option and the option that works.
//! Does not own: the table's name, which the caller puts in front with `Error::input_at`.

use crate::types::Error;

/// A merge rule that cannot be, or that does not fit its table.
///
/// ```
/// # use lancemem_core::merge::MergeFunction;
/// let error = MergeFunction::from_name("price", "avg").unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "column 'price' cannot have the function 'avg', which is not associative: an average of \
///      averages is another number; keep a 'sum' and a 'count' column and divide them at read",
/// );
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RuleError {
    /// A table without a primary key has no events of a key.
    #[error("merge_engine '{engine}' needs a table with a primary key")]
    NoKey {
        /// The engine.
        engine: &'static str,
    },
    /// An option names a column that the table does not have.
    #[error("{option} names column '{column}', which is not in the table")]
    UnknownColumn {
        /// The option of the rule.
        option: &'static str,
        /// The column.
        column: String,
    },
    /// A column has no field id, by which a rule records it.
    #[error(
        "column '{column}' of {option} has no field id; read the schema from the created table"
    )]
    NoFieldId {
        /// The option of the rule.
        option: &'static str,
        /// The column.
        column: String,
    },
    /// A stored rule needs a column that was dropped.
    #[error(
        "the table has no column with field id {id} any more, which {option} of its merge rule \
         needs; restore a version of the table that has it"
    )]
    DroppedColumn {
        /// The option of the rule.
        option: &'static str,
        /// The field id.
        id: i32,
    },
    /// A column of the primary key is the same in all events of a key.
    #[error("column '{column}' is of the primary key; {option} takes other columns only")]
    KeyColumn {
        /// The option of the rule.
        option: &'static str,
        /// The column.
        column: String,
    },
    /// A column has two roles.
    #[error("column '{column}' cannot be in {first} and in {second}: {reason}")]
    TwoRoles {
        /// The column.
        column: String,
        /// The role that was given first.
        first: &'static str,
        /// The role that was given next.
        second: &'static str,
        /// Why one excludes the other.
        reason: &'static str,
    },
    /// A name that ruled tables need for themselves.
    #[error(
        "the column name '{column}' is reserved in tables with a merge rule; rename the column"
    )]
    ReservedColumn {
        /// The column.
        column: String,
    },
    /// A merged row may have a null in each column.
    #[error(
        "column '{column}' is not nullable; merge_engine '{engine}' needs nullable columns beside \
         the primary key, because no event has to give the column"
    )]
    NotNullable {
        /// The engine.
        engine: &'static str,
        /// The column.
        column: String,
    },
    /// A sequence needs a type with an order.
    #[error(
        "column '{column}' of type {found} cannot be in {option}: a sequence is of integers, \
         floats, decimals, dates, timestamps, text or binary"
    )]
    SequenceType {
        /// The option of the rule.
        option: &'static str,
        /// The column.
        column: String,
        /// Its type.
        found: String,
    },
    /// An option that the engine does not have.
    #[error("{option} cannot be used with merge_engine '{engine}': {reason}")]
    OptionRefused {
        /// The option of the rule.
        option: &'static str,
        /// The engine.
        engine: &'static str,
        /// Why, and what works.
        reason: &'static str,
    },
    /// A sequence group without a sequence or without other columns.
    #[error("a sequence group needs at least one sequence column and one other column: {reason}")]
    EmptyGroup {
        /// Which of the two is missing, and of which group.
        reason: String,
    },
    /// No function has this name.
    #[error("column '{column}' has the unknown function '{function}'; the functions are {known}")]
    UnknownFunction {
        /// The column.
        column: String,
        /// The name.
        function: String,
        /// All names.
        known: String,
    },
    /// The result would depend on how events are divided into sources.
    #[error(
        "column '{column}' cannot have the function '{function}', which is not associative: {reason}"
    )]
    NotAssociative {
        /// The column.
        column: String,
        /// The function, with the options that are at fault.
        function: String,
        /// Why, and what works.
        reason: &'static str,
    },
    /// The function takes other types.
    #[error(
        "column '{column}' of type {found} cannot have the function '{function}': it takes {takes}"
    )]
    FunctionType {
        /// The column.
        column: String,
        /// The function.
        function: &'static str,
        /// The type of the column.
        found: String,
        /// The types that the function takes.
        takes: &'static str,
    },
    /// A parameter of a function has a value that cannot be.
    #[error("{option} of the function '{function}' of column '{column}' is refused: {reason}")]
    FunctionOption {
        /// The column.
        column: String,
        /// The function.
        function: &'static str,
        /// The parameter.
        option: &'static str,
        /// Why, and what works.
        reason: &'static str,
    },
    /// The function cannot be used with this engine.
    #[error(
        "column '{column}' cannot have the function '{function}' with merge_engine '{engine}': {reason}"
    )]
    FunctionEngine {
        /// The column.
        column: String,
        /// The function.
        function: &'static str,
        /// The engine.
        engine: &'static str,
        /// Why, and what works.
        reason: &'static str,
    },
    /// The function has no inverse.
    #[error("column '{column}' with the function '{function}' cannot take back a value: {reason}")]
    NotRetractable {
        /// The column.
        column: String,
        /// The function.
        function: &'static str,
        /// Why, and what works.
        reason: &'static str,
    },
    /// A function of the user is not there in this process.
    #[error(
        "the function '{function}' of column '{column}' is not loaded in this process; install the \
         module that has it wherever the table is read, compacted or written"
    )]
    NotLoaded {
        /// The column.
        column: String,
        /// The importable name.
        function: String,
    },
    /// This version cannot do it for tables of the engine.
    #[error(
        "this version of lancemem cannot {action} a table with merge_engine '{engine}'; {next}"
    )]
    NotSupported {
        /// The engine.
        engine: &'static str,
        /// What was asked for, such as `create`.
        action: &'static str,
        /// What works.
        next: &'static str,
    },
    /// The table has another rule.
    #[error("the table has the merge rule {found}, and a rule cannot be changed; expected {asked}")]
    OtherRule {
        /// The rule of the table.
        found: String,
        /// The rule that was asked for.
        asked: String,
    },
    /// A stored rule whose text is damaged.
    #[error("the stored merge rule cannot be read: {reason}")]
    Undecodable {
        /// What was expected and found.
        reason: String,
    },
    /// A stored rule of a later version.
    #[error(
        "the stored merge rule has {found}, which this version of lancemem does not have; use the \
         version that created the table, or a later one"
    )]
    LaterVersion {
        /// What is unknown.
        found: String,
    },
}

impl RuleError {
    /// The error of a call that was given the rule. No `From`: with a second conversion into
    /// [`Error`], the type of an `Ok` in a closure could not be inferred anywhere.
    #[must_use]
    pub fn into_error(self) -> Error {
        let made = match &self {
            Self::Undecodable { reason } => {
                Error::corrupt("the stored merge rule", "undecodable", reason)
            }
            _ => Error::input(self.to_string()),
        };
        made.with_source(self)
    }
}
