//! The changes of a table's flushes: stored once for each generation of a shard.
//!
//! Owns: which SSTables have no changes yet, publishing, and the listing of published changes for a
//! collection.
//! Does not own: the rows of the changes (`crate::changes`), or the rules of collection
//! (`crate::garbage`).
//!
//! A look-up after a flush and a compaction before its commit may store the changes of the same
//! generation, in any processes. Each writes a folder of its own. The first to create the file of
//! the generation publishes its folder, and the others remove theirs.

use std::collections::{HashMap, HashSet};
use std::future::ready;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_recursion::async_recursion as boxed;
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use lance::Dataset;
use lancemem_core::format::{ShardManifest, paths};
use lancemem_core::store::{Created, Listed, Store};
use lancemem_core::types::{Generation, MaxBytes, Result, ShardId};

use crate::changes::{
    Changelog, FlushedSsTable, RecordedFlush, Superseded, published_flush, published_generations,
    retention_of,
};
use crate::deletion_vectors::{FirstSuperseded, SsTableFile};
use crate::garbage::{FlushedFacts, FlushedFolder, Garbage, PublishedFlushFile, flushed_garbage};
use crate::holds::{Hold, pass};
use crate::snapshot::{Consistency, Snapshot, SnapshotShard, SsTableHandle, is_compacted};
use crate::table::Table;
use crate::table::read::{Purpose, Sources};

/// Published files that are read at the same time.
const CONCURRENT_READS: usize = 16;

/// A shard and the oldest generation that no compaction has moved.
pub(super) type Unmoved = (ShardId, Generation);

/// The oldest generation of a shard that a compaction may still move.
pub(super) fn unmoved(manifest: &ShardManifest, compacted: Option<Generation>) -> Unmoved {
    let listed = manifest.sstables.iter().map(|sstable| sstable.generation);
    let oldest = listed.filter(|generation| !is_compacted(compacted, *generation)).min();
    (manifest.shard_id, oldest.unwrap_or(manifest.current_generation))
}

impl Table {
    /// Stores and publishes the missing changes of one shard's flushed SSTables or of all, where
    /// the table asks for it. Returns their number.
    ///
    /// # Errors
    /// An input error for a table that got a column of a reserved name; damage of an SSTable; a
    /// storage error. Changes that were published before the error stay.
    #[boxed]
    pub(super) async fn publish_flushed_changes(&self, shard: Option<ShardId>) -> Result<usize> {
        let (consistency, purpose) = (Consistency::Flushed, Purpose::Scan);
        let snapshot = self.reader.snapshot_of(consistency, &[], purpose, Sources::Own).await?;
        if Changelog::of(&snapshot.base) != Changelog::Flushed {
            return Ok(0);
        }
        let is_asked = |of: &&SnapshotShard| shard.is_none_or(|shard_id| of.shard_id == shard_id);
        let mut published = 0;
        for of in snapshot.shards.iter().filter(is_asked) {
            if !of.sstables.is_empty() {
                published += self.publish_changes_of(&snapshot, of).boxed().await?;
            }
        }
        if published > 0 {
            tracing::debug!(table = self.uri(), published, "changes of flushes published");
        }
        Ok(published)
    }

    async fn publish_changes_of(&self, snapshot: &Snapshot, of: &SnapshotShard) -> Result<usize> {
        let store = &self.catalog.store;
        let known = published_generations(store, of.shard_id).await?;
        if of.sstables.iter().all(|sstable| known.contains(&sstable.generation)) {
            return Ok(0);
        }
        let vectors = self.reader.vectors.of_shards(store, &[of.shard_id]).await?;
        let mut published = 0;
        for (place, sstable) in of.sstables.iter().enumerate() {
            if known.contains(&sstable.generation) {
                continue;
            }
            let older = &of.sstables[..place];
            let recorded = self.recorded_changes(snapshot, &vectors, sstable, older).await?;
            pass(Hold::Changes, snapshot.base.uri()).await;
            published += usize::from(self.publish_recorded(of.shard_id, recorded).await?);
        }
        Ok(published)
    }

    /// Writes the changes of `sstable`. Verifies the checksums of the SSTables that it reads: the
    /// changes stay longer than they.
    async fn recorded_changes(
        &self,
        snapshot: &Snapshot,
        vectors: &[Arc<SsTableFile>],
        sstable: &Arc<SsTableHandle>,
        older: &[Arc<SsTableHandle>],
    ) -> Result<RecordedFlush> {
        let index = snapshot.base_cache.record_index(&snapshot.base, &snapshot.key).await;
        let sstable = self.compared_sstable(snapshot, sstable).await?;
        let mut compared = Vec::with_capacity(older.len());
        for older in older {
            compared.push(self.compared_sstable(snapshot, older).await?);
        }
        let (index, older) = (&index, compared);
        let found = FirstSuperseded::of(snapshot, vectors, &sstable, &older);
        let superseded =
            found.map(|FirstSuperseded { base, sstables }| Superseded { base, sstables });
        let flushed = FlushedSsTable { snapshot, index, sstable, older, superseded };
        flushed.record().boxed().await
    }

