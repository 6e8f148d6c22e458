//! What a live read asks of a running job, wherever that runs.
//!
//! Owns: the trait.
//! Does not own: the jobs: of this process (`job` in `write`), or of another (`lancemem-flight`).

use std::fmt::Debug;

use async_trait::async_trait;
use lancemem_core::shard::ShardSnapshot;
use lancemem_core::types::{Result, ShardId};

use crate::table::catalog::Catalog;

/// A running job that a live read names: one of this process, or one that another serves.
#[async_trait]
pub trait LiveJob: Debug + Send + Sync {
    /// The shard that it writes.
    fn shard_id(&self) -> ShardId;

    /// The readable rows in its memory and the manifest below them, as one snapshot, for a read of
    /// `table`.
    ///
    /// # Errors
    /// What stopped the job, if it is not the shard's writer any more.
    async fn snapshot(&self, table: &Catalog) -> Result<ShardSnapshot>;
}
