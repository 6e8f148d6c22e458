//! The columns of a search, from the sources to the result.
//!
//! Owns: which columns every source reads, and which are read of the chosen rows alone.
//! Does not own: how they are read.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef};
use lancemem_core::types::{Error, Result};

use super::{DISTANCE, QUERY_INDEX};
use crate::snapshot::{Snapshot, bytes_of};

/// Bytes of a value up to which every source reads it with the vectors.
const NARROW_BYTES: u64 = 64;

/// The columns of one search.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    /// Columns that the sources return beside the distance, in the order of the table.
    pub carried: Vec<String>,
    /// Columns that are read of the chosen rows alone, in the order of the table.
    pub late: Vec<String>,
    /// The caller's columns of the table, in order.
    pub output: Vec<String>,
    /// The column of vectors.
    pub vector: String,
    /// Names of the key columns; empty for an append-only table.
    pub key: Arc<[String]>,
    /// Whether rows name their query.
    pub is_batch: bool,
    schema: SchemaRef,
}

/// What decides the layout of a search.
pub(super) struct Asked<'a> {
    /// The caller's columns; `None` for all.
    pub columns: Option<&'a [String]>,
    /// Columns that a filter after the choice of rows reads.
    pub postfilter: BTreeSet<String>,
    pub vector: &'a str,
    pub is_batch: bool,
    /// Whether wide columns are read of the chosen rows alone, where that is possible.
    pub defers: bool,
}

impl Layout {
    /// The layout of a search of `snapshot`.
    ///
    /// # Errors
    /// An input error for an unknown column, and for one that has the name of a result's column.
    pub fn of(snapshot: &Snapshot, asked: &Asked<'_>) -> Result<Self> {
        let schema = &snapshot.schema;
        let all = || schema.fields().iter().map(|field| field.name().clone()).collect();
        let output: Vec<String> = asked.columns.map_or_else(all, <[String]>::to_vec);
        if let Some(unknown) = output.iter().find(|name| schema.field_with_name(name).is_err()) {
            return Err(unknown_column(unknown, schema));
        }
        let is_needed = |name: &String| {
            output.contains(name) || asked.postfilter.contains(name) || snapshot.key.contains(name)
        };
        let defers = asked.defers && !snapshot.key.is_empty();
        let is_late = |field: &Field| {
            defers
                && field.name() != asked.vector
                && !snapshot.key.contains(field.name())
                && is_wide(field.data_type())
        };
        let needed = schema.fields().iter().filter(|field| is_needed(field.name()));
        let (late, carried): (Vec<_>, Vec<_>) = needed.partition(|field| is_late(field));
        let names = |fields: Vec<&Arc<Field>>| fields.iter().map(|it| it.name().clone()).collect();
        let layout = Self {
            carried: names(carried),
            late: names(late),
            output,
            vector: asked.vector.to_owned(),
            key: snapshot.key.clone(),
            is_batch: asked.is_batch,
            schema: schema.clone(),
        };
        layout.refuse_own_names()?;
        Ok(layout)
    }

    fn refuse_own_names(&self) -> Result<()> {
        let is_own = |name: &&String| *name == DISTANCE || (self.is_batch && *name == QUERY_INDEX);
        match self.carried.iter().chain(&self.late).find(is_own) {
            None => Ok(()),
            Some(name) => Err(Error::input(format!(
                "column '{name}' of the table has the name of a column of every search; rename it, \
                 or name other columns in columns="
            ))),
        }
    }

    /// The columns that a source reads, in the order of the table.
    pub fn read(&self) -> Vec<String> {
        let is_read = |name: &&String| **name == self.vector || self.carried.contains(name);
        let names = self.schema.fields().iter().map(|field| field.name());
        names.filter(is_read).cloned().collect()
    }

    /// The columns of the rows that a source returns.
    pub fn candidates(&self) -> SchemaRef {
        self.found(&self.carried)
    }

    /// The columns of the chosen rows, with the late ones.
    pub fn chosen(&self) -> SchemaRef {
        let is_in = |name: &&String| self.carried.contains(name) || self.late.contains(name);
        let names = self.schema.fields().iter().map(|field| field.name());
        self.found(&names.filter(is_in).cloned().collect::<Vec<_>>())
    }

    /// The names of the result's columns, in order.
    pub fn result(&self) -> Vec<String> {
        let query = self.is_batch.then(|| QUERY_INDEX.to_owned());
        let distance = DISTANCE.to_owned();
        query.into_iter().chain(self.output.iter().cloned()).chain([distance]).collect()
    }

    fn found(&self, names: &[String]) -> SchemaRef {
        let query = self.is_batch.then(|| Field::new(QUERY_INDEX, DataType::Int32, false));
        let field = |name: &String| self.schema.field_with_name(name).ok().cloned();
        let distance = Field::new(DISTANCE, DataType::Float32, true);
        let fields = query.into_iter().chain(names.iter().filter_map(field)).chain([distance]);
        let fields: Vec<Field> = fields.collect();
        Arc::new(Schema::new_with_metadata(fields, self.schema.metadata().clone()))
    }
}

/// Whether values of this type are read of the chosen rows alone, where that is possible.
pub(super) fn is_wide(of: &DataType) -> bool {
    bytes_of(of, None).is_none_or(|bytes| bytes > NARROW_BYTES)
}

/// The error for a column that the table of `schema` does not have.
pub(super) fn unknown_column(name: &str, schema: &Schema) -> Error {
    let known: Vec<&str> = schema.fields().iter().map(|it| it.name().as_str()).collect();
    Error::input(format!("column '{name}' is not in the table; it has {}", known.join(", ")))
}
