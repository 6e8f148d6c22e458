//! Merge rules: the arguments that describe one, and `MergeRule`.
//!
//! Owns: the Python forms of the options of a rule, both ways.
//! Does not own: whether a rule fits a table (the engine), or the builders of functions
//! (`lancemem.agg`).

use std::collections::BTreeMap;
use std::time::Duration;

use lancemem::{
    Aggregate, DeletePolicy, KeepEnd, MergeEngine, MergeFunction, NullPolicy, PutMode, RuleError,
    RuleOptions,
};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyMapping, PyTuple};

use crate::arguments::{Given, KeyNames, wrong};
use crate::durations::Millis;
use crate::errors::{InvalidInputError, to_py};
use crate::finalization::outlive_interpreter;
use crate::values::{Repr, html_of};

/// The module of the builders of functions.
const AGG: &str = "lancemem.agg";

/// The arguments of a call that describe a rule.
pub struct RuleArguments<'a, 'py> {
    pub merge_engine: Option<&'a str>,
    pub sequence_by: Option<KeyNames>,
    pub aggregates: Option<&'a Bound<'py, PyMapping>>,
    pub merge_functions: Option<&'a Bound<'py, PyMapping>>,
    pub sequence_groups: Option<&'a Bound<'py, PyMapping>>,
    pub deletes: Option<&'a str>,
    pub delete_retention: Option<Given<Millis>>,
}

impl RuleArguments<'_, '_> {
    /// The options for the table at `uri`; `None` where no argument is given.
    pub fn options(self, uri: &str) -> PyResult<Option<RuleOptions>> {
        let Self {
            merge_engine,
            sequence_by,
            aggregates,
            merge_functions,
            sequence_groups,
            deletes,
            delete_retention,
        } = self;
        let is_none = merge_engine.is_none()
            && sequence_by.is_none()
            && aggregates.is_none()
            && merge_functions.is_none()
            && sequence_groups.is_none()
            && deletes.is_none()
            && delete_retention.is_none();
        if is_none {
            return Ok(None);
        }
        outlive_interpreter();
        let mut options = RuleOptions::default();
        if let Some(name) = merge_engine {
            options.merge_engine = chosen(uri, "merge_engine", name, MergeEngine::from_name)?;
        }
        if let Some(name) = deletes {
            options.deletes = chosen(uri, "deletes", name, DeletePolicy::from_name)?;
        }
        options.sequence_by = sequence_by.map_or_else(Vec::new, KeyNames::into_vec);
        if let Some(aggregates) = aggregates {
            options.aggregates = functions(uri, aggregates)?;
        }
        if let Some(named) = merge_functions {
            options.merge_functions = importable_names(uri, named)?;
        }
        if let Some(groups) = sequence_groups {
            options.sequence_groups = pairs(groups)?;
        }
        if let Some(retention) = delete_retention {
            let Millis(retention) = given(uri, "delete_retention", retention)?;
            options.delete_retention_ms = u64::try_from(retention.as_millis()).ok();
        }
        Ok(Some(options))
    }
}

/// How a call puts its rows.
pub fn put_mode(uri: &str, replace: bool, nulls: Option<&str>) -> PyResult<PutMode> {
    let nulls = nulls.map(|name| chosen(uri, "nulls", name, NullPolicy::from_name)).transpose()?;
    Ok(PutMode { replace, nulls })
}

/// The value of an option, or the error that names table and option.
fn given<T>(uri: &str, option: &str, value: Given<T>) -> PyResult<T> {
    let refused = |why: String| InvalidInputError::new_err(format!("table {uri}: {option}: {why}"));
    value.0.map_err(refused)
}

/// The choice of this name.
fn chosen<T>(
    uri: &str,
    option: &str,
    name: &str,
    from_name: impl Fn(&str) -> Option<T>,
) -> PyResult<T> {
    from_name(name).ok_or_else(|| {
        let names = match option {
            "deletes" => "'remove', 'ignore', 'refuse' or 'retract'",
            "nulls" => "'set' or 'keep'",
            _ => "'deduplicate', 'first_row', 'partial_update' or 'aggregation'",
        };
        InvalidInputError::new_err(format!("table {uri}: {option} is {names}, got '{name}'"))
    })
}

/// Sequence columns with the columns that follow them: `{"ts": ["a"]}`, `{("ts", "n"): ["a"]}`.
fn pairs(groups: &Bound<'_, PyMapping>) -> PyResult<Vec<(Vec<String>, Vec<String>)>> {
    let mut pairs = Vec::with_capacity(groups.len()?);
    for item in groups.items()? {
        let (sequence, columns): (KeyNames, KeyNames) = item.extract()?;
        pairs.push((sequence.into_vec(), columns.into_vec()));
    }
    Ok(pairs)
}

