//! Doubles for columns of another number type: rounded floats, and whole numbers.
//!
//! Owns: which floats are rounded to the nearest one of a narrower column (items of vectors always,
//! others where the caller asks for it), and doubles that stand for integers.
//! Does not own: casts that keep every value (`cast`).

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowPrimitiveType, Float16Type, Float32Type, Float64Type};
use arrow_array::{
    Array, ArrayRef, FixedSizeListArray, GenericListArray, MapArray, OffsetSizeTrait,
    PrimitiveArray, RecordBatch, RecordBatchOptions, StructArray,
};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Schema};

use super::cast::{item_of, parts_of};
use crate::types::{Error, Result, TypeName};

type Half = <Float16Type as ArrowPrimitiveType>::Native;

/// 2^53 - 1: up to here each integer has a double of its own. A larger whole double may be a
/// rounded integer.
const LARGEST_WHOLE: f64 = 9_007_199_254_740_991.0;

/// Which floats may be rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rounding {
    /// Items of fixed-size lists.
    Vectors,
    /// All of them.
    All,
}

/// `array` with the floats rounded that `to` holds in fewer bits, where `rounding` allows it.
///
/// # Errors
/// An input error that names column and row where a finite number would become infinite.
pub(super) fn rounded(array: &ArrayRef, to: &Field, rounding: Rounding) -> Result<ArrayRef> {
    if !narrows(array.data_type(), to.data_type(), rounding) {
        return Ok(array.clone());
    }
    let mut is_suspect = false;
    let made = round(array, to.data_type(), rounding, &mut is_suspect).map_err(|error| {
        Error::input(format!("column '{}': {error}", to.name())).with_source(error)
    })?;
    let is_beyond = |row: &usize| is_beyond(&array.slice(*row, 1), to.data_type(), rounding);
    if is_suspect && let Some(row) = (0..array.len()).find(is_beyond) {
        return Err(Error::input(format!(
            "column '{}' is of type {}, expected {}: row {row} has a finite number that would \
             become infinite",
            to.name(),
            TypeName(array.data_type()),
            TypeName(to.data_type())
        )));
    }
    Ok(made)
}

/// The columns of `batch` that `schema` holds in floats of fewer bits, rounded to the nearest.
///
/// # Errors
/// An input error that names column and row where a finite number would become infinite.
pub fn round_floats(batch: &RecordBatch, schema: &Schema) -> Result<RecordBatch> {
    let (mut fields, mut columns) = (Vec::new(), Vec::new());
    for (field, column) in batch.schema_ref().fields().iter().zip(batch.columns()) {
        let column = match schema.column_with_name(field.name()) {
            Some((_, to)) => rounded(column, to, Rounding::All)?,
            None => column.clone(),
        };
        fields.push(field.as_ref().clone().with_data_type(column.data_type().clone()));
        columns.push(column);
    }
    let metadata = batch.schema_ref().metadata().clone();
    let schema = Arc::new(Schema::new_with_metadata(fields, metadata));
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(schema, columns, &options)
        .map_err(|error| Error::input(error.to_string()).with_source(error))
}

/// Whether a cast would round floats that `rounding` names.
pub(super) fn narrows(from: &DataType, to: &DataType, rounding: Rounding) -> bool {
    let part = |from: &Field, to: &Field| narrows(from.data_type(), to.data_type(), rounding);
    match (from, to) {
        (DataType::Struct(from), DataType::Struct(to)) => {
            from.iter().any(|from| named(to, from.name()).is_some_and(|to| part(from, to)))
        }
        (DataType::Map(from, _), DataType::Map(to, _)) => {
            let pairs = parts_of(from.data_type()).zip(parts_of(to.data_type()));
            pairs.is_some_and(|(from, to)| from.iter().zip(to).any(|(from, to)| part(from, to)))
        }
        _ => match (item_of(from), item_of(to)) {
            (Some(from), Some(item)) => {
                narrows(from.data_type(), item.data_type(), inside(to, rounding))
            }
            _ => rounding == Rounding::All && is_narrower(from, to),
        },
    }
}

const fn is_narrower(from: &DataType, to: &DataType) -> bool {
    matches!(
        (from, to),
        (DataType::Float64, DataType::Float32 | DataType::Float16)
            | (DataType::Float32, DataType::Float16)
    )
}

/// What may be rounded among the items of a list of type `to`.
const fn inside(to: &DataType, rounding: Rounding) -> Rounding {
    if matches!(to, DataType::FixedSizeList(_, _)) { Rounding::All } else { rounding }
}

fn named<'a>(parts: &'a [FieldRef], name: &str) -> Option<&'a FieldRef> {
    parts.iter().find(|part| part.name() == name)
}

