//! What a table accepts and what it refuses, in the words that a caller reads.
//!
//! Owns: the stories of `format::rows`. Does not own: helpers for other tests.

use arrow_array::builder::{Int64Builder, MapBuilder, StringBuilder};
use arrow_array::{
    FixedSizeListArray, Float64Array, Int32Array, Int64Array, LargeStringArray, ListArray,
    NullArray, StringArray, StructArray,
};
use arrow_buffer::OffsetBuffer;

use super::*;

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
    assert!(error.starts_with("column 'm' is of type Map"), "{error}");
}

#[test]
fn an_integer_that_does_not_fit_is_named_by_column_and_row() {
    let logical = Schema::new(vec![Field::new("id", DataType::Int8, false)]);
    let schema = RowSchema::new(Arc::new(logical), &["id".to_owned()]).unwrap();
    let rows = batch(vec![("id", Arc::new(Int64Array::from(vec![1, 300])))]);
    let error = schema.accept(&rows).unwrap_err().to_string();
    assert!(error.starts_with("column 'id' is of type Int64, expected Int8"), "{error}");
}

#[test]
fn text_is_never_parsed_into_a_number() {
    let rows = batch(vec![
        ("id", Arc::new(StringArray::from(vec!["1"]))),
        ("v", Arc::new(Float64Array::from(vec![1.0]))),
        ("s", Arc::new(StringArray::from(vec!["a"]))),
    ]);
    let error = schema().accept(&rows).unwrap_err().to_string();
    assert!(error.contains("column 'id' is of type Utf8, expected Int64"), "{error}");
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
    assert_eq!(
        schema().accept(&missing).unwrap_err().to_string(),
        "column 'v' of type Float64 is missing"
    );
    let all = [("id", id.clone()), ("v", v), ("s", s)];
    let unknown = batch([all.to_vec(), vec![("x", id.clone())]].concat());
    assert_eq!(
        schema().accept(&unknown).unwrap_err().to_string(),
        "column 'x' is not in the table"
    );
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
    assert_eq!(
        schema().accept(&rows).unwrap_err().to_string(),
        "primary key column 'id' is null in row 1"
    );
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
