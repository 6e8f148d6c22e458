//! The record index: from primary key to row address in the base table.
//!
//! ```text
//!   _lancemem/record_index/runs/{name}.binpb    a published run: the fragments that it covers
//!   _lancemem/record_index/{name}/              its pages, a Lance B-tree as in `_pk_index/`
//! ```
//!
//! Owns: sorted runs, which are immutable and built from base fragments or from the key index of an
//! SSTable, and the search for keys in them. A run serves a fragment only where the base version
//! has that fragment with the very files of which the run was built; its other entries are ignored.
//! So neither a compaction by Lance nor any other commit can make an answer wrong, and without the
//! folder lookups still work. Entries of deleted rows stay: the caller checks the deletion vector.
//! Does not own: when runs are built (`table`), or the searches (`lookup`, `compaction`).

mod build;
mod check;
mod key_columns;
mod levels;
mod merge;
mod open;
mod pages;
#[cfg(test)]
mod tests;
mod verified_files;

pub use build::{NewRun, build, groups, is_ours_to_link, link_file, new_name};
pub use check::check;
pub use key_columns::{all_batches, column_batches, fragment_of, has_keys_of, key_files, key_ids};
pub use levels::{RunSize, due};
pub use merge::{Merged, merge};
pub use open::{IndexMatches, IndexRuns, OpenRun, RecordIndex};

/// The contents of a record index, or the result of its check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordIndexReport {
    /// Version of the base table that the index was compared with.
    pub base_version: u64,
    /// Runs that serve at least one fragment of that version.
    pub runs: usize,
    /// Runs that serve no fragment.
    pub stale_runs: usize,
    /// Entries of the serving runs.
    pub entries: u64,
    /// Bytes of their pages.
    pub bytes: u64,
    /// Fragments of the base table that are covered.
    pub fragments_covered: usize,
    /// Fragments whose rows are looked up without it.
    pub fragments_uncovered: usize,
    /// Each damage in a sentence; empty where every entry is correct and none is missing.
    pub damage: Vec<String>,
}
