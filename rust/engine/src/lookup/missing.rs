//! Keys of a lookup that have no row.
//!
//! Owns: the rows of nulls in their places, and the error that names them.
//! Does not own: which keys have no row (`pieces`).

use std::sync::Arc;

use arrow::compute::take;
use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow_cast::display::array_value_to_string;
use arrow_schema::{ArrowError, Schema, SchemaRef};
use lancemem_core::types::{Error, Result};

use super::FoundRows;
use crate::errors::Context;

/// Keys that the error names.
const MAX_NAMED_KEYS: usize = 5;
/// Characters of a key that the error shows.
const MAX_KEY_CHARS: usize = 100;

impl FoundRows {
    /// A row for each key of the call. The row of a missing key is null in all columns but the key
    /// columns, so all other columns are nullable in the result.
    ///
    /// # Errors
    /// An internal error: Arrow cannot gather the rows.
    pub fn with_null_rows(&self) -> Result<Vec<RecordBatch>> {
        let mut is_missing = vec![false; self.keys.num_rows()];
        for &position in &self.missing {
            is_missing[position] = true;
        }
        let mut filled = Vec::with_capacity(self.rows.len());
        let mut start = 0;
        for (number, batch) in self.rows.iter().enumerate() {
            let is_last = number + 1 == self.rows.len();
            let rows = u32::try_from(batch.num_rows()).unwrap_or(u32::MAX);
            let mut places = Vec::with_capacity(batch.num_rows());
            let mut next = 0;
            for missing in &is_missing[start..] {
                if !is_last && next == rows {
                    break;
                }
                if *missing {
                    places.push(None);
                } else {
                    places.push(Some(next));
                    next += 1;
                }
            }
            let keys = self.keys.slice(start, places.len());
            start += places.len();
            filled.push(fill(batch, &keys, places).context("filling the rows of missing keys")?);
        }
        Ok(filled)
    }

    /// The rows, where every key of the call has one.
    ///
    /// # Errors
    /// An input error that names the first missing keys.
    pub fn require_all(self) -> Result<Vec<RecordBatch>> {
        if self.missing.is_empty() {
            return Ok(self.rows);
        }
        let named = self.missing.iter().take(MAX_NAMED_KEYS);
        let named: Vec<String> = named.map(|position| key_text(&self.keys, *position)).collect();
        let more = if self.missing.len() > named.len() { ", ..." } else { "" };
        Err(Error::input(format!(
            "no row for {} of {} keys: {}{more}",
            self.missing.len(),
            self.keys.num_rows(),
            named.join(", ")
        )))
    }
}

/// The rows of `batch` at `places`, with `keys` in the key columns.
fn fill(
    batch: &RecordBatch,
    keys: &RecordBatch,
    places: Vec<Option<u32>>,
) -> std::result::Result<RecordBatch, ArrowError> {
    let schema = nullable(batch.schema_ref(), keys);
    let places = UInt32Array::from(places);
    let columns = batch.schema_ref().fields().iter().zip(batch.columns());
    let columns = columns.map(|(field, column)| match keys.column_by_name(field.name()) {
        Some(key) => Ok(key.clone()),
        None => take(column.as_ref(), &places, None),
    });
    let columns = columns.collect::<std::result::Result<Vec<ArrayRef>, _>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(keys.num_rows()));
    RecordBatch::try_new_with_options(schema, columns, &options)
}

/// The columns of `schema`, nullable except the key columns.
fn nullable(schema: &SchemaRef, keys: &RecordBatch) -> SchemaRef {
    let fields = schema.fields().iter().map(|field| {
        if keys.column_by_name(field.name()).is_some() || field.is_nullable() {
            return field.clone();
        }
        Arc::new(field.as_ref().clone().with_nullable(true))
    });
    let fields: Vec<_> = fields.collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

/// A key as text: its value, or the values of its columns in parentheses.
fn key_text(keys: &RecordBatch, row: usize) -> String {
    let values = keys.columns().iter().map(|column| {
        let text = array_value_to_string(column, row).unwrap_or_else(|_| "a value".to_owned());
        match text.char_indices().nth(MAX_KEY_CHARS) {
            Some((end, _)) => format!("{}...", &text[..end]),
            None => text,
        }
    });
    let values: Vec<String> = values.collect();
    match values.as_slice() {
        [value] => value.clone(),
        _ => format!("({})", values.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::{Array, Int64Array, StringArray};
    use arrow_schema::{DataType, Field};

    use super::*;

    /// Rows of the keys 0 to 7 in two batches, of which 1, 4 and 7 are missing.
    fn found() -> FoundRows {
        let names = vec![
            Field::new("id", DataType::Int64, false),
            Field::new("name", DataType::Utf8, false),
        ];
        let schema = Arc::new(Schema::new(names));
        let batch = |ids: Vec<i64>| {
            let names = ids.iter().map(|id| format!("row {id}"));
            let names: ArrayRef = Arc::new(StringArray::from_iter_values(names));
            let ids: ArrayRef = Arc::new(Int64Array::from(ids));
            RecordBatch::try_new(schema.clone(), vec![ids, names]).unwrap()
        };
        let keys: ArrayRef = Arc::new(Int64Array::from_iter_values(0..8));
        FoundRows {
            rows: vec![batch(vec![0, 2]), batch(vec![3, 5, 6])],
            missing: vec![1, 4, 7],
            keys: RecordBatch::try_from_iter([("id", keys)]).unwrap(),
        }
    }

    #[test]
    fn a_missing_key_gets_a_row_of_nulls_in_its_place() {
        let rows = found().with_null_rows().unwrap();
        assert_eq!(rows.iter().map(RecordBatch::num_rows).sum::<usize>(), 8);
        let mut position = 0;
        for batch in &rows {
            let ids = batch.column(0).as_any().downcast_ref::<Int64Array>().unwrap();
            let names = batch.column(1).as_any().downcast_ref::<StringArray>().unwrap();
            assert!(batch.schema().field(1).is_nullable());
            assert!(!batch.schema().field(0).is_nullable());
            for row in 0..batch.num_rows() {
                assert_eq!(ids.value(row), position);
                if matches!(position, 1 | 4 | 7) {
                    assert!(names.is_null(row));
                } else {
                    assert_eq!(names.value(row), format!("row {position}"));
                }
                position += 1;
            }
        }
    }

    #[test]
    fn an_error_names_the_first_missing_keys_and_their_number() {
        let error = found().require_all().unwrap_err();
        assert_eq!(error.to_string(), "no row for 3 of 8 keys: 1, 4, 7");
        let all = FoundRows { missing: (0..8).collect(), ..found() };
        let error = all.require_all().unwrap_err();
        assert_eq!(error.to_string(), "no row for 8 of 8 keys: 0, 1, 2, 3, 4, ...");
        let none = FoundRows { missing: Vec::new(), ..found() };
        assert_eq!(none.require_all().unwrap().len(), 2);
    }
}
