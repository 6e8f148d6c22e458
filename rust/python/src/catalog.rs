//! The functions that create, open, enable and drop tables, and `evaluate`.
//!
//! Owns: their arguments and results.
//! Does not own: an open table (`table`).

use lancemem::table::CreateOptions;
use lancemem::{Changelog, Location, Sharding as RustSharding};
use pyo3::prelude::*;
use pyo3::types::PyMapping;

use crate::arguments::{FilePath, Given, KeyNames, StoreOptions, named_sql};
use crate::config::{GivenConfig, Maintenance, WriterConfig};
use crate::docs::docstring;
use crate::durations::Millis;
use crate::errors::{InvalidInputError, to_py};
use crate::input;
use crate::merge_functions::with_functions;
use crate::output::pyarrow_table_of;
use crate::rules::RuleArguments;
use crate::runtime::{run, run_on};
use crate::table::Table;
use crate::values::Sharding;

#[doc = docstring!("create_table")]
#[pyfunction]
#[pyo3(signature = (
    uri, schema, *, primary_key=None, sharding=None, config=None, maintenance=None,
    changelog=None, merge_engine=None, sequence_by=None, aggregates=None, merge_functions=None,
    sequence_groups=None, deletes=None, delete_retention=None, storage_options=None
))]
#[expect(clippy::too_many_arguments, reason = "each is a keyword of one setting")]
fn create_table(
    py: Python<'_>,
    uri: FilePath,
    schema: &Bound<'_, PyAny>,
    primary_key: Option<KeyNames>,
    sharding: Option<&Sharding>,
    config: Option<GivenConfig>,
    maintenance: Option<Maintenance>,
    changelog: Option<&str>,
    merge_engine: Option<&str>,
    sequence_by: Option<KeyNames>,
    aggregates: Option<&Bound<'_, PyMapping>>,
    merge_functions: Option<&Bound<'_, PyMapping>>,
    sequence_groups: Option<&Bound<'_, PyMapping>>,
    deletes: Option<&str>,
    delete_retention: Option<Given<Millis>>,
    storage_options: Option<StoreOptions>,
) -> PyResult<Table> {
    let location = location(uri, storage_options)?;
    let uri = location.uri().to_owned();
    let rule = RuleArguments {
        merge_engine,
        sequence_by,
        aggregates,
        merge_functions,
        sequence_groups,
        deletes,
        delete_retention,
    };
    let rule = rule.options(&uri)?.unwrap_or_default();
    let changelog = Changelog::parse(changelog).map_err(|error| to_py(&error))?;
    let options = CreateOptions::new(input::schema(schema)?)
        .with_primary_key(primary_key.map_or_else(Vec::new, KeyNames::into_vec))
        .with_sharding(sharding.map_or(RustSharding::Unsharded, |sharding| sharding.0.clone()))
        .with_config(WriterConfig::over(config, lancemem::WriterConfig::default())?)
        .with_maintenance(Maintenance::over(maintenance, lancemem::MaintenanceConfig::default())?)
        .with_changelog(changelog)
        .with_rule(rule);
    let create = |location: Location| run_on(py, &uri, lancemem::Table::create(location, &options));
    with_functions(py, location, create).map(Table::new)
}

#[doc = docstring!("open_table")]
#[pyfunction]
#[pyo3(signature = (uri, *, storage_options=None, verify_sstables=true))]
fn open_table(
    py: Python<'_>,
    uri: FilePath,
    storage_options: Option<StoreOptions>,
    verify_sstables: bool,
) -> PyResult<Table> {
    let location = location(uri, storage_options)?;
    let uri = location.uri().to_owned();
    let open = |location: Location| run_on(py, &uri, lancemem::Table::open(location));
    let table = with_functions(py, location, open)?;
    table.set_verify_sstables(verify_sstables);
    Ok(Table::new(table))
}

