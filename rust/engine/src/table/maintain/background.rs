//! Background maintenance in the process of a running job: deletion vectors of flushed SSTables,
//! compaction and garbage collection.
//!
//! Owns: when a shard has enough uncompacted generations for a round, the task that runs the round,
//! its counters and its end.
//! Does not own: the work of a round (`deletion_vectors`, `compaction`, `garbage`).
//!
//! Maintenance claims no shard, so it cannot fence the job beside it. Puts do not wait for it, and
//! its errors fail no put.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use async_recursion::async_recursion as boxed;
use futures::FutureExt;
use lancemem_core::shard::JobWatch;
use lancemem_core::store::Changes;
use lancemem_core::types::{Error, Result, ShardId};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout_at};

use crate::compaction::CompactionSettings;
use crate::garbage::CollectionSettings;
use crate::table::Table;
use crate::table::catalog::MaintenanceConfig;

/// The backoff after a failed round; doubled each time, up to the interval.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Collections in one grace period. A collection lists the whole shard, so it is not part of each
/// round.
const COLLECTIONS_A_GRACE: u32 = 4;

/// The interval at which files of the base table are collected. Such a file is garbage after a
/// week, and finding it reads every version of the table.
const BASE_FILES: Duration = Duration::from_hours(24);

/// The counters of a job's maintenance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MaintenanceStats {
    /// Compactions that moved at least one generation.
    pub compactions: u64,
    /// Generations that those compactions moved, of all shards.
    pub compacted_generations: u64,
    /// Collections of garbage.
    pub collections: u64,
    /// Bytes that those collections removed.
    pub collected_bytes: u64,
    /// Files of deletion vectors that were written for flushed SSTables.
    pub deletion_vector_files: u64,
    /// Milliseconds that all of this took.
    pub maintenance_ms: u64,
    /// Rounds that failed.
    pub maintenance_errors: u64,
    /// The error of the newest round; `None` after a round that succeeded.
    pub last_maintenance_error: Option<String>,
}

/// The maintenance task of a job. Dropping this handle ends the task at its next await.
#[derive(Debug)]
pub(in crate::table) struct Maintenance {
    table: Arc<Table>,
    shard_id: ShardId,
    task: AbortHandle,
    stats: Arc<watch::Sender<MaintenanceStats>>,
    /// Writes of the task that cannot be cancelled any more.
    changes: Changes,
    /// Closed once the task has ended.
    ended: watch::Receiver<()>,
}

impl Maintenance {
    /// Starts the task of `job`, whose puts wait for a compaction at `backlog` generations.
    pub fn start(
        table: Arc<Table>,
        job: JobWatch,
        config: MaintenanceConfig,
        backlog: usize,
    ) -> Self {
        let stats = Arc::new(watch::Sender::new(MaintenanceStats::default()));
        let (alive, ended) = watch::channel(());
        let (shard_id, changes) = (job.shard_id(), Changes::default());
        let keeper = Keeper { table: table.clone(), job, config, backlog, stats: stats.clone() };
        let counted = changes.clone();
        let task = tokio::spawn(async move {
            let _alive = alive;
            counted.of(keeper.run().boxed()).await;
        });
        Self { table, shard_id, task: task.abort_handle(), stats, changes, ended }
    }

    pub fn stats(&self) -> MaintenanceStats {
        self.stats.borrow().clone()
    }

    /// Cancels the task and returns after its last write has ended.
    #[boxed]
    pub async fn stop(&self) {
        self.task.abort();
        // Nothing is ever sent: this returns when the sender is dropped.
        let _ = self.ended.clone().changed().await;
        self.changes.ended().await;
    }

    /// Writes the deletion vectors of the last flush of a job that has ended.
    #[boxed]
    pub async fn look_up(&self) {
        look_up(&self.table, self.shard_id, &self.stats).await;
    }
}

impl Drop for Maintenance {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Shared by all jobs of one table handle. Their rounds take turns, because each round compacts
/// every shard.
#[derive(Debug, Default)]
pub(in crate::table) struct MaintenanceState {
    collected: Option<Instant>,
    /// When files of the base table were collected.
    base_files: Option<Instant>,
}

struct Keeper {
    table: Arc<Table>,
    job: JobWatch,
    config: MaintenanceConfig,
    /// Generations at which puts of the job wait for a compaction.
    backlog: usize,
    stats: Arc<watch::Sender<MaintenanceStats>>,
}

impl Keeper {
    async fn run(mut self) {
        let mut pause = FIRST_PAUSE;
        let mut next = Instant::now() + self.config.interval;
        loop {
            let is_late = match timeout_at(next, self.job.flushed()).await {
                Ok(true) => false,
                Ok(false) => return,
                Err(_) => true,
            };
            let Some(generations) = self.job.uncompacted_generations() else { return };
            let shard_id = self.job.shard_id();
            let looked_up = look_up(&self.table, shard_id, &self.stats).await;
            if !self.config.enabled {
                if looked_up {
                    self.stats.send_modify(|stats| stats.last_maintenance_error = None);
                }
                next = Instant::now() + self.config.interval;
                continue;
            }
            if !is_late && generations < self.limit() {
                continue;
            }
            // A panic in a round is counted as an error. It must end neither the task nor the job.
            let round = AssertUnwindSafe(self.round(is_late).boxed()).catch_unwind().await;
            match round.unwrap_or_else(|panic| Err(panicked(panic.as_ref()))) {
                Ok(()) => {
                    pause = FIRST_PAUSE;
                    next = Instant::now() + self.config.interval;
                    self.stats.send_modify(|stats| stats.last_maintenance_error = None);
                }
                Err(error) => {
                    record_error(&self.table, &self.stats, &error);
                    self.wait_out(pause).await;
                    pause = (pause * 2).min(self.config.interval.max(FIRST_PAUSE));
                    next = Instant::now();
                }
            }
        }
    }

