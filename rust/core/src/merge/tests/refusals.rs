//! Rules that a table cannot have: the error names column, option and reason.
//!
//! Owns: one case for each refusal of the design. Does not own: calls that a rule refuses (`verbs`).

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_schema::{DataType, Field, Fields, Schema, TimeUnit};

use super::table::{names, schema_of};
use crate::merge::{
    Aggregate, DeletePolicy, KeepEnd, MergeEngine, MergeFunction, MergeRule, NullPolicy, RuleError,
    RuleOptions,
};
use crate::types::ErrorKind;

fn schema() -> Arc<Schema> {
    schema_of(&[
        ("i", DataType::Int64),
        ("f", DataType::Float64),
        ("t", DataType::Utf8),
        ("b", DataType::Boolean),
        ("u", DataType::UInt32),
        ("l", list()),
        ("m", map(false)),
        ("d", DataType::Decimal128(9, 2)),
        ("bytes", DataType::Binary),
    ])
}

fn list() -> DataType {
    DataType::List(Arc::new(Field::new_list_field(DataType::Int64, true)))
}

fn map(is_sorted: bool) -> DataType {
    let parts = Fields::from(vec![
        Field::new("keys", DataType::Utf8, false),
        Field::new("values", DataType::Int64, true),
    ]);
    DataType::Map(Arc::new(Field::new("entries", DataType::Struct(parts), false)), is_sorted)
}

pub fn aggregate(column: &str, function: MergeFunction) -> BTreeMap<String, Aggregate> {
    [(column.to_owned(), function.into())].into()
}

/// The text of the refusal, which is an input error with a typed source.
#[track_caller]
pub fn refusal(options: &RuleOptions) -> String {
    refusal_in(&schema(), options)
}

#[track_caller]
fn refusal_in(schema: &Schema, options: &RuleOptions) -> String {
    let typed = MergeRule::new(options, schema, &names(&["k"])).unwrap_err();
    let error = typed.clone().into_error();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    let source = std::error::Error::source(&error).and_then(|it| it.downcast_ref::<RuleError>());
    assert_eq!(source, Some(&typed));
    error.to_string()
}

fn engine(merge_engine: MergeEngine) -> RuleOptions {
    RuleOptions { merge_engine, ..RuleOptions::default() }
}

#[track_caller]
fn assert_refused(options: &RuleOptions, words: &[&str]) {
    let error = refusal(options);
    for word in words {
        assert!(error.contains(word), "'{word}' is not in: {error}");
    }
}

fn with(column: &str, function: MergeFunction) -> RuleOptions {
    RuleOptions { aggregates: aggregate(column, function), ..engine(MergeEngine::Aggregation) }
}

fn collect(distinct: bool, limit: Option<u32>, keep: KeepEnd) -> MergeFunction {
    MergeFunction::Collect { distinct, limit, keep }
}

#[test]
fn functions_take_columns_of_their_types_only() {
    let cases = [
        ("t", MergeFunction::Sum, "it takes integers, floats and decimals of 38 digits"),
        ("d", MergeFunction::Sum, "decimal128(9, 2)"),
        ("f", MergeFunction::Count, "it takes int64"),
        ("l", MergeFunction::Max, "'max'"),
        ("m", MergeFunction::Min, "'min'"),
        ("i", MergeFunction::BoolAnd, "it takes booleans"),
        ("i", MergeFunction::BoolOr, "it takes booleans"),
        ("l", MergeFunction::MergeMap, "it takes maps"),
        ("t", collect(false, None, KeepEnd::First), "it takes lists"),
        ("i", MergeFunction::Rbm32, "it takes binary"),
        ("t", MergeFunction::Rbm64, "it takes binary"),
        (
            "bytes",
            MergeFunction::ListAgg { separator: ",".into(), distinct: false, limit: None },
            "it takes text",
        ),
    ];
    for (column, function, words) in cases {
        let name = function.name();
        assert_refused(&with(column, function), &[&format!("column '{column}'"), name, words]);
    }
    let maps = DataType::List(Arc::new(Field::new_list_field(map(false), true)));
    let of_maps = schema_of(&[("l", maps), ("m", map(true))]);
    let error = refusal_in(&of_maps, &with("l", collect(true, None, KeepEnd::First)));
    assert!(error.contains("which maps cannot"), "{error}");
    let error = refusal_in(&of_maps, &with("m", MergeFunction::MergeMap));
    assert!(error.contains("not sorted by key"), "{error}");
}

#[test]
fn functions_that_are_not_associative_are_refused_with_what_works() {
    for name in ["avg", "mean", "median", "mode", "product", "stddev", "variance"] {
        let error = MergeFunction::from_name("price", name).unwrap_err();
        assert!(matches!(&error, RuleError::NotAssociative { .. }), "{error}");
        assert!(
            error
                .to_string()
                .starts_with(&format!("column 'price' cannot have the function '{name}'"))
        );
    }
    let error = MergeFunction::from_name("price", "summ").unwrap_err().to_string();
    assert!(error.contains("unknown function 'summ'; the functions are sum, count"), "{error}");
    assert_refused(
        &with("l", collect(true, Some(2), KeepEnd::Last)),
        &["column 'l'", "not associative", "use keep='first'"],
    );
    for separator in ["", "aa", "aba", ", ,"] {
        let function =
            MergeFunction::ListAgg { separator: separator.into(), distinct: true, limit: None };
        assert_refused(
            &with("t", function),
            &["column 't'", "not associative", "cannot be told apart"],
        );
    }
}

