//! What a caller asks of a change feed, and what a feed consists of.
//!
//! Owns: options, counts, versions and parts as values, and the names of the columns that a feed
//! adds.
//! Does not own: how changes are derived (`derive`), paired (`pair`) or read (`images`).

use std::time::SystemTime;

use lancemem_core::types::{Error, Result};

use crate::plan::Condition;

/// The column with the kind of a change.
pub const CHANGE_TYPE: &str = "_change_type";
/// The column with the version of the base table that made a change.
pub const COMMIT_VERSION: &str = "_commit_version";
/// The column with the time of that version.
pub const COMMIT_TIMESTAMP: &str = "_commit_timestamp";
/// The names that a table with a change feed must not give to its own columns.
pub const RESERVED: [&str; 3] = [CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP];

/// A state of the base table: a version, or the newest version that was committed by a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The version of this number.
    Version(u64),
    /// The newest version that was committed at this time or before.
    Time(SystemTime),
}

/// The values of the column `_change_type`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RowKinds {
    /// `insert`, `update_preimage`, `update_postimage` and `delete`.
    #[default]
    Delta,
    /// `+I`, `-U`, `+U` and `-D`.
    Flink,
}

impl RowKinds {
    /// The kinds of the name `delta` or `flink`.
    ///
    /// # Errors
    /// An input error for another name.
    pub fn parse(name: &str) -> Result<Self> {
        match name {
            "delta" => Ok(Self::Delta),
            "flink" => Ok(Self::Flink),
            other => Err(Error::input(format!(
                "row_kinds is \"delta\" (insert, update_preimage, update_postimage, delete) or \
                 \"flink\" (+I, -U, +U, -D), got \"{other}\""
            ))),
        }
    }

    pub(super) const fn text(self, image: Image, is_update: bool) -> &'static str {
        match (self, image, is_update) {
            (Self::Delta, Image::Before, false) => "delete",
            (Self::Delta, Image::Before, true) => "update_preimage",
            (Self::Delta, Image::After, true) => "update_postimage",
            (Self::Delta, Image::After, false) => "insert",
            (Self::Flink, Image::Before, false) => "-D",
            (Self::Flink, Image::Before, true) => "-U",
            (Self::Flink, Image::After, true) => "+U",
            (Self::Flink, Image::After, false) => "+I",
        }
    }
}

/// A row before a change, or after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Image {
    /// As the version before has the row.
    Before,
    /// As the version of the change has the row.
    After,
}

/// What to read of the changes: by default all columns of all changed rows.
///
/// ```
/// # use lancemem::{ChangeOptions, Condition};
/// let options = ChangeOptions::default().with_filter(Condition::from("price > 3"));
/// assert!(!options.skip_unchanged);
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ChangeOptions {
    /// Columns of the table in the result, in order; `None` for all.
    pub columns: Option<Vec<String>>,
    /// A condition on the table's columns. It sees both images of an update, which is kept where
    /// one of them meets it.
    pub filter: Option<Condition>,
    /// Whether an update is left out whose images are equal in the columns of the feed.
    pub skip_unchanged: bool,
    /// The values of the column `_change_type`.
    pub row_kinds: RowKinds,
}

impl ChangeOptions {
    /// Sets [`Self::columns`].
    #[must_use]
    pub fn with_columns(self, columns: impl Into<Option<Vec<String>>>) -> Self {
        Self { columns: columns.into(), ..self }
    }

    /// Sets [`Self::filter`].
    #[must_use]
    pub fn with_filter(self, filter: impl Into<Option<Condition>>) -> Self {
        Self { filter: filter.into(), ..self }
    }

    /// Sets [`Self::skip_unchanged`].
    #[must_use]
    pub fn with_skip_unchanged(self, skip_unchanged: bool) -> Self {
        Self { skip_unchanged, ..self }
    }

    /// Sets [`Self::row_kinds`].
    #[must_use]
    pub fn with_row_kinds(self, row_kinds: RowKinds) -> Self {
        Self { row_kinds, ..self }
    }
}

/// How many rows a feed has, by their kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChangeCounts {
    /// Inserted rows.
    pub inserted: u64,
    /// Updated rows: the images after an update.
    pub updated: u64,
    /// Deleted rows.
    pub deleted: u64,
    /// Rows of the feed, in which an update is two rows.
    pub rows: u64,
}

impl ChangeCounts {
    /// Adds `other`.
    pub(super) const fn add(&mut self, other: Self) {
        self.inserted += other.inserted;
        self.updated += other.updated;
        self.deleted += other.deleted;
        self.rows += other.rows;
    }
}

/// A version of the base table that changes rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeVersion {
    /// Its number.
    pub version: u64,
    /// When it was committed.
    pub timestamp: SystemTime,
    /// Lance's name of the operation; `None` where several versions are one step, or where the
    /// version records no transaction.
    pub operation: Option<String>,
    /// Whether its changes are stored; else they are derived.
    pub is_stored: bool,
}

/// A part of the changes between two versions, by fragments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeSlice {
    /// The version before; `None` for a table without rows.
    pub base: Option<u64>,
    /// The version of the changes.
    pub version: u64,
    /// Whether rows that are equal in both versions are no change, although they moved.
    pub is_net: bool,
    /// Fragments of the version before, whose changed rows are images before.
    pub before: Vec<u32>,
    /// Fragments of the version, whose changed rows are images after.
    pub after: Vec<u32>,
}

/// A part of a feed that another process can read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChangePart {
    /// Slices in the order of their versions.
    pub slices: Vec<ChangeSlice>,
}
