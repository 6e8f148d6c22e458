//! Deletes with a sequence that outlive their compaction.
//!
//! Owns: what a remembered delete beats, what cancels it, how long it stays, and what becomes of its
//! files. Does not own: the choice of a rule (the core's `merge`), or crashes in between
//! (`table::maintain::graves`).

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use lance::Dataset;
use lance::dataset::ColumnAlteration;
use lance::dataset::cleanup::CleanupPolicy;
use lance::dataset::optimize::{CompactionOptions, compact_files};
use lance::index::DatasetIndexExt;
use lance_index::mem_wal::MEM_WAL_INDEX_NAME;
use lancemem::table::CreateOptions;
use lancemem::{
    CollectionSettings, Consistency, ErrorKind, GarbageKind, MaintenanceConfig, RuleOptions, Scan,
    ScanOptions, Table,
};
use tempfile::TempDir;

use crate::fixture::{job_of, quick, within};

const WEEK_MS: u64 = 604_800_000;
const GRAVES: &str = "lancemem.graves";

struct Story {
    folder: TempDir,
    table: Arc<Table>,
}

fn columns(names: &[&str]) -> SchemaRef {
    let column = |name: &&str| Field::new(*name, DataType::Int64, *name != "id");
    Arc::new(Schema::new(names.iter().map(column).collect::<Vec<_>>()))
}

fn rows(names: &[&str], rows: &[[i64; 3]]) -> RecordBatch {
    let column = |at: usize| {
        let values = Int64Array::from_iter_values(rows.iter().map(|row| row[at]));
        Arc::new(values) as ArrayRef
    };
    RecordBatch::try_new(columns(names), (0..names.len()).map(column).collect()).unwrap()
}

impl Story {
    async fn new(retention_ms: u64) -> Self {
        let folder = TempDir::new().unwrap();
        let rule = RuleOptions {
            sequence_by: vec!["ts".to_owned()],
            delete_retention_ms: Some(retention_ms),
            ..RuleOptions::default()
        };
        let options = CreateOptions::new(columns(&["id", "ts", "v"]))
            .with_primary_key(["id"])
            .with_rule(rule)
            .with_config(quick());
        let uri = folder.path().join("t.lance");
        let table = Table::create(uri.to_str().unwrap(), &options).await.unwrap();
        Self { folder, table }
    }

    /// A handle that has read nothing yet.
    async fn reopen(&mut self) {
        self.table = Table::open(self.table.uri()).await.unwrap();
    }

    /// Puts a row with its sequence and value, as one SSTable.
    async fn put(&self, id: i64, ts: i64, v: i64) {
        let job = job_of(&self.table).await;
        job.put(&rows(&["id", "ts", "v"], &[[id, ts, v]])).await.unwrap();
        job.close(true).await.unwrap();
    }

    /// Deletes keys with their sequences, as one SSTable.
    async fn delete(&self, keys: &[(i64, i64)]) {
        let keys: Vec<[i64; 3]> = keys.iter().map(|(id, ts)| [*id, *ts, 0]).collect();
        let job = job_of(&self.table).await;
        job.delete(&rows(&["id", "ts"], &keys)).await.unwrap();
        job.close(true).await.unwrap();
    }

    /// Deletes a key without a sequence, as one SSTable.
    async fn delete_bare(&self, id: i64) {
        let job = job_of(&self.table).await;
        job.delete(&rows(&["id"], &[[id, 0, 0]])).await.unwrap();
        job.close(true).await.unwrap();
    }

    async fn compact(&self) -> u64 {
        self.table.compact().await.unwrap().late_rows
    }

    /// The values by key, which scans, counts and look-ups of each level agree on.
    async fn seen(&self) -> Vec<(i64, i64)> {
        let mut levels = Vec::new();
        for consistency in [Consistency::Flushed, Consistency::Durable] {
            let options = ScanOptions::default().with_consistency(consistency);
            let scan = self.table.scan(options, Vec::new());
            let found = pairs(&scan).await;
            assert_eq!(scan.count_rows().await.unwrap(), found.len());
            let ids: Vec<[i64; 3]> = (0..40).map(|id| [id, 0, 0]).collect();
            let got = self.table.get(&rows(&["id"], &ids), None, consistency, &[]).await.unwrap();
            let mut of_keys: Vec<_> = got.rows.iter().flat_map(pairs_of).collect();
            of_keys.sort_unstable();
            assert_eq!(of_keys, found);
            levels.push(found);
        }
        assert_eq!(levels[0], levels[1]);
        levels.remove(0)
    }

