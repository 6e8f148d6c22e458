//! Small values that cross the border: settings, results, descriptions.
//!
//! Owns: their Python shape. All are immutable.
//! Does not own: their meaning; the stub documents it.

use std::time::Duration;

use lancemem::{JobStats as RustJobStats, Sharding as RustSharding, WriterConfig as RustConfig};
use pyo3::prelude::*;

/// How Python writes a value.
trait Repr {
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

macro_rules! value {
    ($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty),* $(,)? }) => {
        $(#[$doc])*
        #[pyclass(frozen, eq, get_all, skip_from_py_object, module = "lancemem")]
        #[derive(Clone, Debug, PartialEq)]
        pub struct $name { $(pub $field: $type),* }

        impl Repr for $name {
            fn repr(&self) -> String {
                let fields: Vec<String> =
                    vec![$(format!("{}={}", stringify!($field), self.$field.repr())),*];
                format!("{}({})", stringify!($name), fields.join(", "))
            }
        }

        #[pymethods]
        impl $name {
            fn __repr__(&self) -> String {
                self.repr()
            }
        }
    };
}

value! {
    /// What a write did.
    WriteResult { rows: usize, shards: usize, wal_entries: u64 }
}
value! {
    /// What a put promised when it returned.
    Acknowledged { rows: usize, durable: bool }
}
value! {
    /// What a compaction did.
    CompactionResult { generations: usize, rows_written: usize, rows_deleted: usize, base_version: u64 }
}
value! {
    /// A flushed run.
    SsTable { generation: u64, path: String, rows: Option<u64> }
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
    /// A table at one moment.
    TableStats { base_version: u64, base_rows: usize, shards: usize, sstables: usize, sstable_rows: u64 }
}
value! {
    /// A job's counters.
    JobStats {
        shard_id: String,
        writer_epoch: u64,
        puts: u64,
        rows: u64,
        wal_entries: u64,
        wal_bytes: u64,
        wal_position: u64,
        flushes: u64,
        active_generation: u64,
        active_rows: u64,
        frozen_memtables: u64,
        memtable_bytes: u64,
        backpressure_ms: u64,
    }
}

