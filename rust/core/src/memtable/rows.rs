//! The batches of a MemTable in arrival order.
//!
//! Owns: an append-only list that readers walk without a lock, and where a row stands in it.
//! Does not own: which rows are newest, or who may append: the MemTable's one writer does.

use std::sync::OnceLock;

use arrow_array::RecordBatch;

use crate::types::KeyBlock;

/// A batch with the position of its first row, and its keys once they are encoded.
#[derive(Debug)]
pub(super) struct PlacedBatch {
    pub batch: RecordBatch,
    pub first_row: usize,
    pub keys: OnceLock<KeyBlock>,
}

impl PlacedBatch {
    pub fn end(&self) -> usize {
        self.first_row + self.batch.num_rows()
    }
}

/// Where a row stands: its batch, and its place inside the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RowSlot {
    pub batch: usize,
    pub row: usize,
}

/// All batches of one MemTable.
#[derive(Debug, Default)]
pub(super) struct Rows(boxcar::Vec<PlacedBatch>);

impl Rows {
    /// Appends a batch. Only one thread may do so at a time.
    pub fn push(&self, batch: RecordBatch, keys: Option<KeyBlock>) {
        let first_row = self.rows_of(self.batches());
        let keys = keys.map_or_else(OnceLock::new, OnceLock::from);
        self.0.push(PlacedBatch { batch, first_row, keys });
    }

    pub fn batches(&self) -> usize {
        self.0.count()
    }

    /// Rows of the first `batches` batches.
    pub fn rows_of(&self, batches: usize) -> usize {
        batches.checked_sub(1).map_or(0, |last| self.get(last).end())
    }

    pub fn get(&self, batch: usize) -> &PlacedBatch {
        self.0
            .get(batch)
            .unwrap_or_else(|| unreachable!("batch {batch} was counted, so it is there"))
    }

    /// The place of a row among the first `batches` batches.
    pub fn place(&self, row: usize, batches: usize) -> RowSlot {
        let (mut low, mut high) = (0, batches);
        while high - low > 1 {
            let middle = low.midpoint(high);
            if self.get(middle).first_row <= row { low = middle } else { high = middle }
        }
        RowSlot { batch: low, row: row - self.get(low).first_row }
    }

    /// The key at a place whose batch was indexed.
    pub fn key(&self, place: RowSlot) -> &[u8] {
        let placed = self.get(place.batch);
        let keys = placed.keys.get();
        keys.unwrap_or_else(|| unreachable!("an indexed batch has its keys")).get(place.row)
    }
}
