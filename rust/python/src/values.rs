//! Small values for Python: settings, results, descriptions.
//!
//! Owns: their classes and attributes. All are immutable.
//! Does not own: their meaning; the stub documents it.

use std::time::SystemTime;

use lancemem::{
    Acknowledged as RustAcknowledged, JobStats as RustJobStats, MaintenanceStats,
    Sharding as RustSharding,
};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::arguments::Given;
use crate::docs::docstring;
use crate::errors::to_py;
use crate::finalization::outlive_interpreter;
use crate::rules::MergeRule;

/// A value's `repr` in Python.
pub trait Repr {
    fn repr(&self) -> String;
}

macro_rules! repr_as_is {
    ($($type:ty),*) => {
        $(impl Repr for $type {
            fn repr(&self) -> String {
                format!("{self:?}")
            }
        })*
    };
}

repr_as_is!(usize, u64, i32, String);

/// Seconds since 1970, which are easier to compare in a log than a date.
impl Repr for SystemTime {
    fn repr(&self) -> String {
        let since = self.duration_since(Self::UNIX_EPOCH).unwrap_or_default();
        format!("{}.{:06}", since.as_secs(), since.subsec_micros())
    }
}

impl Repr for bool {
    fn repr(&self) -> String {
        if *self { "True" } else { "False" }.to_owned()
    }
}

impl<T: Repr> Repr for Option<T> {
    fn repr(&self) -> String {
        self.as_ref().map_or_else(|| "None".to_owned(), Repr::repr)
    }
}

impl<T: Repr> Repr for Vec<T> {
    fn repr(&self) -> String {
        let items: Vec<String> = self.iter().map(Repr::repr).collect();
        format!("[{}]", items.join(", "))
    }
}

/// The fields of a value as a table, for notebooks.
pub fn html_of(name: &str, fields: &[(&str, String)]) -> String {
    let escaped = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let rows = fields
        .iter()
        .map(|(field, value)| format!("<tr><th>{field}</th><td>{}</td></tr>", escaped(value)));
    format!("<table><caption>{name}</caption>{}</table>", rows.collect::<Vec<_>>().concat())
}

/// The name of a field in Python. In Rust it may be a keyword.
pub fn plain(field: &str) -> &str {
    field.strip_prefix("r#").unwrap_or(field)
}

macro_rules! value {
    ($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty),* $(,)? }) => {
        $(#[$doc])*
        #[pyclass(frozen, eq, get_all, skip_from_py_object, module = "lancemem")]
        #[derive(Clone, Debug, PartialEq)]
        pub struct $name { $(pub $field: $type),* }

        impl Repr for $name {
            fn repr(&self) -> String {
                let fields: Vec<String> = vec![$({
                    let name = $crate::values::plain(stringify!($field));
                    format!("{name}={}", self.$field.repr())
                }),*];
                format!("{}({})", stringify!($name), fields.join(", "))
            }
        }

        #[pymethods]
        impl $name {
            fn __repr__(&self) -> String {
                self.repr()
            }

            #[pyo3(name = "_repr_html_")]
            fn html(&self) -> String {
                let name = $crate::values::plain;
                let fields = [$((name(stringify!($field)), self.$field.repr())),*];
                $crate::values::html_of(stringify!($name), &fields)
            }
        }
    };
}

pub(crate) use value;

