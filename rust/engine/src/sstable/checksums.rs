//! Checksums of SSTable files and of record index pages: Lance's own formats have none.
//!
//! Owns: where checksums are stored, how one is computed, and the comparison of files with them.
//! The configuration of the SSTable's manifest stores the CRC-32 (IEEE) of each file. The
//! manifest's own message is checksummed like a shard manifest.
//! Does not own: the check of the bloom filter, which every read of it makes (`bloom`), when files
//! are compared, or what becomes of a damaged SSTable.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read};
use std::path::Path as LocalPath;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::SystemTime;

use async_trait::async_trait;
use crc32fast::Hasher;
use futures::{StreamExt, TryStreamExt, stream};
use lance::Dataset;
use lance_core::{Error, Result};
use lance_io::object_store::ObjectStore;
use lance_io::object_writer::WriteResult;
use lance_io::traits::Writer;
use lance_table::format::Manifest;
use lancemem_core::format::{PAGE_BLOCK_BYTES, paths};
use lancemem_core::mutant;
use lancemem_core::store::{NO_FILE, is_no_file, open_file};
use lancemem_core::types::{MaxBytes, PerProcess};
use object_store::ObjectStoreExt;
use object_store::path::Path;
use tokio::io::AsyncWrite;
use tokio::sync::Semaphore;

use super::bounded::{CUT_SHORT, OTHER_SIZE, damage_of_size};
use super::{bloom, read, sync};

/// The prefix of a file's key in the configuration of the manifest; the file's path inside the
/// SSTable's folder follows.
const OF_FILE: &str = "lancemem.crc32/";
/// Folder of the key index in an SSTable.
const KEY_INDEX: &str = "_pk_index/";
/// Folder of Lance's indexes in an SSTable.
const INDEXES: &str = "_indices/";
/// Bytes that are read at once.
const BLOCK_BYTES: usize = 1 << 20;
/// Files of one SSTable that are compared at the same time.
const FILES_AT_ONCE: usize = 4;
/// Files that all threads of the process read at the same time: more are no faster, and use memory.
const READS_AT_ONCE: usize = 8;
/// The error number of a sector that the disk cannot read.
const EIO: i32 = 5;

static READS: PerProcess<Semaphore> = PerProcess::new(|| Semaphore::new(READS_AT_ONCE));

/// Most bytes of files that are compared with their checksums when they are opened. Larger files of
/// an SSTable are compared before anything read from them is persisted; larger pages of the record
/// index, by its check.
pub const COMPARED_BYTES: u64 = 32 << 20;

/// The checksum of a file of an SSTable or of the record index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSum {
    /// Its path inside its folder.
    pub file: String,
    /// CRC-32 (IEEE).
    pub crc32: u32,
}

impl FileSum {
    /// The checksum of the file at `path` in the SSTable at `folder`, read back.
    pub async fn of(store: &ObjectStore, folder: &Path, path: &Path) -> Result<Self> {
        let sum = sum_file(store, path, Summing::default()).await?;
        let sum = sum.map_err(|kind| Error::io(format!("reading back {path}: {kind}")))?;
        Ok(Self { file: inside(folder, path), crc32: sum.crc32 })
    }

    /// The checksums of the files of a key index, as the manifest of its SSTable records them, by
    /// their names in the index's folder. Reads no file; empty where the manifest records none.
    #[must_use]
    pub fn of_key_index(sstable: &Dataset) -> Vec<Self> {
        let sums = sums_of(sstable, SsTableFiles::Keys).into_iter();
        let sums = sums.filter_map(|(file, recorded)| {
            let file = file.strip_prefix(KEY_INDEX)?.to_owned();
            Some(Self { file, crc32: u32::from_str_radix(&recorded, 16).ok()? })
        });
        sums.collect()
    }

    /// Compares the file in `folder` with this checksum, and returns its size in bytes.
    ///
    /// # Errors
    /// Damage, with the file's name; a storage error.
    pub async fn compare(&self, store: &ObjectStore, folder: &Path) -> Result<u64> {
        let recorded = Recorded { sum: bloom::checksum_text(self.crc32), bytes: None };
        let (bytes, damage) = compare_file(store, folder, &self.file, &recorded).await?;
        match damage {
            None => Ok(bytes),
            Some(kind) => {
                let path = in_sstable(folder, &self.file).unwrap_or_else(|| folder.clone());
                Err(Error::corrupt_file(path, kind))
            }
        }
    }

