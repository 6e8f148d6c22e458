//! The caller's condition, and the part of it that may run before the merge by key.
//!
//! Owns: parsing and types, also of the expressions of a projection, and the split into conjuncts
//! that cannot fail and others.
//! Does not own: where a condition runs, or the columns of a projection (`expressions`).

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow_schema::SchemaRef;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, DataFusionError, ScalarValue, ToDFSchema};
use datafusion::error::Result as PlanResult;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::utils::{split_binary, split_conjunction};
use datafusion::logical_expr::{
    BinaryExpr as BinaryCondition, Expr, ExprSchemable, Operator, binary_expr, lit,
};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{BinaryExpr, Literal, NegativeExpr};
use datafusion::prelude::SessionContext;
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};
use lancemem_core::types::{Error, Result};

use super::exact::exact;
use super::lossy_cast::hide;
use super::signed_zero::with_both_zeros;
use super::{numerals, words};
use crate::errors::{Context, from_datafusion};

/// Most operators in a chain without parentheses. DataFusion's passes recurse one call deeper for
/// each, and a stack overflow aborts the process.
const MAX_IN_A_CHAIN: usize = 1_000;
/// Most levels of a condition: a chain, inside as many parentheses as the parser accepts.
const MAX_DEPTH: usize = MAX_IN_A_CHAIN + 100;
/// Conditions from which a chain becomes a balanced tree; shorter chains keep their shape.
const LONG_CHAIN: usize = 64;
/// Most words of SQL in such a chain, where a sign counts as two. A comparison has three of them,
/// and the operator that joins it to the next is the fourth.
const MAX_WORDS: usize = 4 * MAX_IN_A_CHAIN;
/// Most nested `NOT (`: the parser takes twice as long for each more.
const MAX_NOTS: usize = 16;

/// Arrow's errors for a local time that a zone skips or has twice.
const NO_SUCH_TIME: [&str; 2] =
    ["error computing timezone offset", "Cannot cast timezone to different timezone"];

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
        let schema = Arc::new(df_schema(schema)?);
        Self::resolve(parsed(session, &schema, sql, &action)?, &schema, &action)
    }

    /// The filter of an expression of DataFusion.
    ///
    /// # Errors
    /// An input error where the types of `expression` do not fit.
    pub fn new(schema: &SchemaRef, expression: Expr) -> Result<Self> {
        Self::resolve(expression, &Arc::new(df_schema(schema)?), "the filter is not valid")
    }

    fn resolve(expression: Expr, schema: &Arc<DFSchema>, action: &str) -> Result<Self> {
        resolved(expression, schema, action, of_boolean).map(|expression| Self { expression })
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

    /// The conjuncts that cannot fail on any row, and the others.
    ///
    /// The first part also runs on rows that a scan does not return: superseded ones, tombstones.
    #[must_use]
    pub fn split_fallible(&self) -> (Option<Expr>, Option<Self>) {
        let (safe, others): (Vec<&Expr>, Vec<&Expr>) =
            split_conjunction(&self.expression).into_iter().partition(|part| cannot_fail(part));
        let rest = conjunction(others.into_iter().cloned().collect());
        let safe = conjunction(safe.into_iter().cloned().collect());
        (safe, rest.map(|expression| Self { expression }))
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
        let schema = df_schema(schema)?;
        physical(session, self.expression.clone(), &schema, "planning the filter")
    }
}

/// The expression of a SQL text over the columns of `schema`. `action` begins the text of an error.
pub(super) fn parsed(
    session: &SessionContext,
    schema: &DFSchema,
    sql: &str,
    action: &str,
) -> Result<Expr> {
    refuse_long_text(sql, "filter")?;
    numerals::parse(session, schema, sql).map_err(|error| {
        if let Some(name) = words::to_quote(session, schema, sql) {
            return Error::input(format!(
                "{action}: {name} is a word of SQL; write the column as \"{name}\""
            ));
        }
        let error = invalid(action, error);
        match (words::meant_as_text(schema, sql), error) {
            (Some(text), Error::InvalidInput { message, source }) => {
                // The quoted text says more than the way out of any unknown name.
                let message = message.trim_end_matches(A_NAME);
                let message = format!("{message}; a text has single quotes: '{text}'");
                Error::InvalidInput { message, source }
            }
            (_, error) => error,
        }
    })
}

