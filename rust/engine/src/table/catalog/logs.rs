//! The logs of a table's shards: the rows that are durable and in no SSTable yet.
//!
//! Owns: how many rows and bytes the log of each shard has, read without a claim.
//! Does not own: the reads of one log (the core's `log_size`), or flushing it (`maintain`).

use std::sync::Arc;

use async_recursion::async_recursion as boxed;
use futures::future::try_join_all;
use lancemem_core::format::ShardManifest;
use lancemem_core::shard::{log_rows, log_size};
use lancemem_core::types::{Result, ShardId};

use super::Catalog;

/// Logs that are read at once. Each read keeps a few entries in memory.
const LOGS_AT_ONCE: usize = 8;

/// The part of a shard's log that no flush has covered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardLog {
    /// The shard.
    pub shard_id: ShardId,
    /// Its bucket; 0 in an unsharded table; `None` where its manifest records none.
    pub ordinal: Option<i32>,
    /// Rows, superseded rows and tombstones included.
    pub rows: u64,
    /// Bytes of its entries in storage, fence sentinels included.
    pub bytes: u64,
    /// Whether the shard's claim is released: a flush by another process stops no job.
    pub is_released: bool,
}

impl Catalog {
    /// The log of every shard, by ordinal. Lists each log, and reads the entries that no flush has
    /// covered.
    ///
    /// # Errors
    /// A storage error, or damage of a log.
    #[boxed]
    pub(in crate::table) async fn logs(&self) -> Result<Vec<ShardLog>> {
        let manifests = self.manifests().await?;
        let foreign = self.foreign_among(manifests.iter().map(|manifest| &**manifest));
        let mut logs = Vec::with_capacity(manifests.len());
        for some in manifests.chunks(LOGS_AT_ONCE) {
            let measured = some.iter().map(|manifest| self.log_of(manifest));
            logs.extend(try_join_all(measured).await?);
        }
        for log in &mut logs {
            log.ordinal = log.ordinal.filter(|_| !foreign.contains(&log.shard_id));
        }
        logs.sort_by_key(|log| (log.ordinal.unwrap_or(i32::MAX), log.shard_id));
        Ok(logs)
    }

    async fn log_of(&self, manifest: &Arc<ShardManifest>) -> Result<ShardLog> {
        let shard_id = manifest.shard_id;
        let size = log_size(&self.store, manifest).await?;
        let rows = match size.entries {
            0 => 0,
            _ => log_rows(&self.store, &self.manifest_store(shard_id)).await?,
        };
        Ok(ShardLog {
            shard_id,
            ordinal: self.ordinal_of(manifest),
            rows,
            bytes: size.bytes,
            is_released: manifest.is_released(),
        })
    }
}
