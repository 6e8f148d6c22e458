//! The keys of one SSTable, in memory.
//!
//! Owns: the newest row of each key of an SSTable, and the hash table from a key to its row.
//! Does not own: how the keys are read from storage, or how long they stay (`cache`).

use std::hash::{BuildHasher, Hasher};
use std::mem::size_of;
use std::ops::Range;
use std::sync::OnceLock;

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use lancemem_core::types::KeyBlock;
use roaring::RoaringBitmap;

/// The encoded keys of an SSTable's live rows, tombstones included, each once, by row position.
///
/// A row that the SSTable's own deletion vector hides is left out: a later row of the SSTable has
/// its key.
#[derive(Debug)]
pub struct SsTableKeys {
    keys: KeyBlock,
    /// Row position of each key; `None` where the positions are 0, 1, 2 and so on without a gap.
    positions: Option<Vec<u32>>,
    hasher: RandomState,
    /// Built by the first [`Self::find`].
    table: OnceLock<KeyTable>,
    /// Places of the least and the greatest key, computed by the first [`Self::range`].
    range: OnceLock<Option<(usize, usize)>>,
}

/// The hash table from a key to its place in the block.
#[derive(Debug)]
struct KeyTable {
    places: HashTable<u32>,
    /// Whether every key occurs once.
    unique: bool,
}

impl SsTableKeys {
    /// The keys `keys` of the rows at `positions`, which ascend.
    ///
    /// # Panics
    /// Where keys and positions differ in number, or are more than `u32` can count.
    #[must_use]
    pub fn new(mut keys: KeyBlock, positions: Vec<u32>) -> Self {
        assert_eq!(keys.len(), positions.len(), "one position a key");
        assert!(u32::try_from(keys.len()).is_ok(), "an SSTable has at most 2^32 rows");
        keys.shrink_to_fit();
        let dense = positions.last().is_none_or(|last| *last as usize + 1 == positions.len());
        let positions = (!dense).then_some(positions);
        let (hasher, table, range) = (RandomState::default(), OnceLock::new(), OnceLock::new());
        Self { keys, positions, hasher, table, range }
    }

    /// The keys of all rows from row 0 on.
    ///
    /// # Panics
    /// Where they are more than `u32` can count.
    #[must_use]
    pub fn dense(keys: KeyBlock) -> Self {
        let rows = keys.len();
        let positions = (0..).take(rows).collect();
        Self::new(keys, positions)
    }

    /// The key at `place`, counted from 0 in the order of [`Self::iter`].
    ///
    /// # Panics
    /// Where there is no such place.
    #[must_use]
    pub fn key(&self, place: usize) -> &[u8] {
        self.keys.get(place)
    }

    /// Whether every key occurs once. Builds the table of [`Self::find`].
    #[must_use]
    pub fn is_unique(&self) -> bool {
        self.table().unique
    }

    /// Whether the table of [`Self::find`] is built.
    #[must_use]
    pub fn has_table(&self) -> bool {
        self.table.get().is_some()
    }

    /// Number of keys.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether the SSTable has no row.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Every key with its row position, positions ascending.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&[u8], u32)> {
        self.keys.iter().enumerate().map(|(place, key)| (key, self.position(place)))
    }

    /// The row position of the key at `place`.
    ///
    /// # Panics
    /// Where there is no such place.
    #[must_use]
    pub fn position_of(&self, place: usize) -> u32 {
        self.position(place)
    }

    /// The keys at `places`, counted from 0 in the order of [`Self::iter`].
    ///
    /// # Panics
    /// Where there are no such places.
    pub fn keys_at(&self, places: Range<usize>) -> impl ExactSizeIterator<Item = &[u8]> {
        places.map(|place| self.keys.get(place))
    }

    /// The row positions of the keys at `places`.
    ///
    /// # Panics
    /// Where there are no such places.
    pub fn positions_at(&self, places: Range<usize>) -> impl ExactSizeIterator<Item = u32> {
        places.map(|place| self.position(place))
    }

    /// The row positions of the keys at `places`.
    #[must_use]
    pub fn positions_of(&self, places: RoaringBitmap) -> RoaringBitmap {
        match &self.positions {
            Some(positions) => places.iter().map(|place| positions[place as usize]).collect(),
            None => places,
        }
    }

    /// Every key, in the order of [`Self::iter`].
    pub fn keys(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.keys.iter()
    }

    /// The row position of `key`.
    #[must_use]
    pub fn find(&self, key: &[u8]) -> Option<u32> {
        let is_key = |place: &u32| self.keys.get(*place as usize) == key;
        self.table().places.find(self.hash(key), is_key).map(|place| self.position(*place as usize))
    }

    /// The least and the greatest key; `None` where there is no key.
    #[must_use]
    pub fn range(&self) -> Option<(&[u8], &[u8])> {
        let find = || {
            let by_key = |place: &usize| self.keys.get(*place);
            let least = (0..self.len()).min_by_key(by_key)?;
            Some((least, (0..self.len()).max_by_key(by_key)?))
        };
        let (least, greatest) = (*self.range.get_or_init(find))?;
        Some((self.keys.get(least), self.keys.get(greatest)))
    }

    /// Bytes on the heap, with the table that the first [`Self::find`] builds.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        let positions =
            self.positions.as_ref().map_or(0, |rows| rows.capacity() * size_of::<u32>());
        self.keys.heap_bytes() + positions + table_bytes(self.len())
    }

    fn table(&self) -> &KeyTable {
        self.table.get_or_init(|| self.index())
    }

    fn index(&self) -> KeyTable {
        let mut places = HashTable::with_capacity(self.len());
        let mut unique = true;
        let hash_of = |place: &u32| self.hash(self.keys.get(*place as usize));
        for (place, key) in (0..).zip(self.keys.iter()) {
            let is_key = |other: &u32| self.keys.get(*other as usize) == key;
            match places.entry(self.hash(key), is_key, hash_of) {
                // A duplicate key: the writer of the SSTable hid too few rows. The later row wins.
                Entry::Occupied(mut earlier) => {
                    *earlier.get_mut() = place;
                    unique = false;
                }
                Entry::Vacant(free) => {
                    free.insert(place);
                }
            }
        }
        KeyTable { places, unique }
    }

    fn hash(&self, key: &[u8]) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        hasher.write(key);
        hasher.finish()
    }

    #[expect(clippy::cast_possible_truncation, reason = "`new` refuses more keys than u32 counts")]
    fn position(&self, place: usize) -> u32 {
        self.positions.as_ref().map_or(place as u32, |positions| positions[place])
    }
}

