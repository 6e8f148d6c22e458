//! The record index of a table: create, extend, verify, merge and drop.
//!
//! Owns: when sorted runs are built, and which runs are published.
//! Does not own: the contents of a run (`record_index`).
//!
//! Invariant: at every moment the published runs cover what they covered before. A run is published
//! after its pages are durable, and a run is unpublished after its replacement is published. A
//! table without a published run has no record index. A drop unpublishes all runs and leaves their
//! pages to the collector.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_recursion::async_recursion as boxed;
use lance::Dataset;
use lance_table::format::Fragment;
use lancemem_core::format::paths;
use lancemem_core::store::Store;
use lancemem_core::types::Result;

use crate::compaction::LinkedSsTable;
use crate::garbage::{Garbage, GarbageKind};
use crate::record_index::{
    IndexRuns, Merged, NewRun, OpenRun, RecordIndex, RecordIndexReport, RunSize, build, check, due,
    groups, is_ours_to_link, link_file, merge,
};
use crate::table::Table;
use crate::table::catalog::Catalog;

/// Unpublished pages stay at least this long: they may belong to a run that is being built.
const UNPUBLISHED_AGE: Duration = Duration::from_hours(1);

impl Table {
    /// Creates the record index of the base table, or rebuilds an existing one. From then on
    /// compactions extend it.
    ///
    /// # Errors
    /// An input error for a table without a primary key; a storage error.
    #[boxed]
    pub async fn create_record_index(&self) -> Result<RecordIndexReport> {
        self.catalog.require_key()?;
        let store = self.catalog.writable_store(self.catalog.defaults.fsync).await?;
        let old = published_names(&store).await?;
        let base = self.catalog.latest_base().await?;
        let mut parts = groups(indexable(&base, |_| true));
        if parts.is_empty() {
            parts.push(Vec::new());
        }
        for part in parts {
            build(&base, &self.catalog.key, &part).await?.publish(&store).await?;
        }
        unpublish(&store, &old).await?;
        self.merge_full_levels(&base, &store).await?;
        self.reader.sstables.base().forget();
        describe_record_index(&self.catalog, &base).await
    }

    /// Drops the record index, if there is one. From then on lookups read the key columns of the
    /// base table. A reader that has the index open may go on with it: its pages stay until they
    /// are collected.
    ///
    /// # Errors
    /// An input error for a table without a primary key. After a storage error the index may be
    /// dropped in part: call again.
    #[boxed]
    pub async fn drop_record_index(&self) -> Result<()> {
        self.catalog.require_key()?;
        let store = self.catalog.writable_store(self.catalog.defaults.fsync).await?;
        // A compaction may publish a run between the listing and the end of the removal.
        loop {
            let names = published_names(&store).await?;
            if names.is_empty() {
                break;
            }
            unpublish(&store, &names).await?;
        }
        self.reader.sstables.base().forget();
        Ok(())
    }

    /// Compares the record index with the base table, entry by entry.
    ///
    /// # Errors
    /// A storage error. Damage of the index is not an error; the report names it.
    #[boxed]
    pub async fn verify_record_index(&self) -> Result<RecordIndexReport> {
        self.catalog.require_key()?;
        let base = self.catalog.latest_base().await?;
        let before = published_names(&self.catalog.store).await?;
        // Opened anew: the stored bytes are verified, not cached ones.
        let runs = IndexRuns::default().published(&base).await?.unwrap_or_default();
        let after: HashSet<String> =
            published_names(&self.catalog.store).await?.into_iter().collect();
        let mut report = check(&base, &self.catalog.key, &runs).await?;
        report.bytes = bytes_of(&self.catalog.store, &runs).await?;
        let readable: HashSet<&str> = runs.iter().map(|run| run.name.as_str()).collect();
        // Only runs that were published before and after the check must have been read: others were
        // published or removed meanwhile.
        for name in before.into_iter().filter(|name| after.contains(name)) {
            if !readable.contains(name.as_str()) {
                report
                    .damage
                    .push(format!("run {name}: the file that publishes the run is damaged"));
            }
        }
        Ok(report)
    }

