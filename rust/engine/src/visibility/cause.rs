//! Why rows are dead.
//!
//! Owns: [`DeletedKeys`], the keys of some SSTables whose newest event is a delete. The keys
//! determine the [`Cause`] of every row that the SSTables supersede, in an SSTable or in the base.
//! Does not own: which rows are dead (`compare`, `base_rows`). A caller that does not ask for
//! causes builds no [`DeletedKeys`] and pays nothing.
//!
//! A cause is net: it depends on the newest event of a key, not on earlier events. A row whose key
//! was deleted and written again is dead because of an update.

use std::sync::Arc;

use lancemem_core::format::KeyForm;
use lancemem_core::types::{Freshness, KeyBlock, Result};
use roaring::RoaringBitmap;

use super::{Cause, DeadRows, NewerKeys, SourceKeys};
use crate::snapshot::SsTableKeys;

/// The events of one SSTable.
#[derive(Clone, Copy, Debug)]
pub struct SsTableEvents<'a> {
    /// The key of each row that the SSTable shows.
    pub keys: &'a SsTableKeys,
    /// Positions of the rows that only delete.
    pub tombstones: &'a RoaringBitmap,
    /// Positions of the rows that a later row supersedes, in a newer SSTable or in this one.
    pub superseded: &'a RoaringBitmap,
}

/// The keys whose newest event in some SSTables is a delete.
#[derive(Debug)]
pub struct DeletedKeys {
    keys: KeyBlock,
    held: Arc<NewerKeys>,
}

impl DeletedKeys {
    /// The deleted keys of `sstables`, which were compared with each other. Keys have the form
    /// `form`.
    ///
    /// # Errors
    /// As [`NewerKeys::of`].
    pub fn of<'a>(
        form: KeyForm,
        sstables: impl IntoIterator<Item = SsTableEvents<'a>>,
    ) -> Result<Self> {
        let mut deleted = KeyBlock::default();
        for SsTableEvents { keys, tombstones, superseded } in sstables {
            let newest = tombstones - superseded;
            // Most SSTables have no tombstones, so the walk over their keys is skipped.
            if newest.is_empty() {
                continue;
            }
            for (key, _) in keys.iter().filter(|(_, row)| newest.contains(*row)) {
                deleted.push_with(|out| out.extend_from_slice(key));
            }
        }
        // Only membership is asked for, so any freshness will do.
        let freshness = Freshness::Base;
        let source = SourceKeys { freshness, at_most: deleted.len(), keys: deleted.iter() };
        let held = Arc::new(NewerKeys::of(form, vec![source])?);
        Ok(Self { keys: deleted, held })
    }

    /// Why rows of `key` below its newest event are dead.
    #[must_use]
    pub fn cause(&self, key: &[u8]) -> Cause {
        if self.held.newest(key).is_some() { Cause::Deleted } else { Cause::Updated }
    }

    /// The rows `dead` of an SSTable with the keys `keys`, with their causes. `dead` has no row
    /// that the SSTable's own deletion vector hides: `keys` lacks the keys of hidden rows.
    #[must_use]
    pub fn in_sstable(&self, keys: &SsTableKeys, dead: RoaringBitmap) -> DeadRows {
        let is_deleted =
            |(key, row): &(&[u8], u32)| dead.contains(*row) && self.cause(key) == Cause::Deleted;
        let deleted = keys.iter().filter(is_deleted).map(|(_, row)| row).collect();
        DeadRows::of_sstable(dead).with_deleted(DeadRows::of_sstable(deleted))
    }

    /// Every deleted key, once.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.keys.iter()
    }

    /// The deleted keys as a key map, for look-ups.
    #[must_use]
    pub const fn held(&self) -> &Arc<NewerKeys> {
        &self.held
    }
}

#[cfg(test)]
mod tests {
    use lancemem_core::types::{Generation, ShardId};

