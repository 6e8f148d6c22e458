//! What becomes of stored rows when the table's columns change.
//!
//! Owns: the stories of `format::reconcile`. Does not own: where schemas come from.

use std::collections::HashMap;

use arrow_array::builder::{Int32Builder, MapBuilder, StringBuilder};
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{Float32Array, Int32Array, Int64Array, ListArray, StringArray};
use arrow_buffer::OffsetBuffer;
use arrow_cast::cast;

use super::*;

fn field(id: i32, name: &str, of: DataType) -> Field {
    let metadata = HashMap::from([(FIELD_ID.to_owned(), id.to_string())]);
    Field::new(name, of, true).with_metadata(metadata)
}

fn schema(fields: Vec<Field>) -> SchemaRef {
    Arc::new(Schema::new(fields))
}

fn brought(stored: Vec<(Field, ArrayRef)>, table: &SchemaRef) -> Result<RecordBatch> {
    let (fields, columns): (Vec<Field>, Vec<ArrayRef>) = stored.into_iter().unzip();
    let batch = RecordBatch::try_new(schema(fields), columns).unwrap();
    Reconcile::between(batch.schema_ref(), table)?.apply(&batch, table)
}

fn int32s(values: &[i32]) -> ArrayRef {
    Arc::new(Int32Array::from(values.to_vec()))
}

#[test]
fn a_renamed_column_keeps_its_values_and_an_added_one_is_null() {
    let table = schema(vec![field(1, "after", DataType::Int32), field(2, "new", DataType::Utf8)]);
    let rows = brought(vec![(field(1, "before", DataType::Int32), int32s(&[7, 8]))], &table);
    let rows = rows.unwrap();
    assert_eq!(rows.column(0), &int32s(&[7, 8]));
    assert_eq!(rows.column(1).null_count(), 2);
}

#[test]
fn a_name_that_is_used_again_shows_no_value_of_the_column_that_had_it() {
    let table = schema(vec![field(5, "v", DataType::Int32), field(1, "w", DataType::Int32)]);
    let rows = brought(vec![(field(1, "v", DataType::Int32), int32s(&[7]))], &table).unwrap();
    assert_eq!(rows.column(0).null_count(), 1);
    assert_eq!(rows.column(1), &int32s(&[7]));
}

#[test]
fn the_id_that_an_sstable_gave_to_its_tombstones_may_belong_to_a_column_now() {
    let table = schema(vec![field(1, "v", DataType::Int32), field(2, "flag", DataType::Boolean)]);
    let tombstones: ArrayRef = Arc::new(BooleanArray::from(vec![true]));
    let stored = vec![
        (field(1, "v", DataType::Int32), int32s(&[7])),
        (field(2, TOMBSTONE, DataType::Boolean), tombstones.clone()),
    ];
    assert_eq!(brought(stored.clone(), &table).unwrap().column(1).null_count(), 1);
    let storage = schema(vec![field(2, "flag", DataType::Boolean), tombstone()]);
    let rows = brought(stored, &storage).unwrap();
    assert_eq!((rows.column(0).null_count(), rows.column(1)), (1, &tombstones));
}

fn tombstone() -> Field {
    Field::new(TOMBSTONE, DataType::Boolean, false)
}

#[test]
fn rows_older_than_deletes_are_all_live() {
    let rows = brought(
        vec![(field(1, "v", DataType::Int32), int32s(&[7, 8]))],
        &schema(vec![tombstone()]),
    );
    assert_eq!(rows.unwrap().column(0).as_boolean().true_count(), 0);
}

