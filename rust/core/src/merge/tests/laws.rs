//! The laws of the fold, on random events of random tables.
//!
//! Owns: any division into sources gives the same rows (L1), an event is its own fold (L2), rows of
//! the base table are folds (L3), a retried write changes nothing (L4), projections change no value.
//! Does not own: what each rule is to do (`oracle`).

use std::collections::{BTreeMap, BTreeSet};

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_select::concat::concat_batches;
use arrow_select::filter::filter_record_batch;
use proptest::prelude::*;

use super::oracle;
use super::table::*;
use crate::merge::{
    Aggregate, DeletePolicy, Fold, KeepEnd, MergeEngine, MergeFunction, NullPolicy, PairFunctions,
    RuleOptions, Verb,
};
use crate::types::{Standing, Txn, Txns};

fn sequence(engine: MergeEngine, by: &[&str], columns: &[(&'static str, Kind)]) -> Table {
    let options =
        RuleOptions { merge_engine: engine, sequence_by: names(by), ..RuleOptions::default() };
    Table::new(columns, options)
}

/// Every function, one a column.
fn functions() -> Vec<(&'static str, Kind, Aggregate)> {
    let list = |distinct, limit, keep| MergeFunction::Collect { distinct, limit, keep };
    let agg = |separator: &str, distinct, limit| MergeFunction::ListAgg {
        separator: separator.into(),
        distinct,
        limit,
    };
    vec![
        ("sum", Kind::Int, MergeFunction::Sum.into()),
        ("total", Kind::Float, MergeFunction::Sum.into()),
        ("count", Kind::Int, MergeFunction::Count.into()),
        ("min", Kind::Float, MergeFunction::Min.into()),
        ("max", Kind::Float, MergeFunction::Max.into()),
        ("least", Kind::Text, MergeFunction::Min.into()),
        ("and", Kind::Bool, MergeFunction::BoolAnd.into()),
        ("or", Kind::Bool, MergeFunction::BoolOr.into()),
        ("last", Kind::Text, MergeFunction::LastValue.into()),
        ("first", Kind::Ints, MergeFunction::FirstValue.into()),
        ("last_some", Kind::Map, MergeFunction::LastNonNullValue.into()),
        ("first_some", Kind::Int, MergeFunction::FirstNonNullValue.into()),
        ("joined", Kind::Text, agg("", false, None).into()),
        ("parts", Kind::Text, agg(",", true, None).into()),
        ("two_parts", Kind::Text, agg("ab", true, Some(2)).into()),
        ("items", Kind::Ints, list(false, None, KeepEnd::First).into()),
        ("newest", Kind::Ints, list(false, Some(3), KeepEnd::Last).into()),
        ("oldest", Kind::Ints, list(true, Some(3), KeepEnd::First).into()),
        ("map", Kind::Map, MergeFunction::MergeMap.into()),
        ("set", Kind::Set32, MergeFunction::Rbm32.into()),
        ("wide_set", Kind::Set64, MergeFunction::Rbm64.into()),
    ]
}

fn partial(nulls: NullPolicy) -> Table {
    let mut columns = vec![("x", Kind::Int), ("y", Kind::Text)];
    columns.extend([("gs", Kind::Int), ("c", Kind::Text), ("hs", Kind::Float)]);
    columns.extend([("ht", Kind::Text), ("d", Kind::Int), ("e", Kind::Ints)]);
    let of = functions().into_iter().filter(|it| it.2.function != MergeFunction::FirstValue);
    let of: Vec<_> = of.collect();
    columns.extend(of.iter().map(|(name, kind, _)| (*name, *kind)));
    let groups = vec![
        (names(&["gs"]), names(&["c"])),
        // Columns of a group need not stand beside each other.
        (names(&["hs", "ht"]), names(&["e", "d"])),
    ];
    let options = RuleOptions {
        merge_engine: MergeEngine::PartialUpdate,
        sequence_groups: groups,
        aggregates: of.into_iter().map(|(name, _, it)| (name.to_owned(), it)).collect(),
        nulls,
        ..RuleOptions::default()
    };
    Table::new(&columns, options)
}

fn tables() -> Vec<Table> {
    let (v, s) = (("v", Kind::Int), ("s", Kind::Int));
    let pair = [("f", Kind::Float), v, ("t", Kind::Text)];
    let ignored = |function: MergeFunction| Aggregate { function, ignore_retract: true };
    let retractable = [
        ("n", Kind::Int, MergeFunction::Count.into()),
        ("i", Kind::Int, MergeFunction::Sum.into()),
        ("f", Kind::Float, MergeFunction::Sum.into()),
        ("seen", Kind::Int, ignored(MergeFunction::FirstNonNullValue)),
    ];
    let mut retracting = Table::aggregation(&retractable).options;
    retracting.deletes = DeletePolicy::Retract;
    vec![
        sequence(MergeEngine::Deduplicate, &[], &[v]),
        sequence(MergeEngine::Deduplicate, &["s"], &[v, s]),
        sequence(MergeEngine::Deduplicate, &["f", "t"], &pair),
        sequence(MergeEngine::FirstRow, &[], &[v]),
        sequence(MergeEngine::FirstRow, &["s"], &[s, v]),
        sequence(MergeEngine::FirstRow, &["t", "f"], &pair),
        partial(NullPolicy::Set),
        partial(NullPolicy::Keep),
        Table::aggregation(&functions()),
        Table::new(&retractable.map(|(name, kind, _)| (name, kind)), retracting),
    ]
}

/// What an event is made of, whatever the table.
#[derive(Clone, Debug)]
struct Seed {
    key: i64,
    verb: u8,
    values: Vec<u8>,
    given: u32,
}

fn seed() -> impl Strategy<Value = Seed> {
    let values = prop::collection::vec(0_u8..8, 30);
    (0_i64..3, 0_u8..20, values, any::<u32>()).prop_map(|(key, verb, values, given)| Seed {
        key,
        verb,
        values,
        given,
    })
}

fn value_of(kind: Kind, seed: u8) -> Value {
    let number = i64::from(seed);
    match (kind, seed) {
        (_, 0) => Value::Null,
        (Kind::Int, _) => int(number - 4),
        (Kind::Float, 1) => Value::Float(f64::NAN),
        (Kind::Float, 2) => Value::Float(-0.0),
        (Kind::Float, 3) => Value::Float(0.0),
        (Kind::Float, _) => Value::Float(f64::from(seed) - 5.5),
        (Kind::Bool, _) => Value::Bool(seed.is_multiple_of(2)),
        (Kind::Text, _) => text(["", "a", "b", "a,b", "ab", "b,a,c", "cab"][usize::from(seed) - 1]),
        (Kind::Ints, _) => Value::Ints((0..number / 2).map(|item| item * number % 5).collect()),
        (Kind::Map, _) => {
            let entry = |key: i64| (format!("key{}", key * number % 3), key + number);
            Value::Map((0..number / 2).map(entry).collect())
        }
        (Kind::Set32, _) => Value::Set((0..u64::from(seed)).map(|it| it * 7_000).collect()),
        (Kind::Set64, _) => Value::Set((0..u64::from(seed)).map(|it| it << 33).collect()),
    }
}

/// An event that the table takes.
fn event_of(table: &Table, seed: &Seed) -> Event {
    let options = &table.options;
    let values = table.columns.iter().zip(&seed.values);
    let values = values.map(|((name, kind), seed)| (*name, value_of(*kind, *seed)));
    // A map of a call has each key once only after it was accepted; sums of NaN are NaN.
    let mut row: Row = values.collect();
    for (name, value) in &mut row {
        let function = options.aggregates.get(*name).map(|it| &it.function);
        if function == Some(&MergeFunction::Sum) && matches!(value, Value::Float(it) if it.is_nan())
        {
            *value = Value::Float(2.5);
        }
        let is_raw_map = function != Some(&MergeFunction::MergeMap);
        if let Value::Map(entries) = value
            && is_raw_map
        {
            entries.truncate(1);
        }
    }
    row.retain(|name, _| {
        options.aggregates.get(*name).is_none_or(|it| it.function != MergeFunction::Count)
    });
    let is_choosing = options.merge_engine.is_choosing();
    let is_retracting = options.deletes == DeletePolicy::Retract;
    match seed.verb {
        0..=2 => return event(Verb::Replace, seed.key, row),
        3..=4 if !is_retracting => return barrier(seed.key),
        5..=8
            if options.merge_engine == MergeEngine::Deduplicate
                && !options.sequence_by.is_empty() =>
        {
            row.retain(|name, _| options.sequence_by.iter().any(|it| it == name));
            if row.values().all(|it| matches!(it, Value::Null)) {
                return barrier(seed.key);
            }
            return event(Verb::Delete, seed.key, row);
        }
        3..=8 if is_retracting => return event(Verb::Retract, seed.key, row),
        _ if is_choosing => return event(Verb::Put, seed.key, row),
        _ => {}
    }
    row.retain(|name, _| {
        let in_group = options
            .sequence_groups
            .iter()
            .position(|(sequence, columns)| sequence.iter().chain(columns).any(|it| it == name));
        let place = table.columns.iter().position(|(column, _)| column == name).unwrap();
        let needs = options.merge_engine == MergeEngine::Aggregation
            && options.aggregates.get(*name).is_some_and(|it| it.function.counts_nulls());
        needs || seed.given & (1 << in_group.map_or(place, |group| 30 + group)) != 0
    });
    let keeps_nulls = options.nulls == NullPolicy::Keep;
    Event { keeps_nulls, ..event(Verb::Put, seed.key, row) }
}

/// Sources of `events`, cut by `cuts`; some are folded already.
fn sources(table: &Table, events: &[Event], cuts: &[u8]) -> Vec<RecordBatch> {
    let mut sources = Vec::new();
    let mut open: Vec<Event> = Vec::new();
    for (event, cut) in events.iter().zip(cuts.iter().cycle()) {
        open.push(event.clone());
        if cut % 3 == 0 {
            let source = table.source(&open);
            sources.push(if cut % 2 == 0 { table.folded(&[source]) } else { source });
            open.clear();
        }
    }
    sources.push(table.source(&open));
    sources
}

/// Folds neighbours together until two sources or fewer are left, then those.
fn folded_by_pairs(table: &Table, mut sources: Vec<RecordBatch>, picks: &[u8]) -> RecordBatch {
    let mut picks = picks.iter().cycle();
    while sources.len() > 2 {
        let at = usize::from(*picks.next().unwrap()) % (sources.len() - 1);
        let newer = sources.remove(at + 1);
        sources[at] = table.folded(&[sources[at].clone(), newer]);
    }
    table.folded(&sources)
}

fn events() -> impl Strategy<Value = Vec<Seed>> {
    prop::collection::vec(seed(), 0..24)
}

fn choices() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 1..24)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn any_cut_of_the_events_gives_the_rows_of_the_model(
        seeds in events(), cuts in choices(), picks in choices(),
    ) {
        for table in tables() {
            let events: Vec<Event> = seeds.iter().map(|seed| event_of(&table, seed)).collect();
            let whole = table.folded(&[table.source(&events)]);
            prop_assert_eq!(table.rows(&whole), oracle::rows(&table, &events), "{:?}", table.rule);
            let pieces = sources(&table, &events, &cuts);
            prop_assert_eq!(&table.folded(&pieces), &whole, "{:?}", table.rule);
            // The events too, not only the rows: a fold is folded again.
            prop_assert_eq!(&folded_by_pairs(&table, pieces, &picks), &whole, "{:?}", table.rule);
        }
    }

    #[test]
    fn an_event_is_its_own_fold_and_an_empty_source_changes_nothing(seed in seed()) {
        for table in tables() {
            let stored = table.stored(&event_of(&table, &seed)).unwrap();
            let none = table.source(&[]);
            prop_assert_eq!(&table.folded(std::slice::from_ref(&stored)), &stored, "{:?}", table.rule);
            prop_assert_eq!(&table.folded(&[none.clone(), stored.clone(), none]), &stored);
        }
    }

    #[test]
    fn rows_of_the_base_table_stand_for_the_events_that_made_them(
        seeds in events(), compactions in choices(),
    ) {
        for table in tables() {
            let events: Vec<Event> = seeds.iter().map(|seed| event_of(&table, seed)).collect();
            let mut oldest = table.source(&[]);
            let mut open = vec![oldest.clone()];
            for (event, choice) in events.iter().zip(compactions.iter().cycle()) {
                open.push(table.stored(event).unwrap());
                if choice % 3 == 0 {
                    let taken = usize::from(*choice) % (open.len() + 1);
                    let newer: Vec<RecordBatch> = open.drain(..taken).collect();
                    oldest = compacted(&table, &oldest, &newer);
                }
            }
            open.insert(0, oldest);
            let rows = table.rows(&table.folded(&open));
            prop_assert_eq!(rows, oracle::rows(&table, &events), "{:?}", table.rule);
        }
    }

    #[test]
    fn a_retried_write_with_a_transaction_id_changes_nothing(
        seeds in events(), retries in choices(),
    ) {
        for table in tables() {
            let events: Vec<Event> = seeds.iter().map(|seed| event_of(&table, seed)).collect();
            let (mut txns, mut log) = (Txns::default(), Vec::new());
            for (version, (event, retry)) in (0..).zip(events.iter().zip(retries.iter().cycle())) {
                for _ in 0..=retry % 3 {
                    let txn = Txn::new("stream", version).unwrap();
                    if txns.standing(&txn) == Standing::New {
                        log.push(event.clone());
                        txns.record("stream", version);
                    }
                }
            }
            prop_assert_eq!(table.after(&log), oracle::rows(&table, &events));
        }
    }

    #[test]
    fn a_repeated_put_changes_nothing_unless_values_add_up(seeds in events()) {
        let adds_up = |table: &Table| {
            let mut functions = table.options.aggregates.values().map(|it| &it.function);
            functions.any(|it| match it {
                MergeFunction::Sum | MergeFunction::Count => true,
                MergeFunction::Collect { distinct, .. } | MergeFunction::ListAgg { distinct, .. } => {
                    !distinct
                }
                _ => false,
            })
        };
        let idempotent = functions().into_iter().filter(|it| {
            !adds_up(&Table::aggregation(std::slice::from_ref(it)))
        });
        let mut all = tables();
        all.push(Table::aggregation(&idempotent.collect::<Vec<_>>()));
        for table in all.iter().filter(|table| !adds_up(table)) {
            let events: Vec<Event> = seeds.iter().map(|seed| event_of(table, seed)).collect();
            let repeated: Vec<Event> =
                events.iter().flat_map(|event| [event.clone(), event.clone()]).collect();
            prop_assert_eq!(table.after(&repeated), table.after(&events), "{:?}", table.rule);
        }
    }

    #[test]
    fn a_projection_changes_no_value(seeds in events(), cuts in choices(), asked in any::<u32>()) {
        for table in tables() {
            let events: Vec<Event> = seeds.iter().map(|seed| event_of(&table, seed)).collect();
            let pieces = sources(&table, &events, &cuts);
            let whole = table.fold.visible_rows(&table.folded(&pieces)).unwrap();
            check_projection(&table, &pieces, &whole, asked)?;
        }
    }

    #[test]
    fn the_order_of_arrival_matters_only_where_events_have_no_order(
        seeds in prop::collection::vec(seed(), 0..12), order in any::<prop::sample::Index>(),
    ) {
        let free: Vec<_> =
            functions().into_iter().filter(|it| !it.2.function.order_matters()).collect();
        let is_last = |table: &Table| table.options.merge_engine != MergeEngine::FirstRow;
        let mut all = vec![Table::aggregation(&free)];
        all.extend(tables().into_iter().filter(|table| table.options.sequence_by == ["s"]));
        prop_assert!(all.iter().any(is_last) && !all.iter().all(is_last));
        for table in all {
            let mut events: Vec<Event> = seeds
                .iter()
                .map(|seed| event_of(&table, &Seed { verb: 19, ..seed.clone() }))
                .collect();
            for (at, event) in (0..).zip(&mut events) {
                event.row.entry("s").and_modify(|it| *it = int(at));
                let all: Vec<&str> = table.columns.iter().map(|(name, _)| *name).collect();
                event.row.retain(|name, _| all.contains(name));
            }
            let rows = table.after(&events);
            events.reverse();
            if !events.is_empty() {
                let by = order.index(events.len());
                events.rotate_left(by);
            }
            prop_assert_eq!(table.after(&events), rows, "{:?}", table.rule);
        }
    }
}