    /// The stamp of the file in `folder`; `None` where it is not on a local disk.
    pub fn stamp(&self, store: &ObjectStore, folder: &Path) -> Option<FileStamp> {
        stamp(store, &in_sstable(folder, &self.file)?)
    }

    /// The checksums of all files at `paths`.
    pub async fn of_all(store: &ObjectStore, folder: &Path, paths: &[Path]) -> Result<Vec<Self>> {
        let sums = paths.iter().map(|path| Self::of(store, folder, path));
        futures::future::try_join_all(sums).await
    }

    /// Records it in the manifest of its SSTable.
    pub fn note(&self, manifest: &mut Manifest) {
        let text = bloom::checksum_text(self.crc32);
        manifest.config_mut().insert(format!("{OF_FILE}{}", self.file), text);
    }
}

/// The checksums of a file of pages of the record index: of the whole file, and of each block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockSums {
    /// Of the whole file.
    pub sum: FileSum,
    /// Its size.
    pub bytes: u64,
    /// CRC-32 (IEEE) of each block of [`PAGE_BLOCK_BYTES`].
    pub blocks: Vec<u32>,
}

impl BlockSums {
    /// The checksums of the file at `path` in `folder`, read once.
    ///
    /// # Errors
    /// Damage for a missing file; a storage error.
    pub async fn of(store: &ObjectStore, folder: &Path, path: &Path) -> Result<Self> {
        let summing = Summing { blocks: Some(Blocks::default()), ..Summing::default() };
        let summed = sum_file(store, path, summing).await?;
        let summed = summed.map_err(|kind| Error::corrupt_file(path.clone(), kind))?;
        let Sum { crc32, bytes, blocks, .. } = summed;
        Ok(Self { sum: FileSum { file: inside(folder, path), crc32 }, bytes, blocks })
    }
}

/// The path of a file inside the SSTable at `folder`.
pub(super) fn inside(folder: &Path, path: &Path) -> String {
    let parts = path.prefix_match(folder).into_iter().flatten();
    parts.map(|part| part.as_ref().to_owned()).collect::<Vec<_>>().join("/")
}

/// The path of a file of the SSTable at `folder`; `None` for a name that leads outside the folder.
/// The manifest of a foreign writer may record any name.
fn in_sstable(folder: &Path, file: &str) -> Option<Path> {
    let is_plain = file.split('/').all(paths::is_plain_component);
    is_plain.then(|| file.split('/').fold(folder.clone(), Path::join))
}

/// A selection of the files of an SSTable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SsTableFiles {
    /// Data files and deletion files.
    Rows,
    /// The key index.
    Keys,
    /// Lance's indexes.
    Indexes,
    /// All files but Lance's indexes: what a compaction reads and persists.
    Moved,
    /// All files, the bloom filter included.
    All,
}

/// A damaged file of an SSTable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedFile {
    /// Its path inside the SSTable's folder.
    pub file: String,
    /// The kind of damage.
    pub kind: &'static str,
}

/// The result of a comparison.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Compared {
    /// Files with a checksum.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Data and deletion files without a checksum, by their paths inside the SSTable's folder:
    /// another writer wrote them, or an earlier version.
    pub unchecked: Vec<String>,
    /// Files that do not match their checksum.
    pub damaged: Vec<DamagedFile>,
}

impl Compared {
    /// Refuses the SSTable, called `name` in errors, where a file is damaged.
    ///
    /// # Errors
    /// The first damage.
    pub fn whole(self, name: &str) -> lancemem_core::Result<()> {
        let Some(DamagedFile { file, kind }) = self.damaged.into_iter().next() else {
            return Ok(());
        };
        let detail = match kind {
            MaxBytes::TOO_LARGE | CUT_SHORT => OTHER_SIZE,
            NO_FILE => "only a regular file can be read",
            _ => "file does not match the checksum that the SSTable manifest records",
        };
        Err(lancemem_core::Error::corrupt(format!("{file} of {name}"), kind, detail))
    }
}

