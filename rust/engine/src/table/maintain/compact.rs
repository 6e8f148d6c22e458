//! Compaction of a table, and draining its shard manifests.
//!
//! Owns: retries after a conflict, and the order: base commit first, manifests second. A crash in
//! between leaves SSTables listed that the base table contains. Readers of lancemem skip these; for
//! other readers they have the same rows as the base table.
//! Does not own: the commit itself (`compaction`).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use async_recursion::async_recursion as boxed;
use futures::FutureExt;
use lance::Dataset;
use lancemem_core::format::ShardManifest;
use lancemem_core::shard::rounded_seconds;
use lancemem_core::store::Backoff;
use lancemem_core::types::{ErrorKind, Generation, Result, ShardId};

use crate::changes::Changelog;
use crate::compaction::{
    Compaction, CompactionResult, CompactionSettings, LinkedSsTable, LogHandling, Rewritten,
    Segments, rewrite_dead_fragments,
};
use crate::errors::Context;
use crate::holds::{Hold, pass};
use crate::snapshot::{Consistency, is_compacted};
use crate::sstable::sync_base;
use crate::table::Table;
use crate::table::catalog::{Catalog, beside_commits, compacted_of};
use crate::table::read::{Purpose, Sources};

/// Attempts to commit. After a concurrent commit only the rows that it added are looked up, so a
/// retry does not cost the whole plan.
const MAX_ATTEMPTS: usize = 50;
/// Failed commits without a concurrent commit before a compaction returns the error: the storage
/// fails then.
const FAILURES: u32 = 4;
/// Plans that find damage without a concurrent compaction. Another program may have cleaned up the
/// base version of the plan.
const DAMAGED_PLANS: u32 = 3;
/// Attempts to rewrite dead fragments beside concurrent commits.
const MAX_REWRITES: usize = 3;

/// The generations that one or several commits moved.
#[derive(Debug, Default)]
pub(super) struct Moved {
    pub result: CompactionResult,
    pub sstables: HashSet<(ShardId, Generation)>,
    pub linked: Vec<LinkedSsTable>,
}

impl Moved {
    /// Adds the result of a later commit.
    pub fn add(&mut self, later: Self) {
        let (sum, later_result) = (&mut self.result, later.result);
        sum.generations += later_result.generations;
        sum.linked += later_result.linked;
        sum.rewritten += later_result.rewritten;
        sum.dropped += later_result.dropped;
        sum.rows_written += later_result.rows_written;
        sum.rows_deleted += later_result.rows_deleted;
        sum.late_rows += later_result.late_rows;
        sum.copied_bytes += later_result.copied_bytes;
        sum.fragments_added += later_result.fragments_added;
        sum.fragments_rewritten += later_result.fragments_rewritten;
        sum.base_version = sum.base_version.max(later_result.base_version);
        sum.sstables.extend(later_result.sstables);
        self.sstables.extend(later.sstables);
        self.linked.extend(later.linked);
    }
}

impl Table {
    /// Moves every flushed SSTable into the base table, all shards in one commit.
    ///
    /// ```no_run
    /// use lancemem::Table;
    ///
    /// # async fn example() -> lancemem::Result<()> {
    /// let table = Table::open("/data/board.lance").await?;
    /// let result = table.compact().await?;
    /// assert_eq!(result.sstables.len(), result.generations);
    /// // Why the oldest SSTable was linked, rewritten or dropped.
    /// let reason = result.sstables.first().map(|sstable| &sstable.decision.reason);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Self::compact_with`].
    #[boxed]
    pub async fn compact(&self) -> Result<CompactionResult> {
        self.compact_with(&CompactionSettings::default()).await
    }

