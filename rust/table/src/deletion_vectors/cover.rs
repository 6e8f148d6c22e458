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
use crate::index::key_ids;
use crate::merge::{DeadRows, SnapshotMask};
use crate::snapshot::{Snapshot, SsTableHandle};

/// The one fragment of a run.
const RUN_FRAGMENT: u32 = 0;

/// Sources of a snapshot whose rows a run's files say nothing of.
#[derive(Debug)]
pub struct Gap {
    /// The run that supersedes.
    pub run: Arc<SsTableHandle>,
    /// Fragments of the base table.
    pub fragments: Vec<Fragment>,
    /// Older runs of its shard.
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
            of_shard.entry(file.run.as_str()).or_default().push(file.as_ref());
        }
        Self(by_sstable)
    }

    fn of(&self, run: &SsTableHandle) -> &[&'a SsTableFile] {
        let of_shard = self.0.get(&run.shard_id);
        of_shard.and_then(|runs| runs.get(run.path.as_str())).map_or(&[], Vec::as_slice)
    }

    fn fragment(
        &self,
        run: &SsTableHandle,
        fragment: &Fragment,
        key: &[i32],
    ) -> Option<&'a RoaringBitmap> {
        self.of(run).iter().find_map(|file| file.of_fragment(fragment, key))
    }

    fn older(&self, run: &SsTableHandle, older: &SsTableHandle) -> Option<&'a RoaringBitmap> {
        self.of(run).iter().find_map(|file| file.of_sstable(&older.path))
    }

    fn tombstones(&self, run: &SsTableHandle) -> Option<&'a RoaringBitmap> {
        self.of(run).iter().find_map(|file| file.tombstones.as_ref())
    }
}

/// The dead rows of the base and the runs of a snapshot, by position, whatever is in memory.
#[derive(Debug)]
pub struct Cover {
    /// Rows of the base table that a run supersedes, by fragment; also ones that are deleted.
    pub base: HashMap<u32, RoaringBitmap>,
    /// Of each run, in the order of the snapshot.
    pub runs: Vec<SsTableCoverage>,
}

/// The dead rows of a run, but for those that its own deletion vector hides.
#[derive(Debug)]
pub struct SsTableCoverage {
    /// Rows that newer runs supersede.
    pub superseded: RoaringBitmap,
    /// Rows that only delete.
    pub tombstones: RoaringBitmap,
}

impl Cover {
    /// What the files say of `snapshot`; `None` where some run says nothing of some source.
    #[must_use]
    pub fn of(snapshot: &Snapshot, files: &[Arc<SsTableFile>]) -> Option<Self> {
        let by_sstable = BySsTable::new(files);
        let key = key_ids(&snapshot.base, &snapshot.key);
        let mut base = HashMap::new();
        for fragment in snapshot.base.fragments().iter() {
            let runs = snapshot.shards.iter().flat_map(|shard| &shard.sstables);
            let dead = runs.map(|run| by_sstable.fragment(run, fragment, &key));
            base.insert(u32::try_from(fragment.id).ok()?, union(dead)?);
        }
        let mut runs = Vec::new();
        for shard in &snapshot.shards {
            for (place, run) in shard.sstables.iter().enumerate() {
                let newer = shard.sstables[place + 1..].iter();
                let superseded = union(newer.map(|newer| by_sstable.older(newer, run)))?;
                let tombstones = by_sstable.tombstones(run)?.clone();
                runs.push(SsTableCoverage { superseded, tombstones });
            }
        }
        Some(Self { base, runs })
    }

    /// The same as a scan of the snapshot needs it.
    #[must_use]
    pub fn into_mask(self) -> SnapshotMask {
        let runs = self
            .runs
            .into_iter()
            .map(|run| HashMap::from([(RUN_FRAGMENT, run.superseded | run.tombstones)]));
        let arms = [self.base].into_iter().chain(runs);
        SnapshotMask::new(arms.map(|rows| Arc::new(DeadRows::of(rows))).collect())
    }
}

/// All rows of bitmaps; `None` where one of them is not known.
fn union<'a>(
    mut bitmaps: impl Iterator<Item = Option<&'a RoaringBitmap>>,
) -> Option<RoaringBitmap> {
    bitmaps.try_fold(RoaringBitmap::new(), |rows, more| Some(rows | more?))
}

/// What is missing of a whole [`Cover`], by run; nothing where nothing can be done.
#[must_use]
pub fn gaps(snapshot: &Snapshot, files: &[Arc<SsTableFile>]) -> Vec<Gap> {
    let by_sstable = BySsTable::new(files);
    let key = key_ids(&snapshot.base, &snapshot.key);
    let fragments = snapshot.base.fragments();
    let mut gaps = Vec::new();
    for shard in &snapshot.shards {
        for (place, run) in shard.sstables.iter().enumerate() {
            let is_missing = |fragment: &&Fragment| {
                fragment.overlays.is_empty()
                    && fragment.physical_rows.is_some()
                    && by_sstable.fragment(run, fragment, &key).is_none()
            };
            let is_unknown =
                |older: &&Arc<SsTableHandle>| by_sstable.older(run, older.as_ref()).is_none();
            let gap = Gap {
                run: run.clone(),
                fragments: fragments.iter().filter(is_missing).cloned().collect(),
                older: shard.sstables[..place].iter().filter(is_unknown).cloned().collect(),
                tombstones: by_sstable.tombstones(run).is_none(),
            };
            if gap.tombstones || !gap.fragments.is_empty() || !gap.older.is_empty() {
                gaps.push(gap);
            }
        }
    }
    gaps
}
