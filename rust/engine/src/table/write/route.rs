//! Writes to a table without a job of the caller: rows are routed, written and acknowledged.
//!
//! Owns: the routing of rows to shards, the job of this process that takes them or the claim that
//! writes them, and the look-up of recorded transaction ids.
//! Does not own: jobs that stay open between calls (`lingering`), or throughput; a program that
//! writes often holds a `TableWriter`.

use std::collections::{BTreeMap, HashMap};

use arrow::compute::{take, take_record_batch};
use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, RecordBatch, UInt32Array};
use async_recursion::async_recursion as boxed;
use futures::FutureExt;
use futures::future::{BoxFuture, try_join_all};
use lancemem_core::format::{PutMode, round_floats};
use lancemem_core::shard::{
    Acknowledged, ClaimTurn, Deletes, WriteBatch, WriteOptions, is_new, recorded_txns,
};
use lancemem_core::types::{Error, Result, ShardId, Txn, Txns};

use super::job::Job;
use super::lingering::CallJob;
use super::running::{is_end_of_job, may_claim, running_job};
use super::turns::Attempts;
use crate::errors::Context;
use crate::table::Table;
use crate::table::catalog::{Catalog, ShardTurns};

/// The result of a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteResult {
    /// Rows written, or keys deleted.
    pub rows: usize,
    /// Shards that took rows.
    pub shards: usize,
    /// WAL entries that hold the rows.
    pub wal_entries: u64,
    /// Shards that had recorded the write's transaction id already, so nothing was written there.
    pub already_written: usize,
}

/// How a write to a whole table is done.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct TableWriteOptions<'a> {
    /// The transaction id, which each shard records together with its rows.
    pub txn: Option<&'a Txn>,
    /// Whether shards are taken over from jobs of other processes, which stops these jobs.
    pub take_over: bool,
}

impl<'a> TableWriteOptions<'a> {
    /// With this transaction id.
    #[must_use]
    pub const fn with_txn(mut self, txn: Option<&'a Txn>) -> Self {
        self.txn = txn;
        self
    }

    /// Taking shards over from jobs of other processes, or not.
    #[must_use]
    pub const fn with_take_over(mut self, take_over: bool) -> Self {
        self.take_over = take_over;
        self
    }
}

/// The result of a shard that has recorded the transaction id before.
const ALREADY_WRITTEN: WriteResult =
    WriteResult { rows: 0, shards: 0, wal_entries: 0, already_written: 1 };

/// The rows that one call writes to one shard.
struct Part<'a> {
    batch: WriteBatch<'a>,
    positions: UInt32Array,
    options: TableWriteOptions<'a>,
    /// Whether the call writes to this shard alone, so that the put may block its thread.
    is_alone: bool,
}

impl Part<'_> {
    /// Writes the rows as one durable put, which is in one WAL entry.
    async fn put(&self, job: &Job) -> Result<Acknowledged> {
        let options = WriteOptions::default().durable(true).txn(self.options.txn);
        let options = options.inline(self.is_alone);
        put_rows(job, self.batch, &self.positions, options).await
    }

    /// The result of a call whose rows are in one entry of the log.
    fn written(&self) -> WriteResult {
        let rows = self.positions.len();
        WriteResult { rows, shards: 1, wal_entries: 1, already_written: 0 }
    }
}

/// Puts the rows of `batch` at `positions` into a job, as one put.
pub(super) async fn put_rows(
    job: &Job,
    batch: WriteBatch<'_>,
    positions: &UInt32Array,
    options: WriteOptions<'_>,
) -> Result<Acknowledged> {
    // All rows go to this shard, in their order, so no second copy is made.
    if positions.len() == batch.rows.num_rows() {
        return job.write(batch, options).await;
    }
    let routed = RoutedRows::take(batch, positions)?;
    job.write(routed.batch(), options).await
}

impl Table {
    /// Adds or replaces rows. Returns when all of them are durable.
    ///
    /// All rows are checked before the first row is written. Where a job of this process runs on a
    /// shard, its rows go through that job; otherwise the shard is claimed for this call, and for
    /// calls that follow within a second. A shard that another writer takes before the rows are in
    /// its log is claimed again, for a minute at most. A job of another process is not stopped: see
    /// [`TableWriteOptions::take_over`].
    ///
    /// ```no_run
    /// use arrow_array::record_batch;
    /// use lancemem::Table;
    ///
    /// # async fn example() -> lancemem::Result<()> {
    /// let table = Table::open("/data/board.lance").await?;
    /// let rows = record_batch!(("id", Int64, [1, 2]), ("price", Float64, [9.5, 12.0])).unwrap();
    /// let written = table.upsert(&rows).await?;
    /// assert_eq!(written.rows, 2);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// An input error that names column and row, with nothing written. Held, with nothing written,
    /// where a claim of another process is not released. Retry where other writers
    /// held a shard all the time; the rows of other shards may be written. Fenced where the job
    /// that took the rows lost its shard meanwhile; whether they are written is not known then.
    #[boxed]
    pub async fn upsert(&self, rows: &RecordBatch) -> Result<WriteResult> {
        self.write(WriteBatch::upserts(rows), None).await
    }

