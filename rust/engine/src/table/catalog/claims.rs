//! Claims of shards, as this process knows them.
//!
//! Owns: the queue of this process for each shard, its record of the shard's claims, and how long
//! another process's claim without rows is left alone.
//! Does not own: the claim itself (the core's `claim` and `turn`), or when a fenced write is
//! retried (`turns` in `write`).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use lancemem_core::format::ShardManifest;
use lancemem_core::shard::ClaimTurn;
use lancemem_core::types::{PerProcess, Result, ShardId, WriterEpoch};
use parking_lot::Mutex;
use tokio::time::Instant;

/// How long a claim without rows is left alone: the time of a claim and a WAL entry on a remote
/// store.
const GRACE: Duration = Duration::from_secs(3);
/// How long after a claim of another process its next claim is expected.
const CROWDED: Duration = Duration::from_secs(2);
/// Entries of the map of shards above which shards without a running call are evicted.
const MAX_IDLE: usize = 4096;

type Shards = Mutex<HashMap<(String, ShardId), Arc<ShardTurns>>>;

static SHARDS: PerProcess<Shards> = PerProcess::new(Shards::default);

/// The claims of one shard, as seen by this process.
#[derive(Debug, Default)]
pub(in crate::table) struct ShardTurns {
    /// Held by the write of this process that may claim.
    pub queue: tokio::sync::Mutex<()>,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// The newest claim of this process.
    claimed: Option<WriterEpoch>,
    /// When a claim of another process was found between two claims of this process.
    crowded: Option<Instant>,
}

impl ShardTurns {
    /// The turns of a shard of the table at `home`.
    pub fn of(home: String, shard_id: ShardId) -> Arc<Self> {
        let mut shards = SHARDS.get().lock();
        if shards.len() > MAX_IDLE {
            shards.retain(|_, turns| Arc::strong_count(turns) > 1);
        }
        shards.entry((home, shard_id)).or_default().clone()
    }

    /// Records a claim of this process.
    pub fn claimed(&self, epoch: WriterEpoch) {
        let mut known = self.known.lock();
        let is_next = known.claimed.is_none_or(|before| before.next() == epoch);
        if !is_next {
            known.crowded = Some(Instant::now());
        }
        known.claimed = known.claimed.max(Some(epoch));
    }

    /// Refuses a write beside a claim of another process that is not released.
    ///
    /// # Errors
    /// Held, which names the shard and the epoch.
    pub fn check_released(&self, manifest: &ShardManifest) -> Result<()> {
        manifest.check_released(self.known.lock().claimed)
    }

    /// The conditions of a claim by a call that began at `begun` and retries for `limit`.
    pub fn turn(&self, begun: Instant, limit: Duration) -> ClaimTurn {
        let known = self.known.lock();
        ClaimTurn {
            claimed_here: known.claimed,
            crowded: known.crowded.is_some_and(|seen| seen.elapsed() < CROWDED),
            grace: GRACE,
            until: begun + limit,
            limit,
            only_released: false,
        }
    }
}
