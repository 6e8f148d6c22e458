//! The write wing: how rows get into a table.
//!
//! Owns: jobs, the record of those that run in this process, the writer of a whole table, the calls
//! that write without a job that the caller holds and the jobs that these leave open for a moment,
//! bulk writes, and their retries.
//! Does not own: the put path of a shard, which is the core's, the record of claims (`catalog`), or
//! reading rows (`read`).
//!
//! Reading order: `turns`, `job`, `running`, `lingering`, `route`, `log_flush`, `writer`, `bulk`.
//!
//! What the other wings call: [`Job::open`], [`flush_log`], [`running_snapshot`], [`synced_through`]
//! and [`decision_garbage`].
//!
//! `maintain` and this wing need each other: a job holds its background maintenance, and an aborted
//! bulk write removes its files as a collection does; maintenance flushes logs by a job.

mod bulk;
mod flushed_rows;
mod job;
mod lingering;
mod log_flush;
mod route;
mod running;
mod turns;
mod writer;

pub(super) use bulk::decision_garbage;
pub use bulk::{BulkWriter, CommitResult, StagedSsTable};
pub use job::Job;
pub(super) use job::synced_through;
pub(super) use log_flush::{FlushClaims, flush_log};
pub(super) use route::newest_is_released;
pub use route::{TableWriteOptions, WriteResult};
pub(super) use running::running_snapshot;
pub use writer::{TableWriter, WriterStats};
