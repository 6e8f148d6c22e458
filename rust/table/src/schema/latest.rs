//! The newest version of the base table that this process has seen.
//!
//! Owns: looking for a newer one, the columns of each, read once for as long as they stay, and the
//! refusal of another table in the same place.
//! Does not own: who looks: a read when it pins its cut, a job at its flushes and when a put does
//! not fit.

use std::sync::Arc;

use lance::Dataset;
use lancemem_core::types::{Error, Result};
use parking_lot::RwLock;

use object_store::ObjectStoreExt;

use super::{TableSchema, in_table};
use crate::errors::Context;

const LOOKING: &str = "looking for the newest version of the base table";

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
    /// a way that rows of before cannot follow, or where another table was made in its place.
    pub async fn newest(&self) -> Result<BaseVersion> {
        let known = self.known();
        let mut base = Dataset::clone(&known.dataset);
        base.checkout_latest().await.context(LOOKING)?;
        refuse_replaced(&known.dataset, &base).await?;
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

/// Refuses a table that was made where the one of `known` was, which is deleted: what a handle
/// remembers of its shards would be taken for the new one's. Versions only rise, and the object of
/// a version is never written again.
async fn refuse_replaced(known: &Dataset, newest: &Dataset) -> Result<()> {
    let (before, now) = (known.version().version, newest.version().version);
    let tag_now =
        if now > before { tag_of(known).await? } else { newest.manifest_location().e_tag.clone() };
    let is_other = match (&known.manifest_location().e_tag, tag_now) {
        (Some(before), Some(now)) => before.trim_matches('"') != now.trim_matches('"'),
        _ => false,
    };
    if now >= before && !is_other {
        return Ok(());
    }
    Err(Error::input(format!(
        "table {} was replaced by another one since it was opened; open it again",
        known.uri()
    )))
}

/// The tag that the object of a version has by now; `None` where it was cleaned up.
async fn tag_of(version: &Dataset) -> Result<Option<String>> {
    let store = version.object_store(None).await.context(LOOKING)?;
    match store.inner.head(&version.manifest_location().path).await {
        Ok(object) => Ok(object.e_tag),
        Err(object_store::Error::NotFound { .. }) => Ok(None),
        Err(error) => Err(Error::storage(LOOKING, error)),
    }
}
