//! Rows in memory, found by an index of their words.
//!
//! Owns: [`MemoryText`], a MemTable of which a full-text search reads its indexes instead of rows.
//! Does not own: the indexes (`memory_indexes`), or small MemTables, which are read (`flat`).

use std::collections::HashMap;
use std::fmt;
use std::num::NonZero;
use std::sync::Arc;

use arrow::compute::{concat_batches, take_record_batch};
use arrow_array::{RecordBatch, UInt32Array};
use arrow_buffer::BooleanBuffer;
use lancemem_core::memtable::{MemTableView, SecondaryIndex};
use lancemem_core::types::{Error, Result, RowPosition};
use parking_lot::RwLockReadGuard;

use super::analysis::Analysis;
use super::documents::{Evidence, Row};
use super::scoring::Statistics;
use crate::errors::Context;
use crate::memory_indexes::{MakeTexts, MemoryTexts, Terms};
use crate::schema::StoredColumns;

const READING: &str = "reading rows in memory";
/// Rows of a MemTable below which counting its words takes no longer than an index saves.
const MIN_ROWS: usize = 2_000;

/// The newest MemTable of a shard, with an index of every text column of a search.
#[derive(Clone, Debug)]
pub(super) struct MemoryText {
    view: MemTableView,
    makers: Arc<[Arc<MakeTexts>]>,
    /// The columns of the candidates in its rows.
    columns: Arc<StoredColumns>,
}

/// The rows of a MemTable that have a term of a query.
#[derive(Debug)]
pub(super) struct FoundInMemory {
    pub statistics: Statistics,
    /// Positions of the rows.
    pub rows: Vec<u32>,
    pub evidence: Evidence,
}

impl fmt::Display for MemoryText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "generation={} by index in memory, rows={}",
            self.view.generation(),
            self.view.rows()
        )
    }
}

impl MemoryText {
    /// A MemTable by its indexes; `None` for a small one, and for one of an older schema. No other
    /// source of its shard is newer.
    pub fn of(
        view: &MemTableView,
        makers: &Arc<[Arc<MakeTexts>]>,
        columns: StoredColumns,
    ) -> Option<Self> {
        (view.rows() >= MIN_ROWS && columns.is_same()).then(|| Self {
            view: view.clone(),
            makers: makers.clone(),
            columns: Arc::new(columns),
        })
    }

    /// The rows that have a term, with the statistics of all newest rows. May block: this thread
    /// indexes the rows that no other one has.
    pub fn find(&self, analysis: &Analysis) -> Result<FoundInMemory> {
        let missing = || Error::internal("a MemTable has no index of a text column");
        let indexes = self.makers.iter().map(|maker| self.view.secondary(maker.as_ref()));
        let indexes: Vec<Arc<dyn SecondaryIndex>> =
            indexes.collect::<Option<_>>().ok_or_else(missing)?;
        let texts = indexes.iter().map(|index| index.as_any().downcast_ref::<MemoryTexts>());
        let texts: Vec<&MemoryTexts> = texts.collect::<Option<_>>().ok_or_else(missing)?;
        let terms: Vec<_> = texts.iter().map(|texts| texts.terms()).collect();
        let newest = self.view.newest_rows().values();
        let mut statistics = Statistics::none(analysis);
        for (of, statistics) in terms.iter().zip(&mut statistics.columns) {
            let live = newest.set_indices().map(|row| of.lengths[row]).filter(|length| *length > 0);
            for length in live {
                statistics.rows += 1;
                statistics.total_terms += u64::from(length);
            }
        }
        let found = Found::of(analysis, &terms, newest, &mut statistics);
        let evidence = found.evidence(analysis, &terms);
        Ok(FoundInMemory { statistics, rows: found.rows, evidence })
    }

