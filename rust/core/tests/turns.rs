//! Writes of one put by several processes: a claim whose rows are still to come is left alone.
//!
//! Owns: the order of claims, and what becomes of the entry of a writer that was fenced.
//! Does not own: claims that wait for no other (`takeover`), or repeating a write, which is the
//! table's.

use std::sync::Arc;
use std::time::Duration;

use lancemem_core::Result;
use lancemem_core::shard::{ClaimTurn, EntryStanding, ShardIdentity, ShardWriter};
use lancemem_core::types::{ErrorKind, WriterEpoch};
use lancemem_testkit::{Effect, Fault, Request};
use tokio::time::Instant;

use crate::fixture::{Fixture, HOUR, gate, quick, until, within};

/// A turn that waits forever, where it has to wait at all.
fn patient_turn() -> ClaimTurn {
    ClaimTurn {
        claimed_here: None,
        crowded: false,
        grace: HOUR,
        until: Instant::now() + HOUR,
        limit: HOUR,
        only_released: false,
    }
}

async fn open_in_turn(fixture: &Fixture, turn: &ClaimTurn) -> Result<ShardWriter> {
    let identity = ShardIdentity::new(fixture.shard_id);
    let (columns, sink) = (fixture.columns.clone(), fixture.sink.clone());
    ShardWriter::open_in_turn(fixture.store(), identity, columns, sink, quick(), turn).await
}

#[tokio::test]
async fn a_claim_without_rows_is_left_alone_until_it_has_some() {
    within(async {
        let fixture = Arc::new(Fixture::new().await);
        let first = fixture.open().await;
        let waiting = {
            let fixture = fixture.clone();
            tokio::spawn(async move { open_in_turn(&fixture, &patient_turn()).await })
        };
        fixture.storage.forget_requests();
        until(|| fixture.storage.tried_gets(".binpb").len() > 10).await;
        fixture.put(&first, &[(1, 10)]).await.unwrap();
        let second = waiting.await.unwrap().unwrap();
        assert_eq!(second.epoch(), first.epoch().next());
        fixture.put(&second, &[(2, 20)]).await.unwrap();
        let error = fixture.put(&first, &[(3, 30)]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Fenced);
        assert_eq!(fixture.stored().await, fixture.rows(&[(1, 10), (2, 20)]));
    })
    .await;
}

#[tokio::test]
async fn a_claim_that_has_rows_is_not_waited_for_whether_they_are_flushed_or_not() {
    for flush in [false, true] {
        within(async {
            let fixture = Fixture::new().await;
            let first = fixture.open().await;
            fixture.put(&first, &[(1, 10)]).await.unwrap();
            first.close(flush).await.unwrap();
            let second = open_in_turn(&fixture, &patient_turn()).await.unwrap();
            assert_eq!(fixture.seen(&second), fixture.rows(&[(1, 10)]));
        })
        .await;
    }
}

#[tokio::test]
async fn a_claim_that_was_abandoned_is_not_waited_for_once_it_is_old() {
    within(async {
        let fixture = Fixture::new().await;
        drop(fixture.open().await);
        let turn = ClaimTurn { grace: Duration::ZERO, ..patient_turn() };
        assert_eq!(open_in_turn(&fixture, &turn).await.unwrap().epoch(), WriterEpoch(2));
    })
    .await;
}

#[tokio::test]
async fn a_claim_of_this_process_is_not_waited_for() {
    within(async {
        let fixture = Fixture::new().await;
        let job = fixture.open().await;
        let turn = ClaimTurn { claimed_here: Some(job.epoch()), ..patient_turn() };
        open_in_turn(&fixture, &turn).await.unwrap();
        assert_eq!(fixture.put(&job, &[(1, 10)]).await.unwrap_err().kind(), ErrorKind::Fenced);
    })
    .await;
}

#[tokio::test]
async fn a_turn_that_wants_a_released_claim_leaves_a_job_alone_until_it_is_closed() {
    within(async {
        let fixture = Fixture::new().await;
        let job = fixture.open().await;
        fixture.put(&job, &[(1, 10)]).await.unwrap();
        let turn = ClaimTurn { only_released: true, ..patient_turn() };
        let error = open_in_turn(&fixture, &turn).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Held, "{error}");
        assert!(error.to_string().contains("take_over=True"), "{error}");
        fixture.put(&job, &[(2, 20)]).await.unwrap();
        job.close(false).await.unwrap();
        job.release().await.unwrap();
        let next = open_in_turn(&fixture, &turn).await.unwrap();
        assert_eq!(fixture.seen(&next), fixture.rows(&[(1, 10), (2, 20)]));
        // A claim in turn is released from its start; the claim of a job that follows is not.
        fixture.put(&next, &[(3, 30)]).await.unwrap();
        drop(open_in_turn(&fixture, &turn).await.unwrap());
        let _job = fixture.open().await;
        let turn = ClaimTurn { grace: Duration::ZERO, ..turn };
        assert!(open_in_turn(&fixture, &turn).await.is_err());
    })
    .await;
}

