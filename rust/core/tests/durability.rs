//! A put that was acknowledged comes back, once; a closed job takes nothing more.
//!
//! Owns: replay, intervals, close and drop without faults.
//! Does not own: shared entries (`grouping`) or what happens when storage fails.

use lancemem_core::types::{ErrorKind, Generation};

use crate::fixture::{Fixture, patient, quick, tiny, until, within};

// B11
#[tokio::test]
async fn a_durable_put_survives_a_reopen_and_is_not_appended_again() {
    within(async {
        let fixture = Fixture::new().await;
        let writer = fixture.open().await;
        fixture.put(&writer, &[(1, 10), (2, 20)]).await.unwrap();
        drop(writer);
        for _ in 0..3 {
            let again = fixture.open().await;
            assert_eq!(fixture.seen(&again), fixture.rows(&[(1, 10), (2, 20)]));
            again.close(false).await.unwrap();
        }
        assert_eq!(fixture.data_entries().await.len(), 1);
        assert_eq!(fixture.stored().await, fixture.rows(&[(1, 10), (2, 20)]));
    })
    .await;
}

#[tokio::test]
async fn a_delete_survives_a_reopen_and_hides_an_older_row_only() {
    within(async {
        let fixture = Fixture::new().await;
        let writer = fixture.open().await;
        fixture.put(&writer, &[(1, 10), (2, 20)]).await.unwrap();
        fixture.delete(&writer, &[1, 2, 3]).await.unwrap();
        fixture.put(&writer, &[(2, 21)]).await.unwrap();
        writer.close(false).await.unwrap();
        let again = fixture.open().await;
        assert_eq!(fixture.seen(&again), fixture.rows(&[(2, 21)]));
    })
    .await;
}

#[tokio::test]
async fn rows_put_after_a_reopen_win_over_replayed_ones_of_the_same_generation() {
    within(async {
        let fixture = Fixture::new().await;
        let writer = fixture.open().await;
        fixture.put(&writer, &[(1, 10), (2, 20)]).await.unwrap();
        writer.close(false).await.unwrap();
        let again = fixture.open().await;
        fixture.put(&again, &[(1, 11)]).await.unwrap();
        assert_eq!(again.stats().active_generation, Generation(1));
        assert_eq!(fixture.seen(&again), fixture.rows(&[(1, 11), (2, 20)]));
        again.close(true).await.unwrap();
        assert_eq!(fixture.stored().await, fixture.rows(&[(1, 11), (2, 20)]));
        assert_eq!(fixture.manifest().await.sstables.len(), 1);
    })
    .await;
}

#[tokio::test]
async fn a_put_that_does_not_wait_becomes_durable_by_the_interval() {
    within(async {
        let fixture = Fixture::new().await;
        let writer = fixture.open_with(quick().with_durable_write(false)).await;
        let answer = writer.put(&fixture.shape.rows(&[(1, 10)])).await.unwrap();
        assert!(!answer.durable);
        assert_eq!(fixture.seen(&writer), fixture.rows(&[(1, 10)]));
        until(|| writer.stats().wal_entries == 1).await;
        assert_eq!(fixture.stored().await, fixture.rows(&[(1, 10)]));
    })
    .await;
}

#[tokio::test]
async fn close_makes_a_waiting_put_durable() {
    within(async {
        let fixture = Fixture::new().await;
        let writer = fixture.open_with(patient()).await;
        fixture.put(&writer, &[(1, 10)]).await.unwrap();
        assert!(fixture.data_entries().await.is_empty());
        writer.close(false).await.unwrap();
        assert_eq!(fixture.stored().await, fixture.rows(&[(1, 10)]));
    })
    .await;
}

#[tokio::test]
async fn a_dropped_writer_appends_what_was_queued() {
    within(async {
        let fixture = Fixture::new().await;
        let writer = fixture.open_with(patient()).await;
        fixture.put(&writer, &[(1, 10)]).await.unwrap();
        drop(writer);
        until(|| fixture.storage.tried_puts("/wal/").len() == 2).await;
        assert_eq!(fixture.stored().await, fixture.rows(&[(1, 10)]));
    })
    .await;
}

#[tokio::test]
async fn a_closed_job_refuses_every_verb_and_a_second_close_does_nothing() {
    within(async {
        let fixture = Fixture::new().await;
        let writer = fixture.open().await;
        fixture.put(&writer, &[(1, 10)]).await.unwrap();
        writer.close(true).await.unwrap();
        let refused = [
            fixture.put(&writer, &[(2, 20)]).await,
            fixture.delete(&writer, &[1]).await,
            writer.flush().await,
        ];
        for answer in refused {
            let error = answer.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Reopen);
            assert!(error.to_string().contains("is closed"), "{error}");
        }
        writer.close(true).await.unwrap();
        assert_eq!(fixture.stored().await, fixture.rows(&[(1, 10)]));
    })
    .await;
}

#[tokio::test]
async fn closing_flushes_only_what_it_was_asked_to_flush() {
    within(async {
        let fixture = Fixture::new().await;
        let writer = fixture.open().await;
        fixture.put(&writer, &[(1, 10)]).await.unwrap();
        writer.close(false).await.unwrap();
        let late = writer.close(true).await.unwrap_err();
        assert_eq!(late.kind(), ErrorKind::Reopen, "{late}");
        assert!(fixture.manifest().await.sstables.is_empty());
        fixture.open().await.close(true).await.unwrap();
        assert_eq!(fixture.manifest().await.sstables.len(), 1);
        fixture.open().await.close(true).await.unwrap();
        assert_eq!(fixture.manifest().await.sstables.len(), 1, "nothing was left to flush");
    })
    .await;
}

#[tokio::test]
async fn a_put_of_no_rows_is_accepted_and_writes_nothing() {
    within(async {
        let fixture = Fixture::new().await;
        let writer = fixture.open().await;
        assert_eq!(writer.put(&fixture.shape.rows(&[])).await.unwrap().rows, 0);
        writer.close(true).await.unwrap();
        assert!(fixture.data_entries().await.is_empty());
        assert!(fixture.manifest().await.sstables.is_empty());
    })
    .await;
}

#[tokio::test]
async fn generations_that_were_frozen_but_never_flushed_are_replayed_and_flushed_in_order() {
    within(async {
        let fixture = Fixture::new().await;
        let hold = crate::fixture::gate();
        fixture.sink.hold(hold.clone());
        let writer = fixture.open_with(tiny(2)).await;
        for value in 0..7 {
            fixture.put(&writer, &[(1, value), (value + 10, value)]).await.unwrap();
        }
        let before = fixture.seen(&writer);
        drop(writer);
        let again = fixture.open_with(tiny(2)).await;
        assert_eq!(fixture.seen(&again), before);
        hold.open();
        again.flush().await.unwrap();
        assert_eq!(fixture.seen(&again), before);
        again.close(false).await.unwrap();
        let manifest = fixture.manifest().await;
        let flushed: Vec<u64> = manifest.sstables.iter().map(|s| s.generation.get()).collect();
        assert_eq!(flushed, [1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(fixture.stored().await, before);
    })
    .await;
}
