//! Rows by key: which level answers, in which order, and with which columns.
//!
//! Owns: `Table::get` and `Table::get_of_snapshot` with rows in the base table, in SSTables, in the
//! log and in the memory of a job.
//! Does not own: random tables (`model`), damage, or keys in the forms of Python.

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use lancemem::{Consistency, ErrorKind};
use lancemem_testkit::{KeyShape, NULL};

use crate::fixture::{Fixture, Level, job_of, job_with, patient, within};

#[tokio::test]
async fn the_newest_level_that_has_a_key_answers_for_it() {
    within(async {
        let fixture = Fixture::new().await;
        fixture.to_base(&[(1, 10), (2, 20), (3, 30), (4, 40), (5, 50)]).await;
        fixture.to_sstable(&[(2, 21), (3, 31), (6, 61)], &[4]).await;
        let job = job_of(&fixture.table).await;
        job.put(&fixture.shape.rows(&[(3, 32), (7, 72)])).await.unwrap();
        job.delete(&fixture.shape.keys(&[5])).await.unwrap();
        let asked = [1, 2, 3, 4, 5, 6, 7, 8];
        let newest = [Some(10), Some(21), Some(32), None, None, Some(61), Some(72), None];
        let live = Level::live(std::slice::from_ref(&job));
        assert_eq!(fixture.get(&live, &asked).await, newest);
        assert_eq!(fixture.get(&Level::durable(), &asked).await, newest);
        let flushed = [Some(10), Some(21), Some(31), None, Some(50), Some(61), None, None];
        assert_eq!(fixture.get(&Level::flushed(), &asked).await, flushed);
        job.close(false).await.unwrap();
        assert_eq!(fixture.get(&Level::durable(), &asked).await, newest);
    })
    .await;
}

#[tokio::test]
async fn rows_that_only_a_running_job_has_are_found_by_a_live_read_alone() {
    within(async {
        let fixture = Fixture::new().await;
        fixture.to_base(&[(1, 10), (2, 20)]).await;
        let job = job_with(&fixture.table, patient()).await;
        job.put(&fixture.shape.rows(&[(1, 11), (3, 31)])).await.unwrap();
        job.delete(&fixture.shape.keys(&[2])).await.unwrap();
        let live = Level::live(std::slice::from_ref(&job));
        assert_eq!(fixture.get(&live, &[1, 2, 3]).await, [Some(11), None, Some(31)]);
        assert_eq!(fixture.get(&Level::durable(), &[1, 2, 3]).await, [Some(10), Some(20), None]);
        job.close(false).await.unwrap();
        assert_eq!(fixture.get(&Level::durable(), &[1, 2, 3]).await, [Some(11), None, Some(31)]);
    })
    .await;
}

#[tokio::test]
async fn a_read_that_names_a_closed_job_is_refused() {
    within(async {
        let fixture = Fixture::new().await;
        let job = job_of(&fixture.table).await;
        let live = Level::live(std::slice::from_ref(&job));
        job.close(false).await.unwrap();
        let keys = fixture.shape.keys(&[1]);
        let refused = fixture.table.get(&keys, None, live.consistency, &live.jobs).await;
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Reopen);
    })
    .await;
}

#[tokio::test]
async fn a_key_that_the_call_names_twice_gives_its_row_twice() {
    within(async {
        let fixture = Fixture::new().await;
        fixture.to_base(&[(1, 10), (2, 20)]).await;
        fixture.to_log(&[(3, NULL)], &[]).await;
        let asked = [2, 9, 3, 2, 9, 2];
        let keys = fixture.shape.keys(&asked);
        let found = fixture.table.get(&keys, None, Consistency::Durable, &[]).await.unwrap();
        assert_eq!((found.num_rows(), found.missing), (4, vec![1, 4]));
        assert_eq!(found.keys.columns(), keys.columns());
        let answers = [Some(20), None, Some(NULL), Some(20), None, Some(20)];
        assert_eq!(fixture.get(&Level::durable(), &asked).await, answers);
    })
    .await;
}

