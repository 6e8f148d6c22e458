//! Compared keys and dead rows of the newest snapshot, cached for the next scan of its sources.
//!
//! Owns: the compared SSTables of one snapshot, and two masks of a snapshot that a scan read to its
//! end. The exact mask has all its dead rows. The flushed mask has only the rows that SSTables
//! supersede, and stays valid while the rows in memory change. Also the dead rows of base fragments
//! that parts of a snapshot have found. Each entry is limited in size.
//! The merged rows of the newest snapshot, where a rule makes a row of several, are cached beside them.
//! Does not own: open SSTables (`snapshot`), or when a snapshot is worth a mask (`plan`).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use lance_table::format::Fragment;
use lancemem_core::types::{Result, ShardId};
use parking_lot::Mutex;

use super::{ChosenRows, ComparedSsTables, DeadRows, SnapshotMask};
use crate::snapshot::{MemTableView, Snapshot, Source};

/// An entry of more bytes is not cached and is dropped with its scan.
const KEPT_BYTES: usize = 256 << 20;

/// Counters of the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MergeCacheStats {
    /// Bytes that the cache holds.
    pub bytes: usize,
    /// Scans that found the compared keys of their SSTables.
    pub key_hits: usize,
    /// Scans that read and compared keys of SSTables.
    pub key_misses: usize,
    /// Scans that found a mask of their snapshot.
    pub mask_hits: usize,
    /// Scans that asked for a mask and found none.
    pub mask_misses: usize,
}

/// The newest snapshot's keys and dead rows, shared by all scans of a table.
#[derive(Debug, Default)]
pub struct MergeCache {
    kept: Mutex<CachedKeys>,
    key_hits: AtomicUsize,
    key_misses: AtomicUsize,
    mask_hits: AtomicUsize,
    mask_misses: AtomicUsize,
}

#[derive(Debug, Default)]
struct CachedKeys {
    sstables: Option<(Vec<SourceId>, Arc<ComparedSsTables>)>,
    mask: Option<(SnapshotId, Arc<SnapshotMask>)>,
    flushed: Option<(SnapshotId, Arc<SnapshotMask>)>,
    /// The merged rows of shards, in tables whose rule makes a row of several.
    merged: Option<(SnapshotId, Arc<MergedMemTables>)>,
    /// Of the base fragments that parts of a snapshot read: rows that an SSTable supersedes.
    base: Option<(SnapshotId, DeadRows)>,
}

/// A mask of a snapshot: all of its dead rows, or the part that does not depend on MemTables.
#[derive(Clone, Debug)]
pub enum KnownRows {
    /// All dead rows: the base table, then the sources in the order of the snapshot.
    Exact(Arc<SnapshotMask>),
    /// Rows that an SSTable supersedes, and tombstones: the base table, then the SSTables in the
    /// order of the snapshot. Rows in memory may supersede more rows.
    Flushed(Arc<SnapshotMask>),
}

impl KnownRows {
    /// The dead rows of the base table of `snapshot` (arm 0), or of the SSTable at `arm`.
    #[must_use]
    pub fn of_arm(&self, snapshot: &Snapshot, arm: usize) -> Arc<DeadRows> {
        match self {
            Self::Exact(mask) => mask.arm(arm),
            Self::Flushed(mask) => {
                let sources = snapshot.sources().take(arm);
                mask.arm(sources.filter(|(_, it)| matches!(it, Source::SsTable(_))).count())
            }
        }
    }
}

/// Rows that a rule makes of several, of each shard that has some.
pub type MergedMemTables = Vec<(ShardId, MemTableView)>;

/// The identity of a source: sources with equal ids have the same rows.
#[derive(Clone, Debug, PartialEq, Eq)]
enum SourceId {
    SsTable { shard_id: ShardId, path: String },
    MemTable { id: u64, rows: usize },
}

/// A base version and the sources above it, in the order of the snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SnapshotId {
    base_version: u64,
    sources: Vec<SourceId>,
}

