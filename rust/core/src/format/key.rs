//! Primary keys as order-preserving bytes: one byte string a row, whatever the columns.
//!
//! Owns: the encoding. Byte order is tuple order and no two tuples share bytes. It equals the
//! composite encoding that lance 14.0.2 stores in `_pk_index/`, and is used in memory for
//! single-column keys too.
//! Does not own: the typed value that a single-column `_pk_index/` stores.
//!
//! A value is a tag (0 null, 1 not null), then: integers and dates as 8 big-endian bytes with
//! the sign bit flipped (unsigned ones unflipped), booleans as one byte, strings and binaries
//! with 0x00 written as 0x00 0xFF and closed by 0x00 0x00.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::{DataType, Schema};

use crate::types::{Error, KeyBytes, Result};

/// Encodes the key columns of batches of one schema.
#[derive(Clone, Debug)]
pub struct KeyEncoder {
    columns: Vec<usize>,
    names: Vec<String>,
}

impl KeyEncoder {
    /// An encoder for the key `names`, in primary-key order, in batches of `schema`.
    ///
    /// # Errors
    /// An input error that names a missing column or a type that cannot be a key.
    pub fn new(schema: &Schema, names: &[String]) -> Result<Self> {
        let mut columns = Vec::with_capacity(names.len());
        for name in names {
            let column = schema
                .index_of(name)
                .map_err(|_| Error::input(format!("primary key column '{name}' is missing")))?;
            let data_type = schema.field(column).data_type();
            if !is_key_type(data_type) {
                return Err(Error::input(format!(
                    "column '{name}' of type {data_type} cannot be a primary key; use an integer, \
                     bool, utf8, large_utf8, binary or large_binary column"
                )));
            }
            columns.push(column);
        }
        Ok(Self { columns, names: names.to_vec() })
    }

    /// Names of the key columns, in primary-key order.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Indices of the key columns in the schema, in primary-key order.
    #[must_use]
    pub fn columns(&self) -> &[usize] {
        &self.columns
    }

    /// The keys of all rows of `batch`, in row order.
    #[must_use]
    pub fn encode(&self, batch: &RecordBatch) -> Vec<KeyBytes> {
        let columns: Vec<KeyColumn<'_>> =
            self.columns.iter().map(|column| KeyColumn::new(batch.column(*column))).collect();
        let mut scratch = Vec::with_capacity(64);
        (0..batch.num_rows())
            .map(|row| {
                scratch.clear();
                for column in &columns {
                    column.append(row, &mut scratch);
                }
                KeyBytes::new(&scratch)
            })
            .collect()
    }
}

/// Whether a column of this type can be part of a primary key that lance 14.0.2 reads too.
#[must_use]
pub const fn is_key_type(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Int8
            | DataType::Int16
            | DataType::Int32
            | DataType::Int64
            | DataType::UInt8
            | DataType::UInt16
            | DataType::UInt32
            | DataType::UInt64
            | DataType::Boolean
            | DataType::Utf8
            | DataType::LargeUtf8
            | DataType::Binary
            | DataType::LargeBinary
    )
}

