//! Functions of columns: names, parameters, and what each can do.
//!
//! Owns: the types that a function takes, whether the order of events matters to it, whether it
//! has an inverse, and the names that are refused because they are not associative.
//! Does not own: how values are combined (`pick`, `reduce`, `list`, `map`, `text`, `bitmap`).

use arrow_row::{RowConverter, SortField};
use arrow_schema::DataType;

use super::error::RuleError;

/// How the values of a column become one.
///
/// Every function is associative, so the values can be combined in any division into sources,
/// oldest to newest. A null is its identity, but for `last_value` and `first_value`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MergeFunction {
    /// `sum`: addition that wraps around at the bounds of the type.
    Sum,
    /// `count`: the number of puts.
    Count,
    /// `min`: the least value.
    Min,
    /// `max`: the greatest value; NaN is greater than every number.
    Max,
    /// `bool_and`: whether all values are true.
    BoolAnd,
    /// `bool_or`: whether one value is true.
    BoolOr,
    /// `last_value`: the value of the newest put, also a null.
    LastValue,
    /// `first_value`: the value of the oldest put, also a null.
    FirstValue,
    /// `last_non_null_value`: the newest value.
    LastNonNullValue,
    /// `first_non_null_value`: the oldest value.
    FirstNonNullValue,
    /// `listagg`: texts joined with a separator.
    ListAgg {
        /// What stands between two texts.
        separator: String,
        /// Whether a text that is there already is left out.
        distinct: bool,
        /// How many texts are kept, the oldest ones.
        limit: Option<u32>,
    },
    /// `collect`: lists, one behind the other.
    Collect {
        /// Whether an item that is there already is left out.
        distinct: bool,
        /// How many items are kept.
        limit: Option<u32>,
        /// Which items a limit keeps.
        keep: KeepEnd,
    },
    /// `merge_map`: the entries of all maps; the newest value of a key.
    MergeMap,
    /// `rbm32`: union of roaring bitmaps of 32-bit numbers in the portable form.
    Rbm32,
    /// `rbm64`: union of roaring bitmaps of 64-bit numbers in the portable form.
    Rbm64,
    /// A function of the user, by an importable name such as `mypkg.merge:mean`.
    User {
        /// The name.
        name: String,
    },
}

/// Which items of a list a limit keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeepEnd {
    /// The oldest.
    #[default]
    First,
    /// The newest.
    Last,
}

/// The function of one column, with what applies to every function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Aggregate {
    /// The function.
    pub function: MergeFunction,
    /// Whether a retract leaves the column as it is. Functions without an inverse need it in a table
    /// whose deletes retract.
    pub ignore_retract: bool,
}

impl From<MergeFunction> for Aggregate {
    fn from(function: MergeFunction) -> Self {
        Self { function, ignore_retract: false }
    }
}

/// Names that other systems have, each with the reason why it is not here.
const NOT_ASSOCIATIVE: &[(&str, &str)] = &[
    (
        "avg",
        "an average of averages is another number; keep a 'sum' and a 'count' column and divide \
         them at read",
    ),
    (
        "mean",
        "a mean of means is another number; keep a 'sum' and a 'count' column and divide them at \
         read",
    ),
    ("median", "a median of medians is another number; 'collect' the values"),
    ("mode", "counts of values are lost between sources; 'collect' the values"),
    ("product", "each product is rounded or wraps around; 'sum' the logarithms"),
    (
        "stddev",
        "a deviation forgets its sum; keep 'sum' columns of the values and of their squares",
    ),
    ("variance", "a variance forgets its sum; keep 'sum' columns of the values and their squares"),
];
const NAMES: &str = "sum, count, min, max, bool_and, bool_or, last_value, first_value, \
                     last_non_null_value, first_non_null_value, listagg, collect, merge_map, rbm32, \
                     rbm64";

impl MergeFunction {
    /// The function `name` of `column`, with default parameters.
    ///
    /// # Errors
    /// [`RuleError::NotAssociative`] for functions such as `avg`, [`RuleError::UnknownFunction`] for
    /// others.
    pub fn from_name(column: &str, name: &str) -> Result<Self, RuleError> {
        Ok(match name {
            "sum" => Self::Sum,
            "count" => Self::Count,
            "min" => Self::Min,
            "max" => Self::Max,
            "bool_and" => Self::BoolAnd,
            "bool_or" => Self::BoolOr,
            "last_value" => Self::LastValue,
            "first_value" => Self::FirstValue,
            "last_non_null_value" => Self::LastNonNullValue,
            "first_non_null_value" => Self::FirstNonNullValue,
            "listagg" => Self::ListAgg { separator: ",".into(), distinct: false, limit: None },
            "collect" => Self::Collect { distinct: false, limit: None, keep: KeepEnd::First },
            "merge_map" => Self::MergeMap,
            "rbm32" => Self::Rbm32,
            "rbm64" => Self::Rbm64,
            _ => return Err(unknown(column, name)),
        })
    }

