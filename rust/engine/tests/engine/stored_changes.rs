//! Changes that compactions store: the same rows as derived ones, and longer readable.
//!
//! Owns: both forms compared, what is stored and what is not, reads behind versions that are gone,
//! damage, and collection.
//! Does not own: what a change is (`changes`), or the bytes of the files (the core's `format`).

use std::path::{Path, PathBuf};
use std::time::Duration;

use arrow_array::RecordBatch;
use futures::TryStreamExt;
use lance::dataset::builder::DatasetBuilder;
use lancemem::{
    ChangeCounts, ChangeFeed, ChangeOptions, ChangePart, Changelog, CollectionSettings,
    CompactionSettings, Condition, Error, GarbageKind, Moment, RowKinds,
};

use crate::changes::{
    Event, State, applied, base, clean_up, events_of, feed_with, life, state, version,
};
use crate::fixture::{Fixture, within};

/// A table that stores its changes.
async fn storing() -> Fixture {
    let fixture = Fixture::new().await;
    fixture.table.alter_changelog(Some(Changelog::Stored), None).await.unwrap();
    fixture
}

fn changelog(fixture: &Fixture) -> PathBuf {
    Path::new(fixture.table.uri()).join("_lancemem").join("changelog")
}

/// The names in the folder of stored changes: of files that publish versions, and of folders.
fn stored(fixture: &Fixture) -> (Vec<String>, Vec<String>) {
    let Ok(entries) = std::fs::read_dir(changelog(fixture)) else {
        return (Vec::new(), Vec::new());
    };
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names.into_iter().partition(|name| Path::new(name).extension().is_some_and(|it| it == "binpb"))
}

/// Everything that a feed has.
#[derive(Debug, PartialEq)]
struct Whole {
    events: Vec<Event>,
    counts: ChangeCounts,
    parts: Vec<ChangePart>,
    versions: Vec<u64>,
}

async fn whole(feed: &ChangeFeed) -> Whole {
    let (schema, batches) = feed.collect().await.unwrap();
    assert!(batches.iter().all(|batch| batch.schema() == schema));
    Whole {
        events: events_of(&batches),
        counts: feed.counts().await.unwrap(),
        parts: feed.parts(3).unwrap(),
        versions: feed.versions().iter().map(|version| version.version).collect(),
    }
}

/// What a feed has where its changes are stored, and where they are derived.
async fn both_forms(
    fixture: &Fixture,
    since: u64,
    until: u64,
    options: &ChangeOptions,
) -> (Whole, Whole) {
    let read = || async {
        let feed = feed_with(fixture, since, until, options).await;
        let whole = whole(&feed).await;
        let mut of_parts = Vec::new();
        for part in whole.parts.clone() {
            let part = fixture.table.changes_of_part(until, part, options).await.unwrap();
            let found: Vec<RecordBatch> = part.batches().try_collect().await.unwrap();
            of_parts.extend(events_of(&found));
        }
        assert_eq!(of_parts, whole.events);
        whole
    };
    let stored = read().await;
    let (there, away) = (changelog(fixture), changelog(fixture).with_file_name("away"));
    std::fs::rename(&there, &away).unwrap();
    let derived = read().await;
    std::fs::rename(&away, &there).unwrap();
    (stored, derived)
}

#[tokio::test]
async fn stored_changes_are_those_that_are_derived_in_the_same_order_and_parts() {
    within(async {
        let fixture = storing().await;
        life(&fixture).await;
        let last = version(&fixture).await;
        let columns = vec!["v".to_owned(), "id".to_owned()];
        for options in [
            ChangeOptions::default(),
            ChangeOptions::default().with_filter(Condition::from("v >= 0")),
            ChangeOptions::default().with_skip_unchanged(true).with_row_kinds(RowKinds::Flink),
            ChangeOptions::default().with_columns(columns),
        ] {
            for since in [0, last / 2, last - 1] {
                let (stored, derived) = both_forms(&fixture, since, last, &options).await;
                assert_eq!(stored, derived, "since {since}, {options:?}");
            }
        }
        let feed = feed_with(&fixture, 0, last, &ChangeOptions::default()).await;
        let versions = feed.versions();
        let stored = versions.iter().filter(|version| version.is_stored).count();
        assert_eq!((stored, versions.len()), (5, 8), "three are deletes of another program");
        assert!(versions.iter().filter(|it| !it.is_stored).all(|it| it.operation.is_some()));
    })
    .await;
}