#[test]
fn integers_and_floats_widen_and_nothing_else_changes_its_type() {
    let table = schema(vec![field(1, "i", DataType::Int64), field(2, "f", DataType::Float64)]);
    let floats: ArrayRef = Arc::new(Float32Array::from(vec![1.5]));
    let stored = vec![
        (field(1, "i", DataType::Int32), int32s(&[-7])),
        (field(2, "f", DataType::Float32), floats),
    ];
    let rows = brought(stored, &table).unwrap();
    assert_eq!(rows.column(0).as_primitive::<Int64Type>().value(0), -7);
    assert_eq!(rows.column(1).as_primitive::<Float64Type>().value(0).to_bits(), 1.5_f64.to_bits());

    let long: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    let text: ArrayRef = Arc::new(StringArray::from(vec!["1"]));
    for (from, array, to) in [
        (DataType::Int64, long.clone(), DataType::Int32),
        (DataType::Int64, long, DataType::Float64),
        (DataType::Int32, int32s(&[1]), DataType::Utf8),
        (DataType::Utf8, text, DataType::Int64),
    ] {
        let stored = vec![(field(1, "v", from.clone()), array)];
        let error = brought(stored, &schema(vec![field(1, "v", to.clone())])).unwrap_err();
        let (from, to) = (TypeName(&from), TypeName(&to));
        let expected = format!("column 'v' was {from} and is {to} now");
        assert!(error.to_string().starts_with(&expected), "{error}");
    }
}

#[test]
fn a_widened_column_finds_the_rows_of_the_narrow_one_and_never_the_other_way() {
    let mut wide = field(5, "after", DataType::Int64);
    let narrow = field(1, "before", DataType::Int32);
    // The second as earlier versions wrote it, without the column's own id.
    for mark in [widened_mark(1, 5), "1".to_owned()] {
        wide.metadata_mut().insert(WIDENED_FROM.to_owned(), mark);
        let table = schema(vec![wide.clone()]);
        let rows = brought(vec![(narrow.clone(), int32s(&[-7]))], &table).unwrap();
        assert_eq!(rows.column(0).as_primitive::<Int64Type>().value(0), -7);
    }

    let long: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    let error = brought(vec![(wide, long)], &schema(vec![narrow])).unwrap_err();
    assert!(error.to_string().starts_with("column 'before' was int64 and is int32 now"));
}

#[test]
fn a_column_that_was_widened_again_finds_the_rows_of_its_first_widening() {
    let wide = |id| {
        let mut column = field(id, "n", DataType::Int64);
        column.metadata_mut().insert(WIDENED_FROM.to_owned(), widened_mark(1, id));
        column
    };
    let longs: ArrayRef = Arc::new(Int64Array::from(vec![3_000_000_000]));
    let rows = brought(vec![(wide(5), longs)], &schema(vec![wide(6)])).unwrap();
    assert_eq!(rows.column(0).as_primitive::<Int64Type>().value(0), 3_000_000_000);
}

#[test]
fn a_column_that_has_the_metadata_of_a_widened_one_is_another_column() {
    let marked = |id, name| {
        let mut column = field(id, name, DataType::Int64);
        column.metadata_mut().insert(WIDENED_FROM.to_owned(), widened_mark(1, 5));
        column
    };
    let table = schema(vec![marked(5, "n"), marked(6, "copy")]);
    let rows = brought(vec![(field(1, "n", DataType::Int32), int32s(&[-7]))], &table).unwrap();
    assert_eq!(rows.column(0).as_primitive::<Int64Type>().value(0), -7);
    assert!(rows.column(1).is_null(0));
    // As after the widened one was dropped, and one of its name was made with its metadata.
    let table = schema(vec![marked(6, "n")]);
    let rows = brought(vec![(field(1, "n", DataType::Int32), int32s(&[-7]))], &table).unwrap();
    assert!(rows.column(0).is_null(0));
}

#[test]
fn the_mark_of_another_tables_widening_moves_no_column() {
    let marked = |id, of: &str| {
        let mut column = field(id, "b", DataType::Int64);
        column.metadata_mut().insert(WIDENED_FROM.to_owned(), of.to_owned());
        column
    };
    let longs = |value| Arc::new(Int64Array::from(vec![value])) as ArrayRef;
    // A schema that was copied names ids of the table it is from.
    for of in ["0", "1", "2", "7"] {
        let columns = vec![field(0, "a", DataType::Int64), marked(1, of)];
        let stored = columns.iter().cloned().zip([longs(10), longs(20)]).collect();
        let rows = brought(stored, &schema(columns)).unwrap();
        assert_eq!((rows.column(0), rows.column(1)), (&longs(10), &longs(20)), "marked {of}");
        let columns = vec![marked(1, of), field(2, "c", DataType::Int64)];
        let stored = vec![(field(0, "a", DataType::Int64), longs(10)), (marked(1, of), longs(20))];
        let rows = brought(stored, &schema(columns)).unwrap();
        assert_eq!(rows.column(0), &longs(20), "marked {of}");
        assert_eq!(rows.column(1).null_count(), 1, "marked {of}");
    }
}

