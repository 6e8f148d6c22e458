//! Threads that are in a call while the interpreter is finalized.
//!
//! Owns: releasing the GIL (`detached`), the exit handler, and the hook that stops a thread which
//! Python ends.
//! Does not own: how a call waits (`runtime`). Nothing is shut down here: the process ends.
//!
//! During finalization, `CPython` before 3.14 ends every other thread that requests the GIL with
//! `pthread_exit`. On glibc `pthread_exit` unwinds the frames of the thread, and unwinding through
//! Rust frames aborts the process. Any call into Python can get there, because it may release the
//! GIL at any time: calls of pyarrow, of the producer of a stream, of a log handler. So each thread
//! that has called this module has a cleanup handler. `pthread_exit` runs it before it unwinds, and
//! the handler never returns: the thread stops until the process has ended, as threads do in
//! `CPython` 3.14.
//!
//! Safety model: the handler's record has glibc's layout. It is on the heap, where glibc takes it
//! for the innermost record, and lives until its thread has ended. Other C libraries neither have
//! the function that registers it nor unwind.

#![expect(unsafe_code, reason = "a cleanup handler of pthread_exit; the safety model is above")]

use std::ffi::{c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use pyo3::prelude::*;

/// The thread that finalizes the interpreter, once finalization has begun.
static ENDING: OnceLock<ThreadId> = OnceLock::new();
/// Threads that are in a call and will request the GIL.
static WITHOUT_GIL: AtomicUsize = AtomicUsize::new(0);
/// How long finalization waits for those threads.
const LAST_TURNS: Duration = Duration::from_millis(200);
/// How long a thread waits during finalization before it requests the GIL: an exit handler of the
/// program may wait for the thread.
const LAST_WAIT: Duration = Duration::from_secs(5);

/// Runs `call` without the GIL. During finalization the thread waits before it requests the GIL
/// again.
pub fn detached<T: Send>(py: Python<'_>, call: impl FnOnce() -> T + Send) -> T {
    outlive_interpreter();
    WITHOUT_GIL.fetch_add(1, Ordering::SeqCst);
    #[expect(clippy::disallowed_methods, reason = "the one place that does")]
    let done = py.detach(|| {
        let done = call();
        if is_ending_elsewhere() {
            WITHOUT_GIL.fetch_sub(1, Ordering::SeqCst);
            thread::park_timeout(LAST_WAIT);
            WITHOUT_GIL.fetch_add(1, Ordering::SeqCst);
        }
        done
    });
    WITHOUT_GIL.fetch_sub(1, Ordering::SeqCst);
    done
}

/// Whether another thread finalizes the interpreter.
pub fn is_ending_elsewhere() -> bool {
    ENDING.get().is_some_and(|main| *main != thread::current().id())
}

/// Registers the exit handler.
pub fn watch_interpreter(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let handler = wrap_pyfunction!(interpreter_ends, module)?;
    module.py().import("atexit")?.call_method1("register", (handler,)).map(|_| ())
}

/// The exit handler. It runs before finalization takes the GIL from all other threads for good.
#[pyfunction]
fn interpreter_ends(py: Python<'_>) {
    let _ = ENDING.set(thread::current().id());
    let begun = Instant::now();
    #[expect(clippy::disallowed_methods, reason = "this thread gets the GIL back")]
    py.detach(|| {
        while WITHOUT_GIL.load(Ordering::SeqCst) > 0 && begun.elapsed() < LAST_TURNS {
            thread::park_timeout(Duration::from_millis(1));
        }
    });
}

/// Makes the calling thread stop instead of unwind, if Python ends it later. Must be called before
/// everything that may release the GIL, which includes each call into Python.
pub fn outlive_interpreter() {
    // Fails only in a thread that has dropped its thread-locals; such a thread makes no more calls.
    let _ = HOOK.try_with(|_| ());
}

thread_local! {
    static HOOK: Option<Hook> = Hook::new();
}

/// A cleanup handler, as glibc's `_pthread_cleanup_push` links it into a list of the thread.
#[repr(C)]
struct Cleanup {
    routine: Option<Routine>,
    argument: *mut c_void,
    cancel_type: c_int,
    previous: *mut Self,
}

type Routine = unsafe extern "C" fn(*mut c_void);
type Push = unsafe extern "C" fn(*mut Cleanup, Routine, *mut c_void);
type Pop = unsafe extern "C" fn(*mut Cleanup, c_int);

unsafe extern "C" {
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
}

/// glibc's functions; `None` with another C library.
fn functions() -> Option<(Push, Pop)> {
    static FOUND: OnceLock<Option<(Push, Pop)>> = OnceLock::new();
    if !cfg!(all(target_os = "linux", target_env = "gnu")) {
        return None;
    }
    *FOUND.get_or_init(|| {
        // SAFETY: a null handle asks all libraries of the process, and the names end with a zero.
        let (push, pop) = unsafe {
            let push = dlsym(null_mut(), c"_pthread_cleanup_push".as_ptr());
            (push, dlsym(null_mut(), c"_pthread_cleanup_pop".as_ptr()))
        };
        if push.is_null() || pop.is_null() {
            return None;
        }
        // SAFETY: the functions of these names have these types in every glibc.
        Some(unsafe {
            (
                std::mem::transmute::<*mut c_void, Push>(push),
                std::mem::transmute::<*mut c_void, Pop>(pop),
            )
        })
    })
}

/// The handler of one thread.
struct Hook {
    cleanup: *mut Cleanup,
    pop: Pop,
}

impl Hook {
    fn new() -> Option<Self> {
        let (push, pop) = functions()?;
        let cleanup =
            Cleanup { routine: None, argument: null_mut(), cancel_type: 0, previous: null_mut() };
        // Not in a thread-local: thread-locals are above the frames of the thread, and glibc
        // unwinds the frames below a record before it runs the record.
        let cleanup = Box::into_raw(Box::new(cleanup));
        // SAFETY: the record stays where it is until it is taken off the list.
        unsafe { push(cleanup, stop, null_mut()) };
        Some(Self { cleanup, pop })
    }
}

impl Drop for Hook {
    fn drop(&mut self) {
        // SAFETY: this thread pushed the record, and now drops its thread-locals; the record came
        // from a box, and nothing refers to it once it is off the list.
        unsafe {
            (self.pop)(self.cleanup, 0);
            drop(Box::from_raw(self.cleanup));
        }
    }
}

/// The cleanup handler, which `pthread_exit` runs first.
unsafe extern "C" fn stop(_: *mut c_void) {
    while ENDING.get().is_some() {
        thread::park();
    }
}
