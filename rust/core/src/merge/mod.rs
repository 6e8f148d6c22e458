//! Merge rules: how the events of a key become one row.
//!
//! Owns: the description of a table's rule with its JSON form (`rule`, `function`, `check`, `json`),
//! the fold kernel, which makes one event of several (`fold`), and what stands at its ends: from
//! rows of a call to events, from events to rows of the table (`event`).
//! Does not own: where events are stored, which sources have a key, or when a fold runs.
//!
//! An *event* is a stored row: the table's columns, then [`TOMBSTONE`](crate::format::TOMBSTONE),
//! [`REPLACE`] and, for `partial_update`, [`GIVEN`]. A fold of events is an event again, and a fold of
//! folds equals the fold of all of their events in order. Flush, scan, lookup and compaction can
//! therefore each fold the sources that they have.
//!
//! Reading order: the modules below, top to bottom.

mod error;
mod function;
mod rule;

mod check;
mod json;

mod groups;
mod order;

mod column;
mod live;

mod pick;
mod reduce;

mod bitmap;
mod list;
mod map;
mod text;
mod user;

mod binding;

mod fold;

mod choosing;
mod event;

#[cfg(test)]
mod tests;

pub use choosing::Choosing;
pub use column::{GIVEN, REPLACE};
pub use error::RuleError;
pub use event::Verb;
pub use fold::Fold;
pub use function::{Aggregate, KeepEnd, MergeFunction};
pub use groups::KeyGroups;
pub use pick::Winners;
pub use rule::{DeletePolicy, MergeEngine, MergeRule, NullPolicy, RuleOptions, SequenceGroup};
pub use user::{PairFunction, PairFunctions, try_function};
