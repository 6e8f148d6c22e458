//! Functions of columns, over the types that they take.
//!
//! Owns: associativity and identity for every type, and the values that are easy to get wrong:
//! overflows, NaN, zeros, empty lists, bitmaps of other programs, functions of users.
//! Does not own: rules of rows (`verbs`).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow_array::builder::{Int64Builder, ListBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::{Decimal128Type, Float64Type, Int8Type, Int64Type};
use arrow_array::{
    Array, ArrayRef, BinaryArray, Decimal128Array, FixedSizeListArray, Float32Array, Float64Array,
    Int8Array, Int64Array, LargeStringArray, ListArray, RecordBatch, StringArray, StringViewArray,
    new_null_array,
};
use arrow_cast::cast;
use arrow_schema::{DataType, Field, SchemaRef, TimeUnit};
use proptest::prelude::*;
use roaring::RoaringBitmap;

use super::table::{names, schema_of};
use crate::merge::{
    Aggregate, Fold, KeepEnd, KeyGroups, MergeEngine, MergeFunction, MergeRule, PairFunction,
    PairFunctions, RuleError, RuleOptions, Verb, try_function,
};
use crate::{Error, Result};

/// A table of the key and one column.
#[derive(Debug)]
struct Column {
    schema: SchemaRef,
    fold: Fold,
}

impl Column {
    fn new(of: &DataType, function: impl Into<Aggregate>) -> Self {
        let options = RuleOptions {
            merge_engine: MergeEngine::Aggregation,
            aggregates: [("v".to_owned(), function.into())].into(),
            ..RuleOptions::default()
        };
        Self::with(of, &options, &PairFunctions::new()).unwrap()
    }

    fn with(of: &DataType, options: &RuleOptions, functions: &PairFunctions) -> Result<Self> {
        let schema = schema_of(&[("v", of.clone())]);
        let key = names(&["k"]);
        let rule = MergeRule::new(options, &schema, &key).map_err(RuleError::into_error)?;
        let fold = Fold::new(&rule, &schema, &key, functions).map_err(RuleError::into_error)?;
        Ok(Self { schema, fold })
    }

    /// Events of one key, oldest first, as a call stores them.
    fn stored(&self, values: &ArrayRef, verb: Verb) -> Result<RecordBatch> {
        let keys: ArrayRef = Arc::new(Int64Array::from(vec![1; values.len()]));
        let rows = RecordBatch::try_new(self.schema.clone(), vec![keys, values.clone()]).unwrap();
        self.fold.events(&rows, verb, None)
    }

    fn fold(&self, sources: &[RecordBatch]) -> Result<RecordBatch> {
        let ordinals: Vec<Vec<u32>> =
            sources.iter().map(|source| vec![0; source.num_rows()]).collect();
        let ordinals: Vec<&[u32]> = ordinals.iter().map(Vec::as_slice).collect();
        self.fold.fold(sources, &KeyGroups::from_ordinals(1, &ordinals)?)
    }

    /// The value after `values`, whichever way they are cut in two, with nulls anywhere.
    #[track_caller]
    fn value(&self, values: &ArrayRef) -> ArrayRef {
        let stored = self.stored(values, Verb::Put).unwrap();
        let none = self.stored(&new_null_array(values.data_type(), 1), Verb::Put).unwrap();
        let whole = self.fold(std::slice::from_ref(&stored)).unwrap();
        for cut in 0..=values.len() {
            let older = self.fold(&[stored.slice(0, cut)]).unwrap();
            let newer = self.fold(&[stored.slice(cut, values.len() - cut)]).unwrap();
            let pieces = [none.clone(), older, none.clone(), newer, none.clone()];
            assert_eq!(self.fold(&pieces).unwrap().column(1), whole.column(1), "cut at {cut}");
        }
        whole.column(1).clone()
    }
}

fn ints(values: &[i64]) -> ArrayRef {
    Arc::new(Int64Array::from(values.to_vec()))
}

fn floats(values: &[f64]) -> ArrayRef {
    Arc::new(Float64Array::from(values.to_vec()))
}

fn texts(values: &[&str]) -> ArrayRef {
    Arc::new(StringArray::from(values.to_vec()))
}

