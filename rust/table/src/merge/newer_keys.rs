//! The keys of a group of sources, each with the newest source that holds it.
//!
//! Owns: one hash table over keys, built once and then only read, by any number of threads, and
//! the few bits a key before it that turn most other keys away. Whole keys are compared: two
//! keys of one hash never stand for each other.
//! Does not own: which sources there are, or what a reader does with the answer.
//!
//! Most rows of a scan have no newer row, and their keys are not here. The bits fit a
//! processor's own cache where the table does not, so such a row costs a hash and one word.

use std::hash::{BuildHasher, Hasher};

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use lancemem_core::format::key_view::{bytes_of, number_of};
use lancemem_core::format::{KeyForm, KeyView};
use lancemem_core::types::{Error, Freshness, KeyBlock, Result};

/// For every key of some sources the freshness of its newest row among them.
#[derive(Debug, Default)]
pub struct NewerKeys {
    hasher: RandomState,
    bits: KeyBits,
    table: Table,
    sources: Vec<Freshness>,
}

/// From a key to its place in the list of sources.
#[derive(Debug)]
enum Table {
    Numbers(HashTable<(u64, u32)>),
    /// The keys lie in the block, each at the place of its entry.
    Bytes {
        form: KeyForm,
        keys: KeyBlock,
        entries: HashTable<(u32, u32)>,
    },
}

impl Default for Table {
    fn default() -> Self {
        Self::with_capacity(KeyForm::Encoded, 0, 0)
    }
}

impl Table {
    fn with_capacity(form: KeyForm, keys: usize, bytes: usize) -> Self {
        match form {
            KeyForm::Number => Self::Numbers(HashTable::with_capacity(keys)),
            KeyForm::Bytes | KeyForm::Encoded => Self::Bytes {
                form,
                keys: KeyBlock::with_capacity(keys, bytes),
                entries: HashTable::with_capacity(keys),
            },
        }
    }
}

impl NewerKeys {
    /// No keys yet, with room for `keys` of `bytes` bytes together that are compared as `form`.
    pub fn with_capacity(form: KeyForm, keys: usize, bytes: usize) -> Self {
        Self {
            bits: KeyBits::with_capacity(keys),
            table: Table::with_capacity(form, keys, bytes),
            ..Self::default()
        }
    }

