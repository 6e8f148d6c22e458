//! Flushes that fail: repeated where that helps, reported where it does not, never doubled.
//!
//! Owns: failures of the sink and of the manifest commit, and closing meanwhile.
//! Does not own: failing WAL appends (`lost_answers`).

use std::sync::Arc;

use lancemem_core::Error;
use lancemem_core::types::{ErrorKind, Generation};
use lancemem_testkit::{Effect, Fault, Request};

use crate::fixture::{Fixture, gate, tiny, until, within};

#[tokio::test]
async fn a_sink_that_fails_once_is_asked_again_and_one_sstable_is_listed() {
    within(async {
        let fixture = Fixture::new().await;
        let writer = fixture.open().await;
        fixture.put(&writer, &[(1, 10)]).await.unwrap();
        fixture.sink.fail_next(Error::storage("writing an SSTable", "disk is busy"));
        writer.flush().await.unwrap();
        assert_eq!(fixture.sink.calls(), 2);
        assert_eq!(fixture.manifest().await.sstables.len(), 1);
        assert_eq!(fixture.stored().await, fixture.rows(&[(1, 10)]));
    })
    .await;
}

#[tokio::test]
async fn a_flush_that_cannot_work_says_why_and_a_later_one_succeeds() {
    within(async {
        let fixture = Fixture::new().await;
        let writer = fixture.open().await;
        fixture.put(&writer, &[(1, 10)]).await.unwrap();
        fixture.sink.fail_next(Error::input("the table has an impossible column"));
        let error = writer.flush().await.unwrap_err();
        assert!(error.to_string().contains("impossible column"), "{error}");
        assert_eq!(fixture.seen(&writer), fixture.rows(&[(1, 10)]), "the rows stay readable");
        fixture.put(&writer, &[(2, 20)]).await.unwrap();
        writer.flush().await.unwrap();
        assert_eq!(fixture.manifest().await.sstables.len(), 2);
        assert_eq!(fixture.stored().await, fixture.rows(&[(1, 10), (2, 20)]));
    })
    .await;
}

#[tokio::test]
async fn a_sink_that_panics_ends_the_job_with_an_error_for_every_waiter() {
    within(async {
        let fixture = Fixture::new().await;
        let writer = fixture.open().await;
        fixture.put(&writer, &[(1, 10)]).await.unwrap();
        fixture.sink.panic_next();
        assert!(writer.flush().await.is_err());
        let error = fixture.put(&writer, &[(2, 20)]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Reopen);
        let _ = writer.close(true).await;
        let again = fixture.open().await;
        assert_eq!(fixture.seen(&again), fixture.rows(&[(1, 10)]));
    })
    .await;
}

#[tokio::test]
async fn a_manifest_commit_whose_answer_is_lost_lists_the_sstable_once() {
    for effect in [Effect::LoseAnswer, Effect::AnswerExists] {
        within(async {
            let fixture = Fixture::new().await;
            let writer = fixture.open().await;
            fixture.put(&writer, &[(1, 10)]).await.unwrap();
            fixture.storage.inject(Fault::new(Request::Put, ".binpb", effect));
            writer.flush().await.unwrap();
            assert_eq!(fixture.manifest().await.sstables.len(), 1);
            assert_eq!(fixture.stored().await, fixture.rows(&[(1, 10)]));
        })
        .await;
    }
}

#[tokio::test]
async fn a_commit_that_landed_unseen_is_not_repeated_by_the_next_attempt() {
    within(async {
        let fixture = Fixture::new().await;
        let writer = fixture.open().await;
        fixture.put(&writer, &[(1, 10)]).await.unwrap();
        fixture.storage.inject(Fault::new(Request::Put, ".binpb", Effect::LoseAnswer));
        fixture.storage.inject(Fault::new(Request::Get, ".binpb", Effect::Refuse));
        writer.flush().await.unwrap();
        let manifest = fixture.manifest().await;
        assert_eq!(manifest.sstables.len(), 1, "{:?}", manifest.sstables);
        assert_eq!(manifest.current_generation, Generation(2));
        fixture.put(&writer, &[(2, 20)]).await.unwrap();
        writer.flush().await.unwrap();
        assert_eq!(fixture.stored().await, fixture.rows(&[(1, 10), (2, 20)]));
    })
    .await;
}

