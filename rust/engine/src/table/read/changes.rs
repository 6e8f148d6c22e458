//! The changes of the base table between two of its states.
//!
//! Owns: the versions of the states that a caller names, and the refusal of states that were never,
//! were cleaned up, or come in the wrong order.
//! Does not own: how changes are derived and read (`crate::changes`), or consumers, which keep the
//! versions that they need (`consumers`).

use std::sync::Arc;

use async_recursion::async_recursion as boxed;
use lance::Dataset;
use lancemem_core::types::{Error, Result};

use super::Reader;
use crate::changes::{
    ChangeFeed, ChangeOptions, ChangePart, Moment, Range, expired, published_versions,
};
use crate::schema::{BaseVersion, versions_of};
use crate::table::Table;

impl Table {
    /// The changes of the base table behind `since`, up to and with `until`. Rows reach the base
    /// table with a compaction; rows above it are no changes yet.
    ///
    /// Without `since` the feed has every row of `until` as an insert. A time stands for the newest
    /// version that was committed by then. Without `until` the feed reaches the newest version.
    ///
    /// ```no_run
    /// use futures::TryStreamExt;
    /// use lancemem::{ChangeOptions, Moment, Table};
    ///
    /// # async fn example() -> lancemem::Result<()> {
    /// let table = Table::open("/data/board.lance").await?;
    /// let since = Some(Moment::Version(41));
    /// let feed = table.changes(since, None, &ChangeOptions::default()).await?;
    /// let mut batches = feed.batches();
    /// while let Some(batch) = batches.try_next().await? {
    ///     assert_eq!(batch.schema(), feed.schema());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// An input error where a version never was, `since` is after `until`, or `options` do not fit
    /// the table. [`Error::ChangesExpired`] where the version of `since` was cleaned up and the
    /// changes behind it are not stored.
    /// [`Error::ChangesUnavailable`] where the changes of a version cannot be derived. A storage
    /// error.
    #[boxed]
    pub async fn changes(
        &self,
        since: Option<Moment>,
        until: Option<Moment>,
        options: &ChangeOptions,
    ) -> Result<ChangeFeed> {
        let range = self.reader.range(since, until).await?;
        ChangeFeed::new(self.uri(), self.catalog.store.clone(), range, options).await
    }

    /// The changes of a part of a feed that reaches version `until` ([`ChangeFeed::parts`]).
    /// `options` are those of the feed.
    ///
    /// # Errors
    /// As [`Self::changes`]; an input error where the part is of another table.
    #[boxed]
    pub async fn changes_of_part(
        &self,
        until: u64,
        part: ChangePart,
        options: &ChangeOptions,
    ) -> Result<ChangeFeed> {
        let newest = self.reader.catalog.latest_base().await?;
        let Some(until) = self.reader.version_left(&newest, until).await? else {
            return Err(self.reader.expired(&newest, until).await?);
        };
        ChangeFeed::of_part(self.uri(), self.catalog.store.clone(), &until, part, options).await
    }
}

impl Reader {
    async fn range(&self, since: Option<Moment>, until: Option<Moment>) -> Result<Range> {
        // Refuses a table that another one replaced.
        let newest = self.catalog.latest_base().await?;
        let until = match until {
            None => self.catalog.base.version(newest.version().version).await?,
            Some(moment) => self.end(&newest, moment).await?,
        };
        let last = until.dataset.version().version;
        let left = versions_of(&newest).await?;
        let since = match since {
            None => None,
            Some(moment) => Some(self.start(&newest, &left, moment).await?),
        };
        if let Some(since) = since.filter(|since| *since > last) {
            return Err(Error::input(format!(
                "table {}: since is version {since}, after until, which is version {last}; since is \
                 the version that the caller has, until a later one",
                self.catalog.uri()
            )));
        }
        let mut versions = match since.filter(|since| *since != last) {
            Some(since) => self.stored_behind(since, &left).await?,
            None => Vec::new(),
        };
        versions.extend(left);
        Ok(Range { since, until, versions })
    }

    /// The version that a feed reaches.
    async fn end(&self, newest: &Arc<Dataset>, moment: Moment) -> Result<BaseVersion> {
        let found = match moment {
            Moment::Version(version) => self.version_left(newest, version).await?,
            Moment::Time(time) => self.found_as_of(newest, time).await?,
        };
        match (found, moment) {
            (Some(found), _) => Ok(found),
            (None, Moment::Version(version)) => Err(self.no_version(newest, version).await?),
            (None, Moment::Time(_)) => Err(self.too_old(newest).await?),
        }
    }

    /// The version behind which a feed starts; 0 for all versions.
    async fn start(&self, newest: &Arc<Dataset>, left: &[u64], moment: Moment) -> Result<u64> {
        match moment {
            Moment::Version(version) if version > newest.version().version => {
                Err(self.no_version(newest, version).await?)
            }
            Moment::Version(version) => Ok(version),
            Moment::Time(time) => match self.found_as_of(newest, time).await? {
                Some(found) => Ok(found.dataset.version().version),
                // Before the first version there was no row.
                None if left.first() == Some(&1) => Ok(0),
                None => {
                    let oldest = left.first().copied().unwrap_or_default();
                    Err(expired(self.catalog.uri(), oldest.saturating_sub(1), oldest))
                }
            },
        }
    }

    /// The versions behind `since` that are gone and whose changes are published, up to the first
    /// that is left; none where `since` is left. Version 0 is the table before its first version.
    ///
    /// Behind a version that is left, versions that are gone are one net step to the next one.
    ///
    /// # Errors
    /// [`Error::ChangesExpired`] where the changes of one of these versions are not published.
    async fn stored_behind(&self, since: u64, left: &[u64]) -> Result<Vec<u64>> {
        if left.binary_search(&since.max(1)).is_ok() {
            return Ok(Vec::new());
        }
        let published = published_versions(&self.catalog.store).await?;
        let gone = (since..).skip(1).take_while(|version| left.binary_search(version).is_err());
        let mut stored = Vec::new();
        for version in gone {
            if published.binary_search(&version).is_err() {
                let oldest = left.first().copied().unwrap_or_default();
                return Err(expired(self.catalog.uri(), since, oldest));
            }
            stored.push(version);
        }
        Ok(stored)
    }

    async fn expired(&self, newest: &Dataset, version: u64) -> Result<Error> {
        let left = versions_of(newest).await?;
        Ok(expired(self.catalog.uri(), version, left.first().copied().unwrap_or_default()))
    }
}
