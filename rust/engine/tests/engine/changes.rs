//! Changes between versions of the base table: what a feed has, and how consumers keep versions.
//!
//! Owns: inserts, updates and deletes of compactions and of other programs, the law that a state
//! and the changes behind it give the later state, parts, conditions, starts that are gone.
//! Does not own: changes that a compaction stored (`stored_changes`), the command line and Arrow
//! streams of Python (`tests/test_changes.py`).

use std::collections::BTreeMap;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use futures::TryStreamExt;
use lance::Dataset;
use lance::dataset::cleanup::CleanupPolicy;
use lancemem::{
    ChangeCounts, ChangeFeed, ChangeOptions, ChangePart, CompactionMode, CompactionSettings,
    Condition, Error, ErrorKind, Moment, RowKinds, Scan, ScanOptions,
};
use lancemem_testkit::NULL;

use crate::fixture::{Fixture, within};

/// A row of a feed: kind, key, value, version.
pub type Event = (String, i64, i64, u64);

/// The value of each key in one version.
pub type State = BTreeMap<i64, i64>;

pub async fn version(fixture: &Fixture) -> u64 {
    fixture.table.latest_base().await.unwrap().version().version
}

pub async fn base(fixture: &Fixture) -> Dataset {
    Dataset::clone(&*fixture.table.latest_base().await.unwrap())
}

async fn feed(fixture: &Fixture, since: u64, until: u64) -> ChangeFeed {
    feed_with(fixture, since, until, &ChangeOptions::default()).await
}

pub async fn feed_with(
    fixture: &Fixture,
    since: u64,
    until: u64,
    options: &ChangeOptions,
) -> ChangeFeed {
    let (since, until) = (Some(Moment::Version(since)), Some(Moment::Version(until)));
    fixture.table.changes(since, until, options).await.unwrap()
}

pub fn events_of(batches: &[RecordBatch]) -> Vec<Event> {
    let number = |batch: &RecordBatch, name: &str, row: usize| {
        let column = batch.column_by_name(name).unwrap().as_primitive::<Int64Type>().clone();
        column.iter().nth(row).unwrap().unwrap_or(NULL)
    };
    let mut events = Vec::new();
    for batch in batches {
        let kinds = batch.column_by_name("_change_type").unwrap().as_string::<i32>();
        for row in 0..batch.num_rows() {
            let (id, value) = (number(batch, "id", row), number(batch, "v", row));
            let version = u64::try_from(number(batch, "_commit_version", row)).unwrap();
            events.push((kinds.value(row).to_owned(), id, value, version));
        }
    }
    events
}

async fn events(feed: &ChangeFeed) -> Vec<Event> {
    let (schema, batches) = feed.collect().await.unwrap();
    assert!(batches.iter().all(|batch| batch.schema() == schema));
    let events = events_of(&batches);
    assert_eq!(counts_of(&events), feed.counts().await.unwrap());
    events
}

fn counts_of(events: &[Event]) -> ChangeCounts {
    let count = |kind: &str| events.iter().filter(|event| event.0 == kind).count() as u64;
    ChangeCounts {
        inserted: count("insert"),
        updated: count("update_postimage"),
        deleted: count("delete"),
        rows: events.len() as u64,
    }
}

/// The rows of a version.
pub async fn state(fixture: &Fixture, version: u64) -> State {
    let snapshot = fixture.table.snapshot_of_version(version).await.unwrap();
    let scan = Scan::of_snapshot(fixture.table.clone(), snapshot, ScanOptions::default());
    let (_, batches) = scan.collect().await.unwrap();
    let column = |batch: &RecordBatch, name: &str| {
        batch.column_by_name(name).unwrap().as_primitive::<Int64Type>().clone()
    };
    let mut rows = State::new();
    for batch in &batches {
        for (id, value) in column(batch, "id").iter().zip(&column(batch, "v")) {
            rows.insert(id.unwrap(), value.unwrap_or(NULL));
        }
    }
    rows
}

