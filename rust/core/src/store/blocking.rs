//! Whether the thread that polls may wait for a disk.
//!
//! Owns: the flag of such a thread. There short file-system calls run inline; handing one to
//! another thread and back costs ten times the call.
//! Does not own: which threads are flagged. A worker of a runtime must not be; a thread outside of
//! it that waits for the result anyway may.

use std::cell::Cell;

thread_local! {
    static MAY_WAIT: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work`, as a rule the poll of a future, on a thread that may wait for a disk.
pub fn waiting_here<T>(work: impl FnOnce() -> T) -> T {
    let _restore = Restore(MAY_WAIT.replace(true));
    work()
}

/// Whether the calling thread may wait for a disk.
#[must_use]
pub fn may_wait_here() -> bool {
    MAY_WAIT.get()
}

/// Restores the former flag, also when the work panics.
struct Restore(bool);

impl Drop for Restore {
    fn drop(&mut self) {
        MAY_WAIT.set(self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_may_wait_for_as_long_as_its_work_runs() {
        assert!(!may_wait_here());
        waiting_here(|| {
            assert!(waiting_here(may_wait_here));
            assert!(may_wait_here(), "the inner work has ended, the outer one has not");
            assert!(!std::thread::spawn(may_wait_here).join().unwrap(), "another thread");
        });
        let panicked = std::panic::catch_unwind(|| waiting_here(|| panic!("on purpose")));
        assert!(panicked.is_err() && !may_wait_here());
    }
}