#[test]
fn every_name_is_a_function_and_back() {
    for name in [
        "sum",
        "count",
        "min",
        "max",
        "bool_and",
        "bool_or",
        "last_value",
        "first_value",
        "last_non_null_value",
        "first_non_null_value",
        "listagg",
        "collect",
        "merge_map",
        "rbm32",
        "rbm64",
    ] {
        assert_eq!(MergeFunction::from_name("c", name).unwrap().name(), name);
    }
}

#[test]
fn parameters_that_make_no_sense_are_refused() {
    assert_refused(&with("l", collect(false, Some(0), KeepEnd::First)), &["limit", "column 'l'"]);
    for name in ["mean", "pkg:", ":mean", "a:b:c"] {
        let options = RuleOptions {
            merge_functions: [("f".to_owned(), name.to_owned())].into(),
            ..engine(MergeEngine::Aggregation)
        };
        assert_refused(&options, &["column 'f'", "'module:function'"]);
    }
}

#[test]
fn columns_of_a_rule_are_columns_of_the_table_beside_the_key() {
    let missing = RuleOptions { sequence_by: names(&["ts"]), ..RuleOptions::default() };
    assert_refused(&missing, &["sequence_by", "'ts'", "not in the table"]);
    let key = RuleOptions { sequence_by: names(&["k"]), ..RuleOptions::default() };
    assert_refused(&key, &["'k'", "primary key", "sequence_by"]);
    assert_refused(&with("k", MergeFunction::Sum), &["'k'", "primary key", "aggregates"]);
    assert_refused(&with("z", MergeFunction::Sum), &["aggregates", "'z'"]);
    let twice = RuleOptions { sequence_by: names(&["i", "i"]), ..RuleOptions::default() };
    assert_refused(&twice, &["'i'", "named once"]);
    let no_ids = Schema::new(vec![
        Field::new("k", DataType::Int64, false),
        Field::new("i", DataType::Int64, true),
    ]);
    let error =
        refusal_in(&no_ids, &RuleOptions { sequence_by: names(&["i"]), ..RuleOptions::default() });
    assert!(error.contains("'i' of sequence_by has no field id"), "{error}");
}

#[test]
fn a_sequence_has_a_type_with_an_order() {
    for (column, of) in [("b", "bool"), ("l", "list<item: int64>")] {
        let options = RuleOptions { sequence_by: names(&[column]), ..RuleOptions::default() };
        assert_refused(&options, &["sequence_by", &format!("'{column}' of type {of}")]);
    }
    let time = schema_of(&[("t", DataType::Time64(TimeUnit::Microsecond)), ("x", DataType::Utf8)]);
    let options = RuleOptions {
        sequence_groups: vec![(names(&["t"]), names(&["x"]))],
        ..engine(MergeEngine::PartialUpdate)
    };
    assert!(refusal_in(&time, &options).contains("cannot be in sequence_groups"));
}

#[test]
fn tables_with_a_rule_have_a_key_and_reserve_names() -> Result<(), RuleError> {
    let error = MergeRule::new(&engine(MergeEngine::FirstRow), &schema(), &[]).unwrap_err();
    assert_eq!(error, RuleError::NoKey { engine: "first_row" });
    // Without a rule there are no such columns.
    MergeRule::new(&RuleOptions::default(), &schema(), &[])?;
    for name in ["_replace", "_given"] {
        let taken = schema_of(&[(name, DataType::Int64)]);
        let error = refusal_in(&taken, &engine(MergeEngine::FirstRow));
        assert!(error.contains(&format!("'{name}' is reserved")), "{error}");
        MergeRule::new(&RuleOptions::default(), &taken, &names(&["k"]))?;
    }
    Ok(())
}

#[test]
fn rules_that_combine_need_nullable_columns() {
    let fields = schema().fields().iter().cloned().collect::<Vec<_>>();
    let strict =
        |field: &Arc<Field>| Arc::new(field.as_ref().clone().with_nullable(field.name() == "f"));
    let schema = Schema::new(fields.iter().map(strict).collect::<Vec<_>>());
    for merge_engine in [MergeEngine::PartialUpdate, MergeEngine::Aggregation] {
        let error = refusal_in(&schema, &engine(merge_engine));
        assert!(error.contains("column 'i' is not nullable"), "{error}");
        assert!(error.contains(merge_engine.name()), "{error}");
    }
    let choosing = RuleOptions { sequence_by: names(&["i"]), ..RuleOptions::default() };
    MergeRule::new(&choosing, &schema, &names(&["k"])).unwrap();
}

