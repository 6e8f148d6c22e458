//! What of a shard nobody needs any more.
//!
//! Owns: the conditions, as pure functions over what a listing and two manifests say, and how wrong a
//! collector's clock may be.
//! Does not own: the listing, the removal (`table`), or files of the base table, which lance's own
//! clean-up knows.
//!
//! One rule carries all: garbage is what the manifest *of one grace period ago* did not need, the
//! newest does not need, and no manifest between them could have needed. Who started a read since
//! then started from a manifest that needed it no more.

mod clock;
mod rules;

pub use clock::present;
pub use rules::{LINKED_AGE, ShardFacts, garbage_of, staged_write_garbage};

use std::fmt;
use std::time::{Duration, SystemTime};

use lancemem_core::types::{Generation, ManifestVersion, ShardId, WalPosition};

/// Settings of one collection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectionSettings {
    /// Only say what would go.
    pub dry_run: bool,
    /// How long something must have been of no use. Reads that last longer may fail.
    pub older_than: Duration,
    /// Whether files of the base that no version names go too. To know them every version is read.
    pub base_files: bool,
}

impl Default for CollectionSettings {
    fn default() -> Self {
        Self { dry_run: false, older_than: Duration::from_hours(1), base_files: true }
    }
}

/// What kind of thing is garbage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum GarbageKind {
    /// The folder of an SSTable that the base table contains.
    CompactedSsTable,
    /// The folder of a flush that failed and was repeated into another one.
    OrphanSsTable,
    /// A WAL entry whose rows are in an SSTable, or a fence sentinel that nobody can meet any more.
    WalEntry,
    /// An old version of a shard manifest.
    ShardManifest,
    /// The pages of a run of the record index that is not published any more.
    RecordIndexRun,
    /// Deletion vectors of an SSTable that no manifest lists any more.
    DeletionVectors,
    /// What was decided about a staged write whose SSTables cannot be linked any more.
    StagedWrite,
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
            Self::StagedWrite => "staged write",
            Self::BaseFiles => "base files",
        })
    }
}

/// One thing that goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Garbage {
    /// Its kind.
    pub kind: GarbageKind,
    /// A file or, for an SSTable, a folder, relative to the table.
    pub path: String,
    /// Why nobody needs it.
    pub reason: String,
    /// Its size.
    pub bytes: u64,
}

/// What a collection removed, or with `dry_run` would remove.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CollectionResult {
    /// Each thing, with its reason.
    pub garbage: Vec<Garbage>,
    /// Sum of the sizes.
    pub bytes: u64,
    /// SSTables that would go but are read in this process right now.
    pub pinned_sstables: usize,
}

/// A folder that has the name of an SSTable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SsTableFolder {
    /// Its name.
    pub name: String,
    /// The generation in the name.
    pub generation: Generation,
    /// Size of everything in it.
    pub bytes: u64,
    /// The newest change in it.
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
    /// Whether it is a fence sentinel, or too damaged to tell.
    pub is_sentinel: bool,
}

/// A file of deletion vectors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VectorFile {
    /// The SSTable that it is of.
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

/// The generation in the name of an SSTable's folder; `None` for a folder that is none of an SSTable.
#[must_use]
pub fn generation_of_folder(name: &str) -> Option<Generation> {
    let (random, generation) = name.split_once("_gen_")?;
    let is_random = random.len() == 8 && random.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_number = !generation.is_empty() && generation.bytes().all(|it| it.is_ascii_digit());
    (is_random && is_number).then(|| generation.parse().ok().map(Generation)).flatten()
}

/// The shard in the reason of a thing.
fn shard_name(shard_id: ShardId) -> String {
    format!("shard {shard_id}")
}
