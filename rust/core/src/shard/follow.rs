//! A running job and a table whose columns change.
//!
//! Owns: when a job takes a new schema, and that no MemTable ever holds rows of two.
//! Does not own: which schema the table has, which the sink knows, or what is compatible
//! (`format::reconcile`).
//!
//! Rows that were accepted stay as they are, in memory, in the log and in their SSTable: the frozen
//! MemTable keeps its schema, and readers bring its rows to theirs.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::MutexGuard;

use super::memtable_layout;
use super::state::{LiveMemTable, ShardState};
use super::writer::{ShardWriter, Shared};
use crate::format::RowSchema;
use crate::memtable::MemTable;
use crate::types::{Error, ErrorKind, Result};

impl ShardWriter {
    /// Asks the sink for the table's newest columns and goes on under them; whether a put that was
    /// refused before may be accepted now.
    ///
    /// # Errors
    /// An input error where the job cannot follow; puts are refused with it until it can. A
    /// storage error where nobody knows.
    pub async fn follow_table(&self) -> Result<bool> {
        self.shared.check_open()?;
        self.shared.look_and_follow().await
    }
}

impl Shared {
    /// What puts are accepted and stored as now.
    pub(super) fn schema(&self) -> Arc<RowSchema> {
        self.schema.read().clone()
    }

    /// Refuses puts while the table is one that the job cannot follow.
    pub(super) fn check_schema(&self) -> Result<()> {
        self.refused.lock().clone().map_or(Ok(()), Err)
    }

    /// [`ShardWriter::follow_table`] after a flush. Where it fails the next flush asks again, and
    /// so does a put that does not fit.
    pub(super) async fn follow_table(&self) {
        if self.is_closed() {
            return;
        }
        if let Err(error) = self.look_and_follow().await {
            tracing::warn!(shard = %self.shard_id, %error, "the table's columns are not followed");
        }
    }

    /// One look at a time: what a slow one has seen is never followed over what a later one has. Many
    /// that wait for their turn are served by one look, which began after all of them asked.
    async fn look_and_follow(&self) -> Result<bool> {
        let begun = self.looks.load(Ordering::Acquire);
        let mut followed = self.following.lock().await;
        if *followed > begun {
            return Ok(true);
        }
        let look = self.looks.fetch_add(1, Ordering::AcqRel) + 1;
        let newest = self.sink.newest_schema().await;
        let changed = self.follow(newest)?;
        *followed = look;
        Ok(changed)
    }

    fn follow(&self, newest: Result<Option<Arc<RowSchema>>>) -> Result<bool> {
        let placing = self.placing.lock();
        let followed = newest.and_then(|newest| match newest {
            Some(newest) => self.change_schema(&placing, &newest),
            None => Ok(false),
        });
        let mut refused = self.refused.lock();
        match followed {
            // What was refused until now is worth another attempt.
            Ok(changed) => Ok(refused.take().is_some() || changed),
            Err(error) => {
                if error.kind() == ErrorKind::InvalidInput {
                    *refused = Some(error.clone());
                }
                Err(error)
            }
        }
    }

    fn change_schema(&self, placing: &MutexGuard<'_, ()>, newest: &Arc<RowSchema>) -> Result<bool> {
        let current = self.schema();
        if self.is_closed() || newest.has_columns_of(&current) {
            return Ok(false);
        }
        newest.refuse_misfit(&current)?;
        *self.schema.write() = newest.clone();
        if self.freeze(placing).is_none() {
            self.publish(self.state().with_empty_active(self.empty_memtable(newest)));
        }
        tracing::info!(shard = %self.shard_id, "the job took the table's new columns");
        Ok(true)
    }

    /// In place of an active MemTable that has no row.
    fn empty_memtable(&self, schema: &RowSchema) -> Arc<MemTable> {
        let generation = self.state().active.memtable.generation();
        Arc::new(MemTable::new(generation, memtable_layout(schema, self.config.key_index)))
    }
}

impl ShardState {
    /// This state with `memtable` in place of an active one without rows.
    fn with_empty_active(&self, memtable: Arc<MemTable>) -> Self {
        let active = LiveMemTable { memtable, ..self.active.clone() };
        Self { manifest: self.manifest.clone(), frozen: self.frozen.clone(), active }
    }
}

/// What an open does where the log has rows of columns that its caller did not know.
pub(super) async fn newest_schema(
    sink: &dyn super::SsTableSink,
    known: &Arc<RowSchema>,
) -> Result<Arc<RowSchema>, Error> {
    let Some(newest) = sink.newest_schema().await? else { return Ok(known.clone()) };
    newest.refuse_misfit(known)?;
    Ok(newest)
}
