//! `Table` and the functions that make one.
//!
//! Owns: the table's verbs in Python.
//! Does not own: jobs and scans, which are objects of their own.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::Int32Array;
use lancemem::table::CreateOptions;
use lancemem::{Consistency, LiveJob, Location, ScanOptions, ShardId, Sharding as RustSharding};
use pyo3::prelude::*;

use crate::config::WriterConfig;
use crate::errors::{InvalidInputError, to_py};
use crate::input;
use crate::job::Job;
use crate::output::{ArrowArray, ArrowStream, pyarrow_schema, pyarrow_table};
use crate::repair;
use crate::runtime::{Origin, run, runtime};
use crate::scan::Scan;
use crate::serve::RemoteJob;
use crate::values::{
    CompactionResult, Shard, Sharding, SsTable, TableStats, WalReport, WriteResult,
};

/// A Lance table with shards that take upserts.
#[pyclass(frozen, module = "lancemem")]
pub struct Table {
    inner: Arc<lancemem::Table>,
    origin: Origin,
}

impl Table {
    fn new(inner: Arc<lancemem::Table>) -> Self {
        Self { inner, origin: Origin::here() }
    }

    fn inner(&self) -> PyResult<Arc<lancemem::Table>> {
        self.origin.check("table")?;
        Ok(self.inner.clone())
    }
}

/// Creates an empty table with its shards.
#[pyfunction]
#[pyo3(signature = (uri, schema, *, primary_key=None, sharding=None, config=None, storage_options=None))]
#[expect(clippy::too_many_arguments, reason = "each is a keyword of one setting")]
fn create_table(
    py: Python<'_>,
    uri: &str,
    schema: &Bound<'_, PyAny>,
    primary_key: Option<KeyNames>,
    sharding: Option<&Sharding>,
    config: Option<&WriterConfig>,
    storage_options: Option<HashMap<String, String>>,
) -> PyResult<Table> {
    let options = CreateOptions {
        schema: input::schema(schema)?,
        primary_key: primary_key.map_or_else(Vec::new, KeyNames::into_vec),
        sharding: sharding.map_or(RustSharding::Unsharded, |sharding| sharding.0.clone()),
        config: WriterConfig::over(config, lancemem::WriterConfig::default())?,
    };
    run(py, lancemem::Table::create(location(uri, storage_options), &options)).map(Table::new)
}

/// Opens a table; a Lance table with a primary key becomes one of lancemem's.
#[pyfunction]
#[pyo3(signature = (uri, *, sharding=None, config=None, storage_options=None))]
fn open_table(
    py: Python<'_>,
    uri: &str,
    sharding: Option<&Sharding>,
    config: Option<&WriterConfig>,
    storage_options: Option<HashMap<String, String>>,
) -> PyResult<Table> {
    let location = location(uri, storage_options);
    let Some(sharding) = sharding else {
        return run(py, lancemem::Table::open(location)).map(Table::new);
    };
    let config = WriterConfig::over(config, lancemem::WriterConfig::default())?;
    run(py, lancemem::Table::enable(location, &sharding.0, &config)).map(Table::new)
}

fn location(uri: &str, storage_options: Option<HashMap<String, String>>) -> Location {
    Location::new(uri).with_storage_options(storage_options.unwrap_or_default())
}

/// One name or several.
#[derive(FromPyObject)]
enum KeyNames {
    One(String),
    Several(Vec<String>),
}

impl KeyNames {
    fn into_vec(self) -> Vec<String> {
        match self {
            Self::One(name) => vec![name],
            Self::Several(names) => names,
        }
    }
}

/// A running job of this process or of another.
#[derive(FromPyObject)]
enum RunningJob {
    Here(Py<Job>),
    Elsewhere(Py<RemoteJob>),
}

/// A shard by its ordinal or its id.
#[derive(FromPyObject)]
pub enum ShardName {
    Ordinal(i32),
    Id(String),
}

#[pymethods]
impl Table {
    #[getter]
    fn uri(&self) -> &str {
        self.inner.uri()
    }

