//! Where a table is and how its store is reached.
//!
//! Owns: the URI with its storage options, and the one way from them to lance's object store and
//! to the engine's, so that base table and shards share credentials and settings.
//! Does not own: what the options mean; lance documents them.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use lance::Dataset;
use lance::dataset::builder::DatasetBuilder;
use lance_io::object_store::{ObjectStoreParams, StorageOptionsAccessor};
use lancemem_core::store::{Store, hide};
use lancemem_core::types::Result;

use crate::errors::Context;

/// Parts of the names of options whose values are secret.
const SECRET: &[&str] = &["secret", "token", "password", "key", "credential", "sas", "auth"];

/// A table's URI and the options of its store.
#[derive(Clone)]
pub struct Location {
    uri: String,
    storage_options: HashMap<String, String>,
}

impl Location {
    /// The table at `uri`, reached as the process's environment says.
    pub fn new(uri: impl Into<String>) -> Self {
        Self { uri: uri.into(), storage_options: HashMap::new() }
    }

    /// The same table with options of its store, named as lance names them. No error or log line
    /// of this process will show the secret ones.
    #[must_use]
    pub fn with_storage_options(self, storage_options: HashMap<String, String>) -> Self {
        for (name, value) in &storage_options {
            let name = name.to_ascii_lowercase();
            if SECRET.iter().any(|part| name.contains(part)) {
                hide(value);
            }
        }
        Self { storage_options, ..self }
    }

    /// The URI.
    #[must_use]
    pub fn uri(&self) -> &str {
        &self.uri
    }

    /// The last part of the URI: what stays the same where a folder is mounted elsewhere.
    #[must_use]
    pub fn name(&self) -> &str {
        self.uri.trim_end_matches('/').rsplit('/').next().unwrap_or_default()
    }

    /// Whether the table is on a local disk, where files and folders can be synced.
    pub(crate) fn is_local(&self) -> bool {
        match self.uri.split_once("://") {
            None => true,
            Some((scheme, _)) => scheme.starts_with("file"),
        }
    }

    /// Opens the base table.
    pub(crate) async fn open(&self) -> Result<Dataset> {
        let mut builder = DatasetBuilder::from_uri(&self.uri);
        if !self.storage_options.is_empty() {
            builder = builder.with_storage_options(self.storage_options.clone());
        }
        builder.load().await.context(&format!("opening table {}", self.uri))
    }

    /// What lance needs to write here.
    pub(crate) fn store_params(&self) -> Option<ObjectStoreParams> {
        if self.storage_options.is_empty() {
            return None;
        }
        let accessor = StorageOptionsAccessor::with_static_options(self.storage_options.clone());
        Some(ObjectStoreParams {
            storage_options_accessor: Some(Arc::new(accessor)),
            ..ObjectStoreParams::default()
        })
    }

    /// The store of the shards. On a local disk it is the engine's own, which syncs with `fsync`;
    /// everywhere else the one that `base` uses.
    pub(crate) async fn store(&self, base: &Dataset, fsync: bool) -> Result<Store> {
        if self.is_local() {
            return Store::open(&self.uri, fsync);
        }
        let store = base.object_store(None).await.context("reaching the object store")?;
        Ok(Store::new(store.inner.clone(), base.branch_location().path))
    }
}

/// Shows no option: a value may be secret whatever its name is.
impl fmt::Debug for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Location").field("uri", &self.uri).finish_non_exhaustive()
    }
}

impl From<&str> for Location {
    fn from(uri: &str) -> Self {
        Self::new(uri)
    }
}

impl From<&String> for Location {
    fn from(uri: &String) -> Self {
        Self::new(uri)
    }
}

impl From<String> for Location {
    fn from(uri: String) -> Self {
        Self::new(uri)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_shows_no_option_and_knows_a_local_disk() {
        let options = [("aws_secret_access_key".to_owned(), "never-to-be-shown".to_owned())];
        let location = Location::new("s3://bucket/t").with_storage_options(options.into());
        assert!(!format!("{location:?}").contains("never-to-be-shown"));
        assert_eq!(lancemem_core::store::scrub("a never-to-be-shown b"), "a ****** b");
        assert!(!location.is_local());
        assert!(Location::new("relative/folder").is_local());
        assert!(Location::new("file:///folder").is_local());
    }
}
