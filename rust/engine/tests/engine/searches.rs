//! Searches for the rows nearest to a vector, over rows on every level.
//!
//! Owns: `Table::search` without an index: which rows it returns, in which order, and its plan.
//! Does not own: indexes of the base table, which the tests from Python make with pylance.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Int32Type, Int64Type};
use arrow_array::{
    ArrayRef, FixedSizeListArray, Float32Array, Int64Array, RecordBatch, StringArray,
};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use lancemem::{ErrorKind, QueryVectors, Scan, SearchOptions, Sharding, Table};
use tempfile::TempDir;

use crate::fixture::{created, job_of, jobs_of, within};

const WIDTH: usize = 4;

/// A table of points on a line: the vector of a row is four times its place.
struct Line {
    _folder: TempDir,
    table: Arc<Table>,
}

fn schema() -> SchemaRef {
    let item = Arc::new(Field::new("item", DataType::Float32, true));
    Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("name", DataType::Utf8, true),
        Field::new("vec", DataType::FixedSizeList(item, 4), true),
    ]))
}

/// Rows of ids and places.
fn rows(of: &[(i64, f32)]) -> RecordBatch {
    let ids: Int64Array = of.iter().map(|(id, _)| *id).collect();
    let names: StringArray = of.iter().map(|(id, _)| Some(format!("row {id}"))).collect();
    let values = Float32Array::from_iter_values(of.iter().flat_map(|(_, at)| [*at; WIDTH]));
    let item = Arc::new(Field::new("item", DataType::Float32, true));
    let vectors = FixedSizeListArray::try_new(item, 4, Arc::new(values), None).unwrap();
    let columns: Vec<ArrayRef> = vec![Arc::new(ids), Arc::new(names), Arc::new(vectors)];
    RecordBatch::try_new(schema(), columns).unwrap()
}

impl Line {
    async fn new(sharding: Sharding) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let table = created(&folder, schema(), &["id".to_owned()], sharding).await;
        Self { _folder: folder, table }
    }

    async fn upsert(&self, of: &[(i64, f32)]) {
        self.table.upsert(&rows(of)).await.unwrap();
    }

    async fn delete(&self, ids: &[i64]) {
        let keys = rows(&ids.iter().map(|id| (*id, 0.0)).collect::<Vec<_>>());
        self.table.delete(&keys.project(&[0]).unwrap()).await.unwrap();
    }

    async fn flush(&self) {
        for (_, job) in jobs_of(&self.table).await {
            job.close(true).await.unwrap();
        }
    }

    fn search(&self, at: f32, options: SearchOptions) -> Scan {
        let query = QueryVectors::one(Arc::new(Float32Array::from(vec![at; WIDTH]))).unwrap();
        self.table.search(query, options, Vec::new()).unwrap()
    }

    async fn nearest(&self, at: f32, options: SearchOptions) -> Vec<(i64, f32)> {
        found(&self.search(at, options)).await
    }
}

async fn found(scan: &Scan) -> Vec<(i64, f32)> {
    let (_, batches) = scan.collect().await.unwrap();
    let of = |batch: &RecordBatch| {
        let ids = batch.column_by_name("id").unwrap().as_primitive::<Int64Type>().clone();
        let distances = batch.column_by_name("_distance").unwrap();
        let distances = distances.as_primitive::<Float32Type>().clone();
        ids.values().iter().copied().zip(distances.values().iter().copied()).collect::<Vec<_>>()
    };
    batches.iter().flat_map(of).collect()
}

fn k(k: usize) -> SearchOptions {
    SearchOptions::default().with_k(k)
}

#[tokio::test]
async fn a_search_sees_the_newest_row_of_each_key_on_every_level() {
    within(async {
        let line = Line::new(Sharding::Unsharded).await;
        line.upsert(&[(1, 1.0), (2, 2.0), (3, 3.0), (4, 4.0)]).await;
        line.flush().await;
        line.table.compact().await.unwrap();
        line.upsert(&[(1, 50.0), (5, 1.5)]).await;
        line.flush().await;
        line.upsert(&[(6, 1.25)]).await;
        line.delete(&[2]).await;
        let expected = [(6, 0.25), (5, 1.0), (3, 16.0), (4, 36.0), (1, 9604.0)];
        assert_eq!(line.nearest(1.0, k(9)).await, expected);
        line.flush().await;
        assert_eq!(line.nearest(1.0, k(9)).await, expected, "after a flush");
        line.table.compact().await.unwrap();
        assert_eq!(line.nearest(1.0, k(9)).await, expected, "after a compaction");
        assert_eq!(line.nearest(1.0, k(2).with_offset(1)).await, expected[1..3]);
    })
    .await;
}

#[tokio::test]
async fn rows_at_one_distance_come_in_the_order_of_their_keys() {
    within(async {
        let line = Line::new(Sharding::Bucket { column: "id".to_owned(), buckets: 3 }).await;
        let same: Vec<(i64, f32)> = (0..40).map(|id| (id, 7.0)).collect();
        line.upsert(&same[..20]).await;
        line.flush().await;
        line.upsert(&same[20..]).await;
        let ids = |found: Vec<(i64, f32)>| found.into_iter().map(|(id, _)| id).collect::<Vec<_>>();
        assert_eq!(ids(line.nearest(7.0, k(25)).await), (0..25).collect::<Vec<_>>());
    })
    .await;
}

