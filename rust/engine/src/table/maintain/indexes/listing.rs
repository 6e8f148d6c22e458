//! The indexes of one base version.
//!
//! Owns: what is known of an index without reading its files.
//! Does not own: the indexes, which are Lance's.

use std::collections::BTreeSet;

use lance::Dataset;
use lance::index::DatasetIndexExt;
use lance_index::IndexDescription;
use lance_index::is_system_index;
use lance_index::pb::{VectorIndexDetails, VectorMetricType};
use lance_linalg::distance::DistanceType;
use lance_table::format::IndexMetadata;
use lancemem_core::types::Result;
use roaring::RoaringBitmap;
use uuid::Uuid;

use super::TableIndexType;
use crate::errors::BaseContext;
use crate::metric::Metric;

const ACTION: &str = "listing the indexes of the base table";
/// The end of the type that Lance records for an index of vectors.
const VECTOR_DETAILS: &str = "VectorIndexDetails";

/// An index of a base table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableIndexInfo {
    /// Its name.
    pub name: String,
    /// The indexed columns.
    pub columns: Vec<String>,
    /// The name of its type, such as `IVF_PQ` or `BTREE`.
    pub index_type: String,
    /// The metric of an index of vectors.
    pub metric: Option<Metric>,
    /// Rows of the base table that the index covers.
    pub indexed_rows: u64,
    /// Rows of the base table that it does not cover; a search reads these without it.
    pub unindexed_rows: u64,
    /// Parts of the index, each with files of its own.
    pub segments: usize,
    /// Why rows are not covered: the index has no model, or the last compaction of this process
    /// could not cover them. `None` where all rows are, and where no compaction came since.
    pub unindexed_because: Option<String>,
}

/// An index of a base version, as Lance identifies it.
#[derive(Clone, Debug)]
pub struct Listed {
    pub info: TableIndexInfo,
    /// The id of its column.
    pub field: Option<i32>,
    is_vector: bool,
    /// Whether it has a model, where it needs one.
    is_trained: bool,
    /// The ids of its segments.
    pub ids: BTreeSet<Uuid>,
}

impl Listed {
    /// The indexes of `base` by name, without those of the table format.
    ///
    /// # Errors
    /// Those of a read of the base table.
    pub async fn of(base: &Dataset) -> Result<Vec<Self>> {
        let described = base.describe_indices(None).await.in_base(ACTION)?;
        let own = described.iter().filter(|it| !it.segments().iter().all(is_system_index));
        Ok(own.map(|it| Self::described(base, it.as_ref())).collect())
    }

    fn described(base: &Dataset, index: &dyn IndexDescription) -> Self {
        let segments = index.segments();
        let fields = segments.first().map(IndexMetadata::keyed_fields).unwrap_or_default();
        // A column that got another type meanwhile has another id.
        let columns = fields.iter().filter_map(|field| base.schema().field_path(*field).ok());
        let covered = segments.iter().filter_map(|segment| segment.fragment_bitmap.as_ref());
        let covered = covered.fold(RoaringBitmap::new(), |all, segment| all | segment);
        let (mut indexed_rows, mut unindexed_rows) = (0, 0);
        for fragment in base.fragments().iter() {
            let rows = fragment.num_rows().unwrap_or_default() as u64;
            if u32::try_from(fragment.id).is_ok_and(|id| covered.contains(id)) {
                indexed_rows += rows;
            } else {
                unindexed_rows += rows;
            }
        }
        let info = TableIndexInfo {
            name: index.name().to_owned(),
            columns: columns.collect(),
            index_type: TableIndexType::name_of_lance(index.index_type()),
            metric: segments.first().and_then(metric_of),
            indexed_rows,
            unindexed_rows,
            segments: segments.len(),
            unindexed_because: None,
        };
        let ids = segments.iter().map(|segment| segment.uuid).collect();
        let is_vector = index.type_url().ends_with(VECTOR_DETAILS);
        // An index of Lance's first versions does not record what it covers.
        let is_empty = |segment: &IndexMetadata| {
            segment.fragment_bitmap.as_ref().is_some_and(RoaringBitmap::is_empty)
        };
        let is_trained = !is_vector || !segments.iter().all(is_empty);
        Self { info, field: fields.first().copied(), is_vector, is_trained, ids }
    }

    /// Why no compaction covers rows: the index waits for a training.
    pub fn untrained(&self) -> Option<String> {
        let reason = "the index has no model yet; optimize_indexes trains it";
        (!self.is_trained).then(|| reason.to_owned())
    }

    /// Whether `of` is the type of this index, or both are types of indexes of vectors.
    pub fn is_like(&self, of: TableIndexType) -> bool {
        if of.is_vector() { self.is_vector } else { self.info.index_type == of.name() }
    }
}

/// The metric that an index of vectors records.
fn metric_of(index: &IndexMetadata) -> Option<Metric> {
    let details = index.index_details.as_ref()?;
    if !details.type_url.ends_with(VECTOR_DETAILS) {
        return None;
    }
    let details = details.to_msg::<VectorIndexDetails>().ok()?;
    let metric = VectorMetricType::try_from(details.metric_type).ok()?;
    Some(DistanceType::from(metric).into())
}
