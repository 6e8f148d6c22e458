//! The changes of a table's flushes: which generations lie between two positions.
//!
//! Owns: the end of the published changes of each shard, and the refusal of positions that the
//! table does not have.
//! Does not own: how changes are read (`crate::changes`), or their publication
//! (`flushed_changes` in `maintain`).
//!
//! Generations of a shard have no gaps, and no compaction moves an SSTable without its changes. So
//! the changes of a shard end before its oldest SSTable that has none.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use async_recursion::async_recursion as boxed;
use futures::future::try_join_all;
use lancemem_core::format::ShardManifest;
use lancemem_core::types::{Generation, Result, ShardId};

use super::Reader;
use crate::changes::{
    ChangeOptions, Changelog, FlushedFeed, FlushedPiece, FlushedPosition, FlushedShape,
    flushed_errors, flushed_from, published_generations,
};
use crate::table::Table;
use crate::table::catalog::uncompacted;

/// What storage has of the changes of one shard.
struct ShardChanges {
    manifest: Arc<ShardManifest>,
    /// The generations whose changes are published.
    published: BTreeSet<Generation>,
    /// The first generation without changes.
    end: Generation,
}

impl ShardChanges {
    fn new(
        manifest: Arc<ShardManifest>,
        published: BTreeSet<Generation>,
        compacted: &HashMap<ShardId, Generation>,
    ) -> Self {
        let listed = uncompacted(&manifest, compacted).into_iter();
        let mut open = listed.map(|sstable| sstable.generation);
        let first = open.find(|generation| !published.contains(generation));
        let end = first.unwrap_or(manifest.current_generation);
        Self { manifest, published, end }
    }

    fn shard_id(&self) -> ShardId {
        self.manifest.shard_id
    }

    /// The oldest generation from which on all changes up to `end` are left.
    fn oldest(&self, end: Generation) -> Generation {
        let mut oldest = end;
        for generation in self.published.range(..end).rev() {
            if generation.next() != oldest {
                break;
            }
            oldest = *generation;
        }
        oldest
    }
}

impl Table {
    /// The changes of flushes behind `since`, up to `until`: for each shard the net change of each
    /// key, generation by generation. A change is seen as soon as the look-up after the flush has
    /// published it.
    ///
    /// Without `since` the feed has every change that is left. Without `until` it reaches the last
    /// one.
    ///
    /// ```no_run
    /// use lancemem::{ChangeOptions, Table};
    ///
    /// # async fn example() -> lancemem::Result<()> {
    /// let table = Table::open("/data/board.lance").await?;
    /// let options = ChangeOptions::default();
    /// let feed = table.flushed_changes(None, None, &options).await?;
    /// let (_, changes) = feed.collect().await?;
    /// // Each change once: the next feed starts behind the last one.
    /// let next = table.flushed_changes(Some(feed.until()), None, &options).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// An input error where the table stores no changes of flushes, a position is of another table,
    /// `since` is after `until`, or `options` do not fit the table.
    /// [`lancemem_core::types::Error::ChangesExpired`] where a collection removed changes behind
    /// `since`. [`lancemem_core::types::Error::ChangesUnavailable`] where they were never stored. A
    /// storage error.
    #[boxed]
    pub async fn flushed_changes(
        &self,
        since: Option<&FlushedPosition>,
        until: Option<&FlushedPosition>,
        options: &ChangeOptions,
    ) -> Result<FlushedFeed> {
        // Before the base version, which then has what compactions took out of these manifests.
        let manifests = self.catalog.manifests().await?;
        let base = self.catalog.latest().await?;
        if Changelog::of(&base.dataset) != Changelog::Flushed {
            return Err(flushed_errors::not_flushed(self.uri()));
        }
        let shape = FlushedShape::new(self.uri(), &base, options).await?;
        let shards: Vec<ShardId> = manifests.iter().map(|manifest| manifest.shard_id).collect();
        for (position, name) in [(since, "since"), (until, "until")] {
            if let Some(position) = position {
                position.refuse_other_shards(self.uri(), &shards, name)?;
            }
        }
        let from = flushed_from(&base.dataset)?;
        let compacted = self.catalog.compacted_at(&base.dataset).await?;
        let shards = self.reader.shards_with_changes(manifests, &compacted).await?;
        let (mut pieces, mut reached) = (Vec::new(), Vec::new());
        for shard in &shards {
            let shard_id = shard.shard_id();
            let Some((start, end)) = self.reader.generations_of(shard, since, until)? else {
                continue;
            };
            for generation in (start.get()..end.get()).map(Generation) {
                if !shard.published.contains(&generation) {
                    return Err(self.reader.missing(shard, generation, end, &from));
                }
                pieces.push(FlushedPiece { shard_id, generation });
            }
            reached.push((shard_id, end));
        }
        let range = (since.cloned(), reached.into_iter().collect());
        Ok(FlushedFeed::new(base.dataset, self.catalog.store.clone(), shape, range, pieces))
    }
}

