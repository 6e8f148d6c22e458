//! The rows of a snapshot that a merge rule chooses among, with the columns that decide.
//!
//! Age does not decide there, so an older row may supersede a newer one. All rows above the base
//! table, the rows of the base table that have their keys, and the deletes of these keys that the base
//! version remembers are compared by the rule.
//!
//! Owns: reading them source by source, the groups by key, and the row of each group that wins.
//! Does not own: the rule (`lancemem_core::merge`), what follows from the choice (`chosen_rows`), or
//! which deletes are remembered (`crate::compaction`).

use std::collections::HashSet;
use std::sync::Arc;

use arrow::compute::{concat_batches, filter_record_batch, take_record_batch};
use arrow_array::{BooleanArray, RecordBatch, UInt32Array};
use datafusion::common::runtime::SpawnedTask;
use futures::future::{ready, try_join_all};
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use lancemem_core::format::{KeyForm, TOMBSTONE};
use lancemem_core::merge::{Choosing, KeyGroups, REPLACE, Winners};
use lancemem_core::types::{Error, Result};
use roaring::RoaringBitmap;

use super::{KeysAbove, NumberedKeys, NumberedRows};
use crate::errors::{Context, SsTableErrors};
use crate::record_index::column_batches;
use crate::schema::{StoredColumns, tombstones};
use crate::snapshot::{Graves, MemTableView, Snapshot, Source, SsTableHandle};

/// The action that errors name.
pub(super) const CHOOSING: &str = "choosing among the rows of a key";
/// Fragments of the base table that are compared at the same time.
const CONCURRENT: usize = 2;

/// The columns that decide of all rows whose keys are above the base table. Those of the base table
/// and remembered deletes are the oldest; a key has the ones or the other.
pub(super) struct ComparedRows {
    pub keys: Arc<NumberedKeys>,
    pub above: Vec<RowsAbove>,
    pub fragments: Vec<RowsOfFragment>,
    pub graves: RowsOfGraves,
    pub rule: Arc<Choosing>,
}

/// The rows of each key, and the row that wins.
pub(super) struct ChosenGroups {
    pub groups: KeyGroups,
    pub winners: Winners,
    /// The number of the first source above the base table.
    pub first_above: usize,
}

impl ComparedRows {
    /// The rows of `snapshot`, with the remembered deletes `graves`.
    pub(super) async fn of(
        snapshot: &Snapshot,
        rule: &Arc<Choosing>,
        graves: Option<Arc<Graves>>,
    ) -> Result<Self> {
        let reads = snapshot.sources().map(|(_, source)| match source {
            Source::SsTable(sstable) => of_sstable(snapshot, sstable, rule).boxed(),
            Source::MemTable(rows) => ready(of_memtable(snapshot, rows, rule)).boxed(),
        });
        let above = try_join_all(reads.collect::<Vec<_>>()).await?;
        let form = KeyForm::of(&snapshot.schema, &snapshot.key);
        let (keys, above): (Vec<KeysAbove>, Vec<RowsAbove>) = above.into_iter().unzip();
        let keys = SpawnedTask::spawn_blocking(move || NumberedKeys::of(form, keys));
        let keys = Arc::new(keys.await.context(CHOOSING)??);
        let ids = snapshot.base.fragments().iter().map(|fragment| fragment.id);
        let looks = ids.map(|id| of_fragment(snapshot, id, keys.clone(), rule.clone()).boxed());
        let looks = stream::iter(looks.collect::<Vec<_>>()).buffered(CONCURRENT);
        let fragments: Vec<RowsOfFragment> = looks.try_collect().await?;
        let graves = RowsOfGraves::of(graves, &keys, &fragments, rule)?;
        Ok(Self { keys, above, fragments, graves, rule: rule.clone() })
    }

    /// The rows by key, in this order of sources: fragments, remembered deletes, sources above.
    pub(super) fn choose(&self) -> Result<ChosenGroups> {
        let Self { keys, above, fragments, graves, rule } = self;
        let ordinals = self.ordinals();
        let of_base = fragments.iter().map(|fragment| fragment.events.clone());
        let below = of_base.chain([graves.events.clone()]);
        let events: Vec<RecordBatch> =
            below.chain(above.iter().map(|source| source.events.clone())).collect();
        let groups = KeyGroups::from_ordinals(keys.count(), &ordinals)?;
        let winners = rule.winners(&events, &groups)?;
        Ok(ChosenGroups { groups, winners, first_above: fragments.len() + 1 })
    }

    /// The numbers of the keys of each source's rows.
    pub(super) fn ordinals(&self) -> Vec<&[u32]> {
        let of_base = self.fragments.iter().map(|it| it.ordinals.as_slice());
        let below = of_base.chain([self.graves.ordinals.as_slice()]);
        below.chain(self.keys.ordinals().iter().map(Vec::as_slice)).collect()
    }
}

