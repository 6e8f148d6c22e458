//! The maintain wing: how a table stays small and whole.
//!
//! Owns: compaction, garbage collection, the record index, deletion vectors, repair, and the
//! background task that runs them beside a job.
//! Does not own: the rules (`crate::compaction`, `crate::garbage`, `crate::record_index`,
//! `crate::deletion_vectors`).
//!
//! Reading order: `compact`, `garbage`, `record_index`, `deletion_vectors`, `background`, `repair`,
//! `relist`.
//!
//! `write` and this wing need each other: a job holds its background maintenance, and maintenance
//! flushes foreign shards by short-lived jobs.

mod background;
mod compact;
mod deletion_vectors;
mod garbage;
mod record_index;
mod relist;
mod repair;

pub use background::MaintenanceStats;
pub(super) use background::{Maintenance, MaintenanceState};
pub(super) use compact::Moved;
pub use deletion_vectors::DeletionVectorResult;
pub(super) use garbage::Remover;
pub use relist::RelistReport;
pub use repair::SsTableReport;
