//! The rows that the keys of an SSTable had before it.
//!
//! Owns: the choice of the newest older source for each key, and the selected rows of each source.
//! Does not own: reading their values (`record`), or how keys are looked up in the base table
//! (`crate::visibility`).

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
use crate::visibility::{BaseLookup, NewerKeys, SourceKeys};

const ACTION: &str = "looking up the rows before a flush";
/// Fragments in which keys are looked up at the same time. The look-up runs beside writers.
const CONCURRENT_LOOKS: usize = 1;
/// The fragment of an SSTable.
const FRAGMENT: u32 = 0;

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
    /// `older` of its shard, the oldest first. `keys` are those of `sstable`.
    ///
    /// # Errors
    /// A storage error, or damage.
    pub async fn find(
        snapshot: &Snapshot,
        index: &RecordIndex,
        (sstable, keys): (&SsTableHandle, &SsTableKeys),
        older: &[Arc<SsTableHandle>],
    ) -> Result<Self> {
        // Rows of the SSTable whose key an older SSTable has, as a row or as a tombstone.
        let mut answered = RoaringBitmap::new();
        let mut sstables = Vec::new();
        for source in older.iter().rev() {
            let rows = rows_in(source, &snapshot.key, keys, &mut answered).await?;
            let mut selection = Selection::default();
            selection.set(FRAGMENT, Picked::At(rows));
            if !selection.is_empty() {
                sstables.push((source.clone(), selection));
            }
        }
        sstables.reverse();
        let base = rows_in_base(snapshot, index, (sstable, keys), &answered).await?;
        Ok(Self { base, sstables })
    }

    /// The number of the rows.
    pub fn rows(&self) -> u64 {
        let of_sstables: u64 = self.sstables.iter().map(|(_, rows)| rows.rows()).sum();
        self.base.rows() + of_sstables
    }
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

/// The live rows of the base table whose keys are in `keys` and that no SSTable has answered.
async fn rows_in_base(
    snapshot: &Snapshot,
    index: &RecordIndex,
    (sstable, keys): (&SsTableHandle, &SsTableKeys),
    answered: &RoaringBitmap,
) -> Result<Selection> {
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
    let fragments = snapshot.base.fragments();
    let found = lookup.dead_rows(fragments, open.iter().copied(), &newer).await?;
    let mut selection = Selection::default();
    for fragment in fragments.iter() {
        let Some(rows) = found.of_fragment(fragment.id).filter(|rows| !rows.is_empty()) else {
            continue;
        };
        let live = rows - deleted_of(&snapshot.base, fragment.id).await?;
        selection.set(address_half(fragment.id)?, Picked::At(live));
    }
    Ok(selection)
}

async fn deleted_of(base: &Dataset, fragment: u64) -> Result<RoaringBitmap> {
    deleted(&fragment_of(base, fragment)?).await
}
