//! A table whose columns change under a running job.
//!
//! Owns: when a job takes new columns, what it refuses, and that no acknowledged row is lost.
//! Does not own: which changes keep every value (`format::reconcile`), or tables.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use lancemem_core::Result;
use lancemem_core::format::RowSchema;
use lancemem_core::shard::ShardWriter;
use lancemem_core::types::ErrorKind;
use tokio::task::JoinHandle;

use crate::fixture::{Fixture, gate, patient, quick, within};

/// A look at the columns, on a task of its own.
fn look(writer: &Arc<ShardWriter>) -> JoinHandle<Result<bool>> {
    let writer = writer.clone();
    tokio::spawn(async move { writer.follow_table().await })
}

/// The table of the bench, with the column `w` in front of `v`.
fn with_w() -> Arc<RowSchema> {
    table_of(&[("id", DataType::Int64), ("w", DataType::Int64), ("v", DataType::Int64)])
}

fn table_of(columns: &[(&str, DataType)]) -> Arc<RowSchema> {
    let fields = columns.iter().map(|(name, of)| Field::new(*name, of.clone(), *name != "id"));
    let schema = Schema::new(fields.collect::<Vec<_>>());
    Arc::new(RowSchema::new(Arc::new(schema), &["id".to_owned()]).unwrap())
}

fn wide_rows(rows: &[(i64, i64)]) -> RecordBatch {
    let column = |of: fn(&(i64, i64)) -> i64| -> Arc<Int64Array> {
        Arc::new(rows.iter().map(|row| Some(of(row))).collect())
    };
    let (ids, values) = (column(|row| row.0), column(|row| row.1));
    RecordBatch::try_from_iter([
        ("id", ids as _),
        ("w", column(|row| row.1 * 10) as _),
        ("v", values as _),
    ])
    .unwrap()
}

/// All values of `w` in memory, in the order of the rows; `None` of rows that are older.
fn values_of_w(writer: &ShardWriter) -> Vec<Option<i64>> {
    let mut values = Vec::new();
    for view in writer.snapshot().unwrap().memtables {
        for batch in view.batches() {
            match batch.column_by_name("w") {
                Some(column) => values.extend(column.as_primitive::<Int64Type>().iter()),
                None => values.extend(vec![None; batch.num_rows()]),
            }
        }
    }
    values
}

#[tokio::test]
async fn a_flush_brings_the_new_columns_and_every_row_stays() {
    within(async {
        let fixture = Fixture::new().await;
        let writer = fixture.open().await;
        fixture.put(&writer, &[(1, 10), (2, 20)]).await.unwrap();
        fixture.columns.set(with_w());
        writer.flush().await.unwrap();
        assert!(writer.schema().has_columns_of(&with_w()), "before any put asks for them");
        writer.put(&wide_rows(&[(2, 21), (3, 30)])).await.unwrap();
        assert_eq!(values_of_w(&writer), [Some(210), Some(300)]);
        assert_eq!(fixture.seen(&writer), fixture.rows(&[(1, 10), (2, 21), (3, 30)]));
        writer.close(true).await.unwrap();
        assert_eq!(fixture.stored().await, fixture.rows(&[(1, 10), (2, 21), (3, 30)]));
    })
    .await;
}

#[tokio::test]
async fn a_put_that_does_not_fit_is_tried_again_under_the_newest_columns() {
    within(async {
        let fixture = Fixture::new().await;
        let writer = fixture.open_with(patient()).await;
        fixture.put(&writer, &[(1, 10)]).await.unwrap();
        assert!(writer.put(&wide_rows(&[(2, 20)])).await.is_err(), "the table has no such column");
        assert_eq!(fixture.columns.looks(), 1);
        fixture.columns.set(with_w());
        writer.put(&wide_rows(&[(2, 20)])).await.unwrap();
        assert_eq!(values_of_w(&writer).last(), Some(&Some(200)));
        assert_eq!(fixture.seen(&writer), fixture.rows(&[(1, 10), (2, 20)]));
    })
    .await;
}

#[tokio::test]
async fn a_slow_look_at_the_columns_takes_nothing_back() {
    within(async {
        let fixture = Fixture::new().await;
        let writer = Arc::new(fixture.open().await);
        let hold = gate();
        fixture.columns.hold_next_look(hold.clone());
        let slow = look(&writer);
        hold.wait_for_visitors(1).await;
        fixture.columns.set(with_w());
        let quick = look(&writer);
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        hold.open();
        slow.await.unwrap().unwrap();
        assert!(quick.await.unwrap().unwrap());
        writer.put(&wide_rows(&[(1, 10)])).await.unwrap();
        assert_eq!(values_of_w(&writer), [Some(100)]);
    })
    .await;
}

