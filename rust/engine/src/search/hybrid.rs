//! Hybrid search: one result of the rows nearest to a vector and of the rows that match a text.
//!
//! ```text
//!   FilterExec, ProjectionExec   the caller's columns
//!     LateColumnsExec            all other columns, by key
//!       FuseExec                 both lists by key: reciprocal ranks, or the caller's reranker
//!         the plan of a vector search
//!         the plan of a full-text search
//! ```
//!
//! Both lists are of one snapshot, so a row is in both with the same values.
//!
//! Owns: [`HybridSearch`], the depth of the lists, and their fusion.
//! Does not own: the searches, or rerankers other than reciprocal ranks.

use std::collections::HashMap;
use std::fmt::{self, Debug};
use std::sync::Arc;

use arrow::compute::{concat_batches, take_record_batch};
use arrow_array::cast::AsArray;
use arrow_array::types::Float32Type;
use arrow_array::{Array, ArrayRef, Float32Array, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow_cast::cast;
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::{DataFusionError, Result as PlanResult};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::metrics::BaselineMetrics;
use datafusion::physical_plan::union::UnionExec;
use datafusion::prelude::SessionContext;
use futures::future::try_join_all;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt, stream};
use lancemem_core::format::KeyEncoder;
use lancemem_core::types::{Error, Result};

use super::late_columns::LateColumnsStep;
use super::layout::unknown_column;
use super::node::{Step, StepExec};
use super::query::Search;
use super::request::refuse;
use super::text::{SCORE, SearchOfText};
use super::{DISTANCE, QueryVectors, SearchOptions, TextSearch};
use crate::errors::{Context, external};
use crate::plan::{ScanPlan, projected, session};
use crate::snapshot::Snapshot;
use crate::table::{LiveJob, Scan, SnapshotQuery, Table};

/// The column of a result that holds the relevance of its row, as in lancedb.
pub const RELEVANCE: &str = "_relevance_score";
const FUSING: &str = "hybrid search";
/// Rows of each list for a row of the result, and the least of them.
const DEPTH: usize = 4;
const MIN_DEPTH: usize = 50;

/// Makes one list of the two lists of a hybrid search.
#[derive(Clone, Debug)]
pub enum Rerank {
    /// The sum of `1 / (k + rank)` over the lists that have the row; the first row has the rank 0.
    ReciprocalRanks {
        /// How little ranks at the top differ.
        k: f32,
    },
    /// The caller's.
    Custom(Arc<dyn Reranker>),
}

/// A reranker of the caller.
pub trait Reranker: Debug + Send + Sync {
    /// One list of the vector results, which have `_distance`, and of the text results, which have
    /// `_score`. The list has the key columns and `_relevance_score`, a number. May block.
    ///
    /// # Errors
    /// Any error; it becomes the error of the search.
    fn rerank(&self, vectors: RecordBatch, texts: RecordBatch) -> Result<RecordBatch>;
}

impl Table {
    /// A lazy search by a vector and a text, whose every execution reads a new snapshot. `options`
    /// apply to both searches. The result has the columns of `options`, then `_distance` and
    /// `_score`, null where only the other search found the row, and `_relevance_score`, by
    /// descending relevance and then by key.
    ///
    /// # Errors
    /// An input error for options that no table can meet, and for several vectors.
    pub fn search_hybrid(
        self: &Arc<Self>,
        (query, text): (QueryVectors, TextSearch),
        rerank: Rerank,
        options: SearchOptions,
        jobs: Vec<Arc<dyn LiveJob>>,
    ) -> Result<Scan> {
        let consistency = options.consistency;
        let search = Arc::new(HybridSearch::new(query, text, rerank, options)?);
        Ok(Scan::of_query(self.clone(), consistency, jobs, search))
    }

    /// The same over a snapshot of [`Table::snapshot`].
    ///
    /// # Errors
    /// As [`Table::search_hybrid`].
    pub fn search_hybrid_of_snapshot(
        self: &Arc<Self>,
        (query, text): (QueryVectors, TextSearch),
        rerank: Rerank,
        options: SearchOptions,
        snapshot: Arc<Snapshot>,
    ) -> Result<Scan> {
        let search = Arc::new(HybridSearch::new(query, text, rerank, options)?);
        Ok(Scan::of_snapshot_query(self.clone(), snapshot, search))
    }
}

/// A hybrid search that has not begun.
#[derive(Debug)]
struct HybridSearch {
    query: QueryVectors,
    text: TextSearch,
    rerank: Rerank,
    options: SearchOptions,
}

