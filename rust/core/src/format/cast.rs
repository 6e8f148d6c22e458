//! Casts that keep every value.
//!
//! Owns: which types a column may come in, and the proof that nothing was lost.
//! Does not own: which column it is, or whether it may be null.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BooleanArray, StructArray, new_null_array};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{ArrowError, DataType, Field, FieldRef};
use arrow_select::nullif::nullif;

use crate::types::{Error, Result};

/// Casts where every value survives: the checked cast must succeed and lead back.
pub(super) fn lossless_cast(array: &ArrayRef, field: &Field) -> Result<ArrayRef> {
    let refused = |reason: String| {
        Error::input(format!(
            "column '{}' is of type {}, expected {}: {reason}",
            field.name(),
            array.data_type(),
            field.data_type()
        ))
    };
    if !is_castable(array.data_type(), field.data_type()) {
        return Err(refused("no cast keeps every value".to_owned()));
    }
    if array.data_type() == &DataType::Null {
        return Ok(new_null_array(field.data_type(), array.len()));
    }
    let options = CastOptions { safe: false, ..CastOptions::default() };
    let array = &with_null_parts(array).map_err(|error| refused(error.to_string()))?;
    let cast = cast_with_options(array, field.data_type(), &options)
        .map_err(|error| refused(error.to_string()))?;
    let back = cast_with_options(&cast, array.data_type(), &options)
        .map_err(|error| refused(error.to_string()))?;
    if back.to_data() != array.to_data() {
        let row = first_difference(array, &back);
        return Err(refused(format!("the value in row {row} does not fit")));
    }
    Ok(cast)
}

fn first_difference(left: &ArrayRef, right: &ArrayRef) -> usize {
    (0..left.len())
        .find(|row| left.slice(*row, 1).to_data() != right.slice(*row, 1).to_data())
        .unwrap_or_default()
}

/// Casts that change how a value is held, never what kind of value it is, nor which part of a
/// struct: Arrow casts children by position where their names differ.
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
        _ => match (item_of(from), item_of(to)) {
            (Some(from), Some(to)) => fits(from, to),
            _ => is_same_family(from, to),
        },
    }
}

fn fits(from: &Field, to: &Field) -> bool {
    from.data_type() == to.data_type() || is_castable(from.data_type(), to.data_type())
}

/// What a list has; `None` for what is no list.
pub(super) const fn item_of(data_type: &DataType) -> Option<&FieldRef> {
    match data_type {
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            Some(item)
        }
        _ => None,
    }
}

/// Key and value of a map's entries.
fn parts_of(entries: &DataType) -> Option<&[FieldRef]> {
    match entries {
        DataType::Struct(parts) if parts.len() == 2 => Some(parts.as_ref()),
        _ => None,
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
    if let DataType::Dictionary(_, value) = from {
        return is_castable(value, to) || value.as_ref() == to;
    }
    let (from, to) = (family(from), family(to));
    from == Family::Null || (from == to && from != Family::Other)
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

/// Structs of which every part is null where the struct is. What stands there is no value, but arrow
/// casts it, and fails where it would not fit.
fn with_null_parts(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    let Some(parts) = array.as_struct_opt() else { return Ok(array.clone()) };
    let absent = parts.nulls().map(|nulls| BooleanArray::new(!nulls.inner(), None));
    let masked = parts.columns().iter().map(|part| match &absent {
        Some(absent) => with_null_parts(&nullif(part, absent)?),
        None => with_null_parts(part),
    });
    let masked = masked.collect::<Result<Vec<_>, _>>()?;
    let (fields, nulls) = (parts.fields().clone(), parts.nulls().cloned());
    Ok(Arc::new(StructArray::try_new_with_length(fields, masked, nulls, parts.len())?))
}
