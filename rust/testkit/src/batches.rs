//! Batches of small rows: a key made from a number, and one value.
//!
//! Owns: the key shapes and how a number becomes a key of each.
//! Does not own: which rows a test puts, or what must come back.

use std::sync::{Arc, OnceLock};

use arrow_array::{ArrayRef, Int32Array, Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};
use lancemem_core::format::RowSchema;
use lancemem_core::types::KeyBytes;

/// Stands for a null in the column `v`.
pub const NULL: i64 = i64::MIN;

/// The primary key of a test table. Every table has the column `v` (int64) beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyShape {
    /// `id` int64.
    Int64,
    /// `name` utf8, of lengths on both sides of an inline key.
    Utf8,
    /// `a` int32 and `b` utf8.
    Composite,
}

impl KeyShape {
    /// The schemas of a table with this key.
    #[must_use]
    pub fn row_schema(self) -> Arc<RowSchema> {
        static SCHEMAS: [OnceLock<Arc<RowSchema>>; 3] = [const { OnceLock::new() }; 3];
        SCHEMAS[self as usize].get_or_init(|| self.new_row_schema()).clone()
    }

    fn new_row_schema(self) -> Arc<RowSchema> {
        let names: Vec<String> = self.fields().iter().map(|field| field.name().clone()).collect();
        let mut fields = self.fields();
        fields.push(Field::new("v", DataType::Int64, true));
        Arc::new(RowSchema::new(Arc::new(Schema::new(fields)), &names).unwrap())
    }

    /// Rows to put: (number of the key, value), where [`NULL`] stands for a null.
    #[must_use]
    pub fn rows(self, rows: &[(i64, i64)]) -> RecordBatch {
        let numbers: Vec<i64> = rows.iter().map(|(number, _)| *number).collect();
        let values = rows.iter().map(|(_, value)| (*value != NULL).then_some(*value));
        let mut fields = self.fields();
        fields.push(Field::new("v", DataType::Int64, true));
        let mut columns = self.columns(&numbers);
        columns.push(Arc::new(values.collect::<Int64Array>()));
        RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap()
    }

    /// Keys to delete.
    #[must_use]
    pub fn keys(self, numbers: &[i64]) -> RecordBatch {
        let schema = Schema::new(self.fields());
        RecordBatch::try_new(Arc::new(schema), self.columns(numbers)).unwrap()
    }

    /// The encoded key of a number.
    #[must_use]
    pub fn key(self, number: i64) -> KeyBytes {
        self.encoded(&[number]).remove(0)
    }

    /// The encoded keys of numbers.
    #[must_use]
    pub fn encoded(self, numbers: &[i64]) -> Vec<KeyBytes> {
        let schema = self.row_schema();
        let accepted = schema.accept_keys(&self.keys(numbers)).unwrap();
        schema.encode_keys(&accepted).iter().map(KeyBytes::new).collect()
    }

    fn fields(self) -> Vec<Field> {
        match self {
            Self::Int64 => vec![Field::new("id", DataType::Int64, false)],
            Self::Utf8 => vec![Field::new("name", DataType::Utf8, false)],
            Self::Composite => vec![
                Field::new("a", DataType::Int32, false),
                Field::new("b", DataType::Utf8, false),
            ],
        }
    }

    fn columns(self, numbers: &[i64]) -> Vec<ArrayRef> {
        match self {
            Self::Int64 => vec![Arc::new(Int64Array::from(numbers.to_vec()))],
            Self::Utf8 => {
                let names: StringArray = numbers.iter().map(|number| Some(name(*number))).collect();
                vec![Arc::new(names)]
            }
            Self::Composite => {
                let a: Int32Array =
                    numbers.iter().map(|n| i32::try_from(n.div_euclid(3)).ok()).collect();
                let b: StringArray = numbers.iter().map(|n| Some(name(n.rem_euclid(3)))).collect();
                vec![Arc::new(a), Arc::new(b)]
            }
        }
    }
}

/// Text with a zero byte, and for every other number longer than a key that is held inline.
fn name(number: i64) -> String {
    if number % 2 == 0 { format!("{number}\0") } else { format!("{number}{:>30}", "long") }
}
