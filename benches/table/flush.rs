//! MB of payload per second that a flush writes, beside what lance does with the same rows.
//!
//! Owns: MemTables of int64, text and wide rows and of many one-row puts, flushed through the
//! public path, by turns with lance's plain write of the same batches, without and with a sync
//! of its files, and with the closing flush of lance's own MemTable writer (it syncs nothing).
//! Does not own: the put path, or the WAL: every log is written before the clock starts.
//!
//! `cargo bench --workspace --bench table -- flush [SHAPE [WHAT]]`: a part of their names chooses
//! shapes and what is timed.
//! `LANCEMEM_BENCH_DIR` names another folder than the system's temporary one; on a memory file
//! system the figures are those of the encoding alone.

#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a bench prints and stops")]

use std::collections::HashMap;
use std::fmt::Write;
use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};
use lance::dataset::mem_wal::{DatasetMemWalExt, ShardWriterConfig};
use lance::dataset::{InsertBuilder, WriteParams};
use lancemem::WriterConfig;
use uuid::Uuid;

use super::common::{created, job_of, median};

const RUNS: usize = 7;
const KEY_MARKER: &str = "lance-schema:unenforced-primary-key";

/// A MemTable's rows as they are put.
struct Shape {
    name: &'static str,
    text_key: bool,
    value_bytes: usize,
    rows: usize,
    batch_rows: usize,
}

const SHAPES: [Shape; 4] = [
    Shape {
        name: "int64 + 100 B",
        text_key: false,
        value_bytes: 100,
        rows: 200_000,
        batch_rows: 10_000,
    },
    Shape {
        name: "uuid + 100 B",
        text_key: true,
        value_bytes: 100,
        rows: 200_000,
        batch_rows: 10_000,
    },
    Shape {
        name: "int64 + 5 KB",
        text_key: false,
        value_bytes: 5_000,
        rows: 20_000,
        batch_rows: 1_000,
    },
    Shape { name: "one-row puts", text_key: false, value_bytes: 100, rows: 8_000, batch_rows: 1 },
];

/// The timed sides, in the order of a round.
const ARMS: [&str; 4] = ["lancemem flush", "lance write", "lance write, synced", "lance close"];

/// Compares the chosen shapes.
pub fn run(arguments: &[String]) {
    let (wanted, arm) = (arguments.first(), arguments.get(1));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    println!(
        "{:<14} {:<20} {:>11} {:>7} {:>7} {:>7}  lancemem is",
        "rows", "what", "median MB/s", "min", "max", "ms"
    );
    for shape in &SHAPES {
        if wanted.as_ref().is_none_or(|wanted| shape.name.contains(wanted.as_str())) {
            runtime.block_on(compare(shape, arm.map(String::as_str)));
        }
    }
}

async fn compare(shape: &Shape, arm: Option<&str>) {
    let batches = shape.batches();
    let payload: usize = batches.iter().map(payload_bytes).sum();
    let mut seconds = ARMS.map(|_| Vec::new());
    for run in 0..=RUNS {
        // Each round begins with another side, so that no side always follows the same one.
        for turn in 0..ARMS.len() {
            let place = (run + turn) % ARMS.len();
            if arm.is_some_and(|arm| !ARMS[place].contains(arm)) {
                continue;
            }
            let folder = folder();
            let uri = folder.path().join("table").to_str().unwrap().to_owned();
            let time = match place {
                0 => flush(&uri, &batches).await,
                1 => write(&uri, &batches, false).await,
                2 => write(&uri, &batches, true).await,
                _ => close(&uri, &batches).await,
            };
            // The first round warms up.
            if run > 0 {
                seconds[place].push(time);
            }
            drop(folder);
            // Memory is freed and the disk is idle before the next turn.
            wait_ms(200).await;
        }
    }
    let ours = seconds[0].clone();
    for (name, times) in ARMS.iter().zip(seconds).filter(|(_, times)| !times.is_empty()) {
        // A ratio of times of the same round: what else runs on the machine hits both.
        let ratios: Vec<f64> =
            times.iter().zip(&ours).map(|(theirs, ours)| theirs / ours).collect();
        let ratio = if ratios.is_empty() { 1.0 } else { median(ratios) };
        let ms = median(times.clone()) * 1e3;
        let mut rates: Vec<f64> = times.iter().map(|time| megabytes(payload) / time).collect();
        rates.sort_by(f64::total_cmp);
        let (low, middle, high) = (rates[0], rates[rates.len() / 2], rates[rates.len() - 1]);
        println!(
            "{:<14} {name:<20} {middle:>11.0} {low:>7.0} {high:>7.0} {ms:>7.1}  {ratio:.2}x",
            shape.name
        );
    }
}

/// Seconds of `flush()` with all rows in one MemTable and in the log. Its files are synced.
async fn flush(uri: &str, batches: &[RecordBatch]) -> f64 {
    let config = WriterConfig::default()
        .with_durable_write(false)
        .with_max_memtable_rows(1 << 24)
        .with_max_memtable_batches(1 << 24)
        .with_max_memtable_size(1 << 30)
        .with_max_unflushed_memtable_bytes(2 << 30);
    let table = created(uri, batches[0].schema(), config).await;
    let job = job_of(&table).await;
    for batch in batches {
        job.put(batch).await.unwrap();
    }
    let mut bytes = 0;
    loop {
        wait_ms(300).await;
        let before = std::mem::replace(&mut bytes, job.stats().wal_bytes);
        if bytes > 0 && bytes == before {
            break;
        }
    }
    let started = Instant::now();
    job.flush().await.unwrap();
    let seconds = started.elapsed().as_secs_f64();
    assert_eq!(job.stats().flushes, 1, "all rows were in one MemTable");
    job.close(false).await.unwrap();
    seconds
}

