//! Damage in a table's shards: look at a log, and cut one; look at the files of SSTables.
//!
//! Owns: finding the shard, what a report of an SSTable says, and forgetting what this handle had read of a
//! log that was cut.
//! Does not own: what is damaged in a log or how a cut goes, which is the core's, or checksums of files
//! (`sstable`).

use std::sync::Arc;

use async_recursion::async_recursion as boxed;
use futures::FutureExt;
use futures::future::BoxFuture;
use lancemem_core::format::SsTable;
use lancemem_core::shard::{WalReport, truncate_wal, verify_wal};
use lancemem_core::store::{ManifestStore, Store};
use lancemem_core::types::{Error, ErrorKind, Generation, Result, ShardId, WalPosition};

use super::{Shard, Table};
use crate::damage::naming_damage;
use crate::errors::{Context, SsTableErrors};
use crate::snapshot::remember;
use crate::sstable::{Compared, SsTableContext, SsTableFiles, compare, open_sstable};

/// What a look at the files of an SSTable found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SsTableReport {
    /// Its shard.
    pub shard_id: ShardId,
    /// Its age in the shard.
    pub generation: Generation,
    /// Its folder in the shard.
    pub path: String,
    /// Files that have a checksum; none in an SSTable that lance wrote.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Files that its rows come from and that have no checksum, by their paths in its folder.
    pub unchecked: Vec<String>,
    /// Each damage, with the file.
    pub damage: Vec<String>,
}

