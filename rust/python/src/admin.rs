//! `Admin`: the methods that verify and repair a table.
//!
//! Owns: their Python signatures.
//! Does not own: verification and repair, or the translation of reports (`repair`, `maintain`).

use std::sync::Arc;

use pyo3::prelude::*;

use crate::arguments::{Given, ShardName};
use crate::docs::docstring;
use crate::maintain;
use crate::progress::following;
use crate::repair;
use crate::runtime::Here;
use crate::values::{RecordIndexReport, RelistReport, SsTableReport, WalReport};

/// Verification and repair of a table.
#[pyclass(frozen, module = "lancemem")]
pub struct Admin {
    table: Here<lancemem::Table>,
}

impl Admin {
    pub fn new(table: Arc<lancemem::Table>) -> Self {
        Self { table: Here::new(table) }
    }

    fn table(&self) -> PyResult<&lancemem::Table> {
        self.table.get("table").map(|table| &**table)
    }
}

#[pymethods]
impl Admin {
    #[doc = docstring!("Admin.verify_wal")]
    fn verify_wal(&self, py: Python<'_>, shard: ShardName) -> PyResult<WalReport> {
        repair::verify_wal(py, self.table()?, shard)
    }

    #[doc = docstring!("Admin.truncate_wal")]
    #[pyo3(signature = (shard, *, from_position))]
    fn truncate_wal(
        &self,
        py: Python<'_>,
        shard: ShardName,
        from_position: Given<u64>,
    ) -> PyResult<WalReport> {
        repair::truncate_wal(py, self.table()?, shard, from_position.named("from_position")?)
    }

    #[doc = docstring!("Admin.verify_sstables")]
    #[pyo3(signature = (shard=None, *, progress=None))]
    fn verify_sstables(
        &self,
        py: Python<'_>,
        shard: Option<ShardName>,
        progress: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Vec<SsTableReport>> {
        let table = self.table()?;
        following(py, progress, || repair::verify_sstables(py, table, shard))
    }

    #[doc = docstring!("Admin.verify_record_index")]
    #[pyo3(signature = (*, progress=None))]
    fn verify_record_index(
        &self,
        py: Python<'_>,
        progress: Option<Bound<'_, PyAny>>,
    ) -> PyResult<RecordIndexReport> {
        let table = self.table()?;
        following(py, progress, || maintain::verify_record_index(py, table))
    }

    #[doc = docstring!("Admin.relist_sstables")]
    #[pyo3(signature = (shard=None))]
    fn relist_sstables(
        &self,
        py: Python<'_>,
        shard: Option<ShardName>,
    ) -> PyResult<Vec<RelistReport>> {
        repair::relist_sstables(py, self.table()?, shard)
    }

    #[doc = docstring!("Admin.abandon_generations")]
    #[pyo3(signature = (shard, *, through_generation))]
    fn abandon_generations(
        &self,
        py: Python<'_>,
        shard: ShardName,
        through_generation: Given<u64>,
    ) -> PyResult<u64> {
        let through = through_generation.named("through_generation")?;
        repair::abandon_generations(py, self.table()?, shard, through)
    }

    fn __repr__(&self) -> String {
        format!("Admin({:?})", self.table.peek().uri())
    }
}
