//! Keeping a table small: compaction, and draining manifests of what the base table has.
//!
//! Owns: repetition after a conflict, and the order base commit first, manifests second. A crash
//! in between leaves runs listed that readers of lancemem skip, and that hold the same rows as
//! the base for anybody else.
//! Does not own: the commit itself (`compact`).

use std::collections::HashMap;

use lancemem_core::format::ShardManifest;
use lancemem_core::store::ManifestStore;
use lancemem_core::types::{ErrorKind, Generation, Result, ShardId};

use super::{Table, compacted_of};
use crate::compact::{CompactionResult, compact_view};
use crate::view::{Consistency, is_compacted};

const ATTEMPTS: usize = 10;

impl Table {
    /// Moves every flushed run into the base table, all shards in one commit.
    ///
    /// A concurrent commit to the base table makes it plan again from the newest version.
    ///
    /// # Errors
    /// A storage error after repeated conflicts; nothing is half done.
    pub async fn compact(&self) -> Result<CompactionResult> {
        let mut attempt = 1;
        let result = loop {
            let view = self.read_view(Consistency::Flushed, &[]).await?;
            match compact_view(&view).await {
                Ok(result) => break result,
                Err(error) if error.kind() == ErrorKind::Retry && attempt < ATTEMPTS => {
                    tracing::info!(table = self.uri(), attempt, %error, "compaction plans again");
                    attempt += 1;
                }
                Err(error) => return Err(error),
            }
        };
        self.drain_manifests().await?;
        Ok(result)
    }

    async fn drain_manifests(&self) -> Result<()> {
        let manifests = self.manifests().await?;
        let compacted = compacted_of(&*self.latest_base().await?).await?;
        for manifest in manifests {
            self.drain_manifest(&manifest, &compacted).await?;
        }
        Ok(())
    }

    async fn drain_manifest(
        &self,
        manifest: &ShardManifest,
        compacted: &HashMap<ShardId, Generation>,
    ) -> Result<()> {
        let through = compacted.get(&manifest.shard_id).copied();
        let covered = |generation| is_compacted(through, generation);
        if !manifest.sstables.iter().any(|sstable| covered(sstable.generation)) {
            return Ok(());
        }
        let scan_batch = self.writer_defaults().manifest_scan_batch_size;
        ManifestStore::new(self.store().clone(), manifest.shard_id, scan_batch)
            .update_beside_owner(|manifest| {
                manifest.sstables.retain(|sstable| !covered(sstable.generation));
            })
            .await
            .map(|_| ())
    }
}
