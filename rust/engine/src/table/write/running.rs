//! The running jobs of this process, by table and shard.
//!
//! Owns: which job of this process the writes of a shard go through, and whose memory a live read
//! shows. A claim by the same process would fence that job.
//! Does not own: the jobs of calls (`lingering`, `bulk`), which are not recorded, or jobs of other
//! processes.
//!
//! A job is recorded while its starter has the turn of this process at the shard (`claims` in
//! `catalog`). A write claims the shard in its turn too, and looks here first. So no upsert,
//! delete or flush of this process fences a job of this process; the commit of a bulk write does.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use futures::FutureExt;
use futures::future::BoxFuture;
use lancemem_core::shard::ShardSnapshot;
use lancemem_core::types::{ErrorKind, PerProcess, Result, ShardId};
use parking_lot::Mutex;
use uuid::Uuid;

use super::job::Job;
use crate::table::catalog::Catalog;

/// The location of a table, its id, and a shard. The id distinguishes the table from a later table
/// at the same location.
pub(super) type JobAddress = (String, Option<Uuid>, ShardId);

type Jobs = Mutex<HashMap<JobAddress, Weak<Job>>>;

/// The newest job of each shard. A forked child has none of the jobs of its parent.
static JOBS: PerProcess<Jobs> = PerProcess::new(Jobs::default);

/// Records a job that has claimed its shard. The job before it is fenced.
pub(super) fn record(job: &Arc<Job>) {
    let mut jobs = JOBS.get().lock();
    jobs.retain(|_, job| job.strong_count() > 0);
    jobs.insert(job.address(), Arc::downgrade(job));
}

/// The job of this process that runs on a shard. A close that has begun is waited for.
///
/// A job that does not know yet that it was fenced counts as running.
pub(in crate::table) async fn running_job(
    catalog: &Catalog,
    shard_id: ShardId,
) -> Option<Arc<Job>> {
    let job = newest_job(catalog, shard_id)?;
    if job.has_ended() {
        job.wait_closed().await;
        return None;
    }
    job.writer.failure().is_none().then_some(job)
}

/// Whether a call that has the turn of this process at a shard may claim it: no job of this process
/// runs there or is being closed. Waits for nothing, because a close may wait for other turns.
pub(super) fn may_claim(catalog: &Catalog, shard_id: ShardId) -> bool {
    newest_job(catalog, shard_id)
        .is_none_or(|job| job.writer.failure().is_some() || job.is_closed())
}

/// The newest job that this process started on a shard, if it is still held.
fn newest_job(catalog: &Catalog, shard_id: ShardId) -> Option<Arc<Job>> {
    let address = (catalog.location.home(), catalog.table_id, shard_id);
    JOBS.get().lock().get(&address).and_then(Weak::upgrade)
}

/// The rows in the memory of the job of this process that runs on a shard, for a live read; `None`
/// where no such job owns the shard. Then storage has every row that can still be read.
///
/// # Errors
/// A storage error.
pub(in crate::table) fn running_snapshot(
    catalog: &Catalog,
    shard_id: ShardId,
) -> BoxFuture<'_, Result<Option<ShardSnapshot>>> {
    async move {
        let Some(job) = running_job(catalog, shard_id).await else { return Ok(None) };
        match job.owned_snapshot().await {
            Ok(snapshot) => Ok(Some(snapshot)),
            Err(error) if is_end_of_job(error.kind()) => {
                job.wait_closed().await;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
    .boxed()
}

/// Whether an error of this kind means that the job is no writer of its shard any more.
pub(super) const fn is_end_of_job(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Fenced | ErrorKind::Reopen)
}
