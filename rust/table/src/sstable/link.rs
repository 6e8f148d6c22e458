//! A second name for an immutable file.
//!
//! Owns: the hard link on a local disk, and the copy where it cannot link.
//! Does not own: whether the name is synced, or who lists it.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::Path as LocalPath;
use std::time::SystemTime;

use lance_io::object_store::ObjectStore;
use object_store::path::Path;

use super::local_path;

/// How a file came to its second name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Linked {
    /// By a link.
    Yes,
    /// By a copy.
    Copied,
    /// Not at all: the store is not a local disk, and copies by itself.
    NotHere,
}

/// Gives the file `from` the second name `to` on a local disk, or copies it there.
///
/// # Errors
/// A storage error.
pub async fn link(store: &ObjectStore, from: &Path, to: &Path) -> lance_core::Result<Linked> {
    let (Some(from), Some(to)) = (local_path(store, from), local_path(store, to)) else {
        return Ok(Linked::NotHere);
    };
    let linked = tokio::task::spawn_blocking(move || {
        if let Some(folder) = to.parent() {
            fs::create_dir_all(folder)?;
        }
        match touch(&from).and_then(|()| fs::hard_link(&from, &to)) {
            Ok(()) => Ok(Linked::Yes),
            Err(error) if error.kind() == ErrorKind::NotFound => Err(error),
            // Another disk, a file system without links, too many of them, a foreign file.
            Err(_) => fs::copy(&from, &to).map(|_| Linked::Copied),
        }
    });
    Ok(linked.await??)
}

/// Makes the file young: lance's clean-up removes files of old age that no version names yet.
#[expect(clippy::disallowed_methods, reason = "the age of a file, which lance's clean-up reads")]
fn touch(path: &LocalPath) -> io::Result<()> {
    File::open(path)?.set_modified(SystemTime::now())
}
