//! Rows by key.
//!
//! Owns: the call: its keys in the table's types, the cut that it reads, its columns.
//! Does not own: the search (`lookup`).

use std::sync::Arc;

use arrow_array::RecordBatch;
use lancemem_core::types::{Error, Result};

use super::{LiveJob, Table};
use crate::lookup::{self, Found};
use crate::view::{Consistency, KeptStats, ReadView};

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
        jobs: &[Arc<dyn LiveJob>],
    ) -> Result<Found> {
        self.require_key()?;
        let view = self.read_view(consistency, jobs).await?;
        self.get_of_view(&view, keys, columns).await
    }

    /// The rows of `keys` in a cut that [`Self::read_view`] pinned; otherwise as [`Self::get`].
    ///
    /// # Errors
    /// As [`Self::get`].
    pub async fn get_of_view(
        &self,
        view: &ReadView,
        keys: &RecordBatch,
        columns: Option<Vec<String>>,
    ) -> Result<Found> {
        self.require_key()?;
        let wanted = view.columns.rows.accept_keys(keys)?;
        let columns = match columns {
            Some(columns) => columns,
            None => view.schema.fields().iter().map(|field| field.name().clone()).collect(),
        };
        lookup::find(view, &wanted.batch, &columns).await
    }

    pub(super) fn require_key(&self) -> Result<()> {
        if self.key.is_empty() {
            return Err(Error::input(
                "the table has no primary key, so rows cannot be found by key",
            ));
        }
        Ok(())
    }

    /// Counters of what this process keeps of the table: open runs and keys.
    #[must_use]
    pub fn kept(&self) -> KeptStats {
        self.sstables.stats()
    }
}
