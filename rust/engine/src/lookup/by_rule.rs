//! Lookups in a table whose merge rule chooses among the rows of a key.
//!
//! The newest row need not be the one that is shown, so each source is asked for each key.
//!
//! Owns: the rows of the keys of a call in every source, and the choice among them.
//! Does not own: the rule (`lancemem_core::merge`), or how one source is searched (`base`,
//! `sstables`).

use std::collections::HashSet;
use std::sync::Arc;

use arrow::compute::take_record_batch;
use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions, UInt32Array};
use futures::{FutureExt, try_join};
use lancemem_core::memtable::MemTableView;
use lancemem_core::merge::{Choosing, KeyGroups};
use lancemem_core::types::Result;

use super::pieces::{Answers, Pieces};
use super::take::{Columns, take};
use super::wanted::Wanted;
use super::{FoundRows, all, base, sstables};
use crate::errors::{Context, SsTableErrors};
use crate::schema::{StoredColumns, tombstones};
use crate::snapshot::{Snapshot, Source, SsTableHandle};
use crate::visibility::deciding_columns;

/// The action that errors name.
const LOOKING_UP: &str = "looking up keys";

/// Rows of some keys in one source.
struct Versions {
    answers: Answers,
    /// The columns that decide, a row for each row of the answers' columns.
    events: RecordBatch,
}

/// The rows of a call, in the order of their sources and of their arrival.
struct Search<'a> {
    snapshot: &'a Snapshot,
    rule: &'a Choosing,
    wanted: &'a Wanted,
    /// The columns of the result, then those of `sequence_by` that it lacks.
    columns: Columns,
}

/// The rows of the keys `wanted` that `rule` shows, with the columns `columns`.
///
/// # Errors
/// As [`super::find`].
pub(super) async fn find(
    snapshot: &Snapshot,
    rule: &Choosing,
    wanted: &Wanted,
    columns: &[String],
) -> Result<FoundRows> {
    let result = Columns::of(snapshot, columns)?;
    let sequence = rule.sequence().iter().filter(|name| !columns.contains(name));
    let read: Vec<String> = columns.iter().chain(sequence).cloned().collect();
    let search = Search { snapshot, rule, wanted, columns: Columns::of(snapshot, &read)? };
    let rows = wanted.distinct();
    let (of_base, above) = try_join!(search.in_base(&rows), search.above(&rows))?;
    let graves = search.graves(&of_base, &above).await?;
    let versions: Vec<Versions> = of_base.into_iter().chain(graves).chain(above).collect();
    search.chosen(versions, &rows)?.finish(&result, wanted)
}

