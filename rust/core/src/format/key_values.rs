//! The values of encoded keys.
//!
//! Owns: decoding the bytes of `key` to the columns that they were encoded from.
//! Does not own: the encoding.

use std::sync::Arc;

use arrow_array::builder::BooleanBufferBuilder;
use arrow_array::types::{
    ArrowPrimitiveType, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use arrow_array::{
    ArrayRef, BooleanArray, GenericBinaryArray, GenericStringArray, OffsetSizeTrait, PrimitiveArray,
};
use arrow_buffer::{OffsetBuffer, ScalarBuffer};
use arrow_schema::DataType;

use super::key_view::take_bytes;
use crate::types::{Error, Result};

const DAMAGED: &str = "an encoded key does not decode to the types of the primary key";

/// The columns of `keys`, which were encoded from columns of `types` without nulls.
///
/// # Errors
/// An internal error for a key that is not of these types.
pub fn key_values<'a>(
    keys: impl ExactSizeIterator<Item = &'a [u8]>,
    types: &[DataType],
) -> Result<Vec<ArrayRef>> {
    let mut columns: Vec<Values> =
        types.iter().map(|data_type| Values::of(data_type, keys.len())).collect();
    for key in keys {
        let mut rest = Some(key);
        for column in &mut columns {
            rest = rest.and_then(|rest| column.take(rest));
        }
        if rest != Some(&[]) {
            return Err(Error::internal(DAMAGED));
        }
    }
    columns.into_iter().zip(types).map(|(column, data_type)| column.finish(data_type)).collect()
}

/// The values of one column so far.
enum Values {
    /// As unsigned numbers of the same order.
    Numbers(Vec<u64>),
    Booleans(BooleanBufferBuilder),
    Bytes {
        bytes: Vec<u8>,
        offsets: Vec<usize>,
    },
}

impl Values {
    fn of(data_type: &DataType, keys: usize) -> Self {
        match data_type {
            DataType::Boolean => Self::Booleans(BooleanBufferBuilder::new(keys)),
            data_type if data_type.is_integer() => Self::Numbers(Vec::with_capacity(keys)),
            _ => {
                let mut offsets = Vec::with_capacity(keys + 1);
                offsets.push(0);
                Self::Bytes { bytes: Vec::new(), offsets }
            }
        }
    }

    /// Takes a value from the front of `key` and returns the rest.
    fn take<'a>(&mut self, key: &'a [u8]) -> Option<&'a [u8]> {
        let key = key.strip_prefix(&[1])?;
        match self {
            Self::Numbers(numbers) => {
                let (number, rest) = key.split_first_chunk()?;
                numbers.push(u64::from_be_bytes(*number));
                Some(rest)
            }
            Self::Booleans(values) => {
                let (value, rest) = key.split_first()?;
                values.append(*value != 0);
                Some(rest)
            }
            Self::Bytes { bytes, offsets } => {
                let rest = take_bytes(key, bytes)?;
                offsets.push(bytes.len());
                Some(rest)
            }
        }
    }

    fn finish(self, data_type: &DataType) -> Result<ArrayRef> {
        let refused = || Error::internal(DAMAGED);
        match (self, data_type) {
            (Self::Numbers(numbers), data_type) => integers(numbers, data_type).ok_or_else(refused),
            (Self::Booleans(mut values), _) => Ok(Arc::new(BooleanArray::from(values.finish()))),
            (Self::Bytes { bytes, offsets }, DataType::Utf8) => text::<i32>(bytes, &offsets),
            (Self::Bytes { bytes, offsets }, DataType::LargeUtf8) => text::<i64>(bytes, &offsets),
            (Self::Bytes { bytes, offsets }, DataType::Binary) => binary::<i32>(bytes, &offsets),
            (Self::Bytes { bytes, offsets }, DataType::LargeBinary) => {
                binary::<i64>(bytes, &offsets)
            }
            (Self::Bytes { .. }, _) => Err(refused()),
        }
    }
}

fn integers(numbers: Vec<u64>, data_type: &DataType) -> Option<ArrayRef> {
    Some(match data_type {
        DataType::Int8 => signed::<Int8Type>(&numbers)?,
        DataType::Int16 => signed::<Int16Type>(&numbers)?,
        DataType::Int32 => signed::<Int32Type>(&numbers)?,
        DataType::Int64 => signed::<Int64Type>(&numbers)?,
        DataType::UInt8 => unsigned::<UInt8Type>(&numbers)?,
        DataType::UInt16 => unsigned::<UInt16Type>(&numbers)?,
        DataType::UInt32 => unsigned::<UInt32Type>(&numbers)?,
        DataType::UInt64 => Arc::new(PrimitiveArray::<UInt64Type>::from_iter_values(numbers)),
        _ => return None,
    })
}

fn signed<T: ArrowPrimitiveType<Native: TryFrom<i64>>>(numbers: &[u64]) -> Option<ArrayRef> {
    let value = |number: &u64| T::Native::try_from((number ^ (1 << 63)).cast_signed()).ok();
    let values: Option<Vec<T::Native>> = numbers.iter().map(value).collect();
    Some(Arc::new(PrimitiveArray::<T>::new(values?.into(), None)))
}

