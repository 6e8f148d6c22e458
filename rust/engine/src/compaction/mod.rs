//! SSTables into the base table, in one commit.
//!
//! Owns: the plan, the files that the plan needs, and the one commit of new fragments, deletions
//! and progress.
//! Does not own: which snapshot is compacted, retries after a conflict, or the shard manifests
//! (`table`); the rows of stored changes (`crate::changes`).
//!
//! A compaction fences no writer, and jobs go on while it runs.
//!
//! Reading order: `policy` (which way an SSTable goes), `inputs` (which rows are alive), `base`
//! (which base rows die), `link`, `rewrite`, `graves`, `commit`. `index_segments`, `rewrite_fragments` and
//! `table_indexes` follow as commits of their own.

mod base;
mod commit;
mod graves;
mod index_segments;
mod inputs;
mod link;
mod merged_rows;
mod policy;
mod rewrite;
mod rewrite_fragments;
mod table_indexes;
mod throttle;

use std::collections::HashMap;
use std::sync::Arc;

use futures::FutureExt;
use lance::Dataset;
use lance::dataset::transaction::Operation;
use lance_index::mem_wal;
use lance_io::object_store::ObjectStore;
use lance_table::format::Fragment;
use lancemem_core::merge::Choosing;
use lancemem_core::mutant;
use lancemem_core::types::{Generation, Result, ShardId};
use object_store::path::Path;

pub(crate) use commit::{Beside, commit_exactly};
pub use commit::{committing, forgetting_deletes};
pub use index_segments::{LinkedSsTable, Segments, link_indexes};
pub use policy::{
    CompactionMode, CompactionSettings, Decision, LogHandling, SsTableFacts, Treatment, decide,
};
pub use rewrite_fragments::{Rewritten, rewrite_dead_fragments};
pub use table_indexes::update_indexes;

use crate::changes::{Changelog, PlannedCommit, Recorded};
use crate::deletion_vectors::Coverage;
use crate::errors::Context;
use crate::holds::{Hold, pass};
use crate::schema::BaseVersion;
use crate::snapshot::{Snapshot, SsTableCache};
use crate::sstable::files_of_fragments;
use crate::stages::{Stage, StageName};
use crate::visibility::{ChosenRows, GraveChanges, Pace};
use base::BaseRows;
use graves::{Buried, bury};
use inputs::{InputSsTable, InputSsTables};
use merged_rows::MergedRows;
use throttle::Throttle;

/// What a compaction did, or with `dry_run` would do.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CompactionResult {
    /// Generations moved into the base table, over all shards.
    pub generations: usize,
    /// SSTables whose data file became a base fragment.
    pub linked: usize,
    /// SSTables whose live rows were rewritten.
    pub rewritten: usize,
    /// SSTables without a live row.
    pub dropped: usize,
    /// Rows that the base table got, in linked files or rewritten.
    pub rows_written: u64,
    /// Base rows that were superseded or deleted.
    pub rows_deleted: u64,
    /// Rows of SSTables that lost by the table's merge rule against rows that had arrived before
    /// them. 0 without a rule. Rows that lost within one flush are not counted.
    pub late_rows: u64,
    /// Bytes of linked files that were copied, because the disk or store has no hard links.
    pub copied_bytes: u64,
    /// Fragments that the commit added.
    pub fragments_added: usize,
    /// Base fragments rewritten afterwards because of their dead rows.
    pub fragments_rewritten: usize,
    /// Version of the base table that contains the result; the present version where nothing was to
    /// do.
    pub base_version: u64,
    /// Rows that stay in logs, which no compaction moves. `None` where the settings do not ask for
    /// them, or where a log could not be read.
    pub rows_in_logs: Option<u64>,
    /// Each SSTable, its way and the reason.
    pub sstables: Vec<CompactedSsTable>,
    /// The indexes of the base table that got segments, and those that lack rows.
    pub indexes: Vec<CompactedIndex>,
}

/// What a compaction did to an index of the base table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompactedIndex {
    /// Its name.
    pub name: String,
    /// Rows whose entries in the indexes of SSTables became segments as they are.
    pub linked_rows: u64,
    /// Rows that Lance read to build a segment.
    pub built_rows: u64,
    /// Rows of the base table that it does not cover.
    pub unindexed_rows: u64,
    /// Its segments now.
    pub segments: usize,
    /// Why rows are not covered, or why the index of a linked SSTable was built of rows.
    pub reason: Option<String>,
}

