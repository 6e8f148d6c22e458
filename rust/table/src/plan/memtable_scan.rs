//! The plan node that reads rows in memory.
//!
//! Owns: the newest row of each key inside one MemTable view, batch by batch.
//! Does not own: other sources of the same key.

use std::fmt;
use std::sync::Arc;

use arrow::compute::filter_record_batch;
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
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
};
use lancemem_core::memtable::MemTableView;

/// Reads the newest rows of one view in arrival order.
#[derive(Debug)]
pub struct MemTableScanExec {
    view: MemTableView,
    columns: Vec<usize>,
    schema: SchemaRef,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl MemTableScanExec {
    /// Reads the columns at `columns` of the storage schema.
    ///
    /// # Errors
    /// An internal error for a column index outside the schema.
    pub fn try_new(view: MemTableView, columns: Vec<usize>) -> PlanResult<Self> {
        let schema = Arc::new(view.schema().project(&columns)?);
        let properties = Arc::new(PlanProperties::new(
            EquivalenceProperties::new(schema.clone()),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        ));
        let metrics = ExecutionPlanMetricsSet::new();
        Ok(Self { view, columns, schema, properties, metrics })
    }
}

impl DisplayAs for MemTableScanExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> =
            self.schema.fields().iter().map(|field| field.name().as_str()).collect();
        write!(
            f,
            "MemTableScanExec: generation={}, rows={}, columns=[{}]",
            self.view.generation(),
            self.view.rows(),
            names.join(", ")
        )
    }
}

impl ExecutionPlan for MemTableScanExec {
    fn name(&self) -> &'static str {
        "MemTableScanExec"
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
            Err(DataFusionError::Internal("MemTableScanExec has no input".to_owned()))
        }
    }

    fn execute(
        &self,
        partition: usize,
        _: Arc<TaskContext>,
    ) -> PlanResult<SendableRecordBatchStream> {
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let (view, columns) = (self.view.clone(), self.columns.clone());
        let count = view.batches().len();
        let batches = (0..count).map(move |index| {
            let _timer = metrics.elapsed_compute().timer();
            let batch = view.batch(index).project(&columns)?;
            let newest = filter_record_batch(&batch, &view.newest_rows_of_batch(index))?;
            Ok(newest).record_output(&metrics)
        });
        let stream = futures::stream::iter(batches);
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema.clone(), stream)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}
