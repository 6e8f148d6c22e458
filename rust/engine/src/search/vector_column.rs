//! The column of vectors that a search compares.
//!
//! Owns: the choice of the column, and the query vectors in the type of its elements.
//! Does not own: distances (`distance`).

use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::{Array, ArrayRef};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{DataType, Field, Schema};
use lancemem_core::types::{Error, Result, TypeName};

use super::{Metric, QueryVectors};

/// A column of vectors of one width.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct VectorColumn {
    pub name: String,
    pub width: usize,
    pub element: DataType,
}

/// The query vectors of a search.
#[derive(Clone, Debug)]
pub(super) struct Queries {
    /// One array each.
    pub vectors: Vec<ArrayRef>,
    /// Whether one of them has only zeros.
    pub has_zero: bool,
}

impl VectorColumn {
    /// The column `named` of `schema`, or the only one of `width` numbers.
    ///
    /// # Errors
    /// An input error for an unknown column, one without vectors, or one of another width, and
    /// where no column is named and there is not exactly one.
    pub fn choose(schema: &Schema, named: Option<&str>, width: usize) -> Result<Self> {
        let Some(name) = named else { return Self::only(schema, width) };
        let Ok(field) = schema.field_with_name(name) else {
            let known: Vec<&str> = schema.fields().iter().map(|it| it.name().as_str()).collect();
            return Err(Error::input(format!(
                "column '{name}' is not in the table; it has {}",
                known.join(", ")
            )));
        };
        let column = Self::of(field).ok_or_else(|| {
            let found = TypeName(field.data_type());
            Error::input(format!(
                "column '{name}' holds {found}, which is no vector; search a column of \
                 fixed_size_list of float16, float32, float64, int8 or uint8, such as \
                 pyarrow.list_(pyarrow.float32(), {width}) in the schema of create_table"
            ))
        })?;
        if column.width != width {
            return Err(Error::input(format!(
                "query: expected {} numbers, as the vectors of column '{name}' have, got {width}",
                column.width
            )));
        }
        Ok(column)
    }

    fn only(schema: &Schema, width: usize) -> Result<Self> {
        let all: Vec<Self> = schema.fields().iter().filter_map(|it| Self::of(it)).collect();
        let listed = |columns: &[&Self]| {
            let texts = columns.iter().map(|it| format!("'{}' of width {}", it.name, it.width));
            texts.collect::<Vec<_>>().join(", ")
        };
        let fitting: Vec<&Self> = all.iter().filter(|it| it.width == width).collect();
        match fitting.as_slice() {
            [only] => Ok((*only).clone()),
            [] if all.is_empty() => Err(Error::input(format!(
                "the table has no column of vectors, which are fixed-size lists; create it with a \
                 schema that has one, such as \
                 pyarrow.list_(pyarrow.float32(), {width}): lists of any length are no vectors",
            ))),
            [] => Err(Error::input(format!(
                "query: no column has vectors of {width} numbers; the table has {}",
                listed(&all.iter().collect::<Vec<_>>())
            ))),
            several => Err(Error::input(format!(
                "several columns have vectors of {width} numbers; name one with column=: {}",
                listed(several)
            ))),
        }
    }

    /// `None` for a column that holds no vectors.
    fn of(field: &Field) -> Option<Self> {
        let DataType::FixedSizeList(element, width) = field.data_type() else { return None };
        let is_number = matches!(
            element.data_type(),
            DataType::Float16
                | DataType::Float32
                | DataType::Float64
                | DataType::Int8
                | DataType::UInt8
        );
        let width = usize::try_from(*width).ok().filter(|width| *width > 0)?;
        let element = element.data_type().clone();
        is_number.then(|| Self { name: field.name().clone(), width, element })
    }

