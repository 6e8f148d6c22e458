//! Keys from Python, as rows with the table's key columns.
//!
//! Owns: the short forms without column names: values, tuples of values, one array.
//! Does not own: types; the table casts values where nothing is lost and refuses all others.

use arrow_array::RecordBatch;
use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};

use crate::errors::InvalidInputError;
use crate::input::{self, Export};

/// Whether `data` is not a list of keys: the value of one key, a dict of columns, or no iterable.
fn is_no_list(data: &Bound<'_, PyAny>) -> bool {
    data.is_instance_of::<PyString>()
        || data.is_instance_of::<PyBytes>()
        || data.is_instance_of::<PyDict>()
        || data.try_iter().is_err()
}

/// The keys of a call. `names` are the key columns, in their order.
pub fn batch(data: &Bound<'_, PyAny>, names: &[String]) -> PyResult<RecordBatch> {
    if !input::is_arrow(data)? {
        if is_no_list(data) {
            return Err(InvalidInputError::new_err(format!(
                "expected a list, an array or a table of keys, got {}; put one key into a list",
                data.get_type().name()?
            )));
        }
        return of_objects(data, names);
    }
    match input::export(data)? {
        Export::Rows(rows) => Ok(rows),
        Export::Values(values) => match names {
            [name] => RecordBatch::try_from_iter([(name, values)])
                .map_err(|error| InvalidInputError::new_err(error.to_string())),
            _ => Err(several_columns(names)),
        },
    }
}

/// Python values of an iterable: one for each key, or a tuple where the key has several columns.
fn of_objects(data: &Bound<'_, PyAny>, names: &[String]) -> PyResult<RecordBatch> {
    let pyarrow = data.py().import("pyarrow")?;
    if names.is_empty() {
        return Err(InvalidInputError::new_err(
            "the table has no primary key, so no row is found by key; read rows by a condition \
             (scan), or create the table with primary_key=",
        ));
    }
    if let [_] = names {
        return batch(&array(&pyarrow, data)?, names);
    }
    let mut columns: Vec<_> = names.iter().map(|_| PyList::empty(data.py())).collect();
    for key in data.try_iter()? {
        let key = key?;
        let parts = key.cast::<PyTuple>().map_err(|_| several_columns(names))?;
        if parts.len() != names.len() {
            return Err(several_columns(names));
        }
        for (column, value) in columns.iter_mut().zip(parts) {
            column.append(value)?;
        }
    }
    let columns = columns.iter().map(|column| array(&pyarrow, column));
    let columns = columns.collect::<PyResult<Vec<_>>>()?;
    let table =
        pyarrow.call_method1("table", (columns, names.to_vec())).map_err(|it| refused(&it))?;
    input::batch(&table)
}

/// Values as an array of the type that pyarrow infers. pyarrow infers int64 for integers, so values
/// above its range are retried as uint64.
fn array<'py>(
    pyarrow: &Bound<'py, PyModule>,
    values: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    // An iterator would have no values left for the second try.
    let values = if values.hasattr("__next__")? {
        values.py().get_type::<PyList>().call1((values,))?
    } else {
        values.clone()
    };
    let made = pyarrow.call_method1("array", (&values,)).or_else(|error| {
        if !error.is_instance_of::<PyOverflowError>(pyarrow.py()) {
            return Err(error);
        }
        let unsigned = pyarrow.call_method0("uint64")?;
        pyarrow.call_method1("array", (values, unsigned)).map_err(|_| error)
    });
    made.map_err(|error| refused(&error))
}

fn refused(error: &PyErr) -> PyErr {
    InvalidInputError::new_err(format!("the keys could not be read as Arrow: {error}"))
}

fn several_columns(names: &[String]) -> PyErr {
    InvalidInputError::new_err(format!(
        "the key has {} columns ({}): pass rows with these columns, or a list of tuples",
        names.len(),
        names.join(", ")
    ))
}