/// `numbers` in the type `of`.
fn numbers_as(numbers: &[i64], of: &DataType) -> ArrayRef {
    let numbers = ints(numbers);
    match of {
        DataType::Date32 | DataType::Time32(_) => {
            cast(&cast(&numbers, &DataType::Int32).unwrap(), of).unwrap()
        }
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => {
            cast(&cast(&numbers, &DataType::Utf8).unwrap(), of).unwrap()
        }
        DataType::FixedSizeBinary(_) => {
            let two = numbers
                .as_primitive::<Int64Type>()
                .values()
                .iter()
                .map(|it| [0, u8::try_from(*it).unwrap()]);
            let two = arrow_array::FixedSizeBinaryArray::try_from_iter(two);
            Arc::new(two.unwrap())
        }
        _ => cast(&numbers, of).unwrap(),
    }
}

#[test]
fn sums_of_all_number_types_add_up() {
    use DataType::{
        Decimal128, Float16, Float32, Float64, Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32,
        UInt64,
    };
    for of in [
        Int8,
        Int16,
        Int32,
        Int64,
        UInt8,
        UInt16,
        UInt32,
        UInt64,
        Float16,
        Float32,
        Float64,
        Decimal128(38, 2),
    ] {
        let sum = Column::new(&of, MergeFunction::Sum).value(&numbers_as(&[5, 9, 1], &of));
        assert_eq!(&sum, &numbers_as(&[15], &of), "{of}");
    }
}

#[test]
fn a_sum_that_overflows_in_between_is_right_at_the_end() {
    let column = Column::new(&DataType::Int8, MergeFunction::Sum);
    let values: ArrayRef = Arc::new(Int8Array::from(vec![120, 100, -128, 7]));
    assert_eq!(column.value(&values).as_primitive::<Int8Type>().value(0), 99);
    let column = Column::new(&DataType::Decimal128(38, 0), MergeFunction::Sum);
    let decimals = Decimal128Array::from(vec![i128::MAX, 1, i128::MIN, 5]);
    let values: ArrayRef = Arc::new(decimals.with_precision_and_scale(38, 0).unwrap());
    assert_eq!(column.value(&values).as_primitive::<Decimal128Type>().value(0), 5);
}

#[test]
fn sums_of_floats_agree_to_the_last_bits() {
    let column = Column::new(&DataType::Float64, MergeFunction::Sum);
    let values = floats(&[0.1, 0.2, 0.3, 0.7]);
    let stored = column.stored(&values, Verb::Put).unwrap();
    let sum = |sources: &[RecordBatch]| {
        column.fold(sources).unwrap().column(1).as_primitive::<Float64Type>().value(0)
    };
    let whole = sum(std::slice::from_ref(&stored));
    for cut in 1..4 {
        let newer = column.fold(&[stored.slice(cut, 4 - cut)]).unwrap();
        let pieces = sum(&[stored.slice(0, cut), newer]);
        assert!((pieces - whole).abs() <= 2.0 * f64::EPSILON, "{pieces} {whole}");
    }
}

#[test]
fn minima_and_maxima_of_all_ordered_types_are_values_of_theirs() {
    use DataType::{
        Binary, BinaryView, Date32, Date64, Decimal32, Decimal64, Decimal128, Decimal256, Duration,
        FixedSizeBinary, Float16, Float32, Float64, Int8, Int16, Int32, Int64, LargeBinary,
        LargeUtf8, Time32, Time64, Timestamp, UInt8, UInt16, UInt32, UInt64, Utf8, Utf8View,
    };
    for of in [
        Int8,
        Int16,
        Int32,
        Int64,
        UInt8,
        UInt16,
        UInt32,
        UInt64,
        Float16,
        Float32,
        Float64,
        Decimal32(9, 1),
        Decimal64(18, 1),
        Decimal128(38, 1),
        Decimal256(76, 1),
        Date32,
        Date64,
        Time32(TimeUnit::Second),
        Time64(TimeUnit::Nanosecond),
        Duration(TimeUnit::Second),
        Timestamp(TimeUnit::Nanosecond, None),
        Timestamp(TimeUnit::Second, Some("UTC".into())),
        Utf8,
        LargeUtf8,
        Utf8View,
        Binary,
        LargeBinary,
        BinaryView,
        FixedSizeBinary(2),
    ] {
        let values = numbers_as(&[5, 9, 1, 9, 4], &of);
        let greatest = Column::new(&of, MergeFunction::Max).value(&values);
        assert_eq!(&greatest, &numbers_as(&[9], &of), "{of}");
        let least = Column::new(&of, MergeFunction::Min).value(&values);
        assert_eq!(&least, &numbers_as(&[1], &of), "{of}");
    }
}

