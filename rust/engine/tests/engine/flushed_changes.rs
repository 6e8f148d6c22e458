//! Changes of flushes: the net change of each key for each generation, before any compaction.
//!
//! Owns: their images, that each generation is published once and before its SSTable moves, starts
//! that are gone or too early, and collection.
//! Does not own: random programs, the command line and Arrow streams of Python
//! (`tests/test_changes_flushed.py`).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use futures::future::join_all;
use lancemem::{
    ChangeCounts, ChangeOptions, Changelog, CollectionSettings, CompactionMode, CompactionSettings,
    Condition, Error, ErrorKind, FlushedFeed, FlushedPosition, GarbageKind, RowKinds, Table,
    WriteBatch,
};
use lancemem_testkit::{KeyShape, NULL};

use crate::changes::{State, applied, base};
use crate::fixture::{Fixture, Level, within};

/// Kind, key, value, generation.
type Change = (String, i64, i64, u64);

/// A table that stores the changes of its flushes.
async fn storing() -> Fixture {
    storing_in(1).await
}

async fn storing_in(shards: u32) -> Fixture {
    let fixture = Fixture::with(KeyShape::Int64, shards).await;
    fixture.table.alter_deletion_vectors(true).await.unwrap();
    fixture.table.alter_changelog(Some(Changelog::Flushed), None).await.unwrap();
    fixture
}

async fn look_up(fixture: &Fixture) {
    fixture.table.write_deletion_vectors(None).await.unwrap();
}

async fn feed_with(
    fixture: &Fixture,
    since: Option<&FlushedPosition>,
    options: &ChangeOptions,
) -> lancemem::Result<FlushedFeed> {
    fixture.table.flushed_changes(since, None, options).await
}

async fn feed_of(
    fixture: &Fixture,
    since: Option<&FlushedPosition>,
) -> lancemem::Result<FlushedFeed> {
    feed_with(fixture, since, &ChangeOptions::default()).await
}

fn changes_of(batches: &[RecordBatch]) -> Vec<Change> {
    let number = |batch: &RecordBatch, name: &str, row: usize| {
        let column = batch.column_by_name(name).unwrap().as_primitive::<Int64Type>().clone();
        column.iter().nth(row).unwrap().unwrap_or(NULL)
    };
    let mut changes = Vec::new();
    for batch in batches {
        let kinds = batch.column_by_name("_change_type").unwrap().as_string::<i32>();
        for row in 0..batch.num_rows() {
            let (id, value) = (number(batch, "id", row), number(batch, "v", row));
            let generation = u64::try_from(number(batch, "_generation", row)).unwrap();
            changes.push((kinds.value(row).to_owned(), id, value, generation));
        }
    }
    changes
}

/// The changes of a feed, whose counts have to fit them.
async fn changes(feed: &FlushedFeed) -> Vec<Change> {
    let (schema, batches) = feed.collect().await.unwrap();
    assert!(batches.iter().all(|batch| batch.schema() == schema));
    let changes = changes_of(&batches);
    let count = |kind: &str| changes.iter().filter(|change| change.0 == kind).count() as u64;
    let counts = ChangeCounts {
        inserted: count("insert"),
        updated: count("update_postimage"),
        deleted: count("delete"),
        rows: changes.len() as u64,
    };
    assert_eq!(feed.counts().await.unwrap(), counts);
    changes
}

async fn all_changes(fixture: &Fixture) -> Vec<Change> {
    let mut found = changes(&feed_of(fixture, None).await.unwrap()).await;
    found.sort_by_key(|change| (change.3, change.1, change.0.clone()));
    found
}

fn change(kind: &str, id: i64, value: i64, generation: u64) -> Change {
    (kind.to_owned(), id, value, generation)
}

/// The folders of the shards' changes.
fn folders(fixture: &Fixture) -> Vec<PathBuf> {
    let above = Path::new(fixture.table.uri()).join("_lancemem").join("changelog");
    let Ok(entries) = std::fs::read_dir(above) else { return Vec::new() };
    entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()).collect()
}

/// The names in them: of files that publish generations, and of folders of rows.
fn stored(fixture: &Fixture) -> (Vec<String>, Vec<String>) {
    let entries = folders(fixture).into_iter().flat_map(|of| std::fs::read_dir(of).unwrap());
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names.into_iter().partition(|name| Path::new(name).extension().is_some_and(|it| it == "binpb"))
}

