//! Data files on a local disk, read on the caller's thread.
//!
//! Owns: the open files of this process, under one bound, and reads of ranges from them without a
//! change of thread. Lance's own reader hands every range to another thread. For a row of a few
//! kilobytes, usually in the page cache, that costs several times the read.
//! Does not own: the choice of the thread. It blocks on the disk, so it must not be a worker of an
//! async runtime (`row_readers`).

use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::Path as LocalPath;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use foldhash::fast::RandomState;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use hashbrown::{Equivalent, HashMap};
use lance_io::local::to_local_path;
use lancemem_core::store::open_file;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{
    Attributes, CopyOptions, Extensions, GetOptions, GetRange, GetResult, GetResultPayload,
    ListResult, MultipartUpload, ObjectMeta, ObjectStore, ObjectStoreExt, PutMultipartOptions,
    PutOptions, PutPayload, PutResult, Result,
};
use parking_lot::RwLock;
use rustix::buffer::spare_capacity;
use rustix::io::{Errno, pread};

/// Most open files, for all datasets together. A table and its uncompacted SSTables can have more
/// files than a process may have handles.
const OPEN_FILES: usize = 128;

/// How long the drop of a dataset waits for the lock on the open files.
const CLOSE_WAIT: Duration = Duration::from_millis(10);

/// Open files by dataset and path.
type OpenFiles = HashMap<(u64, Path), Arc<OpenFile>, RandomState>;

/// The key of a lookup in [`OpenFiles`], without a copy of the path. Its hash equals that of the
/// owned key.
#[derive(Hash)]
struct FileSlot<'a>(u64, &'a Path);

impl Equivalent<(u64, Path)> for FileSlot<'_> {
    fn equivalent(&self, key: &(u64, Path)) -> bool {
        self.0 == key.0 && *self.1 == key.1
    }
}

static OPEN: LazyLock<RwLock<OpenFiles>> = LazyLock::new(RwLock::default);

static DATASETS: AtomicU64 = AtomicU64::new(0);

/// The local disk as an object store that reads ranges at once, for one dataset.
#[derive(Debug)]
pub(super) struct LocalFiles {
    disk: LocalFileSystem,
    dataset: u64,
}

#[derive(Debug)]
struct OpenFile {
    file: File,
    meta: ObjectMeta,
}

impl LocalFiles {
    pub fn new() -> Self {
        Self { disk: LocalFileSystem::new(), dataset: DATASETS.fetch_add(1, Ordering::Relaxed) }
    }

    async fn file(&self, location: &Path) -> Result<Arc<OpenFile>> {
        let place = FileSlot(self.dataset, location);
        // Only `try_read`: after a fork, a lock that another thread held stays locked in the child.
        let known = OPEN.try_read().and_then(|open| open.get(&place).cloned());
        if let Some(file) = known {
            return Ok(file);
        }
        // Without an e-tag: the file is immutable, and no reader compares tags of a range.
        let meta = ObjectMeta { e_tag: None, ..self.disk.head(location).await? };
        let local = to_local_path(location);
        let opened = open_file(LocalPath::new(&local)).map_err(|error| failed(location, error))?;
        let Some((file, _)) = opened else {
            return Err(failed(location, ErrorKind::IsADirectory.into()));
        };
        let file = Arc::new(OpenFile { file, meta });
        if let Some(mut open) = OPEN.try_write() {
            let is_full = open.len() >= OPEN_FILES;
            let closed = if is_full { std::mem::take(&mut *open) } else { OpenFiles::default() };
            open.insert((self.dataset, location.clone()), file.clone());
            drop(open);
            drop(closed);
        }
        Ok(file)
    }
}

impl Drop for LocalFiles {
    /// Closes the files of this dataset: a removed file takes space on disk while it is open.
    fn drop(&mut self) {
        if let Some(mut open) = OPEN.try_write_for(CLOSE_WAIT) {
            open.retain(|(dataset, _), _| *dataset != self.dataset);
        }
    }
}