/// Bytes that hashbrown allocates for `keys` places: a power of two of slots, at most 7/8 full,
/// each with a control byte, and one more group of control bytes.
fn table_bytes(keys: usize) -> usize {
    if keys == 0 {
        return 0;
    }
    (keys * 8 / 7).next_power_of_two().max(16) * (size_of::<u32>() + 1) + 16
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn block(keys: &[Vec<u8>]) -> KeyBlock {
        let mut block = KeyBlock::with_capacity(keys.len(), 0);
        for key in keys {
            block.push_with(|out| out.extend_from_slice(key));
        }
        block
    }

    #[test]
    fn every_key_is_found_at_its_row_and_no_other_key_is() {
        let numbers: Vec<u32> = (0..5_000).collect();
        let keys: Vec<Vec<u8>> = numbers
            .iter()
            .map(|number| {
                vec![b'k'; (*number % 7) as usize].into_iter().chain(number.to_be_bytes()).collect()
            })
            .collect();
        for step in [1, 3] {
            let positions: Vec<u32> = numbers.iter().map(|number| number * step).collect();
            let model: HashMap<&[u8], u32> =
                keys.iter().map(Vec::as_slice).zip(positions.iter().copied()).collect();
            let sstable = SsTableKeys::new(block(&keys), positions);
            assert_eq!(sstable.len(), 5_000);
            assert_eq!(sstable.iter().collect::<HashMap<_, _>>(), model);
            for (key, position) in &model {
                assert_eq!(sstable.find(key), Some(*position));
            }
            assert_eq!(sstable.find(b""), None);
            assert_eq!(sstable.find(&[0, 0, 0]), None);
            assert_eq!(sstable.find(&5_000_u32.to_be_bytes()), None);
        }
    }

    #[test]
    fn a_key_that_a_writer_failed_to_hide_is_found_at_its_later_row() {
        let keys = [b"a".to_vec(), b"b".to_vec(), b"a".to_vec()];
        let sstable = SsTableKeys::new(block(&keys), vec![0, 1, 2]);
        assert_eq!((sstable.find(b"a"), sstable.find(b"b")), (Some(2), Some(1)));
        assert!(!sstable.is_unique());
        assert!(SsTableKeys::dense(block(&keys[..2])).is_unique());
    }

    #[test]
    fn the_range_spans_all_keys() {
        let keys = [b"d".to_vec(), b"b".to_vec(), b"bb".to_vec(), b"z".to_vec(), b"c".to_vec()];
        let sstable = SsTableKeys::dense(block(&keys));
        assert_eq!(sstable.range(), Some((&b"b"[..], &b"z"[..])));
        assert_eq!(SsTableKeys::dense(block(&keys[..1])).range(), Some((&b"d"[..], &b"d"[..])));
    }

    #[test]
    fn an_sstable_without_rows_finds_nothing() {
        let sstable = SsTableKeys::new(KeyBlock::default(), Vec::new());
        assert!(sstable.is_empty());
        assert_eq!((sstable.find(b"a"), sstable.heap_bytes()), (None, 0));
        assert_eq!(sstable.range(), None);
    }

    #[test]
    fn the_bytes_that_are_counted_cover_the_table() {
        for keys in [1, 7, 8, 100, 14_336, 14_337, 20_000] {
            let table: HashTable<u32> = HashTable::with_capacity(keys);
            assert!(table.allocation_size() <= table_bytes(keys), "{keys} keys");
        }
    }
}
