//! The claim of a shard: read its log, claim, fence, read the rest, and only then accept rows.
//!
//! Owns: the order of these steps, and which rows belong to the shard.
//! Does not own: how the caller handles a failed claim.
//!
//! The log is read before the claim, because a claim fences the incumbent. An open that cannot
//! succeed must not stop a healthy writer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use arrow_array::RecordBatch;
use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::admission::Admission;
use super::append::GroupCommit;
use super::flush::Flusher;
use super::follow::{SchemaFollower, newest_schema};
use super::recover::{Replay, Replayed};
use super::state::{LiveMemTable, ShardState};
use super::stats::PutCounters;
use super::transactions::JobTxns;
use super::turn::ClaimTurn;
use super::writer::{ShardWriter, Shared};
use super::{SchemaSource, SsTableSink, memtable_layout};
use crate::format::{RowSchema, ShardManifest, Sharding};
use crate::memtable::MemTable;
use crate::store::{ManifestStore, Store};
use crate::types::{
    Error, Generation, KeyIndexKind, Result, ShardId, WalPosition, WriterConfig, WriterEpoch,
};
use crate::wal::{Queued, WalAppender, WalQueue, WalTail};

/// Most reads of the log by one open; it reads again where the incumbent flushed meanwhile.
const READS: usize = 8;

/// A shard and the rows that belong to it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ShardIdentity {
    /// The shard.
    pub shard_id: ShardId,
    /// The table's sharding and this shard's ordinal in it; `None` for a manual shard, whose rows
    /// the caller alone chooses.
    pub routing: Option<(Sharding, i32)>,
    /// The [`Sharding::record`] of the table; `None` for a manual shard.
    pub sharding: Option<String>,
    /// The URI of the table, for log lines.
    pub table: Option<String>,
}

impl ShardIdentity {
    /// A manual shard.
    #[must_use]
    pub const fn new(shard_id: ShardId) -> Self {
        Self { shard_id, routing: None, sharding: None, table: None }
    }

    /// Sets [`Self::routing`].
    #[must_use]
    pub fn with_routing(self, routing: impl Into<Option<(Sharding, i32)>>) -> Self {
        Self { routing: routing.into(), ..self }
    }

    /// Sets [`Self::sharding`].
    #[must_use]
    pub fn with_sharding(self, sharding: impl Into<Option<String>>) -> Self {
        Self { sharding: sharding.into(), ..self }
    }

    /// Sets [`Self::table`].
    #[must_use]
    pub fn with_table(self, table: impl Into<Option<String>>) -> Self {
        Self { table: table.into(), ..self }
    }

    /// Refuses a routing under which no row could ever belong to the shard.
    fn validate(&self, schema: &RowSchema) -> Result<()> {
        let Some((sharding, own)) = &self.routing else { return Ok(()) };
        sharding.validate(schema.logical(), schema.key().names())?;
        if u32::try_from(*own).is_ok_and(|own| own < sharding.shards()) {
            return Ok(());
        }
        Err(Error::input(format!(
            "shard {} holds bucket {own}, the table's sharding has only {} buckets",
            self.shard_id,
            sharding.shards()
        )))
    }