value! {
    /// What a write did.
    WriteResult {
        num_rows: usize,
        num_shards: usize,
        num_wal_entries: u64,
        num_shards_already_written: usize,
    }
}
value! {
    /// What a put of a job promised when it returned.
    Acknowledged { num_rows: usize, durable: bool, indexed: bool, already_written: bool }
}
value! {
    /// What a compaction did with one SSTable, and why.
    CompactedSsTable {
        shard_id: String,
        generation: u64,
        num_rows: u64,
        num_live_rows: u64,
        num_tombstones: u64,
        bytes: u64,
        treatment: String,
        reason: String,
    }
}
value! {
    /// What a compaction did to an index of the base table.
    CompactedIndex {
        name: String,
        linked_rows: u64,
        built_rows: u64,
        unindexed_rows: u64,
        segments: usize,
        reason: Option<String>,
    }
}
value! {
    /// What a compaction did, or with `dry_run` would do.
    CompactionResult {
        num_generations: usize,
        num_sstables_linked: usize,
        num_sstables_rewritten: usize,
        num_sstables_dropped: usize,
        num_rows_written: u64,
        num_rows_deleted: u64,
        num_late_rows: u64,
        copied_bytes: u64,
        num_fragments_added: usize,
        num_fragments_rewritten: usize,
        base_version: u64,
        num_rows_in_logs: Option<u64>,
        sstables: Vec<CompactedSsTable>,
        indexes: Vec<CompactedIndex>,
    }
}
value! {
    /// A log whose rows were moved into SSTables.
    FlushedLog {
        shard_id: String,
        ordinal: Option<i32>,
        generation: u64,
        num_rows: u64,
        bytes: u64,
    }
}
value! {
    /// A log that a flush left alone, and why.
    SkippedLog {
        shard_id: String,
        ordinal: Option<i32>,
        num_entries: u64,
        bytes: u64,
        reason: String,
    }
}
value! {
    /// What a flush of a table's logs did.
    FlushResult {
        num_rows: u64,
        bytes: u64,
        elapsed_ms: u64,
        flushed: Vec<FlushedLog>,
        skipped: Vec<SkippedLog>,
    }
}
value! {
    /// A file, or the folder of an SSTable, that no reader needs.
    Garbage { kind: String, path: String, reason: String, bytes: u64 }
}
value! {
    /// What a collection removed, or with `dry_run` would remove.
    CollectionResult { garbage: Vec<Garbage>, bytes: u64, num_pinned_sstables: usize }
}
value! {
    /// What a look-up of deletion-vector mode wrote.
    DeletionVectorResult { num_sstables: usize, num_fragments: usize, bytes: u64, elapsed_ms: u64 }
}
value! {
    /// The contents of a record index, or what a check of it found.
    RecordIndexReport {
        base_version: u64,
        num_runs: usize,
        num_stale_runs: usize,
        num_entries: u64,
        bytes: u64,
        num_fragments_covered: usize,
        num_fragments_uncovered: usize,
        damage: Vec<String>,
    }
}
value! {
    /// A flushed SSTable.
    SsTable { generation: u64, path: String, num_rows: Option<u64> }
}
value! {
    /// A shard as its manifest describes it.
    Shard {
        ordinal: Option<i32>,
        shard_id: String,
        writer_epoch: u64,
        current_generation: u64,
        sstables: Vec<SsTable>,
        replay_after_wal_position: u64,
        last_wal_position: u64,
    }
}
value! {
    /// A table's counters at one moment.
    TableStats {
        base_version: u64,
        num_base_rows: usize,
        num_shards: usize,
        num_sstables: usize,
        num_sstable_rows: u64,
        num_log_rows: u64,
        log_bytes: u64,
        logs: Vec<ShardLog>,
        merge_rule: Option<MergeRule>,
    }
}
value! {
    /// The rows of a shard that are in its log alone.
    ShardLog {
        shard_id: String,
        ordinal: Option<i32>,
        num_rows: u64,
        bytes: u64,
        is_released: bool,
    }
}
value! {
    /// A version of the base table.
    TableVersion {
        version: u64,
        timestamp: SystemTime,
        operation: Option<String>,
        num_compacted_shards: usize,
    }
}
value! {
    /// A version of the base table that changes rows.
    ChangeVersion {
        version: u64,
        timestamp: SystemTime,
        operation: Option<String>,
        is_stored: bool,
    }
}
value! {
    /// How many rows a change feed has.
    ChangeCounts { num_inserted: u64, num_updated: u64, num_deleted: u64, num_rows: u64 }
}
value! {
    /// A consumer of a table's changes.
    ConsumerInfo { name: String, position: u64, timestamp: Option<SystemTime> }
}
value! {
    /// A consumer of the changes of a table's flushes.
    FlushedConsumer { name: String, position: String, timestamp: SystemTime }
}
value! {
    /// Rows in memory that a snapshot reads.
    SnapshotMemTable { generation: u64, num_rows: usize }
}
value! {
    /// What a snapshot reads of one shard.
    SnapshotShard {
        shard_id: String,
        manifest_version: u64,
        sstables: Vec<u64>,
        memtables: Vec<SnapshotMemTable>,
    }
}

