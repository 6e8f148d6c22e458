//! From which size on rows in memory are indexed.
//!
//! Owns: the bounds, and their only setter, which is for tests: an index of a few rows is used and
//! checked as an index of many.
//! Does not own: the indexes.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of the vectors of one MemTable up to which a search compares them all: 14.7 ms of one
/// thread at 234 MiB, so 4 ms at this bound. To assign a row to its list costs as much as about 40
/// comparisons with it.
const MIN_VECTOR_BYTES: usize = 64 << 20;
/// Rows of one MemTable up to which a filter is evaluated on all of them. Up to here that takes
/// 0.1 ms of numbers and 0.2 ms of texts, and copying the rows little more. To put a row into the
/// ordered index takes about 1 us, once.
const MIN_ORDERED_ROWS: usize = 10_000;

static VECTOR_BYTES: AtomicUsize = AtomicUsize::new(MIN_VECTOR_BYTES);
static ORDERED_ROWS: AtomicUsize = AtomicUsize::new(MIN_ORDERED_ROWS);

/// Bytes of vectors of a MemTable from which on they are assigned to lists.
#[must_use]
pub fn min_vector_bytes() -> usize {
    VECTOR_BYTES.load(Ordering::Relaxed)
}

/// Rows of a MemTable from which on a filter asks its ordered indexes.
#[must_use]
pub fn min_ordered_rows() -> usize {
    ORDERED_ROWS.load(Ordering::Relaxed)
}

/// Sets the bounds of this process, for tests; `None` for the usual ones.
pub fn set_bounds(vector_bytes: Option<usize>, ordered_rows: Option<usize>) {
    VECTOR_BYTES.store(vector_bytes.unwrap_or(MIN_VECTOR_BYTES), Ordering::Relaxed);
    ORDERED_ROWS.store(ordered_rows.unwrap_or(MIN_ORDERED_ROWS), Ordering::Relaxed);
}
