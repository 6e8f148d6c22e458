//! Time of a full scan of a table, plain and with rows above the base.
//!
//! Owns: a base of 500,000 rows of int64 + 100 bytes, alone and with 10 % of its keys newer in
//! one flushed run, scanned by turns.
//! Does not own: peers.

#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a bench prints and stops")]

use std::sync::Arc;
use std::time::Instant;

use arrow_array::{Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};
use futures::TryStreamExt;
use lancemem::table::CreateOptions;
use lancemem::{ScanOptions, Sharding, Table, WriteMode, WriterConfig};

const RUNS: usize = 7;
const BASE_ROWS: i64 = 500_000;

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(compare());
}

async fn compare() {
    let folder = tempfile::tempdir().unwrap();
    let plain = table(folder.path().join("plain").to_str().unwrap()).await;
    let newer = table(folder.path().join("newer").to_str().unwrap()).await;
    let shard_id = newer.shards().await.unwrap()[0].shard_id;
    let job = newer.start_job(shard_id, newer.writer_defaults().clone()).await.unwrap();
    job.put(&rows((0..BASE_ROWS).step_by(10)), WriteMode::default()).await.unwrap();
    job.close(true).await.unwrap();

    let mut times = (Vec::new(), Vec::new());
    for run in 0..=RUNS {
        let pair = (scan_ms(&plain).await, scan_ms(&newer).await);
        if run > 0 {
            times.0.push(pair.0);
            times.1.push(pair.1);
        }
    }
    let (plain, newer) = (median(times.0), median(times.1));
    println!("plain base            {plain:>8.1} ms");
    println!("10 % newer, one run   {newer:>8.1} ms   {:.2}x", newer / plain);
}

/// A table whose base holds all rows and nothing lies above it.
async fn table(uri: &str) -> Arc<Table> {
    let options = CreateOptions {
        schema: schema(),
        primary_key: vec!["id".to_owned()],
        sharding: Sharding::Unsharded,
        config: WriterConfig {
            durable_write: false,
            max_memtable_rows: 1_000_000,
            ..WriterConfig::default()
        },
    };
    let table = Table::create(uri, &options).await.unwrap();
    let shard_id = table.shards().await.unwrap()[0].shard_id;
    let job = table.start_job(shard_id, table.writer_defaults().clone()).await.unwrap();
    job.put(&rows(0..BASE_ROWS), WriteMode::default()).await.unwrap();
    job.close(true).await.unwrap();
    table.compact().await.unwrap();
    table
}

async fn scan_ms(table: &Arc<Table>) -> f64 {
    let started = Instant::now();
    let scan = table.scan(ScanOptions::default(), Vec::new());
    let batches: Vec<RecordBatch> = scan.stream().await.unwrap().try_collect().await.unwrap();
    let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
    assert_eq!(rows, usize::try_from(BASE_ROWS).unwrap());
    started.elapsed().as_secs_f64() * 1e3
}

fn schema() -> Arc<Schema> {
    let id = Field::new("id", DataType::Int64, false);
    Arc::new(Schema::new(vec![id, Field::new("text", DataType::Utf8, true)]))
}

fn rows(ids: impl Iterator<Item = i64>) -> RecordBatch {
    let ids = Int64Array::from_iter_values(ids);
    let texts = StringArray::from_iter_values(ids.values().iter().map(|id| format!("{id:0>100}")));
    RecordBatch::try_new(schema(), vec![Arc::new(ids), Arc::new(texts)]).unwrap()
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
