//! Repair of missing generations: their SSTables are relisted, or the generations are abandoned.
//!
//! Owns: the folder of a generation, its verification, the manifest version that lists it again,
//! and the commit after which the base table counts as containing abandoned generations.
//! Does not own: which generations are missing (`missing`), or the files of an SSTable (`sstable`).
//!
//! A relisted SSTable keeps its generation, so rows that were put later still hide its rows.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use async_recursion::async_recursion as boxed;
use futures::FutureExt;
use lance::Dataset;
use lance::dataset::transaction::Operation;
use lance_index::mem_wal::CompactedSsTable;
use lancemem_core::format::{ShardManifest, SsTable, paths};
use lancemem_core::types::{Error, ErrorKind, Generation, ManifestVersion, Result, ShardId};

use super::garbage::read_manifest;
use super::repair::{manifests_of, no_shard, verify_sstable};
use crate::compaction::CompactionSettings;
use crate::garbage::generation_of_folder;
use crate::snapshot::{MissingRange, is_compacted};
use crate::table::Table;
use crate::table::catalog::{Catalog, progress_alone, ranges_text};

/// Attempts to commit beside concurrent commits.
const MAX_ATTEMPTS: usize = 50;

/// What [`Table::relist_sstables`] did in a shard of which generations were missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelistReport {
    /// The shard.
    pub shard_id: ShardId,
    /// Generations that its manifest lists again, oldest first.
    pub relisted: Vec<Generation>,
    /// Generations that are still missing, each with the reason.
    pub missing: Vec<String>,
}

/// The SSTables that were found for missing generations.
#[derive(Debug, Default)]
struct ShardFindings {
    /// SSTables whose files are undamaged and complete.
    whole: Vec<SsTable>,
    /// Generations whose SSTable was found but cannot be listed, with the reason.
    refused: BTreeMap<Generation, String>,
}

impl Table {
    /// Relists the SSTables of missing generations, of one shard or of all. Generations go missing
    /// where a version from before their compaction was restored, or where the base table was
    /// copied before its shards. The checksums of all files are verified first. A running job goes
    /// on, and reads the new manifest at its next flush.
    ///
    /// Returns a report for each shard with missing generations.
    ///
    /// # Errors
    /// An input error for a shard that does not exist or has rows of another sharding; a storage
    /// error or a damaged manifest. SSTables that were relisted before the error stay listed: call
    /// again.
    #[boxed]
    pub async fn relist_sstables(&self, shard_id: Option<ShardId>) -> Result<Vec<RelistReport>> {
        let shard_ids = match shard_id {
            Some(shard_id) => vec![shard_id],
            None => self.catalog.shard_ids().await?,
        };
        let mut reports = Vec::new();
        for id in shard_ids {
            match self.catalog.manifest_of(id).await? {
                Some(manifest) => reports.extend(self.relist_shard(&manifest).await?),
                None if shard_id.is_some() => return Err(no_shard(&self.catalog, id)),
                // Its first manifest is not written yet.
                None => {}
            }
        }
        Ok(reports)
    }

    /// Abandons the missing generations of a shard, so that the rest of the table can be used.
    /// Their rows are lost, unless the base table has them by another way. `through` must be the
    /// newest missing generation. Listed SSTables below it are compacted first. Returns the base
    /// version that counts as containing the generations.
    ///
    /// # Errors
    /// An input error, with nothing written, where no generation is missing or `through` is not the
    /// newest missing one; damage of another shard; a storage error.
    #[boxed]
    pub async fn abandon_generations(&self, shard_id: ShardId, through: Generation) -> Result<u64> {
        let manifest = self
            .catalog
            .manifest_of(shard_id)
            .await?
            .ok_or_else(|| no_shard(&self.catalog, shard_id))?;
        let base = self.catalog.latest_base().await?;
        let missing = self.catalog.missing_in(&manifest, &*self.catalog.compacted_at(&base).await?);
        let newest = missing.last().map(|range| range.last);
        if newest != Some(through) {
            let uri = self.uri();
            return Err(Error::input(newest.map_or_else(
                || format!("no generation of shard {shard_id} of table {uri} is missing"),
                |newest| {
                    format!(
                        "the newest missing generation of shard {shard_id} of table {uri} is \
                         {newest}, not {through}; missing are {}",
                        ranges_text(&missing)
                    )
                },
            )));
        }
        if manifest.sstables.iter().any(|sstable| sstable.generation < through) {
            // These SSTables would count as contained too, so they are compacted first. The
            // compaction uses another handle: reads through this one still refuse the shard until
            // the commit.
            let own = Self::open_at(self.catalog.location.clone()).await?;
            own.catalog.excuse(shard_id);
            own.compact_with(&CompactionSettings::default()).boxed().await?;
            let base = self.catalog.latest_base().await?;
            let progress = self.catalog.compacted_at(&base).await?.get(&shard_id).copied();
            if is_compacted(progress, through) {
                return Ok(base.version().version);
            }
        }
        let give_up = |base: Arc<Dataset>| async move {
            given_up(&self.catalog, &base, shard_id, through).await
        };
        self.catalog.commit_on_newest(MAX_ATTEMPTS, give_up).await
    }

