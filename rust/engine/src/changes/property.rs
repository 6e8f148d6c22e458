//! Whether compactions of a table store its changes, and for how long.
//!
//! Owns: the keys in the configuration of the base table, their values, and the commit that changes
//! them.
//! Does not own: writing and reading stored changes (`record`, `stored`), or their removal
//! (`garbage`).

use std::collections::HashMap;
use std::time::Duration;

use lance::Dataset;
use lance::dataset::transaction::{Operation, UpdateMap, UpdateMapEntry};
use lancemem_core::types::{Error, Result};

/// The key of [`Changelog`].
const CHANGELOG: &str = "lancemem.changelog";
const STORED: &str = "stored";
/// The key of the retention, in milliseconds.
const RETENTION: &str = "lancemem.changelog_retention_ms";
const DEFAULT_RETENTION: Duration = Duration::from_hours(7 * 24);

/// Whether compactions store the changes of their versions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Changelog {
    /// They are derived by each reader.
    #[default]
    Off,
    /// Each compaction stores them with its commit.
    Stored,
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
            Some(other) => Err(Error::input(format!(
                "changelog is \"{STORED}\", or None for changes that are derived, got \"{}\"",
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
        }
    }

    /// The setting that a version of the base table records. A value of a later release is
    /// [`Self::Off`]: changes without files are derived.
    #[must_use]
    pub fn of(base: &Dataset) -> Self {
        match base.config().get(CHANGELOG) {
            Some(value) if value == STORED => Self::Stored,
            _ => Self::Off,
        }
    }
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

/// The commit to the base table that changes the settings that are given.
#[must_use]
pub fn alter_changelog(changelog: Option<Changelog>, retention: Option<Duration>) -> Operation {
    let changelog = changelog.map(|changelog| UpdateMapEntry {
        key: CHANGELOG.to_owned(),
        value: changelog.name().map(str::to_owned),
    });
    let retention = retention.map(|retention| UpdateMapEntry {
        key: RETENTION.to_owned(),
        value: Some(retention.as_millis().to_string()),
    });
    let update_entries = changelog.into_iter().chain(retention).collect();
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
        for changelog in [Changelog::Off, Changelog::Stored] {
            assert_eq!(Changelog::parse(changelog.name()).unwrap(), changelog);
        }
        for name in ["", "flushed", "input", "Stored"] {
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
        let off = alter_changelog(Some(Changelog::Off), None);
        assert_eq!(keys(off), [(CHANGELOG.to_owned(), None)]);
        let day = alter_changelog(None, Some(Duration::from_hours(24)));
        assert_eq!(keys(day), [(RETENTION.to_owned(), Some("86400000".to_owned()))]);
    }
}
