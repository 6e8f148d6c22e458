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
use arrow_array::{Array, ArrayRef, BooleanArray, RecordBatch};
use arrow_buffer::NullBuffer;
use arrow_schema::{DataType, Schema};

use super::key_view::KeyView;
use crate::types::{Error, KeyBlock, KeyBytes, Result, TypeName};

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
                    "column '{name}' of type {} cannot be a primary key; use an integer, bool, \
                     string, large_string, binary or large_binary column",
                    TypeName(data_type)
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

    /// The keys of all rows of `batch`, in row order, each on its own.
    #[must_use]
    pub fn encode(&self, batch: &RecordBatch) -> Vec<KeyBytes> {
        self.encode_block(batch).iter().map(KeyBytes::new).collect()
    }

    /// The keys of all rows of `batch`, in row order, for comparison: not encoded where the key is
    /// one column of numbers, text or bytes without nulls.
    #[must_use]
    pub fn view<'a>(&self, batch: &'a RecordBatch) -> KeyView<'a> {
        let [column] = self.columns.as_slice() else {
            return KeyView::Encoded(self.encode_block(batch));
        };
        let KeyColumn { values, nulls } = KeyColumn::new(batch.column(*column));
        match (values, nulls) {
            (KeyValues::Numbers(numbers), None) => KeyView::Numbers(numbers),
            (KeyValues::Short { bytes, offsets }, None) => KeyView::Short { bytes, offsets },
            (KeyValues::Long { bytes, offsets }, None) => KeyView::Long { bytes, offsets },
            _ => KeyView::Encoded(self.encode_block(batch)),
        }
    }

    /// The keys of all rows of `batch`, in row order, in one buffer.
    #[must_use]
    pub fn encode_block(&self, batch: &RecordBatch) -> KeyBlock {
        let columns: Vec<KeyColumn<'_>> =
            self.columns.iter().map(|column| KeyColumn::new(batch.column(*column))).collect();
        let rows = batch.num_rows();
        let widths: Option<Vec<usize>> = columns.iter().map(KeyColumn::fixed_width).collect();
        match (widths, columns.as_slice()) {
            (Some(_), [KeyColumn { values: KeyValues::Numbers(numbers), .. }]) => {
                let mut bytes = vec![1; rows * 9];
                for (key, number) in bytes.chunks_exact_mut(9).zip(numbers) {
                    key[1..].copy_from_slice(&number.to_be_bytes());
                }
                KeyBlock::fixed(9, bytes)
            }
            (Some(widths), columns) if rows > 0 && !columns.is_empty() => {
                let width = widths.iter().sum();
                let mut bytes = Vec::with_capacity(rows * width);
                for row in 0..rows {
                    for column in columns {
                        column.append(row, &mut bytes);
                    }
                }
                KeyBlock::fixed(width, bytes)
            }
            _ => {
                let bytes = columns.iter().map(|column| column.encoded_bytes(rows)).sum();
                let mut block = KeyBlock::with_capacity(rows, bytes);
                for row in 0..rows {
                    block.push_with(|out| columns.iter().for_each(|it| it.append(row, out)));
                }
                block
            }
        }
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
struct KeyColumn<'a> {
    values: KeyValues<'a>,
    nulls: Option<&'a NullBuffer>,
}

enum KeyValues<'a> {
    /// Numbers as unsigned ones of the same order.
    Numbers(Vec<u64>),
    Boolean(&'a BooleanArray),
    Short {
        bytes: &'a [u8],
        offsets: &'a [i32],
    },
    Long {
        bytes: &'a [u8],
        offsets: &'a [i64],
    },
}

