//! Rows per second of one shard's put path, not durable, on one thread.
//!
//! Owns: batches of 1 to 10,000 rows, integer and text keys, drawn at random from a million.
//! Does not own: peers, or the log's storage: it is in memory, so the figures are the engine's.

#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a bench prints and stops")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lancemem_core::shard::{ShardIdentity, ShardWriter};
use lancemem_core::store::{ManifestStore, Store};
use lancemem_core::types::{ShardId, WriterConfig};
use lancemem_testkit::{FaultyStore, KeyShape, MemorySink};

const RUNS: usize = 7;
const ROWS_PER_RUN: usize = 100_000;
const KEYS: i64 = 1_000_000;

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    println!("{:<10} {:>8} {:>14} {:>14} {:>14}", "key", "batch", "median rows/s", "min", "max");
    for (name, shape) in [("int64", KeyShape::Int64), ("utf8", KeyShape::Utf8)] {
        for batch_rows in [1, 10, 100, 1_000, 10_000] {
            let mut rates: Vec<f64> =
                (0..RUNS).map(|run| runtime.block_on(rate(shape, batch_rows, run))).collect();
            rates.sort_by(f64::total_cmp);
            let (low, middle, high) = (rates[0], rates[RUNS / 2], rates[RUNS - 1]);
            println!("{name:<10} {batch_rows:>8} {middle:>14.0} {low:>14.0} {high:>14.0}");
        }
    }
}

/// Rows per second of a new shard that takes [`ROWS_PER_RUN`] rows, or what two seconds allow.
async fn rate(shape: KeyShape, batch_rows: usize, run: usize) -> f64 {
    let storage: Arc<FaultyStore> = Arc::default();
    let store = Store::new(storage, "table".into());
    let shard_id = ShardId::from_u128(1);
    ManifestStore::new(store.clone(), shard_id, 2).initialize(1, BTreeMap::new()).await.unwrap();
    let config = WriterConfig {
        durable_write: false,
        max_memtable_rows: 2 * ROWS_PER_RUN,
        max_memtable_batches: 2 * ROWS_PER_RUN,
        ..WriterConfig::default()
    };
    let identity = ShardIdentity { shard_id, routing: None };
    let sink: Arc<MemorySink> = Arc::default();
    let writer =
        ShardWriter::open(store, identity, shape.row_schema(), sink, config).await.unwrap();

    let mut seed = 0x9e37_79b9_7f4a_7c15_u64 ^ run as u64;
    let batches: Vec<_> = (0..ROWS_PER_RUN / batch_rows)
        .map(|_| {
            let rows: Vec<(i64, i64)> = (0..batch_rows).map(|_| (next_key(&mut seed), 1)).collect();
            shape.rows(&rows)
        })
        .collect();
    let started = Instant::now();
    let mut rows = 0;
    for batch in &batches {
        writer.put(batch).await.unwrap();
        rows += batch.num_rows();
        if started.elapsed() > Duration::from_secs(2) {
            break;
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    writer.close(false).await.unwrap();
    f64::from(u32::try_from(rows).unwrap()) / seconds
}

fn next_key(seed: &mut u64) -> i64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    i64::try_from(*seed >> 33).unwrap() % KEYS
}