impl Search<'_> {
    async fn in_base(&self, rows: &[u32]) -> Result<Vec<Versions>> {
        let found = base::find(self.snapshot, self.wanted, &self.columns, rows).await?;
        let versions = found.into_iter().map(|answers| {
            let rows = self.named(&answers.columns, Self::count(&answers))?;
            Ok(Versions { events: self.rule.base_events(&rows)?, answers })
        });
        versions.collect()
    }

    /// The rows of all sources above the base table, in the order of the snapshot.
    async fn above(&self, rows: &[u32]) -> Result<Vec<Versions>> {
        let asks = self.snapshot.sources().map(|(_, source)| match source {
            Source::SsTable(sstable) => self.in_sstable(sstable, rows).boxed(),
            Source::MemTable(memtable) => {
                let found = self.in_memtable(memtable, rows);
                async move { found }.boxed()
            }
        });
        Ok(all(asks.collect()).await?.into_iter().flatten().collect())
    }

    fn in_memtable(&self, memtable: &MemTableView, rows: &[u32]) -> Result<Vec<Versions>> {
        // Batches arrive in order, and so do the rows of a batch.
        let mut by_batch = std::collections::BTreeMap::<usize, Vec<(u32, usize)>>::new();
        for row in rows {
            memtable.versions(self.wanted.key(*row), |position| {
                let (batch, place) = memtable.place(position);
                by_batch.entry(batch).or_default().push((*row, place));
            });
        }
        let columns = self.columns.in_memtable(memtable)?;
        let deciding = StoredColumns::of(
            memtable.schema(),
            &self.snapshot.columns,
            &deciding_columns(self.rule),
        )?;
        let versions = by_batch.into_iter().map(|(batch, mut of)| {
            of.sort_unstable_by_key(|(_, place)| *place);
            let batch = memtable.batch(batch);
            let columns = columns.bring(batch)?.columns().to_vec();
            let events = self.rule.events(&deciding.bring(batch)?)?;
            Ok(Versions { answers: Answers { columns, of }, events })
        });
        versions.collect()
    }

    async fn in_sstable(&self, sstable: &SsTableHandle, rows: &[u32]) -> Result<Vec<Versions>> {
        let mut rows = sstables::shown_rows(sstable, self.snapshot, self.wanted, rows).await?;
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        rows.sort_unstable_by_key(|(_, position)| *position);
        let offsets: Vec<u32> = rows.iter().map(|(_, position)| *position).collect();
        let name = sstable.name();
        let columns = self.columns.with_events(sstable, &deciding_columns(self.rule))?;
        let read = columns.read();
        let taken = take(&sstable.row_readers, &sstable.dataset, 0, &offsets, read).await;
        let mut rows = rows.as_slice();
        let mut versions = Vec::new();
        for taken in taken.in_sstable(&name)? {
            let (of_taken, behind) = rows.split_at(taken.num_rows());
            let of = of_taken.iter().zip(0..).map(|((row, _), place)| (*row, place)).collect();
            let (columns, events) = columns.result(&taken)?;
            let events = self.rule.events(&events)?;
            versions.push(Versions { answers: Answers { columns, of }, events });
            rows = behind;
        }
        Ok(versions)
    }

    /// The remembered deletes of keys that have rows above the base table and none in it.
    async fn graves(&self, of_base: &[Versions], above: &[Versions]) -> Result<Option<Versions>> {
        let rows = |of: &[Versions]| -> HashSet<u32> {
            of.iter().flat_map(|it| &it.answers.of).map(|(row, _)| *row).collect()
        };
        let asked = &rows(above) - &rows(of_base);
        if asked.is_empty() {
            return Ok(None);
        }
        let Some(graves) = self.snapshot.graves().await? else { return Ok(None) };
        let find = |row: u32| Some((row, graves.find(self.wanted.key(row))?));
        let (of, places): (Vec<u32>, Vec<u32>) = asked.into_iter().filter_map(find).unzip();
        if of.is_empty() {
            return Ok(None);
        }
        let events = take_record_batch(graves.events(), &UInt32Array::from(places));
        let of = of.into_iter().zip(0..).collect();
        // A delete is never shown, so it needs no columns.
        let answers = Answers { columns: Vec::new(), of };
        Ok(Some(Versions { answers, events: events.context(LOOKING_UP)? }))
    }

    /// The rows that the rule shows; a delete that wins leaves its key without a row.
    fn chosen(&self, versions: Vec<Versions>, rows: &[u32]) -> Result<Pieces> {
        let mut of_key: Vec<Vec<(usize, usize)>> = vec![Vec::new(); self.wanted.len()];
        for (source, of) in versions.iter().enumerate() {
            for (row, place) in &of.answers.of {
                of_key[*row as usize].push((source, *place));
            }
        }
        let (mut offsets, mut candidates, mut keys) = (vec![0], Vec::new(), Vec::new());
        for row in rows {
            let found = std::mem::take(&mut of_key[*row as usize]);
            if !found.is_empty() {
                candidates.extend(found);
                offsets.push(candidates.len());
                keys.push(*row);
            }
        }
        let events: Vec<RecordBatch> = versions.iter().map(|of| of.events.clone()).collect();
        let mut pieces = Pieces::new(self.wanted.len());
        let mut shown: Vec<Vec<(u32, usize)>> = vec![Vec::new(); versions.len()];
        if !keys.is_empty() {
            let groups = KeyGroups::new(offsets, candidates)?;
            let winners = self.rule.winners(&events, &groups)?;
            for (key, (source, place)) in keys.iter().zip(winners.rows()) {
                if !tombstones(&events[*source], LOOKING_UP)?.value(*place) {
                    shown[*source].push((*key, *place));
                }
            }
        }
        for (of, shown) in versions.into_iter().zip(shown).filter(|(_, shown)| !shown.is_empty()) {
            pieces.add(Answers { columns: of.answers.columns, of: shown });
        }
        Ok(pieces)
    }

    /// The columns that were read, under their names.
    fn named(&self, columns: &[ArrayRef], rows: usize) -> Result<RecordBatch> {
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let schema = self.columns.stored_schema();
        RecordBatch::try_new_with_options(Arc::new(nullable(schema)), columns.to_vec(), &options)
            .context(LOOKING_UP)
    }

    /// Rows that the answers' columns have.
    fn count(answers: &Answers) -> usize {
        let named = answers.of.iter().map(|(_, place)| place + 1).max();
        answers.columns.first().map_or(named.unwrap_or_default(), |column| column.len())
    }
}

/// The same columns, nullable.
fn nullable(schema: &arrow_schema::Schema) -> arrow_schema::Schema {
    let fields = schema.fields().iter().map(|field| field.as_ref().clone().with_nullable(true));
    arrow_schema::Schema::new(fields.collect::<Vec<_>>())
}
