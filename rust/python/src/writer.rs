//! `TableWriter`: the writer of all shards of a table.
//!
//! Owns: the verbs of a writer in Python, usable from several threads at once, and its counters.
//! Does not own: the writer's life beyond the object: dropping it ends its jobs.

use std::sync::Arc;

use arrow_array::RecordBatch;
use lancemem::{ScanOptions, WriteOptions};
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::arguments::{ColumnNames, Given, ScanColumns, ScanOrder, missing_keys};
use crate::bulk::{self, Change};
use crate::config::{Maintenance, WriterConfig};
use crate::docs::docstring;
use crate::errors::to_py;
use crate::filter::condition;
use crate::input;
use crate::job::Promise;
use crate::keys;
use crate::output::pyarrow_table_of;
use crate::runtime::{Here, run_on};
use crate::scan::Scan;
use crate::values::{Acknowledged, JobStats, Repr, value};

/// Writes rows to all shards of a table.
#[pyclass(frozen, module = "lancemem")]
pub struct TableWriter {
    inner: Here<lancemem::TableWriter>,
    key: Vec<String>,
    uri: String,
}

value! {
    /// The counters of a writer's jobs, added up and of each job.
    WriterStats {
        num_puts: u64,
        num_rows: u64,
        num_wal_entries: u64,
        wal_bytes: u64,
        num_flushes: u64,
        memtable_bytes: u64,
        num_uncompacted_generations: u64,
        num_waiting_puts: u64,
        jobs: Vec<JobStats>,
    }
}

impl From<lancemem::WriterStats> for WriterStats {
    fn from(stats: lancemem::WriterStats) -> Self {
        let jobs = stats.jobs.into_iter();
        Self {
            num_puts: stats.puts,
            num_rows: stats.rows,
            num_wal_entries: stats.wal_entries,
            wal_bytes: stats.wal_bytes,
            num_flushes: stats.flushes,
            memtable_bytes: stats.memtable_bytes,
            num_uncompacted_generations: stats.uncompacted_generations,
            num_waiting_puts: stats.waiting_puts,
            jobs: jobs.map(|(job, maintenance)| JobStats::of(&job, maintenance)).collect(),
        }
    }
}

impl TableWriter {
    /// Opens a writer of `table`; `config` and `maintenance` override the table's settings.
    pub fn open(
        py: Python<'_>,
        table: Arc<lancemem::Table>,
        config: Option<&WriterConfig>,
        maintenance: Option<Maintenance>,
    ) -> PyResult<Self> {
        let settings = WriterConfig::over(config, table.writer_defaults().clone())?;
        let settings = config.is_some().then_some(settings);
        let maintenance = Maintenance::over(maintenance, table.maintenance_defaults().clone())?;
        let (key, uri) = (table.primary_key().to_vec(), table.uri().to_owned());
        let writer =
            run_on(py, &uri, async move { table.writer(settings, Some(maintenance)).await })?;
        Ok(Self { inner: Here::new(writer), key, uri })
    }

    fn inner(&self) -> PyResult<Arc<lancemem::TableWriter>> {
        self.inner.get("writer").cloned()
    }

    /// `rows` are asked for only where the writer may be used in this process.
    fn write(
        &self,
        py: Python<'_>,
        rows: impl FnOnce() -> PyResult<RecordBatch>,
        change: Change,
        promise: Promise,
        round_floats: bool,
    ) -> PyResult<Acknowledged> {
        let writer = self.inner()?;
        let Promise { durable, sync_index, txn } = promise;
        let txn = bulk::txn(txn)?;
        let rows = rows()?;
        run_on(py, &self.uri, async move {
            let rows = if round_floats { writer.round_floats(&rows)? } else { rows };
            let options = WriteOptions::default().durable(durable).sync_index(sync_index);
            writer.write(change.of(&rows), options.inline(true).txn(txn.as_ref())).await
        })
        .map(Acknowledged::from)
    }
}

#[pymethods]
impl TableWriter {
    #[doc = docstring!("TableWriter.put")]
    #[expect(clippy::too_many_arguments, reason = "they have names in Python")]
    #[pyo3(signature = (data, *, durable=None, sync_index=None, txn=None, round_floats=false))]
    fn put(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        durable: Option<bool>,
        sync_index: Option<bool>,
        txn: Option<(String, i64)>,
        round_floats: bool,
    ) -> PyResult<Acknowledged> {
        let rows = || input::batch_of_put(data);
        self.write(py, rows, Change::Upsert, Promise { durable, sync_index, txn }, round_floats)
    }

