//! Rows of tables whose merge rule chooses among the rows of a key: what is stored of a call, and
//! which row of a MemTable is chosen.
//!
//! Owns: the stories of `RowSchema::with_rule` and of the choice in a view.
//! Does not own: the fold itself, which has its laws beside it, or rows on storage.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, BooleanArray, Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use lancemem_core::format::RowSchema;
use lancemem_core::memtable::{MemTable, MemTableView};
use lancemem_core::merge::{MergeEngine, MergeRule, PairFunctions, RuleOptions};
use lancemem_core::shard::memtable_layout;
use lancemem_core::types::{Generation, KeyIndexKind};
use proptest::prelude::*;

fn table(merge_engine: MergeEngine, sequence_by: &[&str]) -> RowSchema {
    table_with(merge_engine, sequence_by, 0)
}

fn table_with(merge_engine: MergeEngine, sequence_by: &[&str], retention_ms: u64) -> RowSchema {
    let field = |id: i32, name: &str| {
        let metadata = HashMap::from([("lance:field_id".to_owned(), id.to_string())]);
        Field::new(name, DataType::Int64, id > 0).with_metadata(metadata)
    };
    let fields = vec![field(0, "k"), field(1, "ts"), field(2, "n"), field(3, "v")];
    let schema = Arc::new(Schema::new(fields));
    let key = ["k".to_owned()];
    let sequence_by: Vec<String> = sequence_by.iter().map(|name| (*name).to_owned()).collect();
    let remembers = merge_engine == MergeEngine::Deduplicate && !sequence_by.is_empty();
    let delete_retention_ms = remembers.then_some(retention_ms);
    let options =
        RuleOptions { merge_engine, sequence_by, delete_retention_ms, ..RuleOptions::default() };
    let rule = MergeRule::new(&options, &schema, &key).unwrap();
    RowSchema::with_rule(schema, &key, Some(&rule), &PairFunctions::new()).unwrap()
}

fn batch(columns: &[(&str, &[Option<i64>])]) -> RecordBatch {
    let columns = columns.iter().map(|(name, values)| {
        (*name, Arc::new(Int64Array::from(values.to_vec())) as ArrayRef, true)
    });
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

fn column<'a>(rows: &'a RecordBatch, name: &str) -> &'a Int64Array {
    rows.column_by_name(name).unwrap().as_primitive::<Int64Type>()
}

fn names(schema: &Schema) -> Vec<&str> {
    schema.fields().iter().map(|field| field.name().as_str()).collect()
}

#[test]
fn a_ruled_table_stores_one_column_more_and_a_plain_one_the_same_as_ever() {
    let ruled = table(MergeEngine::Deduplicate, &["ts"]);
    assert_eq!(names(ruled.storage()), ["k", "ts", "n", "v", "_tombstone", "_replace"]);
    let plain = RowSchema::new(ruled.logical().clone(), &["k".to_owned()]).unwrap();
    assert_eq!(names(plain.storage()), ["k", "ts", "n", "v", "_tombstone"]);
    // `deduplicate` without a sequence is no rule.
    assert_eq!(table(MergeEngine::Deduplicate, &[]).storage(), plain.storage());
    assert!(plain.rule().is_none());
}

#[test]
fn a_plain_table_keeps_a_column_that_a_ruled_one_reserves() {
    let metadata = HashMap::from([("lance:field_id".to_owned(), "1".to_owned())]);
    let own = Field::new("_replace", DataType::Int64, true).with_metadata(metadata);
    let logical = Schema::new(vec![Field::new("k", DataType::Int64, false), own]);
    let rows = RowSchema::new(Arc::new(logical), &["k".to_owned()]).unwrap();
    let put = batch(&[("k", &[Some(1)]), ("_replace", &[Some(7)])]);
    let stored = rows.accept(&put).unwrap().batch;
    let again = rows.conform(&stored).unwrap().batch;
    assert_eq!(column(&again, "_replace").value(0), 7);
}

