//! The newest version of the base table that this process has seen.
//!
//! Owns: looking for a newer version; the columns of a version, read once until they change; and
//! the refusal of another table at the same location.
//! Does not own: when to look: a read looks when it takes its snapshot, a job at its flushes and
//! when a put does not fit.

use std::cmp::Ordering;
use std::sync::Arc;

use async_recursion::async_recursion as boxed;
use lance::Dataset;
use lance::index::DatasetIndexExt;
use lancemem_core::merge::{MergeRule, PairFunctions};
use lancemem_core::types::{Error, Result};
use object_store::ObjectStoreExt;
use parking_lot::RwLock;

use super::{TableSchema, in_table};
use crate::errors::{BaseContext, Context, from_look, missing_manifest};

/// Most attempts to read a listed version that is cleaned up before the read. Each such miss takes
/// a commit and a clean-up by other processes.
const LOOKS: u32 = 100;
/// Most listings where the newest listed version is older than a version that was seen. A folder
/// that changes while it is listed may hide versions for a moment.
const LISTINGS: u32 = 3;
const LOOKING: &str = "looking for the newest version of the base table";

/// A version of the base table and its columns.
#[derive(Clone, Debug)]
pub struct BaseVersion {
    /// The version.
    pub dataset: Arc<Dataset>,
    /// Its columns; versions with the same columns share them.
    pub schema: Arc<TableSchema>,
}

/// The identity of a version: its number, and its time, which differs from the time of a version of
/// another table with the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VersionStamp {
    /// The version.
    pub number: u64,
    /// When it was committed, in nanoseconds since 1970.
    pub nanos: u128,
}

impl VersionStamp {
    fn of(version: &Dataset) -> Self {
        let manifest = version.manifest();
        Self { number: manifest.version, nanos: manifest.timestamp_nanos }
    }
}

/// Shared by a table and its jobs.
#[derive(Debug)]
pub struct LatestBase(RwLock<BaseVersion>);

impl LatestBase {
    /// The table of the open version `base`, with its merge rule and the functions that it names.
    ///
    /// # Errors
    /// As [`TableSchema::of`].
    pub fn new(
        base: Dataset,
        rule: Option<Arc<MergeRule>>,
        functions: Arc<PairFunctions>,
    ) -> Result<Arc<Self>> {
        let schema = Arc::new(TableSchema::of(&base, rule, functions)?);
        Ok(Arc::new(Self(RwLock::new(BaseVersion { dataset: Arc::new(base), schema }))))
    }

    /// The newest version that was seen.
    pub fn known(&self) -> BaseVersion {
        self.0.read().clone()
    }

    /// The newest version.
    ///
    /// # Errors
    /// A storage error; an input error that names table and column where the columns changed in a
    /// way that older rows cannot be reconciled with, or where another table replaced this one.
    pub async fn newest(&self) -> Result<BaseVersion> {
        let (known, base) = self.look(Depth::Indexes).await?;
        if base.version().version == known.dataset.version().version {
            // A concurrent look may have seen a newer one since.
            return Ok(self.known());
        }
        let schema = if base.schema() == known.dataset.schema() {
            known.schema
        } else {
            let (rule, functions) = (known.schema.rule.clone(), known.schema.functions.clone());
            let newest = TableSchema::of(&base, rule, functions)?;
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

    /// Fails where another table replaced this one.
    ///
    /// # Errors
    /// An input error in that case; a storage error.
    pub async fn check_there(&self) -> Result<()> {
        self.look(Depth::Manifest).await.map(|_| ())
    }

    /// The newest version that was seen before, and the newest version of the same table now.
    async fn look(&self, depth: Depth) -> Result<(BaseVersion, Dataset)> {
        let known = self.known();
        let number = known.dataset.version().version;
        let mut listings = 1;
        let base = loop {
            let newest = newest_to(&known.dataset, depth).await;
            let newest = newest.map_err(|error| from_look(LOOKING, error))?;
            if newest.version().version >= number || listings == LISTINGS {
                break newest;
            }
            listings += 1;
        };
        refuse_replaced(&known.dataset, &base).await?;
        Ok((known, base))
    }

    /// The stamp of the newest version that was seen.
    pub fn stamp(&self) -> VersionStamp {
        VersionStamp::of(&self.known().dataset)
    }

    /// Whether `stamp`, which another process has seen, is of a version of this table. A version
    /// that was cleaned up cannot be compared and counts as one.
    ///
    /// # Errors
    /// As [`Self::newest`].
    pub async fn has_had(&self, stamp: VersionStamp) -> Result<bool> {
        let newest = self.newest().await?.dataset;
        if stamp.number >= newest.manifest().version {
            return Ok(VersionStamp::of(&newest) == stamp);
        }
        Ok(had(&newest, stamp).await.unwrap_or(true))
    }

    /// The version `number`.
    ///
    /// # Errors
    /// A storage error, also where that version was cleaned up; as [`TableSchema::of`].
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
            let (rule, functions) = (known.schema.rule.clone(), known.schema.functions.clone());
            Arc::new(TableSchema::of_past(&base, rule, functions).await?)
        };
        Ok(BaseVersion { dataset: Arc::new(base), schema })
    }
}

