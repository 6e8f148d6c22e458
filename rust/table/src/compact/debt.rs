//! Base fragments of mostly dead rows, rewritten by lance's own compaction.
//!
//! Owns: which fragments, and the call.
//! Does not own: the rewriting and the remapping of indexes, which are lance's. It is a commit of
//! its own and changes no row that a reader sees.

use std::sync::Arc;

use lance::Dataset;
use lance::dataset::builder::DatasetBuilder;
use lance::dataset::optimize::{CompactionOptions, compact_files};
use lance_table::format::Fragment;
use lancemem_core::types::{ErrorKind, Result};

use super::commit::SyncedCommits;
use crate::errors::{Context, from_base};

/// What was rewritten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rewritten {
    /// Fragments that are gone.
    pub fragments_removed: usize,
    /// The newest version of the base table, as far as this call knows.
    pub base_version: u64,
}

/// Rewrites the fragments of `base` in which more than `max_dead_share` of the rows are dead.
///
/// Another commit that touches the same fragments wins; the next compaction tries again.
///
/// # Errors
/// A storage error.
pub async fn rewrite_dead_fragments(base: &Dataset, max_dead_share: f64) -> Result<Rewritten> {
    let base_version = base.version().version;
    let (poor, fine): (Vec<&Fragment>, Vec<&Fragment>) =
        base.fragments().iter().partition(|fragment| dead_share(fragment) > max_dead_share);
    if poor.is_empty() {
        return Ok(Rewritten { fragments_removed: 0, base_version });
    }
    let action = "rewriting base fragments of dead rows";
    let mut dataset = open_synced(base).await?;
    let options = CompactionOptions {
        excluded_fragment_ids: fine.iter().filter_map(|it| u32::try_from(it.id).ok()).collect(),
        materialize_deletions_threshold: 0.0,
        ..CompactionOptions::default()
    };
    // Boxed: lance's future is large.
    let done = Box::pin(compact_files(&mut dataset, options, None)).await;
    match done.map_err(|error| from_base(action, &error)) {
        Ok(done) => {
            let base_version = dataset.version().version;
            Ok(Rewritten { fragments_removed: done.fragments_removed, base_version })
        }
        Err(error) if error.kind() == ErrorKind::Retry || is_overtaken(base).await => {
            tracing::info!(table = base.uri(), %error, "dead rows of the base stay for now");
            Ok(Rewritten { fragments_removed: 0, base_version })
        }
        Err(error) => Err(error),
    }
}

/// Whether somebody has committed since, and perhaps cleaned this version up.
async fn is_overtaken(base: &Dataset) -> bool {
    let newest = base.latest_version_id().await;
    newest.is_ok_and(|newest| newest > base.version().version)
}

/// `base` at its version, with commits that are synced.
pub(super) async fn open_synced(base: &Dataset) -> Result<Dataset> {
    let mut builder = DatasetBuilder::from_uri(base.uri())
        .with_session(base.session())
        .with_version(base.version().version)
        .with_commit_handler(Arc::new(SyncedCommits::above(base)));
    if let Some(params) = base.store_params() {
        builder = builder.with_store_params(params.clone());
    }
    builder.load().await.context("opening the base table")
}

#[expect(clippy::cast_precision_loss, reason = "a share is compared with a rough limit")]
fn dead_share(fragment: &Fragment) -> f64 {
    let dead = fragment.deletion_file.as_ref().and_then(|file| file.num_deleted_rows);
    match (dead, fragment.physical_rows) {
        (Some(dead), Some(rows)) if rows > 0 => dead as f64 / rows as f64,
        _ => 0.0,
    }
}
