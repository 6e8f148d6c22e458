//! The open SSTables of a table in this process, shared by all its snapshots.
//!
//! Owns: one handle per SSTable, with the keys, filter, key index, tombstones and vectors read from
//! it.
//! Does not own: which SSTables a snapshot reads, or which cached value is evicted (`cache`).

use std::collections::HashMap;
use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arrow_schema::SchemaRef;
use futures::future::{join, join_all};
use lance::Dataset;
use lance::dataset::fragment::FragReadConfig;
use lance_core::deepsize::DeepSizeOf;
use lancemem_core::format::SsTable;
use lancemem_core::merge::MergeRule;
use lancemem_core::mutant;
use lancemem_core::types::{Error, ErrorKind, Generation, Result, ShardId};
use parking_lot::Mutex;
use roaring::RoaringBitmap;
use tokio::sync::OnceCell;

use super::base::BaseCache;
use super::cache::{CacheBudget, CacheStats, Cached};
use super::readers;
use super::row_readers::RowReaders;
use super::sstable_columns::{read_hidden, read_keys, read_tombstones};
use super::sstable_keys::SsTableKeys;
use super::vector_rows::VectorRows;
use crate::errors::{Context, SsTableErrors};
use crate::schema::with_ids;
use crate::sstable::{
    COMPARED_BYTES, DamagedFile, FileStamps, KeyFilter, KeyIndex, OTHER_SIZE, SsTableContext,
    SsTableFiles, compare, is_ours, no_file, open_sstable, other_size, stamps,
};

/// Default byte budget of the cache of a table.
const LIMIT_BYTES: usize = 256 << 20;
/// Fragments of a dataset whose metadata is prefetched.
const FILES_AHEAD: usize = 32;
/// Rows of one page of an SSTable's key index.
const PAGE_ROWS: u64 = 8_192;

/// An open SSTable. SSTables are immutable, so values that were read once stay valid.
#[derive(Debug)]
pub struct SsTableHandle {
    /// Its shard.
    pub shard_id: ShardId,
    /// Its age in the shard.
    pub generation: Generation,
    /// Folder name inside the shard.
    pub path: String,
    /// The SSTable as a Lance dataset; its deletion vector hides rows superseded inside the
    /// SSTable.
    pub dataset: Arc<Dataset>,
    /// Its columns with their field ids: the table's columns when it was written.
    pub columns: SchemaRef,
    /// Reads its rows.
    pub row_readers: RowReaders,
    keys: Arc<Cached<SsTableKeys>>,
    filter: Arc<Cached<KeyFilter>>,
    index: Arc<Cached<KeyIndex>>,
    tombstones: Arc<Cached<RoaringBitmap>>,
    /// By the column of vectors.
    vectors: Mutex<HashMap<String, Arc<Cached<VectorRows>>>>,
    /// Whether filter and index hold every key of the SSTable.
    trusted: bool,
    /// Whether files are compared with their checksums.
    verifies: bool,
    /// Size and modification time of its files when they were compared with their checksums. `None`
    /// where they were not compared, or where anything was cached before that.
    compared: Option<FileStamps>,
    /// Rows of the data file, hidden ones included.
    rows: u64,
    /// Bytes of a row in memory, where the writer of the SSTable recorded them.
    pub row_bytes: Option<u64>,
    /// Pages of the key index that lookups have read.
    pages_read: AtomicU64,
    budget: Arc<CacheBudget>,
    /// Set once the files of its indexes were compared with their checksums.
    verified_indexes: OnceCell<()>,
}

impl SsTableHandle {
    /// The newest row of each key of the SSTable, tombstones included. Caches the tombstones, too.
    ///
    /// # Errors
    /// A storage error while the key columns are read.
    pub async fn keys(&self, key: &[String]) -> Result<Arc<SsTableKeys>> {
        let read = async {
            let (keys, tombstones) = read_keys(&self.dataset, key, &self.name()).await?;
            self.tombstones.get_or_read(ready(Ok(sized(tombstones)))).await?;
            let bytes = keys.heap_bytes();
            Ok((keys, bytes))
        };
        self.keys.get_or_read(read).await
    }

    /// The same with the hash table of [`SsTableKeys::find`], which a scan does not need.
    ///
    /// # Errors
    /// As [`Self::keys`].
    pub async fn keys_to_find(&self, key: &[String]) -> Result<Arc<SsTableKeys>> {
        let keys = self.keys(key).await?;
        if !keys.has_table() {
            let keys = keys.clone();
            on_thread(move || keys.is_unique()).await?;
        }
        Ok(keys)
    }

