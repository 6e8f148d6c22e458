//! Runs of many pages, compared with a plain map.
//!
//! Owns: the search over pages and fragments, for one key column and for two, with duplicate keys;
//! and merges, which equal a build over the same fragments.
//! Does not own: the life of an index beside a table (`tests/test_record_index.py`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};
use lance::Dataset;
use lance::dataset::{InsertBuilder, WriteMode, WriteParams};
use lancemem_core::format::KeyEncoder;
use lancemem_core::store::Store;
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::sstable::PAGE_ROWS;

const ROWS: i64 = 30_000;

fn rows(fragment: i64) -> RecordBatch {
    let schema = Arc::new(Schema::new(vec![
        Field::new("v", DataType::Int64, true),
        Field::new("b", DataType::Int64, false),
        Field::new("a", DataType::Utf8, false),
    ]));
    // Some keys occur in several fragments, and one fills more than a page.
    let number = |row: i64| if row % 3 == 0 { 7 } else { (row * 7_919 + fragment * 13) % 40_000 };
    let numbers: Vec<i64> = (0..ROWS).map(number).collect();
    let texts = StringArray::from_iter_values(numbers.iter().map(|n| format!("t{}", n % 10)));
    let of = Arc::new(Int64Array::from(vec![fragment; numbers.len()]));
    let numbers = Arc::new(Int64Array::from(numbers));
    RecordBatch::try_new(schema, vec![of, numbers, Arc::new(texts)]).unwrap()
}

async fn base_in(folder: &tempfile::TempDir) -> Dataset {
    let uri = folder.path().canonicalize().unwrap();
    let uri = uri.to_str().unwrap();
    let mut base = InsertBuilder::new(uri).execute(vec![rows(0)]).await.unwrap();
    for fragment in 1..3 {
        let params = WriteParams { mode: WriteMode::Append, ..WriteParams::default() };
        base = InsertBuilder::new(Arc::new(base))
            .with_params(&params)
            .execute(vec![rows(fragment)])
            .await
            .unwrap();
    }
    base
}

/// Every key with the rows that have it.
fn model(key: &[String]) -> BTreeMap<Vec<u8>, BTreeSet<(u32, u32)>> {
    let mut model: BTreeMap<Vec<u8>, BTreeSet<(u32, u32)>> = BTreeMap::new();
    for fragment in 0..3_u32 {
        let batch = rows(i64::from(fragment));
        let block = KeyEncoder::new(batch.schema_ref(), key).unwrap().encode_block(&batch);
        for (key, offset) in block.iter().zip(0..) {
            model.entry(key.to_vec()).or_default().insert((fragment, offset));
        }
    }
    model
}

async fn assert_finds(index: &RecordIndex, keys: &[&[u8]], fragments: &[u32], key: &[String]) {
    let model = model(key);
    let found: BTreeSet<(u32, u32, u32)> = index.search(keys).await.unwrap().into_iter().collect();
    let rows = |(place, key): (u32, &&[u8])| {
        let rows = model.get(*key).cloned().unwrap_or_default();
        rows.into_iter().map(move |(fragment, offset)| (place, fragment, offset))
    };
    let expected = (0..).zip(keys).flat_map(rows);
    let expected: BTreeSet<_> =
        expected.filter(|(_, fragment, _)| fragments.contains(fragment)).collect();
    assert!(found == expected, "{} found, {} expected", found.len(), expected.len());
}

async fn a_search_finds_every_row_of_a_key(key: &[&str]) {
    let key: Vec<String> = key.iter().map(|name| (*name).to_owned()).collect();
    let folder = tempfile::tempdir().unwrap();
    let base = base_in(&folder).await;
    let store = Store::open(folder.path().to_str().unwrap(), true).unwrap();
    let runs = IndexRuns::default();
    assert!(runs.published(&base).await.unwrap().is_none());
    let fragments = base.fragments();
    for part in [&fragments[..2], &fragments[2..]] {
        build(&base, &key, part).await.unwrap().publish(&store).await.unwrap();
    }
    let published = runs.published(&base).await.unwrap().unwrap();
    let index = RecordIndex::new(&base, &key, &published);
    assert_eq!((index.serving().count(), index.fragments()), (2, 3));

    let known = model(&key);
    let all: Vec<&[u8]> = known.keys().map(Vec::as_slice).collect();
    assert_finds(&index, &all, &[0, 1, 2], &key).await;
    let some: Vec<&[u8]> = all.iter().copied().step_by(97).collect();
    assert_finds(&index, &some, &[0, 1, 2], &key).await;
    for one in [all[0], all[all.len() / 2], all[all.len() - 1], b"", b"\x01\xff\xff"] {
        assert_finds(&index, &[one], &[0, 1, 2], &key).await;
    }
    assert!(index.search(&[]).await.unwrap().is_empty());

    let report = check(&base, &key, &published).await.unwrap();
    assert_eq!((report.damage.clone(), report.fragments_covered), (Vec::new(), 3));
    assert_eq!(report.entries, 3 * u64::try_from(ROWS).unwrap());

    // A version without the first fragment: its entries are skipped.
    let mut less = base.clone();
    less.delete("v = 0").await.unwrap();
    let rest: Vec<u32> = less.fragments().iter().map(|it| u32::try_from(it.id).unwrap()).collect();
    assert_eq!(rest, [1, 2]);
    let index = RecordIndex::new(&less, &key, &published);
    assert_finds(&index, &some, &rest, &key).await;
    assert_eq!(check(&less, &key, &published).await.unwrap().damage, Vec::<String>::new());
}

