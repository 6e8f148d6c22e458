//! Nested types as a Lance scan returns them.
//!
//! Owns: the removal of field ids inside a column's type. Rows in memory carry them, because the
//! log stores them; Lance's scans do not, and Arrow treats the two as different types.
//! Does not own: field ids of whole columns, which do not belong to a type.

use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef, Schema};
use lancemem_core::format::reconcile::FIELD_ID;

/// `schema` with the types of a Lance scan.
pub fn plain_schema(schema: &Schema) -> Schema {
    let fields = schema.fields().iter().map(|field| {
        let data_type = plain_type(field.data_type());
        field.as_ref().clone().with_data_type(data_type)
    });
    Schema::new_with_metadata(fields.collect::<Vec<Field>>(), schema.metadata().clone())
}

fn plain_type(data_type: &DataType) -> DataType {
    match data_type {
        DataType::List(item) => DataType::List(plain_field(item)),
        DataType::LargeList(item) => DataType::LargeList(plain_field(item)),
        DataType::FixedSizeList(item, length) => {
            DataType::FixedSizeList(plain_field(item), *length)
        }
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(plain_field).collect()),
        DataType::Map(entries, sorted) => DataType::Map(plain_field(entries), *sorted),
        other => other.clone(),
    }
}

fn plain_field(field: &FieldRef) -> FieldRef {
    let mut metadata = field.metadata().clone();
    metadata.remove(FIELD_ID);
    let data_type = plain_type(field.data_type());
    Arc::new(field.as_ref().clone().with_data_type(data_type).with_metadata(metadata))
}
