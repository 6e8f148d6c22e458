//! Coalescing of small batches before encoding.
//!
//! Owns: which neighbouring batches are concatenated. A small batch costs an encoder as much as a
//! large one, and a MemTable of one-row puts has as many batches as rows.
//! Does not own: pages, which the encoder forms; large batches, which pass unchanged.

use arrow_array::RecordBatch;
use arrow_schema::ArrowError;
use arrow_select::concat::concat_batches;

/// Rows from which a batch is large: the rows of a page of a key index.
const LARGE_ROWS: usize = 8_192;
/// Bytes from which a batch is large: copying more costs more than it saves.
const LARGE_BYTES: usize = 1 << 20;

/// The same rows in the same order, in larger batches. At most one concatenated batch exists at a
/// time.
pub struct Chunks<I> {
    batches: I,
    /// A large batch that waits until the small ones before it have been returned.
    large: Option<RecordBatch>,
}

impl<I: Iterator<Item = RecordBatch>> Chunks<I> {
    /// The same rows as `batches`.
    pub fn of(batches: impl IntoIterator<IntoIter = I>) -> Self {
        Self { batches: batches.into_iter(), large: None }
    }
}

impl<I: Iterator<Item = RecordBatch>> Iterator for Chunks<I> {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(large) = self.large.take() {
            return Some(Ok(large));
        }
        let mut small = Vec::new();
        let (mut rows, mut bytes) = (0, 0);
        while rows < LARGE_ROWS && bytes < LARGE_BYTES {
            let Some(batch) = self.batches.next() else { break };
            let batch_bytes = window_bytes(&batch);
            if batch.num_rows() >= LARGE_ROWS || batch_bytes >= LARGE_BYTES {
                self.large = Some(batch);
                break;
            }
            rows += batch.num_rows();
            bytes += batch_bytes;
            small.push(batch);
        }
        match small.len() {
            0 => self.large.take().map(Ok),
            1 => small.pop().map(Ok),
            _ => Some(concat_batches(&small[0].schema(), &small)),
        }
    }
}

/// Bytes of a batch's own rows, not of the buffers that it may share with others.
pub(super) fn window_bytes(batch: &RecordBatch) -> usize {
    let bytes = batch.columns().iter().map(|column| {
        let data = column.to_data();
        data.get_slice_memory_size().unwrap_or_else(|_| data.get_array_memory_size())
    });
    bytes.sum()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::cast::AsArray;
    use arrow_array::types::Int64Type;
    use arrow_array::{ArrayRef, Int64Array, StringArray};

    use super::*;

    fn batch(ids: std::ops::Range<i64>) -> RecordBatch {
        let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(ids));
        RecordBatch::try_from_iter([("id", ids)]).unwrap()
    }

    fn chunks(batches: Vec<RecordBatch>) -> Vec<RecordBatch> {
        Chunks::of(batches).map(Result::unwrap).collect()
    }

    #[test]
    fn small_batches_go_together_and_large_ones_pass_in_their_place() {
        let sizes = [1, 2, 9_000, 0, 3, 8_192, 8_191, 1, 1];
        let mut start = 0;
        let batches = sizes.map(|rows| {
            start += rows;
            batch(start - rows..start)
        });
        let large = batches[2].column(0).to_data().buffers()[0].as_ptr();
        let chunks = chunks(batches.to_vec());
        let rows: Vec<usize> = chunks.iter().map(RecordBatch::num_rows).collect();
        assert_eq!(rows, [3, 9_000, 3, 8_192, 8_192, 1]);
        let ids: Vec<i64> = chunks
            .iter()
            .flat_map(|chunk| chunk.column(0).as_primitive::<Int64Type>().values().to_vec())
            .collect();
        assert_eq!(ids, (0..start).collect::<Vec<_>>());
        assert_eq!(chunks[1].column(0).to_data().buffers()[0].as_ptr(), large, "not copied");
    }

    #[test]
    fn a_few_wide_rows_are_large() {
        let wide = |bytes: usize| {
            let text: ArrayRef = Arc::new(StringArray::from(vec!["x".repeat(bytes)]));
            RecordBatch::try_from_iter([("text", text)]).unwrap()
        };
        let rows: Vec<usize> =
            chunks(vec![wide(10), wide(2 << 20), wide(600_000), wide(600_000), wide(10)])
                .iter()
                .map(RecordBatch::num_rows)
                .collect();
        assert_eq!(rows, [1, 1, 2, 1]);
    }

    #[test]
    fn no_batches_are_no_chunks() {
        assert!(chunks(Vec::new()).is_empty());
    }
}
