//! The changes that a compaction stored, read in place of the two versions.
//!
//! Owns: where a version records its stored changes, the checks of what is read, and the rows of
//! fragments among the stored rows.
//! Does not own: writing (`record`), publishing or removing stored changes (`table`).
//!
//! Stored rows have the order in which a feed derives them, so a fragment of the base table is a
//! range of them.

use std::collections::HashSet;
use std::io::Cursor;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use lance::Dataset;
use lance::dataset::VersionTransaction;
use lance::dataset::transaction::Transaction;
use lancemem_core::format::changelog::{CHANGES, parse_changes};
use lancemem_core::format::{ChangeRows, FragmentRows, PublishedChanges, StoredRows, paths};
use lancemem_core::store::Store;
use lancemem_core::types::{Error, MaxBytes, Result};
use roaring::RoaringBitmap;

use super::derive::{Difference, Effect, Trust, effect};
use super::images::Version;
use super::pair::{Paired, Side};
use super::selection::{Marks, Picked, Selection};
use super::shape::key_ids;
use crate::errors::{Context, SsTableErrors};
use crate::sstable::{SsTableContext, open_change_rows};

const OPENING: &str = "opening stored changes";
/// The fragment of a folder of change rows.
const FRAGMENT: u32 = 0;

/// What a version records of its changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// It changes no row.
    NoRows,
    /// Its changes are stored.
    Rows(StoredRows),
}

impl From<Option<StoredRows>> for Record {
    fn from(rows: Option<StoredRows>) -> Self {
        rows.map_or(Self::NoRows, Self::Rows)
    }
}

/// What a version records of its changes; `None` where it records nothing.
///
/// # Errors
/// Damage for a record that cannot be read.
pub fn recorded(transaction: &Transaction) -> Result<Option<Record>> {
    let properties = transaction.transaction_properties.as_ref();
    let Some(text) = properties.and_then(|all| all.get(CHANGES)) else { return Ok(None) };
    Ok(Some(parse_changes(text)?.into()))
}

/// What a version is published with; `None` where its changes are not stored and may be some.
/// `committed` is the time of the version.
///
/// # Errors
/// As [`recorded`].
pub fn publication(
    version: u64,
    committed: SystemTime,
    transaction: &Transaction,
) -> Result<Option<PublishedChanges>> {
    let rows = match recorded(transaction)? {
        Some(Record::Rows(rows)) => Some(rows),
        Some(Record::NoRows) => None,
        None if effect(&transaction.operation) == Effect::Nothing => None,
        None => return Ok(None),
    };
    let since = committed.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Ok(Some(PublishedChanges {
        version,
        timestamp_nanos: u64::try_from(since.as_nanos()).unwrap_or(u64::MAX),
        operation: transaction.operation.name().to_owned(),
        rows,
    }))
}

/// The published changes of a version; `None` if the version has no publication.
///
/// # Errors
/// Damage; a storage error.
pub async fn published(store: &Store, version: u64) -> Result<Option<PublishedChanges>> {
    let path = paths::published_changes(version);
    let Some(bytes) = store.get(&path, MaxBytes::NOTE).await? else { return Ok(None) };
    let published = PublishedChanges::decode(&bytes, &path)?;
    if published.version == version {
        return Ok(Some(published));
    }
    let detail = format!("it publishes the changes of version {}", published.version);
    Err(Error::corrupt(path, "misplaced", detail))
}

/// What is known of the commit that made a version, without the version itself.
#[derive(Debug)]
pub struct Commit {
    pub effect: Effect,
    pub operation: String,
    pub timestamp: SystemTime,
    /// Its changes, where they are stored.
    pub rows: Option<StoredRows>,
}

impl Commit {
    /// The commit of a version that is left; `None` where it records no transaction.
    ///
    /// # Errors
    /// As [`recorded`].
    pub fn of(read: VersionTransaction) -> Result<Option<Self>> {
        let Some(transaction) = read.transaction else { return Ok(None) };
        let (effect, rows) = match recorded(&transaction)? {
            Some(Record::NoRows) => (Effect::Nothing, None),
            Some(Record::Rows(rows)) => (effect(&transaction.operation), Some(rows)),
            None => (effect(&transaction.operation), None),
        };
        let operation = transaction.operation.name().to_owned();
        Ok(Some(Self { effect, operation, timestamp: read.timestamp.into(), rows }))
    }
}

impl From<PublishedChanges> for Commit {
    fn from(published: PublishedChanges) -> Self {
        let effect = match &published.rows {
            Some(_) => Effect::Rows(Trust::default()),
            None => Effect::Nothing,
        };
        let since = Duration::from_nanos(published.timestamp_nanos);
        let timestamp = SystemTime::UNIX_EPOCH + since;
        Self { effect, operation: published.operation, timestamp, rows: published.rows }
    }
}

/// The versions whose changes are published, the oldest first.
///
/// # Errors
/// A storage error.
pub async fn published_versions(store: &Store) -> Result<Vec<u64>> {
    let names = store.list_files(paths::CHANGELOG).await?;
    let mut versions: Vec<u64> =
        names.iter().filter_map(|name| paths::parse_published_changes(name)).collect();
    versions.sort_unstable();
    Ok(versions)
}

/// The stored changes of a version.
#[derive(Clone, Debug)]
pub struct StoredChanges {
    rows: Version,
    about: Arc<ChangeRows>,
    updated: Marks,
}

