//! The four modes of a put: durable or not, key index synchronous or deferred.
//!
//! Owns: what is true when a put of each mode has returned, and when its process is gone.
//! Does not own: files and folders being synced, which needs a real disk.

use lancemem_core::shard::{WriteBatch, WriteOptions};

use crate::fixture::{Fixture, patient, until, within};

const MODES: [(bool, bool); 4] = [(true, true), (true, false), (false, true), (false, false)];

fn mode(durable: bool, sync_index: bool) -> WriteOptions<'static> {
    WriteOptions::default().durable(durable).sync_index(sync_index)
}

#[tokio::test]
async fn every_mode_makes_its_row_visible_to_scans_and_lookups_of_the_process() {
    within(async {
        for (durable, sync_index) in MODES {
            let fixture = Fixture::new().await;
            let writer = fixture.open_with(patient()).await;
            let rows = fixture.shape.rows(&[(1, 10), (1, 11), (2, 20)]);
            let answer =
                writer.write(WriteBatch::upserts(&rows), mode(durable, sync_index)).await.unwrap();
            assert_eq!((answer.durable, answer.indexed), (durable, sync_index));
            // `seen` compares the scan with a lookup of every key.
            assert_eq!(fixture.seen(&writer), fixture.rows(&[(1, 11), (2, 20)]));
        }
    })
    .await;
}

#[tokio::test]
async fn what_a_killed_process_leaves_is_what_it_acknowledged_as_durable() {
    within(async {
        for (durable, sync_index) in MODES {
            let fixture = Fixture::new().await;
            let writer = fixture.open_with(patient()).await;
            let rows = fixture.shape.rows(&[(1, 10)]);
            writer.write(WriteBatch::upserts(&rows), mode(durable, sync_index)).await.unwrap();
            // A kill would leave the log as it is now: nothing runs after it.
            let expected = if durable { fixture.rows(&[(1, 10)]) } else { fixture.rows(&[]) };
            assert_eq!(fixture.stored().await, expected);
        }
    })
    .await;
}

#[tokio::test]
async fn a_durable_put_takes_what_was_put_before_it_along() {
    within(async {
        let fixture = Fixture::new().await;
        let writer = fixture.open_with(patient()).await;
        fixture.put(&writer, &[(1, 10)]).await.unwrap();
        assert!(fixture.stored().await.is_empty());
        let rows = fixture.shape.rows(&[(2, 20)]);
        writer.write(WriteBatch::upserts(&rows), mode(true, true)).await.unwrap();
        assert_eq!(fixture.stored().await, fixture.rows(&[(1, 10), (2, 20)]));
        assert_eq!(fixture.data_entries().await.len(), 1);
    })
    .await;
}

#[tokio::test]
async fn a_put_that_is_not_durable_is_readable_at_once_in_a_durable_job() {
    within(async {
        let fixture = Fixture::new().await;
        let config = patient().with_durable_write(true);
        let writer = fixture.open_with(config).await;
        let rows = fixture.shape.rows(&[(1, 10)]);
        writer.write(WriteBatch::upserts(&rows), mode(false, true)).await.unwrap();
        assert!(fixture.stored().await.is_empty());
        assert_eq!(fixture.seen(&writer), fixture.rows(&[(1, 10)]));
    })
    .await;
}

#[tokio::test]
async fn deferred_rows_reach_the_key_index_by_themselves() {
    within(async {
        let fixture = Fixture::new().await;
        let config = patient().with_sync_indexed_write(false);
        let writer = fixture.open_with(config).await;
        for number in 0..100 {
            fixture.put(&writer, &[(number, number), (number, number + 1)]).await.unwrap();
        }
        until(|| writer.stats().unindexed_rows == 0).await;
        assert_eq!(fixture.seen(&writer).len(), 100);
    })
    .await;
}

#[tokio::test]
async fn a_flush_covers_rows_that_no_index_has_seen() {
    within(async {
        let fixture = Fixture::new().await;
        let config = patient().with_sync_indexed_write(false);
        let writer = fixture.open_with(config).await;
        let rows: Vec<(i64, i64)> = (0..500).map(|n| (n % 50, n)).collect();
        for part in rows.chunks(7) {
            fixture.put(&writer, part).await.unwrap();
        }
        // The sink checks that the key index lists every row position.
        writer.close(true).await.unwrap();
        let expected: Vec<(i64, i64)> = (0..50).map(|n| (n, 450 + n)).collect();
        assert_eq!(fixture.stored().await, fixture.rows(&expected));
    })
    .await;
}
