//! The plan of a full-text search.
//!
//! Owns: which sources are searched by an index and which are read, and the nodes above them.
//! Does not own: what the nodes do.

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionContext;
use lance::Dataset;
use lance_file::version::ConcreteFileVersion;
use lancemem_core::types::{Error, Result};
use roaring::RoaringBitmap;

use super::analysis::Analysis;
use super::flat::FlatTexts;
use super::index_scores::{IndexedText, SEARCHING, dead_rows};
use super::layout::TextLayout;
use super::leaf::TextSearchLeaf;
use super::memory::MemoryText;
use super::query::TextSearch;
use super::request::TextRequest;
use super::segments::TextIndex;
use crate::errors::{BaseContext, SsTableErrors};
use crate::memory_indexes::MakeTexts;
use crate::plan::{
    Filter, LeafExec, Pruned, ScanPlan, ScanRequest, ScanSources, filtered, projected,
};
use crate::schema::StoredColumns;
use crate::search::SearchOptions;
use crate::search::late_columns::LateColumnsStep;
use crate::search::node::StepExec;
use crate::snapshot::{Snapshot, Source, SsTableHandle};
use crate::table::Table;
use crate::visibility::KnownRows;

/// What all parts of one plan share.
pub(in crate::search) struct TextPlanner<'a> {
    pub session: &'a SessionContext,
    pub table: &'a Arc<Table>,
    pub snapshot: &'a Arc<Snapshot>,
    pub search: &'a TextSearch,
    pub options: &'a SearchOptions,
}

/// The sources of a search.
struct Sources {
    indexed: Vec<IndexedText>,
    memory: Vec<MemoryText>,
    /// The arms that are read.
    flat: BTreeSet<usize>,
    /// The fragments of the base table that are read; `None` for all.
    fragments: Option<RoaringBitmap>,
}

/// A source with an index of every text column, over the same fragments.
struct Usable {
    arm: usize,
    dataset: Arc<Dataset>,
    indexes: Vec<TextIndex>,
    covered: RoaringBitmap,
    /// The name of the SSTable; `None` for the base table.
    sstable: Option<Arc<str>>,
}

impl Usable {
    /// The fragments without an index.
    fn uncovered(&self) -> RoaringBitmap {
        let fragments = self.dataset.fragments().iter();
        let all: RoaringBitmap = fragments.filter_map(|it| u32::try_from(it.id).ok()).collect();
        all - &self.covered
    }

    /// The source with its dead rows.
    async fn with_dead(
        self,
        snapshot: &Snapshot,
        known: Option<&KnownRows>,
    ) -> Result<IndexedText> {
        let superseded = known.map(|known| known.of_arm(snapshot, self.arm));
        let dead = dead_rows(&self.dataset, &self.covered, superseded.as_deref()).await;
        let dead = match &self.sstable {
            Some(name) => dead.in_sstable(name)?,
            None => dead.in_base(SEARCHING)?,
        };
        let Self { dataset, indexes, sstable, .. } = self;
        Ok(IndexedText { dataset, indexes, dead: Arc::new(dead), sstable })
    }
}

