//! The `INVERTED` indexes of a dataset: of the base table, or of an SSTable.
//!
//! Owns: which segments of which index a full-text search may use, and which fragments they cover.
//! Does not own: the files of an index, which are Lance's, or its search (`index_scores`).

use std::sync::Arc;

use lance::Dataset;
use lance::index::{DatasetIndexExt, DatasetIndexInternalExt};
use lance_index::metrics::NoOpMetricsCollector;
use lance_index::scalar::ScalarIndex;
use lance_index::scalar::inverted::{InvertedIndex, InvertedIndexParams};
use roaring::RoaringBitmap;

use crate::memory_indexes::{is_inverted, recorded_params};

/// The `INVERTED` index of a column.
#[derive(Clone, Debug)]
pub(super) struct TextIndex {
    pub name: String,
    pub segments: Vec<Segment>,
    /// The parameters that it records, by which rows in memory are indexed.
    pub recorded: Option<InvertedIndexParams>,
}

/// A segment of an index.
#[derive(Clone)]
pub(super) struct Segment {
    index: Arc<dyn ScalarIndex>,
    /// The fragments of the dataset that it covers.
    pub fragments: RoaringBitmap,
    /// Whether it covers fragments that the dataset does not have any more. Their rows are in the
    /// segment's statistics and cannot be named one by one.
    covers_removed: bool,
}

impl std::fmt::Debug for Segment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Segment({:?})", self.fragments)
    }
}

/// Names of the columns of `dataset` that have an `INVERTED` index, in the order of the table.
///
/// # Errors
/// An error of Lance that reads the index section.
pub(super) async fn indexed_columns(dataset: &Dataset) -> lance_core::Result<Vec<String>> {
    let indexes = dataset.load_indices().await?;
    let has_index = |id: i32| indexes.iter().any(|index| is_inverted(index, id));
    let fields = dataset.schema().fields.iter().filter(|field| has_index(field.id));
    Ok(fields.map(|field| field.name.clone()).collect())
}

impl TextIndex {
    /// The `INVERTED` index of `column`; `None` where it has none.
    ///
    /// # Errors
    /// An error of Lance that opens it.
    pub async fn of(dataset: &Dataset, column: &str) -> lance_core::Result<Option<Self>> {
        let Some(field) = dataset.schema().field(column) else { return Ok(None) };
        let indexes = dataset.load_indices().await?;
        let Some(first) = indexes.iter().find(|index| is_inverted(index, field.id)) else {
            return Ok(None);
        };
        let existing: RoaringBitmap =
            dataset.fragments().iter().filter_map(|it| u32::try_from(it.id).ok()).collect();
        let mut segments = Vec::new();
        for index in indexes.iter().filter(|it| it.name == first.name) {
            let covered = index.fragment_bitmap.clone().unwrap_or_default();
            let opened =
                dataset.open_scalar_index(column, &index.uuid, &NoOpMetricsCollector).await?;
            if opened.as_any().downcast_ref::<InvertedIndex>().is_some() {
                segments.push(Segment {
                    index: opened,
                    fragments: &covered & &existing,
                    covers_removed: !covered.is_subset(&existing),
                });
            }
        }
        let recorded = recorded_params(first);
        Ok(Some(Self { name: first.name.clone(), segments, recorded }))
    }

    /// The parameters of its tokenizer.
    pub fn params(&self) -> Option<&InvertedIndexParams> {
        self.segments.iter().find_map(Segment::opened).map(InvertedIndex::params)
    }

    /// The index with those of its segments that score rows as an index with `params` does, one
    /// row at a time.
    pub fn fitting(mut self, params: &InvertedIndexParams) -> Self {
        self.segments.retain(|segment| {
            let opened = segment.opened();
            !segment.covers_removed
                && opened.is_some_and(|it| !it.is_legacy() && it.params() == params)
        });
        self
    }

    /// The fragments that its segments cover.
    pub fn fragments(&self) -> RoaringBitmap {
        self.segments.iter().fold(RoaringBitmap::new(), |all, it| all | &it.fragments)
    }
}

impl Segment {
    pub fn opened(&self) -> Option<&InvertedIndex> {
        self.index.as_any().downcast_ref::<InvertedIndex>()
    }
}