#[tokio::test]
async fn a_compaction_stores_changes_where_the_table_asks_for_it() {
    within(async {
        let fixture = Fixture::new().await;
        assert_eq!(fixture.table.changelog(), Changelog::Off);
        fixture.to_base(&[(1, 10)]).await;
        assert_eq!(stored(&fixture), (Vec::new(), Vec::new()));
        let on = fixture.table.alter_changelog(Some(Changelog::Stored), None).await.unwrap();
        let again = fixture.table.alter_changelog(Some(Changelog::Stored), None).await.unwrap();
        assert_eq!((again, fixture.table.changelog()), (on, Changelog::Stored));
        fixture.to_base(&[(1, 11), (2, 20)]).await;
        let (published, folders) = stored(&fixture);
        assert_eq!(folders.len(), 1);
        let newest = version(&fixture).await;
        assert_eq!(published.last().unwrap(), &format!("v{newest:016}.binpb"));
        fixture.table.alter_changelog(Some(Changelog::Off), None).await.unwrap();
        fixture.to_base(&[(1, 12)]).await;
        assert_eq!(stored(&fixture).1, folders);
        let options = ChangeOptions::default();
        let feed = feed_with(&fixture, on, version(&fixture).await, &options).await;
        let found: Vec<bool> = feed.versions().iter().map(|it| it.is_stored).collect();
        assert_eq!(found, [true, false]);
    })
    .await;
}

#[tokio::test]
async fn a_compaction_that_changes_no_row_stores_none() {
    within(async {
        let fixture = storing().await;
        fixture.to_base(&[(1, 10)]).await;
        let since = version(&fixture).await;
        // The base table never had the key.
        fixture.to_sstable(&[(7, 70)], &[]).await;
        fixture.to_sstable(&[], &[7]).await;
        fixture.table.compact().await.unwrap();
        let until = version(&fixture).await;
        assert!(until > since);
        let feed = feed_with(&fixture, since, until, &ChangeOptions::default()).await;
        assert!(feed.versions().is_empty());
        let (published, folders) = stored(&fixture);
        assert_eq!(folders.len(), 1);
        assert_eq!(published.last().unwrap(), &format!("v{until:016}.binpb"));
    })
    .await;
}

#[tokio::test]
async fn stored_changes_are_readable_behind_a_version_that_is_gone() {
    within(async {
        let mut fixture = storing().await;
        fixture.to_base(&[(1, 10), (2, 20), (3, 30)]).await;
        let first = version(&fixture).await;
        let before = state(&fixture, first).await;
        fixture.to_base(&[(1, 11), (4, 40)]).await;
        base(&fixture).await.update_config([("other", "program")]).await.unwrap();
        fixture.to_sstable(&[(1, 10)], &[2, 4]).await;
        fixture.table.compact().await.unwrap();
        let last = version(&fixture).await;
        let plain = ChangeOptions::default();
        let whole_before = whole(&feed_with(&fixture, first, last, &plain).await).await;
        clean_up(&fixture).await;
        fixture.reopen().await;
        let feed = feed_with(&fixture, first, last, &plain).await;
        let found = whole(&feed).await;
        assert_eq!(found, whole_before);
        assert!(feed.versions().iter().all(|version| version.is_stored));
        assert_eq!(applied(before, &found.events), state(&fixture, last).await);
        let condition = plain.clone().with_filter(Condition::from("id = 1"));
        let of_one = whole(&feed_with(&fixture, first, last, &condition).await).await;
        assert_eq!(of_one.events.len(), 4);
        // The table before its first version is not published.
        let since = Some(Moment::Version(0));
        let refused = fixture.table.changes(since, None, &plain).await.unwrap_err();
        assert!(matches!(refused, Error::ChangesExpired { oldest, .. } if oldest == last));
    })
    .await;
}

