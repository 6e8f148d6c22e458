//! Writes: to a whole table, through a job, or through the writer of a table.
//!
//! Owns: what they have in common: the arguments that are not rows, the call, and the end of a
//! `with` block.
//! Does not own: the rows of a call (`input`, `keys`), or writes of a table without either.

use std::sync::Arc;

use arrow_array::RecordBatch;
use futures::future::BoxFuture;
use lancemem::{Result, WriteBatch, WriteOptions};
use pyo3::exceptions::PyException;
use pyo3::prelude::*;

use crate::arguments::TxnParts;
use crate::bulk::{self, Change};
use crate::runtime::run_on;
use crate::values::Acknowledged;

/// The arguments of a write to a whole table that are not its rows.
pub struct CallArguments {
    pub txn: Option<TxnParts>,
    pub round_floats: bool,
    pub take_over: bool,
}

/// The arguments of a write that are not its rows.
pub struct Promise {
    pub durable: Option<bool>,
    pub sync_index: Option<bool>,
    pub sync_search_index: Option<bool>,
    pub txn: Option<TxnParts>,
    pub round_floats: bool,
}

/// What rows are put into.
pub trait Sink: Send + Sync {
    fn write<'a>(
        &'a self,
        batch: WriteBatch<'a>,
        options: WriteOptions<'a>,
    ) -> BoxFuture<'a, Result<lancemem::Acknowledged>>;

    fn round_floats(&self, rows: &RecordBatch) -> Result<RecordBatch>;
}

impl Sink for lancemem::Job {
    fn write<'a>(
        &'a self,
        batch: WriteBatch<'a>,
        options: WriteOptions<'a>,
    ) -> BoxFuture<'a, Result<lancemem::Acknowledged>> {
        Self::write(self, batch, options)
    }

    fn round_floats(&self, rows: &RecordBatch) -> Result<RecordBatch> {
        Self::round_floats(self, rows)
    }
}

impl Sink for lancemem::TableWriter {
    fn write<'a>(
        &'a self,
        batch: WriteBatch<'a>,
        options: WriteOptions<'a>,
    ) -> BoxFuture<'a, Result<lancemem::Acknowledged>> {
        Self::write(self, batch, options)
    }

    fn round_floats(&self, rows: &RecordBatch) -> Result<RecordBatch> {
        Self::round_floats(self, rows)
    }
}

/// Writes rows of the table at `uri` into `sink`. `rows` are asked for here, because `sink` proves
/// that this process may use it.
pub fn write<S: Sink>(
    py: Python<'_>,
    uri: &str,
    sink: Arc<S>,
    rows: impl FnOnce() -> PyResult<RecordBatch>,
    change: Change,
    promise: Promise,
) -> PyResult<Acknowledged> {
    let Promise { durable, sync_index, sync_search_index, txn, round_floats } = promise;
    let txn = bulk::txn(txn)?;
    let rows = rows()?;
    run_on(py, uri, async move {
        let rows = if round_floats { sink.round_floats(&rows)? } else { rows };
        let options = WriteOptions::default().durable(durable).sync_index(sync_index);
        let options = options.sync_search_index(sync_search_index);
        sink.write(change.of(&rows), options.inline(true).txn(txn.as_ref())).await
    })
    .map(Acknowledged::from)
}

/// The result of `__exit__`, after a close. The error that left the block is not replaced by the
/// error of a close that it made fail. Ctrl-C during the close is raised.
pub fn left_block(
    py: Python<'_>,
    error_type: Option<&Bound<'_, PyAny>>,
    closed: PyResult<()>,
) -> PyResult<bool> {
    match closed {
        Err(failed) if error_type.is_none() || !failed.is_instance_of::<PyException>(py) => {
            Err(failed)
        }
        _ => Ok(false),
    }
}
