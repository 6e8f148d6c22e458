//! Copies of exported Arrow data in memory that Rust owns.
//!
//! Owns: the copy of one array or batch, realigned and validated, and of several as one.
//! Does not own: the import of the C data interface, or the meaning of the rows.
//!
//! Buffers are realigned first: PySpark exports decimals at 8-byte addresses, and arrow 58 panics
//! on them.
//!
//! Safety model: the caller's array has the buffers of its type and length, as `ArrayData` demands,
//! at any address; its values are untrusted. Arrays are built without validation only from those
//! buffers or from copies of them, with ranges that are checked here. The values are validated in
//! the copy, before it leaves this module.

#![expect(unsafe_code, reason = "arrays built before their validation; the safety model is above")]

use std::borrow::Cow;

use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, make_array, new_empty_array};
use arrow_buffer::Buffer;
use arrow_data::ArrayData;
use arrow_data::transform::MutableArrayData;
use arrow_schema::{ArrowError, DataType, SchemaRef};
use arrow_select::concat::concat;

use crate::error::{Error, Result};

/// The result of a step, whose error does not name its column yet.
type ArrowResult<T> = std::result::Result<T, ArrowError>;

/// A copy of the array in aligned memory that Rust owns. Its values are validated.
///
/// # Errors
/// [`Error::NotArrow`] where they are not valid.
pub fn copy_array(data: &ArrayData) -> Result<ArrayRef> {
    let copy = owned_column(data, 0, data.len()).map_err(|error| Error::not_arrow(&error))?;
    Ok(make_array(copy))
}

/// A copy of the batch in aligned memory that Rust owns. Its values are validated.
///
/// # Errors
/// [`Error::NotArrow`] where they are not valid, with the name of the column.
pub fn copy_batch(data: &ArrayData, schema: &SchemaRef) -> Result<RecordBatch> {
    let rows = data.len();
    if data.nulls().is_some() {
        return Err(Error::not_arrow(
            &"the data has rows that are null as a whole; leave those rows out",
        ));
    }
    let copied = data.child_data().iter().zip(schema.fields()).map(|(column, field)| {
        let column = owned_column(column, data.offset(), rows);
        let named =
            |error: ArrowError| Error::not_arrow(&format!("column '{}': {error}", field.name()));
        column.map(make_array).map_err(named)
    });
    let columns = copied.collect::<Result<Vec<_>>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(schema.clone(), columns, &options)
        .map_err(|error| Error::not_arrow(&error))
}

/// Concatenates `batches`, one column at a time, so that at most one column is in memory twice.
///
/// # Errors
/// [`Error::NotArrow`] where the batches do not fit the schema, or one batch cannot hold them.
pub fn concat_batches(schema: &SchemaRef, mut batches: Vec<RecordBatch>) -> Result<RecordBatch> {
    if batches.len() == 1 {
        return Ok(batches.swap_remove(0));
    }
    let rows = batches.iter().map(RecordBatch::num_rows).sum();
    let mut columns: Vec<Vec<ArrayRef>> = vec![Vec::new(); schema.fields().len()];
    for batch in batches {
        columns.iter_mut().zip(batch.columns()).for_each(|(parts, part)| parts.push(part.clone()));
    }
    let columns = columns.into_iter().zip(schema.fields());
    let columns = columns.map(|(parts, field)| concat_arrays(&parts, field.data_type()));
    let columns = columns.collect::<Result<Vec<_>>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(schema.clone(), columns, &options)
        .map_err(|error| Error::not_arrow(&error))
}

/// Concatenates `arrays` of one type.
///
/// # Errors
/// [`Error::NotArrow`] where the types differ, or one array cannot hold the values.
pub fn concat_arrays(arrays: &[ArrayRef], data_type: &DataType) -> Result<ArrayRef> {
    if arrays.is_empty() {
        return Ok(new_empty_array(data_type));
    }
    let arrays: Vec<&dyn Array> = arrays.iter().map(AsRef::as_ref).collect();
    concat(&arrays).map_err(|error| Error::not_arrow(&error))
}

/// A copy of `rows` rows of a column, from the row `from` on, in aligned memory that Rust owns. Its
/// values are validated.
fn owned_column(data: &ArrayData, from: usize, rows: usize) -> ArrowResult<ArrayData> {
    let is_nested = !data.child_data().is_empty();
    let is_whole = is_nested || (from == 0 && rows == data.len());
    let part = if is_whole { Cow::Borrowed(data) } else { Cow::Owned(data.slice(from, rows)) };
    if let Some(copy) = copied_whole(&part) {
        check_values(&copy)?;
        return Ok(copy);
    }
    let mut data = part.into_owned();
    data.align_buffers();
    if is_nested {
        data = with_own_parts(&data, from, rows)?;
    }
    // Nested: the children may have nulls although the copied rows have none.
    let mut copy = MutableArrayData::new(vec![&data], is_nested, data.len());
    copy.extend(0, 0, data.len());
    let copy = copy.freeze();
    check_values(&copy)?;
    Ok(copy)
}

