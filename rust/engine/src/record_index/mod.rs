//! The record index: from primary key to row address in the base table.
//!
//! ```text
//!   _lancemem/record_index/runs/{name}.binpb    publishes a run: the fragments that it covers
//!   _lancemem/record_index/{name}/              its pages, a Lance B-tree as in `_pk_index/`
//! ```
//!
//! Owns: runs, which are immutable, made of base fragments or of the key index of an SSTable, and
//! the search for keys in them. A run is believed for a fragment only where the base version has
//! that fragment with the very files of which the run was made; everything else of it is ignored.
//! So neither a compaction by Lance nor any other commit can make an answer wrong, and without
//! the folder everything works as before. Entries of deleted rows stay: whoever asks looks at the
//! deletion vector.
//! Does not own: who makes runs and when (`table`), or who asks (`lookup`, `compaction`).

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
pub use key_columns::{column_batches, fragment_of, has_keys_of, key_files, key_ids};
pub use levels::{RunSize, due};
pub use merge::{Merged, merge};
pub use open::{IndexMatches, IndexRuns, OpenRun, RecordIndex};

/// What a record index has, or what a look at it found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordIndexReport {
    /// Version of the base table that it was compared with.
    pub base_version: u64,
    /// Runs that some fragment of that version is looked up in.
    pub runs: usize,
    /// Runs that no fragment needs.
    pub stale_runs: usize,
    /// Entries of all of them.
    pub entries: u64,
    /// Bytes of their pages.
    pub bytes: u64,
    /// Fragments of the base table that are covered.
    pub fragments_covered: usize,
    /// Fragments whose rows are looked up without it.
    pub fragments_uncovered: usize,
    /// What is wrong, a sentence each; none where every entry is right and none is missing.
    pub damage: Vec<String>,
}
