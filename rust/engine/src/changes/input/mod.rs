//! The events of the logs as they came: every upsert and every delete, unmerged.
//!
//! Owns: positions in the events of a table's shards, and the events of SSTables and logs as a
//! stream with the columns that the level adds.
//! Does not own: which SSTables and logs have the events (`table`).
//!
//! Reading order: `position`, `errors`, `shape`, `feed`.
//!
//! A flush writes every row of a MemTable in its order of arrival, superseded rows included, which
//! it hides by a deletion vector. So the row of an event is the same number in the log and in the
//! SSTable. An SSTable or a log of another writer promises no such order and is refused.

pub(crate) mod errors;
mod feed;
mod position;
mod shape;

pub use feed::InputFeed;
pub(crate) use feed::{EventSource, Piece};
pub use position::{InputPosition, ShardPosition};
pub use shape::InputOptions;
pub(crate) use shape::InputShape;
