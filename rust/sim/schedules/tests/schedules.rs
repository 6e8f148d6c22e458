//! Put, append, freeze, flush and read of one shard, in many orders of their tasks and locks.
//!
//! Owns: group commit, backpressure, and what a reader of the process sees meanwhile.
//! Does not own: weak memory (shuttle runs one thread at a time), time, or failing storage.
//!
//! `SCHEDULES` sets how many orders of each story are tried; shuttle prints one that fails.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use async_trait::async_trait;
use lancemem_core::Result;
use lancemem_core::format::{RowSchema, SsTable, paths};
use lancemem_core::memtable::MemTableView;
use lancemem_core::shard::{
    FixedSchema, Replay, ShardIdentity, ShardWriter, SsTableSink, WriteBatch, WriteOptions,
};
use lancemem_core::store::{ManifestStore, Store, waiting_here};
use lancemem_core::types::{KeyIndexKind, ShardId, WalPosition, WriterConfig};
use lancemem_core::wal::WalTail;
use object_store::memory::InMemory;

const PUTTERS: i64 = 3;
const PUTS: i64 = 2;

/// SSTables are only counted: they have the rows of the MemTable before them.
#[derive(Debug, Default)]
struct Counting {
    runs: AtomicUsize,
    rows: AtomicUsize,
}

#[async_trait]
impl SsTableSink for Counting {
    async fn write(&self, rows: &MemTableView) -> Result<SsTable> {
        tokio::task::yield_now().await;
        let nonce = self.runs.fetch_add(1, Ordering::Relaxed);
        self.rows.fetch_add(rows.rows(), Ordering::Relaxed);
        Ok(SsTable {
            generation: rows.generation(),
            path: paths::sstable_folder(u32::try_from(nonce).unwrap(), rows.generation()),
            in_memory_bytes: None,
            physical_rows: Some(rows.rows() as u64),
            primary_key_bytes: None,
        })
    }
}

struct Shard {
    store: Store,
    sink: Arc<Counting>,
    schema: Arc<RowSchema>,
    shard_id: ShardId,
}

impl Shard {
    async fn new() -> Self {
        let store = Store::new(Arc::new(InMemory::new()), "table".into());
        let shard_id = ShardId::from_u128(7);
        let manifests = ManifestStore::new(store.clone(), shard_id, 2);
        manifests.initialize(1, BTreeMap::new()).await.unwrap();
        let fields = ["k", "v"].map(|name| Field::new(name, DataType::Int64, name == "v")).to_vec();
        let schema = RowSchema::new(Arc::new(Schema::new(fields)), &["k".to_owned()]).unwrap();
        Self { store, sink: Arc::default(), schema: Arc::new(schema), shard_id }
    }

    async fn open(&self, config: WriterConfig) -> Arc<ShardWriter> {
        let identity = ShardIdentity::new(self.shard_id);
        let (store, sink) = (self.store.clone(), self.sink.clone());
        let columns = Arc::new(FixedSchema(self.schema.clone()));
        let opened = ShardWriter::open(store, identity, columns, sink, config).await;
        Arc::new(opened.unwrap())
    }

    /// Rows of the log behind the manifest, in order.
    async fn tail(&self) -> Vec<i64> {
        let manifests = ManifestStore::new(self.store.clone(), self.shard_id, 2);
        let manifest = manifests.latest().await.unwrap().unwrap();
        let mut replay = Replay::new(self.shard_id, self.schema.clone());
        let covered: WalPosition = manifest.replay_after_wal_entry_position;
        let mut tail = WalTail::new(self.store.clone(), self.shard_id, covered);
        replay.read_new(&mut tail, manifest.current_generation).await.unwrap();
        let memtables = replay.memtables().iter();
        memtables.flat_map(|it| values(&it.memtable.view(usize::MAX))).collect()
    }
}

fn values(view: &MemTableView) -> Vec<i64> {
    let column = |batch: &RecordBatch| batch["v"].as_primitive::<Int64Type>().values().to_vec();
    view.batches().flat_map(column).collect()
}

fn row(value: i64) -> RecordBatch {
    let column = || Arc::new(Int64Array::from(vec![value])) as arrow_array::ArrayRef;
    RecordBatch::try_from_iter([("k", column()), ("v", column())]).unwrap()
}

fn config() -> WriterConfig {
    WriterConfig::default()
        .with_key_index(KeyIndexKind::Hash)
        .with_idle_flush_interval(Duration::ZERO)
}

