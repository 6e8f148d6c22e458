//! The dead rows of a snapshot of a table whose merge rule chooses among the rows of a key.
//!
//! Owns: what follows from the choice among all rows: the rows that lose, the late ones among them,
//! what a newest source and older ones do to each other, and what becomes of remembered deletes.
//! Does not own: the rows and the choice (`compared_rows`), tables without a rule (`compare`), or the
//! masks that are kept (`cache`).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arrow::compute::interleave_record_batch;
use arrow_array::{Array, RecordBatch};
use datafusion::common::runtime::SpawnedTask;
use lancemem_core::merge::Choosing;
use lancemem_core::types::{KeyBlock, Result};
use roaring::RoaringBitmap;

use super::compared_rows::{CHOOSING, ChosenGroups, ComparedRows};
use super::{DeadRows, SnapshotMask};
use crate::errors::Context;
use crate::schema::tombstones;
use crate::snapshot::{Snapshot, Source};

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
        let compared = ComparedRows::of(snapshot, rule, snapshot.graves().await?).await?;
        let chosen = SpawnedTask::spawn_blocking(move || choose(&compared, notes));
        let (mut chosen, changes) = chosen.await.context(CHOOSING)??;
        chosen.mask.live_rows = live_rows(snapshot, &chosen.mask);
        Ok((chosen, changes))
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

/// What the newest source of a snapshot and its other sources do to each other's rows, of the keys
/// that the newest source has.
#[derive(Debug, Default)]
pub struct ChosenAgainst {
    /// Rows of the base table that lose, with an entry for each fragment.
    pub base: DeadRows,
    /// Rows of each older source that lose.
    pub older: Vec<RoaringBitmap>,
    /// By fragment, rows of the newest source that lose to a row of it.
    pub beaten_by_base: HashMap<u64, RoaringBitmap>,
    /// Rows of the newest source that lose to a row of each older source.
    pub beaten_by_older: Vec<RoaringBitmap>,
}

impl ChosenAgainst {
    /// The choice of `rule` among the rows of the keys that the last source of `snapshot` has. No
    /// remembered delete counts.
    ///
    /// # Errors
    /// As [`ChosenRows::of`].
    pub async fn last_of(snapshot: &Snapshot, rule: &Arc<Choosing>) -> Result<Self> {
        let compared = ComparedRows::of(snapshot, rule, None).await?;
        let chosen = SpawnedTask::spawn_blocking(move || Self::of(&compared));
        chosen.await.context(CHOOSING)?
    }

    fn of(compared: &ComparedRows) -> Result<Self> {
        let ComparedRows { keys, fragments, .. } = compared;
        let ChosenGroups { groups, winners, first_above } = compared.choose()?;
        let Some((newest, older)) = keys.above().split_last() else {
            return Ok(Self::default());
        };
        let mut dead = vec![RoaringBitmap::new(); first_above + older.len()];
        let mut beaten = dead.clone();
        for (bounds, winner) in groups.offsets().windows(2).zip(winners.rows()) {
            let rows = &groups.rows()[bounds[0]..bounds[1]];
            let Some((_, own)) = rows.last().filter(|(source, _)| *source == dead.len()) else {
                continue;
            };
            for (source, row) in &rows[..rows.len() - 1] {
                let position = match source.checked_sub(first_above) {
                    None => fragments[*source].offsets[*row],
                    Some(above) => older[above].position(*row)?,
                };
                if (*source, *row) == *winner {
                    beaten[*source].insert(newest.position(*own)?);
                } else {
                    dead[*source].insert(position);
                }
            }
        }
        let mut base = DeadRows::default();
        for (fragment, dead) in fragments.iter().zip(&dead) {
            base.set(fragment.id, dead.clone())?;
        }
        let beaten_by_older = beaten.split_off(first_above);
        let ids = fragments.iter().map(|fragment| fragment.id);
        let beaten_by_base = ids.zip(beaten).collect();
        Ok(Self { base, older: dead.split_off(first_above), beaten_by_base, beaten_by_older })
    }
}

/// The choice among all rows, and with `notes` what becomes of remembered deletes.
fn choose(compared: &ComparedRows, notes: bool) -> Result<(ChosenRows, GraveChanges)> {
    let ComparedRows { above, fragments, rule, .. } = compared;
    let ChosenGroups { groups, winners, first_above } = compared.choose()?;
    let rows = compared.ordinals().into_iter().map(<[u32]>::len);
    let mut wins: Vec<Vec<bool>> = rows.map(|rows| vec![false; rows]).collect();
    for (source, row) in winners.rows() {
        wins[*source][*row] = true;
    }
    let changes = if notes {
        let winners = groups.ordinals().iter().copied().zip(winners.rows().iter().copied());
        let above = winners.filter_map(|(number, (source, row))| {
            Some((number, source.checked_sub(first_above)?, row))
        });
        compared.changes(above, &wins[fragments.len()])?
    } else {
        GraveChanges::none(rule)
    };
    let mask = compared.mask(&wins[..fragments.len()], &wins[first_above..])?;
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

impl ComparedRows {
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
        let mut changes = GraveChanges::none(&self.rule);
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
#[must_use]
pub fn live_rows(snapshot: &Snapshot, mask: &SnapshotMask) -> Option<usize> {
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
