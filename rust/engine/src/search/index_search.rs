//! The search of one source by its index.
//!
//! ```text
//!   ask Lance for the nearest m rows by the index, and for its unindexed rows by their vectors
//!     drop the candidates that the base table has deleted or whose keys have newer rows, count what
//!     is left
//!       enough: compute their exact distances
//!       not enough: ask again without the dead rows: deleted ones, and superseded ones where they are
//!                   known or, in an SSTable, are found by comparing all its keys once
//!       not enough: ask for eight times as many; after three rounds read the source instead
//! ```
//!
//! Owns: [`IndexSearch`], and the liveness of candidates before the cut to the nearest ones.
//! Does not own: which sources have an index (`indexed_source`), or newer rows, which other sources
//! return.

use std::fmt;
use std::sync::Arc;

use arrow::compute::filter_record_batch;
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::SchemaRef;
use datafusion::common::Result as PlanResult;
use datafusion::logical_expr::Expr;
use datafusion::physical_plan::execute_stream;
use datafusion::physical_plan::metrics::{BaselineMetrics, RecordOutput};
use datafusion::prelude::SessionContext;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt, stream};
use lance::Dataset;
use lance::dataset::scanner::{RowAddrMask, RowAddrTreeMap, Scanner};
use lance_file::version::ConcreteFileVersion;
use lancemem_core::types::Result;
use tokio::sync::OnceCell;

use super::distance::Scorer;
use super::distance_exec::NearestRows;
use super::indexed_source::{IndexedSource, SEARCHING};
use super::layout::Layout;
use super::request::SearchRequest;
use crate::errors::{BaseContext, Context, external};
use crate::lookup::{superseded, without_newer};
use crate::plan::{Leaf, ScanRequest, ScanSources, columns_of};
use crate::snapshot::{DeletedRows, Snapshot};
use crate::table::Table;
use crate::visibility::DeadRows;

const ACTION: &str = "searching by an index";
/// How often the index is asked before all rows are read.
const ROUNDS: usize = 3;
/// How many times more candidates each round asks for.
const GROWTH: usize = 8;
/// Candidates beside those that are needed, for the few that turn out superseded.
const SPARE: usize = 8;
/// Queries of a batch that are searched at a time.
const QUERIES_AT_ONCE: usize = 4;
/// How widely Lance probes, on its scale from 0 to 1 with the default 0.5. Lance probes the more
/// partitions, the more rows it is asked for. A search asks for more rows than it returns, to have
/// some in the place of superseded ones: with this effort they come from about as many partitions
/// as the rows of the result would.
const EFFORT: f64 = 0.42;
/// The part of a source's rows, one in so many, from which on dead and deleted ones are masked at
/// once. A mask makes Lance compute the distance of each code of a partition alone, instead of all at once,
/// so a few dead rows are dropped from the candidates (docs/decisions/0044).
const MASKED_PART: u64 = 2;

/// Searches a source of a snapshot by its index.
#[derive(Clone)]
pub(super) struct IndexSearch {
    pub table: Arc<Table>,
    pub snapshot: Arc<Snapshot>,
    pub session: SessionContext,
    pub request: Arc<SearchRequest>,
    pub layout: Arc<Layout>,
    pub scorer: Arc<Scorer>,
    pub source: IndexedSource,
    /// The caller's condition on the rows; it cannot fail on a superseded row.
    pub condition: Option<Expr>,
    /// All superseded rows of an SSTable, compared by key once the first candidates were too few.
    pub compared: Arc<OnceCell<Arc<DeadRows>>>,
}

/// Candidates of the index.
struct Candidates {
    rows: RecordBatch,
    /// Rows that the index found and the base table has deleted.
    deleted: usize,
    /// Whether Lance has no more of them.
    are_all: bool,
}

impl fmt::Debug for IndexSearch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IndexSearch({self})")
    }
}

impl fmt::Display for IndexSearch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (source, index) = (&self.source, &self.source.index);
        let (name, metric, asked) = (&index.name, index.metric, self.first_ask());
        write!(f, "{source}, index={name}, metric={metric}, asked={asked}")?;
        if let Some(dead) = self.dead_rows() {
            write!(f, ", dead={}", dead.len())?;
        }
        if self.request.options.fast_search { write!(f, ", indexed rows alone") } else { Ok(()) }
    }
}

impl Leaf for IndexSearch {
    const NAME: &'static str = "IndexSearchExec";

    fn schema(&self) -> SchemaRef {
        self.layout.candidates()
    }

    fn batches(&self, metrics: BaselineMetrics) -> BoxStream<'static, PlanResult<RecordBatch>> {
        let search = self.clone();
        let searches = (0..self.request.queries.vectors.len()).map(move |query| {
            let search = search.clone();
            async move { search.of_query(query).await }
        });
        let found = stream::iter(searches).buffered(QUERIES_AT_ONCE);
        let batches = found.map_ok(|batches| stream::iter(batches.into_iter().map(Ok)));
        let batches = batches.map_err(external).try_flatten();
        batches.map(move |batch| batch.record_output(&metrics)).boxed()
    }
}

