//! The record index at one version of the base table.
//!
//! Owns: the published runs, kept open across versions; which run serves which fragment; and the
//! search through all of them.
//! Does not own: the rows: an address may belong to a deleted row.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use lance::Dataset;
use lance_core::{Error as LanceError, Result as LanceResult};
use lance_io::object_store::ObjectStore;
use lance_table::format::Fragment;
use lancemem_core::format::{PageFile, RecordIndexRun, paths};
use lancemem_core::types::{Error, MaxBytes, Result};
use object_store::path::Path;
use parking_lot::Mutex;
use roaring::RoaringBitmap;
use tokio::sync::{Mutex as AsyncMutex, OnceCell};

use super::key_columns::{has_keys_of, key_ids};
use super::pages::Pages;
use super::verified_files::{Damage, verified};
use crate::errors::Context;
use crate::row_address::split_address;
use crate::sstable::{COMPARED_BYTES, FileStamps, FileSum, read_whole};

const ACTION: &str = "reading the record index";
/// Runs that are opened or searched at the same time.
const AT_ONCE: usize = 8;
/// Bytes that a found entry counts as read.
const ENTRY_BYTES: usize = 16;
/// Least rows of the covered fragments for each key of a search. With fewer, a search would read
/// most pages, and the pages are twice as large as the key columns.
const ROWS_A_KEY: usize = 8;

/// A published run.
#[derive(Debug)]
pub struct OpenRun {
    /// Its name.
    pub name: String,
    /// What it covers.
    pub run: RecordIndexRun,
    store: Arc<ObjectStore>,
    folder: Path,
    pages: OnceCell<Pages>,
    /// The first damaged block among the blocks that were read.
    damage: Damage,
    /// The stamps of the page files at their last comparison.
    compared: AsyncMutex<Option<FileStamps>>,
}

impl OpenRun {
    pub(super) async fn pages(&self) -> LanceResult<&Pages> {
        let columns = self.run.key_fields.len();
        let open = || async {
            let store = if self.has_blocks() {
                verified(&self.store, &self.folder, &self.run.page_files, &self.damage).await?
            } else {
                if self.stamps().bytes().is_some_and(|bytes| bytes <= COMPARED_BYTES) {
                    self.compare().await?;
                }
                self.store.clone()
            };
            self.unwinding(Pages::open(store, self.folder.clone(), columns)).await
        };
        self.pages.get_or_try_init(open).await
    }

    /// Whether every block of the pages is verified as it is read.
    pub(super) fn has_blocks(&self) -> bool {
        let files = &self.run.page_files;
        !files.is_empty() && files.iter().all(PageFile::has_blocks)
    }

    /// Compares the whole page files with the checksums that the run records. Skipped where this
    /// handle has compared them and their stamps are unchanged. Returns the bytes that were read.
    pub(super) async fn compare(&self) -> LanceResult<u64> {
        let mut compared = self.compared.lock().await;
        let stamps = self.stamps();
        if compared.as_ref() == Some(&stamps) {
            return Ok(0);
        }
        let mut bytes = 0;
        for sum in self.sums() {
            bytes += sum.compare(&self.store, &self.folder).await?;
        }
        *compared = Some(stamps);
        Ok(bytes)
    }

    /// The same, for files of any size on a local disk whose blocks have no checksums. An object
    /// store has checksums of its own.
    async fn compare_before_use(&self) -> LanceResult<u64> {
        if self.has_blocks() || self.stamps().bytes().is_none() {
            return Ok(0);
        }
        self.compare().await
    }

    fn stamps(&self) -> FileStamps {
        self.sums().map(|sum| sum.stamp(&self.store, &self.folder)).collect()
    }

    fn sums(&self) -> impl Iterator<Item = FileSum> {
        let files = self.run.page_files.iter();
        files.map(|file| FileSum { file: file.name.clone(), crc32: file.crc32 })
    }

