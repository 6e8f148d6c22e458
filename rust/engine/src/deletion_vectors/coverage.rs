//! How far deletion-vector files cover one snapshot.
//!
//! Owns: the dead rows of a snapshot that is fully covered, those of one SSTable alone, and the
//! deletion vectors that a snapshot lacks.
//! Does not own: the files, or the look-up of missing deletion vectors.

use std::collections::HashMap;
use std::sync::Arc;

use lance_table::format::Fragment;
use lancemem_core::types::ShardId;
use roaring::RoaringBitmap;

use super::SsTableFile;
use crate::record_index::key_ids;
use crate::snapshot::{Snapshot, SsTableHandle};
use crate::visibility::{DeadRows, SnapshotMask};

/// The sources of a snapshot that the files of one SSTable do not cover.
#[derive(Debug)]
pub struct MissingVectors {
    /// The newer SSTable, which supersedes rows.
    pub sstable: Arc<SsTableHandle>,
    /// Fragments of the base table that are not covered.
    pub fragments: Vec<Fragment>,
    /// Older SSTables of the shard that are not covered.
    pub older: Vec<Arc<SsTableHandle>>,
    /// Whether the SSTable's own tombstones are missing.
    pub tombstones: bool,
}

/// Files by shard and SSTable.
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

/// The dead rows of the base and the SSTables of a snapshot, by position. Rows in memory are
/// ignored.
#[derive(Debug)]
pub struct Coverage {
    /// Rows of the base table that an SSTable supersedes, deleted rows included.
    pub base: DeadRows,
    /// The dead rows of each SSTable, in the order of the snapshot.
    pub sstables: Vec<SsTableCoverage>,
}

/// The dead rows of an SSTable, except the rows that its own deletion vector hides.
#[derive(Debug)]
pub struct SsTableCoverage {
    /// Rows that newer SSTables supersede.
    pub superseded: RoaringBitmap,
    /// Tombstones.
    pub tombstones: RoaringBitmap,
}

impl Coverage {
    /// The dead rows of `snapshot` from `files`; `None` where the files of an SSTable do not cover
    /// a source.
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

    /// The mask of the snapshot's dead rows, for a scan.
    #[must_use]
    pub fn into_mask(self) -> SnapshotMask {
        let sstables = self.sstables.into_iter();
        let sstables = sstables.map(|it| DeadRows::of_sstable(it.superseded | it.tombstones));
        let arms = [self.base].into_iter().chain(sstables);
        SnapshotMask::new(arms.map(Arc::new).collect())
    }
}

/// The rows that were alive before an SSTable, and that it supersedes.
#[derive(Debug)]
pub struct FirstSuperseded {
    /// Rows of the base table, deleted rows included.
    pub base: DeadRows,
    /// Rows of each older SSTable, in their order.
    pub sstables: Vec<RoaringBitmap>,
}

impl FirstSuperseded {
    /// The rows that `sstable` supersedes in the base table of `snapshot` and in the SSTables
    /// `older` of its shard, the oldest first, and that none of `older` supersedes. `None` where
    /// `files` do not cover a source.
    #[must_use]
    pub fn of(
        snapshot: &Snapshot,
        files: &[Arc<SsTableFile>],
        sstable: &SsTableHandle,
        older: &[Arc<SsTableHandle>],
    ) -> Option<Self> {
        let by_sstable = BySsTable::new(files);
        let key = key_ids(&snapshot.base, &snapshot.key);
        let mut base = DeadRows::default();
        for fragment in snapshot.base.fragments().iter() {
            let rows = by_sstable.fragment(sstable, fragment, &key)?;
            let earlier = older.iter().map(|older| by_sstable.fragment(older, fragment, &key));
            base.set(fragment.id, rows - union(earlier)?).ok()?;
        }
        let mut sstables = Vec::with_capacity(older.len());
        for (place, source) in older.iter().enumerate() {
            let rows = by_sstable.older(sstable, source)?;
            let between = older[place + 1..].iter().map(|newer| by_sstable.older(newer, source));
            sstables.push(rows - union(between)? - by_sstable.tombstones(source)?);
        }
        Some(Self { base, sstables })
    }
}

/// The union of bitmaps; `None` where one of them is missing.
fn union<'a>(
    mut bitmaps: impl Iterator<Item = Option<&'a RoaringBitmap>>,
) -> Option<RoaringBitmap> {
    bitmaps.try_fold(RoaringBitmap::new(), |rows, more| Some(rows | more?))
}

/// The deletion vectors that `snapshot` lacks for a [`Coverage`], by SSTable. A fragment with
/// overlays or an unknown number of rows is never among them: its deletion vectors cannot be
/// computed.
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