/// Compares files of an SSTable with their checksums. An SSTable that lance wrote has no checksums.
///
/// # Errors
/// A storage error. Damage is part of the result, not an error.
pub async fn compare(sstable: &Dataset, files: SsTableFiles) -> Result<Compared> {
    let store = sstable.object_store(None).await?;
    let folder = sstable.branch_location().path;
    let sizes = sizes_of(sstable);
    let compares = sums_of(sstable, files).into_iter().map(|(file, sum)| {
        let (store, folder) = (store.clone(), folder.clone());
        let recorded = Recorded { sum, bytes: sizes.get(&file).copied() };
        async move {
            let (bytes, damage) = compare_file(&store, &folder, &file, &recorded).await?;
            Ok::<_, Error>((bytes, damage.map(|kind| DamagedFile { file, kind })))
        }
    });
    let results = stream::iter(compares).buffered(FILES_AT_ONCE).try_collect::<Vec<_>>().await?;
    let mut compared = Compared { unchecked: unchecked(sstable, &folder), ..Compared::default() };
    for (bytes, damage) in results {
        compared.files += 1;
        compared.bytes += bytes;
        compared.damaged.extend(damage);
    }
    Ok(compared)
}

/// The checksum and size that the manifest of an SSTable records for a file.
struct Recorded {
    /// Its checksum, as text.
    sum: String,
    /// Its size, where that is recorded too.
    bytes: Option<u64>,
}

/// The sizes that the manifest of an SSTable records, by the file's path inside the SSTable's
/// folder.
fn sizes_of(sstable: &Dataset) -> HashMap<String, u64> {
    let files = sstable.fragments().iter().flat_map(|fragment| &fragment.files);
    let sized = files.filter_map(|file| {
        let bytes = file.file_size_bytes.get()?;
        Some((format!("data/{}", file.path), bytes.get()))
    });
    sized.collect()
}

/// Compares a file in `folder` with `recorded`. Returns the bytes that were read, and the kind of
/// damage.
async fn compare_file(
    store: &ObjectStore,
    folder: &Path,
    file: &str,
    recorded: &Recorded,
) -> Result<(u64, Option<&'static str>)> {
    let Some(path) = in_sstable(folder, file) else {
        return Ok((0, Some("path outside its folder")));
    };
    let summing = Summing { recorded: recorded.bytes, ..Summing::default() };
    let read = sum_file(store, &path, summing).await;
    Ok(match read.map_err(|error| Error::io(format!("{file}: {error}")))? {
        Ok(found) if bloom::checksum_text(found.crc32) == recorded.sum || mutant!("B19-run") => {
            (found.bytes, None)
        }
        Ok(found) => (found.bytes, Some(kind_of(&found))),
        Err(kind) => (0, Some(kind)),
    })
}

/// The stamps of files of an SSTable on a local disk.
///
/// # Errors
/// A storage error.
pub async fn stamps(sstable: &Dataset, files: SsTableFiles) -> Result<FileStamps> {
    let store = sstable.object_store(None).await?;
    let folder = sstable.branch_location().path;
    let paths = paths_of(sstable, &folder, files);
    Ok(paths.iter().map(|path| stamp(&store, path)).collect())
}

/// Size and modification time of a file on a local disk, by which a later write to it is noticed. A
/// missing file has the size 0, and the comparison finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStamp(u64, Option<SystemTime>);

/// The stamps of some files; `None` where they are not on a local disk, or are not compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileStamps(Option<Vec<FileStamp>>);

impl FileStamps {
    /// Bytes of all files; `None` where there are no stamps.
    pub fn bytes(&self) -> Option<u64> {
        self.0.as_ref().map(|files| files.iter().map(|file| file.0).sum())
    }
}

impl FromIterator<Option<FileStamp>> for FileStamps {
    fn from_iter<I: IntoIterator<Item = Option<FileStamp>>>(stamps: I) -> Self {
        Self(stamps.into_iter().collect())
    }
}

fn stamp(store: &ObjectStore, path: &Path) -> Option<FileStamp> {
    let found = std::fs::metadata(sync::local_path(store, path)?).ok();
    let written = found.as_ref().and_then(|found| found.modified().ok());
    Some(FileStamp(found.map_or(0, |found| found.len()), written))
}

/// The paths of files of the SSTable at `folder` that have a checksum.
pub(super) fn paths_of(sstable: &Dataset, folder: &Path, files: SsTableFiles) -> Vec<Path> {
    let files = sums_of(sstable, files).into_iter();
    files.filter_map(|(file, _)| in_sstable(folder, &file)).collect()
}