fn schedules(story: impl Fn() + Send + Sync + 'static) {
    let count = std::env::var("SCHEDULES").ok().and_then(|it| it.parse().ok()).unwrap_or(1_000);
    let mut settings = shuttle::Config::new();
    settings.stack_size = 0x10_0000;
    let scheduler = shuttle::scheduler::RandomScheduler::new(count);
    shuttle::Runner::new(scheduler, settings).run(story);
}

/// Starts the putters: each acknowledges its values in order.
fn start(writer: &Arc<ShardWriter>) -> Vec<tokio::task::JoinHandle<()>> {
    let put = |putter: i64| {
        let writer = writer.clone();
        tokio::spawn(async move {
            // One of them appends by itself whenever it can.
            let options = WriteOptions::default().inline(putter == 0);
            for value in 0..PUTS {
                let row = row(putter * 100 + value);
                let mut put = Box::pin(writer.write(WriteBatch::upserts(&row), options));
                let put = poll_fn(|context| waiting_here(|| put.as_mut().poll(context)));
                let acknowledged = put.await.unwrap();
                assert!(acknowledged.durable);
                let seen = writer.snapshot().unwrap();
                let there = seen.memtables.iter().flat_map(values);
                let flushed = !seen.manifest.sstables.is_empty();
                assert!(
                    flushed || there.into_iter().any(|it| it == putter * 100 + value),
                    "a durable row is readable"
                );
            }
        })
    };
    (0..PUTTERS).map(put).collect()
}

fn in_order_and_once(rows: &[i64]) {
    assert_eq!(rows.len(), usize::try_from(PUTTERS * PUTS).unwrap(), "{rows:?}");
    for putter in 0..PUTTERS {
        let own: Vec<i64> = rows.iter().copied().filter(|it| it / 100 == putter).collect();
        assert_eq!(own, (0..PUTS).map(|value| putter * 100 + value).collect::<Vec<_>>());
    }
}

#[test]
fn puts_that_share_entries_are_each_durable_once_and_in_the_order_of_memory() {
    schedules(|| {
        shuttle::future::block_on(async {
            let shard = Shard::new().await;
            let writer = shard.open(config()).await;
            for putter in start(&writer) {
                putter.await.unwrap();
            }
            let seen = writer.snapshot().unwrap();
            let memory: Vec<i64> = seen.memtables.iter().flat_map(values).collect();
            in_order_and_once(&memory);
            assert_eq!(shard.tail().await, memory);
            writer.close(false).await.unwrap();
        });
    });
}

#[test]
fn puts_that_wait_for_memory_all_get_through_and_give_it_back() {
    schedules(|| {
        shuttle::future::block_on(async {
            let shard = Shard::new().await;
            let tight = config().with_max_unflushed_memtable_bytes(1).with_max_memtable_rows(1);
            let writer = shard.open(tight).await;
            for putter in start(&writer) {
                putter.await.unwrap();
            }
            writer.flush().await.unwrap();
            assert_eq!(writer.stats().memtable_bytes, 0);
            assert_eq!(writer.stats().waiting_puts, 0);
            writer.close(true).await.unwrap();
            let rows = shard.sink.rows.load(Ordering::Relaxed);
            assert_eq!(rows, usize::try_from(PUTTERS * PUTS).unwrap());
            assert!(shard.tail().await.is_empty());
        });
    });
}

#[test]
fn a_reader_beside_freezes_and_flushes_never_goes_back() {
    schedules(|| {
        shuttle::future::block_on(async {
            let shard = Shard::new().await;
            let writer = shard.open(config().with_max_memtable_rows(2)).await;
            let putters = start(&writer);
            let reader = writer.clone();
            let reading = tokio::spawn(async move {
                let mut before = 0;
                for _ in 0..4 {
                    let seen = reader.snapshot().unwrap();
                    let flushed: u64 =
                        seen.manifest.sstables.iter().filter_map(|run| run.physical_rows).sum();
                    let live: usize = seen.memtables.iter().map(MemTableView::rows).sum();
                    let now = flushed + live as u64;
                    assert!(now >= before, "{now} rows after {before}");
                    before = now;
                    tokio::task::yield_now().await;
                }
            });
            for putter in putters {
                putter.await.unwrap();
            }
            reading.await.unwrap();
            writer.close(true).await.unwrap();
            let rows = shard.sink.rows.load(Ordering::Relaxed);
            assert_eq!(rows, usize::try_from(PUTTERS * PUTS).unwrap(), "each row once");
        });
    });
}