impl StoredChanges {
    /// Opens the stored changes of `version`; `None` where a collection has removed them. `base` is
    /// any version of the table.
    ///
    /// # Errors
    /// Damage; a storage error.
    pub async fn open(
        store: &Store,
        base: &Dataset,
        stored: &StoredRows,
        version: u64,
    ) -> Result<Option<Self>> {
        let path = paths::change_rows_file(&stored.name);
        let Some(bytes) = store.get(&path, MaxBytes::VECTORS).await? else { return Ok(None) };
        let found = crc32fast::hash(&bytes);
        if found != stored.crc32 {
            let detail = format!("expected {:08x}, found {found:08x}", stored.crc32);
            return Err(Error::corrupt(path, "checksum", detail));
        }
        let about = ChangeRows::decode(&bytes, &path)?;
        if about.base_version.checked_add(1) != Some(version) {
            let of = about.base_version;
            let detail = format!("it has the changes behind version {of}, not those of {version}");
            return Err(Error::corrupt(path, "misplaced", detail));
        }
        let undecodable = |detail: String| Error::corrupt(path.as_str(), "undecodable", detail);
        let updated = RoaringBitmap::deserialize_from(Cursor::new(&about.updated))
            .map_err(|error| undecodable(error.to_string()))?;
        let rows = about.rows().ok_or_else(|| undecodable("too many rows".to_owned()))?;
        let context = SsTableContext::of_changelog(base).await.context(OPENING)?;
        let opened = Box::pin(open_change_rows(&context, &stored.name, about.manifest_crc32)).await;
        let dataset = opened.in_sstable(&paths::change_rows(&stored.name))?;
        let has_rows = match dataset.fragments().as_slice() {
            [only] => only.id == u64::from(FRAGMENT) && only.physical_rows == Some(rows as usize),
            _ => false,
        };
        if !has_rows {
            return Err(undecodable(format!("its dataset has not the {rows} rows")));
        }
        Ok(Some(Self {
            rows: Version::of(Arc::new(dataset)),
            about: Arc::new(about),
            updated: Marks::of_fragment(FRAGMENT, updated),
        }))
    }

    /// The dataset of the rows.
    pub const fn version(&self) -> &Version {
        &self.rows
    }

    /// The rows that differ, as fragments of the base table. Their addresses are not those of the
    /// dataset.
    pub fn difference(&self) -> Difference {
        let selection = |fragments: &[FragmentRows]| {
            let mut selection = Selection::default();
            for fragment in fragments {
                selection.set(fragment.id, Picked::Live(fragment.rows));
            }
            selection
        };
        Difference { before: selection(&self.about.before), after: selection(&self.about.after) }
    }

    /// The rows of `chosen`, fragments of [`Self::difference`], in the dataset.
    pub fn located(&self, chosen: &Difference) -> Difference {
        let mut next = 0;
        let before = ranges(&self.about.before, &chosen.before, &mut next);
        let after = ranges(&self.about.after, &chosen.after, &mut next);
        Difference { before, after }
    }

    /// The rows of `chosen` as they were paired when they were stored.
    pub fn paired(&self, chosen: &Difference) -> Paired {
        let located = self.located(chosen);
        let side = |rows| Side { rows, updated: self.updated.clone() };
        Paired { before: side(located.before), after: side(located.after) }
    }

    /// Whether the rows were paired by the key columns of these field ids.
    pub fn has_key(&self, ids: &[i32]) -> bool {
        key_ids(&self.rows.dataset) == ids
    }
}

/// The positions of the fragments of `chosen` among `fragments`, whose first row is at `next`. Moves
/// `next` behind the last row.
fn ranges(fragments: &[FragmentRows], chosen: &Selection, next: &mut u32) -> Selection {
    let chosen: HashSet<u32> = chosen.fragments().map(|(id, _)| id).collect();
    let mut positions = RoaringBitmap::new();
    for fragment in fragments {
        // The rows of all fragments were counted when the changes were opened.
        let end = next.saturating_add(u32::try_from(fragment.rows).unwrap_or(u32::MAX));
        if chosen.contains(&fragment.id) {
            positions.insert_range(*next..end);
        }
        *next = end;
    }
    let mut selection = Selection::default();
    selection.set(FRAGMENT, Picked::At(positions));
    selection
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fragment(id: u32, rows: u64) -> FragmentRows {
        FragmentRows { id, rows }
    }

    fn chosen(ids: &[u32]) -> Selection {
        let mut selection = Selection::default();
        for id in ids {
            selection.set(*id, Picked::Live(1));
        }
        selection
    }

    #[test]
    fn a_fragment_is_a_range_of_the_stored_rows() {
        let (before, after) = ([fragment(0, 3), fragment(7, 2)], [fragment(7, 4), fragment(9, 1)]);
        let mut next = 0;
        let rows = ranges(&before, &chosen(&[7]), &mut next);
        assert_eq!((rows.rows(), next), (2, 5));
        assert!(ranges(&after, &chosen(&[0]), &mut next).is_empty());
        assert_eq!(next, 10);
        next = 5;
        let rows = ranges(&after, &chosen(&[9, 7]), &mut next);
        assert_eq!(rows.fragments().collect::<Vec<_>>(), [(FRAGMENT, 5)]);
    }
}
