//! Writing one SSTable.
//!
//! Owns: the order of its files (everything that the manifest names, then the manifest), what is
//! written at the same time, its schema and field ids, and its manifest.
//! Does not own: the data file, the key index, the bloom filter and Lance's indexes (`data`,
//! `sidecar`, `bloom`, `indexes`), or retries: the collector removes the folder of a failed attempt,
//! and a retry uses a new folder.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use bytes::Bytes;
use datafusion::common::runtime::SpawnedTask;
use futures::TryStreamExt;
use lance::Dataset;
use lance_core::datatypes::Schema;
use lance_core::utils::deletion::DeletionVector;
use lance_core::{Error, Result};
use lance_io::object_store::ObjectStore;
use lance_table::feature_flags::apply_feature_flags;
use lance_table::format::{DataStorageFormat, DeletionFile, Fragment, IndexMetadata, Manifest};
use lance_table::io::commit::{ManifestNamingScheme, write_manifest_file_to_path};
use lance_table::io::deletion::{deletion_file_path, write_deletion_file};
use lancemem_core::format::paths;
use lancemem_core::types::Generation;
use object_store::ObjectStoreExt;
use object_store::path::Path;
use roaring::RoaringBitmap;

use super::checksums::FileSum;
use super::chunks::{Chunks, window_bytes};
use super::data::{self, FRAGMENT};
use super::indexes::write_indexes;
use super::open::{INDEX_SECTION, before_message, sealed};
use super::{
    SsTableContext, SsTableInput, SsTableWritten, bloom, merge_fence, read, sidecar, sync,
};

/// Most random names that are drawn for an SSTable.
const DRAWS: usize = 8;

/// The only version of an SSTable.
pub(super) const VERSION: u64 = 1;

/// The key of the manifest configuration that stores the sharding that routed the rows to the
/// shard.
const ROUTED_BY: &str = "lancemem.sharding";

/// The sharding that the manifest of an SSTable records.
#[must_use]
pub fn routed_by(sstable: &Dataset) -> Option<&str> {
    sstable.config().get(ROUTED_BY).map(String::as_str)
}

/// Writes the rows of one frozen MemTable as the SSTable `generation`, in a folder of a new name.
///
/// When this returns, the SSTable is complete and can be opened. On a local disk it is durable,
/// unless `fsync` is off in the context. No reader sees it before a shard manifest lists it.
///
/// # Errors
/// An error of the object store, or an input error for rows that do not have the storage schema.
/// Files that were written before an error stay behind; no manifest lists them.
pub async fn write_sstable(
    context: &SsTableContext,
    generation: Generation,
    input: SsTableInput,
) -> Result<SsTableWritten> {
    let arrow_schema = input.schema.clone();
    let rows = check_input(&arrow_schema, &input.batches)?;
    let keys = key_batches(&input)?;
    let path = new_folder(context, generation).await?;
    let folder = context.folder(&path);
    // The base table's columns keep their ids, so that a reader finds a column after a rename;
    // `_tombstone`, the only one without, gets the id after the largest.
    let schema = Schema::try_from(arrow_schema.as_ref())?;

    // Separate tasks, so that encoding rows and hashing keys run in parallel.
    let (batches, key_batches) = (input.batches.clone(), keys.clone());
    let sizes =
        SpawnedTask::spawn_blocking(move || (memory_bytes(&batches), key_bytes(&key_batches)));
    let keys =
        write_keys(context.clone(), folder.clone(), rows, keys, (input.rows_by_key, input.hidden));
    let keys = SpawnedTask::spawn(keys);
    let rows_written = data::write_data(
        context.clone(),
        path.clone(),
        schema.clone(),
        arrow_schema,
        input.batches,
    );
    let rows_written = SpawnedTask::spawn(rows_written);
    let ((mut fragment, sums), keys) =
        futures::try_join!(async { rows_written.await? }, async { keys.await? })?;
    if fragment.physical_rows != usize::try_from(rows).ok() {
        return Err(Error::internal(format!(
            "SSTable {}: expected {rows} written rows, found {:?}",
            context.uri(&path),
            fragment.physical_rows
        )));
    }
    fragment.deletion_file = keys.deletion_file;
    let sums: Vec<FileSum> = sums.into_iter().chain(keys.sums).collect();
    let settings = settings(context, keys.filter_checksum);
    let mut manifest = new_manifest(context, schema, fragment, &sums, settings)?;
    let indexes = Box::pin(write_indexes(context, &path, &manifest, &input.indexes)).await;
    indexes.sums.iter().for_each(|sum| sum.note(&mut manifest));
    if let Some(rule) = &context.rule {
        // Last: lance opens the manifest without the flag, to build indexes over the rows.
        merge_fence::fence(&mut manifest, rule);
    }
    store_manifest(context, &folder, manifest, indexes.entries).await?;
    let synced = [keys.synced, indexes.synced].concat();
    sync::sync_sstable(context, &folder, &synced).await?;

    let (in_memory_bytes, primary_key_bytes) = sizes.await?;
    Ok(SsTableWritten { path, physical_rows: rows, in_memory_bytes, primary_key_bytes })
}