impl From<RustAcknowledged> for Acknowledged {
    fn from(done: RustAcknowledged) -> Self {
        Self {
            num_rows: done.rows,
            durable: done.durable,
            indexed: done.indexed,
            already_written: done.already_written,
        }
    }
}

value! {
    /// One position of a shard's log.
    WalFinding {
        position: u64,
        kind: String,
        detail: Option<String>,
        bytes: u64,
        num_rows: Option<u64>,
        generation: Option<u64>,
        writer_epoch: Option<u64>,
        copy: Option<String>,
    }
}
value! {
    /// The part of a shard's log that no flush has covered.
    WalReport {
        shard_id: String,
        replay_after_wal_position: u64,
        last_wal_position: u64,
        writer_epoch: u64,
        first_damaged_position: Option<u64>,
        findings: Vec<WalFinding>,
    }
}
value! {
    /// What `Admin.verify_sstables` found in an SSTable, or in a range of missing generations.
    SsTableReport {
        shard_id: String,
        generation: u64,
        path: String,
        num_files: u64,
        bytes: u64,
        unchecked: Vec<String>,
        damage: Vec<String>,
    }
}
value! {
    /// What `Admin.relist_sstables` did in a shard of which generations were missing.
    RelistReport { shard_id: String, relisted: Vec<u64>, missing: Vec<String> }
}
value! {
    /// A job's counters, from its start to one moment.
    JobStats {
        shard_id: String,
        writer_epoch: u64,
        num_puts: u64,
        num_rows: u64,
        num_wal_entries: u64,
        num_wal_batches: u64,
        wal_bytes: u64,
        wal_position: u64,
        durable_wait_p50_us: u64,
        durable_wait_p99_us: u64,
        num_flushes: u64,
        flushed_bytes: u64,
        flush_ms: u64,
        active_generation: u64,
        num_active_rows: u64,
        num_active_batches: u64,
        num_frozen_memtables: u64,
        num_uncompacted_generations: u64,
        memtable_bytes: u64,
        num_unindexed_rows: u64,
        backpressure_ms: u64,
        num_backpressure_puts: u64,
        num_waiting_puts: u64,
        num_compactions: u64,
        num_compacted_generations: u64,
        num_collections: u64,
        collected_bytes: u64,
        num_deletion_vector_files: u64,
        maintenance_ms: u64,
        num_maintenance_errors: u64,
        last_maintenance_error: Option<String>,
    }
}

impl JobStats {
    pub fn of(stats: &RustJobStats, maintenance: MaintenanceStats) -> Self {
        Self {
            shard_id: stats.shard_id.to_string(),
            writer_epoch: stats.writer_epoch.get(),
            num_puts: stats.puts,
            num_rows: stats.rows,
            num_wal_entries: stats.wal_entries,
            num_wal_batches: stats.wal_batches,
            wal_bytes: stats.wal_bytes,
            wal_position: stats.wal_position.get(),
            durable_wait_p50_us: stats.durable_wait_p50_us,
            durable_wait_p99_us: stats.durable_wait_p99_us,
            num_flushes: stats.flushes,
            flushed_bytes: stats.flushed_bytes,
            flush_ms: stats.flush_ms,
            active_generation: stats.active_generation.get(),
            num_active_rows: stats.active_rows,
            num_active_batches: stats.active_batches,
            num_frozen_memtables: stats.frozen_memtables,
            num_uncompacted_generations: stats.uncompacted_generations,
            memtable_bytes: stats.memtable_bytes,
            num_unindexed_rows: stats.unindexed_rows,
            backpressure_ms: stats.backpressure_ms,
            num_backpressure_puts: stats.backpressure_puts,
            num_waiting_puts: stats.waiting_puts,
            num_compactions: maintenance.compactions,
            num_compacted_generations: maintenance.compacted_generations,
            num_collections: maintenance.collections,
            collected_bytes: maintenance.collected_bytes,
            num_deletion_vector_files: maintenance.deletion_vector_files,
            maintenance_ms: maintenance.maintenance_ms,
            num_maintenance_errors: maintenance.maintenance_errors,
            last_maintenance_error: maintenance.last_maintenance_error,
        }
    }
}

