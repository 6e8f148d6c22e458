//! What a caller asks of a search.
//!
//! Owns: [`SearchOptions`] with its defaults, and [`QueryVectors`].
//! Does not own: whether they fit a table (`request`).

use arrow_array::ArrayRef;
use lancemem_core::types::{Error, Result};

use super::Metric;
use crate::plan::Condition;
use crate::snapshot::Consistency;

/// One query vector, or several.
#[derive(Clone, Debug)]
pub struct QueryVectors {
    /// The numbers of all vectors, one vector after the other.
    pub(super) values: ArrayRef,
    /// Numbers of each vector.
    pub(super) width: usize,
    /// Whether the caller asked for several vectors, so that rows name their query.
    pub(super) is_batch: bool,
}

impl QueryVectors {
    /// One vector: an array of numbers.
    ///
    /// # Errors
    /// An input error for an empty array, or one with nulls.
    pub fn one(values: ArrayRef) -> Result<Self> {
        let width = values.len();
        Self::checked(Self { values, width, is_batch: false })
    }

    /// Several vectors of `width` numbers each, one after the other in `values`.
    ///
    /// # Errors
    /// As [`Self::one`], and for values that are not a whole number of vectors.
    pub fn batch(values: ArrayRef, width: usize) -> Result<Self> {
        if width == 0 || !values.len().is_multiple_of(width) {
            return Err(Error::input(format!(
                "query: {} numbers are no vectors of {width} numbers",
                values.len()
            )));
        }
        Self::checked(Self { values, width, is_batch: true })
    }

    fn checked(self) -> Result<Self> {
        if self.values.is_empty() {
            return Err(Error::input("query: expected a vector, got an empty array"));
        }
        if self.values.null_count() > 0 {
            let found = self.values.null_count();
            return Err(Error::input(format!(
                "query: expected numbers, found {found} nulls among them"
            )));
        }
        Ok(self)
    }

    /// How many vectors there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.values.len() / self.width
    }
}

/// What to search for beside the query: by default the ten nearest rows, with all columns.
///
/// ```
/// # use lancemem::{Metric, SearchOptions};
/// let options = SearchOptions::default().with_k(5).with_metric(Metric::Cosine);
/// assert_eq!((options.k, options.exact), (5, false));
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SearchOptions {
    /// The column of vectors; `None` for the only one of the query's width.
    pub column: Option<String>,
    /// Most rows of each query.
    pub k: usize,
    /// Rows to skip first, of each query.
    pub offset: usize,
    /// Columns of the result, in order; `None` for all.
    pub columns: Option<Vec<String>>,
    /// A condition on the newest row of each key.
    pub filter: Option<Condition>,
    /// Whether the condition chooses among all rows, instead of among the nearest ones.
    pub prefilter: bool,
    /// The metric; `None` for the metric of the column's index, else `l2`, or `hamming` of `uint8`.
    pub metric: Option<Metric>,
    /// Least partitions of an index to search; `None` for Lance's choice.
    pub minimum_nprobes: Option<usize>,
    /// Most partitions of an index to search; `None` for as many as it takes.
    pub maximum_nprobes: Option<usize>,
    /// The size of the candidate list in an HNSW graph; `None` for Lance's choice.
    pub ef: Option<usize>,
    /// Candidates of an index for each row of the result; `None` for the choice by index type.
    pub refine_factor: Option<u32>,
    /// The least distance of a row, and the distance that all are below.
    pub distance_range: (Option<f32>, Option<f32>),
    /// Whether to use no index.
    pub exact: bool,
    /// Whether to search the indexes of the base table and of SSTables alone.
    pub fast_search: bool,
    /// The consistency of the read. Ignored in a search of a snapshot, which has its own.
    pub consistency: Consistency,
}

impl Default for SearchOptions {
    fn default() -> Self {
        Self {
            column: None,
            k: 10,
            offset: 0,
            columns: None,
            filter: None,
            prefilter: true,
            metric: None,
            minimum_nprobes: None,
            maximum_nprobes: None,
            ef: None,
            refine_factor: None,
            distance_range: (None, None),
            exact: false,
            fast_search: false,
            consistency: Consistency::default(),
        }
    }
}

impl SearchOptions {
    /// Sets [`Self::column`].
    #[must_use]
    pub fn with_column(self, column: impl Into<Option<String>>) -> Self {
        Self { column: column.into(), ..self }
    }

    /// Sets [`Self::k`].
    #[must_use]
    pub fn with_k(self, k: usize) -> Self {
        Self { k, ..self }
    }

    /// Sets [`Self::offset`].
    #[must_use]
    pub fn with_offset(self, offset: usize) -> Self {
        Self { offset, ..self }
    }

    /// Sets [`Self::columns`].
    #[must_use]
    pub fn with_columns(self, columns: impl Into<Option<Vec<String>>>) -> Self {
        Self { columns: columns.into(), ..self }
    }

    /// Sets [`Self::filter`].
    #[must_use]
    pub fn with_filter(self, filter: impl Into<Option<Condition>>) -> Self {
        Self { filter: filter.into(), ..self }
    }

    /// Sets [`Self::prefilter`].
    #[must_use]
    pub fn with_prefilter(self, prefilter: bool) -> Self {
        Self { prefilter, ..self }
    }

    /// Sets [`Self::metric`].
    #[must_use]
    pub fn with_metric(self, metric: impl Into<Option<Metric>>) -> Self {
        Self { metric: metric.into(), ..self }
    }

    /// Sets [`Self::minimum_nprobes`].
    #[must_use]
    pub fn with_minimum_nprobes(self, probes: impl Into<Option<usize>>) -> Self {
        Self { minimum_nprobes: probes.into(), ..self }
    }

    /// Sets [`Self::maximum_nprobes`].
    #[must_use]
    pub fn with_maximum_nprobes(self, probes: impl Into<Option<usize>>) -> Self {
        Self { maximum_nprobes: probes.into(), ..self }
    }

    /// Sets [`Self::ef`].
    #[must_use]
    pub fn with_ef(self, ef: impl Into<Option<usize>>) -> Self {
        Self { ef: ef.into(), ..self }
    }

    /// Sets [`Self::refine_factor`].
    #[must_use]
    pub fn with_refine_factor(self, factor: impl Into<Option<u32>>) -> Self {
        Self { refine_factor: factor.into(), ..self }
    }

    /// Sets [`Self::distance_range`]: the least distance, and the distance that all are below.
    #[must_use]
    pub fn with_distance_range(self, from: Option<f32>, below: Option<f32>) -> Self {
        Self { distance_range: (from, below), ..self }
    }

    /// Sets [`Self::exact`].
    #[must_use]
    pub fn with_exact(self, exact: bool) -> Self {
        Self { exact, ..self }
    }

    /// Sets [`Self::fast_search`].
    #[must_use]
    pub fn with_fast_search(self, fast_search: bool) -> Self {
        Self { fast_search, ..self }
    }

    /// Sets [`Self::consistency`].
    #[must_use]
    pub fn with_consistency(self, consistency: Consistency) -> Self {
        Self { consistency, ..self }
    }
}
