//! The step of a search that chooses the nearest rows among all sources.
//!
//! Owns: [`TopKStep`]: the order by distance and then by key, and the memory of a choice.
//! Does not own: distances (`distance_exec`, `index_search`).

use std::fmt;
use std::sync::Arc;

use arrow::compute::{concat_batches, take_record_batch};
use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Int32Type};
use arrow_array::{RecordBatch, UInt32Array};
use arrow_schema::SchemaRef;
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::{DataFusionError, Result as PlanResult};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::metrics::BaselineMetrics;
use futures::StreamExt;
use futures::TryStreamExt;
use futures::future::try_join_all;
use futures::stream::BoxStream;
use lancemem_core::format::KeyEncoder;
use lancemem_core::types::KeyBlock;

use super::layout::Layout;
use super::node::Step;
use super::{DISTANCE, QUERY_INDEX};
use crate::errors::external;

/// Rows of a source that wait for the choice, beside four times the rows that are chosen.
const WAITING_ROWS: usize = 16_384;

/// Chooses the nearest rows of each query.
#[derive(Clone, Debug)]
pub(super) struct TopKStep {
    pub layout: Arc<Layout>,
    pub queries: usize,
    pub offset: usize,
    pub k: usize,
}

impl fmt::Display for TopKStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { queries, offset, k, .. } = self;
        write!(
            f,
            "k={k}, offset={offset}, queries={queries}, ties by [{}]",
            self.layout.key.join(", ")
        )
    }
}

impl Step for TopKStep {
    const NAME: &'static str = "TopKExec";
    const GATHERS: bool = true;

    fn schema(&self) -> SchemaRef {
        self.layout.candidates()
    }

    fn rows(
        &self,
        inputs: Vec<SendableRecordBatchStream>,
        metrics: BaselineMetrics,
    ) -> BoxStream<'static, PlanResult<RecordBatch>> {
        let step = self.clone();
        let chosen = async move {
            // A task each, so that sources are searched side by side.
            let sources = inputs.into_iter().map(|input| {
                let step = step.clone();
                SpawnedTask::spawn(async move { step.of_source(input).await })
            });
            let joined = try_join_all(sources.map(SpawnedTask::join_unwind)).await;
            let sources =
                joined.map_err(|error| DataFusionError::ExecutionJoin(Box::new(error)))?;
            let _timer = metrics.elapsed_compute().timer();
            let sources = sources.into_iter().collect::<PlanResult<Vec<_>>>()?;
            step.nearest(&sources, step.offset)
        };
        futures::stream::once(chosen).boxed()
    }
}

impl TopKStep {
    const fn kept(&self) -> usize {
        self.offset.saturating_add(self.k)
    }

    /// The rows of one source that may be chosen.
    async fn of_source(&self, mut input: SendableRecordBatchStream) -> PlanResult<RecordBatch> {
        let most = self.kept().saturating_mul(4 * self.queries).saturating_add(WAITING_ROWS);
        let (mut waiting, mut rows) = (Vec::new(), 0);
        while let Some(batch) = input.try_next().await? {
            rows += batch.num_rows();
            waiting.push(batch);
            if rows > most {
                waiting = vec![self.nearest(&waiting, 0)?];
                rows = waiting[0].num_rows();
            }
        }
        self.nearest(&waiting, 0)
    }

    /// The nearest rows of each query, in order, without the first `skipped` of each.
    fn nearest(&self, batches: &[RecordBatch], skipped: usize) -> PlanResult<RecordBatch> {
        let schema = self.schema();
        let batches = batches.iter().map(|it| it.clone().with_schema(schema.clone()));
        let batches = batches.collect::<Result<Vec<_>, _>>()?;
        let rows = concat_batches(&schema, &batches)?;
        let order = Order::of(&rows, &self.layout)?;
        let count = u32::try_from(rows.num_rows()).map_err(|_| {
            DataFusionError::ResourcesExhausted("a search keeps too many rows".to_owned())
        })?;
        let mut sorted: Vec<u32> = (0..count).collect();
        sorted.sort_unstable_by(|one, other| order.compare(*one, *other));
        let of_query = sorted.chunk_by(|one, other| order.query(*one) == order.query(*other));
        let shown = of_query.flat_map(|rows| rows.iter().take(self.kept()).skip(skipped));
        let shown = UInt32Array::from_iter_values(shown.copied());
        Ok(take_record_batch(&rows, &shown)?)
    }
}

/// The order of rows: by query, by distance, by key, and last by their place.
struct Order<'a> {
    queries: Option<&'a [i32]>,
    distances: &'a [f32],
    keys: Option<KeyBlock>,
}

impl<'a> Order<'a> {
    fn of(rows: &'a RecordBatch, layout: &Layout) -> PlanResult<Self> {
        let column = |name: &str| {
            rows.column_by_name(name)
                .ok_or_else(|| DataFusionError::Internal(format!("column '{name}' is missing")))
        };
        let queries = layout.is_batch.then(|| column(QUERY_INDEX)).transpose()?;
        let queries = queries.map(|it| it.as_primitive::<Int32Type>().values().as_ref());
        let keys = if layout.key.is_empty() {
            None
        } else {
            let encoder = KeyEncoder::new(rows.schema_ref(), &layout.key).map_err(external)?;
            Some(encoder.encode_block(rows))
        };
        let distances = column(DISTANCE)?.as_primitive::<Float32Type>().values().as_ref();
        Ok(Self { queries, distances, keys })
    }

    fn query(&self, row: u32) -> i32 {
        self.queries.map_or(0, |queries| queries[row as usize])
    }

    fn compare(&self, one: u32, other: u32) -> std::cmp::Ordering {
        let distance = |row: u32| self.distances[row as usize];
        let key = |row: u32| self.keys.as_ref().map(|keys| keys.get(row as usize));
        self.query(one)
            .cmp(&self.query(other))
            .then_with(|| distance(one).total_cmp(&distance(other)))
            .then_with(|| key(one).cmp(&key(other)))
            .then(one.cmp(&other))
    }
}