/// `state` with the changes, each of which has to fit it.
pub fn applied(mut state: State, events: &[Event]) -> State {
    for (kind, id, value, _) in events {
        match kind.as_str() {
            "insert" | "update_postimage" => {
                assert_eq!(state.insert(*id, *value), None, "{kind} {id}");
            }
            "delete" | "update_preimage" => {
                assert_eq!(state.remove(id), Some(*value), "{kind} {id}");
            }
            other => panic!("{other}"),
        }
    }
    state
}

fn event(kind: &str, id: i64, value: i64, version: u64) -> Event {
    (kind.to_owned(), id, value, version)
}

/// Leaves no version but the newest and those with a tag.
pub async fn clean_up(fixture: &Fixture) {
    let base = base(fixture).await;
    let policy = CleanupPolicy {
        before_version: Some(base.version().version),
        error_if_tagged_old_versions: false,
        ..CleanupPolicy::default()
    };
    Box::pin(base.cleanup(policy).execute()).await.unwrap();
}

#[tokio::test]
async fn a_compaction_is_inserts_updates_with_both_images_and_deletes() {
    within(async {
        let fixture = Fixture::new().await;
        fixture.to_base(&[(1, 10), (2, 20), (3, 30)]).await;
        let since = version(&fixture).await;
        // A key that is deleted and put again is an update; one that the base never had is nothing.
        fixture.to_sstable(&[(2, 21), (4, 40)], &[3, 9]).await;
        fixture.to_sstable(&[(4, 41)], &[1]).await;
        fixture.to_sstable(&[(1, 12)], &[]).await;
        fixture.table.compact().await.unwrap();
        let until = version(&fixture).await;
        let feed = feed(&fixture, since, until).await;
        let mut found = events(&feed).await;
        let last = feed.versions().last().unwrap().version;
        found.sort();
        assert_eq!(
            found,
            [
                event("delete", 3, 30, last),
                event("insert", 4, 41, last),
                event("update_postimage", 1, 12, last),
                event("update_postimage", 2, 21, last),
                event("update_preimage", 1, 10, last),
                event("update_preimage", 2, 20, last),
            ]
        );
        assert_eq!((feed.since(), feed.until()), (Some(since), until));
        assert_eq!(feed.versions()[0].operation.as_deref(), Some("Update"));
    })
    .await;
}

#[tokio::test]
async fn without_a_start_every_row_of_the_last_version_is_an_insert() {
    within(async {
        let fixture = Fixture::new().await;
        fixture.to_base(&[(1, 10), (2, 20)]).await;
        fixture.to_base(&[(1, 11)]).await;
        let until = version(&fixture).await;
        let feed = fixture.table.changes(None, None, &ChangeOptions::default()).await.unwrap();
        let mut found = events(&feed).await;
        found.sort();
        assert_eq!(found, [event("insert", 1, 11, until), event("insert", 2, 20, until)]);
        let all = feed_with(&fixture, 0, until, &ChangeOptions::default()).await;
        assert_eq!(applied(State::new(), &events(&all).await), state(&fixture, until).await);
    })
    .await;
}

#[tokio::test]
async fn a_state_and_the_changes_behind_it_give_each_later_state() {
    within(async {
        let fixture = Fixture::new().await;
        life(&fixture).await;
        let last = version(&fixture).await;
        let mut states = vec![State::new()];
        for version in 1..=last {
            states.push(state(&fixture, version).await);
        }
        for since in 0..=last {
            for until in since.max(1)..=last {
                let found = events(&feed(&fixture, since, until).await).await;
                let place = |version: u64| states[usize::try_from(version).unwrap()].clone();
                assert_eq!(applied(place(since), &found), place(until), "{since} to {until}");
                if !(since + until).is_multiple_of(3) {
                    continue;
                }
                let middle = u64::midpoint(since, until).max(1);
                let mut halves = events(&feed(&fixture, since, middle).await).await;
                halves.extend(events(&feed(&fixture, middle, until).await).await);
                assert_eq!(halves, found, "{since} to {middle} to {until}");
            }
        }
    })
    .await;
}

