//! Bugs that other systems had in public, each under its name, as far as a fold can have them.
//!
//! Owns: the stories of Apache Paimon's and Apache Hudi's issues that concern the fold.
//! Does not own: those that need files, jobs or readers; the table's tests have them.

use std::collections::BTreeMap;

use super::refusals::{aggregate, refusal};
use super::table::*;
use super::verbs::{aggregation, choosing, partial};
use crate::merge::{
    DeletePolicy, Fold, MergeEngine, MergeFunction, NullPolicy, PairFunctions, RuleOptions,
};
use crate::types::{Standing, Txn, Txns};

fn vs(v: i64, s: i64) -> [(&'static str, Value); 2] {
    [("v", int(v)), ("s", int(s))]
}

#[test]
fn paimon_4588_a_delete_does_not_come_back_with_the_next_flush() {
    let table = choosing(MergeEngine::Deduplicate, &["s"]);
    // A job put the row, another call deleted it, the job flushes an older generation later.
    let flushed = table.folded(&[table.source(&[put(1, vs(1, 5))])]);
    let deleted = table.folded(&[table.source(&[barrier(1)])]);
    assert_eq!(table.rows(&table.folded(&[flushed, deleted.clone()])), BTreeMap::new());
    // The barrier stays one when it is folded with nothing below it.
    assert_eq!(table.folded(std::slice::from_ref(&deleted)), deleted);
}

#[test]
fn paimon_4767_after_a_delete_without_a_sequence_smaller_sequences_load() {
    let table = choosing(MergeEngine::Deduplicate, &["s"]);
    let events = [put(1, vs(1, 2_024)), barrier(1), put(1, vs(2, 1_999)), put(1, vs(3, 1_998))];
    assert_eq!(table.row(&events), Some(row(vs(2, 1_999))));
}

#[test]
fn paimon_5387_and_hudi_2752_a_late_insert_loses_to_a_compacted_delete() {
    let table = choosing(MergeEngine::Deduplicate, &["s"]);
    let delete = delete(1, [("s", int(9))]);
    let compacted = table.folded(&[table.source(&[put(1, vs(1, 5)), delete])]);
    // The fold of the compacted events is still a delete with its sequence.
    assert_eq!(compacted.num_rows(), 1);
    let late = table.source(&[put(1, vs(2, 8))]);
    assert_eq!(table.rows(&table.folded(&[compacted.clone(), late])), BTreeMap::new());
    let newer = table.source(&[put(1, vs(3, 9))]);
    assert_eq!(table.rows(&table.folded(&[compacted, newer]))[&1], row(vs(3, 9)));
}

#[test]
fn paimon_5872_and_5631_a_compaction_does_not_change_which_of_equal_sequences_wins() {
    let table = choosing(MergeEngine::Deduplicate, &["s"]);
    let events = [put(1, vs(1, 7)), put(1, vs(2, 7)), put(1, vs(3, 7))];
    assert_eq!(table.row(&events), Some(row(vs(3, 7))));
    let table = choosing(MergeEngine::FirstRow, &["s"]);
    assert_eq!(table.row(&events), Some(row(vs(1, 7))));
}

#[test]
fn paimon_3020_3393_and_5179_first_and_last_with_a_sequence_are_refused() {
    for function in [
        MergeFunction::LastValue,
        MergeFunction::FirstValue,
        MergeFunction::LastNonNullValue,
        MergeFunction::FirstNonNullValue,
    ] {
        let options = RuleOptions {
            merge_engine: MergeEngine::Aggregation,
            sequence_by: names(&["i"]),
            aggregates: [("t".to_owned(), function.into())].into(),
            ..RuleOptions::default()
        };
        let error = refusal(&options);
        assert!(error.contains("need not be that of the event that gave a value"), "{error}");
    }
    let options = RuleOptions {
        merge_engine: MergeEngine::PartialUpdate,
        sequence_by: names(&["i"]),
        ..RuleOptions::default()
    };
    let error = refusal(&options);
    assert!(error.contains("need not be that of the event that gave a column"), "{error}");
    let options = RuleOptions {
        merge_engine: MergeEngine::PartialUpdate,
        sequence_groups: vec![(names(&["i"]), names(&["f"]))],
        aggregates: aggregate("f", MergeFunction::Sum),
        ..RuleOptions::default()
    };
    assert!(refusal(&options).contains("a sequence group takes its columns whole"));
}

#[test]
fn paimon_4065_the_value_of_a_filter_is_the_merged_one() {
    let table = aggregation(DeletePolicy::Remove);
    let shown = table.row(&[put(1, [("n", int(1))]), put(1, [("n", int(2))])]).unwrap();
    assert_eq!(shown["n"], int(3));
}

#[test]
fn paimon_10134_a_projection_reads_the_sequence_of_the_groups_that_it_shows() {
    let table = partial(DeletePolicy::Remove);
    let key = names(&["k"]);
    let none = PairFunctions::new();
    let fold = Fold::projected(&table.rule, &table.schema, &key, &none, &["c"]).unwrap();
    let read: Vec<&String> = fold.row_schema().fields().iter().map(|it| it.name()).collect();
    assert_eq!(read, ["gs", "c"]);
    let fold = Fold::projected(&table.rule, &table.schema, &key, &none, &["x"]).unwrap();
    assert_eq!(fold.row_schema().fields().len(), 1);
}

#[test]
fn paimon_4670_2561_and_4821_a_retract_that_comes_first_is_not_lost() {
    let table = aggregation(DeletePolicy::Retract);
    let first = table.folded(&[table.source(&[retract(1, [("n", int(5))])])]);
    assert_eq!(table.rows(&first)[&1], row([("n", int(-5)), ("c", int(-1))]));
    // It was compacted alone: a row of the base table.
    let base = table.fold.base_events(&table.fold.visible_rows(&first).unwrap()).unwrap();
    let later = table.source(&[put(1, [("n", int(5))]), put(1, [("n", int(2))])]);
    let shown = table.rows(&table.folded(&[base, later]));
    assert_eq!(shown[&1], row([("n", int(2)), ("c", int(1))]));
}

#[test]
fn paimon_8858_4247_and_6718_no_delete_is_a_silent_no_op_or_a_surprise() {
    let event = put(1, [("n", int(1))]);
    for deletes in [DeletePolicy::Remove, DeletePolicy::Ignore, DeletePolicy::Refuse] {
        for table in [aggregation(deletes), partial(deletes)] {
            let engine = table.rule.engine();
            let event =
                if engine == MergeEngine::PartialUpdate { put(1, []) } else { event.clone() };
            match deletes {
                DeletePolicy::Remove => assert_eq!(table.row(&[event, barrier(1)]), None),
                DeletePolicy::Ignore => {
                    assert_eq!(table.stored(&barrier(1)).unwrap().num_rows(), 0);
                    assert!(table.row(&[event, barrier(1)]).is_some());
                }
                _ => {
                    let error = table.stored(&barrier(1)).unwrap_err().to_string();
                    assert!(error.contains("deletes='refuse'"), "{error}");
                    assert!(error.contains(engine.name()), "{error}");
                }
            }
        }
    }
    let retracting = aggregation(DeletePolicy::Retract);
    assert_eq!(retracting.row(&[event, barrier(1)]).unwrap()["c"], int(0));
    let first_row = choosing(MergeEngine::FirstRow, &[]);
    let events = [put(1, vs(1, 1)), barrier(1), put(1, vs(2, 2)), put(1, vs(3, 3))];
    assert_eq!(first_row.row(&events), Some(row(vs(2, 2))));
}

#[test]
fn paimon_9666_a_replayed_batch_counts_once_with_its_transaction_id() {
    let table = aggregation(DeletePolicy::Remove);
    let (mut txns, mut log) = (Txns::default(), Vec::new());
    for version in [1, 2, 2, 2] {
        let txn = Txn::new("stream", version).unwrap();
        if txns.standing(&txn) == Standing::New {
            log.push(put(1, [("n", int(10))]));
            txns.record("stream", version);
        }
    }
    assert_eq!(table.row(&log).unwrap()["n"], int(20));
    // Without one, a sum is at least once.
    let twice = vec![put(1, [("n", int(10))]); 4];
    assert_eq!(table.row(&twice).unwrap()["n"], int(40));
}

#[test]
fn hudi_12971_insert_delete_insert_leaves_the_second_insert() {
    for engine in [MergeEngine::Deduplicate, MergeEngine::FirstRow] {
        for by in [&["s"][..], &[]] {
            let table = choosing(engine, by);
            let events = [put(1, vs(1, 1)), barrier(1), put(1, vs(2, 1))];
            assert_eq!(table.row(&events), Some(row(vs(2, 1))), "{engine:?} {by:?}");
        }
    }
    let table = choosing(MergeEngine::Deduplicate, &["s"]);
    let events = [put(1, vs(1, 1)), delete(1, [("s", int(2))]), put(1, vs(2, 3))];
    assert_eq!(table.row(&events), Some(row(vs(2, 3))));
}

#[test]
fn hudi_11726_and_10091_a_null_overwrites_or_not_as_the_table_chose() {
    let of = |nulls| {
        let table = partial(DeletePolicy::Remove);
        let table = Table::new(&table.columns, RuleOptions { nulls, ..table.options });
        table.row(&[put(1, [("x", int(1))]), put(1, [("x", Value::Null)])]).unwrap()["x"].clone()
    };
    assert_eq!(of(NullPolicy::Set), Value::Null);
    assert_eq!(of(NullPolicy::Keep), int(1));
}
