//! The rows that the keys of an SSTable had before it.
//!
//! Owns: the choice of the newest older source for each key, and the selected rows of each source.
//! Does not own: reading their values (`record`), how keys are looked up in the base table
//! (`crate::visibility`), or deletion vectors.
//!
//! Deletion vectors have the answer: an older SSTable that has a key supersedes its rows in older
//! sources, so what none of these supersedes is the row before. Without them keys are looked up.

use std::sync::Arc;

use lance::Dataset;
use lancemem_core::format::KeyForm;
use lancemem_core::types::{Freshness, Result};
use roaring::RoaringBitmap;

use crate::changes::derive::deleted;
use crate::changes::selection::{Picked, Selection};
use crate::record_index::{RecordIndex, fragment_of};
use crate::row_address::address_half;
use crate::snapshot::{Snapshot, SsTableHandle, SsTableKeys};
use crate::visibility::{BaseLookup, DeadRows, NewerKeys, SourceKeys};

const ACTION: &str = "looking up the rows before a flush";
/// Fragments in which keys are looked up at the same time. The look-up runs beside writers.
const CONCURRENT_LOOKS: usize = 1;
/// The fragment of an SSTable.
const FRAGMENT: u32 = 0;

/// The rows that an SSTable is the first to supersede.
#[derive(Debug)]
pub struct Superseded {
    /// Rows of the base table, deleted rows included.
    pub base: DeadRows,
    /// Rows of each older SSTable of the shard, the oldest first.
    pub sstables: Vec<RoaringBitmap>,
}

/// Where the rows before an SSTable are.
#[derive(Debug, Default)]
pub struct RowsBefore {
    /// Rows of the base table.
    pub base: Selection,
    /// Rows of older SSTables, the oldest first. SSTables without such a row are left out.
    pub sstables: Vec<(Arc<SsTableHandle>, Selection)>,
}

impl RowsBefore {
    /// The rows of the keys of `sstable` in the base table of `snapshot` and in the SSTables
    /// `older` of its shard, the oldest first. `keys` are those of `sstable`. `known` are the rows
    /// that deletion vectors have found.
    ///
    /// # Errors
    /// A storage error, or damage.
    pub async fn find(
        snapshot: &Snapshot,
        index: &RecordIndex,
        known: Option<&Superseded>,
        (sstable, keys): (&SsTableHandle, &SsTableKeys),
        older: &[Arc<SsTableHandle>],
    ) -> Result<Self> {
        // A key may have several rows in an SSTable of another writer.
        let known = known.filter(|_| older.iter().all(|older| older.is_trusted()));
        if let Some(known) = known {
            return Self::of(snapshot, known, older).await;
        }
        let found = look_up(snapshot, index, (sstable, keys), older).await?;
        Self::of(snapshot, &found, older).await
    }

    async fn of(
        snapshot: &Snapshot,
        found: &Superseded,
        older: &[Arc<SsTableHandle>],
    ) -> Result<Self> {
        let base = live_rows(&snapshot.base, &found.base).await?;
        let mut before = Self { base, sstables: Vec::new() };
        for (source, rows) in older.iter().zip(&found.sstables) {
            let mut selection = Selection::default();
            selection.set(FRAGMENT, Picked::At(rows.clone()));
            if !selection.is_empty() {
                before.sstables.push((source.clone(), selection));
            }
        }
        Ok(before)
    }

    /// The number of the rows.
    pub fn rows(&self) -> u64 {
        let of_sstables: u64 = self.sstables.iter().map(|(_, rows)| rows.rows()).sum();
        self.base.rows() + of_sstables
    }
}

/// The rows by key: those of the base table, and those of each of `older`.
async fn look_up(
    snapshot: &Snapshot,
    index: &RecordIndex,
    (sstable, keys): (&SsTableHandle, &SsTableKeys),
    older: &[Arc<SsTableHandle>],
) -> Result<Superseded> {
    // Rows of the SSTable whose key an older SSTable has, as a row or as a tombstone.
    let mut answered = RoaringBitmap::new();
    let mut sstables = Vec::with_capacity(older.len());
    for source in older.iter().rev() {
        sstables.push(rows_in(source, &snapshot.key, keys, &mut answered).await?);
    }
    sstables.reverse();
    let base = rows_in_base(snapshot, index, (sstable, keys), &answered).await?;
    Ok(Superseded { base, sstables })
}

/// The rows of `source` whose keys are in `keys` and that no newer source has answered. Adds the
/// rows of `keys` that `source` answers to `answered`.
async fn rows_in(
    source: &SsTableHandle,
    key: &[String],
    keys: &SsTableKeys,
    answered: &mut RoaringBitmap,
) -> Result<RoaringBitmap> {
    let older = source.keys(key).await?;
    let tombstones = source.tombstones().await?;
    let is_newest = |key: &[u8], row: u32| source.is_trusted() || older.find(key) == Some(row);
    let mut rows = RoaringBitmap::new();
    for (key, row) in older.iter() {
        let Some(of_flush) = keys.find(key).filter(|_| is_newest(key, row)) else { continue };
        if answered.insert(of_flush) && !tombstones.contains(row) {
            rows.insert(row);
        }
    }
    Ok(rows)
}

/// The rows of the base table whose keys are in `keys` and that no SSTable has answered, deleted
/// rows included.
async fn rows_in_base(
    snapshot: &Snapshot,
    index: &RecordIndex,
    (sstable, keys): (&SsTableHandle, &SsTableKeys),
    answered: &RoaringBitmap,
) -> Result<DeadRows> {
    let open = keys.iter().filter(|(_, row)| !answered.contains(*row));
    let open: Vec<&[u8]> = open.map(|(key, _)| key).collect();
    let of_sstable = SourceKeys {
        freshness: Freshness::SsTable(sstable.generation),
        at_most: open.len(),
        keys: open.iter().copied(),
    };
    let form = KeyForm::of(&snapshot.schema, &snapshot.key);
    let newer = Arc::new(NewerKeys::of(form, vec![of_sstable])?);
    let lookup = BaseLookup {
        base: &snapshot.base,
        key: &snapshot.key,
        index,
        pace: None,
        concurrent: CONCURRENT_LOOKS,
        action: ACTION,
    };
    lookup.dead_rows(snapshot.base.fragments(), open.iter().copied(), &newer).await
}

/// `rows` of the base table without the deleted ones.
async fn live_rows(base: &Dataset, rows: &DeadRows) -> Result<Selection> {
    let mut selection = Selection::default();
    for fragment in base.fragments().iter() {
        let found = rows.of_fragment(fragment.id).filter(|rows| !rows.is_empty());
        let Some(found) = found else { continue };
        let live = found - deleted(&fragment_of(base, fragment.id)?).await?;
        selection.set(address_half(fragment.id)?, Picked::At(live));
    }
    Ok(selection)
}
