//! SSTables into the base table, in one commit.
//!
//! Owns: the dead positions of the base, the rows that are written, and the commit that carries
//! both together with the progress.
//! Does not own: which cut is compacted, repetition after a conflict, or the shard manifests
//! (`table`). It never fences a writer and needs none to stop.
//!
//! Rows, deletions and `compacted_sstables` are one `Operation::Update`, so a crash leaves either
//! all of them or nothing.

mod rows;

use std::sync::Arc;

use lance::Dataset;
use lance::dataset::CommitBuilder;
use lance::dataset::transaction::{Operation, TransactionBuilder, UpdateMode};
use lance_index::mem_wal::CompactedSsTable;
use lancemem_core::types::{Error, Result};

use crate::errors::Context;
use crate::merge::KeyChoice;
use crate::sstable::sync_commit;
use crate::view::ReadView;

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

/// Moves every run of `view`, a cut without rows in memory, into the base table.
///
/// # Errors
/// A storage error, of kind retry where the base table has a newer version than the view.
pub async fn compact_view(view: &ReadView) -> Result<CompactionResult> {
    if view.key.is_empty() {
        return Err(Error::input("compaction of a table without a primary key is not built yet"));
    }
    let generations: usize = view.shards.iter().map(|shard| shard.sstables.len()).sum();
    if generations == 0 {
        let base_version = view.base.version().version;
        return Ok(CompactionResult { base_version, ..CompactionResult::default() });
    }
    let choice = Arc::new(KeyChoice::of(view).await?);
    let dead = rows::dead_base_rows(view, &choice).await?;
    let rows_deleted = dead.values().map(rows::count).sum();
    let (removed_fragment_ids, updated_fragments) = rows::delete_rows(&view.base, &dead).await?;
    let (new_fragments, rows_written) = rows::write_newest(view, &choice).await?;
    let operation = Operation::Update {
        removed_fragment_ids,
        updated_fragments,
        new_fragments,
        fields_modified: Vec::new(),
        compacted_sstables: progress_of(view),
        fields_for_preserving_frag_bitmap: Vec::new(),
        update_mode: Some(UpdateMode::RewriteRows),
        inserted_rows_filter: None,
        updated_fragment_offsets: None,
    };
    let committed = commit(&view.base, operation).await?;
    sync_commit(&view.base, &committed).await.context("making a compaction durable")?;
    let base_version = committed.version().version;
    Ok(CompactionResult { generations, rows_written, rows_deleted, base_version })
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
