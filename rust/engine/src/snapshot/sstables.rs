//! What a process keeps open of a table, shared by all its views: SSTables first of all.
//!
//! Owns: one handle per run, and what is kept of the SSTable once somebody needed it.
//! Does not own: which runs a snapshot reads, or which kept thing goes when room is short (`cache`).

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
use lancemem_core::mutant;
use lancemem_core::types::{Error, ErrorKind, Generation, Result, ShardId};
use parking_lot::Mutex;
use roaring::RoaringBitmap;

use super::base::BaseCache;
use super::cache::{Cached, KeptBound, KeptStats};
use super::readers;
use super::row_readers::RowReaders;
use super::sstable_columns::{read_hidden, read_keys, read_tombstones};
use super::sstable_keys::SsTableKeys;
use crate::errors::{Context, SsTableErrors};
use crate::schema::with_ids;
use crate::sstable::{
    COMPARED_BYTES, DamagedFile, FileStamps, KeyFilter, KeyIndex, OTHER_SIZE, SsTableContext,
    SsTableFiles, compare, is_ours, no_file, open_sstable, other_size, stamps,
};

/// Bytes that a table keeps of its SSTables by default.
const LIMIT_BYTES: usize = 256 << 20;
/// Fragments of a dataset that are opened before somebody asks for their rows.
const FILES_AHEAD: usize = 32;
/// Rows of one page of an SSTable's key index.
const PAGE_ROWS: u64 = 8_192;

/// An open SSTable. SSTables are immutable, so what was read once stays true.
#[derive(Debug)]
pub struct SsTableHandle {
    /// Its shard.
    pub shard_id: ShardId,
    /// Its age in the shard.
    pub generation: Generation,
    /// Folder name inside the shard.
    pub path: String,
    /// The SSTable as a Lance dataset; its deletion vector hides rows superseded inside the SSTable.
    pub dataset: Arc<Dataset>,
    /// Its columns with their field ids: those of the table when it was written.
    pub columns: SchemaRef,
    /// Reads rows of it.
    pub row_readers: RowReaders,
    keys: Arc<Cached<SsTableKeys>>,
    filter: Arc<Cached<KeyFilter>>,
    index: Arc<Cached<KeyIndex>>,
    tombstones: Arc<Cached<RoaringBitmap>>,
    /// Whether filter and index hold every key of the SSTable.
    trusted: bool,
    /// Whether files are compared with their checksums.
    verifies: bool,
    /// What the disk said of its files when they were compared, where all that is known of the SSTable was
    /// read after that.
    compared: Option<FileStamps>,
    /// Rows of the data file, hidden ones included.
    rows: u64,
    /// Bytes of one of them in memory, where whoever wrote the SSTable has noted that.
    pub row_bytes: Option<u64>,
    /// Pages of the key index that lookups have read.
    pages_read: AtomicU64,
}

impl SsTableHandle {
    /// The newest row of each key of the SSTable, tombstones included; reads which those are too.
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

    /// The same with the table by which they are found, which a scan does not need.
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

