//! What each rule does with each event: one story for each row of the design's table of rules.
//!
//! Owns: puts, partial puts, nulls, replaces and both deletes under each engine.
//! Does not own: changes between versions, which readers of two states derive.

use super::table::*;
use crate::merge::{
    Aggregate, DeletePolicy, KeyGroups, MergeEngine, MergeFunction, NullPolicy, RuleOptions, Verb,
};

pub fn choosing(merge_engine: MergeEngine, sequence_by: &[&str]) -> Table {
    let options =
        RuleOptions { merge_engine, sequence_by: names(sequence_by), ..RuleOptions::default() };
    Table::new(&[("v", Kind::Int), ("s", Kind::Int)], options)
}

pub fn partial(deletes: DeletePolicy) -> Table {
    let columns = [("x", Kind::Int), ("y", Kind::Int), ("gs", Kind::Int), ("c", Kind::Text)];
    let options = RuleOptions {
        merge_engine: MergeEngine::PartialUpdate,
        sequence_groups: vec![(names(&["gs"]), names(&["c"]))],
        deletes,
        ..RuleOptions::default()
    };
    Table::new(&columns, options)
}

/// A sum `n`, a count `c` and, where deletes are not retracted, a column `l` of no function.
pub fn aggregation(deletes: DeletePolicy) -> Table {
    let mut columns = vec![("n", Kind::Int), ("c", Kind::Int)];
    if deletes != DeletePolicy::Retract {
        columns.push(("l", Kind::Int));
    }
    let function = |name: &str, it: MergeFunction| (name.to_owned(), Aggregate::from(it));
    let options = RuleOptions {
        merge_engine: MergeEngine::Aggregation,
        aggregates: [function("n", MergeFunction::Sum), function("c", MergeFunction::Count)].into(),
        deletes,
        ..RuleOptions::default()
    };
    Table::new(&columns, options)
}

