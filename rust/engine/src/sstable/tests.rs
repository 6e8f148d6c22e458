//! An SSTable that lancemem wrote, read by lance: rows, ids, deletion vector, key index, filter.
//!
//! `keys` probes key index and filter, `indexes` the indexes of the base table, `damage` damages
//! files, `merge_fence` tries who reads SSTables of tables with a merge rule, `upstream` compares
//! with the SSTable that lance itself writes; `misshapen` opens malformed SSTables of other writers;
//! `support` and `key_types` build tables and rows.

mod damage;
mod indexes;
mod key_types;
mod keys;
mod merge_fence;
mod misshapen;
mod support;
mod upstream;

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{BooleanArray, Int64Array, RecordBatch, StringArray, StructArray};
use arrow_schema::{DataType, Field, Fields, Schema as ArrowSchema};
use lance::Dataset;
use lance_core::utils::tempfile::TempStrDir;
use lance_file::version::LanceFileVersion;
use lance_table::feature_flags::FLAG_DELETION_FILES;
use lancemem_core::types::Generation;
use roaring::RoaringBitmap;

use super::*;
use key_types::Key;
use support::{Table, assert_reads_like_the_model};

/// Base rows, then the puts of one MemTable; `None` deletes the key.
const BASE: &[u32] = &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 300];
const PUTS: &[&[(u32, Option<i64>)]] = &[
    &[(7, Some(107)), (3, Some(103)), (70_000, Some(1)), (255, Some(2))],
    &[(3, Some(203)), (4, None), (3, Some(303))],
    &[(255, None), (4, Some(204)), (9, None), (70_001, None)],
];

#[tokio::test]
async fn an_sstable_of_any_key_type_reads_newest_first_and_without_tombstones() {
    for key in Key::NUMEROUS {
        assert_reads_like_the_model(key, BASE, PUTS).await;
    }
    assert_reads_like_the_model(Key::Bool, &[0, 1], &[&[(0, Some(5)), (1, Some(6))], &[(1, None)]])
        .await;
}

#[tokio::test]
async fn base_columns_keep_their_ids_across_a_dropped_column() {
    let directory = TempStrDir::default();
    let mut table = Table::create(directory.as_str(), Key::Int64, BASE).await;
    table.add_column_then_drop_the_first_value_column().await;
    let sstable = table.write(1, PUTS).await;
    let dataset = sstable.open().await;

    let base_ids: Vec<(String, i32)> =
        table.base.schema().fields.iter().map(|f| (f.name.clone(), f.id)).collect();
    assert_eq!(base_ids, [("k".to_owned(), 0), ("added".to_owned(), 2)]);
    let ids: Vec<(String, i32)> =
        dataset.schema().fields.iter().map(|f| (f.name.clone(), f.id)).collect();
    assert_eq!(ids[..2], base_ids);
    assert_eq!(ids[2], (TOMBSTONE.to_owned(), 3));
    let fragments = dataset.get_fragments();
    assert_eq!(fragments.len(), 1);
    assert_eq!(fragments[0].metadata().files[0].fields.as_ref(), [0, 2, 3]);
    sstable.assert_reads_like(&table).await;
}

#[tokio::test]
async fn an_sstable_is_version_one_with_its_deletion_vector_and_flags() {
    let directory = TempStrDir::default();
    let table = Table::create(directory.as_str(), Key::Utf8, BASE).await;
    let sstable = table.write(7, PUTS).await;
    assert!(sstable.written.path.ends_with("_gen_7"));
    assert_eq!(sstable.written.path.len(), "01234567_gen_7".len());
    assert_eq!(sstable.written.physical_rows, 11);

    let dataset = sstable.open().await;
    let manifest = dataset.manifest();
    assert_eq!((manifest.version, manifest.max_fragment_id), (1, Some(0)));
    assert_ne!(manifest.reader_feature_flags & FLAG_DELETION_FILES, 0);
    assert_ne!(manifest.writer_feature_flags & FLAG_DELETION_FILES, 0);
    assert!(manifest.timestamp_nanos > 0);
    assert_eq!(dataset.count_rows(None).await.unwrap(), 7);
    dataset.validate().await.unwrap();
    let vector = dataset.get_fragments()[0].get_deletion_vector().await.unwrap().unwrap();
    let dead: RoaringBitmap = vector.iter().collect();
    // Positions 1, 4 are older rows of key 3, 5 of key 4 and 3 of key 255.
    assert_eq!(dead, RoaringBitmap::from([1, 3, 4, 5]));
    for field in &dataset.schema().fields {
        assert_eq!(field.nullable, field.name == "v", "{}", field.name);
    }
}