impl HybridSearch {
    fn new(
        query: QueryVectors,
        text: TextSearch,
        rerank: Rerank,
        options: SearchOptions,
    ) -> Result<Self> {
        refuse(&options)?;
        if query.is_batch {
            return Err(Error::input("a hybrid search takes one vector, got a batch of vectors"));
        }
        Ok(Self { query, text, rerank, options })
    }

    /// The columns of the result and of both lists.
    fn columns(&self, snapshot: &Snapshot) -> Result<(Vec<String>, Vec<String>)> {
        if snapshot.key.is_empty() {
            return Err(Error::input(
                "a hybrid search joins its two lists by primary key, and the table has none",
            ));
        }
        let all = || snapshot.schema.fields().iter().map(|field| field.name().clone()).collect();
        let output: Vec<String> = self.options.columns.clone().unwrap_or_else(all);
        if let Some(unknown) =
            output.iter().find(|name| snapshot.schema.field_with_name(name).is_err())
        {
            return Err(unknown_column(unknown, &snapshot.schema));
        }
        let own = [DISTANCE, SCORE, RELEVANCE];
        if let Some(name) = output.iter().find(|name| own.contains(&name.as_str())) {
            return Err(Error::input(format!(
                "column '{name}' of the table has the name of a column of every hybrid search; \
                 rename it, or name other columns in columns="
            )));
        }
        let mut listed = snapshot.key.to_vec();
        if matches!(self.rerank, Rerank::Custom(_)) {
            listed.extend(output.iter().filter(|name| !snapshot.key.contains(name)).cloned());
        }
        Ok((output, listed))
    }
}

#[async_trait]
impl SnapshotQuery for HybridSearch {
    async fn plan(
        &self,
        table: &Arc<Table>,
        snapshot: &Arc<Snapshot>,
    ) -> Result<(ScanPlan, SessionContext)> {
        let (output, listed) = self.columns(snapshot)?;
        let depth = self.options.offset.saturating_add(self.options.k);
        let depth = depth.saturating_mul(DEPTH).max(MIN_DEPTH);
        let options = self.options.clone().with_k(depth).with_offset(0).with_columns(listed);
        let query = self.query.clone();
        let (vectors, _) = Search { query, options: options.clone() }.plan(table, snapshot).await?;
        let search = self.text.clone();
        let (texts, _) = SearchOfText { search, options }.plan(table, snapshot).await?;
        let both = UnionExec::try_new(vec![vectors.plan, texts.plan]).context(FUSING)?;
        let late = output.iter().filter(|name| !snapshot.key.contains(name)).cloned().collect();
        let layout = Arc::new(FusedColumns::of(snapshot, late));
        let (rerank, offset, k) = (self.rerank.clone(), self.options.offset, self.options.k);
        let fuse = FuseStep { rerank, layout: layout.clone(), offset, k };
        let mut rows: Arc<dyn ExecutionPlan> = Arc::new(StepExec::new(fuse, both));
        if !layout.late.is_empty() {
            let (snapshot, late) = (snapshot.clone(), layout.late.clone());
            let step = LateColumnsStep { snapshot, late, schema: layout.chosen() };
            rows = Arc::new(StepExec::new(step, rows));
        }
        let scores = [DISTANCE, SCORE, RELEVANCE].map(str::to_owned);
        let result: Vec<String> = output.into_iter().chain(scores).collect();
        let pruned = vectors.pruned.into_iter().chain(texts.pruned).collect();
        Ok((ScanPlan { plan: projected(rows, &result)?, pruned }, session()))
    }
}

/// The columns of the fused list.
#[derive(Debug)]
struct FusedColumns {
    key: Arc<[String]>,
    /// The caller's other columns.
    late: Vec<String>,
    schema: SchemaRef,
}

impl FusedColumns {
    fn of(snapshot: &Snapshot, late: Vec<String>) -> Self {
        Self { key: snapshot.key.clone(), late, schema: snapshot.schema.clone() }
    }

    /// The columns of the rows that the fusion returns.
    fn fused(&self) -> SchemaRef {
        self.with_scores(&self.key)
    }

    fn chosen(&self) -> SchemaRef {
        let names: Vec<String> = self.key.iter().chain(&self.late).cloned().collect();
        self.with_scores(&names)
    }

