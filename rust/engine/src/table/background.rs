//! Maintenance beside a running job: deletion vectors of what it flushes, compaction and
//! collection in the writer's process.
//!
//! Owns: when the debt of the job's shard is worth a round, the task that makes it, its counters
//! and its end.
//! Does not own: what a round does (`deletion_vectors`, `compaction`, `garbage`). It claims nothing, so it
//! cannot fence the job beside it; no put waits for it, and no put learns of its errors.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use async_recursion::async_recursion as boxed;
use futures::FutureExt;
use lancemem_core::shard::JobWatch;
use lancemem_core::store::Changes;
use lancemem_core::types::{Error, Result, ShardId, WriterConfig};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout_at};

use super::Table;
use crate::compaction::CompactionSettings;
use crate::garbage::CollectionSettings;

/// After a failed round the next comes not sooner; doubled each time, up to the interval.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// A collection lists the whole shard. So many of them in the time after which garbage may go.
const COLLECTIONS_A_GRACE: u32 = 4;

/// A file of the base is garbage after a week, and every version there ever was is read to know that none names it.
const BASE_FILES: Duration = Duration::from_hours(24);

/// What the maintenance of a job did so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MaintenanceStats {
    /// Compactions that moved at least one generation.
    pub compactions: u64,
    /// Generations that they moved, of all shards.
    pub compacted_generations: u64,
    /// Collections of garbage.
    pub collections: u64,
    /// Bytes that they removed.
    pub collected_bytes: u64,
    /// Files of deletion vectors that were written for flushed SSTables.
    pub deletion_vector_files: u64,
    /// Milliseconds of all that.
    pub maintenance_ms: u64,
    /// Rounds that failed.
    pub maintenance_errors: u64,
    /// Why the newest of them failed; gone after a round that did not.
    pub last_maintenance_error: Option<String>,
}

/// The task beside a job. Dropping it ends the task at its next await.
#[derive(Debug)]
pub(super) struct Maintenance {
    table: Arc<Table>,
    shard_id: ShardId,
    task: AbortHandle,
    stats: Arc<watch::Sender<MaintenanceStats>>,
    /// What it has on its way to the table.
    changes: Changes,
    /// Closed once the task is gone.
    ended: watch::Receiver<()>,
}

