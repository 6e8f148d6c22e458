//! Threads that Lance makes for itself.
//!
//! Owns: that they are there before a call needs them.
//! Does not own: how many, or the threads of the module.

use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};

use lance_core::utils::tokio::spawn_cpu;
use lancemem_core::types::{Error, Result};

use crate::errors::FEW_THREADS;

/// Starts the threads on which Lance decodes. It makes them at the first call that needs them, and where the
/// system gave it none then, each later one waits for them for ever.
///
/// # Errors
/// A passing fault where the system gives this process no more threads; what reads Lance's files in this
/// process then never ends.
pub async fn start_lance_threads() -> Result<()> {
    let few = || Error::storage("starting threads", FEW_THREADS);
    let nothing = || Ok::<(), Infallible>(());
    let started = catch_unwind(AssertUnwindSafe(|| spawn_cpu(nothing))).map_err(|_| few())?;
    started.await.map_err(|never| match never {})
}
