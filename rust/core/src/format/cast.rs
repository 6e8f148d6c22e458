//! Casts that keep every value.
//!
//! Owns: which types a column may come in, and the proof that nothing was lost.
//! Does not own: which column it is, whether it may be null, or which floats are rounded
//! (`floats`).

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{
    Array, ArrayRef, BooleanArray, FixedSizeListArray, GenericListArray, MapArray, OffsetSizeTrait,
    StructArray, new_null_array,
};
use arrow_cast::display::array_value_to_string;
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{ArrowError, DataType, Field, FieldRef};
use arrow_select::nullif::nullif;

use super::floats::{Rounding, items, narrows, rounded};
use crate::types::{Error, Result, TypeName};

/// What a caller does about floats that the column cannot hold exactly.
const ROUND: &str = "; cast the column, or let round_floats=True store the nearest float";
/// What a caller does about whole numbers that a float cannot hold exactly.
const AS_FLOATS: &str = "; give the values as floats, to store the nearest";
/// What a caller does about times without a zone, for a column that stores instants.
const NAME_ZONE: &str = "; a time without a zone is no instant: give it one, such as \
                         datetime(..., tzinfo=UTC) or pyarrow.compute.assume_timezone";
/// What a caller does about instants, for a column of times without a zone.
const LEAVE_ZONE: &str = "; convert the times to the zone that you mean, and remove it: \
                          pyarrow.compute.local_timestamp";
/// Characters of a value in an error.
const MAX_SHOWN: usize = 100;

/// Casts where every value survives: the checked cast must succeed and lead back. Only items of
/// vectors are rounded, to the nearest float.
pub(super) fn lossless_cast(array: &ArrayRef, field: &Field) -> Result<ArrayRef> {
    let (from, to) = (array.data_type(), field.data_type());
    let refused = |reason: &str| {
        Error::input(format!(
            "column '{}' is of type {}, expected {}: {reason}",
            field.name(),
            TypeName(from),
            TypeName(to)
        ))
    };
    if !is_castable(from, to) {
        return Err(refused(&format!("no cast keeps every value{}", way_out(from, to))));
    }
    let unfit = |row: usize| {
        let value = shown(array, row);
        let then = if narrows(from, to, Rounding::All) {
            ROUND
        } else if is_whole_for_float(from, to) {
            AS_FLOATS
        } else {
            ""
        };
        refused(&format!("row {row} has {value}, which does not fit{then}"))
    };
    let rounded = rounded(array, field, Rounding::Vectors)?;
    let options = CastOptions { safe: false, ..CastOptions::default() };
    let given = &prepared(&rounded, to).map_err(|error| refused(&error.to_string()))?;
    let cast = cast_with_options(given, to, &options).map_err(|_| {
        let row = first_refused(given, to, &options);
        match other_length(&given.slice(row, 1), to) {
            Some((size, length)) => {
                refused(&format!("a vector of {size} values in row {row} has length {length}"))
            }
            None => unfit(row),
        }
    })?;
    // A float may be beyond the integers that it is compared with: 2^63 stands for 2^63 - 1.
    let back = cast_with_options(&cast, given.data_type(), &options)
        .map_err(|_| unfit(first_refused(&cast, given.data_type(), &options)))?;
    if back.to_data() != given.to_data() {
        return Err(unfit(first_difference(given, &back)));
    }
    Ok(cast)
}

/// What a caller does about a column of a type that no cast brings to the table's.
fn way_out(from: &DataType, to: &DataType) -> String {
    match (from, to) {
        (DataType::Timestamp(_, None), DataType::Timestamp(_, Some(_))) => NAME_ZONE.to_owned(),
        (DataType::Timestamp(_, Some(_)), DataType::Timestamp(_, None)) => LEAVE_ZONE.to_owned(),
        (DataType::FixedSizeList(_, given), DataType::FixedSizeList(_, width))
            if given != width =>
        {
            format!("; the column stores vectors of {width} values, the rows bring {given}")
        }
        _ => format!("; convert the values to {} before the write", TypeName(to)),
    }
}

/// A value as text, of which a long one shows its beginning.
fn shown(array: &ArrayRef, row: usize) -> String {
    let whole = array_value_to_string(array, row).unwrap_or_else(|_| "a value".to_owned());
    match whole.char_indices().nth(MAX_SHOWN) {
        Some((end, _)) => format!("{}...", &whole[..end]),
        None => whole,
    }
}

