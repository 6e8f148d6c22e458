//! The writer of a whole table, and the jobs of a process that its calls and live reads find.
//!
//! Owns: `Table::writer` beside `Table::write`, live reads without jobs, and writers that start at
//! once.
//! Does not own: other processes that take a shard; they are in the tests of Python.

use lancemem::{ErrorKind, WriteBatch, WriteOptions, WriterEpoch};
use lancemem_testkit::KeyShape;

use crate::fixture::{Fixture, Level, job_of, patient, within};

#[tokio::test]
async fn calls_and_live_reads_of_the_process_go_through_the_jobs_of_a_writer() {
    within(async {
        let fixture = Fixture::with(KeyShape::Int64, 4).await;
        let writer = fixture.table.writer(Some(patient()), None).await.unwrap();
        let mut expected: Vec<(i64, i64)> = (0..40).map(|number| (number, 1)).collect();
        let rows = fixture.shape.rows(&expected);
        let written = writer.write(WriteBatch::upserts(&rows), WriteOptions::default()).await;
        let written = written.unwrap();
        assert_eq!((written.rows, written.durable), (40, false));
        assert!(fixture.seen(&Level::durable()).await.is_empty());
        assert_eq!(fixture.seen(&Level::live(&[])).await, fixture.rows(&expected));
        let claimed = epochs(&fixture).await;
        fixture.to_log(&[(40, 2), (41, 2)], &[0]).await;
        assert_eq!(epochs(&fixture).await, claimed, "no job of the process is fenced");
        expected.remove(0);
        expected.extend([(40, 2), (41, 2)]);
        assert_eq!(fixture.seen(&Level::live(&[])).await, fixture.rows(&expected));
        writer.close(false).await.unwrap();
        assert_eq!(fixture.seen(&Level::durable()).await, fixture.rows(&expected));
        let closed = writer.write(WriteBatch::upserts(&rows), WriteOptions::default()).await;
        assert_eq!(closed.unwrap_err().kind(), ErrorKind::Reopen);
    })
    .await;
}

#[tokio::test]
async fn writers_that_start_at_once_share_one_job_for_each_shard() {
    within(async {
        let fixture = Fixture::with(KeyShape::Int64, 4).await;
        let before = epochs(&fixture).await;
        let first = fixture.table.writer(None, None).await.unwrap();
        let second = fixture.table.writer(None, None).await.unwrap();
        let expected: Vec<(i64, i64)> = (0..40).map(|number| (number, 1)).collect();
        let rows = fixture.shape.rows(&expected);
        let (batch, options) = (WriteBatch::upserts(&rows), WriteOptions::default());
        let (one, other) = tokio::join!(first.write(batch, options), second.write(batch, options));
        assert_eq!((one.unwrap().rows, other.unwrap().rows), (40, 40));
        let next: Vec<WriterEpoch> = before.into_iter().map(WriterEpoch::next).collect();
        assert_eq!(epochs(&fixture).await, next);
        assert_eq!((first.stats().rows, second.stats().rows), (80, 80));
        first.close(false).await.unwrap();
        second.write(batch, options).await.unwrap();
        second.close(true).await.unwrap();
        assert_eq!(fixture.seen(&Level::flushed()).await, fixture.rows(&expected));
    })
    .await;
}

#[tokio::test]
async fn a_job_that_is_started_takes_its_shard_from_a_writer_for_good() {
    within(async {
        let fixture = Fixture::new().await;
        let writer = fixture.table.writer(None, None).await.unwrap();
        let rows = fixture.shape.rows(&[(1, 1)]);
        let (batch, options) = (WriteBatch::upserts(&rows), WriteOptions::default());
        writer.write(batch, options).await.unwrap();
        let job = job_of(&fixture.table).await;
        for _ in 0..2 {
            let refused = writer.write(batch, options).await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Fenced);
            assert!(refused.to_string().contains("open a new writer"), "{refused}");
        }
        job.close(false).await.unwrap();
        let refused = writer.write(batch, options).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Fenced, "a shard is not claimed again");
    })
    .await;
}

/// The epoch of each shard.
async fn epochs(fixture: &Fixture) -> Vec<WriterEpoch> {
    let shards = fixture.table.shards().await.unwrap();
    shards.iter().map(|shard| shard.writer_epoch).collect()
}