/// The rows of one source above the base table, tombstones included.
pub(super) struct RowsAbove {
    /// The columns that decide, a row for each key of the source.
    pub events: RecordBatch,
    /// Positions of deletes.
    pub tombstones: RoaringBitmap,
}

/// The rows of a base fragment whose keys have rows above.
pub(super) struct RowsOfFragment {
    pub id: u64,
    pub offsets: Vec<u32>,
    pub ordinals: Vec<u32>,
    pub events: RecordBatch,
}

/// The remembered deletes whose keys have rows above the base table.
pub(super) struct RowsOfGraves {
    pub ordinals: Vec<u32>,
    pub events: RecordBatch,
    /// The keys whose delete does not count, because the base table has a row of them.
    pub in_base: Vec<u32>,
}

impl RowsOfGraves {
    fn of(
        graves: Option<Arc<Graves>>,
        keys: &NumberedKeys,
        fragments: &[RowsOfFragment],
        rule: &Choosing,
    ) -> Result<Self> {
        let none = RecordBatch::new_empty(rule.event_schema().clone());
        let mut found = Self { ordinals: Vec::new(), events: none, in_base: Vec::new() };
        let Some(graves) = graves else { return Ok(found) };
        let of_base = fragments.iter().flat_map(|fragment| fragment.ordinals.iter().copied());
        let of_base: HashSet<u32> = of_base.collect();
        let mut places = Vec::new();
        for (number, key) in keys.each() {
            match graves.find(key) {
                None => {}
                Some(_) if of_base.contains(&number) => found.in_base.push(number),
                Some(place) => {
                    found.ordinals.push(number);
                    places.push(place);
                }
            }
        }
        let places = UInt32Array::from(places);
        found.events = take_record_batch(graves.events(), &places).context(CHOOSING)?;
        Ok(found)
    }
}

/// The columns of `rule` behind which `_tombstone` stands, as `StoredColumns` takes them.
pub fn deciding_columns(rule: &Choosing) -> Vec<String> {
    let behind = [TOMBSTONE, REPLACE].map(str::to_owned);
    rule.sequence().iter().cloned().chain(behind).collect()
}

async fn of_sstable(
    snapshot: &Snapshot,
    sstable: &Arc<SsTableHandle>,
    rule: &Choosing,
) -> Result<(KeysAbove, RowsAbove)> {
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
    let events = concatenated(rule, &events)?;
    let mut shown = vec![false; events.num_rows()];
    for place in 0..keys.len() {
        let position = keys.position_of(place) as usize;
        let row = shown.get_mut(position).ok_or_else(|| {
            Error::corrupt(&name, "misshapen", format!("row {position} has a key and no values"))
        })?;
        *row = true;
    }
    let events = filter_record_batch(&events, &BooleanArray::from(shown)).context(CHOOSING)?;
    Ok((KeysAbove::SsTable(keys), RowsAbove { events, tombstones }))
}

fn of_memtable(
    snapshot: &Snapshot,
    rows: &MemTableView,
    rule: &Choosing,
) -> Result<(KeysAbove, RowsAbove)> {
    let stored = StoredColumns::of(rows.schema(), &snapshot.columns, &deciding_columns(rule))?;
    let events = rows.batches().map(|batch| rule.events(&stored.bring(batch)?));
    let events = concatenated(rule, &events.collect::<Result<Vec<_>>>()?)?;
    let deletes = tombstones(&events, CHOOSING)?.values().set_indices();
    let tombstones = deletes.filter_map(|row| u32::try_from(row).ok()).collect();
    Ok((KeysAbove::of_memtable(snapshot, rows)?, RowsAbove { events, tombstones }))
}

fn concatenated(rule: &Choosing, batches: &[RecordBatch]) -> Result<RecordBatch> {
    concat_batches(rule.event_schema(), batches).context(CHOOSING)
}

/// The live rows of the base fragment `id` whose keys are in `keys`.
async fn of_fragment(
    snapshot: &Snapshot,
    id: u64,
    keys: Arc<NumberedKeys>,
    rule: Arc<Choosing>,
) -> Result<RowsOfFragment> {
    let sequence = rule.sequence().to_vec();
    let (made_by, action) = (rule.clone(), CHOOSING);
    let make = move |batch: &RecordBatch, rows: &UInt32Array| {
        made_by.base_events(&take_record_batch(batch, rows).context(CHOOSING)?)
    };
    let found = NumberedRows::of(snapshot, id, keys, &sequence, make, action).await?;
    let NumberedRows { id, offsets, ordinals, made } = found;
    Ok(RowsOfFragment { id, offsets, ordinals, events: concatenated(&rule, &made)? })
}
