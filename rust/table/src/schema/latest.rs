//! The newest version of the base table that this process has seen.
//!
//! Owns: looking for a newer one, and the columns of each, read once for as long as they stay.
//! Does not own: who looks: a read when it pins its cut, a job at its flushes and when a put does
//! not fit.

use std::sync::Arc;

use lance::Dataset;
use lancemem_core::types::Result;
use parking_lot::RwLock;

use super::{TableSchema, in_table};
use crate::errors::Context;

/// A version of the base table and its columns.
#[derive(Clone, Debug)]
pub struct BaseVersion {
    /// The version.
    pub dataset: Arc<Dataset>,
    /// Its columns; versions with the same columns share them.
    pub schema: Arc<TableSchema>,
}

/// Shared by a table and its jobs.
#[derive(Debug)]
pub struct LatestBase(RwLock<BaseVersion>);

impl LatestBase {
    /// The table whose version `base` is open.
    ///
    /// # Errors
    /// As [`TableSchema::of`].
    pub fn new(base: Dataset) -> Result<Arc<Self>> {
        let schema = Arc::new(TableSchema::of(&base)?);
        Ok(Arc::new(Self(RwLock::new(BaseVersion { dataset: Arc::new(base), schema }))))
    }

    /// What was seen last.
    pub fn known(&self) -> BaseVersion {
        self.0.read().clone()
    }

    /// The newest version.
    ///
    /// # Errors
    /// A storage error; an input error that names table and column where the columns changed in
    /// a way that rows of before cannot follow.
    pub async fn newest(&self) -> Result<BaseVersion> {
        let known = self.known();
        let mut base = Dataset::clone(&known.dataset);
        base.checkout_latest().await.context("looking for the newest version of the base table")?;
        if base.version().version == known.dataset.version().version {
            return Ok(known);
        }
        let schema = if base.schema() == known.dataset.schema() {
            known.schema
        } else {
            let newest = TableSchema::of(&base)?;
            let fits = newest.rows.refuse_misfit(&known.schema.rows);
            fits.map_err(|error| in_table(base.uri(), error))?;
            Arc::new(newest)
        };
        let newest = BaseVersion { dataset: Arc::new(base), schema };
        let mut known = self.0.write();
        let is_newer = newest.dataset.version().version > known.dataset.version().version;
        if is_newer {
            *known = newest;
        }
        Ok(known.clone())
    }

    /// One version, whichever is the newest.
    ///
    /// # Errors
    /// A storage error, also where there is no such version any more; as [`TableSchema::of`].
    pub async fn version(&self, number: u64) -> Result<BaseVersion> {
        let known = self.known();
        if known.dataset.version().version == number {
            return Ok(known);
        }
        let base = known.dataset.checkout_version(number).await;
        let base = base.context("opening a version of the base table")?;
        let schema = if base.schema() == known.dataset.schema() {
            known.schema
        } else {
            Arc::new(TableSchema::of(&base)?)
        };
        Ok(BaseVersion { dataset: Arc::new(base), schema })
    }
}
