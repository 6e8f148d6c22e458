//! Tests that hold a commit of indexes while another handle commits and cleans up old versions.
//!
//! Owns: interleavings between two file system calls. Does not own: the sync points (`holds`).

use std::path::Path;

use arrow_array::{Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use lance::dataset::builder::DatasetBuilder;
use lance::dataset::cleanup::CleanupPolicy;

use super::*;
use crate::compaction::CompactionSettings;
use crate::holds::{Hold, hold};
use crate::table::catalog::CreateOptions;

fn rows(ids: std::ops::Range<i64>) -> RecordBatch {
    let schema = Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("v", DataType::Int64, true),
    ]));
    let ids = Arc::new(Int64Array::from_iter_values(ids));
    RecordBatch::try_new(schema, vec![ids.clone(), ids]).unwrap()
}

/// A table whose base has ten rows.
async fn table_in(folder: &Path) -> Arc<Table> {
    let options = CreateOptions::new(rows(0..0).schema()).with_primary_key(["id"]);
    let table = Table::create(folder.to_str().unwrap(), &options).await.unwrap();
    put_in_base(&table, 0..10).await;
    table
}

async fn put_in_base(table: &Arc<Table>, ids: std::ops::Range<i64>) {
    table.upsert(&rows(ids)).await.unwrap();
    table.flush().await.unwrap();
    table.compact().await.unwrap();
}

async fn put_uncovered(table: &Arc<Table>, ids: std::ops::Range<i64>) {
    table.upsert(&rows(ids)).await.unwrap();
    table.flush().await.unwrap();
    let settings = CompactionSettings::default().with_update_indexes(false);
    table.compact_with(&settings).await.unwrap();
}

async fn open(folder: &Path) -> Dataset {
    DatasetBuilder::from_uri(folder.to_str().unwrap()).load().await.unwrap()
}

/// Leaves no version but the newest.
async fn clean_up(folder: &Path) {
    let base = open(folder).await;
    let before_version = Some(base.version().version);
    let policy = CleanupPolicy { before_version, ..CleanupPolicy::default() };
    Box::pin(base.cleanup(policy).execute()).await.unwrap();
}

fn counts(indexes: &[TableIndexInfo]) -> Vec<(&str, u64, u64)> {
    indexes.iter().map(|it| (it.name.as_str(), it.indexed_rows, it.unindexed_rows)).collect()
}

#[tokio::test]
async fn a_build_is_committed_above_a_version_that_came_first() {
    for held in [Hold::Indexes, Hold::Commit] {
        let folder = tempfile::tempdir().unwrap();
        let table = table_in(folder.path()).await;
        let other = Table::open(folder.path().to_str().unwrap()).await.unwrap();
        other.upsert(&rows(10..15)).await.unwrap();
        other.flush().await.unwrap();
        let gate = hold(held, table.latest_base().await.unwrap().uri());
        let options = TableIndexOptions::default();
        let meanwhile = async {
            gate.wait_for_visitors(1).await;
            open(folder.path()).await.update_config([("other", "program")]).await.unwrap();
            gate.open();
        };
        let build = table.create_index("v", TableIndexType::BTree, &options);
        let (made, ()) = futures::join!(build, meanwhile);
        assert_eq!(made.unwrap().indexed_rows, 10, "{held:?}");
        let settings = CompactionSettings::default().with_update_indexes(false);
        other.compact_with(&settings).await.unwrap();
        assert_eq!(counts(&table.indexes().await.unwrap()), [("v_idx", 10, 5)]);
    }
}

#[tokio::test]
async fn a_build_whose_later_versions_are_gone_is_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let table = table_in(folder.path()).await;
    let gate = hold(Hold::Commit, table.latest_base().await.unwrap().uri());
    let options = TableIndexOptions::default();
    let meanwhile = async {
        gate.wait_for_visitors(1).await;
        open(folder.path()).await.delete("id = 7").await.unwrap();
        open(folder.path()).await.update_config([("other", "program")]).await.unwrap();
        clean_up(folder.path()).await;
        gate.open();
    };
    let build = table.create_index("v", TableIndexType::BTree, &options);
    let (made, ()) = futures::join!(build, meanwhile);
    made.unwrap();
    assert_eq!(counts(&table.indexes().await.unwrap()), [("v_idx", 9, 0)]);
    let newest = open(folder.path()).await;
    assert_eq!(newest.count_rows(Some("v = 7".to_owned())).await.unwrap(), 0);
    assert_eq!(newest.count_rows(Some("v >= 0".to_owned())).await.unwrap(), 9);
}

#[tokio::test]
async fn of_two_builds_of_one_name_the_later_one_says_that_it_is_taken() {
    let folder = tempfile::tempdir().unwrap();
    let table = table_in(folder.path()).await;
    let gate = hold(Hold::Indexes, table.latest_base().await.unwrap().uri());
    let options = TableIndexOptions::default();
    let meanwhile = async {
        gate.wait_for_visitors(1).await;
        let mut base = open(folder.path()).await;
        let params = lance_index::scalar::ScalarIndexParams::default();
        let index_type = lance_index::IndexType::BTree;
        base.create_index(&["v"], index_type, None, &params, false).await.unwrap();
        gate.open();
    };
    let build = table.create_index("v", TableIndexType::BTree, &options);
    let (refused, ()) = futures::join!(build, meanwhile);
    let text = refused.unwrap_err().to_string();
    assert!(text.contains("pass replace=True"), "{text}");
    assert_eq!(counts(&table.indexes().await.unwrap()), [("v_idx", 10, 0)]);
}

#[tokio::test]
async fn indexes_whose_update_others_overtake_five_times_are_brought_up_to_date() {
    let folder = tempfile::tempdir().unwrap();
    let table = table_in(folder.path()).await;
    let options = TableIndexOptions::default();
    for column in ["id", "v"] {
        table.create_index(column, TableIndexType::BTree, &options).await.unwrap();
    }
    let other = Table::open(folder.path().to_str().unwrap()).await.unwrap();
    put_uncovered(&other, 10..12).await;
    let uri = table.latest_base().await.unwrap().uri().to_owned();
    let mut gate = hold(Hold::Indexes, &uri);
    let meanwhile = async {
        for turn in 0..5 {
            gate.wait_for_visitors(1).await;
            open(folder.path()).await.optimize_indices(&OptimizeOptions::append()).await.unwrap();
            put_uncovered(&other, 12 + 2 * turn..14 + 2 * turn).await;
            let next = hold(Hold::Indexes, &uri);
            std::mem::replace(&mut gate, next).open();
        }
        gate.open();
    };
    let (changed, ()) = futures::join!(table.optimize_indexes(None, None), meanwhile);
    assert_eq!(changed.unwrap().iter().map(|it| it.added_rows).collect::<Vec<_>>(), [12, 12]);
    let listed = table.indexes().await.unwrap();
    assert_eq!(counts(&listed), [("id_idx", 22, 0), ("v_idx", 22, 0)]);
}