/// The name of an empty folder. It has 32 random bits, so with many SSTables a name can be drawn
/// twice; then another one is drawn.
async fn new_folder(context: &SsTableContext, generation: Generation) -> Result<String> {
    for _ in 0..DRAWS {
        let path = paths::sstable_folder(data::random_number()?, generation);
        let folder = context.folder(&path);
        let mut listed = context.object_store.inner.list(Some(&folder));
        if listed.try_next().await?.is_none() {
            return Ok(path);
        }
    }
    Err(Error::internal(format!(
        "all {DRAWS} random folder names for generation {generation} exist in {}",
        context.shard_uri
    )))
}

/// The number of rows, after checking that they can form an SSTable of the schema.
fn check_input(schema: &SchemaRef, batches: &[RecordBatch]) -> Result<u64> {
    let mut fitting: Option<SchemaRef> = None;
    for batch in batches {
        // Almost always the very schema of the previous batch, which needs no comparison.
        let have = batch.schema_ref();
        if fitting.as_ref().is_some_and(|fitting| Arc::ptr_eq(fitting, have)) {
            continue;
        }
        // Metadata may differ: replayed rows carry the metadata of the log.
        let fits = have.fields().len() == schema.fields().len()
            && have.fields().iter().zip(schema.fields()).all(|(have, want)| {
                have.name() == want.name() && have.data_type().equals_datatype(want.data_type())
            });
        if !fits {
            return Err(Error::invalid_input(format!(
                "rows with the schema {have:?} do not fit the storage schema {schema:?}",
            )));
        }
        fitting = Some(have.clone());
    }
    let rows: u64 = batches.iter().map(|batch| batch.num_rows() as u64).sum();
    // Positions and deletion vectors have 32 bits.
    if rows == 0 || rows > u64::from(u32::MAX) {
        return Err(Error::invalid_input(format!(
            "an SSTable is limited to 1 to 2^32 - 1 rows, got {rows} rows"
        )));
    }
    Ok(rows)
}

/// The key columns of each batch, in primary-key order; no batches for a table without a key.
fn key_batches(input: &SsTableInput) -> Result<Vec<RecordBatch>> {
    if input.key_columns.is_empty() {
        return Ok(Vec::new());
    }
    let schema = input.batches[0].schema();
    let mut columns = Vec::with_capacity(input.key_columns.len());
    for name in input.key_columns.iter() {
        let column = schema
            .index_of(name)
            .map_err(|_| Error::invalid_input(format!("primary key column '{name}' is missing")))?;
        columns.push(column);
    }
    input.batches.iter().map(|batch| Ok(batch.project(&columns)?)).collect()
}

/// The files that follow from the keys alone.
struct WrittenKeys {
    deletion_file: Option<DeletionFile>,
    filter_checksum: u32,
    /// Checksums of the other files.
    sums: Vec<FileSum>,
    /// The files that are durable already.
    synced: Vec<PathBuf>,
}

