//! The rules of garbage collection: which files of a shard no reader and no writer needs any more.
//!
//! Owns: the rules, as pure functions over a listing and two manifests, and the limit on the clock
//! skew of a collector.
//! Does not own: the listing, the removal (`table`), or files of the base table, which Lance's own
//! clean-up removes.
//!
//! One invariant carries all rules: garbage is a file that the manifest *of one grace period ago*
//! did not need, that the newest manifest does not need, and that no manifest between the two could
//! have needed. A read that started within the grace period started from one of these manifests.

mod changelog;
mod clock;
mod flushed_changes;
mod graves;
mod rules;

pub use changelog::{ChangeFolder, ChangelogFacts, PublishedFile, changelog_garbage};
pub use clock::present;
pub use flushed_changes::{FlushedFacts, FlushedFolder, PublishedFlushFile, flushed_garbage};
pub use graves::{GraveFacts, grave_garbage};
pub use rules::{LINKED_AGE, ShardFacts, garbage_of, staged_write_garbage};

use std::fmt;
use std::time::{Duration, SystemTime};

use lancemem_core::types::{Generation, ManifestVersion, ShardId, WalPosition};

/// Settings of one collection.
///
/// ```
/// # use std::time::Duration;
/// # use lancemem::CollectionSettings;
/// let settings = CollectionSettings::default().with_older_than(Duration::from_mins(10));
/// assert!(!settings.dry_run);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CollectionSettings {
    /// Report the garbage without removing it.
    pub dry_run: bool,
    /// The grace period: how long a file must have been unneeded. Reads that last longer may fail.
    pub older_than: Duration,
    /// Whether files of the base table that no version names are removed too. Finding them reads
    /// every version.
    pub base_files: bool,
}

impl Default for CollectionSettings {
    fn default() -> Self {
        Self { dry_run: false, older_than: Duration::from_hours(1), base_files: true }
    }
}

impl CollectionSettings {
    /// Sets [`Self::dry_run`].
    #[must_use]
    pub const fn with_dry_run(self, dry_run: bool) -> Self {
        Self { dry_run, ..self }
    }

    /// Sets [`Self::older_than`].
    #[must_use]
    pub const fn with_older_than(self, older_than: Duration) -> Self {
        Self { older_than, ..self }
    }

    /// Sets [`Self::base_files`].
    #[must_use]
    pub const fn with_base_files(self, base_files: bool) -> Self {
        Self { base_files, ..self }
    }
}

/// The kinds of garbage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum GarbageKind {
    /// The folder of an SSTable that the base table contains.
    CompactedSsTable,
    /// The folder of a flush that failed and was repeated into another folder, or a staged SSTable
    /// that was never committed.
    OrphanSsTable,
    /// A WAL entry whose rows are in an SSTable, or a fence sentinel that no fenced writer can meet
    /// any more.
    WalEntry,
    /// An old version of a shard manifest.
    ShardManifest,
    /// The pages of a sorted run of the record index that is not published any more.
    RecordIndexRun,
    /// Deletion vectors of an SSTable that no manifest lists any more.
    DeletionVectors,
    /// Merged rows of a shard that has a newer SSTable, or none any more.
    MergedRows,
    /// The file that records the commit or the abort of a bulk write, once its SSTables are too old
    /// for either.
    StagedWrite,
    /// The file that publishes the stored changes of a version or of a flush, after their retention.
    PublishedChanges,
    /// A folder of stored changes that no version and no file publishes.
    StoredChanges,
    /// A folder of remembered deletes that no version lists.
    RememberedDeletes,
    /// Files of the base table that no version names.
    BaseFiles,
}

impl fmt::Display for GarbageKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::CompactedSsTable => "compacted SSTable",
            Self::OrphanSsTable => "orphan SSTable",
            Self::WalEntry => "WAL entry",
            Self::ShardManifest => "shard manifest",
            Self::RecordIndexRun => "record index run",
            Self::DeletionVectors => "deletion vectors",
            Self::MergedRows => "merged rows",
            Self::StagedWrite => "staged write",
            Self::PublishedChanges => "published changes",
            Self::StoredChanges => "stored changes",
            Self::RememberedDeletes => "remembered deletes",
            Self::BaseFiles => "base files",
        })
    }
}

/// One file or folder that is garbage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Garbage {
    /// Its kind.
    pub kind: GarbageKind,
    /// A file or, for an SSTable, a folder, relative to the table.
    pub path: String,
    /// Why it is not needed.
    pub reason: String,
    /// Its size.
    pub bytes: u64,
}

/// What a collection removed, or with `dry_run` would remove.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CollectionResult {
    /// Each file or folder, with the reason.
    pub garbage: Vec<Garbage>,
    /// Sum of the sizes.
    pub bytes: u64,
    /// SSTables that are garbage but have readers in this process, and therefore stay.
    pub pinned_sstables: usize,
}

/// A folder with the name of an SSTable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SsTableFolder {
    /// Its name.
    pub name: String,
    /// The generation in the name.
    pub generation: Generation,
    /// The size of its files.
    pub bytes: u64,
    /// The newest modification time of its files.
    pub modified: SystemTime,
}

/// A WAL entry that a manifest covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoveredEntry {
    /// Its position.
    pub position: WalPosition,
    /// Its size.
    pub bytes: u64,
    /// When it was written.
    pub modified: SystemTime,
    /// Whether it is a fence sentinel. Damaged entries count as one.
    pub is_sentinel: bool,
}

/// A file of deletion vectors, or of merged rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VectorFile {
    /// The SSTable whose deletion vectors it has, or the newest of those that were merged.
    pub sstable: String,
    /// Path relative to the table.
    pub path: String,
    /// Its size.
    pub bytes: u64,
    /// When it was written.
    pub modified: SystemTime,
}

/// A version of the shard manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestFile {
    /// Its number.
    pub version: ManifestVersion,
    /// Its size.
    pub bytes: u64,
    /// When it was written.
    pub modified: SystemTime,
}

/// The generation in the name of an SSTable's folder; `None` for the name of another folder.
#[must_use]
pub fn generation_of_folder(name: &str) -> Option<Generation> {
    let (random, generation) = name.split_once("_gen_")?;
    let is_random = random.len() == 8 && random.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_number = !generation.is_empty() && generation.bytes().all(|it| it.is_ascii_digit());
    (is_random && is_number).then(|| generation.parse().ok().map(Generation)).flatten()
}

/// The name of a shard in reasons.
fn shard_name(shard_id: ShardId) -> String {
    format!("shard {shard_id}")
}
