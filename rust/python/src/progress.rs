//! The stages of a long call, reported to a Python function while the call runs.
//!
//! Owns: which call on which thread is followed, when its stages are reported, and what an
//! exception of the function does.
//! Does not own: the stages (`lancemem::Stages`), the events and bars of Python
//! (`lancemem.progress`).
//!
//! The function runs on the thread of the call, with the GIL, while the work goes on beside it. An
//! exception of it is reported as unraisable, and the function is not called again: the work and its
//! result stay. An exception that ends a program, such as Ctrl-C, cancels the work.

use std::cell::RefCell;
use std::future::Future;
use std::sync::Arc;

use lancemem::{StageCount, Stages};
use pyo3::exceptions::PyException;
use pyo3::intern;
use pyo3::prelude::*;

thread_local! {
    /// What the next call of this thread reports to.
    static FOLLOWER: RefCell<Option<Py<PyAny>>> = const { RefCell::new(None) };
}

/// Makes `call`, whose stages are reported to `progress`: what a Python program passed as
/// `progress=`.
///
/// # Errors
/// Those of `call`; an input error where `progress` is neither a function nor a bool.
pub fn following<T>(
    py: Python<'_>,
    progress: Option<Bound<'_, PyAny>>,
    call: impl FnOnce() -> PyResult<T>,
) -> PyResult<T> {
    let Some(progress) = progress else { return call() };
    let made = py.import("lancemem.progress")?.call_method1("follower", (progress,))?;
    if made.is_none() {
        return call();
    }
    let before = FOLLOWER.replace(Some(made.clone().unbind()));
    let done = call();
    FOLLOWER.set(before);
    // A bar ends also where the call fails.
    let closed = made.call_method0(intern!(py, "close"));
    match closed {
        Err(error) if error.is_instance_of::<PyException>(py) => error.write_unraisable(py, None),
        closed => drop(closed?),
    }
    done
}

/// The stages of one call, and the function that they are reported to.
pub struct Followed {
    stages: Arc<Stages>,
    follower: RefCell<Option<Py<PyAny>>>,
}

impl Followed {
    /// What this thread's call reports to; `None` for nearly all calls. Calls that the function
    /// makes itself are not followed.
    pub fn take() -> Option<Self> {
        let follower = FOLLOWER.take()?;
        Some(Self { stages: Arc::default(), follower: RefCell::new(Some(follower)) })
    }

    /// Gives the function back to the next call of this thread.
    pub fn give_back(self) {
        FOLLOWER.set(self.follower.take());
    }

    /// `work`, with its stages counted.
    pub fn count<F: Future>(&self, work: F) -> impl Future<Output = F::Output> + use<F> {
        self.stages.clone().of(work)
    }

    /// Reports what moved since the last report.
    ///
    /// # Errors
    /// An exception that ends a program.
    pub fn report(&self, py: Python<'_>) -> PyResult<()> {
        let follower = self.follower.borrow().as_ref().map(|it| it.clone_ref(py));
        let Some(follower) = follower else { return Ok(()) };
        for StageCount { name, done, total } in self.stages.poll() {
            match follower.call1(py, (name.name(), done, total, name.unit())) {
                Err(error) if error.is_instance_of::<PyException>(py) => {
                    self.follower.take();
                    error.write_unraisable(py, Some(follower.bind(py)));
                    return Ok(());
                }
                reported => drop(reported?),
            }
        }
        Ok(())
    }
}
