//! Stack space for the engine's part of a call.
//!
//! Owns: the stack space of a plan, and another thread where the stack of the caller's thread is
//! too small.
//! Does not own: the work, or the limit on the depth of a condition (the engine's `plan`).

use std::io;
use std::panic::resume_unwind;
use std::thread;

/// The stack size of a thread that polls the engine.
pub const STACK: usize = 8 << 20;
/// Stack space for the deepest condition: a chain of 1,000 operators takes between 3 and 4 MiB.
const ENOUGH: usize = 5 << 20;

/// Runs `call` on this thread, or on a new thread where too little of this thread's stack is left.
/// Programs may give their threads small stacks (Python's `threading.stack_size`), and an overflow
/// ends the process.
///
/// # Errors
/// The system's error where no thread can be started. `call` was not run then.
pub fn with_room<T: Send>(call: impl FnOnce() -> T + Send) -> io::Result<T> {
    if stacker::remaining_stack().is_none_or(|left| left >= ENOUGH) {
        return Ok(call());
    }
    thread::scope(|scope| {
        let roomy = thread::Builder::new().name("lancemem".to_owned()).stack_size(STACK);
        Ok(roomy.spawn_scoped(scope, call)?.join().unwrap_or_else(|panic| resume_unwind(panic)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The thread on which a call ran that was made on a stack of this size, and the thread that
    /// made it.
    fn threads_of(stack: usize) -> (thread::ThreadId, thread::ThreadId) {
        let calls = || {
            let ran_on = with_room(|| thread::current().id()).expect("a thread");
            (ran_on, thread::current().id())
        };
        let caller = thread::Builder::new().stack_size(stack).spawn(calls).expect("a thread");
        caller.join().expect("no panic")
    }

    #[test]
    fn a_call_stays_on_a_thread_with_room_and_leaves_one_without() {
        let (ran_on, caller) = threads_of(STACK);
        assert_eq!(ran_on, caller);
        let (ran_on, caller) = threads_of(1 << 20);
        assert_ne!(ran_on, caller);
    }
}
