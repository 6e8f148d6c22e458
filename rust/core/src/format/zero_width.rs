//! Zero-width values (`Null`, empty structs): a few bytes can declare billions, so they are
//! limited.
//!
//! Owns: which types have such values, and how many of them a column may have in one batch.
//! Does not own: the errors of writers and readers.

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef};
use arrow_schema::{DataType, Schema};

use super::size::span;

/// Most zero-width values of one column in one put. A reader whose table has got another part since
/// allocates as many values of that part.
pub(super) const MAX_VALUES: usize = 1 << 24;

/// Whether a row takes at least a bit, in the tombstone or another column: then the decoder has
/// verified the number of rows that the batch declares.
pub(super) fn holds_rows(schema: &Schema) -> bool {
    schema.fields().iter().any(|field| holds_values(field.data_type()))
}

fn holds_values(of: &DataType) -> bool {
    match of {
        DataType::Null | DataType::FixedSizeBinary(0) | DataType::RunEndEncoded(..) => false,
        DataType::FixedSizeList(item, length) => *length > 0 && holds_values(item.data_type()),
        DataType::Struct(parts) => parts.iter().any(|part| holds_values(part.data_type())),
        _ => true,
    }
}

/// Whether the lists of `rows` show too many zero-width values.
pub(super) fn shows_too_many(rows: &dyn Array) -> bool {
    has_too_many(rows, |_, shown| shown)
}

/// Whether the lists of `rows` come with too many zero-width values, shown or not.
pub(super) fn brings_too_many(rows: &dyn Array) -> bool {
    has_too_many(rows, |values, _| values.len())
}

fn has_too_many(rows: &dyn Array, count: fn(&ArrayRef, usize) -> usize) -> bool {
    let below = |values: &ArrayRef, shown: Option<usize>| {
        if holds_values(values.data_type()) {
            return has_too_many(values, count);
        }
        shown.is_none_or(|shown| count(values, shown) > MAX_VALUES)
    };
    match rows.data_type() {
        DataType::Struct(_) => {
            rows.as_struct().columns().iter().any(|part| has_too_many(part, count))
        }
        DataType::List(_) => {
            let list = rows.as_list::<i32>();
            below(list.values(), Some(span(list.value_offsets())))
        }
        DataType::LargeList(_) => {
            let list = rows.as_list::<i64>();
            below(list.values(), Some(span(list.value_offsets())))
        }
        DataType::FixedSizeList(_, width) => {
            let width = usize::try_from(*width).ok();
            let shown = width.and_then(|width| width.checked_mul(rows.len()));
            below(rows.as_fixed_size_list().values(), shown)
        }
        DataType::Map(..) => {
            let map = rows.as_map();
            let shown = span(map.value_offsets());
            map.entries().columns().iter().any(|part| below(part, Some(shown)))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{
        FixedSizeListArray, LargeListArray, ListArray, MapArray, NullArray, StructArray,
    };
    use arrow_buffer::{OffsetBuffer, ScalarBuffer};
    use arrow_schema::Field;

    use super::*;

    fn nulls(count: usize) -> ArrayRef {
        Arc::new(NullArray::new(count))
    }

    fn list(values: ArrayRef, shown: usize) -> ArrayRef {
        let item = Arc::new(Field::new_list_field(values.data_type().clone(), true));
        let offsets = ScalarBuffer::from(vec![0, i32::try_from(shown).unwrap()]);
        Arc::new(ListArray::new(item, OffsetBuffer::new(offsets), values, None))
    }

    #[test]
    fn lists_of_zero_width_values_are_bounded_at_any_depth() {
        let structs = |count| Arc::new(StructArray::new_empty_fields(count, None)) as ArrayRef;
        for values in [nulls, structs] {
            assert!(!shows_too_many(&list(values(MAX_VALUES), MAX_VALUES)));
            assert!(shows_too_many(&list(values(MAX_VALUES + 1), MAX_VALUES + 1)));
            let field = Arc::new(Field::new("part", list(values(1), 1).data_type().clone(), true));
            let inside = list(values(MAX_VALUES + 1), MAX_VALUES + 1);
            let outside = StructArray::new(vec![field].into(), vec![inside], None);
            assert!(shows_too_many(&list(Arc::new(outside), 1)));
        }
    }

    #[test]
    fn values_that_a_slice_does_not_show_count_for_a_reader_only() {
        let slice = list(nulls(1 << 40), 3);
        assert!(!shows_too_many(&slice) && brings_too_many(&slice));
    }

    #[test]
    fn a_map_counts_what_it_shows_as_a_list_does() {
        let map = |shown| {
            let keys = Arc::new(arrow_array::Int8Array::from(vec![0; MAX_VALUES + 1])) as ArrayRef;
            let parts = vec![
                Field::new("keys", keys.data_type().clone(), false),
                Field::new("values", DataType::Null, true),
            ];
            let entries = StructArray::new(parts.into(), vec![keys, nulls(MAX_VALUES + 1)], None);
            let field = Arc::new(Field::new("entries", entries.data_type().clone(), false));
            let offsets = OffsetBuffer::from_lengths([shown]);
            MapArray::new(field, offsets, entries, None, false)
        };
        assert!(shows_too_many(&map(MAX_VALUES + 1)) && brings_too_many(&map(1)));
        assert!(!shows_too_many(&map(1)));
    }

    #[test]
    fn other_lists_count_as_well() {
        let item = Arc::new(Field::new_list_field(DataType::Null, true));
        let offsets = OffsetBuffer::new(ScalarBuffer::from(vec![0_i64, 1 << 40]));
        assert!(shows_too_many(&LargeListArray::new(item.clone(), offsets, nulls(1 << 40), None)));
        let wide = i32::try_from(MAX_VALUES).unwrap();
        assert!(!shows_too_many(&FixedSizeListArray::new(
            item.clone(),
            wide,
            nulls(MAX_VALUES),
            None
        )));
        assert!(shows_too_many(&FixedSizeListArray::new(item, wide, nulls(2 * MAX_VALUES), None)));
        let many = Arc::new(arrow_array::Int8Array::from(vec![1; 1 << 10]));
        assert!(!brings_too_many(&list(many, 1 << 10)));
    }
}
