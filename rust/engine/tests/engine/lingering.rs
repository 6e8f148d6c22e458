//! Calls that write without a writer, one after the other: they share the job of the first one.
//!
//! Owns: which calls claim and which do not, and what finds no lingering job in its way.
//! Does not own: calls of several processes, forks and kills; they are in the tests of Python.

use std::time::Duration;

use lancemem::table::CreateOptions;
use lancemem::{
    CollectionSettings, CompactionSettings, ErrorKind, LogHandling, Result, Table,
    TableWriteOptions, Txn, WriteBatch, WriteOptions, WriteResult, WriterEpoch,
};
use lancemem_core::store::{ManifestStore, Store};
use lancemem_testkit::KeyShape;
use tokio::time::{Instant, sleep_until};

use crate::fixture::{Fixture, Level, job_of, within};

/// The epoch of each shard.
async fn epochs(fixture: &Fixture) -> Vec<u64> {
    let shards = fixture.table.shards().await.unwrap();
    shards.iter().map(|shard| shard.writer_epoch.get()).collect()
}

/// Writes one row, whose value is the version of its transaction id.
async fn write(fixture: &Fixture, number: i64, version: i64) -> Result<WriteResult> {
    let rows = fixture.shape.rows(&[(number, version)]);
    let txn = Txn::new("loader", version)?;
    fixture.table.write(WriteBatch::upserts(&rows), Some(&txn)).await
}

#[tokio::test]
async fn calls_one_after_the_other_claim_each_shard_once() {
    within(async {
        let mut fixture = Fixture::with(KeyShape::Int64, 4).await;
        let rows: Vec<(i64, i64)> = (0..40).map(|number| (number, 1)).collect();
        let before = epochs(&fixture).await;
        fixture.to_log(&rows, &[]).await;
        let claimed = epochs(&fixture).await;
        assert_eq!(claimed, before.iter().map(|epoch| epoch + 1).collect::<Vec<_>>());
        fixture.to_log(&[(1, 2), (40, 2)], &[0]).await;
        fixture.reopen().await;
        fixture.to_log(&[(2, 3)], &[3]).await;
        assert_eq!(epochs(&fixture).await, claimed);
        let mut expected: Vec<(i64, i64)> = rows.into_iter().skip(4).collect();
        expected.extend([(1, 2), (2, 3), (40, 2)]);
        for level in [Level::durable(), Level::live(&[])] {
            assert_eq!(fixture.seen(&level).await, fixture.rows(&expected));
        }
    })
    .await;
}

#[tokio::test]
async fn a_call_after_a_pause_claims_again() {
    within(async {
        let fixture = Fixture::new().await;
        fixture.to_log(&[(1, 1)], &[]).await;
        sleep_until(Instant::now() + Duration::from_secs(2)).await;
        fixture.to_log(&[(2, 1)], &[]).await;
        assert_eq!(epochs(&fixture).await, [2]);
        assert_eq!(fixture.seen(&Level::durable()).await, fixture.rows(&[(1, 1), (2, 1)]));
    })
    .await;
}

#[tokio::test]
async fn calls_that_share_a_job_leave_a_short_log() {
    within(async {
        let fixture = Fixture::new().await;
        for number in 0..150 {
            fixture.to_log(&[(number, 1)], &[]).await;
        }
        assert_eq!(epochs(&fixture).await, [1]);
        let shard = fixture.table.shards().await.unwrap().remove(0);
        assert_eq!(shard.sstables.len(), 2);
        assert_eq!(fixture.table.stats().await.unwrap().log_rows, 150 - 128);
        assert_eq!(fixture.seen(&Level::durable()).await.len(), 150);
    })
    .await;
}

#[tokio::test]
async fn jobs_flushes_compactions_and_collections_find_no_lingering_job_in_their_way() {
    within(async {
        let fixture = Fixture::new().await;
        let table = &fixture.table;
        fixture.to_log(&[(1, 1)], &[]).await;
        let job = job_of(table).await;
        job.put(&fixture.shape.rows(&[(2, 1)])).await.unwrap();
        fixture.to_log(&[(3, 1)], &[]).await;
        job.close(false).await.unwrap();
        assert_eq!(epochs(&fixture).await, [2], "the call went through the job");

        fixture.to_log(&[(4, 1)], &[]).await;
        assert_eq!(table.flush_idle(Duration::ZERO).await.unwrap().flushed[0].rows, 4);
        fixture.to_log(&[(5, 1)], &[]).await;
        assert_eq!(table.flush().await.unwrap().flushed[0].rows, 1);
        fixture.to_log(&[(6, 1)], &[]).await;
        let flush = CompactionSettings::default().with_logs(LogHandling::Flush);
        assert_eq!(table.compact_with(&flush).await.unwrap().rows_written, 6);
        fixture.to_log(&[(7, 1)], &[]).await;
        let now = CollectionSettings::default().with_older_than(Duration::ZERO);
        table.collect_garbage(&now).await.unwrap();
        fixture.to_log(&[(8, 1)], &[1]).await;

        let writer = table.writer(None, None).await.unwrap();
        let rows = fixture.shape.rows(&[(9, 1)]);
        writer.write(WriteBatch::upserts(&rows), WriteOptions::default()).await.unwrap();
        writer.close(false).await.unwrap();
        let expected: Vec<(i64, i64)> = (2..10).map(|number| (number, 1)).collect();
        assert_eq!(fixture.seen(&Level::durable()).await, fixture.rows(&expected));
    })
    .await;
}

