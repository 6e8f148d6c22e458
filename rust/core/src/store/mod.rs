//! The only place that talks to object storage.
//!
//! Owns: the table's root in a store, and the few operations that the engine needs, each with
//! the atomicity that it relies on; the versioned shard manifests built from them; what an error
//! of a store may show; changes that outlive a cancelled caller; the pauses between attempts.
//! Does not own: what the bytes mean, retries of a whole protocol step, or Lance's own files.

mod backoff;
mod blocking;
mod clock;
mod detached;
mod elapsed;
mod listing;
mod local;
mod manifests;
mod replace;
mod secrets;

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use futures::TryStreamExt;
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{GetResult, ObjectStore, ObjectStoreExt, PutMode, PutOptions};
use tokio::task::{JoinHandle, spawn_blocking};

pub use backoff::Backoff;
pub use blocking::{may_wait_here, waiting_here};
pub use clock::ClockReading;
pub use detached::{Changes, change};
pub use elapsed::Moment;
pub use listing::Listed;
pub use local::{is_no_file, open_file, open_to_sync};
pub use manifests::ManifestStore;
pub use secrets::{hide, scrub};

use crate::format::paths;
use crate::types::{Error, MaxBytes, Result};
use local::{FileRead, LocalFolder};

/// The kind of damage of a path that holds no regular file.
pub const NO_FILE: &str = "no file";

/// The message of a folder walk that meets a symbolic link to a parent folder.
const LINKS_IN_A_CIRCLE: &str = "File system loop found";

/// Most files that one task reads from a local disk before another thread is woken for the rest.
const LOCAL_READS_OF_A_TASK: usize = 4;

/// Whether a put-if-absent created the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Created {
    /// The object is new, with exactly these bytes.
    Yes,
    /// An object was there before and is unchanged.
    AlreadyExists,
}

/// Object storage below the root of one table. Paths are relative to that root.
#[derive(Clone)]
pub struct Store {
    inner: Arc<dyn ObjectStore>,
    /// The same objects, without fsync: for objects that may be lost.
    unsynced: Arc<dyn ObjectStore>,
    root: Path,
    /// The same root on a local disk, whose files are read without the detour.
    local: Option<Arc<LocalFolder>>,
}

/// An object store's own `Debug` may show how it authenticates.
impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("root", &self.root).finish_non_exhaustive()
    }
}

impl Store {
    /// Opens the store of the table at `uri`: a local path, or a `file://` or `memory://` URL.
    ///
    /// With `fsync`, a local file and its folder are on disk before a put returns.
    ///
    /// # Errors
    /// An input error for a scheme that this build has no store for.
    pub fn open(uri: &str, fsync: bool) -> Result<Self> {
        let path = match uri.split_once("://") {
            None => std::path::absolute(uri).map_err(|error| {
                Error::input(format!("'{uri}' is not a path: {error}")).with_source(error)
            })?,
            Some(("file", path)) => PathBuf::from(path),
            Some(("memory", path)) => {
                return Ok(Self::new(Arc::new(InMemory::new()), Path::from(path)));
            }
            Some((scheme, _)) => {
                return Err(Error::input(format!(
                    "there is no store for '{scheme}://' in this build; use a local path or file://"
                )));
            }
        };
        let root = Path::from_absolute_path(&path).map_err(|error| {
            Error::input(format!("'{uri}' is not a path: {error}")).with_source(error)
        })?;
        let unsynced = LocalFileSystem::new();
        let folder = unsynced.path_to_filesystem(&root).map_err(|error| {
            Error::input(format!("'{uri}' is not a path: {error}")).with_source(error)
        })?;
        Ok(Self {
            inner: Arc::new(LocalFileSystem::new().with_fsync(fsync)),
            unsynced: Arc::new(unsynced),
            root,
            local: Some(Arc::new(LocalFolder::new(folder, fsync))),
        })
    }

    /// The table at `root` in any object store.
    #[must_use]
    pub fn new(inner: Arc<dyn ObjectStore>, root: Path) -> Self {
        Self { unsynced: inner.clone(), inner, root, local: None }
    }

