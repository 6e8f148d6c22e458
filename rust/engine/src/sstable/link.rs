//! A second name for an immutable file.
//!
//! Owns: the hard link on a local disk, and the copy where the file system cannot link.
//! Does not own: whether the name is synced, or the manifest that lists it.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::Path as LocalPath;
use std::time::SystemTime;

use lance_core::Error;
use lance_io::object_store::ObjectStore;
use lancemem_core::store::{NO_FILE, is_no_file, open_file};
use object_store::path::Path;

use super::local_path;

/// How a file got its second name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Linked {
    /// By a hard link.
    Yes,
    /// By a copy.
    Copied,
    /// Not at all: the store is not a local disk, and the caller copies the object.
    NotHere,
}

/// Gives the file `from` the second name `to` on a local disk, or copies it there. An existing file
/// `to` is never replaced: it may be `from` itself.
///
/// # Errors
/// A storage error, also where `to` exists. Damage where `from` is not a regular file.
pub async fn link(store: &ObjectStore, from: &Path, to: &Path) -> lance_core::Result<Linked> {
    let damaged = from.clone();
    let (Some(from), Some(to)) = (local_path(store, from), local_path(store, to)) else {
        return Ok(Linked::NotHere);
    };
    let linked = tokio::task::spawn_blocking(move || {
        if let Some(folder) = to.parent() {
            fs::create_dir_all(folder)?;
        }
        match touch(&from).and_then(|()| fs::hard_link(&from, &to)) {
            Ok(()) => Ok(Linked::Yes),
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::AlreadyExists)
                    || is_no_file(&error) =>
            {
                Err(error)
            }
            // Another disk, a file system without links, too many links, a file of another user.
            Err(_) => copy(&from, &to).map(|()| Linked::Copied),
        }
    });
    match linked.await? {
        Err(error) if is_no_file(&error) => Err(Error::corrupt_file(damaged, NO_FILE)),
        linked => Ok(linked?),
    }
}

fn copy(from: &LocalPath, to: &LocalPath) -> io::Result<()> {
    let mut from = open(from)?;
    let mut new = File::create_new(to)?;
    io::copy(&mut from, &mut new).map(drop)
}

/// Sets the modification time to now: lance's clean-up removes old files that no version names.
#[expect(clippy::disallowed_methods, reason = "the age of a file, which lance's clean-up reads")]
fn touch(path: &LocalPath) -> io::Result<()> {
    open(path)?.set_modified(SystemTime::now())
}

/// Opens a regular file, and nothing else.
fn open(path: &LocalPath) -> io::Result<File> {
    match open_file(path)? {
        Some((file, _)) => Ok(file),
        None => Err(ErrorKind::IsADirectory.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_name_that_is_taken_stays_what_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let path = |name: &str| Path::from_absolute_path(at(name)).unwrap();
        let store = ObjectStore::local();
        fs::write(at("sstable"), "rows of an SSTable").unwrap();
        fs::write(at("other"), "rows of another").unwrap();
        assert_eq!(link(&store, &path("sstable"), &path("base/file")).await.unwrap(), Linked::Yes);
        for from in ["sstable", "other"] {
            link(&store, &path(from), &path("base/file")).await.unwrap_err();
            copy(&at(from), &at("base/file")).unwrap_err();
        }
        for name in ["sstable", "base/file"] {
            assert_eq!(fs::read_to_string(at(name)).unwrap(), "rows of an SSTable", "{name}");
        }
        copy(&at("other"), &at("base/more")).unwrap();
        assert_eq!(fs::read_to_string(at("base/more")).unwrap(), "rows of another");
    }
}