    /// Extends the record index, where the table has one, to the newest version of the base table:
    ///
    /// 1. The key indexes of linked SSTables become runs without being rewritten.
    /// 2. Runs are built for other fragments that no run covers.
    /// 3. The runs of full levels are merged, and runs that cover nothing are unpublished.
    ///
    /// Ends early where the record index is dropped meanwhile.
    ///
    /// # Errors
    /// A storage error. Lookups read the keys of fragments that no run covers, and the next call
    /// continues.
    pub(super) async fn extend_record_index(&self, linked: &[LinkedSsTable]) -> Result<()> {
        if self.catalog.key.is_empty() {
            return Ok(());
        }
        let base = self.catalog.latest_base().await?;
        let open = self.reader.sstables.base().index_runs();
        let Some(runs) = open.published(&base).await? else { return Ok(()) };
        let store = self.catalog.writable_store(self.catalog.defaults.fsync).await?;
        let covered = RecordIndex::new(&base, &self.catalog.key, &runs);
        let mut missing: Vec<Fragment> = indexable(&base, |fragment| !covers(&covered, fragment));
        for LinkedSsTable { handle, fragment, .. } in linked {
            let sstable = &handle.dataset;
            let place = missing.iter().position(|it| is_same_file(it, fragment));
            let Some(place) = place.filter(|_| is_ours_to_link(sstable)) else { continue };
            let fragment = missing.swap_remove(place);
            let Some(run) = link_file(&base, &self.catalog.key, sstable, &fragment).await? else {
                missing.push(fragment);
                continue;
            };
            if !publish_beside_others(run, &store).await? {
                return Ok(());
            }
        }
        for part in groups(missing) {
            let run = build(&base, &self.catalog.key, &part).await?;
            if !publish_beside_others(run, &store).await? {
                return Ok(());
            }
        }
        self.merge_full_levels(&base, &store).await?;
        self.unpublish_stale_runs(&base, &store).await?;
        self.reader.sstables.base().forget();
        Ok(())
    }

    /// Merges runs until no level is full. The inputs of a merge are unpublished after its result
    /// is published.
    ///
    /// A damaged input is rebuilt from its fragments, and the remaining merges are left to the next
    /// call.
    async fn merge_full_levels(&self, base: &Arc<Dataset>, store: &Store) -> Result<()> {
        let open = self.reader.sstables.base().index_runs();
        loop {
            let Some(runs) = open.published(base).await? else { return Ok(()) };
            let index = RecordIndex::new(base, &self.catalog.key, &runs);
            let serving: Vec<(&Arc<OpenRun>, u64)> =
                index.live().filter(|(run, _)| is_known_to(base, run)).collect();
            let sizes: Vec<RunSize> = serving
                .iter()
                .map(|(run, live)| RunSize { entries: run.run.entries, live: *live })
                .collect();
            let inputs: Vec<Arc<OpenRun>> =
                due(&sizes).into_iter().map(|place| serving[place].0.clone()).collect();
            if inputs.is_empty() {
                return Ok(());
            }
            match merge(base, &self.catalog.key, &index, &inputs).await? {
                Merged::Run(run) => {
                    if !publish_beside_others(run, store).await? {
                        return Ok(());
                    }
                }
                Merged::Damaged(run, why) => {
                    // If the run is not published any more, it is not damaged: another program has
                    // merged it, and a collector has removed its pages.
                    if published_names(store).await?.contains(&run.name) {
                        build_anew(&self.catalog, base, store, &run, &why).await?;
                    }
                    return Ok(());
                }
            }
            let names: Vec<String> = inputs.iter().map(|run| run.name.clone()).collect();
            unpublish(store, &names).await?;
        }
    }

    /// Unpublishes runs that cover no fragment of the newest version. The last run stays: it marks
    /// that the table has a record index.
    async fn unpublish_stale_runs(&self, base: &Arc<Dataset>, store: &Store) -> Result<()> {
        let open = self.reader.sstables.base().index_runs();
        let Some(runs) = open.published(base).await? else { return Ok(()) };
        let index = RecordIndex::new(base, &self.catalog.key, &runs);
        let serving: HashSet<&str> = index.serving().map(|run| run.name.as_str()).collect();
        let stale = runs.iter().filter(|run| !serving.contains(run.name.as_str()));
        let stale = stale.skip(usize::from(serving.is_empty()));
        let stale = stale.filter(|run| is_known_to(base, run)).map(|run| run.name.clone());
        unpublish(store, &stale.collect::<Vec<_>>()).await
    }
}

async fn describe_record_index(
    catalog: &Catalog,
    base: &Arc<Dataset>,
) -> Result<RecordIndexReport> {
    let runs = IndexRuns::default().published(base).await?.unwrap_or_default();
    let index = RecordIndex::new(base, &catalog.key, &runs);
    Ok(RecordIndexReport {
        base_version: base.version().version,
        runs: index.serving().count(),
        stale_runs: runs.len() - index.serving().count(),
        entries: index.serving().map(|run| run.run.entries).sum(),
        bytes: bytes_of(&catalog.store, &runs).await?,
        fragments_covered: index.fragments(),
        fragments_uncovered: base.fragments().len() - index.fragments(),
        damage: Vec::new(),
    })
}

