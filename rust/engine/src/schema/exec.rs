//! The plan node that reconciles the rows of one flushed SSTable with the table's columns.
//!
//! Owns: the stream. Columns that do not belong to the table, such as row addresses, pass
//! unchanged.
//! Does not own: how a column is reconciled ([`StoredColumns`]), or which SSTables need it.

use std::fmt;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::{FieldRef, Schema, SchemaRef};
use datafusion::common::{DataFusionError, Result as PlanResult};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::metrics::{
    BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet, RecordOutput,
};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
};
use futures::StreamExt;

use super::StoredColumns;
use crate::errors::external;

/// Reconciles rows with the table's columns, batch by batch.
#[derive(Debug)]
pub struct ReconcileExec {
    input: Arc<dyn ExecutionPlan>,
    columns: Arc<StoredColumns>,
    /// Names of the columns that pass unchanged.
    extra: Vec<String>,
    schema: SchemaRef,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl ReconcileExec {
    /// The columns `columns` of the rows of `input`, then the columns `extra`.
    ///
    /// # Errors
    /// An internal error where the input lacks one of `extra`.
    pub fn try_new(
        input: Arc<dyn ExecutionPlan>,
        columns: Arc<StoredColumns>,
        extra: Vec<String>,
    ) -> PlanResult<Self> {
        let of_input = input.schema();
        let mut fields: Vec<FieldRef> = columns.schema.fields().iter().cloned().collect();
        for name in &extra {
            fields.push(Arc::new(of_input.field_with_name(name)?.clone()));
        }
        let schema = Arc::new(Schema::new(fields));
        let properties = Arc::new(PlanProperties::new(
            EquivalenceProperties::new(schema.clone()),
            input.output_partitioning().clone(),
            EmissionType::Incremental,
            Boundedness::Bounded,
        ));
        let metrics = ExecutionPlanMetricsSet::new();
        Ok(Self { input, columns, extra, schema, properties, metrics })
    }
}

impl DisplayAs for ReconcileExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReconcileExec: stored as [{}]", self.columns.names.join(", "))
    }
}

impl ExecutionPlan for ReconcileExec {
    fn name(&self) -> &'static str {
        "ReconcileExec"
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
            .map_err(|_| DataFusionError::Internal("ReconcileExec has one input".to_owned()))?;
        Ok(Arc::new(Self::try_new(input, self.columns.clone(), self.extra.clone())?))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> PlanResult<SendableRecordBatchStream> {
        let input = self.input.execute(partition, context)?;
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let (columns, extra) = (self.columns.clone(), self.extra.clone());
        let schema = self.schema.clone();
        let batches = input.map(move |batch| {
            let batch = batch?;
            let _timer = metrics.elapsed_compute().timer();
            with_extra(&columns, &extra, &schema, &batch).record_output(&metrics)
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema.clone(), batches)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

fn with_extra(
    columns: &StoredColumns,
    extra: &[String],
    schema: &SchemaRef,
    batch: &RecordBatch,
) -> PlanResult<RecordBatch> {
    let brought = columns.bring(batch).map_err(external)?;
    let mut arrays: Vec<ArrayRef> = brought.columns().to_vec();
    for name in extra {
        let column = batch.column_by_name(name);
        let missing = || DataFusionError::Internal(format!("column '{name}' was not read"));
        arrays.push(column.ok_or_else(missing)?.clone());
    }
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(schema.clone(), arrays, &options)?)
}
