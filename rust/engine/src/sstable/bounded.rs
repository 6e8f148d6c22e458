//! Limits on files that could use more memory than their kind ever needs.
//!
//! Owns: bounded reads of whole files of an SSTable or of the record index; the check of the size
//! of data files, which Lance reads whole where their manifest records a small size; and the
//! refusal of anything but a regular file in the place of a file, which Lance would open.
//! Does not own: the bounds, or objects outside Lance's files (`lancemem_core::store`).

use std::cmp::Ordering;
use std::num::NonZeroU64;

use bytes::Bytes;
use lance::Dataset;
use lance_core::{Error, Result};
use lance_io::object_store::ObjectStore;
use lancemem_core::format::paths;
use lancemem_core::store::{NO_FILE, is_no_file};
use lancemem_core::types::MaxBytes;
use object_store::ObjectStoreExt;
use object_store::path::Path;

use super::checksums::{DamagedFile, SsTableFiles, inside, paths_of};
use super::sync::{files_of_fragments, local_path};

/// The kind of damage of a file that has fewer bytes than its manifest records.
pub(super) const CUT_SHORT: &str = "cut short";
/// The detail of the error for a file of another size.
pub const OTHER_SIZE: &str = "file size differs from the size that the SSTable manifest records";

/// The bytes of a file of at most `most` bytes.
///
/// # Errors
/// Damage for a larger file, not found, or a storage error.
pub async fn read_whole(store: &ObjectStore, path: &Path, most: MaxBytes) -> Result<Bytes> {
    refuse_no_file(store, path)?;
    let found = store.inner.get(path).await?;
    match most.excess(found.meta.size) {
        Some(excess) => Err(Error::corrupt_file(path.clone(), excess)),
        None => Ok(found.bytes().await?),
    }
}

/// Refuses anything but a regular file on a local disk: a folder, a pipe, a device, a link that
/// leads to itself. Opening a pipe would block until another process opens its other end.
///
/// # Errors
/// Damage. A missing file, or one whose metadata cannot be read now, is left to the reader.
pub fn refuse_no_file(store: &ObjectStore, path: &Path) -> Result<()> {
    match is_file(store, path) {
        Some(false) => Err(Error::corrupt_file(path.clone(), "not a regular file")),
        _ => Ok(()),
    }
}

/// Whether `path` is a regular file on a local disk; `None` where that is unknown.
fn is_file(store: &ObjectStore, path: &Path) -> Option<bool> {
    match std::fs::metadata(local_path(store, path)?) {
        Ok(found) => Some(found.is_file()),
        Err(error) => is_no_file(&error).then_some(false),
    }
}

/// The kind of damage that the size of a file shows.
pub(super) fn damage_of_size(found: u64, recorded: u64) -> Option<&'static str> {
    match found.cmp(&recorded) {
        Ordering::Equal => None,
        Ordering::Less => Some(CUT_SHORT),
        Ordering::Greater => Some(MaxBytes::TOO_LARGE),
    }
}

/// The first file of `sstable` on a local disk that is not a regular file, among its indexes or
/// among its data and deletion files.
///
/// # Errors
/// A storage error.
pub async fn no_file(sstable: &Dataset, files: SsTableFiles) -> Result<Option<DamagedFile>> {
    let store = sstable.object_store(None).await?;
    let folder = sstable.branch_location().path;
    let files = match files {
        SsTableFiles::Indexes => paths_of(sstable, &folder, files),
        _ => files_of_fragments(&folder, sstable.fragments()).collect(),
    };
    let found = files.into_iter().find(|path| is_file(&store, path) == Some(false));
    Ok(found.map(|path| DamagedFile { file: inside(&folder, &path), kind: NO_FILE }))
}

/// The first data file of `sstable` on a local disk whose size differs from the one that the
/// manifest records.
///
/// # Errors
/// A storage error. A missing file is left to the reader that opens it.
pub async fn other_size(sstable: &Dataset) -> Result<Option<DamagedFile>> {
    let store = sstable.object_store(None).await?;
    let folder = sstable.branch_location().path.join("data");
    let files = sstable.fragments().iter().flat_map(|fragment| &fragment.files);
    for file in files.filter(|file| paths::is_plain_component(&file.path)) {
        let path = folder.clone().join(file.path.as_str());
        let found = local_path(&store, &path).and_then(|path| std::fs::metadata(path).ok());
        let recorded = file.file_size_bytes.get().map(NonZeroU64::get);
        let (Some(found), Some(recorded)) = (found, recorded) else { continue };
        if let Some(kind) = damage_of_size(found.len(), recorded) {
            return Ok(Some(DamagedFile { file: format!("data/{}", file.path), kind }));
        }
    }
    Ok(None)
}
