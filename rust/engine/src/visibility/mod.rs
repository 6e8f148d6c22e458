//! Which rows are shown: the choice of one row a key among all sources.
//!
//! Owns: [`KeyChoice`], which source holds the newest row of each key; [`NewestRowsExec`], the
//! plan node that keeps only those rows; and [`MergeCache`], which spares the next scan of the
//! same sources the comparison.
//! Does not own: filters of the user, or where rows come from.

mod bitmap_keys;
mod bucketed_keys;
mod cache;
mod first_rows;
mod fragment_probe;
mod key_filter;
mod key_map;
mod newest_rows;
mod newest_source;
mod selector;
mod superseded_rows;

pub use cache::{KnownRows, MergeCache, MergeCacheStats};
pub use first_rows::{HeadStart, StartGate};
pub use fragment_probe::{Pace, found_rows};
pub use key_map::{NewerKeys, SourceKeys};
pub use newest_rows::{NewestRowsExec, ScannedSsTable};
pub use newest_source::{ComparedSsTables, KeyChoice, LazyChoice, SsTableId};
pub use selector::Newest;
pub use superseded_rows::{DeadRows, MaskRecorder, Noted, SnapshotMask};
