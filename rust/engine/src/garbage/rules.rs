//! The conditions under which a file of a shard is garbage.
//!
//! Owns: one function for each kind of garbage, and the reason why each is safe.
//! Does not own: clocks; the caller passes the time.

use std::time::{Duration, SystemTime};

use lancemem_core::format::{ShardManifest, paths};
use lancemem_core::store::Listed;
use lancemem_core::types::{Generation, ManifestVersion};

use super::{
    CoveredEntry, Garbage, GarbageKind, ManifestFile, SsTableFolder, VectorFile, shard_name,
};
use crate::snapshot::{is_compacted, missing_generations};

/// A fence sentinel stays this long. It occupies the position at which the fenced writer would
/// append its next entry. While it stands, an append of the fenced writer fails, so the writer
/// cannot acknowledge rows behind the covered position. A writer that sleeps longer reads the
/// manifest before it acknowledges: `PROVEN` in the core's `wal::append`, a day, must stay well
/// below this.
const SENTINEL_AGE: Duration = Duration::from_hours(7 * 24);
/// A staged SSTable, whose name has generation 0, stays this long and a grace period more: it may
/// still be committed, under a generation that is not known yet. One that is older than
/// [`LINKED_AGE`] is not committed any more.
const STAGED_AGE: Duration = Duration::from_hours(7 * 24);
/// How old a staged SSTable may be when it is committed. A collector that found it unlisted may be
/// about to remove an older one.
pub const LINKED_AGE: Duration = Duration::from_hours(6 * 24);
/// A manifest version stays at least this long. A writer that remembers an old version must find
/// the next version taken.
const MANIFEST_AGE: Duration = Duration::from_hours(24);
/// The newest manifest versions always stay.
const MANIFESTS_KEPT: u64 = 10;

/// The state of one shard, from which its garbage follows.
#[derive(Clone, Debug)]
pub struct ShardFacts {
    /// Its newest manifest.
    pub newest: ShardManifest,
    /// The newest manifest that is older than the grace period, if there is one.
    pub earlier: Option<ShardManifest>,
    /// The newest generation that the base table contains.
    pub compacted: Option<Generation>,
    /// Folders with the name of an SSTable.
    pub sstables: Vec<SsTableFolder>,
    /// WAL entries that the newest manifest covers.
    pub entries: Vec<CoveredEntry>,
    /// The highest position of the log.
    pub last_entry: u64,
    /// Manifest versions.
    pub manifests: Vec<ManifestFile>,
    /// Files of deletion vectors.
    pub vectors: Vec<VectorFile>,
    /// Files of merged rows.
    pub merged: Vec<VectorFile>,
}

impl ShardFacts {
    /// Whether a flushed generation is neither listed nor in the base table.
    fn has_missing(&self) -> bool {
        !missing_generations(&self.newest, self.compacted, Generation(1)).is_empty()
    }
}

/// The garbage of a shard at the time `now`, in the order of its removal.
#[must_use]
pub fn garbage_of(facts: &ShardFacts, now: SystemTime, grace: Duration) -> Vec<Garbage> {
    let Some(earlier) = &facts.earlier else { return Vec::new() };
    let sstables = facts
        .sstables
        .iter()
        .filter_map(|sstable| sstable_garbage(facts, earlier, sstable, now, grace));
    let mut garbage: Vec<Garbage> = sstables.collect();
    // Ascending positions: a crash in between leaves a log without holes.
    let mut entries: Vec<&CoveredEntry> = facts.entries.iter().collect();
    entries.sort_by_key(|entry| entry.position);
    garbage.extend(entries.into_iter().filter_map(|it| entry_garbage(facts, earlier, it, now)));
    let vectors = facts.vectors.iter();
    garbage.extend(vectors.filter_map(|file| vector_garbage(facts, earlier, file, now, grace)));
    let merged = facts.merged.iter();
    garbage.extend(merged.filter_map(|file| merged_garbage(facts, earlier, file, now, grace)));
    garbage.extend(manifest_garbage(facts, now, grace));
    garbage
}

