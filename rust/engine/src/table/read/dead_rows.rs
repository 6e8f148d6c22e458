//! The dead rows of a snapshot, from deletion vectors.
//!
//! Owns: whether deletion vectors answer for a snapshot, and the dead rows for the planner of a
//! scan.
//! Does not own: the contents and the coverage of the files (`crate::deletion_vectors`), or writing
//! them (`deletion_vectors` in `maintain`).

use std::sync::Arc;

use lancemem_core::types::ShardId;

use super::Reader;
use crate::deletion_vectors::{Coverage, is_on};
use crate::snapshot::Snapshot;
use crate::table::Table;
use crate::visibility::KnownRows;

impl Table {
    /// Whether the mode is on in the newest version that this handle has read.
    #[must_use]
    pub fn has_deletion_vectors(&self) -> bool {
        is_on(&self.catalog.base.known().dataset)
    }
}

impl Reader {
    /// Puts the dead rows of `snapshot` into the cache of the planner, where the table has the mode
    /// and its deletion vectors cover the snapshot.
    pub(super) async fn take_dead_rows(&self, snapshot: &Snapshot) {
        if !self.merges.has_mask(snapshot)
            && let Some(cover) = self.cover_of(snapshot).await
        {
            let known = KnownRows::Flushed(Arc::new(cover.into_mask()));
            self.merges.keep_mask(snapshot, known);
        }
    }

    /// The dead rows among a snapshot's flushed rows, where the table has the mode and its deletion
    /// vectors cover the snapshot.
    pub(in crate::table) async fn cover_of(&self, snapshot: &Snapshot) -> Option<Coverage> {
        let has_no_sstable = snapshot.shards.iter().all(|shard| shard.sstables.is_empty());
        // The files compare rows by their age, and so do not answer for a merge rule.
        if !is_on(&snapshot.base) || has_no_sstable || snapshot.rule().is_some() {
            return None;
        }
        match self.vectors.of_shards(&self.catalog.store, &shards_of(snapshot)).await {
            Ok(files) => Coverage::of(snapshot, &files),
            Err(error) => {
                tracing::warn!(table = self.catalog.uri(), %error, "deletion vectors cannot be read");
                None
            }
        }
    }
}

/// The shards of a snapshot that have SSTables.
pub(in crate::table) fn shards_of(snapshot: &Snapshot) -> Vec<ShardId> {
    let shards = snapshot.shards.iter().filter(|shard| !shard.sstables.is_empty());
    shards.map(|shard| shard.shard_id).collect()
}
