//! Time of a scan with newer rows above the base, against a plain Lance scan of the base alone.
//!
//! Owns: the tables, the sides, which take turns, and the table of medians.
//! Does not own: peers in other languages (`benches/read`).
//!
//! `cargo bench --workspace --bench table -- scan [ROWS]`; one million base rows unless told.

#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a bench prints and stops")]

use std::sync::Arc;
use std::time::Instant;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};
use futures::TryStreamExt;
use lancemem::{Condition, Consistency, Job, LiveJob, ScanOptions, Table, WriterConfig};

use super::common::{created, job_of, median};

const RUNS: usize = 7;
const PUT_ROWS: i64 = 100_000;

/// The newer rows above the base.
#[derive(Clone, Copy)]
struct Above {
    label: &'static str,
    /// Flushed SSTables; 0 where the rows stay in memory.
    runs: i64,
    /// One key of this many is newer, in all SSTables together.
    every: i64,
    /// Whether the newer rows are tombstones.
    deletes: bool,
}

const CASES: [Above; 4] = [
    Above { label: "10 % newer, 1 MemTable", runs: 0, every: 10, deletes: false },
    Above { label: "10 % newer, 4 SSTables", runs: 4, every: 10, deletes: false },
    Above { label: "16 SSTables of 1 %", runs: 16, every: 6, deletes: false },
    Above { label: "10 % deleted, 1 SSTable", runs: 1, every: 10, deletes: true },
];

/// What is read.
#[derive(Clone, Copy)]
enum Read {
    All,
    Key,
    Count,
}

/// Compares every case with both kinds of key.
pub fn run(arguments: &[String]) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let rows = arguments.iter().find_map(|it| it.parse().ok()).unwrap_or(1_000_000);
    runtime.block_on(async {
        println!("{rows} base rows; medians of {RUNS} turns, ms");
        println!("{:<44}{:>9}{:>9}{:>9}{:>7}{:>7}", "", "plain", "first", "again", "", "");
        for text_key in [false, true] {
            for above in CASES {
                compare(rows, text_key, above).await;
            }
        }
    });
}

async fn compare(rows: i64, text_key: bool, above: Above) {
    let folder = tempfile::tempdir().unwrap();
    let uri = folder.path().to_str().unwrap();
    let (table, job) = table(uri, rows, text_key, above).await;
    let kind = if text_key { "uuid" } else { "int64" };
    for (label, read) in [("all", Read::All), ("key", Read::Key), ("count", Read::Count)] {
        let mut times = [Vec::new(), Vec::new(), Vec::new()];
        for run in 0..=RUNS {
            // A newly opened table has the files in the page cache and an empty cache of its own.
            let fresh = Table::open(uri).await.unwrap();
            warm(&fresh).await;
            let turn = [
                plain(&table, read).await,
                ours(&fresh, read, &job).await,
                ours(&fresh, read, &job).await,
            ];
            if run > 0 {
                times.iter_mut().zip(turn).for_each(|(times, time)| times.push(time));
            }
        }
        let [plain, first, again] = times.map(median);
        println!(
            "{:<44}{plain:>9.1}{first:>9.1}{again:>9.1}{:>6.2}x{:>6.2}x",
            format!("{kind}, {}, {label}", above.label),
            first / plain,
            again / plain
        );
    }
}

/// Lance's own scan of the base, without the newer rows. A count reads the key, as a count by Lance
/// of the rows with a key does.
async fn plain(table: &Table, read: Read) -> f64 {
    let base = table.latest_base().await.unwrap();
    let started = Instant::now();
    let mut scanner = base.scan();
    if !matches!(read, Read::All) {
        scanner.project(&["id"]).unwrap();
    }
    let mut stream = scanner.try_into_stream().await.unwrap();
    let mut rows = 0;
    while let Some(batch) = stream.try_next().await.unwrap() {
        rows += batch.num_rows();
    }
    assert!(rows > 0);
    started.elapsed().as_secs_f64() * 1e3
}