fn unsigned<T: ArrowPrimitiveType<Native: TryFrom<u64>>>(numbers: &[u64]) -> Option<ArrayRef> {
    let values: Option<Vec<T::Native>> =
        numbers.iter().map(|number| T::Native::try_from(*number).ok()).collect();
    Some(Arc::new(PrimitiveArray::<T>::new(values?.into(), None)))
}

fn text<O: OffsetSizeTrait>(bytes: Vec<u8>, places: &[usize]) -> Result<ArrayRef> {
    let made = GenericStringArray::<O>::try_new(offsets(places)?, bytes.into(), None);
    Ok(Arc::new(
        made.map_err(|error| Error::internal(format!("{DAMAGED}: {error}")).with_source(error))?,
    ))
}

fn binary<O: OffsetSizeTrait>(bytes: Vec<u8>, places: &[usize]) -> Result<ArrayRef> {
    let made = GenericBinaryArray::<O>::try_new(offsets(places)?, bytes.into(), None);
    Ok(Arc::new(
        made.map_err(|error| Error::internal(format!("{DAMAGED}: {error}")).with_source(error))?,
    ))
}

fn offsets<O: OffsetSizeTrait>(places: &[usize]) -> Result<OffsetBuffer<O>> {
    let offsets: Option<Vec<O>> = places.iter().map(|place| O::from_usize(*place)).collect();
    let too_long = || Error::internal("a batch of keys is limited to 2 GiB");
    Ok(OffsetBuffer::new(ScalarBuffer::from(offsets.ok_or_else(too_long)?)))
}

#[cfg(test)]
mod tests {
    use arrow_array::{
        BinaryArray, Int8Array, Int16Array, Int32Array, Int64Array, LargeBinaryArray,
        LargeStringArray, RecordBatch, StringArray, UInt8Array, UInt16Array, UInt32Array,
        UInt64Array,
    };

    use super::*;
    use crate::format::KeyEncoder;

    fn columns() -> Vec<ArrayRef> {
        let texts = ["", "a\0b", "\0", "zwölf"];
        let bytes = [&b""[..], b"\0\0", b"\xff\0\xff", b"\x01"];
        vec![
            Arc::new(Int8Array::from(vec![i8::MIN, -1, 0, i8::MAX])),
            Arc::new(Int16Array::from(vec![i16::MIN, -1, 0, i16::MAX])),
            Arc::new(Int32Array::from(vec![i32::MIN, -1, 0, i32::MAX])),
            Arc::new(Int64Array::from(vec![i64::MIN, -1, 0, i64::MAX])),
            Arc::new(UInt8Array::from(vec![0, 1, 2, u8::MAX])),
            Arc::new(UInt16Array::from(vec![0, 1, 2, u16::MAX])),
            Arc::new(UInt32Array::from(vec![0, 1, 2, u32::MAX])),
            Arc::new(UInt64Array::from(vec![0, 1, 2, u64::MAX])),
            Arc::new(BooleanArray::from(vec![true, false, false, true])),
            Arc::new(StringArray::from(texts.to_vec())),
            Arc::new(LargeStringArray::from(texts.to_vec())),
            Arc::new(BinaryArray::from(bytes.to_vec())),
            Arc::new(LargeBinaryArray::from(bytes.to_vec())),
        ]
    }

    fn led_back(columns: &[ArrayRef]) -> Vec<ArrayRef> {
        let names: Vec<String> = (0..columns.len()).map(|place| place.to_string()).collect();
        let batch = RecordBatch::try_from_iter(names.iter().zip(columns.iter().cloned())).unwrap();
        let encoded = KeyEncoder::new(batch.schema_ref(), &names).unwrap().encode_block(&batch);
        let types: Vec<DataType> = columns.iter().map(|it| it.data_type().clone()).collect();
        key_values(encoded.iter(), &types).unwrap()
    }

    #[test]
    fn every_key_leads_back_to_its_values() {
        let all = columns();
        for column in &all {
            assert_eq!(led_back(std::slice::from_ref(column)), std::slice::from_ref(column));
        }
        assert_eq!(led_back(&all), all);
        let none: Vec<ArrayRef> = all.iter().map(|column| column.slice(0, 0)).collect();
        assert_eq!(led_back(&none), none);
    }

    #[test]
    fn bytes_that_are_no_key_of_the_table_are_a_defect() {
        let types = [DataType::Int8, DataType::Utf8];
        let key = [&[1, 0x80, 0, 0, 0, 0, 0, 0, 2][..], &[1, b'a', 0, 0]].concat();
        assert!(key_values([&key[..]].into_iter(), &types).is_ok());
        let mut other = key.clone();
        other[1] = 0;
        let mut longer = key.clone();
        longer.push(0);
        for bad in [&key[..9], &key[..12], &other, &longer, &[0], &[]] {
            let refused = key_values([bad].into_iter(), &types).unwrap_err();
            assert!(matches!(refused, Error::Internal { .. }), "{bad:?}");
        }
        let not_text = [1, 0xc3, 0, 0];
        assert!(key_values([&not_text[..]].into_iter(), &types[1..]).is_err());
    }
}
