//! The maintain wing: how a table stays small and whole.
//!
//! Owns: the flush of logs, compaction, the indexes of the base table, garbage collection, the
//! record index, deletion vectors, stored changes, repair, and the background task that runs them
//! beside a job.
//! Does not own: the rules (`crate::compaction`, `crate::garbage`, `crate::record_index`,
//! `crate::deletion_vectors`), or the caches that it empties (`read`).
//!
//! Reading order: `flush`, `compact`, `foreign`, `indexes`, `coverage`, `changelog`,
//! `flushed_changes`, `garbage`, `graves`, `record_index`, `merged_rows`, `deletion_vectors`, `repair`,
//! `relist`, `background`.
//!
//! What the other wings call: [`Maintenance`] of a job, and [`Remover`] of an aborted bulk write.
//!
//! `write` and this wing need each other: a job holds its background maintenance, and an aborted
//! bulk write removes its files as a collection does; maintenance flushes logs by a job.

mod background;
mod changelog;
mod compact;
mod coverage;
mod deletion_vectors;
mod flush;
mod flushed_changes;
mod foreign;
mod garbage;
mod graves;
mod indexes;
mod merged_rows;
mod record_index;
mod relist;
mod repair;

pub use background::MaintenanceStats;
pub(super) use background::{Maintenance, MaintenanceState};
pub(super) use changelog::PublishedState;
pub(super) use coverage::IndexNotes;
pub use deletion_vectors::DeletionVectorResult;
pub use flush::{FlushResult, FlushedLog, SkippedLog};
pub(super) use garbage::Remover;
pub use indexes::{
    MaxTokenLength, OptimizedIndex, TableIndexInfo, TableIndexOptions, TableIndexType,
    TextIndexOptions, VectorIndexOptions,
};
pub use relist::RelistReport;
pub use repair::SsTableReport;
