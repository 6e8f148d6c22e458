//! A local disk without the object store, on a thread that may wait for it.
//!
//! Owns: whole files, names in one folder, and whether a file exists, below a table's root; new
//! files in an existing folder, which get their name once they are whole; that only regular files
//! and folders are ever opened.
//! Does not own: other writes, or names that the object store and the disk spell differently: both
//! are left to the object store.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;

use super::Created;
use crate::types::MaxBytes;

/// The root folder of a table, and whether what is written there is synced.
#[derive(Debug)]
pub(super) struct LocalFolder {
    root: PathBuf,
    fsync: bool,
    /// Whether files are made without a name; false once such a file could not be named.
    names_late: AtomicBool,
}

impl LocalFolder {
    pub const fn new(root: PathBuf, fsync: bool) -> Self {
        Self { root, fsync, names_late: AtomicBool::new(true) }
    }

    /// Creates a file with these bytes in one step, or changes nothing; `None` where its folder is
    /// missing. With `fsync` the bytes are on disk before a reader can see the file, and the name
    /// is on disk before the call returns.
    pub fn create(&self, path: &Path, bytes: &[u8]) -> io::Result<Option<Created>> {
        let names_late = self.names_late.load(Ordering::Relaxed);
        if let Some(unnamed) = names_late.then(|| Unnamed::beside(path)).flatten() {
            self.fill(&unnamed.file, bytes)?;
            match unnamed.name(path) {
                Named::Yes => return self.sync_folder(path).map(|()| Some(Created::Yes)),
                Named::Taken => return Ok(Some(Created::AlreadyExists)),
                Named::Impossible => self.names_late.store(false, Ordering::Relaxed),
            }
        }
        self.create_staged(path, bytes)
    }