    /// Lance's reader panics on some damaged files; the panic becomes an error of the index. Where
    /// a block failed its checksum, the error names that block instead of what Lance reported.
    pub(super) async fn unwinding<T>(
        &self,
        work: impl Future<Output = LanceResult<T>>,
    ) -> LanceResult<T> {
        let done = AssertUnwindSafe(work).catch_unwind().await.unwrap_or_else(|_| {
            Err(LanceError::corrupt_file_named(
                &self.name,
                "the pages of the run cannot be decoded",
            ))
        });
        match (done, self.damage.get()) {
            (Err(_), Some(what)) => Err(LanceError::corrupt_file(self.folder.clone(), what)),
            (done, _) => done,
        }
    }
}

/// Runs that this process has open, over the versions of the base table.
#[derive(Debug, Default)]
pub struct IndexRuns {
    known: Mutex<HashMap<String, Arc<OpenRun>>>,
}

impl IndexRuns {
    /// The published runs of the table of `base`; `None` where it has no record index.
    ///
    /// A damaged file is skipped with a warning: the fragments that it covers are looked up without
    /// it.
    ///
    /// # Errors
    /// A storage error.
    pub async fn published(&self, base: &Dataset) -> Result<Option<Vec<Arc<OpenRun>>>> {
        let store = base.object_store(None).await.context(ACTION)?;
        let root = base.branch_location().path;
        let names = list(&store, &below(&root, paths::RECORD_INDEX_RUNS)).await?;
        let known = self.known.lock().clone();
        let mut runs: Vec<Arc<OpenRun>> = Vec::with_capacity(names.len());
        let mut reads = Vec::new();
        for name in names {
            match known.get(&name) {
                Some(run) => runs.push(run.clone()),
                None => reads.push(read(&store, &root, name).boxed()),
            }
        }
        let new: Vec<Option<Arc<OpenRun>>> =
            stream::iter(reads).buffered(AT_ONCE).try_collect().await?;
        runs.extend(new.into_iter().flatten());
        // The largest first, so that few runs serve all fragments; then by name, so that all
        // processes choose alike.
        runs.sort_by(|one, other| {
            (Reverse(one.run.entries), &one.name).cmp(&(Reverse(other.run.entries), &other.name))
        });
        *self.known.lock() = runs.iter().map(|run| (run.name.clone(), run.clone())).collect();
        Ok((!runs.is_empty()).then_some(runs))
    }

    /// The coverage of `base` by the published runs. Empty where there is no index, or where it
    /// cannot be read.
    pub async fn open(&self, base: &Dataset, key: &[String]) -> RecordIndex {
        match self.published(base).await {
            Ok(runs) => RecordIndex::new(base, key, &runs.unwrap_or_default()),
            Err(error) => {
                let table = base.uri();
                tracing::warn!(table, %error, "lookups go on without the record index");
                RecordIndex::default()
            }
        }
    }
}

/// The runs that serve the fragments of one base version.
#[derive(Debug, Default)]
pub struct RecordIndex {
    runs: Vec<Serving>,
    /// Index in `runs` by fragment.
    by_fragment: HashMap<u32, usize>,
    /// Set once a search has failed: the index covers no fragment from then on.
    given_up: AtomicBool,
}

#[derive(Debug)]
struct Serving {
    run: Arc<OpenRun>,
    /// From the upper half of an address in the run to the fragment, and its rows.
    fragments: HashMap<u32, (u32, u64)>,
}

/// A row that may have a key: index of the key in the call, fragment, offset.
pub type RowLocation = (u32, u32, u32);

/// Rows that a search found in some fragments.
#[derive(Debug)]
pub struct IndexMatches {
    /// Offsets by fragment, of every fragment that was searched.
    pub rows: HashMap<u64, RoaringBitmap>,
    /// Approximate bytes that were read for it.
    pub bytes: usize,
}

