//! SSTables: frozen rows as immutable one-fragment Lance datasets beside the base table.
//!
//! Owns: the bytes of one flushed SSTable and how it is opened again. An SSTable is a folder
//! `{table}/_mem_wal/{shard}/{random}_gen_{generation}` with a Lance dataset at version 1 (one
//! data file, the rows superseded inside the SSTable as its deletion vector, indexes of the kinds
//! that the base table has), `bloom_filter.bin` and the key index `_pk_index/`, as lance 14.0.2
//! writes and reads them.
//! Does not own: when a MemTable is flushed, the shard manifest that lists an SSTable, which
//! SSTables a query reads, or their compaction and removal.
//!
//! Reading order: `write` (the order of the files), `data` (with `chunks` and `local_file`),
//! `sidecar`, `bloom`, `index_specs` and `indexes`, `merge_fence`, `checksums`, `sync`, `link`,
//! `segments`, then
//! `bounded`, `open` and `read`. `change_rows` are stored changes, which have the same form without keys.

mod bloom;
mod bounded;
mod change_rows;
mod checksums;
mod chunks;
mod data;
mod index_specs;
mod indexes;
mod link;
mod local_file;
mod merge_fence;
mod open;
mod read;
mod segments;
mod sidecar;
mod sync;
mod write;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use lance::Dataset;
use lance::dataset::mem_wal::util::shard_base_path;
use lance::dataset::mem_wal::{
    TOMBSTONE, arrow_schema_with_field_ids, relax_non_pk_nullability, schema_with_tombstone,
};
use lance::session::Session;
use lance_core::datatypes::Schema;
use lance_core::{Error, Result};
use lance_file::version::ConcreteFileVersion;
use lance_io::object_store::{ObjectStore, ObjectStoreParams};
use lancemem_core::format::paths;
use lancemem_core::merge::MergeRule;
use object_store::path::Path;
use roaring::RoaringBitmap;
use uuid::Uuid;

pub use bloom::KeyFilter;
pub use bounded::{OTHER_SIZE, no_file, other_size, read_whole};
pub use change_rows::{ChangeRowsFiles, open_change_rows, write_change_rows};
pub use checksums::{
    BlockSums, COMPARED_BYTES, Compared, DamagedFile, FileStamps, FileSum, SsTableFiles, compare,
    stamps,
};
pub use chunks::Chunks;
pub use data::{data_file_name, random_number};
pub use index_specs::{Build, FlushedIndexes, IndexSpec, IndexSpecs, Model, model_of};
pub use link::{Linked, link};
pub use merge_fence::checksum_of as checksum_of_rule;
pub use open::open_sstable;
pub use read::{KeyIndex, is_ours};
pub use segments::{LinkedRows, Segment, remove_segment, segment_of};
pub use sidecar::{PAGE_ROWS, PageMaker, PageStream, page_stream, page_stream_of, write_pages};
pub use sync::{
    files_of_commit, files_of_fragments, local_path, sync_base, sync_before_version, sync_folders,
    sync_indices, sync_table, sync_version_of,
};
pub use write::{routed_by, write_sstable};

/// The rows of one frozen MemTable, in the order in which they were put.
pub struct SsTableInput {
    /// The columns of the rows: the [`storage_schema`] at the time of the puts. The base table may
    /// have other columns since.
    pub schema: SchemaRef,
    /// The rows under that schema.
    pub batches: Vec<RecordBatch>,
    /// Names of the key columns in primary-key order; empty for a table without a key.
    pub key_columns: Arc<[String]>,
    /// Returns every row position, ordered by encoded key and then by position. It is called once,
    /// on a blocking thread while the rows are written, and only for a table with a key.
    pub rows_by_key: Box<dyn FnOnce() -> Vec<u32> + Send>,
    /// The rows that the SSTable hides; `None` for all rows of a key but the last one.
    pub hidden: Option<RoaringBitmap>,
    /// The indexes to build; empty for none.
    pub indexes: IndexSpecs,
}

/// The result of [`write_sstable`], for the entry of the SSTable in the shard manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SsTableWritten {
    /// Folder of the SSTable inside its shard, `{rand8hex}_gen_{generation}`.
    pub path: String,
    /// Rows in the data file, tombstones and superseded rows included.
    pub physical_rows: u64,
    /// Size of the rows in memory, as lance measures it: the used ranges of the buffers.
    pub in_memory_bytes: u64,
    /// Bytes of the key columns in `in_memory_bytes`; 0 for a table without a key.
    pub primary_key_bytes: u64,
}

