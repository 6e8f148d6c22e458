//! The shards of a table, found in its store.
//!
//! Owns: the shard of each ordinal, from the buckets that shard manifests record, and the refusal
//! of rows of another sharding.
//! Does not own: the contents of manifests.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use async_recursion::async_recursion as boxed;
use futures::future::{BoxFuture, try_join_all};
use lancemem_core::format::{ShardManifest, Sharding, SsTable, paths};
use lancemem_core::shard::{check_empty, take_over};
use lancemem_core::store::{ManifestStore, Store};
use lancemem_core::types::{Error, Generation, Result, ShardId, WalPosition, WriterEpoch};

use super::claims::ShardTurns;
use super::logs::ShardLog;
use super::progress::compacted_of;
use super::{Catalog, SHARDING_FIELD};
use crate::damage::naming_damage;
use crate::errors::BaseContext;
use crate::snapshot::is_compacted;
use crate::table::Table;

/// One shard as its manifest and the base table describe it.
#[derive(Clone, Debug)]
pub struct Shard {
    /// The shard.
    pub shard_id: ShardId,
    /// Its bucket; 0 in an unsharded table; `None` where its manifest records none.
    pub ordinal: Option<i32>,
    /// The epoch of its present or last owner; 0 before the first claim.
    pub writer_epoch: WriterEpoch,
    /// The generation of its next flush.
    pub current_generation: Generation,
    /// Replay starts after this entry.
    pub replay_after_wal_position: WalPosition,
    /// The highest entry that its manifest records.
    pub last_wal_position: WalPosition,
    /// Uncompacted SSTables, oldest first.
    pub sstables: Vec<SsTable>,
}

/// Counters of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableStats {
    /// Version of the base table.
    pub base_version: u64,
    /// Live rows of the base table.
    pub base_rows: usize,
    /// Shards.
    pub shards: usize,
    /// Uncompacted SSTables.
    pub sstables: usize,
    /// Rows in those SSTables, superseded rows and tombstones included.
    pub sstable_rows: u64,
    /// Rows in the logs of all shards, superseded rows and tombstones included.
    pub log_rows: u64,
    /// Bytes of those logs in storage.
    pub log_bytes: u64,
    /// The log of each shard, by ordinal.
    pub logs: Vec<ShardLog>,
}

impl Table {
    /// Counts the rows of the base table, and the shards, SSTables and logs above it. Reads every
    /// log entry that no flush has covered, which is what a durable read does in its process.
    ///
    /// # Errors
    /// A storage error, or damage of a log.
    #[boxed]
    pub async fn stats(&self) -> Result<TableStats> {
        let logs = self.catalog.logs().await?;
        let counted = self.stats_without_logs().await?;
        Ok(TableStats {
            log_rows: logs.iter().map(|log| log.rows).sum(),
            log_bytes: logs.iter().map(|log| log.bytes).sum(),
            logs,
            ..counted
        })
    }

    /// As [`Self::stats`], and reads no log: the counts of logs are zero, and their list is empty.
    ///
    /// # Errors
    /// A storage error.
    #[boxed]
    pub async fn stats_without_logs(&self) -> Result<TableStats> {
        let shards = self.catalog.shards().await?;
        let base = self.catalog.latest_base().await?;
        let rows = async { base.count_rows(None).await.in_base("counting the base table's rows") };
        let base_rows = naming_damage(&base, rows).await?;
        let sstables: Vec<&SsTable> = shards.iter().flat_map(|shard| &shard.sstables).collect();
        Ok(TableStats {
            base_version: base.version().version,
            base_rows,
            shards: shards.len(),
            sstables: sstables.len(),
            sstable_rows: sstables.iter().filter_map(|sstable| sstable.physical_rows).sum(),
            log_rows: 0,
            log_bytes: 0,
            logs: Vec::new(),
        })
    }

