//! `TableWriter`: the writer of all shards of a table.
//!
//! Owns: the verbs of a writer in Python, usable from several threads at once, and its counters.
//! Does not own: the writer's life beyond the object: dropping it ends its jobs.

use std::sync::Arc;

use pyo3::prelude::*;

use crate::arguments::{ColumnNames, Given, ScanColumns, ScanOrder, TxnParts, missing_keys};
use crate::bulk::{self, Change};
use crate::config::{GivenConfig, Maintenance, WriterConfig};
use crate::docs::docstring;
use crate::errors::to_py;
use crate::input;
use crate::keys;
use crate::output::pyarrow_table_of;
use crate::rules::put_mode;
use crate::runtime::{Here, run_on};
use crate::scan::{Scan, ScanArguments};
use crate::values::{Acknowledged, JobStats, Repr, value};
use crate::write::{Promise, left_block, write};

/// Writes rows to all shards of a table.
#[pyclass(frozen, subclass, module = "lancemem")]
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
        config: Option<GivenConfig>,
        maintenance: Option<Maintenance>,
    ) -> PyResult<Self> {
        let is_given = config.is_some();
        let settings = WriterConfig::over(config, table.writer_defaults().clone())?;
        let settings = is_given.then_some(settings);
        let maintenance = Maintenance::over(maintenance, table.maintenance_defaults().clone())?;
        let (key, uri) = (table.primary_key().to_vec(), table.uri().to_owned());
        let writer =
            run_on(py, &uri, async move { table.writer(settings, Some(maintenance)).await })?;
        Ok(Self { inner: Here::new(writer), key, uri })
    }

    fn inner(&self) -> PyResult<Arc<lancemem::TableWriter>> {
        self.inner.get("writer").cloned()
    }
}

#[pymethods]
impl TableWriter {
    /// Another handle of the same, for a subclass.
    #[new]
    fn of_handle(handle: &Bound<'_, Self>) -> Self {
        let Self { inner, key, uri } = handle.get();
        Self { inner: inner.clone(), key: key.clone(), uri: uri.clone() }
    }

    #[doc = docstring!("TableWriter.put")]
    #[expect(clippy::too_many_arguments, reason = "they have names in Python")]
    #[pyo3(
        signature = (
            data, *, replace=false, nulls=None, durable=None, sync_index=None,
            sync_search_index=None, txn=None, round_floats=false
        )
    )]
    fn put(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        replace: bool,
        nulls: Option<&str>,
        durable: Option<bool>,
        sync_index: Option<bool>,
        sync_search_index: Option<bool>,
        txn: Option<TxnParts>,
        round_floats: bool,
    ) -> PyResult<Acknowledged> {
        let rows = || input::batch_of_put(data);
        let promise = Promise { durable, sync_index, sync_search_index, txn, round_floats };
        let change = Change::Put(put_mode(&self.uri, replace, nulls)?);
        write(py, &self.uri, self.inner()?, rows, change, promise)
    }

    #[doc = docstring!("TableWriter.delete")]
    #[expect(clippy::too_many_arguments, reason = "they have names in Python")]
    #[pyo3(
        signature = (keys, *, durable=None, sync_index=None, sync_search_index=None, txn=None)
    )]
    fn delete(
        &self,
        py: Python<'_>,
        keys: &Bound<'_, PyAny>,
        durable: Option<bool>,
        sync_index: Option<bool>,
        sync_search_index: Option<bool>,
        txn: Option<TxnParts>,
    ) -> PyResult<Acknowledged> {
        let rows = || keys::batch(keys, &self.key);
        let promise = Promise { durable, sync_index, sync_search_index, txn, round_floats: false };
        write(py, &self.uri, self.inner()?, rows, Change::Delete, promise)
    }

    #[doc = docstring!("TableWriter.apply")]
    #[expect(clippy::too_many_arguments, reason = "they have names in Python")]
    #[pyo3(
        signature = (
            data, deletes, *, durable=None, sync_index=None, sync_search_index=None, txn=None,
            round_floats=false
        )
    )]
    fn apply(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        deletes: &Bound<'_, PyAny>,
        durable: Option<bool>,
        sync_index: Option<bool>,
        sync_search_index: Option<bool>,
        txn: Option<TxnParts>,
        round_floats: bool,
    ) -> PyResult<Acknowledged> {
        let change = Change::Apply(bulk::deletes(deletes)?);
        let rows = || input::batch_of_put(data);
        let promise = Promise { durable, sync_index, sync_search_index, txn, round_floats };
        write(py, &self.uri, self.inner()?, rows, change, promise)
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
        let read = ScanArguments { columns, filter, limit, offset, order_by };
        let options = read.options(py, writer.table())?;
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
        left_block(py, error_type, closed)
    }
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<TableWriter>()?;
    module.add_class::<WriterStats>()
}
