//! A base table that is older than its shards: refused by reads, claims and compactions.
//!
//! Owns: which generations of a shard are missing, their error, and what a job's cut lacks of what was
//! listed again beside the job.
//! Does not own: the rule (`snapshot`), or the repair (`relist`).
//!
//! A version from before a compaction was restored, or the base was copied before its shards: the
//! rows of a generation that was compacted since are in no place where a reader looks.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;

use lance::Dataset;
use lancemem_core::format::ShardManifest;
use lancemem_core::types::{Error, Generation, Result, ShardId};

use super::Table;
use super::create::shard_id_of;
use super::read::ShardParts;
use super::repair::SsTableReport;
use super::shards::Shard;
use crate::snapshot::{LogPart, MissingRange, missing_generations};

/// Ranges that a message names.
const MOST_NAMED: usize = 5;

impl Table {
    /// The generations of a shard that are missing where a base version, read after `manifest`,
    /// contains of each shard what `compacted` says.
    pub(super) fn missing_in(
        &self,
        manifest: &ShardManifest,
        compacted: &HashMap<ShardId, Generation>,
    ) -> Vec<MissingRange> {
        let progress = compacted.get(&manifest.shard_id).copied();
        missing_generations(manifest, progress, self.first_generation(manifest))
    }

    /// From which generation on a base version without a progress owes the rows of a shard.
    ///
    /// The shards that this table has made start at 1, or behind the progress. Others may be from
    /// before its index was dropped and made anew, which forgets the progress: what such a shard
    /// had flushed before the oldest SSTable that it lists is in the base table.
    fn first_generation(&self, manifest: &ShardManifest) -> Generation {
        let ordinal = self.ordinal_of(manifest).and_then(|ordinal| u32::try_from(ordinal).ok());
        let own = ordinal.map(|it| shard_id_of(self.table_id, self.shard_spec_id, it));
        if self.table_id.is_some() && own == Some(manifest.shard_id) {
            return Generation(1);
        }
        let listed = manifest.sstables.iter().map(|sstable| sstable.generation);
        listed.min().unwrap_or(manifest.current_generation)
    }

    /// Refuses a shard of which generations are missing from a base version that was read after
    /// `manifest`.
    ///
    /// # Errors
    /// Damage, which names the generations and the way out.
    pub(super) fn refuse_missing(
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

    /// The same for a `base` that may have been read before `manifest`.
    ///
    /// # Errors
    /// As [`Self::refuse_missing`]; a storage error.
    pub(super) async fn check_complete(
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

    /// Brings snapshots of running jobs up to date where a generation is missing from them: it may have
    /// been listed again, of which a job learns at its next flush. Whether it did: the base has to
    /// be read again then.
    pub(super) async fn follow_relisted(
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
            // What the job has flushed since is in the memory of its snapshot.
            let current = part.manifest.current_generation;
            let below = newest.sstables.iter().filter(|sstable| sstable.generation < current);
            let sstables = below.cloned().collect();
            part.manifest = Arc::new(ShardManifest { sstables, ..(*part.manifest).clone() });
            has_followed = true;
        }
        Ok(has_followed)
    }

    /// What is missing of `shards`, as a report for each range of generations.
    pub(super) async fn missing_reports(&self, shards: &[Shard]) -> Result<Vec<SsTableReport>> {
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

/// What is missing, and why that is damage.
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

/// The ranges, as far as a message can name them.
pub(super) fn ranges_text(missing: &[MissingRange]) -> String {
    let named: Vec<String> = missing.iter().take(MOST_NAMED).map(ToString::to_string).collect();
    let mut text = named.join(", ");
    if missing.len() > MOST_NAMED {
        let _ = write!(text, " and {} more ranges", missing.len() - MOST_NAMED);
    }
    text
}
