//! A local disk without the object store: on a thread that may wait for it.
//!
//! Owns: whole files, names in one folder, and whether a file exists, below a table's root; new
//! files in a folder that is there, staged and linked as the object store does it.
//! Does not own: other writes, or names that the object store spells otherwise than the disk
//! does: those are left to it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::Created;

/// The root folder of a table, and whether what is written there is synced.
#[derive(Debug)]
pub(super) struct LocalFolder {
    root: PathBuf,
    fsync: bool,
}

impl LocalFolder {
    pub const fn new(root: PathBuf, fsync: bool) -> Self {
        Self { root, fsync }
    }

    /// Creates a file with these bytes in one step, or changes nothing; `None` where its folder is
    /// missing. With `fsync` the bytes are on disk before anybody can see the file, and its name is
    /// before the call returns.
    pub fn create(&self, path: &Path, bytes: &[u8]) -> io::Result<Option<Created>> {
        let (file, staged) = match staged(path) {
            Ok(staged) => staged,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let linked = self.fill(file, bytes).and_then(|()| fs::hard_link(&staged, path));
        // A name that stays says nothing: it is none of an object.
        drop(fs::remove_file(&staged));
        match linked {
            Ok(()) => self.sync_folder(path).map(|()| Some(Created::Yes)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                Ok(Some(Created::AlreadyExists))
            }
            Err(error) => Err(error),
        }
    }

    fn fill(&self, mut file: File, bytes: &[u8]) -> io::Result<()> {
        file.write_all(bytes)?;
        if self.fsync { file.sync_all() } else { Ok(()) }
    }

    /// Syncs a file and its name, where this is what files are.
    pub fn sync(&self, path: &Path) -> io::Result<()> {
        if self.fsync {
            File::open(path)?.sync_all()?;
        }
        self.sync_folder(path)
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        match path.parent() {
            // Elsewhere a folder cannot be opened, and names are on disk with their files.
            Some(folder) if self.fsync && cfg!(unix) => File::open(folder)?.sync_all(),
            _ => Ok(()),
        }
    }

    /// Where `path`, relative to the table, is; `None` for one that is not spelled the same on
    /// the disk and in an object store.
    pub fn at(&self, path: &str) -> Option<PathBuf> {
        let plain = |part: &str| {
            part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
                && !part.bytes().all(|byte| byte == b'.')
        };
        path.split('/').all(plain).then(|| self.root.join(path))
    }
}

/// A new file beside `path`, under a name that listings leave out.
fn staged(path: &Path) -> io::Result<(File, PathBuf)> {
    let mut number = 1_u64;
    loop {
        let mut name = path.as_os_str().to_owned();
        name.push(format!("#{number}"));
        match OpenOptions::new().write(true).create_new(true).open(&name) {
            Ok(file) => return Ok((file, name.into())),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => number += 1,
            Err(error) => return Err(error),
        }
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