impl MergeCache {
    /// The compared SSTables of `snapshot`, if they are cached.
    pub fn sstables(&self, snapshot: &Snapshot) -> Option<Arc<ComparedSsTables>> {
        let id = sstables_of(snapshot);
        let kept = self.kept.lock();
        let found = kept.sstables.as_ref().filter(|(kept, _)| *kept == id);
        count(found.is_some(), &self.key_hits, &self.key_misses);
        found.map(|(_, sstables)| sstables.clone())
    }

    /// Caches the compared SSTables of `snapshot`.
    pub fn keep_sstables(
        &self,
        snapshot: &Snapshot,
        sstables: ComparedSsTables,
    ) -> Arc<ComparedSsTables> {
        let sstables = Arc::new(sstables);
        if sstables.heap_bytes() <= KEPT_BYTES {
            self.kept.lock().sstables = Some((sstables_of(snapshot), sstables.clone()));
        }
        sstables
    }

    /// Evicts everything, because an SSTable that was compared is damaged.
    pub fn forget(&self) {
        *self.kept.lock() = CachedKeys::default();
    }

    /// The mask of `snapshot`, the exact one first.
    pub fn mask(&self, snapshot: &Snapshot) -> Option<KnownRows> {
        let found = self.known(snapshot);
        count(found.is_some(), &self.mask_hits, &self.mask_misses);
        found
    }

    /// The dead rows of `snapshot` for a read: in a table with a merge rule all of them, which are
    /// computed where they are not cached; in other tables those that are cached.
    ///
    /// # Errors
    /// As [`ChosenRows::of`].
    pub async fn dead_rows(&self, snapshot: &Snapshot) -> Result<Option<KnownRows>> {
        if snapshot.key.is_empty() || snapshot.is_base_only() {
            return Ok(None);
        }
        let known = self.mask(snapshot);
        let Some(rule) = snapshot.rule().filter(|_| known.is_none()) else { return Ok(known) };
        let chosen = Box::pin(ChosenRows::of(snapshot, rule)).await?;
        let known = KnownRows::Exact(Arc::new(chosen.mask));
        self.keep_mask(snapshot, known.clone());
        Ok(Some(known))
    }

    /// The number of rows of `snapshot`, where an earlier scan of the same snapshot counted them.
    pub fn rows(&self, snapshot: &Snapshot) -> Option<usize> {
        match self.mask(snapshot)? {
            KnownRows::Exact(mask) => mask.live_rows,
            KnownRows::Flushed(_) => None,
        }
    }

    fn known(&self, snapshot: &Snapshot) -> Option<KnownRows> {
        let kept = self.kept.lock();
        let of = |kept: &Option<(SnapshotId, Arc<SnapshotMask>)>, id: &SnapshotId| {
            kept.as_ref().filter(|(kept, _)| kept == id).map(|(_, mask)| mask.clone())
        };
        let exact = of(&kept.mask, &snapshot_id(snapshot)).map(KnownRows::Exact);
        exact.or_else(|| of(&kept.flushed, &flushed_id(snapshot)).map(KnownRows::Flushed))
    }

    /// Whether a mask of `snapshot` is cached. Counts neither as a hit nor as a miss.
    pub fn has_mask(&self, snapshot: &Snapshot) -> bool {
        self.known(snapshot).is_some()
    }

    /// Caches a mask of `snapshot`.
    pub fn keep_mask(&self, snapshot: &Snapshot, known: KnownRows) {
        let (KnownRows::Exact(mask) | KnownRows::Flushed(mask)) = &known;
        if mask.heap_bytes() > KEPT_BYTES {
            return;
        }
        let mut kept = self.kept.lock();
        match known {
            KnownRows::Exact(mask) => kept.mask = Some((snapshot_id(snapshot), mask)),
            KnownRows::Flushed(mask) => kept.flushed = Some((flushed_id(snapshot), mask)),
        }
    }

