//! Garbage collection of a table: listing, order and removal.
//!
//! Owns: reading the state of each shard from storage, the syncs before a removal, and the removal
//! of files and folders below the table's own folder.
//! Does not own: the rules (`garbage`).
//!
//! A removal can be repeated: a missing file counts as removed, and no manifest names a folder that
//! was removed in part.

use std::collections::{HashMap, HashSet};
use std::path::{Path as LocalPath, PathBuf};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use async_recursion::async_recursion as boxed;
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use lance::Dataset;
use lance::dataset::cleanup::CleanupPolicy;
use lancemem_core::format::{ShardManifest, paths, wal_entry};
use lancemem_core::shard::rounded_seconds;
use lancemem_core::store::{Listed, NO_FILE, Store, change, is_no_file};
use lancemem_core::types::{Error, ErrorKind, Generation, MaxBytes, Result, ShardId, WalPosition};

use super::compact::drain_manifests;
use super::flushed_changes::{Unmoved, unmoved};
use super::record_index::record_index_garbage;
use crate::errors::Context;
use crate::garbage::{
    CollectionResult, CollectionSettings, CoveredEntry, Garbage, GarbageKind, ManifestFile,
    ShardFacts, SsTableFolder, VectorFile, garbage_of, generation_of_folder, present,
};
use crate::holds::{Hold, pass};
use crate::snapshot::is_pinned;
use crate::sstable::{local_path, sync_base, sync_table};
use crate::stages::{Stage, StageName};
use crate::table::Table;
use crate::table::catalog::{Catalog, compacted_of};
use crate::table::write::{decision_garbage, synced_through};

/// Lance's folders in a table.
const BASE_FOLDERS: [&str; 5] = ["data", "_deletions", "_indices", "_transactions", "_versions"];
/// A WAL entry with more bytes has rows. A fence sentinel has about a third of it.
const SENTINEL_BYTES: u64 = 1_024;
/// Small entries that are read at the same time, to find the sentinels among them.
const CONCURRENT_READS: usize = 16;

impl Table {
    /// Removes what no reader and no writer needed for `older_than`: compacted SSTables, covered
    /// WAL entries, old shard manifests, left-overs of failed flushes, decisions about bulk writes,
    /// stored changes after their retention, and base files that no version names. Jobs go on
    /// meanwhile.
    ///
    /// # Errors
    /// An input error, with nothing removed, where the clock of this process is far from the clock
    /// of the store. A storage error, after a part was removed: nothing is damaged; call again.
    #[boxed]
    pub async fn collect_garbage(&self, settings: &CollectionSettings) -> Result<CollectionResult> {
        let started = Instant::now();
        let catalog = &*self.catalog;
        let now = time_of_collection(catalog, settings).await?;
        if !settings.dry_run {
            // Drain SSTables that a crash left listed. They are garbage one grace period later.
            drain_manifests(catalog, &HashSet::new()).await?;
        }
        self.reader.forget_token_snapshot().await;
        let base = catalog.latest_base().await?;
        let compacted = compacted_of(&base).await?;
        let mut result = CollectionResult::default();
        let shard_ids = catalog.shard_ids().await?;
        let mut shards = Vec::with_capacity(shard_ids.len());
        let stage = Stage::begin(StageName::ListShards, shard_ids.len());
        for &shard_id in &shard_ids {
            let compacted = compacted.get(&shard_id).copied();
            let facts = shard_facts(catalog, shard_id, compacted, settings, now).await?;
            stage.add(1_u64);
            let Some(facts) = facts else { continue };
            self.reader.sstables.retain(shard_id, &facts.newest.sstables);
            shards.push(unmoved(&facts.newest, compacted));
            for garbage in garbage_of(&facts, now, settings.older_than) {
                if is_sstable(garbage.kind) && is_pinned(&base, &garbage.path) {
                    result.pinned_sstables += 1;
                } else {
                    result.garbage.push(garbage);
                }
            }
        }
        let remover = Remover::new(&catalog.store, &base).await?;
        result
            .garbage
            .extend(record_index_garbage(&catalog.store, now, settings.older_than).await?);
        result.garbage.extend(decision_garbage(&catalog.store, now, settings.older_than).await?);
        result.garbage.extend(self.named_garbage(&base, &shards, settings, now).await?);
        if !settings.dry_run && !result.garbage.is_empty() {
            pass(Hold::Listed, base.uri()).await;
            sync_before_removal(catalog, &base).await?;
            let stage = Stage::begin(StageName::RemoveGarbage, result.garbage.len());
            for garbage in &result.garbage {
                remover.remove(garbage).await?;
                stage.add(1_u64);
            }
        }
        if settings.base_files {
            result.garbage.extend(base_files(&remover, &base, settings.dry_run).await?);
        }
        result.bytes = result.garbage.iter().map(|garbage| garbage.bytes).sum();
        if !settings.dry_run && !result.garbage.is_empty() {
            tracing::info!(
                table = self.uri(),
                shards = shard_ids.len(),
                files = result.garbage.len(),
                bytes = result.bytes,
                seconds = rounded_seconds(started.elapsed()),
                "collected"
            );
        }
        Ok(result)
    }
}

