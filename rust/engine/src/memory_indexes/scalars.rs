//! Rows in memory in the order of a column's values.
//!
//! Owns: [`MemoryOrder`], the ordered index of one scalar column of one MemTable, [`MakeOrder`],
//! which makes it for a column with a `BTREE` or `BITMAP` index of the base table, and the rows
//! that it names for wanted values.
//! Does not own: the ordered map (`lancemem_core::memtable`), what a filter wants, or its
//! evaluation: the rows of an index are evaluated like all others.
//!
//! Values are encoded by Arrow's row format, in which floats have the total order of Arrow's
//! comparisons: a NaN is above all numbers, and equal to itself. A null is in no range, so it has
//! no entry.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::row::{RowConverter, SortField};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::{ArrowError, DataType, SchemaRef};
use lancemem_core::memtable::{MakeIndex, OrderedRows, SecondaryIndex};

/// Makes the ordered indexes of one column.
#[derive(Debug)]
pub struct MakeOrder {
    name: String,
    column: String,
    data_type: DataType,
}

/// The ordered index of a column of one MemTable.
pub struct MemoryOrder {
    column: String,
    data_type: DataType,
    encoder: RowConverter,
    rows: OrderedRows,
    /// The rows below are in the index.
    indexed: AtomicUsize,
}

/// The values that a filter wants of a column, none of which is null.
#[derive(Clone, Debug)]
pub enum Wanted {
    /// One of these.
    Values(ArrayRef),
    /// At least the one and at most the other value of an array.
    Range(Option<ArrayRef>, Option<ArrayRef>),
}

impl MakeOrder {
    /// The maker for `column`; `None` for a type without an order, or with parts.
    #[must_use]
    pub fn new(column: &str, data_type: &DataType) -> Option<Self> {
        let is_plain = data_type.is_primitive()
            || matches!(
                data_type,
                DataType::Boolean
                    | DataType::Utf8
                    | DataType::LargeUtf8
                    | DataType::Utf8View
                    | DataType::Binary
                    | DataType::LargeBinary
                    | DataType::FixedSizeBinary(_)
            );
        let field = SortField::new(data_type.clone());
        if !is_plain || !RowConverter::supports_fields(std::slice::from_ref(&field)) {
            return None;
        }
        let name = format!("order of {column}: {data_type}");
        Some(Self { name, column: column.to_owned(), data_type: data_type.clone() })
    }

    /// The column.
    #[must_use]
    pub fn column(&self) -> &str {
        &self.column
    }
}

impl MakeIndex for MakeOrder {
    fn name(&self) -> &str {
        &self.name
    }

    fn make(&self, schema: &SchemaRef) -> Option<Arc<dyn SecondaryIndex>> {
        let field = schema.field_with_name(&self.column).ok()?;
        if *field.data_type() != self.data_type {
            return None;
        }
        let encoder = RowConverter::new(vec![SortField::new(self.data_type.clone())]).ok()?;
        Some(Arc::new(MemoryOrder {
            column: self.column.clone(),
            data_type: self.data_type.clone(),
            encoder,
            rows: OrderedRows::default(),
            indexed: AtomicUsize::new(0),
        }))
    }
}

impl fmt::Debug for MemoryOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemoryOrder({})", self.column)
    }
}

impl MemoryOrder {
    /// The rows below `end` that may have a wanted value, ascending: those that have one, and those
    /// that are not in the index yet. `None` where they are more than `most`, or values are of
    /// another type.
    #[must_use]
    pub fn rows_with(&self, wanted: &Wanted, end: usize, most: usize) -> Option<Vec<u32>> {
        // Read first: what the index has below is complete then.
        let indexed = self.indexed.load(Ordering::Acquire).min(end);
        let mut found: Vec<u32> = Vec::new();
        let mut is_enough = true;
        let mut visit = |row: u32| {
            if (row as usize) < indexed {
                found.push(row);
                is_enough = found.len() <= most;
            }
            is_enough
        };
        match wanted {
            Wanted::Values(values) => {
                let encoded = self.encoded(values).ok()?;
                for value in encoded.iter().map(Vec::as_slice) {
                    self.rows.between(Some(value), Some(value), &mut visit);
                }
            }
            Wanted::Range(low, high) => {
                let bound = |of: &Option<ArrayRef>| match of {
                    Some(value) => self.encoded(value).ok().map(|mut it| it.pop()),
                    None => Some(None),
                };
                let (low, high) = (bound(low)?, bound(high)?);
                self.rows.between(low.as_deref(), high.as_deref(), &mut visit);
            }
        }
        found.extend((indexed..end).filter_map(|row| u32::try_from(row).ok()));
        if !is_enough || found.len() > most {
            return None;
        }
        found.sort_unstable();
        // A list may name a value twice.
        found.dedup();
        Some(found)
    }

