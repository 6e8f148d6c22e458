//! The files that publish the changes of flushes.
//!
//! Owns: reading and listing them, and opening the rows that one of them names.
//! Does not own: writing and removing them (`table`).

use std::collections::BTreeSet;
use std::sync::Arc;

use lance::Dataset;
use lancemem_core::format::{PublishedFlush, paths};
use lancemem_core::store::Store;
use lancemem_core::types::{Error, Generation, MaxBytes, Result, ShardId};

use crate::errors::{Context, SsTableErrors};
use crate::sstable::{SsTableContext, open_change_rows};

const OPENING: &str = "opening the changes of a flush";

/// The published changes of a generation; `None` if the generation has no publication.
///
/// # Errors
/// Damage; a storage error.
pub async fn published_flush(
    store: &Store,
    shard_id: ShardId,
    generation: Generation,
) -> Result<Option<PublishedFlush>> {
    let path = paths::published_flush(shard_id, generation);
    let Some(bytes) = store.get(&path, MaxBytes::NOTE).await? else { return Ok(None) };
    PublishedFlush::decode(&bytes, &path, generation).map(Some)
}

/// The generations of a shard whose changes are published.
///
/// # Errors
/// A storage error.
pub async fn published_generations(
    store: &Store,
    shard_id: ShardId,
) -> Result<BTreeSet<Generation>> {
    let names = store.list_files(&paths::flushed_changes(shard_id)).await?;
    Ok(names.iter().filter_map(|name| paths::parse_published_flush(name)).collect())
}

/// The change rows of a publication; `None` where the generation changes no row. `base` is any
/// version of the table.
///
/// # Errors
/// Damage; a storage error.
pub async fn open_rows(
    base: &Dataset,
    shard_id: ShardId,
    publication: &PublishedFlush,
) -> Result<Option<Arc<Dataset>>> {
    let Some(folder) = publication.folder() else { return Ok(None) };
    let context = SsTableContext::of_flushed_changes(base, shard_id).await.context(OPENING)?;
    let opened = Box::pin(open_change_rows(&context, &folder, publication.manifest_crc32)).await;
    let path = format!("{}/{folder}", paths::flushed_changes(shard_id));
    let dataset = opened.in_sstable(&path)?;
    let rows = dataset.fragments().iter().map(|fragment| fragment.physical_rows);
    let rows: Option<usize> = rows.sum();
    if rows.map(|rows| rows as u64) != Some(publication.rows) {
        let detail = format!("its dataset has not the {} rows", publication.rows);
        return Err(Error::corrupt(path, "undecodable", detail));
    }
    Ok(Some(Arc::new(dataset)))
}
