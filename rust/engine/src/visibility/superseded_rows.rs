//! Rows that a newer row of their key supersedes, by position.
//!
//! Owns: the dead rows of one dataset, how a batch is masked by them, and how a scan that runs
//! to its end records them, so that the next scan of the same snapshot compares no keys.
//! Does not own: how a row is found dead, or which views are kept (`cache`).
//!
//! A tombstone is dead too: it hides older rows and shows nothing.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow_array::{BooleanArray, UInt64Array};
use arrow_buffer::BooleanBufferBuilder;
use lance_table::format::Fragment;
use parking_lot::Mutex;
use roaring::RoaringBitmap;

use super::{KnownRows, MergeCache};
use crate::row_address::split_address;
use crate::snapshot::{Snapshot, Source};

/// Dead rows of one dataset: offsets by fragment, as in Lance's deletion vectors.
#[derive(Debug, Default)]
pub struct DeadRows(HashMap<u32, RoaringBitmap>);

impl DeadRows {
    /// Dead rows by fragment, as offsets.
    #[must_use]
    pub const fn of(fragments: HashMap<u32, RoaringBitmap>) -> Self {
        Self(fragments)
    }

    /// For each row address whether the row is alive; `None` where all are.
    #[must_use]
    pub fn live(&self, addresses: &UInt64Array) -> Option<BooleanArray> {
        let addresses = addresses.values();
        let (first, last) = (*addresses.first()?, *addresses.last()?);
        let (fragment, offset) = split_address(first);
        let is_sstable = last.checked_sub(first) == Some(addresses.len() as u64 - 1)
            && addresses.is_sorted_by(|left, right| left < right)
            && split_address(last).0 == fragment;
        if !is_sstable {
            let live = addresses.iter().map(|address| Some(!self.contains(*address)));
            return Some(live.collect());
        }
        let dead = self.0.get(&fragment)?;
        let mut live = BooleanBufferBuilder::new(addresses.len());
        live.append_n(addresses.len(), true);
        for row in dead.range(offset..=split_address(last).1) {
            live.set_bit((row - offset) as usize, false);
        }
        Some(BooleanArray::new(live.finish(), None))
    }

    fn contains(&self, address: u64) -> bool {
        let (fragment, offset) = split_address(address);
        self.0.get(&fragment).is_some_and(|dead| dead.contains(offset))
    }

    /// Whether every row of `fragment` is dead. One that has deletions of its own is not looked
    /// into: rows may count in both.
    #[must_use]
    pub fn is_whole(&self, fragment: &Fragment) -> bool {
        let dead = u32::try_from(fragment.id).ok().and_then(|id| self.0.get(&id));
        fragment.deletion_file.is_none()
            && dead.is_some_and(|dead| fragment.physical_rows == usize::try_from(dead.len()).ok())
    }

    /// Number of dead rows.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.0.values().map(RoaringBitmap::len).sum()
    }

    /// Whether every row is alive.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.values().all(RoaringBitmap::is_empty)
    }

    /// Bytes on the heap.
    pub fn heap_bytes(&self) -> usize {
        self.0.values().map(RoaringBitmap::serialized_size).sum()
    }
}

impl FromIterator<u64> for DeadRows {
    /// Row addresses in any order.
    fn from_iter<I: IntoIterator<Item = u64>>(addresses: I) -> Self {
        let mut addresses: Vec<u64> = addresses.into_iter().collect();
        // A scan in order gives them so.
        if !addresses.is_sorted() {
            addresses.sort_unstable();
        }
        addresses.dedup();
        let of_fragment = |rows: &[u64]| {
            let offsets = rows.iter().map(|address| split_address(*address).1);
            (split_address(rows[0]).0, bitmap_of(offsets))
        };
        let fragments = addresses.chunk_by(|one, next| one >> 32 == next >> 32);
        Self(fragments.map(of_fragment).collect())
    }
}

/// A bitmap of offsets. Where they ascend, as a scan gives them, no place is searched for.
fn bitmap_of(offsets: impl Iterator<Item = u32> + Clone) -> RoaringBitmap {
    let sorted = RoaringBitmap::from_sorted_iter(offsets.clone());
    sorted.unwrap_or_else(|_| offsets.collect())
}

/// The dead rows of every source of one snapshot.
#[derive(Debug)]
pub struct SnapshotMask {
    /// By the arm's place: the base table, then the sources.
    arms: Vec<Arc<DeadRows>>,
    /// Rows of the snapshot: keys that are not deleted; `None` where nobody has counted them.
    pub live_rows: Option<usize>,
}

impl SnapshotMask {
    /// The dead rows of each arm, by its place.
    #[must_use]
    pub const fn new(arms: Vec<Arc<DeadRows>>) -> Self {
        Self { arms, live_rows: None }
    }

    /// The dead rows of one arm.
    #[must_use]
    pub fn arm(&self, arm: usize) -> Arc<DeadRows> {
        self.arms[arm].clone()
    }

