//! Field ids that are given to one column only.
//!
//! Owns: the migration of the base table to non-reusable field ids, and when it runs.
//! Does not own: which stored column is which (the core's `reconcile`).

use async_recursion::async_recursion as boxed;
use lance::Dataset;
use lancemem_core::types::Result;

use super::Catalog;
use super::commit::beside_commits;
use crate::compaction::committing;
use crate::errors::Context;
use crate::schema::{BaseVersion, newest_of};
use crate::sstable::sync_base;

/// Attempts of a commit that reads and writes nothing but a version.
const MAX_ATTEMPTS: usize = 50;

impl Catalog {
    /// The newest version, in which no field id is given twice from now on.
    #[boxed]
    pub(in crate::table) async fn without_reused_ids(&self) -> Result<BaseVersion> {
        let newest = self.latest().await?;
        if newest.dataset.manifest().uses_non_reusable_field_ids() {
            return Ok(newest);
        }
        let action = format!("fixing the field ids of table {}", self.uri());
        let base = with_own_field_ids(Dataset::clone(&newest.dataset), &action).await?;
        if self.location.is_local() && self.defaults.fsync {
            sync_base(&base).await.context(&action)?;
        }
        self.latest().await
    }
}

/// Makes the field ids of the table non-reusable, and returns the newest version. A new column must
/// not get the id of a dropped one, because rows above the base table may still have values under
/// that id. Retries after concurrent commits, one of which may be the same migration.
async fn with_own_field_ids(mut base: Dataset, action: &str) -> Result<Dataset> {
    let mut backoff = beside_commits(MAX_ATTEMPTS);
    while !base.manifest().uses_non_reusable_field_ids() {
        let migrated = match committing(&base).await {
            Ok(mut base) => base.migrate_to_non_reusable_field_ids().await,
            Err(error) => Err(error),
        };
        let before = base.version().version;
        base = newest_of(&base).await.context(action)?;
        let Err(error) = migrated.context(action) else { continue };
        if base.manifest().uses_non_reusable_field_ids() {
            break;
        }
        if base.version().version == before || backoff.is_last() {
            return Err(error);
        }
        backoff.wait().await;
    }
    Ok(base)
}