#[test]
fn a_delete_keeps_the_sequence_that_it_brings() {
    let table = table(MergeEngine::Deduplicate, &["ts", "n"]);
    let with = batch(&[("k", &[Some(1)]), ("ts", &[Some(5)]), ("n", &[None]), ("v", &[Some(9)])]);
    let stored = table.accept_keys(&with).unwrap().batch;
    assert_eq!(column(&stored, "ts").value(0), 5);
    assert!(column(&stored, "n").is_null(0) && column(&stored, "v").is_null(0));
    let without = table.accept_keys(&batch(&[("k", &[Some(1)])])).unwrap().batch;
    assert!(column(&without, "ts").is_null(0));
    // What a replay of the log accepts is what the call stored.
    assert_eq!(table.conform(&stored).unwrap().batch, stored);
}

#[test]
fn a_delete_with_a_part_of_its_sequence_or_a_null_is_refused_by_name() {
    let table = table(MergeEngine::Deduplicate, &["ts", "n"]);
    let refused = |rows: &RecordBatch| table.accept_keys(rows).unwrap_err().to_string();
    let part = refused(&batch(&[("k", &[Some(1)]), ("ts", &[Some(5)])]));
    assert!(part.contains("'ts' is given, 'n' is missing"), "{part}");
    let null = refused(&batch(&[
        ("k", &[Some(1), Some(2)]),
        ("ts", &[Some(1), None]),
        ("n", &[None, None]),
    ]));
    assert!(null.contains("column 'ts' is null in row 1"), "{null}");
}

#[test]
fn a_delete_with_a_sequence_that_is_to_be_remembered_is_refused_with_the_ways_that_work() {
    let table = table_with(MergeEngine::Deduplicate, &["ts"], 604_800_000);
    let rows = batch(&[("k", &[Some(1)]), ("ts", &[Some(5)])]);
    let error = table.accept_keys(&rows).unwrap_err().to_string();
    assert!(error.contains("create the table with a delete_retention of 0"), "{error}");
    assert!(table.accept_keys(&batch(&[("k", &[Some(1)])])).is_ok());
    // A look-up of whole rows asks for their keys alone.
    assert!(table.accept_wanted(&rows).is_ok());
}

#[test]
fn a_first_row_has_no_delete_with_a_sequence() {
    let table = table(MergeEngine::FirstRow, &["ts"]);
    let rows = batch(&[("k", &[Some(1)]), ("ts", &[Some(5)])]);
    let error = table.accept_keys(&rows).unwrap_err().to_string();
    assert!(error.contains("no put can be less than a row that is gone"), "{error}");
}

#[test]
fn deletes_among_changes_have_the_sequence_of_their_rows() {
    let table = table(MergeEngine::Deduplicate, &["ts"]);
    let rows = batch(&[
        ("k", &[Some(1), Some(2)]),
        ("ts", &[Some(5), Some(6)]),
        ("n", &[Some(1), Some(2)]),
        ("v", &[Some(1), Some(2)]),
    ]);
    let deletes = BooleanArray::from(vec![false, true]);
    let stored = table.accept_changes(&rows, &deletes).unwrap().batch;
    assert_eq!(column(&stored, "ts").values(), &[5, 6]);
    assert!(column(&stored, "v").is_null(1));
    let rows = batch(&[
        ("k", &[Some(1), Some(2)]),
        ("ts", &[None, None]),
        ("n", &[None, None]),
        ("v", &[None, None]),
    ]);
    let error = table.accept_changes(&rows, &deletes).unwrap_err().to_string();
    assert!(error.contains("column 'ts' is null in row 1, which is a delete"), "{error}");
}

/// One event of a key.
#[derive(Clone, Copy, Debug)]
enum Event {
    Put(Option<i64>),
    /// A delete with a sequence.
    Delete(i64),
    Barrier,
}

fn event(engine: MergeEngine) -> impl Strategy<Value = Event> {
    let put = prop::option::weighted(0.8, 0_i64..4).prop_map(Event::Put);
    if engine == MergeEngine::FirstRow {
        return prop_oneof![4 => put, 1 => Just(Event::Barrier)].boxed();
    }
    prop_oneof![4 => put, 1 => (0_i64..4).prop_map(Event::Delete), 1 => Just(Event::Barrier)]
        .boxed()
}

