//! Missing generations: a base table that is older than its shards. Reads, claims and compactions
//! refuse it.
//!
//! Owns: which generations of a shard are missing, and their error; also the refusal of the
//! reverse, a shard that is older than the base table.
//! Does not own: the rule (`crate::snapshot`), or the repair (`relist` in `maintain`).
//!
//! Generations go missing where a version from before a compaction was restored, or where the base
//! table was copied before its shards. The rows of a generation that was compacted since are then
//! neither in the base table nor in a listed SSTable.

use std::collections::HashMap;
use std::fmt::Write as _;

use lance::Dataset;
use lancemem_core::format::ShardManifest;
use lancemem_core::types::{Error, Generation, Result, ShardId};

use super::Catalog;
use super::create::shard_id_of;
use crate::snapshot::{MissingRange, is_compacted, missing_generations};

/// Ranges that a message names.
const MAX_NAMED: usize = 5;

impl Catalog {
    /// The missing generations of a shard. `compacted` is the progress of each shard in a base
    /// version that was read after `manifest`.
    pub(in crate::table) fn missing_in(
        &self,
        manifest: &ShardManifest,
        compacted: &HashMap<ShardId, Generation>,
    ) -> Vec<MissingRange> {
        let progress = compacted.get(&manifest.shard_id).copied();
        missing_generations(manifest, progress, self.first_generation(manifest))
    }

    /// The first generation that can be missing, if the base version records no progress of the
    /// shard.
    ///
    /// Shards that this table created start at 1, or behind the progress. Other shards may be older
    /// than the index: if an index is dropped and added again, the progress is lost. What such a
    /// shard flushed before the oldest SSTable that it lists is in the base table.
    pub(in crate::table) fn first_generation(&self, manifest: &ShardManifest) -> Generation {
        let ordinal = self.ordinal_of(manifest).and_then(|ordinal| u32::try_from(ordinal).ok());
        let own = ordinal.map(|it| shard_id_of(self.table_id, self.shard_spec_id, it));
        if self.table_id.is_some() && own == Some(manifest.shard_id) {
            return Generation(1);
        }
        let listed = manifest.sstables.iter().map(|sstable| sstable.generation);
        listed.min().unwrap_or(manifest.current_generation)
    }

    /// Refuses a shard with missing generations. The base version was read after `manifest`.
    ///
    /// # Errors
    /// Damage, which names the generations and the repair.
    pub(in crate::table) fn refuse_missing(
        &self,
        manifest: &ShardManifest,
        compacted: &HashMap<ShardId, Generation>,
        base_version: u64,
    ) -> Result<()> {
        let missing = self.missing_in(manifest, compacted);
        if missing.is_empty() || self.excused.get() == Some(&manifest.shard_id) {
            return Ok(());
        }
        let shard_id = manifest.shard_id;
        let progress = compacted.get(&shard_id).copied();
        Err(Error::corrupt(
            format!("shard {shard_id} of table {}", self.uri()),
            "base table older than its shards",
            format!(
                "{}. List their SSTables again with Table.admin.relist_sstables or `python -m \
                 lancemem relist-sstables {}`, or restore a version of the base table that contains \
                 them",
                missing_text(&missing, manifest, base_version, progress),
                self.uri()
            ),
        ))
    }

    /// As [`Self::refuse_missing`], for a `base` that may have been read before `manifest`.
    ///
    /// # Errors
    /// As [`Self::refuse_missing`]; a storage error.
    pub(in crate::table) async fn check_complete(
        &self,
        base: &Dataset,
        manifest: &ShardManifest,
    ) -> Result<()> {
        let compacted = self.compacted_at(base).await?;
        if self.missing_in(manifest, &compacted).is_empty() {
            return Ok(());
        }
        // A compaction may have committed, and drained the manifest, since the base was read.
        let newest = self.latest_base().await?;
        let compacted = self.compacted_at(&newest).await?;
        self.refuse_missing(manifest, &compacted, newest.version().version)
    }

    /// Refuses a shard that has not yet flushed what the base table has taken over from it.
    pub(in crate::table) async fn refuse_older(
        &self,
        base: &Dataset,
        of: &ShardManifest,
    ) -> Result<()> {
        let compacted = self.compacted_at(base).await?.get(&of.shard_id).copied();
        if !is_compacted(compacted, of.current_generation) {
            return Ok(());
        }
        Err(Error::corrupt(
            format!("shard {} of table {}", of.shard_id, self.uri()),
            "older than its table",
            format!(
                "it has flushed nothing from generation {} on, and the base table has taken over {}: \
                 its folder was lost, or copied at an earlier time",
                of.current_generation,
                compacted.unwrap_or_default()
            ),
        ))
    }
}

/// The missing generations, and why that is damage, as text.
pub(in crate::table) fn missing_text(
    missing: &[MissingRange],
    manifest: &ShardManifest,
    base_version: u64,
    progress: Option<Generation>,
) -> String {
    let progress = progress.unwrap_or_default();
    let mut text = ranges_text(missing);
    let _ = write!(
        text,
        ": flushed, not listed by version {} of the shard manifest, and not contained in version \
         {base_version} of the base table, which contains the shard's rows through generation \
         {progress}. An older version of the base table was restored, or the base table was copied \
         before its shards",
        manifest.version
    );
    text
}

/// The ranges as text, at most [`MAX_NAMED`] of them.
pub(in crate::table) fn ranges_text(missing: &[MissingRange]) -> String {
    let named: Vec<String> = missing.iter().take(MAX_NAMED).map(ToString::to_string).collect();
    let mut text = named.join(", ");
    if missing.len() > MAX_NAMED {
        let _ = write!(text, " and {} more ranges", missing.len() - MAX_NAMED);
    }
    text
}