#[tokio::test]
async fn a_search_for_keys_of_one_column_finds_every_row() {
    a_search_finds_every_row_of_a_key(&["b"]).await;
}

#[tokio::test]
async fn a_search_for_keys_of_two_columns_finds_every_row() {
    a_search_finds_every_row_of_a_key(&["a", "b"]).await;
}

#[tokio::test]
async fn runs_of_another_key_are_not_searched() {
    let folder = tempfile::tempdir().unwrap();
    let base = base_in(&folder).await;
    let store = Store::open(folder.path().to_str().unwrap(), true).unwrap();
    let of_b = ["b".to_owned()];
    build(&base, &of_b, base.fragments()).await.unwrap().publish(&store).await.unwrap();
    let published = IndexRuns::default().published(&base).await.unwrap().unwrap();
    assert_eq!(RecordIndex::new(&base, &of_b, &published).fragments(), 3);
    for other in [["v".to_owned()].as_slice(), &["a".to_owned(), "b".to_owned()], &[]] {
        assert_eq!(RecordIndex::new(&base, other, &published).fragments(), 0, "{other:?}");
    }
}

/// Every entry of a run, in full pages.
async fn entries(run: &OpenRun) -> Vec<(Vec<u8>, u64)> {
    let pages = run.pages().await.unwrap();
    let mut entries = Vec::new();
    for number in 0..pages.len() {
        let (keys, addresses) = pages.page(number).await.unwrap();
        assert!(keys.len() == PAGE_ROWS || number + 1 == pages.len(), "page {number}");
        entries.extend(keys.iter().map(<[u8]>::to_vec).zip(addresses));
    }
    entries
}

fn merged_of(merged: Merged) -> NewRun {
    match merged {
        Merged::Run(run) => run,
        Merged::Damaged(run, why) => panic!("{}: {why}", run.name),
    }
}

/// Merges all runs that serve `base`, and compares the new one with a run built of all fragments.
async fn a_merge_equals_a_build(base: &Dataset, key: &[String], store: &Store) {
    let published = IndexRuns::default().published(base).await.unwrap().unwrap();
    let index = RecordIndex::new(base, key, &published);
    let inputs: Vec<_> = index.serving().cloned().collect();
    assert_eq!(index.fragments(), base.fragments().len());
    let merged = merged_of(merge(base, key, &index, &inputs).await.unwrap());
    let built = build(base, key, base.fragments()).await.unwrap();
    let names = [merged.name.clone(), built.name.clone()];
    merged.publish(store).await.unwrap();
    built.publish(store).await.unwrap();
    let published = IndexRuns::default().published(base).await.unwrap().unwrap();
    let [merged, built] =
        names.map(|name| published.iter().find(|run| run.name == name).unwrap().clone());
    assert!(merged.has_blocks() && built.has_blocks());
    assert_eq!(merged.run.fragments, built.run.fragments);
    assert_eq!(merged.run.entries, built.run.entries);
    assert!(entries(&merged).await == entries(&built).await, "of {} runs", inputs.len());
    let alone = check(base, key, &[merged]).await.unwrap();
    assert_eq!((alone.damage, alone.fragments_uncovered), (Vec::new(), 0));
}