    async fn relist_shard(&self, manifest: &Arc<ShardManifest>) -> Result<Option<RelistReport>> {
        let shard_id = manifest.shard_id;
        let base = self.catalog.latest_base().await?;
        let compacted = self.catalog.compacted_at(&base).await?;
        let missing = self.catalog.missing_in(manifest, &compacted);
        if missing.is_empty() {
            return Ok(None);
        }
        self.catalog.check_sharding(manifest)?;
        let ShardFindings { whole, refused } = self.find(&base, manifest, &missing).await?;
        if !whole.is_empty() {
            list_again(&self.catalog, shard_id, &whole).await?;
        }
        let relisted = whole.iter().map(|sstable| sstable.generation).collect();
        // The generations that are missing and for which no folder was found.
        let mut found = ShardManifest::clone(manifest);
        let unlisted = refused.keys().map(|generation| unmeasured(*generation, String::new()));
        found.sstables.extend(whole.into_iter().chain(unlisted));
        let gone = self.catalog.missing_in(&found, &compacted).into_iter();
        let mut reasons: Vec<(Generation, String)> = gone
            .map(|range| (range.first, format!("{range}: no SSTable folder is left")))
            .collect();
        let refused = refused.into_iter();
        reasons.extend(refused.map(|(it, reason)| (it, format!("generation {it}: {reason}"))));
        reasons.sort_unstable();
        let missing = reasons.into_iter().map(|(_, reason)| reason).collect();
        Ok(Some(RelistReport { shard_id, relisted, missing }))
    }

    /// Looks for the SSTables of the missing generations, and verifies their files.
    async fn find(
        &self,
        base: &Dataset,
        manifest: &ShardManifest,
        missing: &[MissingRange],
    ) -> Result<ShardFindings> {
        let shard_id = manifest.shard_id;
        let folders = self.catalog.store.list_folders(&paths::shard(shard_id)).await?;
        let folders: HashSet<String> = folders.into_iter().collect();
        let mut by_name: BTreeMap<Generation, Vec<String>> = BTreeMap::new();
        for name in folders.iter().filter(|name| !manifest.lists(name)) {
            let generation = generation_of_folder(name).filter(|it| is_in(missing, *it));
            if let Some(generation) = generation {
                by_name.entry(generation).or_default().push(name.clone());
            }
        }
        let recorded = recorded_sstables(&self.catalog, manifest, missing).await?;
        let generations: BTreeSet<Generation> =
            recorded.keys().chain(by_name.keys()).copied().collect();
        let mut found = ShardFindings::default();
        for generation in generations {
            let named = by_name.remove(&generation).unwrap_or_default();
            let one = match (recorded.get(&generation), named.as_slice()) {
                (Some(recorded), _) if folders.contains(&recorded.path) => Ok(recorded.clone()),
                (Some(recorded), _) => Err(format!("the folder {} is missing", recorded.path)),
                (None, [path]) => Ok(unmeasured(generation, path.clone())),
                // A failed flush may have left one of the folders, with fewer rows.
                (None, paths) => Err(format!(
                    "no manifest version is left that lists one of the folders {}",
                    paths.join(", ")
                )),
            };
            let verified = match one {
                Ok(sstable) => self.verified(base, shard_id, sstable).await?,
                Err(reason) => Err(reason),
            };
            match verified {
                Ok(sstable) => found.whole.push(sstable),
                Err(reason) => {
                    found.refused.insert(generation, reason);
                }
            }
        }
        Ok(found)
    }

