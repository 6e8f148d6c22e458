//! The newest position of a key, on a concurrent skiplist.
//!
//! Owns: the seam behind which another key index can take the skiplist's place.
//! Does not own: rows, or which rows a reader may see: every lookup is bounded by a row count.
//!
//! The list is insert-only and its keys are unique, (key, descending position): in
//! crossbeam-skiplist 0.1.3 a lookup can miss a key that is being replaced.

use std::cmp::Reverse;
use std::ops::Bound;

use crossbeam_skiplist::SkipMap;

use crate::types::KeyBytes;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    key: KeyBytes,
    position: Reverse<u32>,
}

/// Every (key, position) of one MemTable.
#[derive(Debug)]
pub struct KeyIndex(SkipMap<Entry, ()>);

impl KeyIndex {
    /// Bytes that one row costs in the list beside its key's heap bytes, towers included.
    pub const BYTES_PER_ROW: usize = 64;

    pub fn new() -> Self {
        Self(SkipMap::new())
    }

    /// Adds the keys of consecutive rows that start at `first_row`.
    pub fn insert(&self, first_row: usize, keys: Vec<KeyBytes>) {
        for (offset, key) in keys.into_iter().enumerate() {
            let position = Reverse(position(first_row + offset));
            self.0.insert(Entry { key, position }, ());
        }
    }

    /// The newest position of `key` below `rows`.
    pub fn newest(&self, key: &KeyBytes, rows: usize) -> Option<u32> {
        let last = rows.checked_sub(1)?;
        let from = Entry { key: key.clone(), position: Reverse(position(last)) };
        let found = self.0.lower_bound(Bound::Included(&from))?;
        (found.key().key == *key).then_some(found.key().position.0)
    }

    /// Visits every (key, position) below `rows`: keys ascending, positions of a key descending.
    pub fn visit(&self, rows: usize, mut visit: impl FnMut(&KeyBytes, u32)) {
        for entry in &self.0 {
            let Entry { key, position: Reverse(position) } = entry.key();
            if (*position as usize) < rows {
                visit(key, *position);
            }
        }
    }
}

fn position(row: usize) -> u32 {
    u32::try_from(row).unwrap_or_else(|_| unreachable!("a MemTable is frozen below 2^32 rows"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> KeyBytes {
        KeyBytes::new(&[byte])
    }

    #[test]
    fn the_newest_position_is_bounded_by_what_a_reader_may_see() {
        let index = KeyIndex::new();
        index.insert(0, vec![key(1), key(2), key(1)]);
        index.insert(3, vec![key(1)]);
        assert_eq!(index.newest(&key(1), 4), Some(3));
        assert_eq!(index.newest(&key(1), 3), Some(2));
        assert_eq!(index.newest(&key(1), 2), Some(0));
        assert_eq!(index.newest(&key(1), 0), None);
        assert_eq!(index.newest(&key(3), 4), None);
    }

    #[test]
    fn a_visit_gives_keys_ascending_and_the_newest_of_a_key_first() {
        let index = KeyIndex::new();
        index.insert(0, vec![key(2), key(1), key(2)]);
        let mut visited = Vec::new();
        index.visit(3, |key, position| visited.push((key.as_slice()[0], position)));
        assert_eq!(visited, [(1, 1), (2, 2), (2, 0)]);
    }
}
