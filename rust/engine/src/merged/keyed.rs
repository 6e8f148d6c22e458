//! Merged rows of the keys of one call.
//!
//! Owns: the fold of the events of these keys, found by look-ups.
//! Does not own: whole snapshots (`mod`), or the look-up in a source (`lookup`).

use std::sync::Arc;

use arrow_array::RecordBatch;
use futures::FutureExt;
use lancemem_core::types::Result;

use super::events::{SourceEvents, base_events, of_memtable, of_sstable};
use super::{Groups, folded, shard_of, with_merged};
use crate::lookup::KeyVersions;
use crate::snapshot::{Snapshot, Source};

/// `snapshot` with the merged rows of `keys` as the newest source of their shards, where its rule makes
/// a row of several. Other keys are not merged.
///
/// # Errors
/// As [`super::merged`].
pub async fn merged_for(snapshot: Arc<Snapshot>, keys: &RecordBatch) -> Result<Arc<Snapshot>> {
    let Some(fold) = snapshot.columns.rows.fold().cloned() else { return Ok(snapshot) };
    if snapshot.is_base_only() {
        return Ok(snapshot);
    }
    let versions = KeyVersions::of(&snapshot, keys).await?;
    // A key without a row above the base table has the row of the base table.
    let mut shards: Vec<Option<usize>> = vec![None; versions.count()];
    for (source, rows) in versions.above.iter().enumerate() {
        let shard = shard_of(&snapshot.shards, source);
        for (_, key) in rows {
            shards[*key as usize].get_or_insert(shard);
        }
    }
    let (groups, numbers) = Groups::of(snapshot.shards.len(), shards.iter().copied())?;
    if groups.is_empty() {
        return Ok(snapshot);
    }
    let asked = (0..).zip(&numbers).filter_map(|(key, number)| number.map(|_| key));
    let asked: Vec<u32> = asked.collect();
    let group = |key: u32| numbers[key as usize];
    let mut sources = Vec::new();
    for (rows, keys) in versions.in_base(&snapshot, &asked).await? {
        let groups = keys.into_iter().filter_map(group).collect();
        sources.push(SourceEvents { rows: base_events(&fold, &rows)?, groups });
    }
    for ((_, source), rows) in snapshot.sources().zip(&versions.above) {
        let rows = rows.iter().filter_map(|(position, key)| Some((*position, group(*key)?)));
        let rows: Vec<(u32, u32)> = rows.collect();
        sources.extend(match source {
            Source::SsTable(sstable) => of_sstable(&snapshot, sstable, rows).boxed().await?,
            Source::MemTable(memtable) => of_memtable(&snapshot, memtable, &rows)?,
        });
    }
    let rows = folded(&snapshot, groups, sources, &fold).await?;
    Ok(Arc::new(with_merged(snapshot.as_ref().clone(), &rows)))
}
