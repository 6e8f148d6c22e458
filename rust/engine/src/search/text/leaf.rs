//! The node of a plan that finds rows by their text.
//!
//! ```text
//!   statistics of all sources, added up      counted rows, and indexes less their dead rows
//!     one scorer for the snapshot
//!       scores of all sources, the best first
//!         rows in pieces: the condition, the rows before the offset, k rows
//! ```
//!
//! Owns: [`TextSearchLeaf`]. The scorer needs all sources before the first row is known, so one node
//! reads them all.
//! Does not own: which sources there are (`planner`), or columns that only chosen rows need
//! (`late_columns`).

use std::fmt;
use std::sync::Arc;

use arrow::compute::filter_record_batch;
use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_schema::SchemaRef;
use datafusion::common::Result as PlanResult;
use datafusion::common::runtime::SpawnedTask;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::metrics::{BaselineMetrics, RecordOutput};
use futures::future::{try_join, try_join_all};
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt, stream};
use lancemem_core::types::{Error, Result};

use super::analysis::Analysis;
use super::candidates::{Candidate, Candidates, Place};
use super::flat::FlatTexts;
use super::index_scores::IndexedText;
use super::layout::TextLayout;
use super::memory::{FoundInMemory, MemoryText};
use super::scoring::{Scorers, Statistics};
use crate::errors::external;
use crate::plan::Leaf;

/// How many times more rows each piece has, where a condition leaves rows out.
const GROWTH: usize = 4;
/// Rows of the first piece beside those of the result, where a condition leaves rows out.
const SPARE: usize = 64;

/// Finds rows by their text.
#[derive(Clone, Debug)]
pub(super) struct TextSearchLeaf {
    pub analysis: Arc<Analysis>,
    pub layout: Arc<TextLayout>,
    pub indexed: Vec<IndexedText>,
    pub memory: Vec<MemoryText>,
    pub flat: Option<FlatTexts>,
    /// The caller's condition, over the columns of the candidates.
    pub condition: Option<Arc<dyn PhysicalExpr>>,
    pub offset: usize,
    pub k: usize,
}

/// What is left to return.
struct Rest {
    candidates: Candidates,
    piece: usize,
    skip: usize,
    left: usize,
}

impl fmt::Display for TextSearchLeaf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let terms = self.analysis.columns.iter().map(|column| {
            let terms = column.terms.join(" ");
            format!("{}=[{terms}]", column.name)
        });
        let (k, offset) = (self.k, self.offset);
        write!(f, "{}, k={k}, offset={offset}", terms.collect::<Vec<_>>().join(", "))?;
        if let Some(condition) = &self.condition {
            write!(f, ", filter={condition}")?;
        }
        for source in &self.indexed {
            write!(f, "; {source}")?;
        }
        for source in &self.memory {
            write!(f, "; {source}")?;
        }
        self.flat.as_ref().map_or(Ok(()), |flat| write!(f, "; {} sources read", flat.sources))
    }
}

impl Leaf for TextSearchLeaf {
    const NAME: &'static str = "TextSearchExec";

    fn schema(&self) -> SchemaRef {
        self.layout.candidates()
    }

    fn batches(&self, metrics: BaselineMetrics) -> BoxStream<'static, PlanResult<RecordBatch>> {
        let search = self.clone();
        let rows = async move {
            let candidates = search.candidates().await?;
            let wanted = search.offset.saturating_add(search.k);
            let spare = if search.condition.is_some() { wanted + SPARE } else { 0 };
            let piece = wanted.saturating_add(spare);
            let rest = Rest { candidates, piece, skip: search.offset, left: search.k };
            let rows = stream::try_unfold(rest, move |rest| {
                let search = search.clone();
                async move { search.next(rest).await }
            });
            Ok::<_, Error>(rows)
        };
        let rows = stream::once(rows).try_flatten().map_err(external);
        rows.map(move |batch| batch.record_output(&metrics)).boxed()
    }
}

