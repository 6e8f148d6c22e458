//! Durability of a written run on a local disk.
//!
//! Owns: fsync of a run's files and folders, and of a base version that a compaction made. lance closes files without it, so what it wrote
//! survives a killed process but not a power loss.
//! Does not own: object stores, where a successful put is durable.

use std::fs::{self, File};
use std::io;
use std::path::{Path as LocalPath, PathBuf};

use lance::Dataset;
use lance_core::{Error, Result};
use lance_io::local::to_local_path;
use lance_io::object_store::ObjectStore;
use object_store::path::Path;

/// Makes everything below `folder`, and the entry of `folder` in its parent, durable.
pub(super) async fn sync_run(store: &ObjectStore, folder: &Path) -> Result<()> {
    if !is_local_disk(store) {
        return Ok(());
    }
    let folder = PathBuf::from(to_local_path(folder));
    tokio::task::spawn_blocking(move || {
        sync_tree(&folder)?;
        folder.parent().map_or(Ok(()), sync_one)
    })
    .await?
    .map_err(Error::from)
}

/// Makes the newest version of a base table durable: what lance committed without a sync would
/// otherwise be lost by a power cut after the shard manifests, which are synced, rely on it.
///
/// # Errors
/// An error of the file system.
pub async fn sync_base(base: &Dataset) -> Result<()> {
    let store = base.object_store(None).await?;
    if !is_local_disk(&store) {
        return Ok(());
    }
    let root = PathBuf::from(to_local_path(&base.branch_location().path));
    tokio::task::spawn_blocking(move || {
        for folder in ["data", "_deletions", "_transactions", "_versions"] {
            let folder = root.join(folder);
            if folder.exists() {
                sync_tree(&folder)?;
            }
        }
        sync_one(&root)
    })
    .await?
    .map_err(Error::from)
}

fn is_local_disk(store: &ObjectStore) -> bool {
    // The second scheme is the same disk through another implementation.
    store.has_direct_local_paths() || store.scheme() == "file-object-store"
}

fn sync_tree(folder: &LocalPath) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            sync_tree(&entry.path())?;
        } else {
            sync_one(&entry.path())?;
        }
    }
    sync_one(folder)
}

fn sync_one(path: &LocalPath) -> io::Result<()> {
    File::open(path)?.sync_all()
}