    /// The query vectors with elements of the column's type.
    ///
    /// # Errors
    /// An input error for values that are no numbers, are not finite, or do not fit the type.
    pub fn queries(&self, query: &QueryVectors) -> Result<Queries> {
        let found = query.values.data_type();
        if !found.is_numeric() {
            return Err(Error::input(format!(
                "query: expected a vector of numbers, got {}",
                TypeName(found)
            )));
        }
        let strict = CastOptions { safe: false, ..CastOptions::default() };
        let refused = |error: arrow_schema::ArrowError| {
            let text = format!(
                "query: its numbers do not fit column '{}' of {}",
                self.name,
                TypeName(&self.element)
            );
            Error::input(text).with_source(error)
        };
        let numbers =
            cast_with_options(&query.values, &DataType::Float64, &strict).map_err(refused)?;
        let numbers = numbers.as_primitive::<Float64Type>();
        if let Some(place) = numbers.values().iter().position(|value| !value.is_finite()) {
            return Err(Error::input(format!(
                "query: expected finite numbers, found {} at {}",
                numbers.value(place),
                place % query.width
            )));
        }
        let values = cast_with_options(&query.values, &self.element, &strict).map_err(refused)?;
        let vectors =
            (0..query.count()).map(|index| values.slice(index * query.width, query.width));
        let mut vectors_of_numbers = numbers.values().chunks(query.width);
        let has_zero = vectors_of_numbers.any(|vector| vector.iter().all(|value| *value == 0.0));
        Ok(Queries { vectors: vectors.collect(), has_zero })
    }

    /// `metric`, where vectors of this column have such distances.
    ///
    /// # Errors
    /// An input error for another metric.
    pub fn accept(&self, metric: Metric) -> Result<Metric> {
        if metric.fits(&self.element) {
            return Ok(metric);
        }
        let of = TypeName(&self.element);
        let way = if metric == Metric::Hamming {
            "it is of uint8 alone; use l2, cosine or dot"
        } else {
            "use hamming, the metric of uint8"
        };
        Err(Error::input(format!(
            "metric: column '{}' of {of} has no distance '{metric}': {way}",
            self.name
        )))
    }
}

/// The type of a column of `width` numbers.
#[cfg(test)]
pub(super) fn vectors_of(width: i32) -> DataType {
    DataType::FixedSizeList(std::sync::Arc::new(Field::new("item", DataType::Float32, true)), width)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{Float32Array, Int64Array};

    use super::*;

    fn schema() -> Schema {
        Schema::new(vec![
            Field::new("id", DataType::Int64, false),
            Field::new("small", vectors_of(2), true),
            Field::new("large", vectors_of(8), true),
            Field::new("other", vectors_of(8), true),
        ])
    }

    fn refusal(named: Option<&str>, width: usize) -> String {
        VectorColumn::choose(&schema(), named, width).unwrap_err().to_string()
    }

    #[test]
    fn the_only_column_as_wide_as_the_query_needs_no_name() {
        let column = VectorColumn::choose(&schema(), None, 2).unwrap();
        assert_eq!((column.name.as_str(), column.width), ("small", 2));
        let text = refusal(None, 8);
        assert!(text.contains("'large' of width 8, 'other' of width 8"), "{text}");
        let text = refusal(None, 3);
        assert!(text.contains("no column has vectors of 3 numbers"), "{text}");
    }

    #[test]
    fn a_column_that_cannot_be_searched_is_named_with_the_reason() {
        assert!(refusal(Some("nope"), 2).contains("it has id, small, large, other"));
        assert!(refusal(Some("id"), 2).contains("'id' holds int64, which is no vector"));
        assert!(refusal(Some("large"), 2).contains("expected 8 numbers"), "width");
    }

    #[test]
    fn a_query_takes_the_type_of_the_column_and_refuses_what_is_not_finite() {
        let column = VectorColumn::choose(&schema(), None, 2).unwrap();
        let whole = QueryVectors::batch(Arc::new(Int64Array::from(vec![1, 2, 3, 4])), 2).unwrap();
        let queries = column.queries(&whole).unwrap();
        assert_eq!((queries.vectors.len(), queries.has_zero), (2, false));
        assert_eq!(queries.vectors[1].as_ref(), &Float32Array::from(vec![3.0, 4.0]) as &dyn Array);
        let wrong = QueryVectors::one(Arc::new(Float32Array::from(vec![1.0, f32::NAN]))).unwrap();
        let text = column.queries(&wrong).unwrap_err().to_string();
        assert!(text.contains("found NaN at 1"), "{text}");
    }
}