    /// The SSTable's keys, where they are in memory.
    #[must_use]
    pub fn keys_in_memory(&self) -> Option<Arc<SsTableKeys>> {
        self.keys.present()
    }

    /// The bloom filter, where it can be trusted.
    ///
    /// # Errors
    /// A storage error, or damage.
    pub async fn filter(&self) -> Result<Option<Arc<KeyFilter>>> {
        // A read without verification, as of a damaged SSTable, uses its rows only.
        if !self.trusted || !self.verifies {
            return Ok(None);
        }
        let read = async {
            let filter = KeyFilter::read(&self.dataset).await.in_sstable(&self.name())?;
            let bytes = filter.heap_bytes();
            Ok((filter, bytes))
        };
        self.filter.get_or_read(read).await.map(Some)
    }

    /// The key index for a lookup of `keys` keys, where it can be trusted and costs less than
    /// reading all keys. A lookup reads one page for each key. Once lookups have read as many pages
    /// as a quarter of the index, the keys are worth their memory, and the answer is `None`.
    ///
    /// # Errors
    /// A storage error, or damage.
    pub async fn index_for(&self, keys: usize) -> Result<Option<Arc<KeyIndex>>> {
        let pages = self.rows.div_ceil(PAGE_ROWS);
        let keys = keys as u64;
        if !self.trusted || self.pages_read.load(Ordering::Relaxed) + keys > pages / 4 {
            return Ok(None);
        }
        self.pages_read.fetch_add(keys, Ordering::Relaxed);
        let read = async {
            self.verify_small(SsTableFiles::Keys).await?;
            let index = KeyIndex::open(&self.dataset).await.in_sstable(&self.name())?;
            let bytes = index.heap_bytes();
            Ok((index, bytes))
        };
        self.index.get_or_read(read).await.map(Some)
    }

    /// The SSTable as a dataset whose Lance indexes may be searched: their files were compared with
    /// their checksums. `None` where the SSTable of another writer may have rows that its indexes
    /// lack, and in a read without verification, which uses rows alone.
    ///
    /// # Errors
    /// Damage, with the file's name; a storage error.
    pub async fn indexed(&self) -> Result<Option<&Arc<Dataset>>> {
        if !self.trusted || !self.verifies || self.dataset.manifest().index_section.is_none() {
            return Ok(None);
        }
        let verify = async || self.verify_small(SsTableFiles::Indexes).await.map(drop);
        self.verified_indexes.get_or_try_init(verify).await?;
        Ok(Some(&self.dataset))
    }

    /// The SSTable as a dataset whose Lance indexes may be moved: as [`Self::indexed`], with files
    /// of any size compared with their checksums.
    ///
    /// # Errors
    /// Damage, with the file's name; a storage error.
    pub async fn with_whole_indexes(&self) -> Result<Option<&Arc<Dataset>>> {
        let Some(dataset) = self.indexed().await? else { return Ok(None) };
        let bytes = self.stamps(SsTableFiles::Indexes).await?.bytes();
        if bytes.is_some_and(|bytes| bytes > COMPARED_BYTES) {
            self.compare(SsTableFiles::Indexes).await?;
        }
        Ok(Some(dataset))
    }

    /// Compares all files of the SSTable but its Lance indexes with their checksums, where they lie
    /// on a local disk: an object store has checksums of its own. An SSTable that lance wrote has no
    /// checksums. A compaction can do without indexes, so a damaged one does not keep rows from it.
    ///
    /// # Errors
    /// Damage, with the file's name; a storage error.
    pub async fn verify(&self) -> Result<()> {
        if self.stamps(SsTableFiles::Moved).await?.bytes().is_some() {
            self.compare(SsTableFiles::Moved).await?;
        }
        Ok(())
    }

    /// The same for the files `files`, unless they are large. Returns their stamps from before the
    /// comparison, or `None` where large files were not compared.
    async fn verify_small(&self, files: SsTableFiles) -> Result<Option<FileStamps>> {
        self.refuse_no_file(files).await?;
        let stamps = self.stamps(files).await?;
        match stamps.bytes() {
            Some(bytes) if bytes > COMPARED_BYTES => {
                self.refuse_other_size().await?;
                return Ok(None);
            }
            Some(_) => self.compare(files).await?,
            None => self.refuse_other_size().await?,
        }
        Ok(Some(stamps))
    }

    /// Refuses the SSTable where one of the files is not a regular file. It does so even
    /// where files are not compared, because opening a pipe could block forever.
    async fn refuse_no_file(&self, files: SsTableFiles) -> Result<()> {
        let name = self.name();
        match no_file(&self.dataset, files).await.context(&name)? {
            None => Ok(()),
            Some(DamagedFile { file, kind }) => {
                let detail = "found a folder, a pipe, a socket, a device or a link to itself";
                Err(Error::corrupt(format!("{file} of {name}"), kind, detail))
            }
        }
    }

