//! Rows per second of one shard's put path, not durable, on one thread.
//!
//! Owns: batches of 1 to 10,000 rows; integer and text keys, ascending and at random; both key
//! indexes and the deferred one, in one interleaved run.
//! Does not own: peers, or the log's storage: it is in memory, so the figures are the engine's.

#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a bench prints and stops")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lancemem_core::shard::{FixedSchema, ShardIdentity, ShardWriter};
use lancemem_core::store::{ManifestStore, Store};
use lancemem_core::types::{KeyIndexKind, ShardId, WriterConfig};
use lancemem_testkit::{FaultyStore, KeyShape, MemorySink};

const RUNS: usize = 7;
const ROWS_PER_RUN: usize = 100_000;
const KEYS: i64 = 1_000_000;
const BATCHES: [usize; 5] = [1, 10, 100, 1_000, 10_000];

/// The index of a put, and whether the put waits for it.
const INDEXES: [(&str, KeyIndexKind, bool); 3] = [
    ("hash", KeyIndexKind::Hash, true),
    ("skip list", KeyIndexKind::SkipList, true),
    ("deferred", KeyIndexKind::Hash, false),
];

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    println!("million rows/s, median (min-max) of {RUNS}, {ROWS_PER_RUN} rows a run");
    print!("{:<18} {:>7}", "key", "batch");
    for (name, ..) in INDEXES {
        print!(" {name:>20}");
    }
    println!();
    for (name, shape) in [("int64", KeyShape::Int64), ("utf8", KeyShape::Utf8)] {
        for (order, ascending) in [("ascending", true), ("random", false)] {
            for batch_rows in BATCHES {
                let case = Case { shape, ascending, batch_rows };
                print!("{:<18} {batch_rows:>7}", format!("{name} {order}"));
                for rates in runtime.block_on(case.rates()) {
                    let (low, middle, high) = (rates[0], rates[RUNS / 2], rates[RUNS - 1]);
                    let text = format!("{middle:.2} ({low:.2}-{high:.2})");
                    print!(" {text:>20}");
                }
                println!();
            }
        }
    }
}

struct Case {
    shape: KeyShape,
    ascending: bool,
    batch_rows: usize,
}

impl Case {
    /// The sorted rates of every index, in millions of rows a second.
    async fn rates(&self) -> Vec<Vec<f64>> {
        let mut rates = vec![Vec::new(); INDEXES.len()];
        for run in 0..RUNS {
            for (of_index, (_, key_index, sync)) in rates.iter_mut().zip(INDEXES) {
                of_index.push(self.rate(key_index, sync, run).await);
            }
        }
        for of_index in &mut rates {
            of_index.sort_by(f64::total_cmp);
        }
        rates
    }

    /// Rows per microsecond of a new shard that takes [`ROWS_PER_RUN`] rows, or what two seconds
    /// allow.
    async fn rate(&self, key_index: KeyIndexKind, sync_indexed_write: bool, run: usize) -> f64 {
        let storage: Arc<FaultyStore> = Arc::default();
        let store = Store::new(storage, "table".into());
        let shard_id = ShardId::from_u128(1);
        let manifests = ManifestStore::new(store.clone(), shard_id, 2);
        manifests.initialize(1, BTreeMap::new()).await.unwrap();
        let config = WriterConfig::default()
            .with_durable_write(false)
            .with_key_index(key_index)
            .with_sync_indexed_write(sync_indexed_write)
            .with_max_memtable_rows(2 * ROWS_PER_RUN)
            .with_max_memtable_batches(2 * ROWS_PER_RUN);
        let identity = ShardIdentity::new(shard_id);
        let sink: Arc<MemorySink> = Arc::default();
        let columns = Arc::new(FixedSchema(self.shape.row_schema()));
        let writer = ShardWriter::open(store, identity, columns, sink, config).await.unwrap();

        let batches = self.batches(run);
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
        f64::from(u32::try_from(rows).unwrap()) / seconds / 1e6
    }

    fn batches(&self, run: usize) -> Vec<arrow_array::RecordBatch> {
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64 ^ run as u64;
        let mut next = 0;
        let mut key = || {
            next += 1;
            if self.ascending { next } else { next_key(&mut seed) }
        };
        (0..ROWS_PER_RUN / self.batch_rows)
            .map(|_| {
                let rows: Vec<(i64, i64)> = (0..self.batch_rows).map(|_| (key(), 1)).collect();
                self.shape.rows(&rows)
            })
            .collect()
    }
}

fn next_key(seed: &mut u64) -> i64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    i64::try_from(*seed >> 33).unwrap() % KEYS
}