    /// Moves every flushed SSTable into the base table. The steps:
    ///
    /// 0. A flush of all logs, where `settings` ask for it. See [`Self::flush`].
    /// 1. Rows of foreign shards, one commit for each shard. Their writers are fenced where their
    ///    logs have rows.
    /// 2. The flushed SSTables of all own shards, in one commit.
    /// 3. The indexes of linked SSTables as segments of the table's indexes, in a commit of its own.
    /// 4. A rewrite of base fragments whose rows are mostly dead, in a commit of its own.
    /// 5. Segments over the other fragments that the indexes lack, in a commit of its own; a merge
    ///    of the segments of an index that has many.
    ///
    /// Steps 3 and 5 are left out where `settings` ask for it.
    ///
    /// After a concurrent commit to the base table a step is planned again from the newest version.
    ///
    /// # Errors
    /// A storage error after repeated conflicts; nothing is half done.
    #[boxed]
    pub async fn compact_with(&self, settings: &CompactionSettings) -> Result<CompactionResult> {
        self.catalog.writable_store(self.catalog.defaults.fsync).await?;
        if settings.logs == LogHandling::Flush && !settings.dry_run {
            self.flush().await?;
        }
        let started = Instant::now();
        let mut result = self.compact_sstables(settings).boxed().await?;
        self.log_compaction(&result, settings, started);
        if settings.logs != LogHandling::Ignore {
            result.rows_in_logs = self.rows_in_logs().await;
        }
        Ok(result)
    }

    /// The log line of a compaction that has moved SSTables or rewritten fragments.
    fn log_compaction(
        &self,
        result: &CompactionResult,
        settings: &CompactionSettings,
        started: Instant,
    ) {
        if settings.dry_run || (result.generations == 0 && result.fragments_rewritten == 0) {
            return;
        }
        let moved: HashSet<ShardId> = result.sstables.iter().map(|moved| moved.shard_id).collect();
        tracing::info!(
            table = self.uri(),
            shards = moved.len(),
            generations = result.generations,
            rows = result.rows_written,
            bytes = result.sstables.iter().map(|moved| moved.bytes).sum::<u64>(),
            version = result.base_version,
            seconds = rounded_seconds(started.elapsed()),
            "compacted"
        );
    }

    /// The rows of all logs; `None` where a log could not be read, which undoes no commit.
    async fn rows_in_logs(&self) -> Option<u64> {
        match self.catalog.logs().await {
            Ok(logs) => Some(logs.iter().map(|log| log.rows).sum()),
            Err(error) => {
                tracing::warn!(table = self.uri(), %error, "the rows in logs were not counted");
                None
            }
        }
    }

    async fn compact_sstables(&self, settings: &CompactionSettings) -> Result<CompactionResult> {
        // A dry run claims nothing and does not report foreign shards.
        let mut moved = if settings.dry_run {
            Moved::default()
        } else {
            self.take_in_foreign(settings).await?
        };
        let own = self.move_sstables(settings, Sources::Own).await?;
        moved.add(own);
        let Moved { mut result, sstables, linked } = moved;
        if settings.dry_run {
            return Ok(result);
        }
        // Before the drain, so that no collector takes the SSTables for garbage.
        let mut segments = Segments::default();
        if settings.update_indexes {
            segments = self.link_segments(&linked, settings.bytes_per_second).boxed().await;
        }
        pass(Hold::Drain, self.catalog.base.known().dataset.uri()).await;
        drain_manifests(&self.catalog, &sstables).await?;
        let rewritten = rewrite_dead(&self.catalog, settings.max_dead_share).await?;
        result.fragments_rewritten = rewritten.fragments_removed;
        result.base_version = result.base_version.max(rewritten.base_version);
        if let Err(error) = self.extend_record_index(&linked).boxed().await {
            // The commits stand. Lookups read the keys of fragments that the index does not cover.
            tracing::warn!(table = self.uri(), %error, "the record index falls behind");
        }
        if settings.update_indexes {
            match self.cover_fragments(segments).boxed().await {
                Ok((indexes, version)) => {
                    result.indexes = indexes;
                    result.base_version = result.base_version.max(version);
                }
                // The commits stand. Reads look at the rows without an index.
                Err(error) => {
                    tracing::warn!(table = self.uri(), %error, "the indexes fall behind");
                }
            }
        }
        self.publish_stored_changes().await;
        Ok(result)
    }

