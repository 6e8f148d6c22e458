//! Rows that a merge rule makes of several, as one more source of a snapshot.
//!
//! ```text
//!   keys of all sources, numbered      which keys have several events: they are contested
//!              v
//!   their rows by position             base table, SSTables, MemTables: oldest first
//!              v
//!   fold                               one event for each key
//!              v
//!   a MemTable, the newest of its shard
//! ```
//!
//! The newest row of each key is then the row of the table, and everything that reads a snapshot shows
//! that row, whatever its filter, its columns or its order are: a part of a merged row is never met.
//!
//! Owns: which keys are contested, the fold of their rows, and the MemTables of the result.
//! Does not own: the fold of events (`lancemem_core::merge`), or which row of a key is the newest
//! (`visibility`, `lookup`).
//!
//! The rows of contested keys are in memory, as long as the snapshot is.

mod events;
mod keyed;
mod stored;

use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread;

use arrow_array::RecordBatch;
use datafusion::common::runtime::SpawnedTask;
use futures::future::{ready, try_join_all};
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use lancemem_core::format::{KeyForm, RowSchema};
use lancemem_core::memtable::MemTable;
use lancemem_core::merge::{Fold, KeyGroups};
use lancemem_core::shard::memtable_layout;
use lancemem_core::types::{Error, Generation, KeyIndexKind, Result};

pub use keyed::merged_for;
pub use stored::{MergedFrom, fold_of};

use crate::errors::Context;
use crate::snapshot::{MemTableView, Snapshot, SnapshotShard, Source};
use crate::visibility::{KeysAbove, MergeCache, MergedMemTables, NumberedKeys, NumberedRows};
use events::{SourceEvents, of_base, of_memtable, of_sstable};

/// The action that errors name.
const MERGING: &str = "merging the events of keys";
/// Fragments of the base table whose keys are read at the same time.
const CONCURRENT: usize = 2;
/// Keys that are folded at a time.
const CHUNK: usize = 8_192;
/// The stack of a thread that folds, which may run a function of a user in Python.
const FOLD_STACK_BYTES: usize = 8 << 20;

/// `snapshot` with the merged rows of its contested keys as the newest source of their shard. A
/// snapshot of a table whose rule makes no row of several stays as it is.
///
/// # Errors
/// A storage error, damage of a source, and as [`Fold::fold`].
pub async fn merged(snapshot: Snapshot, cache: &MergeCache) -> Result<Snapshot> {
    let Some(fold) = snapshot.columns.rows.fold().cloned() else { return Ok(snapshot) };
    if snapshot.key.is_empty() || snapshot.is_base_only() {
        return Ok(snapshot);
    }
    if let Some(rows) = cache.merged(&snapshot) {
        return Ok(with_merged(snapshot, &rows));
    }
    let rows = Arc::new(Box::pin(merged_rows(&snapshot, &fold)).await?);
    cache.keep_merged(&snapshot, rows.clone());
    Ok(with_merged(snapshot, &rows))
}

/// `snapshot` with these rows as the newest of its shards.
#[must_use]
pub fn with_merged(mut snapshot: Snapshot, rows: &MergedMemTables) -> Snapshot {
    for shard in &mut snapshot.shards {
        let own = rows.iter().filter(|(shard_id, _)| *shard_id == shard.shard_id);
        shard.memtables.extend(own.map(|(_, rows)| rows.clone()));
    }
    snapshot
}

/// The merged rows of the contested keys.
///
/// # Errors
/// As [`merged`].
pub async fn merged_rows(snapshot: &Snapshot, fold: &Arc<Fold>) -> Result<MergedMemTables> {
    let keys = numbered(snapshot).await?;
    let ids = snapshot.base.fragments().iter().map(|fragment| fragment.id);
    let looks = ids.map(|id| {
        NumberedRows::of(snapshot, id, keys.clone(), &[], |_, _| Ok(()), MERGING).boxed()
    });
    let looks = stream::iter(looks.collect::<Vec<_>>()).buffered(CONCURRENT);
    let base: Vec<NumberedRows<()>> = looks.try_collect().await?;
    let contested = Contested::of(snapshot, &keys, &base);
    if contested.groups.is_empty() {
        return Ok(MergedMemTables::new());
    }
    let sources = contested.read(snapshot, &keys, &base, fold).await?;
    folded(snapshot, contested.groups, sources, fold).await
}

