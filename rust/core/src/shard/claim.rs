//! Taking a shard: claim, fence, replay, and only then accept rows.
//!
//! Owns: the order of those steps, and which rows belong to the shard.
//! Does not own: what a failed claim means to the caller.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use arrow_array::RecordBatch;
use parking_lot::{Mutex, RwLock};
use tokio::sync::{Notify, watch};

use super::admission::Admission;
use super::flush::FlushProgress;
use super::recover::Replay;
use super::state::{LiveMemTable, ShardState};
use super::stats::Counters;
use super::writer::{ShardWriter, Shared};
use super::{SsTableSink, memtable_layout};
use crate::format::{RowSchema, ShardManifest, Sharding};
use crate::memtable::MemTable;
use crate::store::{ManifestStore, Store};
use crate::types::{Error, Generation, KeyIndexKind, Result, ShardId, WalPosition, WriterConfig};
use crate::wal::{WalAppender, WalQueue, WalTail};

/// A shard and the rows that belong to it.
#[derive(Clone, Debug)]
pub struct ShardIdentity {
    /// The shard.
    pub shard_id: ShardId,
    /// The table's sharding and this shard's ordinal in it; `None` for a manual shard, whose
    /// rows nothing but the caller can know.
    pub routing: Option<(Sharding, i32)>,
}

impl ShardIdentity {
    /// Refuses rows that another shard owns: two shards would show two versions of one key.
    ///
    /// # Errors
    /// An input error that names the first such row.
    pub(super) fn refuse_foreign_rows(&self, batch: &RecordBatch) -> Result<()> {
        let Some((sharding, own)) = &self.routing else { return Ok(()) };
        let ordinals = sharding.ordinals(batch)?;
        let Some(row) = ordinals.iter().position(|ordinal| ordinal != own) else {
            return Ok(());
        };
        let column = match sharding {
            Sharding::Bucket { column, .. } => column.as_str(),
            Sharding::Unsharded => "",
        };
        Err(Error::input(format!(
            "row {row} belongs to shard {} by its column '{column}', this job owns shard {own}",
            ordinals[row]
        )))
    }
}

impl ShardWriter {
    /// Claims the shard and returns its writer with everything that was durable in memory.
    ///
    /// Steps: check the settings, so that a doomed call never fences a healthy writer; claim
    /// the next epoch; fence the log; replay it; prove once more that the epoch is ours.
    ///
    /// # Errors
    /// Fenced where another claim won; damage where the log cannot be replayed whole.
    pub async fn open(
        store: Store,
        identity: ShardIdentity,
        schema: Arc<RowSchema>,
        sink: Arc<dyn SsTableSink>,
        config: WriterConfig,
    ) -> Result<Self> {
        config.validate()?;
        let shard_id = identity.shard_id;
        let scan_batch = config.manifest_scan_batch_size;
        let manifests = Arc::new(ManifestStore::new(store.clone(), shard_id, scan_batch));
        let manifest = manifests.claim().await?;
        let epoch = manifest.writer_epoch;
        let appender =
            WalAppender::fence(store.clone(), manifests.clone(), &manifest, &config).await?;
        let replay =
            replay_below(store, &manifest, &schema, config.key_index, appender.next_position())
                .await?;
        manifests.check_fenced(epoch).await?;

        let (state, last_positions) = recovered_state(manifest, &schema, config.key_index, &replay);
        let recovered_bytes = state.memtables().map(|live| live.memtable.bytes()).sum();
        let queue = WalQueue::new(config.max_wal_buffer_size);
        let shared = Arc::new(Shared {
            shard_id,
            identity,
            epoch,
            schema,
            config,
            manifests,
            sink,
            queue,
            placing: Mutex::new(()),
            state: RwLock::new(Arc::new(state)),
            last_positions: Mutex::new(last_positions),
            admission: Admission::with_recovered(recovered_bytes),
            acknowledged: AtomicU64::new(0),
            unindexed: Notify::new(),
            frozen: Notify::new(),
            flushes: watch::Sender::new(FlushProgress::default()),
            counters: Counters::default(),
            closed: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
        });
        tokio::spawn(shared.clone().run_appends(appender));
        tokio::spawn(shared.clone().run_flushes());
        tokio::spawn(shared.clone().run_indexing());
        Ok(Self { shared })
    }
}

/// Every entry that the manifest does not cover, up to our own sentinel.
async fn replay_below(
    store: Store,
    manifest: &ShardManifest,
    schema: &Arc<RowSchema>,
    index: KeyIndexKind,
    end: WalPosition,
) -> Result<Replay> {
    let after = manifest.replay_after_wal_entry_position;
    let mut replay = Replay::new(manifest.shard_id, schema.clone()).with_index(index);
    let mut tail = WalTail::new(store, manifest.shard_id, after);
    for entry in tail.read_new().await? {
        if entry.entry.writer_epoch > manifest.writer_epoch {
            return Err(Error::Fenced {
                shard: manifest.shard_id,
                local: manifest.writer_epoch,
                stored: entry.entry.writer_epoch,
            });
        }
        replay.apply(&entry, manifest.current_generation)?;
    }
    if tail.next_position() != end {
        return Err(Error::corrupt(
            format!("the WAL of shard {}", manifest.shard_id),
            "hole",
            format!("replay ended before entry {}, expected {end}", tail.next_position()),
        ));
    }
    Ok(replay)
}

/// The newest replayed MemTable goes on as the active one; older ones wait for their flush.
fn recovered_state(
    manifest: Arc<ShardManifest>,
    schema: &Arc<RowSchema>,
    index: KeyIndexKind,
    replay: &Replay,
) -> (ShardState, BTreeMap<Generation, WalPosition>) {
    let mut live: Vec<LiveMemTable> = replay
        .memtables()
        .iter()
        .map(|replayed| LiveMemTable {
            memtable: replayed.memtable.clone(),
            recovered: replayed.memtable.batches(),
            first_queued: 0,
        })
        .collect();
    let last_positions = replay
        .memtables()
        .iter()
        .map(|replayed| (replayed.memtable.generation(), replayed.last_position))
        .collect();
    let active = live.pop().unwrap_or_else(|| LiveMemTable {
        memtable: Arc::new(MemTable::new(
            manifest.current_generation,
            memtable_layout(schema, index),
        )),
        recovered: 0,
        first_queued: 0,
    });
    (ShardState { manifest, frozen: live, active }, last_positions)
}
