//! The face of the engine: what a binding of any language needs around a call.
//!
//! Owns: one Tokio runtime per process, handles that a fork cannot use, the wait for a call, stack
//! space, panics as errors, copies of Arrow data in memory that Rust owns, the queue of log lines,
//! the words of options, and Prometheus text.
//! Does not own: the language. A binding implements [`Host`], and translates [`Error`]. The global
//! allocator is the choice of the library that is loaded.

pub mod array_copy;
pub mod array_size;
mod call;
mod error;
mod fork_guard;
pub mod log_lines;
pub mod options;
mod panics;
mod prometheus;
mod random;
mod runtime;
mod stack;

pub use call::{Host, run};
pub use error::{Error, Result};
pub use fork_guard::ForkGuard;
pub use panics::panicked;
pub use prometheus::prometheus;
pub use runtime::runtime;
pub use stack::with_room;
