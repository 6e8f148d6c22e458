//! Tables of a test: values, events, and Arrow arrays of both.
//!
//! Owns: how a test names rows and reads them back. Does not own: what is expected of them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use arrow_array::builder::{Int64Builder, ListBuilder, MapBuilder, StringBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray,
};
use arrow_schema::{DataType, Field, Fields, Schema, SchemaRef};
use arrow_select::concat::concat_batches;
use roaring::{RoaringBitmap, RoaringTreemap};

use crate::Result;
use crate::format::reconcile::FIELD_ID;
use crate::merge::{
    Aggregate, Fold, KeyGroups, MergeEngine, MergeRule, NullPolicy, PairFunctions, RuleError,
    RuleOptions, Verb,
};

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Int,
    Float,
    Bool,
    Text,
    Ints,
    Map,
    Set32,
    Set64,
}

/// One value. NaN equals itself.
#[derive(Clone, Debug)]
pub enum Value {
    Null,
    Int(i64),
    Float(f64),
    Bool(bool),
    Text(String),
    Ints(Vec<i64>),
    Map(Vec<(String, i64)>),
    Set(BTreeSet<u64>),
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Float(a), Self::Float(b)) => a == b || (a.is_nan() && b.is_nan()),
            (a, b) => format!("{a:?}") == format!("{b:?}"),
        }
    }
}

pub type Row = BTreeMap<&'static str, Value>;

/// What a call did to one key.
#[derive(Clone, Debug)]
pub struct Event {
    pub key: i64,
    pub verb: Verb,
    /// The given columns.
    pub row: Row,
    pub keeps_nulls: bool,
}

pub fn int(value: i64) -> Value {
    Value::Int(value)
}

pub fn text(value: &str) -> Value {
    Value::Text(value.to_owned())
}

