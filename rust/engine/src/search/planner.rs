//! The plan of a search.
//!
//! Owns: which sources are compared in memory, searched by an index, read, or left out, and the
//! nodes above them.
//! Does not own: what the nodes do.

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::union::UnionExec;
use datafusion::prelude::SessionContext;
use futures::future::try_join_all;
use lance::Dataset;
use lancemem_core::types::{Error, Result};

use super::Metric;
use super::distance::Scorer;
use super::distance_exec::DistanceStep;
use super::flat_search::FlatSearch;
use super::flat_source::{FlatBudget, FlatSource, RowCondition};
use super::index_search::IndexSearch;
use super::indexed_source::{IndexedSource, base_index};
use super::late_columns::LateColumnsStep;
use super::layout::{Asked, Layout};
use super::memory_rows::MemoryAccess;
use super::node::StepExec;
use super::request::SearchRequest;
use super::table_index::TableIndex;
use super::top_k::TopKStep;
use crate::errors::Context;
use crate::memory_indexes::{Probes, min_vector_bytes};
use crate::plan::{
    Filter, LeafExec, OrderedFilter, Pruned, ScanPlan, ScanRequest, ScanSources, filtered,
    projected,
};
use crate::snapshot::{Snapshot, Source};
use crate::table::Table;
use crate::visibility::KnownRows;

/// Queries up to which a batch is compared in memory one by one.
const FLAT_QUERIES: usize = 4;

type Node = Arc<dyn ExecutionPlan>;

/// What all parts of one plan share.
pub(super) struct Planner<'a> {
    pub session: &'a SessionContext,
    pub table: &'a Arc<Table>,
    pub snapshot: &'a Arc<Snapshot>,
    pub request: Arc<SearchRequest>,
}