#[tokio::test]
async fn a_commit_of_another_program_that_is_gone_ends_what_is_readable() {
    within(async {
        let mut fixture = storing().await;
        fixture.to_base(&[(1, 10), (2, 20)]).await;
        let before = version(&fixture).await;
        base(&fixture).await.delete("id = 1").await.unwrap();
        let behind = version(&fixture).await;
        fixture.to_base(&[(3, 30)]).await;
        let last = version(&fixture).await;
        clean_up(&fixture).await;
        fixture.reopen().await;
        let plain = ChangeOptions::default();
        let refused = fixture.table.changes(Some(Moment::Version(before)), None, &plain).await;
        assert!(matches!(refused.unwrap_err(), Error::ChangesExpired { .. }));
        let found = whole(&feed_with(&fixture, behind, last, &plain).await).await;
        assert_eq!(found.counts.inserted, 1);
    })
    .await;
}

#[tokio::test]
async fn damaged_changes_are_derived_as_long_as_their_versions_are_left() {
    within(async {
        let fixture = storing().await;
        fixture.to_base(&[(1, 10), (2, 20)]).await;
        let since = version(&fixture).await;
        fixture.to_base(&[(1, 11)]).await;
        let until = version(&fixture).await;
        let plain = ChangeOptions::default();
        let expected = whole(&feed_with(&fixture, since, until, &plain).await).await;
        let (_, folders) = stored(&fixture);
        let mut files = Vec::new();
        for folder in &folders {
            files_below(&changelog(&fixture).join(folder), &mut files);
        }
        assert_eq!(files.len(), 2 * 3, "a description, a manifest and a data file each: {files:?}");
        for file in files {
            let bytes = std::fs::read(&file).unwrap();
            let mut damaged = bytes.clone();
            damaged[bytes.len() / 2] ^= 1;
            for content in [damaged, Vec::new()] {
                std::fs::write(&file, content).unwrap();
                let feed = feed_with(&fixture, since, until, &plain).await;
                assert_eq!(whole(&feed).await, expected, "{}", file.display());
            }
            std::fs::write(&file, bytes).unwrap();
        }
        let feed = feed_with(&fixture, since, until, &plain).await;
        assert!(feed.versions()[0].is_stored);
    })
    .await;
}

fn files_below(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files_below(&path, files) } else { files.push(path) }
    }
}

#[tokio::test]
async fn change_rows_are_a_lance_dataset_with_the_columns_of_the_table() {
    within(async {
        let fixture = storing().await;
        fixture.to_base(&[(1, 10), (2, 20)]).await;
        fixture.to_sstable(&[(1, 11)], &[2]).await;
        fixture.table.compact().await.unwrap();
        let mut counts = Vec::new();
        for folder in stored(&fixture).1 {
            let uri = changelog(&fixture).join(folder);
            let rows = DatasetBuilder::from_uri(uri.to_str().unwrap()).load().await.unwrap();
            let names: Vec<&str> =
                rows.schema().fields.iter().map(|field| field.name.as_str()).collect();
            assert_eq!(names, ["id", "v", "_change_type"]);
            let mut of_kinds = Vec::new();
            for kind in ["insert", "update_preimage", "update_postimage", "delete"] {
                let condition = format!("_change_type = '{kind}'");
                of_kinds.push(rows.count_rows(Some(condition)).await.unwrap());
            }
            counts.push(of_kinds);
        }
        counts.sort_unstable();
        assert_eq!(counts, [[0, 1, 1, 1], [2, 0, 0, 0]]);
    })
    .await;
}

