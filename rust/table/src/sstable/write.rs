//! Writing one run.
//!
//! Owns: the order of its files (everything that the manifest names, then the manifest), its
//! schema and field ids, and its manifest.
//! Does not own: the formats of the key index and the bloom filter (`sidecar`, `bloom`), or
//! retries: a failed attempt leaves its folder to the collector, the next one takes another.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchIterator};
use arrow_schema::SchemaRef;
use lance::dataset::WriteParams;
use lance::dataset::fragment::write::FragmentCreateBuilder;
use lance::dataset::mem_wal::util::generate_random_hash;
use lance_core::datatypes::Schema;
use lance_core::utils::deletion::DeletionVector;
use lance_core::{Error, Result};
use lance_table::feature_flags::apply_feature_flags;
use lance_table::format::{DataStorageFormat, Fragment, Manifest};
use lance_table::io::commit::{ManifestNamingScheme, write_manifest_file_to_path};
use lance_table::io::deletion::write_deletion_file;
use object_store::path::Path;

use super::{SsTableContext, SsTableInput, SsTableWritten, bloom, sidecar, storage_schema, sync};

/// The one version of a run.
const VERSION: u64 = 1;
/// The id of the one fragment of a run.
const FRAGMENT: u64 = 0;
/// The bloom filter's file name in the specification.
const BLOOM_FILTER: &str = "bloom_filter.bin";

/// Writes the rows of one frozen MemTable as the run `generation`, in a folder of a new name.
///
/// When this returns, the run is complete, can be opened, and on a local disk is durable. No
/// reader sees it before a shard manifest lists it.
///
/// # Errors
/// An error of the object store, or an input error for rows that do not have the storage schema.
/// What was written before an error stays behind and is named by nothing.
pub async fn write_sstable(
    context: &SsTableContext,
    generation: u64,
    input: SsTableInput<'_>,
) -> Result<SsTableWritten> {
    let arrow_schema = storage_schema(&context.base_schema, input.key_columns);
    let rows = check_input(&arrow_schema, &input)?;
    let keys = key_batches(&input)?;
    let path = format!("{}_gen_{generation}", generate_random_hash());
    let folder = context.folder(&path);
    // The base table's columns keep their ids, so that a reader finds a column after a rename;
    // `_tombstone`, the only one without, gets the id after the largest.
    let schema = Schema::try_from(arrow_schema.as_ref())?;

    // Boxed: the futures of lance are large, and a caller's would hold all of theirs.
    let data = Box::pin(write_data(context, &path, &schema, &arrow_schema, input.batches.to_vec()));
    let deletions = Box::pin(write_deletions(context, &folder, &input));
    let filter = Box::pin(write_filter(context, &folder, &keys, rows - input.superseded.len()));
    let index = Box::pin(write_index(context, &folder, &keys, input.sorted_rows));
    let (mut fragment, deletion_file, (), ()) = futures::try_join!(data, deletions, filter, index)?;
    if fragment.physical_rows != usize::try_from(rows).ok() {
        return Err(Error::internal(format!(
            "{:?} of {rows} rows were written to {}",
            fragment.physical_rows,
            context.uri(&path)
        )));
    }
    fragment.deletion_file = deletion_file;
    write_manifest(context, &folder, schema, fragment).await?;
    sync::sync_run(&context.object_store, &folder).await?;

    Ok(SsTableWritten {
        path,
        physical_rows: rows,
        in_memory_bytes: input.batches.iter().map(|b| memory_bytes(b) + BATCH_BYTES).sum(),
        primary_key_bytes: keys.iter().map(memory_bytes).sum(),
    })
}

/// The number of rows, if they can be one run of the schema.
fn check_input(schema: &SchemaRef, input: &SsTableInput<'_>) -> Result<u64> {
    for batch in input.batches {
        // Metadata may differ: rows that were replayed carry that of the log.
        let fits = batch.num_columns() == schema.fields().len()
            && batch.schema_ref().fields().iter().zip(schema.fields()).all(|(have, want)| {
                have.name() == want.name() && have.data_type().equals_datatype(want.data_type())
            });
        if !fits {
            return Err(Error::invalid_input(format!(
                "rows with the schema {:?} do not fit the storage schema {schema:?}",
                batch.schema_ref()
            )));
        }
    }
    let rows: u64 = input.batches.iter().map(|batch| batch.num_rows() as u64).sum();
    // Positions and deletion vectors have 32 bits.
    if rows == 0 || rows > u64::from(u32::MAX) {
        return Err(Error::invalid_input(format!("a run cannot have {rows} rows")));
    }
    if input.superseded.max().is_some_and(|last| u64::from(last) >= rows) {
        return Err(Error::internal(format!("a superseded position is not one of {rows} rows")));
    }
    Ok(rows)
}