#[test]
fn negative_numbers_are_less_than_positive_ones() {
    let values = ints(&[-5, 3, i64::MIN, 0]);
    let of = |function| Column::new(&DataType::Int64, function).value(&values);
    assert_eq!(&of(MergeFunction::Max), &ints(&[3]));
    assert_eq!(&of(MergeFunction::Min), &ints(&[i64::MIN]));
}

#[test]
fn nan_is_the_greatest_float_and_both_zeros_are_equal() {
    let (max, min) = (MergeFunction::Max, MergeFunction::Min);
    let of = |function: MergeFunction, values: &[f64]| {
        let value = Column::new(&DataType::Float64, function).value(&floats(values));
        value.as_primitive::<Float64Type>().value(0)
    };
    let nans = [f64::NAN, -f64::NAN];
    for nan in nans {
        assert!(of(max.clone(), &[1.0, nan, f64::INFINITY]).is_nan());
        assert!((of(min.clone(), &[nan, f64::INFINITY, 7.0]) - 7.0).abs() < f64::EPSILON);
    }
    // Of equal values the oldest stays, to the bit.
    assert!(of(max.clone(), &[-0.0, 0.0, -0.0]).is_sign_negative());
    assert!(of(min.clone(), &[0.0, -0.0]).is_sign_positive());
    assert!((of(max, &[-1.5, -0.5, f64::NEG_INFINITY]) - -0.5).abs() < f64::EPSILON);
    assert!((of(min, &[-1.5, -0.5, 2.0]) - -1.5).abs() < f64::EPSILON);
}

#[test]
fn picks_copy_values_of_any_type() {
    let vectors = ListArray::from_iter_primitive::<Int64Type, _, _>([
        Some(vec![Some(1), None]),
        None,
        Some(vec![]),
    ]);
    let of = vectors.data_type().clone();
    let vectors: ArrayRef = Arc::new(vectors);
    for (function, at) in
        [(MergeFunction::LastNonNullValue, 2), (MergeFunction::FirstNonNullValue, 0)]
    {
        assert_eq!(&Column::new(&of, function).value(&vectors), &vectors.slice(at, 1));
    }
}

#[test]
fn texts_are_joined_in_order_of_arrival() {
    let agg = |separator: &str, distinct, limit| MergeFunction::ListAgg {
        separator: separator.into(),
        distinct,
        limit,
    };
    let of = |function: MergeFunction, values: &[&str]| {
        let value = Column::new(&DataType::Utf8, function).value(&texts(values));
        value.as_string::<i32>().value(0).to_owned()
    };
    assert_eq!(of(agg(", ", false, None), &["b", "", "a"]), "b, , a");
    assert_eq!(of(agg(",", true, None), &["b,a,b", "a", "c"]), "b,a,c");
    assert_eq!(of(agg(",", false, Some(3)), &["b,a", "a,a,a"]), "b,a,a");
    assert_eq!(of(agg("; ", true, Some(2)), &["x", "x", "y", "z"]), "x; y");
    let large: ArrayRef = Arc::new(LargeStringArray::from(vec!["a", "b"]));
    let joined = Column::new(&DataType::LargeUtf8, agg(",", false, None)).value(&large);
    assert_eq!(joined.as_string::<i64>().value(0), "a,b");
    let views: ArrayRef = Arc::new(StringViewArray::from(vec!["a", "b"]));
    let joined = Column::new(&DataType::Utf8View, agg(",", false, None)).value(&views);
    assert_eq!(joined.as_string_view().value(0), "a,b");
}

