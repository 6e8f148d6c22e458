//! Names of files and folders under `_mem_wal/` and `_lancemem/`, relative to the table root.
//!
//! Owns: the bit-reversed file names and the folder layout of the specification, and our own.
//! Does not own: whether a file exists.

use crate::types::{Generation, ManifestVersion, ShardId, WalPosition, WriterEpoch};

/// Folder of everything that the MemWAL specification describes.
pub const MEM_WAL: &str = "_mem_wal";

/// Folder of the files that the specification does not have.
pub const LANCEMEM: &str = "_lancemem";

/// Object that is created once, to prove that the store refuses to create it again.
pub const CREATED_ONCE: &str = "_lancemem/created_once";

/// Object that a collector rewrites to read the store's clock from its modification time.
pub const CLOCK: &str = "_lancemem/clock";

const WAL_EXTENSION: &str = "arrow";
const MANIFEST_EXTENSION: &str = "binpb";

/// Folder of one shard.
#[must_use]
pub fn shard(shard: ShardId) -> String {
    format!("{MEM_WAL}/{}", shard.as_hyphenated())
}

/// Folder of a shard's WAL entries.
#[must_use]
pub fn wal(shard_id: ShardId) -> String {
    format!("{}/wal", shard(shard_id))
}

/// One WAL entry.
#[must_use]
pub fn wal_entry(shard_id: ShardId, position: WalPosition) -> String {
    format!("{}/{}", wal(shard_id), bit_reversed(position.get(), WAL_EXTENSION))
}

/// The position in a WAL entry's file name; `None` for any other name.
#[must_use]
pub fn parse_wal_entry(file_name: &str) -> Option<WalPosition> {
    parse_bit_reversed(file_name, WAL_EXTENSION).map(WalPosition)
}

/// The copy of a WAL entry that a truncation under the epoch `epoch` dropped.
#[must_use]
pub fn dropped_entry(shard: ShardId, epoch: WriterEpoch, position: WalPosition) -> String {
    let shard = shard.as_hyphenated();
    format!("{LANCEMEM}/dropped/{shard}/{epoch}/{:016}.{WAL_EXTENSION}", position.get())
}

/// The note that jobs of this shard may have left files in the system's caches, and through which
/// epoch all files are on disk: see [`super::fsync_note`].
#[must_use]
pub fn unsynced(shard: ShardId) -> String {
    format!("{LANCEMEM}/unsynced/{}", shard.as_hyphenated())
}

/// Folder of the decisions about bulk writes.
pub const STAGED_WRITES: &str = "_lancemem/staged";

/// Records whether a bulk write is committed or aborted: the first to create it decides.
#[must_use]
pub fn staged_write(write: &str) -> String {
    format!("{STAGED_WRITES}/{write}")
}

/// Folder of the record index.
pub const RECORD_INDEX: &str = "_lancemem/record_index";

/// Folder of the files that publish sorted runs of the record index.
pub const RECORD_INDEX_RUNS: &str = "_lancemem/record_index/runs";

/// The file that publishes a sorted run of the record index.
#[must_use]
pub fn record_index_run(name: &str) -> String {
    format!("{RECORD_INDEX_RUNS}/{name}.{MANIFEST_EXTENSION}")
}

/// Folder of the pages of a sorted run of the record index.
#[must_use]
pub fn record_index_pages(name: &str) -> String {
    format!("{RECORD_INDEX}/{name}")
}

/// The name of a sorted run in the name of the file that publishes it; `None` for any other name.
#[must_use]
pub fn parse_record_index_run(file_name: &str) -> Option<&str> {
    let name = file_name.strip_suffix(MANIFEST_EXTENSION)?.strip_suffix('.')?;
    is_record_index_name(name).then_some(name)
}