/// Writes key index, deletion vector and bloom filter of an SSTable with `rows` rows.
async fn write_keys(
    context: SsTableContext,
    folder: Path,
    rows: u64,
    keys: Vec<RecordBatch>,
    (rows_by_key, hidden): (Box<dyn FnOnce() -> Vec<u32> + Send>, Option<RoaringBitmap>),
) -> Result<WrittenKeys> {
    let store = &context.object_store;
    let Some(first) = keys.first() else {
        let filter = bloom::key_filter(&[], rows)?;
        let filter_checksum = bloom::checksum(&filter);
        let filter = write_filter(&context, &folder, filter).await?;
        let synced = sync::sync_files(&context, &[filter]).await?;
        return Ok(WrittenKeys { deletion_file: None, filter_checksum, sums: Vec::new(), synced });
    };
    let (maker, pages) = sidecar::page_stream(first.schema_ref());
    let pass = SpawnedTask::spawn_blocking(move || -> Result<_> {
        let keys: Vec<RecordBatch> = Chunks::of(keys).collect::<std::result::Result<_, _>>()?;
        let superseded = maker.make_all(&keys, &rows_by_key(), u64::from)?;
        let superseded = hidden_among(superseded, hidden)?;
        let filter = bloom::key_filter(&keys, rows - superseded.len())?;
        Ok((superseded, filter))
    });
    let index = async {
        let files = sidecar::write_key_index(store.clone(), &folder, pages).await?;
        let sums = FileSum::of_all(store, &folder, &files);
        futures::try_join!(sums, sync::sync_files(&context, &files))
    };
    let rest = async {
        let (superseded, filter) = pass.await??;
        let checksum = bloom::checksum(&filter);
        let deletions = write_deletions(&context, &folder, superseded);
        let filter = write_filter(&context, &folder, filter);
        let (deletion_file, filter) = futures::try_join!(deletions, filter)?;
        let file = deletion_file.as_ref().map(|file| deletion_file_path(&folder, FRAGMENT, file));
        let sums = FileSum::of_all(store, &folder, file.as_slice()).await?;
        let files: Vec<Path> = file.into_iter().chain([filter]).collect();
        Ok((deletion_file, checksum, sums, sync::sync_files(&context, &files).await?))
    };
    // Boxed: lance's futures are large, and the caller's future would contain them.
    let written = futures::try_join!(Box::pin(index), Box::pin(rest))?;
    let ((index_sums, index), (deletion_file, filter_checksum, sums, rest)) = written;
    let (sums, synced) = ([index_sums, sums].concat(), [index, rest].concat());
    Ok(WrittenKeys { deletion_file, filter_checksum, sums, synced })
}

/// The rows to hide: `hidden`, one row of each key but one, or by default the rows `superseded`.
fn hidden_among(superseded: RoaringBitmap, hidden: Option<RoaringBitmap>) -> Result<RoaringBitmap> {
    let Some(hidden) = hidden else { return Ok(superseded) };
    if hidden.len() != superseded.len() {
        return Err(Error::internal(format!(
            "{} rows are to be hidden, expected {}: all rows of a key but one",
            hidden.len(),
            superseded.len()
        )));
    }
    Ok(hidden)
}

async fn write_deletions(
    context: &SsTableContext,
    folder: &Path,
    superseded: RoaringBitmap,
) -> Result<Option<DeletionFile>> {
    let superseded = DeletionVector::from(superseded);
    write_deletion_file(folder, FRAGMENT, VERSION, &superseded, &context.object_store).await
}

async fn write_filter(context: &SsTableContext, folder: &Path, filter: Vec<u8>) -> Result<Path> {
    let path = folder.clone().join(read::BLOOM_FILTER);
    context.object_store.put(&path, &filter).await?;
    Ok(path)
}

