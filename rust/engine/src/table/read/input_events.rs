//! The events of a table: which SSTables and logs have those between two positions.
//!
//! Owns: the end of the events of each shard, the SSTables of a range of generations, also of those
//! that a compaction has moved and no collection has removed, and the refusal of positions that the
//! table does not have.
//! Does not own: how events are read (`crate::changes`), or what the log has (`gather`).
//!
//! Generations of a shard have no gaps. One below the manifest's current generation is an SSTable,
//! the others are in the log.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use async_recursion::async_recursion as boxed;
use futures::future::{join_all, try_join_all};
use lancemem_core::format::{ShardManifest, SsTable};
use lancemem_core::types::{ErrorKind, Generation, ManifestVersion, Result, ShardId};

use super::Reader;
use super::gather::ShardParts;
use crate::changes::{
    EventSource, InputFeed, InputOptions, InputPosition, InputShape, Piece, ShardPosition,
    input_errors,
};
use crate::schema::BaseVersion;
use crate::snapshot::SsTableHandle;
use crate::table::Table;

/// Old manifests that are read at the same time.
const MANIFESTS_AHEAD: u64 = 8;

/// The positions of one shard between which a feed reads.
#[derive(Clone, Copy, Debug)]
struct ShardRange {
    start: ShardPosition,
    end: ShardPosition,
}

/// The generations that are SSTables, as manifests list them.
type Listed = BTreeMap<Generation, SsTable>;

impl Table {
    /// The events behind `since`, up to `until`: each upsert and each delete as it came, for each
    /// shard in the order of arrival. An event is seen as soon as it is durable in the log.
    ///
    /// Without `since` the feed has every event that no compaction has moved. Without `until` it
    /// reaches the last event.
    ///
    /// ```no_run
    /// use lancemem::{InputOptions, Table};
    ///
    /// # async fn example() -> lancemem::Result<()> {
    /// let table = Table::open("/data/board.lance").await?;
    /// let options = InputOptions::default();
    /// let feed = table.input_changes(None, None, &options).await?;
    /// let (_, events) = feed.collect().await?;
    /// // Each event once: the next feed starts behind the last one.
    /// let next = table.input_changes(Some(feed.until()), None, &options).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// An input error where a position is of another table, `since` is after `until`, `options` do
    /// not fit the table, or another library wrote the events.
    /// [`lancemem_core::types::Error::ChangesExpired`] where events were compacted and collected. A
    /// storage error.
    #[boxed]
    pub async fn input_changes(
        &self,
        since: Option<&InputPosition>,
        until: Option<&InputPosition>,
        options: &InputOptions,
    ) -> Result<InputFeed> {
        let (parts, base) = self.reader.stored_parts().await?;
        let shape = InputShape::new(self.uri(), &base, options).await?;
        let shards: Vec<ShardId> = parts.iter().map(|part| part.manifest.shard_id).collect();
        for (position, name) in [(since, "since"), (until, "until")] {
            if let Some(position) = position {
                position.refuse_other_shards(self.uri(), &shards, name)?;
            }
        }
        let mut ranges = Vec::with_capacity(parts.len());
        for part in &parts {
            if let Some(range) = self.reader.range_of(part, since, until)? {
                ranges.push((part, range));
            }
        }
        let shards = ranges.iter().map(|(part, range)| self.reader.pieces(&base, part, *range));
        let pieces = try_join_all(shards).await?;
        let reached = ranges.iter().map(|(part, range)| (part.manifest.shard_id, range.end));
        let range = (since.cloned(), reached.collect());
        Ok(InputFeed::new(shape, range, pieces.into_iter().flatten().collect()))
    }
}

