//! Durability on a local disk of what lance wrote.
//!
//! Owns: fsync of an SSTable's files and folders, of a whole base table, and of the files of one
//! commit to it. lance closes files without fsync, so its writes survive a killed process but not a
//! power loss. A pipe, a socket or a device is never opened: under the name of an expected file it
//! is damage, and in a folder it is skipped.
//! Does not own: object stores, where a successful put is durable.

use std::collections::{BTreeSet, HashSet};
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path as LocalPath, PathBuf};
use std::sync::Arc;

use futures::{StreamExt, TryStreamExt, stream};
use lance::Dataset;
use lance::index::DatasetIndexExt;
use lance_core::{Error, Result};
use lance_io::local::to_local_path;
use lance_io::object_store::ObjectStore;
use lance_table::format::{Fragment, IndexMetadata};
use lance_table::io::deletion::deletion_file_path;
use lancemem_core::format::paths::LANCEMEM;
use lancemem_core::store::{NO_FILE, is_no_file, open_to_sync};
use object_store::path::Path;

use super::SsTableContext;

/// lance's folder of table versions.
const VERSIONS: &str = "_versions";
/// lance's folder of indexes, each in a folder of its own.
const INDICES: &str = "_indices";
/// Concurrent syncs. A file system commits waiting syncs together.
const CONCURRENT_SYNCS: usize = 16;

/// The local path of `path`; `None` in an object store.
pub fn local_path(store: &ObjectStore, path: &Path) -> Option<PathBuf> {
    // This scheme is a local disk too, through another implementation.
    let local = store.has_direct_local_paths() || store.scheme() == "file-object-store";
    local.then(|| PathBuf::from(to_local_path(path)))
}

/// Makes the bytes of an SSTable's `files` durable, and returns their local paths.
pub(super) async fn sync_files(context: &SsTableContext, files: &[Path]) -> Result<Vec<PathBuf>> {
    if !context.fsync {
        return Ok(Vec::new());
    }
    let local = |file| local_path(&context.object_store, file);
    let files: Vec<PathBuf> = files.iter().filter_map(local).collect();
    sync_paths(files.clone(), sync_one).await?;
    Ok(files)
}

/// Makes everything below `folder` durable, and the entry of `folder` in its parent. The files
/// `synced` are durable already and skipped.
pub(super) async fn sync_sstable(
    context: &SsTableContext,
    folder: &Path,
    synced: &[PathBuf],
) -> Result<()> {
    let local = local_path(&context.object_store, folder).filter(|_| context.fsync);
    let Some(folder) = local else { return Ok(()) };
    let mut paths = list_trees(vec![folder.clone()]).await?;
    paths.extend(folder.parent().map(LocalPath::to_path_buf));
    paths.retain(|path| !synced.contains(path));
    sync_paths(paths, sync_one).await
}

/// Makes everything below `folder`, a folder of change rows, durable, and the entries of the
/// folders above it, which may be new, up to the table's.
pub(super) async fn sync_changes(context: &SsTableContext, folder: &Path) -> Result<()> {
    let local = local_path(&context.object_store, folder).filter(|_| context.fsync);
    let Some(folder) = local else { return Ok(()) };
    let mut paths = list_trees(vec![folder.clone()]).await?;
    let of_table = folder.ancestors().position(|above| above.ends_with(LANCEMEM));
    let above = of_table.map_or(0, |place| place + 1);
    paths.extend(folder.ancestors().skip(1).take(above).map(LocalPath::to_path_buf));
    sync_paths(paths, sync_one).await
}

/// Makes all files of a base table durable. Shard manifests, which are synced, rely on commits that
/// other programs made without a sync; a power cut would lose these.
///
/// # Errors
/// An error of the file system.
pub async fn sync_base(base: &Dataset) -> Result<()> {
    let store = base.object_store(None).await?;
    let Some(root) = local_path(&store, &base.branch_location().path) else { return Ok(()) };
    let folders =
        ["data", "_deletions", INDICES, "_transactions", VERSIONS].map(|name| root.join(name));
    let folders = folders.into_iter().filter(|folder| folder.exists()).collect();
    let mut paths = list_trees(folders).await?;
    paths.push(root.clone());
    sync_version(&root, paths).await?;
    sync_names_above(root).await
}

