//! The columns that are read from one source, and how they are reconciled with the table's columns.
//!
//! Owns: the names under which a source has the requested columns, and the rows under the table's
//! names and types, null where the source is older than a column.
//! Does not own: reading.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{Field, Schema, SchemaRef};
use lancemem_core::format::Reconcile;
use lancemem_core::format::reconcile::{StoredPlaces, refuse_other_key};
use lancemem_core::types::{Error, Result};

use super::TableSchema;

/// Some columns of a table in one source above its base.
#[derive(Clone, Debug)]
pub struct StoredColumns {
    /// Their names in the source, without the columns that it lacks.
    pub names: Vec<String>,
    /// The requested columns, in that order. All but key columns are nullable, because a tombstone
    /// has only its key.
    pub schema: SchemaRef,
    reconcile: Reconcile,
    is_same: bool,
}

impl StoredColumns {
    /// The columns `wanted` of `table`, possibly with `_tombstone`, in a source with the columns
    /// `stored`, which carry their field ids.
    ///
    /// # Errors
    /// An input error that names the column that cannot be reconciled with the table's.
    pub fn of(stored: &Schema, table: &TableSchema, wanted: &[String]) -> Result<Self> {
        let storage = table.rows.storage();
        if stored.fields() != storage.fields() {
            refuse_other_key(stored, storage)?;
        }
        let place = |name: &String| {
            let missing = || Error::internal(format!("column '{name}' is not in the table"));
            storage.index_of(name).map_err(|_| missing())
        };
        let places = wanted.iter().map(place).collect::<Result<Vec<usize>>>()?;
        let target = projected(storage, &places);
        let found = StoredPlaces::of(stored.fields());
        let read: Vec<usize> =
            target.fields().iter().filter_map(|field| found.find(field)).collect();
        let read = projected(stored, &read);
        let reconcile = Reconcile::between(&read, &target)?;
        let names: Vec<String> = read.fields().iter().map(|it| it.name().clone()).collect();
        let is_same = names == wanted && reconcile.is_identity(&read);
        let schema = projected(&table.plain_storage, &places);
        Ok(Self { names, schema: Arc::new(schema), reconcile, is_same })
    }

    /// Whether the source has all of them under the same names and types.
    #[must_use]
    pub const fn is_same(&self) -> bool {
        self.is_same
    }

    /// Reconciles rows of the source, which may have more columns, with [`Self::schema`].
    ///
    /// # Errors
    /// An internal error where a column was not read.
    pub fn bring(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let columns = batch.schema_ref();
        let place = |name: &String| {
            let missing = || Error::internal(format!("column '{name}' was not read"));
            columns.index_of(name).map_err(|_| missing())
        };
        let read = self.names.iter().map(place).collect::<Result<Vec<usize>>>()?;
        let read = batch
            .project(&read)
            .map_err(|error| Error::internal(error.to_string()).with_source(error))?;
        self.reconcile.apply(&read, &self.schema)
    }
}

fn projected(schema: &Schema, places: &[usize]) -> Schema {
    let fields: Vec<Arc<Field>> =
        places.iter().map(|place| schema.fields()[*place].clone()).collect();
    Schema::new_with_metadata(fields, schema.metadata().clone())
}