    #[getter]
    fn schema<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        pyarrow_schema(py, self.inner.schema())
    }

    #[getter]
    fn primary_key(&self) -> Vec<String> {
        self.inner.primary_key().to_vec()
    }

    #[getter]
    fn sharding(&self) -> Option<Sharding> {
        self.inner.sharding().cloned().map(Sharding)
    }

    fn upsert(&self, py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<WriteResult> {
        let table = self.inner()?;
        let rows = input::batch(data)?;
        run(py, async move { table.upsert(&rows).await }).map(write_result)
    }

    fn delete(&self, py: Python<'_>, keys: &Bound<'_, PyAny>) -> PyResult<WriteResult> {
        let table = self.inner()?;
        let keys = input::batch(keys)?;
        run(py, async move { table.delete(&keys).await }).map(write_result)
    }

    fn shard_ordinals(&self, py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<ArrowArray> {
        let table = self.inner()?;
        let rows = input::batch(data)?;
        let ordinals = py.detach(|| table.shard_ordinals(&rows)).map_err(|error| to_py(&error))?;
        Ok(ArrowArray::new(Arc::new(Int32Array::from(ordinals))))
    }

    #[pyo3(signature = (*, shard, config=None))]
    fn start_job(
        &self,
        py: Python<'_>,
        shard: ShardName,
        config: Option<&WriterConfig>,
    ) -> PyResult<Job> {
        let table = self.inner()?;
        let config = WriterConfig::over(config, table.writer_defaults().clone())?;
        let shard_id = match shard {
            ShardName::Id(id) => ShardId::parse_str(&id)
                .map_err(|_| InvalidInputError::new_err(format!("'{id}' is not a shard id")))?,
            ShardName::Ordinal(ordinal) => {
                let routing = run(py, table.routing())?;
                routing.get(&ordinal).copied().ok_or_else(|| {
                    InvalidInputError::new_err(format!(
                        "table {} has no shard {ordinal}; it has {}",
                        table.uri(),
                        routing.len()
                    ))
                })?
            }
        };
        run(py, async move { table.start_job(shard_id, config).await }).map(Job::new)
    }

    #[pyo3(signature = (columns=None, filter=None, limit=None, *, consistency="durable", jobs=None))]
    fn scan(
        &self,
        columns: Option<Vec<String>>,
        filter: Option<String>,
        limit: Option<usize>,
        consistency: &str,
        jobs: Option<Vec<RunningJob>>,
    ) -> PyResult<Scan> {
        let table = self.inner()?;
        let jobs = running(jobs)?;
        let consistency = parse_consistency(consistency)?;
        let options = ScanOptions { columns, filter, offset: 0, limit, consistency };
        Ok(Scan::new(table.scan(options, jobs)))
    }

    #[pyo3(signature = (keys, columns=None, *, consistency="durable", jobs=None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
        columns: Option<Vec<String>>,
        consistency: &str,
        jobs: Option<Vec<RunningJob>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let table = self.inner()?;
        let jobs = running(jobs)?;
        let consistency = parse_consistency(consistency)?;
        let keys = input::batch(keys)?;
        let found = run(py, async move { table.get(&keys, columns, consistency, &jobs).await })?;
        let schema = found.rows.schema();
        let rows = futures::stream::iter([Ok::<_, lancemem::Error>(found.rows)]);
        pyarrow_table(py, ArrowStream::new(schema, rows, runtime()?))
    }

    fn compact(&self, py: Python<'_>) -> PyResult<CompactionResult> {
        let table = self.inner()?;
        let result = run(py, async move { table.compact().await })?;
        Ok(CompactionResult {
            generations: result.generations,
            rows_written: result.rows_written,
            rows_deleted: result.rows_deleted,
            base_version: result.base_version,
        })
    }

    fn shards(&self, py: Python<'_>) -> PyResult<Vec<Shard>> {
        let table = self.inner()?;
        let shards = run(py, async move { table.shards().await })?;
        Ok(shards.into_iter().map(shard_value).collect())
    }

    fn stats(&self, py: Python<'_>) -> PyResult<TableStats> {
        let table = self.inner()?;
        let stats = run(py, async move { table.stats().await })?;
        Ok(TableStats {
            base_version: stats.base_version,
            base_rows: stats.base_rows,
            shards: stats.shards,
            sstables: stats.sstables,
            sstable_rows: stats.sstable_rows,
        })
    }

    fn check_wal(&self, py: Python<'_>, shard: ShardName) -> PyResult<WalReport> {
        repair::check_wal(py, &*self.inner()?, shard)
    }

    #[pyo3(signature = (shard, *, from_position))]
    fn cut_wal(&self, py: Python<'_>, shard: ShardName, from_position: u64) -> PyResult<WalReport> {
        repair::cut_wal(py, &*self.inner()?, shard, from_position)
    }

    fn __repr__(&self) -> String {
        format!("Table({:?})", self.inner.uri())
    }
}

fn running(jobs: Option<Vec<RunningJob>>) -> PyResult<Vec<Arc<dyn LiveJob>>> {
    let jobs = jobs.unwrap_or_default();
    let jobs = jobs.iter().map(|job| -> PyResult<Arc<dyn LiveJob>> {
        match job {
            RunningJob::Here(job) => Ok(job.get().inner()?),
            RunningJob::Elsewhere(job) => Ok(job.get().inner()?),
        }
    });
    jobs.collect()
}

fn parse_consistency(name: &str) -> PyResult<Consistency> {
    match name {
        "flushed" => Ok(Consistency::Flushed),
        "durable" => Ok(Consistency::Durable),
        "live" => Ok(Consistency::Live),
        other => Err(InvalidInputError::new_err(format!(
            "consistency must be 'flushed', 'durable' or 'live', got '{other}'"
        ))),
    }
}

const fn write_result(result: lancemem::WriteResult) -> WriteResult {
    WriteResult { rows: result.rows, shards: result.shards, wal_entries: result.wal_entries }
}

fn shard_value(shard: lancemem::Shard) -> Shard {
    let sstables = shard
        .sstables
        .into_iter()
        .map(|sstable| SsTable {
            generation: sstable.generation.get(),
            path: sstable.path,
            rows: sstable.physical_rows,
        })
        .collect();
    Shard {
        ordinal: shard.ordinal,
        shard_id: shard.shard_id.to_string(),
        writer_epoch: shard.writer_epoch.get(),
        current_generation: shard.current_generation.get(),
        sstables,
        replay_after_wal_position: shard.replay_after_wal_position.get(),
        last_wal_position: shard.last_wal_position.get(),
    }
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Table>()?;
    module.add_function(wrap_pyfunction!(create_table, module)?)?;
    module.add_function(wrap_pyfunction!(open_table, module)?)
}
