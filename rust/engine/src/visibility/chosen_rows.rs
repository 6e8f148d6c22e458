//! The dead rows of a snapshot of a table whose merge rule chooses among the rows of a key.
//!
//! Age does not decide there, so an older row may supersede a newer one. All rows above the base
//! table, the rows of the base table that have their keys, and the deletes of these keys that the base
//! version remembers are compared by the rule.
//!
//! Owns: the comparison over all sources of a snapshot, from keys and the columns that decide.
//! Does not own: the rule (`lancemem_core::merge`), tables without one (`compare`), the masks that
//! are kept (`cache`), or which deletes are remembered (`crate::compaction`).

use std::collections::HashSet;
use std::sync::Arc;

use arrow::compute::{
    concat_batches, filter_record_batch, interleave_record_batch, take_record_batch,
};
use arrow_array::{Array, BooleanArray, RecordBatch, UInt32Array};
use datafusion::common::runtime::SpawnedTask;
use futures::future::{ready, try_join_all};
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use lancemem_core::format::{KeyForm, TOMBSTONE};
use lancemem_core::merge::{Choosing, KeyGroups, REPLACE};
use lancemem_core::types::{Error, KeyBlock, Result};
use roaring::RoaringBitmap;

use super::{DeadRows, KeysAbove, NumberedKeys, NumberedRows, SnapshotMask};
use crate::errors::{Context, SsTableErrors};
use crate::record_index::column_batches;
use crate::schema::{StoredColumns, tombstones};
use crate::snapshot::{Graves, MemTableView, Snapshot, Source, SsTableHandle};

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
        let chosen = Self::with_graves(snapshot, rule, false).await?;
        Ok(chosen.0)
    }

    /// The same; with `notes` also what the choice changes in the deletes that the table remembers.
    ///
    /// # Errors
    /// As [`Self::of`].
    pub async fn with_graves(
        snapshot: &Snapshot,
        rule: &Arc<Choosing>,
        notes: bool,
    ) -> Result<(Self, GraveChanges)> {
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
        let (rule, graves) = (rule.clone(), snapshot.graves().await?);
        let chosen = SpawnedTask::spawn_blocking(move || {
            let graves = RowsOfGraves::of(graves, &keys, &fragments, &rule)?;
            Choice { keys: &keys, above: &above, fragments: &fragments, graves, rule: &rule }
                .make(notes)
        });
        let (mut chosen, changes) = chosen.await.context(CHOOSING)??;
        chosen.mask.live_rows = live_rows(snapshot, &chosen.mask);
        Ok((chosen, changes))
    }
}

/// The rows of one source above the base table, tombstones included.
struct RowsAbove {
    /// The columns that decide, a row for each key of the source.
    events: RecordBatch,
    /// Positions of deletes.
    tombstones: RoaringBitmap,
}

/// The rows of a base fragment whose keys have rows above.
struct RowsOfFragment {
    id: u64,
    offsets: Vec<u32>,
    ordinals: Vec<u32>,
    events: RecordBatch,
}