    /// Creates the file as the object store does: under a staging name until it is whole.
    fn create_staged(&self, path: &Path, bytes: &[u8]) -> io::Result<Option<Created>> {
        let (file, staged) = match staged(path) {
            Ok(staged) => staged,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let linked = self.fill(&file, bytes).and_then(|()| fs::hard_link(&staged, path));
        // A staging name that stays behind is harmless: no listing shows it.
        drop(fs::remove_file(&staged));
        match linked {
            Ok(()) => self.sync_folder(path).map(|()| Some(Created::Yes)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                Ok(Some(Created::AlreadyExists))
            }
            Err(error) => Err(error),
        }
    }

    fn fill(&self, mut file: &File, bytes: &[u8]) -> io::Result<()> {
        file.write_all(bytes)?;
        if self.fsync { file.sync_all() } else { Ok(()) }
    }

    /// Syncs a file and its name, if this folder syncs its files.
    pub fn sync(&self, path: &Path) -> io::Result<()> {
        if self.fsync {
            let Some((file, _)) = open_file(path)? else {
                return Err(ErrorKind::IsADirectory.into());
            };
            file.sync_all()?;
        }
        self.sync_folder(path)
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        match path.parent() {
            // Outside of Unix a folder cannot be opened, and names are on disk with their files.
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

/// A new file that has no name yet. It costs the disk one change less than a staged one, and a
/// process that is killed leaves nothing behind.
struct Unnamed {
    file: File,
}

/// What became of a file's name.
enum Named {
    Yes,
    Taken,
    /// This file system gives no name to a file that was made without one.
    Impossible,
}

impl Unnamed {
    /// In the folder of `path`; `None` where the system or the file system has no such files.
    #[cfg(target_os = "linux")]
    fn beside(path: &Path) -> Option<Self> {
        use std::os::unix::fs::OpenOptionsExt;

        let flags = i32::try_from(rustix::fs::OFlags::TMPFILE.bits()).ok()?;
        let file = OpenOptions::new().write(true).custom_flags(flags).open(path.parent()?);
        file.ok().map(|file| Self { file })
    }

    /// Links the name to the open file through `/proc/self/fd`, which needs no privilege.
    #[cfg(target_os = "linux")]
    fn name(&self, path: &Path) -> Named {
        use std::os::fd::AsRawFd;

        use rustix::fs::{AtFlags, CWD, linkat};
        use rustix::io::Errno;

        let open = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        match linkat(CWD, open, CWD, path, AtFlags::SYMLINK_FOLLOW) {
            Ok(()) => Named::Yes,
            Err(Errno::EXIST) => Named::Taken,
            Err(_) => Named::Impossible,
        }
    }

    #[cfg(not(target_os = "linux"))]
    const fn beside(_path: &Path) -> Option<Self> {
        None
    }

    #[cfg(not(target_os = "linux"))]
    const fn name(&self, _path: &Path) -> Named {
        Named::Impossible
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

/// Outcome of reading a whole file.
#[derive(Debug)]
pub(super) enum FileRead {
    Absent,
    Whole(Bytes),
    /// The size of a file above the limit; no byte was read.
    TooLarge(u64),
    /// Why it is not a file that can be opened.
    NoFile(String),
}

/// What a path holds that is not a regular file.
pub(super) const NO_REGULAR_FILE: &str = "it is a folder, a pipe, a socket or a device";

/// A cycle of symbolic links; the standard library has no stable `ErrorKind` for it.
const ELOOP: i32 = if cfg!(target_os = "linux") { 40 } else { 62 };

/// Whether an error of the file system means that no file can be read under a name, however often
/// it is tried: a link that leads to itself, a name that no file can have, a folder.
#[must_use]
pub fn is_no_file(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::IsADirectory | ErrorKind::InvalidFilename)
        || (cfg!(unix) && error.raw_os_error() == Some(ELOOP))
}

/// Reads a file of at most `most` bytes.
pub(super) fn read(path: &Path, most: MaxBytes) -> io::Result<FileRead> {
    match read_whole(path, most) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(FileRead::Absent),
        Err(error) if error.kind() == ErrorKind::IsADirectory => {
            Ok(FileRead::NoFile(NO_REGULAR_FILE.to_owned()))
        }
        Err(error) if is_no_file(&error) => Ok(FileRead::NoFile(error.to_string())),
        read => read,
    }
}

fn read_whole(path: &Path, most: MaxBytes) -> io::Result<FileRead> {
    let Some((file, length)) = open_file(path)? else {
        return Ok(FileRead::NoFile(NO_REGULAR_FILE.to_owned()));
    };
    if length > most.get() {
        return Ok(FileRead::TooLarge(length));
    }
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(usize::try_from(length).unwrap_or(usize::MAX))?;
    file.take(most.get()).read_to_end(&mut bytes)?;
    Ok(FileRead::Whole(bytes.into()))
}

/// Opens a file for reading and returns its length. `None` for a pipe, a socket or a device, which
/// is not opened: opening a pipe waits for its other end, and opening a device can have any effect.
///
/// # Errors
/// An error of the file system; `IsADirectory` for a folder.
pub fn open_file(path: &Path) -> io::Result<Option<(File, u64)>> {
    let found = fs::metadata(path)?;
    if found.is_dir() {
        return Err(ErrorKind::IsADirectory.into());
    }
    if !found.is_file() {
        return Ok(None);
    }
    let file = open_at_once(path)?;
    let found = file.metadata()?;
    Ok(found.is_file().then_some((file, found.len())))
}

/// Opens a file or a folder to sync it; `None` for anything else, which has no bytes to sync and is
/// not opened.
///
/// # Errors
/// An error of the file system.
pub fn open_to_sync(path: &Path) -> io::Result<Option<File>> {
    let found = fs::metadata(path)?;
    if found.is_file() || found.is_dir() { open_at_once(path).map(Some) } else { Ok(None) }
}

/// Opens what was a file or a folder a moment ago. `O_NONBLOCK` keeps the open from waiting if the
/// path has become a pipe.
fn open_at_once(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(target_os = "linux")]
    {
        use std::os::unix::fs::OpenOptionsExt;

        let flags = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or_default();
        options.custom_flags(flags);
    }
    options.open(path)
}

/// Whether anything exists at `path`, a file or not: the read of a path that is no file fails.
pub(super) fn exists(path: &Path) -> io::Result<bool> {
    match fs::metadata(path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) if is_no_file(&error) => Ok(true),
        Err(error) => Err(error),
    }
}

/// Names in `folder`, without files that are still being written. A folder that has the name of a
/// file is among them, so that the read of it fails.
pub(super) fn file_names(folder: &Path) -> io::Result<Vec<String>> {
    names(folder, |name, _| Ok(!name.contains('#')))
}

/// Names of the folders in `folder`, sorted.
pub(super) fn folder_names(folder: &Path) -> io::Result<Vec<String>> {
    let mut names = names(folder, |_, entry| is_folder(entry))?;
    names.sort_unstable();
    Ok(names)
}

fn names(
    folder: &Path,
    keep: impl Fn(&str, &fs::DirEntry) -> io::Result<bool>,
) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        if keep(&name, &entry)? {
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
        // A link that leads nowhere, or to itself.
        Err(error) if error.kind() == ErrorKind::NotFound || is_no_file(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(names_late: bool) -> (tempfile::TempDir, LocalFolder) {
        let place = tempfile::tempdir().unwrap();
        let folder = LocalFolder::new(place.path().to_owned(), true);
        folder.names_late.store(names_late, Ordering::Relaxed);
        (place, folder)
    }

    #[test]
    fn a_file_is_created_once_and_whole_with_and_without_a_staging_name() {
        for names_late in [true, false] {
            let (place, folder) = folder(names_late);
            let path = place.path().join("entry");
            assert_eq!(folder.create(&path, b"first").unwrap(), Some(Created::Yes));
            assert_eq!(folder.create(&path, b"second").unwrap(), Some(Created::AlreadyExists));
            assert_eq!(fs::read(&path).unwrap(), b"first");
            let names: Vec<_> = fs::read_dir(place.path()).unwrap().map(Result::unwrap).collect();
            assert_eq!(names.len(), 1, "{names:?}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn nothing_but_a_regular_file_is_opened_and_a_link_to_itself_is_no_file() {
        use std::os::unix::fs::symlink;
        use std::os::unix::net::UnixListener;

        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        let _socket = UnixListener::bind(at("socket")).unwrap();
        symlink("loop", at("loop")).unwrap();
        symlink("/dev/zero", at("device")).unwrap();
        fs::create_dir(at("folder")).unwrap();
        for name in ["socket", "loop", "device", "folder"] {
            let found = read(&at(name), MaxBytes::NOTE).unwrap();
            assert!(matches!(found, FileRead::NoFile(_)), "{name}: {found:?}");
            assert!(exists(&at(name)).unwrap(), "{name}: its read must fail");
        }
        assert_eq!(folder_names(place.path()).unwrap(), ["folder"]);
        for (name, is_synced) in [("socket", false), ("device", false), ("folder", true)] {
            assert_eq!(open_to_sync(&at(name)).unwrap().is_some(), is_synced, "{name}");
        }
        assert!(is_no_file(&open_to_sync(&at("loop")).unwrap_err()));
        let longest = at(&"x".repeat(300));
        assert!(is_no_file(&open_file(&longest).unwrap_err()));
    }

    #[test]
    fn a_missing_folder_is_left_to_the_object_store() {
        for names_late in [true, false] {
            let (place, folder) = folder(names_late);
            let path = place.path().join("missing").join("entry");
            assert_eq!(folder.create(&path, b"bytes").unwrap(), None);
        }
    }
}
