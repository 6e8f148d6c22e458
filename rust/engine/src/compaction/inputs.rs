//! The SSTables of a compaction: their live rows and their keys.
//!
//! Owns: the keys of the SSTables, each with the newest SSTable that has it, and the rows of each
//! SSTable that must not reach the base table.
//! Does not own: which rows a later row supersedes (`visibility`), rows of the base table, or what
//! becomes of an SSTable.

use std::sync::Arc;

use datafusion::common::runtime::SpawnedTask;
use lancemem_core::format::KeyForm;
use lancemem_core::mutant;
use lancemem_core::types::{Error, Result};
use roaring::RoaringBitmap;

use crate::deletion_vectors::SsTableCoverage;
use crate::snapshot::{MemTableView, Snapshot, SsTableHandle, SsTableKeys};
use crate::stages::{Stage, StageName};
use crate::visibility::{
    ChosenRows, Comparison, DeadRows, NewerKeys, SsTableId, compare, superseded_within,
};

/// An SSTable, with the positions that must not reach the base table.
#[derive(Debug)]
pub struct InputSsTable {
    /// The open SSTable.
    pub handle: Arc<SsTableHandle>,
    /// Rows in its data file.
    pub physical_rows: u64,
    /// Rows that this or a newer SSTable supersedes, and tombstones.
    pub dead: DeadRows,
    /// How many of `dead` are tombstones that no later row supersedes.
    pub tombstones: u64,
}

impl InputSsTable {
    /// Rows that the base table gets.
    #[must_use]
    pub fn live_rows(&self) -> u64 {
        self.physical_rows - self.dead.len()
    }

    fn id(&self) -> SsTableId {
        (self.handle.shard_id, self.handle.generation)
    }

    /// Positions of the rows whose key has a later row, in a newer SSTable (`by_newer`) or in this
    /// SSTable.
    fn superseded(&self, keys: &SsTableKeys, by_newer: RoaringBitmap) -> RoaringBitmap {
        let by_newer = if mutant!("B17") { RoaringBitmap::new() } else { by_newer };
        if self.handle.is_trusted() { by_newer } else { by_newer | superseded_within(keys) }
    }

    /// Adds superseded rows and tombstones to the dead rows.
    fn bury(&mut self, superseded: &RoaringBitmap, tombstones: &RoaringBitmap) {
        self.dead.bury(superseded);
        self.tombstones = self.dead.bury(tombstones);
    }

    /// The SSTable's name in messages.
    #[must_use]
    pub fn name(&self) -> String {
        self.handle.name()
    }
}

/// The keys of some SSTables.
#[derive(Debug, Default)]
pub struct KeysOfSsTables {
    of_sstables: Vec<(SsTableId, Arc<SsTableKeys>)>,
    newest: Arc<NewerKeys>,
}

impl KeysOfSsTables {
    /// Every key; a key in two SSTables is yielded twice.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.of_sstables.iter().flat_map(|(_, keys)| keys.keys())
    }

    /// Every key, each with the newest SSTable that has it.
    #[must_use]
    pub const fn newest(&self) -> &Arc<NewerKeys> {
        &self.newest
    }
}

/// The SSTables of a snapshot, oldest first in each shard, and the keys of all their rows.
#[derive(Debug)]
pub struct InputSsTables {
    /// In the order of the snapshot.
    pub sstables: Vec<InputSsTable>,
    /// Every key of a row or tombstone in an SSTable; `None` where the keys were not read.
    keys: Option<Arc<KeysOfSsTables>>,
}

impl InputSsTables {
    /// Reads the keys of every SSTable of `snapshot`.
    ///
    /// # Errors
    /// A storage error, or damage of an SSTable.
    pub async fn read(snapshot: &Snapshot) -> Result<Self> {
        let mut sstables = Vec::new();
        for handle in snapshot.shards.iter().flat_map(|shard| &shard.sstables) {
            sstables.push(open(handle).await?);
        }
        if snapshot.key.is_empty() {
            return Ok(Self { sstables, keys: Some(Arc::default()) });
        }
        let (mut of_sstables, mut tombstones) = (Vec::new(), Vec::new());
        let stage = Stage::begin(StageName::ReadKeys, sstables.len());
        for sstable in &sstables {
            of_sstables.push((sstable.id(), sstable.handle.keys(&snapshot.key).await?));
            tombstones.push(sstable.handle.tombstones().await?);
            stage.add(1_u64);
        }
        let form = KeyForm::of(&snapshot.schema, &snapshot.key);
        // A comparison of millions of keys would block a thread that writers share.
        let compared = SpawnedTask::spawn_blocking(move || {
            let Comparison { newest, superseded } = compare(form, &of_sstables)?;
            let compared = of_sstables.iter().zip(superseded).zip(&tombstones);
            for (sstable, (((_, keys), by_newer), tombstones)) in sstables.iter_mut().zip(compared)
            {
                let superseded = sstable.superseded(keys, by_newer);
                sstable.bury(&superseded, tombstones);
            }
            let keys = KeysOfSsTables { of_sstables, newest: Arc::new(newest) };
            Ok(Self { sstables, keys: Some(Arc::new(keys)) })
        });
        compared.await.context("comparing the keys of SSTables")?
    }

