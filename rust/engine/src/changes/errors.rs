//! The errors of a change feed.
//!
//! Owns: the text of changes that cannot be derived, and of a start that was cleaned up.
//! Does not own: errors of reads.

use lancemem_core::types::Error;

/// The error of changes behind version `wanted`, which was cleaned up. `oldest` is the oldest
/// version that is left.
pub fn expired(uri: &str, wanted: u64, oldest: u64) -> Error {
    Error::ChangesExpired {
        message: format!(
            "table {uri}: the changes behind version {wanted} are gone, because a clean-up removed \
             version {wanted}; the oldest version left is {oldest}. Read the table as a whole \
             (since=None) and go on from there; a consumer (changes_consumer) keeps the version that \
             it needs"
        ),
        oldest,
    }
}

/// The error of a version whose columns do not fit those of the feed, for the reason `why`.
/// [`in_step`] makes a text of it.
pub(super) const fn misfit(version: u64, why: String) -> Error {
    Error::ChangesUnavailable { message: why, version, operation: String::new() }
}

/// `error` of the changes of a version. A [`misfit`] gets its text, and the version of the changes.
pub(super) fn in_step(error: Error, uri: &str, version: u64, operation: Option<&str>) -> Error {
    match error {
        Error::ChangesUnavailable { message: why, operation: known, .. } if known.is_empty() => {
            unavailable(uri, version, operation, &why)
        }
        other => other,
    }
}

/// The error of a version whose changes cannot be derived, for the reason `why`.
pub(super) fn unavailable(uri: &str, version: u64, operation: Option<&str>, why: &str) -> Error {
    let operation = operation.unwrap_or("unknown");
    Error::ChangesUnavailable {
        message: format!(
            "table {uri}: the changes of version {version} ({operation}) cannot be derived: {why}; \
             read the table as a whole (since=None) and go on behind version {version}"
        ),
        version,
        operation: operation.to_owned(),
    }
}
