//! What a table with a merge rule cannot have.
//!
//! Owns: the one place that refuses a use of a table because of its rule.
//! Does not own: whether a rule fits its table (the core's `merge`), or how rows are merged.

use lancemem_core::merge::{MergeRule, RuleError};
use lancemem_core::types::Result;

use crate::schema::rule_in_table;

/// Refuses to store the changes of flushes of the table at `uri` where it has a merge rule: these
/// changes compare rows by their age.
///
/// # Errors
/// An input error whose source is [`RuleError::NotSupported`].
pub(in crate::table) fn refuse_flushed_changes(uri: &str, rule: Option<&MergeRule>) -> Result<()> {
    let Some(engine) = rule.map(MergeRule::engine) else { return Ok(()) };
    let (engine, action) = (engine.name(), "store the changes of flushes of");
    let next = "use changelog='stored', or read the changes of versions";
    Err(rule_in_table(uri, RuleError::NotSupported { engine, action, next }))
}
