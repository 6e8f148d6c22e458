//! Rows by key.
//!
//! Owns: the call: its keys in the table's types, the cut that it reads, its columns.
//! Does not own: the search (`lookup`).

use std::sync::Arc;

use arrow_array::RecordBatch;
use lancemem_core::types::{Error, Result};

use super::{Job, Table};
use crate::lookup::{self, Found};
use crate::view::{Consistency, KeptStats};

impl Table {
    /// The newest rows of `keys`, a batch with the key columns, in the order of the keys.
    ///
    /// # Errors
    /// An input error where key columns are missing or of another type, or a column is unknown.
    pub async fn get(
        &self,
        keys: &RecordBatch,
        columns: Option<Vec<String>>,
        consistency: Consistency,
        jobs: &[Arc<Job>],
    ) -> Result<Found> {
        if self.key.is_empty() {
            return Err(Error::input(
                "the table has no primary key, so rows cannot be found by key",
            ));
        }
        let wanted = self.rows.accept_keys(keys)?;
        let view = self.read_view(consistency, jobs).await?;
        let columns = match columns {
            Some(columns) => columns,
            None => view.schema.fields().iter().map(|field| field.name().clone()).collect(),
        };
        lookup::find(&view, &wanted.batch, &columns).await
    }

    /// Counters of what this process keeps of the table: open runs and keys.
    #[must_use]
    pub fn kept(&self) -> KeptStats {
        self.sstables.stats()
    }
}
