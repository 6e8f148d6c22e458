//! The domain of one column under a condition.
//!
//! Owns: the values or the range that a column has in every row that meets a condition, derived
//! from comparisons with constants.
//! Does not own: which sources are pruned because of it (`prune`), or running the condition.

use arrow_schema::Field;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::{Between, Expr, Operator};

/// A superset of a column's values in rows that meet a condition.
#[derive(Clone, Debug, PartialEq)]
pub enum Domain {
    /// One of these.
    Values(Vec<ScalarValue>),
    /// At least the first and at most the second.
    Range(Option<ScalarValue>, Option<ScalarValue>),
}

impl Domain {
    /// The domain of `column` under `condition`; `None` where it is not restricted.
    #[must_use]
    pub fn of(condition: &Expr, column: &Field) -> Option<Self> {
        match condition {
            Expr::BinaryExpr(binary) => match binary.op {
                Operator::And => {
                    let left = Self::of(&binary.left, column);
                    match (left, Self::of(&binary.right, column)) {
                        (Some(left), Some(right)) => Some(left.and(right)),
                        (left, right) => left.or(right),
                    }
                }
                Operator::Or => {
                    Self::of(&binary.left, column)?.or(Self::of(&binary.right, column)?)
                }
                operator => Self::of_comparison(&binary.left, operator, &binary.right, column),
            },
            Expr::InList(InList { expr, list, negated: false }) if is(expr, column) => {
                let values = list.iter().map(|value| constant(value, column));
                values.collect::<Option<Vec<_>>>().map(Self::Values)
            }
            Expr::Between(Between { expr, negated: false, low, high }) if is(expr, column) => {
                Some(Self::Range(Some(constant(low, column)?), Some(constant(high, column)?)))
            }
            _ => None,
        }
    }

    fn of_comparison(
        left: &Expr,
        operator: Operator,
        right: &Expr,
        column: &Field,
    ) -> Option<Self> {
        let (operator, value) = if is(left, column) {
            (operator, constant(right, column)?)
        } else if is(right, column) {
            (operator.swap()?, constant(left, column)?)
        } else {
            return None;
        };
        match operator {
            Operator::Eq => Some(Self::Values(vec![value])),
            Operator::Lt | Operator::LtEq => Some(Self::Range(None, Some(value))),
            Operator::Gt | Operator::GtEq => Some(Self::Range(Some(value), None)),
            _ => None,
        }
    }

    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Values(values), other) | (other, Self::Values(values)) => {
                Self::Values(values.into_iter().filter(|value| other.holds(value)).collect())
            }
            (Self::Range(low, high), Self::Range(other_low, other_high)) => Self::Range(
                one_of(low, other_low, |left, right| left > right),
                one_of(high, other_high, |left, right| left < right),
            ),
        }
    }

    fn or(self, other: Self) -> Option<Self> {
        match (self, other) {
            (Self::Values(mut values), Self::Values(others)) => {
                values.extend(others);
                Some(Self::Values(values))
            }
            _ => None,
        }
    }

    fn holds(&self, value: &ScalarValue) -> bool {
        match self {
            Self::Values(values) => values.contains(value),
            Self::Range(low, high) => {
                low.as_ref().is_none_or(|low| value >= low)
                    && high.as_ref().is_none_or(|high| value <= high)
            }
        }
    }

    /// The least and the greatest value; no bounds where there is no value at all.
    #[must_use]
    pub fn bounds(&self) -> (Option<&ScalarValue>, Option<&ScalarValue>) {
        match self {
            Self::Range(low, high) => (low.as_ref(), high.as_ref()),
            Self::Values(values) => {
                let by_value = |left: &&ScalarValue, right: &&ScalarValue| {
                    left.partial_cmp(right).unwrap_or(std::cmp::Ordering::Equal)
                };
                (values.iter().min_by(by_value), values.iter().max_by(by_value))
            }
        }
    }
}

/// The tighter one of two bounds.
fn one_of(
    left: Option<ScalarValue>,
    right: Option<ScalarValue>,
    is_better: impl Fn(&ScalarValue, &ScalarValue) -> bool,
) -> Option<ScalarValue> {
    match (left, right) {
        (Some(left), Some(right)) => Some(if is_better(&left, &right) { left } else { right }),
        (left, right) => left.or(right),
    }
}

fn is(expression: &Expr, column: &Field) -> bool {
    matches!(expression, Expr::Column(named) if named.name == *column.name())
}

/// A constant of the column's own type that is not null.
fn constant(expression: &Expr, column: &Field) -> Option<ScalarValue> {
    let Expr::Literal(value, _) = expression else { return None };
    (!value.is_null() && value.data_type() == *column.data_type()).then(|| value.clone())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_schema::{DataType, Schema, SchemaRef};

    use super::*;
    use crate::plan::{Filter, session};

    fn domain(sql: &str) -> Option<Domain> {
        let id = Field::new("id", DataType::Int64, false);
        let other = Field::new("v", DataType::Int64, true);
        let schema: SchemaRef = Arc::new(Schema::new(vec![id.clone(), other]));
        let filter = Filter::parse(&session(), &schema, sql).unwrap();
        Domain::of(filter.expression(), &id)
    }

    fn values(numbers: &[i64]) -> Domain {
        Domain::Values(numbers.iter().map(|number| ScalarValue::Int64(Some(*number))).collect())
    }

    fn range(low: Option<i64>, high: Option<i64>) -> Domain {
        let bound = |number: Option<i64>| number.map(|number| ScalarValue::Int64(Some(number)));
        Domain::Range(bound(low), bound(high))
    }

    #[test]
    fn comparisons_with_constants_leave_values_or_a_range() {
        assert_eq!(domain("id = 3"), Some(values(&[3])));
        assert_eq!(domain("3 = id AND v > 1"), Some(values(&[3])));
        assert_eq!(domain("id IN (1, 2)"), Some(values(&[1, 2])));
        assert_eq!(domain("id IN (1, 2, 3, 4, 5)"), Some(values(&[1, 2, 3, 4, 5])));
        assert_eq!(domain("id IN (1, 2, 3, 4, 5) AND id >= 4"), Some(values(&[4, 5])));
        assert_eq!(domain("id > 3"), Some(range(Some(3), None)));
        assert_eq!(domain("7 >= id AND id > 3 AND id > 1"), Some(range(Some(3), Some(7))));
        assert_eq!(domain("id BETWEEN 2 AND 9"), Some(range(Some(2), Some(9))));
        assert_eq!(domain("(id = 1 AND v = 2) OR id = 9"), Some(values(&[1, 9])));
    }

    #[test]
    fn a_condition_without_bounds_leaves_everything() {
        for sql in [
            "v = 3",
            "id = 1 OR v = 2",
            "id <> 3",
            "NOT (id > 3 AND v > 3)",
            "id NOT IN (1, 2, 3, 4, 5)",
            "id + 1 = 3 OR v = 1",
            "id > 3 OR id < 1",
            "id = v",
        ] {
            assert_eq!(domain(sql), None, "{sql}");
        }
    }
}
