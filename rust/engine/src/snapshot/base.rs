//! The cache of the base table, for lookups by key.
//!
//! Owns: the scalar index on the key column and the record index, each with the fragments that it
//! covers, the keys of the fragments that a lookup has read into memory, and the place of the deletes
//! that a version remembers.
//! Does not own: which of them a lookup uses (`lookup`), or how long keys stay (`cache`).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::{FutureExt, TryStreamExt};
use lance::Dataset;
use lance::dataset::fragment::FileFragment;
use lance::index::{DatasetIndexExt, DatasetIndexInternalExt};
use lance_index::metrics::NoOpMetricsCollector;
use lance_index::scalar::ScalarIndex;
use lance_table::format::{Fragment, IndexMetadata};
use lance_table::system_index::frag_reuse::FRAG_REUSE_INDEX_NAME;
use lancemem_core::format::KeyEncoder;
use lancemem_core::types::{Error, KeyBlock, Result};
use parking_lot::Mutex;
use roaring::RoaringBitmap;

use super::base_rows::BaseRows;
use super::cache::{CacheBudget, Cached};
use super::graves::GraveCache;
use super::row_readers::RowReaders;
use super::sstable_keys::SsTableKeys;
use super::sstables::with_table;
use crate::errors::BaseContext;
use crate::record_index::{IndexRuns, RecordIndex, column_batches, key_files, key_ids};

/// The cache of one base table, shared by its versions.
#[derive(Debug)]
pub struct BaseCache {
    budget: Arc<CacheBudget>,
    /// The version that was used last.
    open: Mutex<Option<Arc<OpenBase>>>,
    /// The rows of the version that was read last.
    rows: Mutex<Option<Arc<BaseRows>>>,
    /// By fragment id and data files: a fragment whose key columns were rewritten is another one.
    fragments: Mutex<HashMap<String, Arc<FragmentKeys>>>,
    runs: IndexRuns,
    /// Whether lookups use the record index, which describes the newest version.
    uses_record_index: bool,
    graves: GraveCache,
}

/// The base table at one version, as a lookup needs it.
#[derive(Debug)]
pub struct OpenBase {
    version: u64,
    /// Every fragment, oldest first.
    pub fragments: Vec<BaseFragment>,
    /// The segments of the index on the key column; empty where no index can be used.
    pub segments: Vec<Arc<dyn ScalarIndex>>,
    /// Fragments that the segments cover.
    pub covered: RoaringBitmap,
    /// The record index, which may cover no fragment.
    pub record_index: RecordIndex,
    /// Reads rows of this version.
    pub rows: Arc<RowReaders>,
}

/// A fragment of one version.
#[derive(Debug)]
pub struct BaseFragment {
    /// Its id, the upper half of its rows' addresses.
    pub id: u32,
    /// Rows of its data files, deleted ones included.
    pub rows: u64,
    /// Whether values of its rows lie outside its data files. Only Lance reads such rows correctly.
    pub has_overlays: bool,
    /// The slot of its keys, whether they are in memory or not.
    pub keys: Arc<FragmentKeys>,
}

/// The keys of all rows of a fragment's data files, deleted ones included.
#[derive(Debug)]
pub struct FragmentKeys {
    keys: Arc<Cached<SsTableKeys>>,
    /// Lookups that read the fragment because its keys were not in memory.
    lookups: AtomicU64,
}

impl BaseCache {
    /// An empty cache under `budget`.
    #[must_use]
    pub fn new(budget: &Arc<CacheBudget>) -> Arc<Self> {
        Arc::new(Self::with(budget, true))
    }

    /// The cache of an older version, whose lookups read keys and table indexes of that version.
    #[must_use]
    pub fn without_record_index(budget: &Arc<CacheBudget>) -> Arc<Self> {
        Arc::new(Self::with(budget, false))
    }

    fn with(budget: &Arc<CacheBudget>, uses_record_index: bool) -> Self {
        let (open, rows, fragments) = (Mutex::default(), Mutex::default(), Mutex::default());
        let (runs, graves) = (IndexRuns::default(), GraveCache::new(budget));
        Self { budget: budget.clone(), open, rows, fragments, runs, uses_record_index, graves }
    }

    /// The byte budget of the cache.
    #[must_use]
    pub fn limit_bytes(&self) -> usize {
        self.budget.stats().limit_bytes
    }

    /// Makes the next lookup open the record index again. The record index changes without a new
    /// version of the base table.
    pub fn forget(&self) {
        *self.open.lock() = None;
    }

    /// The deletes that a base version remembers, which were read last.
    #[must_use]
    pub const fn graves(&self) -> &GraveCache {
        &self.graves
    }

    /// The runs of the record index that this process has open.
    #[must_use]
    pub const fn index_runs(&self) -> &IndexRuns {
        &self.runs
    }

    /// The coverage of `base` by the record index now, independent of the last lookup.
    pub async fn record_index(&self, base: &Dataset, key: &[String]) -> RecordIndex {
        self.runs.open(base, key).await
    }

    /// The rows of `base` by their addresses.
    pub fn rows(&self, base: &Dataset) -> Arc<BaseRows> {
        let version = base.version().version;
        let mut known = self.rows.lock();
        match known.as_ref() {
            Some(rows) if rows.version == version => rows.clone(),
            _ => known.insert(Arc::new(BaseRows::new(version))).clone(),
        }
    }

