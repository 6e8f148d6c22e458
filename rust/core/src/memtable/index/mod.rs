//! The key index of a MemTable: the seam, and the two structures behind it.
//!
//! Owns: what an index must answer. Every answer is bounded by a row count, so that a reader
//! sees the index as of the moment when it took its view, whatever is inserted later.
//! Does not own: rows and their keys, which the MemTable lends to every call.
//!
//! Measured against each other in `benches/put.rs`; docs/decisions/0006 has the choice.

mod hash;
mod monotonic;
mod skip_list;

use std::fmt::Debug;

pub(super) use hash::HashIndex;
pub(super) use skip_list::SkipListIndex;

use super::rows::Rows;

/// Finds the rows of a key. One thread inserts at a time, any number read meanwhile.
pub(super) trait KeyIndex: Debug + Send + Sync {
    /// Adds the rows of `batch`, whose keys are encoded. Batches come in order.
    fn insert(&self, rows: &Rows, batch: usize);

    /// The newest of the first `limit` rows that has `key`.
    fn newest(&self, rows: &Rows, key: &[u8], limit: usize) -> Option<u32>;

    /// Visits those of the first `limit` rows that have `key`, newest first.
    fn versions(&self, rows: &Rows, key: &[u8], limit: usize, visit: &mut dyn FnMut(u32)) {
        let mut limit = limit;
        while let Some(row) = self.newest(rows, key, limit) {
            visit(row);
            limit = row as usize;
        }
    }

    /// Visits every one of the first `limit` rows that a later one of them supersedes.
    fn superseded(&self, rows: &Rows, limit: usize, visit: &mut dyn FnMut(u32));

    /// The first `limit` rows, keys ascending and positions of one key ascending.
    fn rows_by_key(&self, rows: &Rows, limit: usize) -> Vec<u32>;
}

pub(super) fn position(row: usize) -> u32 {
    u32::try_from(row).unwrap_or_else(|_| unreachable!("a MemTable is frozen below 2^32 rows"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use arrow_array::{RecordBatch, RecordBatchOptions};
    use arrow_schema::Schema;
    use proptest::prelude::*;

    use super::*;
    use crate::types::KeyBlock;

    fn indexes() -> [Box<dyn KeyIndex>; 2] {
        [Box::new(SkipListIndex::default()), Box::new(HashIndex::default())]
    }

    fn push(rows: &Rows, keys: &[Vec<u8>]) {
        let options = RecordBatchOptions::new().with_row_count(Some(keys.len()));
        let schema = Arc::new(Schema::empty());
        let batch = RecordBatch::try_new_with_options(schema, Vec::new(), &options).unwrap();
        let mut block = KeyBlock::default();
        for key in keys {
            block.push_with(|out| out.extend_from_slice(key));
        }
        rows.push(batch, Some(block));
    }

    proptest! {
        #[test]
        fn every_index_answers_as_a_list_of_all_rows_would(
            risen in prop::collection::vec(1_usize..10, 0..5),
            batches in prop::collection::vec(
                prop::collection::vec(prop::collection::vec(0_u8..3, 0..4), 1..40), 0..12),
            limit in 0_usize..300,
        ) {
            let mut keys = (0_u8..).map(|number| vec![number / 9, number / 3 % 3, number % 3]);
            let mut all_batches: Vec<Vec<Vec<u8>>> =
                risen.iter().map(|count| keys.by_ref().take(*count).collect()).collect();
            all_batches.extend(batches);
            let batches = all_batches;
            let rows = Rows::default();
            for batch in &batches {
                push(&rows, batch);
            }
            let all: Vec<&Vec<u8>> = batches.iter().flatten().collect();
            let limit = limit.min(all.len());
            let mut newest: BTreeMap<&Vec<u8>, usize> = BTreeMap::new();
            let mut superseded: Vec<usize> =
                all[..limit].iter().enumerate().filter_map(|(row, key)| newest.insert(key, row)).collect();
            superseded.sort_unstable();
            let mut sorted: Vec<usize> = (0..limit).collect();
            sorted.sort_by_key(|row| (all[*row], *row));
            for index in indexes() {
                (0..batches.len()).for_each(|batch| index.insert(&rows, batch));
                for key in &all {
                    let mut versions = Vec::new();
                    index.versions(&rows, key, limit, &mut |row| versions.push(row as usize));
                    let known = (0..limit).rev().filter(|row| all[*row] == *key);
                    prop_assert_eq!(versions, known.collect::<Vec<_>>());
                    let found = index.newest(&rows, key, limit).map(|row| row as usize);
                    prop_assert_eq!(found, newest.get(*key).copied());
                }
                prop_assert_eq!(index.newest(&rows, b"absent", limit), None);
                let mut visited = Vec::new();
                index.superseded(&rows, limit, &mut |row| visited.push(row as usize));
                visited.sort_unstable();
                prop_assert_eq!(&visited, &superseded);
                let found: Vec<usize> =
                    index.rows_by_key(&rows, limit).into_iter().map(|row| row as usize).collect();
                prop_assert_eq!(&found, &sorted);
            }
        }
    }
}
