//! `Table`: the methods of a table in Python.
//!
//! Owns: their arguments and results.
//! Does not own: jobs and scans, which are separate objects, or the functions that create and open
//! tables (`catalog`).

use std::sync::Arc;
use std::time::SystemTime;

use arrow_array::{Int32Array, RecordBatch};
use lancemem::{Consistency, ShardId, TableSource, TableWriteOptions};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};

use crate::admin::Admin;
use crate::arguments::{
    ChangelogName, ColumnNames, Given, Moment, RunningJobs, ScanColumns, ScanOrder, ShardName,
    TxnParts, level, missing_keys,
};
use crate::bulk::{self, BulkWriter, Change, CommitResult, StagedSsTable};
use crate::config::{GivenConfig, Maintenance, WriterConfig};
use crate::docs::docstring;
use crate::durations::Span;
use crate::errors::{InvalidInputError, to_py};
use crate::finalization::detached;
use crate::job::Job;
use crate::output::{ArrowArray, pyarrow_schema, pyarrow_table_of};
use crate::progress::following;
use crate::rules::{MergeRule, put_mode};
use crate::runtime::{Here, run_on};
use crate::scan::{Scan, ScanArguments};
use crate::snapshot::Snapshot;
use crate::values::{
    CollectionResult, CompactionResult, DeletionVectorResult, FlushResult, RecordIndexReport,
    Shard, Sharding, TableStats, TableVersion, WriteResult,
};
use crate::write::CallArguments;
use crate::writer::TableWriter;
use crate::{input, keys, maintain, provider, repair};

/// A Lance table with shards that take upserts.
#[pyclass(frozen, subclass, module = "lancemem")]
pub struct Table {
    inner: Here<lancemem::Table>,
}

impl Table {
    pub fn new(inner: Arc<lancemem::Table>) -> Self {
        Self { inner: Here::new(inner) }
    }

    pub fn inner(&self) -> PyResult<Arc<lancemem::Table>> {
        self.inner.get("table").cloned()
    }

    /// Runs `work`; its error names the table.
    fn run<T: Send>(
        &self,
        py: Python<'_>,
        work: impl Future<Output = lancemem::Result<T>> + Send,
    ) -> PyResult<T> {
        run_on(py, self.uri(), work)
    }

    fn write(
        &self,
        py: Python<'_>,
        rows: RecordBatch,
        change: &Change,
        call: CallArguments,
    ) -> PyResult<WriteResult> {
        let CallArguments { txn, round_floats, take_over } = call;
        let (table, txn) = (self.inner()?, bulk::txn(txn)?);
        let rows = if round_floats { self.run(py, table.round_floats(&rows))? } else { rows };
        let options = TableWriteOptions::default().with_txn(txn.as_ref()).with_take_over(take_over);
        self.run(py, table.write_with(change.of(&rows), options)).map(WriteResult::from)
    }
}

#[pymethods]
impl Table {
    /// Another handle of the same, for a subclass.
    #[new]
    fn of_handle(handle: &Bound<'_, Self>) -> Self {
        Self { inner: handle.get().inner.clone() }
    }

    #[getter]
    fn uri(&self) -> &str {
        self.inner.peek().uri()
    }

