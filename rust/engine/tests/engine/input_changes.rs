//! Events before a compaction: every upsert and delete as it came, from logs and SSTables.
//!
//! Owns: their order, that each position of a table's life gives each later event once, and starts
//! whose events are gone.
//! Does not own: the command line and Arrow streams of Python (`tests/test_changes_input.py`).

use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use lancemem::{
    CollectionSettings, Condition, Error, ErrorKind, InputFeed, InputOptions, InputPosition,
    WriteBatch,
};
use lancemem_testkit::{KeyShape, NULL};

use crate::fixture::{Fixture, job_of, within};

/// Kind, key, value, shard, generation, row.
type Event = (String, i64, i64, String, i64, i64);

async fn feed_of(
    fixture: &Fixture,
    since: Option<&InputPosition>,
    until: Option<&InputPosition>,
) -> lancemem::Result<InputFeed> {
    fixture.table.input_changes(since, until, &InputOptions::default()).await
}

fn events_of(batches: &[RecordBatch]) -> Vec<Event> {
    let number = |batch: &RecordBatch, name: &str, row: usize| {
        let column = batch.column_by_name(name).unwrap().as_primitive::<Int64Type>().clone();
        column.iter().nth(row).unwrap().unwrap_or(NULL)
    };
    let text = |batch: &RecordBatch, name: &str, row: usize| {
        batch.column_by_name(name).unwrap().as_string::<i32>().value(row).to_owned()
    };
    let event = |batch: &RecordBatch, row: usize| {
        let (kind, shard) = (text(batch, "_change_type", row), text(batch, "_shard", row));
        let (id, value) = (number(batch, "id", row), number(batch, "v", row));
        (kind, id, value, shard, number(batch, "_generation", row), number(batch, "_row", row))
    };
    let of = |batch: &RecordBatch| (0..batch.num_rows()).map(|row| event(batch, row)).collect();
    batches.iter().flat_map(|batch| -> Vec<Event> { of(batch) }).collect()
}

async fn events(feed: &InputFeed) -> Vec<Event> {
    let (schema, batches) = feed.collect().await.unwrap();
    assert!(batches.iter().all(|batch| batch.schema() == schema));
    events_of(&batches)
}

/// The events that a consumer has read, and each position at which it stopped.
#[derive(Default)]
struct Consumer {
    seen: Vec<Event>,
    stops: Vec<(InputPosition, usize)>,
}

impl Consumer {
    /// Reads what is new, by the text of its position.
    async fn poll(&mut self, fixture: &Fixture) {
        let since = self.stops.last().map(|(position, _)| position.to_string());
        let since = since.map(|text| text.parse::<InputPosition>().unwrap());
        let feed = feed_of(fixture, since.as_ref(), None).await.unwrap();
        assert_eq!(feed.since(), since.as_ref());
        self.seen.extend(events(&feed).await);
        self.stops.push((feed.until().clone(), self.seen.len()));
    }

    /// Every stop gives each later event once, up to every later stop.
    async fn check(&self, fixture: &Fixture) {
        for (place, (since, from)) in self.stops.iter().enumerate() {
            for (until, to) in &self.stops[place..] {
                let feed = feed_of(fixture, Some(since), Some(until)).await.unwrap();
                assert_eq!(feed.until(), until);
                let mut found = events(&feed).await;
                let mut expected = self.seen[*from..*to].to_vec();
                found.sort();
                expected.sort();
                assert_eq!(found, expected, "from {since} to {until}");
            }
        }
    }

    fn told(&self) -> Vec<(&str, i64, i64)> {
        self.seen.iter().map(|event| (event.0.as_str(), event.1, event.2)).collect()
    }
}

fn collection() -> CollectionSettings {
    CollectionSettings::default().with_older_than(Duration::ZERO)
}

