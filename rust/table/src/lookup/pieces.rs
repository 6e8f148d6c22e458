//! The rows of an answer, where they were found.
//!
//! Owns: which row of which batch answers for each key, and the result in the order of the call.
//! Does not own: the search.

use arrow::compute::{interleave, take};
use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions, UInt32Array};
use lancemem_core::types::Result;

use super::Found;
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
    /// For each row of the call that stands for its key: batch and row.
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

    pub fn finish(self, columns: &Columns, wanted: &Wanted) -> Result<Found> {
        let action = "gathering the rows of a lookup";
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
            return Ok(Found { rows: RecordBatch::new_empty(columns.schema.clone()), missing });
        }
        let found = UInt32Array::from(found);
        let gather = |origin: &Origin| match *origin {
            Origin::Call(column) => take(wanted.batch.column(column), &found, None).context(action),
            Origin::Source(column) => {
                let arrays: Vec<_> =
                    self.batches.iter().map(|batch| batch[column].as_ref()).collect();
                interleave(&arrays, &taken).context(action)
            }
        };
        let arrays = columns.origins.iter().map(gather).collect::<Result<Vec<ArrayRef>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(taken.len()));
        let rows = RecordBatch::try_new_with_options(columns.schema.clone(), arrays, &options);
        Ok(Found { rows: rows.context(action)?, missing })
    }
}
