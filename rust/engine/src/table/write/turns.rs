//! Attempts of calls that claim a shard for themselves.
//!
//! Owns: when a fenced write is retried, and when it is done although its writer was fenced.
//! Does not own: the turns of this process (`claims` in `catalog`), how long a claim of another
//! process is left alone (the core's `turn`), or the write.

use std::time::Duration;

use lancemem_core::shard::{ClaimTurn, EntryStanding, PlannedEntry};
use lancemem_core::store::{Moment, Store};
use lancemem_core::types::{Error, Result, ShardId};
use tokio::time::Instant;

use crate::table::catalog::ShardTurns;

/// How long a call retries its write to one shard beside other writers.
const WRITE_LIMIT: Duration = Duration::from_mins(1);
/// How long the log shows reliably whether an entry was written: collectors keep younger ones.
const CERTAIN: Duration = Duration::from_mins(10);

/// How long a call beside a job that has just claimed the shard looks for its own entry, whose place
/// the fence of that job takes otherwise.
const FENCE_LIMIT: Duration = Duration::from_secs(5);
/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(20);

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
        turns.turn(self.begun, WRITE_LIMIT)
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
    /// over; poisoned, where the entry may be in the log.
    pub async fn goes_on(&mut self, store: &Store, shard: ShardId, error: Error) -> Result<bool> {
        let is_fenced = matches!(error, Error::Fenced { .. });
        let is_held = matches!(error, Error::Held { .. });
        let may_be_written = is_fenced || is_held || matches!(error, Error::Crowded { .. });
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
            Some(_) if is_held && self.begun.elapsed() < FENCE_LIMIT => {
                tokio::time::sleep_until(Instant::now() + PAUSE).await;
                Ok(true)
            }
            Some(entry) => Err(unknown(entry)),
            None if is_held => Err(error),
            None => Err(Error::Crowded { shard, seconds: WRITE_LIMIT.as_secs() }),
        }
    }
}

fn unknown(entry: PlannedEntry) -> Error {
    let reason = format!(
        "another writer took the shard while this call wrote entry {} of its log. The log has no \
         such entry now, so it is not known whether the rows of this call are in the shard",
        entry.position
    );
    Error::poisoned(entry.shard_id, reason)
}
