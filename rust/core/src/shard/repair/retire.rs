//! Taking a shard from whoever may still write it, where it holds no row that is owed to anybody.
//!
//! Owns: that nothing is in its log or its runs, and the fence that keeps it so.
//! Does not own: why the shard is not wanted any more.

use std::sync::Arc;

use super::check::inspect;
use super::{WalFinding, WalReport};
use crate::format::ShardManifest;
use crate::store::{ManifestStore, Store};
use crate::types::{Error, Result, WriterConfig};
use crate::wal::{WalAppender, highest_position};

/// Fences the writer of a shard without rows; the shard can be claimed again, under any sharding.
///
/// # Errors
/// An input error where the shard lists runs or its log has rows, also such as came until the fence
/// stood, or damage: they are left as they are. A storage error.
pub async fn retire(store: &Store, manifests: &Arc<ManifestStore>) -> Result<()> {
    let manifest = manifests.existing().await?;
    let last = highest_position(store, manifest.shard_id).await?;
    refuse_rows(&manifest, &inspect(store, &manifest, last.next()).await?)?;
    let manifest = manifests.claim().await?;
    let config = WriterConfig::default();
    let fence = WalAppender::fence(store.clone(), manifests.clone(), &manifest, &config).await?;
    refuse_rows(&manifest, &inspect(store, &manifest, fence.sentinel()).await?)?;
    if manifest.sharding.is_some() {
        // Not with the claim: rows that came until the fence stood are still of that sharding.
        manifests.update(manifest.writer_epoch, |manifest| manifest.sharding = None).await?;
    }
    Ok(())
}

fn refuse_rows(manifest: &ShardManifest, log: &WalReport) -> Result<()> {
    let is_owed = |it: &&WalFinding| it.damage.is_some() || it.rows.is_some_and(|rows| rows > 0);
    let (runs, entries) = (manifest.sstables.len(), log.findings.iter().filter(is_owed).count());
    if runs == 0 && entries == 0 {
        return Ok(());
    }
    Err(Error::input(format!(
        "shard {} lists {runs} runs and has {entries} entries with rows in its log",
        manifest.shard_id
    )))
}