/// The settings in the manifest of an SSTable that its readers look for.
fn settings(
    context: &SsTableContext,
    filter_checksum: u32,
) -> impl Iterator<Item = (String, String)> + use<> {
    let filter = (bloom::CHECKSUM.to_owned(), bloom::checksum_text(filter_checksum));
    let sharding = context.routed_by.clone().map(|sharding| (ROUTED_BY.to_owned(), sharding));
    std::iter::once(filter).chain(sharding)
}

/// Writes the manifest of a dataset without indexes, and returns its path.
pub(super) async fn put_manifest(
    context: &SsTableContext,
    folder: &Path,
    schema: Schema,
    fragment: Fragment,
    sums: &[FileSum],
    settings: impl IntoIterator<Item = (String, String)>,
) -> Result<Path> {
    let manifest = new_manifest(context, schema, fragment, sums, settings)?;
    store_manifest(context, folder, manifest, Vec::new()).await
}

/// A manifest made by hand: only lance's own crate can create a dataset with given field ids. There
/// is no transaction, as in the manifest that lance rewrites to add the deletion vector.
fn new_manifest(
    context: &SsTableContext,
    schema: Schema,
    fragment: Fragment,
    sums: &[FileSum],
    settings: impl IntoIterator<Item = (String, String)>,
) -> Result<Manifest> {
    let format = DataStorageFormat::new(context.storage_version);
    let mut manifest = Manifest::new(schema, Arc::new(vec![fragment]), format, HashMap::new());
    manifest.writer_version = Some(read::our_writer());
    for sum in sums {
        sum.note(&mut manifest);
    }
    manifest.config_mut().extend(settings);
    manifest.set_timestamp(nanoseconds_now());
    manifest.update_max_fragment_id();
    apply_feature_flags(&mut manifest, false, false)?;
    Ok(manifest)
}

/// Writes the file of a manifest, and returns its path.
///
/// Lance encodes the manifest into memory; its message is then checksummed and stored. The checksum
/// of the message does not cover the index section before it, whose checksum is a setting.
async fn store_manifest(
    context: &SsTableContext,
    folder: &Path,
    mut manifest: Manifest,
    indexes: Vec<IndexMetadata>,
) -> Result<Path> {
    let path = ManifestNamingScheme::V2.manifest_path(folder, VERSION);
    let indexes = Some(indexes).filter(|indexes| !indexes.is_empty());
    let unreadable = || Error::internal("the manifest file that lance encoded has no message");
    if indexes.is_some() {
        let bytes = encoded(&mut manifest, indexes.clone(), &path).await?;
        let section = before_message(&bytes).ok_or_else(unreadable)?;
        let checksum = bloom::checksum_text(crc32fast::hash(section));
        manifest.config_mut().insert(INDEX_SECTION.to_owned(), checksum);
    }
    let bytes = encoded(&mut manifest, indexes, &path).await?;
    let file = sealed(&bytes).ok_or_else(unreadable)?;
    context.object_store.put(&path, &file).await?;
    Ok(path)
}

/// The file of a manifest as Lance encodes it.
async fn encoded(
    manifest: &mut Manifest,
    indexes: Option<Vec<IndexMetadata>>,
    path: &Path,
) -> Result<Bytes> {
    let memory = ObjectStore::memory();
    write_manifest_file_to_path(&memory, manifest, indexes, path, None).await?;
    Ok(memory.inner.get(path).await?.bytes().await?)
}

/// The timestamp of a manifest, shown in the list of a dataset's versions.
#[expect(clippy::disallowed_methods, reason = "a label for people; nothing decides by it")]
fn nanoseconds_now() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos()
}

/// The constant that lance adds to the size of each batch.
const BATCH_BYTES: u64 = size_of::<RecordBatch>() as u64;

fn memory_bytes(batches: &[RecordBatch]) -> u64 {
    batches.iter().map(|batch| window_bytes(batch) as u64 + BATCH_BYTES).sum()
}

fn key_bytes(keys: &[RecordBatch]) -> u64 {
    keys.iter().map(|batch| window_bytes(batch) as u64).sum()
}
