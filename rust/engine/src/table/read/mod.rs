//! The read wing: what one query reads of a table.
//!
//! Owns: taking a snapshot, and scans and lookups of it.
//! Does not own: the shards and base versions that a snapshot consists of (`catalog`), the plan of
//! a scan (`crate::plan`) or the search for a key (`crate::lookup`).
//!
//! Reading order: `gather`, `token`, `again`, `scan`, `get`.

mod again;
mod gather;
mod get;
mod scan;
mod token;

pub(super) use gather::{Purpose, Reading, ShardParts, Sources, TailCache};
pub use scan::{Scan, ScanOptions};
