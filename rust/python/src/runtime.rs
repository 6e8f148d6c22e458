//! The runtime of this process, and only of this one.
//!
//! Owns: threads, started at the first call that needs them, never at import; how a call waits for
//! them beside signals and log lines.
//! Does not own: handles. Each is a [`Here`], which refuses another process. Nor the end of the interpreter
//! (`finalization`).
//!
//! PySpark forks its workers. Threads do not cross a fork, so a runtime that did is unusable:
//! the child leaks it and starts its own.

use std::any::Any;
use std::cell::Cell;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use futures::FutureExt;
use lancemem::{Error, FEW_THREADS, NO_THREAD, waiting_here};
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use tokio::runtime::{self, Runtime};
use tokio::sync::Notify;

use crate::errors::{ForkedHandleError, InvalidInputError, RetryableError, of_table, to_py};
use crate::finalization::{detached, is_ending_elsewhere, outlive_interpreter};
use crate::logging;
use crate::stack::{STACK, with_room};

static RUNTIME: Mutex<Option<(u32, Arc<Runtime>)>> = Mutex::new(None);

/// Overrides the number of processors as that of the threads.
const THREADS: &str = "LANCEMEM_THREADS";
/// More wait for each other rather than for a processor.
const MOST_THREADS: usize = 1_024;

/// How many threads the runtime has.
fn threads() -> PyResult<usize> {
    let Some(wanted) = std::env::var_os(THREADS) else {
        return Ok(thread::available_parallelism().map_or(2, usize::from));
    };
    let number = wanted.to_str().and_then(|number| number.trim().parse().ok());
    number.filter(|number| (1..=MOST_THREADS).contains(number)).ok_or_else(|| {
        InvalidInputError::new_err(format!(
            "{THREADS} is \"{}\"; set it to a number of threads from 1 to {MOST_THREADS}",
            wanted.to_string_lossy()
        ))
    })
}

/// Whether the system gives this process so many threads: a runtime that gets too few of them panics, and
/// the end of it waits for the others.
fn prove_threads(number: usize) -> PyResult<()> {
    let gate = Mutex::new(());
    thread::scope(|scope| {
        let _shut = gate.lock();
        for had in 0..number {
            let waits = || drop(gate.lock());
            let started = thread::Builder::new().stack_size(STACK).spawn_scoped(scope, waits);
            started.map_err(|error| {
                RetryableError::new_err(format!(
                    "the system gives this process {had} of {number} threads: {error}; raise the limit \
                     of the process, or set {THREADS} to fewer"
                ))
            })?;
        }
        Ok(())
    })
}

thread_local! {
    /// The process that this thread's random numbers are of.
    static SEEDED: Cell<u32> = const { Cell::new(0) };
}

/// Gives the calling thread random numbers that are none of its parent's. A fork copies the generator that Lance
/// draws file names from, so that two children would write two files under one name.
fn seed_anew() -> PyResult<()> {
    let pid = std::process::id();
    if SEEDED.get() == pid {
        return Ok(());
    }
    #[expect(clippy::disallowed_methods, reason = "of Lance's names, which are random anyway")]
    let mut generator = rand::rng();
    generator.reseed().map_err(|error| {
        PyOSError::new_err(format!("the system gives no random numbers: {error}"))
    })?;
    SEEDED.set(pid);
    Ok(())
}

/// The runtime of the calling process.
pub fn runtime() -> PyResult<Arc<Runtime>> {
    seed_anew()?;
    let mut slot = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((pid, runtime)) = slot.as_ref()
        && *pid == std::process::id()
    {
        return Ok(runtime.clone());
    }
    let threads = threads()?;
    // One more reads files, and Lance decodes on two.
    prove_threads(threads + 3)?;
    let started = runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .thread_stack_size(STACK)
        .thread_name("lancemem")
        .enable_all()
        .build()?;
    // Lance makes its own at the first call that needs them, and where it gets none, every later call
    // spins for ever.
    started.block_on(lancemem::start_lance_threads()).map_err(|error| to_py(&error))?;
    let started = Arc::new(started);
    // Dropping the parent's runtime would wait for threads that are not here.
    #[expect(clippy::mem_forget, reason = "leaked on purpose, once a fork")]
    std::mem::forget(slot.replace((std::process::id(), started.clone())));
    Ok(started)
}

/// How long a call waits before it looks for Ctrl-C and hands log lines on.
const TURN: Duration = Duration::from_millis(100);

/// Runs `work` to its end without the GIL. The calling thread waits for it, so it may as well wait
/// for a local disk.
///
/// A wait is interruptible: a signal whose Python handler raises, such as Ctrl-C, ends it. The
/// work is then cancelled where it stands, so a put may or may not have been written.
pub fn run<T: Send>(
    py: Python<'_>,
    work: impl Future<Output = lancemem::Result<T>> + Send,
) -> PyResult<T> {
    let runtime = runtime()?;
    let mut work = Box::pin(AssertUnwindSafe(work).catch_unwind().map(without_panic));
    let mut done = here(py, || poll_once(&runtime, work.as_mut()))?;
    loop {
        logging::hand_over(py)?;
        if let Some(done) = done {
            return done.map_err(|error| to_py(&error));
        }
        done = here(py, || waiting_here(|| runtime.block_on(turn(work.as_mut()))))?;
        if done.is_none() {
            done = check_signals(py, &runtime, work.as_mut())?;
        }
    }
}

