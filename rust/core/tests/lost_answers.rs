//! WAL puts that fail, land unseen, or go on failing.
//!
//! Owns: retries of an append and the end of a job whose log cannot grow.
//! Does not own: failures of a flush (`flush_failures`) or of a claim (`takeover`).

use std::sync::Arc;

use lancemem_core::types::ErrorKind;
use lancemem_testkit::{Effect, Fault, Request};

use crate::fixture::{Fixture, gate, until, within};

// B5
#[tokio::test]
async fn an_append_whose_answer_is_lost_is_recognised_as_ours_and_stands_once() {
    for effect in [Effect::LoseAnswer, Effect::AnswerExists] {
        within(async {
            let fixture = Fixture::new().await;
            let writer = fixture.open().await;
            fixture.storage.inject(Fault::new(Request::Put, "/wal/", effect));
            fixture.put(&writer, &[(1, 10)]).await.unwrap();
            fixture.put(&writer, &[(1, 11)]).await.unwrap();
            assert_eq!(fixture.data_entries().await.len(), 2);
            assert_eq!(fixture.seen(&writer), fixture.rows(&[(1, 11)]));
            assert_eq!(fixture.stored().await, fixture.rows(&[(1, 11)]));
        })
        .await;
    }
}

#[tokio::test]
async fn an_append_that_fails_as_often_as_it_is_repeated_is_repeated_to_success() {
    within(async {
        let fixture = Fixture::new().await;
        let writer = fixture.open().await;
        fixture.storage.inject(Fault::new(Request::Put, "/wal/", Effect::Refuse).times(3));
        fixture.put(&writer, &[(1, 10)]).await.unwrap();
        assert_eq!(fixture.data_entries().await.len(), 1);
    })
    .await;
}

#[tokio::test]
async fn an_outage_of_reads_and_writes_that_passes_is_survived() {
    within(async {
        let fixture = Fixture::new().await;
        let writer = fixture.open().await;
        fixture.storage.inject(Fault::new(Request::Put, "/wal/", Effect::LoseAnswer));
        fixture.storage.inject(Fault::new(Request::Get, "", Effect::Refuse).times(5));
        fixture.put(&writer, &[(1, 10)]).await.unwrap();
        fixture.put(&writer, &[(2, 20)]).await.unwrap();
        assert_eq!(fixture.data_entries().await.len(), 2);
    })
    .await;
}

#[tokio::test]
async fn storage_that_goes_on_failing_stops_the_job_and_every_waiter_learns_it() {
    within(async {
        let fixture = Arc::new(Fixture::new().await);
        let writer = Arc::new(fixture.open().await);
        fixture.put(&writer, &[(0, 0)]).await.unwrap();
        let hold = gate();
        fixture.storage.inject(Fault::new(Request::Put, "/wal/", Effect::Hold(hold.clone())));
        let mut puts = Vec::new();
        for number in 1..=10 {
            puts.push(fixture.spawn_put(&writer, &[(number, number)]));
            hold.wait_for_visitors(1).await;
        }
        until(|| writer.stats().active_rows == 11).await;
        fixture.storage.clear_faults();
        fixture.storage.inject(Fault::new(Request::Put, "", Effect::Refuse).for_ever());
        fixture.storage.inject(Fault::new(Request::Get, "", Effect::Refuse).for_ever());
        hold.open();
        let mut stopped = 0;
        for put in puts {
            if let Err(error) = put.await.unwrap() {
                assert_eq!(error.kind(), ErrorKind::Reopen, "{error}");
                assert!(error.to_string().contains("WAL entry"), "{error}");
                stopped += 1;
            }
        }
        assert_eq!(stopped, 9, "all but the one whose append was held");
        assert_eq!(fixture.put(&writer, &[(99, 99)]).await.unwrap_err().kind(), ErrorKind::Reopen);
        assert_eq!(fixture.delete(&writer, &[0]).await.unwrap_err().kind(), ErrorKind::Reopen);
        assert_eq!(writer.flush().await.unwrap_err().kind(), ErrorKind::Reopen);
        assert_eq!(writer.snapshot().unwrap_err().kind(), ErrorKind::Reopen);
        for flush in [true, true, false] {
            assert_eq!(writer.close(flush).await.unwrap_err().kind(), ErrorKind::Reopen);
        }
        fixture.storage.clear_faults();
        let again = fixture.open().await;
        assert!(fixture.seen(&again).contains_key(&fixture.shape.key(0)));
        fixture.put(&again, &[(1, 1)]).await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_flush_that_waits_for_an_append_which_fails_for_good_gets_the_error() {
    within(async {
        let fixture = Arc::new(Fixture::new().await);
        let writer = Arc::new(fixture.open_with(crate::fixture::patient()).await);
        fixture.put(&writer, &[(1, 10)]).await.unwrap();
        fixture.storage.inject(Fault::new(Request::Put, "/wal/", Effect::Refuse).for_ever());
        assert_eq!(writer.flush().await.unwrap_err().kind(), ErrorKind::Reopen);
        assert_eq!(writer.close(false).await.unwrap_err().kind(), ErrorKind::Reopen);
        assert_eq!(fixture.sink.calls(), 0, "rows that are not durable are never flushed");
    })
    .await;
}

#[tokio::test]
async fn a_foreign_entry_under_our_epoch_stops_the_job_before_it_acknowledges() {
    within(async {
        let fixture = Fixture::new().await;
        let writer = fixture.open().await;
        fixture.put(&writer, &[(1, 10)]).await.unwrap();
        let ours = fixture.storage.bytes(&fixture.wal_path(2)).await;
        fixture.storage.overwrite(&fixture.wal_path(3), ours).await;
        let error = fixture.put(&writer, &[(2, 20)]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Reopen);
        assert!(error.to_string().contains("WAL entry 3"), "{error}");
    })
    .await;
}