    /// Every shard of the table, by ordinal.
    ///
    /// # Errors
    /// A storage error or a damaged manifest.
    pub fn shards(&self) -> BoxFuture<'_, Result<Vec<Shard>>> {
        self.catalog.shards()
    }

    /// The shard of every ordinal, created where it does not exist.
    ///
    /// # Errors
    /// An input error for a table whose shards the caller names, or where two shards record the
    /// same bucket: a key could then be in two shards.
    pub fn routing(&self) -> BoxFuture<'_, Result<HashMap<i32, ShardId>>> {
        self.catalog.routing()
    }

    /// The shard of an ordinal, created where it does not exist. Where all shards have derived ids,
    /// only the manifest of this shard is read.
    ///
    /// # Errors
    /// As [`Self::routing`], and an input error for an ordinal that the table does not have.
    #[boxed]
    pub async fn shard_of(&self, ordinal: i64) -> Result<ShardId> {
        if let Some(shard_id) = self.catalog.derived_shard(ordinal).await? {
            return Ok(shard_id);
        }
        let routing = self.catalog.routing().await?;
        let shard_id = i32::try_from(ordinal).ok().and_then(|known| routing.get(&known));
        shard_id.copied().ok_or_else(|| {
            Error::input(format!(
                "table {} has no shard {ordinal}; it has {} shards, numbered from 0",
                self.uri(),
                routing.len()
            ))
        })
    }

    /// The shard of a table that has one.
    ///
    /// # Errors
    /// An input error for a table with several shards, which names them; otherwise as
    /// [`Self::shard_of`].
    #[boxed]
    pub async fn only_shard(&self) -> Result<ShardId> {
        if let Some(sharding) = self.sharding() {
            let shards = sharding.shards();
            if shards == 1 {
                return self.shard_of(0).await;
            }
            return Err(Error::input(format!(
                "table {} has {shards} shards, numbered from 0 to {}; name one with shard=, or \
                 write to all of them through table.writer()",
                self.uri(),
                shards - 1
            )));
        }
        let shard_ids = self.catalog.shard_ids().await?;
        if let [shard_id] = *shard_ids {
            return Ok(shard_id);
        }
        let names: Vec<String> = shard_ids.iter().map(ToString::to_string).collect();
        Err(Error::input(format!(
            "table {} has {} shards and no sharding; name one with shard=: {}",
            self.uri(),
            names.len(),
            names.join(", ")
        )))
    }

    /// The shard of an ordinal, which must exist; found as by [`Self::shard_of`].
    ///
    /// # Errors
    /// An input error where it does not exist, a storage error or a damaged manifest.
    #[boxed]
    pub async fn existing_shard_of(&self, ordinal: i64) -> Result<ShardId> {
        if let Some(shard_id) = self.catalog.derived_shard(ordinal).await? {
            return Ok(shard_id);
        }
        let shards = self.catalog.shards().await?;
        let found = shards.iter().find(|shard| shard.ordinal.map(i64::from) == Some(ordinal));
        let missing = || Error::input(format!("table {} has no shard {ordinal}", self.uri()));
        found.map(|shard| shard.shard_id).ok_or_else(missing)
    }
}

impl Catalog {
    /// As [`Table::shards`].
    #[boxed]
    pub(in crate::table) async fn shards(&self) -> Result<Vec<Shard>> {
        let manifests = self.manifests().await?;
        let compacted = compacted_of(&*self.latest_base().await?).await?;
        let foreign = self.foreign_among(manifests.iter().map(|manifest| &**manifest));
        let mut shards: Vec<Shard> = manifests
            .into_iter()
            .map(|manifest| Shard {
                shard_id: manifest.shard_id,
                ordinal: self
                    .ordinal_of(&manifest)
                    .filter(|_| !foreign.contains(&manifest.shard_id)),
                writer_epoch: manifest.writer_epoch,
                current_generation: manifest.current_generation,
                replay_after_wal_position: manifest.replay_after_wal_entry_position,
                last_wal_position: manifest.wal_entry_position_last_seen,
                sstables: uncompacted(&manifest, &compacted),
            })
            .collect();
        shards.sort_by_key(|shard| (shard.ordinal.unwrap_or(i32::MAX), shard.shard_id));
        Ok(shards)
    }