/// Lance's default buffer size of a column.
pub const BUFFER_BYTES: usize = 8 << 20;

/// The location of the SSTables of one shard, and the settings that they inherit from the base
/// table.
#[derive(Clone)]
pub struct SsTableContext {
    /// The base table's object store.
    pub object_store: Arc<ObjectStore>,
    /// `{table}/_mem_wal/{shard}` inside that store.
    pub shard_path: Path,
    /// The same folder as a URI.
    pub shard_uri: String,
    /// The file version of the base table, which its SSTables share.
    pub storage_version: ConcreteFileVersion,
    /// Whether an SSTable on a local disk is synced before it counts as written.
    pub fsync: bool,
    /// Whether the checksum of a manifest is verified.
    pub verifies: bool,
    /// Bytes of a column that form a page, and bytes that may wait for a local disk.
    pub buffer_bytes: usize,
    /// The sharding that routed the rows to this shard, where the SSTable itself records it.
    pub routed_by: Option<String>,
    /// The checksum of the table's merge rule; `None` for a table without a rule.
    rule: Option<String>,
    /// How the base table was opened, so that an SSTable is opened with the same credentials.
    store_params: Option<ObjectStoreParams>,
    /// Caches and object stores shared with the base table.
    session: Arc<Session>,
}

impl SsTableContext {
    /// The context of the SSTables of `shard_id`, for the table version that `base` has open.
    ///
    /// # Errors
    /// An input error for a base table with a column of the reserved name `_tombstone`.
    pub async fn new(base: &Dataset, shard_id: Uuid) -> Result<Self> {
        if base.schema().field(TOMBSTONE).is_some() {
            return Err(Error::invalid_input(format!(
                "table {} has a column with the reserved name '{TOMBSTONE}'; rename the column",
                base.uri()
            )));
        }
        let folder = shard_base_path(&base.branch_location().path, &shard_id);
        let uri = format!("{}/{}", base.uri().trim_end_matches('/'), paths::shard(shard_id));
        Self::of_folder(base, folder, uri).await
    }

    /// The context of datasets in `folder`, whose URI is `uri`.
    async fn of_folder(base: &Dataset, folder: Path, uri: String) -> Result<Self> {
        Ok(Self {
            object_store: base.object_store(None).await?,
            shard_path: folder,
            shard_uri: uri,
            fsync: true,
            verifies: true,
            buffer_bytes: BUFFER_BYTES,
            routed_by: None,
            rule: None,
            storage_version: base.manifest().data_storage_format.lance_file_format(),
            store_params: base.store_params().cloned(),
            session: base.session(),
        })
    }

    /// The same for SSTables of a table with this merge rule.
    #[must_use]
    pub fn with_rule(self, rule: Option<&MergeRule>) -> Self {
        Self { rule: rule.map(merge_fence::checksum_of), ..self }
    }

    /// The same with empty caches, so that everything is read from storage again.
    #[must_use]
    pub fn with_new_session(self) -> Self {
        Self { session: Arc::default(), ..self }
    }

    /// The folder of the SSTable `name` inside the object store.
    fn folder(&self, name: &str) -> Path {
        self.shard_path.clone().join(name)
    }

    /// The URI of the SSTable `name`.
    fn uri(&self, name: &str) -> String {
        format!("{}/{name}", self.shard_uri)
    }

    /// The parameters that resolve [`Self::uri`] to the store that the base table uses.
    ///
    /// A store bound by `ObjectStoreParams::object_store` comes with one location, which every open
    /// uses instead of its URI. Unchanged, the SSTable would be opened at the base table's
    /// location, so the store is bound again to the SSTable's folder.
    fn store_params(&self, name: &str) -> Option<ObjectStoreParams> {
        let mut params = self.store_params.clone()?;
        #[expect(deprecated, reason = "a binding that others may still set")]
        if let Some((_, location)) = params.object_store.as_mut() {
            location.set_path(self.folder(name).as_ref());
        }
        Some(params)
    }
}

/// The schema of MemTables, WAL entries and SSTables of a table with the schema `base`.
///
/// The base table's columns with their field ids in the metadata key `lance:field_id`, then
/// `_tombstone` (not null), which has no field id before an SSTable assigns one. Columns outside
/// the key are nullable, because a tombstone has only its key.
#[must_use]
pub fn storage_schema(base: &Schema, key_columns: &[String]) -> SchemaRef {
    let with_tombstone = schema_with_tombstone(&arrow_schema_with_field_ids(base));
    relax_non_pk_nullability(&with_tombstone, key_columns)
}