/// The folds of these groups, in one MemTable for each shard that has some.
async fn folded(
    snapshot: &Snapshot,
    groups: Groups,
    sources: Vec<SourceEvents>,
    fold: &Arc<Fold>,
) -> Result<MergedMemTables> {
    let (rows, fold) = (snapshot.columns.rows.clone(), fold.clone());
    let shards = snapshot.shards.clone();
    let work = move || groups.fold(&shards, &sources, &fold, &rows);
    SpawnedTask::spawn_blocking(work).await.context(MERGING)?
}

/// The keys of all sources above the base table.
async fn numbered(snapshot: &Snapshot) -> Result<Arc<NumberedKeys>> {
    let reads = snapshot.sources().map(|(_, source)| match source {
        Source::SsTable(sstable) => {
            let keys = async { Ok(KeysAbove::SsTable(sstable.keys(&snapshot.key).await?)) };
            keys.boxed()
        }
        Source::MemTable(rows) => ready(KeysAbove::of_memtable(snapshot, rows)).boxed(),
    });
    let above: Vec<KeysAbove> = try_join_all(reads.collect::<Vec<_>>()).await?;
    let form = KeyForm::of(&snapshot.schema, &snapshot.key);
    let keys = SpawnedTask::spawn_blocking(move || NumberedKeys::of(form, above));
    Ok(Arc::new(keys.await.context(MERGING)??))
}

/// Keys whose events are folded.
struct Groups {
    /// For each of them the index of its shard in the snapshot.
    shards: Vec<usize>,
}

/// The keys that have several events.
struct Contested {
    /// For each numbered key its number among the contested ones.
    numbers: Vec<Option<u32>>,
    groups: Groups,
}

impl Contested {
    fn of(snapshot: &Snapshot, keys: &NumberedKeys, base: &[NumberedRows<()>]) -> Self {
        let mut events = vec![0_u8; keys.count()];
        let above = keys.ordinals().iter().flatten();
        for number in base.iter().flat_map(|rows| &rows.ordinals).chain(above) {
            let events = &mut events[*number as usize];
            *events = events.saturating_add(1);
        }
        let mut count = 0_u32;
        let number = |events: &u8| {
            (*events > 1).then(|| {
                count += 1;
                count - 1
            })
        };
        let numbers: Vec<Option<u32>> = events.iter().map(number).collect();
        let mut shards = vec![0; count as usize];
        for (source, ordinals) in keys.ordinals().iter().enumerate() {
            let shard = shard_of(&snapshot.shards, source);
            for group in ordinals.iter().filter_map(|number| numbers[*number as usize]) {
                shards[group as usize] = shard;
            }
        }
        Self { numbers, groups: Groups { shards } }
    }

    /// Positions and groups of the contested rows among `numbers`, the keys of the rows at
    /// `position`.
    fn rows(
        &self,
        numbers: &[u32],
        position: impl Fn(usize) -> Result<u32>,
    ) -> Result<Vec<(u32, u32)>> {
        let mut rows = Vec::new();
        for (place, number) in numbers.iter().enumerate() {
            if let Some(group) = self.numbers[*number as usize] {
                rows.push((position(place)?, group));
            }
        }
        rows.sort_unstable();
        Ok(rows)
    }

    /// The events of the contested keys, oldest source first.
    async fn read(
        &self,
        snapshot: &Snapshot,
        keys: &NumberedKeys,
        base: &[NumberedRows<()>],
        fold: &Fold,
    ) -> Result<Vec<SourceEvents>> {
        let mut reads = Vec::new();
        for fragment in base {
            let offset = |place: usize| Ok(fragment.offsets[place]);
            let rows = self.rows(&fragment.ordinals, offset)?;
            reads.push(of_base(snapshot, fragment.id, rows, fold).boxed());
        }
        let sources = snapshot.sources().zip(keys.above().iter().zip(keys.ordinals()));
        for ((_, source), (above, numbers)) in sources {
            let rows = self.rows(numbers, |place| above.position(place))?;
            reads.push(match source {
                Source::SsTable(sstable) => of_sstable(snapshot, sstable, rows).boxed(),
                Source::MemTable(memtable) => ready(of_memtable(snapshot, memtable, &rows)).boxed(),
            });
        }
        let read: Vec<Vec<SourceEvents>> =
            stream::iter(reads).buffered(CONCURRENT).try_collect().await?;
        Ok(read.into_iter().flatten().collect())
    }
}

impl Groups {
    const fn is_empty(&self) -> bool {
        self.shards.is_empty()
    }

