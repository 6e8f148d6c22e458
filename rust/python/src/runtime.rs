//! Calls of the engine from Python.
//!
//! Owns: the interpreter as the host of a call, and [`Here`], whose error in a fork is Python's.
//! Does not own: the runtime of this process, the wait for a call and the fork guard
//! (`lancemem_face`), or the end of the interpreter (`finalization`).

use std::future::Future;
use std::sync::Arc;

use lancemem_face::{Error, ForkGuard, Host};
use pyo3::prelude::*;
use tokio::runtime::Runtime;

use crate::errors::{of_face, of_table};
use crate::finalization::{detached, is_ending_elsewhere, outlive_interpreter};
use crate::logging;
use crate::progress::Followed;

/// The runtime of the calling process.
pub fn runtime() -> PyResult<Arc<Runtime>> {
    lancemem_face::runtime().map_err(of_face)
}

/// The interpreter, on a thread that has the GIL, and what follows its call.
struct Interpreter<'py>(Python<'py>, Option<&'py Followed>);

impl Host for Interpreter<'_> {
    type Error = PyErr;

    fn detached<T: Send>(&self, part: impl FnOnce() -> T + Send) -> T {
        detached(self.0, part)
    }

    fn forward_log_lines(&self) -> PyResult<()> {
        logging::hand_over(self.0)
    }

    fn check_signals(&self) -> PyResult<()> {
        self.0.check_signals()?;
        self.1.map_or(Ok(()), |followed| followed.report(self.0))
    }

    fn is_ending() -> bool {
        is_ending_elsewhere()
    }

    fn error(error: Error) -> PyErr {
        of_face(error)
    }
}

/// Runs `work` to its end without the GIL. The calling thread blocks anyway, so `work` may block it
/// on a local disk.
///
/// The wait is interruptible: a signal whose Python handler raises, such as Ctrl-C, ends it. The
/// work is then cancelled, so a put may or may not have been written.
pub fn run<T: Send>(
    py: Python<'_>,
    work: impl Future<Output = lancemem::Result<T>> + Send,
) -> PyResult<T> {
    logging::follow_level(py)?;
    let Some(followed) = Followed::take() else {
        return lancemem_face::run(&Interpreter(py, None), work);
    };
    let done = lancemem_face::run(&Interpreter(py, Some(&followed)), followed.count(work));
    // Each stage of a call that succeeds is reported, however short the call was.
    let reported = if done.is_ok() { followed.report(py) } else { Ok(()) };
    followed.give_back();
    reported.and(done)
}

/// [`run`] of work on the table at `uri`. Its error names the table.
pub fn run_on<T: Send>(
    py: Python<'_>,
    uri: &str,
    work: impl Future<Output = lancemem::Result<T>> + Send,
) -> PyResult<T> {
    run(py, work).map_err(|error| of_table(py, error, uri))
}

/// A handle that only the process which created it may use or drop.
pub struct Here<T>(ForkGuard<T>);

impl<T> Here<T> {
    pub fn new(handle: impl Into<Arc<T>>) -> Self {
        Self(ForkGuard::new(handle))
    }

    /// The handle, for values that need neither threads nor locks: names, schemas.
    pub fn peek(&self) -> &T {
        self.0.peek()
    }

    /// Whether this process created the handle.
    pub fn is_here(&self) -> bool {
        self.0.is_here()
    }

    /// The handle, for a call; `what` is its name in the error of a forked process.
    pub fn get(&self, what: &str) -> PyResult<&Arc<T>> {
        outlive_interpreter();
        self.0.get(what).map_err(of_face)
    }
}

/// Another handle of the same, which belongs to the same process.
impl<T> Clone for Here<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}
