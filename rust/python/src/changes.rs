//! `ChangeFeed`, and the consumers of changes.
//!
//! Owns: the forms of a feed's rows as Python methods, and the arguments of a feed.
//! Does not own: how changes are derived, or the classes that Python programs use, which
//! `lancemem.change_feed` and `lancemem.change_consumer` make of these.

use std::time::SystemTime;

use lancemem::{ChangeOptions, ChangePart, ChangeSlice, Moment, RowKinds};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};

use crate::arguments::{ColumnNames, Given, wrong};
use crate::docs::docstring;
use crate::errors::to_py;
use crate::filter::condition;
use crate::output::{ArrowStream, collected, exported, polars_frame, pyarrow_schema};
use crate::runtime::{Here, run_on, runtime};
use crate::scan::BatchIterator;
use crate::table::Table;
use crate::values::{ChangeCounts, ChangeVersion, ConsumerInfo};

/// A slice in Python: version before, version, whether rows may have moved, and the fragments whose
/// rows are images before and after.
type Slice = (Option<u64>, u64, bool, Vec<u32>, Vec<u32>);

/// A version, or a time.
struct StateOfTable(Result<Moment, String>);

impl StateOfTable {
    fn named(given: Option<Self>, name: &str) -> PyResult<Option<Moment>> {
        given.map(|state| Given(state.0).named(name)).transpose()
    }
}

impl FromPyObject<'_, '_> for StateOfTable {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        if let Ok(time) = given.extract::<SystemTime>() {
            return Ok(Self(Ok(Moment::Time(time))));
        }
        let version = Given::<u64>::extract(given);
        let version = version.or_else(|_| wrong(given, "a version or a datetime"))?;
        Ok(Self(version.0.map(Moment::Version)))
    }
}

/// The changes between two versions of the base table, not yet read.
#[pyclass(frozen, subclass, module = "lancemem")]
pub struct ChangeFeed {
    inner: Here<lancemem::ChangeFeed>,
    /// The URI of its table.
    uri: String,
}

impl ChangeFeed {
    fn new(inner: lancemem::ChangeFeed, uri: &str) -> Self {
        Self { inner: Here::new(inner), uri: uri.to_owned() }
    }

    fn inner(&self) -> PyResult<&lancemem::ChangeFeed> {
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
impl ChangeFeed {
    /// Another handle of the same, for a subclass.
    #[new]
    fn of_handle(handle: &Bound<'_, Self>) -> Self {
        let Self { inner, uri } = handle.get();
        Self { inner: inner.clone(), uri: uri.clone() }
    }

    #[doc = docstring!("ChangeFeed.since")]
    #[getter]
    fn since(&self) -> Option<u64> {
        self.inner.peek().since()
    }

    #[doc = docstring!("ChangeFeed.until")]
    #[getter]
    fn until(&self) -> u64 {
        self.inner.peek().until()
    }

    #[doc = docstring!("ChangeFeed.schema")]
    #[getter]
    fn schema<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        pyarrow_schema(py, &self.inner.peek().schema())
    }

    #[doc = docstring!("ChangeFeed.versions")]
    #[getter]
    fn versions(&self) -> Vec<ChangeVersion> {
        let version = |it: lancemem::ChangeVersion| ChangeVersion {
            version: it.version,
            timestamp: it.timestamp,
            operation: it.operation,
            is_stored: it.is_stored,
        };
        self.inner.peek().versions().into_iter().map(version).collect()
    }

    #[doc = docstring!("ChangeFeed.counts")]
    #[getter]
    fn counts(&self, py: Python<'_>) -> PyResult<ChangeCounts> {
        let counts = run_on(py, &self.uri, self.inner()?.counts())?;
        Ok(counts.into())
    }

    #[doc = docstring!("ChangeFeed.to_reader")]
    fn to_reader(&self) -> PyResult<ArrowStream> {
        self.stream()
    }

    #[doc = docstring!("ChangeFeed.to_batches")]
    fn to_batches(&self) -> PyResult<BatchIterator> {
        Ok(BatchIterator::new(self.inner()?.batches(), &self.uri))
    }

    fn __iter__(&self) -> PyResult<BatchIterator> {
        self.to_batches()
    }

    #[doc = docstring!("ChangeFeed.to_table")]
    fn to_table<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.table(py)
    }

    #[doc = docstring!("ChangeFeed.to_pandas")]
    #[pyo3(signature = (**options))]
    fn to_pandas<'py>(
        &self,
        py: Python<'py>,
        options: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.table(py)?.call_method("to_pandas", (), options)
    }

    #[doc = docstring!("ChangeFeed.to_polars")]
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

    #[doc = docstring!("ChangeFeed.slices")]
    fn slices(&self, num_parts: Given<usize>) -> PyResult<Vec<Vec<Slice>>> {
        let parts = self.inner()?.parts(num_parts.named("num_parts")?);
        let parts = parts.map_err(|error| to_py(&error))?;
        let slice = |it: ChangeSlice| (it.base, it.version, it.is_net, it.before, it.after);
        Ok(parts.into_iter().map(|part| part.slices.into_iter().map(slice).collect()).collect())
    }
}

