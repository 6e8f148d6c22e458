//! The plan node that keeps of one source the rows that are the newest of their key.
//!
//! ```text
//!   source (base, SSTable or MemTable): columns, maybe key, `_rowaddr`, `_tombstone`
//!        |  not newest here?  drop
//!        |  tombstone?        drop
//!   NewestRowsExec: the columns of `schema`, in its order
//! ```
//!
//! Owns: the stream and its metrics.
//! Does not own: how rows are told apart (`selector`), or filters.

use std::fmt;
use std::sync::Arc;

use arrow_schema::SchemaRef;
use datafusion::common::{DataFusionError, Result as PlanResult};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::metrics::{
    BaselineMetrics, Count, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet, RecordOutput,
};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
};
use futures::{StreamExt, TryStreamExt};

use super::selector::{Newest, Record, Selector};
use crate::errors::RunContext;

/// Keeps the newest rows of one source. Streams; holds one batch.
#[derive(Debug)]
pub struct NewestRowsExec {
    input: Arc<dyn ExecutionPlan>,
    newest: Newest,
    record: Record,
    run: Option<Arc<str>>,
    schema: SchemaRef,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl NewestRowsExec {
    /// Keeps the rows of `input` that are newest, with the columns of `schema`.
    #[must_use]
    pub fn new(input: Arc<dyn ExecutionPlan>, newest: Newest, schema: SchemaRef) -> Self {
        let properties = Arc::new(PlanProperties::new(
            EquivalenceProperties::new(schema.clone()),
            input.output_partitioning().clone(),
            EmissionType::Incremental,
            Boundedness::Bounded,
        ));
        let metrics = ExecutionPlanMetricsSet::new();
        Self { input, newest, record: None, run: None, schema, properties, metrics }
    }

    /// The same node over a flushed run, which its errors and the plan's text name.
    #[must_use]
    pub fn of_run(mut self, run: Option<Arc<str>>) -> Self {
        self.run = run;
        self
    }

    /// The same node, which also notes the dead rows of its only partition.
    #[must_use]
    pub fn recording(mut self, record: Record) -> Self {
        if self.input.output_partitioning().partition_count() == 1 {
            self.record = record;
        }
        self
    }
}

impl DisplayAs for NewestRowsExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.newest {
            Newest::All => write!(f, "NewestRowsExec: all rows"),
            Newest::ByPosition(dead) => {
                write!(f, "NewestRowsExec: by position, dead={}", dead.len())
            }
            Newest::ByKey { freshness, key, .. } => {
                write!(f, "NewestRowsExec: by key [{}], source={freshness:?}", key.join(", "))
            }
        }?;
        self.run.as_ref().map_or(Ok(()), |run| write!(f, ", {run}"))
    }
}

impl ExecutionPlan for NewestRowsExec {
    fn name(&self) -> &'static str {
        "NewestRowsExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        let [input] = <[_; 1]>::try_from(children)
            .map_err(|_| DataFusionError::Internal("NewestRowsExec has one input".to_owned()))?;
        let node = Self::new(input, self.newest.clone(), self.schema.clone());
        Ok(Arc::new(node.recording(self.record.clone()).of_run(self.run.clone())))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> PlanResult<SendableRecordBatchStream> {
        let input = named(self.input.execute(partition, context)?, self.run.clone());
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let dropped = MetricBuilder::new(&self.metrics).counter("rows_dropped", partition);
        let (newest, record) = (self.newest.clone(), self.record.clone());
        let schema = self.schema.clone();
        let selected = async move {
            let selector = Selector::new(&newest, &record, &input.schema(), &schema).await?;
            Ok::<_, DataFusionError>(selected(input, selector, metrics, dropped))
        };
        let stream = futures::stream::once(selected).try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema.clone(), stream)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

/// The same stream with errors that name the run.
fn named(input: SendableRecordBatchStream, run: Option<Arc<str>>) -> SendableRecordBatchStream {
    let Some(run) = run else { return input };
    let schema = input.schema();
    let batches = input.map(move |batch| {
        batch.in_run(&run).map_err(|error| DataFusionError::External(Box::new(error)))
    });
    Box::pin(RecordBatchStreamAdapter::new(schema, batches))
}

/// The kept rows of `input`; batches of which nothing is kept are left out.
fn selected(
    input: SendableRecordBatchStream,
    mut selector: Selector,
    metrics: BaselineMetrics,
    dropped: Count,
) -> impl futures::Stream<Item = PlanResult<arrow_array::RecordBatch>> {
    let end = futures::stream::once(async { None });
    let steps = input.map(Some).chain(end).map(move |batch| {
        let Some(batch) = batch else {
            selector.finish();
            return Ok(None);
        };
        let batch = batch?;
        let _timer = metrics.elapsed_compute().timer();
        let kept = selector.select(&batch).record_output(&metrics)?;
        dropped.add(batch.num_rows() - kept.num_rows());
        Ok(Some(kept).filter(|kept| kept.num_rows() > 0))
    });
    // After an error the rows are not whole, and nothing of them may be recorded.
    let until_error = steps.scan(false, |failed, step: PlanResult<_>| {
        let done = std::mem::replace(failed, step.is_err());
        futures::future::ready((!done).then_some(step))
    });
    until_error.try_filter_map(futures::future::ok)
}