impl IndexSearch {
    /// The nearest live rows of the source for the query at `query`.
    async fn of_query(&self, query: usize) -> Result<Vec<RecordBatch>> {
        let mut ask = self.first_ask();
        let mut masks = self.masks_at_once();
        for _ in 0..ROUNDS {
            let Candidates { rows, deleted, are_all } = self.candidates(query, ask, masks).await?;
            let live = self.live(rows).await?;
            if are_all || live.num_rows() >= self.wanted() {
                return Ok(vec![self.scored(query, &live)?]);
            }
            if !masks {
                self.compare_keys().await?;
                masks = true;
                if self.dead_rows().is_some() || live.num_rows() + deleted >= self.wanted() {
                    continue;
                }
            }
            ask = ask.saturating_mul(GROWTH);
        }
        if self.request.options.fast_search {
            let all = self.count_rows(&self.source.dataset).await?;
            let Candidates { rows, .. } = self.candidates(query, all, true).await?;
            return Ok(vec![self.scored(query, &self.live(rows).await?)?]);
        }
        self.without_index(query).await
    }

    /// Compares all keys of an SSTable with those above it, so that Lance leaves the superseded rows
    /// out and one more round suffices; not where Lance takes no mask.
    async fn compare_keys(&self) -> Result<()> {
        let Some(sstable) = &self.source.sstable else { return Ok(()) };
        if self.layout.key.is_empty() || self.takes_no_mask() {
            return Ok(());
        }
        let compare = async || superseded(&self.source.newer, sstable).await.map(Arc::new);
        self.compared.get_or_try_init(compare).await?;
        Ok(())
    }

    /// Whether the first round leaves dead rows out: those of a merge rule, which keys do not tell,
    /// and many, of which the base table may have deleted some.
    fn masks_at_once(&self) -> bool {
        let rows = self.source.num_rows();
        let dead = self.dead_rows();
        let gone = dead.as_ref().map_or(0, |dead| dead.len());
        let gone = gone.saturating_add(self.source.num_deleted() as u64);
        let has_losers = self.snapshot.rule().is_some() && dead.is_some();
        has_losers || gone.saturating_mul(MASKED_PART) >= rows as u64
    }

    /// Live candidates that the result needs, so that exact distances decide among enough of them.
    fn wanted(&self) -> usize {
        let factor = self.request.options.refine_factor.map(|factor| factor as usize);
        self.request.keep().saturating_mul(factor.unwrap_or(self.source.index.refine_factor))
    }

    /// The candidates of the first round: so many that enough of them are live.
    fn first_ask(&self) -> usize {
        let (wanted, deleted) = (self.wanted(), self.source.num_deleted());
        if !self.source.newer.is_base_only() {
            return wanted.saturating_mul(2).saturating_add(SPARE);
        }
        let is_masked = self.condition.is_some() || self.masks_at_once();
        if is_masked || self.source.with_deleted().is_none() {
            return wanted;
        }
        // All that may be dead is deleted, and it is known how much of the source that is.
        let rows = self.source.num_rows();
        let most = wanted.saturating_mul(2);
        let needed = wanted.saturating_mul(rows).div_ceil(rows.saturating_sub(deleted).max(1));
        needed.clamp(wanted, most).saturating_add(SPARE)
    }

    async fn count_rows(&self, dataset: &Dataset) -> Result<usize> {
        self.source.named(dataset.count_rows(None).await)
    }

    /// The nearest rows of the index, `ask` of them. `masks` has Lance leave the dead ones out that
    /// are known.
    async fn candidates(&self, query: usize, ask: usize, masks: bool) -> Result<Candidates> {
        let source = &self.source;
        let all_rows = source.with_deleted();
        let dataset = all_rows.as_ref().unwrap_or(&source.dataset);
        let query = &self.request.queries.vectors[query];
        let mut scanner = source.planned(self.scanner(dataset, query, ask))?;
        if let Some(mask) = self.mask(masks).await? {
            scanner.with_row_id_prefilter(mask);
        }
        let columns = source.planned(columns_of(dataset, &self.layout.read()))?;
        let (found, rows) = if let Some(rows) = &source.rows {
            source.planned(scanner.empty_project().map(drop))?;
            scanner.with_row_id();
            let found = source.named(scanner.try_into_batch().await)?;
            let rows = rows.read(&source.dataset, &found, columns).await;
            (found.num_rows(), source.named(rows)?)
        } else {
            source.planned(scanner.project_with_schema(&columns).map(drop))?;
            let rows = source.named(scanner.try_into_batch().await)?;
            (rows.num_rows(), rows)
        };
        // Fewer than asked for: the partitions that were probed have no more, or the table has not.
        let limits_probes = self.request.options.maximum_nprobes.is_some();
        let are_all = found < ask
            && (limits_probes
                || self.request.options.fast_search
                || source.is_searched_to_its_end()
                || (self.condition.is_none() && found == self.count_rows(dataset).await?));
        let deleted = found - rows.num_rows();
        Ok(Candidates { rows, deleted, are_all })
    }

