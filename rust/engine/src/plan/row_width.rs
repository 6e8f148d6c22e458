//! How wide rows are, and how many of them make a batch.
//!
//! Owns: the approximate bytes of a row in memory, by its types.
//! Does not own: the bytes of rows in files, which an SSTable counts.

use arrow_schema::{DataType, Schema};

use crate::snapshot::bytes_of;

/// Most bytes of a batch of narrow rows, and the bounds of its number of rows.
const BATCH_BYTES: usize = 1 << 20;
const MIN_BATCH_ROWS: usize = 8_192;
const MAX_BATCH_ROWS: usize = 32_768;
/// Assumed bytes of a value of variable width.
const VARIABLE_BYTES: u64 = 64;

/// Rows of a batch of these columns: Lance's default, or more for narrow rows, because each batch
/// costs about as much as a thousand keys.
pub(super) fn batch_rows(schema: &Schema, names: &[String]) -> usize {
    let row = width_of_columns(schema, names).saturating_add(size_of::<u64>());
    (BATCH_BYTES / row).clamp(MIN_BATCH_ROWS, MAX_BATCH_ROWS)
}

/// Approximate bytes of these columns of a row.
pub(super) fn width_of_columns(schema: &Schema, names: &[String]) -> usize {
    let fields = names.iter().filter_map(|name| schema.field_with_name(name).ok());
    fields.map(|field| width_of(field.data_type())).fold(0, usize::saturating_add)
}

/// Approximate bytes of a value.
fn width_of(of: &DataType) -> usize {
    bytes_of(of, Some(VARIABLE_BYTES)).and_then(|it| it.try_into().ok()).unwrap_or(usize::MAX)
}
