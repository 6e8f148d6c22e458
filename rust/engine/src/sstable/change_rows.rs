//! Change rows and remembered deletes as a Lance dataset of one fragment, in the form of an SSTable.
//!
//! Owns: the files of such a folder: the data file, the manifest with its checksums, and for change
//! rows the file that describes them; their order, and their durability.
//! Does not own: which rows they are (`crate::changes`, `crate::compaction`), or what names the
//! folder: a version, or the publication of a flush.

use arrow_schema::Schema as ArrowSchema;
use datafusion::execution::SendableRecordBatchStream;
use lance::Dataset;
use lance::dataset::WriteParams;
use lance::dataset::fragment::write::FragmentCreateBuilder;
use lance_core::datatypes::Schema;
use lance_core::{Error, Result};
use lance_io::object_store::ObjectStore;
use lance_table::format::{DataFile, Fragment};
use lancemem_core::format::paths;
use lancemem_core::types::ShardId;
use object_store::path::Path;

use super::checksums::{COMPARED_BYTES, DamagedFile, FileSum, SsTableFiles, compare, inside};
use super::data::FRAGMENT;
use super::open::open_sstable;
use super::write::put_manifest;
use super::{SsTableContext, sync};

/// The files of a folder of change rows, before they are described.
pub struct ChangeRowsFiles {
    context: SsTableContext,
    /// The name of the folder.
    name: String,
    /// The rows of the data file.
    pub rows: u64,
    /// The checksum of the manifest.
    pub manifest_crc32: u32,
}

impl SsTableContext {
    /// The folder of stored changes of the table version that `base` has open.
    ///
    /// # Errors
    /// A storage error.
    pub async fn of_changelog(base: &Dataset) -> Result<Self> {
        let root = base.branch_location().path;
        let folder = paths::CHANGELOG.split('/').fold(root, Path::join);
        let uri = format!("{}/{}", base.uri().trim_end_matches('/'), paths::CHANGELOG);
        Self::of_folder(base, folder, uri).await
    }

    /// The folder of the deletes that the table remembers, of the table version that `base` has open.
    ///
    /// # Errors
    /// A storage error.
    pub async fn of_graves(base: &Dataset) -> Result<Self> {
        let folder = paths::GRAVES.split('/').fold(base.branch_location().path, Path::join);
        let uri = format!("{}/{}", base.uri().trim_end_matches('/'), paths::GRAVES);
        Self::of_folder(base, folder, uri).await
    }

    /// The folder of the changes of a shard's flushes, of the table version that `base` has open.
    ///
    /// # Errors
    /// A storage error.
    pub async fn of_flushed_changes(base: &Dataset, shard_id: ShardId) -> Result<Self> {
        let path = paths::flushed_changes(shard_id);
        let folder = path.split('/').fold(base.branch_location().path, Path::join);
        let uri = format!("{}/{path}", base.uri().trim_end_matches('/'));
        Self::of_folder(base, folder, uri).await
    }
}

/// Writes `rows`, which have the columns `schema` with their field ids, to the new folder `name`.
///
/// # Errors
/// A storage error; an input error for no rows. Files that were written before an error stay
/// behind, and no version names them.
pub async fn write_change_rows(
    context: SsTableContext,
    name: String,
    schema: &ArrowSchema,
    rows: SendableRecordBatchStream,
) -> Result<ChangeRowsFiles> {
    // Columns without an id get those after the largest.
    let schema = Schema::try_from(schema)?;
    let params = WriteParams {
        // Positions are offsets in one file.
        max_rows_per_file: usize::MAX,
        max_bytes_per_file: usize::MAX,
        data_storage_version: Some(context.storage_version.to_selector()),
        store_params: context.store_params(&name),
        session: Some(context.session.clone()),
        ..WriteParams::default()
    };
    let uri = context.uri(&name);
    let builder = FragmentCreateBuilder::new(&uri).schema(&schema).write_params(&params);
    let mut fragments = Box::pin(builder.write_fragments(rows)).await?;
    let fragment = match (fragments.pop(), fragments.pop()) {
        (Some(fragment), None) => Fragment { id: FRAGMENT, ..fragment },
        _ => {
            return Err(Error::internal(format!("{uri} was not written as one fragment")));
        }
    };
    let rows = fragment.physical_rows.unwrap_or_default() as u64;
    let folder = context.folder(&name);
    let file = |file: &DataFile| folder.clone().join("data").join(file.path.as_str());
    let files: Vec<Path> = fragment.files.iter().map(file).collect();
    let sums = FileSum::of_all(&context.object_store, &folder, &files).await?;
    let manifest = put_manifest(&context, &folder, schema, fragment, &sums, None).await?;
    let manifest_crc32 = FileSum::of(&context.object_store, &folder, &manifest).await?.crc32;
    Ok(ChangeRowsFiles { context, name, rows, manifest_crc32 })
}

impl ChangeRowsFiles {
    /// Writes the description of the rows. When this returns, the folder is complete, and durable
    /// on a local disk.
    ///
    /// # Errors
    /// A storage error.
    pub async fn describe(&self, description: &[u8]) -> Result<()> {
        let folder = self.context.folder(&self.name);
        let path = folder.clone().join(paths::CHANGE_ROWS_FILE);
        self.context.object_store.put(&path, description).await?;
        self.sync().await
    }

    /// Makes the folder durable on a local disk.
    ///
    /// # Errors
    /// An error of the file system.
    pub async fn sync(&self) -> Result<()> {
        sync::sync_changes(&self.context, &self.context.folder(&self.name)).await
    }

    /// Removes the folder, which no version names.
    ///
    /// # Errors
    /// A storage error.
    pub async fn remove(&self) -> Result<()> {
        let store: &ObjectStore = &self.context.object_store;
        store.remove_dir_all(self.context.folder(&self.name)).await
    }
}

/// Opens the rows in the folder `name`, after comparing their manifest with its checksum, and their
/// data file where it is small. Larger data files are not compared.
///
/// # Errors
/// Damage; a storage error.
pub async fn open_change_rows(
    context: &SsTableContext,
    name: &str,
    manifest_crc32: u32,
) -> Result<Dataset> {
    let dataset = open_sstable(context, name).await?;
    let (store, folder) = (&context.object_store, context.folder(name));
    let file = inside(&folder, &dataset.manifest_location().path);
    FileSum { file, crc32: manifest_crc32 }.compare(store, &folder).await?;
    let sizes = dataset.fragments().iter().flat_map(|fragment| &fragment.files);
    let bytes: u64 = sizes.filter_map(|file| file.file_size_bytes.get()).map(u64::from).sum();
    if bytes <= COMPARED_BYTES {
        let compared = compare(&dataset, SsTableFiles::Rows).await?;
        if let Some(DamagedFile { file, kind }) = compared.damaged.into_iter().next() {
            let path = file.split('/').fold(folder, Path::join);
            return Err(Error::corrupt_file(path, kind));
        }
    }
    Ok(dataset)
}
