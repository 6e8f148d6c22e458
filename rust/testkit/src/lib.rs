//! What lancemem's tests share: storage that fails on demand, batches, a sink and a reader model.
//!
//! Owns: faults, damage, the invariants of decoders, gates, batch builders, the in-memory SSTable
//! sink and columns, the merge over a base table in memory, and which log entries a collector
//! removes.
//! Does not own: stories; those stand in the `tests/` folder of the crate that they are about.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "only tests call this crate")]

pub mod batches;
pub mod collector;
pub mod columns;
pub mod damage;
pub mod decoders;
pub mod faults;
pub mod gate;
pub mod reader;
pub mod sink;

pub use batches::{KeyShape, NULL};
pub use columns::TableColumns;
pub use faults::{Effect, Fault, FaultyStore, Request};
pub use gate::Gate;
pub use reader::{Base, Rows, merge};
pub use sink::MemorySink;