/// Sets `is_suspect` where a value may have become infinite, values that no row shows included.
fn round(
    array: &ArrayRef,
    to: &DataType,
    rounding: Rounding,
    is_suspect: &mut bool,
) -> Result<ArrayRef, ArrowError> {
    match (array.data_type(), to) {
        (DataType::Struct(_), DataType::Struct(to)) => {
            let to_of = |part: &Field, _| named(to, part.name());
            Ok(Arc::new(round_parts(array.as_struct(), to_of, rounding, is_suspect)?))
        }
        (DataType::Map(field, ordered), DataType::Map(to, _)) => {
            let map = array.as_map();
            let to = parts_of(to.data_type()).unwrap_or_default();
            let to_of = |_: &Field, place: usize| to.get(place);
            let entries = round_parts(map.entries(), to_of, rounding, is_suspect)?;
            let field = field.as_ref().clone().with_data_type(entries.data_type().clone());
            let (offsets, nulls) = (map.offsets().clone(), map.nulls().cloned());
            Ok(Arc::new(MapArray::try_new(Arc::new(field), offsets, entries, nulls, *ordered)?))
        }
        (DataType::List(item), to) => round_list::<i32>(array, item, to, rounding, is_suspect),
        (DataType::LargeList(item), to) => round_list::<i64>(array, item, to, rounding, is_suspect),
        (DataType::FixedSizeList(item, size), to) => {
            let Some(to_item) = item_of(to) else { return Ok(array.clone()) };
            let list = array.as_fixed_size_list();
            let rounding = inside(to, rounding);
            let values = round(list.values(), to_item.data_type(), rounding, is_suspect)?;
            let item = item.as_ref().clone().with_data_type(values.data_type().clone());
            let nulls = list.nulls().cloned();
            Ok(Arc::new(FixedSizeListArray::try_new(Arc::new(item), *size, values, nulls)?))
        }
        (from, to) if rounding == Rounding::All && is_narrower(from, to) => {
            round_numbers(array, to, is_suspect)
        }
        _ => Ok(array.clone()),
    }
}

fn round_list<O: OffsetSizeTrait>(
    array: &ArrayRef,
    item: &FieldRef,
    to: &DataType,
    rounding: Rounding,
    is_suspect: &mut bool,
) -> Result<ArrayRef, ArrowError> {
    let Some(to_item) = item_of(to) else { return Ok(array.clone()) };
    let list = array.as_list::<O>();
    let values = round(list.values(), to_item.data_type(), inside(to, rounding), is_suspect)?;
    let item = Arc::new(item.as_ref().clone().with_data_type(values.data_type().clone()));
    let (offsets, nulls) = (list.offsets().clone(), list.nulls().cloned());
    Ok(Arc::new(GenericListArray::<O>::try_new(item, offsets, values, nulls)?))
}

fn round_parts<'a>(
    array: &StructArray,
    to_of: impl Fn(&Field, usize) -> Option<&'a FieldRef>,
    rounding: Rounding,
    is_suspect: &mut bool,
) -> Result<StructArray, ArrowError> {
    let (mut fields, mut parts) = (Vec::new(), Vec::new());
    for (place, (field, part)) in array.fields().iter().zip(array.columns()).enumerate() {
        let part = match to_of(field, place) {
            Some(to) => round(part, to.data_type(), rounding, is_suspect)?,
            None => part.clone(),
        };
        fields.push(field.as_ref().clone().with_data_type(part.data_type().clone()));
        parts.push(part);
    }
    let (nulls, rows) = (array.nulls().cloned(), array.len());
    StructArray::try_new_with_length(fields.into(), parts, nulls, rows)
}

#[expect(clippy::cast_possible_truncation, reason = "rounds to the nearest, as it is meant to")]
fn round_numbers(
    array: &ArrayRef,
    to: &DataType,
    is_suspect: &mut bool,
) -> Result<ArrayRef, ArrowError> {
    if to == &DataType::Float32 {
        let rounded: PrimitiveArray<Float32Type> =
            array.as_primitive::<Float64Type>().unary(|number| number as f32);
        *is_suspect |= rounded.values().iter().any(|number| number.is_infinite());
        return Ok(Arc::new(rounded));
    }
    let rounded: PrimitiveArray<Float16Type> = match array.data_type() {
        DataType::Float64 => array.as_primitive::<Float64Type>().unary(nearest_half),
        DataType::Float32 => array.as_primitive::<Float32Type>().unary(Half::from_f32),
        other => return cast_with_options(array, other, &CastOptions::default()),
    };
    *is_suspect |= rounded.values().iter().any(|number| number.is_infinite());
    Ok(Arc::new(rounded))
}