    /// Refuses the SSTable where the size of a data file differs from the recorded one. This is the
    /// check of files that are not compared with their checksums.
    async fn refuse_other_size(&self) -> Result<()> {
        if !self.verifies {
            return Ok(());
        }
        let name = self.name();
        let Some(DamagedFile { file, kind }) = other_size(&self.dataset).await.context(&name)?
        else {
            return Ok(());
        };
        Err(Error::corrupt(format!("{file} of {name}"), kind, OTHER_SIZE))
    }

    /// The stamps of the files that can be compared.
    async fn stamps(&self, files: SsTableFiles) -> Result<FileStamps> {
        if !self.verifies {
            return Ok(FileStamps::default());
        }
        stamps(&self.dataset, files).await.context(&self.name())
    }

    /// Whether everything cached of the SSTable was read after its files were compared, and the
    /// files still have the stamps of that comparison.
    fn is_as_compared(&self, now: &FileStamps) -> bool {
        self.compared.as_ref() == Some(now)
    }

    /// Bytes that [`Self::verify`] reads.
    ///
    /// # Errors
    /// A storage error.
    pub async fn verified_bytes(&self) -> Result<u64> {
        Ok(self.stamps(SsTableFiles::Moved).await?.bytes().unwrap_or_default())
    }

    async fn compare(&self, files: SsTableFiles) -> Result<()> {
        let name = self.name();
        compare(&self.dataset, files).await.context(&name)?.whole(&name)
    }

    /// Whether lancemem wrote it. Then every key has at most one visible row in it.
    #[must_use]
    pub const fn is_trusted(&self) -> bool {
        self.trusted
    }

    /// The name of the SSTable in errors.
    pub(crate) fn name(&self) -> String {
        format!("SSTable {} of shard {}", self.path, self.shard_id)
    }

    /// The number of rows in its data file, and the rows that its own deletion vector hides.
    ///
    /// # Errors
    /// A storage error, or damage. An SSTable without a data file counts as damaged.
    pub async fn physical_and_hidden_rows(&self) -> Result<(u64, RoaringBitmap)> {
        read_hidden(&self.dataset, &self.name()).await
    }

    /// Rows of the data file, hidden ones and tombstones included.
    #[must_use]
    pub const fn physical_rows(&self) -> u64 {
        self.rows
    }

    /// The vectors of `column` with the key columns `key`, of all visible rows.
    ///
    /// # Errors
    /// A storage error, or damage.
    pub async fn vectors(&self, column: &str, key: &[String]) -> Result<Arc<VectorRows>> {
        let place = column.to_owned();
        let slot =
            self.vectors.lock().entry(place).or_insert_with(|| Cached::new(&self.budget)).clone();
        let read = async {
            let names: Vec<String> = key.iter().cloned().chain([column.to_owned()]).collect();
            let vectors = VectorRows::read(&self.dataset, &names, &self.name()).await?;
            let bytes = vectors.heap_bytes();
            Ok((vectors, bytes))
        };
        slot.get_or_read(read).await
    }

    /// Row positions of the tombstones.
    ///
    /// # Errors
    /// A storage error.
    pub async fn tombstones(&self) -> Result<Arc<RoaringBitmap>> {
        let read = async { read_tombstones(&self.dataset, &self.name()).await.map(sized) };
        self.tombstones.get_or_read(read).await
    }

    /// The same, where they are in memory.
    #[must_use]
    pub fn tombstones_in_memory(&self) -> Option<Arc<RoaringBitmap>> {
        self.tombstones.present()
    }
}

/// Rows with their approximate size in bytes.
fn sized(rows: RoaringBitmap) -> (RoaringBitmap, usize) {
    let bytes = rows.serialized_size();
    (rows, bytes)
}

/// Keys with their hash table built.
pub(super) async fn with_table(
    make: impl FnOnce() -> SsTableKeys + Send + 'static,
) -> Result<SsTableKeys> {
    on_thread(|| {
        let keys = make();
        let _ = keys.is_unique();
        keys
    })
    .await
}

/// Runs CPU-bound work on a blocking thread.
async fn on_thread<T: Send + 'static>(make: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    let made = tokio::task::spawn_blocking(make).await;
    made.map_err(|error| {
        Error::internal(format!("building a hash table of keys: {error}")).with_source(error)
    })
}

