//! What a fold is called with: groups, sources, and events that no call makes.
//!
//! Owns: refusals of a caller's mistakes, and the laws beyond events of calls.
//! Does not own: what rules do with events of calls (`verbs`).

use arrow_array::RecordBatch;
use arrow_select::concat::concat_batches;

use super::table::*;
use super::verbs::{aggregation, choosing, partial};
use crate::merge::{DeletePolicy, KeyGroups, MergeEngine, RuleOptions};
use crate::types::ErrorKind;

#[test]
fn a_group_has_an_event_and_ends_where_the_next_begins() {
    let rows = vec![(0, 0), (0, 1)];
    for offsets in [vec![], vec![0], vec![0, 1], vec![0, 0, 2], vec![1, 2], vec![0, 2, 1, 2]] {
        let error = KeyGroups::new(offsets.clone(), rows.clone()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Internal, "{offsets:?}");
    }
    let groups = KeyGroups::new(vec![0, 1, 2], rows).unwrap();
    assert_eq!((groups.len(), groups.ordinals()), (2, &[0, 1][..]));
    assert!(KeyGroups::new(vec![0], vec![]).unwrap().is_empty());
    let error = KeyGroups::from_ordinals(2, &[&[0, 2]]).unwrap_err().to_string();
    assert!(error.contains("ordinal 2 of 2 keys"), "{error}");
}

#[test]
fn sources_have_the_columns_of_events_and_the_rows_of_groups() {
    let table = aggregation(DeletePolicy::Remove);
    let source = table.source(&[put(1, [("n", int(1))])]);
    let one = KeyGroups::new(vec![0, 1], vec![(0, 0)]).unwrap();
    let rows = table.fold.visible_rows(&source).unwrap();
    let error = table.fold.fold(&[rows], &one).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Internal);
    for behind in [(0, 1), (1, 0)] {
        let groups = KeyGroups::new(vec![0, 1], vec![behind]).unwrap();
        let error = table.fold.fold(std::slice::from_ref(&source), &groups).unwrap_err();
        assert!(error.to_string().contains("no row"), "{error}");
    }
}

#[test]
fn no_groups_fold_to_no_events() {
    for table in [choosing(MergeEngine::Deduplicate, &["s"]), partial(DeletePolicy::Remove)] {
        let none = KeyGroups::from_ordinals(5, &[]).unwrap();
        let folded = table.fold.fold(&[], &none).unwrap();
        assert_eq!((folded.num_rows(), folded.schema_ref()), (0, table.fold.event_schema()));
    }
}

#[test]
fn a_table_of_the_key_alone_has_rows() {
    for merge_engine in [MergeEngine::PartialUpdate, MergeEngine::Aggregation] {
        let table = Table::new(&[], RuleOptions { merge_engine, ..RuleOptions::default() });
        assert_eq!(table.row(&[put(1, []), put(1, [])]), Some(Row::new()));
        assert_eq!(table.row(&[put(1, []), barrier(1)]), None);
    }
}

#[test]
fn a_group_without_a_sequence_never_wins_whatever_stored_it() {
    let table = partial(DeletePolicy::Remove);
    let base = |gs: Value, c: &str| {
        let whole = replace(1, [("x", int(1)), ("y", int(1)), ("gs", gs), ("c", text(c))]);
        let rows = table.fold.visible_rows(&table.source(&[whole])).unwrap();
        table.fold.base_events(&rows).unwrap()
    };
    let events = [
        base(Value::Null, "oldest"),
        base(Value::Null, "second"),
        base(int(3), "three"),
        base(Value::Null, "last"),
    ];
    let shown = |events: &[RecordBatch]| table.rows(&table.folded(events))[&1]["c"].clone();
    for cut in 0..=events.len() {
        let (older, newer) = events.split_at(cut);
        let pieces = [table.folded(older), table.folded(newer)];
        let pieces = concat_batches(table.fold.event_schema(), &pieces).unwrap();
        assert_eq!(shown(&[pieces]), text("three"), "cut at {cut}");
    }
    assert_eq!(shown(&events[..2]), text("oldest"));
}
