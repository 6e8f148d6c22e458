//! `Scan`: a lazy read, which has its options now and takes a snapshot when it runs.
//!
//! Owns: the snapshot of each execution, a new one or the caller's, and returning its rows.
//! Does not own: the plan, or queries in another form than [`ScanOptions`]: SQL is `provider`'s.

use std::fmt::Debug;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use async_recursion::async_recursion as boxed;
use async_trait::async_trait;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::display::DisplayableExecutionPlan;
use datafusion::physical_plan::{displayable, execute_stream};
use datafusion::prelude::SessionContext;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use lancemem_core::types::Result;

use super::live_job::LiveJob;
use crate::damage::{naming_damage, naming_damage_of};
use crate::errors::BaseContext;
use crate::plan::{
    self, Condition, Expressions, NamedSql, OrderBy, ReadPart, ScanPlan, ScanRequest, plan_scan,
};
use crate::snapshot::{Consistency, Snapshot};
use crate::table::Table;
use crate::visibility::KnownRows;

/// What a scan of the keys does, in errors.
const FINDING_DEAD: &str = "looking for superseded rows";

/// What to read: by default all rows, with all columns.
///
/// ```
/// # use lancemem::{Condition, ScanOptions};
/// let options = ScanOptions::default().with_filter(Condition::from("price > 3")).with_limit(10);
/// assert_eq!(options.limit, Some(10));
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ScanOptions {
    /// Columns of the result, in order; `None` for all.
    pub columns: Option<Vec<String>>,
    /// Columns that are computed by SQL from the columns of a row. They are the result instead of
    /// `columns`.
    pub expressions: Option<Vec<NamedSql>>,
    /// A condition on the table's columns.
    pub filter: Option<Condition>,
    /// Rows to skip.
    pub offset: usize,
    /// The largest number of rows in the result.
    pub limit: Option<usize>,
    /// The order of the result, the first key first; empty for no order. Keys are columns of the
    /// table, which need not be in the result, or computed columns of the result. Does not go with
    /// a part.
    pub order_by: Vec<OrderBy>,
    /// The part of the rows to read, for readers that share a snapshot; `None` for all rows. Offset
    /// and limit count within the part.
    pub part: Option<ReadPart>,
    /// The consistency of the read. Ignored in a read of a snapshot, which has its own.
    pub consistency: Consistency,
}

impl ScanOptions {
    /// Sets [`Self::columns`].
    #[must_use]
    pub fn with_columns(self, columns: impl Into<Option<Vec<String>>>) -> Self {
        Self { columns: columns.into(), ..self }
    }

    /// Sets [`Self::expressions`].
    #[must_use]
    pub fn with_expressions(self, expressions: impl Into<Option<Vec<NamedSql>>>) -> Self {
        Self { expressions: expressions.into(), ..self }
    }

    /// Sets [`Self::filter`].
    #[must_use]
    pub fn with_filter(self, filter: impl Into<Option<Condition>>) -> Self {
        Self { filter: filter.into(), ..self }
    }

    /// Sets [`Self::offset`].
    #[must_use]
    pub fn with_offset(self, offset: usize) -> Self {
        Self { offset, ..self }
    }

    /// Sets [`Self::limit`].
    #[must_use]
    pub fn with_limit(self, limit: impl Into<Option<usize>>) -> Self {
        Self { limit: limit.into(), ..self }
    }

    /// Sets [`Self::order_by`].
    #[must_use]
    pub fn with_order_by(self, order_by: impl Into<Vec<OrderBy>>) -> Self {
        Self { order_by: order_by.into(), ..self }
    }

    /// Sets [`Self::part`].
    #[must_use]
    pub fn with_part(self, part: impl Into<Option<ReadPart>>) -> Self {
        Self { part: part.into(), ..self }
    }

    /// Sets [`Self::consistency`].
    #[must_use]
    pub fn with_consistency(self, consistency: Consistency) -> Self {
        Self { consistency, ..self }
    }
}

/// A read that has not begun.
#[derive(Clone, Debug)]
pub struct Scan {
    table: Arc<Table>,
    read_at: ReadAt,
    asked: Asked,
}