impl OpenFile {
    fn read(&self, range: &Range<u64>) -> io::Result<Bytes> {
        let length = usize::try_from(range.end - range.start).map_err(io::Error::other)?;
        let mut bytes = Vec::with_capacity(length);
        while bytes.len() < length {
            let from = range.start + bytes.len() as u64;
            match pread(&self.file, spare_capacity(&mut bytes), from) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        // A vector may have more capacity than was requested.
        bytes.truncate(length);
        Ok(bytes.into())
    }
}

fn failed(location: &Path, error: io::Error) -> object_store::Error {
    let path = location.to_string();
    if error.kind() == ErrorKind::NotFound {
        return object_store::Error::NotFound { path, source: Box::new(error) };
    }
    object_store::Error::Generic { store: "local files", source: Box::new(error) }
}

impl fmt::Display for LocalFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LocalFiles")
    }
}

#[async_trait]
impl ObjectStore for LocalFiles {
    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let Some(GetRange::Bounded(range)) = &options.range else {
            return self.disk.get_opts(location, options).await;
        };
        let file = self.file(location).await?;
        // The metadata of a damaged file can yield ranges beyond its end, or with end before start.
        let range = range.start..range.end.min(file.meta.size);
        if range.start > range.end {
            return Err(failed(location, ErrorKind::UnexpectedEof.into()));
        }
        let bytes = file.read(&range).map_err(|error| failed(location, error))?;
        let payload = stream::once(futures::future::ready(Ok(bytes))).boxed();
        Ok(GetResult {
            payload: GetResultPayload::Stream(payload),
            meta: file.meta.clone(),
            range,
            attributes: Attributes::default(),
            extensions: Extensions::default(),
        })
    }

    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        self.disk.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.disk.put_multipart_opts(location, options).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.disk.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.disk.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.disk.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.disk.copy_opts(from, to, options).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file on disk, with its local path and its path in the object store.
    fn ten_bytes() -> (tempfile::TempDir, std::path::PathBuf, Path) {
        let folder = tempfile::tempdir().unwrap();
        let local = folder.path().join("data");
        std::fs::write(&local, b"0123456789").unwrap();
        let path = Path::from_absolute_path(&local).unwrap();
        (folder, local, path)
    }

    #[tokio::test]
    async fn ranges_are_read_from_a_file_that_stays_open() {
        let (_folder, local, path) = ten_bytes();
        let files = LocalFiles::new();
        assert_eq!(files.get_range(&path, 2..5).await.unwrap(), "234");
        std::fs::remove_file(&local).unwrap();
        assert_eq!(files.get_range(&path, 7..10).await.unwrap(), "789");
    }

    #[tokio::test]
    async fn many_datasets_share_a_bound_of_files_and_one_that_is_dropped_closes_its_own() {
        let (_folder, _, path) = ten_bytes();
        let datasets: Vec<_> = (0..3 * OPEN_FILES).map(|_| LocalFiles::new()).collect();
        for files in &datasets {
            assert_eq!(files.get_range(&path, 2..5).await.unwrap(), "234");
            assert!(OPEN.read().len() <= OPEN_FILES);
        }
        let own: Vec<u64> = datasets.iter().map(|files| files.dataset).collect();
        drop(datasets);
        assert!(!OPEN.read().keys().any(|(dataset, _)| own.contains(dataset)));
    }

    #[tokio::test]
    #[expect(clippy::reversed_empty_ranges, reason = "what a damaged file asks for")]
    async fn a_range_outside_the_file_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a"), "0123456789").unwrap();
        let path = Path::from_absolute_path(folder.path().join("a")).unwrap();
        let files = LocalFiles::new();
        for range in [11..12, 7..3, u64::MAX - 1..u64::MAX] {
            assert!(files.get_range(&path, range.clone()).await.is_err(), "{range:?}");
        }
        assert_eq!(files.get_range(&path, 8..20).await.unwrap(), "89");
    }

    #[tokio::test]
    async fn a_missing_file_is_missing() {
        let folder = tempfile::tempdir().unwrap();
        let files = LocalFiles::new();
        let path = Path::from_absolute_path(folder.path().join("none")).unwrap();
        let error = files.get_range(&path, 0..1).await.unwrap_err();
        assert!(matches!(error, object_store::Error::NotFound { .. }), "{error}");
    }
}
