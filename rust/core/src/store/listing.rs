//! Listing with sizes and ages, for the collection of garbage.
//!
//! Owns: everything below a folder, with the time of its last change.
//! Does not own: what may be removed.

use std::time::{Duration, SystemTime};

use futures::TryStreamExt;
use object_store::ObjectStoreExt;

use super::{Store, failed};
use crate::types::Result;

/// One object of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Path relative to the table.
    pub path: String,
    /// Its size.
    pub bytes: u64,
    /// When it was written, by the storage's clock.
    pub modified: SystemTime,
}

impl Listed {
    /// The file name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }
}

impl Store {
    /// Every object below `folder`, in no order.
    ///
    /// # Errors
    /// A storage error.
    pub async fn list_tree(&self, folder: &str) -> Result<Vec<Listed>> {
        let root = self.root.clone();
        self.inner
            .list(Some(&self.at(folder)))
            .try_filter_map(|meta| {
                let parts = meta.location.prefix_match(&root);
                let path = parts.map(|parts| {
                    parts.map(|part| part.as_ref().to_owned()).collect::<Vec<_>>().join("/")
                });
                let listed = path.map(|path| Listed {
                    path,
                    bytes: meta.size,
                    modified: meta.last_modified.into(),
                });
                futures::future::ok(listed)
            })
            .try_collect()
            .await
            .map_err(|error| failed(format!("listing {folder}"), error))
    }

    /// The age of an object: this machine's calendar minus the storage's time of the write, zero
    /// where the storage is ahead. `None` for an object that is absent.
    ///
    /// Calendars of two machines differ. Use the age only where either decision is correct.
    ///
    /// # Errors
    /// A storage error.
    pub async fn age_of(&self, path: &str) -> Result<Option<Duration>> {
        #[expect(clippy::disallowed_methods, reason = "ages of files are measured by the calendar")]
        let now = SystemTime::now();
        match self.inner.head(&self.at(path)).await {
            Ok(meta) => {
                let modified = SystemTime::from(meta.last_modified);
                Ok(Some(now.duration_since(modified).unwrap_or_default()))
            }
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(failed(format!("looking for {path}"), error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_tree_is_listed_with_paths_relative_to_the_table() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path().to_str().unwrap(), true).unwrap();
        for path in ["a/b/c", "a/d", "e/f"] {
            store.put(path, "four".into()).await.unwrap();
        }
        let mut found = store.list_tree("a").await.unwrap();
        found.sort_by(|one, other| one.path.cmp(&other.path));
        let paths: Vec<&str> = found.iter().map(|listed| listed.path.as_str()).collect();
        assert_eq!(paths, ["a/b/c", "a/d"]);
        assert_eq!((found[0].bytes, found[0].name()), (4, "c"));
        assert!(store.list_tree("nothing").await.unwrap().is_empty());
    }
}
