//! The vector index of a base table or of an SSTable.
//!
//! Owns: which index a search of a column uses, and what has to be known of it.
//! Does not own: its files, or the search in it, which are Lance's.

use lance::Dataset;
use lance::index::DatasetIndexExt;
use lance::index::DatasetIndexInternalExt;
use lance_index::metrics::NoOpMetricsCollector;
use lance_index::vector::quantizer::QuantizationType;
use lance_index::vector::v3::subindex::SubIndexType;
use lance_table::format::IndexMetadata;

use super::Metric;

/// The vector index of a column.
#[derive(Clone, Debug)]
pub(super) struct TableIndex {
    pub name: String,
    pub metric: Metric,
    /// Candidates for each row of a result, where the caller names no factor: the codes of an index
    /// order vectors approximately, and exact distances correct the order among its candidates.
    pub refine_factor: usize,
    /// The first segment of the index.
    pub segment: IndexMetadata,
}

impl TableIndex {
    /// The index of `column` of `dataset`; `None` where it has none.
    ///
    /// # Errors
    /// An error of Lance that opens it.
    pub async fn of(dataset: &Dataset, column: &str) -> lance_core::Result<Option<Self>> {
        let Some(field) = dataset.schema().field(column) else { return Ok(None) };
        let indexes = dataset.load_indices().await?;
        let is_of_column = |fields: &[i32]| fields.first() == Some(&field.id);
        let Some(index) = indexes.iter().find(|index| is_of_column(&index.fields)) else {
            return Ok(None);
        };
        let opened = dataset.open_vector_index(column, &index.uuid, &NoOpMetricsCollector).await?;
        let (graph, codes) = opened.sub_index_type();
        let metric = Metric::from(opened.metric_type());
        let refine_factor = refine_factor(graph, codes);
        let (name, segment) = (index.name.clone(), index.clone());
        Ok(Some(Self { name, metric, refine_factor, segment }))
    }
}

/// One-bit and product codes are the coarsest; without codes the order is exact, but in a graph.
const fn refine_factor(graph: SubIndexType, codes: QuantizationType) -> usize {
    match (graph, codes) {
        (SubIndexType::Flat, QuantizationType::Flat | QuantizationType::FlatBin) => 1,
        (SubIndexType::Hnsw, QuantizationType::Flat | QuantizationType::FlatBin)
        | (_, QuantizationType::Scalar) => 2,
        (_, QuantizationType::Product | QuantizationType::Rabit) => 4,
    }
}
