//! The location of a table: its URI and the options of its store.
//!
//! Owns: the URI with its storage options, and opening Lance's object store and the engine's from
//! them, so that base table and shards share credentials and settings. It carries the loader of
//! merge functions from the caller to the catalog.
//! Does not own: the meaning of the options; Lance documents them, and `store_options` checks a
//! few. When functions are loaded (`merge_functions`).

use std::collections::HashMap;
use std::fmt;
use std::path::{Component, PathBuf};
use std::sync::Arc;

use lance::Dataset;
use lance::dataset::builder::DatasetBuilder;
use lance_io::object_store::{
    ObjectStore, ObjectStoreParams, ObjectStoreRegistry, StorageOptionsAccessor,
};
use lancemem_core::store::Store;
use lancemem_core::types::{Error, Result};

use super::merge_functions::FunctionLoader;
use super::single_flight::session;
use super::store_options::{check_settings, hide_secrets};
use crate::errors::{Context, from_base, from_create, from_open, has_no_file, is_absent};
use crate::schema::{keep_indexes, read_newest};

/// A table's URI and the options of its store.
#[derive(Clone)]
pub struct Location {
    uri: String,
    storage_options: HashMap<String, String>,
    loader: Option<Arc<dyn FunctionLoader>>,
}

impl Location {
    /// The table at `uri`, with store options from the environment of the process.
    pub fn new(uri: impl Into<String>) -> Self {
        Self { uri: uri.into(), storage_options: HashMap::new(), loader: None }
    }

