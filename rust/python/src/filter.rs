//! Filters from Python: SQL text or an expression of pyarrow.
//!
//! Owns: the accepted forms, and the errors of all others.
//! Does not own: the meaning of a condition; the table resolves it when it is read.

use std::sync::Arc;

use arrow_schema::extension::EXTENSION_TYPE_NAME_KEY;
use arrow_schema::{DataType, Field, FieldRef, Schema, SchemaRef};
use lancemem::Condition;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

use crate::errors::InvalidInputError;
use crate::finalization::outlive_interpreter;
use crate::output::pyarrow_schema;

/// The largest depth of an expression. pyarrow encodes each argument twice, so the encoding doubles
/// with each level: at this depth it takes a few megabytes, at thirty levels it would take all
/// memory.
const MAX_NESTED: usize = 16;

/// The condition of `filter`, for a table with these columns.
pub fn condition(
    filter: Option<&Bound<'_, PyAny>>,
    schema: &SchemaRef,
) -> PyResult<Option<Condition>> {
    let Some(filter) = filter else { return Ok(None) };
    if let Ok(sql) = filter.cast::<PyString>() {
        return Ok(Some(Condition::Sql(sql.to_str()?.to_owned())));
    }
    outlive_interpreter();
    if filter.hasattr(intern!(filter.py(), "to_substrait"))? {
        return substrait(filter, schema).map(Some);
    }
    let of = filter.get_type();
    let module = of.module()?.to_string();
    if module == "polars" || module.starts_with("polars.") {
        return Err(InvalidInputError::new_err(
            "a polars expression cannot be read outside polars; pass the filter as a SQL string \
             or as a pyarrow expression, or filter a frame of polars.scan_pyarrow_dataset(\
             table.to_dataset()), which hands the condition on",
        ));
    }
    Err(InvalidInputError::new_err(format!(
        "the filter must be a SQL string or a pyarrow expression, got {}",
        of.name()?
    )))
}

/// An expression of pyarrow as Substrait. pyarrow encodes the schema too, so only columns whose
/// types it can encode are in it.
fn substrait(expression: &Bound<'_, PyAny>, schema: &SchemaRef) -> PyResult<Condition> {
    let py = expression.py();
    let depth = nesting(expression.str()?.to_str()?);
    if depth > MAX_NESTED {
        return Err(InvalidInputError::new_err(format!(
            "the filter cannot be taken as an expression, pass it as a SQL string: it has {depth} \
             levels, the limit is {MAX_NESTED}, because pyarrow's encoding doubles with each level; \
             for a list of values use isin()"
        )));
    }
    let (columns, others): (Vec<_>, Vec<_>) =
        schema.fields().iter().cloned().partition(|field| is_plain(field));
    let columns = pyarrow_schema(py, &Arc::new(Schema::new(columns)))?;
    let message = expression.call_method1(intern!(py, "to_substrait"), (columns,));
    let message = message.map_err(|cause| {
        let text = cause.value(py).to_string();
        let names = |field: &&FieldRef| text.contains(&format!("FieldRef.Name({})", field.name()));
        let why = others.iter().find(names).map_or_else(
            || text.clone(),
            |field| format!("column '{}' has a type that pyarrow cannot encode", field.name()),
        );
        let refusal = InvalidInputError::new_err(format!(
            "the filter cannot be taken as an expression, pass it as a SQL string: {why}"
        ));
        refusal.set_cause(py, Some(cause));
        refusal
    })?;
    let message = py.get_type::<PyBytes>().call1((message,))?.cast_into::<PyBytes>()?;
    Ok(Condition::substrait(message.as_bytes().to_vec()))
}

/// The nesting depth of the parentheses in a text, without those in quotes.
fn nesting(text: &str) -> usize {
    let (mut depth, mut deepest, mut quoted, mut escaped) = (0_usize, 0, false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'(' if !quoted => depth += 1,
            b')' if !quoted => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    deepest
}

/// Whether pyarrow can encode the column's type: neither a nested type nor an extension type.
fn is_plain(column: &Field) -> bool {
    is_flat(column.data_type()) && !column.metadata().contains_key(EXTENSION_TYPE_NAME_KEY)
}

const fn is_flat(of: &DataType) -> bool {
    matches!(
        of,
        DataType::Boolean
            | DataType::Int8
            | DataType::Int16
            | DataType::Int32
            | DataType::Int64
            | DataType::UInt8
            | DataType::UInt16
            | DataType::UInt32
            | DataType::UInt64
            | DataType::Float32
            | DataType::Float64
            | DataType::Utf8
            | DataType::LargeUtf8
            | DataType::Binary
            | DataType::LargeBinary
            | DataType::Date32
            | DataType::Timestamp(..)
            | DataType::Decimal128(..)
    )
}