    /// The indexes and keys of `base` that a lookup needs.
    ///
    /// # Errors
    /// A storage error while an index is opened.
    pub async fn open(&self, base: &Dataset, key: &[String]) -> Result<Arc<OpenBase>> {
        let version = base.version().version;
        let known = self.open.lock().clone();
        if let Some(known) = known.filter(|known| known.version == version) {
            return Ok(known);
        }
        let record_index = async {
            if self.uses_record_index {
                self.runs.open(base, key).await
            } else {
                RecordIndex::default()
            }
        };
        let ((segments, covered), record_index) =
            futures::try_join!(open_index(base, key), record_index.map(Ok))?;
        let ids = key_ids(base, key);
        let mut known = self.fragments.lock();
        let fragments: HashMap<String, BaseFragment> = base
            .manifest()
            .fragments
            .iter()
            .map(|fragment| {
                let place = place_of(fragment, &ids);
                let keys = known.get(&place).cloned();
                let keys = keys.unwrap_or_else(|| FragmentKeys::new(&self.budget));
                Ok((place, BaseFragment::new(fragment, keys)?))
            })
            .collect::<Result<_>>()?;
        *known = fragments.iter().map(|(place, it)| (place.clone(), it.keys.clone())).collect();
        drop(known);
        let mut fragments: Vec<BaseFragment> = fragments.into_values().collect();
        fragments.sort_by_key(|fragment| fragment.id);
        let rows = self.rows(base).readers.clone();
        let opened =
            Arc::new(OpenBase { version, fragments, segments, covered, record_index, rows });
        *self.open.lock() = Some(opened.clone());
        Ok(opened)
    }
}

impl BaseFragment {
    fn new(fragment: &Fragment, keys: Arc<FragmentKeys>) -> Result<Self> {
        let id = u32::try_from(fragment.id).map_err(|_| {
            Error::internal(format!("fragment id {} exceeds 2^32 - 1", fragment.id))
        })?;
        // Old writers record no number of rows; such a fragment counts as too large for memory.
        let rows = fragment.physical_rows.map_or(u64::MAX, |rows| rows as u64);
        Ok(Self { id, rows, has_overlays: !fragment.overlays.is_empty(), keys })
    }
}

impl FragmentKeys {
    fn new(budget: &Arc<CacheBudget>) -> Arc<Self> {
        Arc::new(Self { keys: Cached::new(budget), lookups: AtomicU64::new(0) })
    }

    /// The keys, where they are in memory.
    #[must_use]
    pub fn in_memory(&self) -> Option<Arc<SsTableKeys>> {
        self.keys.present()
    }

    /// Adds the cost of a lookup without keys in memory, and returns the sum of all such costs.
    pub fn add_cost(&self, cost: u64) -> u64 {
        self.lookups.fetch_add(cost, Ordering::Relaxed) + cost
    }

    /// The keys, read where they are not in memory. The position of a key is its row's offset.
    ///
    /// # Errors
    /// A storage error.
    pub async fn read(&self, fragment: &FileFragment, key: &[String]) -> Result<Arc<SsTableKeys>> {
        let read = async {
            let keys = read_keys(fragment, key).await?;
            let bytes = keys.heap_bytes();
            Ok((keys, bytes))
        };
        self.keys.get_or_read(read).await
    }
}

async fn read_keys(fragment: &FileFragment, key: &[String]) -> Result<SsTableKeys> {
    let action = "reading keys of the base table";
    let mut stream = column_batches(fragment, key).await.in_base(action)?;
    let mut keys = KeyBlock::default();
    while let Some(batch) = stream.try_next().await.in_base(action)? {
        keys.append(&KeyEncoder::new(batch.schema_ref(), key)?.encode_block(&batch));
    }
    with_table(move || SsTableKeys::dense(keys)).await
}

/// The identity of a fragment's key columns: the fragment id and the data files that hold them.
fn place_of(fragment: &Fragment, key_ids: &[i32]) -> String {
    let files = key_files(fragment, key_ids).into_iter();
    files.fold(fragment.id.to_string(), |place, file| format!("{place}/{file}"))
}

/// The segments of the index on the key column, and the fragments that they cover.
///
/// Empty where the row ids of an answer would need translation: a key of several columns, stable
/// row ids, or rows that moved since the index was built (Lance's fragment reuse index).
async fn open_index(
    base: &Dataset,
    key: &[String],
) -> Result<(Vec<Arc<dyn ScalarIndex>>, RoaringBitmap)> {
    let action = "opening the index on the key of the base table";
    let none = (Vec::new(), RoaringBitmap::new());
    let [column] = key else { return Ok(none) };
    let Some(field) = base.schema().field(column) else { return Ok(none) };
    if base.manifest().uses_stable_row_ids() {
        return Ok(none);
    }
    let indices = base.load_indices().await.in_base(action)?;
    if indices.iter().any(|index| index.name == FRAG_REUSE_INDEX_NAME) {
        return Ok(none);
    }
    let present: RoaringBitmap = base
        .manifest()
        .fragments
        .iter()
        .filter(|fragment| fragment.overlays.is_empty())
        .filter_map(|fragment| u32::try_from(fragment.id).ok())
        .collect();
    let (mut segments, mut covered) = none;
    for index in indices.iter().filter(|index| is_btree_on(index, field.id)) {
        let Some(fragments) = &index.fragment_bitmap else { continue };
        let opened = base.open_scalar_index(column, &index.uuid, &NoOpMetricsCollector).await;
        segments.push(opened.in_base(action)?);
        covered |= fragments & &present;
    }
    Ok((segments, covered))
}

fn is_btree_on(index: &IndexMetadata, field: i32) -> bool {
    let details = index.index_details.as_ref();
    index.fields == [field] && details.is_some_and(|it| it.type_url.ends_with("BTreeIndexDetails"))
}
