//! The dead rows of one dataset, by position, and why each is dead.
//!
//! Owns: [`DeadRows`], which reads, compaction and deletion vectors share; the mask of a batch by
//! dead rows; and the [`Cause`] of each dead row where the caller asked for causes.
//! Does not own: how dead rows are found (`compare`, `base_rows`), or their causes (`cause`).
//!
//! A tombstone is dead too: it hides older rows and shows nothing.

use std::collections::HashMap;
use std::ops::Range;

use arrow_array::{BooleanArray, UInt64Array};
use arrow_buffer::BooleanBufferBuilder;
use lance_table::format::Fragment;
use lancemem_core::types::Result;
use roaring::RoaringBitmap;

use crate::row_address::{address_half, split_address};

/// The one fragment of an SSTable.
const SSTABLE_FRAGMENT: u32 = 0;

/// Why a row is dead: what became of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// The newest event of the key is a row, which is shown instead.
    Updated,
    /// The newest event of the key is a tombstone: no row is shown. The tombstone itself is dead
    /// for this cause too.
    Deleted,
}

/// Row offsets by fragment id. Lance has one deletion file a fragment too, and most batches of a
/// scan lie within one fragment.
type Offsets = HashMap<u32, RoaringBitmap>;

/// Dead rows of one dataset.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeadRows {
    rows: Offsets,
    /// The rows whose cause is [`Cause::Deleted`]; `None` where the caller did not ask for causes.
    deleted: Option<Offsets>,
}

impl DeadRows {
    /// Dead rows by fragment, as offsets, without causes.
    #[must_use]
    pub const fn of(rows: HashMap<u32, RoaringBitmap>) -> Self {
        Self { rows, deleted: None }
    }

    /// Dead rows of an SSTable by their positions, without causes.
    #[must_use]
    pub fn of_sstable(rows: RoaringBitmap) -> Self {
        Self::of(HashMap::from([(SSTABLE_FRAGMENT, rows)]))
    }

    /// The same rows with causes: a delete killed the rows of `deleted`, an update the others.
    #[must_use]
    pub fn with_deleted(self, deleted: Self) -> Self {
        Self { rows: self.rows, deleted: Some(deleted.rows) }
    }

    /// For each row address whether the row is alive; `None` where all are.
    #[must_use]
    pub fn live(&self, addresses: &UInt64Array) -> Option<BooleanArray> {
        let addresses = addresses.values();
        let (first, last) = (*addresses.first()?, *addresses.last()?);
        let (mut fragment, offset) = split_address(first);
        let mut dead = self.rows.get(&fragment);
        let is_contiguous = last.checked_sub(first) == Some(addresses.len() as u64 - 1)
            && addresses.is_sorted_by(|left, right| left < right)
            && split_address(last).0 == fragment;
        if !is_contiguous {
            let is_live = |address: &u64| {
                let (of, offset) = split_address(*address);
                // Rows of a batch come fragment by fragment.
                if of != fragment {
                    (fragment, dead) = (of, self.rows.get(&of));
                }
                Some(!dead.is_some_and(|dead| dead.contains(offset)))
            };
            return Some(addresses.iter().map(is_live).collect());
        }
        let dead = dead?;
        let mut live = BooleanBufferBuilder::new(addresses.len());
        live.append_n(addresses.len(), true);
        for row in dead.range(offset..=split_address(last).1) {
            live.set_bit((row - offset) as usize, false);
        }
        Some(BooleanArray::new(live.finish(), None))
    }

    /// Whether every row of `fragment` is dead. False for a fragment with a deletion file, whose
    /// rows may be counted here a second time.
    #[must_use]
    pub fn is_whole(&self, fragment: &Fragment) -> bool {
        let dead = self.of_fragment(fragment.id);
        fragment.deletion_file.is_none()
            && dead.is_some_and(|dead| fragment.physical_rows == usize::try_from(dead.len()).ok())
    }

    /// Whether the rows at `rows` of an SSTable's only fragment are all dead. False for a fragment
    /// with a deletion file, where a scan counts its rows without those of the file.
    #[must_use]
    pub fn covers(&self, fragment: &Fragment, rows: Range<u64>) -> bool {
        let (Ok(start), Ok(end)) = (u32::try_from(rows.start), u32::try_from(rows.end)) else {
            return false;
        };
        let dead = self.of_fragment(fragment.id);
        fragment.deletion_file.is_none()
            && dead.is_some_and(|dead| dead.range_cardinality(start..end) == rows.end - rows.start)
    }