#[test]
fn an_empty_list_is_an_input_and_items_may_be_null() {
    let of = DataType::List(Arc::new(Field::new_list_field(DataType::Int64, true)));
    let collect =
        |distinct, limit, keep| Column::new(&of, MergeFunction::Collect { distinct, limit, keep });
    let lists = |of: &[&[Option<i64>]]| -> ArrayRef {
        let mut lists = ListBuilder::new(Int64Builder::new());
        for items in of {
            lists.append_value(items.iter().copied());
        }
        Arc::new(lists.finish())
    };
    let first = KeepEnd::First;
    let empty = lists(&[&[]]);
    assert_eq!(&collect(false, None, first).value(&empty), &empty);
    let values = lists(&[&[Some(1), None], &[], &[None, Some(1), Some(2)]]);
    let all = lists(&[&[Some(1), None, None, Some(1), Some(2)]]);
    assert_eq!(&collect(false, None, first).value(&values), &all);
    let distinct = lists(&[&[Some(1), None, Some(2)]]);
    assert_eq!(&collect(true, None, first).value(&values), &distinct);
    assert_eq!(&collect(true, None, KeepEnd::Last).value(&values), &distinct);
    let newest = lists(&[&[Some(1), Some(2)]]);
    assert_eq!(&collect(false, Some(2), KeepEnd::Last).value(&values), &newest);
    let oldest = lists(&[&[Some(1), None]]);
    assert_eq!(&collect(true, Some(2), first).value(&values), &oldest);
    let item = Arc::new(Field::new_list_field(DataType::Int64, true));
    let of = DataType::LargeList(item);
    let function = MergeFunction::Collect { distinct: true, limit: None, keep: first };
    let large = cast(&values, &of).unwrap();
    let merged = Column::new(&of, function).value(&large);
    assert_eq!(&merged, &cast(&distinct, &of).unwrap());
}

#[test]
fn a_bitmap_has_one_text_of_bytes_whatever_wrote_it() {
    let column = Column::new(&DataType::Binary, MergeFunction::Rbm32);
    let bytes = |bitmap: &RoaringBitmap| {
        let mut bytes = Vec::new();
        bitmap.serialize_into(&mut bytes).unwrap();
        bytes
    };
    let mut runs: RoaringBitmap = (0..6_000).collect();
    runs.optimize();
    let mut plain = runs.clone();
    plain.remove_run_compression();
    assert_ne!(bytes(&runs), bytes(&plain));
    let of = |bitmap: &RoaringBitmap| -> ArrayRef {
        Arc::new(BinaryArray::from_iter_values([bytes(bitmap)]))
    };
    assert_eq!(&column.value(&of(&plain)), &column.value(&of(&runs)));
    let halves: ArrayRef = Arc::new(BinaryArray::from_iter_values([
        bytes(&(3_000..6_000).collect()),
        bytes(&(0..3_001).collect()),
    ]));
    assert_eq!(&column.value(&halves), &column.value(&of(&runs)));
}

#[test]
fn a_run_as_large_as_an_array_has_the_bytes_of_the_array() {
    let column = Column::new(&DataType::Binary, MergeFunction::Rbm32);
    // One run container of the values 0 to 2, as the portable form has it.
    let run = [0x3b, 0x30, 0, 0, 1, 0, 0, 2, 0, 1, 0, 0, 0, 2, 0];
    let mut array = Vec::new();
    RoaringBitmap::from([0, 1, 2]).serialize_into(&mut array).unwrap();
    let of = |bytes: &[u8]| -> ArrayRef { Arc::new(BinaryArray::from_iter_values([bytes])) };
    assert_eq!(&column.value(&of(&run)), &of(&array));
}

#[test]
fn bytes_that_are_no_bitmap_are_refused_with_their_row() {
    let mut bytes = Vec::new();
    RoaringBitmap::from([1, 2]).serialize_into(&mut bytes).unwrap();
    let whole = bytes.clone();
    bytes.push(0);
    for damaged in [&b"abc"[..], &[], &bytes, &whole[..whole.len() - 1]] {
        let values: ArrayRef = Arc::new(BinaryArray::from_iter_values([&whole[..], damaged]));
        let column = Column::new(&DataType::Binary, MergeFunction::Rbm32);
        let error = column.stored(&values, Verb::Put).unwrap_err().to_string();
        assert!(
            error.contains("column 'v' is no roaring bitmap of 32-bit numbers in row 1"),
            "{error}"
        );
    }
}

