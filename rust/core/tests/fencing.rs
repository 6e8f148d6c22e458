//! A writer that lost its shard: each of its calls fails, and no row that it held back appears.
//!
//! Owns: the incumbent's side of a takeover.
//! Does not own: races between claims (`takeover`).

use std::sync::Arc;

use lancemem_core::Error;
use lancemem_core::shard::ShardWriter;
use lancemem_core::types::ErrorKind;
use lancemem_testkit::{Effect, Fault, Request};

use crate::fixture::{Fixture, gate, patient, quick, tiny, until, within};

/// A writer with one durable row, and the one that took its shard.
async fn taken_over(fixture: &Fixture) -> (ShardWriter, ShardWriter) {
    let old = fixture.open().await;
    fixture.put(&old, &[(1, 10)]).await.unwrap();
    let new = fixture.open().await;
    (old, new)
}

#[track_caller]
fn assert_fenced<T>(answer: Result<T, Error>) {
    let error = answer.err().expect("a fenced writer refuses");
    assert_eq!(error.kind(), ErrorKind::Fenced, "{error}");
    assert!(error.to_string().contains("epoch 1 is older than the claimed 2"), "{error}");
}

// B7
#[tokio::test]
async fn the_put_of_a_fenced_writer_fails_and_so_does_everything_after_it() {
    within(async {
        let fixture = Fixture::new().await;
        let (old, new) = taken_over(&fixture).await;
        assert_fenced(fixture.put(&old, &[(2, 20)]).await);
        assert_fenced(fixture.put(&old, &[(3, 30)]).await);
        assert_fenced(fixture.delete(&old, &[1]).await);
        assert_fenced(old.flush().await);
        assert_fenced(old.snapshot());
        assert_fenced(old.close(true).await);
        assert_eq!(fixture.seen(&new), fixture.rows(&[(1, 10)]));
        fixture.put(&new, &[(2, 21)]).await.unwrap();
        assert_eq!(fixture.stored().await, fixture.rows(&[(1, 10), (2, 21)]));
    })
    .await;
}

#[tokio::test]
async fn the_delete_of_a_fenced_writer_deletes_nothing() {
    within(async {
        let fixture = Fixture::new().await;
        let (old, new) = taken_over(&fixture).await;
        assert_fenced(fixture.delete(&old, &[1]).await);
        assert_eq!(fixture.seen(&new), fixture.rows(&[(1, 10)]));
        assert_eq!(fixture.stored().await, fixture.rows(&[(1, 10)]));
    })
    .await;
}

#[tokio::test]
async fn the_flush_of_a_fenced_writer_lists_nothing() {
    within(async {
        let fixture = Fixture::new().await;
        let (old, _new) = taken_over(&fixture).await;
        assert_fenced(old.flush().await);
        assert!(fixture.manifest().await.sstables.is_empty());
        assert_fenced(fixture.put(&old, &[(2, 20)]).await);
        assert_fenced(old.snapshot());
    })
    .await;
}

#[tokio::test]
async fn the_closing_flush_of_a_fenced_writer_fails_and_does_not_hang() {
    within(async {
        let fixture = Fixture::new().await;
        let (old, _new) = taken_over(&fixture).await;
        assert_fenced(old.close(true).await);
        let fixture = Fixture::new().await;
        let (old, _new) = taken_over(&fixture).await;
        assert_fenced(old.flush().await);
        assert_fenced(old.close(true).await);
    })
    .await;
}

#[tokio::test]
async fn rows_that_a_fenced_writer_never_acknowledged_are_not_visible_to_its_successor() {
    within(async {
        let fixture = Fixture::new().await;
        let old = fixture.open_with(patient()).await;
        fixture.put(&old, &[(1, 10)]).await.unwrap();
        let new = fixture.open().await;
        assert!(fixture.seen(&new).is_empty());
        assert_fenced(old.close(false).await);
        assert_fenced(old.snapshot());
        fixture.put(&new, &[(2, 20)]).await.unwrap();
        assert_eq!(fixture.seen(&new), fixture.rows(&[(2, 20)]));
        new.close(false).await.unwrap();
        let third = fixture.open().await;
        assert_eq!(fixture.seen(&third), fixture.rows(&[(2, 20)]));
    })
    .await;
}

#[tokio::test]
async fn an_append_that_storage_refuses_finds_out_that_the_shard_was_taken() {
    within(async {
        let fixture = Fixture::new().await;
        let (old, _new) = taken_over(&fixture).await;
        fixture.storage.inject(Fault::new(Request::Put, "/wal/", Effect::Refuse));
        assert_fenced(fixture.put(&old, &[(2, 20)]).await);
    })
    .await;
}

// L2
#[tokio::test]
async fn the_close_of_a_fenced_job_waits_for_the_append_that_runs_and_starts_no_other() {
    within(async {
        let fixture = Arc::new(Fixture::new().await);
        let (flushing, appending) = (gate(), gate());
        fixture.sink.hold(flushing.clone());
        let config = tiny(1).with_durable_write(false).with_max_wal_buffer_size(1);
        let old = Arc::new(fixture.open_with(config).await);
        fixture.put(&old, &[(1, 10)]).await.unwrap();
        until(|| old.stats().wal_entries == 1).await;
        fixture.storage.inject(Fault::new(Request::Put, "/wal/", Effect::Hold(appending.clone())));
        fixture.put(&old, &[(2, 20)]).await.unwrap();
        fixture.put(&old, &[(3, 30)]).await.unwrap();
        appending.wait_for_visitors(1).await;
        flushing.wait_for_visitors(1).await;
        // A claim whose sentinel does not stand yet: only the flush learns of it.
        fixture.manifests().claim().await.unwrap();
        flushing.open();
        until(|| old.snapshot().is_err()).await;
        let closing = {
            let old = old.clone();
            tokio::spawn(async move { old.close(false).await })
        };
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert!(!closing.is_finished(), "an append is on its way");
        appending.open();
        assert_fenced(closing.await.unwrap());
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert_eq!(fixture.data_entries().await.len(), 2, "the third put was not appended");
    })
    .await;
}

// B21
#[tokio::test]
async fn an_open_that_cannot_work_does_not_fence_the_incumbent() {
    within(async {
        let fixture = Fixture::new().await;
        let writer = fixture.open().await;
        let bad = [
            quick().with_max_memtable_rows(0),
            quick().with_max_wal_buffer_size(0),
            quick().with_manifest_scan_batch_size(0),
        ];
        for config in bad {
            let error = fixture.try_open(config).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        }
        fixture.put(&writer, &[(1, 10)]).await.unwrap();
        writer.flush().await.unwrap();
        assert_eq!(fixture.seen(&writer), fixture.rows(&[(1, 10)]));
    })
    .await;
}

#[tokio::test]
async fn a_table_whose_settings_ask_for_endless_looks_at_once_is_opened_all_the_same() {
    within(async {
        let fixture = Fixture::new().await;
        let endless = quick().with_manifest_scan_batch_size(usize::MAX);
        let writer = fixture.try_open(endless).await.unwrap();
        fixture.put(&writer, &[(1, 10)]).await.unwrap();
        writer.flush().await.unwrap();
        assert_eq!(fixture.seen(&writer), fixture.rows(&[(1, 10)]));
    })
    .await;
}
