//! What a table accepts and what it refuses, in the words that a caller reads.
//!
//! Owns: the stories of `format::rows`. Does not own: helpers for other tests.

use arrow_array::builder::{Int64Builder, MapBuilder, StringBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::Float32Type;
use arrow_array::{
    FixedSizeListArray, Float64Array, Int32Array, Int64Array, LargeStringArray, ListArray,
    NullArray, StringArray, StructArray,
};
use arrow_buffer::OffsetBuffer;

use super::*;
use crate::format::round_floats;

fn schema() -> RowSchema {
    let logical = Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("v", DataType::Float64, false),
        Field::new("s", DataType::Utf8, true),
    ]);
    RowSchema::new(Arc::new(logical), &["id".to_owned()]).unwrap()
}

fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable(
        columns.into_iter().map(|(name, array)| (name, array, true)),
    )
    .unwrap()
}

#[test]
fn columns_in_another_order_and_wider_text_are_accepted() {
    let rows = batch(vec![
        ("s", Arc::new(LargeStringArray::from(vec![Some("a"), None]))),
        ("v", Arc::new(Float64Array::from(vec![1.0, 2.0]))),
        ("id", Arc::new(Int32Array::from(vec![1, 2]))),
    ]);
    let accepted = schema().accept(&rows).unwrap();
    assert_eq!(accepted.batch.schema(), *schema().storage());
}

#[test]
fn a_map_is_accepted_whatever_its_entries_are_called_and_its_values_are_kept() {
    let map = |entries: &str, key: &str, value: Field| {
        let key = Field::new(key, DataType::Utf8, false);
        let of = DataType::Struct(vec![key, value].into());
        DataType::Map(Arc::new(Field::new(entries, of, false)), false)
    };
    let ours = map("entries", "key", Field::new("value", DataType::Int32, true));
    let logical =
        vec![Field::new("id", DataType::Int64, false), Field::new("m", ours.clone(), true)];
    let schema = RowSchema::new(Arc::new(Schema::new(logical)), &["id".to_owned()]).unwrap();
    let rows = |value: i64| {
        let mut maps = MapBuilder::new(None, StringBuilder::new(), Int64Builder::new());
        maps.keys().append_value("a");
        maps.values().append_value(value);
        maps.append(true).unwrap();
        batch(vec![("id", Arc::new(Int64Array::from(vec![1]))), ("m", Arc::new(maps.finish()))])
    };
    let accepted = schema.accept(&rows(7)).unwrap().batch;
    assert_eq!(accepted.column(1).data_type(), &ours);
    let error = schema.accept(&rows(1 << 40)).unwrap_err().to_string();
    assert!(error.starts_with("column 'm' is of type map<string ('keys'), int64"), "{error}");
}

#[test]
fn an_integer_that_does_not_fit_is_named_by_column_and_row() {
    let logical = Schema::new(vec![Field::new("id", DataType::Int8, false)]);
    let schema = RowSchema::new(Arc::new(logical), &["id".to_owned()]).unwrap();
    let rows = batch(vec![("id", Arc::new(Int64Array::from(vec![1, 300])))]);
    let error = schema.accept(&rows).unwrap_err().to_string();
    assert_eq!(
        error,
        "column 'id' is of type int64, expected int8: row 1 has 300, which does not fit"
    );
}

#[test]
fn text_is_never_parsed_into_a_number() {
    let rows = batch(vec![
        ("id", Arc::new(StringArray::from(vec!["1"]))),
        ("v", Arc::new(Float64Array::from(vec![1.0]))),
        ("s", Arc::new(StringArray::from(vec!["a"]))),
    ]);
    let error = schema().accept(&rows).unwrap_err().to_string();
    assert!(error.contains("column 'id' is of type string, expected int64"), "{error}");
}

fn place(parts: [(&str, ArrayRef); 2]) -> ArrayRef {
    let part = |(name, values): (&str, ArrayRef)| {
        (Arc::new(Field::new(name, values.data_type().clone(), true)), values)
    };
    Arc::new(StructArray::from(Vec::from(parts.map(part))))
}

