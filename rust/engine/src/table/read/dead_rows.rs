//! The dead rows of a snapshot, from deletion vectors, and its merged rows that are stored.
//!
//! Owns: whether deletion vectors answer for a snapshot, the dead rows for the planner of a scan, and
//! reading stored merged rows.
//! Does not own: the contents and the coverage of the files (`crate::deletion_vectors`,
//! `crate::merged`), or writing them (`deletion_vectors` and `merged_rows` in `maintain`).

use std::sync::Arc;

use futures::future::try_join_all;
use lancemem_core::types::{MaxBytes, Result, ShardId};

use super::Reader;
use crate::deletion_vectors::{Coverage, is_on};
use crate::merged::{MergedFrom, fold_of};
use crate::snapshot::{Snapshot, SnapshotShard, listed_graves};
use crate::table::Table;
use crate::visibility::{KnownRows, MergedMemTables, live_rows};

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
            let mut mask = cover.into_mask();
            let known = if snapshot.rule().is_some() {
                mask.live_rows = live_rows(snapshot, &mask);
                KnownRows::Exact(Arc::new(mask))
            } else {
                KnownRows::Flushed(Arc::new(mask))
            };
            self.merges.keep_mask(snapshot, known);
        }
    }

    /// The dead rows among a snapshot's flushed rows, where the table has the mode and its deletion
    /// vectors cover the snapshot.
    pub(in crate::table) async fn cover_of(&self, snapshot: &Snapshot) -> Option<Coverage> {
        let has_no_sstable = snapshot.shards.iter().all(|shard| shard.sstables.is_empty());
        // By a merge rule an older row may beat a row in memory, and a remembered delete any row; no
        // file names these.
        let is_in_memory = |shard: &SnapshotShard| !shard.memtables.is_empty();
        let is_unknown = snapshot.rule().is_some()
            && (snapshot.shards.iter().any(is_in_memory) || remembers_deletes(snapshot));
        if !is_on(&snapshot.base) || has_no_sstable || is_unknown {
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

impl Reader {
    /// The merged rows of a snapshot without rows in memory, where the table has the mode and they are
    /// stored for every shard.
    pub(super) async fn stored_merged_rows(&self, snapshot: &Snapshot) -> Option<MergedMemTables> {
        fold_of(snapshot).filter(|_| is_on(&snapshot.base))?;
        let from = MergedFrom::of(snapshot)?;
        let flushed = snapshot.shards.iter().filter(|shard| !shard.sstables.is_empty());
        let reads = flushed.map(|shard| self.stored_rows_of(snapshot, &from, shard));
        match try_join_all(reads).await {
            Ok(rows) => {
                let rows: Vec<_> = rows.into_iter().collect::<Option<_>>()?;
                Some(rows.into_iter().flatten().collect())
            }
            Err(error) => {
                let table = self.catalog.uri();
                tracing::warn!(table, %error, "stored merged rows cannot be read");
                None
            }
        }
    }

    /// The stored merged rows of one shard; `None` where none are stored.
    async fn stored_rows_of(
        &self,
        snapshot: &Snapshot,
        from: &MergedFrom,
        shard: &SnapshotShard,
    ) -> Result<Option<MergedMemTables>> {
        let Some(path) = from.path(shard) else { return Ok(Some(MergedMemTables::new())) };
        let Some(bytes) = self.catalog.store.get(&path, MaxBytes::LOG_ENTRY).await? else {
            return Ok(None);
        };
        from.decode(snapshot, shard, (&bytes, &path))
    }
}

/// Whether the base version of a snapshot lists remembered deletes. A damaged list is an error of the
/// read that follows.
fn remembers_deletes(snapshot: &Snapshot) -> bool {
    !matches!(listed_graves(&snapshot.base), Ok(None))
}

/// The shards of a snapshot that have SSTables.
pub(in crate::table) fn shards_of(snapshot: &Snapshot) -> Vec<ShardId> {
    let shards = snapshot.shards.iter().filter(|shard| !shard.sstables.is_empty());
    shards.map(|shard| shard.shard_id).collect()
}
