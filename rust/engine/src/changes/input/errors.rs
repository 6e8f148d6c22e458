//! The errors of positions in the events of a table.
//!
//! Owns: the text of events that were collected, and of positions that a table does not have.
//! Does not own: errors of reads.

use lancemem_core::types::{Error, Generation, ShardId};

use super::position::ShardPosition;

/// The error of events behind `wanted` that were compacted and collected. `oldest` is the oldest
/// generation of the shard whose events are left.
pub fn events_expired(
    uri: &str,
    shard: ShardId,
    wanted: ShardPosition,
    oldest: Generation,
) -> Error {
    Error::ChangesExpired {
        message: format!(
            "table {uri}: the events of shard {shard} behind {wanted} are gone, because a \
             compaction moved them into the base table and a collection removed their SSTable; \
             the oldest generation left is {oldest}. Read the table as a whole and go on with the \
             events that are left (since=None)"
        ),
        oldest: oldest.get(),
    }
}

/// The error of a position behind the last event, which is at `end`.
pub fn never_was(
    uri: &str,
    shard: ShardId,
    (name, wanted): (&str, ShardPosition),
    end: ShardPosition,
) -> Error {
    Error::input(format!(
        "table {uri}: {name} is {wanted} of shard {shard}, whose next event is {end}; the position \
         is of another table, or of a newer copy of this one"
    ))
}

/// The error of a start behind the end.
pub fn reversed(uri: &str, shard: ShardId, since: ShardPosition, until: ShardPosition) -> Error {
    Error::input(format!(
        "table {uri}: since is {since} of shard {shard}, after until, which is {until}; since is \
         the position that the caller has, until a later one"
    ))
}

/// The error of events that another library wrote, as `what`.
pub fn foreign(uri: &str, shard: ShardId, what: &str) -> Error {
    Error::input(format!(
        "table {uri}: {what} of shard {shard} was not written by lancemem, so the order of its \
         events is not known; compact the table, and read its changes with level=\"committed\""
    ))
}
