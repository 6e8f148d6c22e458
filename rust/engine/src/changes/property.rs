//! Whether a table stores its changes, of compactions or of flushes, and for how long.
//!
//! Owns: the keys in the configuration of the base table, their values, and the commit that changes
//! them.
//! Does not own: writing and reading stored changes (`record`, `stored`, `flushed`), or their
//! removal (`garbage`).

use std::collections::HashMap;
use std::time::Duration;

use lance::Dataset;
use lance::dataset::transaction::{Operation, UpdateMap, UpdateMapEntry};
use lancemem_core::types::{Error, Result};

use super::flushed::FlushedPosition;

/// The key of [`Changelog`].
const CHANGELOG: &str = "lancemem.changelog";
const STORED: &str = "stored";
const FLUSHED: &str = "flushed";
/// The key of the position from which on changes of flushes are stored. A shard that the position
/// lacks stores them from its first generation on.
const FLUSHED_FROM: &str = "lancemem.changelog_flushed_from";
/// The key of the retention, in milliseconds.
const RETENTION: &str = "lancemem.changelog_retention_ms";
const DEFAULT_RETENTION: Duration = Duration::from_hours(7 * 24);

/// Which changes a table stores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Changelog {
    /// They are derived by each reader.
    #[default]
    Off,
    /// Each compaction stores them with its commit.
    Stored,
    /// The changes of each flush are stored before a compaction moves its SSTable.
    Flushed,
}

impl Changelog {
    /// The setting of a name; none is [`Self::Off`].
    ///
    /// # Errors
    /// An input error for a name that is none.
    pub fn parse(name: Option<&str>) -> Result<Self> {
        match name {
            None => Ok(Self::Off),
            Some(STORED) => Ok(Self::Stored),
            Some(FLUSHED) => Ok(Self::Flushed),
            Some(other) => Err(Error::input(format!(
                "changelog is \"{STORED}\", \"{FLUSHED}\", or None for changes that are derived, got \
                 \"{}\"",
                other.escape_default()
            ))),
        }
    }

    /// The name; `None` for [`Self::Off`].
    #[must_use]
    pub const fn name(self) -> Option<&'static str> {
        match self {
            Self::Off => None,
            Self::Stored => Some(STORED),
            Self::Flushed => Some(FLUSHED),
        }
    }

    /// The setting that a version of the base table records. A value of a later release is
    /// [`Self::Off`]: changes without files are derived.
    #[must_use]
    pub fn of(base: &Dataset) -> Self {
        match base.config().get(CHANGELOG) {
            Some(value) if value == STORED => Self::Stored,
            Some(value) if value == FLUSHED => Self::Flushed,
            _ => Self::Off,
        }
    }
}

/// The position from which on a version of the base table stores the changes of flushes.
///
/// # Errors
/// An input error for a value that is no position.
pub fn flushed_from(base: &Dataset) -> Result<FlushedPosition> {
    let Some(value) = base.config().get(FLUSHED_FROM) else {
        return Ok(FlushedPosition::default());
    };
    value.parse().map_err(|_| {
        Error::input(format!(
            "table {}: {FLUSHED_FROM} has the invalid value '{}'; set the property again with \
             alter(changelog=)",
            base.uri(),
            value.escape_default()
        ))
    })
}

/// How long stored changes are kept.
///
/// # Errors
/// An input error for a value that is no number.
pub fn retention_of(base: &Dataset) -> Result<Duration> {
    let Some(value) = base.config().get(RETENTION) else { return Ok(DEFAULT_RETENTION) };
    let wrong = || {
        Error::input(format!(
            "table {}: {RETENTION} has the invalid value '{}'; set it with \
             alter(changelog_retention=)",
            base.uri(),
            value.escape_default()
        ))
    };
    value.parse().map(Duration::from_millis).map_err(|_| wrong())
}

/// Whether a version of the base table has these settings. `None` stands for any.
#[must_use]
pub fn has_changelog(
    base: &Dataset,
    changelog: Option<Changelog>,
    retention: Option<Duration>,
) -> bool {
    let kept = |retention| retention_of(base).is_ok_and(|found| found == retention);
    changelog.is_none_or(|changelog| Changelog::of(base) == changelog) && retention.is_none_or(kept)
}

/// The commit to the base table that changes the settings that are given. `from` is the position
/// from which on changes of flushes are stored.
#[must_use]
pub fn alter_changelog(
    changelog: Option<Changelog>,
    retention: Option<Duration>,
    from: &FlushedPosition,
) -> Operation {
    let from = (changelog == Some(Changelog::Flushed))
        .then(|| UpdateMapEntry { key: FLUSHED_FROM.to_owned(), value: Some(from.to_string()) });
    let changelog = changelog.map(|changelog| UpdateMapEntry {
        key: CHANGELOG.to_owned(),
        value: changelog.name().map(str::to_owned),
    });
    let retention = retention.map(|retention| UpdateMapEntry {
        key: RETENTION.to_owned(),
        value: Some(retention.as_millis().to_string()),
    });
    let update_entries = changelog.into_iter().chain(from).chain(retention).collect();
    Operation::UpdateConfig {
        config_updates: Some(UpdateMap { update_entries, replace: false }),
        table_metadata_updates: None,
        schema_metadata_updates: None,
        field_metadata_updates: HashMap::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_no_setting_is_refused() {
        for changelog in [Changelog::Off, Changelog::Stored, Changelog::Flushed] {
            assert_eq!(Changelog::parse(changelog.name()).unwrap(), changelog);
        }
        for name in ["", "committed", "input", "Stored"] {
            let error = Changelog::parse(Some(name)).unwrap_err().to_string();
            assert!(error.contains("\"stored\""), "{error}");
        }
    }

    #[test]
    fn a_commit_changes_the_settings_that_are_given() {
        let keys = |operation: Operation| match operation {
            Operation::UpdateConfig { config_updates: Some(updates), .. } => {
                let entries = updates.update_entries.into_iter();
                entries.map(|entry| (entry.key, entry.value)).collect::<Vec<_>>()
            }
            other => panic!("{other}"),
        };
        let nowhere = FlushedPosition::default();
        let off = alter_changelog(Some(Changelog::Off), None, &nowhere);
        assert_eq!(keys(off), [(CHANGELOG.to_owned(), None)]);
        let day = alter_changelog(None, Some(Duration::from_hours(24)), &nowhere);
        assert_eq!(keys(day), [(RETENTION.to_owned(), Some("86400000".to_owned()))]);
        let flushed = keys(alter_changelog(Some(Changelog::Flushed), None, &nowhere));
        let names: Vec<&str> = flushed.iter().map(|(key, _)| key.as_str()).collect();
        assert_eq!(names, [CHANGELOG, FLUSHED_FROM]);
    }
}
