//! The read wing: what one query reads of a table.
//!
//! Owns: [`Reader`], the caches of a table handle; taking a snapshot, scans and lookups of it, and
//! the changes between versions with their consumers.
//! Does not own: the shards and base versions that a snapshot consists of (`catalog`), the plan of
//! a scan (`crate::plan`) or the search for a key (`crate::lookup`).
//!
//! Reading order: `live_job`, `gather`, `foreign_rows`, `token`, `version`, `changes`, `consumers`,
//! `flushed_changes`, `flushed_consumers`, `input_events`, `again`, `dead_rows`, `scan`, `get`.
//!
//! What the other wings call: `snapshot_of`, `shard_parts`, `cover_of`, `forget_token_snapshot`,
//! [`TailCache::forget`], and the caches `sstables`, `merges` and `vectors`.

mod again;
mod changes;
mod consumers;
mod dead_rows;
mod flushed_changes;
mod flushed_consumers;
mod foreign_rows;
mod gather;
mod get;
mod input_events;
mod live_job;
mod scan;
mod token;
mod version;

use std::sync::Arc;

use futures::future::BoxFuture;
use lancemem_core::shard::ShardSnapshot;
use lancemem_core::types::{Result, ShardId};

use crate::deletion_vectors::VectorFiles;
use crate::snapshot::{Snapshot, SnapshotToken, SsTableCache};
use crate::table::catalog::Catalog;
use crate::visibility::MergeCache;
use gather::TailCache;

pub use consumers::ConsumerInfo;
pub(super) use dead_rows::shards_of;
pub use flushed_consumers::FlushedConsumer;
pub(super) use gather::{Purpose, Reading, Sources};
pub use live_job::LiveJob;
pub use scan::{Scan, ScanOptions, SnapshotQuery};

/// Finds the job of this process that runs on a shard, and takes the snapshot of its memory. `None`
/// where no such job owns the shard. The record of running jobs is the write wing's.
pub(super) type RunningSnapshot =
    for<'a> fn(&'a Catalog, ShardId) -> BoxFuture<'a, Result<Option<ShardSnapshot>>>;

/// Takes the snapshots of a table handle, over the caches of that handle.
#[derive(Debug)]
pub(super) struct Reader {
    catalog: Arc<Catalog>,
    running: RunningSnapshot,
    pub(super) sstables: Arc<SsTableCache>,
    pub(super) tails: TailCache,
    pub(super) merges: Arc<MergeCache>,
    pub(super) vectors: VectorFiles,
    /// The snapshot that was last opened by its token.
    token_snapshot: tokio::sync::Mutex<Option<(SnapshotToken, Arc<Snapshot>)>>,
}

impl Reader {
    pub(super) fn new(catalog: Arc<Catalog>, running: RunningSnapshot) -> Self {
        let sstables = SsTableCache::default().with_rule(catalog.rule.clone());
        let sstables = Arc::new(sstables);
        let vectors = VectorFiles::new(sstables.budget());
        Self {
            catalog,
            running,
            sstables,
            tails: TailCache::default(),
            merges: Arc::default(),
            vectors,
            token_snapshot: tokio::sync::Mutex::default(),
        }
    }
}
