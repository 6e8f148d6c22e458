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
use super::open::{Basis, LostRows};
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

/// Files by shard and SSTable, and what the rows of the snapshot are compared by.
struct BySsTable<'a> {
    files: HashMap<ShardId, HashMap<&'a str, Vec<&'a SsTableFile>>>,
    basis: Basis,
}

impl<'a> BySsTable<'a> {
    fn new(snapshot: &Snapshot, files: &'a [Arc<SsTableFile>]) -> Self {
        let mut by_sstable: HashMap<_, HashMap<_, Vec<_>>> = HashMap::new();
        for file in files {
            let of_shard = by_sstable.entry(file.shard_id).or_default();
            of_shard.entry(file.sstable.as_str()).or_default().push(file.as_ref());
        }
        Self { files: by_sstable, basis: Basis::of(snapshot) }
    }

    fn of(&self, sstable: &SsTableHandle) -> &[&'a SsTableFile] {
        let of_shard = self.files.get(&sstable.shard_id);
        of_shard.and_then(|sstables| sstables.get(sstable.path.as_str())).map_or(&[], Vec::as_slice)
    }

    fn fragment(&self, sstable: &SsTableHandle, fragment: &Fragment) -> Option<&'a LostRows> {
        self.of(sstable).iter().find_map(|file| file.of_fragment(fragment, &self.basis))
    }

    fn older(&self, sstable: &SsTableHandle, older: &SsTableHandle) -> Option<&'a LostRows> {
        self.of(sstable).iter().find_map(|file| file.of_sstable(&older.path, &self.basis))
    }

    /// The rows of `sstable` that lose to a row of the base table or of the SSTables `older`; none
    /// without a merge rule. `None` where a source is not covered.
    fn beaten(
        &self,
        snapshot: &Snapshot,
        sstable: &SsTableHandle,
        older: &[Arc<SsTableHandle>],
    ) -> Option<RoaringBitmap> {
        if self.basis.rule.is_empty() {
            return Some(RoaringBitmap::new());
        }
        let fragments = snapshot.base.fragments().iter();
        let by_base = fragments.map(|fragment| self.fragment(sstable, fragment));
        let by_older = older.iter().map(|older| self.older(sstable, older));
        union(by_base.chain(by_older).map(|lost| lost.map(|lost| &lost.beaten)))
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
    /// How many rows lose against rows that arrived before them.
    pub late_rows: u64,
}

/// The dead rows of an SSTable, except the rows that its own deletion vector hides.
#[derive(Debug)]
pub struct SsTableCoverage {
    /// Rows that newer SSTables supersede, and with a merge rule rows that lose to older ones.
    pub superseded: RoaringBitmap,
    /// Tombstones.
    pub tombstones: RoaringBitmap,
}

impl Coverage {
    /// The dead rows of `snapshot` from `files`; `None` where the files of an SSTable do not cover
    /// a source.
    #[must_use]
    pub fn of(snapshot: &Snapshot, files: &[Arc<SsTableFile>]) -> Option<Self> {
        let by_sstable = BySsTable::new(snapshot, files);
        let mut base = DeadRows::default();
        for fragment in snapshot.base.fragments().iter() {
            let sstables = snapshot.shards.iter().flat_map(|shard| &shard.sstables);
            let lost = sstables.map(|sstable| by_sstable.fragment(sstable, fragment));
            base.set(fragment.id, union(lost.map(dead_of))?).ok()?;
        }
        let (mut sstables, mut late_rows) = (Vec::new(), 0);
        for shard in &snapshot.shards {
            for (place, sstable) in shard.sstables.iter().enumerate() {
                let beaten = by_sstable.beaten(snapshot, sstable, &shard.sstables[..place])?;
                late_rows += beaten.len();
                let newer = shard.sstables[place + 1..].iter();
                let lost = newer.map(|newer| by_sstable.older(newer, sstable));
                let superseded = union(lost.map(dead_of))? | beaten;
                let tombstones = by_sstable.tombstones(sstable)?.clone();
                sstables.push(SsTableCoverage { superseded, tombstones });
            }
        }
        Some(Self { base, sstables, late_rows })
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
        let by_sstable = BySsTable::new(snapshot, files);
        let mut base = DeadRows::default();
        for fragment in snapshot.base.fragments().iter() {
            let rows = dead_of(by_sstable.fragment(sstable, fragment))?;
            let earlier = older.iter().map(|older| by_sstable.fragment(older, fragment));
            base.set(fragment.id, rows - union(earlier.map(dead_of))?).ok()?;
        }
        let mut sstables = Vec::with_capacity(older.len());
        for (place, source) in older.iter().enumerate() {
            let rows = dead_of(by_sstable.older(sstable, source))?;
            let between = older[place + 1..].iter().map(|newer| by_sstable.older(newer, source));
            let between = union(between.map(dead_of))?;
            sstables.push(rows - between - by_sstable.tombstones(source)?);
        }
        Some(Self { base, sstables })
    }
}

/// The rows of a source that lose; `None` where it is not covered.
fn dead_of(lost: Option<&LostRows>) -> Option<&RoaringBitmap> {
    lost.map(|lost| &lost.dead)
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
///
/// With a merge rule an SSTable that lacks one lacks all: which rows of a key lose depends on all of
/// them.
#[must_use]
pub fn missing_vectors(snapshot: &Snapshot, files: &[Arc<SsTableFile>]) -> Vec<MissingVectors> {
    let by_sstable = BySsTable::new(snapshot, files);
    let fragments = snapshot.base.fragments();
    let may_be_covered =
        |fragment: &&Fragment| fragment.overlays.is_empty() && fragment.physical_rows.is_some();
    let mut all_missing = Vec::new();
    for shard in &snapshot.shards {
        for (place, sstable) in shard.sstables.iter().enumerate() {
            let is_missing = |fragment: &&Fragment| {
                may_be_covered(fragment) && by_sstable.fragment(sstable, fragment).is_none()
            };
            let is_unknown =
                |older: &&Arc<SsTableHandle>| by_sstable.older(sstable, older.as_ref()).is_none();
            let older = &shard.sstables[..place];
            let mut missing = MissingVectors {
                sstable: sstable.clone(),
                fragments: fragments.iter().filter(is_missing).cloned().collect(),
                older: older.iter().filter(is_unknown).cloned().collect(),
                tombstones: by_sstable.tombstones(sstable).is_none(),
            };
            if !missing.tombstones && missing.fragments.is_empty() && missing.older.is_empty() {
                continue;
            }
            if !by_sstable.basis.rule.is_empty() {
                missing.fragments = fragments.iter().filter(may_be_covered).cloned().collect();
                missing.older = older.to_vec();
            }
            all_missing.push(missing);
        }
    }
    all_missing
}
