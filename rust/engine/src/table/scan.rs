//! A read as the caller holds it: options now, a snapshot when it runs.
//!
//! Owns: which cut each execution reads, a new one or one that the caller pinned, and handing
//! out its rows.
//! Does not own: the plan.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use async_recursion::async_recursion as boxed;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::display::DisplayableExecutionPlan;
use datafusion::physical_plan::{displayable, execute_stream};
use datafusion::prelude::SessionContext;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use lancemem_core::types::Result;

use super::{LiveJob, Table};
use crate::damage::{naming_damage, naming_damage_of};
use crate::errors::BaseContext;
use crate::plan::{self, Condition, ReadPart, ScanPlan, ScanRequest, plan_scan};
use crate::snapshot::{Consistency, Snapshot};

/// What to read.
#[derive(Clone, Debug, Default)]
pub struct ScanOptions {
    /// Columns of the result, in order; all where absent.
    pub columns: Option<Vec<String>>,
    /// A condition on the table's columns.
    pub filter: Option<Condition>,
    /// Rows to leave out first.
    pub offset: usize,
    /// Most rows of the result.
    pub limit: Option<usize>,
    /// Which part of the rows, all of them where absent; for readers that share a snapshot.
    /// Offset and limit count within the part.
    pub part: Option<ReadPart>,
    /// Which rows must be seen; a snapshot has decided that already.
    pub consistency: Consistency,
}

/// A read that has not begun.
#[derive(Clone, Debug)]
pub struct Scan {
    table: Arc<Table>,
    read_at: ReadAt,
    options: ScanOptions,
}

/// What a scan reads.
#[derive(Clone, Debug)]
enum ReadAt {
    /// A new snapshot for each execution; these jobs are part of a live one.
    Newest(Vec<Arc<dyn LiveJob>>),
    /// Always this one.
    Snapshot(Arc<Snapshot>),
}

impl Scan {
    pub(crate) const fn new(
        table: Arc<Table>,
        jobs: Vec<Arc<dyn LiveJob>>,
        options: ScanOptions,
    ) -> Self {
        Self { table, read_at: ReadAt::Newest(jobs), options }
    }

    /// A read of a snapshot that [`Table::snapshot`] pinned: every execution gives the same rows.
    #[must_use]
    pub const fn of_snapshot(
        table: Arc<Table>,
        snapshot: Arc<Snapshot>,
        options: ScanOptions,
    ) -> Self {
        Self { table, read_at: ReadAt::Snapshot(snapshot), options }
    }

    /// The rows as a stream of batches; memory is bounded by what runs in parallel.
    ///
    /// # Errors
    /// An input error for an unknown column or a condition that does not parse.
    #[boxed]
    pub async fn stream(&self) -> Result<SendableRecordBatchStream> {
        Ok(self.started().await?.1)
    }

    /// The stream, and the snapshot that it reads.
    async fn started(&self) -> Result<(Arc<Snapshot>, SendableRecordBatchStream)> {
        let snapshot = self.snapshot().await?;
        let planned = self.plan_of(&snapshot, self.options.columns.clone());
        let (ScanPlan { plan, .. }, session) = naming_damage(&snapshot.base, planned).await?;
        let stream = execute_stream(plan, session.task_ctx()).in_base("scanning")?;
        Ok((snapshot, stream))
    }

    /// The rows as a stream whose errors are lancemem's; the schema of its batches beside it.
    ///
    /// # Errors
    /// As [`Self::stream`].
    #[boxed]
    pub async fn batches(&self) -> Result<(SchemaRef, BoxStream<'static, Result<RecordBatch>>)> {
        let (snapshot, stream) = self.started().await?;
        let schema = stream.schema();
        let rows = stream.map(|batch| batch.in_base("scanning"));
        Ok((schema, naming_damage_of(snapshot.base.clone(), rows)))
    }

    /// All rows and their schema.
    ///
    /// # Errors
    /// As [`Self::stream`], and whatever fails while the plan runs.
    #[boxed]
    pub async fn collect(&self) -> Result<(SchemaRef, Vec<RecordBatch>)> {
        self.on_snapshot(|snapshot| async move {
            let columns = self.options.columns.clone();
            let (ScanPlan { plan, .. }, session) = self.plan_of(&snapshot, columns).await?;
            let stream = execute_stream(plan, session.task_ctx()).in_base("scanning")?;
            let schema = stream.schema();
            let batches = stream.try_collect().await.in_base("scanning")?;
            Ok((schema, batches))
        })
        .await
    }

    /// The number of rows that [`Self::stream`] gives. Reads no row where an earlier scan of the
    /// same snapshot counted them.
    ///
    /// # Errors
    /// As [`Self::stream`].
    #[boxed]
    pub async fn count_rows(&self) -> Result<usize> {
        self.on_snapshot(|snapshot| self.count_of(snapshot)).await
    }