#[test]
fn a_stored_bitmap_that_is_damaged_is_damage() {
    let column = Column::new(&DataType::Binary, MergeFunction::Rbm64);
    let keys: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    let values: ArrayRef = Arc::new(BinaryArray::from_iter_values([b"abc"]));
    let rows = RecordBatch::try_new(column.schema.clone(), vec![keys, values]).unwrap();
    let base = column.fold.base_events(&rows).unwrap();
    let error = column.fold(&[base]).unwrap_err();
    assert_eq!(error.kind(), crate::types::ErrorKind::Corruption);
    assert!(error.to_string().contains("a stored value of column 'v'"), "{error}");
}

/// Keeps the value whose square is greater.
#[derive(Debug)]
struct Farther;

impl PairFunction for Farther {
    fn combine(&self, older: &ArrayRef, newer: &ArrayRef) -> Result<ArrayRef> {
        assert!(older.len() <= 8_192 && older.null_count() + newer.null_count() == 0);
        let pairs = older.as_primitive::<Int64Type>().values().iter();
        let pairs = pairs.zip(newer.as_primitive::<Int64Type>().values());
        let values =
            pairs.map(|(older, newer)| if newer.abs() > older.abs() { *newer } else { *older });
        Ok(Arc::new(values.collect::<Int64Array>()))
    }
}

/// Returns what it was made with.
#[derive(Debug)]
struct Returns(Result<ArrayRef>);

impl PairFunction for Returns {
    fn combine(&self, _: &ArrayRef, _: &ArrayRef) -> Result<ArrayRef> {
        self.0.clone()
    }
}

fn user(function: impl PairFunction + 'static) -> Column {
    let options = RuleOptions {
        merge_engine: MergeEngine::Aggregation,
        merge_functions: [("v".to_owned(), "pkg.merge:f".to_owned())].into(),
        ..RuleOptions::default()
    };
    let function: Arc<dyn PairFunction> = Arc::new(function);
    let functions = PairFunctions::from([("pkg.merge:f".to_owned(), function)]);
    Column::with(&DataType::Int64, &options, &functions).unwrap()
}

#[test]
fn a_function_of_a_user_gets_pairs_without_nulls() {
    assert_eq!(&user(Farther).value(&ints(&[3, -9, 4, 9, 1])), &ints(&[-9]));
    // Several calls a round, and keys of different length.
    let column = user(Farther);
    let count = 10_000;
    let rows = |values: Vec<i64>| {
        let keys: ArrayRef = Arc::new((0..count).collect::<Int64Array>());
        let rows = RecordBatch::try_new(column.schema.clone(), vec![keys, ints(&values)]).unwrap();
        column.fold.events(&rows, Verb::Put, None).unwrap()
    };
    let sources = [rows((0..count).collect()), rows((0..count).map(|key| -2 * key).collect())];
    let all: Vec<u32> = (0..10_000).collect();
    let groups = KeyGroups::from_ordinals(10_000, &[&all, &all]).unwrap();
    let folded = column.fold.fold(&sources, &groups).unwrap();
    let expected: Int64Array = (0..count).map(|key| -2 * key).collect();
    assert_eq!(folded.column(1).as_primitive::<Int64Type>(), &expected);
}

#[test]
fn what_a_function_of_a_user_returns_is_checked() {
    let null: ArrayRef = Arc::new(Int64Array::from(vec![None]));
    let float = floats(&[1.0]);
    for (returned, words) in [
        (Ok(ints(&[1, 2])), "returned 2 values for 1 pairs"),
        (Ok(float), "returned double, expected int64"),
        (Ok(null), "returned a null"),
        (Err(Error::input("no pair")), "no pair"),
    ] {
        let column = user(Returns(returned));
        let stored = column.stored(&ints(&[1, 2]), Verb::Put).unwrap();
        let error = column.fold(&[stored]).unwrap_err().to_string();
        assert!(error.contains("function 'pkg.merge:f' of column 'v'"), "{error}");
        assert!(error.contains(words), "{error}");
    }
}

/// Adds, and counts its calls and their pairs.
#[derive(Debug, Default)]
struct Counted {
    calls: AtomicUsize,
    pairs: AtomicUsize,
}

impl PairFunction for Arc<Counted> {
    fn combine(&self, older: &ArrayRef, newer: &ArrayRef) -> Result<ArrayRef> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.pairs.fetch_add(older.len(), Ordering::Relaxed);
        let pairs = older.as_primitive::<Int64Type>().values().iter();
        let pairs = pairs.zip(newer.as_primitive::<Int64Type>().values());
        Ok(Arc::new(pairs.map(|(older, newer)| older + newer).collect::<Int64Array>()))
    }
}

