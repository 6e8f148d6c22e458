//! The write path of lancemem: rows in memory, the write-ahead log, and the shard that owns both.
//!
//! Owns: counters and errors (`types`), bytes on disk (`format`), how the events of a key
//! become one row (`merge`), object storage (`store`), the MemTable (`memtable`), the log (`wal`) and
//! the single writer of a shard (`shard`).
//! Does not own: Lance datasets, query plans or Python. A flushed SSTable is written through the
//! seam [`shard::SsTableSink`], so this crate builds and tests without `lance` or `datafusion`.
//!
//! Reading order: the modules below, top to bottom; each uses only those above it.

#![forbid(unsafe_code)]

#[doc(hidden)]
#[macro_use]
pub mod mutants;

pub mod types;

pub mod format;

pub mod merge;

pub mod store;

pub mod memtable;

pub mod wal;

pub mod shard;

pub use types::{Error, Result};
