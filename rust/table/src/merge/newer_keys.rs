//! The keys of a group of sources, each with the newest source that holds it.
//!
//! Owns: one hash table over encoded keys, built once and then only read, by any number of
//! threads. Whole keys are compared: two keys of one hash never stand for each other.
//! Does not own: which sources there are, or what a reader does with the answer.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use lancemem_core::types::{Error, Freshness, KeyBlock, Result};

/// Where a key is, and who holds its newest row.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Place of the key in the block.
    key: u32,
    /// Place in the list of sources.
    source: u32,
}

/// For every key of some sources the freshness of its newest row among them.
#[derive(Debug, Default)]
pub struct NewerKeys {
    hasher: RandomState,
    keys: KeyBlock,
    entries: HashTable<Entry>,
    sources: Vec<Freshness>,
}

impl NewerKeys {
    /// No keys yet, with room for `keys` of `bytes` bytes together.
    pub fn with_capacity(keys: usize, bytes: usize) -> Self {
        Self {
            keys: KeyBlock::with_capacity(keys, bytes),
            entries: HashTable::with_capacity(keys),
            ..Self::default()
        }
    }

    /// Adds the keys of one source. Sources come in any order.
    ///
    /// # Errors
    /// An internal error beyond 2^32 keys.
    pub fn add<'a>(
        &mut self,
        freshness: Freshness,
        mut keys: impl Iterator<Item = &'a [u8]>,
    ) -> Result<()> {
        let source = number(self.sources.len())?;
        self.sources.push(freshness);
        keys.try_for_each(|key| self.add_key(key, source))
    }

    fn add_key(&mut self, key: &[u8], source: u32) -> Result<()> {
        let Self { hasher, keys, entries, sources } = self;
        let hash = hasher.hash_one(key);
        let found = entries.find_mut(hash, |entry| keys.get(entry.key as usize) == key);
        if let Some(entry) = found {
            if sources[source as usize] > sources[entry.source as usize] {
                entry.source = source;
            }
            return Ok(());
        }
        let entry = Entry { key: number(keys.len())?, source };
        keys.push_with(|out| out.extend_from_slice(key));
        entries.insert_unique(hash, entry, |entry| hasher.hash_one(keys.get(entry.key as usize)));
        Ok(())
    }

    /// The newest source that holds `key`.
    #[must_use]
    pub fn newest(&self, key: &[u8]) -> Option<Freshness> {
        if self.entries.is_empty() {
            return None;
        }
        let hash = self.hasher.hash_one(key);
        let entry = self.entries.find(hash, |entry| self.keys.get(entry.key as usize) == key)?;
        Some(self.sources[entry.source as usize])
    }

    /// The newest source of each of `keys`.
    #[must_use]
    pub fn newest_of(&self, keys: &KeyBlock) -> NewestOf<'_> {
        if self.entries.is_empty() {
            return NewestOf { sources: &self.sources, found: Vec::new() };
        }
        // All hashes first: the look-ups are then independent of each other, and the processor
        // waits for the memory of several at once.
        let hashes: Vec<u64> = keys.iter().map(|key| self.hasher.hash_one(key)).collect();
        let find = |(row, hash): (usize, &u64)| {
            let key = keys.get(row);
            let entry = self.entries.find(*hash, |entry| self.keys.get(entry.key as usize) == key);
            entry.map_or(ABSENT, |entry| entry.source)
        };
        NewestOf { sources: &self.sources, found: hashes.iter().enumerate().map(find).collect() }
    }

    /// Number of distinct keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes that the table holds on the heap.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.keys.heap_bytes() + self.entries.allocation_size()
    }
}

/// No source holds the key.
const ABSENT: u32 = u32::MAX;

/// The newest sources of the keys of one block.
pub struct NewestOf<'a> {
    sources: &'a [Freshness],
    /// Places in the list of sources; empty where no key has one.
    found: Vec<u32>,
}

impl NewestOf<'_> {
    /// The newest source of the key at `row`.
    #[must_use]
    pub fn get(&self, row: usize) -> Option<Freshness> {
        let source = self.found.get(row).copied().unwrap_or(ABSENT);
        (source != ABSENT).then(|| self.sources[source as usize])
    }
}

fn number(index: usize) -> Result<u32> {
    u32::try_from(index)
        .map_err(|_| Error::input("more than 4 billion keys lie above the base; compact the table"))
}

#[cfg(test)]
mod tests {
    use lancemem_core::types::Generation;

    use super::*;

    #[test]
    fn the_newest_source_of_a_key_wins_whatever_the_order_in_which_sources_come() {
        let older = Freshness::SsTable(Generation(1));
        let newer = Freshness::SsTable(Generation(2));
        for order in [[older, newer], [newer, older]] {
            let mut table = NewerKeys::with_capacity(0, 0);
            for freshness in order {
                table.add(freshness, [b"both".as_slice()].into_iter()).unwrap();
            }
            table.add(older, [b"one".as_slice()].into_iter()).unwrap();
            assert_eq!(table.newest(b"both"), Some(newer));
            assert_eq!(table.newest(b"one"), Some(older));
            assert_eq!(table.newest(b"none"), None);
            assert_eq!(table.len(), 2);
        }
    }

    #[test]
    fn many_keys_are_all_found_again() {
        let keys: Vec<[u8; 8]> = (0..50_000_u64).map(u64::to_be_bytes).collect();
        let mut table = NewerKeys::with_capacity(10, 80);
        let source = Freshness::MemTable(Generation(3));
        table.add(source, keys.iter().map(<[u8; 8]>::as_slice)).unwrap();
        assert!(keys.iter().all(|key| table.newest(key) == Some(source)));
        let mut block = KeyBlock::with_capacity(2, 16);
        for key in [7, 50_000] {
            block.push_with(|out| out.extend_from_slice(&u64::to_be_bytes(key)));
        }
        let found = table.newest_of(&block);
        assert_eq!((found.get(0), found.get(1)), (Some(source), None));
        assert_eq!(NewerKeys::default().newest_of(&block).get(0), None);
        assert_eq!(table.newest(&50_000_u64.to_be_bytes()), None);
    }
}
