//! Runs of many pages beside a plain map.
//!
//! Owns: the search over pages and fragments, for one key column and for two, with keys that stand
//! more than once.
//! Does not own: the life of an index beside a table (`tests/test_record_index.py`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow_array::{Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};
use lance::Dataset;
use lance::dataset::{InsertBuilder, WriteMode, WriteParams};
use lancemem_core::format::KeyEncoder;
use lancemem_core::store::Store;

use super::*;

const ROWS: i64 = 30_000;

fn rows(fragment: i64) -> RecordBatch {
    let schema = Arc::new(Schema::new(vec![
        Field::new("v", DataType::Int64, true),
        Field::new("b", DataType::Int64, false),
        Field::new("a", DataType::Utf8, false),
    ]));
    // Some keys stand in several fragments, and one fills more than a page.
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

    // A version without the first fragment: its entries are passed over.
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
async fn runs_of_another_key_are_not_asked() {
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
