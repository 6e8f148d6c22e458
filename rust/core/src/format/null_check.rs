//! Nulls that a column's type does not allow.
//!
//! Owns: which values are null although their field is not nullable, parts of structs, lists and
//! maps included.
//! Does not own: the error of the caller, or which columns of a table are nullable.
//!
//! Arrow refuses to build such arrays, but takes them unchecked over its C interface; once in the
//! log, no reader could decode them.

use arrow_array::cast::AsArray;
use arrow_array::{Array, OffsetSizeTrait};
use arrow_buffer::NullBuffer;
use arrow_schema::{DataType, Field};

/// The first row that is null. In a dictionary the value may be null, not only the row's key.
pub(super) fn null_row(array: &dyn Array) -> Option<usize> {
    if array.logical_null_count() == 0 {
        return None;
    }
    let nulls = array.logical_nulls()?;
    (0..array.len()).find(|row| nulls.is_null(*row))
}

/// The first null below the values of `array` in a field that `data_type` declares not nullable:
/// its path, with a dot before each name, and its row. `data_type` differs from the type of the
/// array in nullability alone. Parts of a null struct or of a null fixed-size list are no values.
pub(super) fn null_part(data_type: &DataType, array: &dyn Array) -> Option<(String, usize)> {
    match data_type {
        DataType::Struct(fields) => {
            let mut parts = fields.iter().zip(array.as_struct().columns());
            parts.find_map(|(field, part)| in_part(field, part, array.nulls()))
        }
        DataType::FixedSizeList(item, width) => {
            let width = usize::try_from(*width).ok().filter(|width| *width > 0)?;
            let mask = array.nulls().filter(|_| !item.is_nullable());
            let mask = mask.map(|nulls| nulls.expand(width));
            let found = in_part(item, array.as_fixed_size_list().values(), mask.as_ref());
            found.map(|(path, place)| (path, place / width))
        }
        DataType::List(item) => {
            let list = array.as_list::<i32>();
            in_items(item, list.values(), list.value_offsets())
        }
        DataType::LargeList(item) => {
            let list = array.as_list::<i64>();
            in_items(item, list.values(), list.value_offsets())
        }
        DataType::Map(entries, _) => {
            let map = array.as_map();
            in_items(entries, map.entries(), map.value_offsets())
        }
        _ => None,
    }
}

/// Looks at the items between the first and the last of `offsets`; other items belong to no row.
fn in_items<O: OffsetSizeTrait>(
    item: &Field,
    values: &dyn Array,
    offsets: &[O],
) -> Option<(String, usize)> {
    let (first, last) = (offsets.first()?.as_usize(), offsets.last()?.as_usize());
    let (path, place) = in_part(item, &values.slice(first, last - first), None)?;
    let begun = offsets.partition_point(|offset| offset.as_usize() <= first + place);
    Some((path, begun.saturating_sub(1)))
}

/// `present` is the validity of the parents: a part of a null parent is no value.
fn in_part(
    field: &Field,
    part: &dyn Array,
    present: Option<&NullBuffer>,
) -> Option<(String, usize)> {
    let name = field.name();
    if !field.is_nullable()
        && part.logical_null_count() > 0
        && let Some(nulls) = part.logical_nulls()
    {
        let is_value = |place: usize| present.is_none_or(|present| present.is_valid(place));
        let missing = (0..part.len()).find(|place| nulls.is_null(*place) && is_value(*place));
        if let Some(place) = missing {
            return Some((format!(".{name}"), place));
        }
    }
    null_part(field.data_type(), part).map(|(path, place)| (format!(".{name}{path}"), place))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::types::Int32Type;
    use arrow_array::{
        ArrayRef, DictionaryArray, FixedSizeListArray, Int32Array, ListArray, StringArray,
        StructArray,
    };
    use arrow_buffer::OffsetBuffer;

    use super::*;

    fn field(name: &str, data_type: &DataType) -> Arc<Field> {
        Arc::new(Field::new(name, data_type.clone(), false))
    }

    fn numbers() -> ArrayRef {
        Arc::new(Int32Array::from(vec![Some(1), None, Some(3), None]))
    }

    #[test]
    fn a_null_among_the_values_of_a_dictionary_is_null_in_its_rows() {
        let values = Arc::new(StringArray::from(vec![Some("a"), None]));
        let rows = Int32Array::from(vec![0, 0, 1]);
        assert_eq!(null_row(&DictionaryArray::<Int32Type>::new(rows, values)), Some(2));
    }

    #[test]
    fn a_null_part_of_a_struct_is_named_unless_the_struct_is_null() {
        let (name, values) = ("a", numbers());
        let part = Arc::new(Field::new(name, DataType::Int32, true));
        let nulls = |valid: [bool; 4]| Some(NullBuffer::from(valid.to_vec()));
        let of = |valid| {
            let parts = StructArray::new(vec![part.clone()].into(), vec![values.clone()], valid);
            let strict = DataType::Struct(vec![field(name, &DataType::Int32)].into());
            null_part(&strict, &parts)
        };
        assert_eq!(of(nulls([true, false, true, true])), Some((".a".to_owned(), 3)));
        assert_eq!(of(nulls([true, false, true, false])), None);
    }

    #[test]
    fn a_null_item_is_found_in_the_row_of_its_list_and_nowhere_beside_it() {
        let item = Arc::new(Field::new_list_field(DataType::Int32, true));
        let lists = ListArray::new(item, OffsetBuffer::from_lengths([0, 1, 0, 3]), numbers(), None);
        let strict = DataType::List(field("item", &DataType::Int32));
        assert_eq!(null_part(&strict, &lists), Some((".item".to_owned(), 3)));
        assert_eq!(null_part(&strict, &lists.slice(0, 2)), None);
    }

    #[test]
    fn a_null_item_of_a_vector_is_found_unless_the_vector_is_null() {
        let item = Arc::new(Field::new_list_field(DataType::Int32, true));
        let of = |valid: [bool; 2]| {
            let nulls = Some(NullBuffer::from(valid.to_vec()));
            let vectors = FixedSizeListArray::new(item.clone(), 2, numbers(), nulls);
            let strict = DataType::FixedSizeList(field("item", &DataType::Int32), 2);
            null_part(&strict, &vectors)
        };
        assert_eq!(of([false, true]), Some((".item".to_owned(), 1)));
        assert_eq!(of([false, false]), None);
    }
}