    /// Plans and commits, with retries after concurrent commits, and a few where the storage fails.
    pub(super) async fn move_sstables(
        &self,
        settings: &CompactionSettings,
        sources: Sources,
    ) -> Result<Moved> {
        let mut compaction = self.plan_compaction(settings, sources).await?;
        let mut backoff = beside_commits(MAX_ATTEMPTS);
        let mut failures = 0;
        loop {
            if compaction.moved().next().is_some() && !settings.dry_run {
                self.catalog.make_durable(compaction.base()).await?;
                // The commit is exact: it fails where a later version sets the property.
                if Changelog::of(compaction.base()) == Changelog::Flushed {
                    self.publish_flushed_changes(None).boxed().await?;
                }
            }
            let error = match compaction.run().await {
                Ok(result) => {
                    let linked = compaction.linked().to_vec();
                    return Ok(Moved { result, sstables: compaction.moved().collect(), linked });
                }
                Err(error) => error,
            };
            let passes = match error.kind() {
                ErrorKind::Retry => true,
                // Another compaction may have moved an SSTable, and a collector removed it since.
                // Or another program cleaned up the base version.
                ErrorKind::Corruption => {
                    let base = self.catalog.latest_base().await?;
                    base.version().version > compaction.base_version()
                        || compaction.is_overtaken(&*self.catalog.compacted_at(&base).await?)
                }
                _ => false,
            };
            if !passes || backoff.is_last() {
                return Err(error);
            }
            let attempt = backoff.attempt();
            tracing::info!(table = self.uri(), attempt, %error, "compaction plans again");
            backoff.wait().await;
            let base = self.catalog.latest_base().await?;
            failures += u32::from(base.version().version == compaction.base_version());
            if failures == FAILURES {
                return Err(error);
            }
            compaction = self.planned_on(base, compaction, settings, sources).await?;
        }
    }

    /// The plan for `base`, after a concurrent commit: the old plan on the new version where it
    /// still holds, else a new one.
    ///
    /// # Errors
    /// An input error where that commit gave the table another index: rows that were routed by one
    /// sharding must not get into a version with another. Those of a plan.
    async fn planned_on(
        &self,
        base: Arc<Dataset>,
        mut compaction: Compaction,
        settings: &CompactionSettings,
        sources: Sources,
    ) -> Result<Compaction> {
        let compacted = self.catalog.compacted_at(&base).await?;
        let has_changed =
            compaction.has_other_columns(&base) || compaction.is_overtaken(&compacted);
        if has_changed || !compaction.may_be_rebased() {
            return self.plan_compaction(settings, sources).await;
        }
        compaction.rebase(base);
        Ok(compaction)
    }

    async fn plan_compaction(
        &self,
        settings: &CompactionSettings,
        sources: Sources,
    ) -> Result<Compaction> {
        let mut damaged = 0;
        loop {
            let consistency = Consistency::Flushed;
            let snapshot =
                self.reader.snapshot_of(consistency, &[], Purpose::Scan, sources).await?;
            let compacted = self.catalog.compacted_at(&snapshot.base).await?;
            let cover = self.reader.cover_of(&snapshot).await;
            let version = snapshot.base.version().version;
            let plan = Compaction::plan(
                snapshot,
                compacted.clone(),
                settings.clone(),
                cover,
                &self.reader.sstables,
            );
            match plan.boxed().await {
                Err(error) if error.kind() == ErrorKind::Corruption => {
                    self.reader.merges.forget();
                    // As in `move_sstables`, a compaction or a clean-up may have removed files.
                    let base = self.catalog.latest_base().await?;
                    let is_newest = base.version().version == version;
                    if compacted_of(&base).await? == *compacted {
                        damaged += 1;
                        if is_newest || damaged == DAMAGED_PLANS {
                            return Err(error);
                        }
                    }
                    tracing::info!(table = self.uri(), %error, "compaction plans again");
                }
                planned => return planned,
            }
        }
    }
}

/// Rewrites dead fragments, with a few retries after concurrent commits: each reads the
/// fragments again. The next compaction rewrites those that are left.
async fn rewrite_dead(catalog: &Catalog, max_dead_share: f64) -> Result<Rewritten> {
    let mut backoff = Backoff::at_once(MAX_REWRITES);
    loop {
        let base = catalog.latest_base().await?;
        catalog.make_durable(&base).await?;
        let rewritten = rewrite_dead_fragments(&base, max_dead_share).await?;
        if !rewritten.is_overtaken || backoff.is_last() {
            return Ok(rewritten);
        }
        backoff.wait().await;
    }
}