    /// Creates an object in one atomic step, or changes nothing.
    ///
    /// # Errors
    /// A storage error; the object may or may not exist then.
    pub async fn put_if_absent(&self, path: &str, bytes: Bytes) -> Result<Created> {
        let created = self.create(path, bytes).await;
        created.map_err(|error| failed(format!("creating {path}"), error))
    }

    async fn create(&self, path: &str, bytes: Bytes) -> object_store::Result<Created> {
        let options = PutOptions::from(PutMode::Create);
        let (inner, path) = (self.inner.clone(), self.at(path));
        let put = async move { inner.put_opts(&path, bytes.into(), options).await };
        match change(put).await {
            Ok(_) => Ok(Created::Yes),
            Err(
                object_store::Error::AlreadyExists { .. }
                | object_store::Error::Precondition { .. },
            ) => Ok(Created::AlreadyExists),
            Err(error) => Err(error),
        }
    }

    /// Creates an object under a random name. An object there with the same bytes is this one,
    /// whose answer was lost.
    ///
    /// # Errors
    /// A storage error; the object may or may not exist then.
    pub async fn put_once(&self, path: &str, bytes: Bytes, most: MaxBytes) -> Result<()> {
        if self.put_if_absent(path, bytes.clone()).await? == Created::Yes {
            return Ok(());
        }
        if self.get(path, most).await?.as_ref() == Some(&bytes) {
            return Ok(());
        }
        Err(Error::internal(format!("{path} exists already, with different content")))
    }

    /// [`Self::put_if_absent`] into an existing folder; `None`, with nothing created, where a local
    /// disk has no such folder. Runs inline on a thread that may wait for a local disk.
    ///
    /// # Errors
    /// As [`Self::put_if_absent`].
    pub async fn put_if_absent_here(&self, path: &str, bytes: Bytes) -> Result<Option<Created>> {
        let Some((local, file)) = self.local.clone().and_then(|it| it.at(path).map(|at| (it, at)))
        else {
            return self.put_if_absent(path, bytes).await.map(Some);
        };
        looked("creating", path, move || local.create(&file, &bytes)).await
    }

    /// Makes an existing object survive a power cut, even if the call that created it failed
    /// half-way.
    ///
    /// # Errors
    /// A storage error.
    pub async fn make_durable(&self, path: &str) -> Result<()> {
        let Some(local) = self.local.clone() else { return Ok(()) };
        let Some(file) = local.at(path) else { return Ok(()) };
        on_disk("syncing", path, move || local.sync(&file)).await
    }

    /// Proves that the store refuses to create an object that is there. Every promise of the
    /// engine rests on that, and some servers that speak S3's protocol ignore the condition.
    ///
    /// # Errors
    /// An input error where the store replaced the object, or permits no write here; a storage
    /// error.
    pub async fn prove_conditional_put(&self) -> Result<()> {
        let bytes = Bytes::from_static(b"lancemem: the store creates this object once\n");
        for _ in 0..2 {
            let action = format!("creating {}", paths::CREATED_ONCE);
            match self.create(paths::CREATED_ONCE, bytes.clone()).await {
                Ok(Created::Yes) => {}
                Ok(Created::AlreadyExists) => return Ok(()),
                // Not transient: every retry would fail in the same way.
                Err(
                    error @ (object_store::Error::NotFound { .. }
                    | object_store::Error::PermissionDenied { .. }
                    | object_store::Error::Unauthenticated { .. }
                    | object_store::Error::NotImplemented { .. }
                    | object_store::Error::NotSupported { .. }),
                ) => {
                    let text = format!("{action}: {}", scrub(&error.to_string()));
                    return Err(Error::input(text).with_source(error));
                }
                Err(error) => return Err(failed(action, error)),
            }
        }
        Err(Error::input(format!(
            "the object store created {} twice: it does not honour conditional writes \
             (If-None-Match), without which two writers would replace each other's rows",
            paths::CREATED_ONCE
        )))
    }

