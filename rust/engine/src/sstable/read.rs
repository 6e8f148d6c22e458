//! The bloom filter and the key index of an SSTable, for lookups by key.
//!
//! Owns: which SSTables have a trusted filter and key index, and how both are opened.
//! Does not own: how long they are cached, or when a lookup uses them.
//!
//! Both can report a key as absent, and a false negative would return an older row. SSTables of
//! lance 14.0.2 have false negatives. Its bloom filter hashes only the null flags of key columns
//! other than int32, int64, utf8 and binary, and its key index lacks rows that were not indexed yet
//! when the flush began. No specification defines the hash of the filter, so another version may
//! use another hash. Hence both are trusted only where the SSTable's manifest names lancemem as the
//! writer. For other SSTables the key columns are read.

use std::sync::{Arc, LazyLock};

use datafusion::common::ScalarValue;
use lance::Dataset;
use lance::dataset::mem_wal::util::pk_index_path;
use lance_core::cache::LanceCache;
use lance_core::deepsize::DeepSizeOf;
use lance_core::{Error, Result};
use lance_index::metrics::NoOpMetricsCollector;
use lance_index::registry::IndexPluginRegistry;
use lance_index::scalar::btree::BTREE_INDEX_VERSION;
use lance_index::scalar::lance_format::LanceIndexStore;
use lance_index::scalar::{SargableQuery, ScalarIndex, SearchResult};
use lance_table::format::WriterVersion;
use lancemem_core::types::MaxBytes;

use super::bloom::{CHECKSUM, KeyFilter};
use super::bounded::{read_whole, refuse_no_file};

/// The bloom filter's file name in the specification.
pub(super) const BLOOM_FILTER: &str = "bloom_filter.bin";
/// The files of an SSTable's key index.
const KEY_INDEX_FILES: [&str; 2] = ["page_data.lance", "page_lookup.lance"];
/// The writer that an SSTable's manifest names.
pub(super) const LIBRARY: &str = "lancemem";

static PLUGINS: LazyLock<Arc<IndexPluginRegistry>> =
    LazyLock::new(IndexPluginRegistry::with_default_plugins);

/// The writer that the manifest of an SSTable records.
pub(super) fn our_writer() -> WriterVersion {
    WriterVersion {
        library: LIBRARY.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        prerelease: None,
        build_metadata: None,
    }
}

/// Whether lancemem wrote the SSTable, so that its filter and its key index hold every key.
#[must_use]
pub fn is_ours(sstable: &Dataset) -> bool {
    sstable.manifest().writer_version.as_ref().is_some_and(|writer| writer.library == LIBRARY)
}

impl KeyFilter {
    /// Reads the filter of an SSTable.
    ///
    /// # Errors
    /// A storage error, or damage.
    pub async fn read(sstable: &Dataset) -> Result<Self> {
        let store = sstable.object_store(None).await?;
        let path = sstable.branch_location().path.clone().join(BLOOM_FILTER);
        Self::checked(
            &read_whole(&store, &path, MaxBytes::FILTER).await?,
            sstable.config().get(CHECKSUM),
        )
    }
}

/// The key index of an SSTable. Its pages are read for each lookup, and not cached.
#[derive(Debug)]
pub struct KeyIndex(Arc<dyn ScalarIndex>);

impl KeyIndex {
    /// Opens the key index of an SSTable.
    ///
    /// # Errors
    /// A storage error, or an error for a damaged index.
    #[expect(clippy::default_trait_access, reason = "a type of a crate that lance uses")]
    pub async fn open(sstable: &Dataset) -> Result<Self> {
        let store = sstable.object_store(None).await?;
        let folder = pk_index_path(&sstable.branch_location().path);
        for file in KEY_INDEX_FILES {
            refuse_no_file(&store, &folder.clone().join(file))?;
        }
        let cache = LanceCache::no_cache();
        let files = LanceIndexStore::new(store, folder, Arc::new(cache.clone()));
        let plugin = PLUGINS.get_plugin_by_name("BTree")?;
        let details = Default::default();
        let version = BTREE_INDEX_VERSION;
        let index = plugin.load_index(Arc::new(files), &details, version, None, &cache).await?;
        Ok(Self(index))
    }

    /// The position of the newest row of `key`: the value of the only key column, or the encoded
    /// key as Binary.
    ///
    /// # Errors
    /// A storage error.
    pub async fn newest(&self, key: ScalarValue) -> Result<Option<u32>> {
        let found = self.0.search(&SargableQuery::Equals(key), &NoOpMetricsCollector).await?;
        let SearchResult::Exact(rows) = found else {
            return Err(Error::internal("the key index of an SSTable gave an inexact answer"));
        };
        // Superseded rows are in the index as well; the last row of a key is the newest one.
        let rows = rows.true_rows();
        let newest = rows.row_addrs().and_then(|rows| rows.map(u64::from).max());
        newest
            .map(|row| {
                u32::try_from(row).map_err(|_| {
                    Error::internal(format!("row {row} in the key index of an SSTable is >= 2^32"))
                })
            })
            .transpose()
    }

    /// Bytes of the index in memory.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.0.deep_size_of()
    }
}
