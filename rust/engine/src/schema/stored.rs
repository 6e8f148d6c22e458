//! What is read of one source, and how it comes to the table's columns.
//!
//! Owns: the names under which a source has the columns that are wanted, and the rows under the
//! table's names and types, null where the source is older than a column.
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
    /// Their names in the source; columns that it lacks have none.
    pub names: Vec<String>,
    /// What comes of them: the columns that were asked for, in that order. All but key columns
    /// may be null, because a tombstone has nothing else.
    pub schema: SchemaRef,
    reconcile: Reconcile,
    is_same: bool,
}

impl StoredColumns {
    /// The columns `wanted` of `table`, `_tombstone` perhaps among them, in a source with the
    /// columns of `stored`, which carry their field ids.
    ///
    /// # Errors
    /// An input error that names the column whose rows cannot be read under the table's columns.
    pub fn of(stored: &Schema, table: &TableSchema, wanted: &[String]) -> Result<Self> {
        let storage = table.rows.storage();
        if stored.fields() != storage.fields() {
            refuse_other_key(stored, storage)?;
        }
        let place = |name: &String| {
            let missing = || Error::Internal(format!("column '{name}' is not in the table"));
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

    /// Rows of the source, with more columns perhaps, under [`Self::schema`].
    ///
    /// # Errors
    /// An internal error where a column was not read.
    pub fn bring(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let columns = batch.schema_ref();
        let place = |name: &String| {
            let missing = || Error::Internal(format!("column '{name}' was not read"));
            columns.index_of(name).map_err(|_| missing())
        };
        let read = self.names.iter().map(place).collect::<Result<Vec<usize>>>()?;
        let read = batch.project(&read).map_err(|error| Error::Internal(error.to_string()))?;
        self.reconcile.apply(&read, &self.schema)
    }
}

fn projected(schema: &Schema, places: &[usize]) -> Schema {
    let fields: Vec<Arc<Field>> =
        places.iter().map(|place| schema.fields()[*place].clone()).collect();
    Schema::new_with_metadata(fields, schema.metadata().clone())
}
