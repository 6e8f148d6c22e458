//! A table in a temporary folder, and the questions that stories ask of it.
//!
//! Owns: creating and reopening the table, writing rows to one of its levels, reading rows into
//! maps, and the time limit.
//! Does not own: assertions of a story, or batches, which the testkit builds.

use std::iter::zip;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_schema::SchemaRef;
use lancemem::table::CreateOptions;
use lancemem::{
    Condition, Consistency, FoundRows, Job, LiveJob, MaintenanceConfig, Scan, ScanOptions,
    Sharding, Snapshot, Table, WriterConfig,
};
use lancemem_core::types::KeyBytes;
use lancemem_testkit::{KeyShape, NULL, Rows};
use tempfile::TempDir;

/// A table with a key of one shape and the column `v`.
pub struct Fixture {
    _folder: TempDir,
    pub table: Arc<Table>,
    pub shape: KeyShape,
}

/// What a read sees: its consistency, and the jobs whose MemTables it includes.
#[derive(Clone, Debug)]
pub struct Level {
    pub consistency: Consistency,
    pub jobs: Vec<Arc<dyn LiveJob>>,
}

impl Level {
    pub fn flushed() -> Self {
        Self { consistency: Consistency::Flushed, jobs: Vec::new() }
    }

    pub fn durable() -> Self {
        Self { consistency: Consistency::Durable, jobs: Vec::new() }
    }

    pub fn live(jobs: &[Arc<Job>]) -> Self {
        let jobs = jobs.iter().cloned().map(|job| job as Arc<dyn LiveJob>);
        Self { consistency: Consistency::Live, jobs: jobs.collect() }
    }
}

impl Fixture {
    /// One shard, the key `id`.
    pub async fn new() -> Self {
        Self::with(KeyShape::Int64, 1).await
    }

    /// Rows are spread over the shards by the first column of the key.
    pub async fn with(shape: KeyShape, shards: u32) -> Self {
        let schema = shape.row_schema();
        let key = schema.key().names();
        let sharding = match shards {
            1 => Sharding::Unsharded,
            buckets => Sharding::Bucket { column: key[0].clone(), buckets },
        };
        let folder = tempfile::tempdir().unwrap();
        let table = created(&folder, schema.logical().clone(), key, sharding).await;
        Self { _folder: folder, table, shape }
    }

    /// Opens the table anew: a handle that has read nothing yet.
    pub async fn reopen(&mut self) {
        self.table = Table::open(self.table.uri()).await.unwrap();
    }

    /// Puts the rows, then deletes the keys, and flushes both as one SSTable, together with the
    /// rows that the log has.
    pub async fn to_sstable(&self, rows: &[(i64, i64)], deleted: &[i64]) {
        let job = job_of(&self.table).await;
        if !rows.is_empty() {
            job.put(&self.shape.rows(rows)).await.unwrap();
        }
        if !deleted.is_empty() {
            job.delete(&self.shape.keys(deleted)).await.unwrap();
        }
        job.close(true).await.unwrap();
    }

    /// Moves the rows, and all that was written before, to the base table.
    pub async fn to_base(&self, rows: &[(i64, i64)]) {
        self.to_sstable(rows, &[]).await;
        self.table.compact().await.unwrap();
    }

    /// Leaves the rows and the deletes in the log.
    pub async fn to_log(&self, rows: &[(i64, i64)], deleted: &[i64]) {
        if !rows.is_empty() {
            self.table.upsert(&self.shape.rows(rows)).await.unwrap();
        }
        if !deleted.is_empty() {
            self.table.delete(&self.shape.keys(deleted)).await.unwrap();
        }
    }

    /// Flushes every shard.
    pub async fn flush(&self) {
        for (_, job) in jobs_of(&self.table).await {
            job.close(true).await.unwrap();
        }
    }

    /// The rows with these numbers and values, as a scan returns them.
    pub fn rows(&self, rows: &[(i64, i64)]) -> Rows {
        let (numbers, values): (Vec<i64>, Vec<i64>) = rows.iter().copied().unzip();
        zip(self.shape.encoded(&numbers), values).collect()
    }

    /// All rows.
    pub async fn seen(&self, level: &Level) -> Rows {
        self.collected(&self.scan(level, None)).await
    }

    /// A scan, with a condition in SQL.
    pub fn scan(&self, level: &Level, filter: Option<&str>) -> Scan {
        let filter = filter.map(Condition::from);
        let consistency = level.consistency;
        let options = ScanOptions::default().with_filter(filter).with_consistency(consistency);
        self.table.scan(options, level.jobs.clone())
    }

