//! Damaged logs of a table's shards: look at one, and cut one.
//!
//! Owns: finding the shard, and forgetting what this handle had read of a log that was cut.
//! Does not own: what is damaged or how a cut goes, which is the core's.

use std::sync::Arc;

use async_recursion::async_recursion as boxed;
use lancemem_core::shard::{WalReport, check_wal, cut_wal};
use lancemem_core::store::{ManifestStore, Store};
use lancemem_core::types::{Error, Result, ShardId, WalPosition};

use super::Table;

impl Table {
    /// Looks for damage in a shard's log, and writes nothing.
    ///
    /// # Errors
    /// An input error for a shard that does not exist; a storage error or a damaged manifest.
    #[boxed]
    pub async fn check_wal(&self, shard_id: ShardId) -> Result<WalReport> {
        let manifests = self.manifests_of(self.store.clone(), shard_id).await?;
        check_wal(&self.store, &manifests).await
    }

    /// Drops a shard's log from the entry `from` on, which [`Self::check_wal`] reported as the
    /// first damaged one, after copies of every dropped entry were made. Fences the shard's job.
    ///
    /// # Errors
    /// An input error, with nothing written, for a position that must not be cut. After another
    /// error the cut may be half done: call again.
    #[boxed]
    pub async fn cut_wal(&self, shard_id: ShardId, from: WalPosition) -> Result<WalReport> {
        // Copies are on disk before an entry is replaced, whatever the table's jobs promise.
        let store = self.writable_store(true).await?;
        let manifests = Arc::new(self.manifests_of(store.clone(), shard_id).await?);
        let report = cut_wal(&store, &manifests, from).await;
        self.tails.forget(shard_id);
        report
    }

    async fn manifests_of(&self, store: Store, shard_id: ShardId) -> Result<ManifestStore> {
        let scan_batch = self.defaults.manifest_scan_batch_size;
        let manifests = ManifestStore::new(store, shard_id, scan_batch);
        if manifests.latest().await?.is_none() {
            return Err(Error::input(format!(
                "shard {shard_id} does not exist in table {}",
                self.uri()
            )));
        }
        Ok(manifests)
    }
}
