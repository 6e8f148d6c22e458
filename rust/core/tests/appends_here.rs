//! Puts whose own thread writes the log.
//!
//! Owns: when such a put is done at once, and that its append completes although the put is
//! cancelled.
//! Does not own: the orders of many of them (`rust/sim/schedules`).

use std::future::{Future, poll_fn};
use std::sync::Arc;

use futures::FutureExt;
use lancemem_core::Result;
use lancemem_core::shard::{
    Acknowledged, FixedSchema, ShardIdentity, ShardWriter, WriteBatch, WriteOptions,
};
use lancemem_core::store::{ManifestStore, Store, waiting_here};
use lancemem_core::types::{Error, ErrorKind, ShardId, WalPosition};
use lancemem_core::wal::WalTail;
use lancemem_testkit::{Effect, Fault, KeyShape, MemorySink, Request};

use crate::fixture::{Fixture, gate, patient, quick, until, within};

const SHAPE: KeyShape = KeyShape::Int64;

/// A durable put, by a thread that does nothing else meanwhile or by one that does.
fn durable(inline: bool) -> WriteOptions<'static> {
    WriteOptions::default().durable(true).inline(inline)
}

/// A put of one row, polled as a thread does that waits for it.
async fn put(writer: &ShardWriter, number: i64) -> Result<Acknowledged> {
    let rows = SHAPE.rows(&[(number, number)]);
    let mut put = Box::pin(writer.write(WriteBatch::upserts(&rows), durable(true)));
    poll_fn(|context| waiting_here(|| put.as_mut().poll(context))).await
}

/// A shard on a local disk.
async fn on_disk(folder: &std::path::Path, fsync: bool) -> (Store, ShardId, ShardWriter) {
    let store = Store::open(folder.to_str().unwrap(), fsync).unwrap();
    let shard_id = ShardId::from_u128(0xabcd);
    let manifests = ManifestStore::new(store.clone(), shard_id, 2);
    manifests.initialize(1, std::collections::BTreeMap::new()).await.unwrap();
    let identity = ShardIdentity::new(shard_id);
    let (sink, columns) = (Arc::new(MemorySink::default()), FixedSchema(SHAPE.row_schema()));
    let columns = Arc::new(columns);
    let writer = ShardWriter::open(store.clone(), identity, columns, sink, quick()).await;
    (store, shard_id, writer.unwrap())
}

#[tokio::test]
async fn on_a_local_disk_the_put_is_done_when_it_is_first_looked_at() {
    for fsync in [true, false] {
        within(async {
            let folder = tempfile::tempdir().unwrap();
            let (store, shard_id, writer) = on_disk(folder.path(), fsync).await;
            for number in 0..5 {
                let done = put(&writer, number).now_or_never();
                assert!(done.expect("nothing is waited for").unwrap().durable);
            }
            // Not on a thread that must not wait for a disk, nor where other futures are polled
            // beside it.
            let rows = SHAPE.rows(&[(9, 9)]);
            let rows = WriteBatch::upserts(&rows);
            assert!(writer.write(rows, durable(true)).now_or_never().is_none());
            let elsewhere = waiting_here(|| writer.write(rows, durable(false)).now_or_never());
            assert!(elsewhere.is_none());
            writer.close(false).await.unwrap();
            let tail = WalTail::new(store.clone(), shard_id, WalPosition(0));
            assert!(tail.last_entry().await.unwrap() >= WalPosition(7), "the sentinel and 6 puts");
            let left = store.list_files(&format!("_mem_wal/{shard_id}/wal")).await.unwrap();
            let on_disk = folder.path().join(format!("_mem_wal/{shard_id}/wal"));
            assert_eq!(std::fs::read_dir(on_disk).unwrap().count(), left.len(), "no staged file");
        })
        .await;
    }
}

#[tokio::test]
async fn a_job_whose_table_is_gone_stops_at_its_next_put_and_makes_no_folder() {
    for inline in [true, false] {
        within(async {
            let folder = tempfile::tempdir().unwrap();
            let (_, shard_id, writer) = on_disk(folder.path(), true).await;
            put(&writer, 1).await.unwrap();
            let log = folder.path().join(format!("_mem_wal/{shard_id}/wal"));
            std::fs::remove_dir_all(&log).unwrap();
            let rows = SHAPE.rows(&[(2, 2)]);
            let rows = WriteBatch::upserts(&rows);
            let refused = writer.write(rows, durable(inline)).await.unwrap_err();
            assert!(matches!(refused, Error::Poisoned { .. }), "{refused}");
            assert!(refused.to_string().contains("is gone"), "{refused}");
            assert!(!log.exists());
        })
        .await;
    }
}