/// Removes the SSTables from the shard manifests that the base table contains. `moved` are
/// those whose commit was made, and synced, by this call.
pub(super) async fn drain_manifests(
    catalog: &Catalog,
    moved: &HashSet<(ShardId, Generation)>,
) -> Result<()> {
    let manifests = catalog.manifests().await?;
    let base = catalog.latest_base().await?;
    let compacted = compacted_of(&base).await?;
    let is_foreign = |manifest: &ShardManifest| {
        let through = compacted.get(&manifest.shard_id).copied();
        let mut sstables = manifest.sstables.iter().map(|sstable| sstable.generation);
        sstables.any(|sstable| {
            is_compacted(through, sstable) && !moved.contains(&(manifest.shard_id, sstable))
        })
    };
    if manifests.iter().any(|manifest| is_foreign(manifest)) {
        // The process that committed them may have ended before its sync.
        sync_base(&base).await.context("making an earlier compaction durable")?;
    }
    for manifest in manifests {
        drain_manifest(catalog, &manifest, &compacted).await?;
    }
    Ok(())
}

async fn drain_manifest(
    catalog: &Catalog,
    manifest: &ShardManifest,
    compacted: &HashMap<ShardId, Generation>,
) -> Result<()> {
    let through = compacted.get(&manifest.shard_id).copied();
    let covered = |generation| is_compacted(through, generation);
    if !manifest.sstables.iter().any(|sstable| covered(sstable.generation)) {
        return Ok(());
    }
    catalog
        .manifest_store(manifest.shard_id)
        .update_beside_owner(|manifest| {
            manifest.sstables.retain(|sstable| !covered(sstable.generation));
        })
        .await
        .map(|_| ())
}

