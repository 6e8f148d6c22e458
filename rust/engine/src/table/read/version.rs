//! Snapshots of the base table at an older version.
//!
//! Owns: the version of a number or of a time, and a snapshot of that version alone: without the
//! logs and SSTables above it, which only the newest version goes with.
//! Does not own: the list of versions with their commits (`history` in `catalog`), or how long
//! Lance's clean-up leaves a version.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use async_recursion::async_recursion as boxed;
use lance::Dataset;
use lancemem_core::types::{Error, Result};

use super::Reader;
use crate::schema::{BaseVersion, key_of, versions_of};
use crate::snapshot::{BaseCache, Snapshot};
use crate::table::Table;

impl Table {
    /// The base table as of a version, without logs and SSTables: rows that no compaction had moved
    /// by then are not in it.
    ///
    /// ```no_run
    /// use lancemem::{Scan, ScanOptions, Table};
    ///
    /// # async fn example() -> lancemem::Result<()> {
    /// let table = Table::open("/data/board.lance").await?;
    /// let before = table.snapshot_of_version(41).await?;
    /// let scan = Scan::of_snapshot(table.clone(), before, ScanOptions::default());
    /// let (_, batches) = scan.collect().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// An input error where there is no such version, or where it was cleaned up; a storage error.
    #[boxed]
    pub async fn snapshot_of_version(&self, version: u64) -> Result<Arc<Snapshot>> {
        self.reader.base_alone(version).await
    }

    /// The same of the newest version that was committed at `time` or before. Times are compared in
    /// microseconds, by the clocks of the programs that committed.
    ///
    /// # Errors
    /// An input error where every version that is left was committed later; a storage error.
    #[boxed]
    pub async fn snapshot_as_of(&self, time: SystemTime) -> Result<Arc<Snapshot>> {
        self.reader.base_as_of(time).await
    }
}

impl Reader {
    /// The snapshot of a base version without shards.
    pub(super) async fn base_alone(&self, version: u64) -> Result<Arc<Snapshot>> {
        // Refuses a table that another one replaced.
        let newest = self.catalog.latest_base().await?;
        match self.version_left(&newest, version).await? {
            Some(base) => self.snapshot_of_base(base),
            None => Err(self.no_version(&newest, version).await?),
        }
    }

    /// The error of a version that is not there.
    pub(super) async fn no_version(&self, newest: &Dataset, version: u64) -> Result<Error> {
        let left = versions_of(newest).await?;
        let oldest = left.first().copied().unwrap_or_default();
        Ok(Error::input(format!(
            "table {} has no version {version}, or it was cleaned up; the oldest version left is \
             {oldest}, the newest {}",
            self.catalog.uri(),
            newest.version().version
        )))
    }

    async fn base_as_of(&self, time: SystemTime) -> Result<Arc<Snapshot>> {
        let newest = self.catalog.latest_base().await?;
        match self.found_as_of(&newest, time).await? {
            Some(base) => self.snapshot_of_base(base),
            None => Err(self.too_old(&newest).await?),
        }
    }

    /// The newest version that was committed at `time` or before, of those that are left.
    pub(super) async fn found_as_of(
        &self,
        newest: &Dataset,
        time: SystemTime,
    ) -> Result<Option<BaseVersion>> {
        let left = versions_of(newest).await?;
        // A time before 1970 is before every commit.
        let micros = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros());
        let mut found = None;
        let (mut from, mut to) = (0, left.len());
        while from < to {
            let middle = usize::midpoint(from, to);
            let version = left.get(middle).copied().unwrap_or_default();
            match self.version_left(newest, version).await? {
                Some(base) if micros_of(&base.dataset) > micros => to = middle,
                // Where a version was cleaned up since the listing, the older ones were too.
                base => {
                    found = base.or(found);
                    from = middle + 1;
                }
            }
        }
        Ok(found)
    }

    /// The error of a time before every version that is left.
    pub(super) async fn too_old(&self, newest: &Dataset) -> Result<Error> {
        let oldest = versions_of(newest).await?.first().copied().unwrap_or_default();
        let at = match self.version_left(newest, oldest).await? {
            Some(base) => format!(", committed at {}", base.dataset.version().timestamp),
            None => String::new(),
        };
        Ok(Error::input(format!(
            "no version of table {} is that old: the oldest version left is {oldest}{at}",
            self.catalog.uri()
        )))
    }

    /// The version `number`; `None` where there is none, or where it was cleaned up.
    pub(super) async fn version_left(
        &self,
        newest: &Dataset,
        number: u64,
    ) -> Result<Option<BaseVersion>> {
        if number > newest.version().version {
            return Ok(None);
        }
        let error = match self.catalog.base.version(number).await {
            Ok(base) => return Ok(Some(base)),
            Err(error) => error,
        };
        if versions_of(newest).await?.contains(&number) { Err(error) } else { Ok(None) }
    }

    /// The cache of lookups is the snapshot's own, without the record index: both describe the
    /// newest version. A lookup reads the keys of the version itself.
    fn snapshot_of_base(&self, base: BaseVersion) -> Result<Arc<Snapshot>> {
        let BaseVersion { dataset: base, schema: columns } = base;
        Ok(Arc::new(Snapshot {
            // The key may have been named after this version.
            key: key_of(&base)?.into(),
            base,
            schema: columns.columns.clone(),
            columns,
            sharding: self.catalog.sharding.clone(),
            shards: Vec::new(),
            base_cache: BaseCache::without_record_index(self.sstables.budget()),
        }))
    }
}

/// When a version was committed, in microseconds since 1970, as Python's times have them.
fn micros_of(base: &Dataset) -> u128 {
    base.manifest().timestamp_nanos / 1_000
}