/// The expression with its types resolved. `of_whole` changes it where its type is known.
pub(super) fn resolved(
    expression: Expr,
    schema: &Arc<DFSchema>,
    action: &str,
    of_whole: fn(Expr, &DFSchema) -> PlanResult<Expr>,
) -> Result<Expr> {
    refuse_deep(&expression)?;
    refuse_other_rows(&expression, action)?;
    let simplifier = simplifier(schema.clone());
    let resolved = numerals::settle(expression, schema)
        .and_then(|expression| exact(expression, schema, &simplifier))
        .and_then(|expression| simplifier.coerce(expression, schema))
        .and_then(|expression| of_whole(expression, schema))
        .and_then(|expression| without_nulls_in_lists(expression, &simplifier))
        .and_then(|expression| simplified(expression, schema))
        .and_then(with_both_zeros)
        .and_then(flat);
    resolved.map_err(|error| invalid(action, error))
}

/// A resolved expression for batches of `schema`.
pub(super) fn physical(
    session: &SessionContext,
    expression: Expr,
    schema: &DFSchema,
    action: &str,
) -> Result<Arc<dyn PhysicalExpr>> {
    let physical =
        session.create_physical_expr(expression, schema).map_err(|error| invalid(action, error))?;
    let columns = schema.inner();
    Ok(physical.transform_up(|part| checked(part, columns)).context(action)?.data)
}

/// Gives a condition of type null, which is null for every row, the type of booleans.
fn of_boolean(expression: Expr, schema: &DFSchema) -> PlanResult<Expr> {
    let is_null = expression.get_type(schema)?.is_null();
    Ok(if is_null { Expr::Literal(ScalarValue::Boolean(None), None) } else { expression })
}

fn simplifier(schema: Arc<DFSchema>) -> ExprSimplifier {
    // One time for all rows, as in SQL.
    let context = SimplifyContext::builder().with_schema(schema).with_current_time().build();
    ExprSimplifier::new(context)
}

/// The same condition, simplified. A lossless cast of a column is moved to the constant that it is
/// compared with, so that an index can be used.
fn simplified(expression: Expr, schema: &DFSchema) -> PlanResult<Expr> {
    let hidden = hide(expression, schema)?;
    let simplifier = simplifier(Arc::new(hidden.schema.clone()));
    let simple = simplifier.simplify(hidden.expression.clone())?;
    hidden.show(simple)
}

/// Rewrites `x IN (1, NULL)` as `x IN (1) OR NULL`. DataFusion's simplifier treats lists as sets,
/// and loses the null where it combines two of them.
fn without_nulls_in_lists(expression: Expr, simplifier: &ExprSimplifier) -> PlanResult<Expr> {
    let rewrite = |part| {
        let Expr::InList(mut list) = part else { return Ok(Transformed::no(part)) };
        let values = list.list.len();
        let mut known = Vec::with_capacity(values);
        for value in list.list {
            // A null may be the result of an expression, such as `NULL + 1`.
            let is_plain = matches!(value, Expr::Literal(..) | Expr::Column(_));
            let value = if is_plain { value } else { simplifier.simplify(value)? };
            if !matches!(&value, Expr::Literal(value, _) if value.is_null()) {
                known.push(value);
            }
        }
        list.list = known;
        if list.list.len() == values {
            return Ok(Transformed::no(Expr::InList(list)));
        }
        let null = lit(ScalarValue::Boolean(None));
        Ok(Transformed::yes(match (list.list.is_empty(), list.negated) {
            (true, _) => null,
            (false, true) => Expr::InList(list).and(null),
            (false, false) => Expr::InList(list).or(null),
        }))
    };
    Ok(expression.transform_up(rewrite)?.data)
}

/// What a caller does who meant a text, or mistyped a column.
const A_NAME: &str = "; a column is written by its name, text in single quotes: 'Ada'";

/// Words of DataFusion's errors, and what a caller who meets them most often does.
const WAYS_OUT: [(&str, &str); 4] = [
    ("No field named", A_NAME),
    ("Expected: end of expression", "; this is SQL, where a text has single quotes: 'Ada'"),
    (
        "Cannot infer common argument type",
        "; compare values of one type, and join conditions by AND and OR: & and | work on bits",
    ),
    ("Error parsing timestamp", "; write a time with its seconds: TIMESTAMP '2024-01-01 12:00:00'"),
];