    #[doc = docstring!("Table.schema")]
    #[getter]
    fn schema<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        pyarrow_schema(py, &self.inner.peek().schema())
    }

    #[getter]
    fn primary_key(&self) -> Vec<String> {
        self.inner.peek().primary_key().to_vec()
    }

    #[getter]
    fn sharding(&self) -> Option<Sharding> {
        self.inner.peek().sharding().cloned().map(Sharding)
    }

    #[doc = docstring!("Table.merge_rule")]
    #[getter]
    fn merge_rule(&self) -> Option<MergeRule> {
        self.inner.peek().merge_rule().map(MergeRule)
    }

    #[doc = docstring!("Table.admin")]
    #[getter]
    fn admin(&self) -> PyResult<Admin> {
        self.inner().map(Admin::new)
    }

    #[doc = docstring!("Table.upsert")]
    #[expect(clippy::too_many_arguments, reason = "they have names in Python")]
    #[pyo3(
        signature = (data, *, replace=false, nulls=None, txn=None, round_floats=false, take_over=false)
    )]
    fn upsert(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        replace: bool,
        nulls: Option<&str>,
        txn: Option<TxnParts>,
        round_floats: bool,
        take_over: bool,
    ) -> PyResult<WriteResult> {
        let call = CallArguments { txn, round_floats, take_over };
        let change = Change::Put(put_mode(self.inner.peek().uri(), replace, nulls)?);
        self.write(py, input::batch(data)?, &change, call)
    }

    #[doc = docstring!("Table.delete")]
    #[pyo3(signature = (keys, *, txn=None, take_over=false))]
    fn delete(
        &self,
        py: Python<'_>,
        keys: &Bound<'_, PyAny>,
        txn: Option<TxnParts>,
        take_over: bool,
    ) -> PyResult<WriteResult> {
        let keys = keys::batch(keys, self.inner()?.primary_key())?;
        let call = CallArguments { txn, round_floats: false, take_over };
        self.write(py, keys, &Change::Delete, call)
    }

    #[doc = docstring!("Table.apply")]
    #[expect(clippy::too_many_arguments, reason = "they have names in Python")]
    #[pyo3(signature = (data, deletes, *, txn=None, round_floats=false, take_over=false))]
    fn apply(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        deletes: &Bound<'_, PyAny>,
        txn: Option<TxnParts>,
        round_floats: bool,
        take_over: bool,
    ) -> PyResult<WriteResult> {
        let change = Change::Apply(bulk::deletes(deletes)?);
        let call = CallArguments { txn, round_floats, take_over };
        self.write(py, input::batch(data)?, &change, call)
    }

    #[doc = docstring!("Table.txn_version")]
    #[pyo3(signature = (app_id, *, shard))]
    fn txn_version(&self, py: Python<'_>, app_id: &str, shard: ShardName) -> PyResult<Option<i64>> {
        let table = self.inner()?;
        let shard = repair::existing_shard(py, &table, shard)?;
        self.run(py, table.txn_version(shard, app_id))
    }

    #[doc = docstring!("Table.bulk_writer")]
    fn bulk_writer(&self, py: Python<'_>) -> PyResult<BulkWriter> {
        let table = self.inner()?;
        let writer = self.run(py, async move { table.bulk_writer().await })?;
        Ok(BulkWriter::new(writer, self.uri()))
    }

    #[doc = docstring!("Table.commit")]
    #[expect(clippy::needless_pass_by_value, reason = "PyO3 hands over what it extracted")]
    #[pyo3(signature = (sstables, *, write=None, txn=None))]
    fn commit(
        &self,
        py: Python<'_>,
        sstables: Vec<Py<StagedSsTable>>,
        write: Option<String>,
        txn: Option<TxnParts>,
    ) -> PyResult<CommitResult> {
        let (table, txn) = (self.inner()?, bulk::txn(txn)?);
        let sstables = bulk::staged_sstables(&sstables)?;
        self.run(py, async move { table.link(&sstables, write.as_deref(), txn.as_ref()).await })
            .map(CommitResult::from)
    }

    #[doc = docstring!("Table.abort")]
    #[expect(clippy::needless_pass_by_value, reason = "PyO3 hands over what it extracted")]
    #[pyo3(signature = (sstables, *, write))]
    fn abort(
        &self,
        py: Python<'_>,
        sstables: Vec<Py<StagedSsTable>>,
        write: &str,
    ) -> PyResult<bool> {
        let table = self.inner()?;
        let sstables = bulk::staged_sstables(&sstables)?;
        self.run(py, table.abort(&sstables, write))
    }

    #[doc = docstring!("Table.shard_ordinals")]
    fn shard_ordinals(&self, py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<ArrowArray> {
        let table = self.inner()?;
        let rows = input::batch(data)?;
        let ordinals = detached(py, || table.shard_ordinals(&rows));
        let ordinals = ordinals.map_err(|error| to_py(&error))?;
        Ok(ArrowArray::new(Arc::new(Int32Array::from(ordinals))))
    }

    #[doc = docstring!("Table.writer")]
    #[pyo3(signature = (config=None, *, maintenance=None))]
    fn writer(
        &self,
        py: Python<'_>,
        config: Option<GivenConfig>,
        maintenance: Option<Maintenance>,
    ) -> PyResult<TableWriter> {
        TableWriter::open(py, self.inner()?, config, maintenance)
    }

    #[doc = docstring!("Table.start_job")]
    #[pyo3(signature = (*, shard=None, config=None, maintenance=None))]
    fn start_job(
        &self,
        py: Python<'_>,
        shard: Option<ShardName>,
        config: Option<GivenConfig>,
        maintenance: Option<Maintenance>,
    ) -> PyResult<Job> {
        let table = self.inner()?;
        let config = WriterConfig::over(config, table.writer_defaults().clone())?;
        let maintenance = Maintenance::over(maintenance, table.maintenance_defaults().clone())?;
        let shard_id = match shard {
            Some(ShardName::Id(id)) => ShardId::parse_str(&id)
                .map_err(|_| InvalidInputError::new_err(format!("'{id}' is not a shard id")))?,
            Some(ShardName::Ordinal(ordinal)) => self.run(py, table.shard_of(ordinal))?,
            None => self.run(py, table.only_shard())?,
        };
        let (key, uri) = (table.primary_key().to_vec(), table.uri().to_owned());
        let start = async move { table.start_job(shard_id, config, maintenance).await };
        let job = self.run(py, start)?;
        Ok(Job::new(job, key, uri))
    }

    #[doc = docstring!("Table.scan")]
    #[expect(clippy::too_many_arguments, reason = "they have names in Python")]
    #[pyo3(
        signature = (
            columns=None, filter=None, limit=None, offset=Given(Ok(0)), *, order_by=None,
            consistency="durable", jobs=None
        ),
        text_signature = "($self, columns=None, filter=None, limit=None, offset=0, *, \
                          order_by=None, consistency='durable', jobs=None)"
    )]
    fn scan(
        &self,
        py: Python<'_>,
        columns: Option<ScanColumns>,
        filter: Option<&Bound<'_, PyAny>>,
        limit: Option<Given<usize>>,
        offset: Given<usize>,
        order_by: Option<ScanOrder>,
        consistency: &str,
        jobs: Option<RunningJobs>,
    ) -> PyResult<Scan> {
        let table = self.inner()?;
        let (consistency, jobs) = level(consistency, jobs)?;
        let read = ScanArguments { columns, filter, limit, offset, order_by };
        let options = read.options(py, &table)?.with_consistency(consistency);
        Ok(Scan::new(table.scan(options, jobs), self.uri()))
    }

    #[doc = docstring!("Table.sql")]
    #[pyo3(signature = (query, *, consistency="durable", jobs=None))]
    fn sql(&self, query: &str, consistency: &str, jobs: Option<RunningJobs>) -> PyResult<Scan> {
        let (consistency, jobs) = level(consistency, jobs)?;
        let scan = self.inner()?.sql(query, consistency, jobs).map_err(|error| to_py(&error))?;
        Ok(Scan::new(scan, self.uri()))
    }

    #[doc = docstring!("Table.search")]
    #[pyo3(
        signature = (query, *, consistency="durable", jobs=None, **options),
        text_signature = "($self, query, *, query_type='auto', text=None, text_columns=None, \
                          rerank=None, column=None, k=10, columns=None, filter=None, metric=None, \
                          nprobes=None, minimum_nprobes=None, maximum_nprobes=None, ef=None, \
                          refine_factor=None, distance_range=None, prefilter=True, exact=False, \
                          fast_search=False, offset=0, consistency='durable', jobs=None)"
    )]
    fn search(
        &self,
        query: &Bound<'_, PyAny>,
        consistency: &str,
        jobs: Option<RunningJobs>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Scan> {
        crate::search::search_of_table(&self.inner()?, query, level(consistency, jobs)?, options)
    }

    #[doc = docstring!("Table.snapshot")]
    #[expect(clippy::too_many_arguments, reason = "they have names in Python")]
    #[pyo3(
        signature = (
            *, consistency="durable", jobs=None, token=None, version=None, timestamp=None
        )
    )]
    fn snapshot(
        &self,
        py: Python<'_>,
        consistency: &str,
        jobs: Option<RunningJobs>,
        token: Option<&str>,
        version: Option<Given<u64>>,
        timestamp: Option<SystemTime>,
    ) -> PyResult<Snapshot> {
        let table = self.inner()?;
        let (consistency, jobs) = level(consistency, jobs)?;
        let version = version.map(|version| version.named("version")).transpose()?;
        if let Some(moment) = Moment::of(version, timestamp)? {
            if token.is_some() || !jobs.is_empty() || consistency != Consistency::Durable {
                return Err(InvalidInputError::new_err(
                    "version and timestamp read the base table alone: leave out consistency=, \
                     jobs= and token=",
                ));
            }
            let snapshot = match moment {
                Moment::Version(version) => self.run(py, table.snapshot_of_version(version))?,
                Moment::Time(time) => self.run(py, table.snapshot_as_of(time))?,
            };
            return Ok(Snapshot::new(table, snapshot));
        }
        if let Some(token) = token {
            if !jobs.is_empty() {
                return Err(InvalidInputError::new_err(
                    "the snapshot of a token has no jobs: leave out jobs=",
                ));
            }
            if consistency != Consistency::Durable {
                let why = "a token fixes the level of its snapshot: leave out consistency=";
                return Err(InvalidInputError::new_err(why));
            }
            let token = token.parse().map_err(|error| to_py(&error))?;
            let snapshot = self.run(py, table.snapshot_at(&token))?;
            return Ok(Snapshot::new(table, snapshot));
        }
        let snapshot = self.run(py, table.snapshot(consistency, &jobs))?;
        Ok(Snapshot::new(table, snapshot))
    }

    #[doc = docstring!("Table.to_dataset")]
    #[pyo3(signature = (*, consistency="durable", jobs=None))]
    fn to_dataset<'py>(
        slf: &Bound<'py, Self>,
        consistency: &str,
        jobs: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        slf.get().inner()?;
        level(consistency, jobs.as_ref().map(PyAnyMethods::extract).transpose()?)?;
        let py = slf.py();
        let options = PyDict::new(py);
        options.set_item("consistency", consistency)?;
        options.set_item("jobs", jobs)?;
        py.import("lancemem.arrow_dataset")?.call_method("TableDataset", (slf,), Some(&options))
    }

    #[doc = docstring!("Table.__datafusion_table_provider__")]
    fn __datafusion_table_provider__<'py>(
        &self,
        session: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let table = self.inner()?;
        self.run(session.py(), table.latest_base())?;
        let source = TableSource::new(table, Consistency::Durable, Vec::new());
        provider::capsule(session, source)
    }

    #[doc = docstring!("Table.get")]
    #[expect(clippy::too_many_arguments, reason = "they have names in Python")]
    #[pyo3(
        signature = (keys, columns=None, *, missing="drop", consistency="durable", jobs=None)
    )]
    fn get<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
        columns: Option<ColumnNames>,
        missing: &str,
        consistency: &str,
        jobs: Option<RunningJobs>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let table = self.inner()?;
        let missing = missing_keys(missing)?;
        let (consistency, jobs) = level(consistency, jobs)?;
        let keys = keys::batch(keys, table.primary_key())?;
        let columns = ColumnNames::of(columns);
        let rows = self.run(py, async move {
            missing.rows(table.get(&keys, columns, consistency, &jobs).await?)
        })?;
        pyarrow_table_of(py, rows)
    }

    #[doc = docstring!("Table.alter")]
    #[pyo3(signature = (
        *, deletion_vectors=None, changelog=ChangelogName::Kept, changelog_retention=None
    ))]
    fn alter(
        &self,
        py: Python<'_>,
        deletion_vectors: Option<bool>,
        changelog: ChangelogName,
        changelog_retention: Option<Given<Span>>,
    ) -> PyResult<u64> {
        let table = self.inner()?;
        let changelog = changelog.parsed().map_err(|error| to_py(&error))?;
        let changelog_retention = Span::of(changelog_retention, "changelog_retention")?;
        let alters_changelog = changelog.is_some() || changelog_retention.is_some();
        if deletion_vectors.is_none() && !alters_changelog {
            return Err(InvalidInputError::new_err("alter changes nothing: name a setting"));
        }
        self.run(py, async move {
            let mut version = 0;
            // Changes of flushes need the mode: it starts before them, and ends after them.
            if deletion_vectors == Some(true) {
                version = table.alter_deletion_vectors(true).await?;
            }
            if alters_changelog {
                version = table.alter_changelog(changelog, changelog_retention).await?;
            }
            if deletion_vectors == Some(false) {
                version = table.alter_deletion_vectors(false).await?;
            }
            Ok(version)
        })
    }

    #[doc = docstring!("Table.alter_column")]
    fn alter_column(&self, py: Python<'_>, name: &str, r#type: &Bound<'_, PyAny>) -> PyResult<u64> {
        let table = self.inner()?;
        let to = input::data_type(r#type)?;
        self.run(py, table.naming_damage(table.alter_column(name, &to)))
    }

    #[doc = docstring!("Table.flush")]
    #[pyo3(signature = (*, idle_for=None, take_over=false))]
    fn flush(
        &self,
        py: Python<'_>,
        idle_for: Option<Given<Span>>,
        take_over: bool,
    ) -> PyResult<FlushResult> {
        maintain::flush(py, &*self.inner()?, Span::of(idle_for, "idle_for")?, take_over)
    }

    #[doc = docstring!("Table.compact")]
    #[expect(clippy::too_many_arguments, reason = "they have names in Python")]
    #[pyo3(
        signature = (
            *, mode="auto", dry_run=false, update_indexes=true, max_dead_share=None,
            bytes_per_second=None, flush=false, count_logs=Some(true), progress=None
        ),
        text_signature = "($self, *, mode='auto', dry_run=False, update_indexes=True, \
                          max_dead_share=None, bytes_per_second=None, flush=False, \
                          count_logs=True, progress=None)"
    )]
    fn compact(
        &self,
        py: Python<'_>,
        mode: &str,
        dry_run: bool,
        update_indexes: bool,
        max_dead_share: Option<f64>,
        bytes_per_second: Option<Given<u64>>,
        flush: bool,
        count_logs: Option<bool>,
        progress: Option<Bound<'_, PyAny>>,
    ) -> PyResult<CompactionResult> {
        let logs = maintain::logs(flush, count_logs.unwrap_or(true));
        let settings = maintain::settings(
            mode,
            dry_run,
            update_indexes,
            max_dead_share,
            bytes_per_second,
            logs,
        )?;
        let table = self.inner()?;
        following(py, progress, || maintain::compact(py, &table, &settings))
    }

    #[doc = docstring!("Table.collect_garbage")]
    #[pyo3(signature = (*, dry_run=false, older_than=None, progress=None))]
    fn collect_garbage(
        &self,
        py: Python<'_>,
        dry_run: bool,
        older_than: Option<Given<Span>>,
        progress: Option<Bound<'_, PyAny>>,
    ) -> PyResult<CollectionResult> {
        let (table, age) = (self.inner()?, Span::of(older_than, "older_than")?);
        following(py, progress, || maintain::collect_garbage(py, &table, dry_run, age))
    }

    #[doc = docstring!("Table.refresh")]
    fn refresh(&self, py: Python<'_>) -> PyResult<()> {
        let table = self.inner()?;
        self.run(py, async move { table.refresh().await })
    }

    #[doc = docstring!("Table.shards")]
    fn shards(&self, py: Python<'_>) -> PyResult<Vec<Shard>> {
        let table = self.inner()?;
        let shards = self.run(py, async move { table.shards().await })?;
        Ok(shards.into_iter().map(Shard::from).collect())
    }

    #[doc = docstring!("Table.stats")]
    #[pyo3(signature = (*, count_logs=true))]
    fn stats(&self, py: Python<'_>, count_logs: bool) -> PyResult<TableStats> {
        maintain::stats(py, &*self.inner()?, count_logs)
    }

    #[doc = docstring!("Table.create_record_index")]
    #[pyo3(signature = (*, progress=None))]
    fn create_record_index(
        &self,
        py: Python<'_>,
        progress: Option<Bound<'_, PyAny>>,
    ) -> PyResult<RecordIndexReport> {
        let table = self.inner()?;
        following(py, progress, || maintain::create_record_index(py, &table))
    }

    #[doc = docstring!("Table.drop_record_index")]
    fn drop_record_index(&self, py: Python<'_>) -> PyResult<()> {
        maintain::drop_record_index(py, &*self.inner()?)
    }

    #[doc = docstring!("Table.changelog")]
    #[getter]
    fn changelog(&self) -> PyResult<Option<&'static str>> {
        Ok(self.inner()?.changelog().name())
    }

    #[doc = docstring!("Table.deletion_vectors")]
    #[getter]
    fn deletion_vectors(&self) -> PyResult<bool> {
        Ok(self.inner()?.has_deletion_vectors())
    }

    #[doc = docstring!("Table.write_deletion_vectors")]
    #[pyo3(signature = (*, shard=None, progress=None))]
    fn write_deletion_vectors(
        &self,
        py: Python<'_>,
        shard: Option<ShardName>,
        progress: Option<Bound<'_, PyAny>>,
    ) -> PyResult<DeletionVectorResult> {
        let table = self.inner()?;
        following(py, progress, || maintain::write_deletion_vectors(py, &table, shard))
    }

    #[doc = docstring!("Table.history")]
    #[pyo3(signature = (limit=None))]
    fn history(&self, py: Python<'_>, limit: Option<Given<usize>>) -> PyResult<Vec<TableVersion>> {
        let table = self.inner()?;
        let limit = limit.map(|limit| limit.named("limit")).transpose()?;
        let versions = self.run(py, async move { table.history(limit).await })?;
        Ok(versions.into_iter().map(table_version).collect())
    }

    fn __repr__(&self) -> String {
        format!("Table({:?})", self.uri())
    }
}

fn table_version(version: lancemem::TableVersion) -> TableVersion {
    TableVersion {
        version: version.version,
        timestamp: version.timestamp,
        operation: version.operation,
        num_compacted_shards: version.compacted_shards,
    }
}
