//! The step of a search that computes the exact distance of every row of its input.
//!
//! Owns: [`DistanceStep`], which passes on the rows that can be among the nearest of their
//! partition, and the vectors' column only where the result has it.
//! Does not own: distances (`distance`), or the choice among partitions (`top_k`).

use std::fmt;
use std::sync::Arc;

use arrow::compute::take;
use arrow_array::{
    ArrayRef, Float32Array, Int32Array, RecordBatch, RecordBatchOptions, UInt32Array,
};
use arrow_schema::SchemaRef;
use datafusion::common::{DataFusionError, Result as PlanResult};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::metrics::BaselineMetrics;
use futures::StreamExt;
use futures::stream::BoxStream;

use super::bounds::Bound;
use super::distance::{Scorer, vectors};
use super::layout::Layout;
use super::node::Step;

/// Rows whose vectors are compared with all queries of a batch before the next ones are read: they
/// stay in the processor's cache meanwhile.
const BLOCK_ROWS: usize = 256;

/// Computes distances.
#[derive(Debug)]
pub(super) struct DistanceStep {
    pub scorer: Arc<Scorer>,
    pub layout: Arc<Layout>,
    /// Rows of each query that the caller can see, those before the offset included.
    pub keep: usize,
}

impl fmt::Display for DistanceStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (vector, metric) = (&self.layout.vector, self.scorer.metric);
        write!(f, "column={vector}, metric={metric}, queries={}", self.scorer.queries.len())
    }
}

impl Step for DistanceStep {
    const NAME: &'static str = "DistanceExec";
    const GATHERS: bool = false;

    fn schema(&self) -> SchemaRef {
        self.layout.candidates()
    }

    fn rows(
        &self,
        inputs: Vec<SendableRecordBatchStream>,
        metrics: BaselineMetrics,
    ) -> BoxStream<'static, PlanResult<RecordBatch>> {
        let mut nearest = NearestRows::new(self.scorer.clone(), self.layout.clone(), self.keep);
        let rows = futures::stream::iter(inputs).flatten();
        let rows = rows.map(move |batch| {
            let batch = batch?;
            let _timer = metrics.elapsed_compute().timer();
            nearest.of_batch(&batch)
        });
        let is_some = |batch: &PlanResult<RecordBatch>| {
            let is_empty = batch.as_ref().is_ok_and(|batch| batch.num_rows() == 0);
            futures::future::ready(!is_empty)
        };
        rows.filter(is_some).boxed()
    }
}

/// Chooses the rows of one stream that can be among the nearest ones.
#[derive(Debug)]
pub(super) struct NearestRows {
    scorer: Arc<Scorer>,
    layout: Arc<Layout>,
    bounds: Vec<Bound>,
    schema: SchemaRef,
}

/// The chosen rows of a batch: for each its query, its place and its distance.
#[derive(Default)]
struct Chosen {
    queries: Vec<i32>,
    rows: Vec<u32>,
    distances: Vec<f32>,
}

impl NearestRows {
    pub fn new(scorer: Arc<Scorer>, layout: Arc<Layout>, keep: usize) -> Self {
        let bounds = vec![Bound::new(keep); scorer.queries.len()];
        let schema = layout.candidates();
        Self { scorer, layout, bounds, schema }
    }

    /// The candidates among the rows of `batch`, for every query.
    pub fn of_batch(&mut self, batch: &RecordBatch) -> PlanResult<RecordBatch> {
        let all = 0..self.scorer.queries.len();
        let column = vectors(named(batch, &self.layout.vector)?)?;
        let mut chosen = Chosen::default();
        let block = if all.len() > 1 { BLOCK_ROWS } else { batch.num_rows().max(1) };
        for first in (0..batch.num_rows()).step_by(block) {
            let part = column.slice(first, block.min(batch.num_rows() - first));
            for query in all.clone() {
                let distances = self.scorer.distances(query, &part)?;
                self.choose(query, first, &distances, &mut chosen)?;
            }
        }
        self.result(batch, chosen)
    }

    /// The rows of `batch` for the query at `query` alone.
    pub fn of_query(&mut self, query: usize, batch: &RecordBatch) -> PlanResult<RecordBatch> {
        let column = vectors(named(batch, &self.layout.vector)?)?;
        let mut chosen = Chosen::default();
        let distances = self.scorer.distances(query, column)?;
        self.choose(query, 0, &distances, &mut chosen)?;
        self.result(batch, chosen)
    }

    fn choose(
        &mut self,
        query: usize,
        first: usize,
        distances: &[f32],
        chosen: &mut Chosen,
    ) -> PlanResult<()> {
        let too_many = || DataFusionError::Internal("a batch has too many rows".to_owned());
        let number = i32::try_from(query).map_err(|_| too_many())?;
        for (row, distance) in (first..).zip(distances.iter().copied()) {
            if distance.is_nan() || !self.bounds[query].admits(distance) {
                continue;
            }
            chosen.queries.push(number);
            chosen.rows.push(u32::try_from(row).map_err(|_| too_many())?);
            chosen.distances.push(distance);
        }
        Ok(())
    }

    fn result(&self, batch: &RecordBatch, chosen: Chosen) -> PlanResult<RecordBatch> {
        let Chosen { queries, rows, distances } = chosen;
        let count = rows.len();
        let rows = UInt32Array::from(rows);
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(self.schema.fields().len());
        if self.layout.is_batch {
            columns.push(Arc::new(Int32Array::from(queries)));
        }
        for name in &self.layout.carried {
            columns.push(take(named(batch, name)?, &rows, None)?);
        }
        columns.push(Arc::new(Float32Array::from(distances)));
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        Ok(RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)?)
    }
}

fn named<'a>(batch: &'a RecordBatch, name: &str) -> PlanResult<&'a ArrayRef> {
    batch.column_by_name(name).ok_or_else(|| {
        DataFusionError::Internal(format!("column '{name}' is missing from the source"))
    })
}