#[tokio::test]
async fn each_event_comes_once_from_log_and_sstable_and_behind_a_compaction() {
    within(async {
        let mut fixture = Fixture::new().await;
        let mut consumer = Consumer::default();
        consumer.poll(&fixture).await;
        fixture.to_log(&[(1, 10), (2, 20), (1, 11)], &[]).await;
        consumer.poll(&fixture).await;
        fixture.to_log(&[(1, 12)], &[2]).await;
        consumer.poll(&fixture).await;
        fixture.flush().await;
        consumer.poll(&fixture).await;
        consumer.check(&fixture).await;
        fixture.to_sstable(&[(3, 30), (1, 13)], &[3]).await;
        // Another job takes over a log that it replays.
        fixture.to_log(&[(4, 40)], &[]).await;
        consumer.poll(&fixture).await;
        let job = job_of(&fixture.table).await;
        job.put(&fixture.shape.rows(&[(4, 41)])).await.unwrap();
        consumer.poll(&fixture).await;
        consumer.check(&fixture).await;
        job.close(true).await.unwrap();
        fixture.table.compact().await.unwrap();
        consumer.poll(&fixture).await;
        consumer.check(&fixture).await;
        fixture.reopen().await;
        fixture.to_log(&[(5, 50)], &[1]).await;
        consumer.poll(&fixture).await;
        consumer.check(&fixture).await;
        assert_eq!(
            consumer.told(),
            [
                ("upsert", 1, 10),
                ("upsert", 2, 20),
                ("upsert", 1, 11),
                ("upsert", 1, 12),
                ("delete", 2, NULL),
                ("upsert", 3, 30),
                ("upsert", 1, 13),
                ("delete", 3, NULL),
                ("upsert", 4, 40),
                ("upsert", 4, 41),
                ("upsert", 5, 50),
                ("delete", 1, NULL),
            ]
        );
        let mut places: Vec<(i64, i64)> = Vec::new();
        places.extend(consumer.seen.iter().map(|event| (event.4, event.5)));
        assert!(places.is_sorted_by(|left, right| left < right), "{places:?}");
    })
    .await;
}

#[tokio::test]
async fn events_come_in_the_order_of_arrival_in_every_shard() {
    within(async {
        let fixture = Fixture::with(KeyShape::Int64, 3).await;
        let mut consumer = Consumer::default();
        for round in 0..4 {
            let rows: Vec<(i64, i64)> = (0..12).map(|id| (id, 100 * round + id)).collect();
            fixture.to_log(&rows, &[round]).await;
            consumer.poll(&fixture).await;
            if round == 1 {
                fixture.flush().await;
            }
        }
        consumer.check(&fixture).await;
        assert_eq!(consumer.seen.len(), 4 * 13);
        let whole = events(&feed_of(&fixture, None, None).await.unwrap()).await;
        for id in 0..12 {
            let of_key: Vec<&Event> = whole.iter().filter(|event| event.1 == id).collect();
            let places: Vec<(i64, i64)> = of_key.iter().map(|event| (event.4, event.5)).collect();
            assert!(places.is_sorted_by(|left, right| left < right), "{of_key:?}");
            assert!(of_key.iter().all(|event| event.3 == of_key[0].3), "a key has one shard");
        }
        let mut found = whole.clone();
        let mut expected = consumer.seen.clone();
        found.sort();
        expected.sort();
        assert_eq!(found, expected);
    })
    .await;
}

#[tokio::test]
async fn events_that_were_compacted_and_collected_are_refused_with_the_oldest_generation() {
    within(async {
        let mut fixture = Fixture::new().await;
        let start = feed_of(&fixture, None, None).await.unwrap().until().clone();
        fixture.to_sstable(&[(1, 10)], &[]).await;
        let first = feed_of(&fixture, Some(&start), None).await.unwrap().until().clone();
        fixture.to_sstable(&[(2, 20)], &[]).await;
        fixture.table.compact().await.unwrap();
        assert_eq!(events(&feed_of(&fixture, Some(&first), None).await.unwrap()).await.len(), 1);
        fixture.to_log(&[(3, 30)], &[]).await;
        fixture.reopen().await;
        fixture.table.collect_garbage(&collection()).await.unwrap();
        fixture.reopen().await;
        for since in [&start, &first] {
            let refused = feed_of(&fixture, Some(since), None).await.unwrap_err();
            assert!(matches!(refused, Error::ChangesExpired { oldest: 3, .. }), "{refused}");
            let shard = fixture.table.shards().await.unwrap()[0].shard_id;
            assert!(refused.to_string().contains(&shard.to_string()), "{refused}");
            assert_eq!(refused.kind(), ErrorKind::InvalidInput);
            // Nothing is read between equal positions.
            assert!(
                events(&feed_of(&fixture, Some(since), Some(since)).await.unwrap())
                    .await
                    .is_empty()
            );
        }
        let left = events(&feed_of(&fixture, None, None).await.unwrap()).await;
        assert_eq!(left.iter().map(|event| event.1).collect::<Vec<_>>(), [3]);
    })
    .await;
}

