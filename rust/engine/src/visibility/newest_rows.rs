//! The plan node that keeps the rows of one source that are the newest of their key.
//!
//! ```text
//!   source (base, SSTable or MemTable): columns, maybe key, `_rowaddr`, `_tombstone`
//!        |  not newest here?  drop
//!        |  tombstone?        drop
//!   NewestRowsExec: the columns of `schema`, in its order
//! ```
//!
//! Owns: the stream and its metrics.
//! Does not own: how the newest rows are selected (`selector`), or filters.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::{DataFusionError, Result as PlanResult};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::metrics::{
    BaselineMetrics, Count, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet,
};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
};
use futures::future::join;
use futures::{StreamExt, TryStreamExt};
use lance::Dataset;
use lancemem_core::types::Freshness;

use super::StartGate;
use super::selector::{Newest, Notes, Record, Selected, Selector};
use crate::errors::{SsTableErrors, external};

/// A flushed SSTable that a plan reads. While it is held, collectors of this process leave the
/// SSTable's files alone. The datasets that lance opens for its own scans are no such readers.
#[derive(Clone, Debug)]
pub struct ScannedSsTable {
    /// The SSTable's name in errors and in the plan's text.
    pub name: Arc<str>,
    /// The handle that registers the plan as a reader.
    pub dataset: Arc<Dataset>,
}

/// Keeps the newest rows of one source. A streaming node, which holds one batch a processor.
#[derive(Debug)]
pub struct NewestRowsExec {
    input: Arc<dyn ExecutionPlan>,
    newest: Newest,
    record: Record,
    sstable: Option<ScannedSsTable>,
    turn: Option<StartGate>,
    schema: SchemaRef,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl NewestRowsExec {
    /// A node that keeps the newest rows of `input`, with the columns of `schema`.
    #[must_use]
    pub fn new(input: Arc<dyn ExecutionPlan>, newest: Newest, schema: SchemaRef) -> Self {
        let properties = Arc::new(PlanProperties::new(
            EquivalenceProperties::new(schema.clone()),
            input.output_partitioning().clone(),
            EmissionType::Incremental,
            Boundedness::Bounded,
        ));
        let metrics = ExecutionPlanMetricsSet::new();
        let (record, sstable, turn) = (None, None, None);
        Self { input, newest, record, sstable, turn, schema, properties, metrics }
    }

    /// The same node over a flushed SSTable, which its errors and the plan's text name.
    #[must_use]
    pub fn of_sstable(mut self, sstable: Option<ScannedSsTable>) -> Self {
        self.sstable = sstable;
        self
    }

    /// The same node, which begins when `turn` lets it.
    #[must_use]
    pub fn in_turn(mut self, turn: Option<StartGate>) -> Self {
        self.turn = turn;
        self
    }

    /// The same node, which also records the dead rows of its only partition. A node of several
    /// partitions records nothing.
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
            Newest::ByPosition { dead, above: None } => {
                write!(f, "NewestRowsExec: by position, dead={}", dead.len())
            }
            Newest::ByPosition { dead, above: Some((_, key)) } => {
                let (dead, key) = (dead.len(), key.join(", "));
                write!(f, "NewestRowsExec: by position, dead={dead}, and memory by key [{key}]")
            }
            Newest::InSsTable { sstable: (_, generation), key, .. } => {
                write_by_key(f, key, Freshness::SsTable(*generation))
            }
            Newest::ByKey { freshness, key, .. } => write_by_key(f, key, *freshness),
        }?;
        self.sstable.as_ref().map_or(Ok(()), |sstable| write!(f, ", {}", sstable.name))?;
        if matches!(self.turn, Some(StartGate::First(_))) { write!(f, ", begins") } else { Ok(()) }
    }
}

