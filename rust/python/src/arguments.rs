//! Arguments that have more than one form.
//!
//! Owns: the accepted forms, and the errors of all others. Does not own: the meaning of arguments.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use lancemem::{Changelog, Consistency, Error, LiveJob, NamedSql, OrderBy};
use lancemem_face::options::{MissingKeys, consistency, is_descending};
use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyEllipsis, PyMapping, PySequence, PyString};

use crate::errors::{InvalidInputError, of_face};
use crate::finalization::outlive_interpreter;
use crate::job::Job;
use crate::serve::RemoteJob;

/// The path of a file: a `str` or an `os.PathLike`.
pub struct FilePath(pub PathBuf);

impl FromPyObject<'_, '_> for FilePath {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        // `__fspath__` may be Python code.
        outlive_interpreter();
        given.extract().map(Self)
    }
}

/// The columns of a key.
pub struct KeyNames(Vec<String>);

impl KeyNames {
    pub fn into_vec(self) -> Vec<String> {
        self.0
    }
}

impl FromPyObject<'_, '_> for KeyNames {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        if let Ok(name) = given.extract() {
            return Ok(Self(vec![name]));
        }
        if given.cast::<PySequence>().is_err() {
            return wrong(given, "a name or a list of names");
        }
        names(given).map(Self)
    }
}

/// The changelog of a table as `alter` takes it: a name, None for none, and `...` for the present
/// one.
pub enum ChangelogName {
    Kept,
    Named(Option<String>),
}

impl ChangelogName {
    /// The setting; `None` for the present one.
    pub fn parsed(self) -> Result<Option<Changelog>, Error> {
        match self {
            Self::Kept => Ok(None),
            Self::Named(name) => Changelog::parse(name.as_deref()).map(Some),
        }
    }
}

impl FromPyObject<'_, '_> for ChangelogName {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        if given.is_instance_of::<PyEllipsis>() {
            return Ok(Self::Kept);
        }
        let name: Option<String> =
            given.extract().or_else(|_| wrong(given, "the name of a changelog, or None"))?;
        Ok(Self::Named(name))
    }
}

/// The columns of a result, in order.
pub struct ColumnNames(Vec<String>);

impl ColumnNames {
    pub fn of(given: Option<Self>) -> Option<Vec<String>> {
        given.map(|names| names.0)
    }
}

impl FromPyObject<'_, '_> for ColumnNames {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        if given.is_instance_of::<PyString>() || given.cast::<PySequence>().is_err() {
            return wrong(given, "a list of names of columns");
        }
        names(given).map(Self)
    }
}

/// The columns of a scan: names, or SQL by the names of computed columns.
pub enum ScanColumns {
    Named(Vec<String>),
    Computed(Vec<NamedSql>),
}

impl ScanColumns {
    /// The names and the SQL of the columns; neither for all columns.
    pub fn split(given: Option<Self>) -> (Option<Vec<String>>, Option<Vec<NamedSql>>) {
        match given {
            None => (None, None),
            Some(Self::Named(names)) => (Some(names), None),
            Some(Self::Computed(columns)) => (None, Some(columns)),
        }
    }
}

impl FromPyObject<'_, '_> for ScanColumns {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        match given.cast::<PyMapping>() {
            Ok(columns) => named_sql(&columns).map(Self::Computed),
            Err(_) => ColumnNames::extract(given).map(|names| Self::Named(names.0)),
        }
    }
}

/// The SQL of columns by their names, in the order of the mapping.
pub fn named_sql(columns: &Bound<'_, PyMapping>) -> PyResult<Vec<NamedSql>> {
    outlive_interpreter();
    let items = columns.items()?;
    let columns = items.iter().map(|item| {
        let text = item.extract::<(String, String)>();
        text.or_else(|_| wrong(item.as_borrowed(), "names of columns and their SQL as text"))
    });
    columns.collect()
}

