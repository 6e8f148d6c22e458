//! The dead rows of a snapshot, source by source, and their recording by a scan.
//!
//! Owns: [`SnapshotMask`], and its recording by a scan that runs to its end. The next scan of the
//! same snapshot then compares no keys.
//! Does not own: the rows of one source (`dead_rows`), or which masks are kept (`cache`).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::{DeadRows, KnownRows, MergeCache};
use crate::snapshot::{Snapshot, Source};

/// The dead rows of every source of one snapshot.
#[derive(Debug)]
pub struct SnapshotMask {
    /// By arm: the base table, then the sources in the order of the snapshot.
    arms: Vec<Arc<DeadRows>>,
    /// Number of rows of the snapshot; `None` where no scan has counted them.
    pub live_rows: Option<usize>,
}

impl SnapshotMask {
    /// A mask of the dead rows of each arm.
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

/// Row addresses that a scan by key recorded of one arm.
#[derive(Debug, Default)]
pub struct Noted {
    /// Rows that an SSTable supersedes, and tombstones.
    pub dead: Vec<u64>,
    /// Rows that only rows in memory supersede.
    pub hidden: Vec<u64>,
    /// Number of live rows.
    pub live_rows: usize,
}

/// Collects a [`SnapshotMask`] while a scan runs. The mask is cached when a stream of every arm has
/// come to its end; a scan that stops early caches nothing.
#[derive(Debug)]
pub struct MaskRecorder {
    snapshot: Arc<Snapshot>,
    cache: Arc<MergeCache>,
    /// For each arm, the record of the first stream that came to its end.
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

    /// Takes the record of a stream of `arm` that came to its end. A plan may be executed several
    /// times, and not every arm to its end: only the first end of an arm counts.
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
            // `take` leaves an empty record, so the arm still counts as finished.
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
