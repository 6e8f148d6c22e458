//! The write wing: how rows get into a table.
//!
//! Owns: jobs, the calls that write without a job that the caller holds, bulk writes, and the turns
//! of claims within this process.
//! Does not own: the put path of a shard, which is the core's, or reading rows (`read`).
//!
//! Reading order: `turns`, `job`, `route`, `bulk`.
//!
//! `maintain` and this wing need each other: a job holds its background maintenance, and
//! maintenance flushes foreign shards by short-lived jobs.

mod bulk;
mod job;
mod route;
mod turns;

pub use bulk::{BulkWriter, CommitResult, StagedSsTable};
pub use job::{Job, LiveJob};
pub use route::WriteResult;
pub(super) use turns::ShardTurns;
