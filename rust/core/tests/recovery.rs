//! What an open reads, when, and what it leaves alone: before the claim, and behind it.
//!
//! Owns: the incumbent that goes on during an open, the ends of a replay, reads in flight.
//! Does not own: kinds of damage (`damage`) or claims that race (`takeover`).

use std::sync::Arc;

use lancemem_core::Result;
use lancemem_core::format::{ShardManifest, Sharding};
use lancemem_core::shard::{Look, Replay, ShardIdentity, ShardWriter};
use lancemem_core::store::ManifestStore;
use lancemem_core::types::{ErrorKind, Generation, WalPosition};
use lancemem_core::wal::WalTail;
use lancemem_testkit::{Effect, Fault, Request};

use crate::fixture::{Fixture, gate, quick, tiny, until, within};

type Opening = tokio::task::JoinHandle<Result<ShardWriter>>;

fn open_beside(fixture: &Arc<Fixture>) -> Opening {
    let fixture = fixture.clone();
    tokio::spawn(async move { fixture.try_open(quick()).await })
}

/// A live writer with the rows 1 to 5 at positions 2 to 6.
async fn incumbent(fixture: &Fixture) -> ShardWriter {
    let writer = fixture.open().await;
    for number in 1..=5 {
        fixture.put(&writer, &[(number, number * 10)]).await.unwrap();
    }
    writer
}

