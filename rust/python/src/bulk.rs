//! `BulkWriter`, `StagedSsTable` and transaction ids: bulk writes, and writes that happen once.
//!
//! Owns: their Python signatures.
//! Does not own: the meaning of a bulk write or of a transaction id; the stub documents it.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{BooleanArray, RecordBatch};
use arrow_schema::DataType;
use lancemem::{Deletes, PutMode, ShardId, Txn, TypeName, WriteBatch};
use pyo3::intern;
use pyo3::prelude::*;
use tokio::sync::Mutex;

use crate::arguments::TxnParts;
use crate::docs::docstring;
use crate::errors::{InvalidInputError, to_py};
use crate::finalization::outlive_interpreter;
use crate::input;
use crate::rules::put_mode;
use crate::runtime::{Here, run_on};
use crate::values::{Repr, value};

/// The transaction id of a write from its two parts.
pub fn txn(parts: Option<TxnParts>) -> PyResult<Option<Txn>> {
    let txn = parts.map(|TxnParts(app_id, version)| Txn::new(app_id, version)).transpose();
    txn.map_err(|error| to_py(&error))
}

/// The mask of the rows that delete their key.
pub fn deletes(data: &Bound<'_, PyAny>) -> PyResult<BooleanArray> {
    outlive_interpreter();
    if !data.hasattr(intern!(data.py(), "__arrow_c_array__"))? {
        let found = data.get_type();
        return Err(InvalidInputError::new_err(format!(
            "deletes: expected an Arrow array of bool, such as pyarrow.array([True, False]), got {}",
            found.name()?
        )));
    }
    let array = input::array(data)?;
    if array.data_type() != &DataType::Boolean {
        let message = format!("deletes is of type {}, expected bool", TypeName(array.data_type()));
        return Err(InvalidInputError::new_err(message));
    }
    Ok(array.as_boolean().clone())
}

/// An SSTable of a bulk write that no manifest lists yet.
#[pyclass(frozen, eq, get_all, skip_from_py_object, module = "lancemem")]
#[derive(Clone, Debug, PartialEq)]
pub struct StagedSsTable {
    shard_id: String,
    path: String,
    num_rows: u64,
    in_memory_bytes: u64,
    primary_key_bytes: u64,
}

#[pymethods]
impl StagedSsTable {
    #[new]
    #[pyo3(signature = (shard_id, path, num_rows, in_memory_bytes, primary_key_bytes))]
    const fn new(
        shard_id: String,
        path: String,
        num_rows: u64,
        in_memory_bytes: u64,
        primary_key_bytes: u64,
    ) -> Self {
        Self { shard_id, path, num_rows, in_memory_bytes, primary_key_bytes }
    }

    fn __repr__(&self) -> String {
        format!(
            "StagedSsTable(shard_id={}, path={}, num_rows={})",
            self.shard_id.repr(),
            self.path.repr(),
            self.num_rows
        )
    }

    fn __getnewargs__(&self) -> (&str, &str, u64, u64, u64) {
        let Self { shard_id, path, num_rows, in_memory_bytes, primary_key_bytes } = self;
        (shard_id, path, *num_rows, *in_memory_bytes, *primary_key_bytes)
    }
}

impl From<lancemem::StagedSsTable> for StagedSsTable {
    fn from(sstable: lancemem::StagedSsTable) -> Self {
        Self {
            shard_id: sstable.shard_id.to_string(),
            path: sstable.path,
            num_rows: sstable.rows,
            in_memory_bytes: sstable.in_memory_bytes,
            primary_key_bytes: sstable.primary_key_bytes,
        }
    }
}

/// The SSTables as values of the engine.
pub fn staged_sstables(sstables: &[Py<StagedSsTable>]) -> PyResult<Vec<lancemem::StagedSsTable>> {
    let sstables = sstables.iter().map(|sstable| {
        let sstable = sstable.get();
        let shard_id = ShardId::parse_str(&sstable.shard_id).map_err(|_| {
            InvalidInputError::new_err(format!("'{}' is not a shard id", sstable.shard_id))
        })?;
        Ok(lancemem::StagedSsTable {
            shard_id,
            path: sstable.path.clone(),
            rows: sstable.num_rows,
            in_memory_bytes: sstable.in_memory_bytes,
            primary_key_bytes: sstable.primary_key_bytes,
        })
    });
    sstables.collect()
}

