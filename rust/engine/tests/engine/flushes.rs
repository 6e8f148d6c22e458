//! Which logs a flush moves into SSTables, and what compactions and counters report about logs.
//!
//! Owns: flushes by calls that hold no job: which claims they take over, and which they leave.
//! Does not own: the flush of a running job, jobs of other processes, or the command line.

use std::time::Duration;

use lancemem::{CompactionSettings, ErrorKind, LogHandling};
use lancemem_core::store::{ManifestStore, Store};
use lancemem_testkit::KeyShape;

use crate::fixture::{Fixture, Level, job_of, within};

/// Ten rows with the value `value` each.
fn ten(value: i64) -> Vec<(i64, i64)> {
    (0..10).map(|number| (number, value)).collect()
}

#[tokio::test]
async fn rows_of_logs_reach_the_base_table_by_one_compaction() {
    within(async {
        let fixture = Fixture::with(KeyShape::Int64, 3).await;
        fixture.to_log(&ten(1), &[3]).await;
        assert_eq!(fixture.table.stats().await.unwrap().log_rows, 11);
        let count = CompactionSettings::default().with_logs(LogHandling::Count);
        let counted = fixture.table.compact_with(&count).await.unwrap();
        assert_eq!((counted.generations, counted.rows_in_logs), (0, Some(11)));
        let flush = CompactionSettings::default().with_logs(LogHandling::Flush);
        let moved = fixture.table.compact_with(&flush).await.unwrap();
        assert_eq!((moved.rows_written, moved.rows_in_logs), (9, Some(0)));
        let stats = fixture.table.stats().await.unwrap();
        assert_eq!((stats.base_rows, stats.log_rows, stats.logs.len()), (9, 0, 3));
    })
    .await;
}

#[tokio::test]
async fn an_idle_flush_leaves_a_running_job_alone_and_takes_its_log_once_it_is_closed() {
    within(async {
        let fixture = Fixture::new().await;
        let job = job_of(&fixture.table).await;
        job.put(&fixture.shape.rows(&ten(1))).await.unwrap();
        let left = fixture.table.flush_idle(Duration::ZERO).await.unwrap();
        assert!(left.flushed.is_empty());
        assert!(left.skipped[0].reason.contains("is not released"), "{left:?}");
        job.put(&fixture.shape.rows(&ten(2))).await.unwrap();
        job.close(false).await.unwrap();
        let young = fixture.table.flush_idle(Duration::from_hours(1)).await.unwrap();
        assert_eq!((young.flushed.len(), young.skipped.len()), (0, 1));
        let flushed = fixture.table.flush_idle(Duration::ZERO).await.unwrap();
        assert_eq!(flushed.flushed[0].rows, 20);
        assert_eq!(fixture.seen(&Level::flushed()).await, fixture.rows(&ten(2)));
        let nothing = fixture.table.flush_idle(Duration::ZERO).await.unwrap();
        assert!(nothing.flushed.is_empty() && nothing.skipped.is_empty(), "{nothing:?}");
    })
    .await;
}

#[tokio::test]
async fn a_flush_of_every_log_goes_through_the_running_job_of_the_process() {
    within(async {
        let fixture = Fixture::new().await;
        let job = job_of(&fixture.table).await;
        job.put(&fixture.shape.rows(&ten(1))).await.unwrap();
        let flushed = fixture.table.flush().await.unwrap();
        assert_eq!((flushed.flushed[0].ordinal, flushed.flushed[0].rows), (Some(0), 10));
        assert_eq!(fixture.seen(&Level::flushed()).await, fixture.rows(&ten(1)));
        job.put(&fixture.shape.rows(&ten(2))).await.unwrap();
        assert_eq!(fixture.seen(&Level::durable()).await, fixture.rows(&ten(2)));
    })
    .await;
}

#[tokio::test]
async fn a_claim_of_another_process_keeps_every_log_as_it_is_until_it_is_taken_over() {
    within(async {
        let fixture = Fixture::with(KeyShape::Int64, 3).await;
        fixture.to_log(&ten(1), &[]).await;
        let shard_id = fixture.table.shards().await.unwrap()[2].shard_id;
        let store = Store::open(fixture.table.uri(), false).unwrap();
        ManifestStore::new(store, shard_id, 2).claim().await.unwrap();
        let refused = fixture.table.flush().await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Held, "{refused}");
        assert!(refused.to_string().contains(&shard_id.to_string()), "{refused}");
        let compact = CompactionSettings::default().with_logs(LogHandling::Flush);
        assert!(fixture.table.compact_with(&compact).await.is_err());
        let all = fixture.shape.rows(&ten(2));
        let refused = fixture.table.upsert(&all).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Held, "{refused}");
        let counted = fixture.table.stats().await.unwrap();
        assert_eq!((counted.sstables, counted.log_rows), (0, 10));
        let quick = fixture.table.stats_without_logs().await.unwrap();
        assert_eq!((quick.shards, quick.log_rows, quick.logs.len()), (3, 0, 0));
        assert_eq!(fixture.table.flush_all().await.unwrap().flushed.len(), 3);
        fixture.table.upsert(&all).await.unwrap();
        assert_eq!(fixture.seen(&Level::durable()).await, fixture.rows(&ten(2)));
    })
    .await;
}
