//! Threads that are in a call while the interpreter is finalized.
//!
//! Owns: letting go of the GIL (`detached`), the exit handler, and the hook that stops a thread which
//! Python ends.
//! Does not own: how a call waits (`runtime`), or what is shut down: nothing is, the process ends.
//!
//! Once it is finalized, `CPython` before 3.14 ends every other thread that asks for the GIL, with
//! `pthread_exit`. On glibc that unwinds the thread's frames, and where these are of Rust the process
//! aborts. It happens below every call into Python too, which may let go of the GIL at any time:
//! pyarrow's, a producer's of a stream, a log handler's. So a thread that has called this module has a
//! cleanup handler that `pthread_exit` runs before it unwinds anything, and that never returns: the
//! thread stops where it is, as threads do in `CPython` 3.14, until the process is gone.
//!
//! Safety model: the handler's record is of glibc's layout, lies on the heap, where glibc takes it for
//! the innermost one, and lives until its thread has ended. Other C libraries do not have the function
//! that takes it, and do not unwind either.

#![expect(unsafe_code, reason = "a cleanup handler of pthread_exit; the safety model is above")]

use std::ffi::{c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use pyo3::prelude::*;

/// Who ends the interpreter, once it has begun to.
static ENDING: OnceLock<ThreadId> = OnceLock::new();
/// Threads that are in a call and will ask for the GIL.
static WITHOUT_GIL: AtomicUsize = AtomicUsize::new(0);
/// How long the end of the interpreter waits for those.
const LAST_TURNS: Duration = Duration::from_millis(200);
/// How long a thread leaves the rest of the end to itself: some program's exit handler may wait for it.
const LAST_WAIT: Duration = Duration::from_secs(5);

/// Runs `call` without the GIL. A thread that is still there when the interpreter ends does not ask
/// for it again at once.
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

/// Whether another thread ends the interpreter.
pub fn is_ending_elsewhere() -> bool {
    ENDING.get().is_some_and(|main| *main != thread::current().id())
}

/// Asks to be told when the interpreter ends.
pub fn watch_interpreter(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let told = wrap_pyfunction!(interpreter_ends, module)?;
    module.py().import("atexit")?.call_method1("register", (told,)).map(|_| ())
}

/// Before the interpreter takes the GIL from all other threads for good.
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

/// Has the calling thread stop, not unwind, should Python end it from now on. To be called before
/// anything that may let go of the GIL: a call into Python, too.
pub fn outlive_interpreter() {
    // A thread whose own values are gone is beyond its last call.
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

/// glibc's functions; none where the C library is another one.
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
        // Not in the thread's own memory: that lies above its frames, of which glibc unwinds those below
        // a record first.
        let cleanup = Box::into_raw(Box::new(cleanup));
        // SAFETY: the record stays where it is until it is taken off the list.
        unsafe { push(cleanup, stop, null_mut()) };
        Some(Self { cleanup, pop })
    }
}

impl Drop for Hook {
    fn drop(&mut self) {
        // SAFETY: this thread pushed it, and has ended but for values like this one; the record came
        // from a box, and nothing refers to it once it is off the list.
        unsafe {
            (self.pop)(self.cleanup, 0);
            drop(Box::from_raw(self.cleanup));
        }
    }
}

/// What `pthread_exit` runs first.
unsafe extern "C" fn stop(_: *mut c_void) {
    while ENDING.get().is_some() {
        thread::park();
    }
}
