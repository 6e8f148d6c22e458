//! The choice of one row a key among all sources.
//!
//! Owns: [`KeyChoice`], which source holds the newest row of each key; [`NewestRowsExec`], the
//! plan node that keeps only those rows; and [`MergeCache`], which spares the next scan of the
//! same sources the comparison.
//! Does not own: filters of the user, or where rows come from.

mod cache;
mod choice;
mod dead_rows;
mod dense_numbers;
mod far_numbers;
mod found_rows;
mod head_start;
mod key_bits;
mod newer_keys;
mod newest_rows;
mod selector;

pub use cache::{KnownRows, MergeCache, MergeCacheStats};
pub use choice::{ComparedRuns, KeyChoice, LazyChoice, RunId};
pub use dead_rows::{DeadRows, MaskRecorder, Noted, ViewMask};
pub use found_rows::{Pace, found_rows};
pub use head_start::{HeadStart, Turn};
pub use newer_keys::{NewerKeys, SourceKeys};
pub use newest_rows::{NewestRowsExec, ScannedRun};
pub use selector::Newest;