impl From<RustJobStats> for JobStats {
    fn from(stats: RustJobStats) -> Self {
        Self {
            shard_id: stats.shard_id.to_string(),
            writer_epoch: stats.writer_epoch.get(),
            puts: stats.puts,
            rows: stats.rows,
            wal_entries: stats.wal_entries,
            wal_bytes: stats.wal_bytes,
            wal_position: stats.wal_position.get(),
            flushes: stats.flushes,
            active_generation: stats.active_generation.get(),
            active_rows: stats.active_rows,
            frozen_memtables: stats.frozen_memtables,
            memtable_bytes: stats.memtable_bytes,
            backpressure_ms: stats.backpressure_ms,
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
    fn shards(&self) -> u32 {
        self.0.shards()
    }

    #[getter]
    fn column(&self) -> Option<&str> {
        match &self.0 {
            RustSharding::Unsharded => None,
            RustSharding::Bucket { column, .. } => Some(column),
        }
    }

    fn __repr__(&self) -> String {
        self.0.to_string()
    }
}

/// Shards rows by the hash of a column.
#[pyfunction]
fn bucket(column: String, buckets: u32) -> Sharding {
    Sharding(RustSharding::Bucket { column, buckets })
}

/// Keeps all rows in one shard.
#[pyfunction]
const fn unsharded() -> Sharding {
    Sharding(RustSharding::Unsharded)
}

/// Settings of a job; those that are not given come from the table.
#[pyclass(frozen, eq, get_all, skip_from_py_object, module = "lancemem")]
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WriterConfig {
    durable: Option<bool>,
    fsync: Option<bool>,
    max_memtable_rows: Option<usize>,
    max_memtable_bytes: Option<usize>,
    max_memtable_batches: Option<usize>,
    max_wal_buffer_bytes: Option<usize>,
    max_wal_flush_interval_ms: Option<u64>,
    max_unflushed_memtable_bytes: Option<usize>,
}

#[pymethods]
impl WriterConfig {
    #[new]
    #[pyo3(signature = (
        *, durable=None, fsync=None, max_memtable_rows=None, max_memtable_bytes=None,
        max_memtable_batches=None, max_wal_buffer_bytes=None, max_wal_flush_interval_ms=None,
        max_unflushed_memtable_bytes=None
    ))]
    #[expect(clippy::too_many_arguments, reason = "each is a keyword of one setting")]
    const fn new(
        durable: Option<bool>,
        fsync: Option<bool>,
        max_memtable_rows: Option<usize>,
        max_memtable_bytes: Option<usize>,
        max_memtable_batches: Option<usize>,
        max_wal_buffer_bytes: Option<usize>,
        max_wal_flush_interval_ms: Option<u64>,
        max_unflushed_memtable_bytes: Option<usize>,
    ) -> Self {
        Self {
            durable,
            fsync,
            max_memtable_rows,
            max_memtable_bytes,
            max_memtable_batches,
            max_wal_buffer_bytes,
            max_wal_flush_interval_ms,
            max_unflushed_memtable_bytes,
        }
    }

    fn __repr__(&self) -> String {
        let settings = [
            ("durable", self.durable.repr()),
            ("fsync", self.fsync.repr()),
            ("max_memtable_rows", self.max_memtable_rows.repr()),
            ("max_memtable_bytes", self.max_memtable_bytes.repr()),
            ("max_memtable_batches", self.max_memtable_batches.repr()),
            ("max_wal_buffer_bytes", self.max_wal_buffer_bytes.repr()),
            ("max_wal_flush_interval_ms", self.max_wal_flush_interval_ms.repr()),
            ("max_unflushed_memtable_bytes", self.max_unflushed_memtable_bytes.repr()),
        ];
        let given = settings.iter().filter(|(_, value)| value != "None");
        let given: Vec<String> = given.map(|(name, value)| format!("{name}={value}")).collect();
        format!("WriterConfig({})", given.join(", "))
    }
}

impl WriterConfig {
    /// These settings over those of `defaults`.
    pub fn over(config: Option<&Self>, defaults: RustConfig) -> RustConfig {
        let Some(own) = config else { return defaults };
        RustConfig {
            durable_write: own.durable.unwrap_or(defaults.durable_write),
            fsync: own.fsync.unwrap_or(defaults.fsync),
            max_memtable_rows: own.max_memtable_rows.unwrap_or(defaults.max_memtable_rows),
            max_memtable_size: own.max_memtable_bytes.unwrap_or(defaults.max_memtable_size),
            max_memtable_batches: own.max_memtable_batches.unwrap_or(defaults.max_memtable_batches),
            max_wal_buffer_size: own.max_wal_buffer_bytes.unwrap_or(defaults.max_wal_buffer_size),
            max_wal_flush_interval: own
                .max_wal_flush_interval_ms
                .map_or(defaults.max_wal_flush_interval, Duration::from_millis),
            max_unflushed_memtable_bytes: own
                .max_unflushed_memtable_bytes
                .unwrap_or(defaults.max_unflushed_memtable_bytes),
            ..defaults
        }
    }
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<WriteResult>()?;
    module.add_class::<Acknowledged>()?;
    module.add_class::<CompactionResult>()?;
    module.add_class::<SsTable>()?;
    module.add_class::<Shard>()?;
    module.add_class::<TableStats>()?;
    module.add_class::<JobStats>()?;
    module.add_class::<Sharding>()?;
    module.add_class::<WriterConfig>()?;
    module.add_function(wrap_pyfunction!(bucket, module)?)?;
    module.add_function(wrap_pyfunction!(unsharded, module)?)
}