fn events(engine: MergeEngine) -> impl Strategy<Value = Vec<(i64, Event)>> {
    prop::collection::vec((0_i64..5, event(engine)), 0..40)
}

fn accept(table: &RowSchema, key: i64, event: Event, row: i64) -> RecordBatch {
    let key = ("k", &[Some(key)] as &[Option<i64>]);
    let accepted = match event {
        Event::Put(ts) => {
            table.accept(&batch(&[key, ("ts", &[ts]), ("n", &[None]), ("v", &[Some(row)])]))
        }
        Event::Delete(ts) => table.accept_keys(&batch(&[key, ("ts", &[Some(ts)])])),
        Event::Barrier => table.accept_keys(&batch(&[key])),
    };
    accepted.unwrap().batch
}

/// The row that is shown of each key, and the keys with a delete without a sequence: a plain list of
/// the events of a key.
fn model(
    engine: MergeEngine,
    has_sequence: bool,
    events: &[(i64, Event)],
) -> BTreeMap<i64, (usize, bool)> {
    let mut lives: BTreeMap<i64, (Vec<usize>, bool)> = BTreeMap::new();
    for (row, (key, event)) in events.iter().enumerate() {
        let (life, is_behind) = lives.entry(*key).or_default();
        if let Event::Barrier = event {
            *life = vec![row];
            *is_behind = true;
        } else {
            if matches!(life.first(), Some(first) if matches!(events[*first].1, Event::Barrier)) {
                life.clear();
            }
            life.push(row);
        }
    }
    let sequence = |row: &usize| match events[*row].1 {
        Event::Put(ts) if has_sequence => ts,
        Event::Delete(ts) if has_sequence => Some(ts),
        _ => None,
    };
    let chosen = |life: &[usize]| match engine {
        // A null comes last, and the first of equal ones wins.
        MergeEngine::FirstRow => {
            *life.iter().min_by_key(|row| sequence(row).unwrap_or(i64::MAX)).unwrap()
        }
        _ => *life.iter().max_by_key(|row| sequence(row).unwrap_or(i64::MIN)).unwrap(),
    };
    lives.iter().map(|(key, (life, behind))| (*key, (chosen(life), *behind))).collect()
}

fn view(table: &RowSchema, events: &[(i64, Event)], index: KeyIndexKind) -> MemTableView {
    let memtable = Arc::new(MemTable::new(Generation(1), memtable_layout(table, index)));
    for (row, (key, event)) in events.iter().enumerate() {
        let rows = accept(table, *key, *event, i64::try_from(row).unwrap());
        memtable.push(rows, None, 1);
    }
    memtable.view(events.len())
}

fn assert_chosen(engine: MergeEngine, sequence: &[&str], events: &[(i64, Event)]) {
    let table = table(engine, sequence);
    let expected = model(engine, !sequence.is_empty(), events);
    for index in [KeyIndexKind::Hash, KeyIndexKind::SkipList] {
        let view = view(&table, events, index);
        let chosen = view.chosen().unwrap().unwrap();
        let mut rows: Vec<usize> = expected.values().map(|(row, _)| *row).collect();
        rows.sort_unstable();
        assert_eq!(chosen.rows().values().set_indices().collect::<Vec<_>>(), rows, "{events:?}");
        for (row, is_behind) in expected.values() {
            // A delete without a sequence that is a key's only event says so itself.
            let has_others = events.iter().filter(|(key, _)| *key == events[*row].0).count() > 1;
            let replaces = chosen.replacing().contains(&u32::try_from(*row).unwrap());
            assert_eq!(replaces, *is_behind && has_others, "{events:?}");
        }
    }
}

proptest! {
    #[test]
    fn the_greatest_sequence_is_chosen_and_of_equal_ones_the_last(
        events in events(MergeEngine::Deduplicate),
    ) {
        assert_chosen(MergeEngine::Deduplicate, &["ts"], &events);
    }

    #[test]
    fn the_first_row_is_chosen_by_arrival_or_by_sequence(events in events(MergeEngine::FirstRow)) {
        assert_chosen(MergeEngine::FirstRow, &[], &events);
        assert_chosen(MergeEngine::FirstRow, &["ts"], &events);
    }
}