    /// Deletes the rows with these keys, whether they exist or not.
    ///
    /// ```no_run
    /// use arrow_array::record_batch;
    /// use lancemem::Table;
    ///
    /// # async fn example() -> lancemem::Result<()> {
    /// let table = Table::open("/data/board.lance").await?;
    /// let keys = record_batch!(("id", Int64, [1, 2])).unwrap();
    /// table.delete(&keys).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Self::upsert`].
    #[boxed]
    pub async fn delete(&self, keys: &RecordBatch) -> Result<WriteResult> {
        self.write(WriteBatch::deletes(keys), None).await
    }

    /// `rows` with floats rounded to the nearest value of the table's narrower float type.
    ///
    /// # Errors
    /// An input error that names column and row where a finite number would become infinite.
    #[boxed]
    pub async fn round_floats(&self, rows: &RecordBatch) -> Result<RecordBatch> {
        round_floats(rows, self.catalog.latest().await?.schema.rows.logical())
    }

    /// The shard ordinal of every row. `rows` may have any columns beside the sharding column, in
    /// any order.
    ///
    /// # Errors
    /// An input error where the sharding column is missing or cannot be hashed.
    pub fn shard_ordinals(&self, rows: &RecordBatch) -> Result<Vec<i32>> {
        ordinals_of(&self.catalog, rows)
    }

    /// The newest version that the shard has durably recorded for the application `app_id`. Reads
    /// beside the shard's job and claims nothing.
    ///
    /// # Errors
    /// An input error for a shard that does not exist; damage of its log.
    #[boxed]
    pub async fn txn_version(&self, shard_id: ShardId, app_id: &str) -> Result<Option<i64>> {
        Ok(txns_of(&self.catalog, shard_id).await?.get(app_id))
    }

    /// Writes the rows of `batch`, one put for each shard. With a `txn` a shard takes its rows only
    /// where it has not recorded the transaction id, and records the id together with the rows.
    ///
    /// ```no_run
    /// use arrow_array::{BooleanArray, record_batch};
    /// use lancemem::{Table, Txn, WriteBatch};
    ///
    /// # async fn example() -> lancemem::Result<()> {
    /// let table = Table::open("/data/board.lance").await?;
    /// let rows = record_batch!(("id", Int64, [1, 2]), ("price", Float64, [9.5, 0.0])).unwrap();
    /// // The second row deletes its key, whatever its price is.
    /// let deletes = BooleanArray::from(vec![false, true]);
    /// let txn = Txn::new("orders-stream", 7)?;
    /// table.write(WriteBatch::changes(&rows, &deletes), Some(&txn)).await?;
    /// // The shards have recorded version 7: a repetition writes nothing.
    /// let again = table.write(WriteBatch::changes(&rows, &deletes), Some(&txn)).await?;
    /// assert_eq!(again.rows, 0);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Self::upsert`]; stale where a shard has a newer version of the application.
    pub fn write<'a>(
        &'a self,
        batch: WriteBatch<'a>,
        txn: Option<&'a Txn>,
    ) -> BoxFuture<'a, Result<WriteResult>> {
        self.write_with(batch, TableWriteOptions::default().with_txn(txn))
    }

    /// As [`Self::write`], with options.
    ///
    /// # Errors
    /// As [`Self::write`]; never held where the options take shards over.
    pub fn write_with<'a>(
        &'a self,
        batch: WriteBatch<'a>,
        options: TableWriteOptions<'a>,
    ) -> BoxFuture<'a, Result<WriteResult>> {
        self.write_routed(batch, options).boxed()
    }

    async fn write_routed(
        &self,
        batch: WriteBatch<'_>,
        options: TableWriteOptions<'_>,
    ) -> Result<WriteResult> {
        if batch.rows.num_rows() == 0 {
            return Ok(WriteResult::default());
        }
        batch.accept(&self.catalog.latest().await?.schema.rows)?;
        let catalog = &*self.catalog;
        let routing = catalog.routing().await?;
        let routed = route(catalog, batch.rows)?;
        let is_alone = routed.len() == 1;
        if !is_alone && !options.take_over {
            check_released(catalog, &routing, routed.keys()).await?;
        }
        let writes = routed.into_iter().map(|(ordinal, positions)| {
            let shard_id = shard_of(&routing, ordinal);
            let part = Part { batch, positions, options, is_alone };
            async move { write_shard(catalog, shard_id?, &part).await }
        });
        let written = try_join_all(writes).await?;
        Ok(written.into_iter().fold(WriteResult::default(), |sum, shard| WriteResult {
            rows: sum.rows + shard.rows,
            shards: sum.shards + shard.shards,
            wal_entries: sum.wal_entries + shard.wal_entries,
            already_written: sum.already_written + shard.already_written,
        }))
    }
}

