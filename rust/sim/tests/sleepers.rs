//! Stories of machines that sleep for a week, or for the time of a request, on a clock that a test
//! can move.
//!
//! Owns: what fencing rests on once a collector has removed the fence, and answers of a store that
//! are too old to be trusted.
//! Does not own: shorter lives (`rust/core/tests`), or the collector's rule.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use lancemem_core::format::{SsTable, paths};
use lancemem_core::memtable::MemTableView;
use lancemem_core::shard::{FixedSchema, ShardIdentity, ShardWriter};
use lancemem_core::store::{ManifestStore, Store};
use lancemem_core::types::{
    Error, Generation, ManifestVersion, ShardId, Txn, WalPosition, WriterConfig,
};
use lancemem_testkit::{Effect, Fault, FaultyStore, Gate, KeyShape, MemorySink, Request};

const DAY: Duration = Duration::from_hours(24);
const SHAPE: KeyShape = KeyShape::Int64;

struct Shard {
    storage: Arc<FaultyStore>,
    store: Store,
    sink: Arc<MemorySink>,
    shard_id: ShardId,
}

impl Shard {
    async fn new() -> Self {
        let storage = Arc::new(FaultyStore::default());
        let store = Store::new(storage.clone(), "table".into());
        let shard = Self { storage, store, sink: Arc::default(), shard_id: ShardId::from_u128(7) };
        shard.manifests().initialize(1, BTreeMap::new()).await.unwrap();
        shard
    }

    fn manifests(&self) -> ManifestStore {
        ManifestStore::new(self.store.clone(), self.shard_id, 2)
    }

    fn manifest(&self, version: ManifestVersion) -> String {
        paths::manifest(self.shard_id, version)
    }

