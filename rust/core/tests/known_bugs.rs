//! Bugs that other systems shipped, each as the story that catches it here. The catalogue in
//! docs/guarantees.md has the numbers.
//!
//! Owns: the bugs that no other chapter covers. Does not own: B2 to B5, B7, B11, B12, B19 and B21,
//! which stand where their subject is.

use std::sync::Arc;

use lancemem_core::types::{ErrorKind, Generation, KeyIndexKind};
use lancemem_testkit::{Effect, Fault, Request};

use crate::fixture::{Fixture, gate, patient, quick, tiny, until, within};

// B6
#[tokio::test]
async fn a_conflict_that_left_nothing_behind_is_tried_again_and_is_no_other_writers_entry() {
    within(async {
        let fixture = Fixture::new().await;
        let writer = fixture.open().await;
        fixture
            .storage
            .inject(Fault::new(Request::Put, "/wal/", Effect::ConflictOfNothing).times(2));
        fixture.put(&writer, &[(1, 10)]).await.unwrap();
        assert_eq!(fixture.data_entries().await.len(), 1);
        assert_eq!(fixture.stored().await, fixture.rows(&[(1, 10)]));
    })
    .await;
}

// B8
#[tokio::test]
async fn a_durable_put_is_not_acknowledged_by_the_entry_of_an_older_generation() {
    within(async {
        let fixture = Arc::new(Fixture::new().await);
        let writer = Arc::new(fixture.open_with(tiny(1)).await);
        fixture.put(&writer, &[(1, 10)]).await.unwrap();
        let hold = gate();
        fixture.storage.inject(Fault::new(Request::Put, "/wal/", Effect::Hold(hold.clone())));
        let put = fixture.spawn_put(&writer, &[(2, 20)]);
        hold.wait_for_visitors(1).await;
        until(|| writer.stats().flushes == 1).await;
        assert_eq!(writer.stats().active_generation, Generation(2));
        assert!(!put.is_finished(), "only generation 1 is in the log");
        hold.open();
        put.await.unwrap().unwrap();
    })
    .await;
}

// B9
#[tokio::test]
async fn a_durable_put_waits_for_its_entry() {
    within(async {
        let fixture = Arc::new(Fixture::new().await);
        let writer = Arc::new(fixture.open().await);
        let hold = gate();
        fixture.storage.inject(Fault::new(Request::Put, "/wal/", Effect::Hold(hold.clone())));
        let put = fixture.spawn_put(&writer, &[(1, 10)]);
        hold.wait_for_visitors(1).await;
        assert!(!put.is_finished());
        assert!(fixture.stored().await.is_empty());
        hold.open();
        put.await.unwrap().unwrap();
        assert_eq!(fixture.stored().await, fixture.rows(&[(1, 10)]));
    })
    .await;
}

// B10
#[tokio::test]
async fn a_job_that_was_stopped_by_its_log_serves_no_reads() {
    within(async {
        let fixture = Fixture::new().await;
        let config = patient().with_durable_write(true).with_max_wal_persist_retries(0);
        let writer = fixture.open_with(config).await;
        fixture.storage.inject(Fault::new(Request::Put, "/wal/", Effect::Refuse).for_ever());
        let error = fixture.put(&writer, &[(1, 10)]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Reopen);
        assert_eq!(writer.snapshot().unwrap_err().kind(), ErrorKind::Reopen);
        assert_eq!(fixture.put(&writer, &[(2, 20)]).await.unwrap_err().kind(), ErrorKind::Reopen);
    })
    .await;
}

// B13
#[tokio::test]
async fn the_log_keeps_the_order_of_puts_across_a_freeze() {
    within(async {
        let fixture = Fixture::new().await;
        let writer = fixture.open_with(tiny(2).with_durable_write(false)).await;
        fixture.sink.hold(gate());
        for value in 0..9 {
            fixture.put(&writer, &[(1, value)]).await.unwrap();
        }
        drop(writer);
        until_entries(&fixture, 9).await;
        let entries = fixture.data_entries().await;
        let generations: Vec<_> = entries.iter().map(|(_, entry)| entry.generation).collect();
        assert!(generations.is_sorted(), "{generations:?}");
        let again = fixture.open_with(quick()).await;
        assert_eq!(fixture.seen(&again), fixture.rows(&[(1, 8)]));
    })
    .await;
}