/// `rows` rows of an array, from the row `from` on. Offsets of structs and of fixed-size lists are
/// moved into their children: arrow 58 ignores the offset of a struct when it copies the children,
/// and applies it twice when it slices one.
fn with_own_parts(data: &ArrayData, from: usize, rows: usize) -> ArrowResult<ArrayData> {
    if from + rows > data.len() {
        let (has, needs) = (data.len(), from + rows);
        return Err(ArrowError::CDataInterface(format!(
            "a child array has {has} values, its parent needs {needs}"
        )));
    }
    // The number of child values for each row, where it is fixed.
    let width = match data.data_type() {
        DataType::Struct(_) => Some(1),
        DataType::FixedSizeList(_, width) => usize::try_from(*width).ok(),
        _ => None,
    };
    let offset = data.offset() + from;
    let parts = data.child_data().iter().map(|part| match width {
        Some(width) => with_own_parts(part, offset * width, rows * width),
        None => with_own_parts(part, 0, part.len()),
    });
    let parts = parts.collect::<ArrowResult<Vec<_>>>()?;
    let nulls = data.nulls().map(|nulls| nulls.slice(from, rows));
    let offset = if width.is_some() { 0 } else { offset };
    let own = data.clone().into_builder().len(rows).offset(offset).nulls(nulls).child_data(parts);
    // SAFETY: the buffers are the same, and the range of each child is inside of the child. Values
    // are validated in the copy: a validation here would include values outside of these rows.
    Ok(unsafe { own.build_unchecked() })
}

/// Refuses text that is not UTF-8, and indices and offsets that are out of bounds: in the WAL they
/// would make the shard unreadable.
fn check_values(data: &ArrayData) -> ArrowResult<()> {
    data.validate_values()?;
    data.child_data().iter().try_for_each(check_values)
}

/// The fast path: copies a column of numbers or of text, without an offset, buffer by buffer.
/// `None` for every other column.
fn copied_whole(data: &ArrayData) -> Option<ArrayData> {
    if data.offset() != 0 || !data.child_data().is_empty() || data.is_empty() {
        return None;
    }
    let rows = data.len();
    let buffers = data.buffers();
    let part = |index: usize, bytes: usize| Some(aligned(buffers.get(index)?.get(..bytes)?));
    let copies = match data.data_type() {
        DataType::Boolean => vec![part(0, rows.div_ceil(8))?],
        DataType::Utf8 | DataType::Binary => {
            let offsets = part(0, (rows + 1) * size_of::<i32>())?;
            let end = offsets.typed_data::<i32>().last()?.to_owned();
            vec![offsets, part(1, usize::try_from(end).ok()?)?]
        }
        DataType::LargeUtf8 | DataType::LargeBinary => {
            let offsets = part(0, (rows + 1) * size_of::<i64>())?;
            let end = offsets.typed_data::<i64>().last()?.to_owned();
            vec![offsets, part(1, usize::try_from(end).ok()?)?]
        }
        other => vec![part(0, rows * other.primitive_width()?)?],
    };
    let validity = match data.nulls() {
        None => None,
        Some(nulls) if nulls.offset() == 0 => {
            Some(aligned(nulls.validity().get(..rows.div_ceil(8))?))
        }
        Some(_) => return None,
    };
    let copy = ArrayData::builder(data.data_type().clone()).len(rows).buffers(copies);
    // SAFETY: type, length and bytes are those of an array that the producer promised is valid.
    Some(unsafe { copy.null_bit_buffer(validity).build_unchecked() })
}

