//! Indexes of the base table: functions that `lancemem.indexes` calls for `Table`.
//!
//! Owns: their arguments, and the values that they return.
//! Does not own: the methods of `Table`, which that module adds, or the checks of an index.

use lancemem::{
    MaxTokenLength, OptimizedIndex as RustOptimized, TableIndexInfo, TableIndexOptions,
    TableIndexType, TextIndexOptions, VectorIndexOptions,
};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::arguments::Given;
use crate::docs::docstring;
use crate::errors::to_py;
use crate::runtime::run_on;
use crate::search::{maybe_number, metric, typed};
use crate::table::Table;
use crate::values::{Repr, value};

value! {
    /// An index of the base table.
    TableIndex {
        name: String,
        columns: Vec<String>,
        r#type: String,
        metric: Option<String>,
        indexed_rows: u64,
        unindexed_rows: u64,
        segments: usize,
        unindexed_because: Option<String>,
    }
}
value! {
    /// What an update did to an index.
    OptimizedIndex { name: String, added_rows: u64, segments_before: usize, segments: usize }
}

impl From<TableIndexInfo> for TableIndex {
    fn from(index: TableIndexInfo) -> Self {
        Self {
            name: index.name,
            columns: index.columns,
            r#type: index.index_type,
            metric: index.metric.map(|metric| metric.name().to_owned()),
            indexed_rows: index.indexed_rows,
            unindexed_rows: index.unindexed_rows,
            segments: index.segments,
            unindexed_because: index.unindexed_because,
        }
    }
}

impl From<RustOptimized> for OptimizedIndex {
    fn from(index: RustOptimized) -> Self {
        let RustOptimized { name, added_rows, segments_before, segments } = index;
        Self { name, added_rows, segments_before, segments }
    }
}

