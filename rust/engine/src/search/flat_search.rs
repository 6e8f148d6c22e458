//! The search of one source by a comparison of all its vectors in memory.
//!
//! ```text
//!   the distance of every row, on several threads where the rows are many; of a large MemTable, of
//!   the rows that its indexes leave (`memory_rows`), and of all where those give too few
//!     the nearest rows, eight times as many in each round
//!       drop rows that a newer row of their key supersedes
//!         until k live rows are found, and no other row is as near as the last of them
//! ```
//!
//! The number of rows whose keys are compared depends on `k` and on how many of the nearest rows
//! are superseded, not on the size of the source.
//!
//! Owns: [`FlatSearch`].
//! Does not own: the sources (`flat_source`), or distances (`distance`).

use std::fmt;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::{DataFusionError, Result as PlanResult};
use datafusion::physical_plan::metrics::{BaselineMetrics, RecordOutput};
use futures::future::try_join_all;
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use lancemem_core::types::{Error, Result};

use super::distance::Scorer;
use super::distance_exec::NearestRows;
use super::flat_source::{Block, FlatSource, FlatVectors, Place, in_types_of};
use super::layout::Layout;
use super::memory_rows::{MemoryAccess, gathered};
use super::request::SearchRequest;
use crate::errors::{Context, external};
use crate::plan::Leaf;

const ACTION: &str = "comparing vectors in memory";
/// How many times more of the nearest rows each round looks at.
const GROWTH: usize = 8;
/// Rows beside those that are needed, for the few that turn out superseded.
const SPARE: usize = 8;
/// Numbers that one thread compares in less time than another thread takes to start.
const NUMBERS_A_THREAD: usize = 1 << 20;

/// Searches a source of a snapshot in memory.
#[derive(Clone, Debug)]
pub(super) struct FlatSearch {
    pub request: Arc<SearchRequest>,
    pub layout: Arc<Layout>,
    pub scorer: Arc<Scorer>,
    pub source: FlatSource,
    /// The indexes of a MemTable that leave some of its rows.
    pub access: MemoryAccess,
}

/// A row with its distance.
#[derive(Clone, Copy, Debug)]
struct Near {
    distance: f32,
    place: Place,
}

impl fmt::Display for FlatSearch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (vector, metric) = (&self.layout.vector, self.scorer.metric);
        write!(f, "{}, column={vector}, metric={metric}{}", self.source, self.access)
    }
}

impl Leaf for FlatSearch {
    const NAME: &'static str = "FlatSearchExec";

    fn schema(&self) -> SchemaRef {
        self.layout.candidates()
    }

    fn batches(&self, metrics: BaselineMetrics) -> BoxStream<'static, PlanResult<RecordBatch>> {
        let search = self.clone();
        let elapsed = metrics.elapsed_compute().clone();
        let found = async move {
            let _timer = elapsed.timer();
            let found = search.found().await.map_err(external)?;
            Ok::<_, DataFusionError>(stream::iter(found.into_iter().map(Ok)))
        };
        let batches = stream::once(found).try_flatten();
        batches.map(move |batch| batch.record_output(&metrics)).boxed()
    }
}

impl FlatSearch {
    /// The nearest live rows of the source, for each query.
    async fn found(&self) -> Result<Vec<RecordBatch>> {
        let vectors = self.source.vectors(&self.layout).await?;
        let mut found = Vec::new();
        for query in 0..self.request.queries.vectors.len() {
            if let Some(rows) = self.by_indexes(query, &vectors).await? {
                found.push(rows);
                continue;
            }
            let near = self.compared(query, &vectors.blocks()?).await?;
            found.extend(self.nearest(query, &vectors, near).await?);
        }
        Ok(found)
    }

    /// The nearest live rows among those that the indexes in memory leave; `None` where they are too
    /// few for the result, and without such indexes.
    async fn by_indexes(&self, query: usize, vectors: &FlatVectors) -> Result<Option<RecordBatch>> {
        let (keep, of) = (self.request.keep(), &self.request.queries.vectors[query]);
        let Some(view) = self.source.memtable() else { return Ok(None) };
        let Some(left) = self.access.blocks(view, &vectors.columns, of)? else {
            return Ok(None);
        };
        let near = self.compared(query, &left.blocks).await?;
        let found = self.nearest(query, vectors, near).await?;
        if left.are_all {
            let none = || RecordBatch::new_empty(self.layout.candidates());
            return Ok(Some(found.unwrap_or_else(none)));
        }
        Ok(found.filter(|found| found.num_rows() >= keep))
    }

