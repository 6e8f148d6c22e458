//! Random lives of a table against a map: whatever happens in between, the same rows come back.
//!
//! Owns: what each step does, the map, and the reads that are compared with it.
//! Does not own: which steps there are (`steps`), faults, or schema changes.

mod steps;

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use arrow_array::{BooleanArray, RecordBatch};
use lancemem::{
    CompactionMode, CompactionSettings, Consistency, Job, Scan, ScanOptions, Snapshot, Table,
    WriteBatch, WriteOptions,
};
use lancemem_testkit::{KeyShape, NULL, Rows};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use tokio::runtime::Runtime;

use self::steps::{Change, KEYS, Step, key_shape, steps};
use crate::fixture::{Fixture, Level, jobs_of, within};

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
});

/// The value of each key, by its number.
type Model = BTreeMap<i64, i64>;

/// Files that a table has beside its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extra {
    Nothing,
    DeletionVectors,
    RecordIndex,
}

/// One table, its running jobs and what must be in it.
struct Life {
    fixture: Fixture,
    /// A job of each shard, by ordinal; empty while none runs.
    jobs: Vec<(i32, Arc<Job>)>,
    model: Model,
    /// The rows in SSTables and the base table: the model of the last flush.
    flushed: Model,
    /// A snapshot with the handle that took it, and its rows.
    snapshot: Option<(Arc<Table>, Arc<Snapshot>, Rows)>,
}

impl Life {
    async fn begin(shape: KeyShape, shards: u32, extra: Extra) -> Self {
        let fixture = Fixture::with(shape, shards).await;
        match extra {
            Extra::Nothing => {}
            Extra::DeletionVectors => {
                fixture.table.alter_deletion_vectors(true).await.unwrap();
            }
            Extra::RecordIndex => {
                fixture.table.create_record_index().await.unwrap();
            }
        }
        let (model, flushed) = (Model::new(), Model::new());
        Self { fixture, jobs: Vec::new(), model, flushed, snapshot: None }
    }

    async fn live(&mut self, step: &Step) {
        match step {
            Step::Write(changes) => self.write(changes).await,
            Step::StartJobs => {
                if self.jobs.is_empty() {
                    self.jobs = jobs_of(&self.fixture.table).await;
                }
            }
            Step::StopJobs { flush } => self.stop_jobs(*flush).await,
            Step::Flush => self.flush().await,
            Step::Compact(mode) => self.compact(*mode).await,
            Step::Snapshot => {
                let table = self.fixture.table.clone();
                let snapshot = table.snapshot(Consistency::Durable, &[]).await.unwrap();
                self.snapshot = Some((table, snapshot, self.rows_of(&self.model)));
            }
            Step::Reopen => {
                self.stop_jobs(false).await;
                self.fixture.reopen().await;
            }
        }
        self.check().await;
    }

    /// Through the running jobs, or else through the table.
    async fn write(&mut self, changes: &[Change]) {
        let (table, shape) = (&self.fixture.table, self.fixture.shape);
        if self.jobs.is_empty() {
            let write = Write::of(shape, changes);
            let written = table.write(write.batch(), None).await.unwrap();
            assert_eq!(written.rows, changes.len());
        }
        let numbers: Vec<i64> = changes.iter().map(|(number, _)| *number).collect();
        let ordinals = table.shard_ordinals(&shape.keys(&numbers)).unwrap();
        for (ordinal, job) in &self.jobs {
            let routed = changes.iter().zip(&ordinals).filter(|(_, to)| *to == ordinal);
            let part: Vec<Change> = routed.map(|(change, _)| *change).collect();
            if !part.is_empty() {
                let write = Write::of(shape, &part);
                job.write(write.batch(), WriteOptions::default()).await.unwrap();
            }
        }
        for (number, change) in changes {
            match change {
                Some(value) => self.model.insert(*number, *value),
                None => self.model.remove(number),
            };
        }
    }

    async fn stop_jobs(&mut self, flush: bool) {
        if self.jobs.is_empty() {
            return;
        }
        for (_, job) in std::mem::take(&mut self.jobs) {
            job.close(flush).await.unwrap();
        }
        if flush {
            self.flushed = self.model.clone();
        }
    }

    async fn flush(&mut self) {
        if self.jobs.is_empty() {
            self.fixture.flush().await;
        }
        for (_, job) in &self.jobs {
            job.flush().await.unwrap();
        }
        self.flushed = self.model.clone();
    }

    async fn compact(&mut self, mode: CompactionMode) {
        let settings = CompactionSettings::default().with_mode(mode);
        self.fixture.table.compact_with(&settings).await.unwrap();
    }