impl Maintenance {
    pub fn start(table: Arc<Table>, job: JobWatch, config: &WriterConfig) -> Self {
        let stats = Arc::new(watch::Sender::new(MaintenanceStats::default()));
        let (alive, ended) = watch::channel(());
        let (shard_id, changes) = (job.shard_id(), Changes::default());
        let keeper =
            Keeper { table: table.clone(), job, config: config.clone(), stats: stats.clone() };
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

    /// Cancels what the task does and returns when it does nothing any more.
    #[boxed]
    pub async fn stop(&self) {
        self.task.abort();
        // Nothing is ever sent: the only news is that the sender is gone.
        let _ = self.ended.clone().changed().await;
        self.changes.ended().await;
    }

    /// Looks up what the last flush of a job that has ended supersedes.
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

/// What all jobs of one handle of a table share: they take turns, because each round compacts
/// every shard.
#[derive(Debug, Default)]
pub(super) struct MaintenanceState {
    collected: Option<Instant>,
    /// When files of the base were collected too.
    base_files: Option<Instant>,
}

struct Keeper {
    table: Arc<Table>,
    job: JobWatch,
    config: WriterConfig,
    stats: Arc<watch::Sender<MaintenanceStats>>,
}

impl Keeper {
    async fn run(mut self) {
        let mut pause = FIRST_PAUSE;
        let mut next = Instant::now() + self.config.maintenance_interval;
        loop {
            let is_late = match timeout_at(next, self.job.flushed()).await {
                Ok(true) => false,
                Ok(false) => return,
                Err(_) => true,
            };
            let Some(generations) = self.job.uncompacted_generations() else { return };
            let shard_id = self.job.shard_id();
            let looked_up = look_up(&self.table, shard_id, &self.stats).await;
            if !self.config.maintenance {
                if looked_up {
                    self.stats.send_modify(|stats| stats.last_maintenance_error = None);
                }
                next = Instant::now() + self.config.maintenance_interval;
                continue;
            }
            if !is_late && generations < self.limit() {
                continue;
            }
            // A defect below must not end the task unseen, and less so the job.
            let round = AssertUnwindSafe(self.round(is_late).boxed()).catch_unwind().await;
            match round.unwrap_or_else(|panic| Err(panicked(panic.as_ref()))) {
                Ok(()) => {
                    pause = FIRST_PAUSE;
                    next = Instant::now() + self.config.maintenance_interval;
                    self.stats.send_modify(|stats| stats.last_maintenance_error = None);
                }
                Err(error) => {
                    tell(&self.table, &self.stats, &error);
                    self.wait_out(pause).await;
                    pause = (pause * 2).min(self.config.maintenance_interval.max(FIRST_PAUSE));
                    next = Instant::now();
                }
            }
        }
    }

    /// Generations at which puts must not wait for the interval: well before the job's backlog
    /// makes them wait for a compaction.
    fn limit(&self) -> usize {
        let backlog = self.config.max_uncompacted_generations;
        self.config.maintenance_generations.min(backlog / 2).max(1)
    }

    /// Compacts where the debt is still there when it is this job's turn, and collects now and
    /// then.
    async fn round(&self, is_late: bool) -> Result<()> {
        let mut turn = self.table.maintenance_turn().lock().await;
        let Some(generations) = self.job.refresh().await? else { return Ok(()) };
        let due = if is_late { 1 } else { self.limit() };
        if generations >= due {
            self.compact(generations).await?;
        }
        let apart = self.config.maintenance_older_than / COLLECTIONS_A_GRACE;
        let apart = apart.max(self.config.maintenance_interval);
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
        // Puts that wait for this compaction must not wait for its limit too.
        let has_backlog = generations >= self.config.max_uncompacted_generations;
        let limit = self.config.maintenance_bytes_per_second;
        let bytes_per_second = if has_backlog { 0 } else { limit };
        let settings = CompactionSettings { bytes_per_second, ..CompactionSettings::default() };
        let done = self.table.compact_with(&settings).boxed().await?;
        // Without it the job counts the moved runs until its next flush.
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
        let older_than = self.config.maintenance_older_than;
        let settings =
            CollectionSettings { older_than, base_files, ..CollectionSettings::default() };
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

/// Looks up what the newest SSTables of the shard supersede, where the table has deletion-vector mode.
/// What fails is made up for after the next flush; readers do without until then. False where
/// something failed.
async fn look_up(
    table: &Table,
    shard_id: ShardId,
    stats: &watch::Sender<MaintenanceStats>,
) -> bool {
    if !table.has_deletion_vectors() {
        return true;
    }
    let started = Instant::now();
    let filled = table.fill_gaps(Some(shard_id)).boxed();
    let done = AssertUnwindSafe(filled).catch_unwind().await;
    let done = done.unwrap_or_else(|panic| Err(panicked(panic.as_ref())));
    match &done {
        Ok(done) => stats.send_modify(|stats| {
            stats.deletion_vector_files += done.sstables as u64;
            stats.maintenance_ms += whole_ms(started);
        }),
        Err(error) => tell(table, stats, error),
    }
    done.is_ok()
}

fn tell(table: &Table, stats: &watch::Sender<MaintenanceStats>, error: &Error) {
    tracing::warn!(table = table.uri(), %error, "maintenance failed, the job goes on");
    stats.send_modify(|stats| {
        stats.maintenance_errors += 1;
        stats.last_maintenance_error = Some(error.to_string());
    });
}

fn panicked(panic: &(dyn Any + Send)) -> Error {
    let said = panic.downcast_ref::<String>().map(String::as_str);
    let said = said.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
    Error::Internal(format!("maintenance panicked: {said}"))
}

fn whole_ms(started: Instant) -> u64 {
    u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
