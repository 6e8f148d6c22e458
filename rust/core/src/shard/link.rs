//! Runs that were written elsewhere, taken into a shard.
//!
//! Owns: their place in the order of generations, and that all of them appear at once, together
//! with their mark.
//! Does not own: writing a run. Whoever wrote these needed no claim, because a run that no
//! manifest lists means nothing.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow_array::RecordBatch;

use super::memtable_layout;
use super::writer::ShardWriter;
use crate::format::{AcceptedRows, RowSchema, ShardManifest, SsTable};
use crate::memtable::{MemTable, MemTableView};
use crate::types::{Generation, Mark, Marks, Result, WriterConfig};

/// Rows of a run that no manifest lists yet, as a sink takes them; their generation is 0 until
/// the run is linked.
#[must_use]
pub fn unlisted_rows(
    schema: &RowSchema,
    config: &WriterConfig,
    rows: Vec<AcceptedRows>,
) -> MemTableView {
    let layout = memtable_layout(schema, config.key_index);
    let memtable = Arc::new(MemTable::new(Generation(0), layout));
    for rows in rows {
        let bytes = rows.memory_bytes();
        memtable.push(rows.batch, rows.keys, bytes);
    }
    let batches = memtable.batches();
    memtable.index_through(batches);
    memtable.view(batches)
}

impl ShardWriter {
    /// Takes `runs` into the shard, in their order and newer than every row in it, and ends the
    /// job. Returns false where `mark` says that this was done before, or all of them are there.
    ///
    /// Rows in the log are flushed first: their generation is below those of the runs. One
    /// manifest version then lists all runs and the mark.
    ///
    /// # Errors
    /// Fenced, or why the flush or the manifest could not be written; the runs are then either
    /// all listed or none is. Stale where a newer version than the mark's is written.
    pub async fn link(&self, runs: &[SsTable], mark: Option<&Mark>) -> Result<bool> {
        let shared = &self.shared;
        {
            let _placing = shared.placing.lock();
            shared.check_open()?;
            shared.closed.store(true, Ordering::Release);
        }
        let linked = self.link_closed(runs, mark).await;
        // Without it a put whose mark made this call needless might not be durable yet.
        let closed = self.close(false).await;
        match linked {
            Ok(false) => closed.map(|()| false),
            linked => linked,
        }
    }

    async fn link_closed(&self, runs: &[SsTable], mark: Option<&Mark>) -> Result<bool> {
        let shared = &self.shared;
        if let Some(mark) = mark
            && !shared.marks.lock().is_new(shared.shard_id, mark)?
        {
            return Ok(false);
        }
        shared.queue.hurry();
        shared.queue.wait_durable(shared.queue.queued()).await?;
        shared.flush_all().await?;
        // A call that is repeated without a mark meets its own runs.
        let listed = shared.state().manifest.clone();
        if runs.iter().all(|run| listed.lists(&run.path)) {
            return Ok(false);
        }
        let mut brought = Marks::default();
        if let Some(mark) = mark {
            brought.record(mark.application(), mark.version());
        }
        let change = |manifest: &mut ShardManifest| {
            for run in runs {
                if manifest.lists(&run.path) {
                    continue;
                }
                let generation = manifest.current_generation;
                manifest.sstables.push(SsTable { generation, ..run.clone() });
                manifest.current_generation = generation.next();
            }
            manifest.marks.merge(&brought);
            manifest.marks.forget_old(&brought);
        };
        shared.manifests.update(shared.epoch, change).await?;
        Ok(true)
    }

    /// The newest version of `application` in the shard, of writes that may not be durable yet.
    #[must_use]
    pub fn mark(&self, application: &str) -> Option<i64> {
        self.shared.marks.lock().get(application)
    }

    /// Rows and deletes in one put, in the order of the rows: a row whose value in `deletes` is
    /// true deletes its key, whatever its other columns hold.
    ///
    /// # Errors
    /// As [`Self::put`].
    pub async fn apply_with(
        &self,
        rows: &RecordBatch,
        deletes: &arrow_array::BooleanArray,
        mode: super::WriteMode,
        mark: Option<&Mark>,
    ) -> Result<super::Acknowledged> {
        self.shared.check_open()?;
        let schema = self.shared.schema();
        let rows = schema.accept_changes(rows, deletes)?;
        self.shared.place(&schema, rows, mode, mark).await
    }
}
