//! Divided reads: the parts of one snapshot.
//!
//! Owns: that each row is in exactly one part, over base table, SSTables, log and memory.
//! Does not own: the shares of the parts (`plan::partition`), or tokens of a snapshot.

use std::collections::BTreeMap;
use std::sync::Arc;

use lancemem::{Condition, ReadPart, Scan, ScanOptions, Snapshot};
use lancemem_testkit::Rows;

use crate::fixture::{Fixture, Level, job_of, within};

/// The newest value of each key.
type Model = BTreeMap<i64, i64>;

fn valued(numbers: impl Iterator<Item = i64>, value: i64) -> Vec<(i64, i64)> {
    numbers.map(|number| (number, value)).collect()
}

fn multiples(of: i64) -> Vec<i64> {
    (0..45_000).filter(|number| number % of == 0).collect()
}

/// Two SSTables of several cuts each replace and delete rows of the base table and of each other.
async fn filled(fixture: &Fixture) -> Model {
    let base = valued(0..30_000, 1);
    fixture.to_base(&base).await;
    let mut model: Model = base.into_iter().collect();
    for (rows, deleted) in
        [(valued(20_000..45_000, 2), multiples(7)), (valued(25_000..40_000, 3), multiples(11))]
    {
        fixture.to_sstable(&rows, &deleted).await;
        apply(&mut model, &rows, &deleted);
    }
    let (rows, deleted) = (valued(40_000..40_100, 4), [1, 20_001, 25_001]);
    fixture.to_log(&rows, &deleted).await;
    apply(&mut model, &rows, &deleted);
    model
}

fn apply(model: &mut Model, rows: &[(i64, i64)], deleted: &[i64]) {
    model.extend(rows.iter().copied());
    model.retain(|number, _| !deleted.contains(number));
}

async fn snapshot_at(fixture: &Fixture, level: &Level) -> Arc<Snapshot> {
    fixture.table.snapshot(level.consistency, &level.jobs).await.unwrap()
}

/// The rows of all `of` parts. A key that two parts have fails.
async fn in_parts(
    fixture: &Fixture,
    snapshot: &Arc<Snapshot>,
    of: usize,
    filter: Option<&str>,
) -> Rows {
    let mut all = Rows::new();
    for index in 0..of {
        let options = ScanOptions::default()
            .with_part(ReadPart::new(index, of).unwrap())
            .with_filter(filter.map(Condition::from));
        let scan = Scan::of_snapshot(fixture.table.clone(), snapshot.clone(), options);
        let rows = fixture.collected(&scan).await;
        assert_eq!(scan.count_rows().await.unwrap(), rows.len(), "part {index} of {of}");
        for (key, value) in rows {
            let before = all.insert(key.clone(), value);
            assert!(before.is_none(), "two parts of {of} have the key {key:?}");
        }
    }
    all
}

async fn parts_agree(fixture: &Fixture, level: &Level, model: &Model) {
    let snapshot = snapshot_at(fixture, level).await;
    assert!(ReadPart::most(&snapshot) > 4, "the SSTables can be cut");
    for of in [1, 2, 3, 8] {
        for (filter, shown) in [
            (None, (|_, _| true) as fn(i64, i64) -> bool),
            (Some("v >= 2"), |_, value| value >= 2),
            (Some("v = 1 AND id % 5 = 0"), |number, value| value == 1 && number % 5 == 0),
        ] {
            let expected: Vec<(i64, i64)> = model
                .iter()
                .map(|(number, value)| (*number, *value))
                .filter(|(number, value)| shown(*number, *value))
                .collect();
            let found = in_parts(fixture, &snapshot, of, filter).await;
            assert!(found == fixture.rows(&expected), "{of} parts with {filter:?}: other rows");
        }
    }
}

#[tokio::test]
async fn each_row_is_in_one_part() {
    within(async {
        let fixture = Fixture::new().await;
        let model = filled(&fixture).await;
        parts_agree(&fixture, &Level::durable(), &model).await;
    })
    .await;
}

#[tokio::test]
async fn each_row_of_a_running_job_is_in_one_part() {
    within(async {
        let fixture = Fixture::new().await;
        let mut model = filled(&fixture).await;
        let job = job_of(&fixture.table).await;
        let rows = valued(44_990..45_010, 5);
        job.put(&fixture.shape.rows(&rows)).await.unwrap();
        apply(&mut model, &rows, &[]);
        parts_agree(&fixture, &Level::live(&[job]), &model).await;
    })
    .await;
}

#[tokio::test]
async fn parts_of_a_snapshot_see_no_later_write() {
    within(async {
        let fixture = Fixture::new().await;
        let model = filled(&fixture).await;
        let snapshot = snapshot_at(&fixture, &Level::durable()).await;
        let expected: Vec<(i64, i64)> = model.into_iter().collect();
        let first = in_parts(&fixture, &snapshot, 3, None).await;
        fixture.to_sstable(&valued(0..100, 9), &multiples(13)).await;
        let second = in_parts(&fixture, &snapshot, 3, None).await;
        assert!(first == fixture.rows(&expected), "the first read has other rows");
        assert!(first == second, "the second read has other rows");
    })
    .await;
}