fn functions(
    uri: &str,
    aggregates: &Bound<'_, PyMapping>,
) -> PyResult<BTreeMap<String, Aggregate>> {
    let mut functions = BTreeMap::new();
    for item in aggregates.items()? {
        let (column, built): (String, Bound<'_, PyAny>) = item.extract()?;
        let function = function(uri, &column, &built)?;
        functions.insert(column, function);
    }
    Ok(functions)
}

/// Columns with the names of functions that other processes can import.
fn importable_names(
    uri: &str,
    functions: &Bound<'_, PyMapping>,
) -> PyResult<BTreeMap<String, String>> {
    let mut names = BTreeMap::new();
    for item in functions.items()? {
        let (column, name): (String, Bound<'_, PyAny>) = item.extract()?;
        let Ok(text) = name.extract::<String>() else {
            return Err(InvalidInputError::new_err(format!(
                "table {uri}: merge_functions of column '{column}' is a name such as \
                 'package.module:function', which every process that opens the table can import, \
                 got {}",
                name.repr()?
            )));
        };
        names.insert(column, text);
    }
    Ok(names)
}

/// A function by its name, or by what a builder of `lancemem.agg` returns.
fn function(uri: &str, column: &str, built: &Bound<'_, PyAny>) -> PyResult<Aggregate> {
    let py = built.py();
    if let Ok(name) = built.extract::<String>() {
        return Ok(named(uri, column, &name)?.into());
    }
    if !built.is_instance(&py.import(AGG)?.getattr("Aggregate")?)? {
        return wrong(built.as_borrowed(), "a function of lancemem.agg or its name");
    }
    let name: String = built.getattr(intern!(py, "function"))?.extract()?;
    let separator: Option<String> = built.getattr(intern!(py, "sep"))?.extract()?;
    let distinct: bool = built.getattr(intern!(py, "distinct"))?.extract()?;
    let limit: Option<Given<u32>> = built.getattr(intern!(py, "limit"))?.extract()?;
    let limit = limit.map(|limit| given(uri, &format!("limit of column '{column}'"), limit));
    let limit = limit.transpose()?;
    let keep: String = built.getattr(intern!(py, "keep"))?.extract()?;
    let keep = match keep.as_str() {
        "first" => KeepEnd::First,
        "last" => KeepEnd::Last,
        other => {
            return Err(InvalidInputError::new_err(format!(
                "table {uri}: keep of column '{column}' is 'first' or 'last', got '{other}'"
            )));
        }
    };
    let plain = named(uri, column, &name)?;
    let function = match plain {
        MergeFunction::ListAgg { separator: usual, .. } if keep == KeepEnd::First => {
            MergeFunction::ListAgg { separator: separator.unwrap_or(usual), distinct, limit }
        }
        MergeFunction::Collect { .. } if separator.is_none() => {
            MergeFunction::Collect { distinct, limit, keep }
        }
        other if separator.is_none() && !distinct && limit.is_none() && keep == KeepEnd::First => {
            other
        }
        other => {
            return Err(InvalidInputError::new_err(format!(
                "table {uri}: the function '{}' of column '{column}' does not have the options of \
                 {}; make it by lancemem.agg.{}()",
                other.name(),
                built.repr()?,
                other.name()
            )));
        }
    };
    let ignore_retract: bool = built.getattr(intern!(py, "ignore_retract"))?.extract()?;
    Ok(Aggregate { function, ignore_retract })
}

fn named(uri: &str, column: &str, name: &str) -> PyResult<MergeFunction> {
    let in_table =
        |error: RuleError| to_py(&error.into_error().input_at(format_args!("table {uri}")));
    MergeFunction::from_name(column, name).map_err(in_table)
}

/// What `lancemem.agg` makes for a function.
fn rebuilt<'py>(py: Python<'py>, aggregate: &Aggregate) -> PyResult<Bound<'py, PyAny>> {
    let options = PyDict::new(py);
    match &aggregate.function {
        MergeFunction::ListAgg { separator, distinct, limit } => {
            options.set_item("sep", separator)?;
            options.set_item("distinct", *distinct)?;
            options.set_item("limit", *limit)?;
        }
        MergeFunction::Collect { distinct, limit, keep } => {
            options.set_item("distinct", *distinct)?;
            options.set_item("limit", *limit)?;
            options.set_item("keep", if *keep == KeepEnd::Last { "last" } else { "first" })?;
        }
        _ => {}
    }
    options.set_item("ignore_retract", aggregate.ignore_retract)?;
    let name = aggregate.function.name();
    py.import(AGG)?.getattr("Aggregate")?.call((name,), Some(&options))
}