#[tokio::test]
async fn a_bulk_write_has_its_events_in_their_order() {
    within(async {
        let fixture = Fixture::new().await;
        let mut consumer = Consumer::default();
        fixture.to_log(&[(1, 10)], &[]).await;
        consumer.poll(&fixture).await;
        let mut bulk = fixture.table.bulk_writer().await.unwrap();
        let rows = fixture.shape.rows(&[(2, 20), (1, 11), (2, 21)]);
        bulk.write(WriteBatch::upserts(&rows)).await.unwrap();
        let staged = bulk.finish().await.unwrap();
        fixture.table.link(&staged, None, None).await.unwrap();
        consumer.poll(&fixture).await;
        fixture.to_log(&[(3, 30)], &[]).await;
        consumer.poll(&fixture).await;
        consumer.check(&fixture).await;
        let told = consumer.told();
        assert_eq!(told.first(), Some(&("upsert", 1, 10)));
        assert_eq!(told.last(), Some(&("upsert", 3, 30)));
        assert_eq!(told.len(), 5);
    })
    .await;
}

#[tokio::test]
async fn a_condition_keeps_a_delete_that_it_cannot_judge() {
    within(async {
        let fixture = Fixture::new().await;
        fixture.to_log(&[(1, 10), (2, 20)], &[1, 2]).await;
        for (condition, expected) in [
            ("v > 15", vec![("upsert", 2), ("delete", 1), ("delete", 2)]),
            ("id = 1", vec![("upsert", 1), ("delete", 1)]),
            ("id = 1 AND v > 15", vec![("delete", 1)]),
        ] {
            let options = InputOptions::default()
                .with_filter(Condition::from(condition))
                .with_columns(vec!["id".to_owned()]);
            let feed = fixture.table.input_changes(None, None, &options).await.unwrap();
            let names: Vec<String> =
                feed.schema().fields().iter().map(|field| field.name().clone()).collect();
            assert_eq!(names, ["id", "_change_type", "_shard", "_generation", "_row"]);
            let mut found = Vec::new();
            for batch in feed.collect().await.unwrap().1 {
                let ids = batch.column(0).as_primitive::<Int64Type>().clone();
                let kinds = batch.column(1).as_string::<i32>().clone();
                for row in 0..batch.num_rows() {
                    found.push((kinds.value(row).to_owned(), ids.value(row)));
                }
            }
            let found: Vec<(&str, i64)> =
                found.iter().map(|(kind, id)| (kind.as_str(), *id)).collect();
            assert_eq!(found, expected, "{condition}");
        }
    })
    .await;
}

#[tokio::test]
async fn positions_that_a_table_does_not_have_are_refused() {
    within(async {
        let fixture = Fixture::new().await;
        let start = feed_of(&fixture, None, None).await.unwrap().until().clone();
        fixture.to_log(&[(1, 10)], &[]).await;
        let end = feed_of(&fixture, None, None).await.unwrap().until().clone();
        let shard = fixture.table.shards().await.unwrap()[0].shard_id;
        let position = |text: String| text.parse::<InputPosition>().unwrap();
        let behind = position(format!("input1,{shard}:1:2"));
        let other = position("input1,00000000-0000-0000-0000-000000000007:1:0".to_owned());
        for (since, until, told) in [
            (Some(&end), Some(&start), "after until"),
            (Some(&behind), None, "next event"),
            (None, Some(&behind), "next event"),
            (Some(&other), None, "another table"),
            (None, Some(&other), "another table"),
        ] {
            let refused = feed_of(&fixture, since, until).await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::InvalidInput);
            assert!(refused.to_string().contains(told), "{refused}");
        }
        let nameless = InputOptions::default().with_columns(vec!["w".to_owned()]);
        let refused = fixture.table.input_changes(None, None, &nameless).await.unwrap_err();
        assert!(refused.to_string().contains("no column 'w'"), "{refused}");
    })
    .await;
}