    /// Writes an object that a power cut may take or damage, replacing what was there.
    ///
    /// # Errors
    /// A storage error.
    pub async fn put_hint(&self, path: &str, bytes: Bytes) -> Result<()> {
        self.write(self.unsynced.clone(), path, bytes).await
    }

    /// Writes an object, replacing what was there.
    ///
    /// # Errors
    /// A storage error.
    pub async fn put(&self, path: &str, bytes: Bytes) -> Result<()> {
        self.write(self.inner.clone(), path, bytes).await
    }

    async fn write(&self, into: Arc<dyn ObjectStore>, path: &str, bytes: Bytes) -> Result<()> {
        let place = self.at(path);
        let written = change(async move { into.put(&place, bytes.into()).await }).await;
        written.map(|_| ()).map_err(|error| failed(format!("writing {path}"), error))
    }

    /// The bytes of an object of at most `most` bytes; `None` for an object that is absent.
    ///
    /// # Errors
    /// A storage error; damage for a larger object.
    pub async fn get(&self, path: &str, most: MaxBytes) -> Result<Option<Bytes>> {
        if let Some(file) = self.local_path(path) {
            let read = on_disk("reading", path, move || local::read(&file, most)).await?;
            return whole(read, path, most);
        }
        let Some(found) = self.find(path, most).await? else { return Ok(None) };
        found.bytes().await.map(Some).map_err(|error| failed(format!("reading {path}"), error))
    }

    /// Requests an object of at most `most` bytes, whose body is still to be read.
    async fn find(&self, path: &str, most: MaxBytes) -> Result<Option<GetResult>> {
        match self.inner.get(&self.at(path)).await {
            Ok(found) => most.check(path, found.meta.size).map(|()| Some(found)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(failed(format!("reading {path}"), error)),
        }
    }

    /// How many of `reads` objects one task of [`Self::spawn_each`] should read. A disk answers
    /// sooner than another thread wakes up, yet each processor should have two tasks; requests to a
    /// server wait best side by side.
    #[must_use]
    pub fn reads_of_a_task(&self, reads: usize) -> usize {
        if self.local.is_none() {
            return 1;
        }
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        (reads / (2 * processors)).clamp(1, LOCAL_READS_OF_A_TASK)
    }

    /// Reads objects one after another as [`Self::get`] does and hands each to `work` with its
    /// place among `paths`, on a task of its own: many of them run at once.
    pub fn spawn_each<T: Send + 'static>(
        &self,
        paths: Vec<String>,
        most: MaxBytes,
        work: impl Fn(usize, Result<Option<Bytes>>) -> T + Send + 'static,
    ) -> JoinHandle<Vec<T>> {
        let files: Option<Vec<_>> = paths.iter().map(|path| self.local_path(path)).collect();
        if let Some(files) = files {
            return spawn_blocking(move || {
                let each = files.iter().zip(&paths).enumerate();
                each.map(|(place, (file, path))| {
                    let read =
                        local::read(file, most).map_err(|error| of_disk("reading", path, error));
                    work(place, read.and_then(|read| whole(read, path, most)))
                })
                .collect()
            });
        }
        let store = self.clone();
        tokio::spawn(async move {
            let mut results = Vec::with_capacity(paths.len());
            for (place, path) in paths.iter().enumerate() {
                let read = store.get(path, most).await;
                results.push(work(place, read));
            }
            results
        })
    }

    /// Whether an object exists.
    ///
    /// # Errors
    /// A storage error.
    pub async fn exists(&self, path: &str) -> Result<bool> {
        if let Some(file) = self.local_path(path) {
            return looked("looking for", path, move || local::exists(&file)).await;
        }
        match self.inner.head(&self.at(path)).await {
            Ok(_) => Ok(true),
            Err(object_store::Error::NotFound { .. }) => Ok(false),
            Err(error) => Err(failed(format!("looking for {path}"), error)),
        }
    }

    /// Whether a look that takes no request and no other thread shows that an object is absent.
    #[must_use]
    pub fn shows_absent(&self, path: &str) -> bool {
        let file = self.local_path(path).filter(|_| may_wait_here());
        file.is_some_and(|file| matches!(local::exists(&file), Ok(false)))
    }

