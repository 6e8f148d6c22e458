//! Deletion-vector mode of a table.
//!
//! Owns: the switch, which is a key in the base table's configuration, and writing missing deletion
//! vectors. Where a merge rule makes a row of several, the merged rows are stored too (`merged_rows`).
//! Does not own: the contents and the coverage of the files (`crate::deletion_vectors`), or their
//! use in a read (`dead_rows` in `read`).
//!
//! A file is published by its creation and never changed. A reader uses deletion vectors only where
//! they cover its snapshot, and compares keys everywhere else. So the result of a read does not
//! depend on the order of writers, readers and the switch.

use std::future::ready;
use std::sync::Arc;
use std::time::Instant;

use async_recursion::async_recursion as boxed;
use futures::FutureExt;
use lance::Dataset;
use lancemem_core::format::paths;
use lancemem_core::types::{Error, ErrorKind, MaxBytes, Result, ShardId};

use crate::changes::{Changelog, flushed_errors};
use crate::deletion_vectors::{MissingVectors, is_on, missing_vectors, switch};
use crate::record_index::new_name;
use crate::snapshot::{Consistency, Snapshot, SsTableHandle};
use crate::stages::{EnclosingStage, StageName};
use crate::table::Table;
use crate::table::read::shards_of;

/// Attempts to commit beside concurrent commits.
const MAX_ATTEMPTS: usize = 50;

/// The deletion vectors that a call looked up and wrote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeletionVectorResult {
    /// SSTables with missing deletion vectors. One file was written for each.
    pub sstables: usize,
    /// Fragments of the base table that were looked at, counted once for each SSTable.
    pub fragments: usize,
    /// Bytes of the files, with those of stored merged rows.
    pub bytes: u64,
    /// Milliseconds that the call took.
    pub elapsed_ms: u64,
}

impl Table {
    /// Switches deletion-vector mode on or off and returns the base version that records it. No
    /// data is rewritten. On: deletion vectors of the present SSTables are written before the call
    /// returns. Off: the SSTables are compacted first, so that no reader would profit from the
    /// mode.
    ///
    /// # Errors
    /// An input error for a table without a primary key; a storage error, also after repeated
    /// conflicts. The mode stays on where only writing deletion vectors failed.
    #[boxed]
    pub async fn alter_deletion_vectors(&self, on: bool) -> Result<u64> {
        self.catalog.require_key()?;
        let base = self.catalog.latest_base().await?;
        if is_on(&base) == on {
            if on {
                // An earlier call may have switched the mode on and failed to write them.
                self.write_deletion_vectors(None).boxed().await?;
            }
            return Ok(base.version().version);
        }
        if !on {
            if Changelog::of(&base) == Changelog::Flushed {
                return Err(flushed_errors::vectors_in_use(self.uri()));
            }
            self.compact().boxed().await?;
        }
        let version = self.commit_switch(on).await?;
        self.catalog.latest_base().await?;
        if on {
            self.write_deletion_vectors(None).boxed().await?;
        }
        Ok(version)
    }

    async fn commit_switch(&self, on: bool) -> Result<u64> {
        let operation = |base: Arc<Dataset>| {
            let is_needed = Changelog::of(&base) == Changelog::Flushed;
            let refused = (is_needed && !on).then(|| flushed_errors::vectors_in_use(self.uri()));
            ready(refused.map_or_else(|| Ok(switch(on)), Err))
        };
        self.catalog.commit_on_newest(MAX_ATTEMPTS, operation).await
    }

    /// Writes the missing deletion vectors of one shard or of all: looks up which rows each flushed
    /// SSTable supersedes, and writes one file for each SSTable. Where the table stores the changes
    /// of its flushes, the missing ones are stored too. Writers and readers go on meanwhile.
    ///
    /// # Errors
    /// An input error for a table whose deletion-vector mode is off; a storage error. Files that
    /// were written before the error stay and are valid.
    #[boxed]
    pub async fn write_deletion_vectors(
        &self,
        shard: Option<ShardId>,
    ) -> Result<DeletionVectorResult> {
        if !is_on(&*self.catalog.latest_base().await?) {
            return Err(Error::input(format!(
                "deletion-vector mode of table {} is off; switch it on first",
                self.uri()
            )));
        }
        self.look_up_flushed(shard).await
    }

    /// As [`Self::write_deletion_vectors`], whether or not the mode is on.
    pub(super) async fn look_up_flushed(
        &self,
        shard: Option<ShardId>,
    ) -> Result<DeletionVectorResult> {
        let snapshot = self.snapshot(Consistency::Flushed, &[]).await?;
        let mut result = self.compute_missing(&snapshot, shard).await?;
        result.bytes += self.store_merged_rows(shard).await?;
        // A table without that property pays no second snapshot.
        if Changelog::of(&snapshot.base) == Changelog::Flushed {
            self.publish_flushed_changes(shard).boxed().await?;
        }
        Ok(result)
    }

    async fn compute_missing(
        &self,
        snapshot: &Snapshot,
        shard: Option<ShardId>,
    ) -> Result<DeletionVectorResult> {
        let started = Instant::now();
        let store = self.catalog.writable_store(self.catalog.defaults.fsync).await?;
        let files = self.reader.vectors.of_shards(&store, &shards_of(snapshot)).await?;
        let mut all_missing = missing_vectors(snapshot, &files);
        all_missing
            .retain(|missing| shard.is_none_or(|shard_id| missing.sstable.shard_id == shard_id));
        let mut result = DeletionVectorResult::default();
        if all_missing.is_empty() {
            return Ok(result);
        }
        let index = snapshot.base_cache.record_index(&snapshot.base, &snapshot.key).await;
        let stage = EnclosingStage::begin(StageName::WriteDeletionVectors, all_missing.len());
        for mut missing in all_missing {
            self.compare_sstables_of(&mut missing, snapshot).await?;
            let bytes = missing.compute(snapshot, &index).await?.encode();
            result.sstables += 1;
            result.fragments += missing.fragments.len();
            result.bytes += bytes.len() as u64;
            let path =
                paths::run_vectors(missing.sstable.shard_id, &missing.sstable.path, &new_name()?);
            store.put_once(&path, bytes.into(), MaxBytes::VECTORS).await?;
            stage.add(1_u64);
        }
        result.elapsed_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        tracing::debug!(table = self.uri(), ?result, "deletion vectors written");
        Ok(result)
    }

    /// Verifies the checksums of the SSTables of `missing` before their keys are read. Readers and
    /// compactions trust deletion vectors as long as the SSTables exist, so these must not be
    /// computed from damaged keys.
    async fn compare_sstables_of(
        &self,
        missing: &mut MissingVectors,
        snapshot: &Snapshot,
    ) -> Result<()> {
        for sstable in std::iter::once(&mut missing.sstable).chain(&mut missing.older) {
            *sstable = self.compared_sstable(snapshot, sstable).await?;
        }
        Ok(())
    }

    /// An SSTable whose checksums are verified. Damage of one forgets what was read of it.
    pub(super) async fn compared_sstable(
        &self,
        snapshot: &Snapshot,
        sstable: &Arc<SsTableHandle>,
    ) -> Result<Arc<SsTableHandle>> {
        let compared = self.reader.sstables.compared(&snapshot.base, sstable).await;
        compared.inspect_err(|error| {
            if error.kind() == ErrorKind::Corruption {
                self.reader.merges.forget();
            }
        })
    }
}
