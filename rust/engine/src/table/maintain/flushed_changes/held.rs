//! Tests that hold a publisher between the write of its change rows and their publication.
//!
//! Owns: two publishers of one generation, and one that ends there. Does not own: the sync points
//! (`holds`), or the rows of changes (`rust/engine/tests/engine/flushed_changes.rs`).

use std::path::Path;

use arrow_array::{Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema};

use super::*;
use crate::changes::ChangeOptions;
use crate::holds::hold;
use crate::table::catalog::CreateOptions;

/// A table with a flushed SSTable whose changes are not stored.
async fn table_in(folder: &Path) -> Arc<Table> {
    let schema = Arc::new(Schema::new(vec![Field::new("id", DataType::Int64, false)]));
    let options = CreateOptions::new(schema.clone())
        .with_primary_key(["id"])
        .with_changelog(Changelog::Flushed);
    let table = Table::create(folder.to_str().unwrap(), &options).await.unwrap();
    let rows = RecordBatch::try_new(schema, vec![Arc::new(Int64Array::from(vec![1, 2]))]).unwrap();
    table.upsert(&rows).await.unwrap();
    table.flush().await.unwrap();
    std::fs::remove_dir_all(folder.join(paths::CHANGELOG)).unwrap();
    table
}

/// How many files publish changes, and how many folders have rows.
async fn stored(table: &Table) -> (usize, usize) {
    let shard_id = table.shards().await.unwrap()[0].shard_id;
    let listed = table.catalog.store.list_tree(&paths::flushed_changes(shard_id)).await.unwrap();
    let (published, folders) = sorted(shard_id, listed);
    (published.len(), folders.len())
}

async fn rows_of_feed(table: &Table) -> u64 {
    let feed = table.flushed_changes(None, None, &ChangeOptions::default()).await.unwrap();
    let (_, batches) = feed.collect().await.unwrap();
    batches.iter().map(|batch| batch.num_rows() as u64).sum()
}

#[tokio::test]
async fn the_second_publisher_of_a_generation_removes_its_rows() {
    let folder = tempfile::tempdir().unwrap();
    let table = table_in(folder.path()).await;
    let other = Table::open(table.uri()).await.unwrap();
    let gate = hold(Hold::Changes, table.latest_base().await.unwrap().uri());
    let meanwhile = async {
        gate.wait_for_visitors(2).await;
        assert_eq!(stored(&table).await, (0, 2));
        assert_eq!(rows_of_feed(&table).await, 0);
        gate.open();
    };
    let publishers = (table.publish_flushed_changes(None), other.publish_flushed_changes(None));
    let (one, another, ()) = futures::join!(publishers.0, publishers.1, meanwhile);
    assert_eq!(one.unwrap() + another.unwrap(), 1);
    assert_eq!(stored(&table).await, (1, 1));
    assert_eq!(rows_of_feed(&table).await, 2);
}

#[tokio::test]
async fn a_publisher_that_ends_before_it_publishes_leaves_nothing_that_a_feed_has() {
    let folder = tempfile::tempdir().unwrap();
    let table = table_in(folder.path()).await;
    let gate = hold(Hold::Changes, table.latest_base().await.unwrap().uri());
    {
        let publisher = std::pin::pin!(table.publish_flushed_changes(None));
        let held = std::pin::pin!(gate.wait_for_visitors(1));
        // The publisher ends where it is held.
        futures::future::select(publisher, held).await;
    }
    gate.open();
    assert_eq!(stored(&table).await, (0, 1));
    assert_eq!(rows_of_feed(&table).await, 0);
    table.compact().await.unwrap();
    assert_eq!(stored(&table).await, (1, 2));
    assert_eq!(rows_of_feed(&table).await, 2);
}
