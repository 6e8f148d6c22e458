//! The random generator of a thread after a fork.
//!
//! Owns: reseeding it once in each thread of each process. A fork copies the generator from which
//! Lance draws file names, so two children would write different files under one name.
//! Does not own: lancemem's own names, which come from the operating system.

use std::cell::Cell;
use std::io;

use crate::error::Result;

thread_local! {
    /// The process in which this thread's random generator was seeded.
    static SEEDED: Cell<u32> = const { Cell::new(0) };
}

/// Reseeds the calling thread's random generator once after a fork.
///
/// # Errors
/// The system's error where it gives no random numbers.
pub fn reseed_after_fork() -> Result<()> {
    let pid = std::process::id();
    if SEEDED.get() == pid {
        return Ok(());
    }
    #[expect(clippy::disallowed_methods, reason = "of Lance's names, which are random anyway")]
    let mut generator = rand::rng();
    generator.reseed().map_err(|error| {
        io::Error::other(format!("the system gives no random numbers: {error}"))
    })?;
    SEEDED.set(pid);
    Ok(())
}