/// Seconds of a new dataset of the batches; `synced` adds a sync of each file and folder.
async fn write(uri: &str, batches: &[RecordBatch], synced: bool) -> f64 {
    let rows = batches.to_vec();
    let started = Instant::now();
    InsertBuilder::new(uri).with_params(&WriteParams::default()).execute(rows).await.unwrap();
    if synced {
        let folder = uri.to_owned();
        tokio::task::spawn_blocking(move || sync_tree(Path::new(&folder))).await.unwrap();
    }
    started.elapsed().as_secs_f64()
}

/// Seconds of the closing flush of lance's own MemTable writer.
async fn close(uri: &str, batches: &[RecordBatch]) -> f64 {
    let schema = batches[0].schema();
    let marker = HashMap::from([(KEY_MARKER.to_owned(), "true".to_owned())]);
    let fields = [
        schema.field(0).clone().with_metadata(marker).with_nullable(false),
        schema.field(1).clone(),
    ];
    let schema = Arc::new(Schema::new(fields.to_vec()));
    let of_table = |batch: &RecordBatch| {
        RecordBatch::try_new(schema.clone(), batch.columns().to_vec()).unwrap()
    };
    let empty = vec![of_table(&batches[0].slice(0, 1))];
    let mut base = InsertBuilder::new(uri).execute(empty).await.unwrap();
    base.initialize_mem_wal().unsharded().execute().await.unwrap();
    let shard = Uuid::from_u128(1);
    let mut config = ShardWriterConfig::new(shard);
    config.durable_write = false;
    config.max_memtable_rows = batches.iter().map(RecordBatch::num_rows).sum::<usize>() + 1;
    config.max_memtable_batches = batches.len() + 1;
    config.max_memtable_size = 1 << 30;
    config.max_unflushed_memtable_bytes = 2 << 30;
    let writer = base.mem_wal_writer(shard, config).await.unwrap();
    for batch in batches {
        writer.put(vec![of_table(batch)]).await.unwrap();
    }
    wait_ms(600).await;
    let manifests = writer.manifest_store();
    let started = Instant::now();
    writer.close().await.unwrap();
    let seconds = started.elapsed().as_secs_f64();
    assert_eq!(manifests.latest().await.unwrap().unwrap().sstables.len(), 1, "one MemTable");
    seconds
}

impl Shape {
    /// Every key once, in no order; the values compress like text.
    fn batches(&self) -> Vec<RecordBatch> {
        let fields = vec![
            Field::new("id", if self.text_key { DataType::Utf8 } else { DataType::Int64 }, false),
            Field::new("text", DataType::Utf8, true),
        ];
        let schema = Arc::new(Schema::new(fields));
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        let mut batch = || {
            let ids: Vec<u64> = (0..self.batch_rows).map(|_| next(&mut seed)).collect();
            let keys: ArrayRef = if self.text_key {
                let uuid = |id: &u64| Uuid::from_u128(u128::from(*id) << 64 | 0x8000 << 48);
                Arc::new(StringArray::from_iter_values(ids.iter().map(|id| uuid(id).to_string())))
            } else {
                Arc::new(Int64Array::from_iter_values(ids.iter().map(|id| id.cast_signed())))
            };
            let texts = ids.iter().map(|_| {
                let mut text = String::with_capacity(self.value_bytes + 16);
                while text.len() < self.value_bytes {
                    write!(text, "{:x} ", next(&mut seed)).unwrap();
                }
                text.truncate(self.value_bytes);
                text
            });
            let columns = vec![keys, Arc::new(StringArray::from_iter_values(texts)) as ArrayRef];
            RecordBatch::try_new(schema.clone(), columns).unwrap()
        };
        (0..self.rows / self.batch_rows).map(|_| batch()).collect()
    }
}

fn next(seed: &mut u64) -> u64 {
    // SplitMix64.
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*seed ^ (*seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

fn payload_bytes(batch: &RecordBatch) -> usize {
    batch.columns().iter().map(|column| column.to_data().get_slice_memory_size().unwrap()).sum()
}

fn megabytes(bytes: usize) -> f64 {
    f64::from(u32::try_from(bytes).unwrap()) / 1e6
}

fn folder() -> tempfile::TempDir {
    let place = std::env::var_os("LANCEMEM_BENCH_DIR");
    place.map_or_else(tempfile::tempdir, tempfile::tempdir_in).unwrap()
}

fn sync_tree(folder: &Path) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            sync_tree(&entry.path());
        } else {
            File::open(entry.path()).unwrap().sync_all().unwrap();
        }
    }
    File::open(folder).unwrap().sync_all().unwrap();
}

#[expect(clippy::disallowed_methods, reason = "the log is appended in the background")]
async fn wait_ms(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}