/// Prefetches the column metadata of the files of a dataset, and its deletion files, into Lance's
/// cache. Errors are ignored here: the read of the rows meets them again.
pub async fn read_ahead(dataset: &Dataset, key: &[String]) {
    let first = dataset.schema().fields.first().map(|field| field.name.clone());
    let names: Vec<&str> = if key.is_empty() {
        first.iter().map(String::as_str).collect()
    } else {
        key.iter().map(String::as_str).collect()
    };
    let Ok(schema) = dataset.schema().project(&names) else { return };
    let fragments = dataset.get_fragments();
    let opens = fragments.iter().take(FILES_AHEAD).map(|fragment| {
        let schema = &schema;
        async move { fragment.open(schema, FragReadConfig::default()).await.is_ok() }
    });
    join_all(opens).await;
}

fn physical_rows(sstable: &Dataset) -> u64 {
    let rows = sstable.manifest().fragments.iter().filter_map(|fragment| fragment.physical_rows);
    rows.map(|rows| rows as u64).sum()
}

/// Handles by shard and folder.
type OpenSsTables = HashMap<(ShardId, String), Arc<Cached<SsTableHandle>>>;

/// The SSTables that are open in this process.
#[derive(Debug)]
pub struct SsTableCache {
    budget: Arc<CacheBudget>,
    sstables: Mutex<OpenSsTables>,
    base: Arc<BaseCache>,
    /// The merge rule of the table, which its SSTables record.
    rule: Option<Arc<MergeRule>>,
    verifies: AtomicBool,
}

impl Default for SsTableCache {
    fn default() -> Self {
        Self::with_limit(LIMIT_BYTES)
    }
}

impl SsTableCache {
    /// An empty cache with a budget of `limit_bytes` for all SSTables together.
    #[must_use]
    pub fn with_limit(limit_bytes: usize) -> Self {
        let budget = CacheBudget::new(limit_bytes);
        let (sstables, verifies) = (Mutex::default(), AtomicBool::new(true));
        Self { base: BaseCache::new(&budget), budget, sstables, rule: None, verifies }
    }

    /// The same for a table with this merge rule.
    #[must_use]
    pub fn with_rule(self, rule: Option<Arc<MergeRule>>) -> Self {
        Self { rule, ..self }
    }

    /// Sets whether SSTables that are opened from now on are compared with their checksums.
    pub fn set_verifies(&self, verifies: bool) {
        self.verifies.store(verifies, Ordering::Relaxed);
    }

    /// The byte budget.
    #[must_use]
    pub const fn budget(&self) -> &Arc<CacheBudget> {
        &self.budget
    }

    /// The cache of the base table, under the same budget.
    #[must_use]
    pub const fn base(&self) -> &Arc<BaseCache> {
        &self.base
    }

    /// The handle of an SSTable, opened where it is not cached.
    ///
    /// # Errors
    /// Where the SSTable cannot be opened.
    pub async fn open(
        &self,
        base: &Dataset,
        shard_id: ShardId,
        sstable: &SsTable,
    ) -> Result<Arc<SsTableHandle>> {
        let place = (shard_id, sstable.path.clone());
        let handle =
            self.sstables.lock().entry(place).or_insert_with(|| Cached::new(&self.budget)).clone();
        handle.get_or_read(self.read(base, shard_id, sstable)).await
    }

    /// Prefetches the SSTables of `listed` that are not open, while the reader is busy with other
    /// work: their handles, the column metadata that every scan needs, and for lookups the filters.
    /// Errors are ignored here: [`Self::open`] meets them again.
    pub async fn open_ahead(
        &self,
        base: &Dataset,
        shard_id: ShardId,
        listed: &[SsTable],
        key: &[String],
        is_lookup: bool,
    ) {
        let mut opens = Vec::with_capacity(listed.len());
        for sstable in listed {
            let known = self.sstables.lock().get(&(shard_id, sstable.path.clone())).cloned();
            if known.is_none_or(|sstable| sstable.present().is_none()) {
                opens.push(async move {
                    let Ok(sstable) = self.open(base, shard_id, sstable).await else { return };
                    let filter = async { !is_lookup || sstable.filter().await.is_ok() };
                    join(read_ahead(&sstable.dataset, key), filter).await;
                });
            }
        }
        join_all(opens).await;
    }

    /// The SSTable for a caller that persists what it reads from it, such as a compaction.
    /// Everything cached of the returned handle was read after its files were compared.
    ///
    /// # Errors
    /// As [`Self::verified`].
    pub async fn compared(
        &self,
        base: &Dataset,
        sstable: &Arc<SsTableHandle>,
    ) -> Result<Arc<SsTableHandle>> {
        let stamps = sstable.stamps(SsTableFiles::Rows).await?;
        if sstable.is_as_compared(&stamps) {
            Ok(sstable.clone())
        } else {
            self.verified(base, sstable).await
        }
    }

