//! Searches of a table.
//!
//! Owns: the calls, and the snapshot that each execution reads.
//! Does not own: the plan (`planner`), or the forms of a result (`Scan` in `table`).

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::prelude::SessionContext;
use lancemem_core::types::Result;

use super::planner::Planner;
use super::request::{SearchRequest, refuse};
use super::{QueryVectors, SearchOptions};
use crate::plan::{ScanPlan, session};
use crate::snapshot::Snapshot;
use crate::table::{LiveJob, Scan, SnapshotQuery, Table};

impl Table {
    /// A lazy search for the rows nearest to a vector, whose every execution reads a new snapshot.
    /// `jobs` are as in [`Table::scan`]. The result has the columns of `options`, then `_distance`,
    /// in the order of the distances and then of the keys. A row whose vector is null or has a
    /// null, or whose distance is no number, is not in it. A batch of vectors has `query_index`
    /// before all columns.
    ///
    /// ```no_run
    /// use std::sync::Arc;
    ///
    /// use arrow_array::Float32Array;
    /// use lancemem::{QueryVectors, SearchOptions, Table};
    ///
    /// # async fn example() -> lancemem::Result<()> {
    /// let table = Table::open("/data/documents.lance").await?;
    /// let query = QueryVectors::one(Arc::new(Float32Array::from(vec![0.1, 0.9])))?;
    /// let options = SearchOptions::default().with_k(5);
    /// let (_, batches) = table.search(query, options, Vec::new())?.collect().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// An input error for options that no table can meet.
    pub fn search(
        self: &Arc<Self>,
        query: QueryVectors,
        options: SearchOptions,
        jobs: Vec<Arc<dyn LiveJob>>,
    ) -> Result<Scan> {
        refuse(&options)?;
        let consistency = options.consistency;
        Ok(Scan::of_query(self.clone(), consistency, jobs, Arc::new(Search { query, options })))
    }

    /// The same over a snapshot of [`Table::snapshot`].
    ///
    /// # Errors
    /// As [`Table::search`].
    pub fn search_of_snapshot(
        self: &Arc<Self>,
        query: QueryVectors,
        options: SearchOptions,
        snapshot: Arc<Snapshot>,
    ) -> Result<Scan> {
        refuse(&options)?;
        let query = Arc::new(Search { query, options });
        Ok(Scan::of_snapshot_query(self.clone(), snapshot, query))
    }
}

/// A search that has not begun.
#[derive(Debug)]
pub(super) struct Search {
    pub query: QueryVectors,
    pub options: SearchOptions,
}

#[async_trait]
impl SnapshotQuery for Search {
    async fn plan(
        &self,
        table: &Arc<Table>,
        snapshot: &Arc<Snapshot>,
    ) -> Result<(ScanPlan, SessionContext)> {
        let session = session();
        let request = SearchRequest::of(&session, snapshot, &self.query, &self.options).await?;
        let request = Arc::new(request);
        let plan = Planner { session: &session, table, snapshot, request }.plan().await?;
        Ok((plan, session))
    }
}