#[tokio::test]
async fn a_turn_that_does_not_come_fences_no_writer() {
    within(async {
        let fixture = Fixture::new().await;
        let first = fixture.open().await;
        let turn = ClaimTurn { until: Instant::now(), ..patient_turn() };
        let error = open_in_turn(&fixture, &turn).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Retry, "{error}");
        fixture.put(&first, &[(1, 10)]).await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn of_claims_that_follow_the_same_one_a_single_one_is_made() {
    within(async {
        let fixture = Fixture::new().await;
        let seen = fixture.manifests().claim().await.unwrap().writer_epoch;
        let stores: Vec<_> = (0..8).map(|_| fixture.manifests()).collect();
        let claims = stores.iter().map(|manifests| manifests.claim_after(seen, |_| Ok(())));
        let made = futures::future::join_all(claims).await;
        assert_eq!(made.iter().filter(|claim| claim.is_ok()).count(), 1);
        assert_eq!(fixture.manifest().await.writer_epoch, seen.next());
    })
    .await;
}

#[tokio::test]
async fn an_entry_is_in_the_log_or_never_will_be_once_a_successor_has_put_its_fence() {
    within(async {
        let fixture = Fixture::new().await;
        let (store, first) = (fixture.store(), fixture.open().await);
        let entry = first.next_entry();
        assert_eq!(entry.standing(&store).await.unwrap(), EntryStanding::Absent);
        fixture.put(&first, &[(1, 10)]).await.unwrap();
        let second = fixture.open().await;
        let lost = second.next_entry();
        fixture.open().await;
        assert_eq!(fixture.put(&second, &[(2, 20)]).await.unwrap_err().kind(), ErrorKind::Fenced);
        assert_eq!(entry.standing(&store).await.unwrap(), EntryStanding::Written);
        assert_eq!(lost.standing(&store).await.unwrap(), EntryStanding::Lost);
        assert_eq!(fixture.stored().await, fixture.rows(&[(1, 10)]));
    })
    .await;
}

#[tokio::test]
async fn an_entry_that_was_under_way_when_its_writer_was_fenced_is_found_where_it_landed() {
    for lands in [false, true] {
        within(async {
            let hold = gate();
            let effect = if lands { Effect::HoldAnswer } else { Effect::Hold }(hold.clone());
            let fixture = Arc::new(Fixture::new().await);
            let first = Arc::new(fixture.open().await);
            let entry = first.next_entry();
            fixture.storage.inject(Fault::new(Request::Put, "/wal/", effect));
            let put = fixture.spawn_put(&first, &[(1, 10)]);
            hold.wait_for_visitors(1).await;
            fixture.open().await;
            hold.open();
            assert_eq!(put.await.unwrap().is_ok(), lands);
            let expected = if lands { EntryStanding::Written } else { EntryStanding::Lost };
            assert_eq!(entry.standing(&fixture.store()).await.unwrap(), expected);
            let rows: &[(i64, i64)] = if lands { &[(1, 10)] } else { &[] };
            assert_eq!(fixture.stored().await, fixture.rows(rows));
        })
        .await;
    }
}

#[tokio::test]
async fn each_put_of_a_job_has_a_place_of_its_own_that_is_known_before_the_put() {
    within(async {
        let fixture = Fixture::new().await;
        let (store, first) = (fixture.store(), fixture.open().await);
        assert!(!first.newest_entry().is_stored(&store).await.unwrap(), "a fence has no rows");
        for number in 0..4 {
            let entry = first.next_entry();
            fixture.put(&first, &[(number, 10)]).await.unwrap();
            assert_eq!(first.newest_entry(), entry);
            assert!(entry.is_stored(&store).await.unwrap());
            if number == 1 {
                first.flush().await.unwrap();
            }
        }
        let (written, lost) = (first.newest_entry(), first.next_entry());
        let second = fixture.open().await;
        assert_eq!(fixture.put(&first, &[(4, 40)]).await.unwrap_err().kind(), ErrorKind::Fenced);
        assert_eq!(written.standing(&store).await.unwrap(), EntryStanding::Written);
        assert_eq!(lost.standing(&store).await.unwrap(), EntryStanding::Lost);
        assert_eq!(second.newest_entry().position, lost.position, "it is the fence");
    })
    .await;
}