impl Table {
    /// The garbage among stored changes and remembered deletes; none where a file that names them is
    /// damaged, because it does not show which folder it names.
    async fn named_garbage(
        &self,
        base: &Arc<Dataset>,
        shards: &[Unmoved],
        settings: &CollectionSettings,
        now: SystemTime,
    ) -> Result<Vec<Garbage>> {
        let (grace, dry_run) = (settings.older_than, settings.dry_run);
        let mut garbage = Vec::new();
        for (what, found) in [
            (
                "stored changes",
                self.stored_changes_garbage(base, now, grace, dry_run).boxed().await,
            ),
            (
                "stored changes",
                self.flushed_changes_garbage(base, shards, now, grace).boxed().await,
            ),
            ("remembered deletes", self.grave_garbage(now, grace).boxed().await),
        ] {
            match found {
                Err(error) if error.kind() == ErrorKind::Corruption => {
                    tracing::warn!(table = self.uri(), %error, "no {what} are collected");
                }
                found => garbage.extend(found?),
            }
        }
        Ok(garbage)
    }
}

/// The present, for ages of files. A dry run takes the clock of this process: reading the
/// store's clock writes a file.
async fn time_of_collection(
    catalog: &Catalog,
    settings: &CollectionSettings,
) -> Result<SystemTime> {
    if settings.dry_run {
        return Ok(now());
    }
    let reading = catalog.store.read_clock().await?;
    present(&reading, catalog.uri(), settings.older_than)
}

/// Syncs what replaces the garbage, before the garbage is removed: a base version that another
/// program committed, or SSTables of a job without fsync.
async fn sync_before_removal(catalog: &Catalog, base: &Arc<Dataset>) -> Result<()> {
    let action = "making durable what replaces garbage";
    let mut unsynced = !catalog.defaults.fsync;
    for shard_id in catalog.shard_ids().await? {
        let Some(through) = synced_through(catalog, shard_id).await? else { continue };
        let epoch = catalog.manifest_of(shard_id).await?.map(|manifest| manifest.writer_epoch);
        unsynced |= Some(through) < epoch;
    }
    if unsynced {
        return sync_table(base).await.context(action);
    }
    sync_base(base).await.context(action)
}

async fn shard_facts(
    catalog: &Catalog,
    shard_id: ShardId,
    compacted: Option<Generation>,
    settings: &CollectionSettings,
    now: SystemTime,
) -> Result<Option<ShardFacts>> {
    let store = catalog.manifest_store(shard_id);
    // Read before the listings. A file that is written in between belongs to a generation or a
    // position that this manifest has not reached, so it stays.
    let Some(newest) = store.latest().await? else { return Ok(None) };
    let manifests = manifest_files(catalog, shard_id).await?;
    let is_old = |file: &&ManifestFile| {
        now.duration_since(file.modified).is_ok_and(|age| age >= settings.older_than)
    };
    let earlier = manifests.iter().filter(is_old).map(|file| file.version).max();
    let earlier = match earlier {
        Some(version) => read_manifest(catalog, shard_id, version).await?,
        None => None,
    };
    let covered = earlier.as_ref().map_or(WalPosition(0), |earlier| {
        earlier.replay_after_wal_entry_position.min(newest.replay_after_wal_entry_position)
    });
    let (entries, last_entry) = covered_entries(catalog, shard_id, covered).await?;
    let sstables = sstable_folders(catalog, shard_id).await?;
    let vectors = paths::deletion_vectors(shard_id);
    let vectors = files_of_sstables(catalog, &vectors, paths::parse_run_vectors).await?;
    let merged = paths::merged_rows(shard_id);
    let merged = files_of_sstables(catalog, &merged, paths::parse_merged_rows).await?;
    let newest = ShardManifest::clone(&newest);
    let facts = ShardFacts {
        newest,
        earlier,
        compacted,
        sstables,
        entries,
        last_entry,
        manifests,
        vectors,
        merged,
    };
    Ok(Some(facts))
}

async fn manifest_files(catalog: &Catalog, shard_id: ShardId) -> Result<Vec<ManifestFile>> {
    let listed = catalog.store.list_tree(&paths::manifests(shard_id)).await?;
    let files = listed.iter().filter_map(|file| {
        let version = paths::parse_manifest(file.name())?;
        Some(ManifestFile { version, bytes: file.bytes, modified: file.modified })
    });
    Ok(files.collect())
}