/// Removes all changes, as if no look-up had followed the flushes.
fn forget(fixture: &Fixture) {
    for folder in folders(fixture) {
        std::fs::remove_dir_all(folder).unwrap();
    }
}

/// The changes applied to an empty table are the rows of a scan.
async fn check_law(fixture: &Fixture) {
    let found = changes(&feed_of(fixture, None).await.unwrap()).await;
    let state = applied(State::new(), &found);
    let rows: Vec<(i64, i64)> = state.into_iter().collect();
    assert_eq!(fixture.rows(&rows), fixture.seen(&Level::flushed()).await);
}

#[tokio::test]
async fn a_flush_is_inserts_updates_with_both_images_and_deletes() {
    within(async {
        let fixture = storing().await;
        fixture.to_base(&[(1, 10), (2, 20), (3, 30)]).await;
        // Nothing is left of a key that the table never had.
        fixture.to_sstable(&[(2, 21), (4, 40)], &[3, 9]).await;
        // The rows before are in an older SSTable, in the base table, and behind a tombstone.
        fixture.to_sstable(&[(4, 41), (3, 33), (5, 50)], &[1]).await;
        look_up(&fixture).await;
        assert_eq!(
            all_changes(&fixture).await,
            [
                change("insert", 1, 10, 1),
                change("insert", 2, 20, 1),
                change("insert", 3, 30, 1),
                change("update_postimage", 2, 21, 2),
                change("update_preimage", 2, 20, 2),
                change("delete", 3, 30, 2),
                change("insert", 4, 40, 2),
                change("delete", 1, 10, 3),
                change("insert", 3, 33, 3),
                change("update_postimage", 4, 41, 3),
                change("update_preimage", 4, 40, 3),
                change("insert", 5, 50, 3),
            ]
        );
        check_law(&fixture).await;
    })
    .await;
}

#[tokio::test]
async fn only_the_newest_event_of_a_key_in_a_flush_is_a_change() {
    within(async {
        let fixture = storing().await;
        fixture.to_log(&[(1, 10), (2, 20)], &[]).await;
        fixture.to_log(&[(1, 11), (2, 21)], &[2]).await;
        fixture.flush().await;
        // A generation that changes no row is published without a folder.
        fixture.to_sstable(&[], &[2, 7]).await;
        look_up(&fixture).await;
        assert_eq!(all_changes(&fixture).await, [change("insert", 1, 11, 1)]);
        let (published, folders) = stored(&fixture);
        assert_eq!(published, ["0000000000000001.binpb", "0000000000000002.binpb"]);
        assert_eq!(folders.len(), 1);
        check_law(&fixture).await;
    })
    .await;
}

