//! Tests that hold a compaction between its two commits, while another program commits or the
//! process ends.
//!
//! Owns: interleavings between the commit of rows and the commit of index segments.
//! Does not own: the sync points (`holds`), or what a segment contains
//! (`tests/test_index_segments.py`).

use std::path::Path;

use arrow_array::{Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use lance::dataset::builder::DatasetBuilder;
use lance::dataset::optimize::{CompactionOptions, compact_files};
use lance_index::IndexType;
use lance_index::scalar::{BuiltinIndexType, ScalarIndexParams};
use roaring::RoaringBitmap;

use super::*;
use crate::compaction::CompactionSettings;
use crate::holds::{Hold, hold};
use crate::table::catalog::CreateOptions;

const INDEX: &str = "v_idx";

fn rows(ids: std::ops::Range<i64>) -> RecordBatch {
    let schema = Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("v", DataType::Int64, true),
    ]));
    let values = Int64Array::from_iter_values(ids.clone().map(|id| id % 10));
    let ids = Arc::new(Int64Array::from_iter_values(ids));
    RecordBatch::try_new(schema, vec![ids, Arc::new(values)]).unwrap()
}

/// A table with an index over a base of a hundred rows, and an SSTable that carries it.
async fn table_in(folder: &Path) -> Arc<Table> {
    let options = CreateOptions::new(rows(0..0).schema()).with_primary_key(["id"]);
    let table = Table::create(folder.to_str().unwrap(), &options).await.unwrap();
    table.upsert(&rows(0..100)).await.unwrap();
    table.flush().await.unwrap();
    table.compact().await.unwrap();
    create(&mut open(folder).await, IndexType::BTree).await;
    let table = Table::open(folder.to_str().unwrap()).await.unwrap();
    table.upsert(&rows(90..150)).await.unwrap();
    table.flush().await.unwrap();
    table
}

async fn open(folder: &Path) -> Dataset {
    DatasetBuilder::from_uri(folder.to_str().unwrap()).load().await.unwrap()
}

async fn create(base: &mut Dataset, of: IndexType) {
    let builtin =
        if of == IndexType::Bitmap { BuiltinIndexType::Bitmap } else { BuiltinIndexType::BTree };
    let params = ScalarIndexParams::for_builtin(builtin);
    let name = Some(INDEX.to_owned());
    base.create_index(&["v"], of, name, &params, true).await.unwrap();
}

/// What another program does between the two commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Other {
    Deletes,
    Replaces,
    ReplacesType,
    Optimizes,
    CompactsFiles,
    Drops,
}

impl Other {
    const ALL: [Self; 6] = [
        Self::Deletes,
        Self::Replaces,
        Self::ReplacesType,
        Self::Optimizes,
        Self::CompactsFiles,
        Self::Drops,
    ];

    async fn commit(self, folder: &Path) {
        let mut base = open(folder).await;
        match self {
            Self::Deletes => drop(base.delete("id in (7, 97, 120)").await.unwrap()),
            Self::Replaces => create(&mut base, IndexType::BTree).await,
            Self::ReplacesType => create(&mut base, IndexType::Bitmap).await,
            Self::Optimizes => base.optimize_indices(&OptimizeOptions::append()).await.unwrap(),
            Self::CompactsFiles => {
                let options = CompactionOptions::default();
                Box::pin(compact_files(&mut base, options, None)).await.unwrap();
            }
            Self::Drops => base.drop_index(INDEX).await.unwrap(),
        }
    }

    const fn rows(self) -> usize {
        if matches!(self, Self::Deletes) { 147 } else { 150 }
    }
}

/// Checks the newest version: every row once, found by the index, which covers each fragment once.
async fn check(folder: &Path, rows: usize, has_index: bool, of: &str) {
    let base = open(folder).await;
    assert_eq!(base.count_rows(None).await.unwrap(), rows, "{of}");
    let mut found = 0;
    for value in 0..10 {
        found += base.count_rows(Some(format!("v = {value}"))).await.unwrap();
    }
    assert_eq!(found, rows, "{of}");
    let segments = base.load_indices_by_name(INDEX).await.unwrap();
    assert_eq!(!segments.is_empty(), has_index, "{of}");
    let live: RoaringBitmap =
        base.fragments().iter().map(|it| u32::try_from(it.id).unwrap()).collect();
    let mut covered = RoaringBitmap::new();
    for segment in &segments {
        let fragments = segment.fragment_bitmap.clone().unwrap() & &live;
        assert!(covered.is_disjoint(&fragments), "{of}: a fragment is in two segments");
        covered |= fragments;
    }
    if has_index {
        assert_eq!(covered, live, "{of}");
    }
}

