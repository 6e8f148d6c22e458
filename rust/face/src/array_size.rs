//! The size of exported data, before it is copied.
//!
//! Owns: the bytes of an array's values, for a slice those of the slice, and the refusal of a put
//! with too many. For types whose size cannot be computed cheaply the size is a lower bound.
//! Does not own: the limit (`lancemem::MAX_PUT_BYTES`).
//!
//! The array is untrusted here: it is validated after it was copied.

use arrow_buffer::Buffer;
use arrow_data::ArrayData;
use arrow_schema::DataType;

use crate::error::{Error, Result};

/// Refuses a put of more bytes than its limit, before its rows are copied.
///
/// # Errors
/// [`Error::InvalidInput`] where `bytes` exceeds `limit`.
pub fn check_put_bytes(bytes: usize, limit: usize) -> Result<()> {
    if bytes <= limit {
        return Ok(());
    }
    Err(Error::InvalidInput(format!(
        "a put is limited to {limit} bytes, because all of its rows are one entry of the log, and this \
         put has more: put the rows in several batches"
    )))
}

/// Bytes of the values of `data`.
pub fn shown_bytes(data: &ArrayData) -> usize {
    bytes_of(data, 0, data.len())
}

/// Bytes of `rows` values, from the value `from` on.
fn bytes_of(data: &ArrayData, from: usize, rows: usize) -> usize {
    let at = data.offset().saturating_add(from);
    let part = |index: usize| data.child_data().get(index);
    let text = |width: usize| {
        // Offsets are clamped here; one that is out of bounds is refused in the copy.
        let values = data.buffers().get(1).map_or(0, Buffer::len);
        let end = offset_at(data, at.saturating_add(rows), width).min(values);
        end.saturating_sub(offset_at(data, at, width)).saturating_add(rows.saturating_mul(width))
    };
    match data.data_type() {
        DataType::Boolean => rows.div_ceil(8),
        DataType::Utf8 | DataType::Binary => text(4),
        DataType::LargeUtf8 | DataType::LargeBinary => text(8),
        DataType::FixedSizeBinary(width) => {
            usize::try_from(*width).unwrap_or(0).saturating_mul(rows)
        }
        DataType::FixedSizeList(_, width) => {
            let width = usize::try_from(*width).unwrap_or(0);
            let values = rows.saturating_mul(width);
            part(0).map_or(0, |items| bytes_of(items, at.saturating_mul(width), values))
        }
        DataType::Struct(parts) => {
            let parts = (0..parts.len()).filter_map(part);
            parts.fold(0, |sum, part| sum.saturating_add(bytes_of(part, at, rows)))
        }
        other => other.primitive_width().unwrap_or(0).saturating_mul(rows),
    }
}

/// The offset at `place` of a column of text; 0 where the buffer is too short.
fn offset_at(data: &ArrayData, place: usize, width: usize) -> usize {
    let offset = || {
        let start = place.checked_mul(width)?;
        let bytes = data.buffers().first()?.get(start..start.checked_add(width)?)?;
        let mut number = [0; 8];
        number.get_mut(..width)?.copy_from_slice(bytes);
        usize::try_from(u64::from_le_bytes(number)).ok()
    };
    offset().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{Array, ArrayRef, BooleanArray, Int64Array, StringArray, StructArray};
    use arrow_schema::{Field, Fields};

    use super::*;

    #[test]
    fn a_slice_has_the_bytes_of_its_own_values() {
        let numbers = Int64Array::from(vec![1, 2, 3]);
        assert_eq!(shown_bytes(&numbers.to_data()), 24);
        assert_eq!(shown_bytes(&numbers.slice(1, 2).to_data()), 16);
        // Four bytes of an offset for each value.
        let texts = StringArray::from(vec!["a", "four", ""]);
        assert_eq!(shown_bytes(&texts.to_data()), 5 + 12);
        assert_eq!(shown_bytes(&texts.slice(1, 1).to_data()), 4 + 4);
        assert_eq!(shown_bytes(&BooleanArray::from(vec![true; 9]).to_data()), 2);
    }

    #[test]
    fn rows_have_the_bytes_of_their_columns() {
        let fields = Fields::from(vec![
            Field::new("id", DataType::Int64, false),
            Field::new("name", DataType::Utf8, true),
        ]);
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from(vec![1, 2])),
            Arc::new(StringArray::from(vec!["a", "b"])),
        ];
        let rows = StructArray::new(fields, columns, None);
        assert_eq!(shown_bytes(&rows.to_data()), 16 + 2 + 8);
    }

    #[test]
    fn a_put_beyond_its_limit_is_refused_with_the_limit() {
        assert!(check_put_bytes(10, 10).is_ok());
        let error = check_put_bytes(11, 10).expect_err("too many bytes");
        assert!(error.to_string().starts_with("a put is limited to 10 bytes, because"), "{error}");
    }
}
