//! Time of lookups by key: one and many keys, on a snapshot and through `Table::get`.
//!
//! Owns: a base of 1,000,000 rows of a key + 100 bytes with a B-tree on the key, five flushed
//! SSTables of 20,000 newer rows each above it, warm; and the key index of a MemTable of 100,000
//! rows.
//! Does not own: peers (`read`).
//!
//! `cargo bench --workspace --bench table -- lookup`

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::cast_precision_loss,
    reason = "a bench prints and stops, and counts less than 2^52"
)]

use std::sync::Arc;
use std::time::Instant;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};
use lance::Dataset;
use lance::index::DatasetIndexExt;
use lance_index::IndexType;
use lance_index::scalar::ScalarIndexParams;
use lancemem::lookup;
use lancemem::{Consistency, Table, WriterConfig};
use lancemem_core::format::{KeyEncoder, RowSchema};
use lancemem_core::memtable::{EncodeKeys, MemTable, MemTableLayout, MemTableView};
use lancemem_core::types::{Generation, KeyBlock, KeyIndexKind};

use super::common::{created, job_of, median};

const BASE_ROWS: i64 = 1_000_000;
const RUNS: i64 = 5;
const SSTABLE_ROWS: i64 = 20_000;
const ONE_KEY_CALLS: usize = 2_000;
const MANY_KEYS: usize = 1_000;
const MANY_KEYS_CALLS: usize = 60;
const MEMTABLE_ROWS: i64 = 100_000;

#[derive(Clone, Copy, Debug)]
enum Kind {
    Int64,
    Uuid,
}

/// Measures both kinds of key.
pub fn run(_: &[String]) {
    for kind in [Kind::Int64, Kind::Uuid] {
        memtable(kind);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    for kind in [Kind::Int64, Kind::Uuid] {
        runtime.block_on(table(kind));
    }
}

async fn table(kind: Kind) {
    let folder = tempfile::tempdir().unwrap();
    let table = built(kind, folder.path().join("t.lance").to_str().unwrap()).await;
    let columns = ["id".to_owned(), "text".to_owned()];
    let mut numbers = Numbers(7);
    let snapshot = table.snapshot(Consistency::Durable, &[]).await.unwrap();

    let mut one = Vec::new();
    let mut call = Vec::new();
    let mut pins = Vec::new();
    for _ in 0..ONE_KEY_CALLS {
        let keys = keys(kind, [numbers.below(BASE_ROWS)]);
        one.push(timed(|| lookup::find(&snapshot, &keys, &columns)).await);
        call.push(timed(|| table.get(&keys, None, Consistency::Durable, &[])).await);
        let started = Instant::now();
        table.snapshot(Consistency::Durable, &[]).await.unwrap();
        pins.push(started.elapsed().as_secs_f64() * 1e6);
    }
    print(kind, "one key, pinned cut", one);
    print(kind, "one key, Table::get", call);
    print(kind, "pinning a cut", pins);

    let (mut many, mut call) = (Vec::new(), Vec::new());
    for _ in 0..MANY_KEYS_CALLS {
        let keys = keys(kind, (0..MANY_KEYS).map(|_| numbers.below(BASE_ROWS)));
        many.push(timed(|| lookup::find(&snapshot, &keys, &columns)).await);
        call.push(timed(|| table.get(&keys, None, Consistency::Durable, &[])).await);
    }
    print(kind, "1,000 keys, pinned cut", many);
    print(kind, "1,000 keys, Table::get", call);
    println!("{kind:?} cache: {:?}", table.cache_stats());
}

/// Microseconds of one lookup, all of whose keys must be found.
async fn timed<F>(lookup: impl FnOnce() -> F) -> f64
where
    F: Future<Output = lancemem::Result<lookup::FoundRows>>,
{
    let started = Instant::now();
    let found = lookup().await.unwrap();
    let time = started.elapsed().as_secs_f64() * 1e6;
    assert!(found.missing.is_empty() && found.num_rows() > 0);
    time
}

fn print(kind: Kind, what: &str, mut times: Vec<f64>) {
    // The first calls fill the cache.
    times.drain(..times.len() / 10);
    times.sort_by(f64::total_cmp);
    let at = |share: usize| times[times.len() * share / 100];
    println!("{kind:?} {what:<24} p50 {:>8.0} us   p99 {:>8.0} us", at(50), at(99));
}

async fn built(kind: Kind, uri: &str) -> Arc<Table> {
    let config = WriterConfig::default()
        .with_durable_write(false)
        .with_fsync(false)
        .with_max_memtable_rows(2_000_000)
        .with_max_memtable_size(1 << 30);
    let table = created(uri, schema(kind), config).await;
    put(&table, kind, 0..BASE_ROWS, 1).await;
    table.compact().await.unwrap();
    let mut base = Dataset::open(uri).await.unwrap();
    base.create_index(&["id"], IndexType::BTree, None, &ScalarIndexParams::default(), false)
        .await
        .unwrap();
    let step = BASE_ROWS / SSTABLE_ROWS;
    for run in 0..RUNS {
        put(&table, kind, run..BASE_ROWS, step).await;
    }
    let stats = table.stats().await.unwrap();
    assert_eq!((stats.base_rows, stats.sstables), (1_000_000, 5));
    table
}

async fn put(table: &Arc<Table>, kind: Kind, numbers: std::ops::Range<i64>, step: i64) {
    let job = job_of(table).await;
    let numbers: Vec<i64> = numbers.step_by(usize::try_from(step).unwrap()).collect();
    for numbers in numbers.chunks(100_000) {
        job.put(&rows(kind, numbers.iter().copied())).await.unwrap();
    }
    job.close(true).await.unwrap();
}

fn schema(kind: Kind) -> Arc<Schema> {
    let key = match kind {
        Kind::Int64 => DataType::Int64,
        Kind::Uuid => DataType::Utf8,
    };
    let id = Field::new("id", key, false);
    Arc::new(Schema::new(vec![id, Field::new("text", DataType::Utf8, true)]))
}

fn key_column(kind: Kind, numbers: impl IntoIterator<Item = i64>) -> ArrayRef {
    match kind {
        Kind::Int64 => Arc::new(Int64Array::from_iter_values(numbers)),
        Kind::Uuid => Arc::new(StringArray::from_iter_values(numbers.into_iter().map(uuid))),
    }
}

/// A number spread over the text of a UUID, the same one each time.
fn uuid(number: i64) -> String {
    let (high, low) = (mix(number.cast_unsigned()), mix(number.cast_unsigned() ^ (1 << 40)));
    uuid::Uuid::from_u64_pair(high, low).to_string()
}

const fn mix(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

fn rows(kind: Kind, numbers: impl Iterator<Item = i64> + Clone) -> RecordBatch {
    let text = numbers.clone().map(|number| format!("{:0>100}", mix(number.cast_unsigned())));
    let text: ArrayRef = Arc::new(StringArray::from_iter_values(text));
    RecordBatch::try_new(schema(kind), vec![key_column(kind, numbers), text]).unwrap()
}

fn keys(kind: Kind, numbers: impl IntoIterator<Item = i64>) -> RecordBatch {
    let id = Arc::new(Schema::new(vec![schema(kind).field(0).clone()]));
    RecordBatch::try_new(id, vec![key_column(kind, numbers)]).unwrap()
}

/// Numbers in an order that no prefetcher predicts, the same in each run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: i64) -> i64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        i64::try_from(mix(self.0) % end.cast_unsigned()).unwrap()
    }
}