    fn folders(&self) -> Vec<PathBuf> {
        let graves = self.folder.path().join("t.lance/_lancemem/graves");
        let Ok(listed) = std::fs::read_dir(graves) else { return Vec::new() };
        let mut folders: Vec<PathBuf> = listed.map(|it| it.unwrap().path()).collect();
        folders.sort();
        folders
    }

    /// The names that the newest version lists.
    async fn listed(&self) -> Vec<String> {
        let base = Dataset::open(self.table.uri()).await.unwrap();
        let text = base.config().get(GRAVES).cloned().unwrap_or_default();
        text.split(' ').skip(2).map(|it| it.split('/').next().unwrap().to_owned()).collect()
    }

    /// How many folders a collection without a grace period removes.
    async fn collected(&self) -> usize {
        let settings = CollectionSettings::default().with_older_than(Duration::ZERO);
        let garbage = self.table.collect_garbage(&settings).await.unwrap().garbage;
        garbage.iter().filter(|it| it.kind == GarbageKind::RememberedDeletes).count()
    }

    /// A table whose key 1 was deleted with the sequence 20 and compacted.
    async fn buried() -> Self {
        let story = Self::new(WEEK_MS).await;
        story.put(1, 10, 1).await;
        story.compact().await;
        story.delete(&[(1, 20)]).await;
        story.compact().await;
        assert_eq!((story.seen().await, story.folders().len()), (Vec::new(), 1));
        story
    }
}

async fn pairs(scan: &Scan) -> Vec<(i64, i64)> {
    let (_, batches) = scan.collect().await.unwrap();
    let mut found: Vec<_> = batches.iter().flat_map(pairs_of).collect();
    found.sort_unstable();
    found
}

fn pairs_of(batch: &RecordBatch) -> Vec<(i64, i64)> {
    let column = |name| batch.column_by_name(name).unwrap().as_primitive::<Int64Type>().values();
    column("id").iter().copied().zip(column("v").iter().copied()).collect()
}

#[tokio::test]
async fn a_compacted_delete_beats_smaller_sequences_and_no_greater_or_equal_one() {
    within(Box::pin(async {
        let mut story = Story::buried().await;
        for ts in [5, 19] {
            story.put(1, ts, ts).await;
            assert_eq!(story.seen().await, []);
        }
        assert_eq!(story.compact().await, 2, "late rows");
        story.reopen().await;
        assert_eq!(story.seen().await, []);
        story.put(1, 20, 20).await;
        assert_eq!(story.seen().await, [(1, 20)], "the later one of equals");
        story.compact().await;
        story.reopen().await;
        assert_eq!(story.seen().await, [(1, 20)]);
        story.put(1, 19, 99).await;
        assert_eq!(story.seen().await, [(1, 20)]);
    }))
    .await;
}

#[tokio::test]
async fn a_folder_is_a_dataset_with_key_sequence_and_time() {
    within(Box::pin(async {
        let story = Story::buried().await;
        let folder = story.folders().remove(0);
        let records = Dataset::open(folder.to_str().unwrap()).await.unwrap();
        let columns = records.schema().fields.iter().map(|it| (it.name.as_str(), it.id));
        let expected = [("id", 0), ("ts", 1), ("_tombstone", 2), ("_remembered_at", 3)];
        assert_eq!(columns.collect::<Vec<_>>(), expected);
        assert_eq!((records.version().version, records.fragments().len()), (1, 1));
        let known = Some("id = 1 AND ts = 20 AND _tombstone".to_owned());
        assert_eq!(records.count_rows(known).await.unwrap(), 1);
        assert_eq!(records.count_rows(None).await.unwrap(), 1);
        let base = Dataset::open(story.table.uri()).await.unwrap();
        let version = format!("{:016}.", base.version().version);
        assert!(folder.file_name().unwrap().to_str().unwrap().starts_with(&version));
        let list = base.config().get(GRAVES).cloned().unwrap();
        assert!(list.starts_with("1 "), "{list}");

        story.delete_bare(1).await;
        story.compact().await;
        let cancels = Dataset::open(story.folders()[1].to_str().unwrap()).await.unwrap();
        let known = Some("id = 1 AND ts IS NULL AND NOT _tombstone".to_owned());
        assert_eq!(cancels.count_rows(known).await.unwrap(), 1);
    }))
    .await;
}

