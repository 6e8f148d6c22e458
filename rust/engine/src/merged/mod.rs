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
//! Owns: the steps, and the MemTables of merged rows.
//! Does not own: which keys are contested (`contested`), which thread folds which of them (`groups`),
//! or which row of a key is the newest (`visibility`, `lookup`).
//!
//! The rows of contested keys are in memory, as long as the snapshot is.

mod contested;
mod events;
mod groups;
mod keyed;
mod stored;

use std::sync::Arc;
use std::thread;

use arrow_array::RecordBatch;
use datafusion::common::runtime::SpawnedTask;
use futures::future::{ready, try_join_all};
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use lancemem_core::format::{KeyForm, RowSchema};
use lancemem_core::memtable::MemTable;
use lancemem_core::merge::Fold;
use lancemem_core::shard::memtable_layout;
use lancemem_core::types::{Generation, KeyIndexKind, Result};

pub use keyed::merged_for;
pub use stored::{MergedFrom, fold_of};

use crate::errors::Context;
use crate::snapshot::{MemTableView, Snapshot, SnapshotShard, Source};
use crate::visibility::{KeysAbove, MergeCache, MergedMemTables, NumberedKeys, NumberedRows};
use contested::Contested;
use events::SourceEvents;
use groups::Groups;

/// The action that errors name.
const MERGING: &str = "merging the events of keys";
/// Fragments of the base table whose keys are read at the same time.
const CONCURRENT: usize = 2;

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
    let (contested, groups) = Contested::of(snapshot, &keys, &base)?;
    if groups.is_empty() {
        return Ok(MergedMemTables::new());
    }
    let sources = contested.read(snapshot, keys, base, fold).await?;
    folded(snapshot, groups, sources, fold).await
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
    let work = move || {
        let mut made: Vec<Vec<RecordBatch>> = vec![Vec::new(); shards.len()];
        for (shard, batch) in groups.fold(&sources, &fold)? {
            made[shard].push(batch);
        }
        let made = shards.iter().zip(made).filter(|(_, batches)| !batches.is_empty());
        let memtables =
            made.map(|(shard, batches)| (shard.shard_id, memtable_of(shard, &rows, batches)));
        Ok(memtables.collect())
    };
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

/// The index of the shard that has the source at index `source` of [`Snapshot::sources`].
fn shard_of(shards: &[SnapshotShard], source: usize) -> usize {
    let mut end = 0;
    let is_behind = |shard: &SnapshotShard| {
        end += shard.sstables.len() + shard.memtables.len();
        source < end
    };
    shards.iter().position(is_behind).unwrap_or_default()
}

/// How many threads can run at once.
fn processors() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// A generation that is newer than all of the shard's.
fn generation_behind(shard: &SnapshotShard) -> Generation {
    let sstables = shard.sstables.iter().map(|sstable| sstable.generation);
    let memtables = shard.memtables.iter().map(MemTableView::generation);
    let newest = sstables.chain(memtables).max();
    Generation(newest.map_or(0, Generation::get).saturating_add(1))
}