/// What a compaction of these sources leaves: rows of the base table, and deletes with a sequence as
/// events that are remembered. A compaction that moves a replace or a barrier of a key forgets an older
/// delete of it.
fn compacted(table: &Table, oldest: &RecordBatch, newer: &[RecordBatch]) -> RecordBatch {
    let moved = table.folded(newer);
    let resets = moved.column_by_name("_replace").map(|it| it.as_boolean().clone());
    let keys = |batch: &RecordBatch| -> Vec<i64> {
        batch.column(0).as_primitive::<arrow_array::types::Int64Type>().values().to_vec()
    };
    let reset: BTreeSet<i64> = keys(&moved)
        .into_iter()
        .enumerate()
        .filter(|(at, _)| resets.as_ref().is_none_or(|resets| resets.value(*at)))
        .map(|(_, key)| key)
        .collect();
    let stays = keys(oldest).iter().map(|key| Some(!reset.contains(key))).collect();
    let oldest = filter_record_batch(oldest, &stays).unwrap();
    let all = table.folded(&[oldest, moved]);
    let rows = table.fold.visible_rows(&all).unwrap();
    let base = table.fold.base_events(&rows).unwrap();
    let Some(first) = table.options.sequence_by.first() else { return base };
    let sequence = all.column_by_name(first).unwrap();
    let second = table.options.sequence_by.get(1).and_then(|name| all.column_by_name(name));
    let is_grave = (0..all.num_rows()).map(|at| {
        let has_sequence = sequence.is_valid(at) || second.is_some_and(|it| it.is_valid(at));
        Some(all.column_by_name("_tombstone").unwrap().as_boolean().value(at) && has_sequence)
    });
    let graves = filter_record_batch(&all, &is_grave.collect()).unwrap();
    // A grave is an event of its own: what it replaced is gone.
    let mut columns = graves.columns().to_vec();
    let place = graves.schema_ref().index_of("_replace").unwrap();
    columns[place] =
        std::sync::Arc::new(arrow_array::BooleanArray::from(vec![false; graves.num_rows()]));
    let graves = RecordBatch::try_new(graves.schema(), columns).unwrap();
    concat_batches(table.fold.event_schema(), &[base, graves]).unwrap()
}

