//! WAL puts that fail, land unseen, or go on failing.
//!
//! Owns: retries of an append and the end of a job whose log cannot grow.
//! Does not own: failures of a flush (`flush_failures`) or of a claim (`takeover`).

use std::sync::Arc;

use lancemem_core::types::ErrorKind;
use lancemem_testkit::{Effect, Fault, Request};

use crate::bench::{Bench, gate, until, within};

// B5
#[tokio::test]
async fn an_append_whose_answer_is_lost_is_recognised_as_ours_and_stands_once() {
    for effect in [Effect::LoseAnswer, Effect::AnswerExists] {
        within(async {
            let bench = Bench::new().await;
            let writer = bench.open().await;
            bench.storage.inject(Fault::new(Request::Put, "/wal/", effect));
            bench.put(&writer, &[(1, 10)]).await.unwrap();
            bench.put(&writer, &[(1, 11)]).await.unwrap();
            assert_eq!(bench.data_entries().await.len(), 2);
            assert_eq!(bench.seen(&writer), bench.rows(&[(1, 11)]));
            assert_eq!(bench.stored().await, bench.rows(&[(1, 11)]));
        })
        .await;
    }
}

#[tokio::test]
async fn an_append_that_fails_as_often_as_it_is_repeated_is_repeated_to_success() {
    within(async {
        let bench = Bench::new().await;
        let writer = bench.open().await;
        bench.storage.inject(Fault::new(Request::Put, "/wal/", Effect::Refuse).times(3));
        bench.put(&writer, &[(1, 10)]).await.unwrap();
        assert_eq!(bench.data_entries().await.len(), 1);
    })
    .await;
}

#[tokio::test]
async fn an_outage_of_reads_and_writes_that_passes_is_survived() {
    within(async {
        let bench = Bench::new().await;
        let writer = bench.open().await;
        bench.storage.inject(Fault::new(Request::Put, "/wal/", Effect::LoseAnswer));
        bench.storage.inject(Fault::new(Request::Get, "", Effect::Refuse).times(5));
        bench.put(&writer, &[(1, 10)]).await.unwrap();
        bench.put(&writer, &[(2, 20)]).await.unwrap();
        assert_eq!(bench.data_entries().await.len(), 2);
    })
    .await;
}

#[tokio::test]
async fn storage_that_goes_on_failing_stops_the_job_and_every_waiter_learns_it() {
    within(async {
        let bench = Arc::new(Bench::new().await);
        let writer = Arc::new(bench.open().await);
        bench.put(&writer, &[(0, 0)]).await.unwrap();
        let hold = gate();
        bench.storage.inject(Fault::new(Request::Put, "/wal/", Effect::Hold(hold.clone())));
        let mut puts = Vec::new();
        for number in 1..=10 {
            puts.push(bench.spawn_put(&writer, &[(number, number)]));
            hold.wait_for_visitors(1).await;
        }
        until(|| writer.stats().active_rows == 11).await;
        bench.storage.clear_faults();
        bench.storage.inject(Fault::new(Request::Put, "", Effect::Refuse).for_ever());
        bench.storage.inject(Fault::new(Request::Get, "", Effect::Refuse).for_ever());
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
        assert_eq!(bench.put(&writer, &[(99, 99)]).await.unwrap_err().kind(), ErrorKind::Reopen);
        assert_eq!(bench.delete(&writer, &[0]).await.unwrap_err().kind(), ErrorKind::Reopen);
        assert_eq!(writer.flush().await.unwrap_err().kind(), ErrorKind::Reopen);
        assert_eq!(writer.snapshot().unwrap_err().kind(), ErrorKind::Reopen);
        for flush in [true, true, false] {
            assert_eq!(writer.close(flush).await.unwrap_err().kind(), ErrorKind::Reopen);
        }
        bench.storage.clear_faults();
        let again = bench.open().await;
        assert!(bench.seen(&again).contains_key(&bench.shape.key(0)));
        bench.put(&again, &[(1, 1)]).await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_flush_that_waits_for_an_append_which_fails_for_good_gets_the_error() {
    within(async {
        let bench = Arc::new(Bench::new().await);
        let writer = Arc::new(bench.open_with(crate::bench::patient()).await);
        bench.put(&writer, &[(1, 10)]).await.unwrap();
        bench.storage.inject(Fault::new(Request::Put, "/wal/", Effect::Refuse).for_ever());
        assert_eq!(writer.flush().await.unwrap_err().kind(), ErrorKind::Reopen);
        assert_eq!(writer.close(false).await.unwrap_err().kind(), ErrorKind::Reopen);
        assert_eq!(bench.sink.calls(), 0, "rows that are not durable are never flushed");
    })
    .await;
}

#[tokio::test]
async fn a_foreign_entry_under_our_epoch_stops_the_job_before_it_acknowledges() {
    within(async {
        let bench = Bench::new().await;
        let writer = bench.open().await;
        bench.put(&writer, &[(1, 10)]).await.unwrap();
        let ours = bench.storage.bytes(&bench.wal_path(2)).await;
        bench.storage.overwrite(&bench.wal_path(3), ours).await;
        let error = bench.put(&writer, &[(2, 20)]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Reopen);
        assert!(error.to_string().contains("WAL entry 3"), "{error}");
    })
    .await;
}
