//! Verify and repair of shards: verify or truncate a log, verify SSTables.
//!
//! Owns: finding the shard, the report of an SSTable, and dropping the cached tail of a truncated
//! log.
//! Does not own: damage and truncation of a log, which are the core's, or checksums of files
//! (`sstable`).

use std::sync::Arc;

use async_recursion::async_recursion as boxed;
use futures::FutureExt;
use futures::future::BoxFuture;
use lancemem_core::format::SsTable;
use lancemem_core::shard::{WalReport, truncate_wal, verify_wal};
use lancemem_core::store::{ManifestStore, Store};
use lancemem_core::types::{Error, ErrorKind, Generation, Result, ShardId, WalPosition};

use crate::damage::naming_damage;
use crate::errors::{Context, SsTableErrors};
use crate::snapshot::remember;
use crate::sstable::{Compared, SsTableContext, SsTableFiles, compare, open_sstable};
use crate::stages::{Stage, StageName};
use crate::table::Table;
use crate::table::catalog::{Catalog, Shard, missing_text};

/// The result of verifying the files of an SSTable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SsTableReport {
    /// Its shard; nil for a folder of remembered deletes.
    pub shard_id: ShardId,
    /// Its generation; 0 for a folder of remembered deletes.
    pub generation: Generation,
    /// Its folder in the shard, or for a folder of remembered deletes in the table.
    pub path: String,
    /// Files that have a checksum. An SSTable that Lance wrote has none.
    pub files: u64,
    /// Bytes of those files.
    pub bytes: u64,
    /// Files with its rows that have no checksum, by their paths in its folder.
    pub unchecked: Vec<String>,
    /// Each damaged file, with the kind of damage.
    pub damage: Vec<String>,
}

impl Table {
    /// `work` on this table. If it fails on a damaged file of the base table, its error names the
    /// file.
    ///
    /// # Errors
    /// Those of `work`.
    pub fn naming_damage<'a, T: Send + 'a>(
        &'a self,
        work: impl Future<Output = Result<T>> + Send + 'a,
    ) -> BoxFuture<'a, Result<T>> {
        let base = self.catalog.base.known().dataset;
        async move { naming_damage(&base, work).await }.boxed()
    }

    /// Looks for damage in a shard's log, and writes nothing.
    ///
    /// # Errors
    /// An input error for a shard that does not exist; a storage error or a damaged manifest.
    /// Damage where the log is intact, but the whole shard is older than the base table, or flushed
    /// generations are missing.
    #[boxed]
    pub async fn verify_wal(&self, shard_id: ShardId) -> Result<WalReport> {
        let manifests = manifests_of(&self.catalog, self.catalog.store.clone(), shard_id).await?;
        let report = verify_wal(&self.catalog.store, &manifests).await?;
        // A base table that cannot be read does not fail the check of a log.
        if report.first_damage().is_none()
            && let Ok(base) = self.catalog.latest_base().await
        {
            let manifest = manifests.existing().await?;
            self.catalog.refuse_older(&base, &manifest).await?;
            self.catalog.check_complete(&base, &manifest).await?;
        }
        Ok(report)
    }

    /// Truncates a shard's log: drops its entries from `from` on, which [`Self::verify_wal`]
    /// reported as the first damaged one. Every dropped entry is copied first. Fences the shard's
    /// job.
    ///
    /// # Errors
    /// An input error, with nothing written, for a position at which the log must not be truncated.
    /// After another error the log may be truncated in part: call again.
    #[boxed]
    pub async fn truncate_wal(&self, shard_id: ShardId, from: WalPosition) -> Result<WalReport> {
        // With syncs, whatever the settings of the table: a copy must be on disk before its entry
        // is replaced.
        let store = self.catalog.writable_store(true).await?;
        let manifests = Arc::new(manifests_of(&self.catalog, store.clone(), shard_id).await?);
        let report = truncate_wal(&store, &manifests, from).await;
        self.reader.tails.forget(shard_id);
        report
    }

    /// Verifies the checksum of every file of the uncompacted SSTables, of one shard or of all, in
    /// any store and of any size; writes nothing. Files of an SSTable that Lance wrote have no
    /// checksums, so only its manifest is checked. Missing generations are damage: each range of
    /// them has a report without a path. Of all shards, the deletes that the table remembers are
    /// verified too: each of their folders has a report of the nil shard, with its path in the table.
    ///
    /// # Errors
    /// An input error for a shard that does not exist; a storage error or a damaged manifest of a
    /// shard.
    #[boxed]
    pub async fn verify_sstables(&self, shard_id: Option<ShardId>) -> Result<Vec<SsTableReport>> {
        let mut shards = self.catalog.shards().await?;
        if let Some(wanted) = shard_id {
            shards.retain(|shard| shard.shard_id == wanted);
            if shards.is_empty() {
                return Err(no_shard(&self.catalog, wanted));
            }
        }
        let mut reports = check_listed(&self.catalog, &shards).await?;
        reports.extend(missing_reports(&self.catalog, &shards).await?);
        if shard_id.is_none() {
            reports.extend(self.verify_graves().boxed().await?);
        }
        Ok(reports)
    }
}

async fn check_listed(catalog: &Catalog, shards: &[Shard]) -> Result<Vec<SsTableReport>> {
    let mut reports = Vec::new();
    let sstables: usize = shards.iter().map(|shard| shard.sstables.len()).sum();
    let stage = Stage::begin(StageName::VerifySsTables, sstables);
    for shard in shards {
        for sstable in &shard.sstables {
            let report = verify_sstable(catalog, shard.shard_id, sstable).await?;
            stage.add(1_u64);
            // A compaction may have moved the SSTable meanwhile, and a collector removed it.
            // That is no damage.
            if report.damage.is_empty() || lists(catalog, shard.shard_id, sstable).await? {
                reports.push(report);
            }
        }
    }
    Ok(reports)
}

