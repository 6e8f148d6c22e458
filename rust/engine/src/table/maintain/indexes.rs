//! The indexes of the base table: created, listed, dropped, and brought up to date.
//!
//! Owns: the calls, with retries after concurrent commits. An update of several indexes is one
//! commit, or one for each index where other commits come first.
//! Does not own: the files of an index, which Lance builds, or the commit (`crate::compaction`).
//!
//! An index covers the fragments that it was built of. A compaction adds fragments, and brings the
//! indexes up to date (`coverage`); a read looks at uncovered fragments without the index. So an
//! index decides how long a read takes, and never which rows it returns.

mod index_type;
mod listing;
mod options;
mod params;
mod plan;

use std::slice;
use std::sync::Arc;
use std::time::Instant;

use async_recursion::async_recursion as boxed;
use futures::FutureExt;
use lance::Dataset;
use lance::index::DatasetIndexExt;
use lance_index::optimize::OptimizeOptions;
use lancemem_core::shard::rounded_seconds;
use lancemem_core::store::Backoff;
use lancemem_core::types::{Error, ErrorKind, Result};

pub use index_type::TableIndexType;
pub use listing::TableIndexInfo;
pub use options::{MaxTokenLength, TableIndexOptions, TextIndexOptions, VectorIndexOptions};

use crate::compaction::{committing, update_indexes};
use crate::errors::Context;
use crate::table::Table;
use crate::table::catalog::Catalog;
pub(super) use listing::Listed;
use plan::{PlannedIndex, is_reserved};

const CREATING: &str = "creating an index of the base table";
const DROPPING: &str = "dropping an index of the base table";
/// Attempts of a call that builds an index, or segments of indexes. After a commit that moved its
/// rows, or that changed the same index, it builds again.
const MAX_BUILDS: usize = 8;
/// Attempts of a compaction to update indexes. The next compaction starts again.
pub(super) const MAX_UPDATES: usize = 3;
/// Attempts to drop an index, which reads and writes nothing but a version.
const MAX_DROPS: usize = 50;

/// What an update did to an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptimizedIndex {
    /// Its name.
    pub name: String,
    /// Rows of the base table that the index covers now and did not cover before.
    pub added_rows: u64,
    /// Its segments before.
    pub segments_before: usize,
    /// Its segments now.
    pub segments: usize,
}

impl Table {
    /// Creates an index of a column of the base table, in one commit. Rows of SSTables and logs
    /// are not in the index: they get there with a compaction and [`Self::optimize_indexes`].
    ///
    /// ```no_run
    /// use lancemem::{Table, TableIndexOptions, TableIndexType};
    ///
    /// # async fn example() -> lancemem::Result<()> {
    /// let table = Table::open("/data/board.lance").await?;
    /// let options = TableIndexOptions::default();
    /// let index = table.create_index("carrier", TableIndexType::Bitmap, &options).await?;
    /// assert_eq!(index.name, "carrier_idx");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// An input error, with nothing built: for an unknown column, a type that the column cannot
    /// have, an option without meaning for the type, a name that is taken, and vectors that are
    /// too few to train the index. A storage error, also after repeated conflicts.
    #[boxed]
    pub async fn create_index(
        &self,
        column: &str,
        index_type: TableIndexType,
        options: &TableIndexOptions,
    ) -> Result<TableIndexInfo> {
        let started = Instant::now();
        let build = |base: Arc<Dataset>| async move {
            let planned = match PlannedIndex::new(&base, column, index_type, options).await {
                Ok(planned) => planned,
                // A newer version does not make such an index possible.
                Err(error) if error.kind() == ErrorKind::InvalidInput => return Ok(Err(error)),
                Err(error) => return Err(error),
            };
            let Err(error) = planned.build(&base).boxed().await else {
                return Ok(Ok(planned.name));
            };
            // The answer of an object store may have been lost, and not the commit.
            let listed = Listed::of(&*self.catalog.latest_base().await?).await?;
            let is_there = listed.iter().any(|index| index.ids.contains(&planned.id));
            if is_there { Ok(Ok(planned.name)) } else { Err(error) }
        };
        let name = retried(&self.catalog, MAX_BUILDS, build).await??;
        // Jobs of this handle put their rows into such an index from now on.
        self.catalog.index_makers.read(&*self.catalog.latest_base().await?).await;
        let info = self.existing_index(&name).await?.ok_or_else(|| {
            let why = format!("the newest version of table {} lacks index '{name}'", self.uri());
            Error::storage(CREATING, why)
        })?;
        tracing::info!(
            table = self.uri(),
            index = name,
            rows = info.indexed_rows,
            seconds = rounded_seconds(started.elapsed()),
            "created an index"
        );
        Ok(info)
    }

    /// The indexes of the newest version of the base table, by name. Those of the table format are
    /// not among them.
    ///
    /// # Errors
    /// A storage error.
    #[boxed]
    pub async fn indexes(&self) -> Result<Vec<TableIndexInfo>> {
        let base = self.catalog.latest_base().await?;
        let listed = Listed::of(&base).await?.into_iter().map(|index| {
            let why = index.untrained().or_else(|| self.index_notes.of(&index.info.name));
            let unindexed_because = why.filter(|_| index.info.unindexed_rows > 0);
            TableIndexInfo { unindexed_because, ..index.info }
        });
        Ok(listed.collect())
    }

    async fn existing_index(&self, name: &str) -> Result<Option<TableIndexInfo>> {
        Ok(self.indexes().await?.into_iter().find(|index| index.name == name))
    }