/// The remembered deletes whose keys have rows above the base table.
struct RowsOfGraves {
    ordinals: Vec<u32>,
    events: RecordBatch,
    /// The keys whose delete does not count, because the base table has a row of them.
    in_base: Vec<u32>,
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

/// What a choice over all SSTables changes in the deletes that the table remembers.
#[derive(Debug)]
pub struct GraveChanges {
    /// Keys of deletes with a sequence that win.
    pub buried: KeyBlock,
    /// The columns that decide, of these deletes.
    pub events: RecordBatch,
    /// Keys whose remembered delete counts no more, and that are not in `buried`.
    pub cancelled: KeyBlock,
}

impl GraveChanges {
    /// No change.
    #[must_use]
    pub fn none(rule: &Choosing) -> Self {
        let events = RecordBatch::new_empty(rule.event_schema().clone());
        Self { buried: KeyBlock::default(), events, cancelled: KeyBlock::default() }
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
    let make = move |rows: &RecordBatch| made_by.base_events(rows);
    let found = NumberedRows::of(snapshot, id, keys, &sequence, make, action).await?;
    let NumberedRows { id, offsets, ordinals, made } = found;
    Ok(RowsOfFragment { id, offsets, ordinals, events: concatenated(&rule, &made)? })
}

/// A choice among all rows. Those of the base table and remembered deletes are the oldest; a key has
/// the ones or the other.
struct Choice<'a> {
    keys: &'a NumberedKeys,
    above: &'a [RowsAbove],
    fragments: &'a [RowsOfFragment],
    graves: RowsOfGraves,
    rule: &'a Choosing,
}

impl Choice<'_> {
    fn make(&self, notes: bool) -> Result<(ChosenRows, GraveChanges)> {
        let Self { keys, above, fragments, graves, rule } = self;
        let mut ordinals: Vec<&[u32]> = fragments.iter().map(|it| it.ordinals.as_slice()).collect();
        ordinals.push(&graves.ordinals);
        // The source of this number is the first above the base table.
        let first_above = ordinals.len();
        ordinals.extend(keys.ordinals().iter().map(Vec::as_slice));
        let of_base = fragments.iter().map(|fragment| fragment.events.clone());
        let below = of_base.chain([graves.events.clone()]);
        let events: Vec<RecordBatch> =
            below.chain(above.iter().map(|source| source.events.clone())).collect();
        let groups = KeyGroups::from_ordinals(keys.count(), &ordinals)?;
        let winners = rule.winners(&events, &groups)?;
        let mut wins: Vec<Vec<bool>> = ordinals.iter().map(|it| vec![false; it.len()]).collect();
        for (source, row) in winners.rows() {
            wins[*source][*row] = true;
        }
        let changes = if notes {
            let winners = groups.ordinals().iter().copied().zip(winners.rows().iter().copied());
            let above = winners.filter_map(|(number, (source, row))| {
                Some((number, source.checked_sub(first_above)?, row))
            });
            self.changes(above, &wins[fragments.len()])?
        } else {
            GraveChanges::none(rule)
        };
        let mask = self.mask(&wins[..fragments.len()], &wins[first_above..])?;
        let mut late_rows = vec![0; above.len() + 1];
        for (bounds, winner) in groups.offsets().windows(2).zip(winners.rows()) {
            let rows = &groups.rows()[bounds[0]..bounds[1]];
            let behind = rows.iter().rev().take_while(|row| *row != winner);
            for (source, _) in behind {
                // Rows of the base table arrived first, so none of them is late.
                if let Some(above) = source.checked_sub(first_above) {
                    late_rows[above + 1] += 1;
                }
            }
        }
        Ok((ChosenRows { mask, late_rows }, changes))
    }

    /// The rows that lose, and deletes.
    fn mask(&self, of_base: &[Vec<bool>], of_above: &[Vec<bool>]) -> Result<SnapshotMask> {
        let mut base = DeadRows::default();
        for (fragment, wins) in self.fragments.iter().zip(of_base) {
            let loses = fragment.offsets.iter().zip(wins).filter(|(_, wins)| !**wins);
            base.set(fragment.id, loses.map(|(offset, _)| *offset).collect())?;
        }
        let mut arms = vec![Arc::new(base)];
        let sources = self.above.iter().zip(self.keys.above());
        for ((source, keys), wins) in sources.zip(of_above) {
            let mut dead = source.tombstones.clone();
            for (place, _) in wins.iter().enumerate().filter(|(_, wins)| !**wins) {
                dead.insert(keys.position(place)?);
            }
            arms.push(Arc::new(DeadRows::of_sstable(dead)));
        }
        Ok(SnapshotMask::new(arms))
    }

    /// What becomes of remembered deletes. `winners` are those above the base table: the number of
    /// the key, source and row; `wins` is whether each remembered delete wins.
    fn changes(
        &self,
        winners: impl Iterator<Item = (u32, usize, usize)>,
        wins: &[bool],
    ) -> Result<GraveChanges> {
        let mut changes = GraveChanges::none(self.rule);
        let mut buried: Vec<(usize, usize)> = Vec::new();
        let mut again: HashSet<u32> = HashSet::new();
        for (number, source, row) in winners {
            if self.is_ordered_delete(source, row)? {
                changes.buried.push_with(|out| out.extend_from_slice(self.keys.key(source, row)));
                buried.push((source, row));
                again.insert(number);
            }
        }
        if !buried.is_empty() {
            let events: Vec<&RecordBatch> = self.above.iter().map(|it| &it.events).collect();
            changes.events = interleave_record_batch(&events, &buried).context(CHOOSING)?;
        }
        let loses = self.graves.ordinals.iter().zip(wins).filter(|(_, wins)| !**wins);
        let loses = loses.map(|(number, _)| *number).chain(self.graves.in_base.iter().copied());
        let loses: HashSet<u32> = loses.filter(|number| !again.contains(number)).collect();
        for (_, key) in self.keys.each().filter(|(number, _)| loses.contains(number)) {
            changes.cancelled.push_with(|out| out.extend_from_slice(key));
        }
        Ok(changes)
    }

    /// Whether a row above the base table is a delete with a sequence.
    fn is_ordered_delete(&self, source: usize, row: usize) -> Result<bool> {
        let events = &self.above[source].events;
        if !self.rule.rule().remembers_deletes() || !tombstones(events, CHOOSING)?.value(row) {
            return Ok(false);
        }
        let has_value =
            |name: &String| events.column_by_name(name).is_some_and(|column| column.is_valid(row));
        Ok(self.rule.sequence().iter().any(has_value))
    }
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
