//! `Scan`: a lazy read.
//!
//! Owns: the arguments of a scan, and the forms of a result: stream, batches, table, frames, count, plan text.
//! Does not own: the read. Every call takes a new snapshot, unless the scan is of a snapshot.

use arrow_array::RecordBatch;
use futures::TryStreamExt;
use futures::stream::BoxStream;
use lancemem::ScanOptions;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyString};
use tokio::sync::Mutex;

use crate::arguments::{Given, ScanColumns, ScanOrder};
use crate::docs::docstring;
use crate::filter::condition;
use crate::output::{
    ArrowStream, collected, exported, polars_frame, pyarrow_batch, pyarrow_schema,
};
use crate::runtime::{Here, run_on, runtime};

/// What a scan of a table and a scan of a writer are asked for.
pub struct ScanArguments<'a, 'py> {
    pub columns: Option<ScanColumns>,
    pub filter: Option<&'a Bound<'py, PyAny>>,
    pub limit: Option<Given<usize>>,
    pub offset: Given<usize>,
    pub order_by: Option<ScanOrder>,
}

impl ScanArguments<'_, '_> {
    /// The same for the engine, which reads `table`.
    pub fn options(self, py: Python<'_>, table: &lancemem::Table) -> PyResult<ScanOptions> {
        let is_bound = self.filter.is_some_and(|filter| !filter.is_instance_of::<PyString>());
        if is_bound {
            // An expression is bound to columns here, and it may name a column that was just added.
            run_on(py, table.uri(), table.latest_base())?;
        }
        let filter = condition(self.filter, &table.schema())?;
        let (columns, expressions) = ScanColumns::split(self.columns);
        Ok(ScanOptions::default()
            .with_columns(columns)
            .with_expressions(expressions)
            .with_filter(filter)
            .with_offset(self.offset.named("offset")?)
            .with_limit(self.limit.map(|limit| limit.named("limit")).transpose()?)
            .with_order_by(ScanOrder::keys(self.order_by)))
    }
}

/// A read that has not begun.
#[pyclass(frozen, subclass, module = "lancemem")]
pub struct Scan {
    inner: Here<lancemem::Scan>,
    /// The URI of its table.
    uri: String,
}

impl Scan {
    /// `uri` is the URI of the table.
    pub fn new(inner: lancemem::Scan, uri: &str) -> Self {
        Self { inner: Here::new(inner), uri: uri.to_owned() }
    }

    fn inner(&self) -> PyResult<&lancemem::Scan> {
        self.inner.get("scan").map(AsRef::as_ref)
    }

    pub fn count(&self, py: Python<'_>) -> PyResult<usize> {
        run_on(py, &self.uri, self.inner()?.count_rows())
    }

    fn stream(&self, py: Python<'_>) -> PyResult<ArrowStream> {
        let (schema, batches) = run_on(py, &self.uri, self.inner()?.batches())?;
        Ok(ArrowStream::new(schema, batches, runtime()?))
    }

    fn table<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        collected(py, &self.uri, self.inner()?.collect())
    }

    fn begin(&self, py: Python<'_>) -> PyResult<BatchIterator> {
        let (_, batches) = run_on(py, &self.uri, self.inner()?.batches())?;
        Ok(BatchIterator::new(batches, &self.uri))
    }
}

#[pymethods]
impl Scan {
    /// Another handle of the same, for a subclass.
    #[new]
    fn of_handle(handle: &Bound<'_, Self>) -> Self {
        let Self { inner, uri } = handle.get();
        Self { inner: inner.clone(), uri: uri.clone() }
    }

    #[doc = docstring!("Scan.schema")]
    #[getter]
    fn schema<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        pyarrow_schema(py, &run_on(py, &self.uri, self.inner()?.schema())?)
    }

    #[doc = docstring!("Scan.to_reader")]
    fn to_reader(&self, py: Python<'_>) -> PyResult<ArrowStream> {
        self.stream(py)
    }

    #[doc = docstring!("Scan.to_batches")]
    fn to_batches(&self, py: Python<'_>) -> PyResult<BatchIterator> {
        self.begin(py)
    }

    fn __iter__(&self, py: Python<'_>) -> PyResult<BatchIterator> {
        self.begin(py)
    }

    #[doc = docstring!("Scan.to_table")]
    fn to_table<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.table(py)
    }

    #[doc = docstring!("Scan.to_pandas")]
    #[pyo3(signature = (**options))]
    fn to_pandas<'py>(
        &self,
        py: Python<'py>,
        options: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.table(py)?.call_method("to_pandas", (), options)
    }

    #[doc = docstring!("Scan.to_polars")]
    fn to_polars<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        polars_frame(py, || self.table(py))
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        slf: &Bound<'py, Self>,
        requested_schema: Option<Bound<'py, PyCapsule>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        exported(py, slf.get().stream(py)?, requested_schema)
    }

    #[doc = docstring!("Scan.count_rows")]
    fn count_rows(&self, py: Python<'_>) -> PyResult<usize> {
        self.count(py)
    }

    #[doc = docstring!("Scan.explain")]
    #[pyo3(signature = (analyze=false))]
    fn explain(&self, py: Python<'_>, analyze: bool) -> PyResult<String> {
        if analyze {
            return run_on(py, &self.uri, self.inner()?.explain_analyze());
        }
        run_on(py, &self.uri, self.inner()?.explain())
    }
}

/// The batches of one read, each fetched when it is asked for.
#[pyclass(frozen, module = "lancemem")]
pub struct BatchIterator {
    /// `None` once the last batch was returned or the read failed.
    batches: Here<Mutex<Option<Batches>>>,
    uri: String,
}

type Batches = BoxStream<'static, lancemem::Result<RecordBatch>>;

impl BatchIterator {
    /// `uri` is the URI of the table.
    pub fn new(batches: Batches, uri: &str) -> Self {
        Self { batches: Here::new(Mutex::new(Some(batches))), uri: uri.to_owned() }
    }
}

async fn next(batches: &Mutex<Option<Batches>>) -> lancemem::Result<Option<RecordBatch>> {
    let mut batches = batches.lock().await;
    let Some(stream) = batches.as_mut() else { return Ok(None) };
    let next = stream.try_next().await;
    if !matches!(next, Ok(Some(_))) {
        *batches = None;
    }
    next
}

#[pymethods]
impl BatchIterator {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let batch = run_on(py, &self.uri, next(self.batches.get("scan")?))?;
        batch.map(|batch| pyarrow_batch(py, batch)).transpose()
    }
}
