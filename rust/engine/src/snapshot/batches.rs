//! The batch size of scans of a dataset with wide rows.
//!
//! Owns: an estimate of the bytes of a row, and the batch size that it sets on Lance's scanner.
//! Arrow's plain strings and lists have 32-bit offsets. A batch with more than 2 GiB of them cannot
//! be decoded, and a batch of half that size takes as much memory for each concurrent reader.
//! Does not own: the batch size for narrow rows, which the caller sets.

use arrow_schema::DataType;
use lance::Dataset;
use lance::dataset::scanner::Scanner;
use lance_file::version::ConcreteFileVersion;
use lance_table::format::Fragment;

/// Estimated bytes of the first batches of a scan. Lance measures the width of rows on them.
const FIRST_BYTES: u64 = 512 << 20;
/// Bytes of the batches after them.
const BATCH_BYTES: u64 = 64 << 20;
/// Assumed ratio of a value's size in memory to its size in a file.
const COMPRESSED: u64 = 4;

/// Sets the batch size of `scanner`, which reads the columns `names` of `dataset`: `rows` rows, or
/// fewer where rows are wide. `row_bytes` is the size of a row in memory, where it was recorded.
pub fn set_batches(
    scanner: &mut Scanner,
    dataset: &Dataset,
    names: &[String],
    rows: usize,
    row_bytes: Option<u64>,
) {
    let most = most_rows(dataset, names, row_bytes);
    scanner.batch_size(rows.min(most));
    let version = dataset.manifest().data_storage_format.version;
    let learns = !matches!(version, ConcreteFileVersion::V1 | ConcreteFileVersion::V2_0);
    if most < rows && learns {
        scanner.batch_size_bytes(BATCH_BYTES);
    }
}

/// Rows of these columns that are safe to decode at once.
fn most_rows(dataset: &Dataset, names: &[String], row_bytes: Option<u64>) -> usize {
    let fields = &dataset.schema().fields;
    let is_read = |name: &String| names.contains(name);
    let has_variable = fields
        .iter()
        .any(|field| fixed_bytes(&field.data_type()).is_none() && is_read(&field.name));
    if !has_variable {
        return usize::MAX;
    }
    let fixed = fields.iter().filter_map(|field| fixed_bytes(&field.data_type()));
    let fixed = fixed.fold(0, u64::saturating_add);
    let variable = row_bytes.map_or_else(
        || {
            let widest = widest_bytes(&dataset.manifest().fragments);
            widest.saturating_sub(fixed).saturating_mul(COMPRESSED)
        },
        |bytes| bytes.saturating_sub(fixed),
    );
    usize::try_from(FIRST_BYTES / variable.max(1)).unwrap_or(usize::MAX).max(1)
}

/// Bytes of a row on disk, in the fragment with the widest rows. Saturating: a manifest may record
/// any size.
fn widest_bytes(fragments: &[Fragment]) -> u64 {
    let bytes = |fragment: &Fragment| {
        let files = fragment.files.iter().filter_map(|file| file.file_size_bytes.get());
        let bytes = files.map(std::num::NonZeroU64::get).fold(0, u64::saturating_add);
        bytes / fragment.physical_rows.map_or(1, |rows| rows.max(1) as u64)
    };
    fragments.iter().map(bytes).max().unwrap_or_default()
}

/// Bytes of a value of a fixed-width type.
fn fixed_bytes(of: &DataType) -> Option<u64> {
    bytes_of(of, None)
}

/// Bytes of a value, where each part of variable width counts `variable` bytes. `None` where such a
/// part has no estimate, or where the sum overflows: a schema may declare any length.
pub fn bytes_of(of: &DataType, variable: Option<u64>) -> Option<u64> {
    match of {
        DataType::Boolean => Some(1),
        DataType::FixedSizeBinary(bytes) => u64::try_from(*bytes).ok(),
        DataType::FixedSizeList(child, length) => {
            bytes_of(child.data_type(), variable)?.checked_mul(u64::try_from(*length).ok()?)
        }
        DataType::Struct(children) => children
            .iter()
            .try_fold(0_u64, |sum, child| sum.checked_add(bytes_of(child.data_type(), variable)?)),
        other => other.primitive_width().map(|bytes| bytes as u64).or(variable),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_schema::Field;

    use super::*;

    fn list(of: DataType, length: i32) -> DataType {
        DataType::FixedSizeList(Arc::new(Field::new("item", of, true)), length)
    }

    #[test]
    fn a_value_has_the_bytes_of_its_parts_and_no_width_where_the_sum_overflows() {
        assert_eq!(fixed_bytes(&list(DataType::Float32, 1536)), Some(6144));
        assert_eq!(fixed_bytes(&list(DataType::Utf8, 3)), None);
        assert_eq!(bytes_of(&list(DataType::Utf8, 3), Some(64)), Some(192));
        let vast = |of| list(of, i32::MAX);
        let vast = vast(vast(vast(DataType::Int64)));
        assert_eq!(fixed_bytes(&vast), None);
        let parts = vec![Field::new("a", DataType::Int32, true), Field::new("b", vast, true)];
        assert_eq!(fixed_bytes(&DataType::Struct(parts.into())), None);
    }
}
