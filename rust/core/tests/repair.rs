//! A damaged log from refusal to repair: what a check reports, what a truncation drops, what is
//! left.
//!
//! Owns: every kind of damage through open, check, truncation and open, and truncations that stop
//! half-way.
//! Does not own: which kinds there are (`damage`).

use std::sync::Arc;

use bytes::Bytes;
use lancemem_core::Result;
use lancemem_core::format::{LogAddress, TRAILER_BYTES, WalEntry, paths, wal_entry};
use lancemem_core::shard::{WalFinding, WalReport, truncate_wal, verify_wal};
use lancemem_core::types::{ErrorKind, Generation, WalPosition, WriterEpoch};
use lancemem_testkit::{Effect, Fault, Request};

use crate::fixture::{Fixture, gate, quick, within};

async fn check(fixture: &Fixture) -> WalReport {
    verify_wal(&fixture.store(), &fixture.manifests()).await.unwrap()
}

async fn truncate(fixture: &Fixture, from: u64) -> Result<WalReport> {
    truncate_wal(&fixture.store(), &Arc::new(fixture.manifests()), WalPosition(from)).await
}

/// Eight entries of one row each at the positions 2 to 9; the row's number is its position.
async fn written() -> Fixture {
    let fixture = Fixture::new().await;
    let writer = fixture.open().await;
    for number in 2..=9 {
        fixture.put(&writer, &[(number, number * 10)]).await.unwrap();
    }
    writer.close(false).await.unwrap();
    fixture
}

fn kinds(report: &WalReport) -> Vec<(u64, &'static str)> {
    let kind = |finding: &WalFinding| finding.damage.as_ref().map_or("intact", |it| it.kind);
    report.findings.iter().map(|finding| (finding.position.get(), kind(finding))).collect()
}

async fn entry(fixture: &Fixture, position: u64) -> WalEntry {
    let bytes = fixture.storage.bytes(&fixture.wal_path(position)).await;
    wal_entry::decode_at(&bytes, fixture.place(position)).unwrap()
}

/// An entry of two batches as lance writes it, without a checksum, cut between the two.
fn cut_on_a_boundary(whole: &WalEntry) -> Bytes {
    let encode = |batches: &[_]| {
        let place = LogAddress::default();
        let bytes = wal_entry::encode(batches, place, WriterEpoch(1), Generation(1)).unwrap();
        bytes.slice(..bytes.len() - TRAILER_BYTES)
    };
    let batch = whole.batches[0].clone();
    let first = encode(std::slice::from_ref(&batch));
    encode(&[batch.clone(), batch]).slice(..first.len() - 8)
}

/// Each kind of damage, the rows of the damaged entry that can still be read, and its size.
async fn damage(fixture: &Fixture, kind: &str, position: u64) {
    let path = fixture.wal_path(position);
    let bytes = fixture.storage.bytes(&path).await;
    match kind {
        "hole" => fixture.storage.drop_file(&path).await,
        "cut short" => fixture.storage.cut(&path, 100).await,
        "zero length" => fixture.storage.cut(&path, 0).await,
        "zero filled" => fixture.storage.overwrite(&path, vec![0; bytes.len()].into()).await,
        "misplaced" => {
            let other = fixture.storage.bytes(&fixture.wal_path(position + 1)).await;
            fixture.storage.overwrite(&path, other).await;
        }
        "checksum" => fixture.storage.flip_bit(&path, bytes.len() - 44 - TRAILER_BYTES).await,
        other => panic!("no such damage: {other}"),
    }
}