impl Reader {
    /// The changes of the table's own shards. Rows of other programs are changes of versions alone.
    async fn shards_with_changes(
        &self,
        manifests: Vec<Arc<ShardManifest>>,
        compacted: &HashMap<ShardId, Generation>,
    ) -> Result<Vec<ShardChanges>> {
        let foreign = self.catalog.foreign_among(manifests.iter().map(|manifest| &**manifest));
        let mut own = manifests;
        own.retain(|manifest| !foreign.contains(&manifest.shard_id));
        own.sort_unstable_by_key(|manifest| manifest.shard_id);
        let store = &self.catalog.store;
        let published = own.iter().map(|manifest| published_generations(store, manifest.shard_id));
        let published = try_join_all(published).await?;
        let shards = own.into_iter().zip(published);
        Ok(shards.map(|(manifest, of)| ShardChanges::new(manifest, of, compacted)).collect())
    }

    /// The first generation of a shard that a feed reads, and the one behind the last; `None` for a
    /// shard that was created behind `until`.
    fn generations_of(
        &self,
        shard: &ShardChanges,
        since: Option<&FlushedPosition>,
        until: Option<&FlushedPosition>,
    ) -> Result<Option<(Generation, Generation)>> {
        let (uri, shard_id) = (self.catalog.uri(), shard.shard_id());
        let current = shard.manifest.current_generation;
        let end = match until {
            None => None,
            Some(until) => match until.of_shard(shard_id) {
                Some(end) => Some(end),
                None if since.and_then(|since| since.of_shard(shard_id)).is_none() => {
                    return Ok(None);
                }
                // It is older than the shard, and so than `since`.
                None => Some(Generation(0)),
            },
        };
        let start = since.map(|since| {
            since.of_shard(shard_id).unwrap_or_else(|| {
                // The shard is newer than the position.
                let first = self.catalog.first_generation(&shard.manifest);
                shard.published.first().map_or(first, |oldest| first.min(*oldest))
            })
        });
        for (name, wanted) in [("since", start), ("until", end)] {
            if let Some(wanted) = wanted.filter(|wanted| *wanted > current) {
                return Err(flushed_errors::never_was(uri, shard_id, (name, wanted), current));
            }
        }
        match (start, end) {
            (Some(start), Some(end)) if start > end => {
                Err(flushed_errors::reversed(uri, shard_id, start, end))
            }
            // The start may be later where SSTables were listed again after they were moved.
            (Some(start), None) => Ok(Some((start, shard.end.max(start)))),
            (Some(start), Some(end)) => Ok(Some((start, end))),
            (None, end) => {
                let end = end.unwrap_or(shard.end);
                Ok(Some((shard.oldest(end), end)))
            }
        }
    }

    /// The error of a generation whose changes are not there, of a feed that reaches `end`.
    fn missing(
        &self,
        shard: &ShardChanges,
        generation: Generation,
        end: Generation,
        from: &FlushedPosition,
    ) -> lancemem_core::types::Error {
        let (uri, shard_id) = (self.catalog.uri(), shard.shard_id());
        match from.of_shard(shard_id).filter(|start| generation < *start) {
            Some(start) => flushed_errors::never_stored(uri, shard_id, generation, start),
            None => flushed_errors::changes_expired(uri, shard_id, generation, shard.oldest(end)),
        }
    }
}