fn vs(v: i64, s: i64) -> [(&'static str, Value); 2] {
    [("v", int(v)), ("s", int(s))]
}

fn all_partial(x: i64, gs: Value) -> [(&'static str, Value); 4] {
    [("x", int(x)), ("y", Value::Null), ("gs", gs), ("c", text("whole"))]
}

#[track_caller]
fn refused(table: &Table, event: &Event, words: &[&str]) {
    let error = table.stored(event).unwrap_err().to_string();
    for word in words {
        assert!(error.contains(word), "'{word}' is not in: {error}");
    }
}

#[test]
fn only_rules_that_choose_have_winners() {
    let table = choosing(MergeEngine::Deduplicate, &["s"]);
    let source = table.source(&[put(1, vs(1, 5)), put(1, vs(2, 4))]);
    let groups = KeyGroups::new(vec![0, 2], vec![(0, 0), (0, 1)]).unwrap();
    let winners = table.fold.winners(&[source], &groups).unwrap();
    assert_eq!((winners.rows(), winners.replaces()), (&[(0, 0)][..], &[false][..]));
    let table = partial(DeletePolicy::Remove);
    let source = table.source(&[put(1, [("x", int(1))]), put(1, [])]);
    let error = table.fold.winners(&[source], &groups).unwrap_err().to_string();
    assert!(error.contains("partial_update combines events"), "{error}");
}

#[test]
fn deduplicate_shows_the_last_event() {
    let table = choosing(MergeEngine::Deduplicate, &[]);
    assert!(table.rule.is_plain());
    assert_eq!(table.row(&[put(1, vs(1, 9)), put(1, vs(2, 1))]), Some(row(vs(2, 1))));
}

#[test]
fn a_sequence_shows_the_greatest_event_and_of_equal_ones_the_last() {
    let table = choosing(MergeEngine::Deduplicate, &["s"]);
    let late = [put(1, vs(1, 9)), put(1, vs(2, 1))];
    assert_eq!(table.row(&late), Some(row(vs(1, 9))));
    let equal = [put(1, vs(1, 9)), put(1, vs(2, 9)), put(1, [("v", int(3)), ("s", Value::Null)])];
    assert_eq!(table.row(&equal), Some(row(vs(2, 9))));
    let no_sequence = [put(1, [("v", int(3)), ("s", Value::Null)]), put(1, vs(1, -9))];
    assert_eq!(table.row(&no_sequence), Some(row(vs(1, -9))));
}

#[test]
fn first_row_shows_the_first_event_and_with_a_sequence_the_least() {
    let table = choosing(MergeEngine::FirstRow, &[]);
    assert_eq!(table.row(&[put(1, vs(1, 9)), put(1, vs(2, 1))]), Some(row(vs(1, 9))));
    let table = choosing(MergeEngine::FirstRow, &["s"]);
    let null = put(1, [("v", int(0)), ("s", Value::Null)]);
    let events = [null, put(1, vs(1, 9)), put(1, vs(2, 1)), put(1, vs(3, 1))];
    assert_eq!(table.row(&events), Some(row(vs(2, 1))));
}

#[test]
fn partial_update_shows_each_column_from_the_last_put_that_gave_it() {
    let table = partial(DeletePolicy::Remove);
    let events = [put(1, [("x", int(1)), ("y", int(1))]), put(1, [("x", int(2))])];
    let shown = table.row(&events).unwrap();
    assert_eq!((&shown["x"], &shown["y"]), (&int(2), &int(1)));
}

#[test]
fn a_sequence_group_is_taken_whole_from_its_greatest_event() {
    let table = partial(DeletePolicy::Remove);
    let events = [
        put(1, [("gs", int(5)), ("c", Value::Null)]),
        put(1, [("gs", int(4)), ("c", text("late"))]),
        put(1, [("gs", Value::Null), ("c", text("without a sequence")), ("x", int(7))]),
    ];
    let shown = table.row(&events).unwrap();
    assert_eq!((&shown["gs"], &shown["c"], &shown["x"]), (&int(5), &Value::Null, &int(7)));
    let half = put(1, [("c", text("alone"))]);
    refused(&table, &half, &["'c' is given, 'gs' is missing", "sequence group"]);
}

#[test]
fn aggregation_computes_each_column_by_its_function() {
    let table = aggregation(DeletePolicy::Remove);
    let events = [put(1, [("n", int(2)), ("l", int(8))]), put(1, [("n", int(3))])];
    assert_eq!(table.row(&events), Some(row([("n", int(5)), ("c", int(2)), ("l", int(8))])));
}

#[test]
fn a_put_with_fewer_columns_is_refused_where_rows_are_whole() {
    for engine in [MergeEngine::Deduplicate, MergeEngine::FirstRow] {
        let table = choosing(engine, &["s"]);
        refused(&table, &put(1, [("v", int(1))]), &["column 's' is missing", engine.name()]);
    }
}

#[test]
fn a_column_that_no_put_gave_is_null() {
    let shown = partial(DeletePolicy::Remove).row(&[put(1, [])]).unwrap();
    assert!(shown.values().all(|it| *it == Value::Null), "{shown:?}");
    let shown = aggregation(DeletePolicy::Remove).row(&[put(1, [])]).unwrap();
    assert_eq!(shown, row([("n", Value::Null), ("c", int(1)), ("l", Value::Null)]));
}

#[test]
fn a_missing_column_is_no_null_for_functions_that_count_nulls() {
    let last = [("v", Kind::Int, MergeFunction::LastValue.into())];
    refused(&Table::aggregation(&last), &put(1, []), &["column 'v' is missing", "as a null"]);
}

#[test]
fn a_null_is_a_value_unless_nulls_are_kept() {
    let table = partial(DeletePolicy::Remove);
    let first = put(1, [("x", int(1)), ("gs", int(1)), ("c", text("old"))]);
    let null = put(1, [("x", Value::Null), ("gs", int(2)), ("c", Value::Null)]);
    let shown = table.row(&[first.clone(), null.clone()]).unwrap();
    assert_eq!((&shown["x"], &shown["c"]), (&Value::Null, &Value::Null));
    let kept = Event { keeps_nulls: true, ..null.clone() };
    let shown = table.row(&[first.clone(), kept]).unwrap();
    // A group is taken whole, with its nulls.
    assert_eq!((&shown["x"], &shown["c"]), (&int(1), &Value::Null));
    // The table's default does what the call does.
    let options = RuleOptions { nulls: NullPolicy::Keep, ..table.options };
    let keeps = Table::new(&table.columns, options);
    assert_eq!(keeps.row(&[first, null]).unwrap()["x"], int(1));
}

#[test]
fn only_partial_update_keeps_nulls() {
    let kept = Event { keeps_nulls: true, ..put(1, [("n", Value::Null)]) };
    refused(&aggregation(DeletePolicy::Remove), &kept, &["nulls='keep'", "aggregation"]);
    let kept = Event { keeps_nulls: true, ..put(1, vs(1, 1)) };
    refused(&choosing(MergeEngine::Deduplicate, &["s"]), &kept, &["nulls='keep'", "deduplicate"]);
}

#[test]
fn a_null_is_no_input_of_a_function_except_those_that_count_nulls() {
    let shown = aggregation(DeletePolicy::Remove)
        .row(&[
            put(1, [("n", int(2)), ("l", int(1))]),
            put(1, [("n", Value::Null), ("l", Value::Null)]),
        ])
        .unwrap();
    assert_eq!((&shown["n"], &shown["l"]), (&int(2), &int(1)));
    let table = Table::aggregation(&[
        ("first", Kind::Int, MergeFunction::FirstValue.into()),
        ("last", Kind::Int, MergeFunction::LastValue.into()),
    ]);
    let events = [
        put(1, [("first", Value::Null), ("last", int(1))]),
        put(1, [("first", int(2)), ("last", Value::Null)]),
    ];
    assert_eq!(table.row(&events), Some(row([("first", Value::Null), ("last", Value::Null)])));
}

#[test]
fn a_replace_forgets_what_arrived_before_it() {
    let table = choosing(MergeEngine::Deduplicate, &["s"]);
    let events = [put(1, vs(1, 9)), replace(1, vs(2, 3)), put(1, vs(3, 1)), put(1, vs(4, 5))];
    assert_eq!(table.row(&events[..3]), Some(row(vs(2, 3))));
    assert_eq!(table.row(&events), Some(row(vs(4, 5))));

    let table = choosing(MergeEngine::FirstRow, &["s"]);
    let events = [put(1, vs(1, 1)), replace(1, vs(2, 3)), put(1, vs(3, 5))];
    assert_eq!(table.row(&events), Some(row(vs(2, 3))));

    let table = partial(DeletePolicy::Remove);
    let events = [put(1, [("y", int(1))]), replace(1, all_partial(2, int(4)))];
    assert_eq!(table.row(&events), Some(row(all_partial(2, int(4)))));

    let table = aggregation(DeletePolicy::Remove);
    let events = [
        put(1, [("n", int(100))]),
        replace(1, [("n", int(7)), ("l", int(1))]),
        put(1, [("n", int(1))]),
    ];
    assert_eq!(table.row(&events), Some(row([("n", int(8)), ("c", int(2)), ("l", int(1))])));
}

#[test]
fn a_replace_gives_whole_rows_also_groups_without_a_sequence() {
    let table = partial(DeletePolicy::Remove);
    refused(&table, &replace(1, [("x", int(1))]), &["'y' is missing", "whole rows"]);
    let whole = replace(1, all_partial(1, Value::Null));
    assert_eq!(table.row(std::slice::from_ref(&whole)).unwrap()["c"], text("whole"));
    // A put without a sequence does not touch the group; any sequence does.
    let untouched = put(1, [("gs", Value::Null), ("c", text("no"))]);
    assert_eq!(table.row(&[whole.clone(), untouched]).unwrap()["c"], text("whole"));
    let touched = put(1, [("gs", int(-5)), ("c", text("yes"))]);
    assert_eq!(table.row(&[whole, touched]).unwrap()["c"], text("yes"));
}

#[test]
fn a_delete_without_a_sequence_removes_the_row_and_what_comes_later_counts_from_nothing() {
    for engine in [MergeEngine::Deduplicate, MergeEngine::FirstRow] {
        for by in [&["s"][..], &[]] {
            let table = choosing(engine, by);
            let events = [put(1, vs(1, 5)), barrier(1), put(1, vs(2, 4))];
            assert_eq!(table.row(&events[..2]), None, "{engine:?} {by:?}");
            assert_eq!(table.row(&events), Some(row(vs(2, 4))), "{engine:?} {by:?}");
        }
    }
    let table = partial(DeletePolicy::Remove);
    let events =
        [put(1, all_partial(1, int(9))), barrier(1), put(1, [("gs", int(2)), ("c", text("a"))])];
    assert_eq!(table.row(&events[..2]), None);
    let shown = table.row(&events).unwrap();
    assert_eq!((&shown["x"], &shown["c"]), (&Value::Null, &text("a")));

    let table = aggregation(DeletePolicy::Remove);
    let events = [put(1, [("n", int(9))]), barrier(1), put(1, [("n", int(1))])];
    assert_eq!(table.row(&events[..2]), None);
    assert_eq!(table.row(&events).unwrap()["n"], int(1));
}

#[test]
fn a_delete_with_a_sequence_is_an_event_like_another() {
    let table = choosing(MergeEngine::Deduplicate, &["s"]);
    let of = |s| delete(1, [("s", int(s))]);
    assert_eq!(table.row(&[put(1, vs(1, 5)), of(4)]), Some(row(vs(1, 5))));
    assert_eq!(table.row(&[put(1, vs(1, 5)), of(5)]), None);
    assert_eq!(table.row(&[put(1, vs(1, 5)), of(6), put(1, vs(2, 5))]), None);
    assert_eq!(table.row(&[of(6), put(1, vs(2, 6))]), Some(row(vs(2, 6))));
    // A barrier removes a remembered delete too.
    assert_eq!(table.row(&[of(6), barrier(1), put(1, vs(2, 1))]), Some(row(vs(2, 1))));
}

#[test]
fn a_delete_gives_all_columns_of_the_sequence_or_none() {
    let options = RuleOptions { sequence_by: names(&["s", "v"]), ..RuleOptions::default() };
    let table = Table::new(&[("v", Kind::Int), ("s", Kind::Int)], options);
    let error = table.stored(&delete(1, [("s", int(1))])).unwrap_err().to_string();
    assert!(error.contains("'s' is given, 'v' is missing"), "{error}");
    // One of them may be null, not all: that would be the other kind of delete.
    table.stored(&delete(1, [("s", int(1)), ("v", Value::Null)])).unwrap();
    let nulls = delete(1, [("s", Value::Null), ("v", Value::Null)]);
    refused(&table, &nulls, &["null in row 0 of a delete", "without the columns of sequence_by"]);
}

#[test]
fn a_delete_with_a_sequence_is_refused_where_no_row_has_one() {
    let table = choosing(MergeEngine::FirstRow, &["s"]);
    refused(&table, &delete(1, [("s", int(1))]), &["delete with a sequence", "first_row"]);
    let table = partial(DeletePolicy::Remove);
    refused(&table, &delete(1, [("gs", int(1))]), &["put nulls with the sequence of the group"]);
}

#[test]
fn a_retract_takes_back_what_a_put_gave() {
    let table = aggregation(DeletePolicy::Retract);
    let put = put(1, [("n", int(5))]);
    let shown = table.row(&[put.clone(), put, retract(1, [("n", int(5))])]);
    assert_eq!(shown, Some(row([("n", int(5)), ("c", int(1))])));
    // The other rules have nothing to take back.
    let choosing = choosing(MergeEngine::Deduplicate, &["s"]);
    refused(&choosing, &retract(1, vs(1, 1)), &["retract", "deduplicate"]);
    let partial = partial(DeletePolicy::Remove);
    refused(&partial, &retract(1, [("x", int(1))]), &["retract", "partial_update"]);
    let with_last = aggregation(DeletePolicy::Remove);
    refused(&with_last, &retract(1, [("n", int(1))]), &["column 'l'", "ignore_retract"]);
}

#[test]
fn a_delete_retracts_in_a_table_whose_deletes_retract() {
    let table = aggregation(DeletePolicy::Retract);
    let delete = event(Verb::Delete, 1, row([("n", int(5))]));
    let events = [put(1, [("n", int(5))]), put(1, [("n", int(3))]), delete];
    assert_eq!(table.row(&events), Some(row([("n", int(3)), ("c", int(1))])));
}

#[test]
fn counts_take_no_values() {
    let table = aggregation(DeletePolicy::Remove);
    refused(&table, &put(1, [("c", int(4))]), &["column 'c' counts rows", "leave it out"]);
}

#[test]
fn unknown_columns_missing_keys_and_other_types_are_refused() {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Int32Array, Int64Array, RecordBatch};

    let table = partial(DeletePolicy::Remove);
    let of = |columns: Vec<(&str, ArrayRef)>| {
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        table.fold.events(&batch, Verb::Put, None).unwrap_err().to_string()
    };
    let ones: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    let narrow: ArrayRef = Arc::new(Int32Array::from(vec![1]));
    let error = of(vec![("k", ones.clone()), ("z", ones.clone())]);
    assert!(error.contains("column 'z' is not in the table"), "{error}");
    let error = of(vec![("x", ones.clone())]);
    assert!(error.contains("primary key column 'k' is missing"), "{error}");
    let error = of(vec![("k", ones), ("x", narrow)]);
    assert!(error.contains("column 'x' is of type int32, expected int64"), "{error}");
}
