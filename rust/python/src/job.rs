//! `Job`: the writer of one shard.
//!
//! Owns: the verbs of a running job in Python, usable from several threads at once.
//! Does not own: the job's life beyond the object: dropping it ends the job.

use std::sync::Arc;

use pyo3::prelude::*;

use crate::input;
use crate::runtime::{Origin, run, runtime};
use crate::values::{Acknowledged, JobStats};

/// The one writer of a shard while it runs.
#[pyclass(frozen, module = "lancemem")]
pub struct Job {
    inner: Arc<lancemem::Job>,
    origin: Origin,
}

impl Job {
    pub fn new(inner: Arc<lancemem::Job>) -> Self {
        Self { inner, origin: Origin::here() }
    }

    pub fn inner(&self) -> PyResult<Arc<lancemem::Job>> {
        self.origin.check("job")?;
        Ok(self.inner.clone())
    }
}

#[pymethods]
impl Job {
    #[getter]
    fn shard_id(&self) -> String {
        self.inner.shard_id().to_string()
    }

    fn put(&self, py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<Acknowledged> {
        let job = self.inner()?;
        let batches = input::batches(data)?;
        run(py, async move {
            let mut done = Acknowledged { rows: 0, durable: true };
            for batch in &batches {
                let acknowledged = job.put(batch).await?;
                done.rows += acknowledged.rows;
                done.durable &= acknowledged.durable;
            }
            Ok(done)
        })
    }

    fn delete(&self, py: Python<'_>, keys: &Bound<'_, PyAny>) -> PyResult<Acknowledged> {
        let job = self.inner()?;
        let batches = input::batches(keys)?;
        run(py, async move {
            let mut done = Acknowledged { rows: 0, durable: true };
            for batch in &batches {
                let acknowledged = job.delete(batch).await?;
                done.rows += acknowledged.rows;
                done.durable &= acknowledged.durable;
            }
            Ok(done)
        })
    }

    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        let job = self.inner()?;
        run(py, async move { job.flush().await })
    }

    #[pyo3(signature = (*, flush=false))]
    fn close(&self, py: Python<'_>, flush: bool) -> PyResult<()> {
        let job = self.inner()?;
        run(py, async move { job.close(flush).await })
    }

    fn stats(&self) -> PyResult<JobStats> {
        Ok(self.inner()?.stats().into())
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (error_type=None, error=None, traceback=None))]
    fn __exit__(
        &self,
        py: Python<'_>,
        error_type: Option<&Bound<'_, PyAny>>,
        error: Option<&Bound<'_, PyAny>>,
        traceback: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<bool> {
        let _ = (error, traceback);
        let closed = self.close(py, false);
        // The error that left the block says more than the close that it caused to fail.
        if error_type.is_none() {
            closed?;
        }
        Ok(false)
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        // The last handle lets its tasks finish on the runtime that they run on; after a fork
        // that runtime is gone, and dropping its tasks' parts here would wait for it.
        if self.origin.check("job").is_err() || runtime().is_err() {
            std::mem::forget(self.inner.clone());
        }
    }
}
