//! Transaction ids of one shard: those that a job holds, and those that any process can read.
//!
//! Owns: the transaction ids that a job holds, by generation until the flush, and reading them
//! without a claim.
//! Does not own: the bytes. An entry of the log carries the transaction ids of its rows; the
//! manifest version that lists a generation carries the transaction ids of the generation's rows.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use crate::format::ShardManifest;
use crate::store::{ManifestStore, Store};
use crate::types::{Error, Generation, Result, ShardId, Standing, Txn, Txns, once_name};
use crate::wal::WalTail;

use super::log_read::read_beside_owner;
use super::recover::Replayed;

/// The transaction ids that a job holds.
#[derive(Debug, Default)]
pub(super) struct JobTxns {
    recorded: Txns,
    /// The transaction ids of rows whose generation the manifest does not list.
    unflushed: BTreeMap<Generation, Txns>,
}

impl JobTxns {
    /// The transaction ids in the manifest and in the log when a job begins.
    pub fn recovered(manifest: &ShardManifest, memtables: &[Replayed]) -> Self {
        let mut txns = Self { recorded: manifest.txns.clone(), unflushed: BTreeMap::new() };
        for replayed in memtables.iter().filter(|replayed| has_txns(replayed)) {
            txns.recorded.merge(&replayed.txns);
            txns.unflushed.insert(replayed.memtable.generation(), replayed.txns.clone());
        }
        txns
    }

    /// The newest version of `app_id`.
    pub fn get(&self, app_id: &str) -> Option<i64> {
        self.recorded.get(app_id)
    }

    /// Whether the write of `txn` is still to be done.
    ///
    /// # Errors
    /// Stale where a newer version is written.
    pub fn is_new(&self, shard: ShardId, txn: &Txn) -> Result<bool> {
        is_new(&self.recorded, shard, txn)
    }

    /// Remembers the transaction id of rows that go into the MemTable of `generation`.
    pub fn record(&mut self, generation: Generation, txn: &Txn) {
        self.recorded.record(txn.app_id(), txn.version());
        let unflushed = self.unflushed.entry(generation).or_default();
        unflushed.record(txn.app_id(), txn.version());
    }

    /// The transaction ids of the rows of `generation`.
    pub fn of(&self, generation: Generation) -> Txns {
        if mutant!("B26-manifest") {
            return Txns::default();
        }
        self.unflushed.get(&generation).cloned().unwrap_or_default()
    }

    /// Drops what the manifest records from now on, and what it has forgotten. `now` is given where
    /// names have expired.
    pub fn flushed(&mut self, generation: Generation, now: Option<SystemTime>) {
        let mut kept = self.unflushed.remove(&generation).unwrap_or_default();
        self.unflushed.values().for_each(|txns| kept.merge(txns));
        self.recorded.forget_old(&kept, now);
    }
}

/// Whether rows that a job found in the log came with transaction ids.
fn has_txns(replayed: &Replayed) -> bool {
    !replayed.txns.is_empty() && !mutant!("B26-log")
}

/// Whether the write of `txn` is still to be done in a shard that has recorded `recorded`.
///
/// # Errors
/// Stale where a newer version is written.
pub fn is_new(recorded: &Txns, shard: ShardId, txn: &Txn) -> Result<bool> {
    match recorded.standing(txn) {
        Standing::New => Ok(true),
        Standing::Recorded => Ok(mutant!("B26")),
        Standing::Stale(recorded) => Err(Error::Stale {
            shard,
            app_id: txn.app_id().to_owned(),
            version: txn.version(),
            recorded,
        }),
    }
}

/// Lets the newest version of every application be written once more: older versions are over, but
/// rows of the newest may be missing. The shard still remembers the SSTables that it ingested
/// without a transaction id.
pub(super) fn take_back_newest(txns: &mut Txns) {
    txns.take_back_newest(|app_id| !names_sstable(app_id));
}

/// Whether a shard remembers a staged SSTable by this name (docs/format.md, "Transaction ids").
fn names_sstable(app_id: &str) -> bool {
    once_name(app_id).is_some_and(|folder| folder.ends_with("_gen_0"))
}

/// The time by which applications in `recorded` have expired; `None` where no application has, or
/// where the store's clock cannot be read. The clock of this process decides only whether to read
/// the store's, so a process whose clock is ahead removes no transaction id of another writer.
#[expect(clippy::disallowed_methods, reason = "the clock of the store decides")]
pub(super) async fn expiry(manifests: &ManifestStore, recorded: &Txns) -> Option<SystemTime> {
    if !recorded.may_expire(SystemTime::now()) {
        return None;
    }
    manifests.store().read_clock().await.ok().map(|reading| reading.earlier())
}

/// The transaction ids of everything that is durable in a shard, read beside its owner.
///
/// # Errors
/// A storage error, or damage of the log.
pub async fn recorded_txns(store: &Store, manifests: &ManifestStore) -> Result<Txns> {
    read_beside_owner(manifests, |manifest| txns_above(store, manifest)).await
}

async fn txns_above(store: &Store, manifest: Arc<ShardManifest>) -> Result<Txns> {
    let mut txns = manifest.txns.clone();
    let after = manifest.replay_after_wal_entry_position;
    let mut tail = WalTail::new(store.clone(), manifest.shard_id, after);
    let take = |_, entry_txns| {
        txns.merge(&entry_txns);
        Ok(())
    };
    tail.read_new(|_, entry| Ok(entry.txns), take).await?;
    Ok(txns)
}
