//! Turns of calls that claim a shard for themselves, within this process and among processes.
//!
//! Owns: the queue of this process for each shard, its record of the shard's claims, and when a
//! fenced write is retried.
//! Does not own: how long a claim of another process is left alone (the core's `turn`), or the
//! write.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use lancemem_core::shard::{ClaimTurn, EntryStanding, PlannedEntry};
use lancemem_core::store::{Moment, Store};
use lancemem_core::types::{Error, PerProcess, Result, ShardId, WriterEpoch};
use parking_lot::Mutex;
use tokio::time::Instant;

/// How long a call retries its write to one shard beside other writers.
const WRITE_LIMIT: Duration = Duration::from_mins(1);
/// How long a claim without rows is left alone: the time of a claim and a WAL entry on a remote
/// store.
const GRACE: Duration = Duration::from_secs(3);
/// How long after a claim of another process its next claim is expected.
const CROWDED: Duration = Duration::from_secs(2);
/// How long the log shows reliably whether an entry was written: collectors keep younger ones.
const CERTAIN: Duration = Duration::from_mins(10);
/// Entries of the map of shards above which shards without a running call are evicted.
const MOST_IDLE: usize = 4096;

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
        if shards.len() > MOST_IDLE {
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

    fn turn(&self, begun: Instant) -> ClaimTurn {
        let known = self.known.lock();
        ClaimTurn {
            claimed_here: known.claimed,
            crowded: known.crowded.is_some_and(|seen| seen.elapsed() < CROWDED),
            grace: GRACE,
            until: begun + WRITE_LIMIT,
            limit: WRITE_LIMIT,
        }
    }
}

/// The attempts of one write to one shard. Each attempt claims the shard.
#[derive(Debug)]
pub(super) struct Attempts {
    begun: Instant,
    /// The same moment by the wall clock too, which advances while the machine is suspended.
    asked: Moment,
    /// An entry that may be in the log although its writer was fenced.
    doubt: Option<PlannedEntry>,
}

impl Attempts {
    pub fn begin() -> Self {
        Self { begun: Instant::now(), asked: Moment::now(), doubt: None }
    }

    /// The conditions of the next claim.
    pub fn turn(&self, turns: &ShardTurns) -> ClaimTurn {
        turns.turn(self.begun)
    }

    /// Records the entry that is about to be written.
    pub const fn plan(&mut self, entry: PlannedEntry) {
        self.doubt = Some(entry);
    }

    /// Whether the entry of the last attempt is in the log, so that the write is done. The answer
    /// is certain behind a fence that is newer than that attempt.
    ///
    /// # Errors
    /// Poisoned, where the log no longer contains the answer; a storage error.
    pub async fn is_written(&mut self, store: &Store, behind_fence: bool) -> Result<bool> {
        let Some(entry) = self.doubt else { return Ok(false) };
        match entry.standing(store).await? {
            EntryStanding::Written => return Ok(true),
            EntryStanding::Lost => self.doubt = None,
            EntryStanding::Absent if behind_fence => return Err(unknown(entry)),
            EntryStanding::Absent => {}
        }
        Ok(false)
    }

    /// Whether a write that failed with `error` is retried. `false` where its entry is in the log
    /// after all, so that it is done.
    ///
    /// # Errors
    /// `error`, unless the shard was lost to another writer; crowded, where [`WRITE_LIMIT`] is
    /// over.
    pub async fn goes_on(&mut self, store: &Store, shard: ShardId, error: Error) -> Result<bool> {
        let is_fenced = matches!(error, Error::Fenced { .. });
        let may_be_written = is_fenced || matches!(error, Error::Crowded { .. });
        if !may_be_written || self.asked.age() >= CERTAIN {
            return Err(error);
        }
        if self.is_written(store, false).await? {
            return Ok(false);
        }
        if is_fenced && self.begun.elapsed() < WRITE_LIMIT {
            return Ok(true);
        }
        match self.doubt {
            Some(entry) => Err(unknown(entry)),
            None => Err(Error::Crowded { shard, seconds: WRITE_LIMIT.as_secs() }),
        }
    }
}

fn unknown(entry: PlannedEntry) -> Error {
    Error::Poisoned {
        shard: entry.shard_id,
        reason: format!(
            "another writer took the shard while this call wrote entry {} of its log. The log has no \
             such entry now, so it is not known whether the rows of this call are in the shard",
            entry.position
        ),
    }
}