    /// Removes an object; one that is gone already counts as removed.
    ///
    /// # Errors
    /// A storage error.
    pub async fn delete(&self, path: &str) -> Result<()> {
        let (inner, place) = (self.inner.clone(), self.at(path));
        match change(async move { inner.delete(&place).await }).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(failed(format!("removing {path}"), error)),
        }
    }

    /// File names of the objects directly in `folder`, in no order; on a local disk also the names
    /// of folders, which may stand in the place of a file.
    ///
    /// # Errors
    /// A storage error.
    pub async fn list_files(&self, folder: &str) -> Result<Vec<String>> {
        if let Some(path) = self.local_path(folder) {
            return looked("listing", folder, move || local::file_names(&path)).await;
        }
        let prefix = self.at(folder);
        self.inner
            .list(Some(&prefix))
            .map_ok(|meta| meta.location)
            .try_filter_map(|location| {
                let name = location.prefix_match(&prefix).and_then(|mut parts| {
                    match (parts.next(), parts.next()) {
                        (Some(name), None) => Some(name.as_ref().to_owned()),
                        _ => None,
                    }
                });
                futures::future::ok(name)
            })
            .try_collect()
            .await
            .map_err(|error| failed(format!("listing {folder}"), error))
    }

    /// Names of the folders directly in `folder`, sorted.
    ///
    /// # Errors
    /// A storage error.
    pub async fn list_folders(&self, folder: &str) -> Result<Vec<String>> {
        if let Some(path) = self.local_path(folder) {
            return looked("listing", folder, move || local::folder_names(&path)).await;
        }
        let listing = self
            .inner
            .list_with_delimiter(Some(&self.at(folder)))
            .await
            .map_err(|error| failed(format!("listing {folder}"), error))?;
        let mut names: Vec<String> = listing
            .common_prefixes
            .iter()
            .filter_map(|prefix| prefix.filename().map(str::to_owned))
            .collect();
        names.sort_unstable();
        Ok(names)
    }

    fn local_path(&self, path: &str) -> Option<PathBuf> {
        self.local.as_ref()?.at(path)
    }

    fn at(&self, path: &str) -> Path {
        path.split('/').filter(|part| !part.is_empty()).fold(self.root.clone(), Path::join)
    }
}

/// The bytes of a file, from the outcome of its read.
fn whole(read: FileRead, path: &str, most: MaxBytes) -> Result<Option<Bytes>> {
    match read {
        FileRead::Absent => Ok(None),
        FileRead::Whole(bytes) => Ok(Some(bytes)),
        FileRead::TooLarge(found) => most.check(path, found).map(|()| None),
        FileRead::NoFile(found) => Err(Error::corrupt(path, NO_FILE, found)),
    }
}

/// Runs a short file-system call, inline where the calling thread may wait for a disk.
async fn looked<T: Send + 'static>(
    verb: &str,
    path: &str,
    call: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T> {
    if may_wait_here() {
        return call().map_err(|error| of_disk(verb, path, error));
    }
    on_disk(verb, path, call).await
}

/// Runs a call of the file system on a thread of its own, so that many of them run at once.
async fn on_disk<T: Send + 'static>(
    verb: &str,
    path: &str,
    call: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T> {
    match spawn_blocking(call).await {
        Ok(done) => done.map_err(|error| of_disk(verb, path, error)),
        Err(_) => Err(Error::storage(format!("{verb} {path}"), "the runtime is shutting down")),
    }
}

/// A file-system error: damage where no retry can succeed.
fn of_disk(verb: &str, path: &str, error: io::Error) -> Error {
    let made = if is_no_file(&error) {
        Error::corrupt(path, NO_FILE, &error)
    } else {
        Error::storage(format!("{verb} {path}"), &error)
    };
    made.with_source(error)
}