/// Files of the SSTable with the checksum that its manifest records for each, sorted.
fn sums_of(sstable: &Dataset, files: SsTableFiles) -> Vec<(String, String)> {
    let mut sums: Vec<(String, String)> = sstable
        .config()
        .iter()
        .filter_map(|(key, sum)| Some((key.strip_prefix(OF_FILE)?.to_owned(), sum.clone())))
        .filter(|(file, _)| match files {
            SsTableFiles::Rows => !file.starts_with(KEY_INDEX) && !file.starts_with(INDEXES),
            SsTableFiles::Keys => file.starts_with(KEY_INDEX),
            SsTableFiles::Indexes => file.starts_with(INDEXES),
            SsTableFiles::Moved => !file.starts_with(INDEXES),
            SsTableFiles::All => true,
        })
        .collect();
    if matches!(files, SsTableFiles::All | SsTableFiles::Moved)
        && let Some(sum) = sstable.config().get(bloom::CHECKSUM)
    {
        sums.push((read::BLOOM_FILTER.to_owned(), sum.clone()));
    }
    sums.sort_unstable();
    sums
}

/// Data and deletion files for which the manifest records no checksum.
fn unchecked(sstable: &Dataset, folder: &Path) -> Vec<String> {
    let files = sync::files_of_fragments(folder, sstable.fragments());
    let files = files.map(|path| inside(folder, &path));
    files.filter(|file| !sstable.config().contains_key(&format!("{OF_FILE}{file}"))).collect()
}

/// The checksum of a file that was read, with its size.
struct Sum {
    crc32: u32,
    bytes: u64,
    /// Whether any byte is not zero.
    has_content: bool,
    /// CRC-32 of each block, where requested.
    blocks: Vec<u32>,
}

const fn kind_of(found: &Sum) -> &'static str {
    match (found.bytes, found.has_content) {
        (0, _) => "zero length",
        (_, false) => "zero filled",
        (_, true) => "checksum",
    }
}

/// The state of a running checksum over a file.
#[derive(Default)]
struct Summing {
    hasher: Hasher,
    bytes: u64,
    has_content: bool,
    /// The recorded size of the file, where there is one.
    recorded: Option<u64>,
    /// `None` where the checksums of blocks are not needed.
    blocks: Option<Blocks>,
}

impl Summing {
    fn add(&mut self, block: &[u8]) {
        self.hasher.update(block);
        if let Some(blocks) = &mut self.blocks {
            blocks.add(block);
        }
        self.bytes += block.len() as u64;
        self.has_content = self.has_content || block.iter().any(|byte| *byte != 0);
    }

    fn finish(self) -> Sum {
        let Self { hasher, bytes, has_content, blocks, .. } = self;
        let blocks = blocks.map_or_else(Vec::new, Blocks::finish);
        Sum { crc32: hasher.finalize(), bytes, has_content, blocks }
    }
}

/// The running checksums of the blocks of a file, independent of how its bytes are split into
/// reads.
#[derive(Default)]
struct Blocks {
    hasher: Hasher,
    /// Bytes of the block that is not full yet.
    bytes: usize,
    sums: Vec<u32>,
}

impl Blocks {
    fn add(&mut self, mut read: &[u8]) {
        while !read.is_empty() {
            let (block, rest) = read.split_at(read.len().min(PAGE_BLOCK_BYTES - self.bytes));
            self.hasher.update(block);
            self.bytes += block.len();
            if self.bytes == PAGE_BLOCK_BYTES {
                self.end_block();
            }
            read = rest;
        }
    }

    fn end_block(&mut self) {
        self.sums.push(std::mem::take(&mut self.hasher).finalize());
        self.bytes = 0;
    }

    fn finish(mut self) -> Vec<u32> {
        if self.bytes > 0 {
            self.end_block();
        }
        self.sums
    }
}