#[tokio::test]
async fn a_commit_to_the_base_table_is_checked_by_a_new_claim() {
    within(async {
        let fixture = Fixture::new().await;
        fixture.to_sstable(&[(1, 1)], &[]).await;
        fixture.to_log(&[(2, 1)], &[]).await;
        let claimed = epochs(&fixture).await;
        fixture.table.compact().await.unwrap();
        fixture.to_log(&[(3, 1)], &[]).await;
        assert_eq!(epochs(&fixture).await, [claimed[0] + 1]);
        fixture.to_log(&[(4, 1)], &[]).await;
        assert_eq!(epochs(&fixture).await, [claimed[0] + 1]);
    })
    .await;
}

#[tokio::test]
async fn a_call_whose_lingering_job_was_fenced_writes_its_rows_once() {
    within(async {
        let fixture = Fixture::new().await;
        fixture.to_log(&[(1, 1)], &[]).await;
        let shard_id = fixture.table.shards().await.unwrap()[0].shard_id;
        let store = Store::open(fixture.table.uri(), false).unwrap();
        let claimed = ManifestStore::new(store, shard_id, 2).claim().await.unwrap();
        assert_eq!(claimed.writer_epoch, WriterEpoch(2));
        let rows = fixture.shape.rows(&[(2, 1)]);
        let refused = fixture.table.upsert(&rows).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Held, "{refused}");
        assert_eq!(epochs(&fixture).await, [2]);
        let insists = TableWriteOptions::default().with_take_over(true);
        let written = fixture.table.write_with(WriteBatch::upserts(&rows), insists).await.unwrap();
        assert_eq!((written.rows, written.wal_entries), (1, 1));
        assert_eq!(epochs(&fixture).await, [3]);
        assert_eq!(fixture.table.stats().await.unwrap().log_rows, 2);
        assert_eq!(fixture.seen(&Level::durable()).await, fixture.rows(&[(1, 1), (2, 1)]));
    })
    .await;
}

#[tokio::test]
async fn a_transaction_id_is_recorded_once_by_calls_that_share_a_job() {
    within(async {
        let fixture = Fixture::new().await;
        for version in 1..4 {
            let written = write(&fixture, version, version).await.unwrap();
            assert_eq!((written.rows, written.already_written), (1, 0));
            let again = write(&fixture, 7, version).await.unwrap();
            assert_eq!((again.rows, again.wal_entries, again.already_written), (0, 0, 1));
        }
        assert_eq!(write(&fixture, 7, 2).await.unwrap_err().kind(), ErrorKind::Stale);
        assert_eq!(epochs(&fixture).await, [1]);
        let expected = fixture.rows(&[(1, 1), (2, 2), (3, 3)]);
        assert_eq!(fixture.seen(&Level::durable()).await, expected);
    })
    .await;
}

#[tokio::test]
async fn a_table_that_was_dropped_and_created_again_gets_no_row_of_the_table_before() {
    within(async {
        let mut fixture = Fixture::new().await;
        fixture.to_log(&[(1, 1), (2, 1)], &[]).await;
        let (old, uri) = (fixture.table.clone(), fixture.table.uri().to_owned());
        Table::remove(&uri).await.unwrap();
        let schema = fixture.shape.row_schema();
        let options =
            CreateOptions::new(schema.logical().clone()).with_primary_key(schema.key().names());
        fixture.table = Table::create(&uri, &options).await.unwrap();
        let rows = fixture.shape.rows(&[(3, 1)]);
        assert_eq!(old.upsert(&rows).await.unwrap_err().kind(), ErrorKind::InvalidInput);
        for number in 4..6 {
            fixture.to_log(&[(number, 1)], &[]).await;
        }
        assert_eq!(epochs(&fixture).await, [1]);
        assert_eq!(fixture.seen(&Level::durable()).await, fixture.rows(&[(4, 1), (5, 1)]));
    })
    .await;
}
