//! What a compaction moves to the base table, in which way, and what readers see meanwhile.
//!
//! Owns: compactions beside writers, readers and each other; link, rewrite and drop; tombstones and
//! equal keys.
//! Does not own: the choice as numbers (`policy`), commits of other programs, or power cuts.

use std::ops::Range;

use lancemem::{
    CompactionMode, CompactionResult, CompactionSettings, Consistency, Scan, ScanOptions, Treatment,
};
use lancemem_testkit::{KeyShape, Rows};

use crate::fixture::{Fixture, Level, job_of, within};

/// A compaction in one way, after which no base fragment is rewritten.
fn only(mode: CompactionMode) -> CompactionSettings {
    CompactionSettings::default().with_mode(mode).with_max_dead_share(1.0)
}

fn treatments(result: &CompactionResult) -> Vec<Treatment> {
    result.sstables.iter().map(|sstable| sstable.decision.treatment).collect()
}

/// Rows with the value `value` each.
fn with_value(numbers: Range<i64>, value: i64) -> Vec<(i64, i64)> {
    numbers.map(|number| (number, value)).collect()
}

/// The rows of the base table, which must have no SSTable above it.
async fn base_rows(fixture: &Fixture) -> Rows {
    let snapshot = fixture.table.snapshot(Consistency::Flushed, &[]).await.unwrap();
    assert!(snapshot.is_base_only());
    let rows = fixture.seen_in(&snapshot).await;
    assert_eq!(fixture.table.stats().await.unwrap().base_rows, rows.len());
    rows
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_compaction_beside_a_writer_shows_each_put_whole_and_fences_no_writer() {
    const ROUNDS: i64 = 12;
    within(async {
        let fixture = Fixture::new().await;
        let job = job_of(&fixture.table).await;
        let epoch = job.epoch();
        let writing = async {
            for round in 0..ROUNDS {
                job.put(&fixture.shape.rows(&with_value(0..20, round))).await.unwrap();
                job.flush().await.unwrap();
            }
        };
        let compacting = async {
            let mut newest = -1;
            while newest < ROUNDS - 1 {
                fixture.table.compact().await.unwrap();
                let rows = fixture.seen(&Level::durable()).await;
                let Some(value) = rows.values().next().copied() else { continue };
                assert!(value >= newest, "an older put comes back");
                newest = value;
                assert_eq!(rows, fixture.rows(&with_value(0..20, value)));
            }
        };
        futures::join!(writing, compacting);
        assert_eq!(job.epoch(), epoch);
        job.put(&fixture.shape.rows(&[(20, 0)])).await.unwrap();
        job.close(true).await.unwrap();
        fixture.table.compact().await.unwrap();
        let mut rows = with_value(0..20, ROUNDS - 1);
        rows.push((20, 0));
        assert_eq!(base_rows(&fixture).await, fixture.rows(&rows));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_compactions_at_once_move_each_sstable_once() {
    within(async {
        let mut fixture = Fixture::new().await;
        let other = fixture.table.clone();
        fixture.reopen().await;
        for round in 0..5 {
            fixture.to_sstable(&with_value(round..round + 10, round), &[]).await;
            fixture.to_sstable(&with_value(round..round + 5, round + 100), &[round + 9]).await;
            let (one, two) = futures::join!(fixture.table.compact(), other.compact());
            assert_eq!(one.unwrap().generations + two.unwrap().generations, 2);
        }
        let mut rows: Vec<(i64, i64)> = (0..4).map(|number| (number, number + 100)).collect();
        rows.extend(with_value(4..9, 104));
        rows.extend(with_value(9..13, 4));
        assert_eq!(base_rows(&fixture).await, fixture.rows(&rows));
    })
    .await;
}

#[tokio::test]
async fn the_newest_of_equal_keys_in_one_sstable_comes_to_the_base_table() {
    for mode in [CompactionMode::Link, CompactionMode::Rewrite] {
        within(async {
            let fixture = Fixture::new().await;
            let job = job_of(&fixture.table).await;
            let put = |rows: &[(i64, i64)]| fixture.shape.rows(rows);
            job.put(&put(&with_value(0..10, 1))).await.unwrap();
            job.put(&put(&[(0, 2), (1, 2), (0, 3)])).await.unwrap();
            job.delete(&fixture.shape.keys(&[7, 8, 99])).await.unwrap();
            job.put(&put(&[(8, 4)])).await.unwrap();
            job.close(true).await.unwrap();
            let result = fixture.table.compact_with(&only(mode)).await.unwrap();
            assert_eq!(result.sstables[0].physical_rows, 17);
            assert_eq!((result.rows_written, result.rows_deleted), (9, 0), "{mode:?}");
            let mut rows = with_value(2..7, 1);
            rows.extend([(0, 3), (1, 2), (8, 4), (9, 1)]);
            assert_eq!(base_rows(&fixture).await, fixture.rows(&rows), "{mode:?}");
        })
        .await;
    }
}

#[tokio::test]
async fn a_row_that_a_newer_sstable_of_the_same_compaction_supersedes_is_dead() {
    for mode in [CompactionMode::Auto, CompactionMode::Link, CompactionMode::Rewrite] {
        within(async {
            let fixture = Fixture::new().await;
            fixture.to_base(&with_value(0..4, 1)).await;
            fixture.to_sstable(&with_value(2..10, 2), &[]).await;
            fixture.to_sstable(&with_value(5..7, 3), &[0, 8]).await;
            fixture.to_sstable(&[(8, 4)], &[9]).await;
            let before = fixture.table.stats().await.unwrap().base_version;
            let result = fixture.table.compact_with(&only(mode)).await.unwrap();
            assert_eq!((result.generations, result.base_version), (3, before + 1));
            // The base rows 2 and 3 are superseded, and 0 is deleted.
            assert_eq!((result.rows_written, result.rows_deleted), (7, 3), "{mode:?}");
            let mut rows = with_value(2..8, 2);
            rows.extend([(1, 1), (5, 3), (6, 3), (8, 4)]);
            assert_eq!(base_rows(&fixture).await, fixture.rows(&rows), "{mode:?}");
        })
        .await;
    }
}

#[tokio::test]
async fn a_tombstone_of_a_key_that_the_base_table_lacks_deletes_nothing() {
    within(async {
        let fixture = Fixture::new().await;
        fixture.to_sstable(&[], &[1, 2]).await;
        let result = fixture.table.compact().await.unwrap();
        assert_eq!(treatments(&result), [Treatment::Drop]);
        assert_eq!((result.rows_written, result.rows_deleted), (0, 0));
        fixture.to_base(&with_value(0..10, 1)).await;
        fixture.to_sstable(&[], &[3, 4, 77]).await;
        let result = fixture.table.compact().await.unwrap();
        assert_eq!((treatments(&result), result.dropped), (vec![Treatment::Drop], 1));
        assert_eq!((result.rows_written, result.rows_deleted), (0, 2));
        assert_eq!((result.fragments_added, result.sstables[0].tombstones), (0, 3));
        let rows = [with_value(0..3, 1), with_value(5..10, 1)].concat();
        assert_eq!(base_rows(&fixture).await, fixture.rows(&rows));
    })
    .await;
}

#[tokio::test]
async fn one_small_sstable_is_linked_and_several_are_rewritten_as_one_fragment() {
    within(async {
        let fixture = Fixture::new().await;
        fixture.to_sstable(&with_value(0..10, 1), &[]).await;
        let result = fixture.table.compact().await.unwrap();
        assert_eq!((treatments(&result), result.linked), (vec![Treatment::Link], 1));
        for part in [10..20, 20..30, 30..40] {
            fixture.to_sstable(&with_value(part, 2), &[]).await;
        }
        let result = fixture.table.compact().await.unwrap();
        assert_eq!((treatments(&result), result.rewritten), (vec![Treatment::Rewrite; 3], 3));
        assert_eq!((result.fragments_added, result.rows_written), (1, 30));
        let reason = &result.sstables[0].decision.reason;
        assert!(reason.contains("3 small SSTables"), "{reason}");
        let rows = [with_value(0..10, 1), with_value(10..40, 2)].concat();
        assert_eq!(base_rows(&fixture).await, fixture.rows(&rows));
    })
    .await;
}

#[tokio::test]
async fn a_linked_and_a_rewritten_table_have_the_same_rows() {
    within(async {
        let mut seen = Vec::new();
        for (mode, linked) in [(CompactionMode::Link, 2), (CompactionMode::Rewrite, 0)] {
            let fixture = Fixture::with(KeyShape::Composite, 1).await;
            fixture.to_sstable(&with_value(0..30, 1), &[4, 5]).await;
            fixture.to_sstable(&with_value(20..40, 2), &[0, 25]).await;
            let result = fixture.table.compact_with(&only(mode)).await.unwrap();
            assert_eq!((result.linked, result.rewritten), (linked, 2 - linked), "{mode:?}");
            seen.push(base_rows(&fixture).await);
        }
        assert_eq!(seen[0].len(), 36);
        assert_eq!(seen[0], seen[1]);
    })
    .await;
}

#[tokio::test]
async fn an_sstable_of_mostly_dead_rows_is_rewritten_with_the_reason() {
    within(async {
        let fixture = Fixture::new().await;
        let job = job_of(&fixture.table).await;
        for round in 0..4 {
            job.put(&fixture.shape.rows(&with_value(0..100, round))).await.unwrap();
        }
        job.close(true).await.unwrap();
        let settings = CompactionSettings::default().with_dry_run(true);
        let planned = fixture.table.compact_with(&settings).await.unwrap();
        assert_eq!(treatments(&planned), [Treatment::Rewrite]);
        let reason = &planned.sstables[0].decision.reason;
        assert!(reason.contains("300 of 400"), "{reason}");
        assert_eq!(fixture.table.stats().await.unwrap().sstables, 1, "a dry run moves nothing");
        let done = fixture.table.compact().await.unwrap();
        assert_eq!(done.sstables, planned.sstables);
        assert_eq!(base_rows(&fixture).await, fixture.rows(&with_value(0..100, 3)));
    })
    .await;
}

#[tokio::test]
async fn a_second_compaction_has_nothing_to_do() {
    within(async {
        let fixture = Fixture::new().await;
        fixture.to_log(&with_value(0..10, 1), &[]).await;
        let nothing = fixture.table.compact().await.unwrap();
        assert_eq!(nothing.generations, 0, "rows in the log are not flushed");
        fixture.flush().await;
        let first = fixture.table.compact().await.unwrap();
        assert_eq!((first.generations, first.rows_written), (1, 10));
        let second = fixture.table.compact().await.unwrap();
        let base_version = first.base_version;
        assert_eq!(second, CompactionResult { base_version, ..CompactionResult::default() });
        assert_eq!(base_rows(&fixture).await, fixture.rows(&with_value(0..10, 1)));
    })
    .await;
}

#[tokio::test]
async fn rows_of_a_snapshot_stay_readable_after_a_compaction() {
    within(async {
        let fixture = Fixture::new().await;
        fixture.to_base(&with_value(0..10, 1)).await;
        fixture.to_sstable(&with_value(5..15, 2), &[0]).await;
        fixture.to_log(&with_value(14..16, 3), &[6]).await;
        let snapshot = fixture.table.snapshot(Consistency::Durable, &[]).await.unwrap();
        let before = fixture.seen_in(&snapshot).await;
        assert_eq!(before.len(), 14);
        fixture.to_log(&with_value(0..20, 4), &[]).await;
        fixture.flush().await;
        let settings = CompactionSettings::default().with_max_dead_share(0.0);
        fixture.table.compact_with(&settings).await.unwrap();
        assert_eq!(fixture.seen_in(&snapshot).await, before);
        let options = ScanOptions::default();
        let scan = Scan::of_snapshot(fixture.table.clone(), snapshot.clone(), options);
        assert_eq!(scan.count_rows().await.unwrap(), 14);
        assert_eq!(base_rows(&fixture).await, fixture.rows(&with_value(0..20, 4)));
    })
    .await;
}

#[tokio::test]
async fn the_shards_of_a_table_are_compacted_in_one_commit() {
    within(async {
        let fixture = Fixture::with(KeyShape::Int64, 3).await;
        for round in 0..2 {
            fixture.to_log(&with_value(round * 20..round * 20 + 40, round), &[round]).await;
            fixture.flush().await;
        }
        let before = fixture.table.stats().await.unwrap();
        assert_eq!((before.shards, before.sstables), (3, 6));
        let result = fixture.table.compact_with(&only(CompactionMode::Auto)).await.unwrap();
        assert_eq!((result.generations, result.base_version), (6, before.base_version + 1));
        let rows = [with_value(2..20, 0), with_value(20..60, 1)].concat();
        assert_eq!(base_rows(&fixture).await, fixture.rows(&rows));
    })
    .await;
}

#[tokio::test]
async fn deletion_vectors_leave_the_same_rows_to_a_compaction() {
    within(async {
        let fixture = Fixture::new().await;
        fixture.table.alter_deletion_vectors(true).await.unwrap();
        fixture.to_base(&with_value(0..20, 1)).await;
        fixture.to_sstable(&with_value(10..30, 2), &[0, 99]).await;
        fixture.to_sstable(&with_value(15..16, 3), &[1, 20]).await;
        let missing = fixture.table.write_deletion_vectors(None).await.unwrap();
        assert_eq!(missing.sstables, 0, "a job that closes has written them");
        let rows = [with_value(2..10, 1), with_value(10..15, 2), with_value(16..20, 2)].concat();
        let rows = [rows, with_value(21..30, 2), vec![(15, 3)]].concat();
        assert_eq!(fixture.seen(&Level::flushed()).await, fixture.rows(&rows));
        let result = fixture.table.compact().await.unwrap();
        assert_eq!((result.generations, result.rows_deleted), (2, 12));
        assert_eq!(base_rows(&fixture).await, fixture.rows(&rows));
    })
    .await;
}