    async fn count_of(&self, snapshot: Arc<Snapshot>) -> Result<usize> {
        if self.options.filter.is_none()
            && self.options.part.is_none()
            && let Some(rows) = self.known_rows(&snapshot).await?
        {
            let rows = rows.saturating_sub(self.options.offset);
            return Ok(self.options.limit.map_or(rows, |limit| rows.min(limit)));
        }
        let (ScanPlan { plan, .. }, session) = self.plan_of(&snapshot, Some(Vec::new())).await?;
        let stream = execute_stream(plan, session.task_ctx()).in_base("counting")?;
        stream
            .try_fold(0, |rows, batch| futures::future::ready(Ok(rows + batch.num_rows())))
            .await
            .in_base("counting")
    }

    /// Rows of a snapshot where that is known without reading.
    async fn known_rows(&self, snapshot: &Snapshot) -> Result<Option<usize>> {
        if snapshot.is_base_only() {
            let rows =
                snapshot.base.count_rows(None).await.in_base("counting the base table's rows");
            return rows.map(Some);
        }
        Ok(self.table.merges.rows(snapshot))
    }

    /// The plan as text, and under it a line for each source that it leaves out.
    ///
    /// # Errors
    /// As [`Self::stream`].
    #[boxed]
    pub async fn explain(&self) -> Result<String> {
        let (planned, _) = self.plan(self.options.columns.clone()).await?;
        let nodes = displayable(planned.plan.as_ref()).indent(true).to_string();
        Ok(with_pruned(nodes, &planned))
    }

    /// The plan as text, with rows and times of each node: it runs to its end first.
    ///
    /// # Errors
    /// As [`Self::collect`].
    #[boxed]
    pub async fn explain_analyze(&self) -> Result<String> {
        let snapshot = self.snapshot().await?;
        let sstable = async {
            let (planned, session) = self.plan_of(&snapshot, self.options.columns.clone()).await?;
            let plan = planned.plan.clone();
            let stream = execute_stream(plan.clone(), session.task_ctx()).in_base("scanning")?;
            let count =
                |rows, batch: RecordBatch| futures::future::ready(Ok(rows + batch.num_rows()));
            let rows: usize = stream.try_fold(0, count).await.in_base("scanning")?;
            let nodes = DisplayableExecutionPlan::with_metrics(plan.as_ref());
            let nodes = nodes.indent(true).to_string();
            Ok(with_pruned(format!("rows={rows}\n{nodes}"), &planned))
        };
        naming_damage(&snapshot.base, sstable).await
    }

    /// The schema of the result.
    ///
    /// # Errors
    /// As [`Self::stream`].
    #[boxed]
    pub async fn schema(&self) -> Result<SchemaRef> {
        let (ScanPlan { plan, .. }, _) = self.plan(self.options.columns.clone()).await?;
        Ok(plan.schema())
    }

    /// What `read` makes of the snapshot; of a new one again where its base version was cleaned up meanwhile.
    async fn on_snapshot<T: Send, R: Future<Output = Result<T>> + Send>(
        &self,
        read: impl Fn(Arc<Snapshot>) -> R,
    ) -> Result<T> {
        match &self.read_at {
            ReadAt::Newest(_) => self.table.read_again(|| self.snapshot(), read).await,
            ReadAt::Snapshot(snapshot) => {
                naming_damage(&snapshot.base, read(snapshot.clone())).await
            }
        }
    }

    async fn snapshot(&self) -> Result<Arc<Snapshot>> {
        match &self.read_at {
            ReadAt::Newest(jobs) => self.table.snapshot(self.options.consistency, jobs).await,
            ReadAt::Snapshot(snapshot) => Ok(snapshot.clone()),
        }
    }

    async fn plan(&self, columns: Option<Vec<String>>) -> Result<(ScanPlan, SessionContext)> {
        let snapshot = self.snapshot().await?;
        self.plan_of(&snapshot, columns).await
    }

    async fn plan_of(
        &self,
        snapshot: &Arc<Snapshot>,
        columns: Option<Vec<String>>,
    ) -> Result<(ScanPlan, SessionContext)> {
        let session = plan::session();
        let filter = match &self.options.filter {
            Some(condition) => Some(condition.resolve(&session, &snapshot.schema).await?),
            None => None,
        };
        let ScanOptions { offset, limit, part, .. } = self.options;
        let request = ScanRequest { columns, filter, offset, limit, part };
        let plan = self.table.plan(&session, snapshot, &request).await?;
        Ok((plan, session))
    }
}

impl Table {
    /// The plan of one scan over one snapshot, with what is known of its dead rows.
    pub(crate) async fn plan(
        &self,
        session: &SessionContext,
        snapshot: &Arc<Snapshot>,
        request: &ScanRequest,
    ) -> Result<ScanPlan> {
        self.take_dead_rows(snapshot).await;
        plan_scan(session, snapshot, &self.merges, request).await
    }
}

fn with_pruned(nodes: String, planned: &ScanPlan) -> String {
    planned.pruned.iter().fold(nodes, |text, pruned| format!("{text}{pruned}\n"))
}
