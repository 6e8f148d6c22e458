//! A read as the caller holds it: options now, a cut when it runs.
//!
//! Owns: pinning a cut for each execution and handing out its rows.
//! Does not own: the plan.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::{ExecutionPlan, displayable, execute_stream};
use datafusion::prelude::SessionContext;
use futures::TryStreamExt;
use lancemem_core::types::Result;

use super::{Job, Table};
use crate::errors::Context;
use crate::plan::{self, Filter, ScanRequest, plan_scan};
use crate::view::Consistency;

/// What to read.
#[derive(Clone, Debug, Default)]
pub struct ScanOptions {
    /// Columns of the result, in order; all where absent.
    pub columns: Option<Vec<String>>,
    /// A SQL condition on the table's columns.
    pub filter: Option<String>,
    /// Most rows of the result.
    pub limit: Option<usize>,
    /// Which rows must be seen.
    pub consistency: Consistency,
}

/// A read that has not begun. Each execution pins a new cut.
#[derive(Clone, Debug)]
pub struct Scan {
    table: Arc<Table>,
    jobs: Vec<Arc<Job>>,
    options: ScanOptions,
}

impl Scan {
    pub(crate) const fn new(table: Arc<Table>, jobs: Vec<Arc<Job>>, options: ScanOptions) -> Self {
        Self { table, jobs, options }
    }

    /// The rows as a stream of batches; memory is bounded by what runs in parallel.
    ///
    /// # Errors
    /// An input error for an unknown column or a condition that does not parse.
    pub async fn stream(&self) -> Result<SendableRecordBatchStream> {
        let (plan, session) = self.plan(self.options.columns.clone()).await?;
        execute_stream(plan, session.task_ctx()).context("scanning")
    }

    /// All rows and their schema.
    ///
    /// # Errors
    /// As [`Self::stream`], and whatever fails while the plan runs.
    pub async fn collect(&self) -> Result<(SchemaRef, Vec<RecordBatch>)> {
        let stream = self.stream().await?;
        let schema = stream.schema();
        let batches = stream.try_collect().await.context("scanning")?;
        Ok((schema, batches))
    }

    /// The number of rows that [`Self::stream`] gives.
    ///
    /// # Errors
    /// As [`Self::stream`].
    pub async fn count_rows(&self) -> Result<usize> {
        let (plan, session) = self.plan(Some(Vec::new())).await?;
        let stream = execute_stream(plan, session.task_ctx()).context("counting")?;
        stream
            .try_fold(0, |rows, batch| futures::future::ready(Ok(rows + batch.num_rows())))
            .await
            .context("counting")
    }

    /// The plan as text.
    ///
    /// # Errors
    /// As [`Self::stream`].
    pub async fn explain(&self) -> Result<String> {
        let (plan, _) = self.plan(self.options.columns.clone()).await?;
        Ok(displayable(plan.as_ref()).indent(true).to_string())
    }

    /// The schema of the result.
    ///
    /// # Errors
    /// As [`Self::stream`].
    pub async fn schema(&self) -> Result<SchemaRef> {
        let (plan, _) = self.plan(self.options.columns.clone()).await?;
        Ok(plan.schema())
    }

    async fn plan(
        &self,
        columns: Option<Vec<String>>,
    ) -> Result<(Arc<dyn ExecutionPlan>, SessionContext)> {
        let view = self.table.read_view(self.options.consistency, &self.jobs).await?;
        let session = plan::session();
        let filter = match &self.options.filter {
            Some(sql) => Some(Filter::parse(&session, &view.schema, sql)?),
            None => None,
        };
        let request = ScanRequest { columns, filter, limit: self.options.limit };
        let plan = plan_scan(&session, &view, &request).await?;
        Ok((plan, session))
    }
}