#[test]
fn rows_without_ids_are_matched_by_name() {
    let table = schema(vec![field(1, "v", DataType::Int32), field(2, "w", DataType::Int32)]);
    let stored = vec![
        (Field::new("w", DataType::Int32, true), int32s(&[2])),
        (Field::new("v", DataType::Int32, true), int32s(&[1])),
    ];
    let rows = brought(stored, &table).unwrap();
    assert_eq!((rows.column(0), rows.column(1)), (&int32s(&[1]), &int32s(&[2])));
}

#[test]
fn children_of_structs_in_lists_are_matched_by_id_too() {
    let old = Fields::from(vec![field(3, "a", DataType::Int32), field(4, "b", DataType::Int32)]);
    let new = Fields::from(vec![field(4, "a", DataType::Int64), field(5, "c", DataType::Utf8)]);
    let list = |children: &Fields| {
        let item = Field::new("item", DataType::Struct(children.clone()), true);
        field(1, "l", DataType::List(Arc::new(item)))
    };
    let items =
        StructArray::new(old.clone(), vec![int32s(&[1, 2, 3]), int32s(&[10, 20, 30])], None);
    let DataType::List(item) = list(&old).data_type().clone() else { unreachable!() };
    let lists = ListArray::new(item, OffsetBuffer::from_lengths([1, 2]), Arc::new(items), None);
    let table = schema(vec![list(&new)]);
    let rows = brought(vec![(list(&old), Arc::new(lists))], &table).unwrap();
    let second = rows.column(0).as_list::<i32>().value(1);
    let second = second.as_struct();
    assert_eq!(second.column(0).as_primitive::<Int64Type>().values(), &[20, 30]);
    assert_eq!(second.column(1).null_count(), 2);
}

#[test]
fn values_of_maps_widen_and_get_children_and_keys_stay() {
    let entries = |value: Field| {
        let key = field(3, "key", DataType::Utf8).with_nullable(false);
        let entries = Fields::from(vec![key, value]);
        Arc::new(Field::new("entries", DataType::Struct(entries), false))
    };
    let map = |value: Field| field(1, "m", DataType::Map(entries(value), false));
    let narrow = map(field(4, "value", DataType::Int32));
    let mut builder = MapBuilder::new(None, StringBuilder::new(), Int32Builder::new());
    builder.keys().append_value("a");
    builder.values().append_value(7);
    builder.append(true).unwrap();
    builder.append(false).unwrap();
    let stored = cast(&builder.finish(), narrow.data_type()).unwrap();
    let table = schema(vec![map(field(4, "value", DataType::Int64))]);
    let rows = brought(vec![(narrow, stored)], &table).unwrap();
    let found = rows.column(0).as_map();
    assert_eq!(found.keys().as_string::<i32>().value(0), "a");
    assert_eq!(found.values().as_primitive::<Int64Type>().values(), &[7]);
    assert!(found.is_null(1));
}

#[test]
fn only_the_same_columns_in_the_same_places_need_nothing() {
    let old = schema(vec![field(1, "v", DataType::Int32), field(2, "w", DataType::Int32)]);
    let is_identity =
        |table: &SchemaRef| Reconcile::between(&old, table).unwrap().is_identity(&old);
    assert!(is_identity(&old));
    assert!(is_identity(&schema(vec![
        field(1, "renamed", DataType::Int32),
        field(2, "w", DataType::Int32)
    ])));
    assert!(!is_identity(&schema(vec![field(1, "v", DataType::Int32)])));
    assert!(!is_identity(&schema(vec![
        field(2, "w", DataType::Int32),
        field(1, "v", DataType::Int32)
    ])));
}