impl Table {
    /// `work` on this table, whose error names the damaged file of the base table where it failed for one.
    ///
    /// # Errors
    /// Those of `work`.
    pub fn naming_damage<'a, T: Send + 'a>(
        &'a self,
        work: impl Future<Output = Result<T>> + Send + 'a,
    ) -> BoxFuture<'a, Result<T>> {
        let base = self.base.known().dataset;
        async move { naming_damage(&base, work).await }.boxed()
    }

    /// Looks for damage in a shard's log, and writes nothing.
    ///
    /// # Errors
    /// An input error for a shard that does not exist; a storage error or a damaged manifest; damage where
    /// nothing is wrong with the log but that all of it is older than the base table, or generations are
    /// missing that were flushed.
    #[boxed]
    pub async fn verify_wal(&self, shard_id: ShardId) -> Result<WalReport> {
        let manifests = self.manifests_of(self.store.clone(), shard_id).await?;
        let report = verify_wal(&self.store, &manifests).await?;
        // A base table that cannot be read says nothing of a log.
        if report.first_damage().is_none()
            && let Ok(base) = self.latest_base().await
        {
            let manifest = manifests.existing().await?;
            self.refuse_older(&base, &manifest).await?;
            self.check_complete(&base, &manifest).await?;
        }
        Ok(report)
    }

    /// Drops a shard's log from the entry `from` on, which [`Self::verify_wal`] reported as the
    /// first damaged one, after copies of every dropped entry were made. Fences the shard's job.
    ///
    /// # Errors
    /// An input error, with nothing written, for a position that must not be cut. After another
    /// error the cut may be half done: call again.
    #[boxed]
    pub async fn truncate_wal(&self, shard_id: ShardId, from: WalPosition) -> Result<WalReport> {
        // Copies are on disk before an entry is replaced, whatever the table's jobs promise.
        let store = self.writable_store(true).await?;
        let manifests = Arc::new(self.manifests_of(store.clone(), shard_id).await?);
        let report = truncate_wal(&store, &manifests, from).await;
        self.tails.forget(shard_id);
        report
    }

    /// Compares every file of the SSTables that no compaction has covered with its checksum, of one shard
    /// or of all, whatever they are stored on and however large; writes nothing. Of an SSTable that lance
    /// wrote nothing but its manifest can be looked at. Generations that were flushed and are missing are
    /// damage, reported for each range of them without a path.
    ///
    /// # Errors
    /// An input error for a shard that does not exist; a storage error or a damaged manifest of a shard.
    #[boxed]
    pub async fn verify_sstables(&self, shard_id: Option<ShardId>) -> Result<Vec<SsTableReport>> {
        let mut shards = self.shards().await?;
        if let Some(wanted) = shard_id {
            shards.retain(|shard| shard.shard_id == wanted);
            if shards.is_empty() {
                return Err(self.no_shard(wanted));
            }
        }
        let mut reports = self.check_listed(&shards).await?;
        reports.extend(self.missing_reports(&shards).await?);
        Ok(reports)
    }

    async fn check_listed(&self, shards: &[Shard]) -> Result<Vec<SsTableReport>> {
        let mut reports = Vec::new();
        for shard in shards {
            for sstable in &shard.sstables {
                let report = self.verify_sstable(shard.shard_id, sstable).await?;
                // One that a compaction has moved meanwhile may be collected by now.
                if report.damage.is_empty() || self.lists(shard.shard_id, sstable).await? {
                    reports.push(report);
                }
            }
        }
        Ok(reports)
    }

    /// Whether an SSTable is one that no compaction has covered.
    async fn lists(&self, shard_id: ShardId, sstable: &SsTable) -> Result<bool> {
        let shards = self.shards().await?;
        let mut of_shard = shards.iter().filter(|shard| shard.shard_id == shard_id);
        Ok(of_shard.any(|shard| shard.sstables.iter().any(|listed| listed.path == sstable.path)))
    }

    pub(super) async fn verify_sstable(
        &self,
        shard_id: ShardId,
        sstable: &SsTable,
    ) -> Result<SsTableReport> {
        let name = format!("SSTable {} of shard {shard_id}", sstable.path);
        let base = self.base.known().dataset;
        let context = SsTableContext::new(&base, shard_id).await.context(&name)?;
        let compared = match open_sstable(&context, &sstable.path).await.in_sstable(&name) {
            Ok(dataset) => {
                let dataset = Arc::new(dataset);
                // No collector of this process removes its files while they are read.
                remember(&dataset);
                compare(&dataset, SsTableFiles::All).await.context(&name)
            }
            Err(error) => Err(error),
        };
        let (compared, damage) = match compared {
            Ok(compared) => {
                let damaged = &compared.damaged;
                let damage = damaged.iter().map(|it| format!("{}: {}", it.file, it.kind)).collect();
                (compared, damage)
            }
            Err(error) if error.kind() == ErrorKind::Corruption => {
                (Compared::default(), vec![error.to_string()])
            }
            Err(error) => return Err(error),
        };
        let Compared { files, bytes, unchecked, .. } = compared;
        let (generation, path) = (sstable.generation, sstable.path.clone());
        Ok(SsTableReport { shard_id, generation, path, files, bytes, unchecked, damage })
    }

    pub(super) fn no_shard(&self, shard_id: ShardId) -> Error {
        Error::input(format!("shard {shard_id} does not exist in table {}", self.uri()))
    }

    pub(super) async fn manifests_of(
        &self,
        store: Store,
        shard_id: ShardId,
    ) -> Result<ManifestStore> {
        let scan_batch = self.defaults.manifest_scan_batch_size;
        let manifests = ManifestStore::new(store, shard_id, scan_batch);
        if manifests.latest().await?.is_none() {
            return Err(self.no_shard(shard_id));
        }
        Ok(manifests)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use arrow_array::{Int64Array, RecordBatch};
    use lancemem_core::format::Sharding;
    use lancemem_core::types::WriterConfig;

    use super::*;
    use crate::table::CreateOptions;

    #[tokio::test]
    async fn a_run_that_was_compacted_and_collected_during_a_check_is_not_damaged() {
        let folder = tempfile::tempdir().unwrap();
        let ids = Arc::new(Int64Array::from_iter_values(0..10));
        let rows = RecordBatch::try_from_iter_with_nullable([("id", ids as _, false)]).unwrap();
        let options = CreateOptions {
            schema: rows.schema(),
            primary_key: vec!["id".to_owned()],
            sharding: Sharding::Unsharded,
            config: WriterConfig::default(),
        };
        let table = Table::create(folder.path().to_str().unwrap(), &options).await.unwrap();
        let shard_id = table.shards().await.unwrap()[0].shard_id;
        let job = table.start_job(shard_id, table.writer_defaults().clone()).await.unwrap();
        job.put(&rows).await.unwrap();
        job.close(true).await.unwrap();
        let listed = table.shards().await.unwrap();
        let sstable = folder.path().join("_mem_wal").join(shard_id.to_string());
        let sstable = sstable.join(&listed[0].sstables[0].path);
        fs::rename(sstable.join("bloom_filter.bin"), sstable.join("elsewhere")).unwrap();
        let [report] = &table.check_listed(&listed).await.unwrap()[..] else {
            panic!("one SSTable")
        };
        assert_eq!(report.damage, ["bloom_filter.bin: missing"]);
        fs::rename(sstable.join("elsewhere"), sstable.join("bloom_filter.bin")).unwrap();

        table.compact().await.unwrap();
        fs::remove_dir_all(sstable).unwrap();
        assert_eq!(table.check_listed(&listed).await.unwrap(), []);
    }
}