    /// The rows of a scan. A key that comes twice fails.
    pub async fn collected(&self, scan: &Scan) -> Rows {
        let (_, batches) = scan.collect().await.unwrap();
        let mut rows = Rows::new();
        for (key, value) in batches.iter().flat_map(|batch| self.pairs_of(batch)) {
            let before = rows.insert(key.clone(), value);
            assert!(before.is_none(), "the key {key:?} comes twice");
        }
        rows
    }

    /// All rows of a snapshot.
    pub async fn seen_in(&self, snapshot: &Arc<Snapshot>) -> Rows {
        let options = ScanOptions::default();
        let scan = Scan::of_snapshot(self.table.clone(), snapshot.clone(), options);
        self.collected(&scan).await
    }

    /// The values of the keys with these numbers.
    pub async fn get(&self, level: &Level, numbers: &[i64]) -> Vec<Option<i64>> {
        let keys = self.shape.keys(numbers);
        let found = self.table.get(&keys, None, level.consistency, &level.jobs).await.unwrap();
        self.answers(numbers, &found)
    }

    /// The values of the keys with these numbers in a snapshot.
    pub async fn get_in(&self, snapshot: &Snapshot, numbers: &[i64]) -> Vec<Option<i64>> {
        let keys = self.shape.keys(numbers);
        let found = self.table.get_of_snapshot(snapshot, &keys, None).await.unwrap();
        self.answers(numbers, &found)
    }

    /// The answer for each key of a call, in its order; `None` for a missing key.
    fn answers(&self, numbers: &[i64], found: &FoundRows) -> Vec<Option<i64>> {
        let mut rows = found.rows.iter().flat_map(|batch| self.pairs_of(batch));
        let mut answers = Vec::new();
        for (place, key) in self.shape.encoded(numbers).into_iter().enumerate() {
            if found.missing.contains(&place) {
                answers.push(None);
                continue;
            }
            let (found_key, value) = rows.next().expect("a row for each key that is not missing");
            assert_eq!(found_key, key, "rows come in the order of their keys");
            answers.push(Some(value));
        }
        assert!(rows.next().is_none(), "a row for no key");
        answers
    }

    fn pairs_of(&self, batch: &RecordBatch) -> Vec<(KeyBytes, i64)> {
        let schema = self.shape.row_schema();
        let accepted = schema.accept_keys(batch).unwrap();
        let keys: Vec<KeyBytes> = schema.encode_keys(&accepted).iter().map(KeyBytes::new).collect();
        let values = batch.column_by_name("v").unwrap().as_primitive::<Int64Type>();
        zip(keys, values.iter().map(|value| value.unwrap_or(NULL))).collect()
    }
}

/// A table in `folder`.
pub async fn created(
    folder: &TempDir,
    schema: SchemaRef,
    key: &[String],
    sharding: Sharding,
) -> Arc<Table> {
    let options = CreateOptions::new(schema)
        .with_primary_key(key)
        .with_sharding(sharding)
        .with_config(quick());
    let uri = folder.path().join("board.lance");
    Table::create(uri.to_str().unwrap(), &options).await.unwrap()
}

/// A job of the first shard.
pub async fn job_of(table: &Arc<Table>) -> Arc<Job> {
    job_with(table, quick()).await
}

/// A job of the first shard, with settings of its own.
pub async fn job_with(table: &Arc<Table>, config: WriterConfig) -> Arc<Job> {
    let shard_id = table.shards().await.unwrap()[0].shard_id;
    table.start_job(shard_id, config, MaintenanceConfig::default()).await.unwrap()
}

/// A job of each shard, with the shard's ordinal.
pub async fn jobs_of(table: &Arc<Table>) -> Vec<(i32, Arc<Job>)> {
    let mut jobs = Vec::new();
    for shard in table.shards().await.unwrap() {
        let none = MaintenanceConfig::default();
        let job = table.start_job(shard.shard_id, quick(), none).await.unwrap();
        jobs.push((shard.ordinal.unwrap(), job));
    }
    jobs
}

/// Durable puts, and no flush but the ones that a story asks for. Nothing survives a power cut.
pub fn quick() -> WriterConfig {
    WriterConfig::default().with_fsync(false).with_idle_flush_interval(Duration::ZERO)
}

/// Puts that are not durable, and no timer that would append them.
pub fn patient() -> WriterConfig {
    let max_wal_flush_interval = Duration::from_hours(1);
    quick().with_durable_write(false).with_max_wal_flush_interval(max_wal_flush_interval)
}

/// Ends a story that hangs.
pub async fn within<T>(story: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(50), story).await.expect("the story hangs")
}