impl Planner<'_> {
    /// The plan.
    ///
    /// # Errors
    /// An input error for columns that are not there, or a search of an index that is not there.
    pub async fn plan(&self) -> Result<ScanPlan> {
        let of_column = if self.needs_index() {
            base_index(self.snapshot, &self.request.column.name).await?
        } else {
            None
        };
        let metric = self.metric(of_column.as_ref())?;
        let index = self.usable(of_column)?;
        let layout = Arc::new(self.layout(index.is_none())?);
        let known = self.table.known_dead_rows(self.snapshot).await?;
        let scorer = Arc::new(Scorer {
            queries: self.request.queries.vectors.clone(),
            metric,
            range: self.request.options.distance_range,
        });
        let (dead, mut pruned) = self.without_live_rows(known.as_ref());
        let flat = self.flat(&dead, &layout, known.as_ref())?;
        let access = self.memory_access(&flat, index.as_ref()).await;
        let done: BTreeSet<usize> = flat.iter().map(|it| it.arm).chain(dead).collect();
        let indexed = self.indexed(index, metric, &layout, (&done, known.as_ref())).await?;
        let left = self.left(&indexed, &done);
        let by_index = indexed.into_iter().map(|source| self.by_index(source, &layout, &scorer));
        let in_memory = flat
            .into_iter()
            .zip(access)
            .map(|(source, access)| self.in_memory(source, access, &layout, &scorer));
        let mut sources: Vec<Node> = by_index.chain(in_memory).collect();
        if let Some(left) = left.filter(|_| !self.request.options.fast_search) {
            let (read, left_out) = self.by_reading(left, &layout, &scorer).await?;
            sources.push(read);
            pruned.extend(left_out);
        }
        let plan = self.above(union(sources, &layout)?, &layout)?;
        Ok(ScanPlan { plan, pruned })
    }

    /// Whether the search uses the base table's index, or its metric.
    fn needs_index(&self) -> bool {
        !self.request.options.exact || self.request.metric.is_none()
    }

    /// The arms of sources whose rows are all known to be dead.
    fn without_live_rows(&self, known: Option<&KnownRows>) -> (BTreeSet<usize>, Vec<Pruned>) {
        let (mut arms, mut pruned) = (BTreeSet::new(), Vec::new());
        let Some(known) = known else { return (arms, pruned) };
        let is_dead = |arm: usize, dataset: &Dataset| {
            let dead = known.of_arm(self.snapshot, arm);
            dataset.fragments().iter().all(|fragment| dead.is_whole(fragment))
        };
        if is_dead(0, &self.snapshot.base) {
            arms.insert(0);
        }
        for (arm, (_, source)) in (1..).zip(self.snapshot.sources()) {
            if let Source::SsTable(sstable) = source
                && is_dead(arm, &sstable.dataset)
            {
                arms.insert(arm);
                pruned.push(Pruned::superseded(arm - 1, sstable));
            }
        }
        (arms, pruned)
    }

    /// The sources whose vectors are compared in memory.
    fn flat(
        &self,
        dead: &BTreeSet<usize>,
        layout: &Layout,
        known: Option<&KnownRows>,
    ) -> Result<Vec<FlatSource>> {
        // A scan reads a block of vectors once for all queries of a batch. A fast search is one of
        // indexes alone. Keys alone do not tell which rows a merge rule shows; a scan does.
        let is_batch = self.request.queries.vectors.len() > FLAT_QUERIES;
        if self.request.options.fast_search || is_batch || self.snapshot.rule().is_some() {
            return Ok(Vec::new());
        }
        let filter = self.request.prefilter();
        let condition = filter.map(|filter| RowCondition::of(self.session, self.snapshot, filter));
        let condition = condition.transpose()?.flatten();
        if filter.is_some() && condition.is_none() {
            return Ok(Vec::new());
        }
        let mut budget = FlatBudget::of(self.snapshot);
        let sources = (1..).zip(self.snapshot.sources()).filter(|(arm, _)| !dead.contains(arm));
        let flat = sources.filter_map(|(arm, (_, source))| {
            let is_stored = matches!(source, Source::SsTable(_));
            let dead = known.filter(|_| is_stored).map(|known| known.of_arm(self.snapshot, arm));
            let more = (condition.as_ref(), &mut budget);
            FlatSource::of(self.snapshot, (arm, &source), layout, dead, more)
        });
        Ok(flat.collect())
    }

    /// For each source that is compared in memory, the indexes of rows in memory that leave some of
    /// its rows. `index` is the base table's index that the search uses.
    async fn memory_access(
        &self,
        flat: &[FlatSource],
        index: Option<&TableIndex>,
    ) -> Vec<MemoryAccess> {
        let (request, options) = (&self.request, &self.request.options);
        let filter = request.prefilter().filter(|_| !options.exact);
        let ordered = OrderedFilter::of(self.snapshot, filter).await;
        let row_bytes =
            request.column.width * request.column.element.primitive_width().unwrap_or(0);
        let is_large = |source: &FlatSource| {
            source.memtable().is_some_and(|it| it.rows() * row_bytes >= min_vector_bytes())
        };
        let lists = match index {
            Some(index) if flat.iter().any(is_large) => {
                self.table.memory_lists(&self.snapshot.base, &index.segment).await
            }
            _ => None,
        };
        let (least, most) = (options.minimum_nprobes, options.maximum_nprobes);
        let lists = lists.map(|lists| (lists, Probes { least, most, keep: request.keep() }));
        let access = |source: &FlatSource| {
            let Some(view) = source.memtable() else { return MemoryAccess::default() };
            let ordered = ordered.as_ref().and_then(|it| it.of_view(self.snapshot, view));
            let lists = lists.clone().filter(|_| is_large(source));
            MemoryAccess { lists, ordered }
        };
        flat.iter().map(access).collect()
    }

    /// Whether an index may stand for reading rows.
    fn may_use_indexes(&self) -> bool {
        let (request, options) = (&self.request, &self.request.options);
        // Nothing bounds the candidates that a lower bound of distances leaves out.
        let needs_all_rows = options.exact || options.distance_range.0.is_some();
        let can_fail = |filter: &Filter| filter.split_fallible().1.is_some();
        // Lance masks rows by their ids, and where a merge rule decides nothing else leaves out rows
        // that lost.
        let is_masked =
            self.snapshot.rule().is_none() || !self.snapshot.base.manifest().uses_stable_row_ids();
        is_masked
            && (options.fast_search || !needs_all_rows)
            && !request.prefilter().is_some_and(can_fail)
    }

    /// The index to search the base table by; `None` where its rows are to be read.
    fn usable(&self, of_column: Option<TableIndex>) -> Result<Option<TableIndex>> {
        let (request, options) = (&self.request, &self.request.options);
        let metric = request.metric;
        let fits = |index: &TableIndex| metric.is_none_or(|metric| metric == index.metric);
        let index = of_column.filter(fits).filter(|_| self.may_use_indexes());
        if options.fast_search && index.is_none() {
            let of_metric = metric.map_or_else(String::new, |it| format!(" of metric '{it}'"));
            return Err(Error::input(format!(
                "fast_search: column '{}' of the base table has no vector index{of_metric} that \
                 this search can use; create one, or leave fast_search out",
                request.column.name
            )));
        }
        Ok(index)
    }

    /// The sources that are searched by an index: the base table with `index`, and SSTables, without
    /// those of the arms `done`.
    async fn indexed(
        &self,
        index: Option<TableIndex>,
        metric: Metric,
        layout: &Layout,
        (done, known): (&BTreeSet<usize>, Option<&KnownRows>),
    ) -> Result<Vec<IndexedSource>> {
        if !self.may_use_indexes() {
            return Ok(Vec::new());
        }
        let column = (self.request.column.name.as_str(), metric);
        let mut read: BTreeSet<String> = layout.read().into_iter().collect();
        read.extend(self.request.prefilter().map(Filter::columns).unwrap_or_default());
        let read: Vec<String> = read.into_iter().collect();
        let sstables = (1..).zip(self.snapshot.sources()).filter_map(|(arm, (_, source))| {
            let Source::SsTable(sstable) = source else { return None };
            if done.contains(&arm) {
                return None;
            }
            let of = (arm, sstable);
            Some(IndexedSource::of_sstable(self.snapshot, of, column, &read, known))
        });
        let sstables = try_join_all(sstables).await?;
        let base = index.filter(|_| !done.contains(&0));
        let base = base.map(|index| IndexedSource::of_base(self.snapshot, index, known));
        Ok(base.into_iter().chain(sstables.into_iter().flatten()).collect())
    }

    /// The sources that are read, because they are neither among `indexed` nor `done`; `None` for
    /// none.
    fn left(&self, indexed: &[IndexedSource], done: &BTreeSet<usize>) -> Option<ScanSources> {
        if indexed.is_empty() && done.is_empty() {
            return Some(ScanSources::All);
        }
        let arms = 0..=self.snapshot.sources().count();
        let is_left =
            |arm: &usize| !done.contains(arm) && indexed.iter().all(|source| source.arm != *arm);
        let left: Vec<usize> = arms.filter(is_left).collect();
        (!left.is_empty()).then(|| ScanSources::arms(left))
    }

    fn metric(&self, index: Option<&TableIndex>) -> Result<Metric> {
        let column = &self.request.column;
        let metric = self.request.metric.or(index.map(|index| index.metric));
        let metric = metric.unwrap_or_else(|| Metric::default_of(&column.element));
        if metric == Metric::Cosine && self.request.queries.has_zero {
            return Err(Error::input(
                "query: a vector of zeros has no cosine distance from any row",
            ));
        }
        Ok(metric)
    }

    fn layout(&self, defers: bool) -> Result<Layout> {
        let postfilter = self.request.postfilter().map(Filter::columns);
        let asked = Asked {
            columns: self.request.options.columns.as_deref(),
            postfilter: postfilter.unwrap_or_default(),
            vector: &self.request.column.name,
            is_batch: self.request.is_batch,
            defers,
        };
        Layout::of(self.snapshot, &asked)
    }

    fn by_index(&self, source: IndexedSource, layout: &Arc<Layout>, scorer: &Arc<Scorer>) -> Node {
        let condition = self.request.prefilter().and_then(|filter| filter.split_fallible().0);
        Arc::new(LeafExec::new(IndexSearch {
            table: self.table.clone(),
            snapshot: self.snapshot.clone(),
            session: self.session.clone(),
            request: self.request.clone(),
            layout: layout.clone(),
            scorer: scorer.clone(),
            source,
            condition,
            compared: Arc::default(),
        }))
    }

    fn in_memory(
        &self,
        source: FlatSource,
        access: MemoryAccess,
        layout: &Arc<Layout>,
        scorer: &Arc<Scorer>,
    ) -> Node {
        Arc::new(LeafExec::new(FlatSearch {
            request: self.request.clone(),
            layout: layout.clone(),
            scorer: scorer.clone(),
            source,
            access,
        }))
    }

    /// The newest rows of `sources`, which are read.
    async fn by_reading(
        &self,
        sources: ScanSources,
        layout: &Arc<Layout>,
        scorer: &Arc<Scorer>,
    ) -> Result<(Node, Vec<Pruned>)> {
        let request = ScanRequest {
            columns: Some(layout.read()),
            filter: self.request.prefilter().cloned(),
            sources,
            ..ScanRequest::default()
        };
        let ScanPlan { plan, pruned } =
            self.table.plan(self.session, self.snapshot, &request).await?;
        let (scorer, layout) = (scorer.clone(), layout.clone());
        let step = DistanceStep { scorer, layout, keep: self.request.keep() };
        Ok((Arc::new(StepExec::new(step, plan)), pruned))
    }

    /// The choice of the nearest rows, and the caller's columns of them.
    fn above(&self, sources: Node, layout: &Arc<Layout>) -> Result<Node> {
        let (options, queries) = (&self.request.options, self.request.queries.vectors.len());
        let (offset, k, of) = (options.offset, options.k, layout.clone());
        let mut rows: Node =
            Arc::new(StepExec::new(TopKStep { layout: of, queries, offset, k }, sources));
        if !layout.late.is_empty() {
            let (snapshot, late) = (self.snapshot.clone(), layout.late.clone());
            let step = LateColumnsStep { snapshot, late, schema: layout.chosen() };
            rows = Arc::new(StepExec::new(step, rows));
        }
        let rows = filtered(self.session, rows, self.request.postfilter())?;
        projected(rows, &layout.result())
    }
}

fn union(mut sources: Vec<Node>, layout: &Layout) -> Result<Node> {
    match sources.pop() {
        None => Ok(Arc::new(EmptyExec::new(layout.candidates()))),
        Some(only) if sources.is_empty() => Ok(only),
        last => {
            sources.extend(last);
            UnionExec::try_new(sources).context("planning a search")
        }
    }
}