    /// The name, `user` for every function of the user.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Count => "count",
            Self::Min => "min",
            Self::Max => "max",
            Self::BoolAnd => "bool_and",
            Self::BoolOr => "bool_or",
            Self::LastValue => "last_value",
            Self::FirstValue => "first_value",
            Self::LastNonNullValue => "last_non_null_value",
            Self::FirstNonNullValue => "first_non_null_value",
            Self::ListAgg { .. } => "listagg",
            Self::Collect { .. } => "collect",
            Self::MergeMap => "merge_map",
            Self::Rbm32 => "rbm32",
            Self::Rbm64 => "rbm64",
            Self::User { .. } => "user",
        }
    }

    /// Whether another order of the same events can give another value.
    #[must_use]
    pub const fn order_matters(&self) -> bool {
        !matches!(
            self,
            Self::Sum
                | Self::Count
                | Self::Min
                | Self::Max
                | Self::BoolAnd
                | Self::BoolOr
                | Self::Rbm32
                | Self::Rbm64
        )
    }

    /// Whether a null is a value like another one, not the absence of an input.
    #[must_use]
    pub const fn counts_nulls(&self) -> bool {
        matches!(self, Self::LastValue | Self::FirstValue)
    }

    /// Whether a single value may have to change before it is an event: a distinct list loses its
    /// repetitions, a bitmap gets its canonical bytes.
    pub(super) const fn normalizes(&self) -> bool {
        matches!(
            self,
            Self::ListAgg { .. }
                | Self::Collect { .. }
                | Self::MergeMap
                | Self::Rbm32
                | Self::Rbm64
        )
    }

    /// Whether the function takes columns of the type `of`.
    #[must_use]
    pub fn takes(&self, of: &DataType) -> bool {
        use DataType::{Binary, Boolean, Decimal128, Int64, LargeBinary, LargeList, List, Map};
        match self {
            Self::Sum => of.is_integer() || of.is_floating() || matches!(of, Decimal128(38, _)),
            Self::Count => *of == Int64,
            Self::Min | Self::Max => is_ordered(of) || is_time(of) || *of == Boolean,
            Self::BoolAnd | Self::BoolOr => *of == Boolean,
            Self::ListAgg { .. } => is_text(of),
            Self::Collect { distinct, .. } => match of {
                List(item) | LargeList(item) => !distinct || has_equality(item.data_type()),
                _ => false,
            },
            Self::MergeMap => match of {
                Map(entries, false) => match entries.data_type() {
                    DataType::Struct(parts) => {
                        parts.first().is_some_and(|key| has_equality(key.data_type()))
                    }
                    _ => false,
                },
                _ => false,
            },
            Self::Rbm32 | Self::Rbm64 => matches!(of, Binary | LargeBinary),
            Self::LastValue
            | Self::FirstValue
            | Self::LastNonNullValue
            | Self::FirstNonNullValue
            | Self::User { .. } => true,
        }
    }

    /// The types that the function takes, in words.
    pub(super) const fn taken_types(&self) -> &'static str {
        match self {
            Self::Sum => {
                "integers, floats and decimals of 38 digits, which have room for a total: \
                 decimal128(38, s)"
            }
            Self::Count => "int64",
            Self::Min | Self::Max => {
                "integers, floats, decimals, dates, times, timestamps, durations, booleans, text \
                 and binary"
            }
            Self::BoolAnd | Self::BoolOr => "booleans",
            Self::ListAgg { .. } => "text",
            Self::Collect { distinct: false, .. } => "lists of any length",
            Self::Collect { distinct: true, .. } => {
                "lists of any length whose items can be compared, which maps cannot"
            }
            Self::MergeMap => "maps that are not sorted by key",
            Self::Rbm32 | Self::Rbm64 => "binary",
            Self::LastValue
            | Self::FirstValue
            | Self::LastNonNullValue
            | Self::FirstNonNullValue
            | Self::User { .. } => "all types",
        }
    }

    /// Refuses parameters with which the function is not associative, or that make no sense.
    ///
    /// # Errors
    /// [`RuleError::NotAssociative`] and [`RuleError::FunctionOption`].
    pub(super) fn check_parameters(&self, column: &str) -> Result<(), RuleError> {
        let refuse = |option, reason| {
            let (column, function) = (column.to_owned(), self.name());
            Err(RuleError::FunctionOption { column, function, option, reason })
        };
        match self {
            Self::ListAgg { limit: Some(0), .. } | Self::Collect { limit: Some(0), .. } => {
                refuse("limit", "it keeps no value; leave the limit out or give at least 1")
            }
            Self::ListAgg { separator, distinct, limit }
                if (*distinct || limit.is_some()) && !is_separable(separator) =>
            {
                let function = format!("listagg(sep={separator:?}, distinct or limit)");
                let reason = "joined texts cannot be told apart where the separator is empty or \
                              ends as it begins; use another separator, such as ','";
                Err(RuleError::NotAssociative { column: column.to_owned(), function, reason })
            }
            Self::Collect { distinct: true, limit: Some(_), keep: KeepEnd::Last } => {
                let function = "collect(distinct, limit, keep='last')".to_owned();
                let reason = "an item that the limit dropped would come back as a new one; use \
                              keep='first', or leave out distinct or limit";
                Err(RuleError::NotAssociative { column: column.to_owned(), function, reason })
            }
            Self::User { name } if !is_importable(name) => {
                refuse("name", "it is not of the form 'module:function'")
            }
            _ => Ok(()),
        }
    }

    /// Refuses a retract of a column of the type `of`.
    ///
    /// # Errors
    /// [`RuleError::NotRetractable`] for a function without an inverse.
    pub(super) fn check_retract(&self, column: &str, of: &DataType) -> Result<(), RuleError> {
        let reason = match self {
            Self::Sum if of.is_unsigned_integer() => {
                "an unsigned column cannot hold the negative total of a retract that comes first; \
                 use a signed type"
            }
            Self::Sum | Self::Count => return Ok(()),
            Self::User { .. } => {
                "a function of the user has no inverse, so the values before are not known; use \
                 deletes='remove', 'ignore' or 'refuse'"
            }
            _ => {
                "the function has no inverse, so the values before are not known; use 'sum' or \
                 'count', or leave the column as it is with ignore_retract"
            }
        };
        Err(RuleError::NotRetractable { column: column.to_owned(), function: self.name(), reason })
    }
}