#[tokio::test]
async fn an_sstable_has_the_file_version_of_its_table() {
    for version in [LanceFileVersion::V2_0, LanceFileVersion::V2_1, LanceFileVersion::V2_2] {
        let directory = TempStrDir::default();
        let table = Table::create_with(directory.as_str(), Key::Int64, BASE, Some(version)).await;
        let sstable = table.write(1, PUTS).await;
        let dataset = sstable.open().await;
        let files = dataset.get_fragments()[0].metadata().files.clone();
        assert_eq!(files[0].file_version().unwrap(), version.resolve());
        assert_eq!(dataset.manifest().data_storage_format.version, version.resolve());
        sstable.assert_reads_like(&table).await;
    }
}

#[tokio::test]
async fn nested_columns_keep_the_ids_of_their_children() {
    let directory = TempStrDir::default();
    let children = Fields::from(vec![
        Field::new("a", DataType::Int64, true),
        Field::new("b", DataType::Utf8, true),
    ]);
    let marker = HashMap::from([(support::KEY_MARKER.to_owned(), "true".to_owned())]);
    let schema = Arc::new(ArrowSchema::new(vec![
        Field::new("dropped", DataType::Struct(children.clone()), true),
        Field::new("k", DataType::Int64, false).with_metadata(marker),
        Field::new("s", DataType::Struct(children.clone()), false),
    ]));
    let rows = |fields: &Fields, keys: Vec<i64>| {
        let names: Vec<String> = keys.iter().map(|k| format!("n{k}")).collect();
        let a = Arc::new(Int64Array::from(keys));
        StructArray::new(fields.clone(), vec![a, Arc::new(StringArray::from(names))], None)
    };
    let base = RecordBatch::try_new(
        schema,
        vec![
            Arc::new(rows(&children, vec![1, 2])),
            Arc::new(Int64Array::from(vec![1, 2])),
            Arc::new(rows(&children, vec![1, 2])),
        ],
    )
    .unwrap();
    let mut base = support::write_table(directory.as_str(), base, None).await;
    base.drop_columns(&["dropped"]).await.unwrap();

    let key_columns = ["k".to_owned()];
    let storage = storage_schema(base.schema(), &key_columns);
    let DataType::Struct(stored) = storage.field(1).data_type() else { panic!("a struct") };
    let stored = stored.clone();
    let batch = RecordBatch::try_new(
        storage,
        vec![
            Arc::new(Int64Array::from(vec![2, 3])),
            Arc::new(rows(&stored, vec![20, 30])),
            Arc::new(BooleanArray::from(vec![false, false])),
        ],
    )
    .unwrap();
    let shard = support::SHARD;
    let context = SsTableContext::new(&base, shard).await.unwrap();
    let input = support::input(batch.schema(), vec![batch], &key_columns, &[0, 1]);
    let written = write_sstable(&context, Generation(1), input).await.unwrap();
    let sstable = open_sstable(&context, &written.path).await.unwrap();
    let ids: Vec<i32> = sstable.schema().fields_pre_order().map(|field| field.id).collect();
    assert_eq!(ids, [3, 4, 5, 6, 7]);

    let batch = support::scanner(base, shard, 1, &written.path, &key_columns)
        .try_into_batch()
        .await
        .unwrap();
    let nested = batch.column_by_name("s").unwrap().as_struct().column(0);
    let mut values = nested.as_primitive::<Int64Type>().values().to_vec();
    values.sort_unstable();
    assert_eq!(values, [1, 20, 30]);
}

#[tokio::test]
async fn a_table_without_a_key_has_no_key_index() {
    let directory = TempStrDir::default();
    let values = |values: Vec<i64>| Arc::new(Int64Array::from(values));
    let base = RecordBatch::try_from_iter([("v", values(vec![1]) as _)]).unwrap();
    let base = support::write_table(directory.as_str(), base, None).await;
    let alive = Arc::new(BooleanArray::from(vec![false, false]));
    let batch =
        RecordBatch::try_new(storage_schema(base.schema(), &[]), vec![values(vec![1, 1]), alive]);
    let schema = storage_schema(base.schema(), &[]);
    let input = support::input(schema, vec![batch.unwrap()], &[], &[]);
    let context = SsTableContext::new(&base, support::SHARD).await.unwrap();
    let written = write_sstable(&context, Generation(1), input).await.unwrap();
    assert_eq!(written.primary_key_bytes, 0);
    let sstable = open_sstable(&context, &written.path).await.unwrap();
    assert_eq!(sstable.count_rows(None).await.unwrap(), 2);
    let folder = format!("{}/{}", context.shard_uri, written.path);
    assert!(!std::path::Path::new(&folder).join("_pk_index").exists());
}