/// The size of the vector type and the length of the first list that does not fit it.
fn other_length(array: &ArrayRef, to: &DataType) -> Option<(usize, usize)> {
    let mut valid = (0..array.len()).filter(|row| array.is_valid(*row));
    if let (DataType::Struct(fields), DataType::Struct(to)) = (array.data_type(), to) {
        return valid.find_map(|row| {
            let mut parts = fields.iter().zip(array.as_struct().columns());
            parts.find_map(|(field, part)| {
                let to = to.iter().find(|to| to.name() == field.name())?;
                other_length(&part.slice(row, 1), to.data_type())
            })
        });
    }
    if let (DataType::Map(_, _), DataType::Map(to, _)) = (array.data_type(), to) {
        let to = parts_of(to.data_type())?;
        return valid.find_map(|row| {
            let entries = array.as_map().value(row);
            let mut parts = entries.columns().iter().zip(to);
            parts.find_map(|(part, to)| other_length(part, to.data_type()))
        });
    }
    let (item, _) = (item_of(to)?, item_of(array.data_type())?);
    valid.find_map(|row| {
        let items = items(array, row);
        match to {
            DataType::FixedSizeList(_, size) if usize::try_from(*size) != Ok(items.len()) => {
                Some((usize::try_from(*size).ok()?, items.len()))
            }
            _ => other_length(&items, item.data_type()),
        }
    })
}

/// The first row of a column that cannot be cast as a whole, by bisection.
fn first_refused(array: &ArrayRef, to: &DataType, options: &CastOptions<'_>) -> usize {
    let (mut first, mut end) = (0, array.len());
    while end - first > 1 {
        let middle = first + (end - first) / 2;
        match cast_with_options(&array.slice(first, middle - first), to, options) {
            Ok(_) => first = middle,
            Err(_) => end = middle,
        }
    }
    first
}

fn first_difference(left: &ArrayRef, right: &ArrayRef) -> usize {
    (0..left.len())
        .find(|row| left.slice(*row, 1).to_data() != right.slice(*row, 1).to_data())
        .unwrap_or_default()
}

/// Whether a cast changes only how values are held, not their kind and not which part of a struct
/// they are: Arrow casts children by position where their names differ.
fn is_castable(from: &DataType, to: &DataType) -> bool {
    match (from, to) {
        (DataType::Struct(from), DataType::Struct(to)) => {
            let given = |to: &FieldRef| {
                let mut named = from.iter().filter(|from| from.name() == to.name());
                named.next().is_some_and(|from| fits(from, to)) && named.next().is_none()
            };
            from.len() == to.len() && to.iter().all(given)
        }
        (DataType::Map(from, from_sorted), DataType::Map(to, to_sorted)) => {
            // Writers name keys and values as they like.
            let pairs = parts_of(from.data_type()).zip(parts_of(to.data_type()));
            from_sorted == to_sorted
                && pairs
                    .is_some_and(|(from, to)| from.iter().zip(to).all(|(from, to)| fits(from, to)))
        }
        // Checked before anything of that size is allocated.
        (DataType::FixedSizeList(_, from), DataType::FixedSizeList(_, to)) if from != to => false,
        _ => match (item_of(from), item_of(to)) {
            (Some(from), Some(to)) => fits(from, to),
            _ => is_same_family(from, to),
        },
    }
}

fn fits(from: &Field, to: &Field) -> bool {
    from.data_type() == to.data_type() || is_castable(from.data_type(), to.data_type())
}

/// The item field of a list; `None` for any other type.
pub(super) const fn item_of(data_type: &DataType) -> Option<&FieldRef> {
    match data_type {
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            Some(item)
        }
        _ => None,
    }
}

/// Key and value of a map's entries.
pub(super) fn parts_of(entries: &DataType) -> Option<&[FieldRef]> {
    match entries {
        DataType::Struct(parts) if parts.len() == 2 => Some(parts.as_ref()),
        _ => None,
    }
}

/// Whether integers come for floats, alone or as items of lists.
fn is_whole_for_float(from: &DataType, to: &DataType) -> bool {
    match (item_of(from), item_of(to)) {
        (Some(from), Some(to)) => is_whole_for_float(from.data_type(), to.data_type()),
        _ => from.is_integer() && to.is_floating(),
    }
}

fn is_same_family(from: &DataType, to: &DataType) -> bool {
    let family = |data_type: &DataType| match data_type {
        DataType::Null => Family::Null,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Family::Text,
        DataType::Binary
        | DataType::LargeBinary
        | DataType::BinaryView
        | DataType::FixedSizeBinary(_) => Family::Binary,
        DataType::Float16 | DataType::Float32 | DataType::Float64 => Family::Float,
        DataType::Decimal128(_, _) | DataType::Decimal256(_, _) => Family::Decimal,
        DataType::Timestamp(_, zone) => Family::Timestamp(zone.is_some()),
        DataType::Date32 | DataType::Date64 => Family::Date,
        DataType::Time32(_) | DataType::Time64(_) => Family::Time,
        DataType::Duration(_) => Family::Duration,
        other if other.is_integer() => Family::Integer,
        _ => Family::Other,
    };
    // The keys of a dictionary are no part of its values.
    if let DataType::Dictionary(_, value) = from {
        return is_castable(value, to) || value.as_ref() == to;
    }
    if let DataType::Dictionary(_, value) = to {
        return is_castable(from, value) || from == value.as_ref();
    }
    let (from, to) = (family(from), family(to));
    // Whole numbers are often written for floats: `[1, 0, 0]` for a vector.
    let is_whole = from == Family::Integer && to == Family::Float;
    from == Family::Null || is_whole || (from == to && from != Family::Other)
}