// B19
#[tokio::test]
async fn every_kind_of_damage_is_refused_reported_truncated_and_gone() {
    for kind in ["hole", "cut short", "zero length", "zero filled", "checksum", "misplaced"] {
        within(async {
            let fixture = written().await;
            damage(&fixture, kind, 5).await;
            let originals: Vec<_> = (5..=9).map(|position| fixture.wal_path(position)).collect();
            let refused = fixture.try_open(quick()).await.unwrap_err().to_string();
            assert!(refused.contains("WAL entry 5 ") && refused.contains(kind), "{refused}");

            fixture.storage.forget_requests();
            let report = check(&fixture).await;
            let expected = [(5, kind), (6, "intact"), (7, "intact"), (8, "intact"), (9, "intact")];
            assert_eq!(kinds(&report), expected);
            assert_eq!(report.last_wal_position, WalPosition(9));
            assert!(fixture.storage.tried_puts("").is_empty(), "a check writes nothing");
            for finding in &report.findings[1..] {
                assert_eq!((finding.rows, finding.generation), (Some(1), Some(Generation(1))));
                assert_eq!(finding.writer_epoch, Some(WriterEpoch(1)));
            }

            let mut lost = Vec::new();
            for path in &originals {
                let there = fixture.storage.paths(path).await;
                lost.push(if there.is_empty() {
                    None
                } else {
                    Some(fixture.storage.bytes(path).await)
                });
            }
            let dropped = truncate(&fixture, 5).await.unwrap();
            assert_eq!(
                (kinds(&dropped), dropped.writer_epoch),
                (expected.to_vec(), WriterEpoch(2))
            );
            for (finding, original) in dropped.findings.iter().zip(lost) {
                let Some(original) = original else {
                    assert_eq!((finding.bytes, &finding.copy), (0, &None));
                    continue;
                };
                let copy = finding.copy.as_ref().unwrap();
                let expected =
                    paths::dropped_entry(fixture.shard_id, WriterEpoch(2), finding.position);
                assert_eq!((copy, finding.bytes), (&expected, original.len() as u64));
                assert_eq!(fixture.storage.bytes(&format!("table/{copy}")).await, original);
            }

            assert_eq!(check(&fixture).await.findings, []);
            let rows = fixture.rows(&[(2, 20), (3, 30), (4, 40)]);
            assert_eq!(fixture.stored().await, rows);
            let writer = fixture.open().await;
            assert_eq!(fixture.seen(&writer), rows);
            fixture.put(&writer, &[(5, 55)]).await.unwrap();
            assert_eq!(fixture.stored().await.len(), 4);
        })
        .await;
    }
}

// B19
#[tokio::test]
async fn an_entry_of_lance_that_was_cut_on_a_message_boundary_is_refused_reported_and_truncated() {
    within(async {
        let fixture = written().await;
        let whole = entry(&fixture, 9).await;
        fixture.storage.overwrite(&fixture.wal_path(9), cut_on_a_boundary(&whole)).await;
        let refused = fixture.try_open(quick()).await.unwrap_err().to_string();
        assert!(refused.contains("WAL entry 9 ") && refused.contains("(cut short)"), "{refused}");
        let report = check(&fixture).await;
        assert_eq!(kinds(&report), [(9, "cut short")]);
        assert_eq!(report.findings[0].rows, Some(1), "the first of two batches can be read");
        truncate(&fixture, 9).await.unwrap();
        let writer = fixture.open().await;
        assert_eq!(fixture.seen(&writer).len(), 7);
    })
    .await;
}

#[tokio::test]
async fn damage_in_the_order_of_the_log_is_reported_and_truncated() {
    within(async {
        let fixture = written().await;
        fixture.open().await.close(false).await.unwrap();
        let batches = entry(&fixture, 3).await.batches;
        let encode = |position, generation| {
            let place = fixture.place(position);
            wal_entry::encode(&batches, place, WriterEpoch(1), Generation(generation)).unwrap()
        };
        let stale = encode(11, 1);
        fixture.storage.overwrite(&fixture.wal_path(11), stale).await;
        assert_eq!(kinds(&check(&fixture).await), [(11, "epoch goes back")]);
        fixture.storage.overwrite(&fixture.wal_path(4), encode(4, 2)).await;
        let report = check(&fixture).await;
        assert_eq!(kinds(&report)[..2], [(5, "generation goes back"), (6, "generation goes back")]);
        // The entry before is the wrong one, which only an operator can decide.
        truncate(&fixture, 4).await.unwrap();
        let writer = fixture.open().await;
        assert_eq!(fixture.seen(&writer), fixture.rows(&[(2, 20), (3, 30)]));
    })
    .await;
}

