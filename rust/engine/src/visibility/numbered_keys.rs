//! The keys above the base table of a snapshot, numbered.
//!
//! A merge rule compares or combines all rows of a key, wherever they lie. Each key gets a number, and
//! each row of a source the number of its key.
//!
//! Owns: the keys of each source, and the numbers. Integers close together are numbered by their rank
//! (`bitmap_keys`), other keys by a hash table, in order of arrival.
//! Does not own: the rows of the base table (`numbered_rows`), or what is done with the rows of a key
//! (`chosen_rows`, `merged`).

use std::sync::Arc;

use arrow::compute::filter_record_batch;
use arrow_array::{BooleanArray, RecordBatch};
use foldhash::fast::RandomState;
use hashbrown::HashTable;
use lancemem_core::format::key_view::number_of;
use lancemem_core::format::{KeyEncoder, KeyForm, KeyView};
use lancemem_core::types::{Error, Freshness, Generation, KeyBlock, Result};

use super::bitmap_keys::DenseNumbers;
use super::{NewerKeys, SourceKeys};
use crate::errors::Context;
use crate::schema::StoredColumns;
use crate::snapshot::{MemTableView, Snapshot, SsTableKeys};

/// The keys of one source above the base table, one for each of its rows.
#[derive(Debug)]
pub enum KeysAbove {
    /// Of an SSTable, without its hidden rows.
    SsTable(Arc<SsTableKeys>),
    /// A MemTable's rows are compared with each other here too, so a key may come several times.
    MemTable(KeyBlock),
}

impl KeysAbove {
    /// The keys of all rows of a MemTable, in the order of its rows.
    ///
    /// # Errors
    /// An internal error for rows without a key column.
    pub fn of_memtable(snapshot: &Snapshot, rows: &MemTableView) -> Result<Self> {
        let stored = StoredColumns::of(rows.schema(), &snapshot.columns, &snapshot.key)?;
        let mut keys = KeyBlock::default();
        for batch in rows.batches() {
            let batch = stored.bring(batch)?;
            keys.append(&KeyEncoder::new(batch.schema_ref(), &snapshot.key)?.encode_block(&batch));
        }
        Ok(Self::MemTable(keys))
    }

    /// The keys, in the order of their rows.
    pub fn keys(&self) -> Box<dyn Iterator<Item = &[u8]> + '_> {
        match self {
            Self::SsTable(keys) => Box::new(keys.keys()),
            Self::MemTable(keys) => Box::new(keys.iter()),
        }
    }

    /// The key at `place`, in the order of [`Self::keys`].
    ///
    /// # Panics
    /// Where there is no such place.
    #[must_use]
    pub fn key(&self, place: usize) -> &[u8] {
        match self {
            Self::SsTable(keys) => keys.key(place),
            Self::MemTable(keys) => keys.get(place),
        }
    }

    /// Number of keys.
    #[must_use]
    pub fn count(&self) -> usize {
        match self {
            Self::SsTable(keys) => keys.len(),
            Self::MemTable(keys) => keys.len(),
        }
    }

    /// The position in the source of the key at `place`.
    ///
    /// # Errors
    /// An internal error for a MemTable of 2^32 rows.
    pub fn position(&self, place: usize) -> Result<u32> {
        match self {
            Self::SsTable(keys) => Ok(keys.position_of(place)),
            Self::MemTable(_) => u32::try_from(place)
                .map_err(|_| Error::internal(format!("row {place} of a MemTable"))),
        }
    }
}

/// All keys above the base table, numbered.
#[derive(Debug)]
pub struct NumberedKeys {
    above: Vec<KeysAbove>,
    /// For each source the number of the key of each of its rows.
    ordinals: Vec<Vec<u32>>,
    numbers: Numbers,
}

/// From a key to its number.
#[derive(Debug)]
enum Numbers {
    /// Integers close together: the number of a key is its rank.
    Ranks(DenseNumbers),
    Table(NumberTable),
}

/// The numbers of keys that are bytes, or integers far apart.
#[derive(Debug, Default)]
struct NumberTable {
    /// By the hash of the key, its number with source and place of one row that has the key.
    entries: HashTable<(u32, u32, u32)>,
    hasher: RandomState,
    /// The same keys, for a fast test whether a row of the base table has one of them.
    held: NewerKeys,
}

impl NumberedKeys {
    /// The keys of these sources, oldest first.
    ///
    /// # Errors
    /// An internal error for more than 2^32 keys.
    pub fn of(form: KeyForm, above: Vec<KeysAbove>) -> Result<Self> {
        if form == KeyForm::Number
            && let Some((ranks, ordinals)) = ranked(&above)
        {
            return Ok(Self { above, ordinals, numbers: Numbers::Ranks(ranks) });
        }
        let (table, ordinals) = NumberTable::of(form, &above)?;
        Ok(Self { above, ordinals, numbers: Numbers::Table(table) })
    }

    /// The sources.
    #[must_use]
    pub fn above(&self) -> &[KeysAbove] {
        &self.above
    }

    /// For each source the number of the key of each of its rows.
    #[must_use]
    pub fn ordinals(&self) -> &[Vec<u32>] {
        &self.ordinals
    }

    /// How many keys there are.
    #[must_use]
    pub fn count(&self) -> usize {
        match &self.numbers {
            Numbers::Ranks(ranks) => ranks.len(),
            Numbers::Table(table) => table.entries.len(),
        }
    }