    use super::*;
    use crate::visibility::{Comparison, compare, superseded_within};

    const UPDATED: Option<Cause> = Some(Cause::Updated);
    const DELETED: Option<Cause> = Some(Cause::Deleted);
    const ALIVE: Option<Cause> = None;

    /// The keys of an SSTable and its tombstones. An event is a key; a delete has a `-` before it.
    fn sstable(events: &[&str]) -> (Arc<SsTableKeys>, RoaringBitmap) {
        let mut keys = KeyBlock::default();
        for event in events {
            keys.push_with(|out| out.extend_from_slice(event.trim_start_matches('-').as_bytes()));
        }
        let tombstones = (0..).zip(events).filter(|(_, event)| event.starts_with('-'));
        (Arc::new(SsTableKeys::dense(keys)), tombstones.map(|(row, _)| row).collect())
    }

    /// The cause of each row in the SSTables of one shard, the oldest SSTable first.
    fn causes(sstables: &[&[&str]]) -> Vec<Vec<Option<Cause>>> {
        let read: Vec<_> = sstables.iter().map(|events| sstable(events)).collect();
        let compared = (1..).zip(&read).map(|(generation, (keys, _))| {
            let id = (ShardId::nil(), Generation(generation));
            (id, keys.clone())
        });
        let compared: Vec<_> = compared.collect();
        let Comparison { superseded, .. } = compare(KeyForm::Encoded, &compared).unwrap();
        let superseded: Vec<RoaringBitmap> = superseded
            .into_iter()
            .zip(&read)
            .map(|(by_newer, (keys, _))| by_newer | superseded_within(keys))
            .collect();
        let events = read.iter().zip(&superseded).map(|((keys, tombstones), superseded)| {
            SsTableEvents { keys: keys.as_ref(), tombstones, superseded }
        });
        let deleted = DeletedKeys::of(KeyForm::Encoded, events).unwrap();
        let of_sstables = read.iter().zip(&superseded).map(|((keys, tombstones), superseded)| {
            let dead = deleted.in_sstable(keys, tombstones | superseded);
            (0..keys.len() as u64).map(|row| dead.cause(row)).collect()
        });
        of_sstables.collect()
    }

    #[test]
    fn a_row_that_was_updated_is_dead_because_of_the_update() {
        assert_eq!(causes(&[&["a", "b"], &["a"]]), [vec![UPDATED, ALIVE], vec![ALIVE]]);
    }

    #[test]
    fn a_row_that_was_deleted_and_its_tombstone_are_dead_because_of_the_delete() {
        assert_eq!(causes(&[&["a", "b"], &["-a"]]), [vec![DELETED, ALIVE], vec![DELETED]]);
    }

    #[test]
    fn a_row_that_was_updated_and_then_deleted_is_dead_because_of_the_delete() {
        let found = causes(&[&["a"], &["a"], &["-a"]]);
        assert_eq!(found, [vec![DELETED], vec![DELETED], vec![DELETED]]);
    }

    #[test]
    fn a_row_that_was_deleted_and_written_again_is_dead_because_of_the_update() {
        let found = causes(&[&["a"], &["-a"], &["a"]]);
        assert_eq!(found, [vec![UPDATED], vec![UPDATED], vec![ALIVE]]);
    }

    #[test]
    fn of_equal_keys_within_one_sstable_the_last_event_counts() {
        assert_eq!(causes(&[&["a", "b", "a"]]), [vec![UPDATED, ALIVE, ALIVE]]);
        assert_eq!(causes(&[&["a", "-a"]]), [vec![DELETED, DELETED]]);
        assert_eq!(causes(&[&["-a", "a"]]), [vec![UPDATED, ALIVE]]);
    }

    #[test]
    fn a_key_that_a_delete_did_not_find_leaves_a_tombstone_alone() {
        assert_eq!(causes(&[&["-a", "b"]]), [vec![DELETED, ALIVE]]);
    }
}
