//! The stored changes of a table.
//!
//! Owns: the switch, which is a key in the base table's configuration; publishing the changes of
//! versions, which keeps them readable after their version is cleaned up; and their listing for a
//! collection.
//! Does not own: writing and reading stored changes (`crate::changes`), the changes of flushes
//! (`flushed_changes`), or the rules of collection (`crate::garbage`).
//!
//! A version publishes its stored changes by its transaction. The file that publishes them once
//! more follows from that transaction alone, so it does not matter which process writes it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_recursion::async_recursion as boxed;
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use lance::Dataset;
use lancemem_core::format::{PublishedChanges, paths};
use lancemem_core::store::{Listed, Store};
use lancemem_core::types::{Error, Result};
use parking_lot::Mutex;

use crate::changes::{
    Changelog, FlushedPosition, alter_changelog, flushed_errors, flushed_from, has_changelog,
    publication, published, published_versions, refuse_reserved, refuse_reserved_of_flushes,
    retention_of,
};
use crate::deletion_vectors::is_on;
use crate::errors::BaseContext;
use crate::garbage::{ChangeFolder, ChangelogFacts, Garbage, PublishedFile, changelog_garbage};
use crate::schema::{BaseVersion, versions_of};
use crate::table::Table;
use crate::table::catalog::{compacted_of, refuse_flushed_changes};

/// Attempts to commit beside concurrent commits.
const MAX_ATTEMPTS: usize = 50;
/// Most versions that one call looks at to publish their changes.
const MAX_LOOKS: usize = 1_000;
/// Published files that are read at the same time.
const CONCURRENT_READS: usize = 16;
const ACTION: &str = "publishing the changes of a version";

/// What this handle knows of published changes.
#[derive(Debug, Default)]
pub struct PublishedState {
    /// The newest version that was looked at.
    through: Mutex<Option<u64>>,
    /// The folder that each published version names. Published files never change.
    folders: Mutex<HashMap<u64, Option<String>>>,
}

impl Table {
    /// Which changes the table stores, in the newest version that this handle has read.
    #[must_use]
    pub fn changelog(&self) -> Changelog {
        Changelog::of(&self.catalog.base.known().dataset)
    }

    /// Changes which changes the table stores, and how long these are kept. `None` leaves a setting
    /// as it is. Returns the base version that records the settings.
    ///
    /// # Errors
    /// An input error for a table with a column that a change feed adds, and for changes of flushes
    /// without deletion-vector mode; a storage error, also after repeated conflicts.
    #[boxed]
    pub async fn alter_changelog(
        &self,
        changelog: Option<Changelog>,
        retention: Option<Duration>,
    ) -> Result<u64> {
        let base = self.catalog.latest().await?;
        match changelog {
            Some(Changelog::Stored) => refuse_reserved(self.uri(), &base.schema.columns)?,
            Some(Changelog::Flushed) => self.refuse_flushed(&base)?,
            Some(Changelog::Off) | None => {}
        }
        if has_changelog(&base.dataset, changelog, retention) {
            return Ok(base.dataset.version().version);
        }
        let uri = self.uri();
        let operation = move |base: Arc<Dataset>| async move {
            if changelog == Some(Changelog::Flushed) && !is_on(&base) {
                return Err(flushed_errors::needs_vectors(uri));
            }
            let from = start_of_flushed(&base).await?;
            Ok(alter_changelog(changelog, retention, &from))
        };
        let version = self.catalog.commit_on_newest(MAX_ATTEMPTS, operation).await?;
        self.catalog.latest_base().await?;
        self.publish_stored_changes().await;
        self.publish_flushed_changes(None).boxed().await?;
        Ok(version)
    }

    /// Refuses changes of flushes where the table cannot have them.
    fn refuse_flushed(&self, base: &BaseVersion) -> Result<()> {
        if self.catalog.key.is_empty() {
            return Err(flushed_errors::needs_key(self.uri()));
        }
        refuse_flushed_changes(self.uri(), self.catalog.rule.as_deref())?;
        if !is_on(&base.dataset) {
            return Err(flushed_errors::needs_vectors(self.uri()));
        }
        refuse_reserved_of_flushes(self.uri(), &base.schema.columns)
    }

    /// Publishes the changes of the newest versions, where the table stores changes. The commits
    /// stand without it, so an error is logged.
    pub(super) async fn publish_stored_changes(&self) {
        if self.changelog() != Changelog::Stored {
            return;
        }
        if let Err(error) = self.publish_changes().await {
            tracing::warn!(table = self.uri(), %error, "stored changes are not published yet");
        }
    }

    /// Publishes the versions that are left and that are newer than every published version, and
    /// returns their number. A version whose changes have to be derived is not published. Where no
    /// version was published, that ends the search: no feed starts before such a version.
    #[boxed]
    async fn publish_changes(&self) -> Result<usize> {
        let base = self.catalog.latest_base().await?;
        let newest = base.version().version;
        let known = *self.published.through.lock();
        let through = match known {
            Some(through) => Some(through),
            None => published_versions(&self.catalog.store).await?.last().copied(),
        };
        if through >= Some(newest) {
            return Ok(0);
        }
        let left = versions_of(&base).await?;
        let is_new = |version: &u64| through.is_none_or(|through| *version > through);
        let mut found = Vec::new();
        for version in left.into_iter().rev().take_while(is_new).take(MAX_LOOKS) {
            match publication_of(&base, version).await? {
                Some(publication) => found.push(publication),
                None if through.is_none() => break,
                None => {}
            }
        }
        let store = self.catalog.writable_store(self.catalog.defaults.fsync).await?;
        // The oldest first: the newest published version shows how far publishing has come.
        for publication in found.iter().rev() {
            let path = paths::published_changes(publication.version);
            store.put_if_absent(&path, publication.encode().into()).await?;
        }
        *self.published.through.lock() = Some(newest);
        Ok(found.len())
    }

