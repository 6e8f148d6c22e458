//! Jobs of calls, which stay open for a moment for the next call of their process.
//!
//! Owns: how long and how many of them stay, what has to hold for the next call to use one, and
//! their end.
//! Does not own: the claim and the put of a call (`route`), or the jobs that a program starts
//! (`running`). A lingering job is none of those: no live read shows its memory.
//!
//! A claim costs several times as much as an entry of the log. So a call keeps the job that it has
//! claimed, and the next call of the process for the shard puts through it. All rows of a lingering
//! job are durable, and its claim is released, so another process takes the shard over at once, as
//! it would after the end of the call. A call uses a lingering job in its turn alone, and after it
//! has asked storage whether the shard is still the job's.

use std::time::Duration;

use futures::future::join;
use lancemem_core::shard::{ClaimTurn, PlannedEntry};
use lancemem_core::types::{PerProcess, Result, ShardId, WriterConfig};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::job::Job;
use super::running::JobAddress;
use crate::schema::VersionStamp;
use crate::table::catalog::{Catalog, Location};

/// How long a job stays open without a call.
const LINGER: Duration = Duration::from_secs(1);
/// The largest number of lingering jobs of a process.
const MAX_JOBS: usize = 32;
/// The largest number of bytes in the memory of a lingering job.
const MAX_BYTES: u64 = 8 << 20;

/// The lingering jobs of this process. A forked child has none of the jobs of its parent.
static JOBS: PerProcess<Mutex<LingeringJobs>> = PerProcess::new(Mutex::default);

#[derive(Debug, Default)]
struct LingeringJobs {
    /// The job that was used longest ago comes first.
    jobs: Vec<LingeringJob>,
    /// Whether a task closes the jobs that no call uses any more.
    is_swept: bool,
}

#[derive(Debug)]
struct LingeringJob {
    address: JobAddress,
    job: CallJob,
    /// When it is closed.
    until: Instant,
}

/// The job of a call: new, or left by an earlier call.
#[derive(Debug)]
pub(super) struct CallJob {
    job: Job,
    /// The newest version of the base table before the claim, which checked that version or a later
    /// one.
    claimed_at: VersionStamp,
    /// Its options of the store are the job's.
    location: Location,
}

impl CallJob {
    /// Claims the shard, in turn with other processes.
    ///
    /// # Errors
    /// As [`Job::open_in_turn`].
    pub async fn claim(catalog: &Catalog, shard_id: ShardId, turn: &ClaimTurn) -> Result<Self> {
        let claimed_at = catalog.base.stamp();
        let job = Job::open_in_turn(catalog, shard_id, config_of(catalog), Some(turn)).await?;
        Ok(Self { job, claimed_at, location: catalog.location.clone() })
    }

    /// The lingering job of the shard, for a call that has the turn of this process there and that
    /// has looked for the newest base version. One that cannot be used any more is closed.
    pub async fn take(catalog: &Catalog, shard_id: ShardId) -> Option<Self> {
        let left = remove(&address_of(catalog, shard_id))?;
        if left.is_usable(catalog).await {
            return Some(left);
        }
        left.close().await;
        None
    }

    /// Whether the next put can go through the job. Any commit to the base table is left to a new
    /// claim, whose checks a lingering job skips.
    ///
    /// Storage is asked whether another process has claimed the shard, and whether the newest entry
    /// of the job is in the log as it was written: a table that was restored from a copy lacks it.
    async fn is_usable(&self, catalog: &Catalog) -> bool {
        let writer = &self.job.writer;
        if self.claimed_at != catalog.base.stamp()
            || *writer.config() != config_of(catalog)
            || !self.location.has_options_of(&catalog.location)
            || writer.failure().is_some()
        {
            return false;
        }
        let newest = writer.newest_entry();
        let (owned, stored) = join(writer.check_owned(), newest.is_stored(&catalog.store)).await;
        owned.is_ok() && matches!(stored, Ok(true))
    }

    /// The job.
    pub const fn job(&self) -> &Job {
        &self.job
    }