    /// Each key once, with its number.
    pub fn each(&self) -> impl Iterator<Item = (u32, &[u8])> {
        let mut seen = vec![false; self.count()];
        let all = self.above.iter().zip(&self.ordinals).flat_map(|(keys, numbers)| {
            let numbers = numbers.iter().enumerate();
            numbers.map(move |(place, number)| (*number, keys.key(place)))
        });
        all.filter(move |(number, _)| !std::mem::replace(&mut seen[*number as usize], true))
    }

    /// The key at `place` of the source `source`.
    ///
    /// # Panics
    /// Where there is no such place.
    #[must_use]
    pub fn key(&self, source: usize, place: usize) -> &[u8] {
        self.above[source].key(place)
    }

    /// The rows of `batch` whose keys are numbered, ascending, with their numbers. `encoder` encodes
    /// keys of the batch.
    ///
    /// # Errors
    /// An internal error for a batch of 2^32 rows.
    pub fn find(&self, encoder: &KeyEncoder, batch: &RecordBatch) -> Result<Vec<(u32, u32)>> {
        let mut found = Vec::new();
        let table = match (&self.numbers, encoder.view(batch)) {
            (Numbers::Ranks(ranks), KeyView::Numbers(numbers)) => {
                for (row, number) in numbers.iter().enumerate() {
                    if let Some(rank) = ranks.rank(*number) {
                        found.push((as_u32(row)?, as_u32(rank)?));
                    }
                }
                return Ok(found);
            }
            // A batch with a null in its key column is encoded.
            (Numbers::Ranks(ranks), _) => {
                for (row, key) in encoder.encode_block(batch).iter().enumerate() {
                    if let Some(rank) = number_of(key).and_then(|number| ranks.rank(number)) {
                        found.push((as_u32(row)?, as_u32(rank)?));
                    }
                }
                return Ok(found);
            }
            (Numbers::Table(table), _) => table,
        };
        let held = table.held.held(&encoder.view(batch));
        let rows = filter_record_batch(batch, &BooleanArray::new(held.clone(), None));
        let keys = encoder.encode_block(&rows.context("comparing keys")?);
        for (row, key) in held.set_indices().zip(keys.iter()) {
            let number = table.number(&self.above, key);
            let number = number.ok_or_else(|| Error::internal("a key has no number"))?;
            found.push((as_u32(row)?, number));
        }
        Ok(found)
    }
}

/// The numbers of integer keys that lie close together, and those of each row.
fn ranked(above: &[KeysAbove]) -> Option<(DenseNumbers, Vec<Vec<u32>>)> {
    let numbers = above.iter().map(|source| source.keys().map(number_of).collect());
    let numbers: Vec<Vec<u64>> = numbers.collect::<Option<_>>()?;
    let ranks = DenseNumbers::set_of(&numbers)?;
    let rank = |number: &u64| u32::try_from(ranks.rank(*number)?).ok();
    let ordinals = numbers.iter().map(|of| of.iter().map(rank).collect());
    let ordinals = ordinals.collect::<Option<_>>()?;
    Some((ranks, ordinals))
}

impl NumberTable {
    fn of(form: KeyForm, above: &[KeysAbove]) -> Result<(Self, Vec<Vec<u32>>)> {
        let most = above.iter().map(KeysAbove::count).max().unwrap_or_default();
        let mut table = Self { entries: HashTable::with_capacity(most), ..Self::default() };
        let ordinals = (0..above.len()).map(|source| table.number_all(above, source));
        let ordinals = ordinals.collect::<Result<_>>()?;
        if above.is_empty() {
            return Ok((table, ordinals));
        }
        let each_once = SourceKeys {
            // Keys are looked for, and never compared by age.
            freshness: Freshness::SsTable(Generation(0)),
            at_most: table.entries.len(),
            keys: table.entries.iter().map(|(_, at, place)| key_at(above, *at, *place)),
        };
        table.held = NewerKeys::of(form, vec![each_once])?;
        Ok((table, ordinals))
    }

    /// The numbers of the keys of one source; new keys get the next ones.
    fn number_all(&mut self, above: &[KeysAbove], source: usize) -> Result<Vec<u32>> {
        let Self { entries, hasher, .. } = self;
        let mut of_source = Vec::with_capacity(above[source].count());
        for (place, key) in above[source].keys().enumerate() {
            let new = (as_u32(entries.len())?, as_u32(source)?, as_u32(place)?);
            let entry = entries.entry(
                hash(hasher, key),
                |(_, source, place)| key_at(above, *source, *place) == key,
                |(_, source, place)| hash(hasher, key_at(above, *source, *place)),
            );
            of_source.push(entry.or_insert(new).get().0);
        }
        Ok(of_source)
    }

    fn number(&self, above: &[KeysAbove], key: &[u8]) -> Option<u32> {
        let is_key = |entry: &(u32, u32, u32)| key_at(above, entry.1, entry.2) == key;
        self.entries.find(hash(&self.hasher, key), is_key).map(|(number, ..)| *number)
    }
}

fn as_u32(count: usize) -> Result<u32> {
    u32::try_from(count).map_err(|_| Error::internal("more than 2^32 keys are compared"))
}

fn hash(hasher: &RandomState, key: &[u8]) -> u64 {
    use std::hash::{BuildHasher, Hasher};
    let mut hasher = hasher.build_hasher();
    hasher.write(key);
    hasher.finish()
}

fn key_at(above: &[KeysAbove], source: u32, place: u32) -> &[u8] {
    above[source as usize].key(place as usize)
}
