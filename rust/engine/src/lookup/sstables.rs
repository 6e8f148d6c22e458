//! Lookups in SSTables.
//!
//! Owns: whether an SSTable's filter, its keys in memory or its key index is searched, and the
//! rows.
//! Does not own: which SSTables have a trusted filter (`sstable`), or their caches (`snapshot`).

use std::cmp::Reverse;
use std::sync::Arc;

use futures::{FutureExt, try_join};
use lancemem_core::types::Result;

use super::all;
use super::pieces::Answers;
use super::take::{Columns, take};
use super::wanted::Wanted;
use crate::errors::SsTableErrors;
use crate::snapshot::{Snapshot, Source, SsTableHandle, SsTableKeys};
use crate::sstable::KeyIndex;

/// Rows that answer a call, all in one SSTable, tombstones included.
pub(super) struct InSsTable {
    sstable: Arc<SsTableHandle>,
    /// Row of the call, row position.
    rows: Vec<(u32, u32)>,
}

/// The result of searching one SSTable, before newer SSTables have taken their keys.
enum Asked {
    InMemory(Arc<SsTableKeys>),
    /// The answers for all rows that were open, ascending.
    Answered(Vec<(u32, u32)>),
}

/// The SSTables that answer, with the rows that they answer; `open` keeps the rows whose keys no
/// SSTable has.
pub(super) async fn find(
    snapshot: &Snapshot,
    wanted: &Wanted,
    open: &mut Vec<u32>,
) -> Result<Vec<InSsTable>> {
    let mut sstables: Vec<_> = snapshot
        .sources()
        .filter_map(|(freshness, source)| match source {
            Source::SsTable(sstable) => Some((freshness, sstable.clone())),
            Source::MemTable(_) => None,
        })
        .collect();
    sstables.sort_by_key(|(freshness, _)| Reverse(*freshness));
    // All at once: on a remote store this takes the time of one SSTable, not the sum of all.
    let rows = &*open;
    let asks =
        sstables.iter().map(|(_, sstable)| ask(sstable, &snapshot.key, wanted, rows).boxed());
    let asked: Vec<Asked> = all(asks.collect()).await?;
    let mut found = Vec::new();
    for ((_, sstable), asked) in sstables.into_iter().zip(asked) {
        let position = |row: u32| match &asked {
            Asked::InMemory(keys) => keys.find(wanted.key(row)),
            Asked::Answered(answers) => {
                let place = answers.binary_search_by_key(&row, |(row, _)| *row).ok()?;
                Some(answers[place].1)
            }
        };
        let mut rows = Vec::new();
        open.retain(|row| match position(*row) {
            Some(position) => {
                rows.push((*row, position));
                false
            }
            None => true,
        });
        if !rows.is_empty() {
            found.push(InSsTable { sstable, rows });
        }
    }
    Ok(found)
}

/// The rows of `sstable` that have the keys of `rows`, by row of the call and position. The SSTable
/// shows one row of a key, which need not be its last one.
pub(super) async fn shown_rows(
    sstable: &SsTableHandle,
    snapshot: &Snapshot,
    wanted: &Wanted,
    rows: &[u32],
) -> Result<Vec<(u32, u32)>> {
    let mut rows = rows.to_vec();
    if sstable.keys_in_memory().is_none()
        && let Some(filter) = sstable.filter().await?
    {
        rows.retain(|row| filter.may_hold(&wanted.batch, *row as usize));
    }
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let keys = sstable.keys_to_find(&snapshot.key).await?;
    let found = rows.into_iter().filter_map(|row| Some((row, keys.find(wanted.key(row))?)));
    Ok(found.collect())
}

async fn ask(
    sstable: &SsTableHandle,
    key: &[String],
    wanted: &Wanted,
    open: &[u32],
) -> Result<Asked> {
    if sstable.keys_in_memory().is_some() {
        return Ok(Asked::InMemory(sstable.keys_to_find(key).await?));
    }
    let mut rows = open.to_vec();
    if let Some(filter) = sstable.filter().await? {
        rows.retain(|row| filter.may_hold(&wanted.batch, *row as usize));
    }
    if rows.is_empty() {
        return Ok(Asked::Answered(Vec::new()));
    }
    let Some(index) = sstable.index_for(rows.len()).await? else {
        return Ok(Asked::InMemory(sstable.keys_to_find(key).await?));
    };
    let answers = rows.into_iter().map(|row| in_index(sstable, &index, wanted, row).boxed());
    Ok(Asked::Answered(all(answers.collect()).await?.into_iter().flatten().collect()))
}

async fn in_index(
    sstable: &SsTableHandle,
    index: &KeyIndex,
    wanted: &Wanted,
    row: u32,
) -> Result<Option<(u32, u32)>> {
    let position = index.newest(wanted.value(row)?).await.in_sstable(&sstable.name())?;
    Ok(position.map(|position| (row, position)))
}

/// Reads the rows that are not tombstones.
pub(super) async fn rows(columns: &Columns, found: Vec<InSsTable>) -> Result<Vec<Answers>> {
    let reads = found.into_iter().map(|found| rows_of(columns, found).boxed());
    Ok(all(reads.collect()).await?.into_iter().flatten().collect())
}

/// Tombstones are read apart from the rows. To take some rows of a constant column, lance walks
/// over all rows before them, and most SSTables have no tombstone.
async fn rows_of(columns: &Columns, found: InSsTable) -> Result<Vec<Answers>> {
    let InSsTable { sstable, mut rows } = found;
    if let Some(tombstones) = sstable.tombstones_in_memory() {
        rows.retain(|(_, position)| !tombstones.contains(*position));
    }
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    rows.sort_unstable_by_key(|(_, position)| *position);
    let offsets: Vec<u32> = rows.iter().map(|(_, position)| *position).collect();
    let source = columns.in_sstable(&sstable)?;
    let take = async {
        take(&sstable.row_readers, &sstable.dataset, 0, &offsets, &source)
            .await
            .in_sstable(&sstable.name())
    };
    let (tombstones, taken) = try_join!(sstable.tombstones(), take)?;
    let mut rows = rows.as_slice();
    let mut answers = Vec::new();
    for taken in taken {
        let (of_taken, behind) = rows.split_at(taken.num_rows());
        let of = of_taken.iter().zip(0..);
        let of = of.filter(|((_, position), _)| !tombstones.contains(*position));
        let of = of.map(|((row, _), place)| (*row, place)).collect();
        answers.push(Answers { columns: source.result(&taken)?, of });
        rows = behind;
    }
    Ok(answers)
}
