//! A deterministic simulation of lancemem's core, and a model of its protocol.
//!
//! Owns: whole lives of a shard on one thread, with the clock, chance and storage of a seed.
//! Does not own: stories of single faults (`rust/core/tests`), real disks, processes or Lance.
//!
//! Reading order: `rows`, `oracle`, `settings`, `storage`, `world`, `held`, `process`, `actors`,
//! `collector`, `sleeper`, `damage`, `life`.

#![forbid(unsafe_code)]

pub mod chance;

mod rows;

mod oracle;

mod settings;

mod storage;

mod sink;

mod world;

mod held;

mod process;

mod actors;

mod collector;

mod sleeper;

mod damage;

mod life;

pub mod model;

pub use life::{Life, live, note_panics};
pub use world::Counts;