/// A storage error with the store's message, without secrets. Damage, as in [`of_disk`], of the
/// path that follows the verb of `action`.
fn failed(action: String, error: object_store::Error) -> Error {
    let text = error.to_string();
    let text = scrub(&text);
    let outermost = Some(&error as &(dyn StdError + 'static));
    let mut causes = std::iter::successors(outermost, |cause| (*cause).source());
    let lasts = causes.any(|cause| {
        cause.downcast_ref().is_some_and(is_no_file)
            || cause.to_string().starts_with(LINKS_IN_A_CIRCLE)
    });
    if lasts {
        let path = action.strip_prefix("looking for ");
        let path = path.or_else(|| action.split_once(' ').map(|(_, path)| path));
        let what = path.unwrap_or(action.as_str()).to_owned();
        return Error::corrupt(what, NO_FILE, text).with_source(error);
    }
    Error::storage(action, text).with_source(error)
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;
    use crate::types::ErrorKind;

    #[test]
    fn an_error_keeps_the_error_of_the_store_or_of_the_disk() {
        let of_store = object_store::Error::Generic { store: "S3", source: "status 503".into() };
        let error = failed("reading a".to_owned(), of_store);
        assert!(
            matches!(error.source(), Some(source) if source.is::<object_store::Error>()),
            "{error}"
        );
        assert_eq!(error.to_string(), "reading a failed: Generic S3 error: status 503");
        let error = of_disk("reading", "a", io::Error::from(io::ErrorKind::TimedOut));
        assert!(matches!(error.source(), Some(source) if source.is::<io::Error>()), "{error}");
        assert_eq!(
            (error.kind(), error.to_string().as_str()),
            (ErrorKind::Retry, "reading a failed: timed out")
        );
    }

    #[tokio::test]
    async fn the_second_creation_of_an_object_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path().to_str().unwrap(), true).unwrap();
        let first = store.put_if_absent("a/b", Bytes::from_static(b"1")).await.unwrap();
        let second = store.put_if_absent("a/b", Bytes::from_static(b"2")).await.unwrap();
        assert_eq!((first, second), (Created::Yes, Created::AlreadyExists));
        assert_eq!(store.get("a/b", MaxBytes::NOTE).await.unwrap().unwrap(), "1");
        assert_eq!(store.list_files("a").await.unwrap(), ["b"]);
        assert_eq!(store.list_folders("").await.unwrap(), ["a"]);
    }

    #[tokio::test]
    async fn only_a_thread_that_may_wait_sees_at_once_that_nothing_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path().to_str().unwrap(), false).unwrap();
        store.put_if_absent("a/b", Bytes::from_static(b"1")).await.unwrap();
        let shown =
            |path: &str| (store.shows_absent(path), waiting_here(|| store.shows_absent(path)));
        assert_eq!(shown("a/b"), (false, false));
        assert_eq!(shown("a/c"), (false, true));
        assert_eq!(
            shown("a/c d"),
            (false, false),
            "a name that an object store may spell otherwise"
        );
        let remote = Store::new(Arc::new(InMemory::new()), "t".into());
        assert!(!waiting_here(|| remote.shows_absent("a/c")), "that takes a request");
    }

    #[tokio::test]
    async fn a_file_is_created_once_whichever_thread_does_it() {
        for fsync in [true, false] {
            let folder = tempfile::tempdir().unwrap();
            let store = Store::open(folder.path().to_str().unwrap(), fsync).unwrap();
            let here = |path: &'static str, bytes: &'static [u8]| {
                let bytes = Bytes::from_static(bytes);
                waiting_here(|| store.put_if_absent_here(path, bytes).now_or_never())
            };
            assert_eq!(here("a/b", b"1").unwrap().unwrap(), None, "there is no folder");
            assert_eq!(store.put_if_absent_here("a/b", Bytes::new()).await.unwrap(), None);
            assert!(!folder.path().join("a").exists());
            store.put_if_absent("a/b", Bytes::from_static(b"2")).await.unwrap();
            std::fs::write(folder.path().join("a/c#1"), "left by a crash").unwrap();
            assert_eq!(here("a/c", b"3").unwrap().unwrap(), Some(Created::Yes));
            for path in ["a/b", "a/c"] {
                assert_eq!(here(path, b"4").unwrap().unwrap(), Some(Created::AlreadyExists));
                store.make_durable(path).await.unwrap();
            }
            let stored = (
                store.get("a/b", MaxBytes::NOTE).await.unwrap(),
                store.get("a/c", MaxBytes::NOTE).await.unwrap(),
            );
            let expected: [&'static [u8]; 2] = [b"2", b"3"];
            assert_eq!(stored, (Some(expected[0].into()), Some(expected[1].into())));
            assert_eq!(store.list_files("a").await.unwrap().len(), 2);
            assert!(store.make_durable("a/d").await.is_err() || !fsync, "nothing is there");
        }
    }

    #[tokio::test]
    async fn a_store_proves_that_it_creates_an_object_once() {
        let store = Store::new(Arc::new(InMemory::new()), "t".into());
        store.prove_conditional_put().await.unwrap();
        store.prove_conditional_put().await.unwrap();
        assert!(store.exists(paths::CREATED_ONCE).await.unwrap());
    }

    #[tokio::test]
    async fn files_are_found_and_read_below_a_root_of_any_name() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("a table #1 at 50% \u{e9}");
        let store = Store::open(root.to_str().unwrap(), false).unwrap();
        assert_eq!(store.get("a/b", MaxBytes::NOTE).await.unwrap(), None);
        assert!(store.list_files("a").await.unwrap().is_empty());
        for path in ["a/b", "a/of % other spelling", "a/c/d"] {
            store.put(path, Bytes::copy_from_slice(path.as_bytes())).await.unwrap();
            assert!(store.exists(path).await.unwrap(), "{path}");
            assert_eq!(store.get(path, MaxBytes::NOTE).await.unwrap().unwrap(), path);
            let asked = vec!["a/absent".to_owned(), path.to_owned()];
            let lengths = store.spawn_each(asked, MaxBytes::NOTE, |place, bytes| {
                (place, bytes.unwrap().map(|it| it.len()))
            });
            assert_eq!(lengths.await.unwrap(), [(0, None), (1, Some(path.len()))]);
        }
        std::fs::write(root.join("a/half#1"), "staged").unwrap();
        let mut names = store.list_files("a").await.unwrap();
        names.sort_unstable();
        assert_eq!(names.len(), 3, "{names:?}");
        assert_eq!(names[..2], ["b", "c"]);
        let folder = store.get("a/c", MaxBytes::NOTE).await.unwrap_err().to_string();
        assert!(folder.starts_with("a/c is damaged (no file)"), "{folder}");
        assert!(store.exists("a/c").await.unwrap(), "or no reader would report it");
    }

    #[tokio::test]
    async fn an_object_that_is_larger_than_its_kind_may_be_is_damage() {
        let folder = tempfile::tempdir().unwrap();
        let local = Store::open(folder.path().to_str().unwrap(), false).unwrap();
        let remote = Store::new(Arc::new(InMemory::new()), "t".into());
        let most = usize::try_from(MaxBytes::NOTE.get()).unwrap();
        for store in [local, remote] {
            store.put("a/whole", vec![1; most].into()).await.unwrap();
            store.put("a/more", vec![1; most + 1].into()).await.unwrap();
            let whole = store.get("a/whole", MaxBytes::NOTE).await.unwrap().unwrap();
            assert_eq!(whole.len(), most);
            let seen = store.get_seen("a/more", MaxBytes::NOTE).await.unwrap_err();
            let paths = vec!["a/more".to_owned()];
            let each = store.spawn_each(paths, MaxBytes::NOTE, |_, read| read.unwrap_err());
            let [of_each] = <[Error; 1]>::try_from(each.await.unwrap()).unwrap();
            let got = store.get("a/more", MaxBytes::NOTE).await.unwrap_err();
            for error in [seen, of_each, got] {
                assert_eq!(error.kind(), ErrorKind::Corruption);
                let text = error.to_string();
                assert!(text.starts_with("a/more is damaged (too large): it has 65537"), "{text}");
            }
        }
    }

    #[test]
    fn a_scheme_without_a_store_is_refused_by_name() {
        let error = Store::open("ftp://host/table", true).unwrap_err();
        assert!(error.to_string().contains("'ftp://'"), "{error}");
    }
}
