//! SSTables into the base table, in one commit.
//!
//! Owns: which generations go, the dead positions of the base, the commit with its progress, and
//! draining the shard manifests afterwards.
//! Does not own: running writers. It never fences one and needs none to stop.
//!
//! The order is the safety: base commit first (rows, deletions and `compacted_sstables` are one
//! `Operation::Update`), manifests second. A crash in between leaves runs listed that readers of
//! lancemem skip, and that hold the same rows as the base for anybody else.

mod rows;

use std::collections::HashMap;
use std::sync::Arc;

use lance::Dataset;
use lance::dataset::CommitBuilder;
use lance::dataset::transaction::{Operation, TransactionBuilder, UpdateMode};
use lance_index::mem_wal::CompactedSsTable;
use lancemem_core::format::ShardManifest;
use lancemem_core::store::ManifestStore;
use lancemem_core::types::{Error, ErrorKind, Generation, Result, ShardId};

use crate::errors::Context;
use crate::merge::KeyChoice;
use crate::table::{Table, compacted_of};
use crate::view::{Consistency, ReadView, is_compacted};

const ATTEMPTS: usize = 10;

/// What a compaction did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompactionResult {
    /// Generations moved into the base table, over all shards.
    pub generations: usize,
    /// Rows written to the base table.
    pub rows_written: usize,
    /// Base rows that were superseded or deleted.
    pub rows_deleted: usize,
    /// Version of the base table that contains them; the present one where nothing was to do.
    pub base_version: u64,
}

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
            match self.compact_once().await {
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

    async fn compact_once(&self) -> Result<CompactionResult> {
        if self.primary_key().is_empty() {
            return Err(Error::input(
                "compaction of a table without a primary key is not built yet",
            ));
        }
        let view = self.read_view(Consistency::Flushed, &[]).await?;
        let generations: usize = view.shards.iter().map(|shard| shard.sstables.len()).sum();
        let version = view.base.version().version;
        if generations == 0 {
            return Ok(CompactionResult { base_version: version, ..Default::default() });
        }
        let choice = Arc::new(KeyChoice::of(&view).await?);
        let dead = rows::dead_base_rows(&view, &choice).await?;
        let rows_deleted = dead.values().map(|rows| rows.len() as usize).sum();
        let (removed_fragment_ids, updated_fragments) =
            rows::delete_rows(&view.base, &dead).await?;
        let (new_fragments, rows_written) = rows::write_newest(&view, &choice).await?;
        let operation = Operation::Update {
            removed_fragment_ids,
            updated_fragments,
            new_fragments,
            fields_modified: Vec::new(),
            compacted_sstables: progress_of(&view),
            fields_for_preserving_frag_bitmap: Vec::new(),
            update_mode: Some(UpdateMode::RewriteRows),
            inserted_rows_filter: None,
            updated_fragment_offsets: None,
        };
        let committed = commit(&view.base, operation).await?;
        Ok(CompactionResult {
            generations,
            rows_written,
            rows_deleted,
            base_version: committed.version().version,
        })
    }

    /// Removes from the manifests what the base table contains.
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

fn progress_of(view: &ReadView) -> Vec<CompactedSsTable> {
    view.shards
        .iter()
        .filter_map(|shard| {
            let newest = shard.sstables.iter().map(|sstable| sstable.generation).max()?;
            Some(CompactedSsTable::new(shard.shard_id, newest.get()))
        })
        .collect()
}

/// Commits on exactly the version that was planned for: a rebase of lance's would keep dead
/// positions that were looked up in another version.
async fn commit(base: &Arc<Dataset>, operation: Operation) -> Result<Dataset> {
    let transaction = TransactionBuilder::new(base.version().version, operation).build();
    CommitBuilder::new(base.clone())
        .with_max_retries(0)
        .execute(transaction)
        .await
        .context("committing a compaction")
}