/// The files below `folder` whose names name an SSTable.
async fn files_of_sstables(
    catalog: &Catalog,
    folder: &str,
    sstable_in: impl Fn(&str) -> Option<&str>,
) -> Result<Vec<VectorFile>> {
    let listed = catalog.store.list_tree(folder).await?;
    let files = listed.into_iter().filter_map(|file| {
        let sstable = sstable_in(file.name())?.to_owned();
        let (path, bytes, modified) = (file.path, file.bytes, file.modified);
        Some(VectorFile { sstable, path, bytes, modified })
    });
    Ok(files.collect())
}

pub(super) async fn read_manifest(
    catalog: &Catalog,
    shard_id: ShardId,
    version: lancemem_core::types::ManifestVersion,
) -> Result<Option<ShardManifest>> {
    let path = paths::manifest(shard_id, version);
    // Another collector may have removed the version meanwhile.
    let Some(bytes) = catalog.store.get(&path, MaxBytes::MANIFEST).await? else {
        return Ok(None);
    };
    ShardManifest::decode(&bytes, &path).map(Some)
}

/// The WAL entries up to `covered`, and the highest position of the log.
async fn covered_entries(
    catalog: &Catalog,
    shard_id: ShardId,
    covered: WalPosition,
) -> Result<(Vec<CoveredEntry>, u64)> {
    let listed = catalog.store.list_tree(&paths::wal(shard_id)).await?;
    let mut last = 0;
    let mut found = Vec::new();
    for file in listed {
        let Some(position) = paths::parse_wal_entry(file.name()) else { continue };
        last = last.max(position.get());
        if position <= covered {
            found.push((position, file));
        }
    }
    let store = catalog.store.clone();
    let entries = stream::iter(found)
        .map(move |(position, file)| covered_entry(store.clone(), position, file))
        .buffer_unordered(CONCURRENT_READS)
        .try_collect()
        .await?;
    Ok((entries, last))
}

async fn sstable_folders(catalog: &Catalog, shard_id: ShardId) -> Result<Vec<SsTableFolder>> {
    let shard = paths::shard(shard_id);
    let mut folders: HashMap<String, SsTableFolder> = HashMap::new();
    for name in catalog.store.list_folders(&shard).await? {
        let Some(generation) = generation_of_folder(&name) else { continue };
        let modified = SystemTime::UNIX_EPOCH;
        folders.insert(name.clone(), SsTableFolder { name, generation, bytes: 0, modified });
    }
    for folder in folders.values_mut() {
        for file in catalog.store.list_tree(&format!("{shard}/{}", folder.name)).await? {
            folder.bytes += file.bytes;
            folder.modified = folder.modified.max(file.modified);
        }
    }
    Ok(folders.into_values().collect())
}

/// A covered WAL entry. Decodes it where it is small enough for a fence sentinel; an entry that
/// cannot be decoded counts as a sentinel.
async fn covered_entry(store: Store, position: WalPosition, file: Listed) -> Result<CoveredEntry> {
    let is_sentinel = file.bytes <= SENTINEL_BYTES
        && match store.get(&file.path, MaxBytes::LOG_ENTRY).await? {
            Some(bytes) => {
                wal_entry::decode(&bytes, &file.path).map_or(true, |entry| entry.batches.is_empty())
            }
            None => false,
        };
    Ok(CoveredEntry { position, bytes: file.bytes, modified: file.modified, is_sentinel })
}

const fn is_sstable(kind: GarbageKind) -> bool {
    matches!(kind, GarbageKind::CompactedSsTable | GarbageKind::OrphanSsTable)
}

const fn is_folder(kind: GarbageKind) -> bool {
    is_sstable(kind)
        || matches!(
            kind,
            GarbageKind::RecordIndexRun
                | GarbageKind::StoredChanges
                | GarbageKind::RememberedDeletes
        )
}

/// Collects files of the base table that no version names and that are a week old, by Lance's own
/// clean-up. Every version stays.
async fn base_files(remover: &Remover<'_>, base: &Dataset, dry_run: bool) -> Result<Vec<Garbage>> {
    let action = "looking for files that no version of the base table names";
    let policy = CleanupPolicy {
        before_version: Some(0),
        error_if_tagged_old_versions: false,
        ..CleanupPolicy::default()
    };
    let operation = base.cleanup(policy);
    let found = Box::pin(operation.explain()).await.context(action)?;
    let files = found.candidate_files.iter().map(|file| &file.path);
    if !remover.are_inside(files).await? {
        tracing::warn!(
            table = base.uri(),
            "a folder of the base table is a link: no file in it is collected"
        );
        return Ok(Vec::new());
    }
    if !dry_run && !found.candidate_files.is_empty() {
        Box::pin(operation.execute()).await.context(action)?;
    }
    let garbage = found.candidate_files.into_iter().map(|file| Garbage {
        kind: GarbageKind::BaseFiles,
        path: file.path,
        reason: "no version of the base table names it, and it is a week old".to_owned(),
        bytes: file.size_bytes,
    });
    Ok(garbage.collect())
}

