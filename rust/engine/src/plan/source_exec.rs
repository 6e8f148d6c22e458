//! The plan node around a source of rows that is not Lance's.
//!
//! Owns: the common part of such nodes: no input, one stream, metrics, a line of the plan's text.
//! Does not own: the rows, which a [`Leaf`] produces (`memtable_scan`, `sstable_keys_scan`).

use std::fmt;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use datafusion::common::{DataFusionError, Result as PlanResult};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
};
use futures::stream::BoxStream;

/// A source of rows. The plan's text shows its name, then its `Display`.
pub trait Leaf: fmt::Debug + fmt::Display + Send + Sync + 'static {
    /// The name of its node.
    const NAME: &'static str;

    /// The columns of its rows.
    fn schema(&self) -> SchemaRef;

    /// Its rows, counted in `metrics`. May be called again.
    fn batches(&self, metrics: BaselineMetrics) -> BoxStream<'static, PlanResult<RecordBatch>>;
}

/// The node of a [`Leaf`].
#[derive(Debug)]
pub struct LeafExec<L> {
    leaf: L,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl<L: Leaf> LeafExec<L> {
    /// The node of `leaf`.
    #[must_use]
    pub fn new(leaf: L) -> Self {
        let properties = Arc::new(PlanProperties::new(
            EquivalenceProperties::new(leaf.schema()),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        ));
        Self { leaf, properties, metrics: ExecutionPlanMetricsSet::new() }
    }
}

impl<L: Leaf> DisplayAs for LeafExec<L> {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", L::NAME, self.leaf)
    }
}

impl<L: Leaf> ExecutionPlan for LeafExec<L> {
    fn name(&self) -> &'static str {
        L::NAME
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        if children.is_empty() {
            Ok(self)
        } else {
            Err(DataFusionError::Internal(format!("{} has no input", L::NAME)))
        }
    }

    fn execute(
        &self,
        partition: usize,
        _: Arc<TaskContext>,
    ) -> PlanResult<SendableRecordBatchStream> {
        let batches = self.leaf.batches(BaselineMetrics::new(&self.metrics, partition));
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.leaf.schema(), batches)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}