#[tokio::test]
async fn rows_out_of_key_order_or_of_another_schema_are_refused() {
    let directory = TempStrDir::default();
    let table = Table::create(directory.as_str(), Key::Int64, BASE).await;
    let context = SsTableContext::new(&table.base, table.shard).await.unwrap();
    let batches = table.batches(&[&[(5, Some(1)), (4, Some(2)), (4, Some(3))]]);
    let write = |batches: &[RecordBatch], order: &[u32]| {
        let input = support::input(table.schema(), batches.to_vec(), &table.key_columns, order);
        write_sstable(&context, Generation(1), input)
    };
    for order in [&[0, 1, 2][..], &[2, 1, 0], &[1, 1, 0], &[1, 2], &[1, 2, 3], &[1, 2, 0, 3]] {
        let error = write(&batches, order).await.unwrap_err();
        assert!(error.to_string().contains("position"), "{order:?}: {error}");
    }
    sendable(write(&batches, &[1, 2, 0])).await.unwrap();

    let other = [batches[0].project(&[0, 2]).unwrap()];
    let error = write(&other, &[1, 2, 0]).await.unwrap_err();
    assert!(error.to_string().contains("storage schema"), "{error}");
    let error = write(&[], &[]).await.unwrap_err();
    assert!(error.to_string().contains("0 rows"), "{error}");
}

/// A flush runs as a task of its own.
fn sendable<F: Future + Send>(future: F) -> F {
    future
}

#[tokio::test]
async fn a_path_that_leaves_the_shard_is_refused() {
    let directory = TempStrDir::default();
    let table = Table::create(directory.as_str(), Key::Int64, BASE).await;
    let context = SsTableContext::new(&table.base, table.shard).await.unwrap();
    for path in ["", ".", "..", "../other_gen_1", "a/b", "/etc", "s3:x"] {
        let error = open_sstable(&context, path).await.unwrap_err();
        assert!(error.to_string().contains("plain folder name"), "{error}");
    }
    assert!(open_sstable(&context, "00000000_gen_1").await.is_err());
}

#[tokio::test]
async fn a_filter_with_other_bytes_than_were_written_is_damage() {
    let directory = TempStrDir::default();
    let table = Table::create(directory.as_str(), Key::Int64, BASE).await;
    let sstable = table.write(1, PUTS).await;
    let folder = format!("{}/{}", sstable.context.shard_uri, sstable.written.path);
    let path = std::path::Path::new(&folder).join("bloom_filter.bin");
    let whole = std::fs::read(&path).unwrap();
    let dataset = sstable.open().await;
    for bit in 0..whole.len() * 8 {
        let mut damaged = whole.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        std::fs::write(&path, &damaged).unwrap();
        let error = KeyFilter::read(&dataset).await.unwrap_err();
        assert!(error.to_string().contains("bloom_filter.bin"), "bit {bit}: {error}");
    }
    std::fs::write(&path, &whole).unwrap();
    KeyFilter::read(&dataset).await.unwrap();
}

#[tokio::test]
async fn an_sstable_is_in_the_object_store_of_its_table() {
    let table = Table::create_in_memory(Key::Int64, BASE).await;
    let sstable = table.write(1, PUTS).await;
    sstable.assert_reads_like(&table).await;

    let bound = Table::create_in_bound_store(Key::Int64, BASE).await;
    let sstable = bound.write(1, PUTS).await;
    assert_eq!(sstable.open().await.count_rows(None).await.unwrap(), 7);
    let folder = sstable.context.shard_path.clone().join(sstable.written.path.as_str());
    let store = &sstable.context.object_store;
    assert!(store.exists(&folder.clone().join("bloom_filter.bin")).await.unwrap());
    assert!(store.exists(&folder.join("_pk_index").join("page_lookup.lance")).await.unwrap());
    let base = Dataset::count_rows(&bound.base, None).await.unwrap();
    assert_eq!(base, BASE.len());
}
