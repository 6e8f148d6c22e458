//! The vectors of one SSTable, in memory.
//!
//! Owns: the visible rows of an SSTable with their keys and the vectors of one column, read once.
//! Does not own: how long they stay (`cache`), or which SSTables are read this way (`search`).

use arrow::compute::{filter_record_batch, not};
use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use arrow_array::{ArrayRef, BooleanArray, RecordBatch};
use lance::Dataset;
use lance_core::ROW_ADDR;
use lancemem_core::format::TOMBSTONE;
use lancemem_core::types::{Error, Result};

use crate::errors::{Context, SsTableErrors};
use crate::row_address::split_address;

/// The rows of an SSTable that are neither tombstones nor hidden by its own deletion vector.
#[derive(Debug)]
pub struct VectorRows {
    /// Their key columns, and the column of vectors.
    pub rows: RecordBatch,
    /// Their positions in the data file, ascending.
    pub positions: Vec<u32>,
}

impl VectorRows {
    /// The columns `names` of `sstable`, which is named `name` in errors.
    ///
    /// # Errors
    /// A storage error, or damage.
    pub(super) async fn read(sstable: &Dataset, names: &[String], name: &str) -> Result<Self> {
        let mut scanner = sstable.scan();
        let read: Vec<&str> = names.iter().map(String::as_str).chain([TOMBSTONE]).collect();
        scanner.project(&read).in_sstable(name)?;
        scanner.with_row_address();
        let rows = scanner.try_into_batch().await.in_sstable(name)?;
        let live = not(booleans(&rows, name)?).context(name)?;
        let rows = filter_record_batch(&rows, &live).context(name)?;
        let addresses = column(&rows, ROW_ADDR, name)?;
        let positions = addresses.as_primitive_opt::<UInt64Type>().ok_or_else(|| {
            Error::internal(format!("{name}: column {ROW_ADDR} holds {}", addresses.data_type()))
        })?;
        let positions = positions.values().iter().map(|address| split_address(*address).1);
        let positions = positions.collect();
        let schema = rows.schema();
        let places = names.iter().map(|name| schema.index_of(name)).collect::<Result<Vec<_>, _>>();
        let rows = rows.project(&places.context(name)?).context(name)?;
        Ok(Self { rows, positions })
    }

    /// Bytes on the heap.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.rows.get_array_memory_size() + self.positions.capacity() * size_of::<u32>()
    }
}

fn booleans<'a>(rows: &'a RecordBatch, name: &str) -> Result<&'a BooleanArray> {
    let misshapen =
        || Error::corrupt(name, "misshapen", format!("column {TOMBSTONE} is no boolean"));
    column(rows, TOMBSTONE, name)?.as_boolean_opt().ok_or_else(misshapen)
}

fn column<'a>(rows: &'a RecordBatch, of: &str, name: &str) -> Result<&'a ArrayRef> {
    let missing = || Error::internal(format!("{name} was read without {of}"));
    rows.column_by_name(of).ok_or_else(missing)
}
