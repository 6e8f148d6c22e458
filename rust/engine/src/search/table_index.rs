//! The vector index of a base table.
//!
//! Owns: which index a search of a column uses, and what has to be known of it.
//! Does not own: its files, or the search in it, which are Lance's.

use lance::Dataset;
use lance::index::DatasetIndexExt;
use lance::index::DatasetIndexInternalExt;
use lance_index::metrics::NoOpMetricsCollector;
use lance_index::vector::quantizer::QuantizationType;
use lance_index::vector::v3::subindex::SubIndexType;
use lancemem_core::types::Result;

use super::Metric;
use crate::errors::BaseContext;

/// The vector index of a column.
#[derive(Clone, Debug)]
pub(super) struct TableIndex {
    pub name: String,
    pub metric: Metric,
    /// Candidates for each row of a result, where the caller names no factor: the codes of an index
    /// order vectors approximately, and exact distances correct the order among its candidates.
    pub refine_factor: usize,
}

impl TableIndex {
    /// The index of `column` of the base table; `None` where it has none.
    ///
    /// # Errors
    /// An error of Lance that opens it.
    pub async fn of(base: &Dataset, column: &str) -> Result<Option<Self>> {
        let action = "opening the vector index of the base table";
        let Some(field) = base.schema().field(column) else { return Ok(None) };
        let indexes = base.load_indices().await.in_base(action)?;
        let is_of_column = |fields: &[i32]| fields.first() == Some(&field.id);
        let Some(index) = indexes.iter().find(|index| is_of_column(&index.fields)) else {
            return Ok(None);
        };
        let opened = base.open_vector_index(column, &index.uuid, &NoOpMetricsCollector).await;
        let opened = opened.in_base(action)?;
        let (graph, codes) = opened.sub_index_type();
        let metric = Metric::from(opened.metric_type());
        let refine_factor = refine_factor(graph, codes);
        Ok(Some(Self { name: index.name.clone(), metric, refine_factor }))
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