#[tokio::test]
async fn many_that_wait_for_a_look_are_served_by_the_next_one() {
    within(async {
        let fixture = Fixture::new().await;
        let writer = Arc::new(fixture.open().await);
        let hold = gate();
        fixture.columns.hold_next_look(hold.clone());
        let slow = look(&writer);
        hold.wait_for_visitors(1).await;
        fixture.columns.set(with_w());
        let waiting: Vec<_> = (0..20).map(|_| look(&writer)).collect();
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        hold.open();
        assert!(!slow.await.unwrap().unwrap());
        for look in waiting {
            assert!(look.await.unwrap().unwrap(), "its columns may be newer");
        }
        assert_eq!(fixture.columns.looks(), 2);
        writer.put(&wide_rows(&[(1, 10)])).await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_flush_of_nothing_brings_the_new_columns_too() {
    within(async {
        let fixture = Fixture::new().await;
        let writer = fixture.open().await;
        fixture.columns.set(with_w());
        writer.flush().await.unwrap();
        writer.put(&wide_rows(&[(1, 10)])).await.unwrap();
        assert_eq!(values_of_w(&writer), [Some(100)]);
    })
    .await;
}

#[tokio::test]
async fn rows_in_memory_keep_their_columns_and_new_rows_begin_a_memtable() {
    within(async {
        let fixture = Fixture::new().await;
        let writer = fixture.open_with(patient()).await;
        fixture.put(&writer, &[(1, 10), (2, 20)]).await.unwrap();
        fixture.columns.set(with_w());
        assert!(writer.follow_table().await.unwrap());
        assert!(!writer.follow_table().await.unwrap(), "there is nothing newer");
        writer.put(&wide_rows(&[(2, 21)])).await.unwrap();
        assert_eq!(fixture.seen(&writer), fixture.rows(&[(1, 10), (2, 21)]));
        writer.close(false).await.unwrap();
        let entries = fixture.data_entries().await;
        let columns: Vec<usize> =
            entries.iter().map(|(_, entry)| entry.batches[0].num_columns()).collect();
        assert_eq!(columns, [3, 4], "an entry has rows of one schema");
        assert_eq!(fixture.stored().await, fixture.rows(&[(1, 10), (2, 21)]));
    })
    .await;
}

#[tokio::test]
async fn a_job_that_opens_with_older_columns_than_the_log_has_reads_the_log_under_newer() {
    within(async {
        let fixture = Fixture::new().await;
        fixture.columns.set(with_w());
        let writer = fixture.open().await;
        writer.flush().await.unwrap();
        writer.put(&wide_rows(&[(1, 10)])).await.unwrap();
        writer.close(false).await.unwrap();
        // It looked at the table before the column was added.
        let again = fixture.open().await;
        assert_eq!(values_of_w(&again), [Some(100)]);
        again.put(&wide_rows(&[(2, 20)])).await.unwrap();
        assert_eq!(values_of_w(&again), [Some(100), Some(200)]);
    })
    .await;
}

#[tokio::test]
async fn what_a_job_cannot_follow_stops_its_puts_until_it_is_undone() {
    within(async {
        let fixture = Fixture::new().await;
        let writer = fixture.open().await;
        fixture.put(&writer, &[(1, 10)]).await.unwrap();
        fixture.columns.set(table_of(&[("id", DataType::Int64), ("v", DataType::Utf8)]));
        writer.flush().await.unwrap();
        let entries = fixture.data_entries().await.len();
        let error = fixture.put(&writer, &[(2, 20)]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().starts_with("column 'v' was int64 and is string now"), "{error}");
        assert_eq!(writer.follow_table().await.unwrap_err().to_string(), error.to_string());
        assert_eq!(fixture.data_entries().await.len(), entries);

        fixture.columns.restore();
        assert!(writer.follow_table().await.unwrap());
        fixture.put(&writer, &[(2, 20)]).await.unwrap();
        assert_eq!(fixture.seen(&writer), fixture.rows(&[(1, 10), (2, 20)]));
    })
    .await;
}

#[tokio::test]
async fn another_key_is_never_followed() {
    within(async {
        let fixture = Fixture::new().await;
        let writer = fixture.open().await;
        fixture.columns.set(table_of(&[("id", DataType::Int32), ("v", DataType::Int64)]));
        let error = writer.follow_table().await.unwrap_err().to_string();
        assert!(error.contains("primary key column 'id'"), "{error}");
        let other = Schema::new(vec![
            Field::new("id", DataType::Int64, false),
            Field::new("v", DataType::Int64, false),
        ]);
        let other = RowSchema::new(Arc::new(other), &["v".to_owned()]).unwrap();
        fixture.columns.set(Arc::new(other));
        let error = writer.follow_table().await.unwrap_err().to_string();
        assert!(error.contains("the primary key was (id) and is (v) now"), "{error}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn puts_that_meet_a_change_are_all_there_afterwards() {
    within(async {
        let fixture = Arc::new(Fixture::new().await);
        let writer = Arc::new(fixture.open_with(quick().with_sync_indexed_write(true)).await);
        let puts: Vec<_> = (0..4)
            .map(|task| {
                let (fixture, writer) = (fixture.clone(), writer.clone());
                tokio::spawn(async move {
                    for round in 0..50 {
                        fixture.put_what_fits(&writer, task * 1000 + round, round).await;
                    }
                })
            })
            .collect();
        for round in 0..20 {
            let columns = if round % 2 == 0 { with_w() } else { fixture.shape.row_schema() };
            fixture.columns.set(columns);
            writer.follow_table().await.unwrap();
            tokio::task::yield_now().await;
        }
        for put in puts {
            put.await.unwrap();
        }
        let rows = (0..4).flat_map(|task| (0..50).map(move |round| (task * 1000 + round, round)));
        let expected = fixture.rows(&rows.collect::<Vec<_>>());
        assert_eq!(fixture.seen(&writer), expected);
        writer.close(false).await.unwrap();
        assert_eq!(fixture.stored().await, expected);
    })
    .await;
}

impl Fixture {
    /// Puts a row under whichever columns the job has at that moment.
    async fn put_what_fits(&self, writer: &ShardWriter, id: i64, value: i64) {
        while self.put(writer, &[(id, value)]).await.is_err()
            && writer.put(&wide_rows(&[(id, value)])).await.is_err()
        {}
    }
}
