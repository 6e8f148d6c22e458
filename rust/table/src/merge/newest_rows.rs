//! The plan node that keeps of one source the rows that are the newest of their key.
//!
//! ```text
//!   source (base, SSTable or MemTable): columns, key, maybe `_tombstone`
//!        |  key not newest here?  drop
//!        |  tombstone?            drop
//!   NewestRowsExec: the columns of `schema`, in its order
//! ```
//!
//! Owns: the row mask and the relabelling of columns to the result's fields.
//! Does not own: the choice itself, or filters: those must see only rows that survive here.

use std::fmt;
use std::sync::Arc;

use arrow::compute::{and_not, filter_record_batch};
use arrow_array::cast::AsArray;
use arrow_array::{BooleanArray, RecordBatch, RecordBatchOptions};
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
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
};
use futures::StreamExt;
use lancemem_core::format::{KeyEncoder, TOMBSTONE};
use lancemem_core::types::Freshness;

use super::KeyChoice;

/// Keeps the newest rows of one source. Streams; holds one batch.
#[derive(Debug)]
pub struct NewestRowsExec {
    input: Arc<dyn ExecutionPlan>,
    choice: Arc<KeyChoice>,
    freshness: Freshness,
    key: Arc<[String]>,
    schema: SchemaRef,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl NewestRowsExec {
    /// Keeps the rows of `input` that are newest at `freshness`, with the columns of `schema`.
    ///
    /// `input` has the key columns `key` unless the table has none.
    #[must_use]
    pub fn new(
        input: Arc<dyn ExecutionPlan>,
        choice: Arc<KeyChoice>,
        freshness: Freshness,
        key: Arc<[String]>,
        schema: SchemaRef,
    ) -> Self {
        let properties = Arc::new(PlanProperties::new(
            EquivalenceProperties::new(schema.clone()),
            input.output_partitioning().clone(),
            EmissionType::Incremental,
            Boundedness::Bounded,
        ));
        let metrics = ExecutionPlanMetricsSet::new();
        Self { input, choice, freshness, key, schema, properties, metrics }
    }

    fn selector(&self) -> Selector {
        Selector {
            choice: self.choice.clone(),
            freshness: self.freshness,
            key: self.key.clone(),
            schema: self.schema.clone(),
        }
    }
}

/// What the stream needs of the node.
struct Selector {
    choice: Arc<KeyChoice>,
    freshness: Freshness,
    key: Arc<[String]>,
    schema: SchemaRef,
}

impl Selector {
    fn select(&self, batch: &RecordBatch) -> PlanResult<RecordBatch> {
        let batch = match self.mask(batch)? {
            Some(mask) => filter_record_batch(batch, &mask)?,
            None => batch.clone(),
        };
        let columns = self
            .schema
            .fields()
            .iter()
            .map(|field| {
                batch.column_by_name(field.name()).cloned().ok_or_else(|| {
                    DataFusionError::Internal(format!(
                        "column {} is not in the source",
                        field.name()
                    ))
                })
            })
            .collect::<PlanResult<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        Ok(RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)?)
    }

    /// The rows to keep; `None` for all.
    fn mask(&self, batch: &RecordBatch) -> PlanResult<Option<BooleanArray>> {
        let newest = if self.key.is_empty() || self.choice.is_empty() {
            None
        } else {
            let encoder = KeyEncoder::new(batch.schema_ref(), &self.key)
                .map_err(|error| DataFusionError::External(Box::new(error)))?;
            let keys = encoder.encode(batch);
            let is_newest = |key| self.choice.is_newest(key, self.freshness);
            Some(keys.iter().map(|key| Some(is_newest(key))).collect::<BooleanArray>())
        };
        let tombstones = batch.column_by_name(TOMBSTONE).map(AsArray::as_boolean);
        Ok(match (newest, tombstones) {
            (Some(newest), Some(tombstones)) => Some(and_not(&newest, tombstones)?),
            (Some(newest), None) => Some(newest),
            (None, Some(tombstones)) => Some(arrow::compute::not(tombstones)?),
            (None, None) => None,
        })
    }
}

impl DisplayAs for NewestRowsExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "NewestRowsExec: source={:?}, key=[{}], newer_keys={}",
            self.freshness,
            self.key.join(", "),
            self.choice.len()
        )
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
        Ok(Arc::new(Self::new(
            input,
            self.choice.clone(),
            self.freshness,
            self.key.clone(),
            self.schema.clone(),
        )))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> PlanResult<SendableRecordBatchStream> {
        let input = self.input.execute(partition, context)?;
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let selector = self.selector();
        let stream = input.map(move |batch| {
            let _timer = metrics.elapsed_compute().timer();
            selector.select(&batch?).record_output(&metrics)
        });
        let stream = stream.filter(|batch| {
            let keep = batch.as_ref().map_or(true, |batch| batch.num_rows() > 0);
            futures::future::ready(keep)
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema.clone(), stream)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}
