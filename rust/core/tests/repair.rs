//! A damaged log from refusal to repair: what `check` says, what `cut` drops, what is left.
//!
//! Owns: every kind of damage through open, check, cut and open, and cuts that stop half-way.
//! Does not own: which kinds there are (`damage`).

use std::sync::Arc;

use bytes::Bytes;
use lancemem_core::Result;
use lancemem_core::format::{Place, TRAILER_BYTES, WalEntry, paths, wal_entry};
use lancemem_core::shard::{WalFinding, WalReport, check_wal, truncate_wal};
use lancemem_core::types::{ErrorKind, Generation, WalPosition, WriterEpoch};
use lancemem_testkit::{Effect, Fault, Request};

use crate::bench::{Bench, gate, quick, within};

async fn check(bench: &Bench) -> WalReport {
    check_wal(&bench.store(), &bench.manifests()).await.unwrap()
}

async fn cut(bench: &Bench, from: u64) -> Result<WalReport> {
    truncate_wal(&bench.store(), &Arc::new(bench.manifests()), WalPosition(from)).await
}

/// Eight entries of one row each at the positions 2 to 9; the row's number is its position.
async fn written() -> Bench {
    let bench = Bench::new().await;
    let writer = bench.open().await;
    for number in 2..=9 {
        bench.put(&writer, &[(number, number * 10)]).await.unwrap();
    }
    writer.close(false).await.unwrap();
    bench
}

fn kinds(report: &WalReport) -> Vec<(u64, &'static str)> {
    let kind = |finding: &WalFinding| finding.damage.as_ref().map_or("intact", |it| it.kind);
    report.findings.iter().map(|finding| (finding.position.get(), kind(finding))).collect()
}

async fn entry(bench: &Bench, position: u64) -> WalEntry {
    let bytes = bench.storage.bytes(&bench.wal_path(position)).await;
    wal_entry::decode_at(&bytes, bench.place(position)).unwrap()
}

/// An entry of two batches as lance writes it, without a checksum, cut between the two.
fn cut_on_a_boundary(whole: &WalEntry) -> Bytes {
    let encode = |batches: &[_]| {
        let place = Place::default();
        let bytes = wal_entry::encode(batches, place, WriterEpoch(1), Generation(1)).unwrap();
        bytes.slice(..bytes.len() - TRAILER_BYTES)
    };
    let batch = whole.batches[0].clone();
    let first = encode(std::slice::from_ref(&batch));
    encode(&[batch.clone(), batch]).slice(..first.len() - 8)
}

/// Each kind of damage, the rows of the damaged entry that can still be read, and its size.
async fn damage(bench: &Bench, kind: &str, position: u64) {
    let path = bench.wal_path(position);
    let bytes = bench.storage.bytes(&path).await;
    match kind {
        "hole" => bench.storage.drop_file(&path).await,
        "cut short" => bench.storage.cut(&path, 100).await,
        "zero length" => bench.storage.cut(&path, 0).await,
        "zero filled" => bench.storage.overwrite(&path, vec![0; bytes.len()].into()).await,
        "misplaced" => {
            let other = bench.storage.bytes(&bench.wal_path(position + 1)).await;
            bench.storage.overwrite(&path, other).await;
        }
        "checksum" => bench.storage.flip_bit(&path, bytes.len() - 44 - TRAILER_BYTES).await,
        other => panic!("no such damage: {other}"),
    }
}