#[tokio::test]
async fn a_delete_of_a_key_that_never_had_a_row_is_remembered() {
    within(async {
        let story = Story::new(WEEK_MS).await;
        story.delete(&[(7, 20)]).await;
        story.compact().await;
        story.put(7, 19, 1).await;
        story.put(8, 1, 8).await;
        assert_eq!(story.seen().await, [(8, 8)]);
    })
    .await;
}

#[tokio::test]
async fn a_delete_without_a_sequence_cancels_a_remembered_one() {
    within(Box::pin(async {
        let mut story = Story::buried().await;
        story.delete_bare(1).await;
        story.put(1, 5, 5).await;
        assert_eq!(story.seen().await, [(1, 5)], "before its compaction");
        story.compact().await;
        assert_eq!(story.seen().await, [(1, 5)]);

        // The delete that wins later is the only one that counts.
        story.delete(&[(1, 6)]).await;
        story.compact().await;
        story.put(1, 5, 55).await;
        assert_eq!(story.seen().await, []);
        story.put(1, 7, 7).await;
        story.compact().await;
        story.reopen().await;
        assert_eq!(story.seen().await, [(1, 7)], "7 is below 20");
        story.delete_bare(1).await;
        story.compact().await;
        story.put(1, 1, 1).await;
        assert_eq!(story.seen().await, [(1, 1)]);
    }))
    .await;
}

#[tokio::test]
async fn more_than_eight_folders_are_joined_and_no_delete_is_lost() {
    within(Box::pin(async {
        let mut story = Story::new(WEEK_MS).await;
        for id in 0..12 {
            story.delete(&[(id, 20), (30, id)]).await;
            if id % 3 == 2 {
                story.delete_bare(id - 1).await;
            }
            story.compact().await;
            assert!((1..=8).contains(&story.listed().await.len()), "compaction {id}");
        }
        story.reopen().await;
        for id in 0..12 {
            story.put(id, 19, id).await;
        }
        story.put(30, 10, 30).await;
        let cancelled = [(1, 1), (4, 4), (7, 7), (10, 10)];
        assert_eq!(story.seen().await, cancelled);
        story.compact().await;
        assert_eq!(story.seen().await, cancelled);
    }))
    .await;
}

#[tokio::test]
async fn a_delete_is_forgotten_by_a_compaction_after_the_retention() {
    within(Box::pin(async {
        let story = Story::new(1).await;
        story.delete(&[(1, 20)]).await;
        story.compact().await;
        assert_eq!(story.listed().await.len(), 1);
        story.put(1, 5, 5).await;
        assert_eq!(story.seen().await, [], "it counts until a compaction drops it");
        assert_eq!(story.compact().await, 1, "a compaction changes no scan");
        assert_eq!(story.seen().await, []);
        assert!(story.listed().await.is_empty());
        story.put(1, 5, 5).await;
        assert_eq!(story.seen().await, [(1, 5)]);
    }))
    .await;
}

#[tokio::test]
async fn a_table_with_a_retention_of_0_remembers_nothing() {
    within(async {
        let story = Story::new(0).await;
        story.delete(&[(1, 20)]).await;
        story.compact().await;
        assert!(story.folders().is_empty() && story.listed().await.is_empty());
        story.put(1, 5, 5).await;
        assert_eq!(story.seen().await, [(1, 5)]);
    })
    .await;
}

#[tokio::test]
async fn remembered_deletes_follow_renames_foreign_commits_and_a_restore() {
    within(Box::pin(async {
        let mut story = Story::buried().await;
        let buried = Dataset::open(story.table.uri()).await.unwrap().version().version;
        story.put(2, 1, 2).await;
        story.put(3, 1, 3).await;
        story.compact().await;
        let mut base = Dataset::open(story.table.uri()).await.unwrap();
        base.update_config([("other", "program")]).await.unwrap();
        base.delete("id = 3").await.unwrap();
        compact_files(&mut base, CompactionOptions::default(), None).await.unwrap();
        let rename = ColumnAlteration::new("v".into()).rename("w".into());
        base.alter_columns(&[rename]).await.unwrap();
        let back = ColumnAlteration::new("w".into()).rename("v".into());
        base.alter_columns(&[back]).await.unwrap();
        story.reopen().await;
        story.put(1, 19, 1).await;
        assert_eq!(story.seen().await, [(2, 2)]);
        story.delete_bare(1).await;
        story.compact().await;
        let listed = story.listed().await;
        let mut past = base.checkout_version(buried).await.unwrap();
        past.restore().await.unwrap();
        assert_ne!(story.listed().await, listed, "the list is that of the restored version");
    }))
    .await;
}

