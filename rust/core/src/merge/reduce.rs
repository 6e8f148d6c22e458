//! Functions that compute a number or a boolean: `sum`, `count`, `bool_and`, `bool_or`.
//!
//! Owns: their loops over values in group order, and the inverse of a sum.
//! Does not own: which types a function takes (`function`).

use std::ops::Range;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Decimal128Type, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type,
    Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, ArrowNativeTypeOp, BooleanArray, PrimitiveArray};
use arrow_schema::{ArrowError, DataType};

/// Calls `$call::<type of the column>($args)`.
macro_rules! for_number {
    ($of:expr, $call:ident($($arg:expr),*)) => {
        match $of {
            DataType::Int8 => Ok($call::<Int8Type>($($arg),*)),
            DataType::Int16 => Ok($call::<Int16Type>($($arg),*)),
            DataType::Int32 => Ok($call::<Int32Type>($($arg),*)),
            DataType::Int64 => Ok($call::<Int64Type>($($arg),*)),
            DataType::UInt8 => Ok($call::<UInt8Type>($($arg),*)),
            DataType::UInt16 => Ok($call::<UInt16Type>($($arg),*)),
            DataType::UInt32 => Ok($call::<UInt32Type>($($arg),*)),
            DataType::UInt64 => Ok($call::<UInt64Type>($($arg),*)),
            DataType::Float16 => Ok($call::<Float16Type>($($arg),*)),
            DataType::Float32 => Ok($call::<Float32Type>($($arg),*)),
            DataType::Float64 => Ok($call::<Float64Type>($($arg),*)),
            DataType::Decimal128(..) => Ok($call::<Decimal128Type>($($arg),*)),
            other => Err(ArrowError::NotYetImplemented(format!("sum of {other}"))),
        }
    };
}

/// The sum of each range, null where all values are.
///
/// An overflow wraps around: the values of a type form a group under wrapping addition, so a total
/// that fits is right whatever stood in between.
pub(super) fn sum(values: &ArrayRef, ranges: &[Range<usize>]) -> Result<ArrayRef, ArrowError> {
    for_number!(values.data_type(), sum_of(values, ranges))
}

/// The inverse of each value.
pub(super) fn negated(values: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    for_number!(values.data_type(), negated_of(values))
}

fn sum_of<T>(values: &ArrayRef, ranges: &[Range<usize>]) -> ArrayRef
where
    T: ArrowPrimitiveType<Native: ArrowNativeTypeOp>,
{
    let array = values.as_primitive::<T>();
    let numbers = array.values();
    let sum = |range: &Range<usize>| {
        let mut total = None;
        for at in range.clone().filter(|at| array.is_valid(*at)) {
            let number = numbers[at];
            total = Some(total.map_or(number, |total: T::Native| total.add_wrapping(number)));
        }
        total
    };
    let sums: PrimitiveArray<T> = ranges.iter().map(sum).collect();
    Arc::new(sums.with_data_type(array.data_type().clone()))
}

fn negated_of<T>(values: &ArrayRef) -> ArrayRef
where
    T: ArrowPrimitiveType<Native: ArrowNativeTypeOp>,
{
    let array = values.as_primitive::<T>();
    let negated: PrimitiveArray<T> = array.unary(ArrowNativeTypeOp::neg_wrapping);
    Arc::new(negated.with_data_type(array.data_type().clone()))
}

/// Whether all (`is_and`) or some values of each range are true; null where all are null.
pub(super) fn all_or_any(values: &ArrayRef, ranges: &[Range<usize>], is_and: bool) -> ArrayRef {
    let array = values.as_boolean();
    let reduced = |range: &Range<usize>| {
        let mut found = range.clone().filter(|at| array.is_valid(*at)).peekable();
        found.peek()?;
        // The first value that decides: false for `and`, true for `or`.
        let is_decided = found.any(|at| array.value(at) != is_and);
        Some(is_decided != is_and)
    };
    Arc::new(ranges.iter().map(reduced).collect::<BooleanArray>())
}
