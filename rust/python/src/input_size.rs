//! The size of exported data, before it is copied.
//!
//! Owns: the bytes of an array's values, for a slice those of the slice. For types whose size
//! cannot be computed cheaply it is a lower bound.
//! Does not own: the limit with which the size is compared.
//!
//! The array is untrusted here: it is validated after it was copied.

use arrow_buffer::Buffer;
use arrow_data::ArrayData;
use arrow_schema::DataType;

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
