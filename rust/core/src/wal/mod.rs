//! The write-ahead log of one shard: append, fence, replay, tail.
//!
//! Owns: the order of entries and the rule that nothing between two entries may be missing.
//! Does not own: MemTables, acknowledgements, or when an append starts.

mod append;
mod queue;
mod tail;

pub use append::WalAppender;
pub use queue::{Durable, Queued, WalQueue};
pub use tail::{PositionedEntry, WalTail};
