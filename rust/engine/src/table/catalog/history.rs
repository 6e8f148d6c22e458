//! The versions of the base table, newest first.
//!
//! Owns: the description of a version and of its commit, which may be a compaction of lancemem.
//! Does not own: a snapshot of an old version (`version` in `read`).

use std::time::SystemTime;

use async_recursion::async_recursion as boxed;
use lance::dataset::transaction::Operation;
use lancemem_core::types::Result;

use crate::errors::{BaseContext, is_absent};
use crate::table::Table;

/// One version of the base table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableVersion {
    /// Its number.
    pub version: u64,
    /// When it was committed.
    pub timestamp: SystemTime,
    /// Lance's name of the operation; `None` where the version records no transaction.
    pub operation: Option<String>,
    /// Shards whose generations the commit moved into the base table. More than 0 in a compaction.
    pub compacted_shards: usize,
}

impl Table {
    /// The newest `limit` versions of the base table, newest first. Upserts make no version: rows
    /// reach the base table with a compaction. Versions that were cleaned up are left out.
    ///
    /// # Errors
    /// Damage of a version's manifest; a storage error.
    #[boxed]
    pub async fn history(&self, limit: Option<usize>) -> Result<Vec<TableVersion>> {
        let action = "reading the versions of the base table";
        let base = self.catalog.latest_base().await?;
        let mut numbers: Vec<u64> = base
            .version_refs()
            .await
            .in_base(action)?
            .into_iter()
            .map(|version| version.version)
            .filter(|version| *version <= base.version().version)
            .collect();
        numbers.sort_unstable_by(|one, other| other.cmp(one));
        numbers.truncate(limit.unwrap_or(usize::MAX));
        let mut versions = Vec::with_capacity(numbers.len());
        for number in numbers {
            let read = match base.read_version_transaction(number).await {
                // The version was cleaned up after the versions were listed.
                Err(error) if number < base.version().version && is_absent(&error) => continue,
                read => read.in_base(action)?,
            };
            let operation = read.transaction.map(|transaction| transaction.operation);
            let compacted_shards = match &operation {
                Some(Operation::Update { compacted_sstables, .. }) => compacted_sstables.len(),
                _ => 0,
            };
            versions.push(TableVersion {
                version: read.version,
                timestamp: read.timestamp.into(),
                operation: operation.map(|operation| operation.name().to_owned()),
                compacted_shards,
            });
        }
        Ok(versions)
    }
}