// B21
#[tokio::test]
async fn an_open_that_finds_damage_does_not_fence_the_incumbent() {
    within(async {
        let fixture = Fixture::new().await;
        let writer = incumbent(&fixture).await;
        let before = (fixture.manifest().await, fixture.storage.tried_puts("").len());
        fixture.storage.flip_bit(&fixture.wal_path(4), 200).await;
        let error = fixture.try_open(quick()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
        assert_eq!(before, (fixture.manifest().await, fixture.storage.tried_puts("").len()));
        fixture.put(&writer, &[(6, 60)]).await.unwrap();
        fixture.delete(&writer, &[1]).await.unwrap();
        // Its memory has what the log lost: a flush covers the damage, and nothing is lost.
        writer.close(true).await.unwrap();
        let again = fixture.open().await;
        let rows = [(2, 20), (3, 30), (4, 40), (5, 50), (6, 60)];
        assert_eq!(fixture.seen(&again), fixture.rows(&rows));
    })
    .await;
}

// B21
#[tokio::test]
async fn an_open_for_a_bucket_that_the_sharding_lacks_does_not_fence_the_incumbent() {
    within(async {
        let fixture = Fixture::new().await;
        let writer = fixture.open().await;
        let column = fixture.shape.row_schema().key().names()[0].clone();
        for (column, own) in [(column.clone(), 4), (column, -1), ("other".to_owned(), 0)] {
            let routing = (Sharding::Bucket { column, buckets: 4 }, own);
            let identity = ShardIdentity::new(fixture.shard_id).with_routing(routing);
            let error = fixture.try_open_as(identity, quick()).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        }
        fixture.put(&writer, &[(1, 10)]).await.unwrap();
        writer.flush().await.unwrap();
        assert_eq!(fixture.stored().await, fixture.rows(&[(1, 10)]));
    })
    .await;
}

#[tokio::test]
async fn an_incumbent_that_flushes_and_appends_during_an_open_loses_and_doubles_nothing() {
    within(async {
        let fixture = Arc::new(Fixture::new().await);
        let old = incumbent(&fixture).await;
        // The claim is the first thing that an open writes: the log is read by then.
        let hold = gate();
        fixture.storage.inject(Fault::new(Request::Put, ".binpb", Effect::Hold(hold.clone())));
        let opening = open_beside(&fixture);
        hold.wait_for_visitors(1).await;
        fixture.put(&old, &[(1, 11), (6, 60)]).await.unwrap();
        old.flush().await.unwrap();
        fixture.put(&old, &[(2, 21)]).await.unwrap();
        fixture.delete(&old, &[3]).await.unwrap();
        hold.open();
        let new = opening.await.unwrap().unwrap();
        let rows = fixture.rows(&[(1, 11), (2, 21), (4, 40), (5, 50), (6, 60)]);
        assert_eq!(fixture.seen(&new), rows);
        assert_eq!(new.stats().active_generation, Generation(2));
        assert_eq!((new.stats().active_rows, new.stats().frozen_memtables), (2, 0));
        assert_eq!(fixture.put(&old, &[(9, 90)]).await.unwrap_err().kind(), ErrorKind::Fenced);
        new.close(true).await.unwrap();
        assert_eq!(fixture.stored().await, rows);
        let physical: Vec<_> =
            fixture.manifest().await.sstables.iter().map(|sstable| sstable.physical_rows).collect();
        assert_eq!(physical, [Some(7), Some(2)]);
    })
    .await;
}

#[tokio::test]
async fn an_incumbent_that_appends_until_the_sentinel_stands_loses_and_doubles_nothing() {
    for held in [".binpb", "hint", "/wal/"] {
        within(async {
            let fixture = Arc::new(Fixture::new().await);
            let old = incumbent(&fixture).await;
            let hold = gate();
            fixture.storage.inject(Fault::new(Request::Put, held, Effect::Hold(hold.clone())));
            let opening = open_beside(&fixture);
            hold.wait_for_visitors(1).await;
            for number in 5..=40 {
                fixture.put(&old, &[(number, number * 100)]).await.unwrap();
            }
            hold.open();
            let new = opening.await.unwrap().unwrap();
            let earlier = (1..=4).map(|number| (number, number * 10));
            let rows: Vec<_> =
                earlier.chain((5..=40).map(|number| (number, number * 100))).collect();
            assert_eq!(fixture.seen(&new), fixture.rows(&rows), "held at {held}");
            assert_eq!(new.stats().active_rows, 41, "each put once");
        })
        .await;
    }
}

#[tokio::test]
async fn damage_that_the_incumbent_covers_while_an_open_reads_does_not_stop_the_open() {
    within(async {
        let fixture = Arc::new(Fixture::new().await);
        let old = incumbent(&fixture).await;
        fixture.storage.cut(&fixture.wal_path(3), 100).await;
        let hold = gate();
        let path = fixture.wal_path(3);
        fixture.storage.inject(Fault::new(Request::Get, &path, Effect::Hold(hold.clone())));
        let opening = open_beside(&fixture);
        hold.wait_for_visitors(1).await;
        old.flush().await.unwrap();
        hold.open();
        let new = opening.await.unwrap().unwrap();
        assert_eq!(fixture.seen(&new).len(), 5);
    })
    .await;
}

// B7
#[tokio::test]
async fn a_fenced_writer_acknowledges_nothing_although_it_cannot_read_the_manifest() {
    within(async {
        let fixture = Fixture::new().await;
        let old = incumbent(&fixture).await;
        let new = fixture.open().await;
        // The fence stands in the log: the old writer needs no manifest to meet it.
        fixture.storage.inject(Fault::new(Request::Get, "/manifest/", Effect::Refuse).for_ever());
        assert!(fixture.put(&old, &[(6, 60)]).await.is_err());
        assert!(fixture.put(&old, &[(7, 70)]).await.is_err());
        fixture.storage.clear_faults();
        fixture.put(&new, &[(8, 80)]).await.unwrap();
        let rows = [(1, 10), (2, 20), (3, 30), (4, 40), (5, 50), (8, 80)];
        assert_eq!(fixture.stored().await, fixture.rows(&rows));
    })
    .await;
}

// B3
#[tokio::test]
async fn a_flush_covers_no_entry_of_a_generation_that_is_still_in_memory() {
    within(async {
        let fixture = Fixture::new().await;
        let hold = gate();
        fixture.sink.hold(hold.clone());
        let writer = fixture.open_with(tiny(2)).await;
        fixture.put(&writer, &[(1, 10), (2, 20)]).await.unwrap();
        fixture.put(&writer, &[(3, 30)]).await.unwrap();
        fixture.put(&writer, &[(4, 40)]).await.unwrap();
        // The second flush begins when rows of the third generation are in the log.
        fixture.put(&writer, &[(5, 50)]).await.unwrap();
        hold.wait_for_visitors(1).await;
        hold.open();
        until(|| writer.stats().flushes == 2).await;
        drop(writer);
        let manifest = fixture.manifest().await;
        assert_eq!(manifest.replay_after_wal_entry_position, WalPosition(4));
        let again = fixture.open().await;
        let all = [(1, 10), (2, 20), (3, 30), (4, 40), (5, 50)];
        assert_eq!(fixture.seen(&again), fixture.rows(&all));
        assert_eq!(again.stats().active_rows, 1);
    })
    .await;
}

// B4
#[tokio::test]
async fn a_replay_up_to_a_sentinel_reads_no_entry_behind_it() {
    within(async {
        let fixture = Fixture::new().await;
        incumbent(&fixture).await.close(false).await.unwrap();
        fixture.storage.cut(&fixture.wal_path(5), 0).await;
        fixture.storage.forget_requests();
        let mut replay = Replay::new(fixture.shard_id, fixture.shape.row_schema());
        let mut tail = WalTail::new(fixture.store(), fixture.shard_id, WalPosition(0));
        replay.read_to(&mut tail, WalPosition(5), Generation(1)).await.unwrap();
        assert_eq!(replay.memtables()[0].memtable.rows(), 3);
        assert_eq!(replay.memtables()[0].last_position, WalPosition(4));
        assert!(fixture.storage.tried_gets(&fixture.wal_path(5)).is_empty());
        fixture.storage.drop_file(&fixture.wal_path(5)).await;
        let error = replay.read_to(&mut tail, WalPosition(7), Generation(1)).await.unwrap_err();
        assert!(error.to_string().contains("WAL entry 5 "), "{error}");
    })
    .await;
}

// B4
#[tokio::test]
async fn a_replay_that_meets_a_later_claim_ends_fenced_and_hides_none_of_its_rows() {
    within(async {
        let fixture = Arc::new(Fixture::new().await);
        let old = incumbent(&fixture).await;
        let claiming = gate();
        fixture.storage.inject(Fault::new(Request::Put, "hint", Effect::Hold(claiming.clone())));
        let opening = open_beside(&fixture);
        claiming.wait_for_visitors(1).await;
        fixture.put(&old, &[(6, 60)]).await.unwrap();
        let reading = gate();
        let path = fixture.wal_path(7);
        fixture.storage.inject(Fault::new(Request::Get, &path, Effect::Hold(reading.clone())));
        claiming.open();
        reading.wait_for_visitors(1).await;
        let newest = fixture.open().await;
        fixture.put(&newest, &[(7, 70)]).await.unwrap();
        reading.open();
        assert_eq!(opening.await.unwrap().unwrap_err().kind(), ErrorKind::Fenced);
        fixture.put(&newest, &[(8, 80)]).await.unwrap();
        assert_eq!(fixture.stored().await.len(), 8);
    })
    .await;
}

// B11
#[tokio::test]
async fn what_was_replayed_is_neither_appended_nor_indexed_again() {
    within(async {
        let fixture = Fixture::new().await;
        incumbent(&fixture).await.close(false).await.unwrap();
        for opened in 2..=4 {
            let again = fixture.open().await;
            assert_eq!(again.stats().active_rows, 5);
            assert_eq!(fixture.seen(&again).len(), 5);
            again.close(false).await.unwrap();
            // Five entries with rows, and a sentinel for each open.
            assert_eq!(fixture.storage.paths("/wal/").await.len(), 5 + opened);
        }
    })
    .await;
}

// B12
#[tokio::test]
async fn a_replay_starts_right_behind_the_covered_entry() {
    within(async {
        let fixture = Fixture::new().await;
        let writer = incumbent(&fixture).await;
        writer.flush().await.unwrap();
        fixture.put(&writer, &[(6, 60)]).await.unwrap();
        writer.close(false).await.unwrap();
        fixture.storage.forget_requests();
        let again = fixture.open().await;
        assert_eq!((again.stats().active_rows, again.stats().frozen_memtables), (1, 0));
        assert_eq!(fixture.seen(&again).len(), 6);
        for covered in 1..=6 {
            assert!(fixture.storage.tried_gets(&fixture.wal_path(covered)).is_empty());
        }
        assert_eq!(fixture.storage.tried_gets(&fixture.wal_path(7)).len(), 1);
    })
    .await;
}

#[tokio::test]
async fn a_poll_that_finds_nothing_new_costs_one_request() {
    within(async {
        let fixture = Fixture::new().await;
        let writer = incumbent(&fixture).await;
        let mut replay = Replay::new(fixture.shard_id, fixture.shape.row_schema());
        let mut tail = WalTail::new(fixture.store(), fixture.shard_id, WalPosition(0));
        replay.read_new(&mut tail, Generation(1)).await.unwrap();
        fixture.storage.forget_requests();
        for _ in 0..3 {
            replay.read_new(&mut tail, Generation(1)).await.unwrap();
        }
        assert_eq!((fixture.storage.tried_gets("").len(), fixture.storage.listings()), (3, 0));
        fixture.put(&writer, &[(6, 60)]).await.unwrap();
        replay.read_new(&mut tail, Generation(1)).await.unwrap();
        assert_eq!(replay.memtables()[0].memtable.rows(), 6);
    })
    .await;
}

async fn caught_up(
    replay: &mut Replay,
    tail: &mut WalTail,
    manifests: &ManifestStore,
) -> Arc<ShardManifest> {
    let look = Look::now(tail, manifests).await.unwrap().unwrap();
    replay.catch_up(tail, manifests, look).await.unwrap()
}

#[tokio::test]
async fn an_entry_that_is_gone_is_the_end_of_the_log_only_where_no_flush_has_covered_it() {
    within(async {
        let fixture = Arc::new(Fixture::new().await);
        let writer = incumbent(&fixture).await;
        let manifests = fixture.manifests();
        let mut replay = Replay::new(fixture.shard_id, fixture.shape.row_schema());
        let mut tail = WalTail::new(fixture.store(), fixture.shard_id, WalPosition(0));
        caught_up(&mut replay, &mut tail, &manifests).await;
        // The reader has the newest manifest, and is slow to read the next entry.
        let slow = gate();
        let next = fixture.wal_path(tail.next().get());
        fixture.storage.inject(Fault::new(Request::Get, &next, Effect::Hold(slow.clone())));
        let reading = tokio::spawn(async move {
            let manifest = caught_up(&mut replay, &mut tail, &manifests).await;
            (manifest, replay)
        });
        slow.wait_for_visitors(1).await;
        fixture.put(&writer, &[(6, 60)]).await.unwrap();
        writer.flush().await.unwrap();
        fixture.put(&writer, &[(7, 70)]).await.unwrap();
        fixture.storage.drop_file(&next).await;
        slow.open();
        let (manifest, replay) = reading.await.unwrap();
        assert_eq!(manifest.sstables.len(), 1);
        assert_eq!(replay.memtables()[0].memtable.rows(), 1, "the row behind the flush");
    })
    .await;
}

// A program that is not ours may collect the highest entry too.
#[tokio::test]
async fn the_end_of_a_listing_is_that_of_the_log_only_where_no_flush_has_covered_more() {
    within(async {
        let fixture = Arc::new(Fixture::new().await);
        let writer = incumbent(&fixture).await;
        let slow = gate();
        fixture.storage.forget_requests();
        fixture.storage.inject(Fault::new(Request::List, "/wal", Effect::Hold(slow.clone())));
        let reading = tokio::spawn({
            let fixture = fixture.clone();
            async move {
                let mut replay = Replay::new(fixture.shard_id, fixture.shape.row_schema());
                let mut tail = WalTail::new(fixture.store(), fixture.shard_id, WalPosition(0));
                let manifest = caught_up(&mut replay, &mut tail, &fixture.manifests()).await;
                (manifest, replay)
            }
        });
        slow.wait_for_visitors(1).await;
        // The reader has the older manifest when its listing shows what is left.
        until(|| fixture.storage.tried_gets("manifest").len() > 1).await;
        fixture.put(&writer, &[(6, 60)]).await.unwrap();
        writer.flush().await.unwrap();
        for collected in 4..=7 {
            fixture.storage.drop_file(&fixture.wal_path(collected)).await;
        }
        slow.open();
        let (manifest, replay) = reading.await.unwrap();
        assert_eq!((manifest.sstables.len(), replay.memtables().len()), (1, 0));
    })
    .await;
}

#[tokio::test]
async fn a_log_that_was_listed_is_read_to_the_end_of_the_listing_with_one_request_an_entry() {
    within(async {
        let fixture = Fixture::new().await;
        let writer = incumbent(&fixture).await;
        let last = WalTail::new(fixture.store(), fixture.shard_id, WalPosition(0))
            .last_entry()
            .await
            .unwrap();
        assert_eq!(last, WalPosition(6));
        fixture.put(&writer, &[(6, 60)]).await.unwrap();
        fixture.storage.forget_requests();
        let mut replay = Replay::new(fixture.shard_id, fixture.shape.row_schema());
        let mut tail = WalTail::new(fixture.store(), fixture.shard_id, WalPosition(0));
        replay.read_listed(&mut tail, last, Generation(1)).await.unwrap();
        assert_eq!(replay.memtables()[0].memtable.rows(), 5);
        assert_eq!((fixture.storage.tried_gets("").len(), fixture.storage.listings()), (6, 0));
        replay.read_new(&mut tail, Generation(1)).await.unwrap();
        assert_eq!(replay.memtables()[0].memtable.rows(), 6);
        assert_eq!(fixture.storage.listings(), 0);
    })
    .await;
}

#[tokio::test]
async fn a_log_that_was_listed_has_no_hole() {
    within(async {
        let fixture = Fixture::new().await;
        incumbent(&fixture).await.close(false).await.unwrap();
        let last = WalTail::new(fixture.store(), fixture.shard_id, WalPosition(0))
            .last_entry()
            .await
            .unwrap();
        fixture.storage.drop_file(&fixture.wal_path(4)).await;
        let mut replay = Replay::new(fixture.shard_id, fixture.shape.row_schema());
        let mut tail = WalTail::new(fixture.store(), fixture.shard_id, WalPosition(0));
        let error = replay.read_listed(&mut tail, last, Generation(1)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption);
        assert!(error.to_string().contains("WAL entry 4 "), "{error}");
    })
    .await;
}

#[tokio::test]
async fn sixteen_reads_run_ahead_and_their_answers_count_in_the_order_of_the_log() {
    within(async {
        let fixture = Arc::new(Fixture::new().await);
        let writer = fixture.open().await;
        for value in 0..50 {
            fixture.put(&writer, &[(1, value)]).await.unwrap();
        }
        fixture.storage.forget_requests();
        let hold = gate();
        let path = fixture.wal_path(1);
        fixture.storage.inject(Fault::new(Request::Get, &path, Effect::Hold(hold.clone())));
        let reading = {
            let fixture = fixture.clone();
            tokio::spawn(async move { fixture.stored().await })
        };
        hold.wait_for_visitors(1).await;
        until(|| fixture.storage.tried_gets("/wal/").len() == 16).await;
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert_eq!(fixture.storage.tried_gets("/wal/").len(), 16);
        hold.open();
        assert_eq!(reading.await.unwrap(), fixture.rows(&[(1, 49)]));
    })
    .await;
}