impl From<lancemem::ChangeCounts> for ChangeCounts {
    fn from(of: lancemem::ChangeCounts) -> Self {
        Self {
            num_inserted: of.inserted,
            num_updated: of.updated,
            num_deleted: of.deleted,
            num_rows: of.rows,
        }
    }
}

impl From<lancemem::WriteResult> for WriteResult {
    fn from(result: lancemem::WriteResult) -> Self {
        Self {
            num_rows: result.rows,
            num_shards: result.shards,
            num_wal_entries: result.wal_entries,
            num_shards_already_written: result.already_written,
        }
    }
}

/// How rows are spread over shards.
#[pyclass(frozen, eq, skip_from_py_object, module = "lancemem")]
#[derive(Clone, Debug, PartialEq)]
pub struct Sharding(pub RustSharding);

#[pymethods]
impl Sharding {
    #[getter]
    fn num_shards(&self) -> u32 {
        self.0.shards()
    }

    #[getter]
    fn column(&self) -> Option<&str> {
        match &self.0 {
            RustSharding::Unsharded => None,
            RustSharding::Bucket { column, .. } => Some(column),
        }
    }

    /// For `pickle` and `copy`: the function and arguments that make an equal value.
    fn __reduce__<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        outlive_interpreter();
        let module = py.import("lancemem")?;
        Ok(match &self.0 {
            RustSharding::Unsharded => (module.getattr("unsharded")?, PyTuple::empty(py)),
            RustSharding::Bucket { column, buckets } => {
                (module.getattr("bucket")?, (column, buckets).into_pyobject(py)?)
            }
        })
    }

    fn __repr__(&self) -> String {
        self.0.to_string()
    }
}

#[doc = docstring!("bucket")]
#[pyfunction]
fn bucket(column: String, buckets: Given<u32>) -> PyResult<Sharding> {
    let buckets = buckets.named("buckets")?;
    let sharding = RustSharding::Bucket { column, buckets };
    sharding.check_number().map_err(|error| to_py(&error))?;
    Ok(Sharding(sharding))
}

#[doc = docstring!("unsharded")]
#[pyfunction]
const fn unsharded() -> Sharding {
    Sharding(RustSharding::Unsharded)
}

impl From<lancemem::Shard> for Shard {
    fn from(shard: lancemem::Shard) -> Self {
        let sstables = shard.sstables.into_iter().map(|sstable| SsTable {
            generation: sstable.generation.get(),
            path: sstable.path,
            num_rows: sstable.physical_rows,
        });
        Self {
            ordinal: shard.ordinal,
            shard_id: shard.shard_id.to_string(),
            writer_epoch: shard.writer_epoch.get(),
            current_generation: shard.current_generation.get(),
            sstables: sstables.collect(),
            replay_after_wal_position: shard.replay_after_wal_position.get(),
            last_wal_position: shard.last_wal_position.get(),
        }
    }
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<WriteResult>()?;
    module.add_class::<Acknowledged>()?;
    module.add_class::<CompactedIndex>()?;
    module.add_class::<CompactedSsTable>()?;
    module.add_class::<Garbage>()?;
    module.add_class::<CollectionResult>()?;
    module.add_class::<CompactionResult>()?;
    module.add_class::<DeletionVectorResult>()?;
    module.add_class::<RecordIndexReport>()?;
    module.add_class::<SsTable>()?;
    module.add_class::<Shard>()?;
    module.add_class::<TableStats>()?;
    module.add_class::<ShardLog>()?;
    module.add_class::<FlushResult>()?;
    module.add_class::<FlushedLog>()?;
    module.add_class::<SkippedLog>()?;
    module.add_class::<TableVersion>()?;
    module.add_class::<SnapshotMemTable>()?;
    module.add_class::<SnapshotShard>()?;
    module.add_class::<JobStats>()?;
    module.add_class::<RelistReport>()?;
    module.add_class::<SsTableReport>()?;
    module.add_class::<WalFinding>()?;
    module.add_class::<WalReport>()?;
    module.add_class::<Sharding>()?;
    module.add_function(wrap_pyfunction!(bucket, module)?)?;
    module.add_function(wrap_pyfunction!(unsharded, module)?)
}