/// Refuses a write to several shards before its first row is written, where a job of another process
/// may hold one of them. A claim of one shard checks that again, in one step with the claim.
async fn check_released(
    catalog: &Catalog,
    routing: &HashMap<i32, ShardId>,
    ordinals: impl Iterator<Item = &i32>,
) -> Result<()> {
    let checks = ordinals.map(|ordinal| {
        let shard_id = shard_of(routing, *ordinal);
        async move { newest_is_released(catalog, shard_id?).await }
    });
    try_join_all(checks).await.map(drop)
}

/// Refuses a shard whose newest claim is of another process and not released.
///
/// # Errors
/// Held, which names the shard and the epoch.
pub(in crate::table) async fn newest_is_released(
    catalog: &Catalog,
    shard_id: ShardId,
) -> Result<()> {
    let turns = ShardTurns::of(catalog.location.home(), shard_id);
    let looked = stored_is_released(catalog, &turns, shard_id).await;
    let Err(Error::Held { .. }) = looked else { return looked };
    // A claim of this process is in storage before it is recorded, and recorded in its turn.
    let _turn = turns.queue.lock().await;
    stored_is_released(catalog, &turns, shard_id).await
}

async fn stored_is_released(
    catalog: &Catalog,
    turns: &ShardTurns,
    shard_id: ShardId,
) -> Result<()> {
    match catalog.manifest_of(shard_id).await? {
        Some(manifest) => turns.check_released(&manifest),
        None => Ok(()),
    }
}

/// Writes to one shard, and again where another writer took the shard before the rows were in its
/// log: once in all.
async fn write_shard(catalog: &Catalog, shard_id: ShardId, part: &Part<'_>) -> Result<WriteResult> {
    let turns = ShardTurns::of(catalog.location.home(), shard_id);
    let mut lost = None;
    let _turn = loop {
        if let Some(done) = write_through(catalog, shard_id, part, &mut lost).await? {
            return Ok(done);
        }
        let turn = turns.queue.lock().await;
        // A job may have started while this call waited for its turn.
        if may_claim(catalog, shard_id) {
            break turn;
        }
    };
    let mut attempts = Attempts::begin();
    loop {
        let error = match try_write(catalog, shard_id, part, &turns, &mut attempts).await {
            Ok(done) => return Ok(done),
            Err(error) => error,
        };
        // Without a claim it stays unknown whether the rows of the lost job are written.
        if matches!(error, Error::Held { .. })
            && let Some(lost) = lost
        {
            return Err(lost);
        }
        if !attempts.goes_on(&catalog.store, shard_id, error).await? {
            return Ok(part.written());
        }
    }
}

