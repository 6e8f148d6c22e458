//! Claims that race: exactly one writer goes on, and the log stays in order for the next.
//!
//! Owns: the claimer's side of a takeover, whatever storage answers at which moment.
//! Does not own: the incumbent's side (`fencing`).

use std::sync::Arc;

use lancemem_core::types::ErrorKind;
use lancemem_testkit::{Effect, Fault, Request};

use crate::bench::{Bench, gate, quick, within};

#[tokio::test]
async fn a_sentinel_that_comes_late_does_not_disturb_the_newer_claim() {
    within(async {
        let bench = Arc::new(Bench::new().await);
        let hold = gate();
        bench.storage.inject(Fault::new(Request::Put, "/wal/", Effect::Hold(hold.clone())));
        let slow = {
            let bench = bench.clone();
            tokio::spawn(async move { bench.try_open(quick()).await.map(|_| ()) })
        };
        hold.wait_for_visitors(1).await;
        let fast = bench.open().await;
        bench.put(&fast, &[(1, 10)]).await.unwrap();
        hold.open();
        assert_eq!(slow.await.unwrap().unwrap_err().kind(), ErrorKind::Fenced);
        bench.put(&fast, &[(2, 20)]).await.unwrap();
        fast.close(false).await.unwrap();
        let again = bench.open().await;
        assert_eq!(bench.seen(&again), bench.rows(&[(1, 10), (2, 20)]));
    })
    .await;
}

#[tokio::test]
async fn a_claim_that_stalls_before_it_looks_at_the_log_writes_nothing_into_it() {
    within(async {
        let bench = Arc::new(Bench::new().await);
        let hold = gate();
        // The hint is the last thing that a claim writes before it goes on to the log.
        bench.storage.inject(Fault::new(Request::Put, "hint", Effect::Hold(hold.clone())));
        let slow = {
            let bench = bench.clone();
            tokio::spawn(async move { bench.try_open(quick()).await.map(|_| ()) })
        };
        hold.wait_for_visitors(1).await;
        let fast = bench.open().await;
        bench.put(&fast, &[(1, 10)]).await.unwrap();
        hold.open();
        assert_eq!(slow.await.unwrap().unwrap_err().kind(), ErrorKind::Fenced);
        bench.put(&fast, &[(2, 20)]).await.unwrap();
        fast.close(false).await.unwrap();
        let again = bench.open().await;
        assert_eq!(bench.seen(&again), bench.rows(&[(1, 10), (2, 20)]));
    })
    .await;
}

#[tokio::test]
async fn a_claim_whose_answer_is_lost_still_opens_the_shard() {
    for effect in [Effect::LoseAnswer, Effect::AnswerExists] {
        within(async {
            let bench = Bench::new().await;
            bench.storage.inject(Fault::new(Request::Put, ".binpb", effect));
            let writer = bench.open().await;
            bench.put(&writer, &[(1, 10)]).await.unwrap();
            assert_eq!(bench.seen(&writer), bench.rows(&[(1, 10)]));
        })
        .await;
    }
}

#[tokio::test]
async fn two_claims_never_share_an_epoch_although_their_bytes_are_equal() {
    within(async {
        let bench = Arc::new(Bench::new().await);
        let hold = gate();
        let effect = Effect::HoldAndRefuse(hold.clone());
        bench.storage.inject(Fault::new(Request::Put, ".binpb", effect));
        let first = {
            let bench = bench.clone();
            tokio::spawn(async move { bench.manifests().claim().await })
        };
        hold.wait_for_visitors(1).await;
        let second = bench.manifests().claim().await.unwrap();
        hold.open();
        if let Ok(first) = first.await.unwrap() {
            assert_ne!(first.writer_epoch, second.writer_epoch);
        }
    })
    .await;
}

#[tokio::test]
async fn a_sentinel_whose_answer_is_lost_does_not_keep_the_shard_closed() {
    for effect in [Effect::LoseAnswer, Effect::AnswerExists, Effect::Refuse] {
        within(async {
            let bench = Bench::new().await;
            bench.storage.inject(Fault::new(Request::Put, "/wal/", effect));
            let writer = match bench.try_open(quick()).await {
                Ok(writer) => writer,
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Retry, "{error}");
                    bench.open().await
                }
            };
            bench.put(&writer, &[(1, 10)]).await.unwrap();
            assert_eq!(bench.stored().await, bench.rows(&[(1, 10)]));
        })
        .await;
    }
}

// B6
#[tokio::test]
async fn a_sentinel_that_met_a_conflict_leaves_no_hole() {
    within(async {
        let bench = Bench::new().await;
        bench.open().await.close(false).await.unwrap();
        bench.storage.inject(Fault::new(Request::Put, "/wal/", Effect::ConflictOfNothing).times(2));
        let writer = bench.open().await;
        bench.put(&writer, &[(1, 10)]).await.unwrap();
        writer.close(false).await.unwrap();
        let again = bench.open().await;
        assert_eq!(bench.seen(&again), bench.rows(&[(1, 10)]));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_writers_that_open_at_once_the_last_claim_wins_and_no_acknowledged_row_is_lost() {
    within(async {
        for _ in 0..10 {
            let bench = Arc::new(Bench::new().await);
            let tasks: Vec<_> = (0..8)
                .map(|task| {
                    let bench = bench.clone();
                    tokio::spawn(async move {
                        let mut acknowledged = Vec::new();
                        let Ok(writer) = bench.try_open(quick()).await else {
                            return acknowledged;
                        };
                        for number in 0..20 {
                            let row = (task * 100 + number, number);
                            if bench.put(&writer, &[row]).await.is_err() {
                                break;
                            }
                            acknowledged.push(row);
                        }
                        acknowledged
                    })
                })
                .collect();
            let mut acknowledged = Vec::new();
            for task in tasks {
                acknowledged.extend(task.await.unwrap());
            }
            let stored = bench.stored().await;
            for (key, value) in bench.rows(&acknowledged) {
                assert_eq!(stored.get(&key), Some(&value));
            }
            bench.open().await.close(true).await.unwrap();
        }
    })
    .await;
}

// B2
#[tokio::test]
async fn a_shard_whose_covered_log_was_collected_opens_and_goes_on_behind_it() {
    within(async {
        let bench = Bench::new().await;
        let writer = bench.open().await;
        for number in 0..5 {
            bench.put(&writer, &[(number, number)]).await.unwrap();
        }
        writer.close(true).await.unwrap();
        for path in bench.storage.paths("/wal/").await {
            bench.storage.drop_file(&path).await;
        }
        let again = bench.open().await;
        bench.put(&again, &[(9, 9)]).await.unwrap();
        assert!(
            bench.data_entries().await[0].0 > 6,
            "the new entry stands behind the covered ones"
        );
        again.close(false).await.unwrap();
        let third = bench.open().await;
        assert_eq!(bench.seen(&third).len(), 6);
    })
    .await;
}
