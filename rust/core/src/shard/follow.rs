//! A running job and a table whose columns change.
//!
//! Owns: when a job takes a new schema, and that no MemTable ever holds rows of two.
//! Does not own: which schema the table has, which the [`SchemaSource`] answers, or what is
//! compatible (`format::reconcile`).
//!
//! Rows that were accepted stay as they are, in memory, in the log and in their SSTable: the frozen
//! MemTable keeps its schema, and readers bring its rows to theirs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard, RwLock};

use super::state::{LiveMemTable, ShardState};
use super::writer::{ShardWriter, Shared};
use super::{SchemaSource, memtable_layout};
use crate::format::RowSchema;
use crate::memtable::MemTable;
use crate::types::{Error, ErrorKind, Result};

/// The columns that a job accepts and stores, and how it learns the table's.
#[derive(Debug)]
pub(super) struct SchemaFollower {
    source: Arc<dyn SchemaSource>,
    /// What puts are accepted and stored as now; swapped under the placing lock.
    schema: RwLock<Arc<RowSchema>>,
    /// Held from a look at the table's columns until they are followed: the newest look that was.
    following: tokio::sync::Mutex<u64>,
    /// Looks that were begun.
    looks: AtomicU64,
    /// Why nothing is accepted: the table changed in a way that the job cannot follow.
    refused: Mutex<Option<Error>>,
}

impl SchemaFollower {
    pub fn new(source: Arc<dyn SchemaSource>, schema: Arc<RowSchema>) -> Self {
        Self {
            source,
            schema: RwLock::new(schema),
            following: tokio::sync::Mutex::default(),
            looks: AtomicU64::new(0),
            refused: Mutex::default(),
        }
    }

    /// What puts are accepted and stored as now.
    pub fn schema(&self) -> Arc<RowSchema> {
        self.schema.read().clone()
    }

    /// Refuses puts while the table is one that the job cannot follow.
    pub fn check(&self) -> Result<()> {
        self.refused.lock().clone().map_or(Ok(()), Err)
    }

    /// Asks the source and hands its answer to `follow`; whether more may be accepted now.
    ///
    /// One look at a time: the answer of a slow look is never followed over that of a later one. All
    /// callers that wait for their turn are served by one look, which began after all of them asked.
    async fn look(
        &self,
        follow: impl FnOnce(Result<Arc<RowSchema>>) -> Result<bool>,
    ) -> Result<bool> {
        let begun = self.looks.load(Ordering::Acquire);
        let mut followed = self.following.lock().await;
        if *followed > begun {
            return Ok(true);
        }
        let look = self.looks.fetch_add(1, Ordering::AcqRel) + 1;
        let changed = follow(self.source.newest().await)?;
        *followed = look;
        Ok(changed)
    }

    /// Remembers why nothing can be accepted, or that all can be again.
    fn settle(&self, followed: Result<bool>) -> Result<bool> {
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
}

impl ShardWriter {
    /// Asks for the table's newest columns and goes on under them; whether a put that was refused
    /// before may be accepted now. [`Self::write`] calls it where rows do not fit.
    ///
    /// # Errors
    /// An input error where the job cannot follow; puts are refused with it until it can. A
    /// storage error where the columns could not be read.
    pub async fn follow_table(&self) -> Result<bool> {
        self.shared.check_open()?;
        self.shared.look_and_follow().await
    }
}

impl Shared {
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

    /// Whether rows that were refused under `schema` may fit now: the table has other columns, or
    /// another put or a flush has followed them since.
    pub(super) async fn fits_now(&self, schema: &Arc<RowSchema>) -> Result<bool> {
        self.check_open()?;
        let changed = self.look_and_follow().await?;
        Ok(changed || !Arc::ptr_eq(&self.follower.schema(), schema))
    }

    async fn look_and_follow(&self) -> Result<bool> {
        self.follower.look(|newest| self.follow(newest)).await
    }

    fn follow(&self, newest: Result<Arc<RowSchema>>) -> Result<bool> {
        let placing = self.placing.lock();
        let followed = newest.and_then(|newest| self.change_schema(&placing, &newest));
        self.follower.settle(followed)
    }

    fn change_schema(&self, placing: &MutexGuard<'_, ()>, newest: &Arc<RowSchema>) -> Result<bool> {
        let current = self.follower.schema();
        if self.is_closed() || newest.has_columns_of(&current) {
            return Ok(false);
        }
        newest.refuse_misfit(&current)?;
        *self.follower.schema.write() = newest.clone();
        if self.freeze(placing).is_none() {
            self.publish(self.state().with_empty_active(self.empty_memtable(newest)));
        }
        tracing::info!(shard = %self.shard_id, "the job follows the table's new columns");
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
pub(super) async fn newest_schema(source: &dyn SchemaSource) -> Result<Arc<RowSchema>> {
    let newest = source.newest().await?;
    newest.refuse_misfit(&source.known())?;
    Ok(newest)
}
