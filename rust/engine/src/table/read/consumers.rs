//! Consumers of changes: names that keep the version behind which they go on.
//!
//! Owns: the position of a consumer, which is a tag of Lance on a version of the base table, so
//! that a clean-up of Lance's leaves that version and its files.
//! Does not own: which changes a consumer has processed; its caller says so.

use std::time::SystemTime;

use async_recursion::async_recursion as boxed;
use lance::Dataset;
use lance::dataset::refs::TagContents;
use lance_core::Error as LanceError;
use lancemem_core::types::{Error, Result};

use crate::errors::Context;
use crate::schema::versions_of;
use crate::sstable::sync_folders;
use crate::table::Table;

/// The first part of the tag of a consumer.
const TAG: &str = "lancemem-consumer-";
const READING: &str = "reading the consumers of changes";
const WRITING: &str = "moving a consumer of changes";
/// Most characters of a name: a tag is a file.
const MAX_CHARACTERS: usize = 128;

/// A consumer of a table's changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerInfo {
    /// Its name.
    pub name: String,
    /// The version behind which it goes on.
    pub position: u64,
    /// When it moved there, where the tag records it.
    pub timestamp: Option<SystemTime>,
}

impl Table {
    /// The consumers of the table's changes, by name.
    ///
    /// # Errors
    /// A storage error.
    #[boxed]
    pub async fn consumers(&self) -> Result<Vec<ConsumerInfo>> {
        let base = self.catalog.latest_base().await?;
        let tags = base.tags().list().await.context(READING)?;
        let consumers = tags.into_iter().filter_map(|(tag, contents)| {
            let name = tag.strip_prefix(TAG)?;
            Some(info(name, &contents))
        });
        let mut consumers: Vec<ConsumerInfo> = consumers.collect();
        consumers.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(consumers)
    }

    /// The consumer `name`; `None` if the table has no such consumer.
    ///
    /// # Errors
    /// An input error for a name that no consumer can have; a storage error.
    #[boxed]
    pub async fn consumer(&self, name: &str) -> Result<Option<ConsumerInfo>> {
        let tag = tag_of(name)?;
        let base = self.catalog.latest_base().await?;
        Ok(tagged(&base, &tag).await?.map(|contents| info(name, &contents)))
    }

    /// Moves the consumer `name` to `version`, or creates it there. Clean-ups leave that version
    /// from here on, and may remove the versions before it.
    ///
    /// # Errors
    /// An input error for a name that no consumer can have, for a version that never was, or where
    /// the consumer is at a later version. [`Error::ChangesExpired`] where the version was cleaned
    /// up. A storage error.
    #[boxed]
    pub async fn move_consumer(&self, name: &str, version: u64) -> Result<()> {
        let tag = tag_of(name)?;
        let base = self.catalog.latest_base().await?;
        self.check_position(&base, version).await?;
        let known = tagged(&base, &tag).await?;
        if let Some(known) = known.as_ref().filter(|known| known.version > version) {
            return Err(Error::input(format!(
                "table {}: consumer '{name}' is at version {}, which is after version {version}: \
                 another process moved it; a consumer never moves back, drop it to start again",
                self.uri(),
                known.version
            )));
        }
        match known {
            Some(known) if known.version == version => return Ok(()),
            Some(_) => base.tags().update(&tag, version).await.context(WRITING)?,
            None => base.tags().create(&tag, version).await.context(WRITING)?,
        }
        if self.catalog.location.is_local() && self.catalog.defaults.fsync {
            let store = base.object_store(None).await.context(WRITING)?;
            let folder = base.branch_location().path.join("_refs").join("tags");
            sync_folders(&store, &[folder]).await.context(WRITING)?;
        }
        Ok(())
    }

    /// Drops the consumer `name`: clean-ups may remove the version that it kept.
    ///
    /// # Errors
    /// An input error where there is no such consumer; a storage error.
    #[boxed]
    pub async fn drop_consumer(&self, name: &str) -> Result<()> {
        let tag = tag_of(name)?;
        let base = self.catalog.latest_base().await?;
        match base.tags().delete(&tag).await {
            Err(LanceError::RefNotFound { .. }) => Err(Error::input(format!(
                "table {} has no consumer '{name}'; changes_consumers() lists them",
                self.uri()
            ))),
            dropped => dropped.context("dropping a consumer of changes"),
        }
    }

    async fn check_position(&self, base: &Dataset, version: u64) -> Result<()> {
        let left = versions_of(base).await?;
        if left.contains(&version) {
            return Ok(());
        }
        let oldest = left.first().copied().unwrap_or_default();
        if version == 0 || version > base.version().version {
            return Err(Error::input(format!(
                "table {} has no version {version}; the oldest version left is {oldest}, the newest {}",
                self.uri(),
                base.version().version
            )));
        }
        Err(crate::changes::expired(self.uri(), version, oldest))
    }
}

async fn tagged(base: &Dataset, tag: &str) -> Result<Option<TagContents>> {
    match base.tags().get(tag).await {
        Ok(contents) => Ok(Some(contents)),
        Err(LanceError::RefNotFound { .. }) => Ok(None),
        Err(error) => Err(error).context(READING),
    }
}

fn info(name: &str, contents: &TagContents) -> ConsumerInfo {
    let moved = contents.updated_at.or(contents.created_at);
    ConsumerInfo {
        name: name.to_owned(),
        position: contents.version,
        timestamp: moved.map(SystemTime::from),
    }
}

/// The tag of a consumer.
fn tag_of(name: &str) -> Result<String> {
    check_name(name).map(|()| format!("{TAG}{name}"))
}

/// Refuses a name that no consumer can have.
pub(super) fn check_name(name: &str) -> Result<()> {
    let is_allowed = |it: char| it.is_ascii_alphanumeric() || matches!(it, '.' | '-' | '_');
    let is_name = !name.is_empty()
        && name.len() <= MAX_CHARACTERS
        && name.chars().all(is_allowed)
        && !name.ends_with('.')
        && name.strip_suffix(".lock").is_none()
        && !name.contains("..");
    if is_name {
        return Ok(());
    }
    Err(Error::input(format!(
        "'{}' cannot be the name of a consumer: it takes 1 to {MAX_CHARACTERS} letters, digits, \
         '.', '-' and '_', does not end with '.' or '.lock', and has no '..'",
        name.escape_default()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_a_consumer_is_the_name_of_a_tag() {
        for name in ["a", "orders-to-kafka", "a.b_c", "9"] {
            assert_eq!(tag_of(name).unwrap(), format!("{TAG}{name}"));
            lance::dataset::refs::check_valid_tag(&tag_of(name).unwrap()).unwrap();
        }
        let long = "a".repeat(MAX_CHARACTERS + 1);
        for name in ["", "a/b", "a b", "ä", "..", "a.", "a.lock", long.as_str()] {
            assert!(tag_of(name).is_err(), "{name}");
        }
    }
}
