//! A value that each process has for itself, however it came to be.
//!
//! Owns: that a forked child gets a new value. The inherited one may be a lock that another thread
//! of the parent held, or a count that no thread of the child gives back.
//! Does not own: handles, which refuse another process.

use std::process;
use std::sync::OnceLock;

/// A static of this process alone: see the module.
#[derive(Debug)]
pub struct PerProcess<T> {
    new: fn() -> T,
    /// The values of this process and of those that it was forked from.
    first: OnceLock<Box<Of<T>>>,
}

#[derive(Debug)]
struct Of<T> {
    pid: u32,
    value: T,
    /// The value of a forked child, in the child's memory.
    next: OnceLock<Box<Of<T>>>,
}

impl<T> PerProcess<T> {
    /// A value that `new` makes in each process that asks.
    pub const fn new(new: fn() -> T) -> Self {
        Self { new, first: OnceLock::new() }
    }

    /// The value of the calling process.
    pub fn get(&self) -> &T {
        self.of(process::id())
    }

    fn of(&self, pid: u32) -> &T {
        let mut slot = &self.first;
        loop {
            let of = slot
                .get_or_init(|| Box::new(Of { pid, value: (self.new)(), next: OnceLock::new() }));
            if of.pid == pid {
                return &of.value;
            }
            slot = &of.next;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn each_process_has_a_value_of_its_own_and_keeps_it() {
        static COUNT: PerProcess<AtomicU64> = PerProcess::new(AtomicU64::default);
        for (pid, expected) in [(1, 0), (1, 1), (2, 0), (1, 2), (2, 1), (3, 0)] {
            assert_eq!(COUNT.of(pid).fetch_add(1, Ordering::Relaxed), expected, "process {pid}");
        }
    }
}
