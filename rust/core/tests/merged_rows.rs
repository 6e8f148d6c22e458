//! Rows of tables whose merge rule makes a row of several: what is stored of a call, and the rows of a
//! MemTable with one event of each key.
//!
//! Owns: the stories of `RowSchema` and of `MemTableView::folded` under such a rule.
//! Does not own: the fold itself, which has its laws beside it, or rows on storage.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, BooleanArray, Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use lancemem_core::format::{PutMode, RowSchema};
use lancemem_core::memtable::MemTable;
use lancemem_core::merge::{
    DeletePolicy, MergeEngine, MergeFunction, MergeRule, NullPolicy, PairFunctions, RuleOptions,
};
use lancemem_core::shard::memtable_layout;
use lancemem_core::types::{ErrorKind, Generation, KeyIndexKind};

const KEEP: PutMode = PutMode { replace: false, nulls: Some(NullPolicy::Keep) };
const REPLACE: PutMode = PutMode { replace: true, nulls: None };

/// A table with the key `k`, the group (`ts`, `g`), `n`, and the sum `total`.
fn table(merge_engine: MergeEngine, deletes: DeletePolicy) -> RowSchema {
    let field = |id: i32, name: &str| {
        let mut metadata = HashMap::from([("lance:field_id".to_owned(), id.to_string())]);
        if id == 0 {
            let mark = "lance-schema:unenforced-primary-key".to_owned();
            metadata.insert(mark, "true".to_owned());
        }
        Field::new(name, DataType::Int64, id > 0).with_metadata(metadata)
    };
    let fields =
        vec![field(0, "k"), field(1, "ts"), field(2, "g"), field(3, "n"), field(4, "total")];
    let schema = Arc::new(Schema::new(fields));
    let key = ["k".to_owned()];
    let groups = match merge_engine {
        MergeEngine::PartialUpdate => vec![(vec!["ts".to_owned()], vec!["g".to_owned()])],
        _ => Vec::new(),
    };
    let options = RuleOptions {
        merge_engine,
        deletes,
        sequence_groups: groups,
        aggregates: [("total".to_owned(), MergeFunction::Sum.into())].into(),
        ..RuleOptions::default()
    };
    let rule = MergeRule::new(&options, &schema, &key).unwrap();
    RowSchema::with_rule(schema, &key, Some(&rule), &PairFunctions::new()).unwrap()
}

fn partial() -> RowSchema {
    table(MergeEngine::PartialUpdate, DeletePolicy::Remove)
}

fn batch(columns: &[(&str, &[Option<i64>])]) -> RecordBatch {
    let columns = columns.iter().map(|(name, values)| {
        (*name, Arc::new(Int64Array::from(values.to_vec())) as ArrayRef, true)
    });
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

fn values(rows: &RecordBatch, name: &str) -> Vec<Option<i64>> {
    rows.column_by_name(name).unwrap().as_primitive::<Int64Type>().iter().collect()
}

fn flags(rows: &RecordBatch, name: &str) -> Vec<bool> {
    rows.column_by_name(name).unwrap().as_boolean().values().iter().collect()
}

/// The bits of `_given`, the least significant first: ts, g, n, total.
fn given(rows: &RecordBatch) -> Vec<u8> {
    let given = rows.column_by_name("_given").unwrap().as_fixed_size_binary();
    (0..given.len()).map(|row| given.value(row)[0]).collect()
}

#[test]
fn a_put_of_some_columns_stores_which_of_them_it_gave() {
    let table = partial();
    let names: Vec<&str> = table.storage().fields().iter().map(|it| it.name().as_str()).collect();
    assert_eq!(names, ["k", "ts", "g", "n", "total", "_tombstone", "_replace", "_given"]);
    let put = batch(&[("n", &[Some(5), None]), ("k", &[Some(1), Some(2)])]);
    let stored = table.accept(&put).unwrap().batch;
    assert_eq!(values(&stored, "k"), [Some(1), Some(2)]);
    assert_eq!(values(&stored, "n"), [Some(5), None]);
    assert_eq!(given(&stored), [0b0100, 0b0100]);
    assert_eq!(flags(&stored, "_tombstone"), [false, false]);
    // A null is a value, unless the call asks to keep what is there.
    let kept = table.accept_put(&put, KEEP).unwrap().batch;
    assert_eq!(given(&kept), [0b0100, 0]);
    // Stored rows stay what they are when they are read back.
    assert_eq!(table.conform(&stored).unwrap().batch, stored);
}

#[test]
fn a_replace_gives_all_columns_and_a_put_gives_a_group_whole() {
    let table = partial();
    let some = batch(&[("k", &[Some(1)]), ("n", &[Some(5)])]);
    let error = table.accept_put(&some, REPLACE).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("column 'ts' is missing in a replace"), "{error}");
    let half = batch(&[("k", &[Some(1)]), ("g", &[Some(5)])]);
    let error = table.accept(&half).unwrap_err().to_string();
    assert!(error.contains("'g' is given, 'ts' is missing"), "{error}");
    let all = batch(&[
        ("k", &[Some(1)]),
        ("ts", &[None]),
        ("g", &[Some(2)]),
        ("n", &[Some(3)]),
        ("total", &[Some(4)]),
    ]);
    let stored = table.accept_put(&all, REPLACE).unwrap().batch;
    assert_eq!((given(&stored), flags(&stored, "_replace")), (vec![0b1111], vec![true]));
    // Without a sequence the group is not touched.
    assert_eq!(given(&table.accept(&all).unwrap().batch), [0b1100]);
}