/// How the events of a key become one row.
#[pyclass(frozen, eq, skip_from_py_object, module = "lancemem")]
#[derive(Clone, Debug, PartialEq)]
pub struct MergeRule(pub RuleOptions);

impl MergeRule {
    /// The parts that are chosen, as Python shows them.
    fn parts(&self) -> Vec<(&'static str, String)> {
        let RuleOptions { sequence_by, aggregates, merge_functions, sequence_groups, .. } = &self.0;
        let mut parts = vec![("merge_engine", self.merge_engine().to_owned().repr())];
        if !sequence_by.is_empty() {
            parts.push(("sequence_by", sequence_by.repr()));
        }
        if !aggregates.is_empty() {
            let functions =
                aggregates.iter().map(|(column, it)| format!("{}: {}", column.repr(), it.repr()));
            parts.push(("aggregates", braced(functions)));
        }
        if !merge_functions.is_empty() {
            let names = merge_functions
                .iter()
                .map(|(column, it)| format!("{}: {}", column.repr(), it.repr()));
            parts.push(("merge_functions", braced(names)));
        }
        if !sequence_groups.is_empty() {
            let groups = sequence_groups.iter().map(|(sequence, columns)| {
                let sequence = match sequence.as_slice() {
                    [column] => column.repr(),
                    several => tuple_text(several),
                };
                format!("{sequence}: {}", columns.repr())
            });
            parts.push(("sequence_groups", braced(groups)));
        }
        parts.push(("deletes", self.deletes().to_owned().repr()));
        if self.0.nulls != NullPolicy::Set {
            parts.push(("nulls", self.nulls().to_owned().repr()));
        }
        if let Some(retention) = self.retention() {
            parts.push(("delete_retention", Millis(retention).repr()));
        }
        parts
    }

    fn retention(&self) -> Option<Duration> {
        self.0.delete_retention_ms.map(Duration::from_millis)
    }
}

fn braced(items: impl Iterator<Item = String>) -> String {
    format!("{{{}}}", items.collect::<Vec<_>>().join(", "))
}

fn tuple_text(names: &[String]) -> String {
    let names: Vec<String> = names.iter().map(Repr::repr).collect();
    format!("({})", names.join(", "))
}

impl Repr for Aggregate {
    fn repr(&self) -> String {
        let mut options = Vec::new();
        let list = |options: &mut Vec<String>, distinct: bool, limit: Option<u32>| {
            if distinct {
                options.push("distinct=True".to_owned());
            }
            if let Some(limit) = limit {
                options.push(format!("limit={limit}"));
            }
        };
        match &self.function {
            MergeFunction::ListAgg { separator, distinct, limit } => {
                options.push(format!("sep={}", separator.repr()));
                list(&mut options, *distinct, *limit);
            }
            MergeFunction::Collect { distinct, limit, keep } => {
                list(&mut options, *distinct, *limit);
                if *keep == KeepEnd::Last {
                    options.push("keep=\"last\"".to_owned());
                }
            }
            _ => {}
        }
        if self.ignore_retract {
            options.push("ignore_retract=True".to_owned());
        }
        format!("agg.{}({})", self.function.name(), options.join(", "))
    }
}

impl Repr for MergeRule {
    fn repr(&self) -> String {
        let parts: Vec<String> =
            self.parts().into_iter().map(|(name, value)| format!("{name}={value}")).collect();
        format!("MergeRule({})", parts.join(", "))
    }
}

#[pymethods]
impl MergeRule {
    #[getter]
    fn merge_engine(&self) -> &'static str {
        self.0.merge_engine.name()
    }

    #[getter]
    fn sequence_by<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.0.sequence_by)
    }

    #[getter]
    fn aggregates<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let functions = PyDict::new(py);
        for (column, function) in &self.0.aggregates {
            functions.set_item(column, rebuilt(py, function)?)?;
        }
        Ok(functions)
    }

    #[getter]
    fn merge_functions(&self) -> BTreeMap<String, String> {
        self.0.merge_functions.clone()
    }

    #[getter]
    fn sequence_groups<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let groups = PyDict::new(py);
        for (sequence, columns) in &self.0.sequence_groups {
            groups.set_item(PyTuple::new(py, sequence)?, PyTuple::new(py, columns)?)?;
        }
        Ok(groups)
    }

    #[getter]
    fn deletes(&self) -> &'static str {
        self.0.deletes.name()
    }

    #[getter]
    fn nulls(&self) -> &'static str {
        self.0.nulls.name()
    }

    #[getter]
    fn delete_retention(&self) -> Option<Duration> {
        self.retention()
    }

    fn __repr__(&self) -> String {
        self.repr()
    }

    #[pyo3(name = "_repr_html_")]
    fn html(&self) -> String {
        html_of("MergeRule", &self.parts())
    }
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<MergeRule>()
}
