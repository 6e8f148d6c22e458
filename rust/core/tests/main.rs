//! Stories of the shard layer, in one binary: what a writer promises and what survives a fault.
//!
//! Owns: the list of chapters. Each chapter opens a shard on storage that fails on demand.
//! Does not own: the faults, batches and the reader model, which are the testkit's.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

mod appends_here;
mod backpressure;
mod damage;
mod damage_everywhere;
mod durability;
mod events;
mod fencing;
mod fixture;
mod flush_failures;
mod flushing;
mod grouping;
mod known_bugs;
mod lost_answers;
mod merged_rows;
mod model;
mod recovery;
mod repair;
mod routing;
mod ruled_rows;
mod schema_change;
mod snapshots;
mod takeover;
mod turns;
mod txns;
mod write_modes;
