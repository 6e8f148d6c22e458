//! Rules for the columns and the key of a table.
//!
//! Owns: the key in the metadata of a schema, and the refusal of columns whose values Lance would
//! not store as they are put.
//! Does not own: later schema changes (`schema`), or values (the core's `rows`).

use std::collections::HashMap;

use arrow_schema::{DataType, Field, FieldRef, Fields, Schema};
use lance::Dataset;
use lancemem_core::format::TOMBSTONE;
use lancemem_core::format::key::is_key_type;
use lancemem_core::format::reconcile::{KEY_MARK, WIDENED_FROM};
use lancemem_core::types::{Error, Result, TypeName};

use crate::schema::{in_table, refuse_structs_of_old_formats};

/// The metadata of a field with its place in the primary key, from 1.
pub(super) const KEY_POSITION: &str = "lance-schema:unenforced-primary-key:position";
/// Levels of nested types. Readers of Arrow IPC messages stop at 64 levels of message tables.
const MAX_LEVELS: usize = 48;
const BLOB: &str = "Lance keeps the bytes of a blob column outside of its rows; use large_binary";

/// The schema with its key in the metadata that Lance reads.
pub(super) fn with_key(schema: &Schema, key: &[String]) -> Result<Schema> {
    for (index, field) in schema.fields().iter().enumerate() {
        let name = field.name();
        if name == TOMBSTONE {
            return Err(Error::input(format!("the column name '{TOMBSTONE}' is reserved")));
        }
        if is_there_before(schema.fields(), index) {
            return Err(Error::input(format!("column '{name}' is in the schema twice")));
        }
        if let Some(part) = marked_part(field) {
            return Err(Error::input(format!(
                "the schema marks '{name}.{part}' as the primary key, but a key consists of whole \
                 columns; make the field a column, or remove '{KEY_MARK}' from its metadata"
            )));
        }
    }
    for (index, name) in key.iter().enumerate() {
        if key[..index].contains(name) {
            return Err(Error::input(format!("primary key column '{name}' is named twice")));
        }
        schema.field_with_name(name).map_err(|_| {
            let known: Vec<&str> = schema.fields().iter().map(|it| it.name().as_str()).collect();
            Error::input(format!(
                "primary key column '{name}' is not in the schema; it has {}",
                known.join(", ")
            ))
        })?;
    }
    let fields = schema.fields().iter().map(|field| {
        let mut metadata: HashMap<String, String> = field.metadata().clone();
        metadata.remove(KEY_MARK);
        metadata.remove(KEY_POSITION);
        // The field id in it belongs to the table that the schema comes from.
        metadata.remove(WIDENED_FROM);
        let Some(position) = key.iter().position(|name| name == field.name()) else {
            return Ok(field.as_ref().clone().with_metadata(metadata));
        };
        metadata.insert(KEY_MARK.to_owned(), "true".to_owned());
        metadata.insert(KEY_POSITION.to_owned(), (position + 1).to_string());
        // A key column is never null, whatever the caller's schema allows.
        let field = field.as_ref().clone().with_nullable(false).with_metadata(metadata);
        check_key_field(&field)?;
        Ok(field)
    });
    let fields = fields.collect::<Result<Vec<Field>>>()?;
    Ok(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

/// The path of a nested field of the column that the metadata marks as the primary key.
fn marked_part(column: &Field) -> Option<String> {
    let parts: Vec<&FieldRef> = match column.data_type() {
        DataType::Struct(parts) => parts.iter().collect(),
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::FixedSizeList(item, _)
        | DataType::Map(item, _) => vec![item],
        _ => Vec::new(),
    };
    parts.into_iter().find_map(|part| {
        let name = part.name();
        let is_marked = part.metadata().contains_key(KEY_MARK);
        let below = || marked_part(part).map(|below| format!("{name}.{below}"));
        if is_marked { Some(name.clone()) } else { below() }
    })
}

/// Refuses to write to a table with columns that cannot be stored: a put would be acknowledged, and
/// no flush would ever succeed. Another program may have added such a column.
pub(in crate::table) fn refuse_unwritable(base: &Dataset) -> Result<()> {
    refuse_structs_of_old_formats(base)?;
    let refused = refuse_unstorable(&Schema::from(base.schema()));
    refused.map_err(|error| in_table(base.uri(), error))
}

/// Refuses columns that Lance accepts in a schema but cannot store or read: their rows would be
/// acknowledged and lost.
pub(super) fn refuse_unstorable(schema: &Schema) -> Result<()> {
    for field in schema.fields() {
        let name = field.name();
        if name.is_empty() || name.contains(['`', '\0']) || name == "*" {
            return Err(Error::input(format!(
                "Lance cannot read a column of the name '{}'; rename the column",
                name.escape_default()
            )));
        }
        if let Some(reason) = why_unstorable(field, 0) {
            return Err(Error::input(format!("column '{name}' cannot be stored: {reason}")));
        }
    }
    Ok(())
}

fn why_unstorable(field: &Field, depth: usize) -> Option<String> {
    if let Some(reason) = why_foreign(field) {
        return Some(reason.to_owned());
    }
    if depth > MAX_LEVELS {
        return Some(format!(
            "nested types are limited to {MAX_LEVELS} levels, deeper ones cannot be read from the log"
        ));
    }
    let why_unstorable = |part: &Field| why_unstorable(part, depth + 1);
    match field.data_type() {
        DataType::Dictionary(_, value) if **value == DataType::Null => {
            Some("a dictionary without a type has no values".to_owned())
        }
        DataType::Dictionary(index, value) if index.primitive_width().is_none_or(|it| it < 4) => {
            Some(format!(
                "a dictionary with {} indices holds too few values for all batches together; use {}, \
                 or 32-bit indices",
                TypeName(index),
                TypeName(value)
            ))
        }
        DataType::Struct(fields) if fields.is_empty() => {
            Some("Lance stores nothing of a struct without fields".to_owned())
        }
        DataType::Struct(fields) => {
            why_twice(fields).or_else(|| fields.iter().find_map(|it| why_unstorable(it)))
        }
        DataType::FixedSizeList(item, _)
            if !item.data_type().is_primitive()
                && !matches!(item.data_type(), DataType::Boolean | DataType::FixedSizeList(..)) =>
        {
            Some(format!("Lance has no fixed-size lists of {}", TypeName(item.data_type())))
        }
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::FixedSizeList(item, _)
        | DataType::Map(item, _) => why_unstorable(item),
        _ => None,
    }
}

fn why_twice(fields: &Fields) -> Option<String> {
    let twice = (0..fields.len()).find(|place| is_there_before(fields, *place))?;
    Some(format!("it has the field '{}' twice", fields[twice].name()))
}

/// Whether an earlier field has the name of the field at `place`.
fn is_there_before(fields: &Fields, place: usize) -> bool {
    fields[..place].iter().any(|earlier| earlier.name() == fields[place].name())
}

/// The reason, if Lance stores or returns values of the column in another form than they are put.
fn why_foreign(field: &Field) -> Option<&'static str> {
    let extension = field.metadata().get("ARROW:extension:name").map(String::as_str);
    let is_blob = field.metadata().get("lance-encoding:blob").is_some_and(|it| it == "true");
    match extension {
        Some("lance.blob.v2") => Some(BLOB),
        Some("arrow.json" | "lance.json") => {
            Some("Lance stores JSON in its own binary form; use a text column")
        }
        _ => is_blob.then_some(BLOB),
    }
}

pub(super) fn check_key_field(field: &Field) -> Result<()> {
    if is_key_type(field.data_type()) {
        return Ok(());
    }
    Err(Error::input(format!(
        "column '{}' of type {} cannot be a primary key column; use an integer, bool, string, \
         large_string, binary or large_binary column",
        field.name(),
        TypeName(field.data_type())
    )))
}
