//! Keys that rise strictly from the first row of a MemTable on: time series, counters, sorted
//! loads.
//!
//! Owns: whether they still rise, and finding a key among them by bisection.
//! Does not own: what becomes of them when one does not rise; the index that holds this does that.
//!
//! As long as keys rise, every row is the newest of its key and row order is key order, so a put
//! costs one comparison a row and the flush needs no sort. A reader asks `has_ended` first: where
//! it has not, no row that the reader may see is anywhere else.

use std::sync::atomic::Ordering;
#[cfg(not(lancemem_schedules))]
use std::sync::atomic::{AtomicBool, AtomicUsize};

#[cfg(lancemem_schedules)]
use shuttle::sync::atomic::{AtomicBool, AtomicUsize};

use super::position;
use crate::memtable::rows::{RowSlot, Rows};

/// How far the keys rise.
#[derive(Debug, Default)]
pub(super) struct Rising {
    /// The first so many batches rise, and none of them is empty.
    batches: AtomicUsize,
    ended: AtomicBool,
}

impl Rising {
    /// Whether all keys still rise with the keys of the next batch, `batch`. One thread asks at a
    /// time.
    pub fn goes_on(&self, rows: &Rows, batch: usize) -> bool {
        if self.ended.load(Ordering::Relaxed) {
            return false;
        }
        let Some(keys) = rows.get(batch).keys.get() else { return false };
        let above = batch.checked_sub(1).is_none_or(|before| {
            let last = rows.get(before).batch.num_rows() - 1;
            keys.is_empty() || rows.key(RowSlot { batch: before, row: last }) < keys.get(0)
        });
        let goes_on = above && !keys.is_empty() && keys.rise();
        if goes_on {
            self.batches.store(batch + 1, Ordering::Release);
        }
        goes_on
    }

    /// Records that all rows are in another structure now.
    pub fn end(&self) {
        self.ended.store(true, Ordering::Release);
    }

    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// The row of `key` among the first `limit` rows.
    pub fn find(&self, rows: &Rows, key: &[u8], limit: usize) -> Option<u32> {
        let batches = self.batches.load(Ordering::Acquire);
        let behind = bisect(batches, |batch| rows.key(RowSlot { batch, row: 0 }) <= key);
        let batch = behind.checked_sub(1)?;
        let placed = rows.get(batch);
        let keys = placed.keys.get()?;
        let row = bisect(keys.len(), |row| keys.get(row) < key);
        let found = placed.first_row + row;
        (row < keys.len() && found < limit && keys.get(row) == key).then(|| position(found))
    }
}

/// The first of `0..end` for which `before` is false; it is true up to there.
fn bisect(end: usize, before: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, end);
    while low < high {
        let middle = low.midpoint(high);
        if before(middle) { low = middle + 1 } else { high = middle }
    }
    low
}