    /// Publishes changes, unless another process has published the generation. Returns whether
    /// these are the published ones.
    async fn publish_recorded(&self, shard_id: ShardId, recorded: RecordedFlush) -> Result<bool> {
        let store = self.catalog.writable_store(self.catalog.defaults.fsync).await?;
        let path = paths::published_flush(shard_id, recorded.publication.generation);
        let bytes = recorded.publication.encode();
        if store.put_if_absent(&path, bytes.clone().into()).await? == Created::Yes {
            return Ok(true);
        }
        // The file may have landed although its answer was lost.
        let found = store.get(&path, MaxBytes::NOTE).await?;
        if found.is_some_and(|found| *found == *bytes) {
            return Ok(true);
        }
        recorded.remove().await;
        Ok(false)
    }

    /// The garbage among the changes of flushes of `shards`.
    pub(super) async fn flushed_changes_garbage(
        &self,
        base: &Dataset,
        shards: &[Unmoved],
        now: SystemTime,
        grace: Duration,
    ) -> Result<Vec<Garbage>> {
        let store = &self.catalog.store;
        let folders = store.list_folders(paths::CHANGELOG).await?;
        let consumers = self.flushed_consumers().await?;
        let mut garbage = Vec::new();
        for (shard_id, unmoved) in shards {
            if !folders.contains(&shard_id.as_hyphenated().to_string()) {
                continue;
            }
            let listed = store.list_tree(&paths::flushed_changes(*shard_id)).await?;
            let (published, folders) = sorted(*shard_id, listed);
            let facts = FlushedFacts {
                shard_id: *shard_id,
                named: named_folders(store, *shard_id, &published, &folders).await?,
                published,
                folders,
                unmoved: *unmoved,
                // A position without the shard is before its first generation.
                slowest: consumers
                    .iter()
                    .map(|consumer| consumer.position.of_shard(*shard_id).unwrap_or_default())
                    .min(),
                retention: retention_of(base)?,
            };
            garbage.extend(flushed_garbage(&facts, now, grace));
        }
        Ok(garbage)
    }
}

/// The folders that publications name, of the generations that have several.
async fn named_folders(
    store: &Store,
    shard_id: ShardId,
    published: &[PublishedFlushFile],
    folders: &[FlushedFolder],
) -> Result<HashSet<String>> {
    let mut counts: HashMap<Generation, usize> = HashMap::new();
    for folder in folders {
        *counts.entry(folder.generation).or_default() += 1;
    }
    let several = published.iter().map(|file| file.generation);
    let several = several.filter(|generation| counts.get(generation).is_some_and(|it| *it > 1));
    let reads: Vec<_> =
        several.map(|generation| published_flush(store, shard_id, generation)).collect();
    let named = stream::iter(reads).buffer_unordered(CONCURRENT_READS);
    let named = named.try_filter_map(|found| ready(Ok(found.and_then(|of| of.folder()))));
    named.try_collect().await
}

/// The published files of a shard's listing, and the folders of change rows.
fn sorted(shard_id: ShardId, listed: Vec<Listed>) -> (Vec<PublishedFlushFile>, Vec<FlushedFolder>) {
    let above = paths::flushed_changes(shard_id);
    let mut published = Vec::new();
    let mut folders: HashMap<String, FlushedFolder> = HashMap::new();
    for file in listed {
        let inside = file.path.strip_prefix(above.as_str()).and_then(|it| it.strip_prefix('/'));
        let Some(inside) = inside else { continue };
        let Listed { bytes, modified, .. } = file;
        match inside.split_once('/') {
            None => {
                if let Some(generation) = paths::parse_published_flush(inside) {
                    published.push(PublishedFlushFile { generation, bytes, modified });
                }
            }
            Some((name, _)) => {
                let Some(generation) = paths::parse_flushed_rows_name(name) else { continue };
                let name = name.to_owned();
                let new = FlushedFolder { name: name.clone(), generation, bytes: 0, modified };
                let folder = folders.entry(name).or_insert(new);
                folder.bytes += bytes;
                folder.modified = folder.modified.max(modified);
            }
        }
    }
    published.sort_unstable_by_key(|file| file.generation);
    let mut folders: Vec<FlushedFolder> = folders.into_values().collect();
    folders.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    (published, folders)
}

#[cfg(test)]
mod held;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_has_published_files_and_folders_and_files_of_other_programs() {
        let file = |path: String, seconds| Listed {
            path,
            bytes: 3,
            modified: SystemTime::UNIX_EPOCH + Duration::from_secs(seconds),
        };
        let shard_id = ShardId::nil();
        let above = paths::flushed_changes(shard_id);
        let name = paths::flushed_rows_name(Generation(5), "0123456789abcdef");
        let (published, folders) = sorted(
            shard_id,
            vec![
                file(paths::published_flush(shard_id, Generation(7)), 1),
                file(paths::published_flush(shard_id, Generation(5)), 1),
                file(format!("{above}/{name}/_versions/1.manifest"), 9),
                file(format!("{above}/{name}/data/x.lance"), 2),
                file(format!("{above}/notes.txt"), 1),
                file(format!("{above}/other/x"), 1),
            ],
        );
        let generations: Vec<u64> = published.iter().map(|it| it.generation.get()).collect();
        assert_eq!(generations, [5, 7]);
        let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(9);
        let generation = Generation(5);
        assert_eq!(folders, [FlushedFolder { name, generation, bytes: 6, modified }]);
    }
}
