//! One reader's picture of a MemTable.
//!
//! Owns: the prefix of batches that the reader may see, and the choice of the newest row a key.
//! Does not own: other sources of the same keys.

use std::sync::{Arc, OnceLock};

use arrow_array::{BooleanArray, RecordBatch};
use arrow_schema::SchemaRef;

use super::{MemTable, PlacedBatch};
use crate::types::{Generation, KeyBytes, RowPosition};

/// A prefix of a MemTable's batches; it never changes, whatever is pushed later.
#[derive(Clone, Debug)]
pub struct MemTableView {
    memtable: Arc<MemTable>,
    batches: Arc<[PlacedBatch]>,
    newest: Arc<OnceLock<BooleanArray>>,
}

impl MemTableView {
    pub(super) fn new(memtable: Arc<MemTable>, batches: Vec<PlacedBatch>) -> Self {
        Self { memtable, batches: batches.into(), newest: Arc::default() }
    }

    /// The generation of the rows.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.memtable.generation()
    }

    /// The storage schema of the rows.
    #[must_use]
    pub fn schema(&self) -> &SchemaRef {
        self.memtable.schema()
    }

    /// Rows in the view, those that are superseded within it included.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.batches.last().map_or(0, PlacedBatch::end)
    }

    /// The batches in arrival order.
    pub fn batches(&self) -> impl ExactSizeIterator<Item = &RecordBatch> {
        self.batches.iter().map(|placed| &placed.batch)
    }

    /// The batch at `index`, counted from 0 in arrival order.
    ///
    /// # Panics
    /// Where the view has no such batch.
    #[must_use]
    pub fn batch(&self, index: usize) -> &RecordBatch {
        &self.batches[index].batch
    }

    /// The position of the newest row of `key`.
    #[must_use]
    pub fn newest(&self, key: &KeyBytes) -> Option<RowPosition> {
        self.memtable.index.newest(key, self.rows()).map(RowPosition)
    }

    /// The batch that holds `position`, and the row inside it.
    ///
    /// # Panics
    /// Where the view has no such row.
    #[must_use]
    pub fn locate(&self, position: RowPosition) -> (&RecordBatch, usize) {
        let row = position.0 as usize;
        let after = self.batches.partition_point(|placed| placed.first_row <= row);
        let placed = &self.batches[after - 1];
        assert!(row < placed.end(), "row {row} is outside the view");
        (&placed.batch, row - placed.first_row)
    }

    /// For every row whether it is the newest of its key; all rows where there is no key.
    #[must_use]
    pub fn newest_rows(&self) -> &BooleanArray {
        self.newest.get_or_init(|| {
            if !self.memtable.has_key {
                return BooleanArray::from(vec![true; self.rows()]);
            }
            let mut newest = vec![false; self.rows()];
            self.for_each_newest(|_, position| newest[position.0 as usize] = true);
            BooleanArray::from(newest)
        })
    }

    /// The part of [`Self::newest_rows`] that covers the batch at `index`.
    #[must_use]
    pub fn newest_rows_of_batch(&self, index: usize) -> BooleanArray {
        let placed = &self.batches[index];
        self.newest_rows().slice(placed.first_row, placed.batch.num_rows())
    }

    /// Visits every key once, ascending, with the position of its newest row.
    pub fn for_each_newest(&self, mut visit: impl FnMut(&KeyBytes, RowPosition)) {
        let mut previous: Option<KeyBytes> = None;
        self.memtable.index.visit(self.rows(), |key, position| {
            if previous.as_ref() != Some(key) {
                visit(key, RowPosition(position));
                previous = Some(key.clone());
            }
        });
    }

    /// Positions of all rows, keys ascending and positions of one key ascending: the order of
    /// a flushed run's key index. Empty where there is no key.
    #[must_use]
    pub fn rows_by_key(&self) -> Vec<u32> {
        let mut rows = Vec::with_capacity(self.rows());
        let mut run_start = 0;
        let mut previous: Option<KeyBytes> = None;
        self.memtable.index.visit(self.rows(), |key, position| {
            if previous.as_ref() != Some(key) {
                rows[run_start..].reverse();
                run_start = rows.len();
                previous = Some(key.clone());
            }
            rows.push(position);
        });
        rows[run_start..].reverse();
        rows
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use arrow_array::Int64Array;
    use proptest::prelude::*;

    use super::*;

    fn push(memtable: &MemTable, ids: &[i64]) {
        let batch = RecordBatch::try_new(
            memtable.schema().clone(),
            vec![Arc::new(Int64Array::from(ids.to_vec()))],
        )
        .unwrap();
        let keys = ids.iter().map(|id| KeyBytes::new(&id.to_be_bytes())).collect();
        memtable.push(batch, keys);
    }

    fn memtable() -> Arc<MemTable> {
        let field = arrow_schema::Field::new("id", arrow_schema::DataType::Int64, false);
        let schema = arrow_schema::Schema::new(vec![field]);
        Arc::new(MemTable::new(Generation(1), Arc::new(schema), true))
    }

    #[test]
    fn a_view_does_not_see_what_is_pushed_after_it_was_taken() {
        let memtable = memtable();
        push(&memtable, &[1, 2]);
        let view = memtable.view(1);
        push(&memtable, &[1]);
        assert_eq!(view.rows(), 2);
        assert_eq!(view.newest_rows(), &BooleanArray::from(vec![true, true]));
        assert_eq!(memtable.view(2).newest_rows(), &BooleanArray::from(vec![false, true, true]));
    }

    proptest! {
        #[test]
        fn the_newest_row_of_every_key_is_the_last_one_pushed(
            batches in prop::collection::vec(prop::collection::vec(0_i64..20, 1..8), 1..12),
            visible in 0_usize..12,
        ) {
            let memtable = memtable();
            for batch in &batches {
                push(&memtable, batch);
            }
            let view = memtable.view(visible);
            let seen: Vec<i64> = batches.iter().take(visible).flatten().copied().collect();
            let model: BTreeMap<i64, u32> =
                seen.iter().enumerate().map(|(row, id)| (*id, u32::try_from(row).unwrap())).collect();
            for id in 0..20_i64 {
                let found = view.newest(&KeyBytes::new(&id.to_be_bytes())).map(|row| row.0);
                prop_assert_eq!(found, model.get(&id).copied());
            }
            let mut sorted: Vec<u32> = (0..u32::try_from(seen.len()).unwrap()).collect();
            sorted.sort_by_key(|row| (seen[*row as usize], *row));
            prop_assert_eq!(view.rows_by_key(), sorted);
        }
    }
}
