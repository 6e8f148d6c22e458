//! What the files cover of one snapshot.
//!
//! Owns: the dead rows of a snapshot that is covered whole, and what is missing of one that is not.
//! Does not own: the files, or the look-up of what is missing.

use std::collections::HashMap;
use std::sync::Arc;

use lance_table::format::Fragment;
use lancemem_core::types::ShardId;
use roaring::RoaringBitmap;

use super::SsTableFile;
use crate::record_index::key_ids;
use crate::snapshot::{Snapshot, SsTableHandle};
use crate::visibility::{DeadRows, SnapshotMask};

/// Sources of a snapshot whose rows an SSTable's files say nothing of.
#[derive(Debug)]
pub struct MissingVectors {
    /// The SSTable that supersedes.
    pub sstable: Arc<SsTableHandle>,
    /// Fragments of the base table.
    pub fragments: Vec<Fragment>,
    /// Older SSTables of its shard.
    pub older: Vec<Arc<SsTableHandle>>,
    /// Whether its own tombstones are missing.
    pub tombstones: bool,
}

/// Files by shard and run.
struct BySsTable<'a>(HashMap<ShardId, HashMap<&'a str, Vec<&'a SsTableFile>>>);

impl<'a> BySsTable<'a> {
    fn new(files: &'a [Arc<SsTableFile>]) -> Self {
        let mut by_sstable: HashMap<_, HashMap<_, Vec<_>>> = HashMap::new();
        for file in files {
            let of_shard = by_sstable.entry(file.shard_id).or_default();
            of_shard.entry(file.sstable.as_str()).or_default().push(file.as_ref());
        }
        Self(by_sstable)
    }

    fn of(&self, sstable: &SsTableHandle) -> &[&'a SsTableFile] {
        let of_shard = self.0.get(&sstable.shard_id);
        of_shard.and_then(|sstables| sstables.get(sstable.path.as_str())).map_or(&[], Vec::as_slice)
    }

    fn fragment(
        &self,
        sstable: &SsTableHandle,
        fragment: &Fragment,
        key: &[i32],
    ) -> Option<&'a RoaringBitmap> {
        self.of(sstable).iter().find_map(|file| file.of_fragment(fragment, key))
    }

    fn older(&self, sstable: &SsTableHandle, older: &SsTableHandle) -> Option<&'a RoaringBitmap> {
        self.of(sstable).iter().find_map(|file| file.of_sstable(&older.path))
    }

    fn tombstones(&self, sstable: &SsTableHandle) -> Option<&'a RoaringBitmap> {
        self.of(sstable).iter().find_map(|file| file.tombstones.as_ref())
    }
}

/// The dead rows of the base and the SSTables of a snapshot, by position, whatever is in memory.
#[derive(Debug)]
pub struct Coverage {
    /// Rows of the base table that an SSTable supersedes; also ones that are deleted.
    pub base: DeadRows,
    /// Of each SSTable, in the order of the snapshot.
    pub sstables: Vec<SsTableCoverage>,
}

/// The dead rows of an SSTable, but for those that its own deletion vector hides.
#[derive(Debug)]
pub struct SsTableCoverage {
    /// Rows that newer SSTables supersede.
    pub superseded: RoaringBitmap,
    /// Rows that only delete.
    pub tombstones: RoaringBitmap,
}

impl Coverage {
    /// What the files say of `snapshot`; `None` where some SSTable says nothing of some source.
    #[must_use]
    pub fn of(snapshot: &Snapshot, files: &[Arc<SsTableFile>]) -> Option<Self> {
        let by_sstable = BySsTable::new(files);
        let key = key_ids(&snapshot.base, &snapshot.key);
        let mut base = DeadRows::default();
        for fragment in snapshot.base.fragments().iter() {
            let sstables = snapshot.shards.iter().flat_map(|shard| &shard.sstables);
            let dead = sstables.map(|sstable| by_sstable.fragment(sstable, fragment, &key));
            base.set(fragment.id, union(dead)?).ok()?;
        }
        let mut sstables = Vec::new();
        for shard in &snapshot.shards {
            for (place, sstable) in shard.sstables.iter().enumerate() {
                let newer = shard.sstables[place + 1..].iter();
                let superseded = union(newer.map(|newer| by_sstable.older(newer, sstable)))?;
                let tombstones = by_sstable.tombstones(sstable)?.clone();
                sstables.push(SsTableCoverage { superseded, tombstones });
            }
        }
        Some(Self { base, sstables })
    }

    /// The same as a scan of the snapshot needs it.
    #[must_use]
    pub fn into_mask(self) -> SnapshotMask {
        let sstables = self.sstables.into_iter();
        let sstables = sstables.map(|it| DeadRows::of_sstable(it.superseded | it.tombstones));
        let arms = [self.base].into_iter().chain(sstables);
        SnapshotMask::new(arms.map(Arc::new).collect())
    }
}

/// All rows of bitmaps; `None` where one of them is not known.
fn union<'a>(
    mut bitmaps: impl Iterator<Item = Option<&'a RoaringBitmap>>,
) -> Option<RoaringBitmap> {
    bitmaps.try_fold(RoaringBitmap::new(), |rows, more| Some(rows | more?))
}

/// The vectors that a whole [`Coverage`] lacks, by SSTable; none where none can be computed.
#[must_use]
pub fn missing_vectors(snapshot: &Snapshot, files: &[Arc<SsTableFile>]) -> Vec<MissingVectors> {
    let by_sstable = BySsTable::new(files);
    let key = key_ids(&snapshot.base, &snapshot.key);
    let fragments = snapshot.base.fragments();
    let mut all_missing = Vec::new();
    for shard in &snapshot.shards {
        for (place, sstable) in shard.sstables.iter().enumerate() {
            let is_missing = |fragment: &&Fragment| {
                fragment.overlays.is_empty()
                    && fragment.physical_rows.is_some()
                    && by_sstable.fragment(sstable, fragment, &key).is_none()
            };
            let is_unknown =
                |older: &&Arc<SsTableHandle>| by_sstable.older(sstable, older.as_ref()).is_none();
            let missing = MissingVectors {
                sstable: sstable.clone(),
                fragments: fragments.iter().filter(is_missing).cloned().collect(),
                older: shard.sstables[..place].iter().filter(is_unknown).cloned().collect(),
                tombstones: by_sstable.tombstones(sstable).is_none(),
            };
            if missing.tombstones || !missing.fragments.is_empty() || !missing.older.is_empty() {
                all_missing.push(missing);
            }
        }
    }
    all_missing
}