/// One SSTable of a compaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompactedSsTable {
    /// The shard.
    pub shard_id: ShardId,
    /// The generation in the shard.
    pub generation: Generation,
    /// Rows of the data file.
    pub physical_rows: u64,
    /// Rows that the base table gets.
    pub live_rows: u64,
    /// Tombstones that no newer SSTable supersedes.
    pub tombstones: u64,
    /// Bytes of the data file; 0 where the size is not recorded.
    pub bytes: u64,
    /// The way and the reason.
    pub decision: Decision,
}

/// A planned compaction of all SSTables of a snapshot. Keys of SSTables and dead rows of unchanged
/// base fragments are kept over the attempts.
#[derive(Debug)]
pub struct Compaction {
    snapshot: Arc<Snapshot>,
    /// The newest compacted generation of each shard in the snapshot's base version.
    compacted: Arc<HashMap<ShardId, Generation>>,
    /// The version that the plan is for: the snapshot's, or a newer version.
    base: Arc<Dataset>,
    settings: CompactionSettings,
    sstables: InputSsTables,
    decisions: Vec<Decision>,
    dead: BaseRows,
    throttle: Arc<Throttle>,
    linked: Vec<LinkedSsTable>,
    late_rows: u64,
    merged: MergedRows,
    graves: Option<GraveChanges>,
}

/// What a compaction moves, and what dies by it.
struct Inputs {
    sstables: InputSsTables,
    dead: BaseRows,
    merged: MergedRows,
    late_rows: u64,
    /// What becomes of remembered deletes, where the merge rule chooses.
    graves: Option<GraveChanges>,
}

impl Inputs {
    /// The inputs of `snapshot`, as its merge rule says.
    ///
    /// # Errors
    /// A storage error, or damage of an SSTable.
    async fn of(snapshot: &Arc<Snapshot>, cover: Option<Coverage>) -> Result<Self> {
        let cover = cover.filter(|_| shows_a_key_once(snapshot));
        // What becomes of remembered deletes follows from the choice alone.
        let remembers = |rule: &Choosing| {
            rule.rule().delete_retention_ms().is_some_and(|retention| retention > 0)
        };
        if let Some(rule) = snapshot.rule().filter(|rule| cover.is_none() || remembers(rule)) {
            let chosen = Box::pin(ChosenRows::with_graves(snapshot, rule, true)).await?;
            let (chosen, graves) = (chosen.0, Some(chosen.1));
            let dead = BaseRows::covered(&snapshot.base, chosen.mask.arm(0).as_ref().clone());
            let late_rows = chosen.late_rows.iter().sum();
            let sstables = InputSsTables::chosen(snapshot, &chosen).await?;
            return Ok(Self { sstables, dead, merged: MergedRows::default(), late_rows, graves });
        }
        if snapshot.columns.rows.fold().is_some() {
            let (sstables, merged) =
                (InputSsTables::merged(snapshot).await?, MergedRows::of(snapshot)?);
            let dead = BaseRows::default();
            return Ok(Self { sstables, dead, merged, late_rows: 0, graves: None });
        }
        let (sstables, dead, late_rows) = match cover {
            Some(cover) => {
                let sstables = InputSsTables::covered(snapshot, &cover.sstables).await?;
                (sstables, BaseRows::covered(&snapshot.base, cover.base), cover.late_rows)
            }
            None => (InputSsTables::read(snapshot).await?, BaseRows::default(), 0),
        };
        Ok(Self { sstables, dead, merged: MergedRows::default(), late_rows, graves: None })
    }
}