fn unknown(column: &str, name: &str) -> RuleError {
    let (column, function) = (column.to_owned(), name.to_owned());
    match NOT_ASSOCIATIVE.iter().find(|(refused, _)| *refused == name) {
        Some((_, reason)) => RuleError::NotAssociative { column, function, reason },
        None => RuleError::UnknownFunction { column, function, known: NAMES.to_owned() },
    }
}

/// Whether texts that are joined with `separator` can be told apart again: it is not empty, and no
/// end of it is also its beginning. Otherwise an occurrence could begin in the text before it.
fn is_separable(separator: &str) -> bool {
    let bytes = separator.as_bytes();
    !bytes.is_empty() && (1..bytes.len()).all(|len| !bytes.starts_with(&bytes[bytes.len() - len..]))
}

fn is_importable(name: &str) -> bool {
    name.split_once(':').is_some_and(|(module, function)| {
        let is_name = |part: &str| !part.is_empty() && !part.contains([':', ' ']);
        is_name(module) && is_name(function)
    })
}

/// The types of a sequence.
pub(super) fn is_ordered(of: &DataType) -> bool {
    of.is_integer()
        || of.is_floating()
        || is_text(of)
        || matches!(
            of,
            DataType::Decimal32(..)
                | DataType::Decimal64(..)
                | DataType::Decimal128(..)
                | DataType::Decimal256(..)
                | DataType::Date32
                | DataType::Date64
                | DataType::Timestamp(..)
                | DataType::Binary
                | DataType::LargeBinary
                | DataType::BinaryView
                | DataType::FixedSizeBinary(_)
        )
}

const fn is_time(of: &DataType) -> bool {
    matches!(of, DataType::Time32(_) | DataType::Time64(_) | DataType::Duration(_))
}

const fn is_text(of: &DataType) -> bool {
    matches!(of, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

/// Whether two values of the type can be compared by their row encoding.
fn has_equality(of: &DataType) -> bool {
    RowConverter::supports_fields(&[SortField::new(of.clone())])
}