    /// The distances of all rows that have one.
    async fn compared(&self, query: usize, blocks: &[Block]) -> Result<Vec<Near>> {
        let rows: usize = blocks.iter().map(Block::rows).sum();
        let numbers = rows.saturating_mul(self.request.column.width);
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = (numbers / NUMBERS_A_THREAD).clamp(1, processors);
        if threads == 1 {
            return near(&self.scorer, query, blocks).context(ACTION);
        }
        let parts = blocks.chunks(blocks.len().div_ceil(threads)).map(|part| {
            let (scorer, part) = (self.scorer.clone(), part.to_vec());
            SpawnedTask::spawn(async move { near(&scorer, query, &part) }).join_unwind()
        });
        let parts = try_join_all(parts)
            .await
            .map_err(|error| Error::internal(format!("{ACTION}: {error}")).with_source(error))?;
        let parts = parts.into_iter().collect::<PlanResult<Vec<_>>>().context(ACTION)?;
        Ok(parts.concat())
    }

    /// The nearest live rows among `near`: `k` of them, and all at the distance of the last.
    async fn nearest(
        &self,
        query: usize,
        vectors: &FlatVectors,
        mut near: Vec<Near>,
    ) -> Result<Option<RecordBatch>> {
        let keep = self.request.keep();
        let mut count = keep.saturating_mul(2).saturating_add(SPARE);
        let (mut live, mut last) = (Vec::new(), None);
        let mut left = near.as_mut_slice();
        while !left.is_empty() {
            let taken = count.min(left.len());
            if taken < left.len() {
                left.select_nth_unstable_by(taken, by_distance);
            }
            let (nearest, others) = std::mem::take(&mut left).split_at_mut(taken);
            nearest.sort_unstable_by(by_distance);
            // All are farther than the last of enough live rows.
            if last.is_some_and(|last| nearest[0].distance > last) {
                break;
            }
            let places = nearest.iter().map(|near| near.place).collect();
            let found = self.source.live(vectors, places, &self.layout.key).await?;
            // `live` keeps the order.
            let mut of_found = nearest.iter();
            for place in found {
                let distance = of_found.by_ref().find(|near| near.place == place);
                live.push((place, distance.map_or(f32::INFINITY, |near| near.distance)));
            }
            last = keep.checked_sub(1).and_then(|at| live.get(at)).map(|(_, distance)| *distance);
            left = others;
            count = count.saturating_mul(GROWTH);
        }
        if let Some(last) = last {
            live.retain(|(_, distance)| *distance <= last);
        }
        if live.is_empty() {
            return Ok(None);
        }
        let places = live.into_iter().map(|(place, _)| place).collect();
        let rows = self.source.found(vectors, places, &self.layout).await?;
        let rows = in_types_of(&self.layout.candidates(), rows)?;
        let mut nearest = NearestRows::new(self.scorer.clone(), self.layout.clone(), keep);
        nearest.of_query(query, &rows).context(ACTION).map(Some)
    }
}

/// By distance; rows without one are not compared.
fn by_distance(one: &Near, other: &Near) -> std::cmp::Ordering {
    one.distance.total_cmp(&other.distance)
}

/// The distances of the rows of `blocks` that have one and are not dead.
fn near(scorer: &Scorer, query: usize, blocks: &[Block]) -> PlanResult<Vec<Near>> {
    let mut near = Vec::with_capacity(blocks.iter().map(Block::rows).sum());
    for block in blocks {
        match block {
            Block::Run { batch, first, vectors, dead } => {
                let distances = scorer.distances(query, vectors)?;
                let rows = (*first..).zip(distances);
                let is_dead = |row: u32| dead.as_ref().is_some_and(|dead| dead.contains(row));
                let rows = rows.filter(|(row, distance)| !distance.is_nan() && !is_dead(*row));
                near.extend(rows.map(|(row, distance)| Near { distance, place: (*batch, row) }));
            }
            Block::Rows { columns, places } => {
                let distances = scorer.distances(query, &gathered(columns, places)?)?;
                let rows = places.iter().zip(distances).filter(|(_, it)| !it.is_nan());
                near.extend(rows.map(|(place, distance)| Near { distance, place: *place }));
            }
        }
    }
    Ok(near)
}
