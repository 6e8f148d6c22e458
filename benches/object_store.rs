//! Durable puts on an object store that is 50 ms away.
//!
//! Owns: the latency of an acknowledgement and its number of requests, with one producer and 16.
//! Does not own: a network. Every request waits 50 ms and is then served from memory.

#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a bench prints and stops")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lancemem_core::shard::{FixedSchema, ShardIdentity, ShardWriter};
use lancemem_core::store::{ManifestStore, Store};
use lancemem_core::types::{ShardId, WriterConfig};
use lancemem_testkit::{FaultyStore, KeyShape, MemorySink};
use object_store::throttle::{ThrottleConfig, ThrottledStore};

const LATENCY: Duration = Duration::from_millis(50);
const PUTS: usize = 100;
const BATCH_ROWS: i64 = 1_000;

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    println!("durable puts of {BATCH_ROWS} rows, {} ms a request", LATENCY.as_millis());
    println!(
        "{:>9} {:>7} {:>8} {:>8} {:>14} {:>14} {:>9}",
        "producers", "puts", "p50 ms", "p99 ms", "PUTs a put", "GETs and HEADs", "LISTs"
    );
    for producers in [1, 16] {
        runtime.block_on(measure(producers));
    }
}

async fn measure(producers: usize) {
    let requests: Arc<FaultyStore> = Arc::default();
    let far = ThrottleConfig {
        wait_get_per_call: LATENCY,
        wait_put_per_call: LATENCY,
        wait_list_per_call: LATENCY,
        ..ThrottleConfig::default()
    };
    let store = Arc::new(ThrottledStore::new(requests.clone(), far));
    let store = Store::new(store, "table".into());
    let shard_id = ShardId::from_u128(1);
    ManifestStore::new(store.clone(), shard_id, 2).initialize(1, BTreeMap::new()).await.unwrap();
    let identity = ShardIdentity::new(shard_id);
    let sink: Arc<MemorySink> = Arc::default();
    let columns = Arc::new(FixedSchema(KeyShape::Int64.row_schema()));
    let config = WriterConfig::default().with_max_memtable_rows(100_000_000);
    let writer = Arc::new(ShardWriter::open(store, identity, columns, sink, config).await.unwrap());
    requests.forget_requests();

    let tasks: Vec<_> =
        (0..producers).map(|producer| tokio::spawn(produce(writer.clone(), producer))).collect();
    let mut waits = Vec::new();
    for task in tasks {
        waits.extend(task.await.unwrap());
    }
    waits.sort_unstable();
    let at = |share: usize| waits[(waits.len() - 1) * share / 100].as_secs_f64() * 1e3;
    let puts = u32::try_from(waits.len()).unwrap();
    let entries = u32::try_from(requests.tried_puts("").len()).unwrap();
    println!(
        "{producers:>9} {puts:>7} {:>8.1} {:>8.1} {:>14.2} {:>14} {:>9}",
        at(50),
        at(99),
        f64::from(entries) / f64::from(puts),
        requests.tried_gets("").len(),
        requests.listings()
    );
    writer.close(false).await.unwrap();
}

/// How long each put took.
async fn produce(writer: Arc<ShardWriter>, producer: usize) -> Vec<Duration> {
    let first = i64::try_from(producer * PUTS).unwrap() * BATCH_ROWS;
    let mut waits = Vec::new();
    for put in 0..i64::try_from(PUTS).unwrap() {
        let start = first + put * BATCH_ROWS;
        let rows: Vec<(i64, i64)> = (start..start + BATCH_ROWS).map(|id| (id, id)).collect();
        let rows = KeyShape::Int64.rows(&rows);
        let started = Instant::now();
        writer.put(&rows).await.unwrap();
        waits.push(started.elapsed());
    }
    waits
}
