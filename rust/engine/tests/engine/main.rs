//! Stories of a whole table, in one binary: what reads return, and what a compaction moves.
//!
//! Owns: the list of chapters. Each chapter creates a table in a temporary folder and calls the
//! public API of the crate alone.
//! Does not own: the write path of a shard (`rust/core/tests`), batches (the testkit), or the calls
//! from Python.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]
#![recursion_limit = "256"]

mod changes;
mod compactions;
mod fixture;
mod flushed_changes;
mod flushes;
mod graves;
mod indexes;
mod input_changes;
mod lingering;
mod lookups;
mod merge_functions;
mod merge_rules;
mod model;
mod parts;
mod queries;
mod schema_changes;
mod searches;
mod stored_changes;
mod time_travel;
mod writers;
