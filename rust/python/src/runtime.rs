//! The Tokio runtime of this process.
//!
//! Owns: its threads, which are started at the first call that needs them and never at import;
//! waiting for a call while signals and log lines are handled; and [`Here`], a handle that works
//! only in the process that created it.
//! Does not own: the end of the interpreter (`finalization`).
//!
//! PySpark forks its workers. Threads do not survive a fork, so the runtime of the parent is
//! unusable in the child: the child leaks it and starts its own.

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

/// Overrides the number of threads, which by default is the number of processors.
const THREADS: &str = "LANCEMEM_THREADS";
/// The largest number of threads. More would contend with each other.
const MOST_THREADS: usize = 1_024;

/// The number of threads of the runtime.
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

/// Proves that the system gives this process so many threads, by starting them all at once. A
/// runtime that gets too few threads panics, and dropping it then waits for the others.
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
    /// The process in which this thread's random generator was seeded.
    static SEEDED: Cell<u32> = const { Cell::new(0) };
}

/// Reseeds the calling thread's random generator once after a fork. A fork copies the generator
/// from which Lance draws file names, so two children would write different files under one name.
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
    // Beside the workers, one more thread reads files, and Lance decodes on two.
    prove_threads(threads + 3)?;
    let started = runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .thread_stack_size(STACK)
        .thread_name("lancemem")
        .enable_all()
        .build()?;
    // Lance starts its own threads at the first call that needs them. If it gets none, every later
    // call waits for ever.
    started.block_on(lancemem::start_lance_threads()).map_err(|error| to_py(&error))?;
    let started = Arc::new(started);
    // Dropping the parent's runtime would wait for threads that do not exist in this process.
    #[expect(clippy::mem_forget, reason = "leaked on purpose, once a fork")]
    std::mem::forget(slot.replace((std::process::id(), started.clone())));
    Ok(started)
}

/// How often a waiting call looks for signals, such as Ctrl-C, and forwards log lines.
const TURN: Duration = Duration::from_millis(100);

/// Runs `work` to its end without the GIL. The calling thread blocks anyway, so `work` may block it
/// on a local disk.
///
/// The wait is interruptible: a signal whose Python handler raises, such as Ctrl-C, ends it. The
/// work is then cancelled, so a put may or may not have been written.
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

/// [`run`] of work on the table at `uri`. Its error names the table.
pub fn run_on<T: Send>(
    py: Python<'_>,
    uri: &str,
    work: impl Future<Output = lancemem::Result<T>> + Send,
) -> PyResult<T> {
    run(py, work).map_err(|error| of_table(py, error, uri))
}

/// Runs a part of the work without the GIL, on the calling thread if its stack is large enough.
fn here<T: Send>(py: Python<'_>, part: impl FnOnce() -> T + Send) -> PyResult<T> {
    detached(py, || with_room(part)).map_err(|error| {
        RetryableError::new_err(format!(
            "the stack of this thread is too small, and the system gives no other thread: {error}; \
             raise the limit of the process, or threading.stack_size"
        ))
    })
}

/// The result of work; a panic becomes an error.
fn without_panic<T>(done: thread::Result<lancemem::Result<T>>) -> lancemem::Result<T> {
    done.unwrap_or_else(|panic| Err(panicked(&*panic)))
}

/// The error of a panic. Lance's readers panic on some damaged files.
pub fn panicked(panic: &(dyn Any + Send)) -> Error {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
    if text.contains(NO_THREAD) {
        return Error::storage("starting a thread", FEW_THREADS);
    }
    Error::Internal(format!("panic: {text}; if the call was reading a file, it may be damaged"))
}

/// Polls `work` for one turn; during finalization to its end, because it would otherwise keep its
/// locks.
async fn turn<T>(mut work: Pin<&mut impl Future<Output = T>>) -> Option<T> {
    loop {
        let done = tokio::time::timeout(TURN, work.as_mut()).await.ok();
        if done.is_some() || !is_ending_elsewhere() {
            return done;
        }
    }
}

/// Runs the handlers of pending signals, and `work` concurrently: a handler may call into this
/// module again, and wait for a lock of `work`.
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
        // If no thread could be started, `work` continues in its next turn.
        let done = beside.map(|beside| detached(py, || beside.join()));
        handled?;
        match done {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(panic)) => std::panic::resume_unwind(panic),
            Err(_) => Ok(None),
        }
    })
}

/// Polls `work` once. Most puts are ready at the first poll and need no blocking wait on the
/// runtime.
fn poll_once<T>(runtime: &Runtime, work: Pin<&mut impl Future<Output = T>>) -> Option<T> {
    let _context = runtime.enter();
    let mut unwoken = Context::from_waker(Waker::noop());
    match waiting_here(|| work.poll(&mut unwoken)) {
        Poll::Ready(done) => Some(done),
        Poll::Pending => None,
    }
}

/// A handle that only the process which created it may use or drop.
///
/// A forked process does not have the threads of its parent, and locks that they held stay locked
/// for ever. A call would wait for them, and dropping the handle might too. The forked process
/// leaks it.
pub struct Here<T> {
    handle: Arc<T>,
    process: u32,
}

impl<T> Here<T> {
    pub fn new(handle: impl Into<Arc<T>>) -> Self {
        Self { handle: handle.into(), process: std::process::id() }
    }

    /// The handle, for values that need neither threads nor locks: names, schemas.
    pub fn peek(&self) -> &T {
        &self.handle
    }

    /// Whether this process created the handle.
    pub fn is_here(&self) -> bool {
        self.process == std::process::id()
    }

    /// The handle, for a call; `what` is its name in the error of a forked process.
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

/// Another handle of the same, which belongs to the same process.
impl<T> Clone for Here<T> {
    fn clone(&self) -> Self {
        Self { handle: self.handle.clone(), process: self.process }
    }
}

impl<T> Drop for Here<T> {
    fn drop(&mut self) {
        if !self.is_here() {
            #[expect(clippy::mem_forget, reason = "a leaked reference: no owner is the last")]
            std::mem::forget(self.handle.clone());
        }
    }
}
