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

use super::commit::committing;
use crate::errors::Context;
use crate::holds::{Hold, pass};

const ACTION: &str = "updating the indexes of the base table";

/// Merges the fragments that no index covers into the indexes of `base`. Returns the version.
///
/// # Errors
/// A storage error; of kind retry also where the version of another commit that came first was cleaned up.
pub async fn update_indexes(base: &Dataset) -> Result<u64> {
    let indices = base.load_indices().await.context(ACTION)?;
    if indices.iter().all(is_system_index) {
        return Ok(base.version().version);
    }
    let mut dataset = committing(base).await.context(ACTION)?;
    pass(Hold::Indexes, base.uri()).await;
    dataset.optimize_indices(&OptimizeOptions::default()).await.context(ACTION)?;
    Ok(dataset.version().version)
}