    /// The dead rows of a fragment; `None` where the fragment was not looked up. A look-up that
    /// found no row leaves an empty bitmap.
    #[must_use]
    pub fn of_fragment(&self, fragment: u64) -> Option<&RoaringBitmap> {
        self.rows.get(&u32::try_from(fragment).ok()?)
    }

    /// The fragments, with the offsets of their dead rows.
    pub fn fragments(&self) -> impl Iterator<Item = (u32, &RoaringBitmap)> {
        self.rows.iter().map(|(fragment, rows)| (*fragment, rows))
    }

    /// The positions of an SSTable's dead rows; `None` as in [`Self::of_fragment`].
    #[must_use]
    pub fn in_sstable(&self) -> Option<&RoaringBitmap> {
        self.rows.get(&SSTABLE_FRAGMENT)
    }

    /// The cause of a dead row; `None` for a living row, and where the caller did not ask for
    /// causes.
    #[must_use]
    pub fn cause(&self, address: u64) -> Option<Cause> {
        let deleted = self.deleted.as_ref()?;
        let (fragment, offset) = split_address(address);
        let is_among =
            |rows: &Offsets| rows.get(&fragment).is_some_and(|rows| rows.contains(offset));
        let cause = if is_among(deleted) { Cause::Deleted } else { Cause::Updated };
        is_among(&self.rows).then_some(cause)
    }

    /// The dead rows of a fragment that have this cause; `None` where causes were not asked for.
    #[must_use]
    pub fn of_cause(&self, fragment: u64, cause: Cause) -> Option<RoaringBitmap> {
        let deleted = self.deleted.as_ref()?;
        let rows = self.of_fragment(fragment).cloned().unwrap_or_default();
        let deleted = u32::try_from(fragment).ok().and_then(|id| deleted.get(&id));
        Some(match (cause, deleted) {
            (Cause::Updated, None) => rows,
            (Cause::Updated, Some(deleted)) => rows - deleted,
            (Cause::Deleted, None) => RoaringBitmap::new(),
            (Cause::Deleted, Some(deleted)) => rows & deleted,
        })
    }

    /// Sets the dead rows of a fragment, in place of earlier ones, and removes all causes.
    ///
    /// # Errors
    /// An internal error for a fragment that no row address can name.
    pub fn set(&mut self, fragment: u64, rows: RoaringBitmap) -> Result<()> {
        self.rows.insert(address_half(fragment)?, rows);
        self.deleted = None;
        Ok(())
    }

    /// Copies the dead rows of a fragment from `known`, where they are known there.
    pub fn copy_fragment(&mut self, fragment: u64, known: &Self) {
        let id = u32::try_from(fragment).ok();
        if let Some((id, rows)) = id.and_then(|id| known.rows.get_key_value(&id)) {
            self.rows.insert(*id, rows.clone());
            self.deleted = None;
        }
    }

    /// As [`Self::set`], for every fragment of `known`.
    pub fn replace(&mut self, known: Self) {
        self.rows.extend(known.rows);
        self.deleted = None;
    }

    /// Removes the fragments for whose id `stays` is false.
    pub fn retain(&mut self, stays: impl Fn(u64) -> bool) {
        self.rows.retain(|id, _| stays(u64::from(*id)));
    }

    /// Adds dead rows of an SSTable and removes all causes; returns how many of the rows were
    /// alive.
    pub fn bury(&mut self, rows: &RoaringBitmap) -> u64 {
        let dead = self.rows.entry(SSTABLE_FRAGMENT).or_default();
        let before = dead.len();
        *dead |= rows;
        self.deleted = None;
        dead.len() - before
    }

    /// Number of dead rows.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.rows.values().map(RoaringBitmap::len).sum()
    }

    /// Whether every row is alive.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.values().all(RoaringBitmap::is_empty)
    }

    /// Bytes on the heap.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        let deleted = self.deleted.iter().flat_map(HashMap::values);
        self.rows.values().chain(deleted).map(RoaringBitmap::serialized_size).sum()
    }
}

impl FromIterator<u64> for DeadRows {
    /// Row addresses in any order.
    fn from_iter<I: IntoIterator<Item = u64>>(addresses: I) -> Self {
        let mut addresses: Vec<u64> = addresses.into_iter().collect();
        // A scan in order yields sorted addresses.
        if !addresses.is_sorted() {
            addresses.sort_unstable();
        }
        addresses.dedup();
        let of_fragment = |rows: &[u64]| {
            let offsets = rows.iter().map(|address| split_address(*address).1);
            (split_address(rows[0]).0, bitmap_of(offsets))
        };
        let is_same = |one: &u64, next: &u64| split_address(*one).0 == split_address(*next).0;
        Self::of(addresses.chunk_by(is_same).map(of_fragment).collect())
    }
}

