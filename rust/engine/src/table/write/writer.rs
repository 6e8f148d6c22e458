//! `TableWriter`: one writer for all shards of a table, for programs that write often.
//!
//! Owns: which job takes the rows of a shard, the start and the end of the jobs that the writer
//! starts (`slot` holds them), and the report of a call that failed in some shards (`outcome`).
//! Does not own: the shard of a row (`route`), the jobs of this process (`running`), or the put
//! path of a shard, which is the core's.
//!
//! A shard without a running job in this process is claimed at its first rows. A shard with one is
//! not: the writer shares that job, and leaves its end to the program that started it. Once a job
//! of the writer was fenced or stopped, the writer writes nothing more to that shard. A claim by
//! itself would fence the other writer, and two such writers would fence each other for ever.

mod outcome;
mod slot;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow_array::{RecordBatch, UInt32Array};
use async_recursion::async_recursion as boxed;
use futures::FutureExt;
use futures::future::{BoxFuture, join_all};
use lancemem_core::format::{Sharding, round_floats};
use lancemem_core::shard::{Acknowledged, JobStats, WriteBatch, WriteOptions};
use lancemem_core::types::{Error, ErrorKind, Result, WriterConfig};

use super::job::Job;
use super::route::{ordinals_of, positions_by_ordinal, put_rows};
use super::running::{may_claim, running_job};
use crate::lookup::FoundRows;
use crate::snapshot::Consistency;
use crate::table::Table;
use crate::table::catalog::{MaintenanceConfig, ShardTurns};
use crate::table::maintain::MaintenanceStats;
use crate::table::read::{LiveJob, Scan, ScanOptions};
use outcome::{combined, first_failure, stopped};
use slot::{HeldJob, ShardSlot};

/// Writes rows to all shards of a table, through one job for each. Share it behind an [`Arc`].
///
/// After a drop the queued rows are still appended to the logs, then the jobs end that the writer
/// has started.
#[derive(Debug)]
pub struct TableWriter {
    table: Arc<Table>,
    /// The settings that the caller gave for the jobs; `None` for the table's.
    config: Option<WriterConfig>,
    maintenance: MaintenanceConfig,
    /// By ordinal.
    shards: BTreeMap<i32, ShardSlot>,
    closed: AtomicBool,
}

/// The counters of a writer's jobs at one moment, added up and of each job.
#[derive(Clone, Debug, Default)]
pub struct WriterStats {
    /// Puts and deletes accepted. A call whose rows go to several shards is one for each.
    pub puts: u64,
    /// Rows accepted, tombstones included.
    pub rows: u64,
    /// WAL entries appended.
    pub wal_entries: u64,
    /// Bytes of those entries' rows.
    pub wal_bytes: u64,
    /// MemTables flushed.
    pub flushes: u64,
    /// Bytes in active and frozen MemTables.
    pub memtable_bytes: u64,
    /// Flushed generations that wait for compaction.
    pub uncompacted_generations: u64,
    /// Puts that wait for memory or for a compaction.
    pub waiting_puts: u64,
    /// The counters of each job and of its maintenance, by ordinal. A shard that got no rows has no
    /// job.
    pub jobs: Vec<(JobStats, MaintenanceStats)>,
}