#[test]
fn options_belong_to_their_engines() {
    use MergeEngine::{Aggregation, Deduplicate, FirstRow, PartialUpdate};
    let groups = vec![(names(&["i"]), names(&["t"]))];
    for merge_engine in [Deduplicate, FirstRow, Aggregation] {
        let name = merge_engine.name();
        let options = RuleOptions { sequence_groups: groups.clone(), ..engine(merge_engine) };
        assert_refused(&options, &["sequence_groups", name]);
        let options = RuleOptions { nulls: NullPolicy::Keep, ..engine(merge_engine) };
        assert_refused(&options, &["nulls='keep'", name]);
    }
    for merge_engine in [Deduplicate, FirstRow] {
        let name = merge_engine.name();
        let aggregates = aggregate("i", MergeFunction::Sum);
        assert_refused(&RuleOptions { aggregates, ..engine(merge_engine) }, &["aggregates", name]);
        for deletes in [DeletePolicy::Ignore, DeletePolicy::Refuse, DeletePolicy::Retract] {
            assert_refused(&RuleOptions { deletes, ..engine(merge_engine) }, &["deletes", name]);
        }
    }
    let deletes = DeletePolicy::Retract;
    let options = RuleOptions { deletes, ..engine(PartialUpdate) };
    assert_refused(&options, &["deletes='retract'", "use aggregation"]);
    for merge_engine in [Deduplicate, FirstRow, PartialUpdate, Aggregation] {
        let options = RuleOptions { delete_retention_ms: Some(1), ..engine(merge_engine) };
        assert_refused(&options, &["delete_retention_ms", "deduplicate with sequence_by"]);
    }
    let sums = RuleOptions { sequence_by: names(&["f"]), ..with("i", MergeFunction::Sum) };
    assert_refused(&sums, &["sequence_by", "leave it out"]);
}

#[test]
fn a_column_has_one_role() {
    let both = RuleOptions {
        merge_functions: [("i".to_owned(), "pkg:f".to_owned())].into(),
        ..with("i", MergeFunction::Sum)
    };
    assert_refused(&both, &["'i'", "aggregates", "merge_functions", "one function"]);
    let groups = vec![(names(&["i"]), names(&["t"])), (names(&["f"]), names(&["t"]))];
    let twice = RuleOptions { sequence_groups: groups, ..engine(MergeEngine::PartialUpdate) };
    assert_refused(&twice, &["'t'", "sequence_groups", "named once"]);
    for groups in [vec![(names(&["i"]), vec![])], vec![(vec![], names(&["i"]))]] {
        let empty = RuleOptions { sequence_groups: groups, ..engine(MergeEngine::PartialUpdate) };
        assert_refused(&empty, &["sequence group", "group 1 has"]);
    }
}

#[test]
fn partial_update_has_no_first_value() {
    let options = RuleOptions {
        aggregates: aggregate("i", MergeFunction::FirstValue),
        ..engine(MergeEngine::PartialUpdate)
    };
    assert_refused(
        &options,
        &["column 'i'", "first_value", "partial_update", "first_non_null_value"],
    );
}

#[test]
fn only_sums_and_counts_are_retracted() {
    let all = |function: Aggregate| {
        let columns = schema_of(&[("i", DataType::Int64), ("u", DataType::UInt32)]);
        let column = if function.function == MergeFunction::Sum { "u" } else { "i" };
        let ignored = Aggregate { function: MergeFunction::Max, ignore_retract: true };
        let aggregates = [("i".to_owned(), ignored.clone()), ("u".to_owned(), ignored)];
        let mut aggregates: BTreeMap<String, Aggregate> = aggregates.into();
        aggregates.insert(column.to_owned(), function);
        let deletes = DeletePolicy::Retract;
        let options = RuleOptions { aggregates, deletes, ..engine(MergeEngine::Aggregation) };
        MergeRule::new(&options, &columns, &names(&["k"]))
    };
    for function in [
        MergeFunction::Max,
        MergeFunction::Min,
        MergeFunction::LastValue,
        MergeFunction::LastNonNullValue,
        MergeFunction::FirstNonNullValue,
    ] {
        let error = all(function.clone().into()).unwrap_err();
        assert!(matches!(&error, RuleError::NotRetractable { .. }), "{error}");
        assert!(error.to_string().contains("ignore_retract"), "{error}");
        let ignored = all(Aggregate { ignore_retract: true, function: function.clone() });
        // A null would be a value of the column.
        assert_eq!(ignored.is_err(), function == MergeFunction::LastValue);
    }
    all(MergeFunction::Count.into()).unwrap();
    let error = all(MergeFunction::Sum.into()).unwrap_err().to_string();
    assert!(error.contains("column 'u'") && error.contains("use a signed type"), "{error}");
    // A column without a function has one that cannot be retracted.
    let options = RuleOptions { deletes: DeletePolicy::Retract, ..with("i", MergeFunction::Sum) };
    assert_refused(&options, &["column 'f'", "last_non_null_value", "ignore_retract"]);
}
