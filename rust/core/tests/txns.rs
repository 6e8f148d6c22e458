//! Transaction ids: a write with a version happens once, whatever is repeated or comes late.
//!
//! Owns: where a transaction id is kept at every step from put to flushed SSTable, and SSTables
//! that are ingested.
//! Does not own: what an application counts as its versions.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use arrow_array::BooleanArray;
use lancemem_core::format::{ShardManifest, SsTable, TOMBSTONE};
use lancemem_core::shard::{
    IngestedSsTable, ShardWriter, SsTableSink, WriteBatch, WriteOptions, recorded_txns,
    truncate_wal, unlisted_rows,
};
use lancemem_core::types::{ErrorKind, Generation, ONCE, Txn, WalPosition, WriterConfig};
use lancemem_core::{Error, Result};
use lancemem_testkit::{Effect, Fault, Request};

use crate::fixture::{Fixture, gate, quick, tiny, within};

fn txn(version: i64) -> Txn {
    Txn::new("query", version).unwrap()
}

/// The SSTables of a call with a transaction id.
fn of_call(sstables: &[SsTable], version: i64) -> Vec<IngestedSsTable> {
    sstables.iter().map(|sstable| (sstable.clone(), txn(version))).collect()
}

/// The SSTables of a call without a transaction id: each SSTable has its own, of this name.
fn once(sstables: &[SsTable], names: &[&str]) -> Vec<IngestedSsTable> {
    let txn = |name| Txn::new(format!("{ONCE}{name}"), 0).unwrap();
    sstables.iter().zip(names).map(|(sstable, name)| (sstable.clone(), txn(name))).collect()
}

async fn ingest(fixture: &Fixture, sstables: &[IngestedSsTable]) -> Result<Vec<String>> {
    fixture.open().await.link(sstables).await
}

fn names_of(sstables: &[SsTable]) -> Vec<String> {
    sstables.iter().map(|sstable| sstable.path.clone()).collect()
}

async fn put(
    fixture: &Fixture,
    writer: &ShardWriter,
    rows: &[(i64, i64)],
    version: i64,
) -> Result<bool> {
    let rows = fixture.shape.rows(rows);
    let done = writer
        .write(WriteBatch::upserts(&rows), WriteOptions::default().txn(&txn(version)))
        .await?;
    Ok(!done.already_written)
}

async fn recorded(fixture: &Fixture) -> Option<i64> {
    recorded_txns(&fixture.store(), &fixture.manifests()).await.unwrap().get("query")
}

/// An SSTable of these rows that no manifest lists.
async fn stage(fixture: &Fixture, rows: &[(i64, i64)]) -> SsTable {
    let schema = fixture.shape.row_schema();
    let rows = schema.accept(&fixture.shape.rows(rows)).unwrap();
    let view = unlisted_rows(&schema, &WriterConfig::default(), vec![rows]);
    fixture.sink.write(&view).await.unwrap()
}

// B26
#[tokio::test]
async fn a_version_is_written_once_and_an_older_one_never() {
    within(async {
        let fixture = Fixture::new().await;
        let writer = fixture.open().await;
        assert!(put(&fixture, &writer, &[(1, 10)], 7).await.unwrap());
        assert!(!put(&fixture, &writer, &[(1, 11)], 7).await.unwrap());
        let error = put(&fixture, &writer, &[(1, 12)], 6).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Stale, "{error}");
        assert!(error.to_string().contains("'query'") && error.to_string().contains("version 7"));
        assert!(put(&fixture, &writer, &[(2, 20)], 8).await.unwrap());
        assert_eq!(fixture.stored().await, fixture.rows(&[(1, 10), (2, 20)]));
    })
    .await;
}