/// A key column with its type resolved once a batch instead of once a row.
enum KeyColumn<'a> {
    Signed(Box<dyn Fn(usize) -> i64 + 'a>, &'a ArrayRef),
    Unsigned(Box<dyn Fn(usize) -> u64 + 'a>, &'a ArrayRef),
    Boolean(&'a ArrayRef),
    Bytes(Box<dyn Fn(usize) -> &'a [u8] + 'a>, &'a ArrayRef),
}

impl<'a> KeyColumn<'a> {
    fn new(array: &'a ArrayRef) -> Self {
        macro_rules! signed {
            ($type:ty) => {{
                let values = array.as_primitive::<$type>().values();
                Self::Signed(Box::new(move |row| i64::from(values[row])), array)
            }};
        }
        macro_rules! unsigned {
            ($type:ty) => {{
                let values = array.as_primitive::<$type>().values();
                Self::Unsigned(Box::new(move |row| u64::from(values[row])), array)
            }};
        }
        match array.data_type() {
            DataType::Int8 => signed!(Int8Type),
            DataType::Int16 => signed!(Int16Type),
            DataType::Int32 => signed!(Int32Type),
            DataType::Int64 => signed!(Int64Type),
            DataType::UInt8 => unsigned!(UInt8Type),
            DataType::UInt16 => unsigned!(UInt16Type),
            DataType::UInt32 => unsigned!(UInt32Type),
            DataType::UInt64 => unsigned!(UInt64Type),
            DataType::Boolean => Self::Boolean(array),
            DataType::Utf8 => {
                let strings = array.as_string::<i32>();
                Self::Bytes(Box::new(move |row| strings.value(row).as_bytes()), array)
            }
            DataType::LargeUtf8 => {
                let strings = array.as_string::<i64>();
                Self::Bytes(Box::new(move |row| strings.value(row).as_bytes()), array)
            }
            DataType::Binary => {
                let binaries = array.as_binary::<i32>();
                Self::Bytes(Box::new(move |row| binaries.value(row)), array)
            }
            DataType::LargeBinary => {
                let binaries = array.as_binary::<i64>();
                Self::Bytes(Box::new(move |row| binaries.value(row)), array)
            }
            other => unreachable!("KeyEncoder::new refuses key columns of type {other}"),
        }
    }

    fn append(&self, row: usize, out: &mut Vec<u8>) {
        let (Self::Signed(_, array)
        | Self::Unsigned(_, array)
        | Self::Boolean(array)
        | Self::Bytes(_, array)) = self;
        if array.is_null(row) {
            out.push(0);
            return;
        }
        out.push(1);
        match self {
            Self::Signed(value, _) => {
                let flipped = value(row).cast_unsigned() ^ (1 << 63);
                out.extend_from_slice(&flipped.to_be_bytes());
            }
            Self::Unsigned(value, _) => out.extend_from_slice(&value(row).to_be_bytes()),
            Self::Boolean(array) => out.push(u8::from(array.as_boolean().value(row))),
            Self::Bytes(value, _) => append_escaped(value(row), out),
        }
    }
}

fn append_escaped(bytes: &[u8], out: &mut Vec<u8>) {
    for byte in bytes {
        out.push(*byte);
        if *byte == 0 {
            out.push(0xff);
        }
    }
    out.extend_from_slice(&[0, 0]);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{BinaryArray, Int32Array, Int64Array, StringArray, UInt64Array};
    use arrow_schema::Field;

    use super::*;

    fn keys(columns: Vec<(&str, ArrayRef)>) -> Vec<KeyBytes> {
        let names: Vec<String> = columns.iter().map(|(name, _)| (*name).to_owned()).collect();
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        KeyEncoder::new(batch.schema_ref(), &names).unwrap().encode(&batch)
    }

    #[test]
    fn byte_order_is_number_order_across_the_sign() {
        let values = vec![i64::MIN, -5, -1, 0, 1, 7, i64::MAX];
        assert!(keys(vec![("a", Arc::new(Int64Array::from(values)))]).is_sorted());
        let values = vec![0, 1, 1 << 40, u64::MAX];
        assert!(keys(vec![("a", Arc::new(UInt64Array::from(values)))]).is_sorted());
    }

    #[test]
    fn a_composite_key_orders_by_its_first_column_then_by_its_second() {
        let first: ArrayRef = Arc::new(Int32Array::from(vec![-1, 1, 1, 1, 2]));
        let second: ArrayRef = Arc::new(StringArray::from(vec!["z", "a", "ab", "b", ""]));
        let keys = keys(vec![("a", first), ("b", second)]);
        assert!(keys.is_sorted_by(|left, right| left < right));
    }

    #[test]
    fn a_zero_byte_cannot_forge_the_end_of_a_column() {
        let first: ArrayRef =
            Arc::new(BinaryArray::from(vec![b"a".as_slice(), b"a\0", b"a\0\0", b"a\0\0b"]));
        let second: ArrayRef = Arc::new(BinaryArray::from(vec![b"\0b".as_slice(), b"b", b"", b""]));
        let mut keys = keys(vec![("a", first), ("b", second)]);
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), 4);
    }

    #[test]
    fn the_bytes_of_a_key_do_not_change() {
        let keys = keys(vec![
            ("a", Arc::new(Int32Array::from(vec![2]))),
            ("b", Arc::new(StringArray::from(vec!["a\0b"]))),
        ]);
        let expected = [1, 0x80, 0, 0, 0, 0, 0, 0, 2, 1, b'a', 0, 0xff, b'b', 0, 0];
        assert_eq!(keys[0].as_slice(), expected);
    }

    #[test]
    fn a_float_key_is_refused_by_name() {
        let schema = Schema::new(vec![Field::new("score", DataType::Float64, false)]);
        let error = KeyEncoder::new(&schema, &["score".to_owned()]).unwrap_err();
        assert!(error.to_string().contains("column 'score' of type Float64"), "{error}");
    }
}
