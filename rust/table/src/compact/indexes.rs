//! The table's own indexes after a compaction.
//!
//! Owns: the call that lets them take up new fragments.
//! Does not own: the indexes. Without the call nothing is missed: a version says which fragments
//! an index covers, and readers scan the others.

use lance::Dataset;
use lance::index::DatasetIndexExt;
use lance_index::is_system_index;
use lance_index::optimize::OptimizeOptions;
use lancemem_core::types::Result;

use super::debt::open_synced;
use crate::errors::Context;

/// Merges the fragments that no index covers into the indexes of `base`. Returns the version.
///
/// # Errors
/// A storage error.
pub async fn update_indexes(base: &Dataset) -> Result<u64> {
    let action = "updating the indexes of the base table";
    let indices = base.load_indices().await.context(action)?;
    if indices.iter().all(is_system_index) {
        return Ok(base.version().version);
    }
    let mut dataset = open_synced(base).await?;
    dataset.optimize_indices(&OptimizeOptions::default()).await.context(action)?;
    Ok(dataset.version().version)
}
