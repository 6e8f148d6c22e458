//! Lookups: rows by key.
//!
//! Owns: the call: casting its keys to the table's types, the snapshot that it reads, and its
//! columns.
//! Does not own: the search (`lookup`).

use std::sync::Arc;

use arrow_array::RecordBatch;
use async_recursion::async_recursion as boxed;
use datafusion::common::runtime::SpawnedTask;
use lancemem_core::types::{Error, Result};
use parking_lot::Mutex;

use super::Reader;
use super::gather::{Purpose, Sources};
use super::live_job::LiveJob;
use crate::damage::naming_damage;
use crate::lookup::{self, Ahead, FoundRows};
use crate::merged::merged_for;
use crate::snapshot::{CacheStats, Consistency, Snapshot};
use crate::table::Table;

impl Table {
    /// The newest rows of `keys`, a batch with the key columns, in the order of the keys.
    ///
    /// ```no_run
    /// use arrow_array::record_batch;
    /// use lancemem::{Consistency, Table};
    ///
    /// # async fn example() -> lancemem::Result<()> {
    /// let table = Table::open("/data/board.lance").await?;
    /// let keys = record_batch!(("id", Int64, [1, 2, 3])).unwrap();
    /// let columns = Some(vec!["price".to_owned()]);
    /// let found = table.get(&keys, columns, Consistency::Durable, &[]).await?;
    /// assert_eq!(found.num_rows() + found.missing.len(), 3);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// An input error where key columns are missing or of another type, or a column is unknown.
    #[boxed]
    pub async fn get(
        &self,
        keys: &RecordBatch,
        columns: Option<Vec<String>>,
        consistency: Consistency,
        jobs: &[Arc<dyn LiveJob>],
    ) -> Result<FoundRows> {
        self.catalog.require_key()?;
        let asked = Mutex::new(self.reader.ask_base(keys, columns.as_ref()).await);
        let (asked, columns) = (&asked, &columns);
        let pin = || self.reader.snapshot_for(consistency, jobs, Purpose::Lookup);
        let find = |snapshot: Arc<Snapshot>| async move {
            let call = call_of(&snapshot, keys, columns.clone())?;
            let snapshot = merged_for(snapshot, &call.0).await?;
            let asked = asked.lock().take();
            let ahead = async { asked?.await.ok().flatten() };
            lookup::find_with(&snapshot, &call.0, &call.1, ahead).await
        };
        self.reader.read_again(pin, find).await
    }

    /// The rows of `keys` in a snapshot of [`Self::snapshot`]; otherwise as [`Self::get`].
    ///
    /// # Errors
    /// As [`Self::get`].
    #[boxed]
    pub async fn get_of_snapshot(
        &self,
        snapshot: &Snapshot,
        keys: &RecordBatch,
        columns: Option<Vec<String>>,
    ) -> Result<FoundRows> {
        self.catalog.require_key()?;
        if snapshot.key.is_empty() {
            return Err(Error::input(format!(
                "version {} of table {} has no primary key yet, so rows cannot be found by key; scan \
                 it with a condition",
                snapshot.base_version(),
                self.uri()
            )));
        }
        let (keys, columns) = call_of(snapshot, keys, columns)?;
        naming_damage(&snapshot.base, lookup::find(snapshot, &keys, &columns)).await
    }

    /// Sets whether checksums of SSTables on a local disk are verified: of small ones when they are
    /// opened, of all when they are compacted. They are by default. Without it the rest of a
    /// damaged SSTable can be read. SSTables that are open already are not affected.
    pub fn set_verify_sstables(&self, verifies: bool) {
        self.reader.sstables.set_verifies(verifies);
    }

    /// Counters of the table's cache: open SSTables and keys.
    #[must_use]
    pub fn cache_stats(&self) -> CacheStats {
        self.reader.sstables.stats()
    }
}

impl Reader {
    /// In the first read of a remote store, starts the lookup in the known base version while the
    /// snapshot is taken. The known version is usually the newest. If it is not, or if this fails,
    /// the lookup reads the base table itself.
    async fn ask_base(
        &self,
        keys: &RecordBatch,
        columns: Option<&Vec<String>>,
    ) -> Option<SpawnedTask<Option<Ahead>>> {
        if !self.is_first_far_read() {
            return None;
        }
        let snapshot = self.snapshot_over(
            self.catalog.base.known(),
            Vec::new(),
            Sources::All,
            Purpose::Lookup,
        );
        let snapshot = snapshot.await.ok()?;
        let (keys, columns) = call_of(&snapshot, keys, columns.cloned()).ok()?;
        let ask = async move { Ahead::of(&snapshot, &keys, &columns).await.ok() };
        Some(SpawnedTask::spawn(ask))
    }
}

/// The keys in the table's types, and the columns of the result.
fn call_of(
    snapshot: &Snapshot,
    keys: &RecordBatch,
    columns: Option<Vec<String>>,
) -> Result<(RecordBatch, Vec<String>)> {
    let keys = snapshot.columns.rows.accept_wanted(keys)?.batch;
    let all = || snapshot.schema.fields().iter().map(|field| field.name().clone()).collect();
    Ok((keys, columns.unwrap_or_else(all)))
}
