//! The changes between versions of the base table: each row that died, and each that came.
//!
//! Owns: changes as differences of two manifests, their pairing by key, and their images as
//! streams: a feed is a pure function of immutable versions. Also the same rows, stored with the
//! commit of a compaction, where the table asks for it.
//! Does not own: which versions or SSTables a caller asks for, or the pins of consumers (`table`).
//!
//! `flushed` is another level: the net changes of each flush, stored before a compaction moves its
//! SSTable. `input` is a third: the events of SSTables and logs before any compaction moves them.
//!
//! Reading order: `types`, `errors`, `selection`, `shape`, `row_hash`, `images`, `derive` (with
//! `altered`), `pair` (with `held_keys`), `property`, `record`, `stored`, `parts`, `feed`; then
//! `position`, `flushed`, `input`.
//!
//! The changes of version V against the version P before it:
//!
//! ```text
//!   a fragment of both    rows that died are images before, rows that a restore revives after;
//!                         rows whose columns were rewritten are compared
//!   a fragment of P only  its live rows are images before
//!   a fragment of V only  its live rows are images after
//!   a key on both sides   an update; before alone a delete, after alone an insert
//! ```
//!
//! Each image is read from the version that has the row alive, so it is never a cached value.

mod altered;
mod derive;
mod errors;
mod feed;
mod flushed;
mod held_keys;
mod images;
mod input;
mod pair;
mod parts;
mod position;
mod property;
mod record;
mod row_hash;
mod selection;
mod shape;
mod stored;
mod types;

pub use errors::expired;
pub use feed::{ChangeFeed, Range};
pub use flushed::{FlushedFeed, FlushedPosition, refuse_reserved_of_flushes};
pub(crate) use flushed::{
    FlushedPiece, FlushedShape, FlushedSsTable, RecordedFlush, Superseded,
    errors as flushed_errors, published_flush, published_generations,
};
pub(crate) use input::{EventSource, InputShape, Piece, errors as input_errors};
pub use input::{InputFeed, InputOptions, InputPosition, ShardPosition};
pub use property::{Changelog, alter_changelog, flushed_from, has_changelog, retention_of};
pub use record::{PlannedCommit, Recorded};
pub use shape::refuse_reserved;
pub use stored::{publication, published, published_versions};
pub use types::{
    CHANGE_TYPE, COMMIT_TIMESTAMP, COMMIT_VERSION, ChangeCounts, ChangeOptions, ChangePart,
    ChangeSlice, ChangeVersion, Image, Moment, RESERVED, RowKinds,
};
