//! Which rows of some SSTables a later row of their key supersedes.
//!
//! Owns: the comparison of SSTables with each other, of the rows within one SSTable, and of an
//! SSTable with the keys of newer sources, for scans, compactions and deletion vectors.
//! Does not own: where keys come from, tombstones, or rows of the base table (`base_rows`).

use std::sync::Arc;

use lancemem_core::format::KeyForm;
use lancemem_core::types::{Freshness, Generation, Result, ShardId};
use roaring::RoaringBitmap;

use super::{NewerKeys, SourceKeys};
use crate::snapshot::SsTableKeys;

/// An SSTable of a snapshot: its shard and its age there.
pub type SsTableId = (ShardId, Generation);

/// SSTables that were compared with each other by key.
#[derive(Debug, Default)]
pub struct Comparison {
    /// Every key, each with the newest SSTable that has it.
    pub newest: NewerKeys,
    /// For each SSTable, in the order of the call, the positions of the rows that a newer SSTable
    /// supersedes.
    pub superseded: Vec<RoaringBitmap>,
}

/// Compares `sstables`, in any order, by keys of the form `form`. No key is in two shards, so the
/// SSTables of all shards are compared at once.
///
/// # Errors
/// As [`NewerKeys::of`].
pub fn compare(form: KeyForm, sstables: &[(SsTableId, Arc<SsTableKeys>)]) -> Result<Comparison> {
    let sources = sstables.iter().map(|((_, generation), keys)| SourceKeys {
        freshness: Freshness::SsTable(*generation),
        at_most: keys.len(),
        keys: keys.keys(),
    });
    let (newest, places) = NewerKeys::and_superseded(form, sources.collect())?;
    let superseded =
        sstables.iter().zip(places).map(|((_, keys), places)| keys.positions_of(places));
    Ok(Comparison { newest, superseded: superseded.collect() })
}

/// The rows of an SSTable that a later row of the same SSTable supersedes. lancemem hides such rows
/// with the SSTable's own deletion vector; an SSTable of another writer may show two rows of a key.
#[must_use]
pub fn superseded_within(keys: &SsTableKeys) -> RoaringBitmap {
    let earlier = keys.iter().filter(|(key, row)| keys.find(key) != Some(*row));
    earlier.map(|(_, row)| row).collect()
}

/// The rows of an SSTable of `keys` whose key is in `newer`, the keys of a newer source.
#[must_use]
pub fn superseded_by(newer: &NewerKeys, keys: &SsTableKeys) -> RoaringBitmap {
    let older = keys.iter().filter(|(key, _)| newer.newest(key).is_some());
    older.map(|(_, row)| row).collect()
}

#[cfg(test)]
mod tests {
    use lancemem_core::types::KeyBlock;

    use super::*;

    fn block(keys: &[&str]) -> KeyBlock {
        let mut block = KeyBlock::default();
        for key in keys {
            block.push_with(|out| out.extend_from_slice(key.as_bytes()));
        }
        block
    }

    fn compared(sstables: &[&Arc<SsTableKeys>]) -> Comparison {
        let sstables = (1..).zip(sstables).map(|(generation, keys)| {
            let id = (ShardId::nil(), Generation(generation));
            (id, Arc::clone(keys))
        });
        let sstables: Vec<_> = sstables.collect();
        compare(KeyForm::Encoded, &sstables).unwrap()
    }

    #[test]
    fn superseded_rows_are_named_by_position_behind_rows_that_an_sstable_hides() {
        // The older SSTable hides its row 1, so its second key is the key of row 2.
        let older = Arc::new(SsTableKeys::new(block(&["a", "b", "c"]), vec![0, 2, 3]));
        let newer = Arc::new(SsTableKeys::dense(block(&["c", "a"])));
        let superseded = RoaringBitmap::from([0, 3]);
        let Comparison { superseded: found, .. } = compared(&[&older, &newer]);
        assert_eq!(found, [superseded.clone(), RoaringBitmap::new()]);
        assert_eq!(superseded_by(&compared(&[&newer]).newest, &older), superseded);
    }
}
