//! Rows compared by a hash of their values.
//!
//! Owns: the hash, 128 bits of all columns of a row, in which a null differs from every value.
//! Does not own: which rows are compared.

use std::hash::BuildHasher;
use std::sync::Arc;

use arrow::row::{RowConverter, SortField};
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, ListArray, RecordBatch};
use arrow_schema::{DataType, Schema};
use foldhash::quality::FixedState;
use lancemem_core::types::Result;

use crate::errors::Context;

const ACTION: &str = "comparing rows of two versions";
/// Seeds of the two halves.
const SEEDS: [u64; 2] = [0x5bd1_e995_9d1b_54a3, 0xc2b2_ae3d_27d4_eb4f];

/// Hashes rows of one schema.
#[derive(Debug)]
pub struct RowHasher {
    converter: RowConverter,
    states: [FixedState; 2],
}

impl RowHasher {
    /// `None` where the columns have a type that Arrow cannot compare, such as a map inside of a
    /// struct.
    ///
    /// # Errors
    /// An internal error of Arrow.
    pub fn new(schema: &Schema) -> Result<Option<Self>> {
        let of = |field: &Arc<arrow_schema::Field>| SortField::new(comparable(field.data_type()));
        let fields: Vec<SortField> = schema.fields().iter().map(of).collect();
        if !RowConverter::supports_fields(&fields) {
            return Ok(None);
        }
        let converter = RowConverter::new(fields).context(ACTION)?;
        Ok(Some(Self { converter, states: SEEDS.map(FixedState::with_seed) }))
    }

    /// The hash of each row.
    ///
    /// # Errors
    /// An internal error of Arrow.
    pub fn hash(&self, rows: &RecordBatch) -> Result<Vec<u128>> {
        if rows.num_columns() == 0 {
            return Ok(vec![0; rows.num_rows()]);
        }
        let columns = rows.columns().iter().map(flat).collect::<Result<Vec<ArrayRef>>>()?;
        let encoded = self.converter.convert_columns(&columns).context(ACTION)?;
        let hash = |row: arrow::row::Row<'_>| {
            let [high, low] = &self.states;
            let bytes: &[u8] = row.as_ref();
            u128::from(high.hash_one(bytes)) << 64 | u128::from(low.hash_one(bytes))
        };
        Ok(encoded.iter().map(hash).collect())
    }
}

/// The type with maps as lists of their entries.
fn comparable(of: &DataType) -> DataType {
    match of {
        DataType::Map(entries, _) => DataType::List(entries.clone()),
        other => other.clone(),
    }
}

fn flat(column: &ArrayRef) -> Result<ArrayRef> {
    let DataType::Map(entries, _) = column.data_type() else { return Ok(column.clone()) };
    let map = column.as_map();
    let (offsets, values) = (map.offsets().clone(), Arc::new(map.entries().clone()));
    let list = ListArray::try_new(entries.clone(), offsets, values, map.nulls().cloned());
    Ok(Arc::new(list.context(ACTION)?))
}

#[cfg(test)]
mod tests {
    use arrow_array::{Int64Array, StringArray};

    use super::*;

    fn rows(ids: Vec<Option<i64>>, names: Vec<Option<&str>>) -> RecordBatch {
        let ids: ArrayRef = Arc::new(Int64Array::from(ids));
        let names: ArrayRef = Arc::new(StringArray::from(names));
        RecordBatch::try_from_iter([("id", ids), ("name", names)]).unwrap()
    }

    #[test]
    fn equal_rows_have_one_hash_and_others_have_another() {
        let all = rows(
            vec![Some(1), Some(1), None, None, Some(1), Some(2)],
            vec![Some("a"), Some("a"), Some("a"), None, None, Some("")],
        );
        let hasher = RowHasher::new(all.schema_ref()).unwrap().unwrap();
        let hashes = hasher.hash(&all).unwrap();
        assert_eq!(hashes[0], hashes[1]);
        let mut others = hashes[1..].to_vec();
        others.sort_unstable();
        others.dedup();
        assert_eq!(others.len(), 5);
        // A row has the same hash in every batch.
        assert_eq!(hasher.hash(&all.slice(2, 2)).unwrap(), hashes[2..4]);
    }

    #[test]
    fn rows_without_columns_are_equal() {
        let none = rows(vec![None, Some(1)], vec![None, None]).project(&[]).unwrap();
        let hasher = RowHasher::new(none.schema_ref()).unwrap().unwrap();
        assert_eq!(hasher.hash(&none).unwrap(), [0, 0]);
    }
}
