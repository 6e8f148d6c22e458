//! Functions of users: a Rust program that brings its own.
//!
//! Owns: loading at create and open, what is refused there, and a merge over all sources.
//! Does not own: functions of Python (`tests/test_merge_functions.py`), or what a function may
//! return (the core's `merge`).

use std::path::Path;
use std::sync::Arc;

use arrow::compute::kernels::cmp::gt;
use arrow::compute::kernels::zip::zip;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use lancemem::table::CreateOptions;
use lancemem::{
    Consistency, Error, ErrorKind, FunctionLoader, Location, MergeEngine, PairFunction, Result,
    RuleOptions, ScanOptions, Table,
};

use crate::fixture::within;

/// Keeps the greater value.
#[derive(Debug)]
struct Greater;

impl PairFunction for Greater {
    fn combine(&self, older: &ArrayRef, newer: &ArrayRef) -> Result<ArrayRef> {
        let refused = |error: arrow_schema::ArrowError| Error::input(error.to_string());
        zip(&gt(newer, older).map_err(refused)?, newer, older).map_err(refused)
    }
}

/// Returns its first value as often as there are pairs, in another type.
#[derive(Debug)]
struct Booleans;

impl PairFunction for Booleans {
    fn combine(&self, older: &ArrayRef, newer: &ArrayRef) -> Result<ArrayRef> {
        Ok(Arc::new(gt(newer, older).map_err(|error| Error::input(error.to_string()))?))
    }
}

/// The functions of this program.
#[derive(Debug)]
struct Functions;

impl FunctionLoader for Functions {
    fn load(&self, name: &str) -> Result<Arc<dyn PairFunction>> {
        match name {
            "own:greater" => Ok(Arc::new(Greater)),
            "own:booleans" => Ok(Arc::new(Booleans)),
            _ => Err(Error::input("this program has no such function; link it")),
        }
    }
}

fn location(folder: &Path) -> Location {
    Location::new(folder.join("t").to_str().unwrap())
}

fn options(function: &str) -> CreateOptions {
    let schema = Schema::new(vec![
        Field::new("k", DataType::Int64, false),
        Field::new("v", DataType::Int64, true),
    ]);
    let rule = RuleOptions {
        merge_engine: MergeEngine::Aggregation,
        merge_functions: [("v".to_owned(), function.to_owned())].into(),
        ..RuleOptions::default()
    };
    CreateOptions::new(Arc::new(schema)).with_primary_key(["k"]).with_rule(rule)
}

async fn put(table: &Table, key: i64, value: i64) {
    let column = |value: i64| Arc::new(Int64Array::from(vec![value])) as ArrayRef;
    let rows = RecordBatch::try_from_iter([("k", column(key)), ("v", column(value))]).unwrap();
    table.upsert(&rows).await.unwrap();
}

/// The values of a scan, and of a look-up of the key 1.
async fn values(table: &Arc<Table>) -> (Vec<i64>, Vec<i64>) {
    let of = |rows: &[RecordBatch]| -> Vec<i64> {
        let values = rows.iter().map(|rows| rows.column_by_name("v").unwrap());
        values.flat_map(|it| it.as_primitive::<Int64Type>().values().to_vec()).collect()
    };
    let (_, scanned) = table.scan(ScanOptions::default(), Vec::new()).collect().await.unwrap();
    let key = Arc::new(Int64Array::from(vec![1])) as ArrayRef;
    let keys = RecordBatch::try_from_iter([("k", key)]).unwrap();
    let found = table.get(&keys, None, Consistency::Durable, &[]).await.unwrap();
    (of(&scanned), of(&found.rows))
}

#[tokio::test]
async fn a_program_merges_by_a_function_of_its_own() {
    within(async {
        let folder = tempfile::tempdir().unwrap();
        let location = location(folder.path()).with_functions(Arc::new(Functions));
        let table = Table::create(location.clone(), &options("own:greater")).await.unwrap();
        put(&table, 1, 5).await;
        table.flush().await.unwrap();
        table.compact().await.unwrap();
        put(&table, 1, 9).await;
        put(&table, 1, 3).await;
        table.flush().await.unwrap();
        put(&table, 1, 7).await;
        let opened = Table::open(location).await.unwrap();
        for table in [table, opened] {
            assert_eq!(values(&table).await, (vec![9], vec![9]));
            table.compact().await.unwrap();
            assert_eq!(values(&table).await, (vec![9], vec![9]));
        }
    })
    .await;
}

#[tokio::test]
async fn a_function_that_is_not_loaded_is_refused_at_open_and_before_a_table_is_written() {
    within(async {
        let folder = tempfile::tempdir().unwrap();
        let plain = location(folder.path());
        let loading = plain.clone().with_functions(Arc::new(Functions));
        for (location, function, words) in [
            (&plain, "own:greater", "function 'own:greater' of column 'v' is not loaded"),
            (&loading, "own:least", "cannot be loaded in this process: this program has no such"),
            (&loading, "own:booleans", "returned bool, expected int64"),
        ] {
            let error = Table::create(location.clone(), &options(function)).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            let text = error.to_string();
            assert!(text.contains(words) && text.contains(plain.uri()), "{text}");
            assert!(text.contains("column 'v'"), "{text}");
            assert!(!folder.path().join("t").exists());
        }
        Table::create(loading.clone(), &options("own:greater")).await.unwrap();
        let error = Table::open(plain).await.unwrap_err().to_string();
        assert!(error.contains("'own:greater' of column 'v' is not loaded"), "{error}");
        Table::open(loading).await.unwrap();
    })
    .await;
}