    /// Drops an index of the base table. Older versions keep it.
    ///
    /// # Errors
    /// An input error for a name that no index has; a storage error, also after repeated conflicts.
    #[boxed]
    pub async fn drop_index(&self, name: &str) -> Result<()> {
        self.refuse_unknown(&[name.to_owned()], &*self.catalog.latest_base().await?).await?;
        let commit = |base: Arc<Dataset>| async move {
            let indices = base.load_indices_by_name(name).await.context(DROPPING)?;
            if indices.is_empty() {
                // An earlier attempt dropped it, or another program.
                return Ok(());
            }
            let mut dataset = committing(&base).await.context(DROPPING)?;
            dataset.drop_index(name).await.context(DROPPING)
        };
        retried(&self.catalog, MAX_DROPS, commit).await?;
        self.catalog.index_makers.read(&*self.catalog.latest_base().await?).await;
        Ok(())
    }

    /// Adds the rows of the base table that an index does not cover to the index: to those named
    /// `names`, or to all. Returns the indexes that changed.
    ///
    /// `num_indices_to_merge` is the number of an index's newest segments that become one with the
    /// new rows; `None` adds a segment, or rebuilds partitions that have grown too large.
    ///
    /// # Errors
    /// An input error for a name that no index has; a storage error, also after repeated conflicts:
    /// other indexes may be updated then.
    #[boxed]
    pub async fn optimize_indexes(
        &self,
        names: Option<&[String]>,
        num_indices_to_merge: Option<usize>,
    ) -> Result<Vec<OptimizedIndex>> {
        let base = self.catalog.latest_base().await?;
        if let Some(names) = names {
            self.refuse_unknown(names, &base).await?;
        }
        let before = Listed::of(&base).await?;
        let options = OptimizeOptions::new().num_indices_to_merge(num_indices_to_merge);
        self.update_all(names, &before, &options).boxed().await?;
        let after = Listed::of(&*self.catalog.latest_base().await?).await?;
        Ok(after.iter().filter_map(|index| change(&before, index)).collect())
    }

    /// Updates the indexes `names`, or all of `listed`, in one commit. Where commits of others come
    /// first again and again, each index has a commit of its own, which is sooner done and meets
    /// fewer of them. An index that cannot be updated does not keep the others from it.
    async fn update_all(
        &self,
        names: Option<&[String]>,
        listed: &[Listed],
        options: &OptimizeOptions,
    ) -> Result<()> {
        let Err(error) = self.update(names, options, MAX_UPDATES).await else { return Ok(()) };
        tracing::info!(table = self.uri(), %error, "each index is updated by itself");
        let listed = || listed.iter().map(|index| index.info.name.clone()).collect();
        let mut done = Ok(());
        for name in &names.map_or_else(listed, <[String]>::to_vec) {
            done = done.and(self.update(Some(slice::from_ref(name)), options, MAX_BUILDS).await);
        }
        done
    }

    /// Updates the indexes `names`, or all, in one commit, with at most `max_attempts`.
    pub(super) async fn update(
        &self,
        names: Option<&[String]>,
        options: &OptimizeOptions,
        max_attempts: usize,
    ) -> Result<()> {
        let options = match names {
            Some(names) => &options.clone().index_names(names.to_vec()),
            None => options,
        };
        let update = |base: Arc<Dataset>| async move {
            update_indexes(&base, options).boxed().await.map(drop)
        };
        retried(&self.catalog, max_attempts, update).await
    }

    /// Refuses names that no index of `base` has.
    async fn refuse_unknown(&self, names: &[String], base: &Dataset) -> Result<()> {
        if let Some(name) = names.iter().find(|name| is_reserved(name)) {
            return Err(Error::input(format!(
                "index '{name}' of table {} belongs to the table format",
                self.uri()
            )));
        }
        let listed = Listed::of(base).await?;
        let known: Vec<&str> = listed.iter().map(|index| index.info.name.as_str()).collect();
        let Some(unknown) = names.iter().find(|name| !known.contains(&name.as_str())) else {
            return Ok(());
        };
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        Err(Error::input(format!(
            "table {} has no index '{unknown}'; its indexes: {known}",
            self.uri()
        )))
    }
}

/// The difference between an index and the one of its name before.
fn change(before: &[Listed], now: &Listed) -> Option<OptimizedIndex> {
    let before = before.iter().find(|index| index.info.name == now.info.name)?;
    (before.ids != now.ids).then(|| OptimizedIndex {
        name: now.info.name.clone(),
        added_rows: now.info.indexed_rows.saturating_sub(before.info.indexed_rows),
        segments_before: before.info.segments,
        segments: now.info.segments,
    })
}

/// What `commit` returns for the newest base version. Commits again after a concurrent commit, at
/// most `max_attempts` times in all.
///
/// Lance reports a lost race in several ways, some of which look like an input error. So it counts
/// whether there is a newer version.
///
/// # Errors
/// Those of `commit`, and storage errors.
pub(super) async fn retried<T, C: Future<Output = Result<T>>>(
    catalog: &Catalog,
    max_attempts: usize,
    commit: impl Fn(Arc<Dataset>) -> C,
) -> Result<T> {
    catalog.writable_store(catalog.defaults.fsync).await?;
    let mut backoff = Backoff::at_once(max_attempts);
    loop {
        let base = catalog.latest_base().await?;
        catalog.make_durable(&base).await?;
        let error = match commit(base.clone()).await {
            Ok(done) => return Ok(done),
            Err(error) => error,
        };
        let newest = catalog.latest_base().await?.version().version;
        if newest == base.version().version || backoff.is_last() {
            return Err(error);
        }
        let attempt = backoff.attempt();
        tracing::info!(table = catalog.uri(), attempt, %error, "the indexes are changed again");
        backoff.wait().await;
    }
}

#[cfg(test)]
mod held;