/// The key columns of each batch, in primary-key order; no batches for a table without a key.
fn key_batches(input: &SsTableInput<'_>) -> Result<Vec<RecordBatch>> {
    if input.key_columns.is_empty() {
        return Ok(Vec::new());
    }
    let schema = input.batches[0].schema();
    let mut columns = Vec::with_capacity(input.key_columns.len());
    for name in input.key_columns {
        let column = schema
            .index_of(name)
            .map_err(|_| Error::invalid_input(format!("primary key column '{name}' is missing")))?;
        columns.push(column);
    }
    input.batches.iter().map(|batch| Ok(batch.project(&columns)?)).collect()
}

async fn write_data(
    context: &SsTableContext,
    path: &str,
    schema: &Schema,
    arrow_schema: &SchemaRef,
    batches: Vec<RecordBatch>,
) -> Result<Fragment> {
    let params = WriteParams {
        // Row positions are offsets in one file.
        max_rows_per_file: usize::MAX,
        max_bytes_per_file: usize::MAX,
        data_storage_version: Some(context.storage_version.to_selector()),
        store_params: context.store_params(path),
        session: Some(context.session.clone()),
        ..Default::default()
    };
    let rows = RecordBatchIterator::new(batches.into_iter().map(Ok), arrow_schema.clone());
    // The fragment builder writes the ids of the schema that it is given. A dataset that is
    // created the usual way gets new ones from 0.
    let uri = context.uri(path);
    let builder = FragmentCreateBuilder::new(&uri).schema(schema).write_params(&params);
    let mut fragments = builder.write_fragments(rows).await?;
    match (fragments.pop(), fragments.pop()) {
        (Some(fragment), None) => Ok(Fragment { id: FRAGMENT, ..fragment }),
        _ => Err(Error::internal(format!("{uri} was not written as one fragment"))),
    }
}

async fn write_deletions(
    context: &SsTableContext,
    folder: &Path,
    input: &SsTableInput<'_>,
) -> Result<Option<lance_table::format::DeletionFile>> {
    let superseded = DeletionVector::from(input.superseded.clone());
    write_deletion_file(folder, FRAGMENT, VERSION, &superseded, &context.object_store).await
}

async fn write_filter(
    context: &SsTableContext,
    folder: &Path,
    keys: &[RecordBatch],
    distinct_keys: u64,
) -> Result<()> {
    let keys = keys.to_vec();
    // Milliseconds of hashing that must not hold up other tasks.
    let filter =
        tokio::task::spawn_blocking(move || bloom::key_filter(&keys, distinct_keys)).await??;
    context.object_store.put(&folder.clone().join(BLOOM_FILTER), &filter).await?;
    Ok(())
}

async fn write_index(
    context: &SsTableContext,
    folder: &Path,
    keys: &[RecordBatch],
    sorted_rows: &[u32],
) -> Result<()> {
    if keys.is_empty() {
        return Ok(());
    }
    let store = context.object_store.clone();
    sidecar::write_key_index(store, folder, keys.to_vec(), sorted_rows.to_vec()).await
}

/// Writes the manifest by hand: lance keeps the ids of a given schema only inside its own crate.
///
/// There is no transaction, as in the manifest that lance rewrites to add the deletion vector.
async fn write_manifest(
    context: &SsTableContext,
    folder: &Path,
    schema: Schema,
    fragment: Fragment,
) -> Result<()> {
    let format = DataStorageFormat::new(context.storage_version);
    let mut manifest = Manifest::new(schema, Arc::new(vec![fragment]), format, HashMap::new());
    manifest.set_timestamp(nanoseconds_now());
    manifest.update_max_fragment_id();
    apply_feature_flags(&mut manifest, false, false)?;
    let path = ManifestNamingScheme::V2.manifest_path(folder, VERSION);
    write_manifest_file_to_path(&context.object_store, &mut manifest, None, &path, None).await?;
    Ok(())
}

/// The time of a manifest, which people see in the list of a dataset's versions.
#[expect(clippy::disallowed_methods, reason = "a label for people; nothing decides by it")]
fn nanoseconds_now() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos()
}

/// What lance adds to the size of each batch.
const BATCH_BYTES: u64 = size_of::<RecordBatch>() as u64;

fn memory_bytes(batch: &RecordBatch) -> u64 {
    batch.columns().iter().map(array_bytes).sum()
}

fn array_bytes(array: &ArrayRef) -> u64 {
    let data = array.to_data();
    // A slice counts with its window only, because only that is written.
    data.get_slice_memory_size().unwrap_or_else(|_| data.get_array_memory_size()) as u64
}
