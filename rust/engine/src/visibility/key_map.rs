//! The keys of a group of sources, each with the newest source that holds it.
//!
//! Owns: the key map, built once and then read by any number of threads, and the choice of its
//! form.
//! Does not own: which sources there are, or what a reader does with the answer.
//!
//! Integers close together are bits (`bitmap_keys`), integers far apart lie in buckets
//! (`bucketed_keys`). Other keys are in a hash table behind a Bloom filter (`key_filter`). Whole
//! keys are compared, so two keys with equal hashes are never mistaken for each other. Most rows of
//! a scan have no newer row: the map is built to answer "absent" fast.

use std::hash::{BuildHasher, Hasher};

use arrow_buffer::{BooleanBuffer, BooleanBufferBuilder};
use foldhash::fast::RandomState;
use hashbrown::HashTable;
use lancemem_core::format::key_view::{bytes_of, number_of};
use lancemem_core::format::{KeyForm, KeyView};
use lancemem_core::types::{Error, Freshness, KeyBlock, Result};
use roaring::RoaringBitmap;

use super::bitmap_keys::DenseNumbers;
use super::bucketed_keys::FarNumbers;
use super::key_filter::{KeyBits, maybe};

/// Bytes a key that are reserved at first: the encoded size of an int64.
const USUAL_KEY_BYTES: usize = 9;

/// The encoded keys of one source.
#[derive(Debug)]
pub struct SourceKeys<K> {
    /// The freshness of its rows.
    pub freshness: Freshness,
    /// An upper bound on the number of keys, used to reserve memory.
    pub at_most: usize,
    /// The keys, in any order.
    pub keys: K,
}

/// For every key of some sources, the freshness of its newest row in these sources.
#[derive(Debug, Default)]
pub struct NewerKeys {
    hasher: RandomState,
    bits: KeyBits,
    table: Table,
    /// In ascending order, the newest source last.
    sources: Vec<Freshness>,
}

/// From a key to the index of its newest source in the list of sources.
#[derive(Debug)]
enum Table {
    Dense(DenseNumbers),
    Far(FarNumbers),
    /// An entry is the position of its key in `keys`, and the source. A hash table has free
    /// entries, so small entries save memory.
    Bytes {
        form: KeyForm,
        keys: KeyBlock,
        entries: HashTable<(u32, u32)>,
    },
}

impl Default for Table {
    fn default() -> Self {
        Self::bytes(KeyForm::Encoded, 0)
    }
}

impl Table {
    fn bytes(form: KeyForm, keys: usize) -> Self {
        Self::Bytes {
            form,
            keys: KeyBlock::with_capacity(keys, keys * USUAL_KEY_BYTES),
            entries: HashTable::with_capacity(keys),
        }
    }
}

impl NewerKeys {
    /// The keys of `sources`, in any order, which are compared as `form`.
    ///
    /// # Errors
    /// An internal error beyond 2^32 keys, or for a null where a key is one column.
    pub fn of<'a, K>(form: KeyForm, sources: Vec<SourceKeys<K>>) -> Result<Self>
    where
        K: Iterator<Item = &'a [u8]>,
    {
        Ok(Self::and_superseded(form, sources)?.0)
    }

