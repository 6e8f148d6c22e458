//! Full-text search: the rows whose texts match a query, with BM25 scores, over one snapshot.
//!
//! ```text
//!   ProjectionExec, FilterExec   the caller's columns; a filter after the choice of rows
//!     LateColumnsExec            wide columns, of the chosen rows alone
//!       TextSearchExec           one scorer for the snapshot, the best rows, ties by key
//!         indexes                of the base table, of SSTables and of large MemTables, less their
//!                                dead rows
//!         the plan of a scan     newest rows of all other sources, whose words are counted
//! ```
//!
//! A score depends on how often words occur in all rows. One scorer therefore serves all sources,
//! and its statistics count the newest rows alone: a flush, a compaction or a new index changes no
//! score, and the scores are those of a new index over the newest rows.
//!
//! Owns: queries, terms, statistics and scores.
//! Does not own: tokenizers and the files of indexes, which are Lance's; which rows are the newest
//! (`visibility`), or scans (`plan`).

mod analysis;
mod candidates;
mod documents;
mod flat;
mod index_scores;
mod layout;
mod leaf;
mod memory;
mod phrase;
mod planner;
mod query;
mod request;
mod scoring;
mod segments;

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::Float32Type;
use async_trait::async_trait;
use datafusion::prelude::SessionContext;
use lancemem_core::types::{Error, Result};

pub(super) use layout::unknown_column;
pub use query::{TextQuery, TextSearch};

use self::planner::TextPlanner;
use super::SearchOptions;
use super::request::refuse;
use crate::plan::{ScanPlan, session};
use crate::snapshot::Snapshot;
use crate::table::{LiveJob, Scan, SnapshotQuery, Table};

/// The column of a result that holds the score of its row, as in Lance.
pub const SCORE: &str = "_score";

/// The scores of found rows.
fn scores_of(rows: &RecordBatch) -> Result<&[f32]> {
    let scores = rows.column_by_name(SCORE);
    let scores = scores.and_then(|scores| scores.as_primitive_opt::<Float32Type>());
    scores
        .map(|scores| scores.values().as_ref())
        .ok_or_else(|| Error::internal("the rows of a full-text search have no score"))
}

impl Table {
    /// A lazy full-text search, whose every execution reads a new snapshot. `jobs` are as in
    /// [`Table::scan`]. The result has the columns of `options`, then `_score`, by descending score
    /// and then by key. Options that concern vectors alone are not used.
    ///
    /// ```no_run
    /// use lancemem::{SearchOptions, Table, TextQuery, TextSearch};
    ///
    /// # async fn example() -> lancemem::Result<()> {
    /// let table = Table::open("/data/documents.lance").await?;
    /// let search = TextSearch::new(TextQuery::matching("snapshot"), vec!["body".to_owned()])?;
    /// let options = SearchOptions::default().with_k(5);
    /// let (_, batches) = table.search_text(search, options, Vec::new())?.collect().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// An input error for options that no table can meet.
    pub fn search_text(
        self: &Arc<Self>,
        search: TextSearch,
        options: SearchOptions,
        jobs: Vec<Arc<dyn LiveJob>>,
    ) -> Result<Scan> {
        refuse(&options)?;
        let consistency = options.consistency;
        let query = Arc::new(SearchOfText { search, options });
        Ok(Scan::of_query(self.clone(), consistency, jobs, query))
    }

    /// The same over a snapshot of [`Table::snapshot`].
    ///
    /// # Errors
    /// As [`Table::search_text`].
    pub fn search_text_of_snapshot(
        self: &Arc<Self>,
        search: TextSearch,
        options: SearchOptions,
        snapshot: Arc<Snapshot>,
    ) -> Result<Scan> {
        refuse(&options)?;
        let query = Arc::new(SearchOfText { search, options });
        Ok(Scan::of_snapshot_query(self.clone(), snapshot, query))
    }
}

/// A full-text search that has not begun.
#[derive(Debug)]
pub(super) struct SearchOfText {
    pub search: TextSearch,
    pub options: SearchOptions,
}

#[async_trait]
impl SnapshotQuery for SearchOfText {
    async fn plan(
        &self,
        table: &Arc<Table>,
        snapshot: &Arc<Snapshot>,
    ) -> Result<(ScanPlan, SessionContext)> {
        let session = session();
        let (search, options) = (&self.search, &self.options);
        let planner = TextPlanner { session: &session, table, snapshot, search, options };
        let plan = planner.plan().await?;
        Ok((plan, session))
    }
}
