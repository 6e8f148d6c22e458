//! Missing generations: a base table that is older than its shards. Reads, claims and compactions
//! refuse it.
//!
//! Owns: which generations of a shard are missing, their error, and updating the snapshot of a job
//! with SSTables that were listed again beside the job.
//! Does not own: the rule (`snapshot`), or the repair (`relist`).
//!
//! Generations go missing where a version from before a compaction was restored, or where the base
//! table was copied before its shards. The rows of a generation that was compacted since are then
//! neither in the base table nor in a listed SSTable.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;

use lance::Dataset;
use lancemem_core::format::ShardManifest;
use lancemem_core::types::{Error, Generation, Result, ShardId};

use super::create::shard_id_of;
use super::shards::Shard;
use crate::snapshot::{LogPart, MissingRange, missing_generations};
use crate::table::Table;
use crate::table::maintain::SsTableReport;
use crate::table::read::ShardParts;

/// Ranges that a message names.
const MOST_NAMED: usize = 5;

impl Table {
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
    fn first_generation(&self, manifest: &ShardManifest) -> Generation {
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

    /// Updates the snapshots of running jobs where a generation is missing: it may have been listed
    /// again, and a job reads the manifest only at its next flush. True if a snapshot was updated;
    /// then the base version must be read again.
    pub(in crate::table) async fn follow_relisted(
        &self,
        base: &Dataset,
        parts: &mut [ShardParts],
    ) -> Result<bool> {
        if parts.iter().all(|part| part.log != LogPart::Job) {
            return Ok(false);
        }
        let compacted = self.compacted_at(base).await?;
        let mut has_followed = false;
        for part in parts.iter_mut().filter(|part| part.log == LogPart::Job) {
            if self.missing_in(&part.manifest, &compacted).is_empty() {
                continue;
            }
            let Some(newest) = self.manifest_of(part.manifest.shard_id).await? else { continue };
            // Rows that the job has flushed since are in the MemTables of its snapshot.
            let current = part.manifest.current_generation;
            let below = newest.sstables.iter().filter(|sstable| sstable.generation < current);
            let sstables = below.cloned().collect();
            part.manifest = Arc::new(ShardManifest { sstables, ..(*part.manifest).clone() });
            has_followed = true;
        }
        Ok(has_followed)
    }

    /// A report for each range of missing generations of `shards`.
    pub(in crate::table) async fn missing_reports(
        &self,
        shards: &[Shard],
    ) -> Result<Vec<SsTableReport>> {
        let mut reports = Vec::new();
        for shard in shards {
            let shard_id = shard.shard_id;
            let Some(manifest) = self.manifest_of(shard_id).await? else { continue };
            let base = self.latest_base().await?;
            let compacted = self.compacted_at(&base).await?;
            let (version, progress) = (base.version().version, compacted.get(&shard_id).copied());
            for range in self.missing_in(&manifest, &compacted) {
                reports.push(SsTableReport {
                    shard_id,
                    generation: range.first,
                    path: String::new(),
                    files: 0,
                    bytes: 0,
                    unchecked: Vec::new(),
                    damage: vec![missing_text(&[range], &manifest, version, progress)],
                });
            }
        }
        Ok(reports)
    }
}

/// The missing generations, and why that is damage, as text.
fn missing_text(
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

/// The ranges as text, at most [`MOST_NAMED`] of them.
pub(in crate::table) fn ranges_text(missing: &[MissingRange]) -> String {
    let named: Vec<String> = missing.iter().take(MOST_NAMED).map(ToString::to_string).collect();
    let mut text = named.join(", ");
    if missing.len() > MOST_NAMED {
        let _ = write!(text, " and {} more ranges", missing.len() - MOST_NAMED);
    }
    text
}