/// Removes files through the table's store, and folders on a local disk through the file system.
pub(in crate::table) struct Remover<'a> {
    store: &'a Store,
    /// The table's folder on a local disk, with every link resolved.
    root: Option<PathBuf>,
}

impl<'a> Remover<'a> {
    pub(in crate::table) async fn new(store: &'a Store, base: &Dataset) -> Result<Self> {
        let of_base = base.object_store(None).await.context("opening the table's store")?;
        let root = local_path(&of_base, &base.branch_location().path);
        let root = root.map(|root| root.canonicalize()).transpose();
        let root = root.map_err(|error| {
            Error::storage("resolving the table's folder", &error).with_source(error)
        })?;
        Ok(Self { store, root })
    }

    async fn remove(&self, garbage: &Garbage) -> Result<()> {
        if is_folder(garbage.kind) {
            return self.remove_tree(&garbage.path).await;
        }
        if let Some(root) = self.root.clone()
            && !on_disk(&garbage.path, move |path| is_inside(&root, path)).await?
        {
            return Ok(());
        }
        self.store.delete(&garbage.path).await
    }

    /// Removes the folder `path` of the table and everything in it, if it exists.
    ///
    /// # Errors
    /// An input error, with nothing removed, where it is a link to another folder; a storage error.
    pub(in crate::table) async fn remove_tree(&self, path: &str) -> Result<()> {
        if let Some(root) = self.root.clone() {
            on_disk(path, move |path| remove_folder(&root, path)).await?;
            return Ok(());
        }
        for file in self.store.list_tree(path).await? {
            self.store.delete(&file.path).await?;
        }
        Ok(())
    }

    /// Whether these files, and Lance's folders, lie below the table's folder once links are
    /// resolved.
    async fn are_inside(&self, files: impl Iterator<Item = &String>) -> Result<bool> {
        let Some(root) = self.root.clone() else { return Ok(true) };
        let folders = BASE_FOLDERS.map(|folder| format!("{folder}/any"));
        let paths: Vec<String> = files.cloned().chain(folders).collect();
        let are_inside = move || paths.iter().all(|path| is_inside(&root, path).is_ok());
        let are_inside = tokio::task::spawn_blocking(are_inside).await;
        are_inside.map_err(|error| {
            Error::internal(format!("resolving links: {error}")).with_source(error)
        })
    }
}

async fn on_disk<T: Send + 'static>(
    path: &str,
    work: impl FnOnce(&str) -> Result<T> + Send + 'static,
) -> Result<T> {
    let name = path.to_owned();
    let done = change(tokio::task::spawn_blocking(move || work(&name))).await;
    done.map_err(|error| Error::internal(format!("removing {path}: {error}")).with_source(error))?
}

/// Removes a folder; false where it did not exist.
fn remove_folder(root: &LocalPath, path: &str) -> Result<bool> {
    let Some(folder) = resolved(root, path)? else { return Ok(false) };
    match std::fs::remove_dir_all(&folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        removed => {
            removed.map_err(|error| unremoved(path, error))?;
            Ok(true)
        }
    }
}

fn unremoved(path: &str, error: std::io::Error) -> Error {
    Error::storage(format!("removing {path}"), &error).with_source(error)
}

/// Whether the folder of a file exists; an error where its path leads out of the table.
fn is_inside(root: &LocalPath, path: &str) -> Result<bool> {
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    resolved(root, folder).map(|folder| folder.is_some())
}

/// The folder `path` below `root`, if it exists. Refuses a path through a link, which could lead
/// anywhere.
fn resolved(root: &LocalPath, path: &str) -> Result<Option<PathBuf>> {
    let folder = match root.join(path).canonicalize() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) if is_no_file(&error) => {
            return Err(Error::corrupt(path, NO_FILE, &error).with_source(error));
        }
        folder => folder.map_err(|error| unremoved(path, error))?,
    };
    if folder != root.join(path) {
        return Err(Error::input(format!(
            "{path} was not removed, nor anything in it: it leads to {}, and a collection removes only \
             files inside of the table's folder",
            folder.display()
        )));
    }
    Ok(Some(folder))
}

#[expect(clippy::disallowed_methods, reason = "ages of files are measured against the present")]
fn now() -> SystemTime {
    SystemTime::now()
}