impl Reader {
    /// The positions of a shard between which a feed reads; `None` for a shard that was created
    /// behind `until`.
    fn range_of(
        &self,
        part: &ShardParts,
        since: Option<&InputPosition>,
        until: Option<&InputPosition>,
    ) -> Result<Option<ShardRange>> {
        let (uri, shard) = (self.catalog.uri(), part.manifest.shard_id);
        let last = end_of(part);
        let start = match since {
            None => oldest_of(part),
            Some(since) => since.of_shard(shard).unwrap_or_else(|| ShardPosition {
                generation: self.catalog.first_generation(&part.manifest),
                row: 0,
            }),
        };
        let end = match until {
            None => last,
            Some(until) => match until.of_shard(shard) {
                Some(end) => end,
                None if since.and_then(|since| since.of_shard(shard)).is_none() => return Ok(None),
                // It is older than the shard, and so than `since`.
                None => at(Generation(0), 0),
            },
        };
        for named in [("since", start), ("until", end)] {
            if named.1 > last {
                return Err(input_errors::never_was(uri, shard, named, last));
            }
        }
        match (start > end, since) {
            (false, _) => Ok(Some(ShardRange { start, end })),
            (true, None) => Err(input_errors::events_expired(uri, shard, end, start.generation)),
            (true, Some(_)) => Err(input_errors::reversed(uri, shard, start, end)),
        }
    }

    /// The events of a shard in a range, the oldest first.
    async fn pieces(
        &self,
        base: &BaseVersion,
        part: &ShardParts,
        range: ShardRange,
    ) -> Result<Vec<Piece>> {
        let (manifest, ShardRange { start, end }) = (&part.manifest, range);
        let (uri, shard_id) = (self.catalog.uri(), manifest.shard_id);
        let mut pieces = Vec::new();
        if start == end {
            return Ok(pieces);
        }
        if end.generation >= manifest.current_generation {
            if !self.is_log_numbered(shard_id).await {
                return Err(input_errors::foreign(uri, shard_id, "the log"));
            }
            pieces = pieces_of_log(uri, part, range)?;
        }
        // The newest first: the first one that is gone tells the oldest that is left.
        let first_of_log = manifest.current_generation.get();
        let last = if end.row > 0 { end.generation.get() + 1 } else { end.generation.get() };
        let generations = start.generation.get()..last.min(first_of_log);
        let listed = self.listed(manifest, generations.clone()).await?;
        let mut sstables = Vec::new();
        for generation in generations.rev().map(Generation) {
            let from = if generation == start.generation { start.row } else { 0 };
            let sstable = listed.get(&generation);
            let is_read = |rows: u64| from > 0 && rows == from;
            if sstable.and_then(|sstable| sstable.physical_rows).is_some_and(is_read) {
                continue;
            }
            let opened = match sstable {
                Some(sstable) => self.open_events(base, manifest, sstable).await?,
                None => None,
            };
            let Some(sstable) = opened else {
                let left = generation.next();
                return Err(input_errors::events_expired(uri, shard_id, start, left));
            };
            if !sstable.is_trusted() {
                let name = format!("SSTable {}", sstable.path);
                return Err(input_errors::foreign(uri, shard_id, &name));
            }
            let (rows, _) = sstable.physical_and_hidden_rows().await?;
            let to = if generation == end.generation { end.row } else { rows };
            refuse_behind(uri, shard_id, generation, (from, to), rows)?;
            let source = EventSource::SsTable(sstable);
            sstables.push(Piece { shard_id, generation, rows: from..to, source });
        }
        sstables.reverse();
        sstables.append(&mut pieces);
        Ok(sstables)
    }

