//! The record index of a base table: built, then looked up for many keys and for few, beside a
//! lookup without it.
//!
//! Owns: the table, the steps and their figures.
//! Does not own: peers in other languages (`benches/read`).
//!
//! `cargo bench --workspace --bench table -- record_index [ROWS]`; ten million rows unless told.

#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a bench prints and stops")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_array::{Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};
use lance::dataset::{InsertBuilder, WriteMode, WriteParams};
use lancemem::record_index::{IndexRuns, RecordIndex};
use lancemem::{Consistency, Table, WriterConfig};
use lancemem_core::format::KeyEncoder;

use super::common::created;

const RUNS: usize = 7;
const BATCH_ROWS: i64 = 1_000_000;
/// Coprime to every number of rows here: each key once, in no order.
const STEP: i64 = 7_368_787;

/// Measures both kinds of key.
pub fn run(arguments: &[String]) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let rows = arguments.iter().find_map(|it| it.parse().ok()).unwrap_or(10_000_000);
    runtime.block_on(async {
        for text in [false, true] {
            measure(rows, text).await;
        }
    });
}

async fn measure(rows: i64, text: bool) {
    let folder = tempfile::tempdir().unwrap();
    let uri = folder.path().join("t.lance");
    let table = filled(uri.to_str().unwrap(), rows, text).await;
    println!("{} keys, {rows} rows", if text { "utf8 of 12 bytes" } else { "int64" });
    let started = Instant::now();
    let report = table.create_record_index().await.unwrap();
    let built = started.elapsed();
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    let a_key = report.bytes as f64 / report.entries as f64;
    println!("  build {:.2} s, {} runs, {a_key:.2} bytes a key", built.as_secs_f64(), report.runs);
    let started = Instant::now();
    let checked = table.verify_record_index().await.unwrap();
    assert!(checked.damage.is_empty(), "{:?}", checked.damage);
    println!("  check {:.2} s", started.elapsed().as_secs_f64());

    let base = table.latest_base().await.unwrap();
    let published = IndexRuns::default().published(&base).await.unwrap().unwrap();
    let index = RecordIndex::new(&base, table.primary_key(), &published);
    for count in [1, 100, 10_000, 100_000, 1_000_000] {
        let keys = keys(rows, count, text);
        let encoder = KeyEncoder::new(keys.schema_ref(), table.primary_key()).unwrap();
        let block = encoder.encode_block(&keys);
        let searched = median(async || {
            let mut sorted: Vec<&[u8]> = block.iter().collect();
            sorted.sort_unstable();
            let found = index.search(&sorted).await.unwrap();
            assert_eq!(found.len(), block.len());
        })
        .await;
        println!("  search of {count:>9} random keys {:>9.2} ms", ms(searched));
        if count <= 100_000 {
            let got = median(async || {
                let found = table.get(&keys, None, Consistency::Durable, &[]).await.unwrap();
                assert_eq!(found.num_rows(), keys.num_rows());
            })
            .await;
            println!("  get    of {count:>9} random keys {:>9.2} ms", ms(got));
        }
    }
}

async fn median(mut run: impl AsyncFnMut()) -> Duration {
    let mut times = Vec::with_capacity(RUNS);
    for _ in 0..RUNS {
        let started = Instant::now();
        run().await;
        times.push(started.elapsed());
    }
    times.sort_unstable();
    times[RUNS / 2]
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// A table whose base has `rows` rows in no order, written by Lance.
async fn filled(uri: &str, rows: i64, text: bool) -> Arc<Table> {
    let config = WriterConfig::default().with_fsync(false);
    let table = created(uri, batch(0..0, rows, text).schema(), config).await;
    let params = WriteParams { mode: WriteMode::Append, ..WriteParams::default() };
    let mut start = 0;
    while start < rows {
        let end = (start + BATCH_ROWS).min(rows);
        let base = table.latest_base().await.unwrap();
        InsertBuilder::new(base)
            .with_params(&params)
            .execute(vec![batch(start..end, rows, text)])
            .await
            .unwrap();
        start = end;
    }
    table
}

fn batch(range: std::ops::Range<i64>, rows: i64, text: bool) -> RecordBatch {
    let numbers: Vec<i64> = range.map(|row| scattered(row, rows)).collect();
    let values = Arc::new(Int64Array::from(numbers.clone()));
    let key = if text { DataType::Utf8 } else { DataType::Int64 };
    let schema = Arc::new(Schema::new(vec![
        Field::new("id", key, false),
        Field::new("v", DataType::Int64, true),
    ]));
    RecordBatch::try_new(schema, vec![column(&numbers, text), values]).unwrap()
}

fn keys(rows: i64, count: i64, text: bool) -> RecordBatch {
    let numbers: Vec<i64> = (0..count.min(rows / 9)).map(|key| scattered(key * 9, rows)).collect();
    let key = if text { DataType::Utf8 } else { DataType::Int64 };
    let schema = Arc::new(Schema::new(vec![Field::new("id", key, false)]));
    RecordBatch::try_new(schema, vec![column(&numbers, text)]).unwrap()
}

fn column(numbers: &[i64], text: bool) -> arrow_array::ArrayRef {
    if text {
        let texts = numbers.iter().map(|number| format!("key-{number:08}"));
        return Arc::new(StringArray::from_iter_values(texts));
    }
    Arc::new(Int64Array::from(numbers.to_vec()))
}

const fn scattered(row: i64, rows: i64) -> i64 {
    (row * STEP) % rows
}
