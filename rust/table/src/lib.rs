//! Fast upserts and consistent reads on Lance tables.
//!
//! Owns: SSTables as Lance datasets, the cut that a query pins, the choice of the newest row,
//! the DataFusion plan, compaction into the base table, the table that ties them together, and a
//! running job's rows for other processes.
//! Does not own: the write path of a shard (`lancemem-core`) or Python.
//!
//! Reading order: [`table`] for the way in, then `sstable`, `view`, `merge`, `plan`, `compact`;
//! `serve` last.

#![forbid(unsafe_code)]
#![recursion_limit = "256"]

pub mod compact;
mod errors;
pub mod merge;
pub mod plan;
pub mod serve;
pub mod sstable;
pub mod table;
pub mod view;

pub use compact::CompactionResult;
pub use lancemem_core::format::Sharding;
pub use lancemem_core::shard::{
    Acknowledged, JobStats, WalDamage, WalFinding, WalReport, WriteMode,
};
pub use lancemem_core::store::scrub;
pub use lancemem_core::types::{
    Error, ErrorKind, Generation, KeyIndexKind, Result, ShardId, WalPosition, WriterConfig,
    WriterEpoch,
};
pub use serve::{Endpoint, RemoteJob, ServeOptions, Tls, Token};
pub use table::{Job, LiveJob, Location, Scan, ScanOptions, Shard, Table, WriteResult};
pub use view::Consistency;
