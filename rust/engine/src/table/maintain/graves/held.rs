//! Tests that hold a compaction between the folder of its deletes and the commit that lists it.
//!
//! Owns: interleavings with another commit, with a collection and with a crash. Does not own: the sync
//! points (`holds`), or what a remembered delete beats (`rust/engine/tests/engine`).

use std::path::Path;
use std::sync::Arc;

use arrow_array::{Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use lance::Dataset;

use super::*;
use crate::garbage::{CollectionSettings, GarbageKind};
use crate::holds::{Hold, hold};
use crate::table::catalog::CreateOptions;
use lancemem_core::merge::RuleOptions;

fn rows(names: &[&str], values: &[i64]) -> RecordBatch {
    let field = |name: &&str| Field::new(*name, DataType::Int64, *name != "id");
    let schema = Arc::new(Schema::new(names.iter().map(field).collect::<Vec<_>>()));
    let columns = values.iter().map(|value| Arc::new(Int64Array::from(vec![*value])) as _);
    RecordBatch::try_new(schema, columns.collect()).unwrap()
}

/// A table with an SSTable that has a delete of key 1 with the sequence 20.
async fn deleted_in(folder: &Path) -> Arc<Table> {
    let options = CreateOptions::new(rows(&["id", "ts"], &[0, 0]).schema());
    let rule = RuleOptions { sequence_by: vec!["ts".to_owned()], ..RuleOptions::default() };
    let options = options.with_primary_key(["id"]).with_rule(rule);
    let table = Table::create(folder.to_str().unwrap(), &options).await.unwrap();
    write(&table, |job| async move { job.delete(&rows(&["id", "ts"], &[1, 20])).await }).await;
    table
}

async fn write<F: Future<Output = Result<T>>, T>(
    table: &Arc<Table>,
    call: impl FnOnce(Arc<crate::table::write::Job>) -> F,
) {
    let shard_id = table.shards().await.unwrap()[0].shard_id;
    let job = table
        .start_job(shard_id, table.writer_defaults().clone(), table.maintenance_defaults().clone())
        .await
        .unwrap();
    call(job.clone()).await.unwrap();
    job.close(true).await.unwrap();
}

async fn ids(table: &Arc<Table>) -> usize {
    let scan = table.scan(crate::table::read::ScanOptions::default(), Vec::new());
    scan.count_rows().await.unwrap()
}

/// The folders on disk, and those that the newest version lists.
async fn folders(folder: &Path) -> (usize, usize) {
    let on_disk = std::fs::read_dir(folder.join(paths::GRAVES));
    let base = Dataset::open(folder.to_str().unwrap()).await.unwrap();
    let listed = names_in(listed_graves(&base).unwrap()).len();
    (on_disk.map_or(0, Iterator::count), listed)
}

async fn collect(table: &Table) -> usize {
    let settings = CollectionSettings::default().with_older_than(Duration::ZERO);
    let garbage = table.collect_garbage(&settings).await.unwrap().garbage;
    garbage.iter().filter(|it| it.kind == GarbageKind::RememberedDeletes).count()
}

#[tokio::test]
async fn a_collection_never_takes_the_folder_of_a_compaction_that_sleeps_before_its_commit() {
    let folder = tempfile::tempdir().unwrap();
    let table = deleted_in(folder.path()).await;
    let gate = hold(Hold::Files, table.latest_base().await.unwrap().uri());
    let other = Table::open(table.uri()).await.unwrap();
    let meanwhile = async {
        gate.wait_for_visitors(1).await;
        assert_eq!(folders(folder.path()).await, (1, 0));
        assert_eq!(collect(&other).await, 0);
        gate.open();
    };
    let (compacted, ()) = futures::join!(table.compact(), meanwhile);
    compacted.unwrap();
    assert_eq!(folders(folder.path()).await, (1, 1));
    write(&other, |job| async move { job.put(&rows(&["id", "ts"], &[1, 19])).await }).await;
    assert_eq!(ids(&other).await, 0);
}

#[tokio::test]
async fn a_refused_compaction_plans_again_and_lists_one_folder() {
    let folder = tempfile::tempdir().unwrap();
    let table = deleted_in(folder.path()).await;
    let gate = hold(Hold::Files, table.latest_base().await.unwrap().uri());
    let meanwhile = async {
        gate.wait_for_visitors(1).await;
        let mut base = Dataset::open(table.uri()).await.unwrap();
        base.update_config([("other", "program")]).await.unwrap();
        gate.open();
    };
    let (compacted, ()) = futures::join!(table.compact(), meanwhile);
    compacted.unwrap();
    assert_eq!(folders(folder.path()).await, (1, 1), "the first folder is removed");
    assert_eq!(collect(&table).await, 0);
}

#[tokio::test]
async fn a_crash_between_the_folder_and_the_commit_leaves_garbage_alone() {
    let folder = tempfile::tempdir().unwrap();
    let table = deleted_in(folder.path()).await;
    let gate = hold(Hold::Files, table.latest_base().await.unwrap().uri());
    {
        let compaction = table.compact();
        futures::pin_mut!(compaction);
        let reached = gate.wait_for_visitors(1);
        futures::pin_mut!(reached);
        // The compaction is dropped where it is held, as a crash ends it.
        let first = futures::future::select(reached, compaction).await;
        assert!(matches!(first, futures::future::Either::Left(_)));
    }
    gate.open();
    assert_eq!(folders(folder.path()).await, (1, 0));
    let table = Table::open(table.uri()).await.unwrap();
    write(&table, |job| async move { job.put(&rows(&["id", "ts"], &[1, 19])).await }).await;
    assert_eq!(ids(&table).await, 0, "the delete is in its SSTable");
    table.compact().await.unwrap();
    assert_eq!(folders(folder.path()).await, (2, 1));
    assert_eq!(collect(&table).await, 1);
    assert_eq!(folders(folder.path()).await, (1, 1));
    write(&table, |job| async move { job.put(&rows(&["id", "ts"], &[1, 18])).await }).await;
    assert_eq!(ids(&table).await, 0);
}