    /// The SSTables of these generations, as the newest manifest lists them, and below it those
    /// that older manifests list: a compaction took them out.
    async fn listed(&self, manifest: &ShardManifest, generations: Range<u64>) -> Result<Listed> {
        let mut listed = Listed::new();
        let mut note = |manifest: &ShardManifest| {
            for sstable in &manifest.sstables {
                if generations.contains(&sstable.generation.get()) {
                    listed.entry(sstable.generation).or_insert_with(|| sstable.clone());
                }
            }
            listed.len() as u64 >= generations.end.saturating_sub(generations.start)
        };
        let mut is_done = note(manifest);
        let manifests = self.catalog.manifest_store(manifest.shard_id);
        let mut end = manifest.version.get();
        while !is_done && end > 1 {
            let first = end.saturating_sub(MANIFESTS_AHEAD).max(1);
            let reads = (first..end).rev().map(|version| manifests.at(ManifestVersion(version)));
            for read in join_all(reads).await {
                is_done |= match read {
                    // A manifest lists generations below its current one.
                    Ok(older) => {
                        note(&older) || older.current_generation.get() <= generations.start
                    }
                    Err(error) if error.kind() == ErrorKind::Retry => return Err(error),
                    // A collector removes manifests from the oldest on.
                    Err(_) => true,
                };
            }
            end = first;
        }
        Ok(listed)
    }

    /// Opens an SSTable; `None` where a compaction took it out of the manifest, and a collection
    /// has removed it since.
    async fn open_events(
        &self,
        base: &BaseVersion,
        manifest: &ShardManifest,
        sstable: &SsTable,
    ) -> Result<Option<Arc<SsTableHandle>>> {
        let opened = self.sstables.open(&base.dataset, manifest.shard_id, sstable).await;
        if manifest.lists(&sstable.path) {
            return opened.map(Some);
        }
        // The cache would keep it from the collector.
        self.sstables.retain(manifest.shard_id, &manifest.sstables);
        match opened {
            Ok(sstable) => Ok(Some(sstable)),
            Err(error) if error.kind() == ErrorKind::Retry => Err(error),
            Err(error) => {
                let name = &sstable.path;
                tracing::debug!(%error, "SSTable {name} cannot be opened behind its compaction");
                Ok(None)
            }
        }
    }
}

const fn at(generation: Generation, row: u64) -> ShardPosition {
    ShardPosition { generation, row }
}

/// The position of the next event of a shard.
fn end_of(part: &ShardParts) -> ShardPosition {
    let newest = part.memtables.iter().rfind(|rows| rows.rows() > 0);
    let newest = newest.map(|rows| at(rows.generation(), rows.rows() as u64));
    newest.unwrap_or_else(|| at(part.manifest.current_generation, 0))
}

/// The position of the oldest event of a shard that the newest manifest lists or the log has.
fn oldest_of(part: &ShardParts) -> ShardPosition {
    let listed = part.manifest.sstables.iter().map(|sstable| sstable.generation);
    at(listed.min().unwrap_or(part.manifest.current_generation), 0)
}

/// The events of a range that are in the log.
///
/// # Errors
/// An input error for a position behind the last row of its generation.
fn pieces_of_log(uri: &str, part: &ShardParts, range: ShardRange) -> Result<Vec<Piece>> {
    let ShardRange { start, end } = range;
    let shard_id = part.manifest.shard_id;
    let mut pieces = Vec::new();
    for memtable in &part.memtables {
        let (generation, rows) = (memtable.generation(), memtable.rows() as u64);
        if generation < start.generation || generation > end.generation {
            continue;
        }
        let from = if generation == start.generation { start.row } else { 0 };
        let to = if generation == end.generation { end.row } else { rows };
        refuse_behind(uri, shard_id, generation, (from, to), rows)?;
        let source = EventSource::Log(memtable.clone());
        pieces.push(Piece { shard_id, generation, rows: from..to, source });
    }
    Ok(pieces)
}

/// Refuses a position behind the last of `rows` rows of a generation.
fn refuse_behind(
    uri: &str,
    shard_id: ShardId,
    generation: Generation,
    (from, to): (u64, u64),
    rows: u64,
) -> Result<()> {
    if from.max(to) <= rows {
        return Ok(());
    }
    let named = ("a position", at(generation, from.max(to)));
    Err(input_errors::never_was(uri, shard_id, named, at(generation, rows)))
}
