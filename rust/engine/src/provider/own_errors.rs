//! The plan node that maps errors of a plan to the engine's own errors.
//!
//! Owns: the mapping of Lance's errors before a session prints them, which removes credentials that
//! the answer of a store repeats. Everything else passes to the plan below.
//! Does not own: which text is secret (`errors`).

use std::fmt;
use std::sync::Arc;

use datafusion::common::{DataFusionError, Result as PlanResult, Statistics};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use futures::TryStreamExt;
use lance::Dataset;

use crate::damage::naming_damage_of;
use crate::errors::{external, from_scan};

const NAME: &str = "LancememExec";

/// A plan whose errors are mapped to the engine's own.
#[derive(Debug)]
pub struct OwnErrors {
    plan: Arc<dyn ExecutionPlan>,
    base: Arc<Dataset>,
}

impl OwnErrors {
    /// The node above `plan`, which reads `base`.
    pub const fn of(plan: Arc<dyn ExecutionPlan>, base: Arc<Dataset>) -> Self {
        Self { plan, base }
    }
}

impl DisplayAs for OwnErrors {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(NAME)
    }
}

impl ExecutionPlan for OwnErrors {
    fn name(&self) -> &'static str {
        NAME
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.plan.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.plan]
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        match children.pop() {
            Some(plan) if children.is_empty() => Ok(Arc::new(Self::of(plan, self.base.clone()))),
            _ => Err(DataFusionError::Internal(format!("{NAME} has one input"))),
        }
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn supports_limit_pushdown(&self) -> bool {
        true
    }

    fn partition_statistics(&self, partition: Option<usize>) -> PlanResult<Arc<Statistics>> {
        self.plan.partition_statistics(partition)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> PlanResult<SendableRecordBatchStream> {
        let own = |error| from_scan("scanning", error);
        let rows = self.plan.execute(partition, context).map_err(|error| external(own(error)))?;
        let schema = rows.schema();
        let rows = naming_damage_of(self.base.clone(), rows.map_err(own)).map_err(external);
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
    }
}