    /// Adds the keys of one source, encoded. Sources come in any order.
    ///
    /// # Errors
    /// An internal error beyond 2^32 keys, or for a null where a key is one column.
    pub fn add<'a>(
        &mut self,
        freshness: Freshness,
        mut keys: impl Iterator<Item = &'a [u8]>,
    ) -> Result<()> {
        let source = place(self.sources.len())?;
        self.sources.push(freshness);
        match &self.table {
            Table::Numbers(_) => {
                keys.try_for_each(|key| self.add_number(number_of(key).ok_or_else(null)?, source))
            }
            Table::Bytes { form: KeyForm::Bytes, .. } => {
                keys.try_for_each(|key| self.add_bytes(&bytes_of(key).ok_or_else(null)?, source))
            }
            Table::Bytes { .. } => keys.try_for_each(|key| self.add_bytes(key, source)),
        }
    }

    fn add_number(&mut self, number: u64, source: u32) -> Result<()> {
        let hash = self.hash_number(number);
        let Table::Numbers(table) = &mut self.table else { return Err(mixed()) };
        if let Some((_, known)) = table.find_mut(hash, |(other, _)| *other == number) {
            raise(&self.sources, known, source);
            return Ok(());
        }
        self.bits.add(hash);
        table.insert_unique(hash, (number, source), |(other, _)| self.hasher.hash_one(other));
        Ok(())
    }

    fn add_bytes(&mut self, key: &[u8], source: u32) -> Result<()> {
        let hash = self.hash_bytes(key);
        let Self { hasher, table: Table::Bytes { keys, entries, .. }, .. } = self else {
            return Err(mixed());
        };
        let is_key = |(other, _): &(u32, u32)| keys.get(*other as usize) == key;
        if let Some((_, known)) = entries.find_mut(hash, is_key) {
            raise(&self.sources, known, source);
            return Ok(());
        }
        let entry = (place(keys.len())?, source);
        keys.push_with(|out| out.extend_from_slice(key));
        let hash_of = |(other, _): &(u32, u32)| hash_bytes(hasher, keys.get(*other as usize));
        entries.insert_unique(hash, entry, hash_of);
        self.bits.add(hash);
        Ok(())
    }

    /// The newest source that holds the encoded key `key`.
    #[must_use]
    pub fn newest(&self, key: &[u8]) -> Option<Freshness> {
        let source = match &self.table {
            Table::Numbers(_) => self.find_number(number_of(key)?),
            Table::Bytes { form: KeyForm::Bytes, .. } => self.find_bytes(&bytes_of(key)?),
            Table::Bytes { .. } => self.find_bytes(key),
        };
        source.map(|source| self.sources[source as usize])
    }

    fn find_number(&self, number: u64) -> Option<u32> {
        let Table::Numbers(table) = &self.table else { return None };
        let found = table.find(self.hash_number(number), |(other, _)| *other == number);
        found.map(|(_, source)| *source)
    }

    fn find_bytes(&self, key: &[u8]) -> Option<u32> {
        let Table::Bytes { keys, entries, .. } = &self.table else { return None };
        let is_key = |(other, _): &(u32, u32)| keys.get(*other as usize) == key;
        entries.find(self.hash_bytes(key), is_key).map(|(_, source)| *source)
    }

    /// Visits each row of `keys` whose key is here, with the newest source that holds it.
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
            (KeyView::Numbers(numbers), Table::Numbers(table)) => {
                let hashes = numbers.iter().map(|number| self.hash_number(*number));
                for (row, hash) in self.bits.maybe(hashes) {
                    let entry = table.find(hash, |(other, _)| *other == numbers[row]);
                    found(row, entry.map(|(_, source)| *source));
                }
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
            // A batch with a null among its keys.
            (KeyView::Encoded(keys), _) => {
                for (row, key) in keys.iter().enumerate() {
                    if let Some(freshness) = self.newest(key) {
                        visit(row, freshness);
                    }
                }
            }
            (KeyView::Numbers(_) | KeyView::Short { .. } | KeyView::Long { .. }, _) => {
                unreachable!("the form of the keys is that of the table's key columns")
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
        for (row, hash) in self.bits.maybe(hashes) {
            let entry = entries.find(hash, |(other, _)| keys.get(*other as usize) == key(row));
            found(row, entry.map(|(_, source)| *source));
        }
    }

    /// Number of distinct keys.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.table {
            Table::Numbers(table) => table.len(),
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
            Table::Numbers(table) => table.allocation_size(),
            Table::Bytes { keys, entries, .. } => keys.heap_bytes() + entries.allocation_size(),
        };
        table + self.bits.heap_bytes()
    }

    fn hash_number(&self, number: u64) -> u64 {
        self.hasher.hash_one(number)
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

/// Keeps the newer one of two sources of a key.
fn raise(sources: &[Freshness], known: &mut u32, source: u32) {
    if sources[source as usize] > sources[*known as usize] {
        *known = source;
    }
}

fn place(index: usize) -> Result<u32> {
    u32::try_from(index)
        .map_err(|_| Error::input("more than 4 billion keys lie above the base; compact the table"))
}

fn null() -> Error {
    Error::Internal("a row above the base table has null for its key".to_owned())
}

fn mixed() -> Error {
    Error::Internal("keys of two forms met in one table".to_owned())
}

/// A Bloom filter whose bits of one key lie in one word.
#[derive(Debug)]
struct KeyBits {
    words: Vec<u64>,
    /// What is left of a hash after this shift is the place of its word.
    shift: u32,
}

/// A word for four keys: of the keys that are not there it lets one in a hundred through.
const KEYS_A_WORD: usize = 4;

impl Default for KeyBits {
    fn default() -> Self {
        Self::with_capacity(0)
    }
}

impl KeyBits {
    fn with_capacity(keys: usize) -> Self {
        let words = (keys / KEYS_A_WORD).next_power_of_two().max(2);
        Self { words: vec![0; words], shift: u64::BITS - words.trailing_zeros() }
    }

    fn add(&mut self, hash: u64) {
        let word = self.place(hash);
        self.words[word] |= bits_of(hash);
    }

    fn may_hold(&self, hash: u64) -> bool {
        let bits = bits_of(hash);
        self.words[self.place(hash)] & bits == bits
    }

    /// The rows, counted from 0, whose hashes it may hold, with the hash. All hashes are tested
    /// first: the look-ups that follow are then independent of each other, and the processor
    /// waits for the memory of several at once.
    fn maybe(
        &self,
        hashes: impl ExactSizeIterator<Item = u64>,
    ) -> impl Iterator<Item = (usize, u64)> {
        let mut rows = vec![(0, 0); hashes.len()];
        let mut count = 0;
        for (row, hash) in hashes.enumerate() {
            // No branch: which rows are held follows no pattern.
            rows[count] = (row, hash);
            count += usize::from(self.may_hold(hash));
        }
        rows.truncate(count);
        rows.into_iter()
    }

    #[expect(clippy::cast_possible_truncation, reason = "the shift leaves a place in `words`")]
    const fn place(&self, hash: u64) -> usize {
        (hash >> self.shift) as usize
    }

    const fn heap_bytes(&self) -> usize {
        self.words.capacity() * size_of::<u64>()
    }
}

/// Three bits out of the low end of a hash; its high end chooses the word.
const fn bits_of(hash: u64) -> u64 {
    (1 << (hash & 63)) | (1 << ((hash >> 6) & 63)) | (1 << ((hash >> 12) & 63))
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

    /// Keys of each form: a number, a text, both.
    fn batches(numbers: impl Iterator<Item = i64> + Clone) -> Vec<RecordBatch> {
        let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(numbers.clone()));
        let texts = numbers.map(|number| format!("{number}\0{}", number % 7));
        let texts: ArrayRef = Arc::new(StringArray::from_iter_values(texts));
        let batch = |columns: Vec<(&str, ArrayRef)>| RecordBatch::try_from_iter(columns).unwrap();
        vec![
            batch(vec![("id", ids.clone())]),
            batch(vec![("text", texts.clone())]),
            batch(vec![("id", ids), ("text", texts)]),
        ]
    }

    fn found(table: &NewerKeys, batch: &RecordBatch) -> Vec<(usize, Freshness)> {
        let (encoder, _) = keys_of(batch);
        let mut found = Vec::new();
        table.visit_found(&encoder.view(batch), |row, freshness| found.push((row, freshness)));
        found
    }

    #[test]
    fn the_newest_source_of_a_key_wins_whatever_the_order_in_which_sources_come() {
        let older = Freshness::SsTable(Generation(1));
        let newer = Freshness::SsTable(Generation(2));
        for (both, one) in batches(0..1).iter().zip(&batches(1..2)) {
            let (encoder, form) = keys_of(both);
            let (both_key, one_key) = (encoder.encode_block(both), encoder.encode_block(one));
            for order in [[older, newer], [newer, older]] {
                let mut table = NewerKeys::with_capacity(form, 0, 0);
                for freshness in order {
                    table.add(freshness, both_key.iter()).unwrap();
                }
                table.add(older, one_key.iter()).unwrap();
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
            let mut table = NewerKeys::with_capacity(form, 10, 80);
            let keys = encoder.encode_block(held);
            table.add(source, keys.iter()).unwrap();
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
    fn a_null_of_a_foreign_table_is_nobodys_key() {
        let [held, _, _] = <[RecordBatch; 3]>::try_from(batches(0..10)).unwrap();
        let (encoder, form) = keys_of(&held);
        let source = Freshness::SsTable(Generation(1));
        let mut table = NewerKeys::with_capacity(form, 10, 90);
        table.add(source, encoder.encode_block(&held).iter()).unwrap();
        let ids: ArrayRef = Arc::new(Int64Array::from(vec![None, Some(4), Some(99)]));
        let asked = RecordBatch::try_from_iter([("id", ids)]).unwrap();
        assert_eq!(found(&table, &asked), [(1, source)]);
        assert!(table.add(source, [[0_u8].as_slice()].into_iter()).is_err());
    }

    #[test]
    fn most_keys_that_are_not_there_are_turned_away_by_the_bits() {
        let mut table = NewerKeys::with_capacity(KeyForm::Number, 20_000, 0);
        for number in 0..20_000 {
            table.add_number(number, 0).unwrap();
        }
        let let_through =
            (20_000..120_000).filter(|it| table.bits.may_hold(table.hash_number(*it))).count();
        assert!(let_through < 5_000, "{let_through} of 100,000");
    }
}