#[cfg(test)]
mod held;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use arrow_array::{Int64Array, RecordBatch};
    use arrow_schema::{DataType, Field, Schema};
    use lance::index::DatasetIndexExt;
    use lancemem_core::format::Sharding;
    use lancemem_core::types::WriterConfig;

    use super::*;
    use crate::sstable::files_of_commit;
    use crate::table::{CreateOptions, Job, MaintenanceConfig};

    fn rows(ids: std::ops::Range<i64>) -> RecordBatch {
        let schema = Arc::new(Schema::new(vec![
            Field::new("id", DataType::Int64, false),
            Field::new("v", DataType::Int64, true),
        ]));
        let ids = Arc::new(Int64Array::from_iter_values(ids));
        RecordBatch::try_new(schema, vec![ids.clone(), ids]).unwrap()
    }

    /// Files of the base table, without the version hint: a reader that finds it wrong lists the
    /// versions.
    fn files_below(folder: &Path, files: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            if path.is_dir() && name != "_mem_wal" {
                files_below(&path, files);
            } else if path.is_file() && name != "latest_version_hint.json" {
                files.insert(path.to_str().unwrap().trim_start_matches('/').to_owned());
            }
        }
    }

    fn files_of(folder: &Path) -> BTreeSet<String> {
        let mut files = BTreeSet::new();
        files_below(folder, &mut files);
        files
    }

    async fn table_in(folder: &Path) -> (Arc<Table>, Arc<Job>) {
        let options = CreateOptions::new(rows(0..0).schema()).with_primary_key(["id"]);
        let table = Table::create(folder.to_str().unwrap(), &options).await.unwrap();
        let shard_id = table.shards().await.unwrap()[0].shard_id;
        let job = table
            .start_job(
                shard_id,
                table.writer_defaults().clone(),
                table.maintenance_defaults().clone(),
            )
            .await
            .unwrap();
        (table, job)
    }

    async fn flush(job: &Job, ids: std::ops::Range<i64>) {
        job.put(&rows(ids)).await.unwrap();
        job.flush().await.unwrap();
    }

    /// Restores the base table to `version`, as a new version.
    async fn restore(table: &Table, version: u64) {
        let base = table.latest_base().await.unwrap();
        base.checkout_version(version).await.unwrap().restore().await.unwrap();
    }

    #[tokio::test]
    async fn a_row_that_a_restore_brings_back_after_the_plan_dies_all_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let (table, job) = table_in(folder.path()).await;
        flush(&job, 0..10).await;
        table.compact().await.unwrap();
        let mut base = Dataset::clone(&*table.latest_base().await.unwrap());
        let before = base.version().version;
        base.delete("id = 3").await.unwrap();
        flush(&job, 3..4).await;
        let settings = CompactionSettings::default();
        let mut compaction = table.plan_compaction(&settings, Sources::Own).await.unwrap();
        restore(&table, before).await;
        let refused = compaction.run().await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Retry, "{refused}");
        let newest = table.latest_base().await.unwrap();
        assert!(!compaction.is_overtaken(&compacted_of(&newest).await.unwrap()));
        compaction.rebase(newest);
        assert_eq!(compaction.run().await.unwrap().rows_deleted, 1);
        let base = table.latest_base().await.unwrap();
        assert_eq!(base.count_rows(Some("id = 3".to_owned())).await.unwrap(), 1);
        assert_eq!(base.count_rows(None).await.unwrap(), 10);
        job.close(false).await.unwrap();
    }

    #[tokio::test]
    async fn a_plan_is_made_anew_where_a_restore_took_back_what_it_builds_on() {
        let folder = tempfile::tempdir().unwrap();
        let (table, job) = table_in(folder.path()).await;
        let before = table.latest_base().await.unwrap().version().version;
        flush(&job, 0..5).await;
        table.compact().await.unwrap();
        flush(&job, 5..10).await;
        let settings = CompactionSettings::default();
        let compaction = table.plan_compaction(&settings, Sources::Own).await.unwrap();
        let newest = table.latest_base().await.unwrap();
        assert!(!compaction.is_overtaken(&compacted_of(&newest).await.unwrap()));
        restore(&table, before).await;
        let newest = table.latest_base().await.unwrap();
        assert!(compaction.is_overtaken(&compacted_of(&newest).await.unwrap()));
        job.close(false).await.unwrap();
    }

    #[tokio::test]
    async fn a_plan_is_abandoned_where_a_restore_brought_another_index() {
        let folder = tempfile::tempdir().unwrap();
        let (table, job) = table_in(folder.path()).await;
        job.close(false).await.unwrap();
        let mut base = Dataset::clone(&*table.latest_base().await.unwrap());
        let before = base.version().version;
        base.drop_index("__lance_mem_wal").await.unwrap();
        let buckets = Sharding::Bucket { column: "id".to_owned(), buckets: 2 };
        let (config, maintenance) = (WriterConfig::default(), MaintenanceConfig::default());
        let table =
            Table::enable(table.uri(), Some(&buckets), None, &config, &maintenance).await.unwrap();
        table.upsert(&rows(0..10)).await.unwrap();
        for shard in table.shards().await.unwrap() {
            let job =
                table.start_job(shard.shard_id, config.clone(), maintenance.clone()).await.unwrap();
            job.close(true).await.unwrap();
        }
        let settings = CompactionSettings::default();
        let mut compaction = table.plan_compaction(&settings, Sources::Own).await.unwrap();
        restore(&table, before).await;
        let refused = compaction.run().await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Retry, "{refused}");
        let newest = Arc::new(newest_of(folder.path()).await);
        let refused = table
            .planned_on(newest, compaction, &settings, Sources::Own)
            .await
            .map(drop)
            .unwrap_err();
        assert!(refused.to_string().contains("was replaced by another one"), "{refused}");
        assert!(table.compact().await.is_err());
        assert_eq!(newest_of(folder.path()).await.count_rows(None).await.unwrap(), 0);
    }

    async fn newest_of(folder: &Path) -> Dataset {
        Dataset::open(folder.to_str().unwrap()).await.unwrap()
    }

    #[tokio::test]
    async fn a_compaction_syncs_each_file_that_appears_on_disk() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        let (table, job) = table_in(&folder).await;
        // New rows only; some that replace others; all of a fragment's rows replaced.
        for (ids, kinds) in [
            (0..10, &["_transactions", "_versions", "data"][..]),
            (5..20, &["_deletions", "_transactions", "_versions", "data"]),
            (0..20, &["_transactions", "_versions", "data"]),
        ] {
            flush(&job, ids).await;
            let before = table.latest_base().await.unwrap();
            let old = files_of(&folder);
            table.compact().await.unwrap();
            let after = table.latest_base().await.unwrap();
            let new: BTreeSet<String> = files_of(&folder).difference(&old).cloned().collect();
            let synced: BTreeSet<String> =
                files_of_commit(&before, &after).iter().map(ToString::to_string).collect();
            assert_eq!(synced, new);
            let root = folder.to_str().unwrap().trim_start_matches('/');
            let found: BTreeSet<&str> =
                new.iter().map(|file| file[root.len() + 1..].split('/').next().unwrap()).collect();
            assert_eq!(found, kinds.iter().copied().collect::<BTreeSet<_>>());
        }
        job.close(true).await.unwrap();
    }
}
