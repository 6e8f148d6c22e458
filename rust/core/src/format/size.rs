//! How many bytes the rows of a batch take.
//!
//! Owns: the size of what a slice shows, without the rest of the buffers that it keeps alive.
//! Does not own: limits that are compared with it.

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::{DataType, Field};

use super::cast::item_of;

/// Bytes of the rows of `batch`.
#[must_use]
pub fn payload_bytes(batch: &RecordBatch) -> usize {
    batch.columns().iter().map(column_bytes).sum()
}

/// Bytes of the rows of one column.
///
/// The common types without the allocations that a general answer takes: this runs for every put.
pub fn column_bytes(column: &ArrayRef) -> usize {
    let rows = column.len();
    let validity = column.nulls().map_or(0, |_| rows.div_ceil(8));
    let values = match column.data_type() {
        DataType::Boolean => rows.div_ceil(8),
        DataType::Utf8 => span(column.as_string::<i32>().value_offsets()) + 4 * (rows + 1),
        DataType::Binary => span(column.as_binary::<i32>().value_offsets()) + 4 * (rows + 1),
        DataType::LargeUtf8 => span(column.as_string::<i64>().value_offsets()) + 8 * (rows + 1),
        DataType::LargeBinary => span(column.as_binary::<i64>().value_offsets()) + 8 * (rows + 1),
        DataType::FixedSizeList(_, _) => column_bytes(column.as_fixed_size_list().values()),
        other => match other.primitive_width() {
            Some(width) => width * rows,
            None => return general(column),
        },
    };
    validity + values
}

/// Arrays that hold a column, those of its parts included.
pub(super) fn arrays_of(field: &Field) -> usize {
    1 + match field.data_type() {
        DataType::Struct(parts) => parts.iter().map(|it| arrays_of(it)).sum(),
        DataType::Map(entries, _) => arrays_of(entries),
        other => item_of(other).map_or(0, |item| arrays_of(item)),
    }
}

/// What is between the first and the last offset: bytes of text, items of lists.
pub(super) fn span<O: Copy + TryInto<usize>>(offsets: &[O]) -> usize {
    let at = |offset: Option<&O>| offset.and_then(|it| (*it).try_into().ok()).unwrap_or_default();
    at(offsets.last()) - at(offsets.first())
}

fn general(column: &ArrayRef) -> usize {
    let data = column.to_data();
    data.get_slice_memory_size().unwrap_or_else(|_| data.get_buffer_memory_size())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{BooleanArray, Int64Array, LargeBinaryArray, StringArray};

    use super::*;

    #[test]
    fn the_size_of_a_slice_is_that_of_its_rows() {
        let columns: [ArrayRef; 4] = [
            Arc::new((0..64_i64).map(Some).collect::<Int64Array>()),
            Arc::new((0..64).map(|n| (n % 3 > 0).then(|| "x".repeat(n))).collect::<StringArray>()),
            Arc::new((0..64).map(|n| Some(vec![0; n])).collect::<LargeBinaryArray>()),
            Arc::new((0..64).map(|n| Some(n % 2 == 0)).collect::<BooleanArray>()),
        ];
        for column in columns {
            let slice = column.slice(16, 32);
            let difference = column_bytes(&slice).abs_diff(general(&slice));
            assert!(difference <= 8, "{}: one offset more or less", column.data_type());
        }
    }
}