#[test]
fn the_events_of_a_busy_key_take_few_calls() {
    let counted = Arc::new(Counted::default());
    let column = user(counted.clone());
    let stored = column.stored(&ints(&(1..=1_000).collect::<Vec<_>>()), Verb::Put).unwrap();
    let folded = column.fold(&[stored]).unwrap();
    assert_eq!(folded.column(1), &ints(&[500_500]));
    assert_eq!(counted.calls.load(Ordering::Relaxed), 10);
    assert_eq!(counted.pairs.load(Ordering::Relaxed), 999);
}

/// Returns the newer values with nested fields that have no ids.
#[derive(Debug)]
struct Plain;

impl PairFunction for Plain {
    fn combine(&self, _: &ArrayRef, newer: &ArrayRef) -> Result<ArrayRef> {
        let vectors = newer.as_fixed_size_list();
        let item = Arc::new(Field::new("value", DataType::Float32, true));
        let plain = FixedSizeListArray::new(item, 2, vectors.values().clone(), None);
        Ok(Arc::new(plain))
    }
}

#[test]
fn a_function_of_a_user_need_not_keep_the_ids_of_nested_fields() {
    let id = HashMap::from([("lance:field_id".to_owned(), "2".to_owned())]);
    let item = Arc::new(Field::new("item", DataType::Float32, true).with_metadata(id));
    let of = DataType::FixedSizeList(item.clone(), 2);
    let options = RuleOptions {
        merge_engine: MergeEngine::Aggregation,
        merge_functions: [("v".to_owned(), "pkg.merge:f".to_owned())].into(),
        ..RuleOptions::default()
    };
    let function: Arc<dyn PairFunction> = Arc::new(Plain);
    try_function("v", "pkg.merge:f", function.as_ref(), &of).unwrap();
    let functions = PairFunctions::from([("pkg.merge:f".to_owned(), function)]);
    let column = Column::with(&of, &options, &functions).unwrap();
    let items: ArrayRef = Arc::new(Float32Array::from(vec![1.0, 2.0, 3.0, 4.0]));
    let vectors: ArrayRef = Arc::new(FixedSizeListArray::new(item, 2, items, None));
    assert_eq!(&column.value(&vectors), &vectors.slice(1, 1));
}

#[test]
fn a_function_is_tried_with_arrays_that_have_no_values() {
    let returned = Returns(Ok(floats(&[])));
    let error = try_function("v", "pkg.merge:f", &returned, &DataType::Int64).unwrap_err();
    let expected = "a trial with two empty arrays: function 'pkg.merge:f' of column 'v' returned \
                    double, expected int64";
    assert_eq!(error.to_string(), expected);
    try_function("v", "pkg.merge:f", &returned, &DataType::Float64).unwrap();
}

#[test]
fn a_function_that_is_not_loaded_is_refused_when_the_table_opens() {
    let options = RuleOptions {
        merge_engine: MergeEngine::PartialUpdate,
        merge_functions: [("v".to_owned(), "pkg.merge:f".to_owned())].into(),
        ..RuleOptions::default()
    };
    let error = Column::with(&DataType::Int64, &options, &PairFunctions::new()).unwrap_err();
    assert!(error.to_string().contains("'pkg.merge:f' of column 'v' is not loaded"), "{error}");
}

proptest! {
    #[test]
    fn sums_wrap_like_a_group(values in prop::collection::vec(any::<i64>(), 1..12)) {
        let column = Column::new(&DataType::Int64, MergeFunction::Sum);
        let put = column.stored(&ints(&values), Verb::Put).unwrap();
        let retract = column.stored(&ints(&values), Verb::Retract).unwrap();
        let expected = values.iter().fold(0, |sum: i64, it| sum.wrapping_add(*it));
        prop_assert_eq!(&column.value(&ints(&values)), &ints(&[expected]));
        // Whichever came first, they cancel out.
        for sources in [[put.clone(), retract.clone()], [retract, put]] {
            let folded = column.fold(&sources).unwrap();
            prop_assert_eq!(folded.column(1), &ints(&[0]));
        }
    }
}