#[tokio::test]
async fn a_condition_holds_of_the_newest_row_before_the_choice_or_of_the_nearest_ones() {
    within(async {
        let line = Line::new(Sharding::Unsharded).await;
        line.upsert(&[(1, 1.0), (2, 2.0), (3, 3.0)]).await;
        line.flush().await;
        line.upsert(&[(2, 20.0)]).await;
        let odd = || k(2).with_filter(lancemem::Condition::from("id <> 1"));
        assert_eq!(line.nearest(1.0, odd()).await, [(3, 16.0), (2, 1444.0)]);
        assert_eq!(line.nearest(1.0, odd().with_prefilter(false)).await, [(3, 16.0)]);
        let range = k(9).with_distance_range(Some(16.0), Some(1444.0));
        assert_eq!(line.nearest(1.0, range).await, [(3, 16.0)]);
    })
    .await;
}

#[tokio::test]
async fn a_batch_of_queries_names_the_query_of_each_row() {
    within(async {
        let line = Line::new(Sharding::Unsharded).await;
        line.upsert(&[(1, 1.0), (2, 2.0), (3, 3.0)]).await;
        let values = Float32Array::from([[3.0; WIDTH], [0.0; WIDTH]].concat());
        let queries = QueryVectors::batch(Arc::new(values), WIDTH).unwrap();
        let options = k(2).with_columns(vec!["name".to_owned()]);
        let scan = line.table.search(queries, options, Vec::new()).unwrap();
        let (schema, batches) = scan.collect().await.unwrap();
        let names: Vec<&str> = schema.fields().iter().map(|it| it.name().as_str()).collect();
        assert_eq!(names, ["query_index", "name", "_distance"]);
        let rows = arrow::compute::concat_batches(&schema, &batches).unwrap();
        let queries = rows.column(0).as_primitive::<Int32Type>();
        assert_eq!(queries.values().as_ref(), [0, 0, 1, 1]);
        let names: Vec<Option<&str>> = rows.column(1).as_string::<i32>().iter().collect();
        assert_eq!(names, ["row 3", "row 2", "row 1", "row 2"].map(Some));
    })
    .await;
}

#[tokio::test]
async fn wide_columns_are_read_of_the_nearest_rows_alone() {
    within(async {
        let line = Line::new(Sharding::Unsharded).await;
        line.upsert(&[(1, 1.0), (2, 2.0)]).await;
        line.flush().await;
        line.upsert(&[(3, 3.0)]).await;
        let plan = line.search(2.0, k(2)).explain().await.unwrap();
        let flat = "FlatSearchExec: MemTable generation=";
        for node in ["TopKExec: k=2", flat, "column=vec, metric=l2", "LateColumnsExec"] {
            assert!(plan.contains(node), "{plan}");
        }
        let (schema, batches) = line.search(2.0, k(2)).collect().await.unwrap();
        assert_eq!(schema.fields().len(), 4);
        let names = batches[0].column_by_name("name").unwrap().as_string::<i32>().clone();
        assert_eq!(names.iter().collect::<Vec<_>>(), [Some("row 2"), Some("row 1")]);
        let narrow = k(2).with_columns(vec!["id".to_owned()]);
        let plan = line.search(2.0, narrow).explain().await.unwrap();
        assert!(!plan.contains("LateColumnsExec"), "{plan}");
    })
    .await;
}

#[tokio::test]
async fn a_search_of_a_running_jobs_rows_needs_no_log() {
    within(async {
        let line = Line::new(Sharding::Unsharded).await;
        let job = job_of(&line.table).await;
        job.put(&rows(&[(1, 1.0), (2, 2.0)])).await.unwrap();
        let live = k(1).with_consistency(lancemem::Consistency::Live);
        let query = QueryVectors::one(Arc::new(Float32Array::from(vec![2.0; WIDTH]))).unwrap();
        let scan = line.table.search(query, live, vec![job.clone()]).unwrap();
        assert_eq!(found(&scan).await, [(2, 0.0)]);
        job.close(false).await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn what_cannot_be_searched_for_is_refused() {
    within(async {
        let line = Line::new(Sharding::Unsharded).await;
        line.upsert(&[(1, 1.0)]).await;
        let refused = async |options: SearchOptions| {
            let error = line.search(1.0, options).collect().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
            error.to_string()
        };
        let other = refused(k(1).with_column("name".to_owned())).await;
        assert!(other.contains("holds string, which is no vector"), "{other}");
        let columns = refused(k(1).with_columns(vec!["nope".to_owned()])).await;
        assert!(columns.contains("column 'nope' is not in the table"), "{columns}");
        let fast = refused(k(1).with_fast_search(true)).await;
        assert!(fast.contains("has no vector index"), "{fast}");
        let metric = refused(k(1).with_metric(lancemem::Metric::Hamming)).await;
        assert!(metric.contains("use l2, cosine or dot"), "{metric}");
        let short = QueryVectors::one(Arc::new(Float32Array::from(vec![1.0]))).unwrap();
        let short = line.table.search(short, k(1), Vec::new()).unwrap();
        let short = short.collect().await.unwrap_err().to_string();
        assert!(short.contains("no column has vectors of 1 numbers"), "{short}");
    })
    .await;
}