    /// The newest manifest of every shard that exists.
    pub(in crate::table) async fn manifests(&self) -> Result<Vec<Arc<ShardManifest>>> {
        let shard_ids = self.shard_ids().await?;
        let manifests = shard_ids.into_iter().map(|shard_id| self.manifest_of(shard_id));
        Ok(try_join_all(manifests).await?.into_iter().flatten().collect())
    }

    /// The newest manifest of a shard; `None` where the shard does not exist.
    pub(in crate::table) async fn manifest_of(
        &self,
        shard_id: ShardId,
    ) -> Result<Option<Arc<ShardManifest>>> {
        self.manifest_store(shard_id).latest().await
    }

    /// The manifests of a shard, read by the table's settings.
    pub(in crate::table) fn manifest_store(&self, shard_id: ShardId) -> ManifestStore {
        ManifestStore::new(self.store.clone(), shard_id, self.defaults.manifest_scan_batch_size)
    }

    pub(in crate::table) async fn shard_ids(&self) -> Result<Vec<ShardId>> {
        shard_ids(&self.store).await
    }

    /// As [`Table::routing`].
    #[boxed]
    pub(in crate::table) async fn routing(&self) -> Result<HashMap<i32, ShardId>> {
        if self.sharding.is_none() {
            return Err(Error::input(format!(
                "table {} has no sharding; name the shard with start_job",
                self.uri()
            )));
        }
        let mut routing = HashMap::new();
        let manifests = self.manifests().await?;
        self.make_own(&manifests).await?;
        let foreign = self.foreign_among(manifests.iter().map(|manifest| &**manifest));
        for manifest in manifests {
            // A foreign shard has no ordinal.
            let ordinal = self.ordinal_of(&manifest);
            let Some(ordinal) = ordinal.filter(|_| !foreign.contains(&manifest.shard_id)) else {
                continue;
            };
            if let Some(other) = routing.insert(ordinal, manifest.shard_id) {
                return Err(Error::input(format!(
                    "shards {other} and {} of table {} both hold bucket {ordinal}",
                    manifest.shard_id,
                    self.uri()
                )));
            }
        }
        let created = self.create_missing(|ordinal| routing.contains_key(&ordinal)).await?;
        routing.extend(created);
        Ok(routing)
    }

    /// The shard whose id is derived from the table identity and the ordinal. `None` where it does
    /// not exist, or where any shard has another id, because that shard may record the same bucket.
    async fn derived_shard(&self, ordinal: i64) -> Result<Option<ShardId>> {
        let (Some(sharding), Some(_)) = (&self.sharding, self.table_id) else { return Ok(None) };
        let shards = sharding.shards();
        let Some(ordinal) = u32::try_from(ordinal).ok().filter(|ordinal| *ordinal < shards) else {
            return Ok(None);
        };
        let shard_id = self.shard_id_for(ordinal);
        let derived: HashSet<ShardId> = (0..shards).map(|other| self.shard_id_for(other)).collect();
        let there = self.shard_ids().await?;
        if !there.contains(&shard_id) || !there.iter().all(|other| derived.contains(other)) {
            return Ok(None);
        }
        // An interrupted creation may have left its folder without a manifest.
        let manifest = self.manifest_of(shard_id).await?;
        let recorded = manifest.and_then(|manifest| self.ordinal_of(&manifest));
        let is_it = recorded.is_some_and(|recorded| u32::try_from(recorded) == Ok(ordinal));
        Ok(is_it.then_some(shard_id))
    }

