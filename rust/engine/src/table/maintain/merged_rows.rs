//! Storing merged rows beside the writer.
//!
//! Owns: which shards have none stored for their flushed rows, and writing them.
//! Does not own: the merge and the bytes (`crate::merged`), their use in a read (`dead_rows` in
//! `read`), or their removal (`garbage`).

use std::sync::Arc;

use async_recursion::async_recursion as boxed;
use lancemem_core::types::{MaxBytes, Result, ShardId};

use crate::merged::{MergedFrom, fold_of, merged_rows};
use crate::snapshot::{Consistency, Snapshot, SnapshotShard};
use crate::table::Table;
use crate::table::read::{Purpose, Sources};

impl Table {
    /// Stores the merged rows of one shard or of all, where none are stored for the flushed rows that
    /// they have now. Returns the bytes that were written.
    ///
    /// # Errors
    /// Damage of an SSTable; a storage error. Files that were written before the error stay and are
    /// valid.
    #[boxed]
    pub(super) async fn store_merged_rows(&self, shard: Option<ShardId>) -> Result<u64> {
        // A snapshot for look-ups has no merged rows yet.
        let (consistency, purpose) = (Consistency::Flushed, Purpose::Lookup);
        let snapshot = self.reader.snapshot_of(consistency, &[], purpose, Sources::Own).await?;
        let (Some(fold), Some(from)) = (fold_of(&snapshot), MergedFrom::of(&snapshot)) else {
            return Ok(0);
        };
        let store = self.catalog.writable_store(self.catalog.defaults.fsync).await?;
        let mut missing = Vec::new();
        for of in &snapshot.shards {
            let Some(path) = from.path(of) else { continue };
            let is_asked = shard.is_none_or(|shard_id| of.shard_id == shard_id);
            if is_asked && !store.exists(&path).await? {
                missing.push((of.shard_id, path));
            }
        }
        if missing.is_empty() {
            return Ok(0);
        }
        let of_missing =
            |of: &SnapshotShard| missing.iter().any(|(shard_id, _)| of.shard_id == *shard_id);
        let compared = self.with_compared_sstables(&snapshot, of_missing).await?;
        let rows = Box::pin(merged_rows(&compared, fold)).await?;
        let mut written = 0;
        for (of, (_, path)) in compared.shards.iter().zip(&missing) {
            let merged = rows.iter().find(|(shard_id, _)| *shard_id == of.shard_id);
            let bytes = from.encode(&compared, of, merged.map(|(_, rows)| rows))?;
            let count = bytes.len() as u64;
            if MaxBytes::LOG_ENTRY.excess(count).is_some() {
                tracing::debug!(table = self.uri(), count, "merged rows are too many to be stored");
                continue;
            }
            store.put_if_absent(path, bytes).await?;
            written += count;
        }
        Ok(written)
    }

    /// The shards of `snapshot` that `is_asked` chooses, with SSTables whose checksums are verified:
    /// readers trust stored rows as long as the SSTables exist.
    async fn with_compared_sstables(
        &self,
        snapshot: &Arc<Snapshot>,
        is_asked: impl Fn(&SnapshotShard) -> bool,
    ) -> Result<Snapshot> {
        let mut compared = Snapshot::clone(snapshot);
        compared.shards.retain(is_asked);
        for shard in &mut compared.shards {
            for sstable in &mut shard.sstables {
                *sstable = self.compared_sstable(snapshot, sstable).await?;
            }
        }
        Ok(compared)
    }
}