#[tokio::test]
async fn a_call_of_no_keys_and_a_table_of_no_rows_find_nothing() {
    within(async {
        let fixture = Fixture::new().await;
        assert_eq!(fixture.get(&Level::durable(), &[1, 2]).await, [None, None]);
        assert!(fixture.get(&Level::durable(), &[]).await.is_empty());
        fixture.to_base(&[(1, 10)]).await;
        fixture.to_log(&[(2, 20)], &[]).await;
        assert!(fixture.get(&Level::durable(), &[]).await.is_empty());
    })
    .await;
}

#[tokio::test]
async fn a_deleted_key_is_missing_on_every_level_until_it_is_written_again() {
    within(async {
        let fixture = Fixture::new().await;
        fixture.to_base(&[(1, 10), (2, 20)]).await;
        fixture.to_log(&[], &[1]).await;
        assert_eq!(fixture.get(&Level::durable(), &[1, 2]).await, [None, Some(20)]);
        fixture.flush().await;
        assert_eq!(fixture.get(&Level::flushed(), &[1, 2]).await, [None, Some(20)]);
        fixture.table.compact().await.unwrap();
        assert_eq!(fixture.get(&Level::flushed(), &[1, 2]).await, [None, Some(20)]);
        fixture.to_log(&[(1, 11)], &[]).await;
        assert_eq!(fixture.get(&Level::durable(), &[1, 2]).await, [Some(11), Some(20)]);
        fixture.flush().await;
        fixture.to_log(&[(2, 21)], &[1]).await;
        assert_eq!(fixture.get(&Level::durable(), &[1, 2]).await, [None, Some(21)]);
        fixture.to_base(&[(1, 12)]).await;
        assert_eq!(fixture.get(&Level::flushed(), &[1, 2]).await, [Some(12), Some(21)]);
    })
    .await;
}

#[tokio::test]
async fn only_the_columns_that_a_call_names_come_in_its_order() {
    within(async {
        let fixture = Fixture::new().await;
        fixture.to_base(&[(1, 10)]).await;
        fixture.to_sstable(&[(2, 20)], &[]).await;
        fixture.to_log(&[(3, 30)], &[]).await;
        let keys = fixture.shape.keys(&[3, 4, 1, 2]);
        let get = |columns: &[&str]| {
            let columns = columns.iter().map(|name| (*name).to_owned()).collect();
            fixture.table.get(&keys, Some(columns), Consistency::Durable, &[])
        };
        for columns in [&["v", "id"][..], &["id", "v"], &["v"], &["id"], &[]] {
            let found = get(columns).await.unwrap();
            assert_eq!((found.num_rows(), &*found.missing), (3, &[1][..]), "{columns:?}");
            let [batch] = &found.rows[..] else { panic!("{} batches", found.rows.len()) };
            let schema = batch.schema();
            let names: Vec<&str> = schema.fields().iter().map(|it| it.name().as_str()).collect();
            assert_eq!(names, columns);
            if let Some(values) = batch.column_by_name("v") {
                assert_eq!(values.as_primitive::<Int64Type>().values(), &[30, 10, 20]);
            }
            if let Some(ids) = batch.column_by_name("id") {
                assert_eq!(ids.as_primitive::<Int64Type>().values(), &[3, 1, 2]);
            }
        }
        let refused = get(&["w"]).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidInput);
        assert!(refused.to_string().contains("column 'w' is not in the table"), "{refused}");
    })
    .await;
}

#[tokio::test]
async fn keys_without_their_columns_are_refused() {
    within(async {
        let fixture = Fixture::new().await;
        let keys = KeyShape::Utf8.keys(&[1]);
        let refused = fixture.table.get(&keys, None, Consistency::Durable, &[]).await;
        let refused = refused.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidInput);
        assert!(refused.to_string().contains("'id' is missing"), "{refused}");
    })
    .await;
}

/// Some of the keys 0 to 11 on each level, so that keys that share a column are on different ones.
async fn spread(shape: KeyShape, shards: u32) -> Fixture {
    let fixture = Fixture::with(shape, shards).await;
    fixture.to_log(&[(0, 0), (1, 1), (2, 2), (3, 3), (4, 4), (5, 5)], &[]).await;
    fixture.flush().await;
    fixture.table.compact().await.unwrap();
    fixture.to_log(&[(1, 101), (4, 104), (7, 107), (8, 108)], &[3]).await;
    fixture.flush().await;
    fixture.to_log(&[(4, 204), (8, 208), (10, 210)], &[7]).await;
    fixture
}

