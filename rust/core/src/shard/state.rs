//! The state of a shard at one moment, as one immutable value that is swapped whole.
//!
//! Owns: active and frozen MemTables beside the manifest that they continue.
//! Does not own: the lock that orders writers, or durability.

use std::sync::Arc;

use crate::format::ShardManifest;
use crate::memtable::{MemTable, MemTableView};
use crate::types::Generation;

/// A MemTable and the positions of its batches in the job's log.
#[derive(Clone, Debug)]
pub(super) struct LiveMemTable {
    pub memtable: Arc<MemTable>,
    /// Batches from the replay, which were durable before the job began.
    pub recovered: usize,
    /// Batches that the job had queued before the first batch of this MemTable.
    pub first_queued: u64,
}

impl LiveMemTable {
    /// Batches that this job has queued through the last batch of this MemTable.
    pub fn last_queued(&self) -> u64 {
        self.first_queued + (self.memtable.batches() - self.recovered) as u64
    }

    /// Batches of this MemTable among the first `queued` batches of the job, recovered ones
    /// included.
    pub fn batches_among(&self, queued: u64) -> usize {
        let of_this = queued.saturating_sub(self.first_queued);
        self.recovered.saturating_add(usize::try_from(of_this).unwrap_or(usize::MAX))
    }
}

/// The shard as its writer sees it.
#[derive(Clone, Debug)]
pub(super) struct ShardState {
    pub manifest: Arc<ShardManifest>,
    /// Oldest first.
    pub frozen: Vec<LiveMemTable>,
    pub active: LiveMemTable,
}

impl ShardState {
    /// This state with the active MemTable frozen and `next` in its place.
    pub fn with_frozen(&self, next: LiveMemTable) -> Self {
        let mut frozen = self.frozen.clone();
        frozen.push(self.active.clone());
        Self { manifest: self.manifest.clone(), frozen, active: next }
    }

    /// This state after the flush of `generation`, which `manifest` lists.
    pub fn with_flushed(&self, generation: Generation, manifest: Arc<ShardManifest>) -> Self {
        let frozen = self
            .frozen
            .iter()
            .filter(|live| live.memtable.generation() != generation)
            .cloned()
            .collect();
        Self { manifest, frozen, active: self.active.clone() }
    }

    pub fn memtables(&self) -> impl Iterator<Item = &LiveMemTable> {
        self.frozen.iter().chain(std::iter::once(&self.active))
    }

    /// This state over `manifest`, which a compactor wrote beside this job.
    pub fn with_manifest(&self, manifest: Arc<ShardManifest>) -> Self {
        Self { manifest, frozen: self.frozen.clone(), active: self.active.clone() }
    }

    /// Generations that wait for compaction, frozen MemTables included.
    pub fn uncompacted(&self) -> usize {
        self.manifest.sstables.len() + self.frozen.len()
    }
}

/// A snapshot of a running job, for a reader of the same process.
#[derive(Clone, Debug)]
pub struct ShardSnapshot {
    /// The manifest that lists the flushed SSTables below the MemTables.
    pub manifest: Arc<ShardManifest>,
    /// The readable rows in memory, oldest generation first. No MemTable is empty.
    pub memtables: Vec<MemTableView>,
}