/// The columns with a bit in `asked`, folded alone, have the values of the whole fold.
fn check_projection(
    table: &Table,
    pieces: &[RecordBatch],
    whole: &RecordBatch,
    asked: u32,
) -> Result<(), TestCaseError> {
    let key = names(&["k"]);
    let fields = table.schema.fields().iter().enumerate();
    let asked: Vec<&str> = fields
        .filter(|(place, _)| *place == 0 || asked & (1 << (place % 32)) != 0)
        .map(|(_, field)| field.name().as_str())
        .collect();
    let none = PairFunctions::new();
    let fold = Fold::projected(&table.rule, &table.schema, &key, &none, &asked).unwrap();
    let narrow = |batch: &RecordBatch| {
        let fields = fold.event_schema().fields().iter();
        let places = fields.map(|field| batch.schema_ref().index_of(field.name()).unwrap());
        batch.project(&places.collect::<Vec<_>>()).unwrap()
    };
    let pieces: Vec<RecordBatch> = pieces.iter().map(narrow).collect();
    let projected = Table {
        columns: Vec::new(),
        options: table.options.clone(),
        rule: table.rule.clone(),
        schema: table.schema.clone(),
        fold,
    };
    let rows = projected.fold.visible_rows(&projected.folded(&pieces)).unwrap();
    for name in asked {
        prop_assert_eq!(rows.column_by_name(name), whole.column_by_name(name), "{}", name);
    }
    Ok(())
}

