//! `FlushedFeed`: the changes of a table's flushes, and their consumers.
//!
//! Owns: the forms of a feed's changes as Python methods, and the arguments of a feed.
//! Does not own: how changes are read, or the arguments that levels of change feeds share, which
//! `lancemem.change_feed` tells apart.

use lancemem::FlushedPosition;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};

use crate::arguments::ColumnNames;
use crate::changes::options;
use crate::docs::docstring;
use crate::errors::to_py;
use crate::output::{ArrowStream, collected, exported, polars_frame, pyarrow_schema};
use crate::runtime::{Here, run_on, runtime};
use crate::scan::BatchIterator;
use crate::table::Table;
use crate::values::{ChangeCounts, FlushedConsumer};

#[doc = docstring!("FlushedFeed")]
#[pyclass(frozen, module = "lancemem")]
pub struct FlushedFeed {
    inner: Here<lancemem::FlushedFeed>,
    /// The URI of its table.
    uri: String,
}

impl FlushedFeed {
    fn inner(&self) -> PyResult<&lancemem::FlushedFeed> {
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
impl FlushedFeed {
    #[doc = docstring!("FlushedFeed.since")]
    #[getter]
    fn since(&self) -> Option<String> {
        self.inner.peek().since().map(ToString::to_string)
    }

    #[doc = docstring!("FlushedFeed.until")]
    #[getter]
    fn until(&self) -> String {
        self.inner.peek().until().to_string()
    }

    #[doc = docstring!("FlushedFeed.schema")]
    #[getter]
    fn schema<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        pyarrow_schema(py, &self.inner.peek().schema())
    }

    #[doc = docstring!("FlushedFeed.counts")]
    #[getter]
    fn counts(&self, py: Python<'_>) -> PyResult<ChangeCounts> {
        let counts = run_on(py, &self.uri, self.inner()?.counts())?;
        Ok(counts.into())
    }

    #[doc = docstring!("FlushedFeed.to_reader")]
    fn to_reader<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let readers = py.import("pyarrow")?.getattr("RecordBatchReader")?;
        readers.call_method1("from_stream", (self.stream()?,))
    }

    #[doc = docstring!("FlushedFeed.to_batches")]
    fn to_batches(&self) -> PyResult<BatchIterator> {
        Ok(BatchIterator::new(self.inner()?.batches(), &self.uri))
    }

    fn __iter__(&self) -> PyResult<BatchIterator> {
        self.to_batches()
    }

    #[doc = docstring!("FlushedFeed.to_table")]
    fn to_table<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.table(py)
    }

    #[doc = docstring!("FlushedFeed.to_pandas")]
    #[pyo3(signature = (**options))]
    fn to_pandas<'py>(
        &self,
        py: Python<'py>,
        options: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.table(py)?.call_method("to_pandas", (), options)
    }

    #[doc = docstring!("FlushedFeed.to_polars")]
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
        format!("FlushedFeed(\"{}\", since={since}, until=\"{}\")", self.uri, self.until())
    }
}

#[doc = docstring!("flushed_change_feed")]
#[pyfunction]
#[pyo3(signature = (
    table, since=None, until=None, columns=None, filter=None, *, skip_unchanged=false,
    row_kinds="delta"
))]
#[expect(clippy::too_many_arguments, reason = "they have names in Python")]
fn flushed_change_feed(
    py: Python<'_>,
    table: &Bound<'_, Table>,
    since: Option<&str>,
    until: Option<&str>,
    columns: Option<ColumnNames>,
    filter: Option<&Bound<'_, PyAny>>,
    skip_unchanged: bool,
    row_kinds: &str,
) -> PyResult<FlushedFeed> {
    let table = table.get().inner()?;
    let position = |text: Option<&str>| text.map(str::parse::<FlushedPosition>).transpose();
    let since = position(since).map_err(|error| to_py(&error))?;
    let until = position(until).map_err(|error| to_py(&error))?;
    let options = options(&table, columns, filter, skip_unchanged, row_kinds)?;
    let feed = table.flushed_changes(since.as_ref(), until.as_ref(), &options);
    let inner = Here::new(run_on(py, table.uri(), feed)?);
    Ok(FlushedFeed { inner, uri: table.uri().to_owned() })
}

#[doc = docstring!("flushed_consumers")]
#[pyfunction]
fn flushed_consumers(py: Python<'_>, table: &Bound<'_, Table>) -> PyResult<Vec<FlushedConsumer>> {
    let table = table.get().inner()?;
    let consumers = run_on(py, table.uri(), table.flushed_consumers())?;
    Ok(consumers.into_iter().map(consumer_info).collect())
}

#[doc = docstring!("flushed_consumer")]
#[pyfunction]
fn flushed_consumer(
    py: Python<'_>,
    table: &Bound<'_, Table>,
    name: &str,
) -> PyResult<Option<FlushedConsumer>> {
    let table = table.get().inner()?;
    let consumer = run_on(py, table.uri(), table.flushed_consumer(name))?;
    Ok(consumer.map(consumer_info))
}

#[doc = docstring!("move_flushed_consumer")]
#[pyfunction]
fn move_flushed_consumer(
    py: Python<'_>,
    table: &Bound<'_, Table>,
    name: &str,
    position: &str,
) -> PyResult<()> {
    let table = table.get().inner()?;
    let position = position.parse::<FlushedPosition>().map_err(|error| to_py(&error))?;
    run_on(py, table.uri(), table.move_flushed_consumer(name, &position))
}

#[doc = docstring!("drop_flushed_consumer")]
#[pyfunction]
fn drop_flushed_consumer(py: Python<'_>, table: &Bound<'_, Table>, name: &str) -> PyResult<()> {
    let table = table.get().inner()?;
    run_on(py, table.uri(), table.drop_flushed_consumer(name))
}

fn consumer_info(of: lancemem::FlushedConsumer) -> FlushedConsumer {
    FlushedConsumer { name: of.name, position: of.position.to_string(), timestamp: of.timestamp }
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<FlushedFeed>()?;
    module.add_class::<FlushedConsumer>()?;
    module.add_function(wrap_pyfunction!(flushed_change_feed, module)?)?;
    module.add_function(wrap_pyfunction!(flushed_consumers, module)?)?;
    module.add_function(wrap_pyfunction!(flushed_consumer, module)?)?;
    module.add_function(wrap_pyfunction!(move_flushed_consumer, module)?)?;
    module.add_function(wrap_pyfunction!(drop_flushed_consumer, module)?)
}
