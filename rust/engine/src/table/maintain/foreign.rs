//! Compaction of foreign shards.
//!
//! Owns: flushing the log of a foreign shard, and the order in which foreign shards are moved.
//! Does not own: which shards are foreign, and the rule for their keys (`foreign` in `catalog`).

use std::collections::BTreeSet;

use lancemem_core::store::Backoff;
use lancemem_core::types::{ErrorKind, Result, ShardId};

use super::compact::{Moved, drain_manifests};
use crate::compaction::CompactionSettings;
use crate::snapshot::Consistency;
use crate::table::Table;
use crate::table::read::{Purpose, Reading, Sources};
use crate::table::write::Job;

/// Attempts to claim and flush a foreign shard whose writer claims it too.
const MAX_ATTEMPTS: usize = 8;

impl Table {
    /// Moves the rows of foreign shards into the base table, one shard after the other. Where a log
    /// has rows, they are flushed first, which fences the shard's writer.
    ///
    /// # Errors
    /// As a compaction; fenced where another program keeps claiming a foreign shard.
    pub(super) async fn take_in_foreign(&self, settings: &CompactionSettings) -> Result<Moved> {
        let mut moved = Moved::default();
        let manifests = self.catalog.manifests().await?;
        let foreign = self.catalog.foreign_among(manifests.iter().map(|manifest| &**manifest));
        for shard_id in foreign.into_iter().collect::<BTreeSet<_>>() {
            self.flush_foreign(shard_id).await?;
            let of_shard = self.move_sstables(settings, Sources::Shard(shard_id)).await?;
            drain_manifests(&self.catalog, &of_shard.sstables).await?;
            moved.add(of_shard);
        }
        Ok(moved)
    }

    /// Flushes the log of a foreign shard. Claims the shard only where the log has rows.
    async fn flush_foreign(&self, shard_id: ShardId) -> Result<()> {
        let mut backoff = Backoff::at_once(MAX_ATTEMPTS);
        while self.has_log(shard_id).await? {
            let job = Job::open(&self.catalog, shard_id, self.catalog.defaults.clone()).await;
            let flushed = match job {
                Ok(job) => job.close(true).await,
                Err(error) => Err(error),
            };
            match flushed {
                Ok(()) => {
                    tracing::debug!(table = self.uri(), shard = %shard_id, "flushed a shard of another program");
                }
                Err(error) if error.kind() == ErrorKind::Fenced && !backoff.is_last() => {}
                Err(error) => return Err(error),
            }
            backoff.wait().await;
        }
        Ok(())
    }

    async fn has_log(&self, shard_id: ShardId) -> Result<bool> {
        let rows = self.catalog.latest().await?.schema.rows.clone();
        let reading = Reading {
            consistency: Consistency::Durable,
            jobs: &[],
            rows: &rows,
            purpose: Purpose::Scan,
        };
        let parts = self.reader.shard_parts(shard_id, reading).await?;
        Ok(parts.is_some_and(|parts| parts.memtables.iter().any(|rows| rows.rows() > 0)))
    }
}