/// Writes of lancemem and commits of another program, in turn.
pub async fn life(fixture: &Fixture) {
    fixture.to_base(&[(1, 10), (2, 20), (3, 30), (4, 40)]).await;
    for (round, mode) in [CompactionMode::Link, CompactionMode::Rewrite, CompactionMode::Auto]
        .into_iter()
        .enumerate()
    {
        let round = i64::try_from(round).unwrap();
        fixture.to_sstable(&[(round, round), (10 + round, 1)], &[2 + round]).await;
        fixture.to_sstable(&[(20, round), (round, -round)], &[]).await;
        let settings = CompactionSettings::default().with_mode(mode);
        fixture.table.compact_with(&settings).await.unwrap();
        base(fixture).await.delete(&format!("id = {}", 10 + round)).await.unwrap();
        fixture.table.refresh().await.unwrap();
    }
    let mut base = base(fixture).await;
    base.update_config([("other", "program")]).await.unwrap();
    fixture.to_base(&[(30, 1)]).await;
}

#[tokio::test]
async fn parts_have_the_rows_of_the_feed_in_its_order() {
    within(async {
        let fixture = Fixture::new().await;
        life(&fixture).await;
        let until = version(&fixture).await;
        for options in [
            ChangeOptions::default(),
            ChangeOptions::default().with_filter(Condition::from("v >= 0")),
            ChangeOptions::default().with_skip_unchanged(true),
        ] {
            for since in [0, until - 4] {
                let feed = feed_with(&fixture, since, until, &options).await;
                let whole = events(&feed).await;
                for parts in [1, 2, 3, 100] {
                    let parts = feed.parts(parts).unwrap();
                    let mut found = Vec::new();
                    for part in parts {
                        found.extend(events_of_part(&fixture, until, part, &options).await);
                    }
                    assert_eq!(found, whole);
                }
            }
        }
        let none = feed(&fixture, until, until).await;
        assert!(none.parts(3).unwrap().is_empty());
        assert_eq!(none.parts(0).unwrap_err().kind(), ErrorKind::InvalidInput);
    })
    .await;
}

async fn events_of_part(
    fixture: &Fixture,
    until: u64,
    part: ChangePart,
    options: &ChangeOptions,
) -> Vec<Event> {
    let part = fixture.table.changes_of_part(until, part, options).await.unwrap();
    let found: Vec<RecordBatch> = part.batches().try_collect().await.unwrap();
    let events = events_of(&found);
    assert_eq!(counts_of(&events), part.counts().await.unwrap());
    events
}

#[tokio::test]
async fn a_condition_sees_both_images_of_an_update() {
    within(async {
        let fixture = Fixture::new().await;
        fixture.to_base(&[(1, 10), (2, 20), (3, 30), (4, 40)]).await;
        let since = version(&fixture).await;
        fixture.to_sstable(&[(1, 30), (2, 5), (3, 1), (9, 50)], &[4]).await;
        fixture.table.compact().await.unwrap();
        let until = version(&fixture).await;
        let options = ChangeOptions::default().with_filter(Condition::from("v > 25"));
        let mut found = events(&feed_with(&fixture, since, until, &options).await).await;
        found.sort();
        let last = found[0].3;
        assert_eq!(
            found,
            [
                event("delete", 4, 40, last),
                event("insert", 9, 50, last),
                event("update_postimage", 1, 30, last),
                event("update_postimage", 3, 1, last),
                event("update_preimage", 1, 10, last),
                event("update_preimage", 3, 30, last),
            ]
        );
    })
    .await;
}

#[tokio::test]
async fn updates_without_a_change_are_left_out_where_it_is_asked_for() {
    within(async {
        let fixture = Fixture::new().await;
        fixture.to_base(&[(1, 10), (2, 20), (3, NULL)]).await;
        let since = version(&fixture).await;
        fixture.to_base(&[(1, 10), (2, 21), (3, NULL)]).await;
        let until = version(&fixture).await;
        let all = events(&feed(&fixture, since, until).await).await;
        assert_eq!(counts_of(&all).updated, 3);
        let options =
            ChangeOptions::default().with_skip_unchanged(true).with_row_kinds(RowKinds::Flink);
        let feed = feed_with(&fixture, since, until, &options).await;
        let found = events_of(&feed.collect().await.unwrap().1);
        let kinds: Vec<(&str, i64)> =
            found.iter().map(|event| (event.0.as_str(), event.2)).collect();
        assert_eq!(kinds, [("-U", 20), ("+U", 21)]);
        assert_eq!(feed.counts().await.unwrap().rows, 2);
    })
    .await;
}