    /// Records the sharding of this job's rows in the manifest of a claim.
    ///
    /// # Errors
    /// An input error where the manifest records another sharding: under two shardings, a key could
    /// have rows in two shards.
    fn record_in(&self, claimed: &mut ShardManifest) -> Result<()> {
        match (&claimed.sharding, &self.sharding) {
            (Some(there), Some(own)) if there != own => Err(Error::input(format!(
                "shard {} belongs to the sharding {there}, this job routes by {own}",
                self.shard_id
            ))),
            (Some(there), None) => Err(Error::input(format!(
                "shard {} belongs to the sharding {there}, and the table's index has none: this \
                 job would accept keys of other shards",
                self.shard_id
            ))),
            (None, Some(own)) => {
                claimed.sharding = Some(own.clone());
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Refuses rows that another shard owns, because two shards would show two rows of one key.
    ///
    /// # Errors
    /// An input error that names the first such row.
    pub(super) fn refuse_foreign_rows(&self, batch: &RecordBatch) -> Result<()> {
        // An unsharded table has one shard, which owns every row.
        let Some((sharding @ Sharding::Bucket { column, .. }, own)) = &self.routing else {
            return Ok(());
        };
        let ordinals = sharding.ordinals(batch)?;
        let Some(row) = ordinals.iter().position(|ordinal| ordinal != own) else {
            return Ok(());
        };
        Err(Error::input(format!(
            "row {row} belongs to shard {} by its column '{column}', this job owns shard {own}; a \
             writer of the table sends each row to its shard",
            ordinals[row]
        )))
    }
}

impl ShardWriter {
    /// Claims the shard and returns its writer, with all durable rows of the log in memory.
    ///
    /// Steps: check the settings and read the log, so that a call that must fail never fences a
    /// healthy writer; claim the next epoch; fence the log; read the entries that came meanwhile;
    /// check again that no later claim exists.
    ///
    /// # Errors
    /// Fenced where another claim won; damage where the log cannot be replayed in full.
    pub async fn open(
        store: Store,
        identity: ShardIdentity,
        source: Arc<dyn SchemaSource>,
        sink: Arc<dyn SsTableSink>,
        config: WriterConfig,
    ) -> Result<Self> {
        Self::open_by(store, identity, source, sink, config, None).await
    }

    /// As [`Self::open`], for a write of one put. A recent claim of another process is left alone
    /// until its rows are in the log, under the rules of `turn`. The claim is released from its
    /// start: a later claim waits for the put, or the call claims again.
    ///
    /// # Errors
    /// As [`Self::open`]; retry where the turn does not come within the time of `turn`.
    pub async fn open_in_turn(
        store: Store,
        identity: ShardIdentity,
        source: Arc<dyn SchemaSource>,
        sink: Arc<dyn SsTableSink>,
        config: WriterConfig,
        turn: &ClaimTurn,
    ) -> Result<Self> {
        Self::open_by(store, identity, source, sink, config, Some(turn)).await
    }

    async fn open_by(
        store: Store,
        identity: ShardIdentity,
        source: Arc<dyn SchemaSource>,
        sink: Arc<dyn SsTableSink>,
        config: WriterConfig,
        turn: Option<&ClaimTurn>,
    ) -> Result<Self> {
        let started = Instant::now();
        let (shard_id, scan_batch) = (identity.shard_id, config.manifest_scan_batch_size);
        let manifests = Arc::new(ManifestStore::new(store.clone(), shard_id, scan_batch));
        if mutant!("B21") {
            manifests.claim().await?;
        }
        config.validate()?;
        let schema = source.known();
        identity.validate(&schema)?;
        let empty = Replay::new(shard_id, schema.clone()).with_index(config.key_index);
        let mut recovery = Recovery::read(&store, &manifests, &empty).await?;

        let record = |claimed: &mut ShardManifest| {
            identity.record_in(claimed)?;
            if let Some(turn) = turn {
                turn.check_released(claimed)?;
            }
            claimed.released = turn.map(|_| claimed.writer_epoch);
            Ok(())
        };
        let manifest = match turn {
            Some(turn) => turn.claim(&store, &manifests, &mut recovery, record).await?,
            None => manifests.claim_with(record).await?,
        };
        let epoch = manifest.writer_epoch;
        let appender = WalAppender::fence(store, manifests.clone(), &manifest, &config).await?;
        let rest = recovery.finish(&manifest, appender.sentinel(), source.as_ref(), schema).await;
        // A later claim explains any state of the log, so it is reported first.
        manifests.check_fenced(epoch).await?;
        let (rest, schema) = rest?;
        let txns = JobTxns::recovered(&manifest, &rest);
        let (state, last_positions) = recovered_state(manifest, &schema, config.key_index, &rest);
        let recovered_bytes = state.memtables().map(|live| live.memtable.bytes()).sum();

        let queue = WalQueue::new(config.buffer_bytes(config.max_wal_buffer_size));
        if mutant!("B11") {
            append_again(&queue, &state);
        }
        let shared = Arc::new(Shared {
            shard_id,
            identity,
            epoch,
            started,
            config,
            follower: SchemaFollower::new(source, schema),
            log: GroupCommit::new(shard_id, queue, appender, last_positions),
            flusher: Flusher::new(sink, manifests, txns),
            placing: Mutex::new(()),
            state: RwLock::new(Arc::new(state)),
            admission: Admission::with_recovered(recovered_bytes),
            acknowledged: AtomicU64::new(0),
            unindexed: Notify::new(),
            counters: PutCounters::default(),
            closed: AtomicBool::new(false),
            closing: tokio::sync::Mutex::default(),
            stopped: AtomicBool::new(false),
        });
        shared.start();
        shared.log_claim();
        Ok(Self { shared })
    }
}

impl Shared {
    /// Starts the tasks beside the puts.
    fn start(self: &Arc<Self>) {
        tokio::spawn(self.clone().run_appends());
        tokio::spawn(self.clone().run_flushes());
        tokio::spawn(self.clone().run_indexing());
    }
}

/// The rows of a shard's log, read in two parts: before the claim and after it.
pub(super) struct Recovery {
    store: Store,
    /// The newest manifest when the log was read.
    manifest: Arc<ShardManifest>,
    tail: WalTail,
    replay: Replay,
}

impl Recovery {
    fn new(store: Store, manifest: Arc<ShardManifest>, replay: Replay) -> Self {
        let (shard_id, after) = (manifest.shard_id, manifest.replay_after_wal_entry_position);
        let after = if mutant!("B12") { WalPosition(0) } else { after };
        let tail = WalTail::new(store.clone(), shard_id, after);
        Self { store, manifest, tail, replay }
    }

    /// Reads the log and writes nothing.
    ///
    /// A flush of the incumbent covers entries, whose files may then be removed or repaired. So an
    /// error of the read counts only where the manifest has not changed since.
    async fn read(store: &Store, manifests: &ManifestStore, empty: &Replay) -> Result<Self> {
        let mut manifest = manifests.claimable().await?;
        let mut reads = 1;
        loop {
            let mut recovery = Self::new(store.clone(), manifest.clone(), empty.clone());
            let current = manifest.current_generation;
            let Err(error) = recovery.replay.read_new(&mut recovery.tail, current).await else {
                return Ok(recovery);
            };
            match manifests.claimable().await {
                Ok(newest) if newest.version > manifest.version && reads < READS => {
                    manifest = newest;
                    reads += 1;
                }
                _ => return Err(error),
            }
        }
    }

    /// The newest manifest when the log was read.
    pub(super) const fn manifest(&self) -> &Arc<ShardManifest> {
        &self.manifest
    }

    /// The epoch of the writer whose rows are the newest in the log.
    pub(super) const fn author(&self) -> Option<WriterEpoch> {
        self.replay.author()
    }

    /// Adds the entries that were appended since, and writes nothing.
    pub(super) async fn follow(&mut self, manifests: &ManifestStore) -> Result<()> {
        self.manifest = manifests.claimable().await?;
        self.tail.skip_covered(self.manifest.replay_after_wal_entry_position);
        let current = self.manifest.current_generation;
        if self.replay.read_new(&mut self.tail, current).await.is_err() {
            // A flush may have covered the entries that look damaged.
            let empty = self.replay.clone().emptied();
            *self = Self::read(&self.store, manifests, &empty).await?;
        }
        Ok(())
    }

    /// Adds the entries that the incumbent appended meanwhile, up to this claim's `sentinel`, and
    /// drops the generations that it flushed. `manifest` is the version of this claim; the
    /// incumbent writes no later version.
    ///
    /// Rows of other columns than `schema` may have a newer schema. Their writer is fenced, so the
    /// table's schema is at least as new now, and the log is read again under the table's schema.
    async fn finish(
        mut self,
        manifest: &Arc<ShardManifest>,
        sentinel: WalPosition,
        source: &dyn SchemaSource,
        schema: Arc<RowSchema>,
    ) -> Result<(Vec<Replayed>, Arc<RowSchema>)> {
        self = self.read_rest(manifest, sentinel).await?;
        if !self.replay.has_other_columns() {
            return Ok((self.replay.memtables().to_vec(), schema));
        }
        let newest = newest_schema(source).await?;
        if newest.has_columns_of(&schema) {
            return Ok((self.replay.memtables().to_vec(), schema));
        }
        let replay = self.replay.under(newest.clone());
        self = Self::new(self.store, manifest.clone(), replay);
        self = self.read_rest(manifest, sentinel).await?;
        Ok((self.replay.memtables().to_vec(), newest))
    }

    async fn read_rest(
        mut self,
        manifest: &Arc<ShardManifest>,
        sentinel: WalPosition,
    ) -> Result<Self> {
        if self.replay.disagrees_with(manifest) {
            self = Self::new(self.store, manifest.clone(), self.replay.emptied());
        }
        let current = manifest.current_generation;
        self.replay.forget_flushed(current);
        self.tail.skip_covered(manifest.replay_after_wal_entry_position);
        if !mutant!("B4") {
            self.replay.read_to(&mut self.tail, sentinel, current).await?;
        }
        Ok(self)
    }
}

/// The mutant `B11`: recovered rows are appended once more, although the log has them.
fn append_again(queue: &WalQueue, state: &ShardState) {
    for live in state.memtables() {
        let generation = live.memtable.generation();
        for batch in live.memtable.view(usize::MAX).batches().cloned() {
            queue.push(Queued { generation, batch, bytes: 0, txn: None });
        }
    }
}

/// The state after a replay: the newest MemTable is the active one, older ones wait for their
/// flush.
fn recovered_state(
    manifest: Arc<ShardManifest>,
    schema: &Arc<RowSchema>,
    index: KeyIndexKind,
    memtables: &[Replayed],
) -> (ShardState, BTreeMap<Generation, WalPosition>) {
    let mut live: Vec<LiveMemTable> = memtables
        .iter()
        .map(|replayed| LiveMemTable {
            memtable: replayed.memtable.clone(),
            recovered: replayed.memtable.batches(),
            first_queued: 0,
        })
        .collect();
    let last_positions = memtables
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