impl Table {
    /// Opens a writer for all shards of the table. Claims no shard: the first rows of a shard do.
    ///
    /// Where a job of this process runs on a shard, the writer shares it. `config` has the settings
    /// of the jobs that the writer starts, `maintenance` those of the maintenance beside them; `None`
    /// is the table's. A job that runs with other settings than `config` is refused.
    ///
    /// ```no_run
    /// use arrow_array::record_batch;
    /// use lancemem::{Table, WriteBatch, WriteOptions};
    ///
    /// # async fn example() -> lancemem::Result<()> {
    /// let table = Table::open("/data/board.lance").await?;
    /// let writer = table.writer(None, None).await?;
    /// let rows = record_batch!(("id", Int64, [1, 2]), ("price", Float64, [9.5, 12.0])).unwrap();
    /// // Each row goes to its shard; the call returns when all of them are durable.
    /// writer.write(WriteBatch::upserts(&rows), WriteOptions::default()).await?;
    /// writer.close(true).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Table::routing`]; an input error for settings that cannot work, or where a job of this
    /// process runs with others.
    pub async fn writer(
        self: &Arc<Self>,
        config: Option<WriterConfig>,
        maintenance: Option<MaintenanceConfig>,
    ) -> Result<TableWriter> {
        let maintenance = maintenance.unwrap_or_else(|| self.maintenance_defaults().clone());
        maintenance.validate()?;
        if let Some(config) = &config {
            config.validate()?;
        }
        let routing = self.catalog.routing().await?;
        let number = self.sharding().map_or(1, Sharding::shards);
        // Shards of an earlier, larger sharding may be left without rows.
        let is_own = |ordinal: i32| u32::try_from(ordinal).is_ok_and(|ordinal| ordinal < number);
        let own = routing.into_iter().filter(|(ordinal, _)| is_own(*ordinal));
        let shards = own.map(|(ordinal, shard_id)| (ordinal, ShardSlot::new(shard_id))).collect();
        let writer = TableWriter {
            table: self.clone(),
            config,
            maintenance,
            shards,
            closed: AtomicBool::new(false),
        };
        for slot in writer.shards.values() {
            writer.share(slot).await?;
        }
        Ok(writer)
    }
}