#[tokio::test]
async fn a_start_that_was_cleaned_up_is_refused_with_the_oldest_version_left() {
    within(async {
        let mut fixture = Fixture::new().await;
        life(&fixture).await;
        clean_up(&fixture).await;
        fixture.reopen().await;
        let newest = version(&fixture).await;
        for since in [0, 1, newest - 1] {
            let since = Some(Moment::Version(since));
            let refused = fixture.table.changes(since, None, &ChangeOptions::default()).await;
            let refused = refused.unwrap_err();
            assert!(
                matches!(refused, Error::ChangesExpired { oldest, .. } if oldest == newest),
                "{refused}"
            );
            assert_eq!(refused.kind(), ErrorKind::InvalidInput);
        }
        assert!(events(&feed(&fixture, newest, newest).await).await.is_empty());
    })
    .await;
}

#[tokio::test]
async fn a_consumer_keeps_its_version_and_reads_the_net_change_behind_it() {
    within(async {
        let mut fixture = Fixture::new().await;
        fixture.to_base(&[(1, 10), (2, 20), (3, 30)]).await;
        let pinned = version(&fixture).await;
        fixture.table.move_consumer("search", pinned).await.unwrap();
        let before = state(&fixture, pinned).await;
        fixture.to_base(&[(1, 11), (4, 40)]).await;
        fixture.to_sstable(&[(1, 10)], &[2, 4]).await;
        fixture.table.compact().await.unwrap();
        clean_up(&fixture).await;
        fixture.reopen().await;
        let until = version(&fixture).await;
        let feed = feed(&fixture, pinned, until).await;
        let found = events(&feed).await;
        // 1 went back to its value, and 4 came and went.
        assert_eq!(found, [event("delete", 2, 20, until)]);
        assert_eq!(feed.versions()[0].operation, None, "several versions are one step");
        assert_eq!(applied(before, &found), state(&fixture, until).await);
        assert_eq!(feed.parts(2).unwrap().len(), 2);
        fixture.table.move_consumer("search", until).await.unwrap();
        let consumer = fixture.table.consumer("search").await.unwrap().unwrap();
        assert_eq!((consumer.position, consumer.timestamp.is_some()), (until, true));
        let back = fixture.table.move_consumer("search", until - 1).await.unwrap_err();
        assert_eq!(back.kind(), ErrorKind::InvalidInput);
        fixture.table.drop_consumer("search").await.unwrap();
        assert!(fixture.table.consumers().await.unwrap().is_empty());
        let gone = fixture.table.drop_consumer("search").await.unwrap_err();
        assert!(gone.to_string().contains("no consumer 'search'"), "{gone}");
    })
    .await;
}

#[tokio::test]
async fn what_a_feed_cannot_have_is_refused_before_anything_is_read() {
    within(async {
        let fixture = Fixture::new().await;
        fixture.to_base(&[(1, 10)]).await;
        let last = version(&fixture).await;
        let table = &fixture.table;
        let plain = ChangeOptions::default();
        let at = |version: u64| Some(Moment::Version(version));
        for (since, until, text) in [
            (at(last), at(last - 1), "after until"),
            (at(last + 1), None, "no version"),
            (None, at(last + 1), "no version"),
            (None, at(0), "no version"),
        ] {
            let refused = table.changes(since, until, &plain).await.unwrap_err();
            assert!(refused.to_string().contains(text), "{refused}");
            assert_eq!(refused.kind(), ErrorKind::InvalidInput);
        }
        for (columns, text) in [
            (vec!["w"], "no column 'w'"),
            (vec!["id", "id"], "named twice"),
            (vec!["_change_type"], "leave it out"),
        ] {
            let columns: Vec<String> = columns.into_iter().map(str::to_owned).collect();
            let options = ChangeOptions::default().with_columns(columns);
            let refused = table.changes(at(1), None, &options).await.unwrap_err();
            assert!(refused.to_string().contains(text), "{refused}");
        }
        let options = ChangeOptions::default().with_filter(Condition::from("w > 1"));
        assert!(table.changes(at(1), None, &options).await.is_err());
        assert!(RowKinds::parse("debezium").is_err());
    })
    .await;
}