    /// Those dead rows of `fragments` that parts of `snapshot` have found, without rows that only
    /// rows in memory supersede.
    pub fn base_rows(&self, snapshot: &Snapshot, fragments: &[Fragment]) -> DeadRows {
        let mut dead = DeadRows::default();
        let kept = self.kept.lock();
        let Some((id, known)) = &kept.base else { return dead };
        if *id == flushed_id(snapshot) {
            for fragment in fragments {
                dead.copy_fragment(fragment.id, known);
            }
        }
        dead
    }

    /// Caches dead rows of base fragments that a part of `snapshot` has found.
    pub fn keep_base_rows(&self, snapshot: &Snapshot, found: DeadRows) {
        let id = flushed_id(snapshot);
        let mut kept = self.kept.lock();
        let known = kept.base.take().filter(|(known, _)| *known == id);
        let mut dead = known.map(|(_, dead)| dead).unwrap_or_default();
        dead.replace(found);
        if dead.heap_bytes() <= KEPT_BYTES {
            kept.base = Some((id, dead));
        }
    }

    /// The merged rows of `snapshot`, which has none yet, if they are cached.
    pub fn merged(&self, snapshot: &Snapshot) -> Option<Arc<MergedMemTables>> {
        let id = snapshot_id(snapshot);
        let kept = self.kept.lock();
        kept.merged.as_ref().filter(|(known, _)| *known == id).map(|(_, merged)| merged.clone())
    }

    /// Caches the merged rows of `snapshot`, which has none itself.
    pub fn keep_merged(&self, snapshot: &Snapshot, merged: Arc<MergedMemTables>) {
        if bytes_of(&merged) <= KEPT_BYTES {
            self.kept.lock().merged = Some((snapshot_id(snapshot), merged));
        }
    }

    /// The counters.
    #[must_use]
    pub fn stats(&self) -> MergeCacheStats {
        let kept = self.kept.lock();
        let sstables = kept.sstables.as_ref().map_or(0, |(_, sstables)| sstables.heap_bytes());
        let masks = kept.mask.iter().chain(&kept.flushed);
        let mask: usize = masks.map(|(_, mask)| mask.heap_bytes()).sum();
        let base = kept.base.as_ref().map_or(0, |(_, dead)| dead.heap_bytes());
        let merged = kept.merged.as_ref().map_or(0, |(_, merged)| bytes_of(merged));
        MergeCacheStats {
            bytes: sstables + mask + base + merged,
            key_hits: self.key_hits.load(Ordering::Relaxed),
            key_misses: self.key_misses.load(Ordering::Relaxed),
            mask_hits: self.mask_hits.load(Ordering::Relaxed),
            mask_misses: self.mask_misses.load(Ordering::Relaxed),
        }
    }
}

fn bytes_of(merged: &MergedMemTables) -> usize {
    merged.iter().map(|(_, rows)| rows.memory_bytes()).sum()
}

fn count(hit: bool, hits: &AtomicUsize, misses: &AtomicUsize) {
    if hit { hits } else { misses }.fetch_add(1, Ordering::Relaxed);
}

fn sstables_of(snapshot: &Snapshot) -> Vec<SourceId> {
    snapshot
        .sources()
        .map(|(_, source)| source_id(&source))
        .filter(|id| matches!(id, SourceId::SsTable { .. }))
        .collect()
}

fn flushed_id(snapshot: &Snapshot) -> SnapshotId {
    SnapshotId { base_version: snapshot.base.version().version, sources: sstables_of(snapshot) }
}

fn snapshot_id(snapshot: &Snapshot) -> SnapshotId {
    let sources = snapshot.sources().map(|(_, source)| source_id(&source)).collect();
    SnapshotId { base_version: snapshot.base.version().version, sources }
}

fn source_id(source: &Source<'_>) -> SourceId {
    match source {
        Source::SsTable(sstable) => {
            SourceId::SsTable { shard_id: sstable.shard_id, path: sstable.path.clone() }
        }
        Source::MemTable(rows) => SourceId::MemTable { id: rows.memtable_id(), rows: rows.rows() },
    }
}
