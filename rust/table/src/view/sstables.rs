//! Open SSTables, shared by all views of a table.
//!
//! Owns: one handle per run, with its keys once somebody needed them.
//! Does not own: which runs a view reads.

use std::collections::HashMap;
use std::sync::Arc;

use futures::TryStreamExt;
use lance::Dataset;
use lancemem_core::format::{KeyEncoder, SsTable};
use lancemem_core::types::{Generation, KeyBytes, Result, ShardId};
use parking_lot::Mutex;
use tokio::sync::OnceCell;

use crate::errors::{Context, RunContext};
use crate::sstable::{SsTableContext, open_sstable};

/// An open run. Runs are immutable, so what was read once stays true.
#[derive(Debug)]
pub struct SsTableHandle {
    /// Its shard.
    pub shard_id: ShardId,
    /// Its age in the shard.
    pub generation: Generation,
    /// Folder name inside the shard.
    pub path: String,
    /// The run as a Lance dataset; its deletion vector hides rows superseded inside the run.
    pub dataset: Arc<Dataset>,
    keys: OnceCell<Arc<[KeyBytes]>>,
}

impl SsTableHandle {
    /// The keys of the run's rows, tombstones included, each once.
    ///
    /// # Errors
    /// A storage error while the key columns are read for the first time.
    pub async fn keys(&self, key: &[String]) -> Result<Arc<[KeyBytes]>> {
        self.keys.get_or_try_init(|| self.read_keys(key)).await.cloned()
    }

    async fn read_keys(&self, key: &[String]) -> Result<Arc<[KeyBytes]>> {
        let action = &format!("SSTable {} of shard {}", self.path, self.shard_id);
        let mut scanner = self.dataset.scan();
        scanner.project(key).in_run(action)?;
        let mut stream = scanner.try_into_stream().await.in_run(action)?;
        let mut keys = Vec::new();
        while let Some(batch) = stream.try_next().await.in_run(action)? {
            keys.extend(KeyEncoder::new(batch.schema_ref(), key)?.encode(&batch));
        }
        Ok(keys.into())
    }
}

/// The runs that are open in this process, by shard and folder.
#[derive(Debug, Default)]
pub struct SsTableCache(Mutex<HashMap<(ShardId, String), Arc<SsTableHandle>>>);

impl SsTableCache {
    /// The handle of a run, opened where it is not.
    ///
    /// # Errors
    /// Where the run cannot be opened.
    pub async fn open(
        &self,
        base: &Dataset,
        shard_id: ShardId,
        sstable: &SsTable,
    ) -> Result<Arc<SsTableHandle>> {
        let place = (shard_id, sstable.path.clone());
        if let Some(handle) = self.0.lock().get(&place) {
            return Ok(handle.clone());
        }
        let action = format!("SSTable {} of shard {shard_id}", sstable.path);
        let context = SsTableContext::new(base, shard_id).await.context(&action)?;
        let dataset = open_sstable(&context, &sstable.path).await.in_run(&action)?;
        let handle = Arc::new(SsTableHandle {
            shard_id,
            generation: sstable.generation,
            path: sstable.path.clone(),
            dataset: Arc::new(dataset),
            keys: OnceCell::new(),
        });
        Ok(self.0.lock().entry(place).or_insert(handle).clone())
    }

    /// Closes the runs of `shard_id` that no manifest lists any more.
    pub fn retain(&self, shard_id: ShardId, listed: &[SsTable]) {
        self.0.lock().retain(|(shard, path), _| {
            *shard != shard_id || listed.iter().any(|sstable| sstable.path == *path)
        });
    }
}