async fn bytes_of(store: &Store, runs: &[Arc<OpenRun>]) -> Result<u64> {
    let mut bytes = 0;
    for run in runs {
        let files = store.list_tree(&paths::record_index_pages(&run.name)).await?;
        bytes += files.iter().map(|file| file.bytes).sum::<u64>();
    }
    Ok(bytes)
}

async fn build_anew(
    catalog: &Catalog,
    base: &Arc<Dataset>,
    store: &Store,
    damaged: &OpenRun,
    why: &str,
) -> Result<()> {
    let (table, run) = (catalog.uri(), damaged.name.as_str());
    tracing::warn!(table, run, why, "a damaged run of the record index is rebuilt");
    let of_run: HashSet<u64> = damaged.run.fragments.iter().map(|it| it.id).collect();
    for part in groups(indexable(base, |fragment| of_run.contains(&fragment.id))) {
        let built = build(base, &catalog.key, &part).await?;
        if !publish_beside_others(built, store).await? {
            return Ok(());
        }
    }
    unpublish(store, std::slice::from_ref(&damaged.name)).await
}

/// Pages of runs that are not published any more.
pub(super) async fn record_index_garbage(
    store: &Store,
    now: SystemTime,
    grace: Duration,
) -> Result<Vec<Garbage>> {
    let folders = store.list_folders(paths::RECORD_INDEX).await?;
    let published: HashSet<String> = published_names(store).await?.into_iter().collect();
    let mut garbage = Vec::new();
    for name in folders {
        if !paths::is_record_index_name(&name) || published.contains(&name) {
            continue;
        }
        let path = paths::record_index_pages(&name);
        let files = store.list_tree(&path).await?;
        let Some(modified) = files.iter().map(|file| file.modified).max() else { continue };
        if now.duration_since(modified).unwrap_or_default() >= grace.max(UNPUBLISHED_AGE) {
            garbage.push(Garbage {
                kind: GarbageKind::RecordIndexRun,
                path,
                reason: "the record index does not publish the run of these pages".to_owned(),
                bytes: files.iter().map(|file| file.bytes).sum(),
            });
        }
    }
    Ok(garbage)
}

/// Whether a run was built from `base` or from an older version. A run that another program built
/// from a newer version may cover fragments that `base` does not have: it is left alone.
fn is_known_to(base: &Dataset, run: &OpenRun) -> bool {
    run.run.base_version <= base.version().version
}

/// Publishes a run of an existing record index; `false`, with nothing published, where the index
/// was dropped since.
///
/// The runs that this run replaces are still published. If it is the only one afterwards, a drop
/// has removed the others, and the run would bring the index back: it is unpublished.
async fn publish_beside_others(run: NewRun, store: &Store) -> Result<bool> {
    let name = run.name.clone();
    run.publish(store).await?;
    let is_beside_others = published_names(store).await?.iter().any(|other| *other != name);
    if !is_beside_others {
        unpublish(store, std::slice::from_ref(&name)).await?;
    }
    Ok(is_beside_others)
}

async fn unpublish(store: &Store, names: &[String]) -> Result<()> {
    for name in names {
        store.delete(&paths::record_index_run(name)).await?;
    }
    Ok(())
}

/// Whether two fragments have the same data files. A concurrent commit can change the id of a
/// fragment.
fn is_same_file(one: &Fragment, other: &Fragment) -> bool {
    let paths = |fragment: &Fragment| fragment.files.iter().map(|it| it.path.clone()).collect();
    let (one, other): (Vec<String>, Vec<String>) = (paths(one), paths(other));
    one == other
}

fn covers(index: &RecordIndex, fragment: &Fragment) -> bool {
    u32::try_from(fragment.id).is_ok_and(|id| index.covers(id))
}

/// The fragments that can be indexed: their keys are in their data files, not in overlays.
fn indexable(base: &Dataset, wanted: impl Fn(&Fragment) -> bool) -> Vec<Fragment> {
    let fragments = base.fragments().iter();
    fragments.filter(|it| it.overlays.is_empty() && wanted(it)).cloned().collect()
}

async fn published_names(store: &Store) -> Result<Vec<String>> {
    let files = store.list_files(paths::RECORD_INDEX_RUNS).await?;
    let names = files.iter().filter_map(|file| paths::parse_record_index_run(file));
    Ok(names.map(str::to_owned).collect())
}