    /// The same table with options of its store, under Lance's names. No error and no log line of
    /// this process will show the values of secret options.
    #[must_use]
    pub fn with_storage_options(self, storage_options: HashMap<String, String>) -> Self {
        hide_secrets(storage_options.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        Self { storage_options, ..self }
    }

    /// The same table with the way in which this process loads the functions of users that a merge
    /// rule names. Without one, a table with such a rule cannot be created or opened.
    #[must_use]
    pub fn with_functions(self, loader: Arc<dyn FunctionLoader>) -> Self {
        Self { loader: Some(loader), ..self }
    }

    /// The loader of merge functions.
    pub(super) const fn functions(&self) -> Option<&Arc<dyn FunctionLoader>> {
        self.loader.as_ref()
    }

    /// The same table with a normalized URI, which base table and shards share.
    ///
    /// # Errors
    /// An input error, with nothing written, for a URI that Lance and the engine would read
    /// differently.
    pub(crate) fn resolved(self) -> Result<Self> {
        let uri = address(&self.uri)
            .map_err(|why| Error::input(format!("'{}' is not a table's URI: {why}", self.uri)))?;
        let resolved = Self { uri, ..self };
        if !resolved.is_local() {
            check_settings(&resolved.storage_options)?;
        }
        Ok(resolved)
    }

    /// The URI.
    #[must_use]
    pub fn uri(&self) -> &str {
        &self.uri
    }

    /// The last part of the URI, which stays the same if a folder is mounted elsewhere.
    #[must_use]
    pub fn name(&self) -> &str {
        self.uri.trim_end_matches('/').rsplit('/').next().unwrap_or_default()
    }

    /// The canonical name of the location, with links resolved on a local disk.
    #[must_use]
    pub fn home(&self) -> String {
        let folder = if self.is_local() { std::fs::canonicalize(&self.uri).ok() } else { None };
        let folder = folder.and_then(|folder| folder.into_os_string().into_string().ok());
        folder.unwrap_or_else(|| self.uri.trim_end_matches('/').to_owned())
    }

    /// Whether `other` has the same options of its store.
    pub(crate) fn has_options_of(&self, other: &Self) -> bool {
        self.storage_options == other.storage_options
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
        self.load().await.map_err(|error| self.failed(error))
    }

    /// Opens the base table, if it exists.
    pub(crate) async fn open_if_there(&self) -> Result<Option<Dataset>> {
        match self.load().await {
            Ok(base) => Ok(Some(base)),
            Err(error) if is_absent(&error) => Ok(None),
            Err(error) => Err(self.failed(error)),
        }
    }

    async fn load(&self) -> lance_core::Result<Dataset> {
        let session = session();
        read_newest(|| async {
            let mut builder = DatasetBuilder::from_uri(&self.uri).with_session(session.clone());
            if !self.storage_options.is_empty() {
                builder = builder.with_storage_options(self.storage_options.clone());
            }
            let base = builder.load().await?;
            keep_indexes(&base).await?;
            Ok(base)
        })
        .await
    }

    fn failed(&self, error: lance_core::Error) -> Error {
        let action = format!("opening table {}", self.uri);
        // If the table's folder itself is no folder, there is no table.
        if has_no_file(&error) && self.is_local() && PathBuf::from(&self.uri).is_dir() {
            return from_base(&action, error);
        }
        from_open(&action, error)
    }

    /// The store parameters for Lance's writers.
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

    /// The object store of a table that is about to be created.
    pub(crate) async fn far_store(&self) -> Result<Store> {
        let registry = Arc::new(ObjectStoreRegistry::default());
        let params = self.store_params().unwrap_or_default();
        let reached = ObjectStore::from_uri_and_params(registry, &self.uri, &params).await;
        let (store, path) =
            reached.map_err(|error| from_create("reaching the object store", error))?;
        refuse_local(&store, &self.uri)?;
        Ok(Store::new(store.inner.clone(), path))
    }

    /// The store of the shards: on a local disk the engine's own, which syncs if `fsync` is set;
    /// elsewhere the store of `base`.
    pub(crate) async fn store(&self, base: &Dataset, fsync: bool) -> Result<Store> {
        if self.is_local() {
            return Store::open(&self.uri, fsync);
        }
        let store = base.object_store(None).await.context("reaching the object store")?;
        refuse_local(&store, &self.uri)?;
        Ok(Store::new(store.inner.clone(), base.branch_location().path))
    }
}

/// The normalized URI: an absolute path for a table on a local disk. Lance and the engine parse
/// URIs differently, and must not place base table and shards at different locations.
fn address(uri: &str) -> std::result::Result<String, String> {
    // The form of Hadoop, and therefore of Spark: `file:/folder`.
    if let Some(path) = uri.strip_prefix("file:").filter(|path| !path.starts_with("//")) {
        return absolute(&path_of_file_url(path)?);
    }
    let Some((scheme, rest)) = uri.split_once("://") else { return absolute(uri) };
    match scheme.to_ascii_lowercase().as_str() {
        "file" => absolute(&path_of_file_url(rest)?),
        local if local.starts_with("file") => {
            Err(format!("there is no store for '{scheme}://' in this build; use a path or file://"))
        }
        // The spellings of Hadoop, and therefore of Spark.
        "s3" | "s3a" | "s3n" => {
            let rest = rest.trim_end_matches('/');
            let bucket = rest.split('/').next().unwrap_or_default();
            // Lance takes a string that is no valid URL for a path on the local disk.
            if bucket.is_empty() || !bucket.bytes().all(is_of_bucket) || rest.contains(['?', '#']) {
                return Err(
                    "expected s3://bucket/folder; a bucket has letters, digits, '.', '-' and '_', \
                     a folder neither '?' nor '#'"
                        .to_owned(),
                );
            }
            Ok(format!("s3://{rest}"))
        }
        _ => Err(format!(
            "there is no store for '{scheme}://' in this build; use a path, file:// or s3://"
        )),
    }
}

const fn is_of_bucket(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_')
}

/// Refuses a store of the local disk under a URI with a scheme: it would not sync files.
fn refuse_local(store: &ObjectStore, uri: &str) -> Result<()> {
    if store.is_local() {
        return Err(Error::input(format!("'{uri}' leads to the local disk; use a path instead")));
    }
    Ok(())
}

/// The absolute path without `.` and `..`, which are resolved lexically, as in Lance.
fn absolute(path: &str) -> std::result::Result<String, String> {
    if path == "~" || path.starts_with("~/") {
        return Err("'~' is not expanded; write the home folder in full".to_owned());
    }
    if path.split('/').next().is_some_and(|first| first.contains(':')) {
        return Err(format!("it begins like a URL; for a path of that name write './{path}'"));
    }
    let path = std::path::absolute(path).map_err(|error| error.to_string())?;
    let mut plain = PathBuf::new();
    for part in path.components() {
        if part == Component::ParentDir {
            plain.pop();
        } else {
            plain.push(part);
        }
    }
    plain.into_os_string().into_string().map_err(|_| "it is not UTF-8".to_owned())
}

/// The path of a file URL, from the part behind `file://`.
fn path_of_file_url(rest: &str) -> std::result::Result<String, String> {
    if rest.contains(['?', '#', '\\']) {
        return Err("in a file URL write '?', '#' and '\\' as %3F, %23 and %5C".to_owned());
    }
    let path = rest.strip_prefix("localhost").unwrap_or(rest);
    if !path.starts_with('/') {
        return Err("a file URL has three slashes: file:///folder".to_owned());
    }
    let mut bytes = Vec::with_capacity(path.len());
    let mut parts = path.split('%');
    bytes.extend(parts.next().unwrap_or_default().bytes());
    for part in parts {
        let escaped = part.get(..2).filter(|it| it.bytes().all(|it| it.is_ascii_hexdigit()));
        if let Some(Ok(byte)) = escaped.map(|digits| u8::from_str_radix(digits, 16)) {
            bytes.push(byte);
            bytes.extend(part.bytes().skip(2));
        } else {
            bytes.push(b'%');
            bytes.extend(part.bytes());
        }
    }
    String::from_utf8(bytes).map_err(|_| "its bytes are not UTF-8".to_owned())
}

/// Shows no options: a value may be secret whatever the name of the option.
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

