//! Exact distances between query vectors and stored vectors.
//!
//! Owns: [`Scorer`], by which every source of a search computes the distances of its rows, so that
//! equal vectors have equal distances wherever they are stored; and which rows have none.
//! Does not own: the arithmetic, which is `lance-linalg`'s, as in the base table's own searches.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Float32Type;
use arrow_array::{Array, ArrayRef, FixedSizeListArray, Float32Array};
use datafusion::common::{DataFusionError, Result as PlanResult};
use lance_linalg::distance::l2::l2_f32;

use super::Metric;

/// Computes the distances of rows from the queries of one search.
#[derive(Clone, Debug)]
pub(super) struct Scorer {
    /// One vector each, with elements of the column's type.
    pub queries: Vec<ArrayRef>,
    pub metric: Metric,
    /// The least distance of a row, and the distance that all are below.
    pub range: (Option<f32>, Option<f32>),
}

impl Scorer {
    /// The distance of each vector from the query at `query`; NaN for a row that is never in a
    /// result: its vector is null or has a null, the distance is no number, or it is out of range.
    pub fn distances(&self, query: usize, vectors: &FixedSizeListArray) -> PlanResult<Vec<f32>> {
        let of = &self.queries[query];
        let distances = match of.as_primitive_opt::<Float32Type>() {
            Some(of) if self.metric == Metric::L2 => l2_distances(of, vectors)?,
            _ => self.metric.of_lance().arrow_batch_func()(of.as_ref(), vectors)?,
        };
        let has_null = nulls_in(vectors);
        let (from, below) = self.range;
        let is_in = |distance: f32| {
            from.is_none_or(|from| distance >= from) && below.is_none_or(|below| distance < below)
        };
        // Zero has a sign, which would order rows of equal distance; adding zero takes it away.
        let distance = |row: usize| {
            let distance = distances.value(row) + 0.0;
            let counts = distances.is_valid(row)
                && vectors.is_valid(row)
                && !has_null(row)
                && is_in(distance);
            if counts { distance } else { f32::NAN }
        };
        Ok((0..vectors.len()).map(distance).collect())
    }
}

/// The squared Euclidean distances of 32-bit vectors. `lance-linalg`'s function of a whole column
/// is compiled for the least processor of a build; that of two vectors chooses at run time.
fn l2_distances(of: &Float32Array, vectors: &FixedSizeListArray) -> PlanResult<Arc<Float32Array>> {
    let values = vectors.values().as_primitive_opt::<Float32Type>();
    let values = values.filter(|_| {
        !of.is_empty() && usize::try_from(vectors.value_length()).ok() == Some(of.len())
    });
    let values = values.ok_or_else(|| {
        let found = vectors.data_type();
        DataFusionError::Internal(format!("a query of {} float32, vectors {found}", of.len()))
    })?;
    let of = of.values();
    let distances = values.values().chunks_exact(of.len()).map(|vector| l2_f32(of, vector));
    Ok(Arc::new(Float32Array::new(distances.collect(), vectors.nulls().cloned())))
}

/// Whether the vector of a row has a null among its elements.
fn nulls_in(vectors: &FixedSizeListArray) -> impl Fn(usize) -> bool {
    let values = vectors.values();
    let nulls = values.logical_nulls().filter(|nulls| nulls.null_count() > 0);
    let width = values.len().checked_div(vectors.len()).unwrap_or(0);
    move |row| nulls.as_ref().is_some_and(|nulls| nulls.slice(row * width, width).null_count() > 0)
}

/// The vectors of a column.
///
/// # Errors
/// An internal error for a column of another type.
pub(super) fn vectors(column: &ArrayRef) -> PlanResult<&FixedSizeListArray> {
    column.as_fixed_size_list_opt().ok_or_else(|| {
        let found = column.data_type();
        DataFusionError::Internal(format!("expected a column of vectors, found {found}"))
    })
}

#[cfg(test)]
mod tests {
    use arrow_array::builder::{FixedSizeListBuilder, Float32Builder};

    use super::*;

    fn stored() -> FixedSizeListArray {
        let mut rows = FixedSizeListBuilder::new(Float32Builder::new(), 2);
        for row in [[Some(3.0), Some(4.0)], [Some(0.0), Some(0.0)], [Some(1.0), None]] {
            for value in row {
                rows.values().append_option(value);
            }
            rows.append(true);
        }
        rows.values().append_slice(&[7.0, 7.0]);
        rows.append(false);
        rows.values().append_slice(&[f32::NAN, 1.0]);
        rows.append(true);
        rows.finish()
    }

    fn scored(metric: Metric, range: (Option<f32>, Option<f32>)) -> Vec<Option<f32>> {
        let query: ArrayRef = Arc::new(Float32Array::from(vec![0.0, 2.0]));
        let scorer = Scorer { queries: vec![query], metric, range };
        let distances = scorer.distances(0, &stored()).unwrap();
        distances.into_iter().map(|it| Some(it).filter(|it| !it.is_nan())).collect()
    }

    #[test]
    fn a_vector_that_is_null_or_has_a_null_or_a_nan_has_no_distance() {
        let none = (None, None);
        assert_eq!(scored(Metric::L2, none), [Some(13.0), Some(4.0), None, None, None]);
        assert_eq!(scored(Metric::Dot, none), [Some(-7.0), Some(1.0), None, None, None]);
    }

    #[test]
    fn a_zero_vector_has_no_cosine_distance() {
        let distances = scored(Metric::Cosine, (None, None));
        assert!((distances[0].unwrap() - 0.2).abs() < 1e-6, "{distances:?}");
        assert_eq!(distances[1], None);
    }

    #[test]
    fn a_distance_range_has_its_lower_bound_and_not_its_upper_one() {
        assert_eq!(scored(Metric::L2, (Some(4.0), Some(13.0)))[..2], [None, Some(4.0)]);
        assert_eq!(scored(Metric::L2, (Some(4.5), None))[..2], [Some(13.0), None]);
    }
}
