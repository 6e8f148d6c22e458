//! Puts wait while the shard holds too many bytes, and go on when a flush has freed them.
//!
//! Owns: the wait, its release and its failure.
//! Does not own: the limits that freeze a MemTable (`flushing`).

use std::sync::Arc;
use std::time::Duration;

use lancemem_core::Error;
use lancemem_core::types::{ErrorKind, WriterConfig};

use crate::fixture::{Fixture, gate, quick, until, within};

/// One row fills the budget.
fn narrow() -> WriterConfig {
    quick().with_max_unflushed_memtable_bytes(1)
}

#[tokio::test]
async fn a_put_waits_for_the_flush_and_then_goes_on() {
    within(async {
        let fixture = Arc::new(Fixture::new().await);
        let hold = gate();
        fixture.sink.hold(hold.clone());
        let writer = Arc::new(fixture.open_with(narrow()).await);
        fixture.put(&writer, &[(1, 10)]).await.unwrap();
        let waiting: Vec<_> =
            (2..6).map(|number| fixture.spawn_put(&writer, &[(number, number)])).collect();
        hold.wait_for_visitors(1).await;
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        assert!(waiting.iter().all(|put| !put.is_finished()));
        assert_eq!(fixture.seen(&writer), fixture.rows(&[(1, 10)]));
        hold.open();
        for put in waiting {
            put.await.unwrap().unwrap();
        }
        assert_eq!(fixture.seen(&writer), fixture.rows(&[(1, 10), (2, 2), (3, 3), (4, 4), (5, 5)]));
    })
    .await;
}

#[tokio::test]
async fn a_put_far_larger_than_the_budget_gets_through_whole() {
    within(async {
        let fixture = Fixture::new().await;
        let writer = fixture.open_with(narrow().with_max_memtable_rows(3)).await;
        let rows: Vec<(i64, i64)> = (0..20).map(|number| (number, number)).collect();
        fixture.put(&writer, &rows).await.unwrap();
        assert_eq!(fixture.seen(&writer), fixture.rows(&rows));
        assert_eq!(writer.stats().flushes, 0);
        fixture.put(&writer, &[(1, 100)]).await.unwrap();
        assert_eq!(writer.stats().flushes, 1);
        assert_eq!(fixture.data_entries().await.len(), 2);
    })
    .await;
}

#[tokio::test]
async fn a_put_learns_why_no_memory_comes_free_and_a_later_one_tries_again() {
    within(async {
        let fixture = Fixture::new().await;
        let writer = fixture.open_with(narrow()).await;
        fixture.put(&writer, &[(1, 10)]).await.unwrap();
        fixture.sink.fail_next(Error::input("the sink has a bad day"));
        let error = fixture.put(&writer, &[(2, 20)]).await.unwrap_err();
        assert!(error.to_string().contains("bad day"), "{error}");
        fixture.put(&writer, &[(3, 30)]).await.unwrap();
        assert_eq!(fixture.seen(&writer), fixture.rows(&[(1, 10), (3, 30)]));
    })
    .await;
}

#[tokio::test]
async fn a_put_that_waits_for_memory_when_the_job_is_closed_gets_an_answer() {
    within(async {
        let fixture = Arc::new(Fixture::new().await);
        let hold = gate();
        fixture.sink.hold(hold.clone());
        let writer = Arc::new(fixture.open_with(narrow()).await);
        fixture.put(&writer, &[(1, 10)]).await.unwrap();
        let waiting = fixture.spawn_put(&writer, &[(2, 20)]);
        hold.wait_for_visitors(1).await;
        let closing = {
            let writer = writer.clone();
            tokio::spawn(async move { writer.close(false).await })
        };
        until(|| writer.stats().waiting_puts == 1).await;
        assert!(!closing.is_finished(), "a flush still runs");
        hold.open();
        closing.await.unwrap().unwrap();
        assert!(waiting.await.unwrap().is_err());
        let again = fixture.open().await;
        assert_eq!(fixture.seen(&again), fixture.rows(&[(1, 10)]));
    })
    .await;
}

