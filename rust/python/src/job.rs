//! `Job`: the writer of one shard.
//!
//! Owns: the verbs of a running job in Python, usable from several threads at once.
//! Does not own: the job's life beyond the object: dropping it ends the job.

use std::sync::Arc;

use lancemem::DeletePolicy;
use lancemem_face::prometheus;
use pyo3::prelude::*;

use crate::arguments::{FilePath, Given, TxnParts};
use crate::bulk::{self, Change};
use crate::docs::docstring;
use crate::durations::Millis;
use crate::errors::InvalidInputError;
use crate::input;
use crate::keys;
use crate::rules::put_mode;
use crate::runtime::{Here, run_on};
use crate::serve::{self, Endpoint};
use crate::values::{Acknowledged, JobStats};
use crate::write::{Promise, left_block, write};

/// The one writer of a shard while it runs.
#[pyclass(frozen, module = "lancemem")]
pub struct Job {
    inner: Here<lancemem::Job>,
    key: Vec<String>,
    uri: String,
}

impl Job {
    /// `key`: the key columns of the job's table; `uri`: where that is.
    pub fn new(inner: Arc<lancemem::Job>, key: Vec<String>, uri: String) -> Self {
        Self { inner: Here::new(inner), key, uri }
    }

    pub fn inner(&self) -> PyResult<Arc<lancemem::Job>> {
        self.inner.get("job").cloned()
    }
}

#[pymethods]
impl Job {
    #[getter]
    fn shard_id(&self) -> String {
        self.inner.peek().shard_id().to_string()
    }

    #[doc = docstring!("Job.put")]
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

    #[doc = docstring!("Job.delete")]
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

    #[doc = docstring!("Job.retract")]
    #[expect(clippy::too_many_arguments, reason = "they have names in Python")]
    #[pyo3(
        signature = (
            rows, *, durable=None, sync_index=None, sync_search_index=None, txn=None,
            round_floats=false
        )
    )]
    fn retract(
        &self,
        py: Python<'_>,
        rows: &Bound<'_, PyAny>,
        durable: Option<bool>,
        sync_index: Option<bool>,
        sync_search_index: Option<bool>,
        txn: Option<TxnParts>,
        round_floats: bool,
    ) -> PyResult<Acknowledged> {
        let job = self.inner()?;
        let deletes = job.row_schema().fold().map(|fold| fold.rule().deletes());
        if !matches!(deletes, Some(DeletePolicy::Retract)) {
            return Err(InvalidInputError::new_err(format!(
                "table {} takes no row back: a retract needs merge_engine='aggregation' and \
                 deletes='retract', which are chosen when the table is created",
                self.uri
            )));
        }
        let rows = || input::batch_of_put(rows);
        let promise = Promise { durable, sync_index, sync_search_index, txn, round_floats };
        write(py, &self.uri, job, rows, Change::Delete, promise)
    }

    #[doc = docstring!("Job.apply")]
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

    #[doc = docstring!("Job.flush")]
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        let job = self.inner()?;
        run_on(py, &self.uri, async move { job.flush().await })
    }

    #[doc = docstring!("Job.close")]
    #[pyo3(signature = (*, flush=Some(false)), text_signature = "($self, *, flush=False)")]
    fn close(&self, py: Python<'_>, flush: Option<bool>) -> PyResult<()> {
        let job = self.inner()?;
        run_on(py, &self.uri, async move {
            match flush {
                Some(flush) => job.close(flush).await,
                None => job.close_brief().await,
            }
        })
    }

    #[doc = docstring!("Job.serve")]
    #[expect(clippy::too_many_arguments, reason = "they have names in Python")]
    #[pyo3(
        signature = (
            address="grpc://127.0.0.1:0", token=None, tls=None, *, max_streams=Given(Ok(16)),
            stall_timeout=None
        ),
        text_signature = "($self, address='grpc://127.0.0.1:0', token=None, tls=None, *, \
                          max_streams=16, stall_timeout=None)"
    )]
    fn serve(
        &self,
        py: Python<'_>,
        address: &str,
        token: Option<String>,
        tls: Option<(FilePath, FilePath)>,
        max_streams: Given<usize>,
        stall_timeout: Option<Given<Millis>>,
    ) -> PyResult<Endpoint> {
        let max_streams = max_streams.named("max_streams")?;
        let stall = stall_timeout.map(|given| given.named("stall_timeout")).transpose()?;
        let limits = (max_streams, stall.map(|stall| stall.0));
        serve::serve(py, self.inner()?, (address, token, tls), limits)
    }

    #[doc = docstring!("Job.prometheus")]
    fn prometheus(&self) -> PyResult<String> {
        let job = self.inner()?;
        Ok(prometheus(&job.stats(), &job.maintenance_stats()))
    }

    #[doc = docstring!("Job.stats")]
    fn stats(&self) -> PyResult<JobStats> {
        let job = self.inner()?;
        Ok(JobStats::of(&job.stats(), job.maintenance_stats()))
    }

    fn __repr__(&self) -> String {
        let job = self.inner.peek();
        format!("Job({:?}, shard_id={}, epoch={})", self.uri, job.shard_id(), job.epoch())
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
        let closed = self.close(py, Some(false));
        left_block(py, error_type, closed)
    }
}
