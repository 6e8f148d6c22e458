//! The dead rows of a snapshot, source by source, and the scan that records them.
//!
//! Owns: [`SnapshotMask`], and how a scan that runs to its end records one, so that the next scan
//! of the same snapshot compares no keys.
//! Does not own: the rows of one source (`dead_rows`), or which masks are kept (`cache`).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::{DeadRows, KnownRows, MergeCache};
use crate::snapshot::{Snapshot, Source};

/// The dead rows of every source of one snapshot.
#[derive(Debug)]
pub struct SnapshotMask {
    /// By the arm's place: the base table, then the sources.
    arms: Vec<Arc<DeadRows>>,
    /// Rows of the snapshot: keys that are not deleted; `None` where they were not counted.
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