/// The order of a scan: a key, or a list of keys. A key is a name, `-name` for descending, a pair
/// of a name and a direction, or an object with the attributes of pylance's `ColumnOrdering`.
pub struct ScanOrder(Vec<OrderBy>);

impl ScanOrder {
    /// The keys; none for no order.
    pub fn keys(given: Option<Self>) -> Vec<OrderBy> {
        given.map(|order| order.0).unwrap_or_default()
    }
}

impl FromPyObject<'_, '_> for ScanOrder {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        outlive_interpreter();
        if given.is_instance_of::<PyString>() {
            return Ok(Self(vec![order_key(&given)?]));
        }
        if given.cast::<PySequence>().is_err() {
            return wrong(given, "a list of columns to order by");
        }
        let keys = given.try_iter()?.map(|key| order_key(&key?));
        Ok(Self(keys.collect::<PyResult<_>>()?))
    }
}

fn order_key(key: &Bound<'_, PyAny>) -> PyResult<OrderBy> {
    if let Ok(name) = key.extract::<String>() {
        return Ok(match name.strip_prefix('-') {
            Some(name) => OrderBy::desc(name),
            None => OrderBy::asc(name),
        });
    }
    if let Ok((name, direction)) = key.extract::<(String, String)>() {
        let descending = is_descending(&direction).map_err(of_face)?;
        return Ok(if descending { OrderBy::desc(name) } else { OrderBy::asc(name) });
    }
    let py = key.py();
    if !key.hasattr(intern!(py, "column_name"))? {
        return wrong(key.as_borrowed(), "names of columns to order by, or (name, \"desc\")");
    }
    let name: String = key.getattr(intern!(py, "column_name"))?.extract()?;
    let ascending: bool = key.getattr(intern!(py, "ascending"))?.extract()?;
    let nulls_first: bool = key.getattr(intern!(py, "nulls_first"))?.extract()?;
    let order = if ascending { OrderBy::asc(name) } else { OrderBy::desc(name) };
    Ok(order.with_nulls_first(nulls_first))
}

fn names(list: Borrowed<'_, '_, PyAny>) -> PyResult<Vec<String>> {
    outlive_interpreter();
    let names = list.try_iter()?.map(|name| {
        let name = name?;
        name.extract().or_else(|_| wrong(name.as_borrowed(), "names of columns in the list"))
    });
    names.collect()
}

/// An argument with a number in the range of `T`. Python's own error for other numbers names
/// neither the limit nor the argument, so the reason is kept until [`Self::named`] adds the name.
pub struct Given<T>(pub Result<T, String>);

impl<T> Given<T> {
    /// The value of the argument `name`.
    pub fn named(self, name: &str) -> PyResult<T> {
        self.0.map_err(|why| InvalidInputError::new_err(format!("{name}: {why}")))
    }
}

impl<'a, 'py, T: FromPyObject<'a, 'py>> FromPyObject<'a, 'py> for Given<T> {
    type Error = PyErr;

    fn extract(given: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let error: PyErr = match given.extract() {
            Ok(value) => return Ok(Self(Ok(value))),
            Err(error) => T::Error::into(error),
        };
        if !error.is_instance_of::<PyOverflowError>(given.py()) {
            return Err(error);
        }
        let number = given.str().map_or_else(|_| "it".to_owned(), |text| text.to_string());
        let end = if number.starts_with('-') { "small" } else { "large" };
        Ok(Self(Err(format!("expected a number from 0, {number} is too {end}"))))
    }
}

/// A running job of this process or of another.
pub enum RunningJob {
    Here(Py<Job>),
    Elsewhere(Py<RemoteJob>),
}

impl FromPyObject<'_, '_> for RunningJob {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let here = given.extract().map(Self::Here);
        here.or_else(|_| given.extract().map(Self::Elsewhere))
            .or_else(|_| wrong(given, "jobs, of start_job or connect_job"))
    }
}

/// The argument `jobs`.
pub struct RunningJobs(Vec<RunningJob>);

