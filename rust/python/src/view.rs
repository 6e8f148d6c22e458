//! `ReadView`: one cut of a table, read as often as one likes.
//!
//! Owns: the ways to read a pinned cut, and what it pinned.
//! Does not own: pinning (`Table.pin`), or the reads.

use std::sync::Arc;

use lancemem::{ReadPart, ScanOptions, TableSource};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::arguments::{ColumnNames, Given};
use crate::docs::docstring;
use crate::errors::to_py;
use crate::filter::condition;
use crate::keys;
use crate::output::{pyarrow_schema, pyarrow_table_of};
use crate::provider;
use crate::runtime::{Here, run_on};
use crate::scan::Scan;
use crate::values::{PinnedMemTable, PinnedShard};

/// One consistent cut of a table.
#[pyclass(frozen, module = "lancemem")]
pub struct ReadView {
    table: Here<lancemem::Table>,
    view: Here<lancemem::ReadView>,
}

impl ReadView {
    pub fn new(table: Arc<lancemem::Table>, view: Arc<lancemem::ReadView>) -> Self {
        Self { table: Here::new(table), view: Here::new(view) }
    }

    fn scan_with(&self, options: ScanOptions) -> PyResult<Scan> {
        let (table, view) = self.inner()?;
        let scan = lancemem::Scan::of_view(table.clone(), view.clone(), options);
        Ok(Scan::new(scan, table.uri()))
    }

    fn inner(&self) -> PyResult<(&Arc<lancemem::Table>, &Arc<lancemem::ReadView>)> {
        const WHAT: &str = "read view";
        Ok((self.table.get(WHAT)?, self.view.get(WHAT)?))
    }
}

#[pymethods]
impl ReadView {
    #[getter]
    fn schema<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        pyarrow_schema(py, &self.view.peek().schema)
    }

    #[doc = docstring!("ReadView.base_version")]
    #[getter]
    fn base_version(&self) -> u64 {
        self.view.peek().base_version()
    }

    #[doc = docstring!("ReadView.base_fragments")]
    #[getter]
    fn base_fragments(&self) -> usize {
        self.view.peek().base.count_fragments()
    }

    #[doc = docstring!("ReadView.shards")]
    #[getter]
    fn shards(&self) -> Vec<PinnedShard> {
        self.view.peek().shards.iter().map(pinned_shard).collect()
    }

    #[doc = docstring!("ReadView.cut")]
    #[getter]
    fn cut(&self) -> Option<String> {
        self.view.peek().cut().map(|cut| cut.to_string())
    }

    #[doc = docstring!("ReadView.scan")]
    #[pyo3(
        signature = (columns=None, filter=None, limit=None, offset=Given(Ok(0)), *, part=None),
        text_signature = "($self, columns=None, filter=None, limit=None, offset=0, *, part=None)"
    )]
    fn scan(
        &self,
        columns: Option<ColumnNames>,
        filter: Option<&Bound<'_, PyAny>>,
        limit: Option<Given<usize>>,
        offset: Given<usize>,
        part: Option<(usize, usize)>,
    ) -> PyResult<Scan> {
        let filter = condition(filter, &self.view.peek().schema)?;
        let part = part.map(|(index, of)| ReadPart::new(index, of)).transpose();
        let part = part.map_err(|error| to_py(&error))?;
        let options = ScanOptions {
            columns: ColumnNames::of(columns),
            filter,
            offset: offset.named("offset")?,
            limit: limit.map(|limit| limit.named("limit")).transpose()?,
            part,
            ..ScanOptions::default()
        };
        self.scan_with(options)
    }

    #[doc = docstring!("ReadView.get")]
    #[pyo3(signature = (keys, columns=None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
        columns: Option<ColumnNames>,
    ) -> PyResult<Bound<'py, PyAny>> {
        Ok(self.get_with_missing(py, keys, columns)?.0)
    }

    #[doc = docstring!("ReadView.get_with_missing")]
    #[pyo3(signature = (keys, columns=None))]
    fn get_with_missing<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
        columns: Option<ColumnNames>,
    ) -> PyResult<(Bound<'py, PyAny>, Vec<usize>)> {
        let (table, view) = self.inner()?;
        let keys = keys::batch(keys, table.primary_key())?;
        let found =
            run_on(py, table.uri(), table.get_of_view(view, &keys, ColumnNames::of(columns)))?;
        Ok((pyarrow_table_of(py, found.rows)?, found.missing))
    }

    #[doc = docstring!("ReadView.count_rows")]
    #[pyo3(signature = (filter=None))]
    fn count_rows(&self, py: Python<'_>, filter: Option<&Bound<'_, PyAny>>) -> PyResult<usize> {
        let filter = condition(filter, &self.view.peek().schema)?;
        self.scan_with(ScanOptions { filter, ..ScanOptions::default() })?.count(py)
    }

    #[doc = docstring!("ReadView.to_dataset")]
    fn to_dataset<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.get().inner()?;
        slf.py().import("lancemem.dataset")?.call_method1("TableDataset", (slf,))
    }

    #[doc = docstring!("ReadView.__datafusion_table_provider__")]
    fn __datafusion_table_provider__<'py>(
        &self,
        session: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let (table, view) = self.inner()?;
        provider::capsule(session, TableSource::of_view(table.clone(), view.clone()))
    }

    fn __repr__(&self) -> String {
        format!(
            "ReadView({:?}, base_version={})",
            self.table.peek().uri(),
            self.view.peek().base_version()
        )
    }
}

fn pinned_shard(shard: &lancemem::snapshot::ShardView) -> PinnedShard {
    let memtable = |rows: &lancemem::snapshot::MemTableView| PinnedMemTable {
        generation: rows.generation().get(),
        rows: rows.rows(),
    };
    PinnedShard {
        shard_id: shard.shard_id.to_string(),
        manifest_version: shard.manifest_version.get(),
        sstables: shard.sstables.iter().map(|run| run.generation.get()).collect(),
        memtables: shard.memtables.iter().map(memtable).collect(),
    }
}