#[tokio::test]
async fn puts_that_wait_go_on_in_the_order_in_which_they_came() {
    within(async {
        let fixture = Arc::new(Fixture::new().await);
        let hold = gate();
        fixture.sink.hold(hold.clone());
        let writer = Arc::new(fixture.open_with(narrow().with_durable_write(false)).await);
        fixture.put(&writer, &[(0, 0)]).await.unwrap();
        let mut waiting = Vec::new();
        for number in 1..6_usize {
            let (fixture, writer) = (fixture.clone(), writer.clone());
            let row = i64::try_from(number).unwrap();
            let shared = writer.clone();
            waiting.push(tokio::spawn(async move { fixture.put(&writer, &[(0, row)]).await }));
            until(|| shared.stats().waiting_puts == number as u64).await;
        }
        hold.open();
        for put in waiting {
            put.await.unwrap().unwrap();
        }
        // All wrote one key: the last in the queue wins.
        assert_eq!(fixture.seen(&writer), fixture.rows(&[(0, 5)]));
        let stats = writer.stats();
        assert_eq!((stats.waiting_puts, stats.backpressure_puts), (0, 5));
    })
    .await;
}

#[tokio::test]
async fn memory_that_was_counted_is_given_back_by_flushes_and_refused_puts() {
    within(async {
        let fixture = Fixture::new().await;
        let writer = fixture.open().await;
        fixture.put(&writer, &[(1, 10)]).await.unwrap();
        assert!(writer.stats().memtable_bytes > 0);
        writer.flush().await.unwrap();
        assert_eq!(writer.stats().memtable_bytes, 0);
        writer.close(false).await.unwrap();
        assert!(fixture.put(&writer, &[(2, 20)]).await.is_err());
        assert_eq!(writer.stats().memtable_bytes, 0);
    })
    .await;
}

#[tokio::test]
async fn a_put_waits_while_too_many_generations_are_not_compacted() {
    within(async {
        let fixture = Arc::new(Fixture::new().await);
        let config = quick().with_max_uncompacted_generations(2);
        let writer = Arc::new(fixture.open_with(config).await);
        for number in 0..2 {
            fixture.put(&writer, &[(number, number)]).await.unwrap();
            writer.flush().await.unwrap();
        }
        let waiting = fixture.spawn_put(&writer, &[(2, 2)]);
        until(|| writer.stats().waiting_puts == 1).await;
        fixture
            .manifests()
            .update_beside_owner(|manifest| manifest.sstables.clear())
            .await
            .unwrap();
        waiting.await.unwrap().unwrap();
        assert_eq!(writer.stats().uncompacted_generations, 0);
    })
    .await;
}

#[tokio::test]
async fn a_put_does_not_wait_forever_where_no_process_compacts() {
    within(async {
        let fixture = Fixture::new().await;
        let config =
            quick().with_max_uncompacted_generations(1).with_max_compaction_wait(Duration::ZERO);
        let writer = fixture.open_with(config).await;
        fixture.put(&writer, &[(1, 10)]).await.unwrap();
        writer.flush().await.unwrap();
        let error = fixture.put(&writer, &[(2, 20)]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Retry);
        assert!(error.to_string().contains("1 uncompacted generations"), "{error}");
        assert_eq!(fixture.seen(&writer), fixture.rows(&[(1, 10)]));
    })
    .await;
}

#[tokio::test]
async fn a_put_that_waits_for_a_compaction_learns_that_another_job_took_the_shard() {
    within(async {
        let fixture = Fixture::new().await;
        let config = quick().with_max_uncompacted_generations(1);
        let writer = fixture.open_with(config).await;
        fixture.put(&writer, &[(1, 10)]).await.unwrap();
        writer.flush().await.unwrap();
        let successor = fixture.open().await;
        fixture.put(&successor, &[(2, 20)]).await.unwrap();
        successor.flush().await.unwrap();
        let error = fixture.put(&writer, &[(3, 30)]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Fenced, "{error}");
        assert_eq!(writer.snapshot().unwrap_err().kind(), ErrorKind::Fenced);
    })
    .await;
}
