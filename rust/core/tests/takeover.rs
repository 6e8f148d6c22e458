//! Claims that race: exactly one writer goes on, and the log stays in order for the next.
//!
//! Owns: the claimer's side of a takeover, whatever storage answers at which moment.
//! Does not own: the incumbent's side (`fencing`).

use std::sync::Arc;

use lancemem_core::types::ErrorKind;
use lancemem_testkit::{Effect, Fault, Request};

use crate::fixture::{Fixture, gate, quick, within};

#[tokio::test]
async fn a_sentinel_that_comes_late_does_not_disturb_the_newer_claim() {
    within(async {
        let fixture = Arc::new(Fixture::new().await);
        let hold = gate();
        fixture.storage.inject(Fault::new(Request::Put, "/wal/", Effect::Hold(hold.clone())));
        let slow = {
            let fixture = fixture.clone();
            tokio::spawn(async move { fixture.try_open(quick()).await.map(|_| ()) })
        };
        hold.wait_for_visitors(1).await;
        let fast = fixture.open().await;
        fixture.put(&fast, &[(1, 10)]).await.unwrap();
        hold.open();
        assert_eq!(slow.await.unwrap().unwrap_err().kind(), ErrorKind::Fenced);
        fixture.put(&fast, &[(2, 20)]).await.unwrap();
        fast.close(false).await.unwrap();
        let again = fixture.open().await;
        assert_eq!(fixture.seen(&again), fixture.rows(&[(1, 10), (2, 20)]));
    })
    .await;
}

#[tokio::test]
async fn a_claim_that_stalls_before_it_looks_at_the_log_writes_nothing_into_it() {
    within(async {
        let fixture = Arc::new(Fixture::new().await);
        let hold = gate();
        // The hint is the last thing that a claim writes before it goes on to the log.
        fixture.storage.inject(Fault::new(Request::Put, "hint", Effect::Hold(hold.clone())));
        let slow = {
            let fixture = fixture.clone();
            tokio::spawn(async move { fixture.try_open(quick()).await.map(|_| ()) })
        };
        hold.wait_for_visitors(1).await;
        let fast = fixture.open().await;
        fixture.put(&fast, &[(1, 10)]).await.unwrap();
        hold.open();
        assert_eq!(slow.await.unwrap().unwrap_err().kind(), ErrorKind::Fenced);
        fixture.put(&fast, &[(2, 20)]).await.unwrap();
        fast.close(false).await.unwrap();
        let again = fixture.open().await;
        assert_eq!(fixture.seen(&again), fixture.rows(&[(1, 10), (2, 20)]));
    })
    .await;
}

#[tokio::test]
async fn a_claim_whose_answer_is_lost_still_opens_the_shard() {
    for effect in [Effect::LoseAnswer, Effect::AnswerExists] {
        within(async {
            let fixture = Fixture::new().await;
            fixture.storage.inject(Fault::new(Request::Put, ".binpb", effect));
            let writer = fixture.open().await;
            fixture.put(&writer, &[(1, 10)]).await.unwrap();
            assert_eq!(fixture.seen(&writer), fixture.rows(&[(1, 10)]));
        })
        .await;
    }
}

#[tokio::test]
async fn two_claims_never_share_an_epoch_although_their_bytes_are_equal() {
    within(async {
        let fixture = Arc::new(Fixture::new().await);
        let hold = gate();
        let effect = Effect::HoldAndRefuse(hold.clone());
        fixture.storage.inject(Fault::new(Request::Put, ".binpb", effect));
        let first = {
            let fixture = fixture.clone();
            tokio::spawn(async move { fixture.manifests().claim().await })
        };
        hold.wait_for_visitors(1).await;
        let second = fixture.manifests().claim().await.unwrap();
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
            let fixture = Fixture::new().await;
            fixture.storage.inject(Fault::new(Request::Put, "/wal/", effect));
            let writer = match fixture.try_open(quick()).await {
                Ok(writer) => writer,
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Retry, "{error}");
                    fixture.open().await
                }
            };
            fixture.put(&writer, &[(1, 10)]).await.unwrap();
            assert_eq!(fixture.stored().await, fixture.rows(&[(1, 10)]));
        })
        .await;
    }
}

// B6
#[tokio::test]
async fn a_sentinel_that_met_a_conflict_leaves_no_hole() {
    within(async {
        let fixture = Fixture::new().await;
        fixture.open().await.close(false).await.unwrap();
        fixture
            .storage
            .inject(Fault::new(Request::Put, "/wal/", Effect::ConflictOfNothing).times(2));
        let writer = fixture.open().await;
        fixture.put(&writer, &[(1, 10)]).await.unwrap();
        writer.close(false).await.unwrap();
        let again = fixture.open().await;
        assert_eq!(fixture.seen(&again), fixture.rows(&[(1, 10)]));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_writers_that_open_at_once_the_last_claim_wins_and_no_acknowledged_row_is_lost() {
    within(async {
        for _ in 0..10 {
            let fixture = Arc::new(Fixture::new().await);
            let tasks: Vec<_> = (0..8)
                .map(|task| {
                    let fixture = fixture.clone();
                    tokio::spawn(async move {
                        let mut acknowledged = Vec::new();
                        let Ok(writer) = fixture.try_open(quick()).await else {
                            return acknowledged;
                        };
                        for number in 0..20 {
                            let row = (task * 100 + number, number);
                            if fixture.put(&writer, &[row]).await.is_err() {
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
            let stored = fixture.stored().await;
            for (key, value) in fixture.rows(&acknowledged) {
                assert_eq!(stored.get(&key), Some(&value));
            }
            fixture.open().await.close(true).await.unwrap();
        }
    })
    .await;
}

// B2
#[tokio::test]
async fn a_shard_whose_covered_log_was_collected_opens_and_goes_on_behind_it() {
    within(async {
        let fixture = Fixture::new().await;
        let writer = fixture.open().await;
        for number in 0..5 {
            fixture.put(&writer, &[(number, number)]).await.unwrap();
        }
        writer.close(true).await.unwrap();
        for path in fixture.storage.paths("/wal/").await {
            fixture.storage.drop_file(&path).await;
        }
        let again = fixture.open().await;
        fixture.put(&again, &[(9, 9)]).await.unwrap();
        assert!(
            fixture.data_entries().await[0].0 > 6,
            "the new entry stands behind the covered ones"
        );
        again.close(false).await.unwrap();
        let third = fixture.open().await;
        assert_eq!(fixture.seen(&third).len(), 6);
    })
    .await;
}
