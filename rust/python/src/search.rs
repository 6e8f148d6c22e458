//! Searches: the arguments of `Table.search` and `Snapshot.search`.
//!
//! Owns: their form in Python, and the query vectors.
//! Does not own: the search, or its result, which is a `Scan`; the forms of a query
//! (`lancemem.query_vectors`).

use std::sync::Arc;

use arrow_schema::SchemaRef;
use lancemem::{Consistency, LiveJob, Metric, QueryVectors, SearchOptions, Snapshot, Table};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use pyo3::{PyTypeInfo, intern};

use crate::arguments::{ColumnNames, Given};
use crate::errors::{InvalidInputError, to_py};
use crate::filter::condition;
use crate::input;
use crate::scan::Scan;
use crate::search_text::Asked;

/// A search of a table, with the level of its snapshots and the jobs that they read.
pub fn search_of_table(
    table: &Arc<Table>,
    query: &Bound<'_, PyAny>,
    (consistency, jobs): (Consistency, Vec<Arc<dyn LiveJob>>),
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<Scan> {
    let asked = Asked::of(query, options)?;
    let options = search_options(options, &table.schema())?.with_consistency(consistency);
    let vectors = asked.vectors.as_ref().map(query_vectors).transpose()?;
    let scan = match (vectors, asked.text) {
        (Some(vectors), None) => table.search(vectors, options, jobs),
        (Some(vectors), Some((text, rerank))) => {
            table.search_hybrid((vectors, text), rerank, options, jobs)
        }
        (None, Some((text, _))) => table.search_text(text, options, jobs),
        (None, None) => Err(nothing_asked()),
    };
    Ok(Scan::new(scan.map_err(|error| to_py(&error))?, table.uri()))
}

/// A search of a snapshot of a table.
pub fn search_of_snapshot(
    table: &Arc<Table>,
    snapshot: &Arc<Snapshot>,
    query: &Bound<'_, PyAny>,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<Scan> {
    let asked = Asked::of(query, options)?;
    let options = search_options(options, &snapshot.schema)?;
    let vectors = asked.vectors.as_ref().map(query_vectors).transpose()?;
    let of = snapshot.clone();
    let scan = match (vectors, asked.text) {
        (Some(vectors), None) => table.search_of_snapshot(vectors, options, of),
        (Some(vectors), Some((text, rerank))) => {
            table.search_hybrid_of_snapshot((vectors, text), rerank, options, of)
        }
        (None, Some((text, _))) => table.search_text_of_snapshot(text, options, of),
        (None, None) => Err(nothing_asked()),
    };
    Ok(Scan::new(scan.map_err(|error| to_py(&error))?, table.uri()))
}

fn nothing_asked() -> lancemem::Error {
    lancemem::Error::input("a search needs a vector or a text")
}

/// The options of a search of a table with these columns, from arguments by their names.
fn search_options(
    given: Option<&Bound<'_, PyDict>>,
    schema: &SchemaRef,
) -> PyResult<SearchOptions> {
    let mut options = SearchOptions::default();
    for (name, value) in given.into_iter().flatten() {
        let name: String = name.extract()?;
        options = with_argument(options, &name, &value, schema)?;
    }
    Ok(options)
}

fn with_argument(
    options: SearchOptions,
    name: &str,
    value: &Bound<'_, PyAny>,
    schema: &SchemaRef,
) -> PyResult<SearchOptions> {
    Ok(match name {
        "column" => options.with_column(typed::<Option<String>>(name, value)?),
        "k" => options.with_k(number(name, value)?),
        "offset" => options.with_offset(number(name, value)?),
        "columns" => options.with_columns(ColumnNames::of(typed(name, value)?)),
        "filter" => options.with_filter(condition((!value.is_none()).then_some(value), schema)?),
        "prefilter" => options.with_prefilter(typed(name, value)?),
        "metric" => options.with_metric(metric(value)?),
        // As in pylance: this many partitions, not fewer and not more.
        "nprobes" => {
            let probes = maybe_number(name, value)?;
            let least = options.minimum_nprobes.or(probes);
            let most = options.maximum_nprobes.or(probes);
            options.with_minimum_nprobes(least).with_maximum_nprobes(most)
        }
        "minimum_nprobes" => {
            let least = maybe_number(name, value)?.or(options.minimum_nprobes);
            options.with_minimum_nprobes(least)
        }
        "maximum_nprobes" => {
            let most = maybe_number(name, value)?.or(options.maximum_nprobes);
            options.with_maximum_nprobes(most)
        }
        "ef" => options.with_ef(maybe_number::<usize>(name, value)?),
        "refine_factor" => options.with_refine_factor(maybe_number::<u32>(name, value)?),
        "distance_range" => {
            let (from, below) = distance_range(value)?;
            options.with_distance_range(from, below)
        }
        "exact" => options.with_exact(typed(name, value)?),
        "fast_search" => options.with_fast_search(typed(name, value)?),
        _ => {
            let text = format!("search() got an unexpected keyword argument '{name}'");
            return Err(PyTypeError::new_err(text));
        }
    })
}

/// A metric by its name.
pub fn metric(value: &Bound<'_, PyAny>) -> PyResult<Option<Metric>> {
    let name: Option<String> = typed("metric", value)?;
    name.map(|name| name.parse()).transpose().map_err(|error| to_py(&error))
}

fn distance_range(value: &Bound<'_, PyAny>) -> PyResult<(Option<f32>, Option<f32>)> {
    let range = value.extract::<Option<(Option<f32>, Option<f32>)>>();
    range.map(Option::unwrap_or_default).map_err(|_| {
        InvalidInputError::new_err(format!(
            "distance_range: expected two bounds (lower, upper), each a number or None, got {value}"
        ))
    })
}

/// The value of an argument in its type. Python's own error does not name the argument.
pub fn typed<'py, T: FromPyObjectOwned<'py>>(name: &str, value: &Bound<'py, PyAny>) -> PyResult<T> {
    value.extract().map_err(|error| {
        let error: PyErr = T::Error::into(error);
        if error.get_type(value.py()).is(PyTypeError::type_object(value.py())) {
            let why = error.value(value.py());
            return PyTypeError::new_err(format!("argument '{name}': {why}"));
        }
        error
    })
}

fn number<'py, T>(name: &str, value: &Bound<'py, PyAny>) -> PyResult<T>
where
    Given<T>: FromPyObjectOwned<'py>,
{
    typed::<Given<T>>(name, value)?.named(name)
}

/// The number of an argument that may be None.
pub fn maybe_number<'py, T>(name: &str, value: &Bound<'py, PyAny>) -> PyResult<Option<T>>
where
    Given<T>: FromPyObjectOwned<'py>,
{
    if value.is_none() { Ok(None) } else { number(name, value).map(Some) }
}

/// The vectors of `query`, in any form that `lancemem.query_vectors` takes.
fn query_vectors(query: &Bound<'_, PyAny>) -> PyResult<QueryVectors> {
    let module = query.py().import(intern!(query.py(), "lancemem.query_vectors"))?;
    let (values, width): (Bound<'_, PyAny>, Option<usize>) =
        module.call_method1("flattened", (query,))?.extract()?;
    let values = input::array(&values)?;
    let vectors = match width {
        Some(width) => QueryVectors::batch(values, width),
        None => QueryVectors::one(values),
    };
    vectors.map_err(|error| to_py(&error))
}
