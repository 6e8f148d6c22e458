//! The outcome of a writer's call, from the outcomes of its shards.
//!
//! Owns: the acknowledgement of several puts as one, and the texts of a writer's errors.
//! Does not own: the calls (`writer`).

use lancemem_core::shard::Acknowledged;
use lancemem_core::types::{Error, Result, ShardId};

/// Shards that an error names; it counts the others.
const MAX_NAMED: usize = 8;

/// The result of a call on the table at `uri` that wrote to these shards.
///
/// # Errors
/// The first error. Where some shards have their rows, it names them and the others.
pub(super) fn combined(
    uri: &str,
    written: impl Iterator<Item = (ShardId, Result<Acknowledged>)>,
) -> Result<Acknowledged> {
    let (mut done, mut failed, mut first) = (Vec::new(), Vec::new(), None);
    let mut sum = Acknowledged { rows: 0, durable: true, indexed: true, already_written: true };
    for (shard_id, written) in written {
        match written {
            Ok(part) => {
                done.push(shard_id);
                sum.rows += part.rows;
                sum.durable &= part.durable;
                sum.indexed &= part.indexed;
                sum.already_written &= part.already_written;
            }
            Err(error) => {
                failed.push(shard_id);
                first.get_or_insert(error);
            }
        }
    }
    match first {
        None => Ok(sum),
        Some(error) if done.is_empty() => Err(error),
        Some(error) => {
            let message = format!(
                "{error}. Of this call on table {uri}, the rows of {} are written, those of {} are \
                 not acknowledged",
                named(&done),
                named(&failed)
            );
            Err(Error::writer(error.kind(), message).with_source(error))
        }
    }
}

/// The first error of what was done to the jobs of the table at `uri`.
///
/// # Errors
/// That error.
pub(super) fn first_failure(uri: &str, ended: Vec<Result<()>>) -> Result<()> {
    let ended: Result<()> = ended.into_iter().collect();
    ended.map_err(|error| stopped(uri, error))
}

/// An error of a job of the table at `uri`. The text of a job's own error asks for a new job, but
/// the caller has a writer.
pub(super) fn stopped(uri: &str, error: Error) -> Error {
    let kind = error.kind();
    let (shard_id, reason) = match &error {
        Error::Fenced { shard, local, stored } => {
            let reason =
                format!("another writer took the shard: its epoch {stored} is newer than {local}");
            (*shard, reason)
        }
        Error::Poisoned { shard, reason, .. } => (*shard, reason.clone()),
        Error::Closed { shard } => (*shard, "its job was closed".to_owned()),
        _ => return error,
    };
    let message = format!(
        "the writer of table {uri} stopped in shard {shard_id}: {reason}. It writes nothing more \
         to this shard; open a new writer (table.writer()) to claim the shard again"
    );
    Error::writer(kind, message).with_source(error)
}

/// The shards by name, a few of them.
fn named(shard_ids: &[ShardId]) -> String {
    let names: Vec<String> = shard_ids.iter().take(MAX_NAMED).map(ToString::to_string).collect();
    let word = if shard_ids.len() == 1 { "shard" } else { "shards" };
    let more = shard_ids.len() - names.len();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{word} {}{more}", names.join(", "))
}
