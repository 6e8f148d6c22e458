//! The conditions under which stored changes are garbage.
//!
//! Owns: one function for each of the two kinds, and the reason why each is safe.
//! Does not own: the listing, or publishing; the caller has published every version that is left.

use std::collections::HashSet;
use std::time::{Duration, SystemTime};

use lancemem_core::format::paths;

use super::rules::age;
use super::{Garbage, GarbageKind};

/// The state of a table's stored changes.
#[derive(Clone, Debug, Default)]
pub struct ChangelogFacts {
    /// The files that publish versions.
    pub published: Vec<PublishedFile>,
    /// The folders of change rows.
    pub folders: Vec<ChangeFolder>,
    /// The version behind which the slowest consumer goes on.
    pub slowest: Option<u64>,
    /// How long published changes are kept.
    pub retention: Duration,
}

/// A file that publishes the changes of a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishedFile {
    /// The version.
    pub version: u64,
    /// The folder that it names.
    pub folder: Option<String>,
    /// Its size.
    pub bytes: u64,
    /// When it was written.
    pub modified: SystemTime,
}

/// A folder of change rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeFolder {
    /// Its name.
    pub name: String,
    /// The size of its files.
    pub bytes: u64,
    /// The newest modification time of its files.
    pub modified: SystemTime,
}

/// The garbage among stored changes at the time `now`, in the order of its removal: a file that
/// names a folder goes before the folder, and older versions go before newer ones.
#[must_use]
pub fn changelog_garbage(facts: &ChangelogFacts, now: SystemTime, grace: Duration) -> Vec<Garbage> {
    let (mut expired, kept): (Vec<&PublishedFile>, Vec<_>) =
        facts.published.iter().partition(|file| is_expired(facts, file, now, grace));
    let named: HashSet<&str> = kept.iter().filter_map(|file| file.folder.as_deref()).collect();
    expired.sort_unstable_by_key(|file| file.version);
    let published = expired.into_iter().map(|file| Garbage {
        kind: GarbageKind::PublishedChanges,
        path: paths::published_changes(file.version),
        reason: format!(
            "the changes of version {} are older than the retention, and no consumer needs them",
            file.version
        ),
        bytes: file.bytes,
    });
    let folders = facts.folders.iter().filter(|folder| {
        !named.contains(folder.name.as_str()) && age(folder.modified, now) >= grace
    });
    let folders = folders.map(|folder| Garbage {
        kind: GarbageKind::StoredChanges,
        path: paths::change_rows(&folder.name),
        reason: "no version publishes these changes".to_owned(),
        bytes: folder.bytes,
    });
    published.chain(folders).collect()
}

/// A file that publishes changes is garbage when all of these hold:
///
/// - it is older than the retention, and than the grace period: a reader may have found it;
/// - every consumer goes on behind its version, or later;
/// - a newer version is published. The newest file records how far publishing has come, so that no
///   version is published again.
///
/// A reader of a version that is left derives its changes where the stored ones are gone.
fn is_expired(
    facts: &ChangelogFacts,
    file: &PublishedFile,
    now: SystemTime,
    grace: Duration,
) -> bool {
    let is_newest = facts.published.iter().all(|other| other.version <= file.version);
    let is_needed = facts.slowest.is_some_and(|position| position < file.version);
    !is_newest && !is_needed && age(file.modified, now) >= facts.retention.max(grace)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_hours(1);

    fn time(hours: u32) -> SystemTime {
        SystemTime::UNIX_EPOCH + HOUR * (10_000 + hours)
    }

    fn published(version: u64, folder: Option<&str>, hours: u32) -> PublishedFile {
        let folder = folder.map(str::to_owned);
        PublishedFile { version, folder, bytes: 1, modified: time(hours) }
    }

    fn facts() -> ChangelogFacts {
        let folder = |name: &str, hours| ChangeFolder {
            name: name.to_owned(),
            bytes: 5,
            modified: time(hours),
        };
        ChangelogFacts {
            published: vec![
                published(7, Some("c"), 2),
                published(5, Some("a"), 0),
                published(6, None, 1),
            ],
            folders: vec![folder("a", 0), folder("c", 2), folder("refused", 2)],
            slowest: None,
            retention: HOUR * 24,
        }
    }

    fn paths_of(facts: &ChangelogFacts, hours: u32) -> Vec<String> {
        let garbage = changelog_garbage(facts, time(hours), HOUR);
        garbage.into_iter().map(|it| it.path.rsplit('/').next().unwrap().to_owned()).collect()
    }

    #[test]
    fn a_folder_that_no_version_publishes_goes_after_the_grace_period() {
        assert!(paths_of(&facts(), 2).is_empty());
        assert_eq!(paths_of(&facts(), 3), ["refused"]);
    }

    #[test]
    fn published_changes_go_after_the_retention_before_their_folder_and_the_newest_file_stays() {
        let five = "v0000000000000005.binpb";
        assert_eq!(paths_of(&facts(), 24), [five, "a", "refused"]);
        let six = "v0000000000000006.binpb";
        assert_eq!(paths_of(&facts(), 1_000), [five, six, "a", "refused"]);
    }

    #[test]
    fn changes_that_a_consumer_needs_stay() {
        let at = |position| ChangelogFacts { slowest: Some(position), ..facts() };
        assert_eq!(paths_of(&at(4), 1_000), ["refused"]);
        assert_eq!(paths_of(&at(5), 1_000), ["v0000000000000005.binpb", "a", "refused"]);
    }

    #[test]
    fn a_retention_below_the_grace_period_is_the_grace_period() {
        let facts = ChangelogFacts { retention: Duration::ZERO, ..facts() };
        assert!(paths_of(&facts, 0).is_empty());
        assert_eq!(paths_of(&facts, 1), ["v0000000000000005.binpb", "a"]);
    }
}
