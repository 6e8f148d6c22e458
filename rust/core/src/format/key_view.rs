//! The keys of a batch as they lie in memory, for comparison only.
//!
//! Owns: the form in which keys of some columns are compared, and an encoded key in that form.
//! A key of one integer column is a number, one of one text or binary column its bytes; any
//! other is compared encoded.
//! Does not own: the encoding (`key`), or what keys are compared with.

use std::borrow::Cow;

use arrow_schema::{DataType, Schema};

use crate::types::KeyBlock;

/// How keys of some columns are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyForm {
    /// As unsigned numbers of the same order.
    Number,
    /// As the bytes of the value.
    Bytes,
    /// Encoded.
    #[default]
    Encoded,
}

/// The keys of the rows of a batch.
#[derive(Clone, Debug)]
pub enum KeyView<'a> {
    /// One integer column without nulls.
    Numbers(Vec<u64>),
    /// One text or binary column without nulls, with short offsets.
    Short {
        /// All values.
        bytes: &'a [u8],
        /// Where each begins, and where the last one ends.
        offsets: &'a [i32],
    },
    /// The same with long offsets.
    Long {
        /// All values.
        bytes: &'a [u8],
        /// Where each begins, and where the last one ends.
        offsets: &'a [i64],
    },
    /// Any other key, encoded.
    Encoded(KeyBlock),
}

impl KeyForm {
    /// The form of the key `names` in a table of `schema`.
    #[must_use]
    pub fn of(schema: &Schema, names: &[String]) -> Self {
        let [name] = names else { return Self::Encoded };
        match schema.field_with_name(name).map(arrow_schema::Field::data_type) {
            Ok(DataType::Utf8 | DataType::LargeUtf8 | DataType::Binary | DataType::LargeBinary) => {
                Self::Bytes
            }
            Ok(data_type) if data_type.is_integer() => Self::Number,
            _ => Self::Encoded,
        }
    }
}

impl KeyView<'_> {
    /// Number of keys.
    #[must_use]
    pub const fn len(&self) -> usize {
        match self {
            Self::Numbers(numbers) => numbers.len(),
            Self::Short { offsets, .. } => offsets.len().saturating_sub(1),
            Self::Long { offsets, .. } => offsets.len().saturating_sub(1),
            Self::Encoded(keys) => keys.len(),
        }
    }

    /// Whether there is no key.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The number that an encoded key of one integer column stands for; `None` for null.
#[must_use]
pub fn number_of(encoded: &[u8]) -> Option<u64> {
    let (tag, number) = encoded.split_first()?;
    let number: [u8; 8] = number.try_into().ok()?;
    (*tag == 1).then(|| u64::from_be_bytes(number))
}

/// The bytes that an encoded key of one text or binary column stands for; `None` for null.
#[must_use]
pub fn bytes_of(encoded: &[u8]) -> Option<Cow<'_, [u8]>> {
    let escaped = encoded.strip_prefix(&[1])?.strip_suffix(&[0, 0])?;
    if !escaped.contains(&0) {
        return Some(Cow::Borrowed(escaped));
    }
    let mut bytes = Vec::with_capacity(escaped.len());
    let rest = take_bytes(&encoded[1..], &mut bytes)?;
    rest.is_empty().then_some(Cow::Owned(bytes))
}

/// Appends the bytes of a text or binary value to `bytes` and returns the rest behind its end.
/// `encoded` begins behind the value's tag.
pub(super) fn take_bytes<'a>(mut encoded: &'a [u8], bytes: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        let zero = encoded.iter().position(|byte| *byte == 0)?;
        let (before, behind) = encoded.split_at(zero);
        bytes.extend_from_slice(before);
        match behind {
            [_, 0, rest @ ..] => return Some(rest),
            [_, 0xff, rest @ ..] => {
                bytes.push(0);
                encoded = rest;
            }
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{
        ArrayRef, BinaryArray, Int32Array, Int64Array, LargeStringArray, RecordBatch, StringArray,
        UInt64Array,
    };

    use super::*;
    use crate::format::KeyEncoder;

    /// What is compared of each key, from the columns and from their encoding.
    fn both_ways(columns: Vec<(&str, ArrayRef)>) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
        let names: Vec<String> = columns.iter().map(|(name, _)| (*name).to_owned()).collect();
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let encoder = KeyEncoder::new(batch.schema_ref(), &names).unwrap();
        let form = KeyForm::of(batch.schema_ref(), &names);
        let from_bytes = encoder.encode_block(&batch);
        let from_bytes = from_bytes.iter().map(|key| match form {
            KeyForm::Number => number_of(key).unwrap().to_be_bytes().to_vec(),
            KeyForm::Bytes => bytes_of(key).unwrap().into_owned(),
            KeyForm::Encoded => key.to_vec(),
        });
        let rows = batch.num_rows();
        let index = |offset: i64| usize::try_from(offset).unwrap();
        let from_columns = match encoder.view(&batch) {
            KeyView::Numbers(numbers) => {
                numbers.iter().map(|number| number.to_be_bytes().to_vec()).collect()
            }
            KeyView::Short { bytes, offsets } => (0..rows)
                .map(|row| {
                    bytes[index(offsets[row].into())..index(offsets[row + 1].into())].to_vec()
                })
                .collect(),
            KeyView::Long { bytes, offsets } => (0..rows)
                .map(|row| bytes[index(offsets[row])..index(offsets[row + 1])].to_vec())
                .collect(),
            KeyView::Encoded(keys) => keys.iter().map(<[u8]>::to_vec).collect(),
        };
        assert_eq!(encoder.view(&batch).len(), rows);
        (from_columns, from_bytes.collect())
    }

    #[test]
    fn a_key_is_the_same_from_its_column_and_from_its_encoding() {
        let numbers: Vec<i64> = vec![i64::MIN, -1, 0, 7, i64::MAX];
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from(numbers)),
            Arc::new(Int32Array::from(vec![i32::MIN, -1, 0, 7, i32::MAX])),
            Arc::new(UInt64Array::from(vec![0, 1, u64::MAX])),
            Arc::new(StringArray::from(vec!["", "a", "a\0b", "\0", "\0\0"])),
            Arc::new(StringArray::from(vec!["left", "out", "kept", "too"]).slice(2, 2)),
            Arc::new(LargeStringArray::from(vec!["x", "", "yz"])),
            Arc::new(BinaryArray::from(vec![&b"\0\xff"[..], b"\xff\0", b"\x01"])),
        ];
        for column in columns {
            let (from_column, from_bytes) = both_ways(vec![("id", column.clone())]);
            assert_eq!(from_column, from_bytes, "{}", column.data_type());
            let (from_columns, from_bytes) = both_ways(vec![("a", column.clone()), ("b", column)]);
            assert_eq!(from_columns, from_bytes);
        }
    }

    #[test]
    fn a_null_has_neither_number_nor_bytes() {
        assert_eq!((number_of(&[0]), bytes_of(&[0])), (None, None));
        let ids: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None]));
        let batch = RecordBatch::try_from_iter([("id", ids)]).unwrap();
        let encoder = KeyEncoder::new(batch.schema_ref(), &["id".to_owned()]).unwrap();
        assert!(matches!(encoder.view(&batch), KeyView::Encoded(_)));
    }
}