const SPREAD: [(i64, Option<i64>); 12] = [
    (0, Some(0)),
    (1, Some(101)),
    (2, Some(2)),
    (3, None),
    (4, Some(204)),
    (5, Some(5)),
    (6, None),
    (7, None),
    (8, Some(208)),
    (9, None),
    (10, Some(210)),
    (11, None),
];

/// All keys in one call, in both orders, and each alone.
async fn check_spread(fixture: &Fixture) {
    let level = Level::durable();
    let (mut numbers, mut answers): (Vec<i64>, Vec<Option<i64>>) = SPREAD.into_iter().unzip();
    assert_eq!(fixture.get(&level, &numbers).await, answers);
    numbers.reverse();
    answers.reverse();
    assert_eq!(fixture.get(&level, &numbers).await, answers);
    for (number, answer) in SPREAD {
        assert_eq!(fixture.get(&level, &[number]).await, [answer], "the key {number}");
    }
}

#[tokio::test]
async fn a_text_key_is_found_whatever_its_length() {
    within(async {
        let mut fixture = spread(KeyShape::Utf8, 1).await;
        check_spread(&fixture).await;
        fixture.reopen().await;
        check_spread(&fixture).await;
    })
    .await;
}

#[tokio::test]
async fn a_composite_key_is_found_by_all_of_its_columns() {
    within(async {
        let mut fixture = spread(KeyShape::Composite, 1).await;
        check_spread(&fixture).await;
        fixture.reopen().await;
        check_spread(&fixture).await;
    })
    .await;
}

#[tokio::test]
async fn keys_of_several_shards_come_in_the_order_of_the_call() {
    for shape in [KeyShape::Int64, KeyShape::Utf8, KeyShape::Composite] {
        within(async {
            let fixture = spread(shape, 3).await;
            check_spread(&fixture).await;
        })
        .await;
    }
}

#[tokio::test]
async fn a_record_index_finds_the_same_rows_before_and_after_it_is_extended() {
    for shape in [KeyShape::Int64, KeyShape::Utf8, KeyShape::Composite] {
        within(async {
            let mut fixture = spread(shape, 1).await;
            let report = fixture.table.create_record_index().await.unwrap();
            assert_eq!((report.fragments_uncovered, report.entries), (0, 6));
            check_spread(&fixture).await;
            fixture.flush().await;
            fixture.table.compact().await.unwrap();
            let report = fixture.table.verify_record_index().await.unwrap();
            assert!(report.damage.is_empty(), "{report:?}");
            check_spread(&fixture).await;
            fixture.reopen().await;
            check_spread(&fixture).await;
            fixture.table.drop_record_index().await.unwrap();
            check_spread(&fixture).await;
        })
        .await;
    }
}

#[tokio::test]
async fn a_snapshot_finds_what_it_has_whatever_is_written_later() {
    within(async {
        let fixture = Fixture::new().await;
        fixture.to_base(&[(1, 10), (2, 20)]).await;
        fixture.to_sstable(&[(2, 21), (3, 31)], &[]).await;
        fixture.to_log(&[(4, 42)], &[1]).await;
        let snapshot = fixture.table.snapshot(Consistency::Durable, &[]).await.unwrap();
        let found = [None, Some(21), Some(31), Some(42), None];
        assert_eq!(fixture.get_in(&snapshot, &[1, 2, 3, 4, 5]).await, found);
        fixture.to_log(&[(1, 13), (2, 23), (5, 53)], &[3, 4]).await;
        assert_eq!(fixture.get_in(&snapshot, &[1, 2, 3, 4, 5]).await, found);
        fixture.flush().await;
        fixture.table.compact().await.unwrap();
        assert_eq!(fixture.get_in(&snapshot, &[1, 2, 3, 4, 5]).await, found);
        let newest = [Some(13), Some(23), None, None, Some(53)];
        assert_eq!(fixture.get(&Level::flushed(), &[1, 2, 3, 4, 5]).await, newest);
    })
    .await;
}
