//! The changes of flushes: the net change of each key for each generation of a shard.
//!
//! Owns: the change rows of an SSTable, written before any compaction moves it; positions in the
//! changes of a table's shards; and the changes between two positions as a stream.
//! Does not own: which SSTables have changes, and their publication and removal (`table`).
//!
//! Reading order: `position`, `errors`, `before`, `record`, `publication`, `shape`, `pairs`, `feed`.
//!
//! The image before a key is its row in the fold of everything older than the generation: the base
//! table and the older SSTables of the shard. A compaction moves these rows and changes none, so
//! every process that records a generation writes the same rows.

mod before;
pub(crate) mod errors;
mod feed;
mod pairs;
mod position;
mod publication;
mod record;
mod shape;

pub(crate) use before::Superseded;
pub use feed::FlushedFeed;
pub(crate) use feed::FlushedPiece;
pub use position::FlushedPosition;
pub(crate) use publication::{published_flush, published_generations};
pub(crate) use record::{FlushedSsTable, RecordedFlush};
pub(crate) use shape::FlushedShape;
pub use shape::refuse_reserved as refuse_reserved_of_flushes;

/// The column with the row of the SSTable that has the key of a change row. Both images of an
/// update have the same, and a feed does not show it.
const ROW: &str = "_row";