impl TextPlanner<'_> {
    /// The plan.
    ///
    /// # Errors
    /// An input error for a query, columns or a condition that do not fit the table.
    pub async fn plan(&self) -> Result<ScanPlan> {
        let TextRequest { analysis, indexes } = TextRequest::of(self.snapshot, self.search).await?;
        let filter = match &self.options.filter {
            Some(condition) => Some(condition.resolve(self.session, &self.snapshot.schema).await?),
            None => None,
        };
        let (before, after) = match &filter {
            Some(filter) if self.options.prefilter => (Some(filter), None),
            other => (None, other.as_ref()),
        };
        let columns = |filter: Option<&Filter>| filter.map(Filter::columns).unwrap_or_default();
        let asked = self.options.columns.as_deref();
        let layout = TextLayout::of(self.snapshot, asked, &columns(before), &columns(after))?;
        let layout = Arc::new(layout);
        let analysis = Arc::new(analysis);
        let texts: Vec<&str> = analysis.columns.iter().map(|it| it.name.as_str()).collect();
        let read = layout.read(&texts);
        let sources = self.sources(&analysis, indexes, &layout, &read).await?;
        let (flat, pruned) = self.flat(&sources, read).await?;
        let condition = before.map(|it| it.physical(self.session, &layout.rows())).transpose()?;
        let (offset, k) = (self.options.offset, self.options.k);
        let (indexed, memory) = (sources.indexed, sources.memory);
        let (of, on) = (layout.clone(), analysis);
        let leaf = TextSearchLeaf {
            analysis: on,
            layout: of,
            indexed,
            memory,
            flat,
            condition,
            offset,
            k,
        };
        let mut rows: Arc<dyn ExecutionPlan> = Arc::new(LeafExec::new(leaf));
        if !layout.late.is_empty() {
            let (snapshot, late) = (self.snapshot.clone(), layout.late.clone());
            let step = LateColumnsStep { snapshot, late, schema: layout.chosen() };
            rows = Arc::new(StepExec::new(step, rows));
        }
        let rows = filtered(self.session, rows, after)?;
        Ok(ScanPlan { plan: projected(rows, &layout.result())?, pruned })
    }

    async fn sources(
        &self,
        analysis: &Analysis,
        indexes: Vec<Option<TextIndex>>,
        layout: &TextLayout,
        read: &[String],
    ) -> Result<Sources> {
        let all: BTreeSet<usize> = (0..=self.snapshot.sources().count()).collect();
        let mut sources =
            Sources { indexed: Vec::new(), memory: Vec::new(), flat: all, fragments: None };
        if self.options.fast_search && indexes.iter().any(Option::is_none) {
            return Err(Error::input(
                "fast_search=True searches indexed rows alone, and a column of the query has no \
                 INVERTED index",
            ));
        }
        if self.options.exact {
            return Ok(sources);
        }
        self.add_memory(analysis, &indexes, layout, &mut sources)?;
        let usable = self.usable(analysis, indexes, read).await?;
        if usable.is_empty() {
            return Ok(sources);
        }
        let is_superseded = !self.snapshot.key.is_empty() && !self.snapshot.is_base_only();
        let dead = if is_superseded {
            match self.table.find_dead_rows(self.session, self.snapshot).await? {
                Some(dead) => Some(dead),
                None => return Ok(sources),
            }
        } else {
            None
        };
        for source in usable {
            let arm = source.arm;
            let left = source.uncovered();
            sources.indexed.push(source.with_dead(self.snapshot, dead.as_ref()).await?);
            if left.is_empty() {
                sources.flat.remove(&arm);
            } else {
                sources.fragments = Some(left);
            }
        }
        if self.options.fast_search {
            sources.memory.clear();
            sources.flat.clear();
        }
        Ok(sources)
    }

    /// The large MemTables that are the newest source of their shard.
    fn add_memory(
        &self,
        analysis: &Analysis,
        indexes: &[Option<TextIndex>],
        layout: &TextLayout,
        sources: &mut Sources,
    ) -> Result<()> {
        // The index in memory drops all but the newest row of a key.
        if self.snapshot.rule().is_some() {
            return Ok(());
        }
        let makers = analysis.columns.iter().zip(indexes).map(|(column, index)| {
            let recorded = index.as_ref().and_then(|index| index.recorded.as_ref());
            let recorded = recorded.filter(|it| it.has_positions() || !column.needs_positions);
            Arc::new(MakeTexts::new(&column.name, recorded.unwrap_or(&column.params)))
        });
        let makers: Arc<[Arc<MakeTexts>]> = makers.collect();
        for (arm, (_, source)) in (1..).zip(self.snapshot.sources()) {
            let Source::MemTable(view) = source else { continue };
            if !self.snapshot.key.is_empty() && !self.snapshot.is_newest_source(arm - 1) {
                continue;
            }
            let columns =
                StoredColumns::of(view.schema(), &self.snapshot.columns, &layout.carried)?;
            let has_texts = analysis.columns.iter().all(|column| {
                let name = std::slice::from_ref(&column.name);
                let stored = StoredColumns::of(view.schema(), &self.snapshot.columns, name);
                stored.is_ok_and(|stored| stored.is_same())
            });
            if let Some(memory) = MemoryText::of(view, &makers, columns).filter(|_| has_texts) {
                sources.flat.remove(&arm);
                sources.memory.push(memory);
            }
        }
        Ok(())
    }

    /// The sources with usable indexes: the base table, of which some fragments may have none, and
    /// SSTables.
    async fn usable(
        &self,
        analysis: &Analysis,
        indexes: Vec<Option<TextIndex>>,
        read: &[String],
    ) -> Result<Vec<Usable>> {
        let base = &self.snapshot.base;
        let indexes = indexes.into_iter().collect::<Option<Vec<_>>>();
        let fitting_base = indexes.and_then(|it| fitting(base, it, analysis));
        let mut usable: Vec<Usable> = fitting_base
            .map(|(indexes, covered)| {
                let (arm, dataset, sstable) = (0, base.clone(), None);
                Usable { arm, dataset, indexes, covered, sstable }
            })
            .into_iter()
            .collect();
        for (arm, (_, source)) in (1..).zip(self.snapshot.sources()) {
            if let Source::SsTable(sstable) = source {
                usable.extend(self.usable_sstable(analysis, (arm, sstable), read).await?);
            }
        }
        Ok(usable)
    }

    /// An SSTable by its indexes; `None` where they do not cover it, or its columns are older.
    async fn usable_sstable(
        &self,
        analysis: &Analysis,
        (arm, sstable): (usize, &SsTableHandle),
        read: &[String],
    ) -> Result<Option<Usable>> {
        let stored = StoredColumns::of(&sstable.columns, &self.snapshot.columns, read);
        // A column that cannot be reconciled is an error of the scan, which names it.
        if !stored.is_ok_and(|stored| stored.is_same()) {
            return Ok(None);
        }
        let Some(dataset) = sstable.indexed().await? else { return Ok(None) };
        let name = sstable.name();
        let mut indexes = Vec::with_capacity(analysis.columns.len());
        for column in &analysis.columns {
            indexes.extend(TextIndex::of(dataset, &column.name).await.in_sstable(&name)?);
        }
        if indexes.len() < analysis.columns.len() {
            return Ok(None);
        }
        let Some((indexes, covered)) = fitting(dataset, indexes, analysis) else { return Ok(None) };
        let (dataset, sstable) = (dataset.clone(), Some(name.into()));
        let usable = Usable { arm, dataset, indexes, covered, sstable };
        Ok(Some(usable).filter(|usable| usable.uncovered().is_empty()))
    }

    /// The rows that are read.
    async fn flat(
        &self,
        sources: &Sources,
        columns: Vec<String>,
    ) -> Result<(Option<FlatTexts>, Vec<Pruned>)> {
        if sources.flat.is_empty() {
            return Ok((None, Vec::new()));
        }
        let all = self.snapshot.sources().count() + 1;
        let is_all = sources.flat.len() == all && sources.fragments.is_none();
        let request = ScanRequest {
            columns: Some(columns),
            sources: if is_all {
                ScanSources::All
            } else {
                ScanSources::arms(sources.flat.iter().copied())
            },
            base_fragments: sources.fragments.clone(),
            ..ScanRequest::default()
        };
        let ScanPlan { plan, pruned } =
            self.table.plan(self.session, self.snapshot, &request).await?;
        let (session, sources) = (self.session.clone(), sources.flat.len());
        Ok((Some(FlatTexts { plan, session, sources }), pruned))
    }
}

/// The segments of `indexes` that score as the query needs it, and the fragments that they cover;
/// `None` where they cover different ones, or rows have no addresses in them.
fn fitting(
    dataset: &Dataset,
    indexes: Vec<TextIndex>,
    analysis: &Analysis,
) -> Option<(Vec<TextIndex>, RoaringBitmap)> {
    let manifest = dataset.manifest();
    let is_addressed = !manifest.uses_stable_row_ids()
        && manifest.data_storage_format.version != ConcreteFileVersion::V1;
    let indexes = indexes.into_iter().zip(&analysis.columns);
    let indexes: Vec<_> = indexes.map(|(index, column)| index.fitting(&column.params)).collect();
    let covered = indexes.first()?.fragments();
    let is_same = indexes.iter().all(|index| index.fragments() == covered);
    (is_addressed && is_same && !covered.is_empty()).then_some((indexes, covered))
}
