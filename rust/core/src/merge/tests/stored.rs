//! The stored form of a rule: one text for each, and no text that is read as another rule.
//!
//! Owns: golden texts, the round trip, and what columns of later schemas mean to a rule.
//! Does not own: where the text is stored.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema};
use proptest::prelude::*;

use super::table::{names, schema_of};
use crate::format::reconcile::{FIELD_ID, WIDENED_FROM, widened_mark};
use crate::merge::binding::{Column, How, Kind};
use crate::merge::{
    Aggregate, DeletePolicy, Fold, KeepEnd, MergeEngine, MergeFunction, MergeRule, NullPolicy,
    PairFunctions, RuleError, RuleOptions,
};
use crate::types::ErrorKind;

const AGGREGATION: &str = concat!(
    r#"{"format":1,"engine":"aggregation","sequence":[],"groups":[],"functions":{"#,
    r#""1":{"name":"sum","ignore_retract":true},"#,
    r#""2":{"name":"listagg","separator":"\" ","distinct":true,"limit":3},"#,
    r#""10":{"name":"collect","limit":9,"keep":"last"},"#,
    r#""11":{"name":"user","function":"pkg.merge:mean"}"#,
    r#"},"deletes":"refuse","nulls":"set"}"#
);
const PARTIAL_UPDATE: &str = concat!(
    r#"{"format":1,"engine":"partial_update","sequence":[],"groups":["#,
    r#"{"sequence":[1],"columns":[3,2]},{"sequence":[4,5],"columns":[6]}"#,
    r#"],"functions":{},"deletes":"ignore","nulls":"keep"}"#
);
const EVENT_TIME: &str = concat!(
    r#"{"format":1,"engine":"deduplicate","sequence":[2,1],"groups":[],"functions":{},"#,
    r#""deletes":"remove","nulls":"set","delete_retention_ms":604800000}"#
);
const FIRST_ROW: &str = concat!(
    r#"{"format":1,"engine":"first_row","sequence":[],"groups":[],"functions":{},"#,
    r#""deletes":"remove","nulls":"set"}"#
);
const ALL: [&str; 4] = [AGGREGATION, PARTIAL_UPDATE, EVENT_TIME, FIRST_ROW];

#[test]
fn the_text_of_a_rule_never_changes() {
    for text in ALL {
        assert_eq!(MergeRule::from_json(text).unwrap().to_json(), text);
    }
}