    /// The rows at `positions`, in their order, with the columns of the candidates.
    pub fn take(&self, positions: &[u32]) -> Result<RecordBatch> {
        let places = positions.iter().map(|position| self.view.place(RowPosition(*position)));
        let mut of_batches: Vec<(usize, Vec<u32>, Vec<usize>)> = Vec::new();
        let mut known: HashMap<usize, usize> = HashMap::new();
        for (order, (batch, row)) in places.enumerate() {
            let place = *known.entry(batch).or_insert_with(|| {
                of_batches.push((batch, Vec::new(), Vec::new()));
                of_batches.len() - 1
            });
            let row =
                u32::try_from(row).map_err(|_| Error::internal("a batch has too many rows"))?;
            of_batches[place].1.push(row);
            of_batches[place].2.push(order);
        }
        let mut parts = Vec::with_capacity(of_batches.len());
        let mut order = Vec::with_capacity(positions.len());
        for (batch, rows, places) in of_batches {
            let brought = self.columns.bring(self.view.batch(batch))?;
            parts.push(take_record_batch(&brought, &UInt32Array::from(rows)).context(READING)?);
            order.extend(places);
        }
        let gathered = concat_batches(&self.columns.schema, &parts).context(READING)?;
        let mut back = vec![0_u32; order.len()];
        for (from, to) in (0_u32..).zip(order) {
            back[to] = from;
        }
        take_record_batch(&gathered, &UInt32Array::from(back)).context(READING)
    }
}

/// The rows that have a term of a query, and how often.
struct Found {
    rows: Vec<u32>,
    /// For each row, the occurrences of each term, and the place of the first position of each.
    occurrences: Vec<u32>,
    first_positions: Vec<u32>,
}

impl Found {
    /// The live rows with a term; counts them in `statistics`.
    fn of(
        analysis: &Analysis,
        terms: &[RwLockReadGuard<'_, Terms>],
        newest: &BooleanBuffer,
        statistics: &mut Statistics,
    ) -> Self {
        let (mut rows, mut occurrences, mut first_positions) = (Vec::new(), Vec::new(), Vec::new());
        // The place of each row of the MemTable among `rows`, which is dense and cheaper to look up
        // than a hash table.
        let mut places: Vec<Option<NonZero<usize>>> = vec![None; newest.len()];
        for (column, of) in analysis.columns.iter().enumerate() {
            for (number, term) in of.terms.iter().enumerate() {
                let (postings, _) = terms[column].postings(term, newest.len());
                for posting in postings.iter().filter(|it| newest.value(it.row as usize)) {
                    let place = &mut places[posting.row as usize];
                    if place.is_none() {
                        rows.push(posting.row);
                        occurrences.resize(rows.len() * analysis.terms, 0);
                        first_positions.resize(rows.len() * analysis.terms, 0);
                        *place = NonZero::new(rows.len());
                    }
                    let place = place.map_or(0, |place| place.get() - 1);
                    let place = place * analysis.terms + of.first_term + number;
                    occurrences[place] = posting.occurrences;
                    first_positions[place] = posting.first_position;
                    statistics.columns[column].rows_with[number] += 1;
                }
            }
        }
        Self { rows, occurrences, first_positions }
    }

    fn evidence(&self, analysis: &Analysis, terms: &[RwLockReadGuard<'_, Terms>]) -> Evidence {
        let mut evidence = Evidence::default();
        let mut row = Row::new(analysis);
        for (place, position) in self.rows.iter().enumerate() {
            row.clear();
            let of_row = place * analysis.terms..(place + 1) * analysis.terms;
            row.occurrences.copy_from_slice(&self.occurrences[of_row.clone()]);
            let first_positions = &self.first_positions[of_row];
            for (column, of) in analysis.columns.iter().enumerate() {
                row.lengths[column] = terms[column].lengths[*position as usize];
                if !of.needs_positions {
                    continue;
                }
                for (number, term) in of.terms.iter().enumerate() {
                    let number = of.first_term + number;
                    let first = first_positions[number] as usize;
                    let (_, positions) = terms[column].postings(term, 0);
                    let count = row.occurrences[number] as usize;
                    row.positions[number]
                        .extend(positions.get(first..first + count).unwrap_or_default());
                }
            }
            evidence.push(&row);
        }
        evidence
    }
}
