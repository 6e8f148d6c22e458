//! A deterministic simulation of lancemem's core, and a model of its protocol.
//!
//! Owns: whole lives of a shard on one thread, with the clock, chance and storage of a seed.
//! Does not own: stories of single faults (`rust/core/tests`), real disks, processes or Lance.
//!
//! Reading order: `rows`, `rules`, `oracle`, `settings`, `storage`, `sources`, `events`,
//! `applications`, `world`, `held`, `process`, `ruled`, `actors`, `collector`, `sleeper`, `damage`,
//! `life`.

#![forbid(unsafe_code)]

pub mod chance;

mod rows;

mod rules;

mod oracle;

mod settings;

mod storage;

mod sources;

mod events;

mod applications;

mod sink;

mod world;

mod held;

mod process;

mod ruled;

mod actors;

mod collector;

mod sleeper;

mod damage;

mod life;

pub mod model;

pub use life::{Life, live, note_panics};
pub use world::Counts;