#[test]
fn parts_of_a_struct_are_known_by_name_and_never_by_place() {
    let floats = |values: [f64; 1]| Arc::new(Float64Array::from(values.to_vec())) as ArrayRef;
    let stored = place([("lat", floats([1.0])), ("lon", floats([2.0]))]);
    let logical = Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("at", stored.data_type().clone(), true),
    ]);
    let schema = RowSchema::new(Arc::new(logical), &["id".to_owned()]).unwrap();
    let accept = |at: ArrayRef| {
        schema.accept(&batch(vec![("id", Arc::new(Int64Array::from(vec![1]))), ("at", at)]))
    };
    let turned = accept(place([("lon", floats([2.0])), ("lat", floats([1.0]))])).unwrap();
    assert_eq!(turned.batch.column(1).to_data(), stored.to_data());
    let other = accept(place([("lng", floats([2.0])), ("lat", floats([1.0]))])).unwrap_err();
    assert!(other.to_string().contains("column 'at'"), "{other}");
    let text = Arc::new(StringArray::from(vec!["1"]));
    assert!(accept(place([("lat", text), ("lon", floats([2.0]))])).is_err(), "text is not parsed");
}

#[test]
fn text_in_a_list_is_never_parsed_into_numbers() {
    let item = |data_type| Arc::new(Field::new_list_field(data_type, true));
    let logical = Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("all", DataType::List(item(DataType::Int32)), true),
    ]);
    let schema = RowSchema::new(Arc::new(logical), &["id".to_owned()]).unwrap();
    let accept = |values: ArrayRef| {
        let item = item(values.data_type().clone());
        let list = ListArray::new(item, OffsetBuffer::from_lengths([1]), values, None);
        let rows =
            batch(vec![("id", Arc::new(Int64Array::from(vec![1]))), ("all", Arc::new(list))]);
        schema.accept(&rows)
    };
    assert!(accept(Arc::new(Int64Array::from(vec![12]))).is_ok());
    assert!(accept(Arc::new(Int64Array::from(vec![1 << 40]))).is_err());
    assert!(accept(Arc::new(StringArray::from(vec!["12"]))).is_err());
}

#[test]
fn a_put_of_one_row_costs_what_holds_it() {
    let columns = |count: usize| -> Vec<Field> {
        let id = Field::new("id", DataType::Int64, false);
        let more = (1..count).map(|number| Field::new(format!("c{number}"), DataType::Int8, true));
        [id].into_iter().chain(more).collect()
    };
    let bytes = |count: usize| {
        let logical = Arc::new(Schema::new(columns(count)));
        let schema = RowSchema::new(logical.clone(), &["id".to_owned()]).unwrap();
        let one = |field: &Arc<Field>| match field.data_type() {
            DataType::Int64 => Arc::new(Int64Array::from(vec![1])) as ArrayRef,
            other => new_null_array(other, 1),
        };
        let arrays = logical.fields().iter().map(one).collect();
        schema.accept(&RecordBatch::try_new(logical, arrays).unwrap()).unwrap().memory_bytes()
    };
    assert!(bytes(10) - bytes(1) > 9 * ARRAY_BYTES);
}

#[test]
fn a_missing_an_unknown_and_a_doubled_column_are_each_named() {
    let id: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    let v: ArrayRef = Arc::new(Float64Array::from(vec![1.0]));
    let s: ArrayRef = Arc::new(StringArray::from(vec!["a"]));
    let missing = batch(vec![("id", id.clone()), ("s", s.clone())]);
    let refused = schema().accept(&missing).unwrap_err().to_string();
    assert!(refused.starts_with("column 'v' of type double is missing; "), "{refused}");
    let all = [("id", id.clone()), ("v", v), ("s", s)];
    let unknown = batch([all.to_vec(), vec![("x", id.clone())]].concat());
    let refused = schema().accept(&unknown).unwrap_err().to_string();
    assert!(refused.starts_with("column 'x' is not in the table; it has id, v, s; "), "{refused}");
    let doubled = batch([all.to_vec(), vec![("id", id)]].concat());
    assert_eq!(schema().accept(&doubled).unwrap_err().to_string(), "column 'id' is given twice");
}

