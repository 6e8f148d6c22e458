//! `InputFeed`: the events of a table before any compaction moves them.
//!
//! Owns: the forms of a feed's events as Python methods, and the arguments of a feed.
//! Does not own: how events are read, or the arguments that levels of change feeds share, which
//! `lancemem.change_feed` tells apart.

use lancemem::{InputOptions, InputPosition};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};

use crate::arguments::ColumnNames;
use crate::docs::docstring;
use crate::errors::to_py;
use crate::filter::condition;
use crate::output::{ArrowStream, collected, exported, polars_frame, pyarrow_schema};
use crate::runtime::{Here, run_on, runtime};
use crate::scan::BatchIterator;
use crate::table::Table;

#[doc = docstring!("InputFeed")]
#[pyclass(frozen, module = "lancemem")]
pub struct InputFeed {
    inner: Here<lancemem::InputFeed>,
    /// The URI of its table.
    uri: String,
}

impl InputFeed {
    fn inner(&self) -> PyResult<&lancemem::InputFeed> {
        self.inner.get("change feed").map(AsRef::as_ref)
    }

    fn stream(&self) -> PyResult<ArrowStream> {
        let feed = self.inner()?;
        Ok(ArrowStream::new(feed.schema(), feed.batches(), runtime()?))
    }

    fn table<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        collected(py, &self.uri, self.inner()?.collect())
    }
}

#[pymethods]
impl InputFeed {
    #[doc = docstring!("InputFeed.since")]
    #[getter]
    fn since(&self) -> Option<String> {
        self.inner.peek().since().map(ToString::to_string)
    }

    #[doc = docstring!("InputFeed.until")]
    #[getter]
    fn until(&self) -> String {
        self.inner.peek().until().to_string()
    }

    #[doc = docstring!("InputFeed.schema")]
    #[getter]
    fn schema<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        pyarrow_schema(py, &self.inner.peek().schema())
    }

    #[doc = docstring!("InputFeed.to_reader")]
    fn to_reader<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let readers = py.import("pyarrow")?.getattr("RecordBatchReader")?;
        readers.call_method1("from_stream", (self.stream()?,))
    }

    #[doc = docstring!("InputFeed.to_batches")]
    fn to_batches(&self) -> PyResult<BatchIterator> {
        Ok(BatchIterator::new(self.inner()?.batches(), &self.uri))
    }

    fn __iter__(&self) -> PyResult<BatchIterator> {
        self.to_batches()
    }

    #[doc = docstring!("InputFeed.to_table")]
    fn to_table<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.table(py)
    }

    #[doc = docstring!("InputFeed.to_pandas")]
    #[pyo3(signature = (**options))]
    fn to_pandas<'py>(
        &self,
        py: Python<'py>,
        options: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.table(py)?.call_method("to_pandas", (), options)
    }

    #[doc = docstring!("InputFeed.to_polars")]
    fn to_polars<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        polars_frame(py, || self.table(py))
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        slf: &Bound<'py, Self>,
        requested_schema: Option<Bound<'py, PyCapsule>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        exported(slf.py(), slf.get().stream()?, requested_schema)
    }

    fn __repr__(&self) -> String {
        let since = self.since().map_or_else(|| "None".to_owned(), |since| format!("\"{since}\""));
        format!("InputFeed(\"{}\", since={since}, until=\"{}\")", self.uri, self.until())
    }
}

#[doc = docstring!("input_change_feed")]
#[pyfunction]
#[pyo3(signature = (table, since=None, until=None, columns=None, filter=None))]
fn input_change_feed(
    py: Python<'_>,
    table: &Bound<'_, Table>,
    since: Option<&str>,
    until: Option<&str>,
    columns: Option<ColumnNames>,
    filter: Option<&Bound<'_, PyAny>>,
) -> PyResult<InputFeed> {
    let table = table.get().inner()?;
    let position = |text: Option<&str>| text.map(str::parse::<InputPosition>).transpose();
    let since = position(since).map_err(|error| to_py(&error))?;
    let until = position(until).map_err(|error| to_py(&error))?;
    let options = InputOptions::default()
        .with_columns(ColumnNames::of(columns))
        .with_filter(condition(filter, &table.schema())?);
    let feed = table.input_changes(since.as_ref(), until.as_ref(), &options);
    let inner = Here::new(run_on(py, table.uri(), feed)?);
    Ok(InputFeed { inner, uri: table.uri().to_owned() })
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<InputFeed>()?;
    module.add_function(wrap_pyfunction!(input_change_feed, module)?)
}
