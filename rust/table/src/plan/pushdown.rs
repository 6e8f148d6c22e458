//! What a scan can do for a foreign planner.
//!
//! Owns: which conditions a scan runs itself, to the last row.
//! Does not own: where in the scan they run, which [`Filter`] and the planner decide.

use arrow_schema::{DataType, SchemaRef};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, ToDFSchema};
use datafusion::logical_expr::expr_rewriter::unnormalize_col;
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{Expr, ExprSchemable};
use datafusion::prelude::SessionContext;
use lancemem_core::types::Result;

use super::Filter;

/// Tells a planner that is not ours which of its conditions it may leave to a scan.
pub struct Pushdown<'a> {
    /// Knows the functions.
    pub session: &'a SessionContext,
    /// The table's columns.
    pub schema: &'a SchemaRef,
}

impl Pushdown<'_> {
    /// Whether a scan gives exactly the rows that meet `condition`. A function that this process
    /// does not know, or one that gives another answer each time, stays where it was called.
    #[must_use]
    pub fn takes(&self, condition: &Expr) -> bool {
        let condition = unnormalize_col(condition.clone());
        !condition.is_volatile()
            && self.knows_every_part(&condition)
            && Filter::new(self.schema, condition).is_ok_and(|filter| self.is_boolean(&filter))
    }

    /// The conditions as one.
    ///
    /// # Errors
    /// An input error where types do not fit.
    pub fn filter(&self, conditions: &[Expr]) -> Result<Option<Filter>> {
        let all = conjunction(conditions.iter().cloned().map(unnormalize_col));
        all.map(|condition| Filter::new(self.schema, condition)).transpose()
    }

    fn is_boolean(&self, filter: &Filter) -> bool {
        let schema: Result<DFSchema, _> = self.schema.clone().to_dfschema();
        schema.is_ok_and(|schema| {
            let of = filter.expression().get_type(&schema);
            of.is_ok_and(|of| matches!(of, DataType::Boolean | DataType::Null))
        })
    }

    fn knows_every_part(&self, condition: &Expr) -> bool {
        let state = self.session.state();
        let mut known = true;
        let visited = condition.apply(|part| {
            known &= match part {
                Expr::ScalarFunction(call) => state.scalar_functions().contains_key(call.name()),
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
}