// B19
#[tokio::test]
async fn every_kind_of_damage_is_refused_reported_cut_and_gone() {
    for kind in ["hole", "cut short", "zero length", "zero filled", "checksum", "misplaced"] {
        within(async {
            let bench = written().await;
            damage(&bench, kind, 5).await;
            let originals: Vec<_> = (5..=9).map(|position| bench.wal_path(position)).collect();
            let refused = bench.try_open(quick()).await.unwrap_err().to_string();
            assert!(refused.contains("WAL entry 5 ") && refused.contains(kind), "{refused}");

            bench.storage.forget_requests();
            let report = check(&bench).await;
            let expected = [(5, kind), (6, "intact"), (7, "intact"), (8, "intact"), (9, "intact")];
            assert_eq!(kinds(&report), expected);
            assert_eq!(report.last_wal_position, WalPosition(9));
            assert!(bench.storage.tried_puts("").is_empty(), "a check writes nothing");
            for finding in &report.findings[1..] {
                assert_eq!((finding.rows, finding.generation), (Some(1), Some(Generation(1))));
                assert_eq!(finding.writer_epoch, Some(WriterEpoch(1)));
            }

            let mut lost = Vec::new();
            for path in &originals {
                let there = bench.storage.paths(path).await;
                lost.push(if there.is_empty() {
                    None
                } else {
                    Some(bench.storage.bytes(path).await)
                });
            }
            let dropped = cut(&bench, 5).await.unwrap();
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
                    paths::dropped_entry(bench.shard_id, WriterEpoch(2), finding.position);
                assert_eq!((copy, finding.bytes), (&expected, original.len() as u64));
                assert_eq!(bench.storage.bytes(&format!("table/{copy}")).await, original);
            }

            assert_eq!(check(&bench).await.findings, []);
            let rows = bench.rows(&[(2, 20), (3, 30), (4, 40)]);
            assert_eq!(bench.stored().await, rows);
            let writer = bench.open().await;
            assert_eq!(bench.seen(&writer), rows);
            bench.put(&writer, &[(5, 55)]).await.unwrap();
            assert_eq!(bench.stored().await.len(), 4);
        })
        .await;
    }
}

// B19
#[tokio::test]
async fn an_entry_of_lance_that_was_cut_on_a_message_boundary_is_refused_reported_and_cut() {
    within(async {
        let bench = written().await;
        let whole = entry(&bench, 9).await;
        bench.storage.overwrite(&bench.wal_path(9), cut_on_a_boundary(&whole)).await;
        let refused = bench.try_open(quick()).await.unwrap_err().to_string();
        assert!(refused.contains("WAL entry 9 ") && refused.contains("(cut short)"), "{refused}");
        let report = check(&bench).await;
        assert_eq!(kinds(&report), [(9, "cut short")]);
        assert_eq!(report.findings[0].rows, Some(1), "the first of two batches can be read");
        cut(&bench, 9).await.unwrap();
        let writer = bench.open().await;
        assert_eq!(bench.seen(&writer).len(), 7);
    })
    .await;
}

#[tokio::test]
async fn damage_in_the_order_of_the_log_is_reported_and_cut() {
    within(async {
        let bench = written().await;
        bench.open().await.close(false).await.unwrap();
        let batches = entry(&bench, 3).await.batches;
        let encode = |position, generation| {
            let place = bench.place(position);
            wal_entry::encode(&batches, place, WriterEpoch(1), Generation(generation)).unwrap()
        };
        let stale = encode(11, 1);
        bench.storage.overwrite(&bench.wal_path(11), stale).await;
        assert_eq!(kinds(&check(&bench).await), [(11, "epoch goes back")]);
        bench.storage.overwrite(&bench.wal_path(4), encode(4, 2)).await;
        let report = check(&bench).await;
        assert_eq!(kinds(&report)[..2], [(5, "generation goes back"), (6, "generation goes back")]);
        // The entry before is the one that is wrong, and nobody but a person can know that.
        cut(&bench, 4).await.unwrap();
        let writer = bench.open().await;
        assert_eq!(bench.seen(&writer), bench.rows(&[(2, 20), (3, 30)]));
    })
    .await;
}

