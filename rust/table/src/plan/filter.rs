//! The caller's condition, and the part of it that may run before the choice by key.
//!
//! Owns: parsing, types, and the split into key conjuncts and others.
//! Does not own: where a condition runs.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow_schema::SchemaRef;
use datafusion::common::{DFSchema, ToDFSchema};
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::utils::{conjunction, split_conjunction};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::prelude::SessionContext;
use lancemem_core::types::Result;

use crate::errors::Context;

/// A condition on a table's columns with its types resolved.
#[derive(Clone, Debug)]
pub struct Filter {
    expression: Expr,
}

impl Filter {
    /// Parses SQL, for example `price > 3 AND name LIKE 'a%'`. Names keep their case.
    ///
    /// # Errors
    /// An input error for SQL that does not parse or names an unknown column.
    pub fn parse(session: &SessionContext, schema: &SchemaRef, sql: &str) -> Result<Self> {
        let action = format!("the filter '{sql}' is not valid");
        let schema = df_schema(schema)?;
        let parsed = session.parse_sql_expr(sql, &schema).context(&action)?;
        Self::resolve(parsed, &Arc::new(schema), &action)
    }

    /// A condition that is an expression already.
    ///
    /// # Errors
    /// An input error where the types of `expression` do not fit.
    pub fn new(schema: &SchemaRef, expression: Expr) -> Result<Self> {
        Self::resolve(expression, &Arc::new(df_schema(schema)?), "the filter is not valid")
    }

    fn resolve(expression: Expr, schema: &Arc<DFSchema>, action: &str) -> Result<Self> {
        let context = SimplifyContext::builder().with_schema(schema.clone()).build();
        let expression = ExprSimplifier::new(context).coerce(expression, schema).context(action)?;
        Ok(Self { expression })
    }

    /// The whole condition.
    #[must_use]
    pub const fn expression(&self) -> &Expr {
        &self.expression
    }

    /// Names of the columns that the condition reads.
    #[must_use]
    pub fn columns(&self) -> BTreeSet<String> {
        columns_of(&self.expression)
    }

    /// The conjuncts that read only key columns. All versions of a key agree on them, so they
    /// may run before the newest version is chosen; every other condition may not.
    #[must_use]
    pub fn key_part(&self, key: &[String]) -> Option<Expr> {
        let on_key = split_conjunction(&self.expression).into_iter().filter(|conjunct| {
            let columns = columns_of(conjunct);
            !columns.is_empty() && columns.iter().all(|column| key.contains(column))
        });
        conjunction(on_key.cloned())
    }

    /// The condition for batches of `schema`.
    ///
    /// # Errors
    /// An input error where a column is missing there.
    pub fn physical(
        &self,
        session: &SessionContext,
        schema: &SchemaRef,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        session
            .create_physical_expr(self.expression.clone(), &df_schema(schema)?)
            .context("planning the filter")
    }
}

fn columns_of(expression: &Expr) -> BTreeSet<String> {
    expression.column_refs().into_iter().map(|column| column.name.clone()).collect()
}

fn df_schema(schema: &SchemaRef) -> Result<DFSchema> {
    schema.clone().to_dfschema().context("reading the table's schema")
}