#[test]
fn a_delete_follows_the_policy_of_the_table() {
    let keys = batch(&[("k", &[Some(1), Some(2)]), ("n", &[Some(1), Some(2)])]);
    let stored = partial().accept_keys(&keys).unwrap().batch;
    assert_eq!(flags(&stored, "_tombstone"), [true, true]);
    assert_eq!(values(&stored, "n"), [None, None]);
    let ignores = table(MergeEngine::PartialUpdate, DeletePolicy::Ignore);
    assert_eq!(ignores.accept_keys(&keys).unwrap().batch.num_rows(), 0);
    let refuses = table(MergeEngine::PartialUpdate, DeletePolicy::Refuse);
    let error = refuses.accept_keys(&keys).unwrap_err().to_string();
    assert!(error.contains("deletes='refuse'"), "{error}");
    // A delete has no sequence of a group.
    let with = batch(&[("k", &[Some(1)]), ("ts", &[Some(1)])]);
    let error = partial().accept_keys(&with).unwrap_err().to_string();
    assert!(error.contains("put nulls with the sequence of the group"), "{error}");
    // What is looked up is never an event.
    assert!(refuses.accept_wanted(&keys).is_ok());
}

#[test]
fn puts_and_deletes_of_one_batch_keep_their_order() {
    let rows = batch(&[("k", &[Some(1), Some(1), Some(2)]), ("n", &[Some(7), Some(8), Some(9)])]);
    let deletes = BooleanArray::from(vec![false, true, false]);
    let stored = partial().accept_changes(&rows, &deletes).unwrap().batch;
    assert_eq!(flags(&stored, "_tombstone"), [false, true, false]);
    assert_eq!(values(&stored, "n"), [Some(7), None, Some(9)]);
    assert_eq!(given(&stored), [0b0100, 0, 0b0100]);
    let ignores = table(MergeEngine::PartialUpdate, DeletePolicy::Ignore);
    let stored = ignores.accept_changes(&rows, &deletes).unwrap().batch;
    assert_eq!(values(&stored, "n"), [Some(7), Some(9)]);
}

// B25
#[test]
fn a_memtable_has_one_event_of_each_key_at_the_place_of_its_newest_row() {
    let table = partial();
    let layout = memtable_layout(&table, KeyIndexKind::Hash);
    let memtable = Arc::new(MemTable::new(Generation(1), layout));
    let puts = [
        batch(&[("k", &[Some(1), Some(2)]), ("n", &[Some(5), Some(6)])]),
        batch(&[("k", &[Some(1)]), ("total", &[Some(3)])]),
        batch(&[("k", &[Some(3), Some(1)]), ("total", &[Some(1), Some(4)])]),
    ];
    for put in &puts {
        memtable.push(table.accept(put).unwrap().batch, None, 1);
    }
    let view = memtable.view(puts.len());
    let folded = view.folded().unwrap().unwrap();
    assert_eq!(folded[..2], [view.batch(0).clone(), view.batch(1).clone()]);
    assert_eq!(values(&folded[2], "k"), [Some(3), Some(1)]);
    assert_eq!(values(&folded[2], "n"), [None, Some(5)]);
    assert_eq!(values(&folded[2], "total"), [Some(1), Some(7)]);
    assert_eq!(given(&folded[2]), [0b1000, 0b1100]);
}

// B24
#[test]
fn a_replace_or_a_delete_still_counts_for_older_sources_when_newer_puts_follow() {
    let table = partial();
    let layout = memtable_layout(&table, KeyIndexKind::Hash);
    let memtable = Arc::new(MemTable::new(Generation(1), layout));
    let all = batch(&[
        ("k", &[Some(1)]),
        ("ts", &[Some(1)]),
        ("g", &[Some(2)]),
        ("n", &[Some(3)]),
        ("total", &[Some(4)]),
    ]);
    let puts = batch(&[("k", &[Some(1), Some(2)]), ("total", &[Some(5), Some(6)])]);
    let events = [
        table.accept_put(&all, REPLACE).unwrap(),
        table.accept_keys(&batch(&[("k", &[Some(2)])])).unwrap(),
        table.accept(&puts).unwrap(),
    ];
    for event in events {
        memtable.push(event.batch, None, 1);
    }
    let folded = &memtable.view(3).folded().unwrap().unwrap()[2];
    assert_eq!(flags(folded, "_replace"), [true, true]);
    assert_eq!(flags(folded, "_tombstone"), [false, false]);
    assert_eq!(values(folded, "total"), [Some(9), Some(6)]);
    assert_eq!(given(folded), [0b1111, 0b1000]);
}