    fn scanner(
        &self,
        dataset: &Dataset,
        query: &ArrayRef,
        ask: usize,
    ) -> lance_core::Result<Scanner> {
        let options = &self.request.options;
        let mut scanner = dataset.scan();
        scanner.disable_scoring_autoprojection();
        scanner.prefilter(true);
        scanner.nearest(&self.layout.vector, query.as_ref(), ask)?;
        scanner.distance_metric(self.source.index.metric.of_lance());
        if options.minimum_nprobes.or(options.maximum_nprobes).is_none() {
            scanner.search_effort(EFFORT)?;
        }
        if let Some(least) = options.minimum_nprobes {
            scanner.minimum_nprobes(least);
        }
        if let Some(most) = options.maximum_nprobes {
            scanner.maximum_nprobes(most);
        }
        if let Some(ef) = options.ef {
            scanner.ef(ef.max(ask));
        }
        if options.fast_search {
            scanner.fast_search();
        }
        if let Some(condition) = &self.condition {
            scanner.filter_expr(condition.clone());
            // As in a scan: Lance 14.0.2 takes rows of a legacy file by their addresses, and panics.
            if dataset.manifest().data_storage_format.version == ConcreteFileVersion::V1 {
                scanner.use_scalar_index(false);
            }
        }
        Ok(scanner)
    }

    fn takes_no_mask(&self) -> bool {
        self.source.dataset.manifest().uses_stable_row_ids()
    }

    fn dead_rows(&self) -> Option<Arc<DeadRows>> {
        let dead = self.compared.get().or(self.source.dead.as_ref());
        dead.filter(|dead| !dead.is_empty()).cloned()
    }

    /// Rows that Lance leaves out, where there is a mask: with `masks` the superseded ones that are
    /// known, and the deleted ones of a version that is searched with them. Every search of a version
    /// is one with them, because Lance's cache keeps what it finds of a segment by the version. Lance
    /// masks row ids, which are addresses only in a table without stable row ids.
    async fn mask(&self, masks: bool) -> Result<Option<RowAddrMask>> {
        if self.takes_no_mask() || !(masks || self.condition.is_some()) {
            return Ok(None);
        }
        let mut left_out = DeletedRows::new();
        if let Some(dead) = self.dead_rows().filter(|_| masks) {
            left_out.extend(dead.fragments().map(|(fragment, rows)| (fragment, rows.clone())));
        }
        let source = &self.source;
        if let (Some(_), Some(rows)) = (source.with_deleted(), &source.rows) {
            let deleted = source.named(rows.deleted(&source.dataset).await)?;
            for (fragment, rows) in deleted.into_iter().flatten() {
                *left_out.entry(*fragment).or_default() |= rows;
            }
        }
        if left_out.is_empty() {
            return Ok(None);
        }
        let mut mask = RowAddrTreeMap::new();
        for (fragment, rows) in left_out {
            mask.insert_bitmap(fragment, rows);
        }
        Ok(Some(RowAddrMask::from_block(mask)))
    }

    /// The candidates that no newer row of their key supersedes.
    async fn live(&self, candidates: RecordBatch) -> Result<RecordBatch> {
        if self.layout.key.is_empty() || self.source.newer.is_base_only() {
            return Ok(candidates);
        }
        let live = without_newer(&self.source.newer, &candidates).await?;
        filter_record_batch(&candidates, &live).context(ACTION)
    }

    fn scored(&self, query: usize, live: &RecordBatch) -> Result<RecordBatch> {
        self.nearest_rows().of_query(query, live).context(ACTION)
    }

    fn nearest_rows(&self) -> NearestRows {
        NearestRows::new(self.scorer.clone(), self.layout.clone(), self.request.keep())
    }

    /// The same rows by reading all rows of the source.
    async fn without_index(&self, query: usize) -> Result<Vec<RecordBatch>> {
        let request = ScanRequest {
            columns: Some(self.layout.read()),
            filter: self.request.prefilter().cloned(),
            sources: ScanSources::arms([self.source.arm]),
            ..ScanRequest::default()
        };
        let scan = self.table.plan(&self.session, &self.snapshot, &request).await?;
        let mut rows = execute_stream(scan.plan, self.session.task_ctx()).in_base(SEARCHING)?;
        let (mut nearest, mut found) = (self.nearest_rows(), Vec::new());
        while let Some(batch) = rows.try_next().await.in_base(SEARCHING)? {
            found.push(nearest.of_query(query, &batch).context(ACTION)?);
        }
        Ok(found)
    }
}