/// Whether `name` has the form of a name of a sorted run.
#[must_use]
pub fn is_record_index_name(name: &str) -> bool {
    name.len() == 16 && name.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Folder of the deletion vectors that SSTables give to older rows.
const DELETION_VECTORS: &str = "_lancemem/deletion_vectors";

/// Folder of the deletion vectors of a shard's SSTables.
#[must_use]
pub fn deletion_vectors(shard: ShardId) -> String {
    format!("{DELETION_VECTORS}/{}", shard.as_hyphenated())
}

/// A file of deletion vectors of the SSTable in the folder `sstable`.
#[must_use]
pub fn run_vectors(shard: ShardId, sstable: &str, name: &str) -> String {
    format!("{}/{sstable}.{name}.{MANIFEST_EXTENSION}", deletion_vectors(shard))
}

/// The SSTable in the name of a file of deletion vectors; `None` for any other name.
#[must_use]
pub fn parse_run_vectors(file_name: &str) -> Option<&str> {
    let stem = file_name.strip_suffix(MANIFEST_EXTENSION)?.strip_suffix('.')?;
    let (sstable, name) = stem.rsplit_once('.')?;
    (is_record_index_name(name) && is_plain_component(sstable)).then_some(sstable)
}

/// Folder of the stored merged rows of a shard.
#[must_use]
pub fn merged_rows(shard: ShardId) -> String {
    format!("{LANCEMEM}/merged/{}", shard.as_hyphenated())
}

/// The merged rows of a shard up to the SSTable in the folder `sstable`. `name` follows from what was
/// merged.
#[must_use]
pub fn merged_rows_file(shard: ShardId, sstable: &str, name: &str) -> String {
    format!("{}/{sstable}.{name}.{WAL_EXTENSION}", merged_rows(shard))
}

/// The SSTable in the name of a file of merged rows; `None` for any other name.
#[must_use]
pub fn parse_merged_rows(file_name: &str) -> Option<&str> {
    let stem = file_name.strip_suffix(WAL_EXTENSION)?.strip_suffix('.')?;
    let (sstable, name) = stem.rsplit_once('.')?;
    (is_record_index_name(name) && is_plain_component(sstable)).then_some(sstable)
}

/// Folder of stored changes.
pub const CHANGELOG: &str = "_lancemem/changelog";

/// Folder of the change rows of one version, a Lance dataset.
#[must_use]
pub fn change_rows(name: &str) -> String {
    format!("{CHANGELOG}/{name}")
}

/// The name of the file in such a folder that describes its rows.
pub const CHANGE_ROWS_FILE: &str = "changes.binpb";

/// The file that describes the change rows in the folder `name`.
#[must_use]
pub fn change_rows_file(name: &str) -> String {
    format!("{}/{CHANGE_ROWS_FILE}", change_rows(name))
}

/// The file that publishes the changes of a version of the base table.
#[must_use]
pub fn published_changes(version: u64) -> String {
    format!("{CHANGELOG}/v{version:016}.{MANIFEST_EXTENSION}")
}

/// The version in the name of a file that publishes changes; `None` for any other name.
#[must_use]
pub fn parse_published_changes(file_name: &str) -> Option<u64> {
    let stem = file_name.strip_suffix(MANIFEST_EXTENSION)?.strip_suffix('.')?;
    let digits = stem.strip_prefix('v')?;
    let is_number = digits.len() >= 16 && digits.bytes().all(|byte| byte.is_ascii_digit());
    let version = digits.parse().ok().filter(|_| is_number)?;
    // More than 16 digits begin with no zero, so a version has one name.
    published_changes(version).ends_with(file_name).then_some(version)
}

/// Folder of the changes of a shard's flushes.
#[must_use]
pub fn flushed_changes(shard: ShardId) -> String {
    format!("{CHANGELOG}/{}", shard.as_hyphenated())
}

/// The file that publishes the changes of one generation of a shard.
#[must_use]
pub fn published_flush(shard: ShardId, generation: Generation) -> String {
    format!("{}/{:016}.{MANIFEST_EXTENSION}", flushed_changes(shard), generation.get())
}

/// The generation in the name of a file that publishes the changes of a flush; `None` for any other
/// name.
#[must_use]
pub fn parse_published_flush(file_name: &str) -> Option<Generation> {
    parse_generation(file_name.strip_suffix(MANIFEST_EXTENSION)?.strip_suffix('.')?)
}

/// The name of a folder of change rows of one generation, below [`flushed_changes`]. `name` has the
/// form of [`is_record_index_name`].
#[must_use]
pub fn flushed_rows_name(generation: Generation, name: &str) -> String {
    format!("{:016}.{name}", generation.get())
}

/// The generation in the name of a folder of change rows; `None` for any other name.
#[must_use]
pub fn parse_flushed_rows_name(name: &str) -> Option<Generation> {
    let (generation, random) = name.split_once('.')?;
    parse_generation(generation).filter(|_| is_record_index_name(random))
}

/// Folder of the deletes that the table remembers after their compaction.
pub const GRAVES: &str = "_lancemem/graves";

/// The name of a folder below [`GRAVES`] that a compaction wrote for the version `version` of the base
/// table. `name` has the form of [`is_record_index_name`].
#[must_use]
pub fn grave_folder(version: u64, name: &str) -> String {
    format!("{version:016}.{name}")
}

/// The version in the name of a folder of remembered deletes; `None` for any other name.
#[must_use]
pub fn parse_grave_folder(name: &str) -> Option<u64> {
    let (digits, random) = name.split_once('.')?;
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    let version = digits.parse().ok().filter(|_| is_number && is_record_index_name(random))?;
    // A version has one name.
    (grave_folder(version, random) == name).then_some(version)
}

/// The folder of remembered deletes with this name, a Lance dataset.
#[must_use]
pub fn grave_rows(name: &str) -> String {
    format!("{GRAVES}/{name}")
}

/// Folder of the positions of consumers of flushed changes.
pub const CONSUMERS: &str = "_lancemem/consumers";

/// The position of the consumer `name`, which is a plain component.
#[must_use]
pub fn consumer(name: &str) -> String {
    format!("{CONSUMERS}/{name}")
}

/// A generation of 16 decimal digits, or more where they begin with no zero.
fn parse_generation(digits: &str) -> Option<Generation> {
    let generation = digits.parse().ok().map(Generation)?;
    (format!("{:016}", generation.get()) == digits).then_some(generation)
}

/// Folder of a shard's manifest versions.
#[must_use]
pub fn manifests(shard_id: ShardId) -> String {
    format!("{}/manifest", shard(shard_id))
}

/// One version of a shard manifest.
#[must_use]
pub fn manifest(shard_id: ShardId, version: ManifestVersion) -> String {
    format!("{}/{}", manifests(shard_id), bit_reversed(version.get(), MANIFEST_EXTENSION))
}

/// The version in a manifest's file name; `None` for any other name.
#[must_use]
pub fn parse_manifest(file_name: &str) -> Option<ManifestVersion> {
    parse_bit_reversed(file_name, MANIFEST_EXTENSION).map(ManifestVersion)
}

/// The best-effort pointer to the newest manifest version.
#[must_use]
pub fn version_hint(shard_id: ShardId) -> String {
    format!("{}/version_hint.json", manifests(shard_id))
}

/// Folder name of a flushed SSTable inside its shard; `nonce` gives a repeated flush a new folder.
#[must_use]
pub fn sstable_folder(nonce: u32, generation: Generation) -> String {
    format!("{nonce:08x}_gen_{generation}")
}

/// Whether `name` is one plain path component, so that joining it cannot leave the shard.
#[must_use]
pub fn is_plain_component(name: &str) -> bool {
    !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\\', '\0', ':'])
}

fn bit_reversed(number: u64, extension: &str) -> String {
    format!("{:064b}.{extension}", number.reverse_bits())
}

fn parse_bit_reversed(file_name: &str, extension: &str) -> Option<u64> {
    let digits = file_name.strip_suffix(extension)?.strip_suffix('.')?;
    if digits.len() != 64 || !digits.bytes().all(|b| b == b'0' || b == b'1') {
        return None;
    }
    // `u64::MAX` has no successor, so no writer uses it.
    let number = u64::from_str_radix(digits, 2).ok().map(u64::reverse_bits);
    number.filter(|number| *number < u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wal_entry_is_named_by_its_reversed_bits() {
        let shard_id = ShardId::nil();
        assert_eq!(
            wal_entry(shard_id, WalPosition(5)),
            "_mem_wal/00000000-0000-0000-0000-000000000000/wal/\
             1010000000000000000000000000000000000000000000000000000000000000.arrow"
        );
    }

    #[test]
    fn a_parsed_name_gives_back_its_number_and_a_foreign_name_gives_none() {
        for position in [1, 2, 77, u64::MAX - 1] {
            let path = wal_entry(ShardId::nil(), WalPosition(position));
            let name = path.rsplit('/').next().unwrap();
            assert_eq!(parse_wal_entry(name), Some(WalPosition(position)));
            assert_eq!(parse_manifest(name), None);
        }
        assert_eq!(parse_wal_entry("entry.arrow"), None);
        assert_eq!(parse_wal_entry(&format!("{}.arrow", "1".repeat(64))), None);
        assert_eq!(parse_wal_entry(""), None);
    }

    #[test]
    fn a_dropped_entry_is_named_by_its_shard_the_epoch_of_the_truncation_and_its_position() {
        assert_eq!(
            dropped_entry(ShardId::nil(), WriterEpoch(7), WalPosition(12)),
            "_lancemem/dropped/00000000-0000-0000-0000-000000000000/7/0000000000000012.arrow"
        );
    }

    #[test]
    fn a_file_of_deletion_vectors_names_its_sstable() {
        let path = run_vectors(ShardId::nil(), "cc85c397_gen_1", "0123456789abcdef");
        let (folder, name) = path.rsplit_once('/').unwrap();
        assert_eq!(folder, deletion_vectors(ShardId::nil()));
        assert_eq!(name, "cc85c397_gen_1.0123456789abcdef.binpb");
        assert_eq!(parse_run_vectors(name), Some("cc85c397_gen_1"));
        for foreign in [
            "",
            "binpb",
            ".binpb",
            "0123456789abcdef.binpb",
            "..0123456789abcdef.binpb",
            "a.0123.binpb",
            "a.0123456789abcdef.tmp",
            "a/b.0123456789abcdef.binpb",
        ] {
            assert_eq!(parse_run_vectors(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn a_file_that_publishes_changes_names_its_version() {
        assert_eq!(published_changes(42), "_lancemem/changelog/v0000000000000042.binpb");
        assert_eq!(change_rows_file("a"), "_lancemem/changelog/a/changes.binpb");
        for version in [0, 42, 10_u64.pow(16), u64::MAX] {
            let path = published_changes(version);
            let name = path.rsplit('/').next().unwrap();
            assert_eq!(parse_published_changes(name), Some(version));
        }
        for foreign in [
            "",
            "v42.binpb",
            "v0000000000000042.binpb.tmp",
            "0000000000000042.binpb",
            "v00000000000000042.binpb",
            "v000000000000004x.binpb",
            "v99999999999999999999.binpb",
        ] {
            assert_eq!(parse_published_changes(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn files_of_flushed_changes_name_their_generation() {
        let folder = format!("_lancemem/changelog/{}", ShardId::nil().as_hyphenated());
        let path = published_flush(ShardId::nil(), Generation(42));
        assert_eq!(path, format!("{folder}/0000000000000042.binpb"));
        for generation in [1, 42, 10_u64.pow(16), u64::MAX].map(Generation) {
            let path = published_flush(ShardId::nil(), generation);
            let name = path.rsplit('/').next().unwrap();
            assert_eq!(parse_published_flush(name), Some(generation));
            let name = flushed_rows_name(generation, "0123456789abcdef");
            assert_eq!(parse_flushed_rows_name(&name), Some(generation));
        }
        for foreign in ["", "42.binpb", "0000000000000042", "+000000000000042.binpb", "x.binpb"] {
            assert_eq!(parse_published_flush(foreign), None, "{foreign}");
        }
        for foreign in ["", "0000000000000042", "0000000000000042.x", "42.0123456789abcdef"] {
            assert_eq!(parse_flushed_rows_name(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn a_folder_of_remembered_deletes_names_its_version() {
        let name = grave_folder(42, "0123456789abcdef");
        assert_eq!(grave_rows(&name), "_lancemem/graves/0000000000000042.0123456789abcdef");
        for version in [0, 42, u64::MAX] {
            assert_eq!(
                parse_grave_folder(&grave_folder(version, "0123456789abcdef")),
                Some(version)
            );
        }
        for foreign in [
            "",
            "0123456789abcdef",
            "42.0123456789abcdef",
            "+000000000000042.0123456789abcdef",
            "0000000000000042.x",
            "00000000000000042.0123456789abcdef",
        ] {
            assert_eq!(parse_grave_folder(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn a_path_that_could_leave_the_shard_is_not_a_plain_component() {
        for name in ["", ".", "..", "a/b", "/etc", "a\\b", "s3:x"] {
            assert!(!is_plain_component(name), "{name}");
        }
        assert!(is_plain_component("cc85c397_gen_1"));
    }
}