#[tokio::test]
async fn an_undamaged_log_has_no_findings_and_is_not_cut() {
    within(async {
        let bench = written().await;
        let report = check(&bench).await;
        assert_eq!((report.first_damage(), report.findings.len()), (None, 0));
        let writer = bench.open().await;
        for from in [5, 9, 11, 99] {
            let error = cut(&bench, from).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
            assert!(error.to_string().contains("no entry of the log is damaged"), "{error}");
        }
        bench.put(&writer, &[(1, 1)]).await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_cut_behind_the_first_damage_or_at_a_covered_entry_is_refused_and_fences_nobody() {
    within(async {
        let bench = written().await;
        let writer = bench.open().await;
        writer.flush().await.unwrap();
        for number in 1..=5 {
            bench.put(&writer, &[(number, 1)]).await.unwrap();
        }
        damage(&bench, "zero length", 12).await;
        damage(&bench, "hole", 14).await;
        let error = cut(&bench, 14).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        let named = error.to_string();
        assert!(named.contains("entry 12 before it is damaged too (zero length)"), "{named}");
        for covered in [0, 5, 9] {
            let error = cut(&bench, covered).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
            assert!(error.to_string().contains("covers the log up to entry 9"), "{error}");
        }
        bench.put(&writer, &[(7, 7)]).await.unwrap();
        assert_eq!(writer.epoch(), bench.manifest().await.writer_epoch);
    })
    .await;
}

#[tokio::test]
async fn a_cut_that_storage_stops_anywhere_leaves_a_refused_log_and_can_be_repeated() {
    for (part, put) in (0..5).map(|n| ("/wal/", n)).chain((0..4).map(|n| ("/dropped/", n))) {
        for effect in [Effect::Refuse, Effect::LoseAnswer] {
            within(async {
                let bench = written().await;
                damage(&bench, "checksum", 6).await;
                // The first put to the log is the fence.
                bench.storage.inject(Fault::new(Request::Put, part, effect).after(put));
                let error = cut(&bench, 6).await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Retry, "{error}");
                if (part, put) != ("/wal/", 4) {
                    let refused = bench.try_open(quick()).await.unwrap_err().to_string();
                    assert!(refused.contains("WAL entry 6 "), "{refused}");
                    let again = cut(&bench, 6).await.unwrap();
                    assert!(again.findings[0].copy.is_some());
                }
                let copied = |position| format!("{position:016}.arrow");
                for position in 7..=9 {
                    let copies = bench.storage.paths(&copied(position)).await;
                    assert!(!copies.is_empty(), "entry {position} was copied by one of the cuts");
                }
                if bench.try_open(quick()).await.is_err() {
                    cut(&bench, 6).await.unwrap();
                }
                let writer = bench.open().await;
                assert_eq!(bench.seen(&writer).len(), 4);
            })
            .await;
        }
    }
}

#[tokio::test]
async fn a_cut_that_died_after_its_fence_is_finished_by_the_next() {
    within(async {
        let bench = written().await;
        damage(&bench, "hole", 4).await;
        bench.storage.inject(Fault::new(Request::Put, "/wal/", Effect::Refuse).after(3).for_ever());
        cut(&bench, 4).await.unwrap_err();
        bench.storage.clear_faults();
        let report = check(&bench).await;
        assert_eq!(report.first_damage().map(|finding| finding.position), Some(WalPosition(4)));
        let replaced: Vec<u64> = report
            .findings
            .iter()
            .filter(|f| f.rows == Some(0))
            .map(|f| f.position.get())
            .collect();
        assert_eq!(replaced, [8, 9, 10], "the end of the log first");
        cut(&bench, 4).await.unwrap();
        // The first cut had copied entry 7 and could not replace it, so the second did both.
        let cut_by = |epoch, position| {
            let path =
                paths::dropped_entry(bench.shard_id, WriterEpoch(epoch), WalPosition(position));
            format!("table/{path}")
        };
        let copies = [(2, 7), (2, 8), (2, 9), (3, 5), (3, 6), (3, 7)];
        let expected = copies.map(|(epoch, position)| cut_by(epoch, position));
        assert_eq!(bench.storage.paths("/dropped/").await, expected);
        let writer = bench.open().await;
        assert_eq!(bench.seen(&writer), bench.rows(&[(2, 20), (3, 30)]));
    })
    .await;
}

#[tokio::test]
async fn a_writer_that_slept_through_a_cut_is_fenced_and_uses_no_position_again() {
    within(async {
        let bench = Bench::new().await;
        let sleeping = bench.open().await;
        for number in 2..=6 {
            bench.put(&sleeping, &[(number, number)]).await.unwrap();
        }
        damage(&bench, "hole", 5).await;
        cut(&bench, 5).await.unwrap();
        let error = bench.put(&sleeping, &[(7, 7)]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Fenced, "{error}");
        assert_eq!(sleeping.flush().await.unwrap_err().kind(), ErrorKind::Fenced);
        assert_eq!(bench.stored().await.len(), 3);
    })
    .await;
}

#[tokio::test]
async fn an_entry_that_comes_back_while_its_hole_is_filled_is_not_dropped() {
    within(async {
        let bench = Arc::new(written().await);
        let path = bench.wal_path(5);
        let original = bench.storage.bytes(&path).await;
        damage(&bench, "hole", 5).await;
        let hold = gate();
        bench.storage.inject(Fault::new(Request::Put, &path, Effect::Hold(hold.clone())));
        let cutting = {
            let bench = bench.clone();
            tokio::spawn(async move { cut(&bench, 5).await })
        };
        hold.wait_for_visitors(1).await;
        bench.storage.overwrite(&path, original).await;
        hold.open();
        assert_eq!(cutting.await.unwrap().unwrap_err().kind(), ErrorKind::Retry);
        assert_eq!(check(&bench).await.findings, []);
        let rows = [(2, 20), (3, 30), (4, 40), (5, 50)];
        assert_eq!(bench.stored().await, bench.rows(&rows));
    })
    .await;
}

#[tokio::test]
async fn a_cut_that_slept_replaces_nothing_of_a_later_one() {
    within(async {
        let bench = Arc::new(written().await);
        damage(&bench, "checksum", 6).await;
        let hold = gate();
        let path = bench.wal_path(9);
        bench.storage.inject(Fault::new(Request::Put, &path, Effect::Hold(hold.clone())));
        let asleep = {
            let bench = bench.clone();
            tokio::spawn(async move { cut(&bench, 6).await })
        };
        hold.wait_for_visitors(1).await;
        cut(&bench, 6).await.unwrap();
        let writer = bench.open().await;
        bench.put(&writer, &[(10, 100)]).await.unwrap();
        hold.open();
        let error = asleep.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Retry, "{error}");
        writer.close(false).await.unwrap();
        let rows = [(2, 20), (3, 30), (4, 40), (5, 50), (10, 100)];
        assert_eq!(bench.stored().await, bench.rows(&rows));
    })
    .await;
}

#[tokio::test]
async fn a_cut_of_what_the_incumbent_flushes_meanwhile_drops_nothing() {
    within(async {
        let bench = Arc::new(Bench::new().await);
        let writer = bench.open().await;
        for number in 2..=6 {
            bench.put(&writer, &[(number, number)]).await.unwrap();
        }
        damage(&bench, "zero filled", 4).await;
        let hold = gate();
        bench.storage.inject(Fault::new(Request::Put, ".binpb", Effect::Hold(hold.clone())));
        let cutting = {
            let bench = bench.clone();
            tokio::spawn(async move { cut(&bench, 4).await })
        };
        hold.wait_for_visitors(1).await;
        writer.flush().await.unwrap();
        hold.open();
        let error = cutting.await.unwrap().unwrap_err();
        assert!(error.to_string().contains("covers the log up to entry 6"), "{error}");
        assert!(bench.storage.paths("/dropped/").await.is_empty());
        assert_eq!(bench.stored().await.len(), 5);
    })
    .await;
}
