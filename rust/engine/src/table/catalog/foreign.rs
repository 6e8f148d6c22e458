//! Foreign shards: shards that another program opened beside the shards of the table's sharding.
//!
//! Owns: which shards are foreign.
//! Does not own: the table's own shards, which share no key (`shards`), the choice of one row where
//! several shards have a key (`foreign_rows` in `read`), or the move of their rows into the base
//! table (`foreign` in `maintain`).
//!
//! The rule: if several shards have a key, the row of the own shard is shown; among foreign shards,
//! the row of the shard whose id sorts last. Neither generations nor epochs of two shards tell
//! which row is newer. Compaction keeps the result the same: it moves the rows of foreign shards
//! first, in the order of their ids, and then the rows of own shards.

use std::collections::HashSet;

use lancemem_core::format::{ShardManifest, Sharding};
use lancemem_core::types::{Result, ShardId};

use super::{Catalog, SHARDING_FIELD};

impl Catalog {
    /// The foreign shards among `manifests`, the manifests of all shards: those that record no
    /// bucket. There are none where callers name the shards, where no shard of a bucketed table
    /// records its bucket, and where an unsharded table has one shard only.
    pub(in crate::table) fn foreign_among<'a>(
        &self,
        manifests: impl Iterator<Item = &'a ShardManifest>,
    ) -> HashSet<ShardId> {
        let (recorded, unrecorded): (Vec<_>, Vec<_>) =
            manifests.partition(|manifest| manifest.bucket(SHARDING_FIELD).is_some());
        let is_own = match &self.sharding {
            None => true,
            Some(Sharding::Unsharded) => recorded.is_empty() && unrecorded.len() < 2,
            Some(Sharding::Bucket { .. }) => recorded.is_empty(),
        };
        if is_own {
            return HashSet::new();
        }
        unrecorded.into_iter().map(|manifest| manifest.shard_id).collect()
    }

    /// Whether an existing shard is foreign.
    pub(in crate::table) async fn is_foreign(&self, manifest: &ShardManifest) -> Result<bool> {
        if self.sharding.is_none() || manifest.bucket(SHARDING_FIELD).is_some() {
            return Ok(false);
        }
        let manifests = self.manifests().await?;
        let foreign = self.foreign_among(manifests.iter().map(|manifest| &**manifest));
        Ok(foreign.contains(&manifest.shard_id))
    }
}