#[tokio::test]
async fn an_undamaged_log_has_no_findings_and_is_not_truncated() {
    within(async {
        let fixture = written().await;
        let report = check(&fixture).await;
        assert_eq!((report.first_damage(), report.findings.len()), (None, 0));
        let writer = fixture.open().await;
        for from in [5, 9, 11, 99] {
            let error = truncate(&fixture, from).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
            assert!(error.to_string().contains("no entry of the log is damaged"), "{error}");
        }
        fixture.put(&writer, &[(1, 1)]).await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_truncation_behind_the_first_damage_or_at_a_covered_entry_is_refused_and_fences_no_writer()
 {
    within(async {
        let fixture = written().await;
        let writer = fixture.open().await;
        writer.flush().await.unwrap();
        for number in 1..=5 {
            fixture.put(&writer, &[(number, 1)]).await.unwrap();
        }
        damage(&fixture, "zero length", 12).await;
        damage(&fixture, "hole", 14).await;
        let error = truncate(&fixture, 14).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        let named = error.to_string();
        assert!(named.contains("entry 12 before it is damaged too (zero length)"), "{named}");
        for covered in [0, 5, 9] {
            let error = truncate(&fixture, covered).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
            assert!(error.to_string().contains("covers the log up to entry 9"), "{error}");
        }
        fixture.put(&writer, &[(7, 7)]).await.unwrap();
        assert_eq!(writer.epoch(), fixture.manifest().await.writer_epoch);
    })
    .await;
}

#[tokio::test]
async fn a_truncation_that_storage_stops_anywhere_leaves_a_refused_log_and_can_be_repeated() {
    for (part, put) in (0..5).map(|n| ("/wal/", n)).chain((0..4).map(|n| ("/dropped/", n))) {
        for effect in [Effect::Refuse, Effect::LoseAnswer] {
            within(async {
                let fixture = written().await;
                damage(&fixture, "checksum", 6).await;
                // The first put to the log is the fence.
                fixture.storage.inject(Fault::new(Request::Put, part, effect).after(put));
                let error = truncate(&fixture, 6).await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Retry, "{error}");
                if (part, put) != ("/wal/", 4) {
                    let refused = fixture.try_open(quick()).await.unwrap_err().to_string();
                    assert!(refused.contains("WAL entry 6 "), "{refused}");
                    let again = truncate(&fixture, 6).await.unwrap();
                    assert!(again.findings[0].copy.is_some());
                }
                let copied = |position| format!("{position:016}.arrow");
                for position in 7..=9 {
                    let copies = fixture.storage.paths(&copied(position)).await;
                    assert!(!copies.is_empty(), "entry {position} was copied by a truncation");
                }
                if fixture.try_open(quick()).await.is_err() {
                    truncate(&fixture, 6).await.unwrap();
                }
                let writer = fixture.open().await;
                assert_eq!(fixture.seen(&writer).len(), 4);
            })
            .await;
        }
    }
}

#[tokio::test]
async fn a_truncation_that_died_after_its_fence_is_finished_by_the_next() {
    within(async {
        let fixture = written().await;
        damage(&fixture, "hole", 4).await;
        fixture
            .storage
            .inject(Fault::new(Request::Put, "/wal/", Effect::Refuse).after(3).for_ever());
        truncate(&fixture, 4).await.unwrap_err();
        fixture.storage.clear_faults();
        let report = check(&fixture).await;
        assert_eq!(report.first_damage().map(|finding| finding.position), Some(WalPosition(4)));
        let replaced: Vec<u64> = report
            .findings
            .iter()
            .filter(|f| f.rows == Some(0))
            .map(|f| f.position.get())
            .collect();
        assert_eq!(replaced, [8, 9, 10], "the end of the log first");
        truncate(&fixture, 4).await.unwrap();
        // The first truncation had copied entry 7 and could not replace it, so the second did both.
        let dropped_by = |epoch, position| {
            let path =
                paths::dropped_entry(fixture.shard_id, WriterEpoch(epoch), WalPosition(position));
            format!("table/{path}")
        };
        let copies = [(2, 7), (2, 8), (2, 9), (3, 5), (3, 6), (3, 7)];
        let expected = copies.map(|(epoch, position)| dropped_by(epoch, position));
        assert_eq!(fixture.storage.paths("/dropped/").await, expected);
        let writer = fixture.open().await;
        assert_eq!(fixture.seen(&writer), fixture.rows(&[(2, 20), (3, 30)]));
    })
    .await;
}

#[tokio::test]
async fn a_writer_that_slept_through_a_truncation_is_fenced_and_uses_no_position_again() {
    within(async {
        let fixture = Fixture::new().await;
        let sleeping = fixture.open().await;
        for number in 2..=6 {
            fixture.put(&sleeping, &[(number, number)]).await.unwrap();
        }
        damage(&fixture, "hole", 5).await;
        truncate(&fixture, 5).await.unwrap();
        let error = fixture.put(&sleeping, &[(7, 7)]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Fenced, "{error}");
        assert_eq!(sleeping.flush().await.unwrap_err().kind(), ErrorKind::Fenced);
        assert_eq!(fixture.stored().await.len(), 3);
    })
    .await;
}

#[tokio::test]
async fn an_entry_that_comes_back_while_its_hole_is_filled_is_not_dropped() {
    within(async {
        let fixture = Arc::new(written().await);
        let path = fixture.wal_path(5);
        let original = fixture.storage.bytes(&path).await;
        damage(&fixture, "hole", 5).await;
        let hold = gate();
        fixture.storage.inject(Fault::new(Request::Put, &path, Effect::Hold(hold.clone())));
        let truncating = {
            let fixture = fixture.clone();
            tokio::spawn(async move { truncate(&fixture, 5).await })
        };
        hold.wait_for_visitors(1).await;
        fixture.storage.overwrite(&path, original).await;
        hold.open();
        assert_eq!(truncating.await.unwrap().unwrap_err().kind(), ErrorKind::Retry);
        assert_eq!(check(&fixture).await.findings, []);
        let rows = [(2, 20), (3, 30), (4, 40), (5, 50)];
        assert_eq!(fixture.stored().await, fixture.rows(&rows));
    })
    .await;
}

#[tokio::test]
async fn a_truncation_that_slept_replaces_nothing_of_a_later_one() {
    within(async {
        let fixture = Arc::new(written().await);
        damage(&fixture, "checksum", 6).await;
        let hold = gate();
        let path = fixture.wal_path(9);
        fixture.storage.inject(Fault::new(Request::Put, &path, Effect::Hold(hold.clone())));
        let asleep = {
            let fixture = fixture.clone();
            tokio::spawn(async move { truncate(&fixture, 6).await })
        };
        hold.wait_for_visitors(1).await;
        truncate(&fixture, 6).await.unwrap();
        let writer = fixture.open().await;
        fixture.put(&writer, &[(10, 100)]).await.unwrap();
        hold.open();
        let error = asleep.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Retry, "{error}");
        writer.close(false).await.unwrap();
        let rows = [(2, 20), (3, 30), (4, 40), (5, 50), (10, 100)];
        assert_eq!(fixture.stored().await, fixture.rows(&rows));
    })
    .await;
}

#[tokio::test]
async fn a_truncation_of_what_the_incumbent_flushes_meanwhile_drops_nothing() {
    within(async {
        let fixture = Arc::new(Fixture::new().await);
        let writer = fixture.open().await;
        for number in 2..=6 {
            fixture.put(&writer, &[(number, number)]).await.unwrap();
        }
        damage(&fixture, "zero filled", 4).await;
        let hold = gate();
        fixture.storage.inject(Fault::new(Request::Put, ".binpb", Effect::Hold(hold.clone())));
        let truncating = {
            let fixture = fixture.clone();
            tokio::spawn(async move { truncate(&fixture, 4).await })
        };
        hold.wait_for_visitors(1).await;
        writer.flush().await.unwrap();
        hold.open();
        let error = truncating.await.unwrap().unwrap_err();
        assert!(error.to_string().contains("covers the log up to entry 6"), "{error}");
        assert!(fixture.storage.paths("/dropped/").await.is_empty());
        assert_eq!(fixture.stored().await.len(), 5);
    })
    .await;
}
