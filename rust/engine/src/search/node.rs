//! The plan node around a step of a search.
//!
//! Owns: the common part of such nodes: one input, metrics, a line of the plan's text.
//! Does not own: the rows, which a [`Step`] makes of those of the input.

use std::fmt;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use datafusion::common::{DataFusionError, Result as PlanResult};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::metrics::{
    BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet, RecordOutput,
};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, Partitioning,
    PlanProperties,
};
use futures::StreamExt;
use futures::stream::BoxStream;

/// A step of a search. The plan's text shows its name, then its `Display`.
pub(super) trait Step: fmt::Debug + fmt::Display + Send + Sync + 'static {
    /// The name of its node.
    const NAME: &'static str;
    /// Whether the step takes all partitions of its input at once, and has one itself.
    const GATHERS: bool;

    /// The columns of its rows.
    fn schema(&self) -> SchemaRef;

    /// Its rows, from one partition of the input, or from all. May be called again.
    fn rows(
        &self,
        inputs: Vec<SendableRecordBatchStream>,
        metrics: BaselineMetrics,
    ) -> BoxStream<'static, PlanResult<RecordBatch>>;
}

/// The node of a [`Step`].
#[derive(Debug)]
pub(super) struct StepExec<S> {
    step: Arc<S>,
    input: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl<S: Step> StepExec<S> {
    /// The node of `step` above `input`.
    pub fn new(step: S, input: Arc<dyn ExecutionPlan>) -> Self {
        Self::of(Arc::new(step), input)
    }

    fn of(step: Arc<S>, input: Arc<dyn ExecutionPlan>) -> Self {
        let partitions = if S::GATHERS { 1 } else { input.output_partitioning().partition_count() };
        let emission = if S::GATHERS { EmissionType::Final } else { EmissionType::Incremental };
        let properties = Arc::new(PlanProperties::new(
            EquivalenceProperties::new(step.schema()),
            Partitioning::UnknownPartitioning(partitions),
            emission,
            Boundedness::Bounded,
        ));
        Self { step, input, properties, metrics: ExecutionPlanMetricsSet::new() }
    }
}

impl<S: Step> DisplayAs for StepExec<S> {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", S::NAME, self.step)
    }
}

impl<S: Step> ExecutionPlan for StepExec<S> {
    fn name(&self) -> &'static str {
        S::NAME
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        let [input] = <[_; 1]>::try_from(children)
            .map_err(|_| DataFusionError::Internal(format!("{} has one input", S::NAME)))?;
        Ok(Arc::new(Self::of(self.step.clone(), input)))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> PlanResult<SendableRecordBatchStream> {
        let partitions = if S::GATHERS {
            0..self.input.output_partitioning().partition_count()
        } else {
            partition..partition + 1
        };
        let inputs = partitions.map(|it| self.input.execute(it, context.clone()));
        let inputs = inputs.collect::<PlanResult<Vec<_>>>()?;
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let counted = metrics.clone();
        let rows = self.step.rows(inputs, metrics);
        let rows = rows.map(move |batch| batch.record_output(&counted));
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.step.schema(), rows)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}