/// Makes a whole table durable, its shards included, after writes without syncs.
///
/// # Errors
/// An error of the file system.
pub async fn sync_table(base: &Dataset) -> Result<()> {
    let store = base.object_store(None).await?;
    let Some(root) = local_path(&store, &base.branch_location().path) else { return Ok(()) };
    let paths = list_trees(vec![root.clone()]).await?;
    sync_version(&root, paths).await?;
    sync_names_above(root).await
}

/// Makes the names of the folders above `root` durable: all of them may be new.
async fn sync_names_above(root: PathBuf) -> Result<()> {
    let synced = tokio::task::spawn_blocking(move || {
        for folder in root.ancestors().skip(1) {
            let synced = File::open(folder).and_then(|folder| folder.sync_all());
            match synced.as_ref().map_err(io::Error::kind) {
                // This process cannot have created a folder that it may not read.
                Err(ErrorKind::PermissionDenied | ErrorKind::InvalidInput) => return Ok(()),
                _ => synced?,
            }
        }
        io::Result::Ok(())
    });
    Ok(synced.await??)
}

/// Syncs files and folders of a base table that other programs may write to. Files first, then
/// folders, then the folder of versions; each step ends before the next begins. So a power cut
/// never leaves the name of a version without its files.
async fn sync_version(root: &LocalPath, paths: Vec<PathBuf>) -> Result<()> {
    let versions = root.join(VERSIONS);
    let (last, paths): (Vec<_>, Vec<_>) = paths.into_iter().partition(|path| *path == versions);
    let (folders, files): (Vec<_>, Vec<_>) = paths.into_iter().partition(|path| path.is_dir());
    for step in [files, folders, last] {
        sync_paths(step, sync_if_there).await?;
    }
    Ok(())
}

/// Makes the files and indexes of `base` durable, except the ones of the older version `durable`,
/// which are durable already.
///
/// # Errors
/// An error of the file system.
pub async fn sync_version_of(durable: Option<&Dataset>, base: &Dataset) -> Result<()> {
    let root = base.branch_location().path;
    let files = match durable {
        Some(durable) => files_of_commit(durable, base),
        None => files_of_fragments(&root, base.fragments()).collect(),
    };
    // A clean-up may have removed that version since: then all indexes are synced once more.
    let known = match durable {
        Some(durable) => durable.load_indices().await.unwrap_or_default(),
        None => Arc::default(),
    };
    let indices = base.load_indices().await?;
    let new = indices.iter().filter(|index| known.iter().all(|known| known.uuid != index.uuid));
    let store = base.object_store(None).await?;
    sync_indices(&store, &root, new).await?;
    // Files of a shallow clone are elsewhere, and older than the clone.
    sync_with_folders(&store, &root, &files, sync_if_there).await
}

/// Makes indexes of the table at `root` durable. Does nothing in an object store.
///
/// # Errors
/// An error of the file system.
pub async fn sync_indices(
    store: &ObjectStore,
    root: &Path,
    indices: impl Iterator<Item = &IndexMetadata>,
) -> Result<()> {
    let all = root.clone().join(INDICES);
    let folders: Vec<Path> = indices.map(|it| all.clone().join(it.uuid.to_string())).collect();
    sync_folders(store, &folders).await
}

/// The files of `after` that its previous version `before` does not have.
pub fn files_of_commit(before: &Dataset, after: &Dataset) -> Vec<Path> {
    let known: HashSet<Path> =
        files_of_fragments(&before.branch_location().path, before.fragments()).collect();
    let root = after.branch_location().path;
    let transaction = after.manifest().transaction_file.as_deref();
    let transaction = transaction.map(|file| root.clone().join("_transactions").join(file));
    files_of_fragments(&root, after.fragments())
        .filter(|file| !known.contains(file))
        .chain(transaction)
        .chain([after.manifest_location().path.clone()])
        .collect()
}

/// Data files and deletion files of fragments of the table at `root`.
pub fn files_of_fragments<'a>(
    root: &Path,
    fragments: &'a [Fragment],
) -> impl Iterator<Item = Path> + use<'a> {
    let root = root.clone();
    fragments.iter().flat_map(move |fragment| {
        let deletions = fragment.deletion_file.as_ref();
        let deletions = deletions.map(|file| deletion_file_path(&root, fragment.id, file));
        let folder = root.clone().join("data");
        let data = fragment.files.iter().map(move |file| folder.clone().join(file.path.as_str()));
        data.chain(deletions).collect::<Vec<_>>()
    })
}