#[tokio::test]
async fn a_transaction_id_is_found_in_the_log_in_the_manifest_and_while_both_have_some() {
    within(async {
        let fixture = Fixture::new().await;
        assert_eq!(recorded(&fixture).await, None);
        let writer = fixture.open().await;
        put(&fixture, &writer, &[(1, 10)], 1).await.unwrap();
        assert_eq!(
            (recorded(&fixture).await, fixture.manifest().await.txns.get("query")),
            (Some(1), None)
        );
        writer.flush().await.unwrap();
        assert_eq!(fixture.manifest().await.txns.get("query"), Some(1));
        put(&fixture, &writer, &[(1, 20)], 2).await.unwrap();
        assert_eq!(recorded(&fixture).await, Some(2));
        assert_eq!(fixture.manifest().await.txns.get("query"), Some(1), "of flushed rows only");
        drop(writer);
        let again = fixture.open().await;
        assert_eq!(again.txn_version("query"), Some(2));
        assert!(!put(&fixture, &again, &[(1, 30)], 2).await.unwrap());
        again.close(true).await.unwrap();
        // A collector may now take the log: the manifest has it all.
        for path in fixture.storage.paths("/wal/").await {
            fixture.storage.drop_file(&path).await;
        }
        assert_eq!(recorded(&fixture).await, Some(2));
    })
    .await;
}

#[tokio::test]
async fn a_zombie_that_opens_after_a_newer_version_was_written_is_refused() {
    within(async {
        let fixture = Fixture::new().await;
        let retry = fixture.open().await;
        put(&fixture, &retry, &[(1, 10)], 7).await.unwrap();
        put(&fixture, &retry, &[(1, 20)], 8).await.unwrap();
        // Its epoch is the newest one, so fencing does not stop it.
        let zombie = fixture.open().await;
        let error = put(&fixture, &zombie, &[(1, 10)], 7).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Stale, "{error}");
        assert_eq!(fixture.stored().await, fixture.rows(&[(1, 20)]));
    })
    .await;
}

// B26
#[tokio::test]
async fn an_append_that_landed_without_an_answer_counts_for_the_retry() {
    within(async {
        let fixture = Fixture::new().await;
        let first = fixture.open().await;
        let hold = gate();
        fixture.storage.inject(Fault::new(Request::Put, "/wal/", Effect::LoseAnswer));
        fixture.storage.inject(Fault::new(
            Request::Get,
            "/wal/",
            Effect::HoldAndRefuse(hold.clone()),
        ));
        let first = Arc::new(first);
        let waiting = {
            let (writer, rows) = (first.clone(), fixture.shape.rows(&[(1, 10)]));
            tokio::spawn(async move {
                writer.write(WriteBatch::upserts(&rows), WriteOptions::default().txn(&txn(3))).await
            })
        };
        hold.wait_for_visitors(1).await;
        fixture.storage.clear_faults();
        let retry = fixture.open().await;
        assert!(!put(&fixture, &retry, &[(1, 99)], 3).await.unwrap(), "it is in the log");
        hold.open();
        assert!(waiting.await.unwrap().is_err());
        assert_eq!(fixture.stored().await, fixture.rows(&[(1, 10)]));
    })
    .await;
}

#[tokio::test]
async fn a_crash_between_sstable_and_manifest_leaves_the_transaction_id_in_the_log() {
    within(async {
        let fixture = Fixture::new().await;
        let writer = fixture.open().await;
        put(&fixture, &writer, &[(1, 10)], 4).await.unwrap();
        fixture.storage.inject(Fault::new(Request::Put, "/manifest/", Effect::Refuse).for_ever());
        assert!(writer.flush().await.is_err());
        drop(writer);
        fixture.storage.clear_faults();
        assert_eq!(
            (recorded(&fixture).await, fixture.manifest().await.txns.get("query")),
            (Some(4), None)
        );
        let again = fixture.open().await;
        assert!(!put(&fixture, &again, &[(1, 11)], 4).await.unwrap());
        again.close(true).await.unwrap();
        assert_eq!(fixture.manifest().await.txns.get("query"), Some(4));
    })
    .await;
}

#[tokio::test]
async fn a_truncation_forgets_the_transaction_ids_of_the_rows_that_it_drops() {
    within(async {
        let fixture = Fixture::new().await;
        let writer = fixture.open().await;
        put(&fixture, &writer, &[(1, 10)], 1).await.unwrap();
        put(&fixture, &writer, &[(2, 20)], 2).await.unwrap();
        writer.close(false).await.unwrap();
        fixture.storage.flip_bit(&fixture.wal_path(3), 200).await;
        let manifests = Arc::new(fixture.manifests());
        truncate_wal(&fixture.store(), &manifests, WalPosition(3)).await.unwrap();
        assert_eq!(recorded(&fixture).await, Some(1));
        let again = fixture.open().await;
        assert!(put(&fixture, &again, &[(2, 20)], 2).await.unwrap());
        assert_eq!(fixture.stored().await, fixture.rows(&[(1, 10), (2, 20)]));
    })
    .await;
}

