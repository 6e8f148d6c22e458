//! Folders of remembered deletes: their collection, and their check.
//!
//! Owns: the listing of the folders and of the versions that list them.
//! Does not own: the condition of garbage (`crate::garbage`), which deletes are remembered
//! (`crate::compaction`), or checksums of files (`crate::sstable`).

use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, SystemTime};

use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use lance::Dataset;
use lancemem_core::format::{GraveFolder, GraveList, paths};
use lancemem_core::store::Listed;
use lancemem_core::types::{Generation, Result, ShardId};

use super::repair::{SsTableReport, with_damage};
use crate::errors::{BaseContext, Context, missing_manifest};
use crate::garbage::{ChangeFolder, Garbage, GraveFacts, grave_garbage};
use crate::schema::versions_of;
use crate::snapshot::{graves_of, listed_graves, open_graves};
use crate::sstable::{Compared, SsTableFiles, compare};
use crate::table::Table;

const ACTION: &str = "looking for the deletes that versions of the base table remember";
/// Versions that are read at the same time.
const CONCURRENT_READS: usize = 16;

impl Table {
    /// The garbage among remembered deletes.
    ///
    /// # Errors
    /// Damage of the list of a version; a storage error.
    pub(super) async fn grave_garbage(
        &self,
        now: SystemTime,
        grace: Duration,
    ) -> Result<Vec<Garbage>> {
        let folders = folders_of(self.catalog.store.list_tree(paths::GRAVES).await?);
        if folders.is_empty() {
            return Ok(Vec::new());
        }
        // Read after the listing: a version that is committed meanwhile is among these.
        let base = self.catalog.latest_base().await?;
        let (newest, listed) = (base.version().version, names_in(listed_graves(&base)?));
        let mut facts = GraveFacts { folders, newest, listed };
        if grave_garbage(&facts, now, grace).is_empty() {
            return Ok(Vec::new());
        }
        let versions = versions_of(&base).await?.into_iter().filter(|it| *it < newest);
        let lists = versions.map(|version| listed_in(&base, version).boxed());
        let lists = stream::iter(lists.collect::<Vec<_>>()).buffer_unordered(CONCURRENT_READS);
        let lists: Vec<HashSet<String>> = lists.try_collect().await?;
        facts.listed.extend(lists.into_iter().flatten());
        Ok(grave_garbage(&facts, now, grace))
    }

    /// Verifies the files of the deletes that the newest version remembers.
    ///
    /// # Errors
    /// Damage of the list; a storage error.
    pub(super) async fn verify_graves(&self) -> Result<Vec<SsTableReport>> {
        let base = self.catalog.latest_base().await?;
        let Some(rule) = self.catalog.rule.as_deref() else { return Ok(Vec::new()) };
        let mut reports = Vec::new();
        for folder in graves_of(&base, rule)?.folders {
            let report = verify(&base, &folder).await?;
            if !report.damage.is_empty() {
                // A compaction may have joined the folder meanwhile, and a collector removed it.
                let newest = self.catalog.latest_base().await?;
                if !graves_of(&newest, rule)?.folders.contains(&folder) {
                    continue;
                }
            }
            reports.push(report);
        }
        Ok(reports)
    }
}

async fn verify(base: &Dataset, folder: &GraveFolder) -> Result<SsTableReport> {
    let path = paths::grave_rows(&folder.name);
    let compared = match open_graves(base, folder).await {
        Ok(dataset) => Box::pin(compare(&dataset, SsTableFiles::All)).await.context(&path),
        Err(error) => Err(error),
    };
    let (compared, damage) = with_damage(compared)?;
    let Compared { files, bytes, unchecked, .. } = compared;
    let (shard_id, generation) = (ShardId::nil(), Generation(0));
    Ok(SsTableReport { shard_id, generation, path, files, bytes, unchecked, damage })
}

/// The folders that a version lists; none for a version that is cleaned up meanwhile.
async fn listed_in(base: &Dataset, version: u64) -> Result<HashSet<String>> {
    match base.checkout_version(version).await {
        Ok(version) => Ok(names_in(listed_graves(&version)?)),
        Err(error) if missing_manifest(&error).is_some() => Ok(HashSet::new()),
        Err(error) => Err(error).in_base(ACTION),
    }
}

fn names_in(list: Option<GraveList>) -> HashSet<String> {
    let folders = list.into_iter().flat_map(|list| list.folders);
    folders.map(|folder| folder.name).collect()
}

/// The folders of remembered deletes in a listing.
fn folders_of(listed: Vec<Listed>) -> Vec<ChangeFolder> {
    let mut folders: BTreeMap<String, ChangeFolder> = BTreeMap::new();
    for file in listed {
        let inside = file.path.strip_prefix(paths::GRAVES).and_then(|it| it.strip_prefix('/'));
        let Some((name, _)) = inside.and_then(|inside| inside.split_once('/')) else { continue };
        let (name, modified) = (name.to_owned(), file.modified);
        let new = ChangeFolder { name: name.clone(), bytes: 0, modified };
        let folder = folders.entry(name).or_insert(new);
        folder.bytes += file.bytes;
        folder.modified = folder.modified.max(modified);
    }
    folders.into_values().collect()
}

#[cfg(test)]
mod held;
