//! What each SSTable of a compaction holds: which of its rows are alive, and all keys.
//!
//! Owns: the keys of the SSTables, each with the newest SSTable that has it, and the rows of every SSTable
//! that a later row of their key supersedes.
//! Does not own: rows of the base table, or what becomes of an SSTable.

use std::sync::Arc;

use datafusion::common::runtime::SpawnedTask;
use lancemem_core::format::KeyForm;
use lancemem_core::mutant;
use lancemem_core::types::{Error, Freshness, Result};
use roaring::RoaringBitmap;

use crate::deletion_vectors::SsTableCoverage;
use crate::snapshot::{Snapshot, SsTableHandle, SsTableKeys};
use crate::visibility::{NewerKeys, SourceKeys};

/// The column of row addresses in lance's scans.
pub const ROW_ADDRESS: &str = "_rowaddr";

/// An SSTable, with the positions that must not come to the base table.
#[derive(Debug)]
pub struct InputSsTable {
    /// The open SSTable.
    pub handle: Arc<SsTableHandle>,
    /// Rows in its data file.
    pub physical_rows: u64,
    /// Superseded rows, by this SSTable or a newer one, and tombstones.
    pub dead: RoaringBitmap,
    /// How many of `dead` are tombstones; those that a newer SSTable supersedes count there alone.
    pub tombstones: u64,
}

impl InputSsTable {
    /// Rows that the base table gets.
    #[must_use]
    pub fn live_rows(&self) -> u64 {
        self.physical_rows - self.dead.len()
    }

    fn freshness(&self) -> Freshness {
        Freshness::SsTable(self.handle.generation)
    }

    /// Positions of the rows whose key has a later row: in a newer SSTable, as the keys at `places` have,
    /// or here.
    fn superseded(&self, keys: &SsTableKeys, places: RoaringBitmap) -> RoaringBitmap {
        let by_newer =
            if mutant!("B17") { RoaringBitmap::new() } else { keys.positions_of(places) };
        if self.handle.is_trusted() {
            return by_newer;
        }
        // Runs of other writers may show two rows of a key.
        let by_itself = keys.iter().filter(|(key, row)| keys.find(key) != Some(*row));
        by_newer | by_itself.map(|(_, row)| row).collect::<RoaringBitmap>()
    }

    /// Counts rows as dead.
    fn bury(&mut self, superseded: &RoaringBitmap, tombstones: &RoaringBitmap) {
        self.dead |= superseded;
        self.tombstones = (tombstones - &self.dead).len();
        self.dead |= tombstones;
    }

    /// Its name in messages.
    #[must_use]
    pub fn name(&self) -> String {
        self.handle.name()
    }
}

/// The keys of some SSTables.
#[derive(Debug, Default)]
pub struct KeysOfSsTables {
    of_sstables: Vec<Arc<SsTableKeys>>,
    newest: Arc<NewerKeys>,
}

impl KeysOfSsTables {
    /// The keys of `sstables`, and for each SSTable the places of those that a newer one has.
    fn new(
        form: KeyForm,
        sstables: &[InputSsTable],
        of_sstables: Vec<Arc<SsTableKeys>>,
    ) -> Result<(Self, Vec<RoaringBitmap>)> {
        let sources = sstables.iter().zip(&of_sstables).map(|(sstable, keys)| SourceKeys {
            freshness: sstable.freshness(),
            at_most: keys.len(),
            keys: keys.keys(),
        });
        let (newest, superseded) = NewerKeys::and_superseded(form, sources.collect())?;
        Ok((Self { newest: Arc::new(newest), of_sstables }, superseded))
    }

    /// Every key; one that two SSTables have comes twice.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.of_sstables.iter().flat_map(|keys| keys.keys())
    }

    /// Number of distinct keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.newest.len()
    }

    /// Every key, each with the newest SSTable that has it.
    #[must_use]
    pub fn newest(&self) -> Arc<NewerKeys> {
        self.newest.clone()
    }

    /// Whether there is no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.newest.is_empty()
    }
}

/// The SSTables of a snapshot, oldest first in each shard, and the keys of all their rows.
#[derive(Debug)]
pub struct InputSsTables {
    /// In the order of the snapshot.
    pub sstables: Vec<InputSsTable>,
    /// Every key that an SSTable has a row or a tombstone of; `None` where nobody has read them.
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
        for sstable in &sstables {
            of_sstables.push(sstable.handle.keys(&snapshot.key).await?);
            tombstones.push(sstable.handle.tombstones().await?);
        }
        let form = KeyForm::of(&snapshot.schema, &snapshot.key);
        // Millions of keys take a while, and writers share these threads.
        let compared = SpawnedTask::spawn_blocking(move || {
            let (keys, superseded) = KeysOfSsTables::new(form, &sstables, of_sstables)?;
            let of_sstables = keys.of_sstables.iter().zip(superseded).zip(&tombstones);
            for (sstable, ((of_sstable, places), tombstones)) in
                sstables.iter_mut().zip(of_sstables)
            {
                sstable.bury(&sstable.superseded(of_sstable, places), tombstones);
            }
            Ok(Self { sstables, keys: Some(Arc::new(keys)) })
        });
        let compared = compared.await;
        compared
            .map_err(|error| Error::Internal(format!("comparing the keys of SSTables: {error}")))?
    }

    /// The same SSTables where it is known which of their rows are dead. Reads no keys.
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

    /// Every key that an SSTable of `snapshot` has a row or a tombstone of.
    ///
    /// # Errors
    /// A storage error, or damage of an SSTable.
    pub async fn keys(&mut self, snapshot: &Snapshot) -> Result<Arc<KeysOfSsTables>> {
        if let Some(keys) = &self.keys {
            return Ok(keys.clone());
        }
        let read = Self::read(snapshot).await?;
        self.keys = read.keys;
        self.keys.clone().ok_or_else(|| Error::Internal("keys were read and are not there".into()))
    }
}

/// An SSTable whose own deletion vector is known, and no more.
async fn open(handle: &Arc<SsTableHandle>) -> Result<InputSsTable> {
    let (physical_rows, dead) = handle.physical_and_hidden_rows().await?;
    Ok(InputSsTable { handle: handle.clone(), physical_rows, dead, tombstones: 0 })
}