    fn with_scores(&self, names: &[String]) -> SchemaRef {
        let field = |name: &String| self.schema.field_with_name(name).ok().cloned();
        let scores = [DISTANCE, SCORE, RELEVANCE];
        let scores = scores.map(|name| Field::new(name, DataType::Float32, true));
        let fields: Vec<Field> = names.iter().filter_map(field).chain(scores).collect();
        Arc::new(Schema::new_with_metadata(fields, self.schema.metadata().clone()))
    }
}

/// Fuses the two lists.
#[derive(Clone, Debug)]
struct FuseStep {
    rerank: Rerank,
    layout: Arc<FusedColumns>,
    offset: usize,
    k: usize,
}

impl fmt::Display for FuseStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.rerank {
            Rerank::ReciprocalRanks { k } => write!(f, "reciprocal ranks, k={k}")?,
            Rerank::Custom(custom) => write!(f, "{custom:?}")?,
        }
        write!(f, ", by [{}], k={}, offset={}", self.layout.key.join(", "), self.k, self.offset)
    }
}

impl Step for FuseStep {
    const NAME: &'static str = "FuseExec";
    const GATHERS: bool = true;

    fn schema(&self) -> SchemaRef {
        self.layout.fused()
    }

    fn rows(
        &self,
        inputs: Vec<SendableRecordBatchStream>,
        _: BaselineMetrics,
    ) -> BoxStream<'static, PlanResult<RecordBatch>> {
        let step = self.clone();
        let fused = async move {
            // A task each, so that both searches run side by side.
            let lists = inputs.into_iter().map(|list| {
                SpawnedTask::spawn(async move {
                    let schema = list.schema();
                    let batches: Vec<RecordBatch> = list.try_collect().await?;
                    let batches = batches.into_iter().map(|it| it.with_schema(schema.clone()));
                    let batches = batches.collect::<Result<Vec<_>, _>>()?;
                    Ok::<_, DataFusionError>(concat_batches(&schema, &batches)?)
                })
            });
            let lists = try_join_all(lists.map(SpawnedTask::join_unwind)).await;
            let lists = lists.map_err(|error| DataFusionError::ExecutionJoin(Box::new(error)))?;
            let lists = lists.into_iter().collect::<PlanResult<Vec<_>>>()?;
            let [vectors, texts] = <[_; 2]>::try_from(lists).map_err(|lists| {
                DataFusionError::Internal(format!(
                    "{FUSING}: expected 2 lists, got {}",
                    lists.len()
                ))
            })?;
            let fuse = SpawnedTask::spawn_blocking(move || step.fused(&vectors, &texts));
            let fused = fuse.join_unwind().await;
            fused
                .map_err(|error| DataFusionError::ExecutionJoin(Box::new(error)))?
                .map_err(external)
        };
        stream::once(fused).boxed()
    }
}

/// A row of the fused list.
#[derive(Clone, Copy, Debug, Default)]
struct Fused {
    /// Its place in the vector results, and in the text results.
    vector: Option<usize>,
    text: Option<usize>,
    relevance: f32,
}

impl FuseStep {
    fn fused(&self, vectors: &RecordBatch, texts: &RecordBatch) -> Result<RecordBatch> {
        let encoder = KeyEncoder::new(vectors.schema_ref(), &self.layout.key)?;
        let of_vectors = encoder.encode_block(vectors);
        let of_texts = KeyEncoder::new(texts.schema_ref(), &self.layout.key)?.encode_block(texts);
        let mut rows: HashMap<&[u8], Fused> = HashMap::new();
        for (place, key) in of_vectors.iter().enumerate() {
            rows.entry(key).or_default().vector = Some(place);
        }
        for (place, key) in of_texts.iter().enumerate() {
            rows.entry(key).or_default().text = Some(place);
        }
        match &self.rerank {
            Rerank::ReciprocalRanks { k } => {
                let part = |place: Option<usize>| {
                    #[expect(clippy::cast_precision_loss, reason = "a rank is small")]
                    place.map_or(0.0, |rank| 1.0 / (k + rank as f32))
                };
                for row in rows.values_mut() {
                    row.relevance = part(row.vector) + part(row.text);
                }
            }
            Rerank::Custom(reranker) => {
                let list = reranker.rerank(vectors.clone(), texts.clone())?;
                let (keys, relevance) = self.of_reranker(&list)?;
                let mut kept = HashMap::new();
                for (key, relevance) in keys.iter().zip(relevance) {
                    let Some((key, row)) = rows.get_key_value(key) else {
                        return Err(Error::input(format!(
                            "rerank: a row of the result is in neither list; keep the values of {}",
                            self.layout.key.join(", ")
                        )));
                    };
                    kept.insert(*key, Fused { relevance, ..*row });
                }
                rows = kept;
            }
        }
        let mut ranked: Vec<(&[u8], Fused)> = rows.into_iter().collect();
        ranked.sort_unstable_by(|(one_key, one), (key, other)| {
            other.relevance.total_cmp(&one.relevance).then_with(|| one_key.cmp(key))
        });
        let shown = ranked.into_iter().skip(self.offset).take(self.k);
        self.result(vectors, texts, &shown.map(|(_, row)| row).collect::<Vec<_>>())
    }

