//! A key index on a concurrent skiplist.
//!
//! Owns: every (key, position), in key order at all times.
//! Does not own: the bound of a lookup, which the caller gives.
//!
//! The list is insert-only and its keys are unique, (key, descending position): in
//! crossbeam-skiplist 0.1.3 a lookup can miss a key that is being replaced.

use std::cmp::Reverse;
use std::ops::Bound;

use crossbeam_skiplist::SkipMap;

use super::{KeyIndex, position};
use crate::memtable::rows::Rows;
use crate::types::KeyBytes;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    key: KeyBytes,
    position: Reverse<u32>,
}

/// Every (key, position) of one MemTable.
#[derive(Debug, Default)]
pub struct SkipListIndex(SkipMap<Entry, ()>);

impl SkipListIndex {
    /// The mutant `B20-list`: a list with one entry per key, in which readers of older positions
    /// find nothing.
    fn remove_older(&self, entry: &Entry) {
        let older = self.0.lower_bound(Bound::Excluded(entry));
        if let Some(older) = older.filter(|older| older.key().key == entry.key) {
            older.remove();
            std::thread::yield_now();
        }
    }

    /// Visits every (key, position) below `limit`: keys ascending, positions of a key descending.
    fn visit(&self, limit: usize, mut visit: impl FnMut(&KeyBytes, u32)) {
        for entry in &self.0 {
            let Entry { key, position: Reverse(position) } = entry.key();
            if (*position as usize) < limit {
                visit(key, *position);
            }
        }
    }
}

impl KeyIndex for SkipListIndex {
    fn insert(&self, rows: &Rows, batch: usize) {
        let placed = rows.get(batch);
        let Some(keys) = placed.keys.get() else { return };
        for (offset, key) in keys.iter().enumerate() {
            let position = Reverse(position(placed.first_row + offset));
            let entry = Entry { key: KeyBytes::new(key), position };
            if mutant!("B20-list") {
                self.remove_older(&entry);
            }
            self.0.insert(entry, ());
        }
    }

    fn newest(&self, _rows: &Rows, key: &[u8], limit: usize) -> Option<u32> {
        let last = limit.checked_sub(1)?;
        let key = KeyBytes::new(key);
        let from = Entry { key, position: Reverse(position(last)) };
        let found = self.0.lower_bound(Bound::Included(&from))?;
        (found.key().key == from.key).then_some(found.key().position.0)
    }

    fn superseded(&self, _rows: &Rows, limit: usize, visit: &mut dyn FnMut(u32)) {
        let mut previous: Option<KeyBytes> = None;
        self.visit(limit, |key, position| {
            if previous.as_ref() == Some(key) {
                visit(position);
            } else {
                previous = Some(key.clone());
            }
        });
    }

    fn rows_by_key(&self, _rows: &Rows, limit: usize) -> Vec<u32> {
        let mut sorted = Vec::with_capacity(limit);
        let mut key_start = 0;
        let mut previous: Option<KeyBytes> = None;
        self.visit(limit, |key, position| {
            if previous.as_ref() != Some(key) {
                sorted[key_start..].reverse();
                key_start = sorted.len();
                previous = Some(key.clone());
            }
            sorted.push(position);
        });
        sorted[key_start..].reverse();
        sorted
    }
}
