//! Whether a table is at a location, and its removal.
//!
//! Owns: the refusal to remove what is no Lance table.
//! Does not own: handles, jobs and caches of a removed table; they find out at their next call.

use std::path::Path;

use async_recursion::async_recursion as boxed;
use lancemem_core::types::{Error, Result};

use super::location::Location;
use crate::errors::Context;
use crate::table::Table;

impl Table {
    /// Whether a Lance table is at `location`, with a MemWAL index or without.
    ///
    /// # Errors
    /// An input error for a URI that no table can have; a storage error, or damage, where the newest
    /// version cannot be read.
    pub async fn exists(location: impl Into<Location>) -> Result<bool> {
        location.into().resolved()?.has_table().await
    }

    /// Removes the Lance table at `location` with everything in its folder.
    ///
    /// # Errors
    /// [`Error::NoTable`](crate::Error::NoTable), with nothing removed, where there is no table; a
    /// storage error.
    pub async fn remove(location: impl Into<Location>) -> Result<()> {
        location.into().resolved()?.remove_table().await
    }
}

impl Location {
    #[boxed]
    async fn has_table(&self) -> Result<bool> {
        Ok(!self.is_file() && self.open_if_there().await?.is_some())
    }

    /// Whether the address is that of a local file, which no table can be.
    fn is_file(&self) -> bool {
        self.is_local() && Path::new(self.uri()).is_file()
    }

    #[boxed]
    async fn remove_table(&self) -> Result<()> {
        if self.is_file() {
            let uri = self.uri();
            return Err(Error::no_table(format!(
                "dropping table {uri}: there is a file, no table"
            )));
        }
        let base = self.open().await?;
        let action = format!("dropping table {}", self.uri());
        let store = base.object_store(None).await.context(&action)?;
        store.remove_dir_all(base.branch_location().path).await.context(&action)
    }
}