    /// The position and epoch of the entry that the next put becomes.
    pub fn next_entry(&self) -> PlannedEntry {
        self.job.writer.next_entry()
    }

    /// Keeps the job, whose rows are durable, for the next call. A long log is flushed first; a job
    /// that holds much memory afterwards is closed.
    pub async fn keep(self) {
        self.job.flush_log_of(1).await;
        let stats = self.job.stats();
        let is_small = stats.frozen_memtables == 0 && stats.memtable_bytes <= MAX_BYTES;
        if !is_small || self.job.writer.failure().is_some() {
            return self.close().await;
        }
        if let Some(oldest) = add(self) {
            oldest.close().await;
        }
    }

    /// Ends the job. Its rows are durable already, so an error changes nothing.
    pub async fn close(self) {
        if let Err(error) = self.job.close(false).await {
            tracing::debug!(shard = %self.job.shard_id(), %error, "a lingering job was not closed");
        }
    }
}

/// Closes the lingering job of the shard, if there is one, for a caller that has the turn of this
/// process there and is about to claim.
pub(super) async fn close_lingering(catalog: &Catalog, shard_id: ShardId) {
    if let Some(left) = remove(&address_of(catalog, shard_id)) {
        left.close().await;
    }
}

/// The settings of the job of a call. No timer flushes its rows: it writes nothing between calls.
fn config_of(catalog: &Catalog) -> WriterConfig {
    let config = catalog.defaults.clone();
    config.with_durable_write(true).with_idle_flush_interval(Duration::ZERO)
}

fn address_of(catalog: &Catalog, shard_id: ShardId) -> JobAddress {
    (catalog.location.home(), catalog.table_id, shard_id)
}

/// Takes the lingering job at `address`.
fn remove(address: &JobAddress) -> Option<CallJob> {
    let mut lingering = JOBS.get().lock();
    let position = lingering.jobs.iter().position(|left| left.address == *address)?;
    Some(lingering.jobs.remove(position).job)
}

/// Adds a job. Returns the oldest one where they are too many.
fn add(job: CallJob) -> Option<CallJob> {
    let (address, until) = (job.job.address(), Instant::now() + LINGER);
    let (surplus, is_swept) = {
        let mut lingering = JOBS.get().lock();
        lingering.jobs.push(LingeringJob { address, job, until });
        let is_swept = std::mem::replace(&mut lingering.is_swept, true);
        let is_full = lingering.jobs.len() > MAX_JOBS;
        (is_full.then(|| lingering.jobs.remove(0).job), is_swept)
    };
    if !is_swept {
        tokio::spawn(sweep(Sweep::default()));
    }
    surplus
}

/// The task that closes jobs. Dropped where its runtime ends before it: the next job that is added
/// then starts another one.
#[derive(Debug, Default)]
struct Sweep {
    is_done: bool,
}

impl Sweep {
    /// When the next job is closed; `None` where no job is left, which ends the task.
    fn next_end(&mut self) -> Option<Instant> {
        let mut lingering = JOBS.get().lock();
        let next = lingering.jobs.first().map(|oldest| oldest.until);
        if next.is_none() {
            lingering.is_swept = false;
            self.is_done = true;
        }
        next
    }
}

impl Drop for Sweep {
    fn drop(&mut self) {
        if !self.is_done {
            JOBS.get().lock().is_swept = false;
        }
    }
}

/// Closes jobs that no call has used for [`LINGER`], until no job is left.
async fn sweep(mut sweep: Sweep) {
    while let Some(next) = sweep.next_end() {
        tokio::time::sleep_until(next).await;
        while let Some(unused) = take_unused(Instant::now()) {
            unused.close().await;
        }
    }
}

/// Takes a job that is to be closed by `now`.
fn take_unused(now: Instant) -> Option<CallJob> {
    let mut lingering = JOBS.get().lock();
    let is_unused = lingering.jobs.first().is_some_and(|oldest| oldest.until <= now);
    is_unused.then(|| lingering.jobs.remove(0).job)
}