    /// The bloom filter, where it may be believed.
    ///
    /// # Errors
    /// A storage error, or damage.
    pub async fn filter(&self) -> Result<Option<Arc<KeyFilter>>> {
        // Whoever reads what is left of a damaged SSTable asks its rows.
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

    /// The key index for a lookup of `keys` keys, where it may be believed and costs less than
    /// the keys themselves: a page for each key, until as many pages were read as make a good
    /// part of the whole index. Then the keys are worth their memory.
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

    /// Compares all files of the SSTable with their checksums, where they lie on a local disk: an object
    /// store has checksums of its own. An SSTable that lance wrote has none.
    ///
    /// # Errors
    /// Damage, with the file's name; a storage error.
    pub async fn verify(&self) -> Result<()> {
        if self.stamps(SsTableFiles::All).await?.bytes().is_some() {
            self.compare(SsTableFiles::All).await?;
        }
        Ok(())
    }

    /// The same for some files, unless they are large; what the disk said of them before, where nothing
    /// is left to compare.
    async fn verify_small(&self, files: SsTableFiles) -> Result<Option<FileStamps>> {
        self.refuse_no_file().await?;
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

    /// Refuses the SSTable where something else has the place of a file that its rows come from. Whether
    /// files are compared or not: a reader could wait for ever.
    async fn refuse_no_file(&self) -> Result<()> {
        let name = self.name();
        match no_file(&self.dataset).await.context(&name)? {
            None => Ok(()),
            Some(DamagedFile { file, kind }) => {
                let detail = "found a folder, a pipe, a socket, a device or a link to itself";
                Err(Error::corrupt(format!("{file} of {name}"), kind, detail))
            }
        }
    }

    /// Refuses the SSTable where a data file that is not compared has another size than it was written
    /// with.
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

    /// What the disk says of files that can be compared.
    async fn stamps(&self, files: SsTableFiles) -> Result<FileStamps> {
        if !self.verifies {
            return Ok(FileStamps::default());
        }
        stamps(&self.dataset, files).await.context(&self.name())
    }

    /// Whether all that is known of it was read after its files were compared, and nobody wrote them
    /// since, as the disk says `now`.
    fn is_as_compared(&self, now: &FileStamps) -> bool {
        self.compared.as_ref() == Some(now)
    }

    /// Bytes that [`Self::verify`] reads.
    ///
    /// # Errors
    /// A storage error.
    pub async fn verified_bytes(&self) -> Result<u64> {
        Ok(self.stamps(SsTableFiles::All).await?.bytes().unwrap_or_default())
    }

    async fn compare(&self, files: SsTableFiles) -> Result<()> {
        let name = self.name();
        compare(&self.dataset, files).await.context(&name)?.whole(&name)
    }

    /// Whether lancemem wrote it, so that no key has two rows that it shows.
    #[must_use]
    pub const fn is_trusted(&self) -> bool {
        self.trusted
    }

    /// What the SSTable is called in errors.
    pub(crate) fn name(&self) -> String {
        format!("SSTable {} of shard {}", self.path, self.shard_id)
    }

    /// How many rows its data file has, and which of them its own deletion vector hides.
    ///
    /// # Errors
    /// A storage error, or damage; an SSTable without a data file counts as that.
    pub async fn physical_and_hidden_rows(&self) -> Result<(u64, RoaringBitmap)> {
        read_hidden(&self.dataset, &self.name()).await
    }

    /// Positions of the rows that only delete.
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

/// Rows with about the bytes that they take.
fn sized(rows: RoaringBitmap) -> (RoaringBitmap, usize) {
    let bytes = rows.serialized_size();
    (rows, bytes)
}

/// Keys with their table built.
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

/// What is made on a thread of its own, because it takes a while.
async fn on_thread<T: Send + 'static>(make: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    let made = tokio::task::spawn_blocking(make).await;
    made.map_err(|error| Error::Internal(format!("building a hash table of keys: {error}")))
}

/// Reads what tells where columns lie in the files of a dataset, so that lance has it at hand, and
/// deletion files. Whoever reads rows afterwards learns of errors.
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
    bound: Arc<KeptBound>,
    sstables: Mutex<OpenSsTables>,
    base: Arc<BaseCache>,
    verifies: AtomicBool,
}

impl Default for SsTableCache {
    fn default() -> Self {
        Self::with_limit(LIMIT_BYTES)
    }
}

impl SsTableCache {
    /// No SSTable yet; at most `limit_bytes` are kept of all of them.
    #[must_use]
    pub fn with_limit(limit_bytes: usize) -> Self {
        let bound = KeptBound::new(limit_bytes);
        let (sstables, verifies) = (Mutex::default(), AtomicBool::new(true));
        Self { base: BaseCache::new(&bound), bound, sstables, verifies }
    }

    /// Whether runs that are opened from now on are compared with their checksums.
    pub fn set_verifies(&self, verifies: bool) {
        self.verifies.store(verifies, Ordering::Relaxed);
    }

    /// The bound of all that is kept.
    #[must_use]
    pub const fn bound(&self) -> &Arc<KeptBound> {
        &self.bound
    }

    /// What is kept of the base table under the same bound.
    #[must_use]
    pub const fn base(&self) -> &Arc<BaseCache> {
        &self.base
    }

    /// The handle of an SSTable, opened where it is not.
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
            self.sstables.lock().entry(place).or_insert_with(|| Cached::new(&self.bound)).clone();
        handle.get_or_read(self.read(base, shard_id, sstable)).await
    }

    /// Opens those of `listed` that are not open, and reads what of their files every scan needs,
    /// or every lookup, for a reader that is busy with something else meanwhile. What fails here is opened again by
    /// [`Self::open`], whose caller learns why.
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

    /// The SSTable for whoever writes down for good what it says: what is known of it was read after its
    /// files were compared.
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

    /// The same, and all of its files are compared now. Where they were not before anything was read
    /// of them, it is read anew: a file that was damaged and brought back is whole, and what was read
    /// of it meanwhile is not.
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
        let kept = Cached::new(&self.bound);
        let anew = kept.get_or_read(ready(Ok((anew, bytes)))).await?;
        self.sstables.lock().insert(place, kept);
        Ok(anew)
    }

    async fn open_anew(
        &self,
        base: &Dataset,
        sstable: &SsTableHandle,
    ) -> Result<(SsTableHandle, usize)> {
        let name = sstable.name();
        let context = SsTableContext::new(base, sstable.shard_id).await.context(&name)?;
        let context = context.with_new_session();
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
        let mut context = SsTableContext::new(base, shard_id).await.context(&action)?;
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
            keys: Cached::new(&self.bound),
            filter: Cached::new(&self.bound),
            index: Cached::new(&self.bound),
            tombstones: Cached::new(&self.bound),
            trusted: is_ours(&dataset),
            verifies: self.verifies.load(Ordering::Relaxed),
            compared: None,
            rows: physical_rows(&dataset),
            row_bytes: None,
            pages_read: AtomicU64::new(0),
            columns: Arc::new(with_ids(dataset.schema())),
            row_readers: RowReaders::default(),
            dataset,
        };
        (handle, bytes)
    }

    /// Closes the SSTables of `shard_id` that no manifest lists any more.
    pub fn retain(&self, shard_id: ShardId, listed: &[SsTable]) {
        self.sstables.lock().retain(|(shard, path), _| {
            *shard != shard_id || listed.iter().any(|sstable| sstable.path == *path)
        });
    }

    /// Counters of what is kept: open SSTables, their keys, filters and indexes, keys of the base.
    #[must_use]
    pub fn stats(&self) -> KeptStats {
        self.bound.stats()
    }
}
