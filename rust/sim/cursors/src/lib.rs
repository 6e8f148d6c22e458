//! The modules `types` and `memtable` of the core, as they are, compiled for loom.
//!
//! Owns: nothing. Does not own: the modules, which are the core's.

#[path = "../../../core/src/mutants.rs"]
#[macro_use]
mod mutants;

#[path = "../../../core/src/types/mod.rs"]
pub mod types;

#[path = "../../../core/src/memtable/mod.rs"]
pub mod memtable;