    /// Bytes that the mask holds on the heap.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.arms.iter().map(|dead| dead.heap_bytes()).sum()
    }
}

/// What a scan by key noted of one arm, addresses of rows.
#[derive(Debug, Default)]
pub struct Noted {
    /// Rows that an SSTable supersedes, and tombstones.
    pub dead: Vec<u64>,
    /// Rows that only rows in memory supersede.
    pub hidden: Vec<u64>,
    /// How many are left.
    pub live_rows: usize,
}

/// Collects a [`SnapshotMask`] while a scan runs. It is kept when every stream of every arm came to
/// its end; a scan that stops early leaves nothing.
#[derive(Debug)]
pub struct MaskRecorder {
    snapshot: Arc<Snapshot>,
    cache: Arc<MergeCache>,
    /// What the first stream of each arm that came to its end has noted.
    arms: Vec<Mutex<Option<Noted>>>,
    unfinished: AtomicUsize,
}

impl MaskRecorder {
    /// A recorder for `arms` arms of one stream each.
    #[must_use]
    pub fn new(snapshot: Arc<Snapshot>, cache: Arc<MergeCache>, arms: usize) -> Self {
        Self {
            snapshot,
            cache,
            arms: (0..arms).map(|_| Mutex::default()).collect(),
            unfinished: AtomicUsize::new(arms),
        }
    }

    /// A stream of `arm` came to its end. A plan may be executed again, and some arms of it more
    /// often to their end than others: only the first time counts.
    pub fn finish(&self, arm: usize, noted: Noted) {
        {
            let mut first = self.arms[arm].lock();
            if first.is_some() {
                return;
            }
            *first = Some(noted);
        }
        if self.unfinished.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.keep();
        }
    }

    fn keep(&self) {
        let is_flushed = |arm: usize| {
            arm == 0
                || matches!(self.snapshot.sources().nth(arm - 1), Some((_, Source::SsTable(_))))
        };
        let (mut exact, mut flushed, mut live) = (Vec::new(), Vec::new(), 0);
        for (arm, noted) in self.arms.iter().enumerate() {
            // Something stays in its place, so that the arm counts as finished.
            let noted = noted.lock().as_mut().map(std::mem::take).unwrap_or_default();
            let Noted { dead, hidden, live_rows } = noted;
            live += live_rows;
            let all: Arc<DeadRows> = Arc::new(dead.iter().chain(&hidden).copied().collect());
            if is_flushed(arm) {
                let is_same = hidden.is_empty();
                flushed.push(if is_same {
                    all.clone()
                } else {
                    Arc::new(dead.into_iter().collect())
                });
            }
            exact.push(all);
        }
        let exact = SnapshotMask { arms: exact, live_rows: Some(live) };
        self.cache.keep_mask(&self.snapshot, KnownRows::Exact(Arc::new(exact)));
        let flushed = SnapshotMask { arms: flushed, live_rows: None };
        self.cache.keep_mask(&self.snapshot, KnownRows::Flushed(Arc::new(flushed)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live(dead: &DeadRows, addresses: Vec<u64>) -> Vec<bool> {
        let count = addresses.len();
        let live = dead.live(&UInt64Array::from(addresses));
        live.map_or_else(|| vec![true; count], |live| live.values().iter().collect())
    }

    #[test]
    fn a_fragment_is_dead_when_each_of_its_rows_is() {
        let second = 1_u64 << 32;
        let dead: DeadRows = [0, 1, 2, second, second + 2].into_iter().collect();
        let fragment = |id, rows| Fragment::new(id).with_physical_rows(rows);
        assert!(dead.is_whole(&fragment(0, 3)));
        assert!(!dead.is_whole(&fragment(0, 4)));
        assert!(!dead.is_whole(&fragment(1, 3)));
        assert!(!dead.is_whole(&fragment(2, 0)), "nothing is known of it");
        assert!(!dead.is_whole(&Fragment::new(0)), "of an unknown number of rows");
    }

    #[test]
    fn a_run_of_addresses_and_scattered_ones_are_masked_alike() {
        let second = 1_u64 << 32;
        let dead: DeadRows = [second + 3, 1, second + 5, 4].into_iter().collect();
        assert_eq!(dead.len(), 4);
        assert_eq!(live(&dead, vec![0, 1, 2]), [true, false, true]);
        assert_eq!(live(&dead, vec![second + 3, second + 4, second + 5]), [false, true, false]);
        assert_eq!(live(&dead, vec![1, second + 4, second + 5, 0]), [false, true, false, true]);
        // As long as an SSTable and in order, yet not one: a row is missing and another repeats.
        assert_eq!(live(&dead, vec![1, 1, 3, 4]), [false, false, true, false]);
        assert_eq!(live(&dead, vec![2 * second, 2 * second + 1]), [true, true]);
    }
}