impl FromPyObject<'_, '_> for RunningJobs {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        if given.cast::<PySequence>().is_err() {
            return wrong(given, "a list of jobs, such as jobs=[job]");
        }
        given.extract::<Vec<RunningJob>>().map(Self)
    }
}

/// A transaction id, in its two parts.
pub struct TxnParts(pub String, pub i64);

impl FromPyObject<'_, '_> for TxnParts {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        match given.extract::<(String, i64)>() {
            Ok((application, version)) => Ok(Self(application, version)),
            Err(error) if error.is_instance_of::<PyOverflowError>(given.py()) => {
                Err(InvalidInputError::new_err("txn: the version is an integer of 64 bits"))
            }
            Err(_) => wrong(given, "a name and a version, such as txn=('loader', 7)"),
        }
    }
}

/// Options of a store. An error names the option and shows no value, which may be a secret.
pub struct StoreOptions(pub HashMap<String, String>);

impl FromPyObject<'_, '_> for StoreOptions {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let Ok(options) = given.cast::<PyDict>() else {
            return wrong(given, "a dict of texts, such as {'aws_region': 'eu-west-1'}");
        };
        let options = options.iter().map(|(name, value)| {
            let name: String =
                name.extract().or_else(|_| wrong(name.as_borrowed(), "names as text"))?;
            let value: String = value.extract().or_else(|_| {
                wrong(value.as_borrowed(), &format!("a text for '{name}', such as '{name}': '30'"))
            })?;
            Ok((name, value))
        });
        options.collect::<PyResult<_>>().map(Self)
    }
}

/// The consistency of a read, and its jobs. Only `live` reads the rows of jobs; the other levels
/// refuse jobs, because a caller that passes jobs expects their rows.
pub fn level(
    name: &str,
    jobs: Option<RunningJobs>,
) -> PyResult<(Consistency, Vec<Arc<dyn LiveJob>>)> {
    let consistency = consistency(name).map_err(of_face)?;
    let jobs = jobs.map(|jobs| jobs.0).unwrap_or_default();
    if consistency != Consistency::Live && !jobs.is_empty() {
        return Err(InvalidInputError::new_err(format!(
            "a read with consistency='{name}' takes no jobs; leave out jobs=, or pass \
             consistency='live'"
        )));
    }
    let jobs = jobs.iter().map(|job| -> PyResult<Arc<dyn LiveJob>> {
        match job {
            RunningJob::Here(job) => Ok(job.get().inner()?),
            RunningJob::Elsewhere(job) => Ok(job.get().inner()?),
        }
    });
    Ok((consistency, jobs.collect::<PyResult<_>>()?))
}

/// The treatment of a lookup's keys that have no row.
pub fn missing_keys(name: &str) -> PyResult<MissingKeys> {
    MissingKeys::parse(name).map_err(of_face)
}

/// A shard by its ordinal or its id.
pub enum ShardName {
    Ordinal(i64),
    Id(String),
}

impl FromPyObject<'_, '_> for ShardName {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let ordinal = given.extract().map(Self::Ordinal);
        ordinal
            .or_else(|_| given.extract().map(Self::Id))
            .or_else(|_| wrong(given, "the ordinal of a shard or its id"))
    }
}

pub fn wrong<T>(given: Borrowed<'_, '_, PyAny>, expected: &str) -> PyResult<T> {
    let found = given.get_type();
    Err(PyTypeError::new_err(format!("expected {expected}, got {}", found.name()?)))
}

/// An older state of the base table.
pub enum Moment {
    Version(u64),
    Time(SystemTime),
}

impl Moment {
    pub fn of(version: Option<u64>, timestamp: Option<SystemTime>) -> PyResult<Option<Self>> {
        match (version, timestamp) {
            (None, None) => Ok(None),
            (Some(version), None) => Ok(Some(Self::Version(version))),
            (None, Some(time)) => Ok(Some(Self::Time(time))),
            (Some(_), Some(_)) => {
                Err(InvalidInputError::new_err("give version or timestamp, not both"))
            }
        }
    }
}
