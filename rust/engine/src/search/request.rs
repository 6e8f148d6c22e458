//! A search, checked against the columns of a snapshot.
//!
//! Owns: the refusal of what cannot be searched for.
//! Does not own: the plan (`planner`).

use datafusion::prelude::SessionContext;
use lancemem_core::types::{Error, Result};

use super::vector_column::{Queries, VectorColumn};
use super::{Metric, QueryVectors, SearchOptions};
use crate::plan::Filter;
use crate::snapshot::Snapshot;

/// A search of one snapshot.
#[derive(Clone, Debug)]
pub(super) struct SearchRequest {
    pub column: VectorColumn,
    pub queries: Queries,
    pub is_batch: bool,
    /// The caller's metric.
    pub metric: Option<Metric>,
    pub filter: Option<Filter>,
    pub options: SearchOptions,
}

impl SearchRequest {
    /// The search of `snapshot` that `query` and `options` ask for.
    ///
    /// # Errors
    /// An input error for a query or options that do not fit the table.
    pub async fn of(
        session: &SessionContext,
        snapshot: &Snapshot,
        query: &QueryVectors,
        options: &SearchOptions,
    ) -> Result<Self> {
        refuse(options)?;
        let column = options.column.as_deref();
        let column = VectorColumn::choose(&snapshot.schema, column, query.width)?;
        let metric = options.metric.map(|metric| column.accept(metric)).transpose()?;
        let queries = column.queries(query)?;
        let filter = match &options.filter {
            Some(condition) => Some(condition.resolve(session, &snapshot.schema).await?),
            None => None,
        };
        let (is_batch, options) = (query.is_batch, options.clone());
        Ok(Self { column, queries, is_batch, metric, filter, options })
    }

    /// The condition on the rows that are compared.
    pub fn prefilter(&self) -> Option<&Filter> {
        self.filter.as_ref().filter(|_| self.options.prefilter)
    }

    /// The condition on the nearest rows.
    pub fn postfilter(&self) -> Option<&Filter> {
        self.filter.as_ref().filter(|_| !self.options.prefilter)
    }

    /// Rows of each query that the choice looks at.
    pub const fn keep(&self) -> usize {
        self.options.offset.saturating_add(self.options.k)
    }
}

/// Refuses options that no table can meet.
///
/// # Errors
/// An input error that names the option.
pub(super) fn refuse(options: &SearchOptions) -> Result<()> {
    let counts = [
        ("k", Some(options.k)),
        ("minimum_nprobes", options.minimum_nprobes),
        ("maximum_nprobes", options.maximum_nprobes),
        ("ef", options.ef),
        ("refine_factor", options.refine_factor.map(|factor| factor as usize)),
    ];
    if let Some((name, _)) = counts.iter().find(|(_, count)| *count == Some(0)) {
        return Err(Error::input(format!("{name}: expected at least 1, got 0")));
    }
    if let (Some(least), Some(most)) = (options.minimum_nprobes, options.maximum_nprobes)
        && least > most
    {
        return Err(Error::input(format!(
            "minimum_nprobes: expected at most maximum_nprobes, got {least} and {most}"
        )));
    }
    let (from, below) = options.distance_range;
    if from.is_some_and(f32::is_nan) || below.is_some_and(f32::is_nan) {
        return Err(Error::input("distance_range: expected two numbers or None, got NaN"));
    }
    if let (Some(from), Some(below)) = (from, below)
        && from >= below
    {
        return Err(Error::input(format!(
            "distance_range: expected a lower bound below the upper one, got ({from}, {below})"
        )));
    }
    if options.exact && options.fast_search {
        return Err(Error::input(
            "exact=True reads all rows and fast_search=True the rows of an index alone: leave one \
             out",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(options: &SearchOptions) -> String {
        refuse(options).unwrap_err().to_string()
    }

    #[test]
    fn options_that_no_table_can_meet_are_named() {
        let options = SearchOptions::default;
        assert!(refuse(&options()).is_ok());
        assert!(refusal(&options().with_k(0)).contains("k: expected at least 1"));
        assert!(refusal(&options().with_ef(0)).contains("ef: expected"));
        let probes = options().with_minimum_nprobes(3).with_maximum_nprobes(2);
        assert!(refusal(&probes).contains("got 3 and 2"));
        let empty = options().with_distance_range(Some(2.0), Some(2.0));
        assert!(refusal(&empty).contains("got (2, 2)"));
        let both = options().with_exact(true).with_fast_search(true);
        assert!(refusal(&both).contains("leave one out"));
    }
}
