//! Damaged logs: an open names what is wrong and where, skips nothing and overwrites nothing.
//!
//! Owns (B19): holes, cuts, flipped bits, empty and misplaced files.
//! Does not own: every byte of an entry, which the unit tests of `format::wal_entry` cover.

use lancemem_core::format::{LogAddress, TRAILER_BYTES, paths, wal_entry};
use lancemem_core::shard::verify_wal;
use lancemem_core::types::{ErrorKind, Generation, ManifestVersion, ShardId, WriterEpoch};

use crate::fixture::{Fixture, quick, within};

/// Five entries with rows at positions 2 to 6.
async fn written() -> Fixture {
    let fixture = Fixture::new().await;
    let writer = fixture.open().await;
    for number in 1..=5 {
        fixture.put(&writer, &[(number, number * 10)]).await.unwrap();
    }
    writer.close(false).await.unwrap();
    fixture
}

async fn assert_refused(fixture: &Fixture, position: u64, kind: &str) {
    let error = fixture.try_open(quick()).await.unwrap_err();
    let text = error.to_string();
    assert_eq!(error.kind(), ErrorKind::Corruption, "{text}");
    assert!(text.contains(&format!("WAL entry {position} ")), "{text}");
    assert!(text.contains(&fixture.shard_id.to_string()), "{text}");
    assert!(text.contains(&format!("({kind})")), "{text}");
    assert_eq!(
        fixture.try_stored().await.unwrap_err().to_string(),
        text,
        "a reader reports the same"
    );
}

#[tokio::test]
async fn a_hole_in_the_log_is_named_and_heals_when_the_entry_comes_back() {
    within(async {
        for position in [1, 2, 4, 6] {
            let fixture = written().await;
            // The sentinel of a later claim stands behind the last entry.
            fixture.open().await.close(false).await.unwrap();
            let path = fixture.wal_path(position);
            let bytes = fixture.storage.bytes(&path).await;
            fixture.storage.drop_file(&path).await;
            assert_refused(&fixture, position, "hole").await;
            fixture.storage.overwrite(&path, bytes).await;
            let writer = fixture.open().await;
            assert_eq!(fixture.seen(&writer).len(), 5);
        }
    })
    .await;
}

#[tokio::test]
async fn a_hole_longer_than_the_read_ahead_is_noticed() {
    within(async {
        let fixture = Fixture::new().await;
        let writer = fixture.open().await;
        for number in 0..60 {
            fixture.put(&writer, &[(number, number)]).await.unwrap();
        }
        writer.close(false).await.unwrap();
        for position in 20..50 {
            fixture.storage.drop_file(&fixture.wal_path(position)).await;
        }
        assert_refused(&fixture, 20, "hole").await;
    })
    .await;
}

// B19
#[tokio::test]
async fn of_several_damaged_entries_the_first_is_named() {
    within(async {
        let fixture = written().await;
        fixture.storage.cut(&fixture.wal_path(4), 0).await;
        fixture.storage.flip_bit(&fixture.wal_path(5), 200).await;
        assert_refused(&fixture, 4, "zero length").await;
        fixture.storage.drop_file(&fixture.wal_path(3)).await;
        assert_refused(&fixture, 3, "hole").await;
    })
    .await;
}

#[tokio::test]
async fn a_cut_entry_is_named() {
    within(async {
        for (length, kind) in [(1, "cut short"), (100, "cut short"), (0, "zero length")] {
            let fixture = written().await;
            fixture.storage.cut(&fixture.wal_path(3), length).await;
            assert_refused(&fixture, 3, kind).await;
        }
    })
    .await;
}

#[tokio::test]
async fn an_entry_of_zeros_is_named() {
    within(async {
        let fixture = written().await;
        let length = fixture.storage.bytes(&fixture.wal_path(6)).await.len();
        fixture.storage.overwrite(&fixture.wal_path(6), vec![0; length].into()).await;
        assert_refused(&fixture, 6, "zero filled").await;
    })
    .await;
}

#[tokio::test]
async fn a_flipped_bit_is_named() {
    within(async {
        for offset in [0, 200, 400] {
            let fixture = written().await;
            fixture.storage.flip_bit(&fixture.wal_path(4), offset).await;
            assert_refused(&fixture, 4, "checksum").await;
        }
    })
    .await;
}