/// Makes new files of a base table durable, then `root` and the folders that list the files. A
/// version relies on these before its own name appears. Does nothing in an object store.
///
/// # Errors
/// An error of the file system.
pub async fn sync_before_version(store: &ObjectStore, root: &Path, files: &[Path]) -> Result<()> {
    sync_with_folders(store, root, files, sync_one).await
}

async fn sync_with_folders(
    store: &ObjectStore,
    root: &Path,
    files: &[Path],
    sync: SyncOne,
) -> Result<()> {
    let Some(root) = local_path(store, root) else { return Ok(()) };
    let files: Vec<PathBuf> = files.iter().filter_map(|file| local_path(store, file)).collect();
    let parents = files.iter().filter_map(|file| file.parent().map(LocalPath::to_path_buf));
    let folders: BTreeSet<PathBuf> = parents.chain([root.clone(), root.join(VERSIONS)]).collect();
    sync_paths(files, sync).await?;
    sync_paths(folders.into_iter().collect(), sync).await
}

/// Makes folders of a base table and everything below them durable; missing folders are skipped.
/// Does nothing in an object store.
///
/// # Errors
/// An error of the file system.
pub async fn sync_folders(store: &ObjectStore, folders: &[Path]) -> Result<()> {
    let local = folders.iter().filter_map(|folder| local_path(store, folder));
    let folders: Vec<PathBuf> = local.filter(|folder| folder.exists()).collect();
    let parents: BTreeSet<PathBuf> =
        folders.iter().filter_map(|folder| folder.parent().map(LocalPath::to_path_buf)).collect();
    sync_paths(list_trees(folders).await?, sync_if_there).await?;
    sync_paths(parents.into_iter().collect(), sync_one).await
}

/// How one file or folder is synced.
type SyncOne = fn(&LocalPath) -> Result<()>;

fn sync_one(path: &LocalPath) -> Result<()> {
    sync_opened(path, open_to_sync(path))
}

/// For a folder that other programs write to: a missing file was a temporary one that was renamed.
fn sync_if_there(path: &LocalPath) -> Result<()> {
    match open_to_sync(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        opened => sync_opened(path, opened),
    }
}

fn sync_opened(path: &LocalPath, opened: io::Result<Option<File>>) -> Result<()> {
    match opened {
        Ok(Some(file)) => Ok(file.sync_all()?),
        Ok(None) => Err(no_file(path)),
        Err(error) if is_no_file(&error) => Err(no_file(path)),
        Err(error) => Err(error.into()),
    }
}

/// The error for a path that is neither a regular file nor a folder.
fn no_file(path: &LocalPath) -> Error {
    Error::corrupt_file(Path::from_absolute_path(path).unwrap_or_default(), NO_FILE)
}

async fn sync_paths(paths: Vec<PathBuf>, sync: SyncOne) -> Result<()> {
    stream::iter(paths)
        .map(|path| tokio::task::spawn_blocking(move || sync(&path)))
        .buffer_unordered(CONCURRENT_SYNCS)
        .map(|synced| synced?)
        .try_collect()
        .await
}

/// The folders and everything below them.
async fn list_trees(folders: Vec<PathBuf>) -> Result<Vec<PathBuf>> {
    let listed = tokio::task::spawn_blocking(move || {
        let mut paths = Vec::new();
        folders.iter().try_for_each(|folder| list_tree(folder, &mut paths))?;
        io::Result::Ok(paths)
    });
    Ok(listed.await??)
}

/// Adds `folder` and everything below it to `paths`, except entries without bytes to sync: pipes,
/// sockets, devices and broken links.
fn list_tree(folder: &LocalPath, paths: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        let kind = entry.file_type()?;
        if kind.is_dir() {
            list_tree(&path, paths)?;
        } else if kind.is_file() || path.is_file() || path.is_dir() {
            paths.push(path);
        }
    }
    paths.push(folder.to_path_buf());
    Ok(())
}