/// The input error for an error of DataFusion about a condition. DataFusion reports some of them as
/// internal errors, such as a parameter without a value.
pub(crate) fn invalid(action: &str, error: DataFusionError) -> Error {
    let (mut message, source) = match from_datafusion(action, error) {
        Error::Internal { message, source } | Error::InvalidInput { message, source } => {
            (message, source)
        }
        other => return other,
    };
    for (words, way_out) in WAYS_OUT {
        if message.contains(words) {
            message.push_str(way_out);
        }
    }
    if NO_SUCH_TIME.iter().any(|words| message.contains(words)) {
        message.push_str(
            "; the column's zone has no such time, or has it twice: write the instant, as in \
             TIMESTAMPTZ '2024-01-01T00:00:00+01:00'",
        );
    }
    Error::InvalidInput { message, source }
}

/// Arithmetic that fails on overflow: a wrapped number would meet other conditions.
fn checked(
    part: Arc<dyn PhysicalExpr>,
    schema: &SchemaRef,
) -> PlanResult<Transformed<Arc<dyn PhysicalExpr>>> {
    if let Some(negative) = part.downcast_ref::<NegativeExpr>() {
        let of = negative.arg().data_type(schema)?;
        if !of.is_signed_integer() {
            return Ok(Transformed::no(part));
        }
        let zero = Arc::new(Literal::new(ScalarValue::new_zero(&of)?));
        let difference = BinaryExpr::new(zero, Operator::Minus, negative.arg().clone());
        return Ok(Transformed::yes(Arc::new(difference.with_fail_on_overflow(true))));
    }
    let Some(binary) = part.downcast_ref::<BinaryExpr>() else { return Ok(Transformed::no(part)) };
    if !matches!(binary.op(), Operator::Plus | Operator::Minus | Operator::Multiply) {
        return Ok(Transformed::no(part));
    }
    Ok(Transformed::yes(Arc::new(binary.clone().with_fail_on_overflow(true))))
}

/// The same condition with long chains of AND and OR as balanced trees. A parsed chain is as deep
/// as it is long, and Lance looks for an index at most 500 levels deep.
fn flat(expression: Expr) -> PlanResult<Expr> {
    let flatten = |part| {
        let Expr::BinaryExpr(BinaryCondition { op: op @ (Operator::And | Operator::Or), .. }) =
            &part
        else {
            return Ok(Transformed::no(part));
        };
        let op = *op;
        let conditions = split_binary(&part, op);
        if conditions.len() < LONG_CHAIN {
            return Ok(Transformed::no(part));
        }
        let conditions = conditions.into_iter().cloned().collect();
        Ok(joined(conditions, op).map_or(Transformed::no(part), Transformed::yes))
    };
    Ok(expression.transform_down(flatten)?.data)
}

/// All of these conditions, as a balanced tree: DataFusion's own conjunction is as deep as the
/// number of conditions.
pub(super) fn conjunction(conditions: Vec<Expr>) -> Option<Expr> {
    joined(conditions, Operator::And)
}

/// Any of these conditions, as a balanced tree.
pub(super) fn either(conditions: Vec<Expr>) -> Option<Expr> {
    joined(conditions, Operator::Or)
}

fn joined(mut conditions: Vec<Expr>, operator: Operator) -> Option<Expr> {
    while conditions.len() > 1 {
        let mut rest = conditions.into_iter();
        let mut pairs = Vec::with_capacity(rest.len().div_ceil(2));
        while let Some(one) = rest.next() {
            pairs.push(match rest.next() {
                Some(other) => binary_expr(one, operator, other),
                None => one,
            });
        }
        conditions = pairs;
    }
    conditions.pop()
}