#[tokio::test]
async fn a_compactor_that_commits_between_does_not_hurt_the_flush() {
    within(async {
        let fixture = Fixture::new().await;
        let writer = fixture.open().await;
        fixture.put(&writer, &[(1, 10)]).await.unwrap();
        writer.flush().await.unwrap();
        let compactor = fixture.manifests();
        compactor.update_beside_owner(|manifest| manifest.sstables.clear()).await.unwrap();
        fixture.put(&writer, &[(2, 20)]).await.unwrap();
        writer.flush().await.unwrap();
        let manifest = fixture.manifest().await;
        assert_eq!(manifest.sstables.len(), 1);
        assert_eq!(manifest.sstables[0].generation, Generation(2));
        assert_eq!(manifest.current_generation, Generation(3));
    })
    .await;
}

#[tokio::test]
async fn a_close_that_storage_keeps_from_flushing_ends_the_job_and_says_to_start_another() {
    within(async {
        let fixture = Fixture::new().await;
        let writer = fixture.open().await;
        fixture.put(&writer, &[(1, 10)]).await.unwrap();
        fixture.storage.inject(Fault::new(Request::Put, "/manifest/", Effect::Refuse).for_ever());
        for _ in 0..2 {
            let error = writer.close(true).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Reopen, "{error}");
            assert!(error.to_string().contains("outage"), "{error}");
        }
        fixture.storage.clear_faults();
        assert_eq!(writer.close(true).await.unwrap_err().kind(), ErrorKind::Reopen);
        assert!(fixture.manifest().await.sstables.is_empty(), "it writes nothing any more");
        let again = fixture.open().await;
        again.close(true).await.unwrap();
        assert_eq!(fixture.manifest().await.sstables.len(), 1);
        assert_eq!(fixture.stored().await, fixture.rows(&[(1, 10)]));
    })
    .await;
}

#[tokio::test]
async fn every_close_of_a_job_that_could_not_flush_says_so() {
    within(async {
        let fixture = Fixture::new().await;
        let writer = fixture.open().await;
        fixture.put(&writer, &[(1, 10)]).await.unwrap();
        fixture.sink.fail_next(Error::input("the table has an impossible column"));
        for _ in 0..2 {
            let error = writer.close(true).await.unwrap_err().to_string();
            assert!(error.contains("impossible column"), "{error}");
        }
        writer.close(false).await.unwrap();
        assert!(fixture.manifest().await.sstables.is_empty());
        assert_eq!(fixture.stored().await, fixture.rows(&[(1, 10)]), "the log has them");
    })
    .await;
}

#[tokio::test]
async fn close_with_a_flush_ends_although_an_earlier_flush_ends_meanwhile() {
    within(async {
        let fixture = Arc::new(Fixture::new().await);
        let (sstable, append) = (gate(), gate());
        fixture.sink.hold(sstable.clone());
        let config = tiny(1).with_durable_write(false);
        let writer = Arc::new(fixture.open_with(config).await);
        fixture.put(&writer, &[(1, 10)]).await.unwrap();
        until(|| writer.stats().wal_entries == 1).await;
        fixture.storage.inject(Fault::new(Request::Put, "/wal/", Effect::Hold(append.clone())));
        fixture.put(&writer, &[(2, 20)]).await.unwrap();
        sstable.wait_for_visitors(1).await;
        let closing = {
            let writer = writer.clone();
            tokio::spawn(async move { writer.close(true).await })
        };
        append.wait_for_visitors(1).await;
        sstable.open();
        until(|| writer.stats().flushes == 1).await;
        tokio::task::yield_now().await;
        append.open();
        closing.await.unwrap().unwrap();
        assert_eq!(fixture.manifest().await.sstables.len(), 2);
    })
    .await;
}

#[tokio::test]
async fn a_flush_that_waits_while_the_job_is_closed_gets_an_answer() {
    within(async {
        for _ in 0..20 {
            let fixture = Arc::new(Fixture::new().await);
            let writer = Arc::new(fixture.open().await);
            fixture.put(&writer, &[(1, 10)]).await.unwrap();
            let flush = {
                let writer = writer.clone();
                tokio::spawn(async move { writer.flush().await })
            };
            tokio::task::yield_now().await;
            writer.close(false).await.unwrap();
            match flush.await.unwrap() {
                Ok(()) => assert_eq!(fixture.manifest().await.sstables.len(), 1),
                Err(error) => assert_eq!(error.kind(), ErrorKind::Reopen, "{error}"),
            }
            assert_eq!(fixture.stored().await, fixture.rows(&[(1, 10)]));
        }
    })
    .await;
}
