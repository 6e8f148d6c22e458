//! The errors of positions in the changes of flushes.
//!
//! Owns: the text of changes that were collected or never stored, and of positions that a table
//! does not have.
//! Does not own: errors of reads.

use lancemem_core::types::{Error, Generation, ShardId};

const NAME: &str = "flushed";

/// The error of changes from generation `wanted` on, which a collection removed. `oldest` is the
/// oldest generation whose changes are left.
pub fn changes_expired(uri: &str, shard: ShardId, wanted: Generation, oldest: Generation) -> Error {
    Error::ChangesExpired {
        message: format!(
            "table {uri}: the changes of generation {wanted} of shard {shard} are gone, because a \
             collection removed them after changelog_retention; the oldest generation left is \
             {oldest}. Read the table as a whole and go on with the changes that are left \
             (since=None)"
        ),
        oldest: oldest.get(),
    }
}

/// The error of changes from generation `wanted` on, of a table that stores changes from generation
/// `start` on.
pub fn never_stored(uri: &str, shard: ShardId, wanted: Generation, start: Generation) -> Error {
    Error::ChangesUnavailable {
        message: format!(
            "table {uri}: the changes of generation {wanted} of shard {shard} were never stored, \
             because the table got changelog=\"{NAME}\" later; they are stored from generation \
             {start} on. Read the table as a whole and go on with the changes that are stored \
             (since=None)"
        ),
        version: wanted.get(),
        operation: NAME.to_owned(),
    }
}

/// The error of a table that stores no changes of flushes.
pub fn not_flushed(uri: &str) -> Error {
    Error::input(format!(
        "table {uri} stores no changes of its flushes: set the property with \
         alter(changelog=\"{NAME}\"), which needs deletion_vectors=True, or read \
         level=\"committed\""
    ))
}

/// The error of a table without deletion-vector mode that is to store the changes of its flushes.
pub fn needs_vectors(uri: &str) -> Error {
    Error::input(format!(
        "table {uri}: changelog=\"{NAME}\" needs deletion-vector mode, whose look-up after each \
         flush finds the images before: call alter(deletion_vectors=True, changelog=\"{NAME}\")"
    ))
}

/// The error of a table without a key that is to store the changes of its flushes.
pub fn needs_key(uri: &str) -> Error {
    Error::input(format!(
        "table {uri} has no primary key, by which changelog=\"{NAME}\" pairs the images of an \
         update; its changes are read with level=\"committed\""
    ))
}

/// The error of deletion-vector mode that is to end while changes of flushes are stored.
pub fn vectors_in_use(uri: &str) -> Error {
    Error::input(format!(
        "table {uri} has changelog=\"{NAME}\", which needs deletion-vector mode: end it first with \
         alter(changelog=None)"
    ))
}

/// The error of a position behind the newest generation of a shard.
pub fn never_was(
    uri: &str,
    shard: ShardId,
    (name, wanted): (&str, Generation),
    current: Generation,
) -> Error {
    Error::input(format!(
        "table {uri}: {name} is generation {wanted} of shard {shard}, whose next generation is \
         {current}; the position is of another table, or of a newer copy of this one"
    ))
}

/// The error of a start behind the end.
pub fn reversed(uri: &str, shard: ShardId, since: Generation, until: Generation) -> Error {
    Error::input(format!(
        "table {uri}: since is generation {since} of shard {shard}, after until, which is \
         generation {until}; since is the position that the caller has, until a later one"
    ))
}