/// A copy in memory that is aligned for every Arrow type.
fn aligned(bytes: &[u8]) -> Buffer {
    Buffer::from(bytes)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::cast::AsArray;
    use arrow_array::types::{Decimal128Type, Int64Type};
    use arrow_array::{FixedSizeListArray, Int64Array, StringArray, StructArray};
    use arrow_buffer::NullBuffer;
    use arrow_schema::{Field, Fields, Schema};

    use super::*;

    /// Decimals at an address that is a multiple of 8 and not of 16.
    fn misaligned_decimals(values: &[i128]) -> ArrayData {
        let mut bytes = vec![0; 8];
        bytes.extend(values.iter().flat_map(|value| value.to_ne_bytes()));
        let buffer = Buffer::from(bytes.as_slice()).slice(8);
        assert_ne!(buffer.as_ptr().align_offset(align_of::<i128>()), 0, "the buffer is aligned");
        let data = ArrayData::builder(DataType::Decimal128(20, 2)).len(values.len());
        // SAFETY: the buffer has a value for each row. Its address is wrong, and the copy is the
        // first to read values from it.
        unsafe { data.add_buffer(buffer).build_unchecked() }
    }

    fn ids(name: &str) -> Fields {
        Fields::from(vec![Field::new(name, DataType::Int64, true)])
    }

    #[test]
    fn misaligned_decimals_keep_their_values_whole_and_in_a_slice() {
        let data = misaligned_decimals(&[1, -2, i128::from(i64::MAX) * 4]);
        let whole = copy_array(&data).expect("a copy");
        assert_eq!(whole.data_type(), &DataType::Decimal128(20, 2));
        let values = whole.as_primitive::<Decimal128Type>().values();
        assert_eq!(values.to_vec(), [1, -2, i128::from(i64::MAX) * 4]);

        let part = copy_array(&data.slice(1, 1)).expect("a copy");
        assert_eq!(part.as_primitive::<Decimal128Type>().values().to_vec(), [-2]);
    }

    #[test]
    fn a_copy_shares_no_memory_with_its_producer() {
        let data = Int64Array::from(vec![Some(1), None, Some(3)]).into_data();
        let copy = copy_array(&data).expect("a copy").into_data();
        assert_eq!(copy, data);
        assert_ne!(copy.buffers()[0].as_ptr(), data.buffers()[0].as_ptr());
        let validity = |data: &ArrayData| data.nulls().map(|nulls| nulls.validity().as_ptr());
        assert_ne!(validity(&copy), validity(&data));
    }

    #[test]
    fn offsets_of_nested_columns_are_moved_into_their_children() {
        let numbers = Int64Array::from(vec![1, 2, 3, 4]).into_data();
        let rows = ArrayData::builder(DataType::Struct(ids("id")))
            .len(2)
            .offset(1)
            .add_child_data(numbers.clone())
            .build()
            .expect("a struct with an offset");
        let copy = copy_array(&rows).expect("a copy");
        assert_eq!(
            copy.as_struct().column(0).as_primitive::<Int64Type>().values().to_vec(),
            [2, 3]
        );

        let item = Arc::new(Field::new("item", DataType::Int64, true));
        let pairs = FixedSizeListArray::new(item, 2, make_array(numbers), None);
        let copy = copy_array(&pairs.into_data().slice(1, 1)).expect("a copy");
        let values = copy.as_fixed_size_list().values();
        assert_eq!(values.as_primitive::<Int64Type>().values().to_vec(), [3, 4]);
    }

    #[test]
    fn a_batch_keeps_its_schema_and_refuses_rows_that_are_null_as_a_whole() {
        let metadata = [("owner".to_owned(), "a".to_owned())].into();
        let schema = Arc::new(Schema::new_with_metadata(ids("id"), metadata));
        let columns: Vec<ArrayRef> = vec![Arc::new(Int64Array::from(vec![1, 2]))];
        let rows = StructArray::new(ids("id"), columns.clone(), None).into_data();
        let batch = copy_batch(&rows, &schema).expect("a batch");
        assert_eq!(batch.schema(), schema);
        let expected = RecordBatch::try_new(schema.clone(), columns.clone());
        assert_eq!(batch, expected.expect("a batch"));

        let nulls = Some(NullBuffer::from(vec![true, false]));
        let rows = StructArray::new(ids("id"), columns, nulls).into_data();
        let error = copy_batch(&rows, &schema).expect_err("a null row");
        assert_eq!(
            error.to_string(),
            "the data could not be read as Arrow: the data has rows that are null as a whole; \
             leave those rows out"
        );
    }

    #[test]
    fn batches_are_joined_by_column_and_none_are_an_empty_batch() {
        let schema = Arc::new(Schema::new(ids("id")));
        let batch = |ids: Vec<i64>| {
            RecordBatch::try_new(schema.clone(), vec![Arc::new(Int64Array::from(ids))])
                .expect("a batch")
        };
        let joined = concat_batches(&schema, vec![batch(vec![1]), batch(vec![2, 3])]);
        assert_eq!(joined.expect("a batch"), batch(vec![1, 2, 3]));
        let empty = concat_batches(&schema, Vec::new()).expect("a batch");
        assert_eq!((empty.num_rows(), empty.schema()), (0, schema.clone()));

        let arrays: [ArrayRef; 2] =
            [Arc::new(Int64Array::from(vec![1])), Arc::new(StringArray::from(vec!["a"]))];
        let error = concat_arrays(&arrays, &DataType::Int64).expect_err("two types");
        assert!(matches!(error, Error::NotArrow(_)), "{error}");
    }
}