impl<'a> KeyColumn<'a> {
    fn new(array: &'a ArrayRef) -> Self {
        macro_rules! signed {
            ($type:ty) => {{
                let values = array.as_primitive::<$type>().values();
                let ordered = |value: &_| i64::from(*value).cast_unsigned() ^ (1 << 63);
                KeyValues::Numbers(values.iter().map(ordered).collect())
            }};
        }
        macro_rules! unsigned {
            ($type:ty) => {{
                let values = array.as_primitive::<$type>().values();
                KeyValues::Numbers(values.iter().map(|value| u64::from(*value)).collect())
            }};
        }
        macro_rules! bytes {
            ($kind:ident, $array:expr) => {{
                let array = $array;
                KeyValues::$kind { bytes: array.value_data(), offsets: array.value_offsets() }
            }};
        }
        let values = match array.data_type() {
            DataType::Int8 => signed!(Int8Type),
            DataType::Int16 => signed!(Int16Type),
            DataType::Int32 => signed!(Int32Type),
            DataType::Int64 => signed!(Int64Type),
            DataType::UInt8 => unsigned!(UInt8Type),
            DataType::UInt16 => unsigned!(UInt16Type),
            DataType::UInt32 => unsigned!(UInt32Type),
            DataType::UInt64 => unsigned!(UInt64Type),
            DataType::Boolean => KeyValues::Boolean(array.as_boolean()),
            DataType::Utf8 => bytes!(Short, array.as_string::<i32>()),
            DataType::LargeUtf8 => bytes!(Long, array.as_string::<i64>()),
            DataType::Binary => bytes!(Short, array.as_binary::<i32>()),
            DataType::LargeBinary => bytes!(Long, array.as_binary::<i64>()),
            other => unreachable!("KeyEncoder::new refuses key columns of type {other}"),
        };
        Self { values, nulls: array.nulls().filter(|nulls| nulls.null_count() > 0) }
    }

    /// Bytes of every value of this column; `None` where they differ.
    const fn fixed_width(&self) -> Option<usize> {
        match (&self.values, self.nulls) {
            (KeyValues::Numbers(_), None) => Some(9),
            (KeyValues::Boolean(_), None) => Some(2),
            _ => None,
        }
    }

    /// Bytes of all values together, unless some hold zero bytes.
    fn encoded_bytes(&self, rows: usize) -> usize {
        let payload = match &self.values {
            KeyValues::Numbers(_) => 8 * rows,
            KeyValues::Boolean(_) => rows,
            KeyValues::Short { .. } | KeyValues::Long { .. } => {
                (0..rows).map(|row| self.bytes(row).len() + 2).sum()
            }
        };
        payload + rows
    }

    fn bytes(&self, row: usize) -> &'a [u8] {
        let index = |offset: i64| usize::try_from(offset).unwrap_or_default();
        match &self.values {
            KeyValues::Short { bytes, offsets } => {
                &bytes[index(offsets[row].into())..index(offsets[row + 1].into())]
            }
            KeyValues::Long { bytes, offsets } => {
                &bytes[index(offsets[row])..index(offsets[row + 1])]
            }
            KeyValues::Numbers(_) | KeyValues::Boolean(_) => &[],
        }
    }

    fn append(&self, row: usize, out: &mut Vec<u8>) {
        if self.nulls.is_some_and(|nulls| nulls.is_null(row)) {
            out.push(0);
            return;
        }
        match &self.values {
            KeyValues::Numbers(numbers) => {
                let mut value = [1; 9];
                value[1..].copy_from_slice(&numbers[row].to_be_bytes());
                out.extend_from_slice(&value);
            }
            KeyValues::Boolean(array) => out.extend_from_slice(&[1, u8::from(array.value(row))]),
            KeyValues::Short { .. } | KeyValues::Long { .. } => {
                out.push(1);
                append_escaped(self.bytes(row), out);
            }
        }
    }
}

fn append_escaped(bytes: &[u8], out: &mut Vec<u8>) {
    if bytes.contains(&0) {
        for byte in bytes {
            out.push(*byte);
            if *byte == 0 {
                out.push(0xff);
            }
        }
    } else {
        out.extend_from_slice(bytes);
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
        assert!(error.to_string().contains("column 'score' of type double"), "{error}");
    }
}
