//! The two zeros of a floating-point number.
//!
//! Owns: comparisons with a constant in which 0.0 and -0.0 are the same number, as in SQL and in
//! Lance's scans. Arrow's kernels order -0.0 below 0.0. A flush moves rows from Arrow's comparison
//! to Lance's, so without this rewrite it would change the result of a condition.
//! Does not own: comparisons of two columns.

use datafusion::common::ScalarValue;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result as PlanResult;
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::{Between, BinaryExpr, Expr, Operator};

use super::filter::is_comparison;

/// The same condition, rewritten so that both zeros meet it or neither does.
pub fn with_both_zeros(expression: Expr) -> PlanResult<Expr> {
    Ok(expression.transform_up(|part| Ok(rewrite(part)))?.data)
}

fn rewrite(part: Expr) -> Transformed<Expr> {
    match part {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if is_comparison(op) => {
            match (zeros_of(&right), zeros_of(&left), op.swap()) {
                (Some(zeros), ..) => Transformed::yes(compare(left, op, zeros)),
                (None, Some(zeros), Some(op)) => Transformed::yes(compare(right, op, zeros)),
                _ => Transformed::no(Expr::BinaryExpr(BinaryExpr { left, op, right })),
            }
        }
        Expr::Between(between) => rewrite_between(between),
        Expr::InList(mut list) => {
            let Some(Zeros { below, above }) = list.list.iter().find_map(zeros_of) else {
                return Transformed::no(Expr::InList(list));
            };
            list.list.retain(|value| zeros_of(value).is_none());
            list.list.extend([below, above]);
            Transformed::yes(Expr::InList(list))
        }
        other => Transformed::no(other),
    }
}

fn rewrite_between(mut between: Between) -> Transformed<Expr> {
    if let Some(zeros) = zeros_of(&between.expr) {
        let Between { negated, low, high, .. } = between;
        let lies = compare(low, Operator::LtEq, zeros.clone());
        let lies = lies.and(compare(high, Operator::GtEq, zeros));
        return Transformed::yes(if negated { !lies } else { lies });
    }
    let (low, high) = (zeros_of(&between.low), zeros_of(&between.high));
    let is_zero = low.is_some() || high.is_some();
    if let Some(Zeros { below, .. }) = low {
        *between.low = below;
    }
    if let Some(Zeros { above, .. }) = high {
        *between.high = above;
    }
    Transformed::new_transformed(Expr::Between(between), is_zero)
}

/// Both zeros of a type, in arrow's order.
#[derive(Clone)]
struct Zeros {
    below: Expr,
    above: Expr,
}

fn compare(left: Box<Expr>, op: Operator, zeros: Zeros) -> Expr {
    let Zeros { below, above } = zeros;
    let bound = match op {
        Operator::Lt | Operator::GtEq => below,
        Operator::Eq | Operator::NotEq => {
            let negated = op == Operator::NotEq;
            return Expr::InList(InList { expr: left, list: vec![below, above], negated });
        }
        Operator::IsDistinctFrom | Operator::IsNotDistinctFrom => {
            let list = vec![below, above];
            let is_zero = Expr::InList(InList { expr: left, list, negated: false }).is_true();
            return if op == Operator::IsDistinctFrom { !is_zero } else { is_zero };
        }
        _ => above,
    };
    Expr::BinaryExpr(BinaryExpr { left, op, right: Box::new(bound) })
}

fn zeros_of(value: &Expr) -> Option<Zeros> {
    let Expr::Literal(value, _) = value else { return None };
    if !value.data_type().is_floating() {
        return None;
    }
    let above = ScalarValue::new_zero(&value.data_type()).ok()?;
    let below = above.arithmetic_negate().ok()?;
    let is_zero = *value == above || *value == below;
    is_zero.then(|| Zeros { below: Expr::Literal(below, None), above: Expr::Literal(above, None) })
}
