//! The answer of a lookup, gathered from its sources.
//!
//! Owns: which row of which batch answers each key, and the result in the order of the call.
//! Does not own: the search.

use arrow::compute::{interleave, take};
use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow_schema::ArrowError;
use lancemem_core::types::Result;

use super::FoundRows;
use super::take::{Columns, Origin};
use super::wanted::Wanted;
use crate::errors::Context;

/// The columns of some rows that are not in the call, and the rows of the call that they answer.
pub(super) struct Answers {
    pub columns: Vec<ArrayRef>,
    /// Row of the call, row in `columns`.
    pub of: Vec<(u32, usize)>,
}

/// All answers so far.
pub(super) struct Pieces {
    batches: Vec<Vec<ArrayRef>>,
    /// Batch and row, by the row of the call that represents its key.
    places: Vec<Option<(usize, usize)>>,
}

impl Pieces {
    pub fn new(rows: usize) -> Self {
        Self { batches: Vec::new(), places: vec![None; rows] }
    }

    pub fn add(&mut self, answers: Answers) {
        for (row, place) in answers.of {
            self.places[row as usize] = Some((self.batches.len(), place));
        }
        self.batches.push(answers.columns);
    }

    pub fn finish(self, columns: &Columns, wanted: &Wanted) -> Result<FoundRows> {
        let mut found = Vec::with_capacity(wanted.len());
        let mut taken = Vec::with_capacity(wanted.len());
        let mut missing = Vec::new();
        for row in (0_u32..).take(wanted.len()) {
            let stands_for_it = wanted.row_of(wanted.key(row)).unwrap_or(row);
            match self.places[stands_for_it as usize] {
                Some(place) => {
                    found.push(row);
                    taken.push(place);
                }
                None => missing.push(row as usize),
            }
        }
        if taken.is_empty() {
            let none = RecordBatch::new_empty(columns.schema.clone());
            return Ok(FoundRows { rows: vec![none], missing, keys: wanted.batch.clone() });
        }
        let rows = self.gather(columns, wanted, &found, &taken)?;
        Ok(FoundRows { rows, missing, keys: wanted.batch.clone() })
    }

    /// The rows `taken` for the rows `found` of the call, split in halves where they are too large
    /// for one batch.
    fn gather(
        &self,
        columns: &Columns,
        wanted: &Wanted,
        found: &[u32],
        taken: &[(usize, usize)],
    ) -> Result<Vec<RecordBatch>> {
        match self.gather_batch(columns, wanted, found, taken) {
            Ok(batch) => Ok(vec![batch]),
            Err(ArrowError::OffsetOverflowError(_)) if taken.len() > 1 => {
                let middle = taken.len() / 2;
                let (first, second) = (found.split_at(middle), taken.split_at(middle));
                let mut rows = self.gather(columns, wanted, first.0, second.0)?;
                rows.extend(self.gather(columns, wanted, first.1, second.1)?);
                Ok(rows)
            }
            Err(error) => Err(error).context("gathering the rows of a lookup"),
        }
    }

    fn gather_batch(
        &self,
        columns: &Columns,
        wanted: &Wanted,
        found: &[u32],
        taken: &[(usize, usize)],
    ) -> std::result::Result<RecordBatch, ArrowError> {
        let found = UInt32Array::from(found.to_vec());
        let gather = |origin: &Origin| match *origin {
            Origin::Call(column) => take(wanted.batch.column(column), &found, None),
            Origin::Source(column) => {
                let arrays: Vec<_> =
                    self.batches.iter().map(|batch| batch[column].as_ref()).collect();
                interleave(&arrays, taken)
            }
        };
        let arrays = columns.origins.iter().map(gather);
        let arrays = arrays.collect::<std::result::Result<Vec<ArrayRef>, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(taken.len()));
        RecordBatch::try_new_with_options(columns.schema.clone(), arrays, &options)
    }
}
