//! Tests that hold a commit while another handle commits and cleans up old versions.
//!
//! Owns: interleavings between two file system calls. Does not own: the sync points (`holds`), or
//! the same tests with two processes (`tests/durability/test_cleaned_up.py`).

use std::path::Path;

use arrow_array::{Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use lance::dataset::builder::DatasetBuilder;
use lance::dataset::cleanup::CleanupPolicy;

use super::*;
use crate::holds::hold;
use crate::table::catalog::CreateOptions;
use crate::table::write::Job;

fn rows(ids: std::ops::Range<i64>, value: i64) -> RecordBatch {
    let schema = Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("v", DataType::Int64, true),
    ]));
    let values = Arc::new(Int64Array::from_iter_values(ids.clone().map(|_| value)));
    RecordBatch::try_new(schema, vec![Arc::new(Int64Array::from_iter_values(ids)), values]).unwrap()
}

/// A table with a fragment of ten rows, one of them dead.
async fn table_in(folder: &Path) -> (Arc<Table>, Arc<Job>) {
    let options = CreateOptions::new(rows(0..0, 0).schema()).with_primary_key(["id"]);
    let table = Table::create(folder.to_str().unwrap(), &options).await.unwrap();
    let shard_id = table.shards().await.unwrap()[0].shard_id;
    let job = table
        .start_job(shard_id, table.writer_defaults().clone(), table.maintenance_defaults().clone())
        .await
        .unwrap();
    move_rows(&table, &job, 0..10, 1).await;
    move_rows(&table, &job, 0..1, 2).await;
    (table, job)
}

fn without_rewrite() -> CompactionSettings {
    CompactionSettings::default().with_max_dead_share(1.0)
}

async fn move_rows(table: &Table, job: &Job, ids: std::ops::Range<i64>, value: i64) {
    job.put(&rows(ids, value)).await.unwrap();
    job.flush().await.unwrap();
    table.compact_with(&without_rewrite()).await.unwrap();
}

/// A commit of another program, which changes nothing.
async fn commit_of_another(folder: &Path) {
    let mut base = open(folder).await;
    base.update_config([("other", "program")]).await.unwrap();
}

/// Leaves no version but the newest.
async fn clean_up(folder: &Path) {
    let base = open(folder).await;
    let before_version = Some(base.version().version);
    let policy = CleanupPolicy { before_version, ..CleanupPolicy::default() };
    let cleaned = Box::pin(base.cleanup(policy).execute()).await.unwrap();
    assert!(cleaned.old_versions > 0);
}

async fn open(folder: &Path) -> Dataset {
    DatasetBuilder::from_uri(folder.to_str().unwrap()).load().await.unwrap()
}

#[tokio::test]
async fn a_rewrite_that_was_planned_before_a_version_that_is_gone_brings_no_row_back() {
    // Before it reads, and after Lance has checked its commit against the versions since.
    for held in [Hold::Rewrite, Hold::Commit] {
        let folder = tempfile::tempdir().unwrap();
        let (table, job) = table_in(folder.path()).await;
        let gate = hold(held, table.latest_base().await.unwrap().uri());
        let settings = CompactionSettings::default().with_max_dead_share(0.0);
        let meanwhile = async {
            gate.wait_for_visitors(1).await;
            open(folder.path()).await.delete("id = 7").await.unwrap();
            commit_of_another(folder.path()).await;
            clean_up(folder.path()).await;
            gate.open();
        };
        let (rewritten, ()) = futures::join!(table.compact_with(&settings), meanwhile);
        let newest = open(folder.path()).await;
        assert_eq!(newest.count_rows(Some("id = 7".to_owned())).await.unwrap(), 0, "{held:?}");
        assert_eq!(newest.count_rows(None).await.unwrap(), 9);
        assert!(rewritten.unwrap().fragments_rewritten > 0, "{held:?}: it plans again");
        job.close(false).await.unwrap();
    }
}

#[tokio::test]
async fn a_commit_below_the_newest_version_does_not_count() {
    let folder = tempfile::tempdir().unwrap();
    let (table, job) = table_in(folder.path()).await;
    let gate = hold(Hold::Manifest, table.latest_base().await.unwrap().uri());
    let number = table.latest_base().await.unwrap().version().version;
    let meanwhile = async {
        gate.wait_for_visitors(1).await;
        // Another commit takes its version number, and is cleaned up before the manifest is
        // created.
        commit_of_another(folder.path()).await;
        commit_of_another(folder.path()).await;
        clean_up(folder.path()).await;
        gate.open();
    };
    let (switched, ()) = futures::join!(table.alter_deletion_vectors(true), meanwhile);
    assert_eq!(switched.unwrap(), number + 3);
    let newest = open(folder.path()).await;
    assert!(crate::deletion_vectors::is_on(&newest));
    assert_eq!(newest.version().version, number + 3);
    job.close(false).await.unwrap();
}
