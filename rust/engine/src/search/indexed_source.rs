//! A source of rows that a search asks by its index: the base table, or an SSTable.
//!
//! Owns: [`IndexedSource`]: which sources have an index that a search can use, the rows of such a
//! source that are known to be superseded, the sources that may supersede more of them, and the
//! reading of an SSTable's rows that its index found.
//! Does not own: the search (`index_search`), or the index (`table_index`).

use std::fmt;
use std::sync::Arc;

use arrow::compute::concat_batches;
use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use arrow_schema::Schema;
use lance::Dataset;
use lance_core::ROW_ID;
use lance_core::datatypes::Schema as LanceSchema;
use lance_file::version::ConcreteFileVersion;
use lancemem_core::types::{Error, Result};

use super::Metric;
use super::table_index::TableIndex;
use crate::errors::{BaseContext, Context, SsTableErrors, from_base};
use crate::lookup::rows_at;
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
        }))
    }

    /// Whether Lance has no more rows where it returns fewer than it was asked for: an index that
    /// lancemem made has no graph, whose walk may miss rows.
    pub const fn is_searched_to_its_end(&self) -> bool {
        self.sstable.is_some()
    }

    /// Whether [`Self::rows_of`] reads its rows, in less time than a plan of Lance does.
    pub fn has_row_readers(&self) -> bool {
        let manifest = self.dataset.manifest();
        // The row ids of an SSTable are the addresses of its rows, unless they are stable ones.
        self.sstable.is_some()
            && !manifest.uses_stable_row_ids()
            && manifest.data_storage_format.version != ConcreteFileVersion::V1
    }

    /// The rows of the SSTable that `found` names by their row ids, with `columns`, in their order
    /// there.
    ///
    /// # Errors
    /// Damage; a storage error; an internal error for the base table, or without row ids.
    pub async fn rows_of(&self, found: &RecordBatch, columns: LanceSchema) -> Result<RecordBatch> {
        let missing = || Error::internal(format!("searching {self}: Lance returned other row ids"));
        let ids = found.column_by_name(ROW_ID).and_then(|ids| ids.as_primitive_opt::<UInt64Type>());
        let (Some(ids), Some(sstable)) = (ids, &self.sstable) else { return Err(missing()) };
        // An SSTable is one fragment, 0, so that an address is an offset.
        let offset = |id: &u64| u32::try_from(*id).map_err(|_| missing());
        let mut offsets = ids.values().iter().map(offset).collect::<Result<Vec<_>>>()?;
        offsets.sort_unstable();
        let schema = Arc::new(Schema::from(&columns));
        if offsets.is_empty() {
            return Ok(RecordBatch::new_empty(schema));
        }
        let rows = rows_at(&sstable.row_readers, &sstable.dataset, 0, &offsets, columns.into());
        let rows = self.named(rows.await)?;
        match rows.as_slice() {
            [only] => Ok(only.clone()),
            several => concat_batches(&schema, several).context("searching an SSTable"),
        }
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
