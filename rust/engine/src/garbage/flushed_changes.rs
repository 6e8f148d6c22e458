//! The conditions under which changes of flushes are garbage.
//!
//! Owns: one function for each of the two kinds, and the reason why each is safe.
//! Does not own: the listing, or publishing.

use std::collections::HashSet;
use std::time::{Duration, SystemTime};

use lancemem_core::format::paths;
use lancemem_core::types::{Generation, ShardId};

use super::rules::age;
use super::{Garbage, GarbageKind};

/// The state of the changes of a shard's flushes.
#[derive(Clone, Debug)]
pub struct FlushedFacts {
    /// The shard.
    pub shard_id: ShardId,
    /// The files that publish generations, the oldest generation first.
    pub published: Vec<PublishedFlushFile>,
    /// The folders of change rows.
    pub folders: Vec<FlushedFolder>,
    /// The folders that publications name, of the generations that have several folders.
    pub named: HashSet<String>,
    /// The oldest generation that no compaction has moved.
    pub unmoved: Generation,
    /// The generation of the next changes of the slowest consumer; `None` without a consumer.
    pub slowest: Option<Generation>,
    /// How long published changes are kept.
    pub retention: Duration,
}

/// A file that publishes the changes of a generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishedFlushFile {
    /// The generation.
    pub generation: Generation,
    /// Its size.
    pub bytes: u64,
    /// When it was written.
    pub modified: SystemTime,
}

/// A folder of change rows of a generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlushedFolder {
    /// Its name.
    pub name: String,
    /// The generation.
    pub generation: Generation,
    /// The size of its files.
    pub bytes: u64,
    /// The newest modification time of its files.
    pub modified: SystemTime,
}

/// The garbage among the changes of a shard's flushes at the time `now`, in the order of its
/// removal: a file that names a folder goes before the folder, and older generations go before
/// newer ones.
#[must_use]
pub fn flushed_garbage(facts: &FlushedFacts, now: SystemTime, grace: Duration) -> Vec<Garbage> {
    let is_expired = |file: &&PublishedFlushFile| is_expired(facts, file, now, grace);
    // The generations that are left have no gap, so that a feed has every one behind its start.
    let expired: Vec<&PublishedFlushFile> = facts.published.iter().take_while(is_expired).collect();
    let kept: HashSet<Generation> =
        facts.published.iter().skip(expired.len()).map(|file| file.generation).collect();
    let published = expired.into_iter().map(|file| Garbage {
        kind: GarbageKind::PublishedChanges,
        path: paths::published_flush(facts.shard_id, file.generation),
        reason: format!(
            "the changes of generation {} are older than the retention, its SSTable is moved, and no \
             consumer needs them",
            file.generation
        ),
        bytes: file.bytes,
    });
    let folders = facts
        .folders
        .iter()
        .filter(|folder| !is_named(facts, &kept, folder) && age(folder.modified, now) >= grace);
    let folders = folders.map(|folder| Garbage {
        kind: GarbageKind::StoredChanges,
        path: format!("{}/{}", paths::flushed_changes(facts.shard_id), folder.name),
        reason: "no file publishes these changes".to_owned(),
        bytes: folder.bytes,
    });
    published.chain(folders).collect()
}

/// A file that publishes changes is garbage when all of these hold:
///
/// - it is older than the retention, and than the grace period: a reader may have found it;
/// - a compaction has moved the SSTable. Before that its changes would be stored again, and the next
///   compaction would not see that they were;
/// - every consumer goes on behind its generation, or later;
/// - the files of older generations are garbage too.
fn is_expired(
    facts: &FlushedFacts,
    file: &PublishedFlushFile,
    now: SystemTime,
    grace: Duration,
) -> bool {
    let is_needed = facts.slowest.is_some_and(|next| next <= file.generation);
    let is_moved = file.generation < facts.unmoved;
    is_moved && !is_needed && age(file.modified, now) >= facts.retention.max(grace)
}

/// Whether a publication that stays names the folder. The only folder of a published generation is
/// the named one: the folder of a publication stays as long as its file.
fn is_named(facts: &FlushedFacts, kept: &HashSet<Generation>, folder: &FlushedFolder) -> bool {
    let of_generation = |other: &&FlushedFolder| other.generation == folder.generation;
    let is_only = facts.folders.iter().filter(of_generation).nth(1).is_none();
    kept.contains(&folder.generation) && (is_only || facts.named.contains(&folder.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_hours(1);

    fn time(hours: u32) -> SystemTime {
        SystemTime::UNIX_EPOCH + HOUR * (10_000 + hours)
    }

    fn published(generation: u64, hours: u32) -> PublishedFlushFile {
        PublishedFlushFile { generation: Generation(generation), bytes: 1, modified: time(hours) }
    }

    fn folder(generation: u64, name: &str, hours: u32) -> FlushedFolder {
        let generation = Generation(generation);
        FlushedFolder { name: name.to_owned(), generation, bytes: 5, modified: time(hours) }
    }

    fn facts() -> FlushedFacts {
        FlushedFacts {
            shard_id: ShardId::nil(),
            published: vec![published(1, 0), published(2, 1), published(3, 2)],
            folders: vec![
                folder(1, "a", 0),
                folder(2, "b", 1),
                folder(2, "lost", 1),
                folder(3, "c", 2),
                folder(4, "ended", 2),
            ],
            named: HashSet::from(["b".to_owned()]),
            unmoved: Generation(4),
            slowest: None,
            retention: HOUR * 24,
        }
    }

    fn paths_of(facts: &FlushedFacts, hours: u32) -> Vec<String> {
        let garbage = flushed_garbage(facts, time(hours), HOUR);
        garbage.into_iter().map(|it| it.path.rsplit('/').next().unwrap().to_owned()).collect()
    }

    #[test]
    fn a_folder_that_no_file_publishes_goes_after_the_grace_period() {
        assert!(paths_of(&facts(), 1).is_empty());
        assert_eq!(paths_of(&facts(), 2), ["lost"]);
        assert_eq!(paths_of(&facts(), 3), ["lost", "ended"]);
    }

    #[test]
    fn published_changes_go_after_the_retention_and_before_their_folder() {
        assert_eq!(paths_of(&facts(), 24), ["0000000000000001.binpb", "a", "lost", "ended"]);
        assert_eq!(paths_of(&facts(), 100).len(), 8);
    }

    #[test]
    fn changes_of_an_sstable_that_a_compaction_may_still_move_stay() {
        let listed = FlushedFacts { unmoved: Generation(2), ..facts() };
        assert_eq!(paths_of(&listed, 100), ["0000000000000001.binpb", "a", "lost", "ended"]);
    }

    #[test]
    fn changes_that_a_consumer_needs_stay() {
        let at = |next| FlushedFacts { slowest: Some(Generation(next)), ..facts() };
        assert_eq!(paths_of(&at(1), 100), ["lost", "ended"]);
        assert_eq!(paths_of(&at(2), 100), ["0000000000000001.binpb", "a", "lost", "ended"]);
    }

    #[test]
    fn newer_changes_stay_as_long_as_older_ones() {
        let mut facts = facts();
        facts.published[0].modified = time(50);
        assert_eq!(paths_of(&facts, 60), ["lost", "ended"]);
    }
}