impl TextSearchLeaf {
    async fn candidates(&self) -> Result<Candidates> {
        let mut statistics = Statistics::none(&self.analysis);
        if !self.analysis.has_terms() {
            let none = (Vec::new(), Vec::new());
            return Ok(Candidates::new(self.layout.clone(), none, Vec::new(), Vec::new()));
        }
        let counted = async {
            match &self.flat {
                Some(flat) => flat.counted(&self.analysis).await,
                None => Ok(Vec::new()),
            }
        };
        let indexed = try_join_all(self.indexed.iter().map(|it| it.statistics(&self.analysis)));
        let in_memory = try_join_all(self.memory.iter().map(|it| self.found_in(it)));
        let ((counted, in_memory), indexed) =
            try_join(try_join(counted, in_memory), indexed).await?;
        let unindexed = counted.iter().map(|it| &it.statistics);
        let in_memory_too = in_memory.iter().map(|it| &it.statistics);
        for of_source in indexed.iter().chain(unindexed).chain(in_memory_too) {
            statistics.add(of_source);
        }
        let scorers = Scorers::new(&self.analysis, &statistics);
        let scored = self.indexed.iter().map(|it| it.scores(&self.analysis, &scorers));
        let mut ranked = Vec::new();
        for (source, rows) in try_join_all(scored).await?.into_iter().enumerate() {
            ranked.extend(rows.into_iter().map(|(address, score)| Candidate {
                score,
                place: Place::Indexed { source, address },
            }));
        }
        let mut flat = Vec::with_capacity(counted.len());
        for (batch, counted) in counted.into_iter().enumerate() {
            let rows = counted.rows.num_rows();
            let scores = counted.evidence.scores(rows, &self.analysis, &scorers);
            let scores = scores.into_iter().enumerate();
            ranked.extend(scores.filter_map(|(row, score)| {
                Some(Candidate { score: score?, place: Place::Flat { batch, row } })
            }));
            flat.push(counted.rows);
        }
        for (source, found) in in_memory.into_iter().enumerate() {
            let scores = found.evidence.scores(found.rows.len(), &self.analysis, &scorers);
            ranked.extend(found.rows.into_iter().zip(scores).filter_map(|(position, score)| {
                Some(Candidate { score: score?, place: Place::Memory { source, position } })
            }));
        }
        let indexes = (self.indexed.clone(), self.memory.clone());
        Ok(Candidates::new(self.layout.clone(), indexes, flat, ranked))
    }

    /// On a thread that may block, because it may index many rows.
    async fn found_in(&self, memory: &MemoryText) -> Result<FoundInMemory> {
        let (memory, analysis) = (memory.clone(), self.analysis.clone());
        let find = SpawnedTask::spawn_blocking(move || memory.find(&analysis));
        find.await.map_err(|error| {
            Error::internal(format!("searching rows in memory: {error}")).with_source(error)
        })?
    }

    /// The next rows of the result.
    async fn next(&self, mut rest: Rest) -> Result<Option<(RecordBatch, Rest)>> {
        while rest.left > 0 {
            let Some(mut rows) = rest.candidates.next(rest.piece).await? else { return Ok(None) };
            rest.piece = rest.piece.saturating_mul(GROWTH);
            if let Some(condition) = &self.condition {
                rows = meeting(condition, &rows).map_err(|error| {
                    crate::errors::from_datafusion("the filter of a full-text search", error)
                })?;
            }
            let skipped = rest.skip.min(rows.num_rows());
            let taken = rest.left.min(rows.num_rows() - skipped);
            rest.skip -= skipped;
            rest.left -= taken;
            if taken > 0 {
                return Ok(Some((rows.slice(skipped, taken), rest)));
            }
        }
        Ok(None)
    }
}

/// The rows of `rows` that meet `condition`.
fn meeting(condition: &Arc<dyn PhysicalExpr>, rows: &RecordBatch) -> PlanResult<RecordBatch> {
    let meets = condition.evaluate(rows)?.into_array(rows.num_rows())?;
    Ok(filter_record_batch(rows, meets.as_boolean())?)
}