/// The snapshot that a scan reads.
#[derive(Clone, Debug)]
enum ReadAt {
    /// A new snapshot for each execution. A live one includes these jobs.
    Newest(Consistency, Vec<Arc<dyn LiveJob>>),
    /// A fixed snapshot.
    Snapshot(Arc<Snapshot>),
}

/// What a scan reads of its snapshot.
#[derive(Clone, Debug)]
enum Asked {
    Options(ScanOptions),
    Query(Arc<dyn SnapshotQuery>),
}

/// A query over one snapshot that is not made of [`ScanOptions`]. A [`Scan`] executes it.
#[async_trait]
pub trait SnapshotQuery: Debug + Send + Sync {
    /// The plan of the query, and the session that runs it.
    ///
    /// # Errors
    /// An input error where the query does not fit the columns of the snapshot.
    async fn plan(
        &self,
        table: &Arc<Table>,
        snapshot: &Arc<Snapshot>,
    ) -> Result<(ScanPlan, SessionContext)>;
}

impl Scan {
    const fn new(table: Arc<Table>, jobs: Vec<Arc<dyn LiveJob>>, options: ScanOptions) -> Self {
        let read_at = ReadAt::Newest(options.consistency, jobs);
        Self { table, read_at, asked: Asked::Options(options) }
    }

    /// A read of a snapshot of [`Table::snapshot`]: every execution returns the same rows.
    #[must_use]
    pub const fn of_snapshot(
        table: Arc<Table>,
        snapshot: Arc<Snapshot>,
        options: ScanOptions,
    ) -> Self {
        Self { table, read_at: ReadAt::Snapshot(snapshot), asked: Asked::Options(options) }
    }

    /// A query whose every execution reads a new snapshot; `jobs` as in [`Table::scan`].
    #[must_use]
    pub fn of_query(
        table: Arc<Table>,
        consistency: Consistency,
        jobs: Vec<Arc<dyn LiveJob>>,
        query: Arc<dyn SnapshotQuery>,
    ) -> Self {
        Self { table, read_at: ReadAt::Newest(consistency, jobs), asked: Asked::Query(query) }
    }

    /// A query of a snapshot of [`Table::snapshot`].
    #[must_use]
    pub fn of_snapshot_query(
        table: Arc<Table>,
        snapshot: Arc<Snapshot>,
        query: Arc<dyn SnapshotQuery>,
    ) -> Self {
        Self { table, read_at: ReadAt::Snapshot(snapshot), asked: Asked::Query(query) }
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
        let planned = self.plan_of(&snapshot);
        let (ScanPlan { plan, .. }, session) = naming_damage(&snapshot.base, planned).await?;
        let stream = execute_stream(plan, session.task_ctx()).in_base("scanning")?;
        Ok((snapshot, stream))
    }

    /// The schema, and the rows as a stream whose errors are lancemem's.
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
    /// As [`Self::stream`], and errors of the running plan.
    #[boxed]
    pub async fn collect(&self) -> Result<(SchemaRef, Vec<RecordBatch>)> {
        self.on_snapshot(|snapshot| async move {
            let (ScanPlan { plan, .. }, session) = self.plan_of(&snapshot).await?;
            let stream = execute_stream(plan, session.task_ctx()).in_base("scanning")?;
            let schema = stream.schema();
            let batches = stream.try_collect().await.in_base("scanning")?;
            Ok((schema, batches))
        })
        .await
    }

    /// The number of rows of [`Self::stream`]. Reads no row where an earlier scan of the same
    /// snapshot counted them.
    ///
    /// # Errors
    /// As [`Self::stream`].
    #[boxed]
    pub async fn count_rows(&self) -> Result<usize> {
        self.on_snapshot(|snapshot| self.count_of(snapshot)).await
    }

    async fn count_of(&self, snapshot: Arc<Snapshot>) -> Result<usize> {
        if let Asked::Options(options) = &self.asked
            && options.filter.is_none()
            && options.part.is_none()
            && let Some(rows) = self.known_rows(&snapshot).await?
        {
            let rows = rows.saturating_sub(options.offset);
            return Ok(options.limit.map_or(rows, |limit| rows.min(limit)));
        }
        let (ScanPlan { plan, .. }, session) = self.plan_of_count(&snapshot).await?;
        let stream = execute_stream(plan, session.task_ctx()).in_base("counting")?;
        stream
            .try_fold(0, |rows, batch| futures::future::ready(Ok(rows + batch.num_rows())))
            .await
            .in_base("counting")
    }

