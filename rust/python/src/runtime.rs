//! The runtime of this process, and only of this one.
//!
//! Owns: threads, started at the first call that needs them, never at import.
//! Does not own: handles. Each remembers its process through [`Origin`] and refuses another.
//!
//! PySpark forks its workers. Threads do not cross a fork, so a runtime that did is unusable:
//! the child leaks it and starts its own.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use lancemem::waiting_here;
use pyo3::prelude::*;
use tokio::runtime::{Builder, Runtime};

use crate::errors::{ForkedHandleError, to_py};
use crate::logging;

static RUNTIME: Mutex<Option<(u32, Arc<Runtime>)>> = Mutex::new(None);

/// Threads of the runtime; `LANCEMEM_THREADS` overrides the number of processors.
fn threads() -> usize {
    let configured = std::env::var("LANCEMEM_THREADS").ok().and_then(|number| number.parse().ok());
    let available = || std::thread::available_parallelism().map_or(2, usize::from);
    configured.filter(|threads| *threads > 0).unwrap_or_else(available)
}

/// The runtime of the calling process.
pub fn runtime() -> PyResult<Arc<Runtime>> {
    let mut slot = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((pid, runtime)) = slot.as_ref()
        && *pid == std::process::id()
    {
        return Ok(runtime.clone());
    }
    let started = Builder::new_multi_thread()
        .worker_threads(threads())
        .thread_stack_size(8 << 20)
        .thread_name("lancemem")
        .enable_all()
        .build()?;
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
    let mut work = Box::pin(work);
    let mut done = py.detach(|| poll_once(&runtime, work.as_mut()));
    loop {
        logging::hand_over(py)?;
        if let Some(done) = done {
            return done.map_err(|error| to_py(&error));
        }
        py.check_signals()?;
        let turn = async { tokio::time::timeout(TURN, work.as_mut()).await.ok() };
        done = py.detach(|| waiting_here(|| runtime.block_on(turn)));
    }
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

/// The process that a handle was made in.
#[derive(Clone, Copy, Debug)]
pub struct Origin(u32);

impl Origin {
    pub fn here() -> Self {
        Self(std::process::id())
    }

    /// Whether this is that process.
    pub fn is_here(self) -> bool {
        self.0 == std::process::id()
    }

    /// Refuses a handle that crossed a fork: its threads stayed behind, a call would wait for
    /// ever.
    pub fn check(self, what: &str) -> PyResult<()> {
        if self.is_here() {
            return Ok(());
        }
        let now = std::process::id();
        Err(ForkedHandleError::new_err(format!(
            "this {what} was opened in process {} and cannot be used in its fork {now}; open it \
             again here",
            self.0
        )))
    }
}
