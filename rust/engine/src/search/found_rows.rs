//! The rows that an index found, by their row ids.
//!
//! Owns: reading them from the base table or an SSTable through files that stay open, without those
//! that the base table has deleted.
//! Does not own: the search that found them (`index_search`), or whether newer rows supersede them.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use arrow_schema::Schema;
use arrow_select::concat::concat_batches;
use futures::{StreamExt, TryStreamExt, stream};
use lance::Dataset;
use lance_core::datatypes::Schema as LanceSchema;
use lance_core::utils::address::RowAddress;
use lance_core::{Error as LanceError, ROW_ID, Result as LanceResult};
use lance_file::version::ConcreteFileVersion;
use lance_table::format::Fragment;

use crate::lookup::rows_at;
use crate::snapshot::{BaseRows, DeletedRows, RowReaders, Snapshot, SsTableHandle};

/// Fragments whose rows are read at the same time.
const FRAGMENTS_AT_ONCE: usize = 16;

/// Where the rows are.
#[derive(Clone, Debug)]
pub(super) enum FoundRows {
    Base(Arc<BaseRows>),
    SsTable(Arc<SsTableHandle>),
}

impl FoundRows {
    /// Those of the base table; `None` where only Lance reads its rows by row ids.
    pub fn of_base(snapshot: &Snapshot) -> Option<Self> {
        let base = &snapshot.base;
        let has_overlays = |fragment: &Fragment| !fragment.overlays.is_empty();
        let reads = ids_are_addresses(base) && !base.fragments().iter().any(has_overlays);
        reads.then(|| Self::Base(snapshot.base_cache.rows(base)))
    }

    /// Those of an SSTable; `None` as [`Self::of_base`].
    pub fn of_sstable(sstable: &Arc<SsTableHandle>) -> Option<Self> {
        ids_are_addresses(&sstable.dataset).then(|| Self::SsTable(sstable.clone()))
    }

    /// The rows of `dataset` that `found` names by their row ids, with `columns`, in their order
    /// there.
    ///
    /// # Errors
    /// A storage error; an internal error without row ids.
    pub async fn read(
        &self,
        dataset: &Dataset,
        found: &RecordBatch,
        columns: LanceSchema,
    ) -> LanceResult<RecordBatch> {
        let ids = found.column_by_name(ROW_ID).and_then(|ids| ids.as_primitive_opt::<UInt64Type>());
        let ids = ids.ok_or_else(|| LanceError::internal("a search returned no row ids"))?;
        let mut of_fragments: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        let deleted = self.deleted(dataset).await?;
        // Lance may return a deleted row with a null for its id.
        for at in ids.iter().flatten().map(RowAddress::from) {
            let (fragment, offset) = (at.fragment_id(), at.row_offset());
            let of = deleted.and_then(|deleted| deleted.get(&fragment));
            if !of.is_some_and(|deleted| deleted.contains(offset)) {
                of_fragments.entry(fragment).or_default().push(offset);
            }
        }
        // An index may name rows of a fragment that is gone.
        of_fragments.retain(|fragment, _| dataset.get_fragment(*fragment as usize).is_some());
        let schema = Arc::new(Schema::from(&columns));
        let columns = Arc::new(columns);
        let reads = of_fragments.into_iter().map(|(fragment, mut offsets)| {
            let columns = columns.clone();
            async move {
                offsets.sort_unstable();
                offsets.dedup();
                rows_at(self.readers(), dataset, fragment, &offsets, columns).await
            }
        });
        let read: Vec<Vec<RecordBatch>> =
            stream::iter(reads).buffered(FRAGMENTS_AT_ONCE).try_collect().await?;
        Ok(concat_batches(&schema, read.iter().flatten())?)
    }

    /// The deleted rows of the base table `dataset`; `None` for an SSTable.
    ///
    /// # Errors
    /// A storage error.
    pub async fn deleted(&self, dataset: &Dataset) -> LanceResult<Option<&DeletedRows>> {
        match self {
            Self::Base(rows) => rows.deleted(dataset).await.map(Some),
            Self::SsTable(_) => Ok(None),
        }
    }

    fn readers(&self) -> &RowReaders {
        match self {
            Self::Base(rows) => &rows.readers,
            Self::SsTable(sstable) => &sstable.row_readers,
        }
    }
}

/// Whether row ids are addresses of rows, in files whose rows are read by position.
fn ids_are_addresses(dataset: &Dataset) -> bool {
    let manifest = dataset.manifest();
    !manifest.uses_stable_row_ids()
        && manifest.data_storage_format.version != ConcreteFileVersion::V1
}
