//! Stories of a writer that sleeps for a week, on a clock that a test can move.
//!
//! Owns: what fencing rests on once a collector has removed the fence.
//! Does not own: shorter lives (`rust/core/tests`), or the collector's rule.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use lancemem_core::format::paths;
use lancemem_core::shard::{ShardIdentity, ShardWriter};
use lancemem_core::store::{ManifestStore, Store};
use lancemem_core::types::{Error, ShardId, WalPosition, WriterConfig};
use lancemem_testkit::{KeyShape, MemorySink};
use object_store::memory::InMemory;

const DAY: Duration = Duration::from_hours(24);
const SHAPE: KeyShape = KeyShape::Int64;

struct Shard {
    store: Store,
    sink: Arc<MemorySink>,
    shard_id: ShardId,
}

impl Shard {
    async fn new() -> Self {
        let store = Store::new(Arc::new(InMemory::new()), "table".into());
        let shard_id = ShardId::from_u128(7);
        ManifestStore::new(store.clone(), shard_id, 2)
            .initialize(1, BTreeMap::new())
            .await
            .unwrap();
        Self { store, sink: Arc::default(), shard_id }
    }

    async fn open(&self) -> ShardWriter {
        let identity = ShardIdentity { shard_id: self.shard_id, routing: None };
        // A flush of an idle MemTable would ask for the manifest, and so would find out.
        let config = WriterConfig { idle_flush_interval: Duration::ZERO, ..Default::default() };
        let (store, sink) = (self.store.clone(), self.sink.clone());
        ShardWriter::open(store, identity, SHAPE.row_schema(), sink, config).await.unwrap()
    }

    fn entry(&self, position: u64) -> String {
        paths::wal_entry(self.shard_id, WalPosition(position))
    }
}

async fn put(writer: &ShardWriter, row: (i64, i64)) -> Result<(), Error> {
    let batch = SHAPE.rows(&[row]);
    let put = tokio::time::timeout(DAY, writer.put(&batch));
    put.await.expect("the put hangs").map(|_| ())
}

// B1
#[tokio::test(start_paused = true)]
async fn a_writer_that_slept_longer_than_its_fence_stood_acknowledges_nothing() {
    let shard = Shard::new().await;
    let asleep = shard.open().await;
    put(&asleep, (1, 10)).await.unwrap();
    for row in [(2, 20), (3, 30)] {
        let successor = shard.open().await;
        put(&successor, row).await.unwrap();
        successor.close(true).await.unwrap();
    }
    let highest = ManifestStore::new(shard.store.clone(), shard.shard_id, 2)
        .latest()
        .await
        .unwrap()
        .unwrap()
        .replay_after_wal_entry_position
        .get();
    // Sentinel and row of each of three writers; all but the last two are collected.
    assert_eq!(highest, 6);
    tokio::time::advance(DAY * 8).await;
    for position in 1..=4 {
        shard.store.delete(&shard.entry(position)).await.unwrap();
    }
    let refused = put(&asleep, (4, 40)).await.unwrap_err();
    assert!(matches!(refused, Error::Fenced { .. }), "{refused}");
    assert!(asleep.snapshot().is_err(), "it serves no reads either");
    assert!(shard.store.exists(&shard.entry(3)).await.unwrap(), "nothing stood in its way");
}

#[tokio::test(start_paused = true)]
async fn a_writer_that_was_idle_for_a_month_and_still_owns_its_shard_goes_on() {
    let shard = Shard::new().await;
    let writer = shard.open().await;
    for day in 0..30 {
        put(&writer, (day, day)).await.unwrap();
        tokio::time::advance(DAY).await;
    }
    writer.close(true).await.unwrap();
    let manifest = ManifestStore::new(shard.store.clone(), shard.shard_id, 2).latest().await;
    let runs = manifest.unwrap().unwrap().sstables.clone();
    assert_eq!(runs.len(), 1);
    assert_eq!(shard.sink.run(&runs[0].path).physical_rows, 30);
}
