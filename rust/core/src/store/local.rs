//! Reads of a local disk: each is one call, on a thread that may wait for it.
//!
//! Owns: whole files, names in one folder, and whether a file exists, below a table's root.
//! Does not own: writes, which need the object store's staging, or names that the object store
//! spells otherwise than the disk does: those are left to it.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use bytes::Bytes;

/// The root folder of a table.
#[derive(Debug)]
pub(super) struct LocalFolder(PathBuf);

impl LocalFolder {
    pub const fn new(root: PathBuf) -> Self {
        Self(root)
    }

    /// Where `path`, relative to the table, is; `None` for one that is not spelled the same on
    /// the disk and in an object store.
    pub fn at(&self, path: &str) -> Option<PathBuf> {
        let plain = |part: &str| {
            part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
                && !part.bytes().all(|byte| byte == b'.')
        };
        path.split('/').all(plain).then(|| self.0.join(path))
    }
}

/// The bytes of a file; `None` where there is none.
pub(super) fn read(path: &Path) -> io::Result<Option<Bytes>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes.into())),
        Err(error) => match error.kind() {
            ErrorKind::NotFound | ErrorKind::IsADirectory => Ok(None),
            _ => Err(error),
        },
    }
}

/// Whether `path` is a file.
pub(super) fn exists(path: &Path) -> io::Result<bool> {
    match fs::metadata(path) {
        Ok(metadata) => Ok(!metadata.is_dir()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Names of the files in `folder`, less those that are still being written.
pub(super) fn file_names(folder: &Path) -> io::Result<Vec<String>> {
    names(folder, |name, is_folder| !is_folder && !name.contains('#'))
}

/// Names of the folders in `folder`, sorted.
pub(super) fn folder_names(folder: &Path) -> io::Result<Vec<String>> {
    let mut names = names(folder, |_, is_folder| is_folder)?;
    names.sort_unstable();
    Ok(names)
}

fn names(folder: &Path, keep: impl Fn(&str, bool) -> bool) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        if keep(&name, is_folder(&entry)?) {
            names.push(name);
        }
    }
    Ok(names)
}

/// Whether an entry is a folder, also behind a symbolic link.
fn is_folder(entry: &fs::DirEntry) -> io::Result<bool> {
    let kind = entry.file_type()?;
    if !kind.is_symlink() {
        return Ok(kind.is_dir());
    }
    match fs::metadata(entry.path()) {
        Ok(target) => Ok(target.is_dir()),
        // A link that leads nowhere.
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}