/// Whether the shard still lists an SSTable, and no compaction has moved it.
async fn lists(catalog: &Catalog, shard_id: ShardId, sstable: &SsTable) -> Result<bool> {
    let shards = catalog.shards().await?;
    let mut of_shard = shards.iter().filter(|shard| shard.shard_id == shard_id);
    Ok(of_shard.any(|shard| shard.sstables.iter().any(|listed| listed.path == sstable.path)))
}

pub(super) async fn verify_sstable(
    catalog: &Catalog,
    shard_id: ShardId,
    sstable: &SsTable,
) -> Result<SsTableReport> {
    let name = format!("SSTable {} of shard {shard_id}", sstable.path);
    let base = catalog.base.known().dataset;
    let context = SsTableContext::new(&base, shard_id).await.context(&name)?;
    let context = context.with_rule(catalog.rule.as_deref());
    let compared = match open_sstable(&context, &sstable.path).await.in_sstable(&name) {
        Ok(dataset) => {
            let dataset = Arc::new(dataset);
            // Registered as a reader, so that no collector of this process removes the files.
            remember(&dataset);
            compare(&dataset, SsTableFiles::All).await.context(&name)
        }
        Err(error) => Err(error),
    };
    let (compared, damage) = with_damage(compared)?;
    let Compared { files, bytes, unchecked, .. } = compared;
    let (generation, path) = (sstable.generation, sstable.path.clone());
    Ok(SsTableReport { shard_id, generation, path, files, bytes, unchecked, damage })
}

/// What was compared of a dataset's files, and its damage in words. Damage that hides the files is
/// damage too.
pub(super) fn with_damage(compared: Result<Compared>) -> Result<(Compared, Vec<String>)> {
    match compared {
        Ok(compared) => {
            let damaged = &compared.damaged;
            let damage = damaged.iter().map(|it| format!("{}: {}", it.file, it.kind)).collect();
            Ok((compared, damage))
        }
        Err(error) if error.kind() == ErrorKind::Corruption => {
            Ok((Compared::default(), vec![error.to_string()]))
        }
        Err(error) => Err(error),
    }
}

pub(super) fn no_shard(catalog: &Catalog, shard_id: ShardId) -> Error {
    Error::input(format!("shard {shard_id} does not exist in table {}", catalog.uri()))
}

pub(super) async fn manifests_of(
    catalog: &Catalog,
    store: Store,
    shard_id: ShardId,
) -> Result<ManifestStore> {
    let scan_batch = catalog.defaults.manifest_scan_batch_size;
    let manifests = ManifestStore::new(store, shard_id, scan_batch);
    if manifests.latest().await?.is_none() {
        return Err(no_shard(catalog, shard_id));
    }
    Ok(manifests)
}

/// A report for each range of missing generations of `shards`.
async fn missing_reports(catalog: &Catalog, shards: &[Shard]) -> Result<Vec<SsTableReport>> {
    let mut reports = Vec::new();
    for shard in shards {
        let shard_id = shard.shard_id;
        let Some(manifest) = catalog.manifest_of(shard_id).await? else { continue };
        let base = catalog.latest_base().await?;
        let compacted = catalog.compacted_at(&base).await?;
        let (version, progress) = (base.version().version, compacted.get(&shard_id).copied());
        for range in catalog.missing_in(&manifest, &compacted) {
            reports.push(SsTableReport {
                shard_id,
                generation: range.first,
                path: String::new(),
                files: 0,
                bytes: 0,
                unchecked: Vec::new(),
                damage: vec![missing_text(&[range], &manifest, version, progress)],
            });
        }
    }
    Ok(reports)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use arrow_array::{Int64Array, RecordBatch};

    use super::*;
    use crate::table::CreateOptions;

    #[tokio::test]
    async fn an_sstable_that_was_compacted_and_collected_during_a_check_is_not_damaged() {
        let folder = tempfile::tempdir().unwrap();
        let ids = Arc::new(Int64Array::from_iter_values(0..10));
        let rows = RecordBatch::try_from_iter_with_nullable([("id", ids as _, false)]).unwrap();
        let options = CreateOptions::new(rows.schema()).with_primary_key(["id"]);
        let table = Table::create(folder.path().to_str().unwrap(), &options).await.unwrap();
        let shard_id = table.shards().await.unwrap()[0].shard_id;
        let job = table
            .start_job(
                shard_id,
                table.writer_defaults().clone(),
                table.maintenance_defaults().clone(),
            )
            .await
            .unwrap();
        job.put(&rows).await.unwrap();
        job.close(true).await.unwrap();
        let listed = table.shards().await.unwrap();
        let sstable = folder.path().join("_mem_wal").join(shard_id.to_string());
        let sstable = sstable.join(&listed[0].sstables[0].path);
        fs::rename(sstable.join("bloom_filter.bin"), sstable.join("elsewhere")).unwrap();
        let [report] = &check_listed(&table.catalog, &listed).await.unwrap()[..] else {
            panic!("one SSTable")
        };
        assert_eq!(report.damage, ["bloom_filter.bin: missing"]);
        fs::rename(sstable.join("elsewhere"), sstable.join("bloom_filter.bin")).unwrap();

        table.compact().await.unwrap();
        fs::remove_dir_all(sstable).unwrap();
        assert_eq!(check_listed(&table.catalog, &listed).await.unwrap(), []);
    }
}