    #[doc = docstring!("TableWriter.delete")]
    #[pyo3(signature = (keys, *, durable=None, sync_index=None, txn=None))]
    fn delete(
        &self,
        py: Python<'_>,
        keys: &Bound<'_, PyAny>,
        durable: Option<bool>,
        sync_index: Option<bool>,
        txn: Option<(String, i64)>,
    ) -> PyResult<Acknowledged> {
        let rows = || keys::batch(keys, &self.key);
        self.write(py, rows, Change::Delete, Promise { durable, sync_index, txn }, false)
    }

    #[doc = docstring!("TableWriter.apply")]
    #[expect(clippy::too_many_arguments, reason = "they have names in Python")]
    #[pyo3(
        signature = (data, deletes, *, durable=None, sync_index=None, txn=None, round_floats=false)
    )]
    fn apply(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        deletes: &Bound<'_, PyAny>,
        durable: Option<bool>,
        sync_index: Option<bool>,
        txn: Option<(String, i64)>,
        round_floats: bool,
    ) -> PyResult<Acknowledged> {
        let change = Change::Apply(bulk::deletes(deletes)?);
        let rows = || input::batch_of_put(data);
        self.write(py, rows, change, Promise { durable, sync_index, txn }, round_floats)
    }

    #[doc = docstring!("TableWriter.scan")]
    #[expect(clippy::too_many_arguments, reason = "they have names in Python")]
    #[pyo3(
        signature = (
            columns=None, filter=None, limit=None, offset=Given(Ok(0)), *, order_by=None
        ),
        text_signature = "($self, columns=None, filter=None, limit=None, offset=0, *, \
                          order_by=None)"
    )]
    fn scan(
        &self,
        py: Python<'_>,
        columns: Option<ScanColumns>,
        filter: Option<&Bound<'_, PyAny>>,
        limit: Option<Given<usize>>,
        offset: Given<usize>,
        order_by: Option<ScanOrder>,
    ) -> PyResult<Scan> {
        let writer = self.inner()?;
        let table = writer.table();
        let is_bound = filter.is_some_and(|filter| !filter.is_instance_of::<PyString>());
        if is_bound {
            // An expression is bound to columns here, and it may name a column that was just added.
            run_on(py, &self.uri, table.latest_base())?;
        }
        let (columns, expressions) = ScanColumns::split(columns);
        let options = ScanOptions::default()
            .with_columns(columns)
            .with_expressions(expressions)
            .with_filter(condition(filter, &table.schema())?)
            .with_offset(offset.named("offset")?)
            .with_limit(limit.map(|limit| limit.named("limit")).transpose()?)
            .with_order_by(ScanOrder::keys(order_by));
        let scan = writer.scan(options).map_err(|error| to_py(&error))?;
        Ok(Scan::new(scan, &self.uri))
    }

    #[doc = docstring!("TableWriter.get")]
    #[pyo3(signature = (keys, columns=None, *, missing="drop"))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
        columns: Option<ColumnNames>,
        missing: &str,
    ) -> PyResult<Bound<'py, PyAny>> {
        let writer = self.inner()?;
        let missing = missing_keys(missing)?;
        let keys = keys::batch(keys, &self.key)?;
        let columns = ColumnNames::of(columns);
        let rows =
            run_on(py, &self.uri, async move { missing.rows(writer.get(&keys, columns).await?) })?;
        pyarrow_table_of(py, rows)
    }

    #[doc = docstring!("TableWriter.flush")]
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        let writer = self.inner()?;
        run_on(py, &self.uri, async move { writer.flush().await })
    }

    #[doc = docstring!("TableWriter.close")]
    #[pyo3(signature = (*, flush=false))]
    fn close(&self, py: Python<'_>, flush: bool) -> PyResult<()> {
        let writer = self.inner()?;
        run_on(py, &self.uri, async move { writer.close(flush).await })
    }

    #[doc = docstring!("TableWriter.stats")]
    fn stats(&self) -> PyResult<WriterStats> {
        Ok(self.inner()?.stats().into())
    }

    fn __repr__(&self) -> String {
        format!("TableWriter({:?}, num_shards={})", self.uri, self.inner.peek().num_shards())
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (error_type=None, error=None, traceback=None))]
    fn __exit__(
        &self,
        py: Python<'_>,
        error_type: Option<&Bound<'_, PyAny>>,
        error: Option<&Bound<'_, PyAny>>,
        traceback: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<bool> {
        let _ = (error, traceback);
        let closed = self.close(py, false);
        // The error that left the block is not replaced by the error of a close that it made fail.
        // Ctrl-C while the writer closes is raised.
        match closed {
            Err(failed) if error_type.is_none() || !failed.is_instance_of::<PyException>(py) => {
                Err(failed)
            }
            _ => Ok(false),
        }
    }
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<TableWriter>()?;
    module.add_class::<WriterStats>()
}