/// Refuses a table that was created at the location of the deleted table of `known`: cached state
/// of the old shards would be used for the new table.
async fn refuse_replaced(known: &Dataset, newest: &Dataset) -> Result<()> {
    let (before, now) = (VersionStamp::of(known), VersionStamp::of(newest));
    let is_same = match now.number.cmp(&before.number) {
        Ordering::Less => false,
        Ordering::Equal => now == before,
        Ordering::Greater => has_its_tag(known).await? || had(newest, before).await?,
    };
    if is_same {
        return Ok(());
    }
    Err(replaced(known.uri()))
}

/// The error of a handle whose table was replaced.
pub fn replaced(uri: &str) -> Error {
    Error::input(format!(
        "table {uri} was replaced by another one since it was opened; open it again"
    ))
}

/// Whether the table of `newest` has had the version `stamp`. A version that was cleaned up counts.
async fn had(newest: &Dataset, stamp: VersionStamp) -> Result<bool> {
    match newest.checkout_version(stamp.number).await {
        Ok(there) => Ok(VersionStamp::of(&there) == stamp),
        Err(error) if missing_manifest(&error).is_some() => Ok(true),
        Err(error) => Err(error).context(LOOKING),
    }
}

/// How much of a version is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Depth {
    Manifest,
    /// Also the list of its indexes, which is in the same file: by the time of a later read the
    /// file may be cleaned up.
    Indexes,
}

/// The newest version of the table of `known`.
///
/// # Errors
/// An error of lance.
#[boxed]
pub async fn newest_of(known: &Dataset) -> lance_core::Result<Dataset> {
    newest_to(known, Depth::Indexes).await
}

async fn newest_to(known: &Dataset, depth: Depth) -> lance_core::Result<Dataset> {
    read_newest(|| async {
        let mut newest = Dataset::clone(known);
        newest.checkout_latest().await?;
        let is_new = newest.version().version != known.version().version;
        if is_new && depth == Depth::Indexes {
            keep_indexes(&newest).await?;
        }
        Ok(newest)
    })
    .await
}

/// Reads the list of a version's indexes while its file exists. Other errors are left to the caller
/// that uses the list.
///
/// # Errors
/// Where the version was cleaned up.
pub async fn keep_indexes(version: &Dataset) -> lance_core::Result<()> {
    match version.load_indices().await {
        Err(error) if missing_manifest(&error).is_some() => Err(error),
        _ => Ok(()),
    }
}

/// The result of `read` for the newest version. A listed version may be cleaned up before it is
/// read, after a newer commit; then `read` is called again. A version that is listed twice and not
/// found is missing.
///
/// # Errors
/// An error of `read`.
pub async fn read_newest<T, F>(read: impl Fn() -> F) -> lance_core::Result<T>
where
    F: Future<Output = lance_core::Result<T>>,
{
    let mut missed = None;
    for _ in 0..LOOKS {
        let error = match read().await {
            Ok(read) => return Ok(read),
            Err(error) => error,
        };
        let missing = missing_manifest(&error);
        if missing.is_none() || missing == missed {
            return Err(error);
        }
        missed = missing;
    }
    let contended = format!("{LOOKS} versions were cleaned up, each before it could be read");
    Err(lance_core::Error::too_much_write_contention(contended))
}

/// The versions that are left, the oldest first, up to `newest`.
///
/// # Errors
/// A storage error.
pub async fn versions_of(newest: &Dataset) -> Result<Vec<u64>> {
    let listed = newest.version_refs().await.in_base("reading the versions of the base table")?;
    let number = newest.version().version;
    let mut versions: Vec<u64> =
        listed.into_iter().map(|it| it.version).filter(|version| *version <= number).collect();
    versions.sort_unstable();
    Ok(versions)
}

/// Whether the object of a version still has the e-tag that it had when it was read. A different
/// e-tag proves nothing. A version that was cleaned up counts as the same.
async fn has_its_tag(version: &Dataset) -> Result<bool> {
    let store = version.object_store(None).await.context(LOOKING)?;
    let location = version.manifest_location();
    match store.inner.head(&location.path).await {
        Ok(object) => Ok(match (&location.e_tag, object.e_tag) {
            (Some(read), Some(now)) => read.trim_matches('"') == now.trim_matches('"'),
            _ => false,
        }),
        Err(object_store::Error::NotFound { .. }) => Ok(true),
        Err(error) => Err(Error::storage(LOOKING, &error).with_source(error)),
    }
}

#[cfg(test)]
mod tests;