    /// The SSTable with its number of rows, where its files are undamaged and its columns can be
    /// reconciled to the table's; else the reason why not.
    async fn verified(
        &self,
        base: &Dataset,
        shard_id: ShardId,
        sstable: SsTable,
    ) -> Result<std::result::Result<SsTable, String>> {
        let report = verify_sstable(&self.catalog, shard_id, &sstable).await?;
        if !report.damage.is_empty() {
            return Ok(Err(format!("{}: {}", sstable.path, report.damage.join(", "))));
        }
        let opened = match self.reader.sstables.open(base, shard_id, &sstable).await {
            Err(error) if error.kind() == ErrorKind::Retry => return Err(error),
            Err(error) => return Ok(Err(error.to_string())),
            Ok(opened) => opened,
        };
        let rows = match sstable.physical_rows {
            Some(rows) => rows,
            None => opened.physical_and_hidden_rows().await?.0,
        };
        Ok(Ok(SsTable { physical_rows: Some(rows), ..sstable }))
    }
}

/// The operation after which a base version counts as containing the shard's generations up to
/// `through`.
async fn given_up(
    catalog: &Catalog,
    base: &Dataset,
    shard_id: ShardId,
    through: Generation,
) -> Result<Operation> {
    let compacted = catalog.compacted_at(base).await?;
    let progress = compacted.get(&shard_id).copied();
    let manifest =
        catalog.manifest_of(shard_id).await?.ok_or_else(|| no_shard(catalog, shard_id))?;
    let mut listed = manifest.sstables.iter().map(|sstable| sstable.generation);
    let is_in_the_way = |it| it <= through && !is_compacted(progress, it);
    if is_compacted(progress, through) || listed.any(is_in_the_way) {
        let action = format!("abandoning generation {through} of shard {shard_id}");
        return Err(Error::storage(
            action,
            "another process changed the shard or the base table meanwhile; call again",
        ));
    }
    Ok(progress_alone(vec![CompactedSsTable::new(shard_id, through.get())]))
}

/// Writes a manifest version that lists `whole`, without a claim of the shard.
async fn list_again(catalog: &Catalog, shard_id: ShardId, whole: &[SsTable]) -> Result<()> {
    // With syncs, whatever the settings of the table: a listed SSTable must be on disk.
    let store = catalog.writable_store(true).await?;
    let manifests = manifests_of(catalog, store, shard_id).await?;
    let change = |manifest: &mut ShardManifest| {
        for sstable in whole {
            let listed = &manifest.sstables;
            let is_listed = listed.iter().any(|it| it.generation == sstable.generation);
            if !is_listed && sstable.generation < manifest.current_generation {
                manifest.sstables.push(sstable.clone());
            }
        }
        manifest.sstables.sort_by_key(|listed| listed.generation);
    };
    manifests.update_beside_owner(change).await?;
    tracing::info!(table = catalog.uri(), %shard_id, sstables = whole.len(), "listed again");
    Ok(())
}

/// The SSTables that earlier manifest versions list for missing generations.
async fn recorded_sstables(
    catalog: &Catalog,
    manifest: &ShardManifest,
    missing: &[MissingRange],
) -> Result<BTreeMap<Generation, SsTable>> {
    let shard_id = manifest.shard_id;
    let files = catalog.store.list_files(&paths::manifests(shard_id)).await?;
    let mut versions: Vec<ManifestVersion> =
        files.iter().filter_map(|name| paths::parse_manifest(name)).collect();
    versions.retain(|version| *version < manifest.version);
    versions.sort_unstable_by(|one, other| other.cmp(one));
    let mut recorded = BTreeMap::new();
    for version in versions {
        let earlier = match read_manifest(catalog, shard_id, version).await {
            Ok(Some(earlier)) => earlier,
            Ok(None) => continue,
            // A damaged version is skipped; another version may list the SSTable.
            Err(error) if error.kind() == ErrorKind::Corruption => continue,
            Err(error) => return Err(error),
        };
        // Lookups would read another shard for rows of another sharding.
        let is_other = match (&earlier.sharding, &manifest.sharding) {
            (Some(there), Some(own)) => there != own,
            _ => false,
        };
        if is_other || earlier.shard_id != shard_id {
            continue;
        }
        let listed = earlier.sstables.into_iter();
        for sstable in listed.filter(|it| is_in(missing, it.generation)) {
            recorded.entry(sstable.generation).or_insert(sstable);
        }
    }
    Ok(recorded)
}

fn is_in(missing: &[MissingRange], generation: Generation) -> bool {
    missing.iter().any(|range| range.contains(generation))
}

fn unmeasured(generation: Generation, path: String) -> SsTable {
    SsTable {
        generation,
        path,
        in_memory_bytes: None,
        physical_rows: None,
        primary_key_bytes: None,
    }
}