#[tokio::test]
async fn an_entry_of_an_older_epoch_or_generation_behind_a_newer_one_is_named() {
    within(async {
        let fixture = written().await;
        fixture.open().await.close(false).await.unwrap();
        let entry = &fixture.data_entries().await[0].1;
        let encode = |place, generation| {
            wal_entry::encode(&entry.batches, place, WriterEpoch(1), generation).unwrap()
        };
        let old = encode(fixture.place(8), Generation(1));
        fixture.storage.overwrite(&fixture.wal_path(8), old).await;
        assert_refused(&fixture, 8, "epoch goes back").await;

        let fixture = written().await;
        let new = encode(fixture.place(4), Generation(2));
        fixture.storage.overwrite(&fixture.wal_path(4), new).await;
        let error = fixture.try_open(quick()).await.unwrap_err().to_string();
        assert!(
            error.contains("WAL entry 5") && error.contains("(generation goes back)"),
            "{error}"
        );
    })
    .await;
}

#[tokio::test]
async fn a_fence_of_lance_that_came_behind_a_later_claim_is_passed_over_and_one_of_ours_is_damage()
{
    within(async {
        let fixture = written().await;
        let writer = fixture.open().await;
        fixture.put(&writer, &[(6, 60)]).await.unwrap();
        writer.close(false).await.unwrap();
        let ours = wal_entry::encode_sentinel(fixture.place(9), WriterEpoch(1)).unwrap();
        let of_lance = ours.slice(..ours.len() - TRAILER_BYTES);
        fixture.storage.overwrite(&fixture.wal_path(9), ours).await;
        assert_refused(&fixture, 9, "epoch goes back").await;
        fixture.storage.overwrite(&fixture.wal_path(9), of_lance).await;
        let report = verify_wal(&fixture.store(), &fixture.manifests()).await.unwrap();
        assert_eq!(report.first_damage(), None);
        assert_eq!(fixture.stored().await.len(), 6);
        let writer = fixture.open().await;
        fixture.put(&writer, &[(7, 70)]).await.unwrap();
        assert_eq!(fixture.seen(&writer).len(), 7);
        // What comes behind it is compared with what came before.
        let old = wal_entry::encode_sentinel(fixture.place(12), WriterEpoch(2)).unwrap();
        writer.close(false).await.unwrap();
        fixture.storage.overwrite(&fixture.wal_path(12), old).await;
        assert_refused(&fixture, 12, "epoch goes back").await;
    })
    .await;
}

// B19
#[tokio::test]
async fn an_entry_in_the_place_of_another_is_named_whichever_shard_it_is_of() {
    within(async {
        let fixture = written().await;
        let path = fixture.wal_path(4);
        let own = fixture.storage.bytes(&path).await;
        let of_another_shard = LogAddress { shard_id: ShardId::from_u128(1), ..fixture.place(4) };
        let rows = &fixture.data_entries().await[2].1.batches;
        for foreign in [
            fixture.storage.bytes(&fixture.wal_path(3)).await,
            wal_entry::encode(rows, of_another_shard, WriterEpoch(1), Generation(1)).unwrap(),
        ] {
            fixture.storage.overwrite(&path, foreign).await;
            assert_refused(&fixture, 4, "misplaced").await;
        }
        fixture.storage.overwrite(&path, own).await;
        assert_eq!(fixture.seen(&fixture.open().await).len(), 5);
    })
    .await;
}

#[tokio::test]
async fn damage_in_entries_that_a_flush_has_covered_does_not_matter() {
    within(async {
        let fixture = written().await;
        fixture.open().await.close(true).await.unwrap();
        fixture.storage.cut(&fixture.wal_path(3), 0).await;
        let writer = fixture.open().await;
        assert_eq!(fixture.seen(&writer).len(), 5);
    })
    .await;
}

#[tokio::test]
async fn a_damaged_or_misplaced_manifest_is_named() {
    within(async {
        let fixture = written().await;
        let path = |version| {
            format!("table/{}", paths::manifest(fixture.shard_id, ManifestVersion(version)))
        };
        let first = fixture.storage.bytes(&path(1)).await;
        fixture.storage.overwrite(&path(2), first).await;
        let error = fixture.try_open(quick()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption);
        assert!(error.to_string().contains("misplaced"), "{error}");
        fixture.storage.cut(&path(2), 3).await;
        let error = fixture.try_open(quick()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
    })
    .await;
}

#[tokio::test]
async fn a_job_that_remembers_its_manifest_writes_the_next_version_behind_a_damaged_one() {
    within(async {
        let fixture = Fixture::new().await;
        let writer = fixture.open().await;
        fixture.put(&writer, &[(1, 10)]).await.unwrap();
        let newest = fixture.manifest().await.version;
        let path = format!("table/{}", paths::manifest(fixture.shard_id, newest));
        fixture.storage.cut(&path, 30).await;
        assert_eq!(fixture.try_stored().await.unwrap_err().kind(), ErrorKind::Corruption);
        writer.flush().await.unwrap();
        assert_eq!(fixture.stored().await, fixture.rows(&[(1, 10)]));
    })
    .await;
}
