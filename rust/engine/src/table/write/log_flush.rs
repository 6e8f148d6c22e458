//! The flush of one shard's log by a call that holds no job there.
//!
//! Owns: the flush through a job of this process, or else the claim in turn, the replay, the flush
//! and the end of the job that does it, and the retries beside other writers.
//! Does not own: which logs are flushed (`maintain`), or the jobs of this process (`running`).

use lancemem_core::shard::ClaimTurn;
use lancemem_core::types::{Error, Generation, Result, ShardId};

use super::job::Job;
use super::lingering::close_lingering;
use super::running::{is_end_of_job, may_claim, running_job};
use super::turns::Attempts;
use crate::table::catalog::{Catalog, ShardTurns};

/// The rows of a log that a call moved into SSTables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::table) struct FlushedRows {
    /// The generation of the newest SSTable.
    pub generation: Generation,
    /// Rows, superseded rows and tombstones included.
    pub rows: u64,
}

/// Which logs a flush may claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::table) enum FlushClaims {
    /// The logs of released claims that no job of this process writes: for maintenance.
    Idle,
    /// The logs of released claims, and through the jobs of this process.
    Released,
    /// Every log. A job of another process is stopped.
    All,
}

/// Moves the log of a shard into SSTables; `None` where the log has no row. Where a job of this
/// process runs on the shard, the job flushes; otherwise the call claims the shard as an upsert
/// does, where `claims` permits.
///
/// # Errors
/// Held where the claim of another process is not released, and has to be; an input error where a
/// job of this process runs, and must not. Crowded, of kind retry, where
/// other writers held the shard all the time. The error of the flush: the rows stay in the log.
pub(in crate::table) async fn flush_log(
    catalog: &Catalog,
    shard_id: ShardId,
    claims: FlushClaims,
) -> Result<Option<FlushedRows>> {
    let turns = ShardTurns::of(catalog.location.home(), shard_id);
    let _turn = loop {
        if let Some(job) = running_job(catalog, shard_id).await {
            if claims == FlushClaims::Idle {
                return Err(Error::input(format!(
                    "a job of this process runs on shard {shard_id}"
                )));
            }
            if let Some(flushed) = flush_running(&job).await? {
                return Ok(flushed);
            }
        }
        let turn = turns.queue.lock().await;
        // A job may have started while this call waited for its turn.
        if may_claim(catalog, shard_id) {
            break turn;
        }
    };
    close_lingering(catalog, shard_id).await;
    let only_released = claims != FlushClaims::All;
    let mut attempts = Attempts::begin();
    loop {
        let turn = ClaimTurn { only_released, ..attempts.turn(&turns) };
        match try_flush(catalog, shard_id, &turn).await {
            Ok(flushed) => return Ok(flushed),
            Err(error) => attempts.goes_on(&catalog.store, shard_id, error).await?,
        };
    }
}

/// Flushes through the job of this process that runs on the shard, which goes on. `None` where the
/// job has lost the shard, or was closed meanwhile.
async fn flush_running(job: &Job) -> Result<Option<Option<FlushedRows>>> {
    let flushed = async {
        job.writer.check_owned().await?;
        let rows = unflushed_rows(job)?;
        job.flush().await?;
        Ok::<_, Error>(rows)
    };
    match flushed.await {
        Ok(rows) => Ok(Some(rows)),
        Err(error) if is_end_of_job(error.kind()) => {
            job.wait_closed().await;
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

async fn try_flush(
    catalog: &Catalog,
    shard_id: ShardId,
    turn: &ClaimTurn,
) -> Result<Option<FlushedRows>> {
    let config = catalog.defaults.clone();
    let job = Job::open_in_turn(catalog, shard_id, config, Some(turn)).await?;
    let recovered = unflushed_rows(&job)?;
    job.close(true).await?;
    Ok(recovered)
}

/// The rows of the log, all of which a job has in memory.
fn unflushed_rows(job: &Job) -> Result<Option<FlushedRows>> {
    let memtables = job.writer.snapshot()?.memtables;
    let rows = memtables.iter().map(|rows| rows.rows() as u64).sum();
    Ok(memtables.last().map(|newest| FlushedRows { generation: newest.generation(), rows }))
}