#[derive(Debug)]
struct Keys(KeyEncoder);

impl EncodeKeys for Keys {
    fn encode_block(&self, batch: &RecordBatch) -> KeyBlock {
        self.0.encode_block(batch)
    }
}

/// The key index of a MemTable: from a key to its row, and to the row's batch.
fn memtable(kind: Kind) {
    for index in [KeyIndexKind::Hash, KeyIndexKind::SkipList] {
        let accept = RowSchema::new(schema(kind), &["id".to_owned()]).unwrap();
        let layout = MemTableLayout {
            schema: accept.storage().clone(),
            key: Some(Arc::new(Keys(accept.key().clone()))),
            index,
            rule: None,
            fold: None,
        };
        let memtable = Arc::new(MemTable::new(Generation(1), layout));
        let numbers: Vec<i64> = (0..MEMTABLE_ROWS).collect();
        for numbers in numbers.chunks(1_000) {
            let batch = accept.accept(&rows(kind, numbers.iter().copied())).unwrap().batch;
            memtable.push(batch, None, 0);
        }
        let snapshot = memtable.view(usize::MAX);
        let mut order = Numbers(3);
        let asked = keys(kind, (0..MEMTABLE_ROWS).map(|_| order.below(MEMTABLE_ROWS)));
        let asked =
            KeyEncoder::new(asked.schema_ref(), &["id".to_owned()]).unwrap().encode_block(&asked);
        find_all(&snapshot, &asked);
        let (mut one, mut two) = (Vec::new(), Vec::new());
        for _ in 0..9 {
            one.push(threads(&snapshot, &asked, 1));
            two.push(threads(&snapshot, &asked, 2));
        }
        let (one, two) = (median(one), median(two));
        println!(
            "{kind:?} MemTable, {index:?} index: {one:.0} ns a get, two threads {:.2}x",
            one / two
        );
    }
}

/// Nanoseconds of a get, over all threads together.
fn threads(snapshot: &MemTableView, asked: &KeyBlock, threads: usize) -> f64 {
    let started = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| find_all(snapshot, asked));
        }
    });
    started.elapsed().as_secs_f64() * 1e9 / (asked.len() * threads) as f64
}

fn find_all(snapshot: &MemTableView, asked: &KeyBlock) {
    let mut rows = 0;
    for key in asked.iter() {
        let (batch, row) = snapshot.locate(snapshot.newest(key).unwrap());
        rows += usize::from(row < batch.num_rows());
    }
    assert_eq!(rows, asked.len());
}