#[doc = docstring!("create_index")]
#[pyfunction]
#[pyo3(
    signature = (table, column, index_type, **options),
    text_signature = "(table, column, index_type, *, name=None, replace=False, **options)"
)]
fn create_index(
    py: Python<'_>,
    table: &Bound<'_, Table>,
    column: &str,
    index_type: &str,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<TableIndex> {
    let table = table.get().inner()?;
    let index_type = index_type.parse::<TableIndexType>().map_err(|error| to_py(&error))?;
    let options = index_options(options)?;
    let create = table.naming_damage(table.create_index(column, index_type, &options));
    run_on(py, table.uri(), create).map(TableIndex::from)
}

#[doc = docstring!("table_indexes")]
#[pyfunction]
fn table_indexes(py: Python<'_>, table: &Bound<'_, Table>) -> PyResult<Vec<TableIndex>> {
    let table = table.get().inner()?;
    let indexes = run_on(py, table.uri(), table.naming_damage(table.indexes()))?;
    Ok(indexes.into_iter().map(TableIndex::from).collect())
}

#[doc = docstring!("drop_index")]
#[pyfunction]
fn drop_index(py: Python<'_>, table: &Bound<'_, Table>, name: &str) -> PyResult<()> {
    let table = table.get().inner()?;
    run_on(py, table.uri(), table.naming_damage(table.drop_index(name)))
}

#[doc = docstring!("optimize_indexes")]
#[expect(clippy::needless_pass_by_value, reason = "PyO3 hands over what it extracted")]
#[pyfunction]
#[pyo3(signature = (table, names=None, *, num_indices_to_merge=None))]
fn optimize_indexes(
    py: Python<'_>,
    table: &Bound<'_, Table>,
    names: Option<Vec<String>>,
    num_indices_to_merge: Option<Given<usize>>,
) -> PyResult<Vec<OptimizedIndex>> {
    let table = table.get().inner()?;
    let merged = num_indices_to_merge.map(|number| number.named("num_indices_to_merge"));
    let optimize = table.optimize_indexes(names.as_deref(), merged.transpose()?);
    let changed = run_on(py, table.uri(), table.naming_damage(optimize))?;
    Ok(changed.into_iter().map(OptimizedIndex::from).collect())
}

/// The options of an index, from arguments by their names.
fn index_options(given: Option<&Bound<'_, PyDict>>) -> PyResult<TableIndexOptions> {
    let mut options = TableIndexOptions::default();
    let (mut vectors, mut text) = (VectorIndexOptions::default(), TextIndexOptions::default());
    for (name, value) in given.into_iter().flatten() {
        let name: String = name.extract()?;
        match name.as_str() {
            "name" => options = options.with_name(typed::<Option<String>>(&name, &value)?),
            "replace" => options = options.with_replace(typed(&name, &value)?),
            _ if set_of_vectors(&mut vectors, &name, &value)? => {}
            _ if set_of_text(&mut text, &name, &value)? => {}
            _ => {
                return Err(PyTypeError::new_err(format!(
                    "create_index() got an unexpected keyword argument '{name}'"
                )));
            }
        }
    }
    Ok(options.with_vectors(vectors).with_text(text))
}

/// Sets the option `name`. False where an index of vectors has no such option.
fn set_of_vectors(
    options: &mut VectorIndexOptions,
    name: &str,
    value: &Bound<'_, PyAny>,
) -> PyResult<bool> {
    match name {
        "metric" => options.metric = metric(value)?,
        "num_partitions" => options.num_partitions = maybe_number(name, value)?,
        "target_partition_size" => options.target_partition_size = maybe_number(name, value)?,
        "num_sub_vectors" => options.num_sub_vectors = maybe_number(name, value)?,
        "num_bits" => options.num_bits = maybe_number(name, value)?,
        "max_iters" => options.max_iters = maybe_number(name, value)?,
        "sample_rate" => options.sample_rate = maybe_number(name, value)?,
        "m" => options.m = maybe_number(name, value)?,
        "ef_construction" => options.ef_construction = maybe_number(name, value)?,
        "max_level" => options.max_level = maybe_number(name, value)?,
        _ => return Ok(false),
    }
    Ok(true)
}

/// Sets the option `name`. False where an index for full-text search has no such option.
fn set_of_text(
    options: &mut TextIndexOptions,
    name: &str,
    value: &Bound<'_, PyAny>,
) -> PyResult<bool> {
    match name {
        "base_tokenizer" => options.base_tokenizer = typed(name, value)?,
        "language" => options.language = typed(name, value)?,
        "with_position" => options.with_position = typed(name, value)?,
        "max_token_length" => {
            let most = maybe_number(name, value)?;
            let most = most.map_or(MaxTokenLength::Unlimited, MaxTokenLength::Bytes);
            options.max_token_length = Some(most);
        }
        "lower_case" => options.lower_case = typed(name, value)?,
        "stem" => options.stem = typed(name, value)?,
        "remove_stop_words" => options.remove_stop_words = typed(name, value)?,
        "custom_stop_words" => options.custom_stop_words = typed(name, value)?,
        "ascii_folding" => options.ascii_folding = typed(name, value)?,
        "min_ngram_length" => options.min_ngram_length = maybe_number(name, value)?,
        "max_ngram_length" => options.max_ngram_length = maybe_number(name, value)?,
        "prefix_only" => options.prefix_only = typed(name, value)?,
        "memory_limit" => options.memory_limit = maybe_number(name, value)?,
        "num_workers" => options.num_workers = maybe_number(name, value)?,
        _ => return Ok(false),
    }
    Ok(true)
}

#[doc = docstring!("_set_memory_index_bounds")]
#[pyfunction]
#[pyo3(name = "_set_memory_index_bounds", signature = (*, vector_bytes = None, ordered_rows = None))]
fn set_memory_index_bounds(vector_bytes: Option<usize>, ordered_rows: Option<usize>) {
    lancemem::set_memory_index_bounds(vector_bytes, ordered_rows);
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<TableIndex>()?;
    module.add_class::<OptimizedIndex>()?;
    module.add_function(wrap_pyfunction!(create_index, module)?)?;
    module.add_function(wrap_pyfunction!(table_indexes, module)?)?;
    module.add_function(wrap_pyfunction!(drop_index, module)?)?;
    module.add_function(wrap_pyfunction!(optimize_indexes, module)?)?;
    module.add_function(wrap_pyfunction!(set_memory_index_bounds, module)?)
}
