//! The dead rows of a snapshot of a table whose merge rule chooses among the rows of a key.
//!
//! Age does not decide there, so an older row may supersede a newer one. All rows above the base
//! table, and the rows of the base table that have their keys, are compared by the rule.
//!
//! Owns: the comparison over all sources of a snapshot, from keys and the columns that decide.
//! Does not own: the rule (`lancemem_core::merge`), tables without one (`compare`), or the masks that
//! are kept (`cache`).

use std::sync::Arc;

use arrow::compute::{concat_batches, filter_record_batch};
use arrow_array::{BooleanArray, RecordBatch};
use datafusion::common::runtime::SpawnedTask;
use foldhash::fast::RandomState;
use futures::future::{ready, try_join_all};
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use hashbrown::HashTable;
use lancemem_core::format::{KeyEncoder, KeyForm, TOMBSTONE};
use lancemem_core::merge::{Choosing, KeyGroups, REPLACE};
use lancemem_core::types::{Error, Freshness, KeyBlock, Result};
use roaring::RoaringBitmap;

use super::{DeadRows, NewerKeys, SnapshotMask, SourceKeys};
use crate::errors::{BaseContext, Context, SsTableErrors};
use crate::record_index::{column_batches, fragment_of};
use crate::schema::StoredColumns;
use crate::snapshot::{MemTableView, Snapshot, Source, SsTableHandle, SsTableKeys};

/// The action that errors name.
const CHOOSING: &str = "choosing among the rows of a key";
/// Fragments of the base table that are compared at the same time.
const CONCURRENT: usize = 2;

/// The rows of a snapshot that its rule does not choose.
#[derive(Debug)]
pub struct ChosenRows {
    /// The dead rows of each arm. Those of the base table have an entry for each fragment.
    pub mask: SnapshotMask,
    /// For each arm, how many of its rows lost against rows that arrived before them.
    pub late_rows: Vec<u64>,
}

impl ChosenRows {
    /// The choice of `rule` over all sources of `snapshot`.
    ///
    /// # Errors
    /// A storage error, or damage of a source.
    pub async fn of(snapshot: &Snapshot, rule: &Arc<Choosing>) -> Result<Self> {
        let reads = snapshot.sources().map(|(freshness, source)| match source {
            Source::SsTable(sstable) => of_sstable(snapshot, freshness, sstable, rule).boxed(),
            Source::MemTable(rows) => ready(of_memtable(snapshot, freshness, rows, rule)).boxed(),
        });
        let above = try_join_all(reads.collect::<Vec<_>>()).await?;
        let form = KeyForm::of(&snapshot.schema, &snapshot.key);
        let keys = SpawnedTask::spawn_blocking(move || Keys::of(form, above));
        let keys = Arc::new(keys.await.map_err(ended)??);
        let ids = snapshot.base.fragments().iter().map(|fragment| fragment.id);
        let looks = ids.map(|id| of_fragment(snapshot, id, keys.clone(), rule.clone()).boxed());
        let looks = stream::iter(looks.collect::<Vec<_>>()).buffered(CONCURRENT);
        let fragments: Vec<RowsOfFragment> = looks.try_collect().await?;
        let rule = rule.clone();
        let chosen = SpawnedTask::spawn_blocking(move || choose(&keys, fragments, &rule));
        let mut chosen = chosen.await.map_err(ended)??;
        chosen.mask.live_rows = live_rows(snapshot, &chosen.mask);
        Ok(chosen)
    }
}

/// The rows of one source above the base table, tombstones included.
struct RowsAbove {
    freshness: Freshness,
    keys: KeysAbove,
    /// The columns that decide, a row for each key of `keys`.
    events: RecordBatch,
    /// Positions of deletes.
    tombstones: RoaringBitmap,
}

enum KeysAbove {
    SsTable(Arc<SsTableKeys>),
    /// A MemTable's rows are compared with each other here too, so a key may come several times.
    MemTable(KeyBlock),
}

impl KeysAbove {
    fn iter(&self) -> Box<dyn Iterator<Item = &[u8]> + '_> {
        match self {
            Self::SsTable(keys) => Box::new(keys.keys()),
            Self::MemTable(keys) => Box::new(keys.iter()),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::SsTable(keys) => keys.len(),
            Self::MemTable(keys) => keys.len(),
        }
    }

    /// The position in the source of the key at `place`.
    fn position(&self, place: usize) -> Result<u32> {
        match self {
            Self::SsTable(keys) => Ok(keys.position_of(place)),
            Self::MemTable(_) => u32::try_from(place)
                .map_err(|_| Error::internal(format!("row {place} of a MemTable"))),
        }
    }
}

/// The rows of a base fragment whose keys have rows above.
struct RowsOfFragment {
    id: u64,
    offsets: Vec<u32>,
    ordinals: Vec<u32>,
    events: RecordBatch,
}