#[test]
fn a_rule_is_stored_by_field_ids() {
    let schema = schema_of(&[("a", DataType::Int64), ("ts", DataType::Int64)]);
    let options = RuleOptions { sequence_by: names(&["ts", "a"]), ..RuleOptions::default() };
    let rule = MergeRule::new(&options, &schema, &names(&["k"])).unwrap();
    assert_eq!(rule.to_json(), EVENT_TIME);
    assert_eq!(rule.delete_retention_ms(), Some(604_800_000));
    let options = RuleOptions { delete_retention_ms: Some(0), ..options };
    let rule = MergeRule::new(&options, &schema, &names(&["k"])).unwrap();
    assert!(rule.to_json().ends_with(r#""delete_retention_ms":0}"#));
    assert_eq!(MergeRule::from_json(&rule.to_json()).unwrap(), rule);
}

#[test]
fn members_may_stand_in_any_order_with_any_space() {
    let text = r#" {"nulls":"set", "deletes": "remove", "functions" : {}, "groups":[],
        "sequence":[], "engine":"first_row", "format": 1 } "#;
    assert_eq!(MergeRule::from_json(text).unwrap().to_json(), FIRST_ROW);
}

#[test]
fn what_a_later_version_wrote_is_refused_not_ignored() {
    let replaced = |text: &str, from: &str, to: &str| {
        assert!(text.contains(from), "{from}");
        MergeRule::from_json(&text.replace(from, to)).unwrap_err()
    };
    for (text, from, to) in [
        (FIRST_ROW, r#""format":1"#, r#""format":2"#),
        (FIRST_ROW, "first_row", "last_row"),
        (FIRST_ROW, r#""nulls""#, r#""expires":1,"nulls""#),
        (FIRST_ROW, "remove", "archive"),
        (FIRST_ROW, r#""set""#, r#""skip""#),
        (AGGREGATION, r#""name":"sum""#, r#""name":"hll""#),
        (AGGREGATION, r#""name":"sum""#, r#""name":"sum","scale":2"#),
        (PARTIAL_UPDATE, r#""columns":[6]"#, r#""columns":[6],"order":"least""#),
    ] {
        let error = replaced(text, from, to);
        assert!(matches!(&error, RuleError::LaterVersion { .. }), "{to}: {error}");
        let error = error.into_error();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains("use the version that created the table"), "{error}");
    }
}

#[test]
fn a_damaged_text_is_damage() {
    let mut damaged = vec![
        FIRST_ROW.replace(r#""format":1"#, r#""format":"1""#),
        FIRST_ROW.replace(r#""sequence":[]"#, r#""sequence":[-1]"#),
        FIRST_ROW.replace(r#""sequence":[]"#, r#""sequence":[1.5]"#),
        FIRST_ROW.replace(r#","deletes":"remove""#, ""),
        FIRST_ROW.replace(r#""nulls":"set""#, r#""nulls":"set","delete_retention_ms":1"#),
        EVENT_TIME.replace(r#","delete_retention_ms":604800000"#, ""),
        EVENT_TIME.replace("604800000", "-1"),
        AGGREGATION.replace(r#""1":"#, r#""01":"#),
        AGGREGATION.replace(r#""1":"#, r#""x":"#),
        AGGREGATION.replace(r#""limit":3"#, r#""limit":4294967296"#),
        AGGREGATION.replace(r#""keep":"last""#, r#""keep":"middle""#),
        "[]".into(),
        String::new(),
    ];
    for text in ALL {
        damaged.extend((0..text.len()).map(|end| text[..end].to_owned()));
    }
    for text in damaged {
        let error = MergeRule::from_json(&text).unwrap_err();
        assert!(matches!(&error, RuleError::Undecodable { .. }), "{text}: {error}");
        assert_eq!(error.into_error().kind(), ErrorKind::Corruption);
    }
}

fn field(id: i32, name: &str, of: DataType) -> Field {
    let metadata = HashMap::from([(FIELD_ID.to_owned(), id.to_string())]);
    Field::new(name, of, name != "k").with_metadata(metadata)
}

#[test]
fn a_rule_follows_its_columns_through_renames_widenings_and_drops() {
    let key = names(&["k"]);
    let of = |fields: Vec<Field>| Arc::new(Schema::new(fields));
    let text = FIRST_ROW.replace("first_row", "aggregation").replace(
        r#""functions":{}"#,
        r#""functions":{"1":{"name":"sum"},"2":{"name":"max"},"3":{"name":"min"}}"#,
    );
    let rule = MergeRule::from_json(&text).unwrap();
    let mut wide = field(9, "wide", DataType::Int64);
    let mut metadata = wide.metadata().clone();
    metadata.insert(WIDENED_FROM.to_owned(), widened_mark(1, 9));
    wide = wide.with_metadata(metadata);
    // 1 was widened to 9, 2 has another name, 3 was dropped, and 10 is new.
    let later = of(vec![
        field(0, "k", DataType::Int64),
        field(10, "new", DataType::Utf8),
        field(2, "other", DataType::Int64),
        wide,
    ]);
    let fold = Fold::new(&rule, &later, &key, &PairFunctions::new()).unwrap();
    let expected = [MergeFunction::LastNonNullValue, MergeFunction::Max, MergeFunction::Sum];
    assert_eq!(bound(&fold), expected);

    let rule = MergeRule::from_json(EVENT_TIME).unwrap();
    let dropped = of(vec![field(0, "k", DataType::Int64), field(1, "a", DataType::Int64)]);
    let error = rule.check(&dropped, &key).unwrap_err();
    assert_eq!(error, RuleError::DroppedColumn { option: "sequence_by", id: 2 });
    assert!(error.to_string().contains("field id 2"), "{error}");
}

#[test]
fn a_rule_gives_back_the_options_that_made_it() {
    let schema = Schema::new(vec![
        field(0, "k", DataType::Int64),
        field(1, "ts", DataType::Int64),
        field(2, "v", DataType::Int64),
        field(3, "w", DataType::Int64),
    ]);
    let key = names(&["k"]);
    let sum = ("v".to_owned(), Aggregate::from(MergeFunction::Sum));
    let mean = ("w".to_owned(), "pkg.merge:mean".to_owned());
    for options in [
        RuleOptions {
            merge_engine: MergeEngine::Aggregation,
            aggregates: [sum].into(),
            merge_functions: [mean].into(),
            deletes: DeletePolicy::Refuse,
            ..RuleOptions::default()
        },
        RuleOptions {
            merge_engine: MergeEngine::PartialUpdate,
            sequence_groups: vec![(names(&["ts"]), names(&["w", "v"]))],
            nulls: NullPolicy::Keep,
            ..RuleOptions::default()
        },
        RuleOptions { sequence_by: names(&["ts", "v"]), ..RuleOptions::default() },
        RuleOptions {
            sequence_by: names(&["ts"]),
            delete_retention_ms: Some(5),
            ..RuleOptions::default()
        },
    ] {
        let rule = MergeRule::new(&options, &schema, &key).unwrap();
        assert_eq!(rule.options(&schema), options.with_defaults());
    }
}

#[test]
fn the_options_of_a_rule_have_present_names_and_no_dropped_columns() {
    let rule = MergeRule::from_json(PARTIAL_UPDATE).unwrap();
    let columns = [(1, "at"), (2, "two"), (4, "four"), (5, "five"), (6, "six")];
    let fields: Vec<Field> =
        columns.iter().map(|(id, name)| field(*id, name, DataType::Int64)).collect();
    let options = rule.options(&Schema::new(fields));
    let groups =
        vec![(names(&["at"]), names(&["two"])), (names(&["four", "five"]), names(&["six"]))];
    assert_eq!(options.sequence_groups, groups);
}

#[test]
fn the_text_of_options_names_all_that_is_chosen() {
    let schema = Schema::new(vec![
        field(1, "ts", DataType::Int64),
        field(2, "v", DataType::Int64),
        field(3, "w", DataType::Int64),
        field(4, "ship_ts", DataType::Int64),
        field(5, "ship_no", DataType::Int64),
        field(6, "state", DataType::Utf8),
    ]);
    let text = |json: &str| MergeRule::from_json(json).unwrap().options(&schema).to_string();
    assert_eq!(text(FIRST_ROW), "first_row");
    assert_eq!(
        text(EVENT_TIME),
        "deduplicate, sequence_by v, ts, deletes remembered for 604800000 ms"
    );
    assert_eq!(
        text(PARTIAL_UPDATE),
        "partial_update, w, v by ts, state by ship_ts, ship_no, deletes 'ignore', nulls 'keep'"
    );
    assert_eq!(text(AGGREGATION), "aggregation, sum of ts, listagg of v, deletes 'refuse'");
}

/// The functions of the columns beside the key.
fn bound(fold: &Fold) -> Vec<MergeFunction> {
    let Kind::Combining { columns, .. } = &fold.kind else { return Vec::new() };
    let function = |column: &Column| match &column.how {
        How::Function { function, .. } => Some(function.clone()),
        _ => None,
    };
    columns.iter().filter_map(function).collect()
}

fn functions() -> impl Strategy<Value = MergeFunction> {
    use MergeFunction::{
        BoolAnd, Count, FirstNonNullValue, LastValue, Max, MergeMap, Min, Rbm32, Rbm64, Sum,
    };
    let limit = || prop::option::of(1_u32..);
    prop_oneof![
        prop::sample::select(vec![
            Sum,
            Count,
            Min,
            Max,
            BoolAnd,
            LastValue,
            FirstNonNullValue,
            MergeMap,
            Rbm32,
            Rbm64
        ]),
        (any::<bool>(), limit()).prop_map(|(distinct, limit)| {
            MergeFunction::Collect { distinct, limit, keep: KeepEnd::First }
        }),
        limit().prop_map(|limit| MergeFunction::Collect {
            distinct: false,
            limit,
            keep: KeepEnd::Last
        }),
        any::<String>().prop_map(|separator| {
            MergeFunction::ListAgg { separator, distinct: false, limit: None }
        }),
        "[a-z.]{1,9}:[a-z_]{1,9}".prop_map(|name| MergeFunction::User { name }),
    ]
}

proptest! {
    #[test]
    fn every_rule_is_read_as_it_was_written(
        functions in prop::collection::btree_map(0..i32::MAX, (functions(), any::<bool>()), 0..5),
        groups in prop::collection::vec(prop::collection::vec(0..i32::MAX, 0..4), 0..4),
        sequence in prop::collection::vec(0..i32::MAX, 0..3),
        choice in 0_usize..64,
        retention in any::<u64>(),
    ) {
        let engines = [
            MergeEngine::Deduplicate,
            MergeEngine::FirstRow,
            MergeEngine::PartialUpdate,
            MergeEngine::Aggregation,
        ];
        let deletes = [
            DeletePolicy::Remove,
            DeletePolicy::Ignore,
            DeletePolicy::Refuse,
            DeletePolicy::Retract,
        ];
        let mut rule = MergeRule {
            engine: engines[choice % 4],
            sequence,
            groups: groups
                .chunks(2)
                .map(|of| crate::merge::SequenceGroup {
                    sequence: of[0].clone(),
                    columns: of.last().cloned().unwrap_or_default(),
                })
                .collect(),
            functions: functions
                .into_iter()
                .map(|(id, (function, ignore_retract))| (id, Aggregate { function, ignore_retract }))
                .collect(),
            deletes: deletes[choice / 4 % 4],
            nulls: if choice < 32 { NullPolicy::Set } else { NullPolicy::Keep },
            delete_retention_ms: 604_800_000,
        };
        if rule.remembers_deletes() {
            rule.delete_retention_ms = retention;
        }
        prop_assert_eq!(MergeRule::from_json(&rule.to_json()).unwrap(), rule);
    }
}
