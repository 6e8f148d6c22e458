//! Whether rows of the base table, or of an SSTable, are the newest of their keys.
//!
//! Owns: the search for newer rows of a few keys, in the order memory, SSTables.
//! Does not own: the rows found, which are not read.

use arrow_array::{BooleanArray, RecordBatch};
use lancemem_core::types::Result;
use roaring::RoaringBitmap;

use super::sstables;
use super::wanted::Wanted;
use crate::snapshot::{Snapshot, Source};

/// For each of `rows`, which have the key columns, whether no source of `snapshot` above the base
/// table has a row or a tombstone of its key. For rows of an SSTable, the snapshot has the newer
/// sources alone ([`Snapshot::newer_than`]).
///
/// # Errors
/// A storage error while keys of an SSTable are read.
pub async fn without_newer(snapshot: &Snapshot, rows: &RecordBatch) -> Result<BooleanArray> {
    let wanted = Wanted::new(&snapshot.key, rows)?;
    let mut open = wanted.distinct();
    let memtables: Vec<_> = snapshot
        .sources()
        .filter_map(|(_, source)| match source {
            Source::MemTable(rows) => Some(rows),
            Source::SsTable(_) => None,
        })
        .collect();
    let is_in_memory = |row: u32| {
        let key = wanted.key(row);
        memtables.iter().any(|memtable| memtable.newest(key).is_some())
    };
    open.retain(|row| !is_in_memory(*row));
    if !open.is_empty() {
        sstables::find(snapshot, &wanted, &mut open).await?;
    }
    let open: RoaringBitmap = open.into_iter().collect();
    let stands_for = |row: u32| wanted.row_of(wanted.key(row)).unwrap_or(row);
    let rows = (0_u32..).take(wanted.len());
    Ok(rows.map(|row| Some(open.contains(stands_for(row)))).collect())
}
