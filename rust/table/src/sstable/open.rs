//! Opening a run that a shard manifest lists.
//!
//! Owns: the way from the name in a manifest to a dataset.
//! Does not own: which runs are live, or caching of opened datasets.

use lance::Dataset;
use lance::dataset::builder::DatasetBuilder;
use lance_core::{Error, Result};
use lancemem_core::format::paths;

use super::SsTableContext;

/// Opens the run `path`, a folder name as [`super::SsTableWritten::path`] has it.
///
/// # Errors
/// An input error for a `path` that is not one plain component: a manifest must not be able to
/// send a reader outside its shard. Else lance's error for a dataset that is missing or broken.
pub async fn open_sstable(context: &SsTableContext, path: &str) -> Result<Dataset> {
    if !paths::is_plain_component(path) {
        return Err(Error::invalid_input(format!(
            "SSTable path '{path}' of shard {} is not a plain folder name",
            context.shard_uri
        )));
    }
    let uri = context.uri(path);
    let mut builder = DatasetBuilder::from_uri(&uri).with_session(context.session.clone());
    if let Some(params) = context.store_params(path) {
        builder = builder.with_store_params(params);
    }
    builder.load().await
}