/// The checksum of the whole file, or the kind of damage that shows without reading it to its end.
/// A file whose size differs from the recorded one is not read. An outer error is a storage fault,
/// which a retry may cure.
async fn sum_file(
    store: &ObjectStore,
    path: &Path,
    mut summing: Summing,
) -> Result<std::result::Result<Sum, &'static str>> {
    let _read = READS.get().acquire().await;
    if let Some(local) = sync::local_path(store, path) {
        let read = tokio::task::spawn_blocking(move || sum_local(&local, summing)).await?;
        return match read {
            Ok(sum) => Ok(sum),
            Err(error) if is_no_file(&error) => Ok(Err(NO_FILE)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Err("missing")),
            Err(error) if error.raw_os_error() == Some(EIO) => Ok(Err("unreadable")),
            Err(error) => Err(error.into()),
        };
    }
    let found = match store.inner.get(path).await {
        Ok(found) => found,
        Err(object_store::Error::NotFound { .. }) => return Ok(Err("missing")),
        Err(error) => return Err(error.into()),
    };
    if let Some(damage) = damage_of_length(found.meta.size, summing.recorded) {
        return Ok(Err(damage));
    }
    let mut blocks = found.into_stream();
    while let Some(block) = blocks.try_next().await? {
        summing.add(&block);
    }
    Ok(Ok(summing.finish()))
}

/// The kind of damage that the length of a file shows, where a size is recorded. An empty file is
/// read all the same: it costs nothing, and the kind of damage is then "zero length".
fn damage_of_length(length: u64, recorded: Option<u64>) -> Option<&'static str> {
    recorded.filter(|_| length > 0).and_then(|recorded| damage_of_size(length, recorded))
}

/// As [`sum_file`], for a file on a local disk.
fn sum_local(
    path: &LocalPath,
    mut summing: Summing,
) -> io::Result<std::result::Result<Sum, &'static str>> {
    let Some((mut file, length)) = open_file(path)? else { return Ok(Err(NO_FILE)) };
    if let Some(damage) = damage_of_length(length, summing.recorded) {
        return Ok(Err(damage));
    }
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    // One byte more than a small file has, so that the first read reaches its end.
    let mut block = vec![0; BLOCK_BYTES.min(length.saturating_add(1))];
    loop {
        match file.read(&mut block) {
            Ok(0) => return Ok(Ok(summing.finish())),
            Ok(bytes) => summing.add(&block[..bytes]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        // A file that the system generates on read, as in `/proc`, has no size and may have no end.
        if summing.recorded.is_some_and(|recorded| summing.bytes > recorded) {
            return Ok(Err(MaxBytes::TOO_LARGE));
        }
    }
}

/// A writer that computes the checksum of the bytes that pass through it.
pub(super) struct Summed {
    inner: Box<dyn Writer>,
    hasher: Hasher,
    sum: Arc<OnceLock<u32>>,
}

impl Summed {
    /// The writer around `inner`, and the cell that stores its checksum after shutdown.
    pub fn new(inner: Box<dyn Writer>) -> (Self, Arc<OnceLock<u32>>) {
        let sum = Arc::new(OnceLock::new());
        (Self { inner, hasher: Hasher::new(), sum: sum.clone() }, sum)
    }

    fn end(&self) {
        let _ = self.sum.set(self.hasher.clone().finalize());
    }
}

impl AsyncWrite for Summed {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let taken = ready!(Pin::new(&mut self.inner).poll_write(context, bytes))?;
        self.hasher.update(&bytes[..taken]);
        Poll::Ready(Ok(taken))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.inner).poll_shutdown(context))?;
        self.end();
        Poll::Ready(Ok(()))
    }
}

#[async_trait]
impl Writer for Summed {
    async fn tell(&mut self) -> Result<usize> {
        self.inner.tell().await
    }

    async fn shutdown(&mut self) -> Result<WriteResult> {
        let written = Writer::shutdown(&mut self.inner).await?;
        self.end();
        Ok(written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_have_the_same_checksums_however_their_bytes_are_split() {
        let bytes: Vec<u8> = (0..=250).cycle().take(2 * PAGE_BLOCK_BYTES + 100).collect();
        let expected: Vec<u32> = bytes.chunks(PAGE_BLOCK_BYTES).map(crc32fast::hash).collect();
        for step in
            [1_000, PAGE_BLOCK_BYTES - 1, PAGE_BLOCK_BYTES, PAGE_BLOCK_BYTES + 1, bytes.len()]
        {
            let mut blocks = Blocks::default();
            for read in bytes.chunks(step) {
                blocks.add(read);
            }
            assert_eq!(blocks.finish(), expected, "{step}");
        }
        let mut whole = Blocks::default();
        whole.add(&bytes[..PAGE_BLOCK_BYTES]);
        assert_eq!(whole.finish(), expected[..1], "a full block is followed by no empty one");
        assert!(Blocks::default().finish().is_empty());
    }
}