fn write_by_key(f: &mut fmt::Formatter<'_>, key: &[String], source: Freshness) -> fmt::Result {
    write!(f, "NewestRowsExec: by key [{}], source={source:?}", key.join(", "))
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
        let node = node.recording(self.record.clone()).of_sstable(self.sstable.clone());
        Ok(Arc::new(node.in_turn(self.turn.clone())))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> PlanResult<SendableRecordBatchStream> {
        let input = named(self.input.execute(partition, context)?, self.sstable.clone());
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let dropped = MetricBuilder::new(&self.metrics).counter("rows_dropped", partition);
        let (newest, record, turn) = (self.newest.clone(), self.record.clone(), self.turn.clone());
        let schema = self.schema.clone();
        let input_schema = input.schema();
        let mut input = input.peekable();
        let selected = async move {
            if let Some(turn) = &turn {
                turn.come().await;
            }
            let selector = Selector::new(&newest, &record, &input_schema, &schema);
            // The source is opened and its first batch is read while the keys are read.
            let first = async { Pin::new(&mut input).peek().await.is_some() };
            let (selector, _) = join(selector, first).await;
            let selected = selected(input, selector?, metrics);
            let given = move || turn.iter().for_each(StartGate::given);
            let rows = noted(selected, record, dropped).inspect({
                let given = given.clone();
                move |_| given()
            });
            // A first source without rows opens the gate at its end.
            let end = futures::stream::once(async move { given() });
            Ok::<_, DataFusionError>(rows.chain(end.filter_map(async |()| None)))
        };
        let stream = futures::stream::once(selected).try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema.clone(), stream)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

/// The same stream with errors that name the SSTable.
fn named(
    input: SendableRecordBatchStream,
    sstable: Option<ScannedSsTable>,
) -> SendableRecordBatchStream {
    let Some(sstable) = sstable else { return input };
    let schema = input.schema();
    let batches = input.map(move |batch| {
        // Captures the whole struct, so the SSTable's files stay while the stream is read.
        let sstable = &sstable;
        batch.in_sstable(&sstable.name).map_err(external)
    });
    Box::pin(RecordBatchStreamAdapter::new(schema, batches))
}

/// The selected rows of the batches of `input`, in order; several batches are processed at once.
fn selected(
    input: impl futures::Stream<Item = PlanResult<RecordBatch>>,
    selector: Selector,
    metrics: BaselineMetrics,
) -> impl futures::Stream<Item = PlanResult<Selected>> {
    let selector = Arc::new(selector);
    let metrics = Arc::new(metrics);
    let parallel = std::thread::available_parallelism().map_or(1, usize::from);
    let tasks = input.map(move |batch| {
        let (selector, metrics) = (selector.clone(), metrics.clone());
        async move {
            let batch = batch?;
            let work = move || {
                let _timer = metrics.elapsed_compute().timer();
                let selected = selector.select(&batch)?;
                metrics.record_output(selected.rows.num_rows());
                Ok(selected)
            };
            let task = SpawnedTask::spawn(async move { work() }).join_unwind().await;
            task.map_err(|error| DataFusionError::ExecutionJoin(Box::new(error)))?
        }
    });
    tasks.buffered(parallel)
}

/// The rows of `selected`, without empty batches. The end of the stream is recorded in `record`.
fn noted(
    selected: impl futures::Stream<Item = PlanResult<Selected>>,
    record: Record,
    dropped: Count,
) -> impl futures::Stream<Item = PlanResult<RecordBatch>> {
    let mut notes = Some(Notes::default());
    let end = futures::stream::once(async { None });
    let steps = selected.map(Some).chain(end).map(move |step| match step {
        Some(Ok(selected)) => {
            dropped.add(selected.dropped);
            if let Some(notes) = &mut notes {
                notes.add(&selected);
            }
            Ok(Some(selected.rows).filter(|rows| rows.num_rows() > 0))
        }
        Some(Err(error)) => {
            // The stream is incomplete, so nothing of it may be recorded.
            notes = None;
            Err(error)
        }
        None => {
            if let Some(notes) = notes.take() {
                notes.finish(&record);
            }
            Ok(None)
        }
    });
    steps.try_filter_map(futures::future::ok)
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use arrow_schema::{DataType, Field, Schema};
    use datafusion::physical_plan::empty::EmptyExec;
    use futures::poll;

    use super::*;
    use crate::visibility::HeadStart;

    #[tokio::test]
    async fn a_first_source_without_rows_lets_the_other_sources_begin_when_it_ends() {
        let schema = Arc::new(Schema::new(vec![Field::new("id", DataType::Int64, false)]));
        let start = Arc::<HeadStart>::default();
        let nothing = Arc::new(EmptyExec::new(schema.clone()));
        let node = NewestRowsExec::new(nothing, Newest::All, schema);
        let node = node.in_turn(Some(StartGate::First(start.clone())));
        let rows = node.execute(0, Arc::default()).unwrap();
        let rows: Vec<RecordBatch> = rows.try_collect().await.unwrap();
        assert_eq!(rows, []);
        assert!(poll!(pin!(StartGate::Later(start).come())).is_ready());
    }
}
