//! Bits of `_given` of rows that were stored under other columns.
//!
//! Owns: which bit of the stored rows is which bit of the table's.
//! Does not own: which stored column is which column of the table (`reconcile`).

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, FixedSizeBinaryArray};
use arrow_schema::{ArrowError, DataType, Field, Schema};

use super::TOMBSTONE;
use super::reconcile::{KEY_MARK, StoredPlaces};
use crate::merge::GIVEN;

/// From bits of stored rows to bits of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GivenBits {
    /// For each bit of the table the bit of the stored rows; `None` for a column that they lack,
    /// which no event gave.
    from: Vec<Option<usize>>,
    bytes: i32,
}

impl GivenBits {
    /// The bits of rows of `stored` in rows of `table`, both with all of their columns.
    pub fn between(stored: &Schema, table: &Schema, places: &StoredPlaces<'_>) -> Option<Self> {
        let DataType::FixedSizeBinary(bytes) = *table.field_with_name(GIVEN).ok()?.data_type()
        else {
            return None;
        };
        let stored_bits = value_columns(stored);
        let bit_of = |field: &Field| {
            let place = places.find(field)?;
            stored_bits.iter().position(|stored| *stored == place)
        };
        let columns = value_columns(table);
        let from = columns.into_iter().map(|place| bit_of(table.field(place))).collect();
        Some(Self { from, bytes })
    }

    /// The bits of `stored` as those of the table.
    pub fn apply(&self, stored: &ArrayRef) -> Result<ArrayRef, ArrowError> {
        let stored = stored.as_fixed_size_binary_opt().ok_or_else(|| {
            ArrowError::CastError(format!("column {GIVEN} is of type {}", stored.data_type()))
        })?;
        let width = usize::try_from(self.bytes).unwrap_or_default();
        let mut bytes = vec![0_u8; width * stored.len()];
        for (row, to) in bytes.chunks_mut(width.max(1)).enumerate() {
            let given = stored.value(row);
            let is_given =
                |bit: usize| given.get(bit / 8).is_some_and(|byte| byte & (1 << (bit % 8)) != 0);
            for (bit, from) in self.from.iter().enumerate() {
                if from.is_some_and(is_given) {
                    to[bit / 8] |= 1 << (bit % 8);
                }
            }
        }
        Ok(Arc::new(FixedSizeBinaryArray::try_new(self.bytes, bytes.into(), None)?))
    }
}

/// Places of the columns that have a bit: those of the table beside its key.
fn value_columns(schema: &Schema) -> Vec<usize> {
    let is_key = |field: &Field| field.metadata().get(KEY_MARK).is_some_and(|mark| mark == "true");
    let own = schema.fields().iter().take_while(|field| field.name() != TOMBSTONE);
    own.enumerate().filter(|(_, field)| !is_key(field)).map(|(place, _)| place).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use arrow_array::{BooleanArray, Int64Array, RecordBatch};

    use super::*;
    use crate::format::Reconcile;
    use crate::format::reconcile::FIELD_ID;

    fn column(id: i32, name: &str) -> Field {
        let mut metadata = HashMap::from([(FIELD_ID.to_owned(), id.to_string())]);
        if id == 0 {
            metadata.insert(KEY_MARK.to_owned(), "true".to_owned());
        }
        Field::new(name, DataType::Int64, id != 0).with_metadata(metadata)
    }

    fn schema(columns: Vec<Field>, bytes: i32) -> Schema {
        let mut fields = columns;
        fields.push(Field::new(TOMBSTONE, DataType::Boolean, false));
        fields.push(Field::new(GIVEN, DataType::FixedSizeBinary(bytes), false));
        Schema::new(fields)
    }

    #[test]
    fn a_bit_follows_its_column_when_others_are_dropped_added_and_renamed() {
        let stored =
            schema(vec![column(1, "a"), column(0, "k"), column(2, "b"), column(3, "c")], 1);
        // Column b is gone, c has another name, and eight columns are new.
        let mut columns = vec![column(0, "k")];
        columns.extend((10..18).map(|id| column(id, &format!("n{id}"))));
        columns.extend([column(1, "a"), column(3, "other")]);
        let table = schema(columns, 2);
        let number = || Arc::new(Int64Array::from(vec![1, 1])) as ArrayRef;
        let given = FixedSizeBinaryArray::try_from_iter([[0b101_u8], [0b010]].iter()).unwrap();
        let rows = RecordBatch::try_new(
            Arc::new(stored.clone()),
            vec![
                number(),
                number(),
                number(),
                number(),
                Arc::new(BooleanArray::from(vec![false, false])),
                Arc::new(given),
            ],
        )
        .unwrap();
        let reconcile = Reconcile::between(&stored, &table).unwrap();
        let brought = reconcile.apply(&rows, &Arc::new(table)).unwrap();
        let given = brought.column_by_name(GIVEN).unwrap().as_fixed_size_binary();
        assert_eq!(given.value(0), [0, 0b11]);
        assert_eq!(given.value(1), [0, 0]);
    }
}
