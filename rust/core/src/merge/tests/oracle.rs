//! A plain fold in arrival order, over values: the model of a merge rule.
//!
//! Owns: what a table shows after all of its events. It keeps the events of a key and computes the
//! row at the end, so it has no intermediate state that could be wrong in the same way.
//! Does not own: Arrow, sources, or anything of the kernel.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::table::{Event, Row, Table, Value};
use crate::merge::{KeepEnd, MergeEngine, MergeFunction, Verb};

/// The rows of `table` after `events`.
pub fn rows(table: &Table, events: &[Event]) -> BTreeMap<i64, Row> {
    let mut lives: HashMap<i64, Vec<&Event>> = HashMap::new();
    for event in events {
        let life = lives.entry(event.key).or_default();
        let has_sequence = table.options.sequence_by.iter().any(|it| event.row.contains_key(&**it));
        match event.verb {
            Verb::Delete if !has_sequence => life.clear(),
            Verb::Replace => *life = vec![event],
            _ => life.push(event),
        }
    }
    let shown = |(key, life): (i64, Vec<&Event>)| Some((key, row(table, &life)?));
    lives.into_iter().filter_map(shown).collect()
}

fn row(table: &Table, life: &[&Event]) -> Option<Row> {
    let options = &table.options;
    if options.merge_engine == MergeEngine::FirstRow {
        let first = |a: &&Event, b: &&Event| order(&options.sequence_by, a, b, true);
        return Some(life.iter().copied().min_by(first)?.row.clone());
    }
    if options.merge_engine == MergeEngine::Deduplicate {
        let last = life.iter().copied().max_by(|a, b| order(&options.sequence_by, a, b, false))?;
        return (last.verb != Verb::Delete).then(|| last.row.clone());
    }
    let column = |name: &'static str| {
        for (sequence, columns) in &options.sequence_groups {
            if sequence.iter().chain(columns).any(|it| it == name) {
                // A replace gives the group whatever it holds; a put needs a sequence.
                let touches = |it: &&Event| {
                    let has_value = |name: &String| !matches!(value_of(name, it), Value::Null);
                    it.verb == Verb::Replace || sequence.iter().any(has_value)
                };
                let touching = life.iter().copied().filter(touches);
                let best = touching.max_by(|a, b| order(sequence, a, b, false));
                return best.map_or(Value::Null, |best| value_of(name, best));
            }
        }
        let aggregate = options.aggregates.get(name);
        let ignores = aggregate.is_some_and(|it| it.ignore_retract);
        let counted = life.iter().filter(|it| !ignores || it.verb != Verb::Retract).copied();
        let life: Vec<&Event> = counted.collect();
        let function = aggregate.map(|it| it.function.clone());
        let is_partial = options.merge_engine == MergeEngine::PartialUpdate;
        let given = |it: &&&Event| {
            let keeps = it.keeps_nulls && it.verb == Verb::Put;
            let is_null = it.row.get(name) == Some(&Value::Null);
            !is_partial || (it.row.contains_key(name) && !(keeps && is_null))
        };
        match function {
            Some(MergeFunction::Count) => {
                let one = |it: &&Event| if it.verb == Verb::Retract { -1 } else { 1 };
                Value::Int(life.iter().map(one).sum())
            }
            None if !is_partial => computed(&MergeFunction::LastNonNullValue, name, &life),
            function => {
                let given: Vec<&Event> = life.iter().filter(given).copied().collect();
                computed(&function.unwrap_or(MergeFunction::LastValue), name, &given)
            }
        }
    };
    (!life.is_empty())
        .then(|| table.columns.iter().map(|(name, _)| (*name, column(name))).collect())
}

fn value_of(name: &str, event: &Event) -> Value {
    event.row.get(name).cloned().unwrap_or(Value::Null)
}

/// The order of two events by these columns; a null is the least, or where `last` the greatest.
fn order(names: &[String], a: &Event, b: &Event, last: bool) -> Ordering {
    let by = |name: &String| match (value_of(name, a), value_of(name, b)) {
        (Value::Null, Value::Null) => Ordering::Equal,
        (Value::Null, _) => {
            if last {
                Ordering::Greater
            } else {
                Ordering::Less
            }
        }
        (_, Value::Null) => {
            if last {
                Ordering::Less
            } else {
                Ordering::Greater
            }
        }
        (a, b) => by_value(&a, &b),
    };
    names.iter().map(by).find(|it| it.is_ne()).unwrap_or(Ordering::Equal)
}

