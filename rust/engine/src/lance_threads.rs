//! Lance's own decode threads.
//!
//! Owns: starting them before a call needs them.
//! Does not own: their number, or the threads of lancemem's runtime.

use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};

use lance_core::utils::tokio::spawn_cpu;
use lancemem_core::types::{Error, Result};

use crate::errors::FEW_THREADS;

/// Starts the threads on which Lance decodes. Lance itself starts them at the first call that needs
/// them. If the system gives it no thread then, every later call waits for them for ever.
///
/// # Errors
/// A passing fault where the system gives this process no more threads. After it, reads of Lance's
/// files in this process never end.
pub async fn start_lance_threads() -> Result<()> {
    let few = || Error::storage("starting threads", FEW_THREADS);
    let nothing = || Ok::<(), Infallible>(());
    let started = catch_unwind(AssertUnwindSafe(|| spawn_cpu(nothing))).map_err(|_| few())?;
    started.await.map_err(|never| match never {})
}
