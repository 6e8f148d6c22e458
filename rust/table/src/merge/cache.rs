//! What one scan learns and the next one of the same sources need not learn again.
//!
//! Owns: the flushed runs of the last view, compared by key, and the dead rows of the last view that
//! was read to its end: those of the very view, and those of what it had flushed, which hold for
//! other rows in memory too. Each is kept for one view, the newest, and only up to a size.
//! Does not own: open runs (`snapshot`), or when a view is worth a mask (`plan`).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use lancemem_core::types::ShardId;
use parking_lot::Mutex;

use super::ComparedRuns;
use super::superseded_rows::ViewMask;
use crate::snapshot::{ReadView, Source};

/// What is larger is dropped with the scan that made it.
const KEPT_BYTES: usize = 256 << 20;

/// What the cache did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MergeCacheStats {
    /// Bytes that it holds.
    pub bytes: usize,
    /// Scans that found the keys of their runs.
    pub key_hits: usize,
    /// Scans that read them.
    pub key_misses: usize,
    /// Scans that found the dead rows of their view.
    pub mask_hits: usize,
    /// Scans of such a view that compared keys.
    pub mask_misses: usize,
}

/// The newest view's keys and dead rows, shared by all scans of a table.
#[derive(Debug, Default)]
pub struct MergeCache {
    kept: Mutex<Kept>,
    key_hits: AtomicUsize,
    key_misses: AtomicUsize,
    mask_hits: AtomicUsize,
    mask_misses: AtomicUsize,
}

#[derive(Debug, Default)]
struct Kept {
    runs: Option<(Vec<SourceId>, Arc<ComparedRuns>)>,
    mask: Option<(ViewId, Arc<ViewMask>)>,
    flushed: Option<(ViewId, Arc<ViewMask>)>,
}

/// What is known of the dead rows of a view.
#[derive(Clone, Debug)]
pub enum KnownRows {
    /// All of them: the base table, then the sources in the order of the view.
    Exact(Arc<ViewMask>),
    /// Those that a run supersedes, and tombstones: the base table, then the runs in the order of
    /// the view. Rows in memory hide others.
    Flushed(Arc<ViewMask>),
}

/// The rows of one source, which never change under this name.
#[derive(Clone, Debug, PartialEq, Eq)]
enum SourceId {
    Run { shard_id: ShardId, path: String },
    Rows { memtable: u64, rows: usize },
}

/// A base version and everything above it, in the order of the view.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ViewId {
    base_version: u64,
    sources: Vec<SourceId>,
}

impl MergeCache {
    /// The runs of `snapshot`, compared.
    pub fn runs(&self, view: &ReadView) -> Option<Arc<ComparedRuns>> {
        let id = runs_of(view);
        let kept = self.kept.lock();
        let found = kept.runs.as_ref().filter(|(kept, _)| *kept == id);
        count(found.is_some(), &self.key_hits, &self.key_misses);
        found.map(|(_, runs)| runs.clone())
    }

    /// Keeps the runs of `snapshot`, compared.
    pub fn keep_runs(&self, view: &ReadView, runs: ComparedRuns) -> Arc<ComparedRuns> {
        let runs = Arc::new(runs);
        if runs.heap_bytes() <= KEPT_BYTES {
            self.kept.lock().runs = Some((runs_of(view), runs.clone()));
        }
        runs
    }

    /// Forgets everything: a run that was compared is damaged.
    pub fn forget(&self) {
        *self.kept.lock() = Kept::default();
    }

    /// What is known of the dead rows of `snapshot`.
    pub fn mask(&self, view: &ReadView) -> Option<KnownRows> {
        let found = self.known(view);
        count(found.is_some(), &self.mask_hits, &self.mask_misses);
        found
    }

    /// The rows of `snapshot`, where an earlier scan of the very view counted them.
    pub fn rows(&self, view: &ReadView) -> Option<usize> {
        match self.mask(view)? {
            KnownRows::Exact(mask) => mask.live_rows,
            KnownRows::Flushed(_) => None,
        }
    }

    fn known(&self, view: &ReadView) -> Option<KnownRows> {
        let kept = self.kept.lock();
        let of = |kept: &Option<(ViewId, Arc<ViewMask>)>, id: &ViewId| {
            kept.as_ref().filter(|(kept, _)| kept == id).map(|(_, mask)| mask.clone())
        };
        let exact = of(&kept.mask, &view_id(view)).map(KnownRows::Exact);
        exact.or_else(|| of(&kept.flushed, &flushed_id(view)).map(KnownRows::Flushed))
    }

    /// Whether anything is known of the dead rows of `snapshot`. Counts as no scan.
    pub fn has_mask(&self, view: &ReadView) -> bool {
        self.known(view).is_some()
    }

    /// Keeps what is known of the dead rows of `snapshot`.
    pub fn keep_mask(&self, view: &ReadView, known: KnownRows) {
        let (KnownRows::Exact(mask) | KnownRows::Flushed(mask)) = &known;
        if mask.heap_bytes() > KEPT_BYTES {
            return;
        }
        let mut kept = self.kept.lock();
        match known {
            KnownRows::Exact(mask) => kept.mask = Some((view_id(view), mask)),
            KnownRows::Flushed(mask) => kept.flushed = Some((flushed_id(view), mask)),
        }
    }

    /// The counters.
    #[must_use]
    pub fn stats(&self) -> MergeCacheStats {
        let kept = self.kept.lock();
        let runs = kept.runs.as_ref().map_or(0, |(_, runs)| runs.heap_bytes());
        let masks = kept.mask.iter().chain(&kept.flushed);
        let mask: usize = masks.map(|(_, mask)| mask.heap_bytes()).sum();
        MergeCacheStats {
            bytes: runs + mask,
            key_hits: self.key_hits.load(Ordering::Relaxed),
            key_misses: self.key_misses.load(Ordering::Relaxed),
            mask_hits: self.mask_hits.load(Ordering::Relaxed),
            mask_misses: self.mask_misses.load(Ordering::Relaxed),
        }
    }
}

fn count(hit: bool, hits: &AtomicUsize, misses: &AtomicUsize) {
    if hit { hits } else { misses }.fetch_add(1, Ordering::Relaxed);
}

fn runs_of(view: &ReadView) -> Vec<SourceId> {
    view.sources()
        .map(|(_, source)| source_id(&source))
        .filter(|id| matches!(id, SourceId::Run { .. }))
        .collect()
}

fn flushed_id(view: &ReadView) -> ViewId {
    ViewId { base_version: view.base.version().version, sources: runs_of(view) }
}

fn view_id(view: &ReadView) -> ViewId {
    let sources = view.sources().map(|(_, source)| source_id(&source)).collect();
    ViewId { base_version: view.base.version().version, sources }
}

fn source_id(source: &Source<'_>) -> SourceId {
    match source {
        Source::SsTable(run) => SourceId::Run { shard_id: run.shard_id, path: run.path.clone() },
        Source::MemTable(rows) => {
            SourceId::Rows { memtable: rows.memtable_id(), rows: rows.rows() }
        }
    }
}