#[derive(PartialEq)]
enum Family {
    Null,
    Text,
    Binary,
    Integer,
    Float,
    Decimal,
    Timestamp(bool),
    Date,
    Time,
    Duration,
    Other,
}

/// The same values in a form that arrow 58 casts to `to` and back. Parts of a null struct become
/// null: arrow casts what stands there too, and it may not fit. Items of lists take the name of the
/// target's items, because the cast back would keep that name.
fn prepared(array: &ArrayRef, to: &DataType) -> Result<ArrayRef, ArrowError> {
    match (array.data_type(), to) {
        // Arrow casts no value back to a type that has none.
        (DataType::Null, to) => Ok(new_null_array(to, array.len())),
        (DataType::Struct(_), DataType::Struct(to)) => {
            prepared_struct(array.as_struct(), |name, _| {
                to.iter().find(|to| to.name() == name).map(|to| to.data_type())
            })
        }
        (DataType::Map(field, ordered), DataType::Map(to, _)) => {
            let map = array.as_map();
            let parts = parts_of(to.data_type()).unwrap_or_default();
            let entries =
                prepared_struct(map.entries(), |_, at| parts.get(at).map(|to| to.data_type()))?;
            let field = field.as_ref().clone().with_data_type(entries.data_type().clone());
            let (field, offsets) = (Arc::new(field), map.offsets().clone());
            let (entries, nulls) = (entries.as_struct().clone(), map.nulls().cloned());
            Ok(Arc::new(MapArray::try_new(field, offsets, entries, nulls, *ordered)?))
        }
        (DataType::List(_), to) => prepared_list::<i32>(array, to),
        (DataType::LargeList(_), to) => prepared_list::<i64>(array, to),
        (DataType::FixedSizeList(_, size), to) => {
            let (Some(to), list) = (item_of(to), array.as_fixed_size_list()) else {
                return Ok(array.clone());
            };
            let values = prepared(list.values(), to.data_type())?;
            let (field, nulls) = (retyped(to, &values), list.nulls().cloned());
            Ok(Arc::new(FixedSizeListArray::try_new(field, *size, values, nulls)?))
        }
        // A dictionary may hold a null value, or a value twice: only plain values cast back
        // unchanged.
        (DataType::Dictionary(_, values), to) => {
            prepared(&cast_with_options(array, values, &CastOptions::default())?, to)
        }
        (DataType::BinaryView, DataType::FixedSizeBinary(_)) => {
            cast_with_options(array, &DataType::Binary, &CastOptions::default())
        }
        _ => Ok(array.clone()),
    }
}

fn prepared_list<O: OffsetSizeTrait>(
    array: &ArrayRef,
    to: &DataType,
) -> Result<ArrayRef, ArrowError> {
    let Some(to) = item_of(to) else { return Ok(array.clone()) };
    let list = array.as_list::<O>();
    let values = prepared(list.values(), to.data_type())?;
    let (offsets, nulls) = (list.offsets().clone(), list.nulls().cloned());
    Ok(Arc::new(GenericListArray::<O>::try_new(retyped(to, &values), offsets, values, nulls)?))
}

/// `to_of` returns the target type of a part, by its name and place.
fn prepared_struct<'a>(
    array: &StructArray,
    to_of: impl Fn(&str, usize) -> Option<&'a DataType>,
) -> Result<ArrayRef, ArrowError> {
    let absent = array.nulls().map(|nulls| BooleanArray::new(!nulls.inner(), None));
    let (mut fields, mut parts) = (Vec::new(), Vec::new());
    for (at, (field, part)) in array.fields().iter().zip(array.columns()).enumerate() {
        let part = match &absent {
            Some(absent) => nullif(part, absent)?,
            None => part.clone(),
        };
        let part = match to_of(field.name(), at) {
            Some(to) => prepared(&part, to)?,
            None => part,
        };
        fields.push(field.as_ref().clone().with_data_type(part.data_type().clone()));
        parts.push(part);
    }
    let (nulls, rows) = (array.nulls().cloned(), array.len());
    Ok(Arc::new(StructArray::try_new_with_length(fields.into(), parts, nulls, rows)?))
}

/// An item like `field`, of the type that the values have.
fn retyped(field: &FieldRef, values: &ArrayRef) -> FieldRef {
    let nullable = field.is_nullable() || values.is_nullable();
    let field = field.as_ref().clone().with_nullable(nullable);
    Arc::new(field.with_data_type(values.data_type().clone()))
}