impl Compaction {
    /// Plans to move every SSTable of `snapshot`, a snapshot without rows in memory. `compacted`
    /// has the newest compacted generation of each shard in the snapshot's base version. With
    /// `cover` the dead rows come from deletion vectors. Verified SSTables are opened in `open`.
    ///
    /// # Errors
    /// A storage error, or damage of an SSTable.
    pub async fn plan(
        snapshot: Arc<Snapshot>,
        compacted: Arc<HashMap<ShardId, Generation>>,
        settings: CompactionSettings,
        cover: Option<Coverage>,
        open: &SsTableCache,
    ) -> Result<Self> {
        let throttle = Arc::new(Throttle::new(settings.bytes_per_second));
        // A dry run commits nothing, so it skips the checksums.
        let snapshot = if settings.dry_run {
            snapshot
        } else {
            verified(&snapshot, open, &throttle).await?.into()
        };
        let Inputs { sstables, dead, merged, late_rows, graves } =
            Inputs::of(&snapshot, cover).await?;
        let decisions = decide(&facts(&snapshot.base, &sstables.sstables), &settings);
        let base = snapshot.base.clone();
        Ok(Self {
            snapshot,
            compacted,
            base,
            settings,
            sstables,
            decisions,
            dead,
            throttle,
            linked: Vec::new(),
            late_rows,
            merged,
            graves,
        })
    }

    /// Whether the plan holds for another version of the base table. Where a merge rule compared
    /// rows of the base table with those above it, or merged them, the result is that of one version.
    #[must_use]
    pub fn may_be_rebased(&self) -> bool {
        self.snapshot.rule().is_none() && self.snapshot.columns.rows.fold().is_none()
    }

    /// The version of the base table that the plan is for.
    #[must_use]
    pub fn base_version(&self) -> u64 {
        self.base.version().version
    }

    /// The base table at the version that the plan is for.
    #[must_use]
    pub const fn base(&self) -> &Arc<Dataset> {
        &self.base
    }

    /// The SSTables that the compaction moves.
    pub fn moved(&self) -> impl Iterator<Item = (ShardId, Generation)> {
        self.sstables
            .sstables
            .iter()
            .map(|sstable| (sstable.handle.shard_id, sstable.handle.generation))
    }

    /// The SSTables that the commit linked, each with its new fragment.
    #[must_use]
    pub fn linked(&self) -> &[LinkedSsTable] {
        &self.linked
    }

    /// Whether `compacted`, from a newer base version, differs from the plan's: another compaction
    /// came first, or an older version was restored, which lacks SSTables that the plan takes for
    /// compacted.
    #[must_use]
    pub fn is_overtaken(&self, compacted: &HashMap<ShardId, Generation>) -> bool {
        !mutant!("B14") && *self.compacted != *compacted
    }

    /// Whether `base` has other columns than the version that the plan is for.
    #[must_use]
    pub fn has_other_columns(&self, base: &Dataset) -> bool {
        base.schema() != self.base.schema()
    }

    /// Plans the same compaction for a newer version of the base table with the same columns.
    pub fn rebase(&mut self, base: Arc<Dataset>) {
        self.base = base;
        self.decisions = decide(&facts(&self.base, &self.sstables.sstables), &self.settings);
    }

    /// Looks up the base rows that die, writes the files and commits; with `dry_run` only looks up.
    ///
    /// # Errors
    /// A storage error, of kind retry where the base table has a newer version than the plan.
    pub async fn run(&mut self) -> Result<CompactionResult> {
        if self.sstables.sstables.is_empty() {
            let base_version = self.base.version().version;
            return Ok(CompactionResult { base_version, ..CompactionResult::default() });
        }
        self.look_up().await?;
        let mut result = self.describe(self.dead.count(&self.base).await?);
        if self.settings.dry_run {
            return Ok(result);
        }
        pass(Hold::Planned, self.base.uri()).await;
        let (removed, updated) =
            if mutant!("B16") { Default::default() } else { self.dead.write(&self.base).await? };
        let (new, copied_bytes) = self.new_fragments().await?;
        let changes = self.record_changes(&removed, &updated, &new).await?;
        let buried = self.bury().await?;
        result.copied_bytes = copied_bytes;
        result.fragments_added = new.len();
        let made: Vec<Fragment> = updated.iter().chain(&new).cloned().collect();
        let made_new = new.clone();
        pass(Hold::Files, self.base.uri()).await;
        let beside = Beside {
            properties: changes.as_ref().map(Recorded::properties),
            config: buried.as_ref().map(Buried::config),
        };
        let operation = self.operation(removed, updated, new);
        match commit_exactly(&self.base, operation, beside).await {
            Ok(committed) => {
                result.base_version = committed.version().version;
                // Linked fragments are the first of the new fragments, in the order of the
                // SSTables.
                let linked = self.that_are(Treatment::Link).zip(made_new);
                let linked = linked.map(|(sstable, fragment)| LinkedSsTable {
                    handle: sstable.handle.clone(),
                    fragment,
                    dead: sstable.dead.in_sstable().cloned().unwrap_or_default(),
                });
                self.linked = linked.collect();
                Ok(result)
            }
            Err(refused) => {
                if refused.is_certain {
                    self.remove_files(&made).await;
                    if let Some(changes) = changes {
                        changes.remove().await;
                    }
                    if let Some(buried) = buried {
                        buried.remove().await;
                    }
                }
                Err(refused.error)
            }
        }
    }

