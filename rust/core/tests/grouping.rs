//! Which puts share a WAL entry, and what starts an append.
//!
//! Owns: group commit, the interval and the buffer limit.
//! Does not own: failing appends (`lost_answers`).

use arrow_array::RecordBatch;
use std::sync::Arc;

use lancemem_core::shard::{WriteBatch, WriteOptions};
use lancemem_core::types::Generation;
use lancemem_testkit::{Effect, Fault, Request};

use crate::fixture::{Fixture, HOUR, gate, patient, quick, until, within};

#[tokio::test]
async fn puts_that_arrive_while_an_append_runs_share_the_next_entry() {
    within(async {
        let fixture = Arc::new(Fixture::new().await);
        let writer = Arc::new(fixture.open().await);
        let hold = gate();
        fixture.storage.inject(Fault::new(Request::Put, "/wal/", Effect::Hold(hold.clone())));
        let mut puts = Vec::new();
        for number in 0..21 {
            puts.push(fixture.spawn_put(&writer, &[(number, number)]));
            if number == 0 {
                hold.wait_for_visitors(1).await;
            }
        }
        until(|| writer.stats().active_rows == 21).await;
        assert!(fixture.seen(&writer).is_empty(), "nothing is durable yet, so nothing is visible");
        hold.open();
        for put in puts {
            put.await.unwrap().unwrap();
        }
        let entries = fixture.data_entries().await;
        let sizes: Vec<usize> = entries.iter().map(|(_, entry)| entry.batches.len()).collect();
        assert_eq!(sizes, [1, 20]);
        assert_eq!(fixture.seen(&writer).len(), 21);
        assert_eq!(writer.stats().wal_entries, 2);
    })
    .await;
}

#[tokio::test]
async fn a_caller_that_puts_again_at_once_shares_the_next_entry_with_those_that_waited() {
    within(async {
        let fixture = Arc::new(Fixture::new().await);
        let writer = Arc::new(fixture.open().await);
        let hold = gate();
        fixture.storage.inject(Fault::new(Request::Put, "/wal/", Effect::Hold(hold.clone())));
        let (first_bench, first_writer) = (fixture.clone(), writer.clone());
        let first = tokio::spawn(async move {
            for number in 0..3 {
                first_bench.put(&first_writer, &[(number, number)]).await.unwrap();
            }
        });
        hold.wait_for_visitors(1).await;
        let other = fixture.spawn_put(&writer, &[(10, 10)]);
        until(|| writer.stats().active_rows == 2).await;
        hold.open();
        first.await.unwrap();
        other.await.unwrap().unwrap();
        let entries = fixture.data_entries().await;
        let sizes: Vec<usize> = entries.iter().map(|(_, entry)| entry.batches.len()).collect();
        assert_eq!(sizes, [1, 2, 1]);
    })
    .await;
}

#[tokio::test]
async fn a_durable_put_never_waits_for_the_interval() {
    within(async {
        let fixture = Fixture::new().await;
        let writer = fixture.open_with(quick().with_max_wal_flush_interval(HOUR)).await;
        for number in 0..50 {
            fixture.put(&writer, &[(number, number)]).await.unwrap();
        }
        assert_eq!(fixture.data_entries().await.len(), 50);
    })
    .await;
}

#[tokio::test]
async fn a_put_without_a_waiter_is_not_hurried_by_an_earlier_one() {
    within(async {
        let fixture = Fixture::new().await;
        let writer = fixture.open_with(patient()).await;
        let durable = WriteOptions::default().durable(true);
        let rows = fixture.shape.rows(&[(1, 10)]);
        writer.write(WriteBatch::upserts(&rows), durable).await.unwrap();
        for number in 2..20 {
            fixture.put(&writer, &[(number, number)]).await.unwrap();
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
        }
        assert_eq!(fixture.data_entries().await.len(), 1);
    })
    .await;
}

#[tokio::test]
async fn a_durable_put_of_no_rows_makes_the_rows_before_it_durable() {
    within(async {
        let fixture = Fixture::new().await;
        let writer = fixture.open_with(patient()).await;
        fixture.put(&writer, &[(1, 10)]).await.unwrap();
        assert!(fixture.data_entries().await.is_empty());
        let durable = WriteOptions::default().durable(true);
        let rows = fixture.shape.rows(&[]);
        let none = WriteBatch::upserts(&rows);
        let acknowledged = writer.write(none, durable).await.unwrap();
        assert!(acknowledged.durable);
        assert_eq!(fixture.data_entries().await.len(), 1);
        let again = writer.write(none, durable).await.unwrap();
        assert!(again.durable, "nothing was put since");
        assert_eq!(fixture.data_entries().await.len(), 1);
    })
    .await;
}

#[tokio::test]
async fn rows_beyond_the_buffer_limit_start_an_append_without_the_interval() {
    within(async {
        let fixture = Fixture::new().await;
        let writer = fixture.open_with(patient().with_max_wal_buffer_size(4096)).await;
        let rows: Vec<(i64, i64)> = (0..1000).map(|number| (number, 0)).collect();
        fixture.put(&writer, &rows).await.unwrap();
        until(|| writer.stats().wal_entries == 1).await;
    })
    .await;
}

#[tokio::test]
async fn a_freeze_starts_the_append_of_rows_without_a_waiter() {
    within(async {
        let fixture = Fixture::new().await;
        let writer = fixture.open_with(patient()).await;
        fixture.put(&writer, &[(1, 10)]).await.unwrap();
        writer.flush().await.unwrap();
        assert_eq!(fixture.manifest().await.sstables.len(), 1);
    })
    .await;
}

#[tokio::test]
async fn an_entry_never_mixes_generations() {
    within(async {
        let fixture = Fixture::new().await;
        let writer = fixture.open_with(patient().with_max_memtable_rows(2)).await;
        for number in 0..7 {
            fixture.put(&writer, &[(number, number)]).await.unwrap();
        }
        writer.close(false).await.unwrap();
        let mut rows_by_generation = std::collections::BTreeMap::<Generation, usize>::new();
        let mut generations = Vec::new();
        for (_, entry) in fixture.data_entries().await {
            let rows: usize = entry.batches.iter().map(RecordBatch::num_rows).sum();
            generations.push(entry.generation.unwrap());
            *rows_by_generation.entry(entry.generation.unwrap()).or_default() += rows;
        }
        assert!(generations.is_sorted());
        assert_eq!(rows_by_generation.into_values().collect::<Vec<_>>(), [2, 2, 2, 1]);
        assert_eq!(fixture.stored().await.len(), 7);
    })
    .await;
}

#[tokio::test]
async fn a_slice_of_a_large_batch_costs_the_log_its_own_rows_only() {
    within(async {
        let fixture = Fixture::new().await;
        let writer = fixture.open().await;
        let rows: Vec<(i64, i64)> = (0..100_000).map(|number| (number, 0)).collect();
        let large = fixture.shape.rows(&rows);
        for offset in 0..10 {
            writer.put(&large.slice(offset * 10, 10)).await.unwrap();
        }
        assert!(writer.stats().wal_bytes < 10_000, "{}", writer.stats().wal_bytes);
        assert!(writer.stats().memtable_bytes < 20_000, "{}", writer.stats().memtable_bytes);
    })
    .await;
}