    /// The SSTables of a table with a merge rule, whose choice among all rows is `chosen`.
    ///
    /// # Errors
    /// A storage error, or damage of an SSTable.
    pub async fn chosen(snapshot: &Snapshot, chosen: &ChosenRows) -> Result<Self> {
        let mut sstables = Vec::new();
        for (arm, handle) in (1..).zip(snapshot.shards.iter().flat_map(|shard| &shard.sstables)) {
            let mut sstable = open(handle).await?;
            let (dead, tombstones) = (chosen.mask.arm(arm), handle.tombstones().await?);
            let dead = dead.in_sstable().cloned().unwrap_or_default();
            sstable.bury(&(&dead - tombstones.as_ref()), &tombstones);
            sstables.push(sstable);
        }
        Ok(Self { sstables, keys: None })
    }

    /// The SSTables of a snapshot with merged rows: its MemTables, which are newer than each SSTable.
    /// Reads the keys of every SSTable.
    ///
    /// # Errors
    /// A storage error, or damage of an SSTable.
    pub async fn merged(snapshot: &Snapshot) -> Result<Self> {
        let read = Self::read(snapshot).await?;
        let merged: Vec<MemTableView> =
            snapshot.shards.iter().flat_map(|shard| &shard.memtables).cloned().collect();
        if merged.is_empty() {
            return Ok(read);
        }
        let keys_of_all = read.keys.clone();
        let Some(keys) = read.keys else { return Err(Error::internal("keys were not read")) };
        let mut sstables = read.sstables;
        let bury = SpawnedTask::spawn_blocking(move || {
            for (sstable, (_, keys)) in sstables.iter_mut().zip(&keys.of_sstables) {
                let mut dead = RoaringBitmap::new();
                for (place, key) in keys.keys().enumerate() {
                    if merged.iter().any(|rows| rows.newest(key).is_some()) {
                        dead.insert(keys.position_of(place));
                    }
                }
                sstable.dead.bury(&dead);
            }
            sstables
        });
        let sstables = bury.await.context("comparing merged rows")?;
        Ok(Self { sstables, keys: keys_of_all })
    }

    /// As [`Self::read`], where deletion vectors cover all dead rows. Reads no keys.
    ///
    /// # Errors
    /// A storage error, or damage of an SSTable.
    pub async fn covered(snapshot: &Snapshot, cover: &[SsTableCoverage]) -> Result<Self> {
        let mut sstables = Vec::new();
        let handles = snapshot.shards.iter().flat_map(|shard| &shard.sstables);
        for (handle, cover) in handles.zip(cover) {
            let mut sstable = open(handle).await?;
            sstable.bury(&cover.superseded, &cover.tombstones);
            sstables.push(sstable);
        }
        Ok(Self { sstables, keys: None })
    }

    /// Every key of a row or tombstone in an SSTable of `snapshot`; read once.
    ///
    /// # Errors
    /// A storage error, or damage of an SSTable.
    pub async fn keys(&mut self, snapshot: &Snapshot) -> Result<Arc<KeysOfSsTables>> {
        if let Some(keys) = &self.keys {
            return Ok(keys.clone());
        }
        let read = Self::read(snapshot).await?;
        self.keys = read.keys;
        self.keys.clone().ok_or_else(|| Error::internal("keys were read but not stored"))
    }
}

/// An SSTable whose dead rows are so far those of its own deletion vector.
async fn open(handle: &Arc<SsTableHandle>) -> Result<InputSsTable> {
    let (physical_rows, hidden) = handle.physical_and_hidden_rows().await?;
    let (handle, dead) = (handle.clone(), DeadRows::of_sstable(hidden));
    Ok(InputSsTable { handle, physical_rows, dead, tombstones: 0 })
}