/// Writes through the job of this process that runs on the shard; `None`, with nothing written,
/// where no job does. Where the job was fenced during a write with a transaction id, `lost` is its
/// error.
async fn write_through(
    catalog: &Catalog,
    shard_id: ShardId,
    part: &Part<'_>,
    lost: &mut Option<Error>,
) -> Result<Option<WriteResult>> {
    let Some(job) = running_job(catalog, shard_id).await else { return Ok(None) };
    // An idle job may not have noticed yet that another process took its shard. Its put would find
    // that out too late: then it is not known whether the rows are written.
    match job.writer.check_owned().await {
        Ok(()) => {}
        Err(error) if is_end_of_job(error.kind()) => {
            job.wait_closed().await;
            return Ok(None);
        }
        Err(error) => return Err(error),
    }
    match part.put(&job).await {
        Ok(done) if done.already_written => Ok(Some(ALREADY_WRITTEN)),
        Ok(_) => Ok(Some(part.written())),
        // A job that was closed before the put has written nothing.
        Err(Error::Closed { .. }) => {
            job.wait_closed().await;
            Ok(None)
        }
        // By the transaction id the claim finds out whether the rows are written.
        Err(error @ Error::Fenced { .. }) if part.options.txn.is_some() => {
            *lost = Some(error);
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

async fn try_write(
    catalog: &Catalog,
    shard_id: ShardId,
    part: &Part<'_>,
    turns: &ShardTurns,
    attempts: &mut Attempts,
) -> Result<WriteResult> {
    // Before the transaction id, which would be that of the own entry.
    if attempts.is_written(&catalog.store, false).await? {
        return Ok(part.written());
    }
    if let Some(left) = CallJob::take(catalog, shard_id).await {
        return put_and_keep(left, part, attempts).await;
    }
    // Before the claim: a write that has nothing to do must not fence the job that runs there.
    if let Some(txn) = part.options.txn
        && !is_new(&txns_of(catalog, shard_id).await?, shard_id, txn)?
    {
        return Ok(ALREADY_WRITTEN);
    }
    let only_released = !part.options.take_over;
    let turn = ClaimTurn { only_released, ..attempts.turn(turns) };
    let claimed = CallJob::claim(catalog, shard_id, &turn).await?;
    if attempts.is_written(&catalog.store, true).await? {
        claimed.close().await;
        return Ok(part.written());
    }
    // Others leave the claim alone until its rows are there, and no longer: the flush behind those
    // may have been fenced each time.
    claimed.job().flush_log_of(2).await;
    put_and_keep(claimed, part, attempts).await
}

/// Writes the rows as the next entry of a job, and keeps the job for the next call.
///
/// A job that fails is dropped: its entry may be in the log all the same, which `attempts` finds
/// out.
async fn put_and_keep(
    job: CallJob,
    part: &Part<'_>,
    attempts: &mut Attempts,
) -> Result<WriteResult> {
    attempts.plan(job.next_entry());
    let done = part.put(job.job()).await?;
    job.keep().await;
    Ok(if done.already_written { ALREADY_WRITTEN } else { part.written() })
}

/// What is durable in a shard, without a claim.
pub(super) async fn txns_of(catalog: &Catalog, shard_id: ShardId) -> Result<Txns> {
    recorded_txns(&catalog.store, &catalog.manifest_store(shard_id)).await
}

/// As [`Table::shard_ordinals`].
pub(super) fn ordinals_of(catalog: &Catalog, rows: &RecordBatch) -> Result<Vec<i32>> {
    let sharding = catalog.sharding.as_ref();
    let missing = || Error::input(format!("table {} has no sharding", catalog.uri()));
    let sharding = sharding.ok_or_else(missing)?;
    sharding.ordinals(&catalog.row_schema().with_column_types(rows, sharding)?)
}

/// The positions of the rows of each ordinal, in their order.
pub(super) fn route(catalog: &Catalog, rows: &RecordBatch) -> Result<BTreeMap<i32, UInt32Array>> {
    ordinals_of(catalog, rows).map(positions_by_ordinal)
}

/// As [`route`], from the ordinal of each row.
pub(super) fn positions_by_ordinal(ordinals: Vec<i32>) -> BTreeMap<i32, UInt32Array> {
    let mut positions: BTreeMap<i32, Vec<u32>> = BTreeMap::new();
    for (row, ordinal) in (0_u32..).zip(ordinals) {
        positions.entry(ordinal).or_default().push(row);
    }
    positions.into_iter().map(|(ordinal, rows)| (ordinal, UInt32Array::from(rows))).collect()
}

/// The shard of an ordinal that rows were routed to.
pub(super) fn shard_of(routing: &HashMap<i32, ShardId>, ordinal: i32) -> Result<ShardId> {
    let missing = || Error::internal(format!("rows have ordinal {ordinal}, which no shard has"));
    routing.get(&ordinal).copied().ok_or_else(missing)
}

/// A copy of the rows of a write that go to one shard, and of their part of its mask.
pub(super) struct RoutedRows<'a> {
    rows: RecordBatch,
    deletes: Deletes<'a>,
    mode: PutMode,
    /// In the place of the mask in `deletes`, where there is one.
    mask: Option<ArrayRef>,
}

impl<'a> RoutedRows<'a> {
    /// The rows of `batch` at `positions`.
    pub(super) fn take(batch: WriteBatch<'a>, positions: &UInt32Array) -> Result<Self> {
        let WriteBatch { rows, deletes, mode, .. } = batch;
        let rows = take_record_batch(rows, positions).context("routing rows")?;
        let mask = match deletes {
            Deletes::Mask(mask) => Some(take(mask, positions, None).context("routing rows")?),
            _ => None,
        };
        Ok(Self { rows, deletes, mode, mask })
    }

    pub(super) fn batch(&self) -> WriteBatch<'_> {
        let mask = self.mask.as_ref().map(|mask| Deletes::Mask(mask.as_boolean()));
        WriteBatch::new(&self.rows, mask.unwrap_or(self.deletes)).with_mode(self.mode)
    }
}
