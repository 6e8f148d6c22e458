//! The rows of one SSTable that newer sources supersede, by position.
//!
//! Owns: the comparison of all keys of an SSTable with all keys of the sources above it.
//! Does not own: when it is worth its cost, or a few keys (`newer`).

use std::sync::Arc;

use datafusion::common::runtime::SpawnedTask;
use futures::future::try_join_all;
use lancemem_core::format::KeyForm;
use lancemem_core::types::{Error, Result};

use crate::snapshot::{Snapshot, Source, SsTableHandle};
use crate::visibility::{DeadRows, NewerKeys, SourceKeys, superseded_by};

/// The rows of `sstable` whose keys the sources of `newer` have ([`Snapshot::newer_than`]), and its
/// tombstones.
///
/// # Errors
/// A storage error while keys of an SSTable are read.
pub async fn superseded(newer: &Arc<Snapshot>, sstable: &SsTableHandle) -> Result<DeadRows> {
    let above = newer.sources().filter_map(|(freshness, source)| match source {
        Source::SsTable(sstable) => {
            Some(async move { Ok::<_, Error>((freshness, sstable.keys(&newer.key).await?)) })
        }
        Source::MemTable(_) => None,
    });
    let above = try_join_all(above).await?;
    let keys = sstable.keys(&newer.key).await?;
    let tombstones = sstable.tombstones().await?;
    let newer = newer.clone();
    // A comparison of many keys would block this thread of the runtime.
    let compared = SpawnedTask::spawn_blocking(move || {
        let stored = above.iter().map(|(freshness, keys)| SourceKeys {
            freshness: *freshness,
            at_most: keys.len(),
            keys: Box::new(keys.keys()) as Box<dyn Iterator<Item = &[u8]>>,
        });
        let memory = newer.sources().filter_map(|(freshness, source)| match source {
            Source::MemTable(rows) => {
                let keys: Box<dyn Iterator<Item = &[u8]>> = Box::new(rows.newest_keys());
                Some(SourceKeys { freshness, at_most: rows.rows(), keys })
            }
            Source::SsTable(_) => None,
        });
        let form = KeyForm::of(&newer.schema, &newer.key);
        let above = NewerKeys::of(form, stored.chain(memory).collect())?;
        Ok(DeadRows::of_sstable(superseded_by(&above, &keys) | &*tombstones))
    });
    compared.await.map_err(|error| {
        Error::internal(format!("comparing the keys of an SSTable: {error}")).with_source(error)
    })?
}