#[test]
fn a_null_key_is_named_by_column_and_row() {
    let rows = batch(vec![
        ("id", Arc::new(Int64Array::from(vec![Some(1), None]))),
        ("v", Arc::new(Float64Array::from(vec![1.0, 2.0]))),
        ("s", Arc::new(StringArray::from(vec!["a", "b"]))),
    ]);
    let refused = schema().accept(&rows).unwrap_err().to_string();
    assert!(refused.starts_with("primary key column 'id' is null in row 1; "), "{refused}");
}

#[test]
fn rows_and_deletes_that_no_reader_would_take_are_refused_before_they_are_written() {
    let item = Arc::new(Field::new_list_field(DataType::Null, true));
    let wide = DataType::FixedSizeList(item.clone(), 1 << 23);
    let logical = Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("nulls", wide, true),
    ]);
    let schema = RowSchema::new(Arc::new(logical), &["id".to_owned()]).unwrap();
    for rows in [2, 3] {
        let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows));
        let rows = usize::try_from(rows).unwrap();
        let values = Arc::new(NullArray::new(rows << 23));
        let lists = FixedSizeListArray::new(item.clone(), 1 << 23, values, None);
        let whole = batch(vec![("id", ids.clone()), ("nulls", Arc::new(lists))]);
        for accepted in [schema.accept(&whole), schema.accept_keys(&batch(vec![("id", ids)]))] {
            assert_eq!(accepted.is_ok(), rows == 2);
            assert!(accepted.err().is_none_or(|error| error.to_string().contains("'nulls'")));
        }
    }
}

#[test]
fn a_delete_needs_only_the_key_and_stores_nulls_beside_it() {
    let rows = batch(vec![("id", Arc::new(Int64Array::from(vec![7])))]);
    let accepted = schema().accept_keys(&rows).unwrap();
    assert_eq!(accepted.batch.column_by_name("v").unwrap().null_count(), 1);
    let tombstones = accepted.batch.column_by_name(TOMBSTONE).unwrap();
    assert_eq!(tombstones.to_data(), BooleanArray::from(vec![true]).to_data());
}

#[test]
fn stored_rows_without_a_newer_column_are_filled_with_nulls() {
    let stored = batch(vec![
        ("id", Arc::new(Int64Array::from(vec![7]))),
        ("v", Arc::new(Float64Array::from(vec![7.0]))),
    ]);
    let rows = schema().conform(&stored).unwrap();
    assert_eq!(rows.batch.column_by_name("s").unwrap().null_count(), 1);
}

#[test]
fn a_column_of_nothing_but_nulls_needs_no_type() {
    let rows = batch(vec![
        ("id", Arc::new(Int64Array::from(vec![7]))),
        ("v", Arc::new(Float64Array::from(vec![7.0]))),
        ("s", new_null_array(&DataType::Null, 1)),
    ]);
    let rows = schema().accept(&rows).unwrap();
    assert_eq!(rows.batch.column_by_name("s").unwrap().data_type(), &DataType::Utf8);
}

/// A table with a vector, a list and a plain column of floats, and one of integers.
fn numbers() -> RowSchema {
    let item = |of| Arc::new(Field::new_list_field(of, true));
    let logical = Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("vector", DataType::FixedSizeList(item(DataType::Float32), 2), true),
        Field::new("list", DataType::List(item(DataType::Float32)), true),
        Field::new("x", DataType::Float32, true),
        Field::new("n", DataType::Int32, true),
    ]);
    RowSchema::new(Arc::new(logical), &["id".to_owned()]).unwrap()
}

/// Two rows of it in doubles, without a vector the second.
fn doubles(vector: [f64; 2], list: f64, x: f64, n: Option<f64>) -> RecordBatch {
    let list_of = |lengths: [usize; 2], values: Vec<f64>, nulls: Option<NullBuffer>| {
        let item = Arc::new(Field::new_list_field(DataType::Float64, true));
        let offsets = OffsetBuffer::from_lengths(lengths);
        let values = Arc::new(Float64Array::from(values));
        Arc::new(ListArray::new(item, offsets, values, nulls)) as ArrayRef
    };
    let nulls = NullBuffer::from(vec![true, false]);
    batch(vec![
        ("id", Arc::new(Int64Array::from(vec![1, 2]))),
        ("vector", list_of([2, 0], vector.to_vec(), Some(nulls))),
        ("list", list_of([1, 0], vec![list], None)),
        ("x", Arc::new(Float64Array::from(vec![0.5, x]))),
        ("n", Arc::new(Float64Array::from(vec![Some(7.0), n]))),
    ])
}