    /// The same, and all of its files are compared now. Where anything was cached before the last
    /// comparison, the SSTable is opened again: a file may have been damaged and then restored, and
    /// values read in between are wrong.
    ///
    /// # Errors
    /// Damage; a storage error.
    pub async fn verified(
        &self,
        base: &Dataset,
        sstable: &Arc<SsTableHandle>,
    ) -> Result<Arc<SsTableHandle>> {
        let place = (sstable.shard_id, sstable.path.clone());
        let stamps = sstable.stamps(SsTableFiles::Rows).await?;
        if let Err(error) = sstable.verify().await {
            if error.kind() == ErrorKind::Corruption && !mutant!("B19-kept") {
                self.sstables.lock().remove(&place);
            }
            return Err(error);
        }
        if sstable.is_as_compared(&stamps) || mutant!("B19-kept") {
            return Ok(sstable.clone());
        }
        let (mut anew, bytes) = self.open_anew(base, sstable).await?;
        anew.compared = Some(stamps);
        let cached = Cached::new(&self.budget);
        let anew = cached.get_or_read(ready(Ok((anew, bytes)))).await?;
        self.sstables.lock().insert(place, cached);
        Ok(anew)
    }

    async fn open_anew(
        &self,
        base: &Dataset,
        sstable: &SsTableHandle,
    ) -> Result<(SsTableHandle, usize)> {
        let name = sstable.name();
        let context = SsTableContext::new(base, sstable.shard_id).await.context(&name)?;
        let context = context.with_rule(self.rule.as_deref()).with_new_session();
        let dataset = open_sstable(&context, &sstable.path).await.in_sstable(&name)?;
        let (mut anew, bytes) =
            self.handle(sstable.shard_id, sstable.generation, &sstable.path, dataset);
        (anew.verifies, anew.row_bytes) = (sstable.verifies, sstable.row_bytes);
        Ok((anew, bytes))
    }

    async fn read(
        &self,
        base: &Dataset,
        shard_id: ShardId,
        sstable: &SsTable,
    ) -> Result<(SsTableHandle, usize)> {
        let action = format!("SSTable {} of shard {shard_id}", sstable.path);
        let context = SsTableContext::new(base, shard_id).await.context(&action)?;
        let mut context = context.with_rule(self.rule.as_deref());
        context.verifies = self.verifies.load(Ordering::Relaxed);
        let dataset = open_sstable(&context, &sstable.path).await.in_sstable(&action)?;
        let (mut handle, bytes) = self.handle(shard_id, sstable.generation, &sstable.path, dataset);
        handle.row_bytes = sstable.in_memory_bytes.map(|bytes| bytes / handle.rows.max(1));
        handle.compared = handle.verify_small(SsTableFiles::Rows).await?;
        Ok((handle, bytes))
    }

    fn handle(
        &self,
        shard_id: ShardId,
        generation: Generation,
        path: &str,
        dataset: Dataset,
    ) -> (SsTableHandle, usize) {
        let bytes = size_of::<Dataset>() + dataset.manifest().deep_size_of();
        let dataset = Arc::new(dataset);
        readers::remember(&dataset);
        let handle = SsTableHandle {
            shard_id,
            generation,
            path: path.to_owned(),
            keys: Cached::new(&self.budget),
            filter: Cached::new(&self.budget),
            index: Cached::new(&self.budget),
            tombstones: Cached::new(&self.budget),
            vectors: Mutex::default(),
            budget: self.budget.clone(),
            trusted: is_ours(&dataset),
            verifies: self.verifies.load(Ordering::Relaxed),
            compared: None,
            rows: physical_rows(&dataset),
            row_bytes: None,
            pages_read: AtomicU64::new(0),
            verified_indexes: OnceCell::new(),
            columns: Arc::new(with_ids(dataset.schema())),
            row_readers: RowReaders::default(),
            dataset,
        };
        (handle, bytes)
    }

    /// Closes the SSTables of `shard_id` that are not in `listed`.
    pub fn retain(&self, shard_id: ShardId, listed: &[SsTable]) {
        self.sstables.lock().retain(|(shard, path), _| {
            *shard != shard_id || listed.iter().any(|sstable| sstable.path == *path)
        });
    }

    /// Counters of the cache: open SSTables, their keys, filters and indexes, keys of the base.
    #[must_use]
    pub fn stats(&self) -> CacheStats {
        self.budget.stats()
    }
}