    /// Takes over shards of another sharding that have no rows, which fences their writers. Where
    /// one of these shards has rows, no writer is fenced.
    ///
    /// # Errors
    /// As [`Self::check_sharding`]; an input error where the table has another index than this
    /// handle.
    #[boxed]
    pub(in crate::table) async fn make_own(&self, manifests: &[Arc<ShardManifest>]) -> Result<()> {
        let Some(own) = &self.sharding_record else { return Ok(()) };
        let is_other = |manifest: &&Arc<ShardManifest>| self.check_sharding(manifest).is_err();
        let others: Vec<&Arc<ShardManifest>> = manifests.iter().filter(is_other).collect();
        if others.is_empty() {
            return Ok(());
        }
        // A handle of a replaced index must not fence the jobs of the present one.
        self.refresh().await?;
        let base = self.base.known().dataset;
        for manifest in &others {
            // Missing SSTables are of the other sharding, and could not be relisted afterwards.
            self.check_complete(&base, manifest).await?;
        }
        let store = self.writable_store(self.defaults.fsync).await?;
        let store_of = |manifest: &ShardManifest| {
            Arc::new(ManifestStore::new(store.clone(), manifest.shard_id, 2))
        };
        for manifest in &others {
            let empty = check_empty(&store, &store_of(manifest), own).await;
            empty.map_err(|error| self.refused(manifest, error))?;
        }
        for manifest in others {
            let manifests = store_of(manifest);
            let taken = take_over(&store, &manifests, own).await;
            taken.map_err(|error| self.refused(manifest, error))?;
            let epoch = manifests.existing().await?.writer_epoch;
            ShardTurns::of(self.location.home(), manifest.shard_id).claimed(epoch);
        }
        Ok(())
    }

    /// The error of a shard that cannot be taken over: if rows of another sharding are the reason,
    /// the error names the ways to resolve that.
    fn refused(&self, manifest: &ShardManifest, error: Error) -> Error {
        match (error, self.check_sharding(manifest)) {
            (Error::InvalidInput { .. }, Err(refused)) => refused,
            (error, _) => error,
        }
    }

    /// Refuses the rows of a shard of another sharding than the index records.
    ///
    /// # Errors
    /// An input error that names both shardings.
    pub(in crate::table) fn check_sharding(&self, manifest: &ShardManifest) -> Result<()> {
        let (Some(there), Some(own)) = (&manifest.sharding, &self.sharding_record) else {
            return Ok(());
        };
        if there == own {
            return Ok(());
        }
        Err(Error::input(format!(
            "shard {} of table {} has rows of the sharding {there}, the table's index records the \
             sharding {own}: a key could be in two shards. Restore a version whose index records \
             {there}; or remove the folder {}/{0}, and those rows with it",
            manifest.shard_id,
            self.uri(),
            paths::MEM_WAL
        )))
    }

    /// The bucket that a shard records. The only shard of an unsharded table needs no record.
    pub(in crate::table) fn ordinal_of(&self, manifest: &ShardManifest) -> Option<i32> {
        let recorded = manifest.bucket(SHARDING_FIELD);
        match &self.sharding {
            Some(Sharding::Unsharded) => Some(recorded.unwrap_or(0)),
            _ => recorded,
        }
    }
}

/// The shards that have a folder.
pub(super) async fn shard_ids(store: &Store) -> Result<Vec<ShardId>> {
    let folders = store.list_folders(paths::MEM_WAL).await?;
    Ok(folders.iter().filter_map(|name| ShardId::parse_str(name).ok()).collect())
}

/// The listed SSTables that the base version of `compacted` does not contain.
pub fn uncompacted(
    manifest: &ShardManifest,
    compacted: &HashMap<ShardId, Generation>,
) -> Vec<SsTable> {
    let through = compacted.get(&manifest.shard_id).copied();
    let mut sstables: Vec<SsTable> = manifest
        .sstables
        .iter()
        .filter(|sstable| !is_compacted(through, sstable.generation))
        .cloned()
        .collect();
    sstables.sort_by_key(|sstable| sstable.generation);
    sstables
}
