//! The rows that an index finds, and their scores.
//!
//! ```text
//!   statistics   of the segments, less those of dead rows
//!     scores     of each leaf by the segments, with the scorer of the snapshot, dead rows masked
//!       tree     of the leaves of each row
//! ```
//!
//! Owns: [`IndexedText`], a dataset of which a full-text search reads its indexes instead of rows.
//! Does not own: which segments fit (`segments`), or rows that no index covers (`flat`).

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use lance::Dataset;
use lance::dataset::scanner::{RowAddrMask, RowAddrTreeMap};
use lance_core::Result as LanceResult;
use lance_index::metrics::NoOpMetricsCollector;
use lance_index::prefilter::PreFilter;
use lance_index::scalar::inverted::query::FtsSearchParams;
use lancemem_core::types::Result;
use roaring::RoaringBitmap;

use super::analysis::{Analysis, Leaf};
use super::scoring::{ColumnStatistics, Scorers, Statistics};
use super::segments::TextIndex;
use crate::errors::{BaseContext, SsTableErrors};
use crate::visibility::DeadRows;

/// What a search of the base table does, in errors.
pub(super) const SEARCHING: &str = "searching the texts of the base table";

/// A dataset with an index of every text column of a search, over the same fragments.
#[derive(Clone, Debug)]
pub(super) struct IndexedText {
    pub dataset: Arc<Dataset>,
    /// The index of each text column.
    pub indexes: Vec<TextIndex>,
    /// All dead rows of its fragments.
    pub dead: Arc<RowAddrTreeMap>,
    /// The name of the SSTable; `None` for the base table.
    pub sstable: Option<Arc<str>>,
}

impl fmt::Display for IndexedText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.sstable {
            Some(name) => f.write_str(name)?,
            None => write!(f, "base version={}", self.dataset.version().version)?,
        }
        let names: Vec<&str> = self.indexes.iter().map(|it| it.name.as_str()).collect();
        let segments: usize = self.indexes.iter().map(|it| it.segments.len()).sum();
        write!(f, " by index={} of {segments} segments", names.join(", "))
    }
}

/// The dead rows of the fragments `covered` of `dataset`: those that `superseded` has, and those
/// that a deletion file of the dataset has.
///
/// # Errors
/// An error of Lance that reads a deletion file.
pub(super) async fn dead_rows(
    dataset: &Arc<Dataset>,
    covered: &RoaringBitmap,
    superseded: Option<&DeadRows>,
) -> LanceResult<RowAddrTreeMap> {
    let mut dead = RowAddrTreeMap::new();
    for fragment in dataset.get_fragments() {
        let Some(id) = u32::try_from(fragment.id()).ok().filter(|id| covered.contains(*id)) else {
            continue;
        };
        let superseded = superseded.and_then(|it| it.of_fragment(u64::from(id)));
        let mut rows = superseded.cloned().unwrap_or_default();
        if fragment.metadata().deletion_file.is_some()
            && let Some(deleted) = fragment.get_deletion_vector().await?
        {
            rows.extend(deleted.iter());
        }
        if !rows.is_empty() {
            dead.insert_bitmap(id, rows);
        }
    }
    Ok(dead)
}

/// The live rows, in the form in which Lance's indexes take a condition.
struct LiveRows(Arc<RowAddrMask>);

#[async_trait]
impl PreFilter for LiveRows {
    async fn wait_for_ready(&self) -> LanceResult<()> {
        Ok(())
    }

    fn is_empty(&self) -> bool {
        self.0.is_select_all()
    }

    fn mask(&self) -> Arc<RowAddrMask> {
        self.0.clone()
    }

    fn filter_row_ids<'a>(&self, rows: Box<dyn Iterator<Item = &'a u64> + 'a>) -> Vec<u64> {
        self.0.selected_indices(rows)
    }
}

impl IndexedText {
    /// The statistics of its live rows.
    ///
    /// # Errors
    /// An error of Lance that reads the index.
    pub async fn statistics(&self, analysis: &Analysis) -> Result<Statistics> {
        let mut all = Statistics { columns: Vec::with_capacity(analysis.columns.len()) };
        for (column, index) in analysis.columns.iter().zip(&self.indexes) {
            let mut sum = ColumnStatistics {
                total_terms: 0,
                rows: 0,
                rows_with: vec![0; column.terms.len()],
            };
            for segment in index.segments.iter().filter_map(|it| it.opened()) {
                let counted =
                    segment.bm25_row_stats_for_terms(&column.terms, Some(&self.dead), None).await;
                let (total_terms, rows, rows_with) = self.named(counted)?;
                sum.total_terms += total_terms;
                sum.rows += rows;
                for (sum, rows) in sum.rows_with.iter_mut().zip(rows_with) {
                    *sum += rows;
                }
            }
            all.columns.push(sum);
        }
        Ok(all)
    }

    /// The addresses of the rows that the query finds, with their scores, in no order.
    ///
    /// # Errors
    /// An error of Lance that reads the index.
    pub async fn scores(&self, analysis: &Analysis, scorers: &Scorers) -> Result<Vec<(u64, f32)>> {
        let mut of_leaves: Vec<HashMap<u64, f32>> = Vec::with_capacity(analysis.leaves.len());
        for leaf in &analysis.leaves {
            of_leaves.push(self.leaf_scores(leaf, scorers).await?);
        }
        let found: HashSet<u64> = of_leaves.iter().flat_map(HashMap::keys).copied().collect();
        let score = |row: u64| {
            let of_leaf = |number: usize| {
                let score = of_leaves[number].get(&row)?;
                Some(score * analysis.leaves[number].boost)
            };
            analysis.tree.score(&of_leaf).map(|score| (row, score))
        };
        Ok(found.into_iter().filter_map(score).collect())
    }

    async fn leaf_scores(&self, leaf: &Leaf, scorers: &Scorers) -> Result<HashMap<u64, f32>> {
        let mut found = HashMap::new();
        if leaf.terms.is_empty() {
            return Ok(found);
        }
        let params = Arc::new(FtsSearchParams::new().with_phrase_slop(leaf.slop));
        let tokens = Arc::new(leaf.tokens.clone());
        let live: Arc<dyn PreFilter> =
            Arc::new(LiveRows(Arc::new(RowAddrMask::from_block(self.dead.as_ref().clone()))));
        let scorer = &scorers.columns[leaf.column];
        for segment in self.indexes[leaf.column].segments.iter().filter_map(|it| it.opened()) {
            let metrics = Arc::new(NoOpMetricsCollector);
            let scored = segment
                .bm25_search(
                    tokens.clone(),
                    params.clone(),
                    leaf.operator,
                    live.clone(),
                    metrics,
                    Some(scorer),
                )
                .await;
            let (rows, scores) = self.named(scored)?;
            found.extend(rows.into_iter().zip(scores));
        }
        Ok(found)
    }

    /// The result of a read by Lance, with an error that names the source.
    ///
    /// # Errors
    /// That error.
    pub fn named<T>(&self, read: LanceResult<T>) -> Result<T> {
        match &self.sstable {
            Some(name) => read.in_sstable(name),
            None => read.in_base(SEARCHING),
        }
    }
}