impl RecordIndex {
    /// The coverage of `base` by `runs`: the first run that covers a fragment serves it.
    #[must_use]
    pub fn new(base: &Dataset, key: &[String], runs: &[Arc<OpenRun>]) -> Self {
        let ids = key_ids(base, key);
        let present: HashMap<u64, &Fragment> =
            base.fragments().iter().map(|fragment| (fragment.id, fragment)).collect();
        let mut index = Self::default();
        for run in runs.iter().filter(|run| run.run.key_fields == ids && !ids.is_empty()) {
            let mut fragments = HashMap::new();
            for covered in &run.run.fragments {
                let Some(fragment) = present.get(&covered.id) else { continue };
                let Ok(id) = u32::try_from(covered.id) else { continue };
                let (rows, files) = (covered.physical_rows, &covered.key_files);
                if has_keys_of(fragment, &ids, rows, files) && !index.by_fragment.contains_key(&id)
                {
                    index.by_fragment.insert(id, index.runs.len());
                    fragments.insert(covered.in_sstable, (id, covered.physical_rows));
                }
            }
            if !fragments.is_empty() {
                index.runs.push(Serving { run: run.clone(), fragments });
            }
        }
        index
    }

    /// Whether the rows of a fragment can be looked up here.
    #[must_use]
    pub fn covers(&self, fragment: u32) -> bool {
        !self.given_up.load(Ordering::Relaxed) && self.by_fragment.contains_key(&fragment)
    }

    /// The runs that serve at least one fragment.
    pub fn serving(&self) -> impl Iterator<Item = &Arc<OpenRun>> {
        self.runs.iter().map(|serving| &serving.run)
    }

    /// Number of covered fragments.
    #[must_use]
    pub fn fragments(&self) -> usize {
        self.by_fragment.len()
    }

    /// The fragments that a run serves: from the upper half of an address in the run to the
    /// fragment, and its rows.
    pub(super) fn served(&self, run: &str) -> Option<&HashMap<u32, (u32, u64)>> {
        let serving = self.runs.iter().find(|serving| serving.run.name == run)?;
        Some(&serving.fragments)
    }

    /// Each serving run with its number of live entries.
    pub fn live(&self) -> impl Iterator<Item = (&Arc<OpenRun>, u64)> {
        self.runs
            .iter()
            .map(|serving| (&serving.run, serving.fragments.values().map(|(_, rows)| rows).sum()))
    }

    /// The fragment of an entry of a serving run; `None` where the fragment is gone, or where
    /// another run serves it.
    pub(super) fn fragment_of(&self, run: &str, in_sstable: u32) -> Option<u32> {
        self.served(run)?.get(&in_sstable).map(|(fragment, _)| *fragment)
    }

    /// Every row of a covered fragment that has one of `keys`, encoded keys that ascend. Deleted
    /// rows are among them.
    ///
    /// # Errors
    /// A storage error. The caller then calls [`Self::give_up`] and goes on without the index.
    pub async fn search(&self, keys: &[&[u8]]) -> Result<Vec<RowLocation>> {
        let searches: Vec<_> =
            self.runs.iter().map(|serving| serving.search(keys).boxed()).collect();
        let found: Vec<Vec<RowLocation>> =
            stream::iter(searches).buffered(AT_ONCE).try_collect().await.context(ACTION)?;
        Ok(found.into_iter().flatten().collect())
    }

