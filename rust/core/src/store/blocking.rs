//! Whether the thread that polls may wait for a disk.
//!
//! Owns: the mark of such a thread. Short calls of the file system are then made where they are
//! asked for; handing one to another thread and back costs ten times the call.
//! Does not own: which threads are marked. A worker of a runtime must not be; who calls from
//! outside and waits for the result anyway may.

use std::cell::Cell;

thread_local! {
    static MAY_WAIT: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work`, as a rule the poll of a future, on a thread that may wait for a disk.
pub fn waiting_here<T>(work: impl FnOnce() -> T) -> T {
    let _txn = Txn(MAY_WAIT.replace(true));
    work()
}

/// Whether the calling thread may wait for a disk.
#[must_use]
pub fn may_wait_here() -> bool {
    MAY_WAIT.get()
}

/// Puts back what was there before, whatever ends the work.
struct Txn(bool);

impl Drop for Txn {
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
