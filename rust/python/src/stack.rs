//! Room on the stack for the engine's part of a call.
//!
//! Owns: how much a plan may need, and a thread that has it where the caller's has not.
//! Does not own: what runs there, or the bound on how deep a condition may be (`table`).

use std::io;
use std::panic::resume_unwind;
use std::thread;

/// Of a thread that polls the engine.
pub const STACK: usize = 8 << 20;
/// What the deepest condition takes: between 3 and 4 MiB where it is a chain of 1,000 operators.
const ENOUGH: usize = 5 << 20;

/// Does `call` on this thread, or on one made for it where this one's stack has too little left:
/// programs may give their threads less than what the system does (`threading.stack_size`), and an
/// overflow ends the process.
///
/// # Errors
/// The system's, where it has no thread to give; nothing was done then.
pub fn with_room<T: Send>(call: impl FnOnce() -> T + Send) -> io::Result<T> {
    if stacker::remaining_stack().is_none_or(|left| left >= ENOUGH) {
        return Ok(call());
    }
    thread::scope(|scope| {
        let roomy = thread::Builder::new().name("lancemem".to_owned()).stack_size(STACK);
        Ok(roomy.spawn_scoped(scope, call)?.join().unwrap_or_else(|panic| resume_unwind(panic)))
    })
}
