//! SSTables that were written elsewhere, taken into a shard.
//!
//! Owns: their place in the order of generations, and that all of them appear at once, together
//! with their transaction id.
//! Does not own: writing an SSTable. That needs no claim, because an SSTable that no manifest lists
//! is invisible.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::memtable_layout;
use super::transactions::expiry;
use super::writer::{ShardWriter, Shared};
use crate::format::{AcceptedRows, RowSchema, ShardManifest, SsTable};
use crate::memtable::{MemTable, MemTableView};
use crate::types::{Generation, Result, Standing, Txn, Txns, WriterConfig};

/// An SSTable to ingest, and the transaction id that its shard records for it. A repeated ingest
/// does nothing, also where a compaction has removed the SSTable from the manifest meanwhile.
/// SSTables may share a transaction id.
pub type IngestedSsTable = (SsTable, Txn);

/// Rows of an SSTable that no manifest lists yet, as a sink takes them; their generation is 0 until
/// the SSTable is ingested.
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
    /// Takes `sstables` into the shard, in their order and newer than every row in it, and ends the
    /// job. Returns the folders of the SSTables that it listed: no folder where their transaction
    /// ids are recorded already, or where all of the SSTables are listed.
    ///
    /// Rows in the log are flushed first: their generation is below the generations of the
    /// SSTables. One manifest version then lists all SSTables and the transaction ids.
    ///
    /// # Errors
    /// Fenced, or why the flush or the manifest could not be written; then either all of the
    /// SSTables are listed or no SSTable is. Stale where a newer version than a transaction's is
    /// written.
    pub async fn link(&self, sstables: &[IngestedSsTable]) -> Result<Vec<String>> {
        let shared = &self.shared;
        {
            let _placing = shared.placing.lock();
            shared.check_open()?;
            shared.closed.store(true, Ordering::Release);
        }
        let linked = self.link_closed(sstables).await;
        // A put with the same transaction id may have made this call needless: the close waits
        // until that put is durable.
        let closed = self.close(false).await;
        match linked {
            Ok(linked) if linked.is_empty() => closed.map(|()| linked),
            linked => linked,
        }
    }

    async fn link_closed(&self, sstables: &[IngestedSsTable]) -> Result<Vec<String>> {
        let shared = &self.shared;
        let sstables = new_sstables(shared, sstables)?;
        if sstables.is_empty() {
            return Ok(Vec::new());
        }
        shared.log.drain().await?;
        shared.flush_all().await?;
        // SSTables of an older call may be listed without the transaction ids of this call, which
        // are recorded now.
        let listed = shared.state().manifest.clone();
        let to_list: Vec<_> =
            sstables.iter().filter(|(sstable, _)| !listed.lists(&sstable.path)).collect();
        let mut brought = Txns::default();
        for (_, txn) in &sstables {
            brought.record(txn.app_id(), txn.version());
        }
        let now = expiry(&shared.flusher.manifests, &listed.txns).await;
        let change = |manifest: &mut ShardManifest| {
            for (sstable, txn) in &to_list {
                // An earlier attempt may have landed with its answer lost; a compaction may have
                // removed its SSTables since.
                if manifest.lists(&sstable.path) || manifest.txns.standing(txn) != Standing::New {
                    continue;
                }
                let generation = manifest.current_generation;
                manifest.sstables.push(SsTable { generation, ..(*sstable).clone() });
                manifest.current_generation = generation.next();
            }
            manifest.txns.merge(&brought);
            manifest.txns.forget_old(&brought, now);
        };
        shared.stop_where_fenced(shared.flusher.manifests.update(shared.epoch, change).await)?;
        Ok(to_list.iter().map(|(sstable, _)| sstable.path.clone()).collect())
    }

    /// The newest version of `app_id` in the shard, of writes that may not be durable yet.
    #[must_use]
    pub fn txn_version(&self, app_id: &str) -> Option<i64> {
        self.shared.flusher.txns.lock().get(app_id)
    }
}

/// The SSTables whose transaction ids the shard has not recorded.
fn new_sstables<'a>(
    shared: &Shared,
    sstables: &'a [IngestedSsTable],
) -> Result<Vec<&'a IngestedSsTable>> {
    let recorded = shared.flusher.txns.lock();
    let mut new = Vec::with_capacity(sstables.len());
    for sstable in sstables {
        if recorded.is_new(shared.shard_id, &sstable.1)? {
            new.push(sstable);
        }
    }
    Ok(new)
}