    /// The number of rows of a snapshot, where it is known without reading them.
    async fn known_rows(&self, snapshot: &Snapshot) -> Result<Option<usize>> {
        if snapshot.is_base_only() {
            let rows =
                snapshot.base.count_rows(None).await.in_base("counting the base table's rows");
            return rows.map(Some);
        }
        Ok(self.table.reader.merges.rows(snapshot))
    }

    /// The plan as text, followed by a line for each pruned source.
    ///
    /// # Errors
    /// As [`Self::stream`].
    #[boxed]
    pub async fn explain(&self) -> Result<String> {
        let (planned, _) = self.plan().await?;
        let nodes = displayable(planned.plan.as_ref()).indent(true).to_string();
        Ok(with_pruned(nodes, &planned))
    }

    /// Runs the plan to its end and returns it as text, with the rows and times of each node.
    ///
    /// # Errors
    /// As [`Self::collect`].
    #[boxed]
    pub async fn explain_analyze(&self) -> Result<String> {
        let snapshot = self.snapshot().await?;
        let analyzed = async {
            let (planned, session) = self.plan_of(&snapshot).await?;
            let plan = planned.plan.clone();
            let stream = execute_stream(plan.clone(), session.task_ctx()).in_base("scanning")?;
            let count =
                |rows, batch: RecordBatch| futures::future::ready(Ok(rows + batch.num_rows()));
            let rows: usize = stream.try_fold(0, count).await.in_base("scanning")?;
            let nodes = DisplayableExecutionPlan::with_metrics(plan.as_ref());
            let nodes = nodes.indent(true).to_string();
            Ok(with_pruned(format!("rows={rows}\n{nodes}"), &planned))
        };
        naming_damage(&snapshot.base, analyzed).await
    }

    /// The schema of the result.
    ///
    /// # Errors
    /// As [`Self::stream`].
    #[boxed]
    pub async fn schema(&self) -> Result<SchemaRef> {
        let (ScanPlan { plan, .. }, _) = self.plan().await?;
        Ok(plan.schema())
    }

    /// Runs `read` on the snapshot. Retries with a new snapshot if the base version was cleaned up
    /// meanwhile; a fixed snapshot is not retried.
    async fn on_snapshot<T: Send, R: Future<Output = Result<T>> + Send>(
        &self,
        read: impl Fn(Arc<Snapshot>) -> R,
    ) -> Result<T> {
        match &self.read_at {
            ReadAt::Newest(..) => self.table.reader.read_again(|| self.snapshot(), read).await,
            ReadAt::Snapshot(snapshot) => {
                naming_damage(&snapshot.base, read(snapshot.clone())).await
            }
        }
    }

    async fn snapshot(&self) -> Result<Arc<Snapshot>> {
        match &self.read_at {
            ReadAt::Newest(consistency, jobs) => self.table.snapshot(*consistency, jobs).await,
            ReadAt::Snapshot(snapshot) => Ok(snapshot.clone()),
        }
    }

    async fn plan(&self) -> Result<(ScanPlan, SessionContext)> {
        let snapshot = self.snapshot().await?;
        self.plan_of(&snapshot).await
    }

    async fn plan_of(&self, snapshot: &Arc<Snapshot>) -> Result<(ScanPlan, SessionContext)> {
        let options = match &self.asked {
            Asked::Options(options) => options,
            Asked::Query(query) => return query.plan(&self.table, snapshot).await,
        };
        let order_by = options.order_by.clone();
        let is_ordered = !order_by.is_empty();
        let session = if is_ordered { plan::bounded_session()? } else { plan::session() };
        let parse = |columns: &[NamedSql]| Expressions::parse(&session, &snapshot.schema, columns);
        let expressions = options.expressions.as_deref().map(parse).transpose()?;
        let columns = options.columns.clone();
        let request = ScanRequest { columns, expressions, order_by, ..ScanRequest::default() };
        self.planned(options, snapshot, session, request).await
    }

    /// The plan of the rows without their columns, in no order.
    async fn plan_of_count(&self, snapshot: &Arc<Snapshot>) -> Result<(ScanPlan, SessionContext)> {
        let Asked::Options(options) = &self.asked else { return self.plan_of(snapshot).await };
        let request = ScanRequest { columns: Some(Vec::new()), ..ScanRequest::default() };
        self.planned(options, snapshot, plan::session(), request).await
    }

