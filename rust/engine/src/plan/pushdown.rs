//! Filter pushdown for a foreign planner.
//!
//! Owns: which conditions a scan runs itself, exactly.
//! Does not own: where in the scan they run, which [`Filter`] and the planner decide.

use arrow_schema::{DataType, SchemaRef};
use datafusion::common::ToDFSchema;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::expr_rewriter::unnormalize_col;
use datafusion::logical_expr::{Expr, ExprSchemable};
use datafusion::prelude::SessionContext;
use lancemem_core::types::Result;

use super::Filter;
use super::filter::conjunction;

/// Whether a scan can return exactly the rows that meet `condition`. Functions that are unknown in
/// this process, and volatile ones, stay with the foreign planner.
#[must_use]
pub fn takes(session: &SessionContext, schema: &SchemaRef, condition: &Expr) -> bool {
    let condition = unnormalize_col(condition.clone());
    !condition.is_volatile()
        && knows_every_part(session, &condition)
        && Filter::new(schema, condition).is_ok_and(|filter| is_boolean(schema, &filter))
}

/// The conditions that a scan takes, as one filter.
///
/// # Errors
/// An input error where types do not fit.
pub fn all_of(schema: &SchemaRef, conditions: &[Expr]) -> Result<Option<Filter>> {
    let all = conjunction(conditions.iter().cloned().map(unnormalize_col).collect());
    all.map(|condition| Filter::new(schema, condition)).transpose()
}

fn is_boolean(schema: &SchemaRef, filter: &Filter) -> bool {
    let Ok(schema) = schema.clone().to_dfschema() else { return false };
    let of = filter.expression().get_type(&schema);
    of.is_ok_and(|of| matches!(of, DataType::Boolean | DataType::Null))
}

fn knows_every_part(session: &SessionContext, condition: &Expr) -> bool {
    let state = session.state();
    let mut known = true;
    let visited = condition.apply(|part| {
        known &= match part {
            // Under the same name another engine may have a function of its own.
            Expr::ScalarFunction(call) => {
                let own = state.scalar_functions().get(call.name());
                own.is_some_and(|own| own.as_ref() == call.func.as_ref())
            }
            Expr::Column(_)
            | Expr::Literal(..)
            | Expr::BinaryExpr(_)
            | Expr::Like(_)
            | Expr::SimilarTo(_)
            | Expr::Not(_)
            | Expr::IsNotNull(_)
            | Expr::IsNull(_)
            | Expr::IsTrue(_)
            | Expr::IsFalse(_)
            | Expr::IsUnknown(_)
            | Expr::IsNotTrue(_)
            | Expr::IsNotFalse(_)
            | Expr::IsNotUnknown(_)
            | Expr::Negative(_)
            | Expr::Between(_)
            | Expr::Case(_)
            | Expr::Cast(_)
            | Expr::TryCast(_)
            | Expr::InList(_) => true,
            _ => false,
        };
        Ok(if known { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
    });
    visited.is_ok() && known
}
