//! How a running job follows the columns of its table.
//!
//! Owns: when a job takes a new schema, and that no MemTable holds rows of two schemas.
//! Does not own: the table's schema ([`SchemaSource`]), or which schemas are compatible
//! (`format::reconcile`).
//!
//! Accepted rows are never rewritten, neither in memory nor in the log nor in their SSTable. The
//! frozen MemTable keeps its schema, and readers reconcile its rows with the present columns.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard, RwLock};

use super::state::{LiveMemTable, ShardState};
use super::writer::{ShardWriter, Shared};
use super::{SchemaSource, memtable_layout};
use crate::format::RowSchema;
use crate::memtable::MemTable;
use crate::types::{Error, ErrorKind, Result};

/// The columns that a job accepts, and the source of the table's columns.
#[derive(Debug)]
pub(super) struct SchemaFollower {
    source: Arc<dyn SchemaSource>,
    /// The columns under which puts are accepted now; swapped under the `placing` lock.
    schema: RwLock<Arc<RowSchema>>,
    /// The number of the newest look that was followed. Locked from a look at the table's columns
    /// until the job follows them.
    following: tokio::sync::Mutex<u64>,
    /// Number of looks that have begun.
    looks: AtomicU64,
    /// The error of all puts while the job cannot follow the table's columns.
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

    /// The columns under which puts are accepted now.
    pub fn schema(&self) -> Arc<RowSchema> {
        self.schema.read().clone()
    }

    /// Refuses puts while the job cannot follow the table's columns.
    pub fn check(&self) -> Result<()> {
        self.refused.lock().clone().map_or(Ok(()), Err)
    }

    /// Asks the source and passes its answer to `follow`. Returns whether a put that was refused
    /// may be accepted now.
    ///
    /// One look runs at a time, so the answer of a slow look never replaces the answer of a later
    /// look. One look serves all waiting callers, because it began after each of them asked.
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

    /// Stores the error under which puts are refused, or clears it.
    fn settle(&self, followed: Result<bool>) -> Result<bool> {
        let mut refused = self.refused.lock();
        match followed {
            // Puts that were refused until now may be accepted, so they are worth a retry.
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
    /// Reads the table's newest columns and follows them. Returns whether a put that was refused
    /// may be accepted now. [`Self::write`] calls it where rows do not fit.
    ///
    /// # Errors
    /// An input error where the job cannot follow; puts are refused with this error until it can. A
    /// storage error where the columns could not be read.
    pub async fn follow_table(&self) -> Result<bool> {
        self.shared.check_open()?;
        self.shared.look_and_follow().await
    }
}

impl Shared {
    /// [`ShardWriter::follow_table`] after a flush. After a failure, the next flush or a put that
    /// does not fit tries again.
    pub(super) async fn follow_table(&self) {
        if self.is_closed() {
            return;
        }
        if let Err(error) = self.look_and_follow().await {
            tracing::warn!(shard = %self.shard_id, %error, "the table's columns are not followed");
        }
    }

    /// Whether rows that were refused under `schema` may fit now: the job follows other columns
    /// after this look, or another put or a flush has made it follow them since.
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

    /// A MemTable of the active generation under `schema`, to replace an active MemTable without
    /// rows.
    fn empty_memtable(&self, schema: &RowSchema) -> Arc<MemTable> {
        let generation = self.state().active.memtable.generation();
        Arc::new(MemTable::new(generation, memtable_layout(schema, self.config.key_index)))
    }
}

impl ShardState {
    /// This state with `memtable` in place of an active MemTable without rows.
    fn with_empty_active(&self, memtable: Arc<MemTable>) -> Self {
        let active = LiveMemTable { memtable, ..self.active.clone() };
        Self { manifest: self.manifest.clone(), frozen: self.frozen.clone(), active }
    }
}

/// The table's newest columns, for an open whose log has rows of other columns than
/// [`SchemaSource::known`].
pub(super) async fn newest_schema(source: &dyn SchemaSource) -> Result<Arc<RowSchema>> {
    let newest = source.newest().await?;
    newest.refuse_misfit(&source.known())?;
    Ok(newest)
}
