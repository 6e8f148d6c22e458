//! The flush of one shard's log by a call that holds no job there.
//!
//! Owns: the claim in turn, the replay, the flush and the end of the job that does it, and the
//! retries beside other writers.
//! Does not own: which logs are flushed (`maintain`), or the flush of a running job.

use lancemem_core::shard::ClaimTurn;
use lancemem_core::types::{Generation, Result, ShardId};

use super::job::Job;
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

/// Moves the log of a shard into SSTables; `None` where the log has no row. The call takes over the
/// shard as an upsert does. With `only_released` it takes over a released claim and no other.
///
/// # Errors
/// An input error where the claim is not released, and has to be. Crowded, of kind retry, where
/// other writers held the shard all the time. The error of the flush: the rows stay in the log.
pub(in crate::table) async fn flush_log(
    catalog: &Catalog,
    shard_id: ShardId,
    only_released: bool,
) -> Result<Option<FlushedRows>> {
    let turns = ShardTurns::of(catalog.location.home(), shard_id);
    let _turn = turns.queue.lock().await;
    let mut attempts = Attempts::begin();
    loop {
        let turn = ClaimTurn { only_released, ..attempts.turn(&turns) };
        match try_flush(catalog, shard_id, &turn).await {
            Ok(flushed) => return Ok(flushed),
            Err(error) => attempts.goes_on(&catalog.store, shard_id, error).await?,
        };
    }
}

async fn try_flush(
    catalog: &Catalog,
    shard_id: ShardId,
    turn: &ClaimTurn,
) -> Result<Option<FlushedRows>> {
    let config = catalog.defaults.clone();
    let job = Job::open_in_turn(catalog, shard_id, config, Some(turn)).await?;
    let recovered = recovered_rows(&job)?;
    job.close(true).await?;
    Ok(recovered)
}

/// The rows of the log, which a job has in memory right after its start.
fn recovered_rows(job: &Job) -> Result<Option<FlushedRows>> {
    let memtables = job.writer.snapshot()?.memtables;
    let rows = memtables.iter().map(|rows| rows.rows() as u64).sum();
    Ok(memtables.last().map(|newest| FlushedRows { generation: newest.generation(), rows }))
}
