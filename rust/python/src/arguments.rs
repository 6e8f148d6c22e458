//! Arguments that come in more than one form.
//!
//! Owns: which forms, and what is said of any other. Does not own: what they mean.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PySequence;

use crate::job::Job;
use crate::serve::RemoteJob;

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
        let Ok(names) = given.cast::<PySequence>() else {
            return wrong(given, "a name or a list of names");
        };
        let names = names.try_iter()?.map(|name| {
            let name = name?;
            name.extract().or_else(|_| wrong(name.as_borrowed(), "names of columns in the list"))
        });
        names.collect::<PyResult<_>>().map(Self)
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

fn wrong<T>(given: Borrowed<'_, '_, PyAny>, expected: &str) -> PyResult<T> {
    let found = given.get_type();
    Err(PyTypeError::new_err(format!("expected {expected}, got {}", found.name()?)))
}