fn by_value(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::Int(a), Value::Int(b)) => a.cmp(b),
        (Value::Text(a), Value::Text(b)) => a.cmp(b),
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Float(a), Value::Float(b)) => {
            a.partial_cmp(b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
        }
        other => panic!("no order of {other:?}"),
    }
}

/// A column by its function, of all events that gave it.
fn computed(function: &MergeFunction, name: &str, given: &[&Event]) -> Value {
    let all = given.iter().map(|it| value_of(name, it)).collect::<Vec<_>>();
    let some: Vec<Value> = all.iter().filter(|it| !matches!(it, Value::Null)).cloned().collect();
    let or_null = |it: Option<&Value>| it.cloned().unwrap_or(Value::Null);
    match function {
        MergeFunction::LastValue => return or_null(all.last()),
        MergeFunction::FirstValue => return or_null(all.first()),
        _ if some.is_empty() => return Value::Null,
        _ => {}
    }
    match function {
        MergeFunction::LastNonNullValue => or_null(some.last()),
        MergeFunction::FirstNonNullValue => or_null(some.first()),
        MergeFunction::Min => or_null(some.iter().min_by(|a, b| by_value(a, b))),
        MergeFunction::Max => or_null(some.iter().max_by(|a, b| by_value(a, b))),
        MergeFunction::BoolAnd => Value::Bool(some.iter().all(|it| it.bool() == Some(true))),
        MergeFunction::BoolOr => Value::Bool(some.iter().any(|it| it.bool() == Some(true))),
        MergeFunction::Sum => {
            let signed = given.iter().map(|it| (it.verb == Verb::Retract, value_of(name, it)));
            match some[0] {
                Value::Float(_) => Value::Float(
                    signed
                        .filter_map(|(n, it)| it.float().map(|it| if n { -it } else { it }))
                        .sum(),
                ),
                _ => Value::Int(signed.fold(0, |total, (is_negative, it)| match it.int() {
                    Some(it) if is_negative => total - it,
                    it => total + it.unwrap_or(0),
                })),
            }
        }
        _ => joined(function, &some),
    }
}

/// A column of texts, lists, maps or sets by its function.
fn joined(function: &MergeFunction, some: &[Value]) -> Value {
    let limited = |limit: &Option<u32>| limit.map_or(usize::MAX, |it| it as usize);
    match function {
        MergeFunction::ListAgg { separator, distinct, limit } => {
            let texts = some.iter().filter_map(Value::text);
            if !distinct && limit.is_none() {
                return Value::Text(texts.collect::<Vec<_>>().join(separator));
            }
            let mut seen = HashSet::new();
            let parts = texts.flat_map(|it| it.split(&**separator));
            let parts = parts.filter(|it| !distinct || seen.insert(*it)).take(limited(limit));
            Value::Text(parts.collect::<Vec<_>>().join(separator))
        }
        MergeFunction::Collect { distinct, limit, keep } => {
            let mut seen = HashSet::new();
            let mut items = Vec::new();
            for value in some {
                let Value::Ints(of) = value else { panic!("{value:?} is no list") };
                items.extend(of.iter().copied().filter(|it| !distinct || seen.insert(*it)));
            }
            let extra = items.len().saturating_sub(limited(limit));
            match keep {
                KeepEnd::First => items.truncate(limited(limit)),
                KeepEnd::Last => drop(items.drain(..extra)),
            }
            Value::Ints(items)
        }
        MergeFunction::MergeMap => {
            let mut entries: Vec<(String, i64)> = Vec::new();
            for value in some {
                let Value::Map(of) = value else { panic!("{value:?} is no map") };
                for (key, value) in of {
                    match entries.iter_mut().find(|(older, _)| older == key) {
                        Some(older) => older.1 = *value,
                        None => entries.push((key.clone(), *value)),
                    }
                }
            }
            Value::Map(entries)
        }
        MergeFunction::Rbm32 | MergeFunction::Rbm64 => {
            let of =
                |it: &Value| if let Value::Set(it) = it { it.clone() } else { BTreeSet::new() };
            Value::Set(some.iter().flat_map(of).collect())
        }
        other => panic!("no model of {other:?}"),
    }
}
