//! The condition under which a folder of remembered deletes is garbage.
//!
//! Owns: the condition, and the reason why it is safe.
//! Does not own: the listing, or reading the lists of versions.

use std::collections::HashSet;
use std::time::{Duration, SystemTime};

use lancemem_core::format::paths;

use super::rules::age;
use super::{ChangeFolder, Garbage, GarbageKind};

/// The state of a table's remembered deletes.
#[derive(Clone, Debug, Default)]
pub struct GraveFacts {
    /// The folders, listed before the versions were.
    pub folders: Vec<ChangeFolder>,
    /// The newest version of the base table.
    pub newest: u64,
    /// The folders that the versions of the base table list.
    pub listed: HashSet<String>,
}

/// The garbage among remembered deletes at the time `now`.
///
/// A folder is garbage when all of these hold:
///
/// - it is older than the grace period;
/// - the version for which it was written exists, or is gone already. A compaction commits exactly
///   that version, so one that still runs, however long it sleeps, finds its folder;
/// - no version that is left lists it. A later version gets its folders from these, also by a
///   restore.
#[must_use]
pub fn grave_garbage(facts: &GraveFacts, now: SystemTime, grace: Duration) -> Vec<Garbage> {
    let is_garbage = |folder: &&ChangeFolder| {
        let version = paths::parse_grave_folder(&folder.name);
        version.is_some_and(|version| version <= facts.newest)
            && !facts.listed.contains(&folder.name)
            && age(folder.modified, now) >= grace
    };
    let garbage = facts.folders.iter().filter(is_garbage).map(|folder| Garbage {
        kind: GarbageKind::RememberedDeletes,
        path: paths::grave_rows(&folder.name),
        reason: "no version of the base table lists these deletes".to_owned(),
        bytes: folder.bytes,
    });
    garbage.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_hours(1);

    fn time(hours: u32) -> SystemTime {
        SystemTime::UNIX_EPOCH + HOUR * (10_000 + hours)
    }

    fn folder(version: u64, hours: u32) -> ChangeFolder {
        let name = paths::grave_folder(version, "0123456789abcdef");
        ChangeFolder { name, bytes: 5, modified: time(hours) }
    }

    fn versions(facts: &GraveFacts, hours: u32) -> Vec<u64> {
        let garbage = grave_garbage(facts, time(hours), HOUR);
        let name = |path: &str| path.rsplit('/').next().unwrap().to_owned();
        garbage.iter().map(|it| paths::parse_grave_folder(&name(&it.path)).unwrap()).collect()
    }

    fn facts() -> GraveFacts {
        let listed = HashSet::from([folder(5, 0).name]);
        GraveFacts { folders: vec![folder(4, 0), folder(5, 0), folder(6, 1)], newest: 6, listed }
    }

    #[test]
    fn a_folder_that_no_version_lists_goes_after_the_grace_period() {
        assert!(versions(&facts(), 0).is_empty());
        assert_eq!(versions(&facts(), 1), [4]);
        assert_eq!(versions(&facts(), 2), [4, 6]);
    }

    #[test]
    fn a_folder_whose_version_is_not_decided_stays_for_ever() {
        let facts = GraveFacts { newest: 5, ..facts() };
        assert_eq!(versions(&facts, 100_000), [4]);
    }

    #[test]
    fn a_folder_of_another_name_stays() {
        let other = ChangeFolder { name: "notes".to_owned(), ..folder(1, 0) };
        let facts = GraveFacts { folders: vec![other], ..facts() };
        assert!(versions(&facts, 100_000).is_empty());
    }
}
