//! The columns of a full-text search, from the sources to the result.
//!
//! Owns: which columns the candidates have, and which are read of the chosen rows alone.
//! Does not own: how they are read.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef};
use lancemem_core::types::{Error, Result};

use super::SCORE;
use crate::snapshot::{Snapshot, bytes_of};

/// Bytes of a value up to which it is read with the candidates.
const NARROW_BYTES: u64 = 64;

/// The columns of one full-text search.
#[derive(Clone, Debug)]
pub(super) struct TextLayout {
    /// Columns of the candidates beside the score, in the order of the table.
    pub carried: Vec<String>,
    /// Columns that are read of the chosen rows alone, in the order of the table.
    pub late: Vec<String>,
    /// The caller's columns of the table, in order.
    pub output: Vec<String>,
    /// Names of the key columns; empty for an append-only table.
    pub key: Arc<[String]>,
    schema: SchemaRef,
}

impl TextLayout {
    /// The layout of a search of `snapshot` for the columns `asked`, where the condition before the
    /// choice of rows reads `before`, and the one after it `after`.
    ///
    /// # Errors
    /// An input error for an unknown column, and for one that has the name of a result's column.
    pub fn of(
        snapshot: &Snapshot,
        asked: Option<&[String]>,
        before: &BTreeSet<String>,
        after: &BTreeSet<String>,
    ) -> Result<Self> {
        let schema = &snapshot.schema;
        let all = || schema.fields().iter().map(|field| field.name().clone()).collect();
        let output: Vec<String> = asked.map_or_else(all, <[String]>::to_vec);
        if let Some(unknown) = output.iter().find(|name| schema.field_with_name(name).is_err()) {
            return Err(unknown_column(unknown, schema));
        }
        let is_first = |name: &String| before.contains(name) || snapshot.key.contains(name);
        let is_needed =
            |name: &String| output.contains(name) || after.contains(name) || is_first(name);
        let is_late = |field: &Field| {
            let is_wide = bytes_of(field.data_type(), None).is_none_or(|it| it > NARROW_BYTES);
            !snapshot.key.is_empty() && !is_first(field.name()) && is_wide
        };
        let needed = schema.fields().iter().filter(|field| is_needed(field.name()));
        let (late, carried): (Vec<_>, Vec<_>) = needed.partition(|field| is_late(field));
        let names = |fields: Vec<&Arc<Field>>| fields.iter().map(|it| it.name().clone()).collect();
        let layout = Self {
            carried: names(carried),
            late: names(late),
            output,
            key: snapshot.key.clone(),
            schema: schema.clone(),
        };
        if layout.carried.iter().chain(&layout.late).any(|name| name == SCORE) {
            return Err(Error::input(format!(
                "column '{SCORE}' of the table has the name of a column of every full-text search; \
                 rename it, or name other columns in columns="
            )));
        }
        Ok(layout)
    }

    /// The columns that a source without an index reads for the text columns `texts`, in the order
    /// of the table.
    pub fn read(&self, texts: &[&str]) -> Vec<String> {
        let is_read =
            |name: &&String| self.carried.contains(name) || texts.contains(&name.as_str());
        let names = self.schema.fields().iter().map(|field| field.name());
        names.filter(is_read).cloned().collect()
    }

    /// The columns of the candidates, without their scores.
    pub fn rows(&self) -> SchemaRef {
        self.schema_of(&self.carried, None)
    }

    /// The columns of the candidates.
    pub fn candidates(&self) -> SchemaRef {
        self.schema_of(&self.carried, Some(SCORE))
    }

    /// The columns of the chosen rows, with the late ones.
    pub fn chosen(&self) -> SchemaRef {
        let is_in = |name: &&String| self.carried.contains(name) || self.late.contains(name);
        let names = self.schema.fields().iter().map(|field| field.name());
        self.schema_of(&names.filter(is_in).cloned().collect::<Vec<_>>(), Some(SCORE))
    }

    /// The names of the result's columns, in order.
    pub fn result(&self) -> Vec<String> {
        self.output.iter().cloned().chain([SCORE.to_owned()]).collect()
    }

    fn schema_of(&self, names: &[String], score: Option<&str>) -> SchemaRef {
        let field = |name: &String| self.schema.field_with_name(name).ok().cloned();
        let score = score.map(|name| Field::new(name, DataType::Float32, true));
        let fields: Vec<Field> = names.iter().filter_map(field).chain(score).collect();
        Arc::new(Schema::new_with_metadata(fields, self.schema.metadata().clone()))
    }
}

/// The error for a column that the table does not have.
pub(in crate::search) fn unknown_column(name: &str, schema: &Schema) -> Error {
    let known: Vec<&str> = schema.fields().iter().map(|it| it.name().as_str()).collect();
    Error::input(format!("column '{name}' is not in the table; it has {}", known.join(", ")))
}