#[tokio::test]
async fn a_table_that_is_enabled_anew_remembers_nothing_of_its_earlier_life() {
    within(Box::pin(async {
        let mut story = Story::buried().await;
        let rule = story.table.merge_rule();
        let mut base = Dataset::open(story.table.uri()).await.unwrap();
        base.drop_index(MEM_WAL_INDEX_NAME).await.unwrap();
        assert_eq!(story.listed().await.len(), 1);
        let (config, maintenance) = (quick(), MaintenanceConfig::default());
        let uri = story.table.uri().to_owned();
        story.table = Table::enable(uri, None, rule.as_ref(), &config, &maintenance).await.unwrap();
        assert!(story.listed().await.is_empty());
        story.put(1, 5, 5).await;
        assert_eq!(story.seen().await, [(1, 5)]);
    }))
    .await;
}

#[tokio::test]
async fn a_folder_stays_as_long_as_a_version_lists_it() {
    within(Box::pin(async {
        let mut story = Story::buried().await;
        assert_eq!(story.collected().await, 0);
        for id in 2..10 {
            story.delete(&[(id, 20)]).await;
            story.compact().await;
        }
        assert_eq!((story.folders().len(), story.listed().await.len()), (9, 1), "joined");
        assert_eq!(story.collected().await, 0, "older versions list eight of them");
        let base = Dataset::open(story.table.uri()).await.unwrap();
        let before_version = Some(base.version().version);
        let policy = CleanupPolicy { before_version, ..CleanupPolicy::default() };
        Box::pin(base.cleanup(policy).execute()).await.unwrap();
        assert_eq!(story.collected().await, 8);
        let left = story.folders();
        assert!(left[0].ends_with(&story.listed().await[0]) && left.len() == 1);
        story.reopen().await;
        story.put(1, 19, 1).await;
        assert_eq!(story.seen().await, []);
    }))
    .await;
}

#[tokio::test]
async fn a_damaged_folder_is_an_error_that_names_it_and_verify_finds_it() {
    within(Box::pin(async {
        let mut story = Story::buried().await;
        let reports = story.table.verify_sstables(None).await.unwrap();
        let [report] = reports.as_slice() else { panic!("{reports:?}") };
        assert!(report.path.starts_with("_lancemem/graves/") && report.damage.is_empty());
        assert!(report.files >= 1 && report.unchecked.is_empty(), "{report:?}");
        story.put(1, 19, 1).await;

        let data = story.folders()[0].join("data");
        let file = std::fs::read_dir(data).unwrap().next().unwrap().unwrap().path();
        let whole = std::fs::read(&file).unwrap();
        let mut flipped = whole.clone();
        flipped[whole.len() / 2] ^= 4;
        std::fs::write(&file, &flipped).unwrap();
        for damage in ["flipped", "removed"] {
            if damage == "removed" {
                std::fs::remove_dir_all(&story.folders()[0]).unwrap();
            }
            story.reopen().await;
            let scanned = story.table.scan(ScanOptions::default(), Vec::new()).collect().await;
            let keys = rows(&["id"], &[[1, 0, 0]]);
            let got = story.table.get(&keys, None, Consistency::Durable, &[]).await;
            let compacted = story.table.compact().await;
            for error in [scanned.unwrap_err(), got.unwrap_err(), compacted.unwrap_err()] {
                assert_eq!(error.kind(), ErrorKind::Corruption, "{damage}: {error}");
                assert!(error.to_string().contains("_lancemem/graves/"), "{damage}: {error}");
            }
            let reports = story.table.verify_sstables(None).await.unwrap();
            let damaged = reports.iter().find(|it| it.path.starts_with("_lancemem/graves/"));
            assert!(!damaged.unwrap().damage.is_empty(), "{damage}");
        }
    }))
    .await;
}