impl TableWriter {
    /// Adds, replaces or deletes rows: one put for each shard, all shards at once. Returns when the
    /// put of each shard has its guarantees; see [`Job::write`].
    ///
    /// All rows are checked before the first row is written. The rows of one shard are written all
    /// at once, those of several shards are not. With a transaction id a shard that has recorded it
    /// takes nothing.
    ///
    /// # Errors
    /// As [`Job::write`]. An error after which some shards have their rows names these shards.
    /// Fenced or reopen where the writer has lost a shard: it takes no more rows of that shard.
    pub fn write<'a>(
        &'a self,
        batch: WriteBatch<'a>,
        options: WriteOptions<'a>,
    ) -> BoxFuture<'a, Result<Acknowledged>> {
        self.write_routed(batch, options).boxed()
    }

    /// As [`Table::round_floats`], for the columns that this process has read last.
    ///
    /// # Errors
    /// As [`Table::round_floats`].
    pub fn round_floats(&self, rows: &RecordBatch) -> Result<RecordBatch> {
        round_floats(rows, self.table.catalog.row_schema().logical())
    }

    /// A lazy read that includes the rows in the memory of the writer's jobs. Its consistency is
    /// live, whatever `options` has.
    ///
    /// # Errors
    /// Reopen where the writer is closed.
    pub fn scan(&self, options: ScanOptions) -> Result<Scan> {
        self.check_open()?;
        let options = ScanOptions { consistency: Consistency::Live, ..options };
        Ok(self.table.scan(options, self.own_jobs()))
    }

    /// The newest rows of `keys`, as [`Table::get`], with the rows in the memory of the writer's
    /// jobs.
    ///
    /// # Errors
    /// As [`Table::get`]; reopen where the writer is closed.
    #[boxed]
    pub async fn get(&self, keys: &RecordBatch, columns: Option<Vec<String>>) -> Result<FoundRows> {
        self.check_open()?;
        let found = self.table.get(keys, columns, Consistency::Live, &self.own_jobs()).await;
        found.map_err(|error| stopped(self.uri(), error))
    }

    /// Flushes all rows that were written; see [`Job::flush`].
    ///
    /// # Errors
    /// As [`Job::flush`], of the first shard that failed. The other shards are flushed.
    #[boxed]
    pub async fn flush(&self) -> Result<()> {
        self.check_open()?;
        let jobs: Vec<Arc<Job>> = self.shards.values().filter_map(ShardSlot::job).collect();
        let flushed = join_all(jobs.iter().map(|job| job.flush())).await;
        first_failure(self.uri(), flushed)
    }

    /// Ends the writer and the jobs that it has started, as [`Job::close`] does. Rows that went
    /// into a shared job are durable then, or flushed, and that job goes on.
    ///
    /// A second call closes what the first call did not, and returns the same error again.
    ///
    /// # Errors
    /// As [`Job::close`], of the first shard that failed. The jobs of the other shards are closed.
    #[boxed]
    pub async fn close(&self, flush: bool) -> Result<()> {
        self.closed.store(true, Ordering::Release);
        let closed = join_all(self.shards.values().map(|slot| slot.close(flush))).await;
        first_failure(self.uri(), closed)
    }

    /// The counters of the writer's jobs.
    #[must_use]
    pub fn stats(&self) -> WriterStats {
        let held = self.shards.values().filter_map(ShardSlot::held);
        held.fold(WriterStats::default(), |mut sum, HeldJob { job, .. }| {
            let stats = job.stats();
            sum.puts += stats.puts;
            sum.rows += stats.rows;
            sum.wal_entries += stats.wal_entries;
            sum.wal_bytes += stats.wal_bytes;
            sum.flushes += stats.flushes;
            sum.memtable_bytes += stats.memtable_bytes;
            sum.uncompacted_generations += stats.uncompacted_generations;
            sum.waiting_puts += stats.waiting_puts;
            sum.jobs.push((stats, job.maintenance_stats()));
            sum
        })
    }

    /// The number of shards.
    #[must_use]
    pub fn num_shards(&self) -> usize {
        self.shards.len()
    }

    /// The table.
    #[must_use]
    pub const fn table(&self) -> &Arc<Table> {
        &self.table
    }

    fn uri(&self) -> &str {
        self.table.uri()
    }

    fn check_open(&self) -> Result<()> {
        if !self.closed.load(Ordering::Acquire) {
            return Ok(());
        }
        let message = format!(
            "the writer of table {} is closed; open a new one (table.writer())",
            self.uri()
        );
        Err(Error::writer(ErrorKind::Reopen, message))
    }

    async fn write_routed(
        &self,
        batch: WriteBatch<'_>,
        options: WriteOptions<'_>,
    ) -> Result<Acknowledged> {
        self.check_open()?;
        if batch.rows.num_rows() == 0 {
            return self.write_nothing(batch, options).await;
        }
        // Rows that all go to one shard are checked by its job, and not copied.
        let mut slots = self.shards.values();
        if let (Some(only), None) = (slots.next(), slots.next()) {
            return self.write_shard(only, batch, None, options).await;
        }
        let ordinals = self.ordinals(batch.rows).await?;
        if let [first, rest @ ..] = ordinals.as_slice()
            && rest.iter().all(|ordinal| ordinal == first)
        {
            return self.write_shard(self.slot(*first)?, batch, None, options).await;
        }
        self.check_rows(batch).await?;
        // One thread polls the puts of all shards, so no put may block it.
        let options = options.inline(false);
        let positions = positions_by_ordinal(ordinals);
        let mut parts = Vec::with_capacity(positions.len());
        for (ordinal, rows) in &positions {
            parts.push((self.slot(*ordinal)?, rows));
        }
        let writes =
            parts.iter().map(|&(slot, rows)| self.write_shard(slot, batch, Some(rows), options));
        let written = join_all(writes).await;
        let shard_ids = parts.iter().map(|(slot, _)| slot.shard_id);
        combined(self.uri(), shard_ids.zip(written))
    }

    /// The ordinal of each row, by the newest columns where the known ones do not fit the rows.
    async fn ordinals(&self, rows: &RecordBatch) -> Result<Vec<i32>> {
        let catalog = &*self.table.catalog;
        match ordinals_of(catalog, rows) {
            Err(Error::InvalidInput { .. }) => {
                catalog.latest().await?;
                ordinals_of(catalog, rows)
            }
            ordinals => ordinals,
        }
    }

    /// Refuses rows that a shard would refuse, before another shard has written its rows.
    async fn check_rows(&self, batch: WriteBatch<'_>) -> Result<()> {
        let catalog = &*self.table.catalog;
        match batch.accept(&catalog.row_schema()) {
            Err(Error::InvalidInput { .. }) => {
                batch.accept(&catalog.latest().await?.schema.rows).map(drop)
            }
            accepted => accepted.map(drop),
        }
    }

    /// Writes a batch without rows: a durable one returns when all earlier puts are durable.
    async fn write_nothing(
        &self,
        batch: WriteBatch<'_>,
        options: WriteOptions<'_>,
    ) -> Result<Acknowledged> {
        let config = self.settings();
        let options = options.inline(false);
        let used = self.shards.values().filter(|slot| slot.job().is_some());
        let used: Vec<&ShardSlot> = used.collect();
        let writes = used.iter().map(|&slot| self.write_shard(slot, batch, None, options));
        let written = join_all(writes).await;
        if written.is_empty() {
            return Ok(Acknowledged {
                rows: 0,
                durable: options.durable.unwrap_or(config.durable_write),
                indexed: options.sync_index.unwrap_or(config.sync_indexed_write),
                already_written: false,
            });
        }
        combined(self.uri(), used.iter().map(|slot| slot.shard_id).zip(written))
    }

    /// Writes the rows at `positions`, or all rows, to one shard.
    async fn write_shard(
        &self,
        slot: &ShardSlot,
        batch: WriteBatch<'_>,
        positions: Option<&UInt32Array>,
        options: WriteOptions<'_>,
    ) -> Result<Acknowledged> {
        loop {
            let job = match slot.job() {
                Some(job) => job,
                None => self.start(slot).await?,
            };
            let written = match positions {
                Some(positions) => put_rows(&job, batch, positions, options).await,
                None => job.write(batch, options).await,
            };
            match written {
                // A shared job that was closed before the put has written nothing.
                Err(Error::Closed { .. }) if slot.job().is_none() => {}
                written => return written.map_err(|error| stopped(self.uri(), error)),
            }
        }
    }

    /// The job of a shard: the one that runs in this process, or else a new one.
    async fn start(&self, slot: &ShardSlot) -> Result<Arc<Job>> {
        let _starting = slot.starting.lock().await;
        if let Some(job) = slot.job() {
            return Ok(job);
        }
        // A close that waits for this start would leave a later start's job running.
        self.check_open()?;
        let turns = ShardTurns::of(self.table.catalog.location.home(), slot.shard_id);
        let _turn = loop {
            if let Some(job) = self.share(slot).await? {
                return Ok(job);
            }
            let turn = turns.queue.lock().await;
            // A job may have started while this call waited for its turn.
            if may_claim(&self.table.catalog, slot.shard_id) {
                break turn;
            }
        };
        let job = self
            .table
            .start_in_turn(slot.shard_id, self.settings().clone(), self.maintenance.clone())
            .await?;
        slot.hold(job.clone(), true);
        Ok(job)
    }

    /// Shares the job of this process that runs on the shard, if one does.
    ///
    /// # Errors
    /// An input error where the job has other settings than the caller gave.
    async fn share(&self, slot: &ShardSlot) -> Result<Option<Arc<Job>>> {
        let Some(job) = running_job(&self.table.catalog, slot.shard_id).await else {
            return Ok(None);
        };
        if self.config.as_ref().is_some_and(|config| config != job.writer.config()) {
            return Err(Error::input(format!(
                "a job with other settings runs in this process on shard {} of table {}; leave out \
                 config= to share it, or close the job first",
                slot.shard_id,
                self.uri()
            )));
        }
        slot.hold(job.clone(), false);
        Ok(Some(job))
    }

    fn settings(&self) -> &WriterConfig {
        self.config.as_ref().unwrap_or(&self.table.catalog.defaults)
    }

    /// The jobs that the writer started, for live reads. Those report a fenced job as an error. A
    /// shared job is found by the read itself.
    fn own_jobs(&self) -> Vec<Arc<dyn LiveJob>> {
        let held = self.shards.values().filter_map(ShardSlot::held).filter(|held| held.is_own);
        held.map(|held| held.job as Arc<dyn LiveJob>).collect()
    }

    fn slot(&self, ordinal: i32) -> Result<&ShardSlot> {
        self.shards.get(&ordinal).ok_or_else(|| {
            Error::internal(format!("rows have ordinal {ordinal}, which no shard has"))
        })
    }
}
