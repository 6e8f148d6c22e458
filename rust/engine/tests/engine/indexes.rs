//! Indexes of the base table, beside writers, compactions and each other.
//!
//! Owns: what an index covers on each level, names, updates, drops, and what is refused.
//! Does not own: each type of index, which the tests from Python make and read with pylance.

use std::sync::Arc;

use arrow_array::{ArrayRef, FixedSizeListArray, Float32Array, Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use lancemem::{
    CompactionSettings, ErrorKind, Metric, QueryVectors, SearchOptions, Sharding, Table,
    TableIndexInfo, TableIndexOptions, TableIndexType, VectorIndexOptions,
};
use tempfile::TempDir;

use crate::fixture::{Fixture, Level, created, job_of, within};

const WIDTH: i32 = 8;

fn default() -> TableIndexOptions {
    TableIndexOptions::default()
}

fn values(numbers: std::ops::Range<i64>) -> Vec<(i64, i64)> {
    numbers.map(|number| (number, number % 5)).collect()
}

fn counts(index: &TableIndexInfo) -> (u64, u64) {
    (index.indexed_rows, index.unindexed_rows)
}

async fn only(table: &Table) -> TableIndexInfo {
    let mut indexes = table.indexes().await.unwrap();
    assert_eq!(indexes.len(), 1, "{indexes:?}");
    indexes.remove(0)
}

async fn refusal(table: &Table, column: &str, options: &TableIndexOptions) -> String {
    let error = table.create_index(column, TableIndexType::BTree, options).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    error.to_string()
}

#[tokio::test]
async fn an_index_covers_the_base_table_and_an_update_what_a_compaction_added() {
    within(async {
        let fixture = Fixture::new().await;
        let table = &fixture.table;
        fixture.to_base(&values(0..20)).await;
        fixture.to_sstable(&values(20..30), &[]).await;
        fixture.to_log(&values(30..35), &[]).await;
        let made = table.create_index("v", TableIndexType::BTree, &default()).await.unwrap();
        assert_eq!((made.name.as_str(), made.index_type.as_str()), ("v_idx", "BTREE"));
        assert_eq!((counts(&made), made.segments), ((20, 0), 1));
        let three = fixture.scan(&Level::durable(), Some("v = 3"));
        assert_eq!(fixture.collected(&three).await.len(), 7);
        fixture.flush().await;
        let settings = CompactionSettings::default().with_update_indexes(false);
        table.compact_with(&settings).await.unwrap();
        assert_eq!(counts(&only(table).await), (20, 15));
        let changed = table.optimize_indexes(None, None).await.unwrap();
        assert_eq!((changed.len(), changed[0].added_rows), (1, 15));
        assert_eq!(counts(&only(table).await), (35, 0));
        assert_eq!(fixture.collected(&three).await.len(), 7);
        assert!(table.optimize_indexes(None, None).await.unwrap().is_empty());
        table.drop_index("v_idx").await.unwrap();
        assert!(table.indexes().await.unwrap().is_empty());
    })
    .await;
}

#[tokio::test]
async fn rows_that_a_job_replaces_are_found_by_their_new_value_alone() {
    within(async {
        let fixture = Fixture::new().await;
        fixture.to_base(&values(0..20)).await;
        let table = &fixture.table;
        table.create_index("v", TableIndexType::Bitmap, &default()).await.unwrap();
        let job = job_of(table).await;
        job.put(&fixture.shape.rows(&[(3, 70), (8, 70)])).await.unwrap();
        let old = fixture.scan(&Level::durable(), Some("v = 3"));
        let new = fixture.scan(&Level::durable(), Some("v = 70"));
        for _ in 0..2 {
            assert_eq!(fixture.collected(&old).await, fixture.rows(&[(13, 3), (18, 3)]));
            assert_eq!(fixture.collected(&new).await, fixture.rows(&[(3, 70), (8, 70)]));
            job.flush().await.unwrap();
            table.compact().await.unwrap();
        }
        assert_eq!(counts(&only(table).await), (20, 0));
        job.close(true).await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn indexes_are_made_beside_compactions_and_by_several_handles_at_once() {
    within(async {
        let fixture = Fixture::new().await;
        fixture.to_base(&values(0..20)).await;
        let table = &fixture.table;
        let other = Table::open(table.uri()).await.unwrap();
        let replace = default().with_replace(true);
        let writing = async {
            for round in 1..6 {
                fixture.to_base(&values(round * 20..round * 20 + 20)).await;
            }
        };
        let making = async {
            for _ in 0..4 {
                table.create_index("v", TableIndexType::BTree, &replace).await.unwrap();
            }
        };
        let making_others = async {
            for _ in 0..4 {
                let named = default().with_name("other".to_owned()).with_replace(true);
                other.create_index("v", TableIndexType::Bitmap, &named).await.unwrap();
                other.drop_index("other").await.unwrap();
            }
        };
        tokio::join!(writing, making, making_others);
        table.optimize_indexes(None, None).await.unwrap();
        assert_eq!(counts(&only(table).await), (120, 0));
        assert_eq!(fixture.seen(&Level::durable()).await, fixture.rows(&values(0..120)));
    })
    .await;
}

#[tokio::test]
async fn names_that_are_taken_or_reserved_are_refused_before_a_build() {
    within(async {
        let fixture = Fixture::new().await;
        fixture.to_base(&values(0..5)).await;
        let table = &fixture.table;
        table.create_index("v", TableIndexType::BTree, &default()).await.unwrap();
        let version = table.latest_base().await.unwrap().version().version;
        assert!(refusal(table, "v", &default()).await.contains("pass replace=True"));
        let taken = default().with_name("v_idx".to_owned()).with_replace(true);
        assert!(refusal(table, "id", &taken).await.contains("is an index of column 'v'"));
        let reserved = default().with_name("__lance_mem_wal".to_owned());
        assert!(refusal(table, "v", &reserved).await.contains("cannot have the name"));
        assert!(refusal(table, "w", &default()).await.contains("it has id, v"));
        let unknown = table.drop_index("w_idx").await.unwrap_err().to_string();
        assert!(unknown.contains("no index 'w_idx'; its indexes: v_idx"), "{unknown}");
        assert_eq!(table.latest_base().await.unwrap().version().version, version);
        let second = table.create_index("v", TableIndexType::Bitmap, &default()).await.unwrap();
        assert_eq!(second.name, "v_idx_2");
    })
    .await;
}

fn schema() -> SchemaRef {
    let item = Arc::new(Field::new("item", DataType::Float32, true));
    Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("vec", DataType::FixedSizeList(item, WIDTH), true),
    ]))
}

/// A row for each id, whose vector has the id as each of its numbers.
fn points(ids: std::ops::Range<i16>) -> RecordBatch {
    let numbers = ids.clone().flat_map(|id| [f32::from(id); 8]);
    let item = Arc::new(Field::new("item", DataType::Float32, true));
    let numbers = Arc::new(Float32Array::from_iter_values(numbers));
    let vectors = FixedSizeListArray::try_new(item, WIDTH, numbers, None).unwrap();
    let ids: Int64Array = ids.map(i64::from).collect();
    let columns: Vec<ArrayRef> = vec![Arc::new(ids), Arc::new(vectors)];
    RecordBatch::try_new(schema(), columns).unwrap()
}

async fn table_of_points(folder: &TempDir) -> Arc<Table> {
    created(folder, schema(), &["id".to_owned()], Sharding::Unsharded).await
}

async fn put_in_base(table: &Arc<Table>, ids: std::ops::Range<i16>) {
    let job = job_of(table).await;
    job.put(&points(ids)).await.unwrap();
    job.close(true).await.unwrap();
    table.compact().await.unwrap();
}

#[tokio::test]
async fn a_search_uses_the_index_and_finds_rows_that_it_does_not_cover() {
    within(async {
        let folder = tempfile::tempdir().unwrap();
        let table = table_of_points(&folder).await;
        put_in_base(&table, 0..300).await;
        let vectors = VectorIndexOptions { num_partitions: Some(3), ..Default::default() };
        let options = default().with_vectors(vectors);
        let made = table.create_index("vec", TableIndexType::IvfSq, &options).await.unwrap();
        assert_eq!((made.metric, counts(&made)), (Some(Metric::L2), (300, 0)));
        put_in_base(&table, 300..320).await;
        assert_eq!(counts(&only(&table).await), (300, 20));
        for at in [7_i16, 310] {
            let query = Arc::new(Float32Array::from_iter_values([f32::from(at); 8]));
            let query = QueryVectors::one(query).unwrap();
            let options = SearchOptions::default().with_k(1);
            let scan = table.search(query, options, Vec::new()).unwrap();
            let plan = scan.explain().await.unwrap();
            assert!(plan.contains("vec_idx"), "{plan}");
            let (_, found) = scan.collect().await.unwrap();
            assert_eq!(found[0].column(0).as_ref(), &Int64Array::from(vec![i64::from(at)]));
        }
    })
    .await;
}

#[tokio::test]
async fn vectors_that_are_too_few_for_a_training_are_refused_with_their_number() {
    within(async {
        let folder = tempfile::tempdir().unwrap();
        let table = table_of_points(&folder).await;
        put_in_base(&table, 0..100).await;
        let of = async |index_type: TableIndexType, num_partitions: Option<usize>| {
            let vectors = VectorIndexOptions { num_partitions, ..Default::default() };
            let options = default().with_vectors(vectors);
            table.create_index("vec", index_type, &options).await
        };
        let error = of(TableIndexType::IvfPq, None).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        let text = error.to_string();
        assert!(text.contains("its training needs at least 256 rows"), "{text}");
        assert!(text.contains("has 100; rows above the base table count after"), "{text}");
        let text = of(TableIndexType::IvfFlat, Some(101)).await.unwrap_err().to_string();
        assert!(text.contains("its partitions need at least 101 rows"), "{text}");
        assert!(table.indexes().await.unwrap().is_empty());
        of(TableIndexType::IvfFlat, None).await.unwrap();
    })
    .await;
}
