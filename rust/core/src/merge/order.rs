//! The order of values: sequences, minima and maxima, equal items.
//!
//! Owns: a comparison of rows of columns. NaN is the greatest float and equals itself, -0.0 equals
//! 0.0, and a null loses: it is the least where the greatest wins, and the greatest where the least
//! wins.
//! Does not own: which rows are compared.

use std::cmp::Ordering;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Float16Type, Float32Type, Float64Type, Int64Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, PrimitiveArray};
use arrow_buffer::NullBuffer;
use arrow_cast::cast;
use arrow_row::{RowConverter, Rows, SortField};
use arrow_schema::{ArrowError, DataType, SortOptions};

/// Who wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wins {
    /// The greatest row.
    Greatest,
    /// The least row.
    Least,
}

/// The order of the rows of one or several columns.
#[derive(Debug)]
pub(super) struct Order {
    form: Form,
    wins: Wins,
    /// Rows in which every column is null.
    all_null: Option<NullBuffer>,
}

#[derive(Debug)]
enum Form {
    /// One column of at most 8 bytes a value: a number that keeps the order.
    Words(Vec<u64>, Option<NullBuffer>),
    /// Encoded rows, whose bytes compare as the rows do, with nulls at the losing end.
    Rows(Rows),
}

impl Order {
    /// The order of the rows of `columns`, the most significant first.
    pub(super) fn new(columns: &[ArrayRef], wins: Wins) -> Result<Self, ArrowError> {
        let columns = columns.iter().map(same_floats).collect::<Result<Vec<_>, _>>()?;
        let nulls: Vec<_> = columns.iter().map(Array::logical_nulls).collect();
        let all_null = all_null(&nulls);
        if let [column] = columns.as_slice()
            && let Some(words) = words(column)?
        {
            return Ok(Self { form: Form::Words(words, column.logical_nulls()), wins, all_null });
        }
        let options =
            SortOptions { descending: false, nulls_first: matches!(wins, Wins::Greatest) };
        let field = |of: &ArrayRef| SortField::new_with_options(of.data_type().clone(), options);
        let converter = RowConverter::new(columns.iter().map(field).collect())?;
        Ok(Self { form: Form::Rows(converter.convert_columns(&columns)?), wins, all_null })
    }

    /// Whether every column is null in `row`.
    pub(super) fn is_null(&self, row: usize) -> bool {
        self.all_null.as_ref().is_some_and(|nulls| nulls.is_null(row))
    }

    /// How `row` stands to `best`: greater where it wins.
    pub(super) fn compare(&self, row: usize, best: usize) -> Ordering {
        let order = match &self.form {
            Form::Rows(rows) => rows.row(row).cmp(&rows.row(best)),
            Form::Words(words, nulls) => {
                let is_null = |row| nulls.as_ref().is_some_and(|nulls| nulls.is_null(row));
                match (is_null(row), is_null(best)) {
                    (false, false) => words[row].cmp(&words[best]),
                    (true, true) => return Ordering::Equal,
                    (true, false) => return Ordering::Less,
                    (false, true) => return Ordering::Greater,
                }
            }
        };
        match self.wins {
            Wins::Greatest => order,
            Wins::Least => order.reverse(),
        }
    }
}

/// Encoded values that are equal where the values are.
pub(super) fn equality(values: &ArrayRef) -> Result<Rows, ArrowError> {
    let values = same_floats(values)?;
    let converter = RowConverter::new(vec![SortField::new(values.data_type().clone())])?;
    converter.convert_columns(&[values])
}

/// Rows that are null in all columns.
fn all_null(nulls: &[Option<NullBuffer>]) -> Option<NullBuffer> {
    let mut all: Option<NullBuffer> = None;
    for nulls in nulls {
        let nulls = nulls.as_ref()?;
        all = Some(match all {
            None => nulls.clone(),
            Some(all) => NullBuffer::new(all.inner() | nulls.inner()),
        });
    }
    all
}

/// Floats with one NaN and one zero; every other column as it is.
fn same_floats(column: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    // -0.0 + 0.0 is 0.0, and every other number stays.
    macro_rules! same {
        ($of:ty) => {{
            type Native = <$of as ArrowPrimitiveType>::Native;
            let zero = Native::default();
            let same = |value: Native| if value.is_nan() { Native::NAN } else { value + zero };
            let made: PrimitiveArray<$of> = column.as_primitive::<$of>().unary(same);
            Ok(std::sync::Arc::new(made))
        }};
    }
    match column.data_type() {
        DataType::Float16 => same!(Float16Type),
        DataType::Float32 => same!(Float32Type),
        DataType::Float64 => same!(Float64Type),
        _ => Ok(column.clone()),
    }
}

/// A number for each value that keeps the order; `None` for types of more than 8 bytes.
fn words(column: &ArrayRef) -> Result<Option<Vec<u64>>, ArrowError> {
    const SIGN: u64 = 1 << 63;
    let signed = |column: &ArrayRef| {
        let values = column.as_primitive::<Int64Type>().values();
        values.iter().map(|value| value.cast_unsigned() ^ SIGN).collect::<Vec<u64>>()
    };
    Ok(match column.data_type() {
        of if of.is_unsigned_integer() => {
            let column = cast(column, &DataType::UInt64)?;
            Some(column.as_primitive::<UInt64Type>().values().to_vec())
        }
        of if of.is_signed_integer() => Some(signed(&cast(column, &DataType::Int64)?)),
        of if of.is_floating() => {
            let column = cast(column, &DataType::Float64)?;
            let values = column.as_primitive::<Float64Type>().values();
            let word = |value: &f64| {
                let bits = value.to_bits();
                // Negative floats order by falling bits.
                if bits & SIGN == 0 { bits | SIGN } else { !bits }
            };
            Some(values.iter().map(word).collect())
        }
        DataType::Date64
        | DataType::Timestamp(..)
        | DataType::Duration(_)
        | DataType::Time64(_) => Some(signed(&cast(column, &DataType::Int64)?)),
        DataType::Date32 | DataType::Time32(_) => {
            let column = cast(&cast(column, &DataType::Int32)?, &DataType::Int64)?;
            Some(signed(&column))
        }
        _ => None,
    })
}