/// An SSTable is garbage when all of these hold:
///
/// - neither of the two manifests lists it, and no manifest between them could;
/// - its generation was flushed. A flush that still runs, or will be repeated, has a generation
///   that the manifest has not reached, so its folder is there when it commits, however long it
///   sleeps;
/// - its rows are in the base table, or in the SSTable that the newest manifest lists for its
///   generation. A generation that is in neither place is missing: an older version of the base
///   table was restored, and this folder may have the only copy of the rows.
fn sstable_garbage(
    facts: &ShardFacts,
    earlier: &ShardManifest,
    sstable: &SsTableFolder,
    now: SystemTime,
    grace: Duration,
) -> Option<Garbage> {
    let newest = &facts.newest;
    if newest.lists(&sstable.name)
        || earlier.lists(&sstable.name)
        || sstable.generation >= newest.current_generation
    {
        return None;
    }
    let shard = shard_name(newest.shard_id);
    let generation = sstable.generation;
    let (kind, reason) = if generation == Generation(0) {
        // The name of a staged SSTable does not contain the generation of its commit.
        if age(sstable.modified, now) < STAGED_AGE + grace || facts.has_missing() {
            return None;
        }
        (
            GarbageKind::OrphanSsTable,
            format!("a bulk write staged it for {shard} a week ago, and no manifest lists it"),
        )
    } else if is_compacted(facts.compacted, generation) {
        // A manifest between the two may list it, and a read may have started from that manifest.
        if generation >= earlier.current_generation {
            return None;
        }
        let reason = format!("the base table contains generation {generation} of {shard}");
        (GarbageKind::CompactedSsTable, reason)
    } else if age(sstable.modified, now) >= grace && lists_generation(newest, generation) {
        let reason = format!(
            "no manifest lists it, and {shard} has flushed generation {generation} elsewhere"
        );
        (GarbageKind::OrphanSsTable, reason)
    } else {
        return None;
    };
    let path = format!("{}/{}", paths::shard(newest.shard_id), sstable.name);
    Some(Garbage { kind, path, reason, bytes: sstable.bytes })
}

/// Whether the manifest lists an SSTable of `generation`, in any folder.
fn lists_generation(manifest: &ShardManifest, generation: Generation) -> bool {
    manifest.sstables.iter().any(|listed| listed.generation == generation)
}

/// Deletion vectors are garbage when neither manifest lists their SSTable. A reader without
/// deletion vectors compares keys, so no read depends on them. A young file may belong to an
/// SSTable that was listed after the newest manifest was read.
fn vector_garbage(
    facts: &ShardFacts,
    earlier: &ShardManifest,
    file: &VectorFile,
    now: SystemTime,
    grace: Duration,
) -> Option<Garbage> {
    let is_needed = facts.newest.lists(&file.sstable) || earlier.lists(&file.sstable);
    if is_needed || age(file.modified, now) < grace {
        return None;
    }
    let reason =
        format!("{} no longer lists SSTable {}", shard_name(facts.newest.shard_id), file.sstable);
    let (path, bytes) = (file.path.clone(), file.bytes);
    Some(Garbage { kind: GarbageKind::DeletionVectors, path, reason, bytes })
}

/// Merged rows are garbage when their SSTable is the newest in neither manifest. A reader without
/// them merges the rows itself, so no read depends on them.
fn merged_garbage(
    facts: &ShardFacts,
    earlier: &ShardManifest,
    file: &VectorFile,
    now: SystemTime,
    grace: Duration,
) -> Option<Garbage> {
    let is_newest = |manifest: &ShardManifest| {
        let newest = manifest.sstables.iter().max_by_key(|sstable| sstable.generation);
        newest.is_some_and(|newest| newest.path == file.sstable)
    };
    if is_newest(&facts.newest) || is_newest(earlier) || age(file.modified, now) < grace {
        return None;
    }
    let shard = shard_name(facts.newest.shard_id);
    let reason = format!("SSTable {} is no longer the newest of {shard}", file.sstable);
    let (path, bytes) = (file.path.clone(), file.bytes);
    Some(Garbage { kind: GarbageKind::MergedRows, path, reason, bytes })
}

/// A WAL entry is garbage when both manifests cover it. Two kinds stay: fence sentinels, for as
/// long as a writer that they fenced may wake up, and the highest entry, from which readers find
/// the log's end.
fn entry_garbage(
    facts: &ShardFacts,
    earlier: &ShardManifest,
    entry: &CoveredEntry,
    now: SystemTime,
) -> Option<Garbage> {
    let newest = &facts.newest;
    let covered =
        newest.replay_after_wal_entry_position.min(earlier.replay_after_wal_entry_position);
    if entry.position > covered || entry.position.get() >= facts.last_entry {
        return None;
    }
    let newest_sentinel =
        facts.entries.iter().filter(|it| it.is_sentinel).map(|it| it.position).max();
    if entry.is_sentinel
        && (Some(entry.position) == newest_sentinel || age(entry.modified, now) < SENTINEL_AGE)
    {
        return None;
    }
    let shard = shard_name(newest.shard_id);
    let reason = if entry.is_sentinel {
        format!("a fence sentinel of {shard} that is older than a week")
    } else {
        format!("{shard} has flushed the rows of its log through entry {covered}")
    };
    let path = paths::wal_entry(newest.shard_id, entry.position);
    Some(Garbage { kind: GarbageKind::WalEntry, path, reason, bytes: entry.bytes })
}