#[test]
fn doubles_of_a_vector_are_rounded_to_the_nearest_and_never_made_infinite() {
    let rows = numbers().accept(&doubles([0.1, f64::INFINITY], 0.5, 0.25, None)).unwrap().batch;
    let vector = rows.column_by_name("vector").unwrap().as_fixed_size_list();
    let values = vector.values().as_primitive::<Float32Type>();
    assert_eq!((values.value(0), values.value(1)), (0.1, f32::INFINITY));
    assert!(vector.is_null(1));
    let error = numbers().accept(&doubles([0.1, 1e300], 0.5, 0.25, None)).unwrap_err().to_string();
    assert_eq!(
        error,
        "column 'vector' is of type list<item: double>, expected fixed_size_list<item: float>[2]: \
         row 0 has a finite number that would become infinite"
    );
}

#[test]
fn other_doubles_are_rounded_only_where_the_caller_says_so() {
    for (list, x, column) in [(0.1, 0.25, "list"), (0.5, 0.1, "x")] {
        let rows = doubles([0.1, 0.2], list, x, None);
        let error = numbers().accept(&rows).unwrap_err().to_string();
        assert!(error.starts_with(&format!("column '{column}' is of type ")), "{error}");
        assert!(error.ends_with("or let round_floats=True store the nearest float"), "{error}");
        let rounded = round_floats(&rows, numbers().logical()).unwrap();
        let stored = numbers().accept(&rounded).unwrap().batch;
        let stored = stored.column_by_name("x").unwrap().as_primitive::<Float32Type>().value(1);
        assert!((f64::from(stored) - x).abs() < 1e-8);
    }
    let error = round_floats(&doubles([0.1, 0.2], 0.5, 1e300, None), numbers().logical());
    let error = error.unwrap_err().to_string();
    assert!(error.starts_with("column 'x'") && error.contains("row 1 has a finite"), "{error}");
}

#[test]
fn a_value_that_no_row_shows_is_rounded_to_whatever_it_becomes() {
    let item = Arc::new(Field::new_list_field(DataType::Float64, true));
    let values = Arc::new(Float64Array::from(vec![0.1, 0.2, 1e300, 1e300]));
    let nulls = Some(NullBuffer::from(vec![true, false]));
    let vectors = FixedSizeListArray::new(item, 2, values, nulls);
    let rows = doubles([0.1, 0.2], 0.5, 0.25, None);
    let mut columns = rows.columns().to_vec();
    columns[1] = Arc::new(vectors);
    let names = ["id", "vector", "list", "x", "n"];
    assert!(numbers().accept(&batch(names.into_iter().zip(columns).collect())).is_ok());
}

#[test]
fn an_integer_column_takes_doubles_that_are_all_whole() {
    let rows = numbers().accept(&doubles([0.1, 0.2], 0.5, 0.25, None)).unwrap().batch;
    let n = rows.column_by_name("n").unwrap();
    assert_eq!(n.to_data(), Int32Array::from(vec![Some(7), None]).to_data());
    for (value, reason) in [
        (1.5, "row 1 has 1.5, which is not a whole number"),
        (f64::NAN, "row 1 has NaN, which is not a whole number"),
        (3e9, "row 1 has 3000000000, which is out of range"),
        (9_007_199_254_740_992.0, "row 1 has 9007199254740992, which a double may have rounded"),
    ] {
        let rows = doubles([0.1, 0.2], 0.5, 0.25, Some(value));
        let error = numbers().accept(&rows).unwrap_err().to_string();
        assert_eq!(error, format!("column 'n' is of type double, expected int32: {reason}"));
    }
}
