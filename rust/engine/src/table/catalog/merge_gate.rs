//! Which merge engines this version can work with.
//!
//! Owns: the one place that opens an engine for creation, reads and writes.
//! Does not own: whether a rule fits its table (the core's `merge`), or how rows are merged.

use lancemem_core::merge::{MergeRule, RuleError};
use lancemem_core::types::Result;

use crate::schema::rule_in_table;

/// What is done with a table that has a merge rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::table) enum RuledUse {
    /// The rule is given to a table.
    Create,
    /// The table is opened, and read.
    Open,
    /// Rows are put, deleted, or committed by a bulk write.
    Write,
    /// The changes of its flushes are stored, which compares rows by their age.
    FlushedChanges,
}

impl RuledUse {
    const fn action(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Open => "open",
            Self::Write => "write rows to",
            Self::FlushedChanges => "store the changes of flushes of",
        }
    }

    /// Whether tables with a rule can be used so.
    const fn is_supported(self) -> bool {
        matches!(self, Self::Create | Self::Open | Self::Write)
    }
}

/// Refuses a use of the table at `uri` that its merge rule does not permit yet. A table without a
/// rule permits all.
///
/// # Errors
/// An input error whose source is [`RuleError::NotSupported`].
pub(in crate::table) fn refuse_unsupported(
    uri: &str,
    rule: Option<&MergeRule>,
    used: RuledUse,
) -> Result<()> {
    let Some(engine) = rule.map(MergeRule::engine) else { return Ok(()) };
    if used.is_supported() {
        return Ok(());
    }
    let next = match used {
        RuledUse::Create => "leave merge_engine out, or use 'deduplicate' or 'first_row'",
        RuledUse::Open | RuledUse::Write => "use the version that wrote the table, or a later one",
        RuledUse::FlushedChanges => "use changelog='stored', or read the changes of versions",
    };
    let (engine, action) = (engine.name(), used.action());
    Err(rule_in_table(uri, RuleError::NotSupported { engine, action, next }))
}