/// A manifest version is garbage when it is below the newest one that is a day old, or a grace
/// period if that is longer. While a generation is missing all versions stay: they record its
/// folder.
fn manifest_garbage(facts: &ShardFacts, now: SystemTime, grace: Duration) -> Vec<Garbage> {
    if facts.has_missing() {
        return Vec::new();
    }
    let grace = grace.max(MANIFEST_AGE);
    let old = facts.manifests.iter().filter(|file| age(file.modified, now) >= grace);
    let Some(oldest_kept) = old.map(|file| file.version).max() else { return Vec::new() };
    let always = facts.newest.version.get().saturating_sub(MANIFESTS_KEPT - 1);
    let floor = oldest_kept.min(ManifestVersion(always));
    let mut files: Vec<&ManifestFile> =
        facts.manifests.iter().filter(|file| file.version < floor).collect();
    files.sort_by_key(|file| file.version);
    let garbage = files.into_iter().map(|file| Garbage {
        kind: GarbageKind::ShardManifest,
        path: paths::manifest(facts.newest.shard_id, file.version),
        reason: format!(
            "the manifest of {} is at version {}",
            shard_name(facts.newest.shard_id),
            facts.newest.version
        ),
        bytes: file.bytes,
    });
    garbage.collect()
}

/// The file that records the commit or the abort of a bulk write keeps other calls from the
/// opposite. The SSTables are older than this file. When it is a week old they can neither be
/// committed nor aborted, and it is garbage.
#[must_use]
pub fn staged_write_garbage(write: Listed, now: SystemTime, grace: Duration) -> Option<Garbage> {
    let is_ours = paths::staged_write(write.name()) == write.path;
    if !is_ours || age(write.modified, now) < STAGED_AGE + grace {
        return None;
    }
    let reason =
        "the bulk write was committed or aborted a week ago; its SSTables are too old for either"
            .to_owned();
    let Listed { path, bytes, .. } = write;
    Some(Garbage { kind: GarbageKind::StagedWrite, path, reason, bytes })
}