/// Comparisons of columns and constants: no arithmetic, no cast, no function.
fn cannot_fail(expression: &Expr) -> bool {
    let mut safe = true;
    let visited = expression.apply(|part| {
        safe &= match part {
            Expr::BinaryExpr(binary) => is_comparison(binary.op) || binary.op.is_logic_operator(),
            Expr::Column(_)
            | Expr::Literal(..)
            | Expr::IsNull(_)
            | Expr::IsNotNull(_)
            | Expr::IsTrue(_)
            | Expr::IsFalse(_)
            | Expr::Between(_)
            | Expr::InList(_) => true,
            Expr::Not(inner) => !asks_whether_a_column_is_true(inner),
            _ => false,
        };
        Ok(if safe { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
    });
    visited.is_ok() && safe
}

/// For `NOT (b IS TRUE)` an index of Lance misses the rows in which b is null.
fn asks_whether_a_column_is_true(expression: &Expr) -> bool {
    let asks = expression.exists(|part| {
        let (Expr::IsTrue(of) | Expr::IsFalse(of)) = part else { return Ok(false) };
        Ok(matches!(of.as_ref(), Expr::Column(_)))
    });
    asks.unwrap_or(true)
}

pub(super) const fn is_comparison(operator: Operator) -> bool {
    matches!(
        operator,
        Operator::Eq
            | Operator::NotEq
            | Operator::Lt
            | Operator::LtEq
            | Operator::Gt
            | Operator::GtEq
            | Operator::IsDistinctFrom
            | Operator::IsNotDistinctFrom
    )
}

pub(super) fn columns_of(expression: &Expr) -> BTreeSet<String> {
    expression.column_refs().into_iter().map(|column| column.name.clone()).collect()
}

/// Refuses an overlong `a = 1 OR a = 2 OR ...` before it is parsed: the parser recurses as deep as
/// the chain is long. The parser itself limits parentheses. A comma starts a new chain. `what` is
/// the text in errors.
pub(crate) fn refuse_long_text(sql: &str, what: &str) -> Result<()> {
    // Text that cannot be tokenized is left to the parser, which reports the error.
    let words = Tokenizer::new(&GenericDialect {}, sql).tokenize().unwrap_or_default();
    let words = words.into_iter().filter(|word| !matches!(word, Token::Whitespace(_)));
    let (mut outside, mut here, mut nots, mut is_negated) = (Vec::new(), 0, 0, false);
    for word in words {
        match &word {
            Token::LParen => {
                outside.push((here, nots));
                nots += usize::from(is_negated);
            }
            Token::RParen => (here, nots) = outside.pop().unwrap_or_default(),
            Token::Comma => here = outside.last().map_or(0, |(here, _)| *here),
            Token::Number(..) | Token::SingleQuotedString(_) => {}
            Token::Word(_) => here += 1,
            _ => here += 2,
        }
        if here > MAX_WORDS {
            return Err(too_long(what));
        }
        is_negated = matches!(&word, Token::Word(word) if word.value.eq_ignore_ascii_case("not"));
        if nots > MAX_NOTS {
            return Err(Error::input(format!(
                "the {what} nests more than {MAX_NOTS} conditions in NOT ( ); write opposite ones"
            )));
        }
    }
    Ok(())
}

/// Refuses expressions over several rows, such as aggregates. They have no plan in a filter, and
/// DataFusion's errors for them print its internal structures.
fn refuse_other_rows(expression: &Expr, action: &str) -> Result<()> {
    let mut found = None;
    let looked = expression.apply(|part| {
        found = match part {
            Expr::AggregateFunction(_) => Some("an aggregate"),
            Expr::WindowFunction(_) => Some("a window function"),
            Expr::ScalarSubquery(_) | Expr::InSubquery(_) | Expr::Exists(_) => Some("a subquery"),
            Expr::Placeholder(_) => Some("a placeholder without a value"),
            _ => return Ok(TreeNodeRecursion::Continue),
        };
        Ok(TreeNodeRecursion::Stop)
    });
    looked.map_err(|error| invalid(action, error))?;
    match found {
        Some(what) => {
            Err(Error::input(format!("{action}: a condition on a row cannot have {what}")))
        }
        None => Ok(()),
    }
}

/// Refuses an expression that is nested too deep, in whatever form it arrived.
fn refuse_deep(expression: &Expr) -> Result<()> {
    let mut open = vec![(expression, 0)];
    while let Some((expression, depth)) = open.pop() {
        if depth > MAX_DEPTH {
            return Err(too_long("filter"));
        }
        let visited = expression.apply_children(|part| {
            open.push((part, depth + 1));
            Ok(TreeNodeRecursion::Continue)
        });
        visited.context("reading the filter")?;
    }
    Ok(())
}

fn too_long(what: &str) -> Error {
    Error::input(format!(
        "the {what} has more than {MAX_IN_A_CHAIN} operators in a chain; write IN for a list of \
         values, or read by key with get"
    ))
}

pub(super) fn df_schema(schema: &SchemaRef) -> Result<DFSchema> {
    schema.clone().to_dfschema().context("reading the table's schema")
}
