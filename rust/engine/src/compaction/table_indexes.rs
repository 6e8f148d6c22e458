//! The table's own indexes after a compaction.
//!
//! Owns: the call that adds new fragments to the indexes.
//! Does not own: the indexes. Without the call no row is missed: a version records which fragments
//! an index covers, and readers scan the other fragments.

use lance::Dataset;
use lance::index::DatasetIndexExt;
use lance_index::is_system_index;
use lance_index::optimize::OptimizeOptions;
use lancemem_core::types::Result;

use super::commit::committing;
use crate::errors::Context;
use crate::holds::{Hold, pass};

const ACTION: &str = "updating the indexes of the base table";

/// Adds the fragments that an index does not cover to the indexes of `base`, as `options` say.
/// Returns the version.
///
/// # Errors
/// A storage error; of kind retry also where a version since `base` was cleaned up.
pub async fn update_indexes(base: &Dataset, options: &OptimizeOptions) -> Result<u64> {
    let indices = base.load_indices().await.context(ACTION)?;
    if indices.iter().all(is_system_index) {
        return Ok(base.version().version);
    }
    let mut dataset = committing(base).await.context(ACTION)?;
    pass(Hold::Indexes, base.uri()).await;
    dataset.optimize_indices(options).await.context(ACTION)?;
    Ok(dataset.version().version)
}