/// The age of a file. A time in the future counts as now.
pub(super) fn age(modified: SystemTime, now: SystemTime) -> Duration {
    now.duration_since(modified).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use lancemem_core::format::SsTable;
    use lancemem_core::types::{ShardId, WalPosition};

    use super::*;
    use crate::garbage::generation_of_folder;

    const HOUR: Duration = Duration::from_hours(1);

    fn time(hours: u32) -> SystemTime {
        SystemTime::UNIX_EPOCH + HOUR * (10_000 + hours)
    }

    fn manifest(version: u64, listed: &[u64], current: u64, covered: u64) -> ShardManifest {
        let mut manifest = ShardManifest::initial(ShardId::from_u128(7), 1, BTreeMap::new());
        manifest.version = ManifestVersion(version);
        manifest.current_generation = Generation(current);
        manifest.replay_after_wal_entry_position = WalPosition(covered);
        manifest.sstables = listed
            .iter()
            .map(|generation| SsTable {
                generation: Generation(*generation),
                path: name(*generation),
                in_memory_bytes: None,
                physical_rows: None,
                primary_key_bytes: None,
            })
            .collect();
        manifest
    }

    fn name(generation: u64) -> String {
        format!("0000000{}_gen_{generation}", generation % 10)
    }

    fn sstable(generation: u64, hours: u32) -> SsTableFolder {
        let name = name(generation);
        SsTableFolder { name, generation: Generation(generation), bytes: 1, modified: time(hours) }
    }

    fn entry(position: u64, hours: u32, is_sentinel: bool) -> CoveredEntry {
        let position = WalPosition(position);
        CoveredEntry { position, bytes: 1, modified: time(hours), is_sentinel }
    }

    fn facts(newest: ShardManifest, earlier: Option<ShardManifest>) -> ShardFacts {
        ShardFacts {
            newest,
            earlier,
            compacted: Some(Generation(3)),
            sstables: Vec::new(),
            entries: Vec::new(),
            last_entry: 100,
            manifests: Vec::new(),
            vectors: Vec::new(),
            merged: Vec::new(),
        }
    }

    fn paths_of(facts: &ShardFacts, hours: u32) -> Vec<String> {
        let garbage = garbage_of(facts, time(hours), HOUR);
        garbage.into_iter().map(|it| it.path.rsplit('/').next().unwrap().to_owned()).collect()
    }

    #[test]
    fn an_sstable_goes_when_neither_manifest_lists_it_and_its_generation_was_flushed() {
        let mut newest = manifest(9, &[4, 5], 6, 0);
        newest.sstables[1].path = "0badc0de_gen_5".to_owned();
        let mut facts = facts(newest, Some(manifest(5, &[2, 3, 4], 5, 0)));
        // 1 was drained long ago, 2 and 3 within the grace period, 4 is listed, 5 failed once and
        // was flushed into another folder, 6 and 7 may still be written.
        facts.sstables = (1..=7).map(|generation| sstable(generation, 0)).collect();
        assert_eq!(paths_of(&facts, 2), [name(1), name(5)]);
        assert_eq!(paths_of(&facts, 0), [name(1)], "a failed flush stays for the grace period");
        facts.earlier = None;
        assert!(paths_of(&facts, 2).is_empty(), "nothing is known of a grace period ago");
    }

    #[test]
    fn an_sstable_that_was_flushed_and_compacted_within_the_grace_period_stays() {
        let mut facts = facts(manifest(9, &[], 6, 0), Some(manifest(5, &[], 3, 0)));
        facts.compacted = Some(Generation(5));
        facts.sstables = (1..=5).map(|generation| sstable(generation, 0)).collect();
        assert_eq!(
            paths_of(&facts, 2),
            [name(1), name(2)],
            "a read may have begun with 3, 4 and 5"
        );
        facts.earlier = Some(facts.newest.clone());
        assert_eq!(paths_of(&facts, 3).len(), 5);
    }

    #[test]
    fn a_staged_sstable_stays_for_a_week_and_a_grace_period() {
        let mut facts = facts(manifest(9, &[], 6, 0), Some(manifest(9, &[], 6, 0)));
        facts.compacted = Some(Generation(5));
        facts.sstables = vec![sstable(0, 0)];
        assert!(paths_of(&facts, 7 * 24).is_empty());
        assert_eq!(paths_of(&facts, 7 * 24 + 1), [name(0)], "a grace period more");
        facts.newest = manifest(10, &[0], 6, 0);
        assert!(paths_of(&facts, 8 * 24).is_empty(), "it was committed");
    }

    #[test]
    fn the_decision_about_a_bulk_write_stays_for_a_week_and_a_grace_period() {
        let garbage = |path: &str, hours| {
            let decided = Listed { path: path.to_owned(), bytes: 5, modified: time(0) };
            staged_write_garbage(decided, time(hours), HOUR)
        };
        let path = paths::staged_write("w");
        assert_eq!(garbage(&path, 7 * 24), None);
        assert_eq!(garbage(&path, 7 * 24 + 1).map(|it| (it.path, it.bytes)), Some((path, 5)));
        assert_eq!(
            garbage(&paths::staged_write("sub/w"), 8 * 24),
            None,
            "the file of another program"
        );
    }

    #[test]
    fn nothing_of_a_generation_that_is_missing_goes() {
        // The base table went back to generation 3, after 4 and 5 were compacted and drained.
        let mut facts = facts(manifest(30, &[], 6, 0), Some(manifest(30, &[], 6, 0)));
        facts.sstables = [0, 3, 4, 5].map(|generation| sstable(generation, 0)).to_vec();
        facts.manifests = (1..=30)
            .map(|version| ManifestFile {
                version: ManifestVersion(version),
                bytes: 1,
                modified: time(0),
            })
            .collect();
        assert_eq!(paths_of(&facts, 24 * 365), [name(3)], "the base table contains it");
        facts.compacted = None;
        assert!(paths_of(&facts, 24 * 365).is_empty());
        facts.newest.sstables = manifest(30, &[3, 4, 5], 6, 0).sstables;
        assert!(paths_of(&facts, 24 * 365).is_empty(), "1 and 2 are missing");
        facts.compacted = Some(Generation(5));
        facts.newest.sstables.clear();
        assert_eq!(paths_of(&facts, 24 * 365).len(), 4 + 20, "all are in the base table again");
    }

    #[test]
    fn deletion_vectors_go_after_their_sstable_and_not_while_they_are_young() {
        let mut facts = facts(manifest(9, &[4], 6, 0), Some(manifest(5, &[3, 4], 5, 0)));
        facts.vectors = [(2, 0), (3, 0), (4, 0), (5, 2)]
            .map(|(generation, hours)| VectorFile {
                sstable: name(generation),
                path: name(generation),
                bytes: 1,
                modified: time(hours),
            })
            .to_vec();
        assert_eq!(paths_of(&facts, 2), [name(2)]);
        assert_eq!(paths_of(&facts, 3), [name(2), name(5)]);
        facts.earlier = None;
        assert!(paths_of(&facts, 3).is_empty());
    }

    #[test]
    fn merged_rows_go_when_a_newer_sstable_is_there_and_not_while_they_are_young() {
        let mut facts = facts(manifest(9, &[3, 4, 5], 6, 0), Some(manifest(5, &[3, 4], 5, 0)));
        facts.merged = [(2, 0), (3, 0), (4, 0), (5, 0), (6, 2)]
            .map(|(generation, hours)| VectorFile {
                sstable: name(generation),
                path: name(generation),
                bytes: 1,
                modified: time(hours),
            })
            .to_vec();
        assert_eq!(paths_of(&facts, 2), [name(2), name(3)]);
        assert_eq!(paths_of(&facts, 3), [name(2), name(3), name(6)]);
        facts.newest.sstables.clear();
        facts.earlier = Some(facts.newest.clone());
        assert_eq!(paths_of(&facts, 3).len(), 5, "all are in the base table");
    }

    #[test]
    fn a_flush_that_sleeps_for_a_year_finds_its_folder() {
        let mut facts = facts(manifest(9, &[], 6, 0), Some(manifest(9, &[], 6, 0)));
        facts.sstables = vec![sstable(6, 0)];
        assert!(paths_of(&facts, 24 * 365).is_empty());
    }

    #[test]
    fn a_covered_entry_goes_and_sentinels_and_the_highest_entry_stay() {
        let mut facts = facts(manifest(9, &[], 6, 8), Some(manifest(5, &[], 5, 6)));
        facts.entries = (1..=8).map(|position| entry(position, 0, position % 3 == 1)).collect();
        let positions = |facts: &ShardFacts, hours| -> Vec<u64> {
            let names = paths_of(facts, hours);
            names.iter().map(|name| paths::parse_wal_entry(name).unwrap().get()).collect()
        };
        assert_eq!(positions(&facts, 2), [2, 3, 5, 6], "7 and 8 are covered since a moment only");
        assert_eq!(positions(&facts, 8 * 24), [1, 2, 3, 4, 5, 6], "fences of last week go");
        facts.last_entry = 6;
        assert_eq!(positions(&facts, 2), [2, 3, 5]);
        facts.entries.retain(|entry| entry.position <= WalPosition(4));
        assert_eq!(positions(&facts, 8 * 24), [1, 2, 3], "the newest fence stays for ever");
    }

    #[test]
    fn manifests_go_after_a_day_from_the_oldest_on_and_the_newest_stay() {
        let mut facts = facts(manifest(30, &[], 6, 8), Some(manifest(5, &[], 5, 6)));
        facts.compacted = Some(Generation(5));
        facts.manifests = (1..=30)
            .map(|version| ManifestFile {
                version: ManifestVersion(version),
                bytes: 1,
                modified: time(u32::try_from(version).unwrap()),
            })
            .collect();
        let versions = |hours| -> Vec<u64> {
            let names = paths_of(&facts, hours);
            names.iter().map(|name| paths::parse_manifest(name).unwrap().get()).collect()
        };
        assert!(versions(24).is_empty());
        // At hour 30 the version of a day ago is 6.
        assert_eq!(versions(30), [1, 2, 3, 4, 5]);
        assert_eq!(versions(1_000), (1..=20).collect::<Vec<_>>());
    }

    #[test]
    fn only_the_name_of_an_sstable_has_a_generation() {
        assert_eq!(generation_of_folder("cc85c397_gen_12"), Some(Generation(12)));
        for name in ["wal", "manifest", "cc85c397_gen_", "cc85c39_gen_1", "cc85c39g_gen_1", "x"] {
            assert_eq!(generation_of_folder(name), None, "{name}");
        }
        for name in ["cc85c397_gen_-1", "cc85c397_gen_1/..", "../cc85c3_gen_1", "cc85c397_gen_+1"] {
            assert_eq!(generation_of_folder(name), None, "{name}");
        }
    }
}
