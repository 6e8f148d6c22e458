//! The progress of compaction, which the MemWAL index of the base table records.
//!
//! Owns: the newest compacted generation of each shard at a base version, and the commit that
//! changes only that.
//! Does not own: the commit of a compaction (`crate::compaction`), or what is missing (`missing`).

use std::collections::HashMap;
use std::sync::Arc;

use async_recursion::async_recursion as boxed;
use lance::Dataset;
use lance::dataset::mem_wal::DatasetMemWalExt;
use lance::dataset::transaction::Operation;
use lance_index::mem_wal::{CompactedSsTable, MemWalIndexDetails};
use lancemem_core::format::ShardManifest;
use lancemem_core::types::{Error, Generation, Result, ShardId};

use super::Catalog;
use super::create::table_id_of;
use super::specifications::Specifications;
use crate::errors::Context;
use crate::schema::replaced;

/// Attempts to commit beside concurrent commits.
const MAX_ATTEMPTS: usize = 50;

/// Newest compacted generation of each shard.
pub(in crate::table) type Compacted = Arc<HashMap<ShardId, Generation>>;

impl Catalog {
    /// Newest compacted generation of each shard at a base version; cached for the last version.
    ///
    /// # Errors
    /// An input error where the table has another index than this handle, perhaps with another
    /// sharding or merge rule; a storage error.
    pub(in crate::table) async fn compacted_at(&self, base: &Dataset) -> Result<Compacted> {
        let version = base.version().version;
        let known = self.compacted.lock().clone();
        if let Some((_, compacted)) = known.filter(|(known, _)| *known == version) {
            return Ok(compacted);
        }
        let details = index_of(base).await?;
        let Specifications { sharding, rule, .. } = Specifications::of(base, &details)?;
        let is_same = table_id_of(&details)? == self.table_id
            && sharding.map(|(_, record)| record) == self.sharding_record
            && rule == self.rule;
        if !is_same {
            return Err(replaced(self.uri()));
        }
        let compacted = Arc::new(compacted_in(&details));
        *self.compacted.lock() = Some((version, compacted.clone()));
        Ok(compacted)
    }

    /// Records the progress of older shards in a new index: the base table contains all that they
    /// flushed and do not list, because only shards without rows are retired.
    ///
    /// # Errors
    /// A storage error. The progress of the shards is then recorded by their first compaction.
    #[boxed]
    pub(super) async fn record_emptied(&self) -> Result<()> {
        let manifests = self.manifests().await?;
        let manifests = &manifests;
        let base = self.latest_base().await?;
        if emptied(manifests, &*self.compacted_at(&base).await?).is_empty() {
            return Ok(());
        }
        let record = |base: Arc<Dataset>| async move {
            let compacted = self.compacted_at(&base).await?;
            Ok::<_, Error>(progress_alone(emptied(manifests, &compacted)))
        };
        self.commit_on_newest(MAX_ATTEMPTS, record).await.map(|_| ())
    }
}

/// The MemWAL index of a base version.
#[boxed]
pub(super) async fn details_of(base: &Dataset) -> Result<Option<MemWalIndexDetails>> {
    base.mem_wal_index_details().await.context("reading the MemWAL index")
}

/// The MemWAL index of a base version, which must have one.
async fn index_of(base: &Dataset) -> Result<MemWalIndexDetails> {
    let missing = || {
        Error::input(format!(
            "the MemWAL index of table {} was dropped; restore a version that has it, or enable the \
             table again",
            base.uri()
        ))
    };
    details_of(base).await?.ok_or_else(missing)
}

/// Newest compacted generation of each shard at a base version.
#[boxed]
pub(in crate::table) async fn compacted_of(base: &Dataset) -> Result<HashMap<ShardId, Generation>> {
    Ok(compacted_in(&index_of(base).await?))
}

pub(super) fn compacted_in(details: &MemWalIndexDetails) -> HashMap<ShardId, Generation> {
    let compacted = details.compacted_sstables.iter();
    compacted.map(|it| (it.shard_id, Generation(it.generation))).collect()
}

/// A commit that changes only the progress of shards in the MemWAL index.
pub(in crate::table) fn progress_alone(compacted_sstables: Vec<CompactedSsTable>) -> Operation {
    Operation::Update {
        removed_fragment_ids: Vec::new(),
        updated_fragments: Vec::new(),
        new_fragments: Vec::new(),
        fields_modified: Vec::new(),
        compacted_sstables,
        fields_for_preserving_frag_bitmap: Vec::new(),
        update_mode: None,
        inserted_rows_filter: None,
        updated_fragment_offsets: None,
    }
}

/// For each shard the newest generation that was flushed and is below all listed ones, where that
/// is more than its progress in `compacted`.
fn emptied(
    manifests: &[Arc<ShardManifest>],
    compacted: &HashMap<ShardId, Generation>,
) -> Vec<CompactedSsTable> {
    let emptied = manifests.iter().filter_map(|manifest| {
        let oldest = manifest.sstables.iter().map(|sstable| sstable.generation).min();
        let through = oldest.unwrap_or(manifest.current_generation).get().saturating_sub(1);
        let progress = compacted.get(&manifest.shard_id).copied().unwrap_or_default();
        let is_more = through > progress.get();
        is_more.then(|| CompactedSsTable::new(manifest.shard_id, through))
    });
    emptied.collect()
}
