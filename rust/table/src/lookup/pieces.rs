//! The rows of an answer, where they were found.
//!
//! Owns: which row of which batch answers for each key, and the result in the order of the call.
//! Does not own: the search.

use arrow::compute::interleave;
use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::SchemaRef;
use lancemem_core::types::Result;

use super::Found;
use super::wanted::Wanted;
use crate::errors::Context;

/// The result's columns of some rows, and the rows of the call that they answer.
pub(super) struct Answers {
    pub columns: Vec<ArrayRef>,
    /// Row of the call, row in `columns`.
    pub of: Vec<(u32, usize)>,
}

/// All answers so far.
pub(super) struct Pieces {
    schema: SchemaRef,
    batches: Vec<Vec<ArrayRef>>,
    /// For each row of the call that stands for its key: batch and row.
    places: Vec<Option<(usize, usize)>>,
}

impl Pieces {
    pub fn new(schema: &SchemaRef, rows: usize) -> Self {
        Self { schema: schema.clone(), batches: Vec::new(), places: vec![None; rows] }
    }

    pub fn add(&mut self, answers: Answers) {
        for (row, place) in answers.of {
            self.places[row as usize] = Some((self.batches.len(), place));
        }
        self.batches.push(answers.columns);
    }

    pub fn finish(self, wanted: &Wanted) -> Result<Found> {
        let action = "gathering the rows of a lookup";
        let mut taken = Vec::with_capacity(wanted.len());
        let mut missing = Vec::new();
        for row in (0_u32..).take(wanted.len()) {
            let stands_for_it = wanted.row_of(wanted.key(row)).unwrap_or(row);
            match self.places[stands_for_it as usize] {
                Some(place) => taken.push(place),
                None => missing.push(row as usize),
            }
        }
        if taken.is_empty() {
            return Ok(Found { rows: RecordBatch::new_empty(self.schema), missing });
        }
        let gather = |column: usize| {
            let arrays: Vec<_> = self.batches.iter().map(|batch| batch[column].as_ref()).collect();
            interleave(&arrays, &taken).context(action)
        };
        let columns = (0..self.schema.fields().len()).map(gather);
        let columns = columns.collect::<Result<Vec<ArrayRef>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(taken.len()));
        let rows = RecordBatch::try_new_with_options(self.schema.clone(), columns, &options);
        Ok(Found { rows: rows.context(action)?, missing })
    }
}