// B26
#[tokio::test]
async fn transaction_ids_of_several_generations_reach_the_manifest_with_their_rows() {
    within(async {
        let fixture = Fixture::new().await;
        let writer = fixture.open_with(tiny(1)).await;
        for version in 1..=4 {
            put(&fixture, &writer, &[(version, 10)], version).await.unwrap();
        }
        writer.flush().await.unwrap();
        assert_eq!(fixture.manifest().await.txns.get("query"), Some(4));
        assert_eq!(fixture.manifest().await.current_generation, Generation(5));
    })
    .await;
}

#[tokio::test]
async fn names_that_write_once_expire_by_the_clock_of_the_store_and_queries_stay() {
    within(async {
        let fixture = Fixture::new().await;
        let writer = fixture.open().await;
        let now = fixture.store().read_clock().await.unwrap().stored;
        let named = |days: u64| {
            let written = now.checked_sub(Duration::from_hours(24 * days)).unwrap();
            format!(
                "{ONCE}{:016x}-00c0ffee",
                written.duration_since(UNIX_EPOCH).unwrap().as_nanos()
            )
        };
        let ahead = format!("{ONCE}7000000000000000-00c0ffee");
        for (row, name) in [named(90), named(13), named(0), "query".into()].iter().enumerate() {
            let rows = fixture.shape.rows(&[(i64::try_from(row).unwrap(), 10)]);
            let txn = Txn::new(name.as_str(), 1).unwrap();
            writer
                .write(WriteBatch::upserts(&rows), WriteOptions::default().txn(&txn))
                .await
                .unwrap();
        }
        writer.flush().await.unwrap();
        let names = async || -> Vec<String> {
            let manifest = fixture.manifest().await;
            manifest.txns.iter().map(|(name, _)| name.to_owned()).collect()
        };
        let all = [named(90), named(13), named(0), "query".into()];
        assert_eq!(names().await, all, "what a flush brings it keeps");
        let rows = fixture.shape.rows(&[(9, 10)]);
        let txn = Txn::new(ahead.as_str(), 1).unwrap();
        writer.write(WriteBatch::upserts(&rows), WriteOptions::default().txn(&txn)).await.unwrap();
        writer.flush().await.unwrap();
        let kept = [named(13), named(0), ahead.clone(), "query".into()];
        assert_eq!(names().await, kept, "a name of the far future removes no young one");
        assert_eq!(writer.txn_version(&named(90)), None, "the job forgets with the manifest");
        writer.close(true).await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn ingested_sstables_appear_together_above_what_the_log_held_and_once() {
    within(async {
        let fixture = Fixture::new().await;
        let before = fixture.open().await;
        fixture.put(&before, &[(1, 10), (2, 20)]).await.unwrap();
        before.close(false).await.unwrap();
        let sstables =
            [stage(&fixture, &[(2, 21), (3, 30)]).await, stage(&fixture, &[(3, 31)]).await];
        assert_eq!(
            fixture.stored().await,
            fixture.rows(&[(1, 10), (2, 20)]),
            "staged is not listed"
        );
        assert_eq!(ingest(&fixture, &of_call(&sstables, 5)).await.unwrap(), names_of(&sstables));
        let all = fixture.rows(&[(1, 10), (2, 21), (3, 31)]);
        assert_eq!(fixture.stored().await, all);
        let generations: Vec<u64> = fixture
            .manifest()
            .await
            .sstables
            .iter()
            .map(|sstable| sstable.generation.get())
            .collect();
        assert_eq!(generations, [1, 2, 3]);
        let again = [stage(&fixture, &[(1, 99)]).await];
        assert!(ingest(&fixture, &of_call(&again, 5)).await.unwrap().is_empty());
        let error = ingest(&fixture, &of_call(&again, 4)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Stale, "{error}");
        assert_eq!(fixture.stored().await, all);
        let after = fixture.open().await;
        fixture.put(&after, &[(3, 32)]).await.unwrap();
        after.close(true).await.unwrap();
        assert_eq!(fixture.stored().await, fixture.rows(&[(1, 10), (2, 21), (3, 32)]));
    })
    .await;
}

#[tokio::test]
async fn an_sstable_that_was_ingested_stays_where_it_is_also_when_it_was_compacted() {
    within(async {
        let fixture = Fixture::new().await;
        let sstables = [stage(&fixture, &[(1, 10)]).await, stage(&fixture, &[(2, 20)]).await];
        let (one, both) = (once(&sstables[..1], &["a"]), once(&sstables, &["a", "b"]));
        assert_eq!(ingest(&fixture, &one).await.unwrap(), names_of(&sstables[..1]));
        let of_call = of_call(&sstables[..1], 1);
        assert!(ingest(&fixture, &of_call).await.unwrap().is_empty(), "it is listed");
        let writer = fixture.open().await;
        fixture.put(&writer, &[(1, 11)]).await.unwrap();
        writer.close(true).await.unwrap();
        // A compaction takes what it has moved out of the list.
        let drain = |manifest: &mut ShardManifest| {
            manifest.sstables.retain(|sstable| sstable.path != sstables[0].path);
        };
        fixture.manifests().update_beside_owner(drain).await.unwrap();
        assert!(ingest(&fixture, &one).await.unwrap().is_empty());
        assert!(ingest(&fixture, &of_call).await.unwrap().is_empty());
        assert_eq!(ingest(&fixture, &both).await.unwrap(), names_of(&sstables[1..]));
        assert_eq!(fixture.stored().await, fixture.rows(&[(1, 11), (2, 20)]));
    })
    .await;
}

#[tokio::test]
async fn an_ingest_whose_manifest_cannot_be_written_lists_nothing_and_can_be_repeated() {
    within(async {
        let fixture = Fixture::new().await;
        let sstables = [stage(&fixture, &[(1, 10)]).await, stage(&fixture, &[(2, 20)]).await];
        let writer = fixture.open().await;
        fixture.storage.inject(Fault::new(Request::Put, "/manifest/", Effect::Refuse));
        assert!(writer.link(&of_call(&sstables, 1)).await.is_err());
        fixture.storage.clear_faults();
        assert!(fixture.manifest().await.sstables.is_empty());
        assert_eq!(recorded(&fixture).await, None);
        assert_eq!(ingest(&fixture, &of_call(&sstables, 1)).await.unwrap(), names_of(&sstables));
        assert_eq!(fixture.stored().await, fixture.rows(&[(1, 10), (2, 20)]));
    })
    .await;
}

#[tokio::test]
async fn an_ingest_by_a_fenced_writer_lists_nothing() {
    within(async {
        let fixture = Fixture::new().await;
        let sstables = [stage(&fixture, &[(1, 10)]).await];
        let zombie = fixture.open().await;
        let owner = fixture.open().await;
        let error = zombie.link(&of_call(&sstables, 1)).await.unwrap_err();
        assert!(matches!(error, Error::Fenced { .. }), "{error}");
        fixture.put(&owner, &[(2, 20)]).await.unwrap();
        assert_eq!(fixture.stored().await, fixture.rows(&[(2, 20)]));
    })
    .await;
}

#[tokio::test]
async fn puts_and_deletes_of_one_batch_take_effect_in_the_order_of_its_rows() {
    within(async {
        let fixture = Fixture::new().await;
        let writer = fixture.open_with(quick()).await;
        let rows = fixture.shape.rows(&[(1, 10), (2, 20), (1, 0), (3, 30), (2, 0), (2, 21)]);
        let deletes = BooleanArray::from(vec![false, false, true, false, true, false]);
        let done = writer
            .write(WriteBatch::changes(&rows, &deletes), WriteOptions::default().txn(&txn(1)))
            .await
            .unwrap();
        assert_eq!((done.rows, done.already_written), (6, false));
        assert_eq!(fixture.stored().await, fixture.rows(&[(2, 21), (3, 30)]));
        let entry = &fixture.data_entries().await[0].1;
        let batch = &entry.batches[0];
        let value = batch.schema().index_of(TOMBSTONE).unwrap() - 1;
        assert!(batch.column(value).is_null(2), "a tombstone is its key and nulls");
        let short = BooleanArray::from(vec![true]);
        let error = writer
            .write(WriteBatch::changes(&rows, &short), WriteOptions::default())
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    })
    .await;
}
