//! A set of encoded primary keys.
//!
//! Owns: storage of many keys with no allocation each: an int64 key takes about 16 bytes, table
//! included.
//! Does not own: what else is known of a key. A compaction asks only whether a newer row exists.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use lancemem_core::types::{Error, KeyBlock, Result};

/// Distinct keys, in the order of their insertion.
#[derive(Debug)]
pub struct KeySet {
    hasher: RandomState,
    table: HashTable<u32>,
    keys: Keys,
}

/// The bytes of the keys, one after the other.
#[derive(Debug, Default)]
struct Keys {
    bytes: Vec<u8>,
    lengths: Lengths,
}

#[derive(Debug, Default)]
enum Lengths {
    #[default]
    None,
    /// All the same so far.
    Fixed(usize),
    /// The end of each key.
    Ends(Vec<usize>),
}

impl Keys {
    fn len(&self) -> usize {
        match &self.lengths {
            Lengths::None => 0,
            Lengths::Fixed(width) => self.bytes.len() / width,
            Lengths::Ends(ends) => ends.len(),
        }
    }

    fn get(&self, index: usize) -> &[u8] {
        match &self.lengths {
            Lengths::None => &[],
            Lengths::Fixed(width) => &self.bytes[index * width..][..*width],
            Lengths::Ends(ends) => {
                let start = if index == 0 { 0 } else { ends[index - 1] };
                &self.bytes[start..ends[index]]
            }
        }
    }

    fn push(&mut self, key: &[u8]) {
        match &mut self.lengths {
            Lengths::None if !key.is_empty() => self.lengths = Lengths::Fixed(key.len()),
            Lengths::Fixed(width) if *width == key.len() => {}
            Lengths::Ends(ends) => ends.push(self.bytes.len() + key.len()),
            Lengths::None | Lengths::Fixed(_) => {
                let width = if let Lengths::Fixed(width) = self.lengths { width } else { 1 };
                let mut ends: Vec<usize> =
                    (1..=self.bytes.len() / width).map(|count| count * width).collect();
                ends.push(self.bytes.len() + key.len());
                self.lengths = Lengths::Ends(ends);
            }
        }
        self.bytes.extend_from_slice(key);
    }
}

impl KeySet {
    /// An empty set with room for `keys`.
    #[must_use]
    pub fn with_capacity(keys: usize) -> Self {
        Self {
            hasher: RandomState::default(),
            table: HashTable::with_capacity(keys),
            keys: Keys::default(),
        }
    }

    /// Adds `key`; false where the set has it already.
    ///
    /// # Errors
    /// An internal error for more keys than a number of 32 bits can count.
    pub fn insert(&mut self, key: &[u8]) -> Result<bool> {
        let Self { hasher, table, keys } = self;
        let hash = hasher.hash_one(key);
        if table.find(hash, |index| keys.get(*index as usize) == key).is_some() {
            return Ok(false);
        }
        let index = u32::try_from(keys.len())
            .map_err(|_| Error::Internal("a compaction of more than 2^32 keys".to_owned()))?;
        keys.push(key);
        table.insert_unique(hash, index, |index| hasher.hash_one(keys.get(*index as usize)));
        Ok(true)
    }

    /// Whether the set has `key`.
    #[must_use]
    pub fn contains(&self, key: &[u8]) -> bool {
        let hash = self.hasher.hash_one(key);
        self.table.find(hash, |index| self.keys.get(*index as usize) == key).is_some()
    }

    /// Places in `keys` of those that the set has.
    #[must_use]
    pub fn places_in(&self, keys: &KeyBlock) -> Vec<usize> {
        let found = keys.iter().enumerate().filter(|(_, key)| self.contains(key));
        found.map(|(place, _)| place).collect()
    }

    /// All keys, in the order of their insertion.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        (0..self.len()).map(|index| self.keys.get(index))
    }

    /// Number of keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether the set has no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::KeySet;

    #[test]
    fn keys_of_one_length_and_of_many_are_found_and_others_are_not() {
        let long = vec![7; 300];
        for keys in [
            vec![&b"aa"[..], b"bb", b"aa", b"cc"],
            vec![&b"aa"[..], b"b", b"aa", b"", b"b", b"a", b""],
            vec![&b""[..], b"", b"x"],
            vec![&b"abc"[..], b"abcd", &long, &long],
        ] {
            let mut set = KeySet::with_capacity(0);
            let mut known = HashSet::new();
            for key in keys {
                assert_eq!(set.insert(key).unwrap(), known.insert(key), "{key:?}");
            }
            assert_eq!(set.len(), known.len());
            let mut sorted: Vec<&[u8]> = known.iter().copied().collect();
            sorted.sort_unstable();
            let mut all: Vec<&[u8]> = set.iter().collect();
            all.sort_unstable();
            assert_eq!(all, sorted);
            for key in [&b""[..], b"a", b"aa", b"b", b"bb", b"abc", b"abcd", b"ab", b"x", &long] {
                assert_eq!(set.contains(key), known.contains(key), "{key:?}");
            }
        }
    }
}