    /// As [`Self::of`], with the positions of the keys of each source that a newer source has. The
    /// build finds these positions at no cost; afterwards each would cost a look-up.
    ///
    /// # Errors
    /// As [`Self::of`].
    pub fn and_superseded<'a, K>(
        form: KeyForm,
        sources: Vec<SourceKeys<K>>,
    ) -> Result<(Self, Vec<RoaringBitmap>)>
    where
        K: Iterator<Item = &'a [u8]>,
    {
        let mut sources: Vec<_> = sources.into_iter().enumerate().collect();
        sources.sort_by_key(|(_, source)| source.freshness);
        let (given, sources): (Vec<usize>, Vec<_>) = sources.into_iter().unzip();
        let freshness = sources.iter().map(|source| source.freshness).collect();
        let mut newer = Self { sources: freshness, ..Self::default() };
        let superseded = match form {
            KeyForm::Number => newer.add_all_numbers(sources)?,
            KeyForm::Bytes | KeyForm::Encoded => newer.add_all_bytes(form, sources)?,
        };
        let mut as_given = vec![RoaringBitmap::new(); given.len()];
        given.into_iter().zip(superseded).for_each(|(at, places)| as_given[at] = places);
        Ok((newer, as_given))
    }

    fn add_all_numbers<'a, K>(&mut self, sources: Vec<SourceKeys<K>>) -> Result<Vec<RoaringBitmap>>
    where
        K: Iterator<Item = &'a [u8]>,
    {
        let mut numbers = Vec::with_capacity(sources.len());
        for SourceKeys { at_most, mut keys, .. } in sources {
            let mut of_source = Vec::with_capacity(at_most);
            // `try_for_each` rather than a `for` loop: a flattened iterator runs its inner loops.
            keys.try_for_each(|key| {
                of_source.push(number_of(key).ok_or_else(null)?);
                Ok::<_, Error>(())
            })?;
            numbers.push(of_source);
        }
        if let Some((dense, superseded)) = DenseNumbers::of(&numbers) {
            self.table = Table::Dense(dense);
            return Ok(superseded);
        }
        let (far, superseded) = FarNumbers::of(&numbers);
        self.table = Table::Far(far);
        Ok(superseded)
    }

    fn add_all_bytes<'a, K>(
        &mut self,
        form: KeyForm,
        sources: Vec<SourceKeys<K>>,
    ) -> Result<Vec<RoaringBitmap>>
    where
        K: Iterator<Item = &'a [u8]>,
    {
        let count = sources.iter().map(|source| source.at_most).sum();
        self.bits = KeyBits::with_capacity(count);
        self.table = Table::bytes(form, count);
        let mut superseded = vec![RoaringBitmap::new(); sources.len()];
        // The newest source comes first, so a key keeps the first source that adds it.
        for (at, SourceKeys { keys, .. }) in sources.into_iter().enumerate().rev() {
            let source = place(at)?;
            for (row, key) in keys.enumerate() {
                let newest = match form {
                    KeyForm::Bytes => self.add_bytes(&bytes_of(key).ok_or_else(null)?, source)?,
                    KeyForm::Number | KeyForm::Encoded => self.add_bytes(key, source)?,
                };
                if newest != source {
                    superseded[at].insert(place(row)?);
                }
            }
        }
        Ok(superseded)
    }

    /// Adds a key of a source, unless a newer source has added it; returns the key's source.
    fn add_bytes(&mut self, key: &[u8], source: u32) -> Result<u32> {
        let hash = self.hash_bytes(key);
        let Self { hasher, table: Table::Bytes { keys, entries, .. }, .. } = self else {
            let found = "expected a key map of byte keys, found a key map of numbers";
            return Err(Error::internal(found));
        };
        let is_key = |(other, _): &(u32, u32)| keys.get(*other as usize) == key;
        if let Some((_, newest)) = entries.find(hash, is_key) {
            return Ok(*newest);
        }
        let entry = (place(keys.len())?, source);
        keys.push_with(|out| out.extend_from_slice(key));
        let hash_of = |(other, _): &(u32, u32)| hash_bytes(hasher, keys.get(*other as usize));
        entries.insert_unique(hash, entry, hash_of);
        self.bits.add(hash);
        Ok(source)
    }

    /// The newest source that holds the encoded key `key`.
    #[must_use]
    pub fn newest(&self, key: &[u8]) -> Option<Freshness> {
        let source = match &self.table {
            Table::Dense(_) | Table::Far(_) => self.find_number(number_of(key)?),
            Table::Bytes { form: KeyForm::Bytes, .. } => self.find_bytes(&bytes_of(key)?),
            Table::Bytes { .. } => self.find_bytes(key),
        };
        source.map(|source| self.sources[source as usize])
    }

    fn find_number(&self, number: u64) -> Option<u32> {
        match &self.table {
            Table::Dense(dense) => dense.find(number),
            Table::Far(far) => far.find(number),
            Table::Bytes { .. } => None,
        }
    }

    fn find_bytes(&self, key: &[u8]) -> Option<u32> {
        let Table::Bytes { keys, entries, .. } = &self.table else { return None };
        let is_key = |(other, _): &(u32, u32)| keys.get(*other as usize) == key;
        entries.find(self.hash_bytes(key), is_key).map(|(_, source)| *source)
    }

    /// For each of `keys` whether the map lacks it.
    #[must_use]
    pub fn absent(&self, keys: &KeyView<'_>) -> BooleanBuffer {
        !&self.held(keys)
    }

    /// For each of `keys` whether the map contains it.
    #[must_use]
    pub fn held(&self, keys: &KeyView<'_>) -> BooleanBuffer {
        match (keys, &self.table) {
            (KeyView::Numbers(numbers), Table::Dense(dense)) => return dense.held(numbers),
            (KeyView::Numbers(numbers), Table::Far(far)) => return far.held(numbers),
            _ => {}
        }
        let mut held = BooleanBufferBuilder::new(keys.len());
        held.append_n(keys.len(), false);
        self.visit_found(keys, |row, _| held.set_bit(row, true));
        held.finish()
    }

    /// Visits each row of `keys` whose key is in the map, with the newest source that has it.
    pub fn visit_found(&self, keys: &KeyView<'_>, mut visit: impl FnMut(usize, Freshness)) {
        if self.is_empty() {
            return;
        }
        let mut found = |row: usize, source: Option<u32>| {
            if let Some(source) = source {
                visit(row, self.sources[source as usize]);
            }
        };
        let index = |offset: i64| usize::try_from(offset).unwrap_or_default();
        match (keys, &self.table) {
            (KeyView::Numbers(numbers), Table::Dense(dense)) => {
                for row in dense.held(numbers).set_indices() {
                    found(row, dense.find(numbers[row]));
                }
            }
            (KeyView::Numbers(numbers), Table::Far(far)) => {
                far.visit_found(numbers, |row, source| found(row, Some(source)));
            }
            (KeyView::Short { bytes, offsets }, Table::Bytes { form: KeyForm::Bytes, .. }) => self
                .visit_bytes(
                    keys.len(),
                    |row| &bytes[index(offsets[row].into())..index(offsets[row + 1].into())],
                    found,
                ),
            (KeyView::Long { bytes, offsets }, Table::Bytes { form: KeyForm::Bytes, .. }) => self
                .visit_bytes(
                    keys.len(),
                    |row| &bytes[index(offsets[row])..index(offsets[row + 1])],
                    found,
                ),
            (KeyView::Encoded(keys), Table::Bytes { form: KeyForm::Encoded, .. }) => {
                self.visit_bytes(keys.len(), |row| keys.get(row), found);
            }
            // A batch with a null in its key column is encoded, whatever the form of the map.
            (KeyView::Encoded(keys), _) => {
                for (row, key) in keys.iter().enumerate() {
                    if let Some(freshness) = self.newest(key) {
                        visit(row, freshness);
                    }
                }
            }
            (KeyView::Numbers(_) | KeyView::Short { .. } | KeyView::Long { .. }, _) => {
                unreachable!("a key view and a key map of one table have the same key form")
            }
        }
    }

    fn visit_bytes<'a>(
        &self,
        rows: usize,
        key: impl Fn(usize) -> &'a [u8],
        mut found: impl FnMut(usize, Option<u32>),
    ) {
        let Table::Bytes { keys, entries, .. } = &self.table else { return };
        let hashes = (0..rows).map(|row| self.hash_bytes(key(row)));
        for (row, hash) in maybe(hashes, |hash| self.bits.may_hold(hash)) {
            let entry = entries.find(hash, |(other, _)| keys.get(*other as usize) == key(row));
            found(row, entry.map(|(_, source)| *source));
        }
    }

    /// Number of distinct keys.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.table {
            Table::Dense(dense) => dense.len(),
            Table::Far(far) => far.len(),
            Table::Bytes { entries, .. } => entries.len(),
        }
    }

    /// Whether there is no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that the keys hold on the heap.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        let table = match &self.table {
            Table::Dense(dense) => dense.heap_bytes(),
            Table::Far(far) => far.heap_bytes(),
            Table::Bytes { keys, entries, .. } => keys.heap_bytes() + entries.allocation_size(),
        };
        table + self.bits.heap_bytes()
    }

    fn hash_bytes(&self, key: &[u8]) -> u64 {
        hash_bytes(&self.hasher, key)
    }
}

