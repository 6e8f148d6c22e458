//! Base fragments of mostly dead rows, rewritten by lance's own compaction.
//!
//! Owns: the choice of fragments, and the call.
//! Does not own: the rewrite and the remapping of indexes, which are lance's.
//!
//! The rewrite is a commit of its own and changes no row that a reader sees.

use lance::Dataset;
use lance::dataset::optimize::{CompactionOptions, compact_files};
use lance_table::format::Fragment;
use lancemem_core::types::{ErrorKind, Result};

use super::commit::committing;
use crate::errors::{Context, from_base};
use crate::holds::{Hold, pass};
use crate::stages::{Stage, StageName};

const ACTION: &str = "rewriting base fragments of dead rows";

/// What was rewritten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rewritten {
    /// Number of fragments that the rewrite removed.
    pub fragments_removed: usize,
    /// The version of this commit; the version of the plan where nothing was rewritten.
    pub base_version: u64,
    /// Whether nothing was rewritten because another commit came first: the plan was for a version
    /// that is not the newest any more.
    pub is_overtaken: bool,
}

/// Rewrites the fragments of `base` in which more than `max_dead_share` of the rows are dead.
///
/// Another commit that touches the same fragments wins. So does any commit whose version was
/// cleaned up since, because its fragments are unknown. The caller may plan again.
///
/// # Errors
/// A storage error.
pub async fn rewrite_dead_fragments(base: &Dataset, max_dead_share: f64) -> Result<Rewritten> {
    let base_version = base.version().version;
    let (poor, fine): (Vec<&Fragment>, Vec<&Fragment>) =
        base.fragments().iter().partition(|fragment| dead_share(fragment) > max_dead_share);
    if poor.is_empty() {
        return Ok(Rewritten { base_version, ..Rewritten::default() });
    }
    let options = CompactionOptions {
        excluded_fragment_ids: fine.iter().filter_map(|it| u32::try_from(it.id).ok()).collect(),
        materialize_deletions_threshold: 0.0,
        ..CompactionOptions::default()
    };
    let stage = Stage::begin(StageName::RewriteFragments, poor.len());
    let error = match rewrite(base, options).await {
        Ok((fragments_removed, base_version)) => {
            stage.add(poor.len());
            return Ok(Rewritten { fragments_removed, base_version, is_overtaken: false });
        }
        Err(error) => error,
    };
    let is_overtaken = is_overtaken(base).await;
    if error.kind() == ErrorKind::Retry || is_overtaken {
        tracing::info!(table = base.uri(), %error, "fragments of dead rows were not rewritten");
        return Ok(Rewritten { base_version, is_overtaken, ..Rewritten::default() });
    }
    Err(error)
}

/// Rewrites fragments; returns how many were removed, and the version without them.
async fn rewrite(base: &Dataset, options: CompactionOptions) -> Result<(usize, u64)> {
    let mut dataset = committing(base).await.context(ACTION)?;
    pass(Hold::Rewrite, base.uri()).await;
    // Boxed: lance's future is large.
    let done = Box::pin(compact_files(&mut dataset, options, None)).await;
    let done = done.map_err(|error| from_base(ACTION, error))?;
    Ok((done.fragments_removed, dataset.version().version))
}

/// Whether a newer version than `base` exists.
async fn is_overtaken(base: &Dataset) -> bool {
    let newest = base.latest_version_id().await;
    newest.is_ok_and(|newest| newest > base.version().version)
}

#[expect(clippy::cast_precision_loss, reason = "a share is compared with a rough limit")]
fn dead_share(fragment: &Fragment) -> f64 {
    let dead = fragment.deletion_file.as_ref().and_then(|file| file.num_deleted_rows);
    match (dead, fragment.physical_rows) {
        (Some(dead), Some(rows)) if rows > 0 => dead as f64 / rows as f64,
        _ => 0.0,
    }
}