/// The options of a feed of `table`.
pub fn options(
    table: &lancemem::Table,
    columns: Option<ColumnNames>,
    filter: Option<&Bound<'_, PyAny>>,
    skip_unchanged: bool,
    row_kinds: &str,
) -> PyResult<ChangeOptions> {
    let row_kinds = RowKinds::parse(row_kinds).map_err(|error| to_py(&error))?;
    Ok(ChangeOptions::default()
        .with_columns(ColumnNames::of(columns))
        .with_filter(condition(filter, &table.schema())?)
        .with_skip_unchanged(skip_unchanged)
        .with_row_kinds(row_kinds))
}

#[doc = docstring!("change_feed")]
#[pyfunction]
#[pyo3(signature = (
    table, since=None, until=None, columns=None, filter=None, *, skip_unchanged=false,
    row_kinds="delta"
))]
#[expect(clippy::too_many_arguments, reason = "they have names in Python")]
fn change_feed(
    py: Python<'_>,
    table: &Bound<'_, Table>,
    since: Option<StateOfTable>,
    until: Option<StateOfTable>,
    columns: Option<ColumnNames>,
    filter: Option<&Bound<'_, PyAny>>,
    skip_unchanged: bool,
    row_kinds: &str,
) -> PyResult<ChangeFeed> {
    let table = table.get().inner()?;
    let since = StateOfTable::named(since, "since")?;
    let until = StateOfTable::named(until, "until")?;
    let options = options(&table, columns, filter, skip_unchanged, row_kinds)?;
    let feed = run_on(py, table.uri(), table.changes(since, until, &options))?;
    Ok(ChangeFeed::new(feed, table.uri()))
}

#[doc = docstring!("change_feed_of_slices")]
#[pyfunction]
#[pyo3(signature = (
    table, until, slices, columns=None, filter=None, *, skip_unchanged=false, row_kinds="delta"
))]
#[expect(clippy::too_many_arguments, reason = "they have names in Python")]
fn change_feed_of_slices(
    py: Python<'_>,
    table: &Bound<'_, Table>,
    until: u64,
    slices: Vec<Slice>,
    columns: Option<ColumnNames>,
    filter: Option<&Bound<'_, PyAny>>,
    skip_unchanged: bool,
    row_kinds: &str,
) -> PyResult<ChangeFeed> {
    let table = table.get().inner()?;
    let options = options(&table, columns, filter, skip_unchanged, row_kinds)?;
    let slice = |(base, version, is_net, before, after)| ChangeSlice {
        base,
        version,
        is_net,
        before,
        after,
    };
    let part = ChangePart { slices: slices.into_iter().map(slice).collect() };
    let feed = run_on(py, table.uri(), table.changes_of_part(until, part, &options))?;
    Ok(ChangeFeed::new(feed, table.uri()))
}

#[doc = docstring!("changes_consumers")]
#[pyfunction]
fn changes_consumers(py: Python<'_>, table: &Bound<'_, Table>) -> PyResult<Vec<ConsumerInfo>> {
    let table = table.get().inner()?;
    let consumers = run_on(py, table.uri(), table.consumers())?;
    Ok(consumers.into_iter().map(consumer_info).collect())
}

#[doc = docstring!("changes_consumer")]
#[pyfunction]
fn changes_consumer(
    py: Python<'_>,
    table: &Bound<'_, Table>,
    name: &str,
) -> PyResult<Option<ConsumerInfo>> {
    let table = table.get().inner()?;
    let consumer = run_on(py, table.uri(), table.consumer(name))?;
    Ok(consumer.map(consumer_info))
}

#[doc = docstring!("move_changes_consumer")]
#[pyfunction]
fn move_changes_consumer(
    py: Python<'_>,
    table: &Bound<'_, Table>,
    name: &str,
    version: Given<u64>,
) -> PyResult<()> {
    let (table, version) = (table.get().inner()?, version.named("version")?);
    run_on(py, table.uri(), table.move_consumer(name, version))
}

#[doc = docstring!("drop_changes_consumer")]
#[pyfunction]
fn drop_changes_consumer(py: Python<'_>, table: &Bound<'_, Table>, name: &str) -> PyResult<()> {
    let table = table.get().inner()?;
    run_on(py, table.uri(), table.drop_consumer(name))
}

fn consumer_info(of: lancemem::ConsumerInfo) -> ConsumerInfo {
    ConsumerInfo { name: of.name, position: of.position, timestamp: of.timestamp }
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<ChangeFeed>()?;
    module.add_class::<ChangeVersion>()?;
    module.add_class::<ChangeCounts>()?;
    module.add_class::<ConsumerInfo>()?;
    module.add_function(wrap_pyfunction!(change_feed, module)?)?;
    module.add_function(wrap_pyfunction!(change_feed_of_slices, module)?)?;
    module.add_function(wrap_pyfunction!(changes_consumers, module)?)?;
    module.add_function(wrap_pyfunction!(changes_consumer, module)?)?;
    module.add_function(wrap_pyfunction!(move_changes_consumer, module)?)?;
    module.add_function(wrap_pyfunction!(drop_changes_consumer, module)?)
}