    async fn open(&self) -> ShardWriter {
        let identity = ShardIdentity::new(self.shard_id);
        // A flush of an idle MemTable would ask for the manifest, and so would find out.
        let config = WriterConfig::default().with_idle_flush_interval(Duration::ZERO);
        let (store, sink) = (self.store.clone(), self.sink.clone());
        let columns = Arc::new(FixedSchema(SHAPE.row_schema()));
        ShardWriter::open(store, identity, columns, sink, config).await.unwrap()
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

async fn arrived(gate: &Gate) {
    tokio::time::timeout(DAY, gate.wait_for_visitors(1)).await.expect("no visitor comes");
}

// B1
#[tokio::test(start_paused = true)]
async fn a_writer_that_slept_longer_than_its_fence_stood_acknowledges_nothing() {
    let shard = Shard::new().await;
    let asleep = Arc::new(shard.open().await);
    put(&asleep, (1, 10)).await.unwrap();
    for row in [(2, 20), (3, 30)] {
        let successor = shard.open().await;
        put(&successor, row).await.unwrap();
        successor.close(true).await.unwrap();
    }
    let highest =
        shard.manifests().latest().await.unwrap().unwrap().replay_after_wal_entry_position.get();
    // Sentinel and row of each of three writers; all but the last two are collected.
    assert_eq!(highest, 6);
    let hold = Arc::new(Gate::default());
    let effect = Effect::Hold(hold.clone());
    shard.storage.inject(Fault::new(Request::Put, &shard.entry(3), effect));
    let putting = {
        let asleep = asleep.clone();
        tokio::spawn(async move { asleep.put(&SHAPE.rows(&[(4, 40)])).await })
    };
    arrived(&hold).await;
    tokio::time::advance(DAY * 8).await;
    for position in 1..=4 {
        shard.store.delete(&shard.entry(position)).await.unwrap();
    }
    hold.open();
    let refused = putting.await.unwrap().unwrap_err();
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
    let runs = shard.manifests().latest().await.unwrap().unwrap().sstables.clone();
    assert_eq!(runs.len(), 1);
    assert_eq!(shard.sink.run(&runs[0].path).physical_rows, 30);
}

#[tokio::test(start_paused = true)]
async fn a_busy_writer_gives_way_to_a_claim_whose_fence_does_not_catch_up_with_it() {
    let shard = Shard::new().await;
    let busy = shard.open().await;
    put(&busy, (1, 10)).await.unwrap();
    let claimed = shard.manifests().claim().await.unwrap();
    put(&busy, (2, 20)).await.unwrap();
    tokio::time::advance(Duration::from_secs(11)).await;
    let of_claim = claimed.writer_epoch;
    for row in [(3, 30), (4, 40)] {
        let refused = put(&busy, row).await.unwrap_err();
        assert!(matches!(refused, Error::Fenced { stored, .. } if stored == of_claim), "{refused}");
    }
    assert!(!shard.store.exists(&shard.entry(5)).await.unwrap());
    let successor = shard.open().await;
    let rows: usize = successor.snapshot().unwrap().memtables.iter().map(MemTableView::rows).sum();
    assert_eq!(rows, 3, "what was acknowledged, and the entry that asked meanwhile");
}

/// A collector whose clock is a week ahead has removed the fence after a minute.
#[tokio::test(start_paused = true)]
async fn an_append_that_took_long_and_met_no_fence_acknowledges_nothing_behind_a_claim() {
    let shard = Shard::new().await;
    let slow = Arc::new(shard.open().await);
    put(&slow, (1, 10)).await.unwrap();
    let hold = Arc::new(Gate::default());
    shard.storage.inject(Fault::new(Request::Put, &shard.entry(3), Effect::Hold(hold.clone())));
    let putting = {
        let slow = slow.clone();
        tokio::spawn(async move { slow.put(&SHAPE.rows(&[(2, 20)])).await })
    };
    arrived(&hold).await;
    shard.manifests().claim().await.unwrap();
    tokio::time::advance(Duration::from_mins(1)).await;
    hold.open();
    let refused = putting.await.unwrap().unwrap_err();
    assert!(matches!(refused, Error::Fenced { .. }), "{refused}");
    assert!(shard.store.exists(&shard.entry(3)).await.unwrap(), "nothing stood in its way");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_a_process_slept_through_is_not_trusted() {
    let shard = Arc::new(Shard::new().await);
    let first = shard.manifests().latest().await.unwrap().unwrap().version;
    let hold = Arc::new(Gate::default());
    let later = shard.manifest(first.next());
    shard.storage.inject(Fault::new(Request::Get, &later, Effect::Hold(hold.clone())));
    let looking = {
        let shard = shard.clone();
        tokio::spawn(async move { shard.manifests().latest().await })
    };
    arrived(&hold).await;
    let owner = shard.open().await;
    for row in 0..3 {
        put(&owner, (row, row)).await.unwrap();
        owner.flush().await.unwrap();
    }
    let newest = shard.manifests().latest().await.unwrap().unwrap().version;
    tokio::time::advance(DAY * 2).await;
    // As a collector does with a version of yesterday; the look has read the version before it.
    shard.store.delete(&later).await.unwrap();
    hold.open();
    assert_eq!(looking.await.unwrap().unwrap().unwrap().version, newest);
}

#[tokio::test(start_paused = true)]
async fn an_ingest_that_learns_late_that_it_is_done_lists_no_sstable_again() {
    let shard = Arc::new(Shard::new().await);
    let run = SsTable {
        generation: Generation(0),
        path: paths::sstable_folder(1, Generation(0)),
        in_memory_bytes: None,
        physical_rows: Some(1),
        primary_key_bytes: None,
    };
    let linking = Arc::new(shard.open().await);
    let claimed = shard.manifests().latest().await.unwrap().unwrap().version;
    let hold = Arc::new(Gate::default());
    let effect = Effect::HoldAnswer(hold.clone());
    shard.storage.inject(Fault::new(Request::Put, &shard.manifest(claimed.next()), effect));
    let task = {
        let (linking, run) = (linking.clone(), run.clone());
        tokio::spawn(async move { linking.link(&[(run, Txn::new("query", 1).unwrap())]).await })
    };
    arrived(&hold).await;
    assert!(shard.manifests().latest().await.unwrap().unwrap().lists(&run.path));
    // As a compaction does with an SSTable that it has moved.
    let drain = |manifest: &mut lancemem_core::format::ShardManifest| manifest.sstables.clear();
    shard.manifests().update_beside_owner(drain).await.unwrap();
    tokio::time::advance(DAY).await;
    hold.open();
    task.await.unwrap().unwrap();
    let newest = shard.manifests().latest().await.unwrap().unwrap();
    assert!(!newest.lists(&run.path), "{newest:?}");
}
