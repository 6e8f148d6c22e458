//! Rows in the order of one of their values.
//!
//! Owns: [`OrderedRows`], a concurrent map from values to the rows that have them, and its ranges.
//! Does not own: how a value becomes bytes, which rows are in a view, or which row of a key is the
//! newest.
//!
//! The structure is a skiplist: one thread inserts while others read, and a range is found in
//! logarithmic time.

use std::ops::Bound;
use std::sync::atomic::{AtomicUsize, Ordering};

use crossbeam_skiplist::SkipMap;

use crate::types::KeyBytes;

/// Bytes of a node of the skiplist beside its entry: a tower of two pointers on average, its
/// counters, and what an allocation costs.
const NODE_BYTES: usize = 48;

/// A value and a row that has it. Unique, as the entries of the list have to be.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    value: KeyBytes,
    row: u32,
}

/// Rows in the order of their encoded values, and rows of one value in the order of arrival.
///
/// ```
/// # use lancemem_core::memtable::OrderedRows;
/// let rows = OrderedRows::default();
/// rows.insert(b"b", 0);
/// rows.insert(b"a", 1);
/// rows.insert(b"c", 2);
/// let mut found = Vec::new();
/// rows.between(Some(b"a"), Some(b"b"), |row| {
///     found.push(row);
///     true
/// });
/// assert_eq!(found, [1, 0]);
/// ```
#[derive(Debug, Default)]
pub struct OrderedRows {
    entries: SkipMap<Entry, ()>,
    bytes: AtomicUsize,
}

impl OrderedRows {
    /// Adds the row `row` with the value `value`, encoded so that bytes compare as values do.
    pub fn insert(&self, value: &[u8], row: u32) {
        let entry = Entry { value: KeyBytes::new(value), row };
        let bytes = size_of::<Entry>() + NODE_BYTES + entry.value.heap_bytes();
        self.entries.insert(entry, ());
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Visits the rows whose values are at least `low` and at most `high`, in the order of values,
    /// until `visit` returns false. Without a bound, all values are within it.
    pub fn between(
        &self,
        low: Option<&[u8]>,
        high: Option<&[u8]>,
        mut visit: impl FnMut(u32) -> bool,
    ) {
        let low = low.map(|low| Entry { value: KeyBytes::new(low), row: 0 });
        let low = low.as_ref().map_or(Bound::Unbounded, Bound::Included);
        let high = high.map(|high| Entry { value: KeyBytes::new(high), row: u32::MAX });
        let mut next = self.entries.lower_bound(low);
        while let Some(entry) = next {
            let is_within = high.as_ref().is_none_or(|high| entry.key() <= high);
            if !is_within || !visit(entry.key().row) {
                return;
            }
            next = entry.next();
        }
    }

    /// Bytes that it holds on the heap.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn found(rows: &OrderedRows, low: Option<&[u8]>, high: Option<&[u8]>) -> Vec<u32> {
        let mut found = Vec::new();
        rows.between(low, high, |row| {
            found.push(row);
            true
        });
        found
    }

    #[test]
    fn a_range_ends_where_its_reader_has_enough() {
        let rows = OrderedRows::default();
        for row in 0..100 {
            rows.insert(&[7], row);
        }
        let mut visited = 0;
        rows.between(Some(&[7]), None, |_| {
            visited += 1;
            visited < 10
        });
        assert_eq!(visited, 10);
        assert!(rows.bytes() >= 100 * size_of::<Entry>());
    }

    #[test]
    fn readers_see_every_row_that_was_inserted_before_they_began() {
        let rows = OrderedRows::default();
        let inserted = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for row in 0..5_000_u32 {
                    rows.insert(&(row.wrapping_mul(2_654_435_761) % 97).to_be_bytes(), row);
                    inserted.store(row as usize + 1, Ordering::Release);
                }
            });
            while !writer.is_finished() {
                let before = inserted.load(Ordering::Acquire);
                assert!(found(&rows, None, None).len() >= before);
            }
        });
        assert_eq!(found(&rows, None, None).len(), 5_000);
    }

    proptest! {
        #[test]
        fn a_range_is_that_of_a_sorted_vector(
            values in prop::collection::vec(prop::collection::vec(0_u8..4, 0..4), 0..60),
            low in prop::option::of(prop::collection::vec(0_u8..4, 0..4)),
            high in prop::option::of(prop::collection::vec(0_u8..4, 0..4)),
        ) {
            let rows = OrderedRows::default();
            let mut model: Vec<(&[u8], u32)> = Vec::new();
            for (row, value) in (0..).zip(&values) {
                rows.insert(value, row);
                model.push((value, row));
            }
            model.sort_unstable();
            let (low, high) = (low.as_deref(), high.as_deref());
            let is_within = |value: &[u8]| {
                low.is_none_or(|low| value >= low) && high.is_none_or(|high| value <= high)
            };
            let expected: Vec<u32> =
                model.iter().filter(|(value, _)| is_within(value)).map(|(_, row)| *row).collect();
            prop_assert_eq!(found(&rows, low, high), expected);
        }
    }
}