    /// The keys and the relevance of a reranker's rows.
    fn of_reranker(
        &self,
        list: &RecordBatch,
    ) -> Result<(lancemem_core::types::KeyBlock, Vec<f32>)> {
        let columns: Vec<&String> = self.layout.key.iter().collect();
        let lacks = |name: &str| {
            Error::input(format!("rerank: the result of the reranker lacks the column '{name}'"))
        };
        let relevance = list.column_by_name(RELEVANCE).ok_or_else(|| lacks(RELEVANCE))?;
        let relevance = cast(relevance, &DataType::Float32).context("rerank: _relevance_score")?;
        let relevance = relevance.as_primitive::<Float32Type>();
        if relevance.null_count() > 0 || relevance.values().iter().any(|it| it.is_nan()) {
            return Err(Error::input("rerank: a _relevance_score is null or no number"));
        }
        let (mut fields, mut arrays) = (Vec::new(), Vec::new());
        for name in columns {
            let array = list.column_by_name(name).ok_or_else(|| lacks(name))?;
            let field = self.layout.schema.field_with_name(name).context(FUSING)?;
            arrays.push(cast(array, field.data_type()).context("rerank: a key column")?);
            fields.push(field.clone());
        }
        let keys = RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays);
        let keys = keys.map_err(|error| {
            Error::input("rerank: a key of the result is null").with_source(error)
        })?;
        let encoder = KeyEncoder::new(keys.schema_ref(), &self.layout.key)?;
        Ok((encoder.encode_block(&keys), relevance.values().to_vec()))
    }

    fn result(
        &self,
        vectors: &RecordBatch,
        texts: &RecordBatch,
        rows: &[Fused],
    ) -> Result<RecordBatch> {
        let schema = self.layout.fused();
        let names: Vec<usize> = (0..self.layout.key.len()).collect();
        let only_keys = |list: &RecordBatch| list.project(&names).context(FUSING);
        let (of_vectors, of_texts) = (only_keys(vectors)?, only_keys(texts)?);
        let both = concat_batches(
            &of_vectors.schema(),
            &[of_vectors.clone(), of_texts.with_schema(of_vectors.schema()).context(FUSING)?],
        );
        let both = both.context(FUSING)?;
        let place = |row: &Fused| {
            let text = || row.text.map(|place| place + vectors.num_rows());
            row.vector.or_else(text).and_then(|place| u32::try_from(place).ok())
        };
        let places: Option<Vec<u32>> = rows.iter().map(place).collect();
        let places =
            places.ok_or_else(|| Error::internal(format!("{FUSING}: a row has no place")))?;
        let keys = take_record_batch(&both, &UInt32Array::from(places)).context(FUSING)?;
        let scores = |list: &RecordBatch, name: &str, place: fn(&Fused) -> Option<usize>| {
            let column =
                list.column_by_name(name).and_then(|it| it.as_primitive_opt::<Float32Type>());
            let missing = || Error::internal(format!("{FUSING}: a list has no column '{name}'"));
            let column = column.ok_or_else(missing)?;
            let scores = rows.iter().map(|row| place(row).map(|place| column.value(place)));
            Ok::<ArrayRef, Error>(Arc::new(scores.collect::<Float32Array>()))
        };
        let distances = scores(vectors, DISTANCE, |row| row.vector)?;
        let of_words = scores(texts, SCORE, |row| row.text)?;
        let relevance: ArrayRef =
            Arc::new(Float32Array::from_iter_values(rows.iter().map(|row| row.relevance)));
        let columns = keys.columns().iter().cloned();
        let columns = columns.chain([distances, of_words, relevance]).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
        RecordBatch::try_new_with_options(schema, columns, &options).context(FUSING)
    }
}
