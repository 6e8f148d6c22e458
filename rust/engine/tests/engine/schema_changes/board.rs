//! A table whose columns change, and what its rows must show.
//!
//! Owns: rows on every level, the schema operations of another program, and the comparison of scans
//! and reads by key with the expected rows.
//! Does not own: the changes of a story.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Float32Array, Int32Array, Int64Array, RecordBatch, StringArray};
use arrow_cast::display::array_value_to_string;
use arrow_schema::{DataType, Field, Schema};
use lance::Dataset;
use lance::dataset::NewColumnTransform;
use lance::dataset::builder::DatasetBuilder;
use lancemem::{ScanOptions, Sharding, Table};
use tempfile::TempDir;

use crate::fixture::{Level, created, jobs_of};

/// The values of each row as text, by column; a null is empty.
pub type Seen = BTreeMap<i64, BTreeMap<String, String>>;

/// A table with the columns `id` (the key), `n`, `f` and `s`.
pub struct Board {
    _folder: TempDir,
    pub table: Arc<Table>,
}

impl Board {
    /// Rows 0 to 5 in the base table, 3 to 8 in an SSTable, 6 to 11 in the log.
    pub async fn on_every_level() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let schema = rows(0..0).schema();
        let table = created(&folder, schema, &["id".to_owned()], Sharding::Unsharded).await;
        let board = Self { _folder: folder, table };
        board.table.upsert(&rows(0..6)).await.unwrap();
        board.flush().await;
        board.table.compact().await.unwrap();
        board.table.upsert(&rows(3..9)).await.unwrap();
        board.flush().await;
        board.table.upsert(&rows(6..12)).await.unwrap();
        board
    }

    pub async fn flush(&self) {
        for (_, job) in jobs_of(&self.table).await {
            job.close(true).await.unwrap();
        }
    }

    /// The base table as another program opens it.
    async fn base(&self) -> Dataset {
        Box::pin(DatasetBuilder::from_uri(self.table.uri()).load()).await.unwrap()
    }

    pub async fn add_column(&self, column: &str, of: DataType) {
        let schema = Arc::new(Schema::new(vec![Field::new(column, of, true)]));
        let mut base = self.base().await;
        let added = base.add_columns(NewColumnTransform::AllNulls(schema), None, None);
        Box::pin(added).await.unwrap();
    }

    pub async fn drop_column(&self, column: &str) {
        let mut base = self.base().await;
        Box::pin(base.drop_columns(&[column])).await.unwrap();
    }

    /// Compares a scan, and a read of every key, with `want`.
    pub async fn check(&self, level: &Level, want: &Seen) {
        for table in [self.table.clone(), Table::open(self.table.uri()).await.unwrap()] {
            let consistency = level.consistency;
            let options = ScanOptions::default().with_consistency(consistency);
            let (schema, scanned) =
                table.scan(options, level.jobs.clone()).collect().await.unwrap();
            assert_eq!(texts(&scanned), *want, "a scan");
            let mut asked: Vec<i64> = want.keys().copied().collect();
            asked.push(1_000);
            let keys = keys(&asked);
            let found = table.get(&keys, None, consistency, &level.jobs).await.unwrap();
            assert_eq!(texts(&found.rows), *want, "a read by key");
            assert_eq!(found.missing, [want.len()]);
            for (field, of_key) in schema.fields().iter().zip(found.rows[0].schema().fields()) {
                assert_eq!(field.data_type(), of_key.data_type(), "{}", field.name());
            }
        }
    }

    /// Reads older rows where they are, then in SSTables, then in the base table.
    pub async fn check_to_the_base(&self, want: &Seen) {
        self.check(&Level::durable(), want).await;
        self.flush().await;
        self.check(&Level::flushed(), want).await;
        self.table.compact().await.unwrap();
        self.check(&Level::flushed(), want).await;
    }
}

pub fn rows(ids: Range<i32>) -> RecordBatch {
    let numbers = Int32Array::from_iter_values(ids.clone().map(|id| id * 10));
    with_numbers(ids, Arc::new(numbers))
}

/// Rows whose column `n` is `numbers`.
pub fn with_numbers(ids: Range<i32>, numbers: ArrayRef) -> RecordBatch {
    let halves = Float32Array::from_iter_values(ids.clone().map(half));
    let texts = StringArray::from_iter_values(ids.clone().map(|id| format!("s{id}")));
    let schema = Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("n", numbers.data_type().clone(), true),
        Field::new("f", DataType::Float32, true),
        Field::new("s", DataType::Utf8, true),
    ]);
    let ids = Int64Array::from_iter_values(ids.map(i64::from));
    let columns: Vec<ArrayRef> = vec![Arc::new(ids), numbers, Arc::new(halves), Arc::new(texts)];
    RecordBatch::try_new(Arc::new(schema), columns).unwrap()
}

/// A number that `float32` holds exactly.
fn half(id: i32) -> f32 {
    f32::from(i16::try_from(id).unwrap()) / 2.0
}

pub fn keys(ids: &[i64]) -> RecordBatch {
    let ids: ArrayRef = Arc::new(Int64Array::from(ids.to_vec()));
    RecordBatch::try_from_iter([("id", ids)]).unwrap()
}

/// The rows of some batches. A key that comes twice fails.
pub fn texts(batches: &[RecordBatch]) -> Seen {
    let mut seen = Seen::new();
    for batch in batches {
        let ids = batch.column_by_name("id").unwrap().as_primitive::<Int64Type>();
        for row in 0..batch.num_rows() {
            let schema = batch.schema();
            let columns = schema.fields().iter().zip(batch.columns());
            let values = columns.map(|(field, column)| {
                (field.name().clone(), array_value_to_string(column, row).unwrap())
            });
            let before = seen.insert(ids.value(row), values.collect());
            assert!(before.is_none(), "the key {} comes twice", ids.value(row));
        }
    }
    seen
}

/// All rows of [`Board::on_every_level`].
pub fn written() -> Seen {
    texts(&[rows(0..12)])
}

pub fn set(seen: &mut Seen, column: &str, value: &str) {
    for row in seen.values_mut() {
        row.insert(column.to_owned(), value.to_owned());
    }
}

pub fn forget(seen: &mut Seen, column: &str) {
    for row in seen.values_mut() {
        row.remove(column).unwrap();
    }
}
