//! The keys above the base table of a snapshot, numbered.
//!
//! A merge rule compares or combines all rows of a key, wherever they lie. Each key gets a number, and
//! each row of a source the number of its key.
//!
//! Owns: the numbers, and the live rows of base fragments that have a numbered key.
//! Does not own: what is done with the rows of a key (`chosen_rows`, `merged`).

use std::sync::Arc;

use arrow::compute::filter_record_batch;
use arrow_array::{BooleanArray, RecordBatch};
use datafusion::common::runtime::SpawnedTask;
use foldhash::fast::RandomState;
use futures::TryStreamExt;
use hashbrown::HashTable;
use lancemem_core::format::{KeyEncoder, KeyForm};
use lancemem_core::types::{Error, Freshness, Generation, KeyBlock, Result};

use super::{NewerKeys, SourceKeys};
use crate::errors::{BaseContext, Context};
use crate::record_index::{column_batches, fragment_of};
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
    /// By the hash of the key, its number with source and place of one row that has the key.
    numbers: HashTable<(u32, u32, u32)>,
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
        let most = above.iter().map(KeysAbove::count).max().unwrap_or_default();
        let mut keys = Self {
            ordinals: Vec::with_capacity(above.len()),
            numbers: HashTable::with_capacity(most),
            hasher: RandomState::default(),
            held: NewerKeys::default(),
            above: Vec::new(),
        };
        for source in above {
            keys.above.push(source);
            keys.number_last()?;
        }
        if keys.above.is_empty() {
            return Ok(keys);
        }
        let each_once = SourceKeys {
            // Keys are looked for, and never compared by age.
            freshness: Freshness::SsTable(Generation(0)),
            at_most: keys.numbers.len(),
            keys: keys.numbers.iter().map(|(_, at, place)| key_at(&keys.above, *at, *place)),
        };
        keys.held = NewerKeys::of(form, vec![each_once])?;
        Ok(keys)
    }

    /// Numbers the keys of the last source.
    fn number_last(&mut self) -> Result<()> {
        let Self { above, ordinals, numbers, hasher, .. } = self;
        let (above, hasher): (&[KeysAbove], &RandomState) = (above, hasher);
        let source = above.len() - 1;
        let mut of_source = Vec::with_capacity(above[source].count());
        let too_many = |_| Error::internal("more than 2^32 keys are compared");
        let source = u32::try_from(source).map_err(too_many)?;
        for (place, key) in above[source as usize].keys().enumerate() {
            let place = u32::try_from(place).map_err(too_many)?;
            let next = u32::try_from(numbers.len()).map_err(too_many)?;
            let entry = numbers.entry(
                hash(hasher, key),
                |(_, source, place)| key_at(above, *source, *place) == key,
                |(_, source, place)| hash(hasher, key_at(above, *source, *place)),
            );
            of_source.push(entry.or_insert((next, source, place)).get().0);
        }
        ordinals.push(of_source);
        Ok(())
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
        self.numbers.len()
    }

    /// Each key once, with its number.
    pub fn each(&self) -> impl Iterator<Item = (u32, &[u8])> {
        let numbers = self.numbers.iter();
        numbers.map(|(number, at, place)| (*number, key_at(&self.above, *at, *place)))
    }

    /// The key at `place` of the source `source`.
    ///
    /// # Panics
    /// Where there is no such place.
    #[must_use]
    pub fn key(&self, source: usize, place: usize) -> &[u8] {
        self.above[source].key(place)
    }

    fn number(&self, key: &[u8]) -> Option<u32> {
        let is_key = |entry: &(u32, u32, u32)| key_at(&self.above, entry.1, entry.2) == key;
        self.numbers.find(hash(&self.hasher, key), is_key).map(|(number, ..)| *number)
    }
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

/// Rows of a base fragment whose keys are numbered.
#[derive(Debug)]
pub struct NumberedRows<T> {
    /// The fragment.
    pub id: u64,
    /// Their offsets, ascending.
    pub offsets: Vec<u32>,
    /// The numbers of their keys.
    pub ordinals: Vec<u32>,
    /// What was made of the columns that were read of them, batch by batch.
    pub made: Vec<T>,
}

impl<T: Send + 'static> NumberedRows<T> {
    /// The live rows of the base fragment `id` whose keys are in `keys`. `make` is given their keys
    /// and their columns `more`.
    ///
    /// # Errors
    /// A storage error, and as `make`.
    pub async fn of(
        snapshot: &Snapshot,
        id: u64,
        keys: Arc<NumberedKeys>,
        more: &[String],
        make: impl Fn(&RecordBatch) -> Result<T> + Clone + Send + 'static,
        action: &'static str,
    ) -> Result<Self> {
        let fragment = fragment_of(&snapshot.base, id)?;
        let deleted = fragment.get_deletion_vector().await.in_base(action)?;
        let mut found = Self { id, offsets: Vec::new(), ordinals: Vec::new(), made: Vec::new() };
        if keys.held.is_empty() {
            return Ok(found);
        }
        let mut names = snapshot.key.to_vec();
        names.extend(more.iter().filter(|name| !snapshot.key.contains(name)).cloned());
        let mut batches = column_batches(&fragment, &names).await.in_base(action)?;
        let mut first = 0;
        while let Some(batch) = batches.try_next().await.in_base(action)? {
            let (keys, make, key) = (keys.clone(), make.clone(), snapshot.key.clone());
            let (deleted, start) = (deleted.clone(), first);
            first += batch.num_rows();
            let work = move || -> Result<_> {
                let encoder = KeyEncoder::new(batch.schema_ref(), &key)?;
                let held = keys.held.held(&encoder.view(&batch));
                let offset = |row: usize| {
                    u32::try_from(start + row)
                        .map_err(|_| Error::internal("a fragment is limited to 2^32 - 1 rows"))
                };
                let mut live = vec![false; batch.num_rows()];
                for row in held.set_indices() {
                    let at = offset(row)?;
                    live[row] = !deleted.as_ref().is_some_and(|deleted| deleted.contains(at));
                }
                let rows = filter_record_batch(&batch, &BooleanArray::from(live.clone()));
                let rows = rows.context(action)?;
                let block = encoder.encode_block(&rows);
                let places = (0..live.len()).filter(|row| live[*row]);
                let (mut offsets, mut ordinals) = (Vec::new(), Vec::new());
                for (row, key) in places.zip(block.iter()) {
                    let number = keys.number(key);
                    ordinals.push(number.ok_or_else(|| Error::internal("a key has no number"))?);
                    offsets.push(offset(row)?);
                }
                Ok((offsets, ordinals, make(&rows)?))
            };
            let worked = SpawnedTask::spawn_blocking(work).await.context(action)?;
            let (offsets, ordinals, made) = worked?;
            found.offsets.extend(offsets);
            found.ordinals.extend(ordinals);
            found.made.push(made);
        }
        Ok(found)
    }
}
