//! The fence around SSTables of tables with a merge rule.
//!
//! Owns: the reader flag that no other program knows, so that none reads their rows as if the last
//! event of a key were its row; and the record of the rule.
//! Does not own: the rule, or where the table stores it (`catalog`).
//!
//! Lance refuses a dataset with a flag that it does not know. The flag is taken out of the message
//! that is handed to Lance here, after it was compared with the table's rule.

use lance_table::format::Manifest;
use lance_table::format::pb::Manifest as ManifestMessage;
use lancemem_core::merge::MergeRule;

use super::bloom::checksum_text;

/// The reader flag. Lance assigns flags from the lowest bit on.
const RULED: u64 = 1 << 62;
/// The key of the manifest configuration that stores the checksum of the rule.
const RULE: &str = "lancemem.rule";

/// What an SSTable records of the rule: the CRC-32 of its stored text.
#[must_use]
pub fn checksum_of(rule: &MergeRule) -> String {
    checksum_text(crc32fast::hash(rule.to_json().as_bytes()))
}

/// Adds flag and record to the manifest of an SSTable.
pub(super) fn fence(manifest: &mut Manifest, rule: &str) {
    manifest.reader_feature_flags |= RULED;
    manifest.config_mut().insert(RULE.to_owned(), rule.to_owned());
}

/// Whether the manifest has the flag.
pub(super) const fn is_fenced(message: &ManifestMessage) -> bool {
    message.reader_feature_flags & RULED != 0
}

/// The message without the flag, as Lance reads it.
pub(super) fn unfenced(mut message: ManifestMessage) -> ManifestMessage {
    message.reader_feature_flags &= !RULED;
    message
}

/// Compares the record of an SSTable with the rule of its table, `None` for no rule.
///
/// # Errors
/// What is wrong, as text.
pub(super) fn check(message: &ManifestMessage, rule: Option<&str>) -> Result<(), String> {
    let found = message.config.get(RULE).map(String::as_str);
    let shown = |rule: Option<&str>| rule.map_or_else(|| "no rule".to_owned(), str::to_owned);
    if found != rule {
        return Err(format!(
            "the manifest records the merge rule {}, the table has {}",
            shown(found),
            shown(rule)
        ));
    }
    if is_fenced(message) != rule.is_some() {
        return Err("the reader flag of merge rules does not fit the recorded rule".to_owned());
    }
    Ok(())
}