    #[test]
    fn a_local_table_has_one_address_however_it_is_written() {
        let here = std::env::current_dir().unwrap();
        for (uri, path) in [
            ("/a/b/", "/a/b"),
            ("/a/../b/./c//d", "/b/c/d"),
            ("/a%20b", "/a%20b"),
            ("file:///a%20b", "/a b"),
            ("file:/a%20b", "/a b"),
            ("FILE:///a%2Fb", "/a/b"),
            ("file://localhost/a", "/a"),
            ("file:///a%zz%", "/a%zz%"),
            ("s3://bucket/a%20b", "s3://bucket/a%20b"),
            ("S3://bucket/a/", "s3://bucket/a"),
            ("s3a://bucket/a", "s3://bucket/a"),
            ("S3N://bucket/a", "s3://bucket/a"),
        ] {
            assert_eq!(Location::new(uri).resolved().unwrap().uri(), path, "{uri}");
        }
        let relative = Location::new("folder/../table").resolved().unwrap();
        assert_eq!(relative.uri(), here.join("table").to_str().unwrap());
        for uri in ["", "~/a", "file:a", "memory:a", "file://a/b", "file:///a?b", "file:///%ff"] {
            assert!(Location::new(uri).resolved().is_err(), "{uri}");
        }
        for uri in
            ["s3://", "s3://b/t#1", "s3://b/t?x", "memory://t", "shared-memory://t", "gs://b/t"]
        {
            assert!(Location::new(uri).resolved().is_err(), "{uri}");
        }
        for scheme in ["gs", "az", "abfss", "wasbs", "hdfs"] {
            let refused = Location::new(format!("{scheme}://b/t")).resolved().unwrap_err();
            let expected = format!("there is no store for '{scheme}://' in this build");
            assert!(refused.to_string().contains(&expected), "{refused}");
        }
        for bucket in
            ["a b", " b", "<b>", "b:99999", "b:x", "[b", "b^x", "b|x", "b\\x", "@", ":80", "/"]
        {
            let uri = format!("s3://{bucket}/t");
            assert!(Location::new(&uri).resolved().is_err(), "{uri}");
        }
    }
}