value! {
    /// What a commit of a bulk write did.
    CommitResult {
        num_rows: u64,
        num_shards: usize,
        num_sstables: usize,
        num_shards_already_written: usize,
    }
}

impl From<lancemem::CommitResult> for CommitResult {
    fn from(done: lancemem::CommitResult) -> Self {
        Self {
            num_rows: done.rows,
            num_shards: done.shards,
            num_sstables: done.sstables,
            num_shards_already_written: done.already_written,
        }
    }
}

/// Writes rows into staged SSTables.
#[pyclass(frozen, module = "lancemem")]
pub struct BulkWriter {
    inner: Here<Mutex<lancemem::BulkWriter>>,
    uri: String,
}

impl BulkWriter {
    /// `uri` is the URI of the table.
    pub fn new(writer: lancemem::BulkWriter, uri: &str) -> Self {
        Self { inner: Here::new(Mutex::new(writer)), uri: uri.to_owned() }
    }

    fn inner(&self) -> PyResult<Arc<Mutex<lancemem::BulkWriter>>> {
        self.inner.get("bulk writer").cloned()
    }

    fn write(
        &self,
        py: Python<'_>,
        rows: RecordBatch,
        change: Change,
        round_floats: bool,
    ) -> PyResult<()> {
        let writer = self.inner()?;
        run_on(py, &self.uri, async move {
            let mut writer = writer.lock().await;
            let rows = if round_floats { writer.round_floats(&rows)? } else { rows };
            writer.write(change.of(&rows)).await
        })
    }
}

/// What a call does with its rows: [`Deletes`] that owns its mask.
pub enum Change {
    Put(PutMode),
    Delete,
    Apply(BooleanArray),
}

impl Change {
    /// The change of `rows`.
    pub const fn of<'a>(&'a self, rows: &'a RecordBatch) -> WriteBatch<'a> {
        match self {
            Self::Put(mode) => WriteBatch::new(rows, Deletes::None).with_mode(*mode),
            Self::Delete => WriteBatch::new(rows, Deletes::All),
            Self::Apply(mask) => WriteBatch::new(rows, Deletes::Mask(mask)),
        }
    }
}

#[pymethods]
impl BulkWriter {
    #[doc = docstring!("BulkWriter.upsert")]
    #[pyo3(signature = (data, *, replace=false, nulls=None, round_floats=false))]
    fn upsert(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        replace: bool,
        nulls: Option<&str>,
        round_floats: bool,
    ) -> PyResult<()> {
        let change = Change::Put(put_mode(&self.uri, replace, nulls)?);
        self.write(py, input::batch(data)?, change, round_floats)
    }

    #[doc = docstring!("BulkWriter.delete")]
    fn delete(&self, py: Python<'_>, keys: &Bound<'_, PyAny>) -> PyResult<()> {
        self.write(py, input::batch(keys)?, Change::Delete, false)
    }

    #[doc = docstring!("BulkWriter.apply")]
    #[pyo3(signature = (data, deletes, *, round_floats=false))]
    fn apply(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        deletes: &Bound<'_, PyAny>,
        round_floats: bool,
    ) -> PyResult<()> {
        let deletes = self::deletes(deletes)?;
        self.write(py, input::batch(data)?, Change::Apply(deletes), round_floats)
    }

    #[doc = docstring!("BulkWriter.finish")]
    fn finish(&self, py: Python<'_>) -> PyResult<Vec<StagedSsTable>> {
        let writer = self.inner()?;
        let sstables = run_on(py, &self.uri, async move { writer.lock().await.finish().await })?;
        Ok(sstables.into_iter().map(StagedSsTable::from).collect())
    }
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<BulkWriter>()?;
    module.add_class::<StagedSsTable>()?;
    module.add_class::<CommitResult>()
}
