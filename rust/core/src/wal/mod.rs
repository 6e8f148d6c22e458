//! The write-ahead log of one shard: append, fence, replay, tail.
//!
//! Owns: the order of entries and the rule that nothing between two entries may be missing.
//! Does not own: MemTables, acknowledgements, or when an append starts.

mod append;
mod queue;
mod read_ahead;
mod tail;

pub use append::WalAppender;
pub use queue::{Durable, Queued, WalQueue};
pub use tail::WalTail;

pub(crate) use read_ahead::{READ_AHEAD, ReadAhead};
pub(crate) use tail::{check_epoch, highest_position};

use crate::format::LogAddress;
use crate::types::{ShardId, WalPosition};

/// How errors and reports name an entry.
pub(crate) fn entry_name(shard_id: ShardId, position: WalPosition) -> String {
    LogAddress { shard_id, position }.to_string()
}