/// Whether a row shows a finite number that becomes infinite.
fn is_beyond(array: &ArrayRef, to: &DataType, rounding: Rounding) -> bool {
    let is_part_beyond = |part: &ArrayRef, to: Option<&FieldRef>| {
        to.is_some_and(|to| is_beyond(part, to.data_type(), rounding))
    };
    let mut valid = (0..array.len()).filter(|row| array.is_valid(*row));
    match (array.data_type(), to) {
        (DataType::Struct(fields), DataType::Struct(to)) => valid.any(|row| {
            let mut parts = fields.iter().zip(array.as_struct().columns());
            parts.any(|(field, part)| is_part_beyond(&part.slice(row, 1), named(to, field.name())))
        }),
        (DataType::Map(_, _), DataType::Map(to, _)) => valid.any(|row| {
            let entries = array.as_map().value(row);
            let to = parts_of(to.data_type()).unwrap_or_default();
            entries.columns().iter().zip(to).any(|(part, to)| is_part_beyond(part, Some(to)))
        }),
        (from, to) if item_of(from).is_some() => {
            let Some(item) = item_of(to) else { return false };
            valid.any(|row| is_beyond(&items(array, row), item.data_type(), inside(to, rounding)))
        }
        (from, to) if rounding == Rounding::All && is_narrower(from, to) => {
            valid.any(|row| becomes_infinite(number(array, row), to))
        }
        _ => false,
    }
}

/// The items of a list.
pub(super) fn items(array: &ArrayRef, row: usize) -> ArrayRef {
    match array.data_type() {
        DataType::List(_) => array.as_list::<i32>().value(row),
        DataType::LargeList(_) => array.as_list::<i64>().value(row),
        _ => array.as_fixed_size_list().value(row),
    }
}

/// The half-precision float nearest to a double. The first step, to single precision, rounds to
/// odd: an inexact result has its last bit set, so that the second step sees no false tie.
#[expect(clippy::cast_possible_truncation, reason = "rounds to the nearest, as it is meant to")]
fn nearest_half(number: f64) -> Half {
    let single = number as f32;
    let wide = f64::from(single);
    if !number.is_finite() || wide.to_bits() == number.to_bits() {
        return Half::from_f32(single);
    }
    let bits = single.to_bits();
    let towards_zero = if wide.abs() > number.abs() { bits - 1 } else { bits };
    Half::from_f32(f32::from_bits(towards_zero | 1))
}

#[expect(clippy::cast_possible_truncation, reason = "rounds to the nearest, as `round_numbers`")]
fn becomes_infinite(number: f64, to: &DataType) -> bool {
    let is_infinite = match to {
        DataType::Float32 => (number as f32).is_infinite(),
        _ => nearest_half(number).is_infinite(),
    };
    number.is_finite() && is_infinite
}

fn number(array: &ArrayRef, row: usize) -> f64 {
    match array.data_type() {
        DataType::Float32 => f64::from(array.as_primitive::<Float32Type>().value(row)),
        _ => array.as_primitive::<Float64Type>().value(row),
    }
}

/// Doubles as the integers that they are: pandas makes a float64 column of integers where a value
/// is missing.
///
/// # Errors
/// An input error that names column, row and value: not a whole number, or one that may be rounded.
pub(super) fn whole_numbers(array: &ArrayRef, to: &Field) -> Result<ArrayRef> {
    let refused = |row: usize, reason: &str| {
        Error::input(format!(
            "column '{}' is of type double, expected {}: row {row} has {}, {reason}",
            to.name(),
            TypeName(to.data_type()),
            number(array, row)
        ))
    };
    let numbers = array.as_primitive::<Float64Type>();
    for row in (0..array.len()).filter(|row| array.is_valid(*row)) {
        let number = numbers.value(row);
        if number.is_nan() || number.fract() != 0.0 {
            return Err(refused(row, "which is not a whole number"));
        }
        if number.abs() > LARGEST_WHOLE {
            return Err(refused(row, "which a double may have rounded"));
        }
    }
    let integers =
        cast_with_options(array, to.data_type(), &CastOptions::default()).map_err(|error| {
            Error::input(format!("column '{}': {error}", to.name())).with_source(error)
        })?;
    // The cast makes a null of what is out of range.
    let is_lost = |row: &usize| integers.is_null(*row) && array.is_valid(*row);
    match (0..array.len()).find(is_lost) {
        Some(row) => Err(refused(row, "which is out of range")),
        None => Ok(integers),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_double_becomes_the_nearest_half_and_is_rounded_once() {
        let above = 1.0 + 2.0_f64.powi(-11);
        for (number, half) in [
            (above, 1.0),
            (above + 2.0_f64.powi(-40), 1.000_976_562_5),
            (-above - 2.0_f64.powi(-40), -1.000_976_562_5),
            (above - 2.0_f64.powi(-40), 1.0),
            (1e-300, 0.0),
            (1e300, f64::INFINITY),
            (65_519.999, 65_504.0),
            (0.1, 0.099_975_585_937_5),
        ] {
            assert_eq!(nearest_half(number).to_f64().to_bits(), f64::to_bits(half), "{number}");
        }
        assert!(nearest_half(f64::NAN).is_nan());
    }
}
