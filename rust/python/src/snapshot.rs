//! `Snapshot`: a consistent snapshot of a table, for any number of reads.
//!
//! Owns: the reads of a snapshot as Python methods, and the description of its parts.
//! Does not own: taking a snapshot (`Table.snapshot`), or the execution of reads.

use std::sync::Arc;

use lancemem::{ReadPart, ScanOptions, TableSource};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};

use crate::arguments::{ColumnNames, Given, ScanColumns, ScanOrder, missing_keys};
use crate::docs::docstring;
use crate::errors::to_py;
use crate::filter::condition;
use crate::keys;
use crate::output::{pyarrow_schema, pyarrow_table_of};
use crate::provider;
use crate::runtime::{Here, run_on};
use crate::scan::Scan;
use crate::search::search_of_snapshot;
use crate::values::{SnapshotMemTable, SnapshotShard};

/// A consistent snapshot of a table.
#[pyclass(frozen, subclass, module = "lancemem")]
pub struct Snapshot {
    table: Here<lancemem::Table>,
    snapshot: Here<lancemem::Snapshot>,
}

impl Snapshot {
    pub fn new(table: Arc<lancemem::Table>, snapshot: Arc<lancemem::Snapshot>) -> Self {
        Self { table: Here::new(table), snapshot: Here::new(snapshot) }
    }

    fn scan_with(&self, options: ScanOptions) -> PyResult<Scan> {
        let (table, snapshot) = self.inner()?;
        let scan = lancemem::Scan::of_snapshot(table.clone(), snapshot.clone(), options);
        Ok(Scan::new(scan, table.uri()))
    }

    fn inner(&self) -> PyResult<(&Arc<lancemem::Table>, &Arc<lancemem::Snapshot>)> {
        const WHAT: &str = "snapshot";
        Ok((self.table.get(WHAT)?, self.snapshot.get(WHAT)?))
    }
}

#[pymethods]
impl Snapshot {
    /// Another handle of the same, for a subclass.
    #[new]
    fn of_handle(handle: &Bound<'_, Self>) -> Self {
        let Self { table, snapshot } = handle.get();
        Self { table: table.clone(), snapshot: snapshot.clone() }
    }