#[tokio::test]
async fn an_append_that_a_cancelled_put_began_comes_to_its_end() {
    within(async {
        let fixture = Fixture::new().await;
        let writer = fixture.open().await;
        let hold = gate();
        fixture.storage.inject(Fault::new(Request::Put, "/wal/", Effect::Hold(hold.clone())));
        assert!(put(&writer, 1).now_or_never().is_none(), "cancelled in the middle");
        hold.wait_for_visitors(1).await;
        hold.open();
        put(&writer, 2).await.unwrap();
        let entries = fixture.data_entries().await;
        assert_eq!(entries.iter().map(|(position, _)| *position).collect::<Vec<_>>(), [2, 3]);
        assert_eq!(fixture.stored().await, fixture.rows(&[(1, 1), (2, 2)]));
    })
    .await;
}

#[tokio::test]
async fn a_put_without_a_waiter_is_not_hurried_by_one_that_appended_itself() {
    within(async {
        let fixture = Fixture::new().await;
        let writer = fixture.open_with(patient()).await;
        for number in 0..5 {
            put(&writer, 2 * number).await.unwrap();
            fixture.put(&writer, &[(2 * number + 1, 0)]).await.unwrap();
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
            let entries = fixture.data_entries().await.len();
            assert_eq!(entries, usize::try_from(number + 1).unwrap());
        }
        writer.close(false).await.unwrap();
        assert_eq!(fixture.stored().await.len(), 10);
    })
    .await;
}

#[tokio::test]
async fn a_close_waits_for_the_append_that_a_put_began_and_none_follows() {
    within(async {
        let fixture = Fixture::new().await;
        let writer = Arc::new(fixture.open().await);
        let hold = gate();
        fixture.storage.inject(Fault::new(Request::Put, "/wal/", Effect::Hold(hold.clone())));
        assert!(put(&writer, 1).now_or_never().is_none());
        hold.wait_for_visitors(1).await;
        let closing = {
            let writer = writer.clone();
            tokio::spawn(async move { writer.close(false).await })
        };
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        assert!(!closing.is_finished());
        hold.open();
        closing.await.unwrap().unwrap();
        assert_eq!(fixture.stored().await, fixture.rows(&[(1, 1)]));
        assert_eq!(put(&writer, 2).await.unwrap_err().kind(), ErrorKind::Reopen);
        assert_eq!(fixture.data_entries().await.len(), 1);
    })
    .await;
}

#[tokio::test]
async fn a_lost_answer_is_recognised_and_a_successor_fences_as_ever() {
    within(async {
        let fixture = Fixture::new().await;
        let writer = fixture.open().await;
        fixture.storage.inject(Fault::new(Request::Put, "/wal/", Effect::LoseAnswer));
        put(&writer, 1).await.unwrap();
        let successor = fixture.open().await;
        let error = put(&writer, 2).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Fenced, "{error}");
        assert_eq!(put(&writer, 3).await.unwrap_err().kind(), ErrorKind::Fenced);
        // Its tasks have ended, so nothing is left to wait for.
        drop(writer.close(false).await);
        put(&successor, 4).await.unwrap();
        assert_eq!(fixture.stored().await, fixture.rows(&[(1, 1), (4, 4)]));
    })
    .await;
}

#[tokio::test]
async fn storage_that_goes_on_failing_stops_the_job_here_too() {
    within(async {
        let fixture = Fixture::new().await;
        let writer = fixture.open().await;
        put(&writer, 1).await.unwrap();
        fixture.storage.inject(Fault::new(Request::Put, "/wal/", Effect::Refuse).for_ever());
        assert_eq!(put(&writer, 2).await.unwrap_err().kind(), ErrorKind::Reopen);
        assert_eq!(put(&writer, 3).await.unwrap_err().kind(), ErrorKind::Reopen);
        assert_eq!(writer.close(true).await.unwrap_err().kind(), ErrorKind::Reopen);
        fixture.storage.clear_faults();
        assert_eq!(fixture.stored().await, fixture.rows(&[(1, 1)]));
        until(|| writer.stats().waiting_puts == 0).await;
    })
    .await;
}