/// All keys above the base table, numbered.
struct Keys {
    above: Vec<RowsAbove>,
    /// For each source the number of the key of each of its rows.
    ordinals: Vec<Vec<u32>>,
    /// By the hash of the key, its number with source and place of one row that has the key.
    numbers: HashTable<(u32, u32, u32)>,
    hasher: RandomState,
    /// The same keys, for a fast test whether a row of the base table has one of them.
    held: NewerKeys,
}

impl Keys {
    fn of(form: KeyForm, above: Vec<RowsAbove>) -> Result<Self> {
        let most = above.iter().map(|source| source.keys.len()).max().unwrap_or_default();
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
        let Some(first) = keys.above.first() else { return Ok(keys) };
        let each_once = SourceKeys {
            freshness: first.freshness,
            at_most: keys.numbers.len(),
            keys: keys.numbers.iter().map(|(_, at, place)| key_at(&keys.above, *at, *place)),
        };
        keys.held = NewerKeys::of(form, vec![each_once])?;
        Ok(keys)
    }

    /// Numbers the keys of the last source.
    fn number_last(&mut self) -> Result<()> {
        let Self { above, ordinals, numbers, hasher, .. } = self;
        let (above, hasher): (&[RowsAbove], &RandomState) = (above, hasher);
        let source = above.len() - 1;
        let mut of_source = Vec::with_capacity(above[source].keys.len());
        let too_many = |_| Error::internal("more than 2^32 keys are compared");
        let source = u32::try_from(source).map_err(too_many)?;
        for (place, key) in above[source as usize].keys.iter().enumerate() {
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

fn key_at(above: &[RowsAbove], source: u32, place: u32) -> &[u8] {
    match &above[source as usize].keys {
        KeysAbove::SsTable(keys) => keys.key(place as usize),
        KeysAbove::MemTable(keys) => keys.get(place as usize),
    }
}

/// The columns of `rule` behind which `_tombstone` stands, as `StoredColumns` takes them.
pub fn deciding_columns(rule: &Choosing) -> Vec<String> {
    let behind = [TOMBSTONE, REPLACE].map(str::to_owned);
    rule.sequence().iter().cloned().chain(behind).collect()
}

async fn of_sstable(
    snapshot: &Snapshot,
    freshness: Freshness,
    sstable: &Arc<SsTableHandle>,
    rule: &Choosing,
) -> Result<RowsAbove> {
    let name = sstable.name();
    let keys = sstable.keys(&snapshot.key).await?;
    let tombstones = sstable.tombstones().await?.as_ref().clone();
    let stored = StoredColumns::of(&sstable.columns, &snapshot.columns, &deciding_columns(rule))?;
    let events = match sstable.dataset.get_fragments().pop() {
        None => Vec::new(),
        Some(fragment) => {
            let batches = column_batches(&fragment, &stored.names).await.in_sstable(&name)?;
            let batches: Vec<RecordBatch> = batches.try_collect().await.in_sstable(&name)?;
            let batches = batches.iter().map(|batch| rule.events(&stored.bring(batch)?));
            batches.collect::<Result<_>>()?
        }
    };
    let events = concatenated(rule, events)?;
    let mut shown = vec![false; events.num_rows()];
    for place in 0..keys.len() {
        let position = keys.position_of(place) as usize;
        let row = shown.get_mut(position).ok_or_else(|| {
            Error::corrupt(&name, "misshapen", format!("row {position} has a key and no values"))
        })?;
        *row = true;
    }
    let events =
        filter_record_batch(&events, &BooleanArray::from(shown)).context("comparing rows")?;
    Ok(RowsAbove { freshness, keys: KeysAbove::SsTable(keys), events, tombstones })
}

fn of_memtable(
    snapshot: &Snapshot,
    freshness: Freshness,
    rows: &MemTableView,
    rule: &Choosing,
) -> Result<RowsAbove> {
    let wanted: Vec<String> = snapshot.key.iter().cloned().chain(deciding_columns(rule)).collect();
    let stored = StoredColumns::of(rows.schema(), &snapshot.columns, &wanted)?;
    let (mut keys, mut events) = (KeyBlock::default(), Vec::new());
    for batch in rows.batches() {
        let batch = stored.bring(batch)?;
        keys.append(&KeyEncoder::new(batch.schema_ref(), &snapshot.key)?.encode_block(&batch));
        events.push(rule.events(&batch)?);
    }
    let events = concatenated(rule, events)?;
    let deletes = events.column_by_name(TOMBSTONE).map(arrow_array::cast::AsArray::as_boolean);
    let deletes = deletes.map(|deletes| deletes.values().set_indices()).into_iter().flatten();
    let tombstones = deletes.filter_map(|row| u32::try_from(row).ok()).collect();
    Ok(RowsAbove { freshness, keys: KeysAbove::MemTable(keys), events, tombstones })
}

fn concatenated(rule: &Choosing, batches: Vec<RecordBatch>) -> Result<RecordBatch> {
    concat_batches(rule.event_schema(), &batches).context("comparing rows")
}

/// The live rows of the base fragment `id` whose keys are in `keys`.
async fn of_fragment(
    snapshot: &Snapshot,
    id: u64,
    keys: Arc<Keys>,
    rule: Arc<Choosing>,
) -> Result<RowsOfFragment> {
    let fragment = fragment_of(&snapshot.base, id)?;
    let deleted = fragment.get_deletion_vector().await.in_base(CHOOSING)?;
    let mut names = snapshot.key.to_vec();
    names.extend(rule.sequence().iter().cloned());
    let mut found = RowsOfFragment {
        id,
        offsets: Vec::new(),
        ordinals: Vec::new(),
        events: RecordBatch::new_empty(rule.event_schema().clone()),
    };
    if keys.held.is_empty() {
        return Ok(found);
    }
    let mut batches = column_batches(&fragment, &names).await.in_base(CHOOSING)?;
    let (mut first, mut events) = (0, Vec::new());
    while let Some(batch) = batches.try_next().await.in_base(CHOOSING)? {
        let (keys, rule, key) = (keys.clone(), rule.clone(), snapshot.key.clone());
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
            let rows = rows.context(CHOOSING)?;
            let block = encoder.encode_block(&rows);
            let places = (0..live.len()).filter(|row| live[*row]);
            let (mut offsets, mut ordinals) = (Vec::new(), Vec::new());
            for (row, key) in places.zip(block.iter()) {
                let number = keys.number(key);
                ordinals.push(number.ok_or_else(|| Error::internal("a key has no number"))?);
                offsets.push(offset(row)?);
            }
            Ok((offsets, ordinals, rule.base_events(&rows)?))
        };
        let (offsets, ordinals, rows) =
            SpawnedTask::spawn_blocking(work).await.map_err(ended)??;
        found.offsets.extend(offsets);
        found.ordinals.extend(ordinals);
        events.push(rows);
    }
    found.events = concatenated(&rule, events)?;
    Ok(found)
}

/// The choice among all rows: those of the base table are the oldest.
fn choose(keys: &Keys, fragments: Vec<RowsOfFragment>, rule: &Choosing) -> Result<ChosenRows> {
    let mut ordinals: Vec<&[u32]> = fragments.iter().map(|it| it.ordinals.as_slice()).collect();
    ordinals.extend(keys.ordinals.iter().map(Vec::as_slice));
    let of_base = fragments.iter().map(|fragment| fragment.events.clone());
    let above = keys.above.iter().map(|source| source.events.clone());
    let events: Vec<RecordBatch> = of_base.chain(above).collect();
    let groups = KeyGroups::from_ordinals(keys.numbers.len(), &ordinals)?;
    let winners = rule.winners(&events, &groups)?;
    let mut wins: Vec<Vec<bool>> = ordinals.iter().map(|rows| vec![false; rows.len()]).collect();
    for (source, row) in winners.rows() {
        wins[*source][*row] = true;
    }
    let mut late = vec![0; keys.above.len() + 1];
    for (bounds, winner) in groups.offsets().windows(2).zip(winners.rows()) {
        let rows = &groups.rows()[bounds[0]..bounds[1]];
        let behind = rows.iter().rev().take_while(|row| *row != winner);
        for (source, _) in behind {
            // Rows of the base table arrived first, so none of them is late.
            if let Some(above) = source.checked_sub(fragments.len()) {
                late[above + 1] += 1;
            }
        }
    }
    let mut base = DeadRows::default();
    for (fragment, wins) in fragments.iter().zip(&wins) {
        let loses = fragment.offsets.iter().zip(wins).filter(|(_, wins)| !**wins);
        base.set(fragment.id, loses.map(|(offset, _)| *offset).collect())?;
    }
    let mut arms = vec![Arc::new(base)];
    for (source, wins) in keys.above.iter().zip(&wins[fragments.len()..]) {
        let mut dead = source.tombstones.clone();
        for (place, _) in wins.iter().enumerate().filter(|(_, wins)| !**wins) {
            dead.insert(source.keys.position(place)?);
        }
        arms.push(Arc::new(DeadRows::of_sstable(dead)));
    }
    Ok(ChosenRows { mask: SnapshotMask::new(arms), late_rows: late })
}

/// Number of rows of the snapshot, where the manifests record those of each fragment.
fn live_rows(snapshot: &Snapshot, mask: &SnapshotMask) -> Option<usize> {
    let mut rows = 0;
    for fragment in snapshot.base.fragments().iter() {
        rows += fragment.num_rows()?;
    }
    for (_, source) in snapshot.sources() {
        rows += match source {
            Source::SsTable(sstable) => {
                let fragments = sstable.dataset.fragments().iter();
                fragments.map(lance_table::format::Fragment::num_rows).sum::<Option<usize>>()?
            }
            Source::MemTable(memtable) => memtable.rows(),
        };
    }
    let arms = 0..=snapshot.sources().count();
    let dead: u64 = arms.map(|arm| mask.arm(arm).len()).sum();
    rows.checked_sub(usize::try_from(dead).ok()?)
}

fn ended(error: tokio::task::JoinError) -> Error {
    Error::internal(format!("{CHOOSING}: {error}")).with_source(error)
}