    /// Looks up the base rows that die, in the fragments that were not looked up before.
    async fn look_up(&mut self) -> Result<()> {
        let Self { snapshot, base, sstables, dead, throttle, .. } = self;
        dead.forget_gone(base);
        if dead.unknown(base).is_empty() {
            return Ok(());
        }
        let keys = sstables.keys(snapshot).await?;
        let index = snapshot.base_cache.record_index(base, &snapshot.key).await;
        dead.look_up(base, &snapshot.key, &keys, &index, throttle).await
    }

    /// The fragments of the SSTables with their final ids. A deletion file is named by its fragment
    /// id, so the ids are needed before the commit. The commit is exact, so it assigns these ids.
    async fn new_fragments(&self) -> Result<(Vec<Fragment>, u64)> {
        let base = &self.base;
        let first_id = base.manifest().max_fragment_id().map_or(0, |id| id + 1);
        let mut fragments: Vec<Fragment> = Vec::new();
        let mut copied_bytes = 0;
        let stage = Stage::begin(StageName::LinkSsTables, self.that_are(Treatment::Link).count());
        for sstable in self.that_are(Treatment::Link) {
            let id = first_id + fragments.len() as u64;
            let linked = link::link_file(base, sstable, id, &self.throttle).await?;
            copied_bytes += linked.copied_bytes;
            stage.add(1_u64);
            fragments.push(linked.fragment);
        }
        let sstables: Vec<&InputSsTable> = self.that_are(Treatment::Rewrite).collect();
        for fragment in
            rewrite::rewrite(base, &self.snapshot.columns, &sstables, &self.merged, &self.throttle)
                .await?
        {
            let id = first_id + fragments.len() as u64;
            fragments.push(Fragment { id, ..fragment });
        }
        Ok((fragments, copied_bytes))
    }

    /// Stores the changes of the commit, where the table asks for it. They are durable before the
    /// commit, whose transaction names them.
    async fn record_changes(
        &self,
        removed: &[u64],
        updated: &[Fragment],
        added: &[Fragment],
    ) -> Result<Option<Recorded>> {
        if Changelog::of(&self.base) != Changelog::Stored {
            return Ok(None);
        }
        let base =
            BaseVersion { dataset: self.base.clone(), schema: self.snapshot.columns.clone() };
        let throttle = self.throttle.clone();
        let pace: Pace = Arc::new(move |bytes| {
            let throttle = throttle.clone();
            async move { throttle.take(bytes).await }.boxed()
        });
        Box::pin(PlannedCommit { base, removed, updated, added }.record(&pace)).await
    }

    /// Writes the deletes that the next version remembers, where its list differs. They are durable
    /// before the commit, which lists them.
    async fn bury(&self) -> Result<Option<Buried>> {
        let (Some(rule), Some(changes)) = (self.snapshot.rule(), &self.graves) else {
            return Ok(None);
        };
        Box::pin(bury(&self.snapshot, rule, changes)).await
    }

    fn that_are(&self, treatment: Treatment) -> impl Iterator<Item = &InputSsTable> {
        let sstables = self.sstables.sstables.iter().zip(&self.decisions);
        sstables
            .filter(move |(_, decision)| decision.treatment == treatment)
            .map(|(sstable, _)| sstable)
    }

