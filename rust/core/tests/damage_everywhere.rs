//! Every kind of damage at many positions of every kind of file that a shard has.
//!
//! Owns: six kinds by two hundred positions, through the paths that open, read and check.
//! Does not own: the name of each kind (`damage`), or bytes that no writer wrote (`fuzz`).

use lancemem_core::format::{TRAILER_BYTES, paths};
use lancemem_core::shard::verify_wal;
use lancemem_core::types::ErrorKind;
use lancemem_testkit::Rows;
use lancemem_testkit::damage::{Damage, POSITIONS, damages, few_positions, positions};

use crate::fixture::{Fixture, quick, within};

/// Five entries with rows, some with several batches, and a sentinel behind them.
async fn written() -> (Fixture, Rows) {
    let fixture = Fixture::new().await;
    let writer = fixture.open().await;
    for number in 1..=5 {
        fixture.put(&writer, &[(number, number * 10), (number + 100, -number)]).await.unwrap();
    }
    writer.close(false).await.unwrap();
    let rows = fixture.stored().await;
    (fixture, rows)
}

#[tokio::test]
async fn damage_anywhere_in_a_log_entry_is_named_and_shows_no_wrong_row() {
    within(async {
        let (fixture, rows) = written().await;
        let (mut count, mut unnoticed) = (0, Vec::new());
        for position in [2, 4, 6] {
            let path = fixture.wal_path(position);
            let bytes = fixture.storage.bytes(&path).await;
            for (at, kind, damaged) in damages(&bytes, positions(bytes.len())) {
                // An entry without its whole trailer is one that lance could write.
                if kind == Damage::Cut && at == bytes.len() - TRAILER_BYTES {
                    continue;
                }
                count += 1;
                fixture.storage.overwrite(&path, damaged).await;
                match fixture.try_stored().await {
                    Ok(seen) if seen == rows => unnoticed.push((position, at, kind)),
                    Ok(seen) => panic!("{kind:?} at {at} of entry {position}: {seen:?}"),
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
                        let name = format!("WAL entry {position} of shard {}", fixture.shard_id);
                        assert!(error.to_string().contains(&name), "{error}");
                    }
                }
                let report = verify_wal(&fixture.store(), &fixture.manifests()).await.unwrap();
                let first = report.first_damage().map(|finding| finding.position.get());
                assert_eq!(first, Some(position), "{kind:?} at {at}");
            }
            fixture.storage.overwrite(&path, bytes).await;
        }
        assert!(count > 3 * 6 * 150, "{count}");
        assert!(unnoticed.is_empty(), "{unnoticed:?}");
        assert_eq!(fixture.stored().await, rows, "healed");
    })
    .await;
}

#[tokio::test]
async fn an_open_refuses_every_damaged_entry_and_leaves_the_shard_to_its_owner() {
    within(async {
        let (fixture, _) = written().await;
        let path = fixture.wal_path(3);
        let bytes = fixture.storage.bytes(&path).await;
        let before = fixture.manifest().await;
        for (at, kind, damaged) in damages(&bytes, few_positions(bytes.len() - TRAILER_BYTES)) {
            fixture.storage.overwrite(&path, damaged).await;
            let error = fixture.try_open(quick()).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corruption, "{kind:?} at {at}: {error}");
        }
        assert_eq!(fixture.manifest().await, before);
        fixture.storage.overwrite(&path, bytes).await;
        assert_eq!(fixture.seen(&fixture.open().await).len(), 10);
    })
    .await;
}

#[tokio::test]
async fn damage_anywhere_in_a_shard_manifest_is_named_by_readers_and_by_the_next_owner() {
    within(async {
        let (fixture, _) = written().await;
        let writer = fixture.open().await;
        for number in 6..=16 {
            fixture.put(&writer, &[(number, 1)]).await.unwrap();
            writer.flush().await.unwrap();
        }
        writer.close(false).await.unwrap();
        let rows = fixture.stored().await;
        let newest = fixture.manifest().await;
        let path = format!("table/{}", paths::manifest(fixture.shard_id, newest.version));
        let bytes = fixture.storage.bytes(&path).await;
        let mut count = 0;
        for (at, kind, damaged) in damages(&bytes, 0..bytes.len()) {
            count += 1;
            fixture.storage.overwrite(&path, damaged).await;
            for error in [
                fixture.try_stored().await.unwrap_err(),
                fixture.try_open(quick()).await.unwrap_err(),
            ] {
                assert_eq!(error.kind(), ErrorKind::Corruption, "{kind:?} at {at}: {error}");
                assert!(error.to_string().contains("binpb"), "{error}");
            }
        }
        assert!(count > 6 * POSITIONS, "{count} in {} bytes", bytes.len());
        fixture.storage.overwrite(&path, bytes).await;
        assert_eq!(fixture.manifest().await, newest);
        assert_eq!(fixture.stored().await, rows, "healed");
    })
    .await;
}

#[tokio::test]
async fn damage_anywhere_in_a_version_hint_costs_a_listing_and_nothing_else() {
    within(async {
        let (fixture, rows) = written().await;
        let path = format!("table/{}", paths::version_hint(fixture.shard_id));
        let bytes = fixture.storage.bytes(&path).await;
        for (at, kind, damaged) in damages(&bytes, 0..bytes.len()) {
            fixture.storage.overwrite(&path, damaged).await;
            assert_eq!(fixture.stored().await, rows, "{kind:?} at {at}");
        }
    })
    .await;
}