#[tokio::test]
async fn a_compaction_stores_changes_before_it_moves_an_sstable() {
    within(async {
        for mode in [CompactionMode::Link, CompactionMode::Rewrite] {
            let fixture = storing().await;
            fixture.to_sstable(&[(1, 10), (2, 20)], &[]).await;
            fixture.to_sstable(&[(1, 11)], &[2]).await;
            forget(&fixture);
            let dry = CompactionSettings::default().with_dry_run(true);
            fixture.table.compact_with(&dry).await.unwrap();
            assert_eq!(stored(&fixture).0.len(), 0, "a dry run stores nothing");
            let settings = CompactionSettings::default().with_mode(mode);
            fixture.table.compact_with(&settings).await.unwrap();
            assert_eq!(stored(&fixture).0.len(), 2);
            fixture.to_sstable(&[(1, 12), (3, 30)], &[]).await;
            fixture.table.compact_with(&settings).await.unwrap();
            assert_eq!(
                all_changes(&fixture).await,
                [
                    change("insert", 1, 10, 1),
                    change("insert", 2, 20, 1),
                    change("update_postimage", 1, 11, 2),
                    change("update_preimage", 1, 10, 2),
                    change("delete", 2, 20, 2),
                    change("update_postimage", 1, 12, 3),
                    change("update_preimage", 1, 11, 3),
                    change("insert", 3, 30, 3),
                ]
            );
            check_law(&fixture).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_bulk_write_and_several_shards_have_their_changes() {
    within(async {
        let fixture = storing_in(3).await;
        let ids: Vec<(i64, i64)> = (0..30).map(|id| (id, id)).collect();
        fixture.to_log(&ids, &[]).await;
        fixture.flush().await;
        let mut bulk = fixture.table.bulk_writer().await.unwrap();
        let rows: Vec<(i64, i64)> = (20..40).map(|id| (id, id * 2)).collect();
        bulk.write(WriteBatch::upserts(&fixture.shape.rows(&rows))).await.unwrap();
        let staged = bulk.finish().await.unwrap();
        fixture.table.link(&staged, None, None).await.unwrap();
        fixture.to_log(&[], &[3, 25, 99]).await;
        fixture.table.flush().await.unwrap();
        // The flush of a table looks up.
        let found = all_changes(&fixture).await;
        let count = |kind: &str| found.iter().filter(|change| change.0 == kind).count();
        assert_eq!(
            ["insert", "update_preimage", "update_postimage", "delete"].map(count),
            [40, 10, 10, 2]
        );
        check_law(&fixture).await;
    })
    .await;
}

#[tokio::test]
async fn each_position_gives_each_later_change_once() {
    within(async {
        let mut fixture = storing().await;
        let mut stops = vec![(feed_of(&fixture, None).await.unwrap().until().clone(), 0)];
        let mut seen = Vec::new();
        for step in 0..6 {
            fixture.to_sstable(&[(step % 3, step), (7, step)], &[(step + 1) % 3]).await;
            if step % 2 == 0 {
                look_up(&fixture).await;
            } else if step == 3 {
                fixture.table.compact().await.unwrap();
            }
            let text = stops.last().unwrap().0.to_string();
            let since: FlushedPosition = text.parse().unwrap();
            let feed = feed_of(&fixture, Some(&since)).await.unwrap();
            assert_eq!(feed.since(), Some(&since));
            seen.extend(changes(&feed).await);
            stops.push((feed.until().clone(), seen.len()));
        }
        fixture.reopen().await;
        let options = ChangeOptions::default();
        for (place, (since, from)) in stops.iter().enumerate() {
            for (until, to) in &stops[place..] {
                let feed = fixture.table.flushed_changes(Some(since), Some(until), &options);
                assert_eq!(changes(&feed.await.unwrap()).await, seen[*from..*to]);
            }
        }
        look_up(&fixture).await;
        check_law(&fixture).await;
    })
    .await;
}

#[tokio::test]
async fn racing_publishers_publish_each_generation_once() {
    within(async {
        let fixture = storing().await;
        for value in 0..3 {
            fixture.to_sstable(&[(1, value), (2, value)], &[]).await;
        }
        forget(&fixture);
        let mut handles: Vec<Arc<Table>> = Vec::new();
        for _ in 0..4 {
            handles.push(Table::open(fixture.table.uri()).await.unwrap());
        }
        let looks = handles.iter().map(|table| table.write_deletion_vectors(None));
        for done in join_all(looks).await {
            done.unwrap();
        }
        let (published, folders) = stored(&fixture);
        assert_eq!(published.len(), 3);
        assert_eq!(folders.len(), 3, "losers remove their rows");
        let before = all_changes(&fixture).await;
        look_up(&fixture).await;
        fixture.table.compact().await.unwrap();
        assert_eq!(all_changes(&fixture).await, before);
        assert_eq!(before.len(), 2 + 4 + 4);
        check_law(&fixture).await;
    })
    .await;
}

#[tokio::test]
async fn rows_that_no_file_publishes_are_no_changes_and_are_collected() {
    within(async {
        let fixture = storing().await;
        fixture.to_sstable(&[(1, 10)], &[]).await;
        look_up(&fixture).await;
        let (published, rows) = stored(&fixture);
        // As a process leaves them that ends between its write and its publication.
        let of_shard = folders(&fixture).pop().unwrap();
        let file = of_shard.join(&published[0]);
        let taken = std::fs::read(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        assert!(all_changes(&fixture).await.is_empty());
        look_up(&fixture).await;
        let again = stored(&fixture);
        assert_eq!((again.0.clone(), again.1.len()), (published, 2));
        assert_ne!(std::fs::read(&file).unwrap(), taken, "it names another folder");
        assert_eq!(all_changes(&fixture).await, [change("insert", 1, 10, 1)]);
        let now = CollectionSettings::default().with_older_than(Duration::ZERO);
        let collected = fixture.table.collect_garbage(&now).await.unwrap();
        let paths: Vec<&str> = collected
            .garbage
            .iter()
            .filter(|it| it.kind == GarbageKind::StoredChanges)
            .map(|it| it.path.rsplit('/').next().unwrap())
            .collect();
        assert_eq!(paths, [rows[0].as_str()]);
        assert_eq!(all_changes(&fixture).await, [change("insert", 1, 10, 1)]);
    })
    .await;
}

#[tokio::test]
async fn a_living_table_has_changes_from_its_sstables_on() {
    within(async {
        let fixture = Fixture::new().await;
        let early: FlushedPosition = {
            let shard_id = fixture.table.shards().await.unwrap()[0].shard_id;
            format!("flushed1,{shard_id}:1").parse().unwrap()
        };
        let refused = feed_of(&fixture, None).await.unwrap_err();
        assert!(refused.to_string().contains("changelog=\"flushed\""), "{refused}");
        let on = Some(Changelog::Flushed);
        let refused = fixture.table.alter_changelog(on, None).await.unwrap_err();
        assert!(refused.to_string().contains("deletion_vectors=True"), "{refused}");
        fixture.to_base(&[(1, 10), (2, 20)]).await;
        fixture.to_sstable(&[(1, 11)], &[]).await;
        fixture.table.alter_deletion_vectors(true).await.unwrap();
        fixture.table.alter_changelog(on, None).await.unwrap();
        assert_eq!(
            all_changes(&fixture).await,
            [change("update_postimage", 1, 11, 2), change("update_preimage", 1, 10, 2)]
        );
        let refused = feed_of(&fixture, Some(&early)).await.unwrap_err();
        assert!(matches!(refused, Error::ChangesUnavailable { version: 1, .. }), "{refused}");
        let refused = fixture.table.alter_deletion_vectors(false).await.unwrap_err();
        assert!(refused.to_string().contains("changelog=None"), "{refused}");
        fixture.table.alter_changelog(Some(Changelog::Off), None).await.unwrap();
        fixture.to_base(&[(1, 12)]).await;
        assert_eq!(stored(&fixture).0.len(), 1);
        fixture.table.alter_changelog(on, None).await.unwrap();
        fixture.to_sstable(&[(1, 13)], &[]).await;
        look_up(&fixture).await;
        assert_eq!(all_changes(&fixture).await.len(), 2, "those behind the gap");
        let refused = feed_of(&fixture, Some(&early)).await.unwrap_err();
        assert!(matches!(refused, Error::ChangesUnavailable { .. }), "{refused}");
    })
    .await;
}

#[tokio::test]
async fn a_collection_removes_changes_of_moved_sstables_after_their_retention() {
    within(async {
        let mut fixture = storing().await;
        let start = feed_of(&fixture, None).await.unwrap().until().clone();
        fixture.to_base(&[(1, 10)]).await;
        fixture.to_base(&[(1, 11)]).await;
        fixture.to_sstable(&[(1, 12)], &[]).await;
        look_up(&fixture).await;
        let now = CollectionSettings::default().with_older_than(Duration::ZERO);
        fixture.table.collect_garbage(&now).await.unwrap();
        assert_eq!(stored(&fixture).0.len(), 3, "they are kept for a week");
        fixture.table.alter_changelog(None, Some(Duration::ZERO)).await.unwrap();
        fixture.reopen().await;
        fixture.table.collect_garbage(&now).await.unwrap();
        let left = stored(&fixture);
        assert_eq!(left.0, ["0000000000000003.binpb"], "its SSTable is not moved yet");
        assert_eq!(left.1.len(), 1);
        let refused = feed_of(&fixture, Some(&start)).await.unwrap_err();
        assert!(matches!(refused, Error::ChangesExpired { oldest: 3, .. }), "{refused}");
        assert_eq!(all_changes(&fixture).await.len(), 2);
        let feed = feed_of(&fixture, None).await.unwrap();
        let until = feed.until().clone();
        fixture.table.compact().await.unwrap();
        fixture.table.collect_garbage(&now).await.unwrap();
        assert_eq!(stored(&fixture), (Vec::new(), Vec::new()));
        let gone = feed.collect().await.unwrap_err();
        assert!(matches!(gone, Error::ChangesExpired { .. }), "{gone}");
        assert!(changes(&feed_of(&fixture, Some(&until)).await.unwrap()).await.is_empty());
        fixture.to_sstable(&[(1, 13)], &[]).await;
        look_up(&fixture).await;
        let feed = feed_of(&fixture, Some(&until)).await.unwrap();
        assert_eq!(changes(&feed).await.len(), 2);
    })
    .await;
}

#[tokio::test]
async fn a_condition_sees_both_images_and_unchanged_rows_can_be_left_out() {
    within(async {
        let fixture = storing().await;
        fixture.to_base(&[(1, 10), (2, 20), (3, 30), (4, 40)]).await;
        let since = feed_of(&fixture, None).await.unwrap().until().clone();
        fixture.to_sstable(&[(1, 99), (2, 20), (3, 31)], &[4]).await;
        look_up(&fixture).await;
        let plain = ChangeOptions::default();
        for (options, expected) in [
            (plain.clone().with_filter(Condition::from("v > 50")), vec![1, 1]),
            (plain.clone().with_filter(Condition::from("v = 10")), vec![1, 1]),
            (plain.clone().with_filter(Condition::from("v = 40")), vec![4]),
            (plain.clone().with_skip_unchanged(true), vec![1, 1, 3, 3, 4]),
            (
                plain.clone().with_skip_unchanged(true).with_filter(Condition::from("v < 35")),
                vec![1, 1, 3, 3],
            ),
        ] {
            let feed = feed_with(&fixture, Some(&since), &options).await.unwrap();
            let mut ids: Vec<i64> = changes(&feed).await.iter().map(|change| change.1).collect();
            ids.sort_unstable();
            assert_eq!(ids, expected, "{options:?}");
        }
        let options = plain
            .with_row_kinds(RowKinds::Flink)
            .with_columns(vec!["id".to_owned()])
            .with_skip_unchanged(true);
        let feed = feed_with(&fixture, Some(&since), &options).await.unwrap();
        let names: Vec<String> =
            feed.schema().fields().iter().map(|field| field.name().clone()).collect();
        assert_eq!(names, ["id", "_change_type", "_shard", "_generation"]);
        let batches = feed.collect().await.unwrap().1;
        let kinds: Vec<&str> = batches
            .iter()
            .flat_map(|batch| batch.column(1).as_string::<i32>().iter().flatten())
            .collect();
        assert_eq!(kinds, ["-D"], "the keys of updates are equal");
        assert_eq!(feed.counts().await.unwrap().deleted, 1);
    })
    .await;
}

#[tokio::test]
async fn changes_follow_a_renamed_column() {
    within(async {
        let fixture = storing().await;
        fixture.to_base(&[(1, 10)]).await;
        fixture.to_sstable(&[(1, 11)], &[]).await;
        let mut table = base(&fixture).await;
        let renamed = lance::dataset::ColumnAlteration::new("v".to_owned()).rename("w".to_owned());
        Box::pin(table.alter_columns(&[renamed])).await.unwrap();
        fixture.table.refresh().await.unwrap();
        look_up(&fixture).await;
        let options = ChangeOptions::default().with_columns(vec!["w".to_owned()]);
        let feed = feed_with(&fixture, None, &options).await.unwrap();
        let (schema, batches) = feed.collect().await.unwrap();
        assert_eq!(schema.field(0).name(), "w");
        let values: Vec<Option<i64>> = batches
            .iter()
            .flat_map(|batch| batch.column(0).as_primitive::<Int64Type>().iter())
            .collect();
        assert_eq!(values, [Some(10), Some(10), Some(11)]);
    })
    .await;
}

#[tokio::test]
async fn what_a_feed_cannot_have_is_refused() {
    within(async {
        let fixture = storing().await;
        let start = feed_of(&fixture, None).await.unwrap().until().clone();
        fixture.to_sstable(&[(1, 10)], &[]).await;
        look_up(&fixture).await;
        let end = feed_of(&fixture, None).await.unwrap().until().clone();
        let shard_id = fixture.table.shards().await.unwrap()[0].shard_id;
        let position = |text: String| text.parse::<FlushedPosition>().unwrap();
        let late = position(format!("flushed1,{shard_id}:9"));
        let other = position(format!("flushed1,{}:1", lancemem::ShardId::nil()));
        let plain = ChangeOptions::default();
        for (since, until, text) in [
            (Some(&end), Some(&start), "after until"),
            (Some(&late), None, "next generation"),
            (None, Some(&late), "next generation"),
            (Some(&other), None, "another table"),
        ] {
            let refused = fixture.table.flushed_changes(since, until, &plain).await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::InvalidInput);
            assert!(refused.to_string().contains(text), "{refused}");
        }
        for columns in ["w", "_row", "_shard"] {
            let options = plain.clone().with_columns(vec![columns.to_owned()]);
            let refused = feed_with(&fixture, None, &options).await.unwrap_err();
            assert!(refused.to_string().contains(columns), "{refused}");
        }
    })
    .await;
}