async fn merges_of_many_pages_equal_builds(key: &[&str]) {
    let key: Vec<String> = key.iter().map(|name| (*name).to_owned()).collect();
    let folder = tempfile::tempdir().unwrap();
    let mut base = base_in(&folder).await;
    let store = Store::open(folder.path().to_str().unwrap(), true).unwrap();
    for part in base.fragments().chunks(1) {
        build(&base, &key, part).await.unwrap().publish(&store).await.unwrap();
    }
    a_merge_equals_a_build(&base, &key, &store).await;
    // The first fragment is gone, and rows of the others are deleted: their entries stay.
    base.delete("v = 0 or b % 5 = 1").await.unwrap();
    a_merge_equals_a_build(&base, &key, &store).await;
}

#[tokio::test]
async fn a_merge_of_keys_of_one_column_equals_a_build() {
    merges_of_many_pages_equal_builds(&["b"]).await;
}

#[tokio::test]
async fn a_merge_of_keys_of_two_columns_equals_a_build() {
    merges_of_many_pages_equal_builds(&["a", "b"]).await;
}

fn numbered(fragment: usize, numbers: &[i64]) -> RecordBatch {
    let schema = rows(0).schema();
    let of = Int64Array::from(vec![i64::try_from(fragment).unwrap(); numbers.len()]);
    let texts =
        StringArray::from_iter_values(numbers.iter().map(|n| "x".repeat(usize::from(n % 2 == 0))));
    let numbers = Arc::new(Int64Array::from(numbers.to_vec()));
    let columns: Vec<ArrayRef> = vec![Arc::new(of), numbers, Arc::new(texts)];
    RecordBatch::try_new(schema, columns).unwrap()
}

async fn random_parts(fragments: &[Vec<i64>], runs: &[usize], gone: &[usize], key: &[&str]) {
    let key: Vec<String> = key.iter().map(|name| (*name).to_owned()).collect();
    let folder = tempfile::tempdir().unwrap();
    let uri = folder.path().canonicalize().unwrap();
    let mut base: Option<Dataset> = None;
    for (fragment, numbers) in fragments.iter().enumerate() {
        let batch = numbered(fragment, numbers);
        base = Some(match base.take() {
            None => InsertBuilder::new(uri.to_str().unwrap()).execute(vec![batch]).await.unwrap(),
            Some(base) => {
                let params = WriteParams { mode: WriteMode::Append, ..WriteParams::default() };
                let insert = InsertBuilder::new(Arc::new(base));
                insert.with_params(&params).execute(vec![batch]).await.unwrap()
            }
        });
    }
    let mut base = base.unwrap();
    let store = Store::open(folder.path().to_str().unwrap(), true).unwrap();
    let mut rest = base.fragments().as_slice();
    for count in runs {
        let (part, others) = rest.split_at((*count).min(rest.len()));
        build(&base, &key, part).await.unwrap().publish(&store).await.unwrap();
        rest = others;
    }
    build(&base, &key, rest).await.unwrap().publish(&store).await.unwrap();
    let gone: Vec<String> = gone.iter().map(ToString::to_string).collect();
    if !gone.is_empty() {
        base.delete(&format!("v in ({})", gone.join(", "))).await.unwrap();
    }
    if !base.fragments().is_empty() {
        a_merge_equals_a_build(&base, &key, &store).await;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_merge_of_any_runs_equals_a_build(
        fragments in vec(vec(-30_i64..30, 1..60), 1..8),
        runs in vec(1_usize..3, 0..6),
        gone in vec(0_usize..8, 0..3),
        composite in any::<bool>(),
    ) {
        let key: &[&str] = if composite { &["a", "b"] } else { &["b"] };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(random_parts(&fragments, &runs, &gone, key));
    }
}

#[tokio::test]
async fn a_merge_names_the_run_that_is_damaged_and_leaves_no_pages() {
    let folder = tempfile::tempdir().unwrap();
    let base = base_in(&folder).await;
    let store = Store::open(folder.path().to_str().unwrap(), true).unwrap();
    let key = ["b".to_owned()];
    for part in base.fragments().chunks(1) {
        build(&base, &key, part).await.unwrap().publish(&store).await.unwrap();
    }
    let published = IndexRuns::default().published(&base).await.unwrap().unwrap();
    let index = RecordIndex::new(&base, &key, &published);
    let pages = folder.path().join("_lancemem/record_index");
    let folders = || std::fs::read_dir(&pages).unwrap().count();
    let before = folders();
    let file = pages.join(&published[1].name).join("page_data.lance");
    let mut bytes = std::fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    match merge(&base, &key, &index, &published).await.unwrap() {
        Merged::Run(_) => panic!("a damaged page is merged"),
        Merged::Damaged(run, why) => {
            assert_eq!(run.name, published[1].name);
            assert!(why.contains("page_data.lance: checksum mismatch"), "{why}");
        }
    }
    assert_eq!(folders(), before);
}
