//! Rows without an index, counted by their text.
//!
//! Owns: [`Counted`]: how often the terms of a query occur in each row of a batch that has one, the
//! length of its texts, and whether it has the phrases of the query; with the statistics of all
//! rows of the batch.
//! Does not own: tokenizers (`analysis`), or scores (`scoring`).

use arrow::compute::take_record_batch;
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch, UInt32Array};
use arrow_cast::cast;
use arrow_schema::DataType;
use lance_index::scalar::inverted::document_tokenizer::LanceTokenizer;
use lancemem_core::types::{Error, Result};

use super::analysis::{Analysis, TextColumn};
use super::phrase;
use super::scoring::{Scorers, Statistics};
use crate::errors::Context;

const COUNTING: &str = "counting the words of rows";

/// The counted rows of one batch.
#[derive(Debug)]
pub(super) struct Counted {
    /// The statistics of all rows of the batch.
    pub statistics: Statistics,
    /// The rows that have a term of the query.
    pub rows: RecordBatch,
    pub evidence: Evidence,
}

/// What the scores of rows need, row after row.
#[derive(Debug, Default)]
pub(super) struct Evidence {
    /// Terms of each text column.
    lengths: Vec<u32>,
    /// Occurrences of each term of the query.
    occurrences: Vec<u32>,
    /// For each leaf, whether the row has its phrase.
    phrases: Vec<bool>,
}

/// The words of one row.
pub(super) struct Row<'a> {
    analysis: &'a Analysis,
    /// Terms of each text column.
    pub lengths: Vec<u32>,
    /// Occurrences of each term of the query.
    pub occurrences: Vec<u32>,
    /// Positions of each term, where a phrase needs them.
    pub positions: Vec<Vec<u32>>,
}

impl Counted {
    /// Counts the rows of `batch`, whose text columns have their names.
    ///
    /// # Errors
    /// An input error for a text with more words than a score can count.
    pub fn of(analysis: &Analysis, batch: &RecordBatch) -> Result<Self> {
        let texts = analysis.columns.iter().map(|column| texts(column, batch));
        let texts = texts.collect::<Result<Vec<_>>>()?;
        let mut tokenizers: Vec<_> =
            analysis.columns.iter().map(|it| it.tokenizer.clone()).collect();
        let mut statistics = Statistics::none(analysis);
        let (mut found, mut evidence) = (Vec::new(), Evidence::default());
        let mut row = Row::new(analysis);
        for place in 0..batch.num_rows() {
            row.clear();
            for (column, tokenizer) in tokenizers.iter_mut().enumerate() {
                if texts[column].is_valid(place) {
                    row.count(column, texts[column].as_string::<i64>().value(place), tokenizer)?;
                }
            }
            row.add_to(&mut statistics);
            if row.occurrences.iter().any(|count| *count > 0) {
                found.push(u32::try_from(place).map_err(|_| too_long("a batch"))?);
                evidence.push(&row);
            }
        }
        let rows = take_record_batch(batch, &UInt32Array::from(found)).context(COUNTING)?;
        Ok(Self { statistics, rows, evidence })
    }
}

impl Evidence {
    /// The score of each of `rows` rows; `None` where the query does not find it.
    pub fn scores(&self, rows: usize, analysis: &Analysis, scorers: &Scorers) -> Vec<Option<f32>> {
        let Self { lengths, occurrences, phrases } = self;
        let score = |row: usize| {
            let lengths = &lengths[row * analysis.columns.len()..];
            let occurrences = &occurrences[row * analysis.terms..][..analysis.terms];
            let phrases = &phrases[row * analysis.leaves.len()..];
            analysis.tree.score(&|number| {
                let leaf = &analysis.leaves[number];
                let length = lengths[leaf.column];
                let score = scorers.leaf(analysis, leaf, length, occurrences, phrases[number]);
                score.map(|score| score * leaf.boost)
            })
        };
        (0..rows).map(score).collect()
    }

    /// Adds the next row.
    pub fn push(&mut self, row: &Row<'_>) {
        self.lengths.extend(&row.lengths);
        self.occurrences.extend(&row.occurrences);
        self.phrases.extend(row.analysis.leaves.iter().map(|leaf| {
            let first = row.analysis.columns[leaf.column].first_term;
            leaf.slop.is_some_and(|slop| {
                let positions = leaf
                    .terms
                    .iter()
                    .map(|(term, position)| (row.positions[first + term].as_slice(), *position));
                phrase::is_in(&positions.collect::<Vec<_>>(), slop)
            })
        }));
    }
}

impl<'a> Row<'a> {
    /// A row without words.
    pub fn new(analysis: &'a Analysis) -> Self {
        Self {
            analysis,
            lengths: vec![0; analysis.columns.len()],
            occurrences: vec![0; analysis.terms],
            positions: vec![Vec::new(); analysis.terms],
        }
    }

    /// The row without words again.
    pub fn clear(&mut self) {
        self.lengths.fill(0);
        self.occurrences.fill(0);
        self.positions.iter_mut().for_each(Vec::clear);
    }

    fn count(
        &mut self,
        column: usize,
        text: &str,
        tokenizer: &mut Box<dyn LanceTokenizer>,
    ) -> Result<()> {
        let of = &self.analysis.columns[column];
        let mut terms = tokenizer.token_stream_for_doc(text);
        while let Some(term) = terms.next() {
            let length = &mut self.lengths[column];
            *length = length.checked_add(1).ok_or_else(|| too_long(&of.name))?;
            let Some(number) = of.numbers.get(&term.text) else { continue };
            let number = of.first_term + number;
            self.occurrences[number] += 1;
            if of.needs_positions {
                let position = u32::try_from(term.position).map_err(|_| too_long(&of.name))?;
                self.positions[number].push(position);
            }
        }
        Ok(())
    }

    fn add_to(&self, statistics: &mut Statistics) {
        let columns = self.analysis.columns.iter().zip(&mut statistics.columns);
        for ((column, statistics), length) in columns.zip(&self.lengths) {
            if *length == 0 {
                continue;
            }
            statistics.rows += 1;
            statistics.total_terms += u64::from(*length);
            let occurrences = &self.occurrences[column.first_term..];
            for (rows_with, count) in statistics.rows_with.iter_mut().zip(occurrences) {
                *rows_with += usize::from(*count > 0);
            }
        }
    }
}

/// The texts of a column, as large strings.
fn texts(column: &TextColumn, batch: &RecordBatch) -> Result<ArrayRef> {
    let found = batch.column_by_name(&column.name).ok_or_else(|| {
        Error::internal(format!("{COUNTING}: column '{}' was not read", column.name))
    })?;
    cast(found, &DataType::LargeUtf8).context(COUNTING)
}

fn too_long(what: &str) -> Error {
    Error::input(format!("full-text search: {what} has more than 2^32 - 1 words or rows"))
}
