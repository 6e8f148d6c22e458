//! Which rows are shown, which are dead, and why.
//!
//! ```text
//!   scan                 compaction            deletion vectors
//!     |                      |                      |
//!     |  KeyChoice, masks    |                      |
//!     +----------+-----------+----------------------+
//!                v
//!     compare       which rows of SSTables a later row of their key supersedes
//!     base_rows     which rows of the base table have keys above it
//!     chosen_rows   the same for a merge rule, where age does not decide
//!     cause         whether an update or a delete killed them, where the caller asks
//!                v
//!     DeadRows      the answer, by position
//! ```
//!
//! Owns: which rows are dead, and why: [`DeadRows`] and [`Cause`]. For scans also: [`KeyChoice`],
//! the source of the newest row of each key; [`NewestRowsExec`], the plan node that keeps only the
//! newest rows; [`PartDeadRows`], what a part of a scan need not read; and [`MergeCache`], which saves
//! the next scan of the same sources the comparison.
//! Does not own: the user's filters, where rows come from, files of deletion vectors
//! (`deletion_vectors`), or deletion files of the base (`compaction`).

mod base_rows;
mod bitmap_keys;
mod bucketed_keys;
mod cache;
mod cause;
mod chosen_rows;
mod compare;
mod compared_rows;
mod dead_rows;
mod first_rows;
mod fragment_probe;
mod key_filter;
mod key_map;
mod mask;
mod newest_rows;
mod newest_source;
mod numbered_keys;
mod numbered_rows;
mod part_dead_rows;
mod selector;

pub use base_rows::BaseLookup;
pub use cache::{KnownRows, MergeCache, MergeCacheStats, MergedMemTables};
pub use cause::{DeletedKeys, SsTableEvents};
pub use chosen_rows::{ChosenAgainst, ChosenRows, GraveChanges, live_rows};
pub use compare::{Comparison, SsTableId, compare, superseded_by, superseded_within};
pub use compared_rows::deciding_columns;
pub use dead_rows::{Cause, DeadRows};
pub use first_rows::{HeadStart, StartGate};
pub use fragment_probe::{Pace, found_rows};
pub use key_map::{NewerKeys, SourceKeys};
pub use mask::{MaskRecorder, Noted, SnapshotMask};
pub use newest_rows::{NewestRowsExec, ScannedSsTable};
pub use newest_source::{ComparedSsTables, KeyChoice, LazyChoice};
pub use numbered_keys::{KeysAbove, NumberedKeys};
pub use numbered_rows::NumberedRows;
pub use part_dead_rows::PartDeadRows;
pub use selector::Newest;