#[tokio::test]
async fn commits_of_another_program_between_the_two_commits_leave_a_right_index() {
    for held in [Hold::Segments, Hold::Commit] {
        for other in Other::ALL {
            let of = format!("{held:?} {other:?}");
            let folder = tempfile::tempdir().unwrap();
            let table = table_in(folder.path()).await;
            let uri = table.latest_base().await.unwrap().uri().to_owned();
            let segments = hold(Hold::Segments, &uri);
            let meanwhile = async {
                segments.wait_for_visitors(1).await;
                if held == Hold::Commit {
                    let commit = hold(Hold::Commit, &uri);
                    segments.open();
                    commit.wait_for_visitors(1).await;
                    other.commit(folder.path()).await;
                    commit.open();
                } else {
                    other.commit(folder.path()).await;
                    segments.open();
                }
            };
            let (compacted, ()) = futures::join!(table.compact(), meanwhile);
            let compacted = compacted.unwrap();
            assert_eq!(compacted.generations, 1, "{of}");
            check(folder.path(), other.rows(), other != Other::Drops, &of).await;
            let version = open(folder.path()).await.version().version;
            assert_eq!(compacted.base_version, version, "{of}");
        }
    }
}

#[tokio::test]
async fn a_compaction_that_ends_between_its_commits_is_completed_by_the_next() {
    for held in [Hold::Segments, Hold::Commit, Hold::Manifest] {
        let folder = tempfile::tempdir().unwrap();
        let table = table_in(folder.path()).await;
        let uri = table.latest_base().await.unwrap().uri().to_owned();
        let segments = hold(Hold::Segments, &uri);
        let running = table.clone();
        let ended = tokio::spawn(async move { running.compact().await.map(drop) });
        segments.wait_for_visitors(1).await;
        let last = if held == Hold::Segments {
            segments
        } else {
            let commit = hold(held, &uri);
            segments.open();
            commit.wait_for_visitors(1).await;
            commit
        };
        ended.abort();
        assert!(ended.await.unwrap_err().is_cancelled());
        last.open();
        let of = format!("{held:?}");
        let next = Table::open(folder.path().to_str().unwrap()).await.unwrap();
        let [index] = &next.indexes().await.unwrap()[..] else { panic!("one index") };
        assert_eq!((index.indexed_rows, index.unindexed_rows), (90, 60), "{of}");
        assert_eq!(
            open(folder.path()).await.count_rows(Some("v = 3".to_owned())).await.unwrap(),
            15
        );
        let done = next.compact().await.unwrap();
        assert_eq!(done.generations, 0, "{of}: the rows are in the base table");
        let [index] = &done.indexes[..] else { panic!("one index") };
        assert_eq!((index.built_rows, index.unindexed_rows), (60, 0), "{of}");
        check(folder.path(), 150, true, &of).await;
    }
}

#[tokio::test]
async fn two_compactions_at_once_link_an_index_once() {
    let folder = tempfile::tempdir().unwrap();
    let table = table_in(folder.path()).await;
    let other = Table::open(folder.path().to_str().unwrap()).await.unwrap();
    let uri = table.latest_base().await.unwrap().uri().to_owned();
    let segments = hold(Hold::Segments, &uri);
    let meanwhile = async {
        segments.wait_for_visitors(1).await;
        // The other compaction finds the fragment without an index, and builds a segment over it.
        let done = other.compact_with(&CompactionSettings::default()).await.unwrap();
        assert_eq!(done.indexes.len(), 1);
        segments.open();
    };
    let (compacted, ()) = futures::join!(table.compact(), meanwhile);
    assert_eq!(compacted.unwrap().indexes, []);
    check(folder.path(), 150, true, "two compactions").await;
}
