//! Handles that a fork of the process cannot use.
//!
//! Owns: [`ForkGuard`], which refuses another process, and leaks its handle there.
//! Does not own: the runtime of a process (`runtime`), or statics that a fork makes anew
//! (`lancemem::PerProcess`).

use std::process;
use std::sync::Arc;

use crate::error::{Error, Result};

/// A handle that only the process which created it may use or drop.
///
/// A forked process does not have the threads of its parent, and locks that they held stay locked
/// for ever. A call would wait for them, and dropping the handle might too. The forked process
/// leaks it.
#[derive(Debug)]
pub struct ForkGuard<T> {
    handle: Arc<T>,
    process: u32,
}

impl<T> ForkGuard<T> {
    /// A guard of `handle` for the calling process.
    pub fn new(handle: impl Into<Arc<T>>) -> Self {
        Self { handle: handle.into(), process: process::id() }
    }

    /// The handle, for values that need neither threads nor locks: names, schemas.
    #[inline]
    pub fn peek(&self) -> &T {
        &self.handle
    }

    /// Whether this process created the handle.
    #[inline]
    pub fn is_here(&self) -> bool {
        self.process == process::id()
    }

    /// The handle, for a call; `what` is its name in the error of a forked process.
    ///
    /// # Errors
    /// [`Error::Forked`] in another process than the handle's.
    #[inline]
    pub fn get(&self, what: &str) -> Result<&Arc<T>> {
        if self.is_here() {
            return Ok(&self.handle);
        }
        Err(Error::Forked { what: what.to_owned(), opened: self.process, now: process::id() })
    }
}

/// Another handle of the same, which belongs to the same process.
impl<T> Clone for ForkGuard<T> {
    fn clone(&self) -> Self {
        Self { handle: self.handle.clone(), process: self.process }
    }
}

impl<T> Drop for ForkGuard<T> {
    fn drop(&mut self) {
        if !self.is_here() {
            #[expect(clippy::mem_forget, reason = "a leaked reference: no owner is the last")]
            std::mem::forget(self.handle.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_that_created_a_handle_uses_and_drops_it() {
        let handle = Arc::new(7);
        let guard = ForkGuard::new(handle.clone());
        assert_eq!(guard.get("job").map(|handle| **handle).ok(), Some(7));
        drop(guard);
        assert_eq!(Arc::strong_count(&handle), 1);
    }

    #[test]
    fn another_process_sees_a_handle_and_neither_uses_nor_drops_it() {
        let handle = Arc::new(7);
        let parent = process::id() + 1;
        let guard = ForkGuard { handle: handle.clone(), process: parent };
        assert_eq!(*guard.peek(), 7);
        assert!(!guard.is_here());
        let error = guard.get("job").expect_err("a handle of another process");
        assert_eq!(
            error.to_string(),
            format!(
                "this job was opened in process {parent} and cannot be used in its fork {}; open \
                 it again here",
                process::id()
            )
        );
        drop(guard);
        assert_eq!(Arc::strong_count(&handle), 2, "the reference is leaked");
    }
}