async fn ours(table: &Arc<Table>, read: Read, job: &[Arc<dyn LiveJob>]) -> f64 {
    let started = Instant::now();
    let columns = matches!(read, Read::Key).then(|| vec!["id".to_owned()]);
    let options = ScanOptions::default().with_columns(columns).with_consistency(Consistency::Live);
    let scan = table.scan(options, job.to_vec());
    if matches!(read, Read::Count) {
        assert!(scan.count_rows().await.unwrap() > 0);
    } else {
        let mut stream = scan.stream().await.unwrap();
        while stream.try_next().await.unwrap().is_some() {}
    }
    started.elapsed().as_secs_f64() * 1e3
}

/// Opens the SSTables and reads their keys, as an earlier read would.
async fn warm(table: &Arc<Table>) {
    let options = ScanOptions::default().with_filter(Condition::from("id IS NULL"));
    assert_eq!(table.scan(options, Vec::new()).count_rows().await.unwrap(), 0);
}

/// A table of `rows` base rows and the newer rows of `above`; the job where these are in memory.
async fn table(
    uri: &str,
    rows: i64,
    text_key: bool,
    above: Above,
) -> (Arc<Table>, Vec<Arc<dyn LiveJob>>) {
    let config = WriterConfig::default()
        .with_durable_write(false)
        .with_max_memtable_rows(1_000_000)
        .with_max_memtable_size(1 << 30)
        .with_max_unflushed_memtable_bytes(4 << 30);
    let table = created(uri, schema(text_key), config).await;
    let job = job_of(&table).await;
    put(&job, (0..rows).collect(), text_key, false).await;
    job.flush().await.unwrap();
    table.compact().await.unwrap();
    let newer: Vec<i64> = (0..rows).step_by(usize::try_from(above.every).unwrap()).collect();
    for run in 0..above.runs.max(1) {
        let (run, runs) = (usize::try_from(run).unwrap(), usize::try_from(above.runs.max(1)));
        let keys = newer.iter().skip(run).step_by(runs.unwrap()).copied().collect();
        put(&job, keys, text_key, above.deletes).await;
        if above.runs > 0 {
            job.flush().await.unwrap();
        }
    }
    if above.runs == 0 {
        return (table, vec![job]);
    }
    job.close(false).await.unwrap();
    (table, Vec::new())
}

async fn put(job: &Job, ids: Vec<i64>, text_key: bool, deletes: bool) {
    for ids in ids.chunks(usize::try_from(PUT_ROWS).unwrap()) {
        let rows = batch(ids, text_key);
        if deletes {
            job.delete(&rows.project(&[0]).unwrap()).await.unwrap();
        } else {
            job.put(&rows).await.unwrap();
        }
    }
}

fn schema(text_key: bool) -> Arc<Schema> {
    let id = if text_key { DataType::Utf8 } else { DataType::Int64 };
    let id = Field::new("id", id, false);
    Arc::new(Schema::new(vec![id, Field::new("text", DataType::Utf8, true)]))
}

fn batch(ids: &[i64], text_key: bool) -> RecordBatch {
    let texts = StringArray::from_iter_values(ids.iter().map(|id| format!("{id:0>100}")));
    let keys: ArrayRef = if text_key {
        Arc::new(StringArray::from_iter_values(ids.iter().map(|id| uuid(*id))))
    } else {
        Arc::new(Int64Array::from(ids.to_vec()))
    };
    RecordBatch::try_new(schema(text_key), vec![keys, Arc::new(texts)]).unwrap()
}

/// A string that looks like a random UUID and is always the same for a number.
fn uuid(id: i64) -> String {
    let mixed = id.cast_unsigned().wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let rest = mixed.rotate_left(29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    format!(
        "{:08x}-{:04x}-4{:03x}-a{:03x}-{:012x}",
        mixed >> 32,
        mixed & 0xffff,
        rest >> 52,
        (rest >> 40) & 0xfff,
        rest & 0xffff_ffff_ffff
    )
}
