//! `Scan`: a lazy read.
//!
//! Owns: the ways in which rows leave: stream, table, count, plan text.
//! Does not own: the read; every call pins a cut of its own.

use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::output::{ArrowStream, pyarrow_table};
use crate::runtime::{Origin, run, runtime};

/// A read that has not begun.
#[pyclass(frozen, module = "lancemem")]
pub struct Scan {
    inner: lancemem::Scan,
    origin: Origin,
}

impl Scan {
    pub fn new(inner: lancemem::Scan) -> Self {
        Self { inner, origin: Origin::here() }
    }

    fn stream(&self, py: Python<'_>) -> PyResult<ArrowStream> {
        self.origin.check("scan")?;
        let stream = run(py, self.inner.stream())?;
        Ok(ArrowStream::new(stream.schema(), stream, runtime()?))
    }
}

#[pymethods]
impl Scan {
    fn to_reader(&self, py: Python<'_>) -> PyResult<ArrowStream> {
        self.stream(py)
    }

    fn to_table<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.origin.check("scan")?;
        // Read to its end here: an error that crosses Arrow's C stream loses its type.
        let (schema, batches) = run(py, self.inner.collect())?;
        let batches = futures::stream::iter(batches.into_iter().map(Ok::<_, lancemem::Error>));
        pyarrow_table(py, ArrowStream::new(schema, batches, runtime()?))
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        slf: &Bound<'py, Self>,
        requested_schema: Option<Bound<'py, PyCapsule>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let stream = Bound::new(py, slf.get().stream(py)?)?;
        stream.call_method1("__arrow_c_stream__", (requested_schema,))
    }

    fn count_rows(&self, py: Python<'_>) -> PyResult<usize> {
        self.origin.check("scan")?;
        run(py, self.inner.count_rows())
    }

    fn explain(&self, py: Python<'_>) -> PyResult<String> {
        self.origin.check("scan")?;
        run(py, self.inner.explain())
    }
}