fn hash_bytes(hasher: &RandomState, key: &[u8]) -> u64 {
    let mut hasher = hasher.build_hasher();
    hasher.write(key);
    hasher.finish()
}

fn place(index: usize) -> Result<u32> {
    u32::try_from(index).map_err(|_| {
        Error::input("the rows above a base table are limited to 2^32 keys; compact the table")
    })
}

fn null() -> Error {
    Error::internal("a row above the base table has a null in its primary key")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
    use lancemem_core::format::KeyEncoder;
    use lancemem_core::types::Generation;

    use super::*;

    fn keys_of(batch: &RecordBatch) -> (KeyEncoder, KeyForm) {
        let names: Vec<String> =
            batch.schema_ref().fields().iter().map(|field| field.name().clone()).collect();
        let encoder = KeyEncoder::new(batch.schema_ref(), &names).unwrap();
        (encoder, KeyForm::of(batch.schema_ref(), &names))
    }

    /// Keys of each form: close numbers, numbers far apart, a text, a number with a text.
    fn batches(numbers: impl Iterator<Item = i64> + Clone) -> [RecordBatch; 4] {
        let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(numbers.clone()));
        let far = numbers.clone().map(|number| number.wrapping_mul(0x1234_5678_9abc_def1));
        let far: ArrayRef = Arc::new(Int64Array::from_iter_values(far));
        let texts = numbers.map(|number| format!("{number}\0{}", number % 7));
        let texts: ArrayRef = Arc::new(StringArray::from_iter_values(texts));
        let batch = |columns: Vec<(&str, ArrayRef)>| RecordBatch::try_from_iter(columns).unwrap();
        [
            batch(vec![("id", ids.clone())]),
            batch(vec![("id", far)]),
            batch(vec![("text", texts.clone())]),
            batch(vec![("id", ids), ("text", texts)]),
        ]
    }

    fn newer_keys<'a>(form: KeyForm, sources: &[(Freshness, &'a KeyBlock)]) -> Result<NewerKeys> {
        let keys_of = |(freshness, keys): &(Freshness, &'a KeyBlock)| SourceKeys {
            freshness: *freshness,
            at_most: 0,
            keys: keys.iter(),
        };
        let all = sources.iter().map(keys_of).collect();
        let (newer, superseded) = NewerKeys::and_superseded(form, all)?;
        for ((freshness, keys), superseded) in sources.iter().zip(superseded) {
            let is_older = |key: &[u8]| newer.newest(key) != Some(*freshness);
            let older = (0..).zip(keys.iter()).filter(|(_, key)| is_older(key));
            assert_eq!(superseded, older.map(|(place, _)| place).collect());
        }
        Ok(newer)
    }

    fn found(table: &NewerKeys, batch: &RecordBatch) -> Vec<(usize, Freshness)> {
        let (encoder, _) = keys_of(batch);
        let mut found = Vec::new();
        let keys = encoder.view(batch);
        table.visit_found(&keys, |row, freshness| found.push((row, freshness)));
        let rows = found.iter().map(|(row, _)| *row);
        assert!((!&table.absent(&keys)).set_indices().eq(rows));
        found
    }

    #[test]
    fn the_newest_source_of_a_key_wins_whatever_the_order_in_which_sources_come() {
        let older = Freshness::SsTable(Generation(1));
        let newer = Freshness::SsTable(Generation(2));
        for (both, one) in batches(0..1).iter().zip(&batches(1..2)) {
            let (encoder, form) = keys_of(both);
            let (both_key, one_key) = (encoder.encode_block(both), encoder.encode_block(one));
            for [first, second] in [[older, newer], [newer, older]] {
                let sources = [(first, &both_key), (second, &both_key), (older, &one_key)];
                let table = newer_keys(form, &sources).unwrap();
                assert_eq!(table.newest(both_key.get(0)), Some(newer));
                assert_eq!(table.newest(one_key.get(0)), Some(older));
                assert_eq!(found(&table, both), [(0, newer)]);
                assert_eq!(found(&table, one), [(0, older)]);
                assert_eq!(table.len(), 2);
            }
        }
    }

    #[test]
    fn many_keys_are_all_found_again_and_no_others_are() {
        let source = Freshness::MemTable(Generation(3));
        let held = batches((0..50_000).map(|number| number * 3 - 70_000));
        let asked = batches(-1_000..1_000);
        for (held, asked) in held.iter().zip(&asked) {
            let (encoder, form) = keys_of(held);
            let keys = encoder.encode_block(held);
            let table = newer_keys(form, &[(source, &keys)]).unwrap();
            assert_eq!(table.len(), 50_000);
            assert!(keys.iter().all(|key| table.newest(key) == Some(source)));
            let expected: Vec<(usize, Freshness)> = (-1_000_i64..1_000)
                .enumerate()
                .filter(|(_, number)| (number + 70_000) % 3 == 0)
                .map(|(row, _)| (row, source))
                .collect();
            assert_eq!(found(&table, asked), expected);
            assert_eq!(found(&NewerKeys::default(), asked), []);
        }
    }

    #[test]
    fn a_null_in_a_key_column_of_a_foreign_table_matches_no_key() {
        let [held, _, _, _] = batches(0..10);
        let (encoder, form) = keys_of(&held);
        let source = Freshness::SsTable(Generation(1));
        let table = newer_keys(form, &[(source, &encoder.encode_block(&held))]).unwrap();
        let ids: ArrayRef = Arc::new(Int64Array::from(vec![None, Some(4), Some(99)]));
        let asked = RecordBatch::try_from_iter([("id", ids)]).unwrap();
        assert_eq!(found(&table, &asked), [(1, source)]);
        assert!(newer_keys(form, &[(source, &KeyBlock::fixed(1, vec![0]))]).is_err());
    }

    #[test]
    fn numbers_are_bits_where_they_lie_close_together_and_hashed_where_not() {
        let [near, far, _, _] = batches(0..1_000);
        let source = Freshness::SsTable(Generation(1));
        let of = |batch| {
            let (encoder, form) = keys_of(batch);
            newer_keys(form, &[(source, &encoder.encode_block(batch))]).unwrap()
        };
        assert!(matches!(of(&near).table, Table::Dense(_)));
        assert!(matches!(of(&far).table, Table::Far(_)));
        assert!(of(&near).heap_bytes() < of(&far).heap_bytes() / 10);
    }
}