#[tokio::test]
async fn a_collection_removes_changes_after_their_retention_and_folders_of_no_version() {
    within(async {
        let mut fixture = storing().await;
        fixture.to_base(&[(1, 10)]).await;
        let first = version(&fixture).await;
        fixture.to_base(&[(1, 11)]).await;
        let last = version(&fixture).await;
        let orphan = changelog(&fixture).join("00000000000000aa");
        std::fs::create_dir(&orphan).unwrap();
        std::fs::write(orphan.join("changes.binpb"), b"of a commit that was refused").unwrap();
        let now = CollectionSettings::default().with_older_than(Duration::ZERO);
        let collected = fixture.table.collect_garbage(&now).await.unwrap();
        let kinds = |of: GarbageKind| collected.garbage.iter().filter(|it| it.kind == of).count();
        assert_eq!(kinds(GarbageKind::StoredChanges), 1);
        assert_eq!(kinds(GarbageKind::PublishedChanges), 0, "they are kept for a week");
        assert!(!orphan.exists());
        let (_, folders) = stored(&fixture);
        fixture.table.move_consumer("search", first).await.unwrap();
        fixture.table.alter_changelog(None, Some(Duration::ZERO)).await.unwrap();
        fixture.table.collect_garbage(&now).await.unwrap();
        let left = stored(&fixture);
        assert_eq!(left.1.len(), 1, "the consumer needs the changes behind version {first}");
        assert!(folders.contains(&left.1[0]));
        fixture.table.move_consumer("search", version(&fixture).await).await.unwrap();
        fixture.table.collect_garbage(&now).await.unwrap();
        let left = stored(&fixture);
        let newest = version(&fixture).await;
        assert_eq!(left, (vec![format!("v{newest:016}.binpb")], Vec::new()));
        // The versions are left, so their changes are derived.
        fixture.reopen().await;
        let found = whole(&feed_with(&fixture, first, last, &ChangeOptions::default()).await).await;
        assert_eq!(found.counts.updated, 1);
        let again = fixture.table.collect_garbage(&now).await.unwrap();
        assert!(again.garbage.iter().all(|it| it.kind != GarbageKind::PublishedChanges));
    })
    .await;
}

#[tokio::test]
async fn stored_changes_follow_a_renamed_column_and_a_dry_run_stores_none() {
    within(async {
        let fixture = storing().await;
        fixture.to_base(&[(1, 10), (2, 20)]).await;
        let since = version(&fixture).await;
        fixture.to_base(&[(1, 11)]).await;
        let mut table = base(&fixture).await;
        let renamed = lance::dataset::ColumnAlteration::new("v".to_owned()).rename("w".to_owned());
        Box::pin(table.alter_columns(&[renamed])).await.unwrap();
        fixture.table.refresh().await.unwrap();
        let until = version(&fixture).await;
        let options = ChangeOptions::default().with_columns(vec!["w".to_owned()]);
        let feed = feed_with(&fixture, since, until, &options).await;
        assert!(feed.versions()[0].is_stored);
        let (schema, batches) = feed.collect().await.unwrap();
        assert_eq!(schema.field(0).name(), "w");
        assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 2);
        assert!(batches.iter().all(|batch| batch.column(0).null_count() == 0));
        let dry = CompactionSettings::default().with_dry_run(true);
        fixture.to_sstable(&[], &[1]).await;
        let folders = stored(&fixture).1.len();
        fixture.table.compact_with(&dry).await.unwrap();
        assert_eq!(stored(&fixture).1.len(), folders, "a dry run stores nothing");
    })
    .await;
}

#[tokio::test]
async fn a_state_and_stored_changes_give_the_later_state() {
    within(async {
        let fixture = storing().await;
        life(&fixture).await;
        let last = version(&fixture).await;
        let feed = feed_with(&fixture, 0, last, &ChangeOptions::default()).await;
        let found = whole(&feed).await;
        assert_eq!(applied(State::new(), &found.events), state(&fixture, last).await);
    })
    .await;
}