    /// The rows of the covered fragments among `fragments` whose key is one of `keys`: `count`
    /// keys, in any order. For callers that persist the rows, so the pages are compared with their
    /// checksums first. `None` where reading the key columns costs less, or where the search failed
    /// and the index is given up.
    pub async fn positions<'a>(
        &self,
        fragments: &[Fragment],
        count: usize,
        keys: impl Iterator<Item = &'a [u8]>,
    ) -> Option<IndexMatches> {
        let is_covered =
            |fragment: &&Fragment| u32::try_from(fragment.id).is_ok_and(|id| self.covers(id));
        let covered: Vec<&Fragment> = fragments.iter().filter(is_covered).collect();
        let rows: usize = covered.iter().filter_map(|fragment| fragment.physical_rows).sum();
        if rows == 0 || count > rows / ROWS_A_KEY {
            return None;
        }
        let mut keys: Vec<&[u8]> = keys.collect();
        keys.sort_unstable();
        keys.dedup();
        let (compared, places) = match self.search_compared(&keys).await {
            Ok(found) => found,
            Err(error) => {
                self.give_up(&error);
                return None;
            }
        };
        let rows = covered.iter().map(|fragment| (fragment.id, RoaringBitmap::new()));
        let bytes = usize::try_from(compared).unwrap_or(usize::MAX);
        let bytes = bytes.saturating_add(places.len() * ENTRY_BYTES);
        let mut found = IndexMatches { rows: rows.collect(), bytes };
        for (_, fragment, offset) in places {
            if let Some(rows) = found.rows.get_mut(&u64::from(fragment)) {
                rows.insert(offset);
            }
        }
        Some(found)
    }

    /// Searches after comparing the pages; returns the bytes that were compared, and the rows.
    async fn search_compared(&self, keys: &[&[u8]]) -> Result<(u64, Vec<RowLocation>)> {
        let mut bytes = 0;
        for run in self.serving() {
            bytes += run.compare_before_use().await.context(ACTION)?;
        }
        Ok((bytes, self.search(keys).await?))
    }

    /// Stops using this index, with a warning.
    pub fn give_up(&self, error: &Error) {
        tracing::warn!(%error, "the record index cannot be read; lookups go on without it");
        self.given_up.store(true, Ordering::Relaxed);
    }
}

impl Serving {
    async fn search(&self, keys: &[&[u8]]) -> LanceResult<Vec<RowLocation>> {
        let pages = self.run.pages().await?;
        let found = self.run.unwinding(pages.search(keys)).await?;
        let mut places = Vec::with_capacity(found.len());
        for (key, address) in found {
            let (in_sstable, offset) = split_address(address);
            let Some((fragment, rows)) = self.fragments.get(&in_sstable) else { continue };
            if u64::from(offset) >= *rows {
                let run = &self.run.name;
                return Err(LanceError::corrupt_file_named(
                    "page_data.lance",
                    format!(
                        "run {run}: row {offset} is out of range for fragment {fragment} of {rows} \
                         rows"
                    ),
                ));
            }
            places.push((key, *fragment, offset));
        }
        Ok(places)
    }
}

/// A path relative to the table in its store.
pub(super) fn below(root: &Path, path: &str) -> Path {
    path.split('/').fold(root.clone(), Path::join)
}

async fn list(store: &ObjectStore, folder: &Path) -> Result<Vec<String>> {
    match store.inner.list_with_delimiter(Some(folder)).await {
        Ok(listed) => {
            let names = listed.objects.iter().filter_map(|object| object.location.filename());
            Ok(names.filter_map(paths::parse_record_index_run).map(str::to_owned).collect())
        }
        Err(object_store::Error::NotFound { .. }) => Ok(Vec::new()),
        Err(error) => Err(Error::storage(ACTION, &error).with_source(error)),
    }
}

async fn read(store: &Arc<ObjectStore>, root: &Path, name: String) -> Result<Option<Arc<OpenRun>>> {
    let path = below(root, &paths::record_index_run(&name));
    let bytes = match read_whole(store, &path, MaxBytes::MANIFEST).await {
        Ok(bytes) => bytes,
        Err(error @ lance_core::Error::CorruptFile { .. }) => {
            tracing::warn!(%error, "a damaged run of the record index is skipped");
            return Ok(None);
        }
        // Removed since the listing, for example after a merge.
        Err(lance_core::Error::NotFound { .. }) => return Ok(None),
        Err(error) => return Err(error).context(ACTION),
    };
    match RecordIndexRun::decode(&bytes, &name) {
        Ok(run) => {
            let folder = below(root, &paths::record_index_pages(&name));
            let (pages, compared) = (OnceCell::new(), AsyncMutex::default());
            let (store, damage) = (store.clone(), Damage::default());
            Ok(Some(Arc::new(OpenRun { name, run, store, folder, pages, damage, compared })))
        }
        Err(error) => {
            tracing::warn!(%error, "a damaged run of the record index is skipped");
            Ok(None)
        }
    }
}