    fn encoded(&self, values: &ArrayRef) -> Result<Vec<Vec<u8>>, ArrowError> {
        if *values.data_type() != self.data_type {
            let found = values.data_type();
            return Err(ArrowError::InvalidArgumentError(format!("values of {found}")));
        }
        let rows = self.encoder.convert_columns(std::slice::from_ref(values))?;
        Ok(rows.iter().map(|row| row.as_ref().to_vec()).collect())
    }
}

impl SecondaryIndex for MemoryOrder {
    fn insert(&self, batch: &RecordBatch, first_row: usize) {
        let Some(column) = batch.column_by_name(&self.column) else { return };
        // Rows that cannot be encoded stay above `indexed`, and every filter is evaluated on them.
        if self.indexed.load(Ordering::Relaxed) != first_row {
            return;
        }
        let Ok(rows) = self.encoder.convert_columns(std::slice::from_ref(column)) else { return };
        for (place, value) in rows.iter().enumerate() {
            let Ok(row) = u32::try_from(first_row + place) else { return };
            if column.is_valid(place) {
                self.rows.insert(value.as_ref(), row);
            }
        }
        self.indexed.store(first_row + batch.num_rows(), Ordering::Release);
    }

    fn bytes(&self) -> usize {
        self.rows.bytes()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::{Float64Array, Int64Array, StringArray};
    use arrow_schema::{Field, Schema};

    use super::*;

    fn index_of(column: ArrayRef) -> Arc<dyn SecondaryIndex> {
        let field = Field::new("x", column.data_type().clone(), true);
        let schema = Arc::new(Schema::new(vec![field]));
        let made = MakeOrder::new("x", column.data_type()).unwrap().make(&schema).unwrap();
        made.insert(&RecordBatch::try_new(schema, vec![column]).unwrap(), 0);
        made
    }

    fn of(index: &Arc<dyn SecondaryIndex>) -> &MemoryOrder {
        index.as_any().downcast_ref().unwrap()
    }

    #[test]
    fn equal_values_lists_and_ranges_name_their_rows_and_never_a_null() {
        let column = Int64Array::from(vec![Some(5), None, Some(-3), Some(5), Some(9)]);
        let index = index_of(Arc::new(column));
        let values = |of: &[i64]| Wanted::Values(Arc::new(Int64Array::from(of.to_vec())));
        let rows = |wanted: &Wanted| of(&index).rows_with(wanted, 5, 9).unwrap();
        assert_eq!(rows(&values(&[5])), [0, 3]);
        assert_eq!(rows(&values(&[9, -3, 9])), [2, 4]);
        assert_eq!(rows(&values(&[7])), [0_u32; 0]);
        let one = |of: i64| Some(Arc::new(Int64Array::from(vec![of])) as ArrayRef);
        assert_eq!(rows(&Wanted::Range(one(-3), one(5))), [0, 2, 3]);
        assert_eq!(rows(&Wanted::Range(None, one(-1))), [2]);
        assert_eq!(rows(&Wanted::Range(one(9), None)), [4]);
        assert_eq!(of(&index).rows_with(&values(&[5]), 3, 9).unwrap(), [0], "a view of three rows");
        assert_eq!(of(&index).rows_with(&values(&[5]), 5, 1), None, "too many");
        let text: ArrayRef = Arc::new(StringArray::from(vec!["5"]));
        assert_eq!(of(&index).rows_with(&Wanted::Values(text), 5, 9), None, "another type");
    }

    #[test]
    fn a_nan_is_above_all_numbers_and_zeros_have_a_sign() {
        let column = Float64Array::from(vec![f64::NAN, 1.0, -0.0, 0.0, f64::INFINITY, -f64::NAN]);
        let index = index_of(Arc::new(column));
        let one = |of: f64| Some(Arc::new(Float64Array::from(vec![of])) as ArrayRef);
        let rows = |wanted: &Wanted| of(&index).rows_with(wanted, 6, 9).unwrap();
        assert_eq!(rows(&Wanted::Range(one(1.0), None)), [0, 1, 4]);
        assert_eq!(rows(&Wanted::Range(None, one(-0.0))), [2, 5]);
        assert_eq!(rows(&Wanted::Values(Arc::new(Float64Array::from(vec![0.0, -0.0])))), [2, 3]);
    }

    #[test]
    fn rows_that_are_not_in_the_index_yet_are_named_too() {
        let index = index_of(Arc::new(Int64Array::from(vec![1, 2])));
        let wanted = Wanted::Values(Arc::new(Int64Array::from(vec![2])));
        assert_eq!(of(&index).rows_with(&wanted, 4, 9).unwrap(), [1, 2, 3]);
    }

    #[test]
    fn columns_with_parts_have_no_order() {
        let item = Arc::new(Field::new("item", DataType::Int64, true));
        assert!(MakeOrder::new("x", &DataType::List(item)).is_none());
        assert!(MakeOrder::new("x", &DataType::Null).is_none());
    }
}
