//! The rows that a text query finds in one snapshot, the best first.
//!
//! Owns: [`Candidates`]: scores and places of all found rows, and their reading in pieces, each in
//! the order of scores and then of keys.
//! Does not own: scores (`scoring`, `index_scores`).

use std::sync::Arc;

use arrow::compute::{concat_batches, interleave_record_batch, take_record_batch};
use arrow_array::{ArrayRef, Float32Array, RecordBatch, RecordBatchOptions, UInt32Array};
use lance::dataset::{ProjectionRequest, TakeBuilder};
use lancemem_core::format::KeyEncoder;
use lancemem_core::types::{Error, Result};

use super::index_scores::IndexedText;
use super::layout::TextLayout;
use super::memory::MemoryText;
use crate::errors::Context;
use crate::plan::columns_of;

const READING: &str = "reading the rows of a full-text search";

/// The found rows.
#[derive(Debug)]
pub(super) struct Candidates {
    layout: Arc<TextLayout>,
    indexed: Vec<IndexedText>,
    memory: Vec<MemoryText>,
    /// Rows of sources without an index, in batches.
    flat: Vec<RecordBatch>,
    /// All found rows, the best first.
    ranked: Vec<Candidate>,
    /// How many of them have been read.
    read: usize,
}

/// A found row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub score: f32,
    pub place: Place,
}

/// Where a found row is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
    /// In a batch of rows without an index.
    Flat { batch: usize, row: usize },
    /// In an indexed source, at a row address.
    Indexed { source: usize, address: u64 },
    /// In an indexed MemTable, at the position of a row.
    Memory { source: usize, position: u32 },
}

impl Candidates {
    pub fn new(
        layout: Arc<TextLayout>,
        (indexed, memory): (Vec<IndexedText>, Vec<MemoryText>),
        flat: Vec<RecordBatch>,
        mut ranked: Vec<Candidate>,
    ) -> Self {
        ranked.sort_unstable_by(|one, other| other.score.total_cmp(&one.score));
        Self { layout, indexed, memory, flat, ranked, read: 0 }
    }

    /// At least `count` of the next rows, and with them all rows of the last one's score, so that
    /// keys decide among those; fewer at the end, and `None` after it.
    pub async fn next(&mut self, count: usize) -> Result<Option<RecordBatch>> {
        let left = &self.ranked[self.read..];
        let Some(last) = left.get(count.clamp(1, left.len().max(1)) - 1) else { return Ok(None) };
        let ties = left
            .iter()
            .skip(count)
            .take_while(|it| it.score.total_cmp(&last.score).is_eq())
            .count();
        let piece = &left[..count.min(left.len()) + ties];
        let rows = self.rows_of(piece).await?;
        self.read += piece.len();
        self.in_order(&rows).map(Some)
    }

    /// The rows of `piece` with their scores, in the order of their places.
    async fn rows_of(&self, piece: &[Candidate]) -> Result<RecordBatch> {
        let mut parts = Vec::with_capacity(1 + self.indexed.len());
        let (mut flat, mut scores) = (Vec::new(), Vec::new());
        let mut addresses = vec![(Vec::new(), Vec::new()); self.indexed.len()];
        let mut positions = vec![(Vec::new(), Vec::new()); self.memory.len()];
        for Candidate { score, place } in piece {
            match *place {
                Place::Flat { batch, row } => {
                    flat.push((batch, row));
                    scores.push(*score);
                }
                Place::Indexed { source, address } => {
                    addresses[source].0.push(address);
                    addresses[source].1.push(*score);
                }
                Place::Memory { source, position } => {
                    positions[source].0.push(position);
                    positions[source].1.push(*score);
                }
            }
        }
        if !flat.is_empty() {
            let batches: Vec<&RecordBatch> = self.flat.iter().collect();
            let rows = interleave_record_batch(&batches, &flat).context(READING)?;
            parts.push(self.scored(&rows, scores)?);
        }
        for (source, (addresses, scores)) in self.indexed.iter().zip(addresses) {
            if !addresses.is_empty() {
                parts.push(self.scored(&self.taken(source, addresses).await?, scores)?);
            }
        }
        for (source, (positions, scores)) in self.memory.iter().zip(positions) {
            if !positions.is_empty() {
                parts.push(self.scored(&source.take(&positions)?, scores)?);
            }
        }
        concat_batches(&self.layout.candidates(), &parts).context(READING)
    }

    async fn taken(&self, source: &IndexedText, addresses: Vec<u64>) -> Result<RecordBatch> {
        let count = addresses.len();
        let columns = source.named(columns_of(&source.dataset, &self.layout.carried))?;
        let plan = ProjectionRequest::Schema(Arc::new(columns))
            .into_projection_plan(source.dataset.clone());
        let plan = Arc::new(source.named(plan)?);
        let take = TakeBuilder::try_new_from_addresses(source.dataset.clone(), addresses, plan);
        let rows = source.named(source.named(take)?.execute().await)?;
        if rows.num_rows() == count {
            return Ok(rows);
        }
        let found = rows.num_rows();
        Err(Error::internal(format!("{READING}: {source} has {found} of {count} rows")))
    }

    fn scored(&self, rows: &RecordBatch, scores: Vec<f32>) -> Result<RecordBatch> {
        let action = READING;
        let column = |name: &String| {
            let missing = || Error::internal(format!("{action}: column '{name}' was not read"));
            rows.column_by_name(name).cloned().ok_or_else(missing)
        };
        let schema = self.layout.candidates();
        let columns = self.layout.carried.iter().map(column).collect::<Result<Vec<_>>>()?;
        let scores: ArrayRef = Arc::new(Float32Array::from(scores));
        let columns = columns.into_iter().chain([scores]).zip(schema.fields());
        let columns = columns.map(|(column, field)| {
            if column.data_type() == field.data_type() {
                return Ok(column);
            }
            arrow_cast::cast(&column, field.data_type()).context(action)
        });
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
        RecordBatch::try_new_with_options(schema, columns, &options).context(action)
    }

    /// The rows by descending score; rows of one score by key.
    fn in_order(&self, rows: &RecordBatch) -> Result<RecordBatch> {
        let keys = if self.layout.key.is_empty() {
            None
        } else {
            let encoder = KeyEncoder::new(rows.schema_ref(), &self.layout.key)?;
            Some(encoder.encode_block(rows))
        };
        let scores = super::scores_of(rows)?;
        let key = |row: u32| keys.as_ref().map(|keys| keys.get(row as usize));
        let count = u32::try_from(rows.num_rows())
            .map_err(|_| Error::input("a full-text search finds more than 2^32 - 1 equal rows"))?;
        let mut order: Vec<u32> = (0..count).collect();
        order.sort_by(|one, other| {
            let scores = scores[*other as usize].total_cmp(&scores[*one as usize]);
            scores.then_with(|| key(*one).cmp(&key(*other)))
        });
        take_record_batch(rows, &UInt32Array::from(order)).context(READING)
    }
}
