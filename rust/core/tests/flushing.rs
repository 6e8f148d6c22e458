//! From a frozen MemTable to an SSTable that the manifest lists, with the rows readable throughout.
//!
//! Owns: what a flush moves, in which order, and the limits that freeze a MemTable.
//! Does not own: flushes that fail (`flush_failures`).

use std::sync::Arc;
use std::time::Duration;

use lancemem_core::types::{Generation, WalPosition};

use crate::fixture::{Fixture, gate, quick, tiny, until, within};

#[tokio::test]
async fn a_flush_moves_the_replay_position_and_the_generation() {
    within(async {
        let fixture = Fixture::new().await;
        let writer = fixture.open().await;
        fixture.put(&writer, &[(1, 10)]).await.unwrap();
        fixture.put(&writer, &[(1, 11), (2, 20)]).await.unwrap();
        writer.flush().await.unwrap();
        let manifest = fixture.manifest().await;
        let last = fixture.data_entries().await.last().unwrap().0;
        assert_eq!(manifest.replay_after_wal_entry_position, WalPosition(last));
        assert_eq!(manifest.wal_entry_position_last_seen, WalPosition(last));
        assert_eq!(manifest.current_generation, Generation(2));
        assert_eq!(manifest.sstables.len(), 1);
        assert_eq!(manifest.sstables[0].generation, Generation(1));
        assert_eq!(manifest.sstables[0].physical_rows, Some(3));
        assert_eq!(fixture.stored().await, fixture.rows(&[(1, 11), (2, 20)]));
        let stats = writer.stats();
        assert_eq!((stats.flushes, stats.frozen_memtables, stats.active_rows), (1, 0, 0));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_stay_readable_before_during_and_after_their_flush() {
    within(async {
        let fixture = Arc::new(Fixture::new().await);
        let writer = Arc::new(fixture.open_with(tiny(5)).await);
        let expected = fixture.rows(&[(0, 0), (1, 1), (2, 2), (3, 3)]);
        fixture.put(&writer, &[(0, 0), (1, 1), (2, 2), (3, 3)]).await.unwrap();
        let flushing = {
            let (fixture, writer) = (fixture.clone(), writer.clone());
            tokio::spawn(async move {
                for value in 0..300 {
                    fixture.put(&writer, &[(100, value)]).await.unwrap();
                }
                writer.flush().await.unwrap();
            })
        };
        let mut newest = -1;
        while !flushing.is_finished() {
            let mut seen = fixture.seen(&writer);
            if let Some(value) = seen.remove(&fixture.shape.key(100)) {
                assert!(value >= newest, "{value} after {newest}");
                newest = value;
            }
            assert_eq!(seen, expected);
            tokio::task::yield_now().await;
        }
        flushing.await.unwrap();
        assert_eq!(fixture.seen(&writer).get(&fixture.shape.key(100)), Some(&299));
        assert_eq!(writer.stats().flushes, 61);
    })
    .await;
}

#[tokio::test]
async fn puts_go_on_and_rows_stay_readable_while_a_flush_takes_long() {
    within(async {
        let fixture = Arc::new(Fixture::new().await);
        let hold = gate();
        fixture.sink.hold(hold.clone());
        let writer = Arc::new(fixture.open().await);
        fixture.put(&writer, &[(1, 10), (2, 20)]).await.unwrap();
        let flush = {
            let writer = writer.clone();
            tokio::spawn(async move { writer.flush().await })
        };
        hold.wait_for_visitors(1).await;
        fixture.put(&writer, &[(1, 11)]).await.unwrap();
        assert_eq!(fixture.seen(&writer), fixture.rows(&[(1, 11), (2, 20)]));
        assert_eq!(writer.stats().frozen_memtables, 1);
        hold.open();
        flush.await.unwrap().unwrap();
        assert_eq!(fixture.seen(&writer), fixture.rows(&[(1, 11), (2, 20)]));
        assert_eq!(fixture.stored().await, fixture.rows(&[(1, 11), (2, 20)]));
    })
    .await;
}

#[tokio::test]
async fn a_reopen_after_a_flush_skips_the_flushed_generations() {
    within(async {
        let fixture = Fixture::new().await;
        let writer = fixture.open().await;
        fixture.put(&writer, &[(1, 10), (2, 20)]).await.unwrap();
        writer.flush().await.unwrap();
        fixture.put(&writer, &[(2, 21)]).await.unwrap();
        writer.close(false).await.unwrap();
        let again = fixture.open().await;
        assert_eq!(again.stats().active_rows, 1);
        assert_eq!(again.stats().active_generation, Generation(2));
        assert_eq!(fixture.seen(&again), fixture.rows(&[(1, 10), (2, 21)]));
    })
    .await;
}

#[tokio::test]
async fn the_newest_generation_wins_whichever_level_it_is_on() {
    within(async {
        let fixture = Fixture::new().await;
        let writer = fixture.open().await;
        fixture.put(&writer, &[(1, 10), (2, 20), (3, 30), (4, 40)]).await.unwrap();
        writer.flush().await.unwrap();
        fixture.put(&writer, &[(2, 21), (3, 31)]).await.unwrap();
        fixture.delete(&writer, &[4]).await.unwrap();
        writer.flush().await.unwrap();
        fixture.put(&writer, &[(3, 32), (4, 42)]).await.unwrap();
        let expected = fixture.rows(&[(1, 10), (2, 21), (3, 32), (4, 42)]);
        assert_eq!(fixture.seen(&writer), expected);
        writer.close(false).await.unwrap();
        assert_eq!(fixture.stored().await, expected);
    })
    .await;
}

#[tokio::test]
async fn a_put_larger_than_a_memtable_is_one_generation_and_one_entry() {
    within(async {
        let fixture = Fixture::new().await;
        let writer = fixture.open_with(tiny(10)).await;
        let rows: Vec<(i64, i64)> = (0..35).map(|number| (number, number * 2)).collect();
        let answer = writer.put(&fixture.shape.rows(&rows)).await.unwrap();
        assert_eq!((answer.rows, answer.durable), (35, true));
        fixture.put(&writer, &[(99, 99)]).await.unwrap();
        let batches: Vec<usize> =
            fixture.data_entries().await.iter().map(|(_, entry)| entry.batches.len()).collect();
        assert_eq!(batches, [1, 1]);
        writer.close(true).await.unwrap();
        let physical: Vec<Option<u64>> =
            fixture.manifest().await.sstables.iter().map(|s| s.physical_rows).collect();
        assert_eq!(physical, [Some(35), Some(1)]);
        assert_eq!(fixture.stored().await.len(), 36);
    })
    .await;
}

#[tokio::test]
async fn a_memtable_is_frozen_at_its_limit_of_batches_and_of_bytes() {
    within(async {
        for config in [quick().with_max_memtable_batches(3), quick().with_max_memtable_size(1)] {
            let fixture = Fixture::new().await;
            let by_batches = config.max_memtable_size > 1;
            let writer = fixture.open_with(config).await;
            for number in 0..7 {
                fixture.put(&writer, &[(number, number)]).await.unwrap();
            }
            let expected = if by_batches { 3 } else { 7 };
            assert_eq!(writer.stats().active_generation, Generation(expected));
            until(|| writer.stats().frozen_memtables == 0).await;
            assert_eq!(fixture.seen(&writer).len(), 7);
        }
    })
    .await;
}

#[tokio::test]
async fn a_flush_of_nothing_makes_no_generation() {
    within(async {
        let fixture = Fixture::new().await;
        let writer = fixture.open().await;
        writer.flush().await.unwrap();
        fixture.put(&writer, &[(1, 10)]).await.unwrap();
        writer.flush().await.unwrap();
        writer.flush().await.unwrap();
        assert_eq!(fixture.manifest().await.sstables.len(), 1);
        assert_eq!(fixture.manifest().await.current_generation, Generation(2));
    })
    .await;
}

#[tokio::test]
async fn a_memtable_that_gets_no_puts_is_flushed_after_the_idle_interval() {
    within(async {
        let fixture = Fixture::new().await;
        let config = quick().with_idle_flush_interval(Duration::from_millis(20));
        let writer = fixture.open_with(config).await;
        fixture.put(&writer, &[(1, 10)]).await.unwrap();
        until(|| writer.stats().flushes == 1).await;
        assert_eq!(fixture.manifest().await.sstables.len(), 1);
        assert_eq!(fixture.seen(&writer), fixture.rows(&[(1, 10)]));
    })
    .await;
}