async fn until_entries(fixture: &Fixture, batches: usize) {
    loop {
        let entries = fixture.data_entries().await;
        if entries.iter().map(|(_, entry)| entry.batches.len()).sum::<usize>() == batches {
            return;
        }
        tokio::task::yield_now().await;
    }
}

// B20
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_is_being_replaced_is_found_all_the_time() {
    within(async {
        for key_index in [KeyIndexKind::Hash, KeyIndexKind::SkipList] {
            let fixture = Arc::new(Fixture::new().await);
            let config = patient().with_key_index(key_index);
            let writer = Arc::new(fixture.open_with(config).await);
            fixture.put(&writer, &[(7, 0)]).await.unwrap();
            let putting = {
                let (fixture, writer) = (fixture.clone(), writer.clone());
                tokio::spawn(async move {
                    for value in 1..2_000 {
                        fixture
                            .put(&writer, &[(7, value), (value + 10, 0), (7, value)])
                            .await
                            .unwrap();
                    }
                })
            };
            let key = fixture.shape.key(7);
            while !putting.is_finished() {
                let snapshot = writer.snapshot().unwrap();
                let view = snapshot.memtables.last().unwrap();
                let newest =
                    view.newest(key.as_slice()).expect("it is there from the beginning on");
                assert_eq!(newest.0 as usize, view.rows() - 1);
            }
            putting.await.unwrap();
        }
    })
    .await;
}

// B22
#[tokio::test]
async fn nothing_is_appended_behind_an_entry_that_failed() {
    within(async {
        let fixture = Arc::new(Fixture::new().await);
        let config = quick().with_max_wal_persist_retries(0);
        let writer = Arc::new(fixture.open_with(config).await);
        fixture.put(&writer, &[(0, 0)]).await.unwrap();
        let hold = gate();
        let fault = Fault::new(Request::Put, "/wal/", Effect::HoldAndRefuse(hold.clone()));
        fixture.storage.inject(fault);
        let mut puts = Vec::new();
        for number in 1..4 {
            puts.push(fixture.spawn_put(&writer, &[(number, number)]));
            hold.wait_for_visitors(1).await;
        }
        until(|| writer.stats().active_rows == 4).await;
        hold.open();
        for put in puts {
            assert!(put.await.unwrap().is_err());
        }
        assert_eq!(fixture.stored().await, fixture.rows(&[(0, 0)]));
        let again = fixture.open().await;
        assert_eq!(fixture.seen(&again), fixture.rows(&[(0, 0)]));
    })
    .await;
}

// B23
#[tokio::test]
async fn a_compactor_leaves_the_epoch_to_the_living_writer() {
    within(async {
        let fixture = Fixture::new().await;
        let writer = fixture.open().await;
        fixture.put(&writer, &[(1, 10)]).await.unwrap();
        writer.flush().await.unwrap();
        let drained =
            fixture.manifests().update_beside_owner(|manifest| manifest.sstables.clear()).await;
        assert_eq!(drained.unwrap().writer_epoch, writer.epoch());
        fixture.put(&writer, &[(2, 20)]).await.unwrap();
        writer.flush().await.unwrap();
        assert_eq!(fixture.manifest().await.sstables.len(), 1);
    })
    .await;
}

#[tokio::test]
async fn in_a_steady_state_a_durable_put_is_one_request() {
    within(async {
        let fixture = Fixture::new().await;
        let writer = fixture.open().await;
        fixture.put(&writer, &[(0, 0)]).await.unwrap();
        fixture.storage.forget_requests();
        for number in 1..11 {
            fixture.put(&writer, &[(number, number)]).await.unwrap();
        }
        assert_eq!(fixture.storage.tried_puts("").len(), 10);
        assert_eq!(fixture.storage.tried_gets("").len(), 0);
        assert_eq!(fixture.storage.listings(), 0);
    })
    .await;
}