pub fn row<const N: usize>(columns: [(&'static str, Value); N]) -> Row {
    columns.into_iter().collect()
}

pub fn event(verb: Verb, key: i64, row: Row) -> Event {
    Event { key, verb, row, keeps_nulls: false }
}

pub fn put<const N: usize>(key: i64, columns: [(&'static str, Value); N]) -> Event {
    event(Verb::Put, key, row(columns))
}

pub fn replace<const N: usize>(key: i64, columns: [(&'static str, Value); N]) -> Event {
    event(Verb::Replace, key, row(columns))
}

pub fn retract<const N: usize>(key: i64, columns: [(&'static str, Value); N]) -> Event {
    event(Verb::Retract, key, row(columns))
}

/// A delete without a sequence.
pub fn barrier(key: i64) -> Event {
    event(Verb::Delete, key, Row::new())
}

/// A delete with a sequence.
pub fn delete<const N: usize>(key: i64, sequence: [(&'static str, Value); N]) -> Event {
    event(Verb::Delete, key, row(sequence))
}

pub fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// The key column `k`, then `columns`; a field id is a place.
pub fn schema_of(columns: &[(&str, DataType)]) -> SchemaRef {
    let key = [("k", DataType::Int64)];
    let fields = key.iter().chain(columns).enumerate().map(|(id, (name, of))| {
        let metadata = HashMap::from([(FIELD_ID.to_owned(), id.to_string())]);
        Field::new(*name, of.clone(), *name != "k").with_metadata(metadata)
    });
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// A table with a rule.
#[derive(Debug)]
pub struct Table {
    pub columns: Vec<(&'static str, Kind)>,
    pub options: RuleOptions,
    pub rule: MergeRule,
    pub schema: SchemaRef,
    pub fold: Fold,
}

impl Table {
    pub fn new(columns: &[(&'static str, Kind)], options: RuleOptions) -> Self {
        Self::try_new(columns, options).unwrap()
    }

    pub fn try_new(
        columns: &[(&'static str, Kind)],
        options: RuleOptions,
    ) -> Result<Self, RuleError> {
        let typed: Vec<_> = columns.iter().map(|(name, kind)| (*name, type_of(*kind))).collect();
        let schema = schema_of(&typed);
        let rule = MergeRule::new(&options, &schema, &names(&["k"]))?;
        let fold = Fold::new(&rule, &schema, &names(&["k"]), &PairFunctions::new())?;
        Ok(Self { columns: columns.to_vec(), options, rule, schema, fold })
    }

    /// An aggregation with these functions.
    pub fn aggregation(columns: &[(&'static str, Kind, Aggregate)]) -> Self {
        let kinds: Vec<_> = columns.iter().map(|(name, kind, _)| (*name, *kind)).collect();
        let named =
            columns.iter().map(|(name, _, function)| ((*name).to_owned(), function.clone()));
        let options = RuleOptions {
            merge_engine: MergeEngine::Aggregation,
            aggregates: named.collect(),
            ..RuleOptions::default()
        };
        Self::new(&kinds, options)
    }

    /// The rows of a call, as they are given.
    pub fn given(&self, event: &Event) -> RecordBatch {
        let mut fields = vec![self.schema.field(0).clone()];
        let mut arrays: Vec<ArrayRef> = vec![Arc::new(Int64Array::from(vec![event.key]))];
        for (place, (name, kind)) in self.columns.iter().enumerate() {
            if let Some(value) = event.row.get(name) {
                fields.push(self.schema.field(place + 1).clone());
                arrays.push(array(*kind, std::slice::from_ref(value)));
            }
        }
        RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).unwrap()
    }

    /// The stored events of a call.
    pub fn stored(&self, event: &Event) -> Result<RecordBatch> {
        let nulls = event.keeps_nulls.then_some(NullPolicy::Keep);
        self.fold.events(&self.given(event), event.verb, nulls)
    }

    /// One source with the events of several calls.
    pub fn source(&self, events: &[Event]) -> RecordBatch {
        let stored: Vec<_> = events.iter().map(|event| self.stored(event).unwrap()).collect();
        concat_batches(self.fold.event_schema(), &stored).unwrap()
    }

    /// One event a key of several sources, oldest first.
    pub fn folded(&self, sources: &[RecordBatch]) -> RecordBatch {
        let keys: Vec<Vec<u32>> = sources
            .iter()
            .map(|source| {
                let keys = source.column(0).as_primitive::<Int64Type>().values();
                keys.iter().map(|key| u32::try_from(*key).unwrap()).collect()
            })
            .collect();
        let keys: Vec<&[u32]> = keys.iter().map(Vec::as_slice).collect();
        let count = keys.iter().copied().flatten().max().map_or(0, |key| *key as usize + 1);
        let groups = KeyGroups::from_ordinals(count, &keys).unwrap();
        self.fold.fold(sources, &groups).unwrap()
    }

    /// The rows that a reader sees of folded events, by key.
    pub fn rows(&self, events: &RecordBatch) -> BTreeMap<i64, Row> {
        let rows = self.fold.visible_rows(events).unwrap();
        let keys = rows.column(0).as_primitive::<Int64Type>().values().to_vec();
        let row = |at: usize| {
            let columns = self.columns.iter().zip(&rows.columns()[1..]);
            columns.map(|((name, kind), column)| (*name, value(*kind, column, at))).collect()
        };
        keys.into_iter().enumerate().map(|(at, key)| (key, row(at))).collect()
    }

    /// The rows after these calls.
    pub fn after(&self, events: &[Event]) -> BTreeMap<i64, Row> {
        self.rows(&self.folded(&[self.source(events)]))
    }

    /// The row of key 1 after these calls, whichever way they are cut in two.
    #[track_caller]
    pub fn row(&self, events: &[Event]) -> Option<Row> {
        let whole = self.after(events);
        for cut in 0..=events.len() {
            let (older, newer) = events.split_at(cut);
            let pieces = [self.folded(&[self.source(older)]), self.folded(&[self.source(newer)])];
            assert_eq!(self.rows(&self.folded(&pieces)), whole, "cut at {cut}");
        }
        whole.get(&1).cloned()
    }
}

pub fn type_of(kind: Kind) -> DataType {
    match kind {
        Kind::Int => DataType::Int64,
        Kind::Float => DataType::Float64,
        Kind::Bool => DataType::Boolean,
        Kind::Text => DataType::Utf8,
        Kind::Ints => DataType::List(Arc::new(Field::new_list_field(DataType::Int64, true))),
        Kind::Map => {
            let parts = Fields::from(vec![
                Field::new("keys", DataType::Utf8, false),
                Field::new("values", DataType::Int64, true),
            ]);
            let entries = Field::new("entries", DataType::Struct(parts), false);
            DataType::Map(Arc::new(entries), false)
        }
        Kind::Set32 | Kind::Set64 => DataType::Binary,
    }
}

pub fn array(kind: Kind, values: &[Value]) -> ArrayRef {
    match kind {
        Kind::Int => Arc::new(values.iter().map(Value::int).collect::<Int64Array>()),
        Kind::Float => Arc::new(values.iter().map(Value::float).collect::<Float64Array>()),
        Kind::Bool => Arc::new(values.iter().map(Value::bool).collect::<BooleanArray>()),
        Kind::Text => Arc::new(values.iter().map(Value::text).collect::<StringArray>()),
        Kind::Ints => {
            let mut lists = ListBuilder::new(Int64Builder::new());
            for value in values {
                match value {
                    Value::Ints(items) => lists.append_value(items.iter().copied().map(Some)),
                    _ => lists.append_null(),
                }
            }
            Arc::new(lists.finish())
        }
        Kind::Map => {
            let mut maps = MapBuilder::new(None, StringBuilder::new(), Int64Builder::new());
            for value in values {
                if let Value::Map(entries) = value {
                    for (key, value) in entries {
                        maps.keys().append_value(key);
                        maps.values().append_value(*value);
                    }
                }
                maps.append(matches!(value, Value::Map(_))).unwrap();
            }
            Arc::new(maps.finish())
        }
        Kind::Set32 | Kind::Set64 => {
            let bytes = values.iter().map(|value| match value {
                Value::Set(set) => Some(bitmap(kind, set)),
                _ => None,
            });
            Arc::new(bytes.collect::<BinaryArray>())
        }
    }
}

fn bitmap(kind: Kind, set: &BTreeSet<u64>) -> Vec<u8> {
    let mut bytes = Vec::new();
    if kind == Kind::Set32 {
        let set: RoaringBitmap = set.iter().map(|it| u32::try_from(*it).unwrap()).collect();
        set.serialize_into(&mut bytes).unwrap();
    } else {
        set.iter().copied().collect::<RoaringTreemap>().serialize_into(&mut bytes).unwrap();
    }
    bytes
}

pub fn value(kind: Kind, array: &ArrayRef, at: usize) -> Value {
    if array.is_null(at) {
        return Value::Null;
    }
    match kind {
        Kind::Int => Value::Int(array.as_primitive::<Int64Type>().value(at)),
        Kind::Float => Value::Float(array.as_primitive::<Float64Type>().value(at)),
        Kind::Bool => Value::Bool(array.as_boolean().value(at)),
        Kind::Text => Value::Text(array.as_string::<i32>().value(at).to_owned()),
        Kind::Ints => {
            let items = array.as_list::<i32>().value(at);
            Value::Ints(items.as_primitive::<Int64Type>().values().to_vec())
        }
        Kind::Map => {
            let entries = array.as_map().value(at);
            let keys = entries.column(0).as_string::<i32>();
            let values = entries.column(1).as_primitive::<Int64Type>();
            let keys = keys.iter().flatten().map(str::to_owned);
            Value::Map(keys.zip(values.iter().flatten()).collect())
        }
        Kind::Set32 => {
            let bytes = array.as_binary::<i32>().value(at);
            let set = RoaringBitmap::deserialize_from(bytes).unwrap();
            Value::Set(set.iter().map(u64::from).collect())
        }
        Kind::Set64 => {
            let bytes = array.as_binary::<i32>().value(at);
            Value::Set(RoaringTreemap::deserialize_from(bytes).unwrap().iter().collect())
        }
    }
}

impl Value {
    pub fn int(&self) -> Option<i64> {
        if let Self::Int(value) = self { Some(*value) } else { None }
    }

    pub fn float(&self) -> Option<f64> {
        if let Self::Float(value) = self { Some(*value) } else { None }
    }

    pub fn bool(&self) -> Option<bool> {
        if let Self::Bool(value) = self { Some(*value) } else { None }
    }

    pub fn text(&self) -> Option<&str> {
        if let Self::Text(value) = self { Some(value) } else { None }
    }
}