    /// The number of generations that starts a round before the interval is over: well below the
    /// backlog at which puts wait for a compaction.
    fn limit(&self) -> usize {
        self.config.generations.min(self.backlog / 2).max(1)
    }

    /// One round. Compacts if the shard still has enough generations when it is this job's turn: a
    /// round of another job may have compacted them. Collects garbage if the last collection is old
    /// enough.
    async fn round(&self, is_late: bool) -> Result<()> {
        let mut turn = self.table.maintenance.lock().await;
        let Some(generations) = self.job.refresh().await? else { return Ok(()) };
        let due = if is_late { 1 } else { self.limit() };
        if generations >= due {
            self.compact(generations).await?;
        }
        let apart = self.config.older_than / COLLECTIONS_A_GRACE;
        let apart = apart.max(self.config.interval);
        if turn.collected.is_none_or(|before| before.elapsed() >= apart) {
            let base_files = turn.base_files.is_none_or(|before| before.elapsed() >= BASE_FILES);
            self.collect(base_files).await?;
            let now = Instant::now();
            turn.collected = Some(now);
            if base_files {
                turn.base_files = Some(now);
            }
        }
        Ok(())
    }

    async fn compact(&self, generations: usize) -> Result<()> {
        let started = Instant::now();
        // Puts wait for this compaction, so its rate limit does not apply.
        let has_backlog = generations >= self.backlog;
        let limit = self.config.bytes_per_second;
        let bytes_per_second = if has_backlog { 0 } else { limit };
        let settings = CompactionSettings::default().with_bytes_per_second(bytes_per_second);
        let done = self.table.compact_with(&settings).boxed().await?;
        // Without the refresh the job would count the moved SSTables until its next flush.
        self.job.refresh().await?;
        self.stats.send_modify(|stats| {
            stats.compactions += u64::from(done.generations > 0);
            stats.compacted_generations += done.generations as u64;
            stats.maintenance_ms += whole_ms(started);
        });
        tracing::debug!(
            table = self.table.uri(),
            generations = done.generations,
            version = done.base_version,
            "maintenance compacted"
        );
        Ok(())
    }

    async fn collect(&self, base_files: bool) -> Result<()> {
        let started = Instant::now();
        let older_than = self.config.older_than;
        let settings =
            CollectionSettings::default().with_older_than(older_than).with_base_files(base_files);
        let done = self.table.collect_garbage(&settings).boxed().await?;
        self.stats.send_modify(|stats| {
            stats.collections += 1;
            stats.collected_bytes += done.bytes;
            stats.maintenance_ms += whole_ms(started);
        });
        Ok(())
    }

    #[expect(clippy::disallowed_methods, reason = "a pause after an error; nothing waits for it")]
    async fn wait_out(&self, pause: Duration) {
        tokio::time::sleep(pause).await;
    }
}

/// Writes the deletion vectors of the shard's newest SSTables, where the table has deletion-vector
/// mode, and their changes, where the table stores them. False where that failed. The next flush
/// retries; until then readers compare keys instead.
async fn look_up(
    table: &Table,
    shard_id: ShardId,
    stats: &watch::Sender<MaintenanceStats>,
) -> bool {
    if !table.has_deletion_vectors() {
        return true;
    }
    let started = Instant::now();
    let filled = table.look_up_flushed(Some(shard_id)).boxed();
    let done = AssertUnwindSafe(filled).catch_unwind().await;
    let done = done.unwrap_or_else(|panic| Err(panicked(panic.as_ref())));
    match &done {
        Ok(done) => stats.send_modify(|stats| {
            stats.deletion_vector_files += done.sstables as u64;
            stats.maintenance_ms += whole_ms(started);
        }),
        Err(error) => record_error(table, stats, error),
    }
    done.is_ok()
}

fn record_error(table: &Table, stats: &watch::Sender<MaintenanceStats>, error: &Error) {
    tracing::warn!(table = table.uri(), %error, "maintenance failed, the job goes on");
    stats.send_modify(|stats| {
        stats.maintenance_errors += 1;
        stats.last_maintenance_error = Some(error.to_string());
    });
}

fn panicked(panic: &(dyn Any + Send)) -> Error {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
    Error::internal(format!("maintenance panicked: {text}"))
}

fn whole_ms(started: Instant) -> u64 {
    u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