#[test]
fn every_subset_of_a_small_table_has_the_values_of_the_whole() {
    let table = small_partial();
    let events = [
        put(1, [("x", int(1)), ("gs", int(5)), ("c", text("five"))]),
        put(1, [("gs", int(3)), ("c", text("three"))]),
        put(2, [("x", Value::Null), ("n", int(2))]),
        barrier(2),
        put(1, [("n", int(7))]),
        put(2, [("n", int(1))]),
    ];
    let pieces: Vec<RecordBatch> = events.chunks(2).map(|of| table.source(of)).collect();
    let whole = table.fold.visible_rows(&table.folded(&pieces)).unwrap();
    for asked in 0..1 << table.schema.fields().len() {
        check_projection(&table, &pieces, &whole, asked).unwrap();
    }
    let rows: BTreeMap<i64, Row> = table.after(&events);
    assert_eq!(rows[&1]["c"], text("five"));
    assert_eq!(rows[&2]["n"], int(1));
}

fn small_partial() -> Table {
    let columns = [("x", Kind::Int), ("gs", Kind::Int), ("c", Kind::Text), ("n", Kind::Int)];
    let options = RuleOptions {
        merge_engine: MergeEngine::PartialUpdate,
        sequence_groups: vec![(names(&["gs"]), names(&["c"]))],
        aggregates: [("n".to_owned(), MergeFunction::Sum.into())].into(),
        ..RuleOptions::default()
    };
    Table::new(&columns, options)
}
