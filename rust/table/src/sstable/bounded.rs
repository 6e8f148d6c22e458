//! Files that could ask for more memory than their kind ever needs.
//!
//! Owns: the reads of whole files of a run or of the record index, each with a bound, and the size of
//! data files, which Lance reads whole where their manifest calls them small.
//! Does not own: the bounds, or objects outside Lance's files (`lancemem_core::store`).

use std::cmp::Ordering;
use std::num::NonZeroU64;

use bytes::Bytes;
use lance::Dataset;
use lance_core::{Error, Result};
use lance_io::object_store::ObjectStore;
use lancemem_core::format::paths;
use lancemem_core::store::NO_FILE;
use lancemem_core::types::MaxBytes;
use object_store::ObjectStoreExt;
use object_store::path::Path;

use super::checksums::DamagedFile;
use super::sync::local_path;

/// The bytes of a file, `most` of them.
///
/// # Errors
/// Damage of a larger one, not found, or a storage error.
pub async fn read_whole(store: &ObjectStore, path: &Path, most: MaxBytes) -> Result<Bytes> {
    // Who opens a pipe waits for somebody at its other end.
    let local = local_path(store, path).and_then(|path| std::fs::metadata(path).ok());
    if local.is_some_and(|found| !found.is_file()) {
        return Err(Error::corrupt_file(path.clone(), "it is no file"));
    }
    let found = store.inner.get(path).await?;
    match most.excess(found.meta.size) {
        Some(excess) => Err(Error::corrupt_file(path.clone(), excess)),
        None => Ok(found.bytes().await?),
    }
}

/// The first data file of `run` on a local disk that has another size than the manifest says.
///
/// # Errors
/// A storage error. A file that is missing is left to whoever opens it.
pub async fn other_size(run: &Dataset) -> Result<Option<DamagedFile>> {
    let store = run.object_store(None).await?;
    let folder = run.branch_location().path.join("data");
    let files = run.fragments().iter().flat_map(|fragment| &fragment.files);
    for file in files.filter(|file| paths::is_plain_component(&file.path)) {
        let path = folder.clone().join(file.path.as_str());
        let found = local_path(&store, &path).and_then(|path| std::fs::metadata(path).ok());
        let said = file.file_size_bytes.get().map(NonZeroU64::get);
        let (Some(found), Some(said)) = (found, said) else { continue };
        let kind = match found.len().cmp(&said) {
            _ if !found.is_file() => NO_FILE,
            Ordering::Equal => continue,
            Ordering::Less => "cut short",
            Ordering::Greater => MaxBytes::TOO_LARGE,
        };
        return Ok(Some(DamagedFile { file: format!("data/{}", file.path), kind }));
    }
    Ok(None)
}
