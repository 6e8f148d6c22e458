//! The same rows flushed by lance's own writer and by lancemem: the SSTables agree.
//! Owns these stories only; does not own the engine's rules, which are in the modules under test.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::cast::as_boolean_array;
use arrow_array::{Array, Int64Array, RecordBatch};
use arrow_schema::Schema;
use lance::Dataset;
use lance::dataset::mem_wal::{DatasetMemWalExt, ShardWriterConfig};
use lance_core::utils::tempfile::TempStrDir;
use lance_index::mem_wal::SsTable;

use super::key_types::Key;
use super::support::{Table, WrittenSsTable};
use super::{BASE, PUTS};
use crate::sstable::is_ours;

/// Puts the rows through lance's writer and closes it, which flushes generation 1.
async fn flush_with_lance(table: &mut Table, puts: &[&[(u32, Option<i64>)]]) -> SsTable {
    table.base.initialize_mem_wal().unsharded().execute().await.unwrap();
    let config = ShardWriterConfig::new(table.shard);
    let writer = table.base.mem_wal_writer(table.shard, config).await.unwrap();
    for batch in table.batches(puts) {
        // The writer's callers see neither `_tombstone` nor field ids, so rows go by their verb:
        // one by one, unless there is only one verb.
        let dead = as_boolean_array(batch.column(batch.num_columns() - 1)).clone();
        if dead.true_count() == 0 {
            writer.put(vec![plain(table, &batch)]).await.unwrap();
            continue;
        }
        for row in 0..batch.num_rows() {
            let rows = plain(table, &batch.slice(row, 1));
            if dead.value(row) {
                let keys: Vec<usize> = (0..table.key_columns.len()).collect();
                writer.delete(vec![rows.project(&keys).unwrap()]).await.unwrap();
            } else {
                writer.put(vec![rows]).await.unwrap();
            }
        }
    }
    let manifests = writer.manifest_store();
    writer.close().await.unwrap();
    manifests.latest().await.unwrap().unwrap().sstables[0].clone()
}

/// The base columns of stored rows under the base table's own schema.
fn plain(table: &Table, batch: &RecordBatch) -> RecordBatch {
    let base: Schema = table.base.schema().into();
    let columns = batch.columns()[..base.fields().len()].to_vec();
    // A tombstone's value goes as 0, because the base column is not null; only its key is used.
    let columns = columns.into_iter().zip(base.fields()).map(|(column, field)| {
        let null = column.null_count() > 0 && !field.is_nullable();
        if null { Arc::new(Int64Array::from(vec![0; column.len()])) } else { column }
    });
    RecordBatch::try_new(Arc::new(base.clone()), columns.collect()).unwrap()
}

fn only_file(folder: &Path) -> PathBuf {
    let mut files: Vec<PathBuf> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    files.remove(0)
}

#[tokio::test]
async fn an_sstable_equals_the_one_that_lance_flushes() {
    for key in [Key::Int64, Key::Utf8, Key::Composite, Key::UInt64, Key::LargeUtf8] {
        let directory = TempStrDir::default();
        let mut table = Table::create(directory.as_str(), key, BASE).await;
        table.add_column_then_drop_the_first_value_column().await;
        let theirs = flush_with_lance(&mut table, PUTS).await;
        let sstable = table.write(1, PUTS).await;
        compare(&sstable, &theirs).await;
        sstable.assert_reads_like(&table).await;
    }
}

#[tokio::test]
async fn the_same_batches_make_the_same_data_file_and_sizes() {
    let first: Vec<(u32, Option<i64>)> = (0..900).map(|id| (id, Some(i64::from(id)))).collect();
    let puts: &[&[(u32, Option<i64>)]] = &[&first, &first[100..300], &first[..1]];
    let directory = TempStrDir::default();
    let mut table = Table::create(directory.as_str(), Key::Utf8, BASE).await;
    let theirs = flush_with_lance(&mut table, puts).await;
    let sstable = table.write(1, puts).await;
    compare(&sstable, &theirs).await;

    let folder = PathBuf::from(format!("{}/{}", sstable.context.shard_uri, theirs.path));
    let ours = fs::read(only_file(&PathBuf::from(sstable.local_folder()).join("data"))).unwrap();
    let other = fs::read(only_file(&folder.join("data"))).unwrap();
    assert_eq!(ours.len(), other.len());
    assert!(ours == other, "the data files differ");
    assert_eq!(Some(sstable.written.physical_rows), theirs.physical_rows);
    assert_eq!(Some(sstable.written.in_memory_bytes), theirs.in_memory_bytes);
    assert_eq!(Some(sstable.written.primary_key_bytes), theirs.primary_key_bytes);
}

async fn compare(sstable: &WrittenSsTable, theirs: &SsTable) {
    let shard = &sstable.context.shard_uri;
    let theirs_uri = format!("{shard}/{}", theirs.path);
    let theirs_dataset = Dataset::open(&theirs_uri).await.unwrap();
    let ours_dataset = sstable.open().await;

    // Whether a lookup trusts filter and key index depends on the writer of the SSTable.
    assert!(is_ours(&ours_dataset) && !is_ours(&theirs_dataset));
    let (ours, other) = (ours_dataset.manifest(), theirs_dataset.manifest());
    assert_eq!(ours.schema, other.schema);
    let ids = |dataset: &Dataset| -> Vec<i32> {
        dataset.schema().fields_pre_order().map(|field| field.id).collect()
    };
    assert_eq!(ids(&ours_dataset), ids(&theirs_dataset));
    assert_eq!(ours.schema.metadata, other.schema.metadata);
    assert_eq!(ours.data_storage_format, other.data_storage_format);
    assert_eq!(ours.version, other.version);
    assert_eq!(ours.max_fragment_id, other.max_fragment_id);
    assert_eq!(ours.max_allocated_field_id, other.max_allocated_field_id);
    // Only checksums, which lance skips.
    let is_checksum =
        |key: &str| key == "lancemem.bloom_filter_crc32" || key.starts_with("lancemem.crc32/");
    assert!(ours.config.keys().all(|key| is_checksum(key)), "{:?}", ours.config);
    assert_eq!(other.config.len(), 0);
    let naming = |dataset: &Dataset| dataset.manifest_location().path.filename().map(str::to_owned);
    assert_eq!(naming(&ours_dataset), naming(&theirs_dataset));

    let (ours, other) = (&ours.fragments[0], &other.fragments[0]);
    assert_eq!(ours.id, other.id);
    assert_eq!(ours.physical_rows, other.physical_rows);
    assert_eq!(ours.files[0].fields, other.files[0].fields);
    assert_eq!(ours.files[0].column_indices, other.files[0].column_indices);
    let (ours, other) =
        (ours.deletion_file.as_ref().unwrap(), other.deletion_file.as_ref().unwrap());
    assert_eq!(ours.file_type, other.file_type);
    assert_eq!(ours.read_version, other.read_version);
    assert_eq!(ours.num_deleted_rows, other.num_deleted_rows);

    let ours = PathBuf::from(sstable.local_folder());
    let other = PathBuf::from(&theirs_uri);
    let index = |folder: &Path, file: &str| fs::read(folder.join("_pk_index").join(file)).unwrap();
    assert!(index(&ours, "page_data.lance") == index(&other, "page_data.lance"));
    // Two entries of metadata follow each other in any order.
    let file = "page_lookup.lance";
    assert_eq!(index(&ours, file).len(), index(&other, file).len());
    let bytes = fs::read(only_file(&ours.join("_deletions"))).unwrap();
    assert_eq!(bytes, fs::read(only_file(&other.join("_deletions"))).unwrap());
}
