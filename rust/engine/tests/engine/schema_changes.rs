//! Columns that are added, dropped and widened while rows are on every level of a table.
//!
//! Owns: what older rows show under the newest columns, in scans and in reads by key, and a job
//! that runs on during the change.
//! Does not own: which stored column is which (`format::reconcile` of the core), when a job looks
//! for new columns (`schema_change` of the core's stories), or the table of the stories (`board`).

mod board;

use std::sync::Arc;

use arrow_array::{Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use lancemem::{CompactionMode, CompactionSettings, ErrorKind, Job, Treatment};

use self::board::{Board, forget, keys, rows, set, texts, with_numbers, written};
use crate::fixture::{Level, job_of, within};

#[tokio::test]
async fn an_added_column_is_null_in_the_rows_of_every_level() {
    within(async {
        let board = Board::on_every_level().await;
        let mut want = written();
        board.check(&Level::durable(), &want).await;
        board.add_column("extra", DataType::Int64).await;
        set(&mut want, "extra", "");
        board.check_to_the_base(&want).await;
    })
    .await;
}

#[tokio::test]
async fn a_dropped_column_is_gone_from_the_rows_of_every_level() {
    within(async {
        let board = Board::on_every_level().await;
        let mut want = written();
        board.check(&Level::durable(), &want).await;
        board.drop_column("n").await;
        forget(&mut want, "n");
        board.check_to_the_base(&want).await;
    })
    .await;
}

#[tokio::test]
async fn a_widened_column_keeps_the_values_of_every_level() {
    within(async {
        let board = Board::on_every_level().await;
        let want = written();
        board.check(&Level::durable(), &want).await;
        board.table.alter_column("n", &DataType::Int64).await.unwrap();
        board.table.alter_column("f", &DataType::Float64).await.unwrap();
        board.check_to_the_base(&want).await;
        let schema = board.table.schema();
        assert_eq!(schema.field_with_name("n").unwrap().data_type(), &DataType::Int64);
        assert_eq!(schema.field_with_name("f").unwrap().data_type(), &DataType::Float64);
    })
    .await;
}

#[tokio::test]
async fn a_column_that_was_dropped_and_added_again_has_no_older_value() {
    within(async {
        let board = Board::on_every_level().await;
        board.drop_column("n").await;
        board.add_column("n", DataType::Int32).await;
        let mut want = written();
        set(&mut want, "n", "");
        board.check_to_the_base(&want).await;
    })
    .await;
}

#[tokio::test]
async fn a_table_that_is_widened_extended_and_narrowed_at_once_keeps_its_rows() {
    within(async {
        let board = Board::on_every_level().await;
        board.table.alter_column("n", &DataType::Int64).await.unwrap();
        board.add_column("extra", DataType::Utf8).await;
        board.drop_column("s").await;
        let mut want = written();
        set(&mut want, "extra", "");
        forget(&mut want, "s");
        board.check_to_the_base(&want).await;
    })
    .await;
}

#[tokio::test]
async fn a_change_of_type_that_could_lose_values_is_refused() {
    within(async {
        let board = Board::on_every_level().await;
        for (column, to) in [
            ("s", DataType::Int64),
            ("n", DataType::Float64),
            ("f", DataType::Int64),
            ("id", DataType::Utf8),
            ("w", DataType::Int64),
        ] {
            let refused = board.table.alter_column(column, &to).await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::InvalidInput, "{column}: {refused}");
        }
        board.check(&Level::durable(), &written()).await;
    })
    .await;
}

/// A job with rows 8 to 13 in its memory.
async fn running(board: &Board) -> Arc<Job> {
    let job = job_of(&board.table).await;
    job.put(&rows(8..14)).await.unwrap();
    job
}

#[tokio::test]
async fn a_running_job_takes_an_added_column_with_the_first_row_that_has_it() {
    within(async {
        let board = Board::on_every_level().await;
        let job = running(&board).await;
        let live = Level::live(std::slice::from_ref(&job));
        board.add_column("extra", DataType::Int64).await;
        let mut want = texts(&[rows(0..14)]);
        set(&mut want, "extra", "");
        board.check(&live, &want).await;
        let mut columns = rows(12..15).columns().to_vec();
        columns.push(Arc::new(Int64Array::from(vec![7, 8, 9])));
        let mut fields = rows(0..0).schema().fields().to_vec();
        fields.push(Arc::new(Field::new("extra", DataType::Int64, true)));
        let wider = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap();
        job.put(&wider).await.unwrap();
        want.append(&mut texts(&[wider]));
        board.check(&live, &want).await;
        board.check(&Level::durable(), &want).await;
        job.close(true).await.unwrap();
        board.check_to_the_base(&want).await;
    })
    .await;
}

#[tokio::test]
async fn a_running_job_goes_on_without_a_dropped_column() {
    within(async {
        let board = Board::on_every_level().await;
        let job = running(&board).await;
        let live = Level::live(std::slice::from_ref(&job));
        board.drop_column("n").await;
        let mut want = texts(&[rows(0..14)]);
        forget(&mut want, "n");
        board.check(&live, &want).await;
        // The second column is `n`.
        let narrower = rows(13..16).project(&[0, 2, 3]).unwrap();
        job.put(&narrower).await.unwrap();
        job.delete(&keys(&[0, 3, 6, 12])).await.unwrap();
        want.append(&mut texts(&[narrower]));
        want.retain(|id, _| ![0, 3, 6, 12].contains(id));
        board.check(&live, &want).await;
        job.close(false).await.unwrap();
        board.check_to_the_base(&want).await;
    })
    .await;
}

#[tokio::test]
async fn a_running_job_takes_values_that_only_the_wider_column_holds() {
    within(async {
        let board = Board::on_every_level().await;
        let job = running(&board).await;
        let live = Level::live(std::slice::from_ref(&job));
        let large = Int64Array::from_iter_values([3_000_000_000, -3_000_000_000]);
        let large = with_numbers(13..15, Arc::new(large));
        let refused = job.put(&large).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidInput, "{refused}");
        board.table.alter_column("n", &DataType::Int64).await.unwrap();
        let mut want = texts(&[rows(0..14)]);
        board.check(&live, &want).await;
        job.put(&large).await.unwrap();
        want.append(&mut texts(&[large]));
        board.check(&live, &want).await;
        job.close(false).await.unwrap();
        board.check_to_the_base(&want).await;
    })
    .await;
}

#[tokio::test]
async fn a_compaction_rewrites_sstables_of_older_columns_with_the_reason() {
    within(async {
        let board = Board::on_every_level().await;
        board.drop_column("n").await;
        let mode = CompactionMode::Link;
        let settings = CompactionSettings::default().with_mode(mode);
        let moved = board.table.compact_with(&settings).await.unwrap();
        let [sstable] = &moved.sstables[..] else { panic!("{moved:?}") };
        assert_eq!(sstable.decision.treatment, Treatment::Rewrite);
        assert!(sstable.decision.reason.contains("column 'n' has changed"), "{moved:?}");
        let mut want = written();
        forget(&mut want, "n");
        board.check_to_the_base(&want).await;
    })
    .await;
}