/// A bitmap of offsets. Ascending offsets, as a scan yields them, are appended without a search.
fn bitmap_of(offsets: impl Iterator<Item = u32> + Clone) -> RoaringBitmap {
    let sorted = RoaringBitmap::from_sorted_iter(offsets.clone());
    sorted.unwrap_or_else(|_| offsets.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1 << 32;

    fn live(dead: &DeadRows, addresses: Vec<u64>) -> Vec<bool> {
        let count = addresses.len();
        let live = dead.live(&UInt64Array::from(addresses));
        live.map_or_else(|| vec![true; count], |live| live.values().iter().collect())
    }

    #[test]
    fn a_fragment_is_dead_when_each_of_its_rows_is() {
        let dead: DeadRows = [0, 1, 2, SECOND, SECOND + 2].into_iter().collect();
        let fragment = |id, rows| Fragment::new(id).with_physical_rows(rows);
        assert!(dead.is_whole(&fragment(0, 3)));
        assert!(!dead.is_whole(&fragment(0, 4)));
        assert!(!dead.is_whole(&fragment(1, 3)));
        assert!(!dead.is_whole(&fragment(2, 0)), "nothing is known of it");
        assert!(!dead.is_whole(&Fragment::new(0)), "of an unknown number of rows");
    }

    #[test]
    fn a_range_is_covered_where_each_of_its_rows_is_dead() {
        let dead = DeadRows::of_sstable((10..20).collect());
        let fragment = Fragment::new(0).with_physical_rows(30);
        assert!(dead.covers(&fragment, 10..20));
        assert!(dead.covers(&fragment, 12..13));
        assert!(!dead.covers(&fragment, 9..20));
        assert!(!dead.covers(&fragment, 10..21));
        assert!(!dead.covers(&fragment, 10..u64::MAX));
        assert!(!dead.covers(&Fragment::new(1), 10..20), "nothing is known of it");
    }

    #[test]
    fn contiguous_addresses_and_scattered_ones_are_masked_alike() {
        let dead: DeadRows = [SECOND + 3, 1, SECOND + 5, 4].into_iter().collect();
        assert_eq!(dead.len(), 4);
        assert_eq!(live(&dead, vec![0, 1, 2]), [true, false, true]);
        assert_eq!(live(&dead, vec![SECOND + 3, SECOND + 4, SECOND + 5]), [false, true, false]);
        assert_eq!(live(&dead, vec![1, SECOND + 4, SECOND + 5, 0]), [false, true, false, true]);
        // As many as a contiguous range and in order, yet a row is missing and another repeats.
        assert_eq!(live(&dead, vec![1, 1, 3, 4]), [false, false, true, false]);
        assert_eq!(live(&dead, vec![2 * SECOND, 2 * SECOND + 1]), [true, true]);
    }

    #[test]
    fn a_cause_is_known_where_it_was_asked_for_and_of_dead_rows_alone() {
        let dead: DeadRows = [1, 4, SECOND + 3].into_iter().collect();
        assert_eq!(dead.cause(1), None, "not asked for");
        assert_eq!(dead.of_cause(0, Cause::Updated), None, "not asked for");
        let dead = dead.with_deleted([4].into_iter().collect());
        assert_eq!(dead.cause(0), None, "alive");
        assert_eq!(dead.cause(1), Some(Cause::Updated));
        assert_eq!(dead.cause(4), Some(Cause::Deleted));
        assert_eq!(dead.cause(SECOND + 3), Some(Cause::Updated));
        assert_eq!(dead.of_cause(0, Cause::Updated), Some(RoaringBitmap::from([1])));
        assert_eq!(dead.of_cause(0, Cause::Deleted), Some(RoaringBitmap::from([4])));
        assert_eq!(dead.of_cause(1, Cause::Deleted), Some(RoaringBitmap::new()));
        assert_eq!(dead.of_cause(2, Cause::Updated), Some(RoaringBitmap::new()));
    }

    #[test]
    fn rows_that_are_buried_twice_count_once() {
        let mut dead = DeadRows::of_sstable(RoaringBitmap::from([2, 5]));
        assert_eq!(dead.bury(&RoaringBitmap::from([5, 6])), 1);
        assert_eq!(dead.in_sstable(), Some(&RoaringBitmap::from([2, 5, 6])));
    }
}