    #[getter]
    fn schema<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        pyarrow_schema(py, &self.snapshot.peek().schema)
    }

    #[doc = docstring!("Snapshot.base_version")]
    #[getter]
    fn base_version(&self) -> u64 {
        self.snapshot.peek().base_version()
    }

    #[doc = docstring!("Snapshot.num_base_fragments")]
    #[getter]
    fn num_base_fragments(&self) -> usize {
        self.snapshot.peek().base.count_fragments()
    }

    #[doc = docstring!("Snapshot.num_parts")]
    #[getter]
    fn num_parts(&self) -> usize {
        ReadPart::most(self.snapshot.peek())
    }

    #[doc = docstring!("Snapshot.stored_bytes")]
    #[getter]
    fn stored_bytes(&self) -> u64 {
        self.snapshot.peek().stored_bytes()
    }

    #[doc = docstring!("Snapshot.shards")]
    #[getter]
    fn shards(&self) -> Vec<SnapshotShard> {
        self.snapshot.peek().shards.iter().map(snapshot_shard).collect()
    }

    #[doc = docstring!("Snapshot.token")]
    #[getter]
    fn token(&self) -> Option<String> {
        self.snapshot.peek().token().map(|token| token.to_string())
    }

    #[doc = docstring!("Snapshot.scan")]
    #[expect(clippy::too_many_arguments, reason = "they have names in Python")]
    #[pyo3(
        signature = (
            columns=None, filter=None, limit=None, offset=Given(Ok(0)), *, order_by=None, part=None
        ),
        text_signature = "($self, columns=None, filter=None, limit=None, offset=0, *, \
                          order_by=None, part=None)"
    )]
    fn scan(
        &self,
        columns: Option<ScanColumns>,
        filter: Option<&Bound<'_, PyAny>>,
        limit: Option<Given<usize>>,
        offset: Given<usize>,
        order_by: Option<ScanOrder>,
        part: Option<(usize, usize)>,
    ) -> PyResult<Scan> {
        let filter = condition(filter, &self.snapshot.peek().schema)?;
        let part = part.map(|(index, of)| ReadPart::new(index, of)).transpose();
        let part = part.map_err(|error| to_py(&error))?;
        let (columns, expressions) = ScanColumns::split(columns);
        let options = ScanOptions::default()
            .with_columns(columns)
            .with_expressions(expressions)
            .with_filter(filter)
            .with_offset(offset.named("offset")?)
            .with_limit(limit.map(|limit| limit.named("limit")).transpose()?)
            .with_order_by(ScanOrder::keys(order_by))
            .with_part(part);
        self.scan_with(options)
    }

    #[doc = docstring!("Snapshot.sql")]
    fn sql(&self, query: &str) -> PyResult<Scan> {
        let (table, snapshot) = self.inner()?;
        let scan = table.sql_of_snapshot(query, snapshot.clone());
        Ok(Scan::new(scan.map_err(|error| to_py(&error))?, table.uri()))
    }

    #[doc = docstring!("Snapshot.search")]
    #[pyo3(
        signature = (query, **options),
        text_signature = "($self, query, *, query_type='auto', text=None, text_columns=None, \
                          rerank=None, column=None, k=10, columns=None, filter=None, metric=None, \
                          nprobes=None, minimum_nprobes=None, maximum_nprobes=None, ef=None, \
                          refine_factor=None, distance_range=None, prefilter=True, exact=False, \
                          fast_search=False, offset=0)"
    )]
    fn search(
        &self,
        query: &Bound<'_, PyAny>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Scan> {
        let (table, snapshot) = self.inner()?;
        search_of_snapshot(table, snapshot, query, options)
    }

    #[doc = docstring!("Snapshot.get")]
    #[pyo3(signature = (keys, columns=None, *, missing="drop"))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
        columns: Option<ColumnNames>,
        missing: &str,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (table, snapshot) = self.inner()?;
        let missing = missing_keys(missing)?;
        let keys = keys::batch(keys, table.primary_key())?;
        let columns = ColumnNames::of(columns);
        let rows = run_on(py, table.uri(), async move {
            missing.rows(table.get_of_snapshot(snapshot, &keys, columns).await?)
        })?;
        pyarrow_table_of(py, rows)
    }

    #[doc = docstring!("Snapshot.count_rows")]
    #[pyo3(signature = (filter=None))]
    fn count_rows(&self, py: Python<'_>, filter: Option<&Bound<'_, PyAny>>) -> PyResult<usize> {
        let filter = condition(filter, &self.snapshot.peek().schema)?;
        self.scan_with(ScanOptions::default().with_filter(filter))?.count(py)
    }

    #[doc = docstring!("Snapshot.to_dataset")]
    fn to_dataset<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.get().inner()?;
        slf.py().import("lancemem.arrow_dataset")?.call_method1("TableDataset", (slf,))
    }

    #[doc = docstring!("Snapshot.__datafusion_table_provider__")]
    fn __datafusion_table_provider__<'py>(
        &self,
        session: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let (table, snapshot) = self.inner()?;
        provider::capsule(session, TableSource::of_snapshot(table.clone(), snapshot.clone()))
    }

    fn __repr__(&self) -> String {
        format!(
            "Snapshot({:?}, base_version={})",
            self.table.peek().uri(),
            self.snapshot.peek().base_version()
        )
    }
}

fn snapshot_shard(shard: &lancemem::snapshot::SnapshotShard) -> SnapshotShard {
    let memtable = |rows: &lancemem::snapshot::MemTableView| SnapshotMemTable {
        generation: rows.generation().get(),
        num_rows: rows.rows(),
    };
    SnapshotShard {
        shard_id: shard.shard_id.to_string(),
        manifest_version: shard.manifest_version.get(),
        sstables: shard.sstables.iter().map(|sstable| sstable.generation.get()).collect(),
        memtables: shard.memtables.iter().map(memtable).collect(),
    }
}
