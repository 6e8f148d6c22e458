//! A source of rows that a search asks by its index: the base table, or an SSTable.
//!
//! Owns: [`IndexedSource`]: which sources have an index that a search can use, the rows of such a
//! source that are known to be superseded, and the sources that may supersede more of them.
//! Does not own: the search (`index_search`), the index (`table_index`), or reading the rows that it
//! found (`found_rows`).

use std::fmt;
use std::sync::Arc;

use lance::Dataset;
use lancemem_core::types::Result;

use super::Metric;
use super::found_rows::FoundRows;
use super::table_index::TableIndex;
use crate::errors::{BaseContext, SsTableErrors, from_base};
use crate::schema::StoredColumns;
use crate::snapshot::{Snapshot, SsTableHandle};
use crate::visibility::{DeadRows, KnownRows};

/// What a search of the base table does, in errors.
pub(super) const SEARCHING: &str = "searching the base table";
const OPENING: &str = "opening the vector index of the base table";

/// A source with an index.
#[derive(Clone, Debug)]
pub(super) struct IndexedSource {
    /// Its arm in scans.
    pub arm: usize,
    pub dataset: Arc<Dataset>,
    pub index: TableIndex,
    /// The sources that may supersede its rows, over the same base table.
    pub newer: Arc<Snapshot>,
    /// The superseded rows, where they are known. Newer rows in memory may supersede more.
    pub dead: Option<Arc<DeadRows>>,
    /// The SSTable; `None` for the base table.
    pub sstable: Option<Arc<SsTableHandle>>,
    /// Reads the rows that the index found, in less time than a plan of Lance does.
    pub rows: Option<FoundRows>,
}

/// The index of the base table of `snapshot` for `column`; `None` where it has none.
///
/// # Errors
/// An error of Lance that opens it.
pub(super) async fn base_index(snapshot: &Snapshot, column: &str) -> Result<Option<TableIndex>> {
    TableIndex::of(&snapshot.base, column).await.in_base(OPENING)
}

/// The sources that may supersede rows of the source at `place`, or of the base table. None where the
/// merge rule decides: the dead rows of such a snapshot are known, whatever superseded them.
fn newer_than(snapshot: &Arc<Snapshot>, place: Option<usize>) -> Arc<Snapshot> {
    match place {
        _ if snapshot.rule().is_some() => Arc::new(snapshot.without(|_| true)),
        Some(place) => Arc::new(snapshot.newer_than(place)),
        None => snapshot.clone(),
    }
}

impl IndexedSource {
    /// The base table of `snapshot`.
    pub fn of_base(snapshot: &Arc<Snapshot>, index: TableIndex, known: Option<&KnownRows>) -> Self {
        Self {
            arm: 0,
            dataset: snapshot.base.clone(),
            index,
            newer: newer_than(snapshot, None),
            dead: known.map(|known| known.of_arm(snapshot, 0)),
            sstable: None,
            rows: FoundRows::of_base(snapshot),
        }
    }

    /// The SSTable at the arm `arm` of `snapshot`, where it has an index of `column` with `metric`
    /// and the columns `read` under their present names and types; else `None`.
    ///
    /// # Errors
    /// Damage of the index; a storage error.
    pub async fn of_sstable(
        snapshot: &Arc<Snapshot>,
        (arm, sstable): (usize, &Arc<SsTableHandle>),
        (column, metric): (&str, Metric),
        read: &[String],
        known: Option<&KnownRows>,
    ) -> Result<Option<Self>> {
        let stored = StoredColumns::of(&sstable.columns, &snapshot.columns, read);
        // A column that cannot be reconciled is an error of the scan, which names it.
        if !stored.is_ok_and(|stored| stored.is_same()) {
            return Ok(None);
        }
        let Some(dataset) = sstable.indexed().await? else { return Ok(None) };
        let name = sstable.name();
        let index = TableIndex::of(dataset, column).await.in_sstable(&name)?;
        let index = index.filter(|index| index.metric == metric);
        Ok(index.map(|index| Self {
            arm,
            dataset: dataset.clone(),
            index,
            newer: newer_than(snapshot, Some(arm - 1)),
            dead: known.map(|known| known.of_arm(snapshot, arm)),
            sstable: Some(sstable.clone()),
            rows: FoundRows::of_sstable(sstable),
        }))
    }

    /// Whether Lance has no more rows where it returns fewer than it was asked for: an index that
    /// lancemem made has no graph, whose walk may miss rows.
    pub const fn is_searched_to_its_end(&self) -> bool {
        self.sstable.is_some()
    }

    /// The dataset with its deleted rows, which [`FoundRows::read`] leaves out; `None` where it has
    /// none, or only Lance reads its rows.
    pub fn with_deleted(&self) -> Option<Arc<Dataset>> {
        match &self.rows {
            Some(FoundRows::Base(rows)) if self.num_deleted() > 0 => {
                Some(rows.with_deleted(&self.dataset))
            }
            _ => None,
        }
    }

    /// The number of rows of its data files, deleted ones included.
    pub fn num_rows(&self) -> usize {
        self.dataset.fragments().iter().filter_map(|fragment| fragment.physical_rows).sum()
    }

    /// The number of deleted rows.
    pub fn num_deleted(&self) -> usize {
        let files = self.dataset.fragments().iter().filter_map(|it| it.deletion_file.as_ref());
        // Old writers record no number.
        files.map(|file| file.num_deleted_rows.unwrap_or(1)).sum()
    }

    /// The result of planning a read by Lance, with an error that names the source.
    ///
    /// # Errors
    /// That error.
    pub fn planned<T>(&self, planned: lance_core::Result<T>) -> Result<T> {
        match &self.sstable {
            Some(sstable) => planned.in_sstable(&sstable.name()),
            None => planned.map_err(|error| from_base(SEARCHING, error)),
        }
    }

    /// The result of a read by Lance, with an error that names the source.
    ///
    /// # Errors
    /// That error.
    pub fn named<T>(&self, read: lance_core::Result<T>) -> Result<T> {
        match &self.sstable {
            Some(sstable) => read.in_sstable(&sstable.name()),
            None => read.in_base(SEARCHING),
        }
    }
}

impl fmt::Display for IndexedSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.sstable {
            Some(sstable) => f.write_str(&sstable.name()),
            None => write!(f, "base version={}", self.dataset.version().version),
        }
    }
}