    fn operation(
        &self,
        removed_fragment_ids: Vec<u64>,
        updated_fragments: Vec<Fragment>,
        new_fragments: Vec<Fragment>,
    ) -> Operation {
        Operation::Update {
            removed_fragment_ids,
            updated_fragments,
            new_fragments,
            fields_modified: Vec::new(),
            compacted_sstables: self.progress(),
            fields_for_preserving_frag_bitmap: Vec::new(),
            // With an update mode, lance treats new fragments of a table with stable row ids as
            // moved rows, and marks its indexes as covering them.
            update_mode: None,
            inserted_rows_filter: None,
            updated_fragment_offsets: None,
        }
    }

    fn progress(&self) -> Vec<mem_wal::CompactedSsTable> {
        let newest = self.snapshot.shards.iter().filter_map(|shard| {
            let newest = shard.sstables.iter().map(|sstable| sstable.generation).max()?;
            Some(mem_wal::CompactedSsTable::new(shard.shard_id, newest.get()))
        });
        newest.collect()
    }

    fn describe(&self, rows_deleted: u64) -> CompactionResult {
        let sstables: Vec<CompactedSsTable> = self
            .sstables
            .sstables
            .iter()
            .zip(&self.decisions)
            .map(|(sstable, decision)| CompactedSsTable {
                shard_id: sstable.handle.shard_id,
                generation: sstable.handle.generation,
                physical_rows: sstable.physical_rows,
                live_rows: sstable.live_rows(),
                tombstones: sstable.tombstones,
                bytes: link::file_bytes(sstable),
                decision: decision.clone(),
            })
            .collect();
        let count =
            |way| sstables.iter().filter(|sstable| sstable.decision.treatment == way).count();
        CompactionResult {
            generations: sstables.len(),
            linked: count(Treatment::Link),
            rewritten: count(Treatment::Rewrite),
            dropped: count(Treatment::Drop),
            rows_written: sstables.iter().map(|sstable| sstable.live_rows).sum::<u64>()
                + self.merged.rows(),
            rows_deleted,
            late_rows: self.late_rows,
            base_version: self.base.version().version,
            sstables,
            ..CompactionResult::default()
        }
    }

    /// Removes the files of a failed attempt, which no version names. Best effort: lance's clean-up
    /// removes the rest.
    async fn remove_files(&self, made: &[Fragment]) {
        let root = self.base.branch_location().path;
        let known: Vec<Path> = files_of_fragments(&root, self.base.fragments()).collect();
        let Ok(store) = self.base.object_store(None).await.context("clean-up") else { return };
        for file in files_of_fragments(&root, made).filter(|file| !known.contains(file)) {
            remove(&store, &file).await;
        }
    }
}

/// The snapshot with its SSTables verified against their checksums, where they have checksums.
/// Files of the base table have none, so damage must be found before a file is linked.
async fn verified(
    snapshot: &Snapshot,
    open: &SsTableCache,
    throttle: &Throttle,
) -> Result<Snapshot> {
    let mut verified = snapshot.clone();
    let sstables = verified.shards.iter().map(|shard| shard.sstables.len()).sum::<usize>();
    let stage = Stage::begin(StageName::VerifySsTables, sstables);
    for sstable in verified.shards.iter_mut().flat_map(|shard| &mut shard.sstables) {
        let bytes = sstable.verified_bytes().await?;
        throttle.take(usize::try_from(bytes).unwrap_or(usize::MAX)).await;
        *sstable = open.verified(&snapshot.base, sstable).await?;
        stage.add(1_u64);
    }
    Ok(verified)
}

/// Whether no SSTable shows two rows of a key. SSTables of other writers may, and the base table
/// must get only one of the rows.
fn shows_a_key_once(snapshot: &Snapshot) -> bool {
    let mut sstables = snapshot.shards.iter().flat_map(|shard| &shard.sstables);
    sstables.all(|sstable| sstable.is_trusted())
}

async fn remove(store: &ObjectStore, file: &Path) {
    if let Err(error) = store.delete(file).await {
        tracing::warn!(%file, %error, "a file of a refused compaction was not removed");
    }
}

fn facts(base: &Dataset, sstables: &[InputSsTable]) -> Vec<SsTableFacts> {
    let facts = sstables.iter().map(|sstable| SsTableFacts {
        physical_rows: sstable.physical_rows,
        live_rows: sstable.live_rows(),
        bytes: link::file_bytes(sstable),
        misfit: link::misfit(base, sstable),
    });
    facts.collect()
}