    /// The garbage among the stored changes of the table. Publishes versions first, except in a dry
    /// run: a folder that only the transaction of a version names must not look unnamed.
    pub(super) async fn stored_changes_garbage(
        &self,
        base: &Arc<Dataset>,
        now: SystemTime,
        grace: Duration,
        dry_run: bool,
    ) -> Result<Vec<Garbage>> {
        let store = &self.catalog.store;
        let (mut published, mut folders) = sorted(store.list_tree(paths::CHANGELOG).await?);
        // A table that stores the changes of its flushes alone publishes no version.
        if published.is_empty() && folders.is_empty() {
            return Ok(Vec::new());
        }
        if !dry_run && self.publish_changes().await? > 0 {
            (published, folders) = sorted(store.list_tree(paths::CHANGELOG).await?);
        }
        let positions = self.consumers().await?.into_iter().map(|consumer| consumer.position);
        let facts = ChangelogFacts {
            published: self.named_folders(published).await?,
            folders,
            slowest: positions.min(),
            retention: retention_of(base)?,
        };
        Ok(changelog_garbage(&facts, now, grace))
    }

    /// Published files with the folders that they name.
    async fn named_folders(&self, files: Vec<(u64, Listed)>) -> Result<Vec<PublishedFile>> {
        let known = self.published.folders.lock().clone();
        let named = files.into_iter().map(|(version, file)| {
            let (store, known) = (self.catalog.store.clone(), known.get(&version).cloned());
            async move {
                let folder = match known {
                    Some(folder) => folder,
                    None => folder_of(&store, version).await?,
                };
                let Listed { bytes, modified, .. } = file;
                Ok::<_, Error>(PublishedFile { version, folder, bytes, modified })
            }
        });
        let named = stream::iter(named).buffer_unordered(CONCURRENT_READS);
        let named: Vec<PublishedFile> = named.try_collect().await?;
        *self.published.folders.lock() =
            named.iter().map(|file| (file.version, file.folder.clone())).collect();
        Ok(named)
    }
}

/// The position from which on changes of flushes are stored, where the version after `base` asks for
/// it: behind the generations that a compaction has moved.
async fn start_of_flushed(base: &Dataset) -> Result<FlushedPosition> {
    if Changelog::of(base) == Changelog::Flushed {
        return flushed_from(base);
    }
    let moved = compacted_of(base).await?;
    Ok(moved.into_iter().map(|(shard_id, through)| (shard_id, through.next())).collect())
}

/// The folder that the published file of a version names. Another collection may have removed the
/// file.
async fn folder_of(store: &Store, version: u64) -> Result<Option<String>> {
    let published = published(store, version).await?;
    Ok(published.and_then(|published| published.rows).map(|rows| rows.name))
}

async fn publication_of(base: &Dataset, version: u64) -> Result<Option<PublishedChanges>> {
    let read = base.read_version_transaction(version).await.in_base(ACTION)?;
    match &read.transaction {
        Some(transaction) => publication(version, read.timestamp.into(), transaction),
        None => Ok(None),
    }
}

/// The published files of a listing with their versions, and the folders of change rows.
fn sorted(listed: Vec<Listed>) -> (Vec<(u64, Listed)>, Vec<ChangeFolder>) {
    let mut published = Vec::new();
    let mut folders: BTreeMap<String, ChangeFolder> = BTreeMap::new();
    for file in listed {
        let inside = file.path.strip_prefix(paths::CHANGELOG).and_then(|it| it.strip_prefix('/'));
        let Some(inside) = inside else { continue };
        match inside.split_once('/') {
            None => {
                if let Some(version) = paths::parse_published_changes(inside) {
                    published.push((version, file));
                }
            }
            Some((name, _)) if paths::is_record_index_name(name) => {
                let (name, modified) = (name.to_owned(), file.modified);
                let new = ChangeFolder { name: name.clone(), bytes: 0, modified };
                let folder = folders.entry(name).or_insert(new);
                folder.bytes += file.bytes;
                folder.modified = folder.modified.max(modified);
            }
            Some(_) => {}
        }
    }
    (published, folders.into_values().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_has_published_files_and_folders_and_files_of_other_programs() {
        let file = |path: &str, seconds| Listed {
            path: path.to_owned(),
            bytes: 3,
            modified: SystemTime::UNIX_EPOCH + Duration::from_secs(seconds),
        };
        let folder = paths::change_rows("0123456789abcdef");
        let (published, folders) = sorted(vec![
            file(&paths::published_changes(5), 1),
            file(&format!("{folder}/changes.binpb"), 9),
            file(&format!("{folder}/data/x.lance"), 2),
            file("_lancemem/changelog/notes.txt", 1),
            file("_lancemem/changelog/other/x", 1),
        ]);
        let versions: Vec<u64> = published.iter().map(|(version, _)| *version).collect();
        assert_eq!(versions, [5]);
        let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(9);
        let name = "0123456789abcdef".to_owned();
        assert_eq!(folders, [ChangeFolder { name, bytes: 6, modified }]);
    }
}