    /// Compares every read that the table offers with the map.
    async fn check(&self) {
        self.check_level(&Level::flushed(), &self.flushed).await;
        self.check_level(&Level::durable(), &self.model).await;
        if !self.jobs.is_empty() {
            let jobs: Vec<Arc<Job>> = self.jobs.iter().map(|(_, job)| job.clone()).collect();
            self.check_level(&Level::live(&jobs), &self.model).await;
        }
        if let Some((table, snapshot, rows)) = &self.snapshot {
            let options = ScanOptions::default();
            let scan = Scan::of_snapshot(table.clone(), snapshot.clone(), options);
            assert_eq!(self.fixture.collected(&scan).await, *rows, "a snapshot");
        }
    }

    async fn check_level(&self, level: &Level, model: &Model) {
        let scan = self.fixture.scan(level, None);
        assert_eq!(self.fixture.collected(&scan).await, self.rows_of(model), "{level:?}");
        assert_eq!(scan.count_rows().await.unwrap(), model.len(), "{level:?}");
        let (sql, holds) = condition(self.fixture.shape);
        let some = model.iter().filter(|(number, value)| holds(**number, **value));
        let some: Model = some.map(|(number, value)| (*number, *value)).collect();
        let scan = self.fixture.scan(level, Some(sql));
        assert_eq!(self.fixture.collected(&scan).await, self.rows_of(&some), "{level:?}: {sql}");
        // Keys that no write names are among them.
        let numbers: Vec<i64> = (KEYS.start - 1..=KEYS.end).collect();
        let answers: Vec<_> = numbers.iter().map(|number| model.get(number).copied()).collect();
        assert_eq!(self.fixture.get(level, &numbers).await, answers, "{level:?}");
    }

    fn rows_of(&self, model: &Model) -> Rows {
        let rows: Vec<(i64, i64)> = model.iter().map(|(number, value)| (*number, *value)).collect();
        self.fixture.rows(&rows)
    }
}

/// The rows of a write, and which of them delete their key.
struct Write {
    rows: RecordBatch,
    deletes: BooleanArray,
}

impl Write {
    fn of(shape: KeyShape, changes: &[Change]) -> Self {
        let rows = changes.iter().map(|(number, value)| (*number, value.unwrap_or(NULL)));
        let rows = shape.rows(&rows.collect::<Vec<_>>());
        let deletes = changes.iter().map(|(_, value)| Some(value.is_none())).collect();
        Self { rows, deletes }
    }

    fn batch(&self) -> WriteBatch<'_> {
        match self.deletes.true_count() {
            0 => WriteBatch::upserts(&self.rows),
            all if all == self.rows.num_rows() => WriteBatch::deletes(&self.rows),
            _ => WriteBatch::changes(&self.rows, &self.deletes),
        }
    }
}

/// A condition in SQL, and whether it holds for a row.
fn condition(shape: KeyShape) -> (&'static str, fn(i64, i64) -> bool) {
    match shape {
        KeyShape::Int64 => ("id > 2 AND v >= 0", |number, value| number > 2 && value >= 0),
        KeyShape::Utf8 => ("v >= 0", |_, value| value >= 0),
        KeyShape::Composite => ("a > 0 OR v < 0", |number, value| {
            number.div_euclid(3) > 0 || (value < 0 && value != NULL)
        }),
    }
}

/// Each step has the time of a story: a busy machine may take its time for a whole life.
fn live_through(shape: KeyShape, shards: u32, extra: Extra, steps: &[Step]) {
    RUNTIME.block_on(async {
        let mut life = within(Life::begin(shape, shards, extra)).await;
        for step in steps {
            within(life.live(step)).await;
        }
        for step in [Step::Reopen, Step::Flush, Step::Compact(CompactionMode::Auto)] {
            within(life.live(&step)).await;
        }
        if extra == Extra::RecordIndex {
            let report = within(life.fixture.table.verify_record_index()).await.unwrap();
            assert!(report.damage.is_empty(), "{report:?}");
        }
    });
}

/// Ten lives for each of four kinds of table; `PROPTEST_CASES` asks for another number. What has
/// failed once is lived first.
fn config() -> ProptestConfig {
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    let kept = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/engine/model.regressions");
    ProptestConfig {
        cases: asked.unwrap_or(10),
        // Each attempt creates a table.
        max_shrink_iters: 100,
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(kept))),
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_table_of_one_shard_is_a_map(shape in key_shape(), steps in steps()) {
        live_through(shape, 1, Extra::Nothing, &steps);
    }

    #[test]
    fn a_table_of_three_shards_is_a_map(shape in key_shape(), steps in steps()) {
        live_through(shape, 3, Extra::Nothing, &steps);
    }

    #[test]
    fn a_table_with_deletion_vectors_is_a_map(
        shape in key_shape(),
        shards in 1_u32..3,
        steps in steps(),
    ) {
        live_through(shape, shards, Extra::DeletionVectors, &steps);
    }

    #[test]
    fn a_table_with_a_record_index_is_a_map(
        shape in key_shape(),
        shards in 1_u32..3,
        steps in steps(),
    ) {
        live_through(shape, shards, Extra::RecordIndex, &steps);
    }
}