    /// The plan of `request` with the condition, limit and part of `options`.
    async fn planned(
        &self,
        options: &ScanOptions,
        snapshot: &Arc<Snapshot>,
        session: SessionContext,
        request: ScanRequest,
    ) -> Result<(ScanPlan, SessionContext)> {
        let filter = match &options.filter {
            Some(condition) => Some(condition.resolve(&session, &snapshot.schema).await?),
            None => None,
        };
        let ScanOptions { offset, limit, part, .. } = *options;
        let request = ScanRequest { filter, offset, limit, part, ..request };
        let plan = self.table.plan(&session, snapshot, &request).await?;
        Ok((plan, session))
    }
}

impl Table {
    /// A lazy read. `jobs` are running jobs, of this process or served by another, whose MemTables
    /// a live scan reads.
    ///
    /// ```no_run
    /// use futures::TryStreamExt;
    /// use lancemem::{Condition, ScanOptions, Table};
    ///
    /// # async fn example() -> lancemem::Result<()> {
    /// let table = Table::open("/data/board.lance").await?;
    /// let options = ScanOptions::default()
    ///     .with_columns(vec!["id".to_owned(), "price".to_owned()])
    ///     .with_filter(Condition::from("price > 3"));
    /// let (schema, mut batches) = table.scan(options, Vec::new()).batches().await?;
    /// while let Some(batch) = batches.try_next().await? {
    ///     assert_eq!(batch.num_columns(), schema.fields().len());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn scan(self: &Arc<Self>, options: ScanOptions, jobs: Vec<Arc<dyn LiveJob>>) -> Scan {
        Scan::new(self.clone(), jobs, options)
    }

    /// The plan of one scan over one snapshot, with its deletion vectors where they are known.
    pub(crate) async fn plan(
        &self,
        session: &SessionContext,
        snapshot: &Arc<Snapshot>,
        request: &ScanRequest,
    ) -> Result<ScanPlan> {
        self.reader.take_dead_rows(snapshot).await;
        plan_scan(session, snapshot, &self.reader.merges, request).await
    }
}

impl Table {
    /// The dead rows of `snapshot`, where a scan or deletion vectors have found them, or where the
    /// merge rule decides which they are.
    ///
    /// # Errors
    /// An error of a read, where a merge rule decides.
    pub(crate) async fn known_dead_rows(&self, snapshot: &Snapshot) -> Result<Option<KnownRows>> {
        self.reader.take_dead_rows(snapshot).await;
        self.reader.merges.dead_rows(snapshot).await
    }

    /// All dead rows of `snapshot`, by a scan of its keys where no earlier scan has found them.
    /// `None` where the scan does not find them by position. A merge rule decides by itself.
    ///
    /// # Errors
    /// An error of the scan.
    pub(crate) async fn find_dead_rows(
        &self,
        session: &SessionContext,
        snapshot: &Arc<Snapshot>,
    ) -> Result<Option<KnownRows>> {
        let merges = &self.reader.merges;
        if snapshot.rule().is_some() {
            return merges.dead_rows(snapshot).await;
        }
        if let Some(known @ KnownRows::Exact(_)) = merges.mask(snapshot) {
            return Ok(Some(known));
        }
        // A scan that knows the flushed dead rows records none, so this one starts from nothing.
        let fresh = Arc::default();
        let columns = Some(snapshot.key.to_vec());
        let request = ScanRequest { columns, ..ScanRequest::default() };
        let scan = plan_scan(session, snapshot, &fresh, &request).await?;
        let mut rows = execute_stream(scan.plan, session.task_ctx()).in_base(FINDING_DEAD)?;
        while rows.try_next().await.in_base(FINDING_DEAD)?.is_some() {}
        let known = fresh.mask(snapshot).filter(|known| matches!(known, KnownRows::Exact(_)));
        if let Some(known) = &known {
            merges.keep_mask(snapshot, known.clone());
        }
        Ok(known)
    }
}

fn with_pruned(nodes: String, planned: &ScanPlan) -> String {
    planned.pruned.iter().fold(nodes, |text, pruned| format!("{text}{pruned}\n"))
}
