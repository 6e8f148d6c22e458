//! The keys of one call.
//!
//! Owns: their encoded form, their values for indexes, and which rows of the call have the same
//! key.
//! Does not own: answers.

use arrow_array::RecordBatch;
use datafusion::common::ScalarValue;
use lancemem_core::format::KeyEncoder;
use lancemem_core::types::Result;

use crate::errors::Context;
use crate::snapshot::SsTableKeys;

/// The keys of a call, by row of the call.
pub(super) struct Wanted {
    /// Only the key columns, in primary-key order.
    pub batch: RecordBatch,
    /// The encoded keys, with the hash table from a key to the last row of the call that has it.
    keys: SsTableKeys,
}

impl Wanted {
    pub fn new(key: &[String], rows: &RecordBatch) -> Result<Self> {
        let encoder = KeyEncoder::new(rows.schema_ref(), key)?;
        let batch = rows.project(encoder.columns()).context("reading the keys of a call")?;
        Ok(Self { keys: SsTableKeys::dense(encoder.encode_block(rows)), batch })
    }

    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// The encoded key of a row.
    pub fn key(&self, row: u32) -> &[u8] {
        self.keys.key(row as usize)
    }

    /// The row that represents all rows of a key; `None` for a key that is not in the call.
    pub fn row_of(&self, key: &[u8]) -> Option<u32> {
        // Most calls ask for one key, which needs no table.
        if self.len() == 1 {
            return (self.key(0) == key).then_some(0);
        }
        self.keys.find(key)
    }

    /// One row for every key, ascending.
    pub fn distinct(&self) -> Vec<u32> {
        let rows = (0..).zip(self.keys.iter());
        rows.filter(|(row, (key, _))| self.row_of(key) == Some(*row)).map(|(row, _)| row).collect()
    }

    /// The value of a row's key in an index: the value of the only key column, or the encoded key.
    pub fn value(&self, row: u32) -> Result<ScalarValue> {
        match self.batch.columns() {
            [column] => ScalarValue::try_from_array(column, row as usize).context("reading a key"),
            _ => Ok(ScalarValue::Binary(Some(self.key(row).to_vec()))),
        }
    }
}