#[doc = docstring!("enable")]
#[pyfunction]
#[pyo3(
    signature = (
        uri, *, primary_key=None, sharding=None, config=None, maintenance=None, merge_engine=None,
        sequence_by=None, aggregates=None, merge_functions=None, sequence_groups=None,
        deletes=None, delete_retention=None, storage_options=None, verify_sstables=true
    )
)]
#[expect(clippy::too_many_arguments, reason = "each is a keyword of one setting")]
fn enable(
    py: Python<'_>,
    uri: FilePath,
    primary_key: Option<KeyNames>,
    sharding: Option<&Sharding>,
    config: Option<GivenConfig>,
    maintenance: Option<Maintenance>,
    merge_engine: Option<&str>,
    sequence_by: Option<KeyNames>,
    aggregates: Option<&Bound<'_, PyMapping>>,
    merge_functions: Option<&Bound<'_, PyMapping>>,
    sequence_groups: Option<&Bound<'_, PyMapping>>,
    deletes: Option<&str>,
    delete_retention: Option<Given<Millis>>,
    storage_options: Option<StoreOptions>,
    verify_sstables: bool,
) -> PyResult<Table> {
    let location = location(uri, storage_options)?;
    let rule = RuleArguments {
        merge_engine,
        sequence_by,
        aggregates,
        merge_functions,
        sequence_groups,
        deletes,
        delete_retention,
    };
    let rule = rule.options(location.uri())?;
    let settings = (
        WriterConfig::over(config.clone(), lancemem::WriterConfig::default())?,
        Maintenance::over(maintenance.clone(), lancemem::MaintenanceConfig::default())?,
    );
    let sharding = sharding.map(|sharding| &sharding.0);
    let uri = location.uri().to_owned();
    if let Some(key) = primary_key.map(KeyNames::into_vec) {
        let name_key = |location: Location| {
            run_on(py, &uri, lancemem::Table::set_primary_key(location, &key, rule.as_ref()))
        };
        with_functions(py, location.clone(), name_key)?;
    }
    let enable = |location: Location| {
        let (config, maintenance) = (&settings.0, &settings.1);
        let rule = rule.as_ref();
        run_on(py, &uri, lancemem::Table::enable(location, sharding, rule, config, maintenance))
    };
    let table = with_functions(py, location, enable)?;
    let own = (table.writer_defaults(), table.maintenance_defaults());
    if WriterConfig::over(config, own.0.clone())? != *own.0
        || Maintenance::over(maintenance, own.1.clone())? != *own.1
    {
        return Err(InvalidInputError::new_err(format!(
            "table {} has other settings, and they stay; pass the settings of one job to \
             start_job(config=) and start_job(maintenance=)",
            table.uri()
        )));
    }
    table.set_verify_sstables(verify_sstables);
    Ok(Table::new(table))
}

#[doc = docstring!("exists")]
#[pyfunction]
#[pyo3(signature = (uri, *, storage_options=None))]
fn exists(py: Python<'_>, uri: FilePath, storage_options: Option<StoreOptions>) -> PyResult<bool> {
    let location = location(uri, storage_options)?;
    let uri = location.uri().to_owned();
    run_on(py, &uri, lancemem::Table::exists(location))
}

#[doc = docstring!("drop_table")]
#[pyfunction]
#[pyo3(signature = (uri, *, storage_options=None))]
fn drop_table(
    py: Python<'_>,
    uri: FilePath,
    storage_options: Option<StoreOptions>,
) -> PyResult<()> {
    let location = location(uri, storage_options)?;
    let uri = location.uri().to_owned();
    run_on(py, &uri, lancemem::Table::remove(location))
}

#[doc = docstring!("evaluate")]
#[pyfunction]
fn evaluate<'py>(
    rows: &Bound<'py, PyAny>,
    expressions: &Bound<'py, PyMapping>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = rows.py();
    let (rows, expressions) = (input::batch(rows)?, named_sql(expressions)?);
    let values = run(py, async { lancemem::evaluate(&rows, &expressions) })?;
    pyarrow_table_of(py, vec![values])
}

/// The location of a table, from a `str` or an `os.PathLike`.
fn location(uri: FilePath, options: Option<StoreOptions>) -> PyResult<Location> {
    let text = uri.0.into_os_string().into_string().map_err(|uri| {
        InvalidInputError::new_err(format!("the location '{}' is not UTF-8", uri.display()))
    })?;
    Ok(Location::new(&text).with_storage_options(options.map(|it| it.0).unwrap_or_default()))
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(create_table, module)?)?;
    module.add_function(wrap_pyfunction!(open_table, module)?)?;
    module.add_function(wrap_pyfunction!(enable, module)?)?;
    module.add_function(wrap_pyfunction!(exists, module)?)?;
    module.add_function(wrap_pyfunction!(drop_table, module)?)?;
    module.add_function(wrap_pyfunction!(evaluate, module)?)
}
