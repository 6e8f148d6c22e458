//! The step of a search that reads wide columns of the chosen rows alone.
//!
//! Owns: [`LateColumnsStep`], a lookup by key in the search's own snapshot.
//! Does not own: the lookup (`lookup`), or which columns are late (`layout`, `text`).

use std::fmt;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::SchemaRef;
use datafusion::common::{DataFusionError, Result as PlanResult};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::metrics::BaselineMetrics;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt, stream};

use super::node::Step;
use crate::errors::external;
use crate::lookup::find;
use crate::snapshot::Snapshot;

/// Adds the late columns.
#[derive(Clone, Debug)]
pub(super) struct LateColumnsStep {
    pub snapshot: Arc<Snapshot>,
    /// Their names.
    pub late: Vec<String>,
    /// The columns of the rows with the late ones.
    pub schema: SchemaRef,
}

impl fmt::Display for LateColumnsStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "columns=[{}], by key", self.late.join(", "))
    }
}

impl Step for LateColumnsStep {
    const NAME: &'static str = "LateColumnsExec";
    const GATHERS: bool = true;

    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn rows(
        &self,
        inputs: Vec<SendableRecordBatchStream>,
        _: BaselineMetrics,
    ) -> BoxStream<'static, PlanResult<RecordBatch>> {
        let step = self.clone();
        let rows = stream::iter(inputs).flatten().then(move |batch| {
            let step = step.clone();
            async move { step.with_late(batch?).await }
        });
        rows.map_ok(|batches| stream::iter(batches.into_iter().map(Ok))).try_flatten().boxed()
    }
}

impl LateColumnsStep {
    /// `chosen` with the late columns: one batch, or several where their values are too large.
    async fn with_late(&self, chosen: RecordBatch) -> PlanResult<Vec<RecordBatch>> {
        if chosen.num_rows() == 0 {
            return Ok(Vec::new());
        }
        let found = self.snapshot.columns.rows.accept_wanted(&chosen).map_err(external)?;
        let found = find(&self.snapshot, &found.batch, &self.late).await.map_err(external)?;
        if let Some(missing) = found.missing.first() {
            return Err(DataFusionError::Internal(format!(
                "row {missing} of a search is not in the snapshot that it was found in"
            )));
        }
        let mut first = 0;
        let batches = found.rows.iter().map(|late| {
            let part = chosen.slice(first, late.num_rows());
            first += late.num_rows();
            self.joined(&part, late)
        });
        batches.collect()
    }

    fn joined(&self, chosen: &RecordBatch, late: &RecordBatch) -> PlanResult<RecordBatch> {
        let schema = self.schema.clone();
        let column = |name: &String| -> PlanResult<ArrayRef> {
            let found = chosen.column_by_name(name).or_else(|| late.column_by_name(name));
            let missing = || DataFusionError::Internal(format!("column '{name}' was not read"));
            found.cloned().ok_or_else(missing)
        };
        let columns = schema.fields().iter().map(|field| column(field.name()));
        let columns = columns.collect::<PlanResult<_>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(chosen.num_rows()));
        Ok(RecordBatch::try_new_with_options(schema, columns, &options)?)
    }
}