/// [`run`] of work on the table at `uri`, which an error then names.
pub fn run_on<T: Send>(
    py: Python<'_>,
    uri: &str,
    work: impl Future<Output = lancemem::Result<T>> + Send,
) -> PyResult<T> {
    run(py, work).map_err(|error| of_table(py, error, uri))
}

/// A part of the work without the GIL, on the calling thread if that has the stack for it.
fn here<T: Send>(py: Python<'_>, part: impl FnOnce() -> T + Send) -> PyResult<T> {
    detached(py, || with_room(part)).map_err(|error| {
        RetryableError::new_err(format!(
            "the stack of this thread is too small, and the system gives no other thread: {error}; \
             raise the limit of the process, or threading.stack_size"
        ))
    })
}

/// The outcome of work that may have panicked.
fn without_panic<T>(done: thread::Result<lancemem::Result<T>>) -> lancemem::Result<T> {
    done.unwrap_or_else(|panic| Err(panicked(&*panic)))
}

/// The error of a panic, as lance's readers have for some damaged files.
pub fn panicked(panic: &(dyn Any + Send)) -> Error {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
    if text.contains(NO_THREAD) {
        return Error::storage("starting a thread", FEW_THREADS);
    }
    Error::Internal(format!("panic: {text}; if the call was reading a file, it may be damaged"))
}

/// A turn of `work`: all of it where the interpreter ends, or it would keep what it holds.
async fn turn<T>(mut work: Pin<&mut impl Future<Output = T>>) -> Option<T> {
    loop {
        let done = tokio::time::timeout(TURN, work.as_mut()).await.ok();
        if done.is_some() || !is_ending_elsewhere() {
            return done;
        }
    }
}

/// Runs the handlers of signals that have come, and `work` beside them: a handler may call into this
/// module again, and wait for what `work` holds.
fn check_signals<T: Send>(
    py: Python<'_>,
    runtime: &Runtime,
    work: Pin<&mut (impl Future<Output = T> + Send)>,
) -> PyResult<Option<T>> {
    let stop = Notify::new();
    let beside = async {
        tokio::select! {
            biased;
            () = stop.notified() => None,
            done = work => Some(done),
        }
    };
    thread::scope(|scope| {
        let beside = thread::Builder::new()
            .name("lancemem".to_owned())
            .stack_size(STACK)
            .spawn_scoped(scope, || waiting_here(|| runtime.block_on(beside)));
        let handled = py.check_signals();
        stop.notify_one();
        // Without a thread to spare it goes on in its next turn.
        let done = beside.map(|beside| detached(py, || beside.join()));
        handled?;
        match done {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(panic)) => std::panic::resume_unwind(panic),
            Err(_) => Ok(None),
        }
    })
}

/// The result of work that needs no waiting, as most puts do not: then the runtime need not be
/// entered for good.
fn poll_once<T>(runtime: &Runtime, work: Pin<&mut impl Future<Output = T>>) -> Option<T> {
    let _context = runtime.enter();
    let mut unwoken = Context::from_waker(Waker::noop());
    match waiting_here(|| work.poll(&mut unwoken)) {
        Poll::Ready(done) => Some(done),
        Poll::Pending => None,
    }
}

/// A handle, which only the process that made it may use, or drop.
///
/// A fork has none of its threads, and locks that they held stay locked for ever: a call would wait
/// for them, and so might the end of what the handle holds. The fork leaks it.
pub struct Here<T> {
    handle: Arc<T>,
    process: u32,
}

impl<T> Here<T> {
    pub fn new(handle: impl Into<Arc<T>>) -> Self {
        Self { handle: handle.into(), process: std::process::id() }
    }

    /// What needs no thread: names, schemas.
    pub fn peek(&self) -> &T {
        &self.handle
    }

    /// Whether this is the process that made it.
    pub fn is_here(&self) -> bool {
        self.process == std::process::id()
    }

    /// The handle, for a call; `what` is its name for a caller in a fork.
    pub fn get(&self, what: &str) -> PyResult<&Arc<T>> {
        outlive_interpreter();
        if self.is_here() {
            return Ok(&self.handle);
        }
        let now = std::process::id();
        Err(ForkedHandleError::new_err(format!(
            "this {what} was opened in process {} and cannot be used in its fork {now}; open it \
             again here",
            self.process
        )))
    }
}

impl<T> Drop for Here<T> {
    fn drop(&mut self) {
        if !self.is_here() {
            #[expect(clippy::mem_forget, reason = "one reference too many: nobody is the last")]
            std::mem::forget(self.handle.clone());
        }
    }
}
