//! A condition in the form of the caller.
//!
//! Owns: the accepted forms.
//! Does not own: their meaning; each becomes a [`Filter`].

use arrow_schema::SchemaRef;
use bytes::Bytes;
use datafusion::logical_expr::Expr;
use datafusion::prelude::SessionContext;
use lancemem_core::types::Result;

use super::{Filter, substrait};

/// A condition on a table's columns, not yet checked against them.
#[derive(Clone, Debug)]
pub enum Condition {
    /// SQL, for example `price > 3 AND name LIKE 'a%'`. Names keep their case.
    Sql(String),
    /// A Substrait `ExtendedExpression` with one expression, as pyarrow writes it.
    Substrait(Bytes),
    /// An expression of DataFusion.
    Expression(Box<Expr>),
}

impl Condition {
    /// A Substrait `ExtendedExpression` with one expression.
    #[must_use]
    pub fn substrait(message: Vec<u8>) -> Self {
        Self::Substrait(message.into())
    }

    /// The condition with its types resolved.
    ///
    /// # Errors
    /// An input error for a condition that cannot be read or names an unknown column.
    pub async fn resolve(&self, session: &SessionContext, schema: &SchemaRef) -> Result<Filter> {
        match self {
            Self::Sql(sql) => Filter::parse(session, schema, sql),
            Self::Substrait(message) => substrait::parse(session, schema, message).await,
            Self::Expression(expression) => Filter::new(schema, expression.as_ref().clone()),
        }
    }
}

impl From<String> for Condition {
    fn from(sql: String) -> Self {
        Self::Sql(sql)
    }
}

impl From<&str> for Condition {
    fn from(sql: &str) -> Self {
        Self::Sql(sql.to_owned())
    }
}

impl From<Expr> for Condition {
    fn from(expression: Expr) -> Self {
        Self::Expression(Box::new(expression))
    }
}