    /// One MemTable for each shard that has contested keys.
    fn fold(
        &self,
        shards: &[SnapshotShard],
        sources: &[SourceEvents],
        fold: &Fold,
        rows: &RowSchema,
    ) -> Result<MergedMemTables> {
        let ordinals: Vec<&[u32]> = sources.iter().map(|of| of.groups.as_slice()).collect();
        let batches: Vec<_> = sources.iter().map(|of| of.rows.clone()).collect();
        let all = KeyGroups::from_ordinals(self.shards.len(), &ordinals)?;
        let mut of_shard: Vec<Vec<usize>> = vec![Vec::new(); shards.len()];
        for (place, group) in all.ordinals().iter().enumerate() {
            of_shard[self.shards[*group as usize]].push(place);
        }
        let with_rows = shards.iter().zip(of_shard).filter(|(_, groups)| !groups.is_empty());
        let make = |(shard, groups): (&SnapshotShard, Vec<usize>)| {
            let chunk = |groups: &[usize]| {
                let (mut offsets, mut rows) = (vec![0], Vec::new());
                // A fold looks at each of its sources, and most have no row of these groups.
                let (mut own, mut places) = (Vec::new(), vec![None; batches.len()]);
                for group in groups {
                    let bounds = all.offsets()[*group]..all.offsets()[group + 1];
                    for (source, row) in &all.rows()[bounds] {
                        let place = *places[*source].get_or_insert_with(|| {
                            own.push(batches[*source].clone());
                            own.len() - 1
                        });
                        rows.push((place, *row));
                    }
                    offsets.push(rows.len());
                }
                fold.fold(&own, &KeyGroups::new(offsets, rows)?)
            };
            let made = on_all_processors(&groups.chunks(CHUNK).collect::<Vec<_>>(), chunk)?;
            Ok((shard.shard_id, memtable_of(shard, rows, made)))
        };
        with_rows.map(make).collect()
    }
}

/// These rows in a MemTable that is the newest of its shard.
fn memtable_of(shard: &SnapshotShard, rows: &RowSchema, batches: Vec<RecordBatch>) -> MemTableView {
    let layout = memtable_layout(rows, KeyIndexKind::default());
    let memtable = Arc::new(MemTable::new(generation_behind(shard), layout));
    for batch in batches {
        let bytes = batch.get_array_memory_size();
        memtable.push(batch, None, bytes);
    }
    memtable.index_through(memtable.batches());
    memtable.view(memtable.batches())
}

/// What `fold` makes of each of these chunks, in their order.
fn on_all_processors(
    chunks: &[&[usize]],
    fold: impl Fn(&[usize]) -> Result<RecordBatch> + Sync,
) -> Result<Vec<RecordBatch>> {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let all = |chunks: &[&[usize]]| chunks.iter().map(|chunk| fold(chunk)).collect::<Result<_>>();
    let (here, others) = chunks.split_at(chunks.len().div_ceil(threads));
    thread::scope(|scope| {
        let parts = others.chunks(here.len().max(1));
        let running = parts.map(|part| {
            let thread = thread::Builder::new().name("lancemem-fold".to_owned());
            thread.stack_size(FOLD_STACK_BYTES).spawn_scoped(scope, move || all(part))
        });
        let running = running.collect::<Result<Vec<_>, _>>().map_err(|error| {
            Error::internal(format!("{MERGING}: a thread was not started")).with_source(error)
        })?;
        let mut made: Vec<RecordBatch> = all(here)?;
        for part in running {
            made.append(&mut part.join().unwrap_or_else(|panic| resume_unwind(panic))?);
        }
        Ok(made)
    })
}

/// The index of the shard that has the source at index `source` of [`Snapshot::sources`].
fn shard_of(shards: &[SnapshotShard], source: usize) -> usize {
    let mut end = 0;
    let is_behind = |shard: &SnapshotShard| {
        end += shard.sstables.len() + shard.memtables.len();
        source < end
    };
    shards.iter().position(is_behind).unwrap_or_default()
}

/// A generation that is newer than all of the shard's.
fn generation_behind(shard: &SnapshotShard) -> Generation {
    let sstables = shard.sstables.iter().map(|sstable| sstable.generation);
    let memtables = shard.memtables.iter().map(MemTableView::generation);
    let newest = sstables.chain(memtables).max();
    Generation(newest.map_or(0, Generation::get).saturating_add(1))
}
