//! Numbers with a point or an exponent in SQL text, such as `3.50` and `1e3`.
//!
//! Owns: their type. In an operation with decimals and integers such a number keeps its exact
//! value; everywhere else it is a `float64`, as in DataFusion.
//! Does not own: what a comparison of two types means (`exact`).

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use arrow_buffer::i256;
use arrow_schema::DataType;
use datafusion::common::metadata::FieldMetadata;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, DataFusionError, ScalarValue};
use datafusion::error::Result as PlanResult;
use datafusion::logical_expr::expr::{Case, InList, ScalarFunction};
use datafusion::logical_expr::{
    Between, BinaryExpr, Cast, Expr, ExprSchemable, Operator, TryCast, binary_expr, lit,
};
use datafusion::prelude::SessionContext;
use datafusion::sql::sqlparser::ast::{Expr as SqlExpr, Value, visit_expressions_mut};

use super::filter::{either, is_comparison};
use super::values::{decimal, decimal_of, digits_of, nearest_double};

/// The metadata key of a literal whose type is open.
const OPEN: &str = "lancemem.open_number";
/// Digits of a decimal of 128 bits.
const DIGITS_OF_128: i16 = 38;
/// Functions whose arguments take one common type.
const OF_ONE_TYPE: &[&str] = &["coalesce", "nullif", "nvl", "nvl2", "greatest", "least"];

/// The expression of a SQL text, in which the type of each number with a point is open. [`settle`]
/// decides these types.
pub fn parse(session: &SessionContext, schema: &DFSchema, sql: &str) -> PlanResult<Expr> {
    let state = session.state_ref();
    let state = state.read();
    let dialect = state.config().options().sql_parser.dialect;
    let mut parsed = state.sql_to_expr_with_alias(sql, &dialect)?;
    let replaced = visit_expressions_mut(&mut parsed.expr, |part| {
        let Some(text) = of_no_decimal(part) else { return ControlFlow::Continue(()) };
        match state.sql_to_expr(&format!("CAST('{text}' AS DOUBLE)"), &dialect) {
            Ok(double) => *part = double,
            Err(error) => return ControlFlow::Break(error),
        }
        ControlFlow::Continue(())
    });
    if let ControlFlow::Break(error) = replaced {
        return Err(error);
    }
    let expression = state.create_logical_expr_from_sql_expr(parsed, schema)?;
    let marked = |part| {
        // Decimals from casts are not literals yet.
        let Expr::Literal(
            value @ (ScalarValue::Decimal128(..) | ScalarValue::Decimal256(..)),
            None,
        ) = part
        else {
            return Ok(Transformed::no(part));
        };
        let metadata = BTreeMap::from([(OPEN.to_owned(), String::new())]);
        Ok(Transformed::yes(Expr::Literal(value, Some(FieldMetadata::from(metadata)))))
    };
    Ok(expression.transform_up(marked)?.data)
}

/// The text of a number that no decimal can represent, with more than 76 digits.
fn of_no_decimal(part: &SqlExpr) -> Option<String> {
    let SqlExpr::Value(value) = part else { return None };
    let Value::Number(text, _) = &value.value else { return None };
    let is_kept = text.parse::<u64>().is_ok() || decimal_of(text).is_some();
    (!is_kept).then(|| text.clone())
}

/// The expression with a type for every number.
pub fn settle(expression: Expr, schema: &DFSchema) -> PlanResult<Expr> {
    let settled = expression.transform_up(|part| settle_part(part, schema))?.data;
    doubles(settled)
}

// Not inlined: its stack frame would count at each level of a condition.
#[inline(never)]
fn settle_part(part: Expr, schema: &DFSchema) -> PlanResult<Transformed<Expr>> {
    match part {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if is_exact_arithmetic(op) => {
            arithmetic(*left, op, *right, schema)
        }
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if is_comparison(op) => {
            comparison(*left, op, *right, schema)
        }
        Expr::Negative(of) if is_open(&of) => Ok(Transformed::no(Expr::Negative(of))),
        Expr::Between(Between { expr, negated, low, high })
            if [&expr, &low, &high].into_iter().any(|it| is_open(it)) && !expr.is_volatile() =>
        {
            let low = comparison((*expr).clone(), Operator::GtEq, *low, schema)?.data;
            let high = comparison(*expr, Operator::LtEq, *high, schema)?.data;
            let both = low.and(high);
            Ok(Transformed::yes(if negated { !both } else { both }))
        }
        Expr::InList(list) => in_list(list, schema),
        Expr::Case(case) => of_case(case, schema),
        Expr::ScalarFunction(call) => of_function(call, schema),
        Expr::Cast(Cast { expr, field }) if field.data_type().is_decimal() && is_open(&expr) => {
            Ok(Transformed::yes(Expr::Cast(Cast { expr: Box::new(closed(*expr)?), field })))
        }
        Expr::TryCast(TryCast { expr, field })
            if field.data_type().is_decimal() && is_open(&expr) =>
        {
            Ok(Transformed::yes(Expr::TryCast(TryCast { expr: Box::new(closed(*expr)?), field })))
        }
        other => other.map_children(double_if_open),
    }
}

/// Operators whose result is exact where the operands are.
const fn is_exact_arithmetic(operator: Operator) -> bool {
    matches!(operator, Operator::Plus | Operator::Minus | Operator::Multiply)
}

fn arithmetic(
    left: Expr,
    op: Operator,
    right: Expr,
    schema: &DFSchema,
) -> PlanResult<Transformed<Expr>> {
    let (left_constant, right_constant) = (constant(&left), constant(&right));
    let (left, right) = match (left_constant, right_constant) {
        (Some(_), Some(_)) => {
            return Ok(Transformed::no(binary_expr(left, op, right)));
        }
        (None, None) => (double_if_open(left)?.data, double_if_open(right)?.data),
        (None, Some(number)) => match of_decimal(&left, schema) {
            Some(of) => beside_decimal(left, &of, op, &number),
            None => (left, double_if_open(right)?.data),
        },
        (Some(number), None) => match of_decimal(&right, schema) {
            Some(of) => {
                let (right, left) = beside_decimal(right, &of, op, &number);
                (left, right)
            }
            None => (double_if_open(left)?.data, right),
        },
    };
    Ok(Transformed::yes(binary_expr(left, op, right)))
}

/// A decimal and a number in types so wide that no result overflows. The number has as few digits
/// as possible.
fn beside_decimal(value: Expr, of: &DataType, op: Operator, number: &ScalarValue) -> (Expr, Expr) {
    let (Some((whole, scale)), Some((number_whole, number_scale))) =
        (digits(of), digits(&number.data_type()))
    else {
        return (value, lit(number.clone()));
    };
    let (digits, behind) = if op == Operator::Multiply {
        (whole + scale + number_whole + number_scale + 1, scale + number_scale)
    } else {
        (whole.max(number_whole) + scale.max(number_scale) + 1, scale.max(number_scale))
    };
    let cast = |value: Expr, to: DataType| Expr::Cast(Cast::new(Box::new(value), to));
    let is_wide = matches!(of, DataType::Decimal256(..))
        || matches!(number, ScalarValue::Decimal256(..))
        || digits > DIGITS_OF_128
        || behind > DIGITS_OF_128;
    match (of, number) {
        (
            DataType::Decimal32(precision, scale)
            | DataType::Decimal64(precision, scale)
            | DataType::Decimal128(precision, scale),
            _,
        ) if is_wide => {
            let value = cast(value, DataType::Decimal256(*precision, *scale));
            (value, lit(of_256(number)))
        }
        (DataType::Decimal256(..), _) => (value, lit(of_256(number))),
        (DataType::Decimal32(precision, scale) | DataType::Decimal64(precision, scale), _) => {
            (cast(value, DataType::Decimal128(*precision, *scale)), lit(number.clone()))
        }
        _ => (value, lit(number.clone())),
    }
}

fn of_256(number: &ScalarValue) -> ScalarValue {
    match number {
        ScalarValue::Decimal128(digits, precision, scale) => {
            ScalarValue::Decimal256(digits.map(i256::from_i128), *precision, *scale)
        }
        other => other.clone(),
    }
}

/// Digits before and after the decimal point.
fn digits(of: &DataType) -> Option<(i16, i16)> {
    match of {
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
        | DataType::Decimal256(precision, scale) => {
            let scale = i16::from(*scale);
            Some((i16::from(*precision) - scale, scale))
        }
        _ => None,
    }
}

fn comparison(
    left: Expr,
    op: Operator,
    right: Expr,
    schema: &DFSchema,
) -> PlanResult<Transformed<Expr>> {
    let (left, right) = match (is_open(&left), is_open(&right)) {
        (true, false) => (beside(left, &right, schema)?, right),
        (false, true) => {
            let right = beside(right, &left, schema)?;
            (left, right)
        }
        _ => (double_if_open(left)?.data, double_if_open(right)?.data),
    };
    Ok(Transformed::yes(binary_expr(left, op, right)))
}

/// An open number with its type in a comparison with `other`.
fn beside(number: Expr, other: &Expr, schema: &DFSchema) -> PlanResult<Expr> {
    let of = other.get_type(schema);
    if of.is_ok_and(|of| is_exact(&of)) { closed(number) } else { doubles(number) }
}

fn in_list(list: InList, schema: &DFSchema) -> PlanResult<Transformed<Expr>> {
    let InList { expr, list, negated } = list;
    if is_open(&expr) && list.iter().any(|value| constant(value).is_none()) {
        let equal = list
            .into_iter()
            .map(|value| Ok(comparison((*expr).clone(), Operator::Eq, value, schema)?.data));
        let any = either(equal.collect::<PlanResult<Vec<_>>>()?);
        return Ok(any.map_or_else(
            || Transformed::no(lit(negated)),
            |any| Transformed::yes(if negated { !any } else { any }),
        ));
    }
    let is_any_open = list.iter().any(is_open);
    let keeps = is_any_open && expr.get_type(schema).is_ok_and(|of| is_exact(&of));
    let close = |value| if keeps && is_open(&value) { closed(value) } else { doubles(value) };
    let list = if is_any_open {
        list.into_iter().map(close).collect::<PlanResult<Vec<_>>>()?
    } else {
        list
    };
    let expr = Box::new(double_if_open(*expr)?.data);
    Ok(Transformed::new_transformed(Expr::InList(InList { expr, list, negated }), is_any_open))
}

fn of_case(case: Case, schema: &DFSchema) -> PlanResult<Transformed<Expr>> {
    let Case { expr, when_then_expr, else_expr } = case;
    let is_compared_exactly = expr
        .as_ref()
        .is_some_and(|of| !is_open(of) && of.get_type(schema).is_ok_and(|of| is_exact(&of)));
    let results = when_then_expr.iter().map(|(_, then)| &**then);
    let keeps = has_decimals_only(results.chain(else_expr.as_deref()), schema);
    let close = |value: Expr, keeps: bool| match is_open(&value) {
        true if keeps => closed(value),
        true => doubles(value),
        false => Ok(value),
    };
    let when_then_expr = when_then_expr
        .into_iter()
        .map(|(when, then)| {
            let when = close(*when, is_compared_exactly)?;
            Ok((Box::new(when), Box::new(close(*then, keeps)?)))
        })
        .collect::<PlanResult<Vec<_>>>()?;
    let else_expr = else_expr.map(|value| close(*value, keeps).map(Box::new)).transpose()?;
    let expr = expr.map(|of| close(*of, false).map(Box::new)).transpose()?;
    Ok(Transformed::yes(Expr::Case(Case { expr, when_then_expr, else_expr })))
}

fn of_function(call: ScalarFunction, schema: &DFSchema) -> PlanResult<Transformed<Expr>> {
    if !call.args.iter().any(is_open) {
        return Ok(Transformed::no(Expr::ScalarFunction(call)));
    }
    let name = call.func.name();
    let is_cast = name == "arrow_cast"
        && matches!(
        call.args.get(1), Some(Expr::Literal(to, _)) if to.to_string().starts_with("Decimal"));
    let keeps =
        is_cast || OF_ONE_TYPE.contains(&name) && has_decimals_only(call.args.iter(), schema);
    let close = |value: Expr| match is_open(&value) {
        true if keeps => closed(value),
        true => doubles(value),
        false => Ok(value),
    };
    let args = call.args.into_iter().map(close).collect::<PlanResult<Vec<_>>>()?;
    Ok(Transformed::yes(Expr::ScalarFunction(ScalarFunction { func: call.func, args })))
}

/// Whether one of these values is a decimal, and all others have an exact type or are null.
fn has_decimals_only<'a>(values: impl Iterator<Item = &'a Expr>, schema: &DFSchema) -> bool {
    let mut has_decimal = false;
    for value in values.filter(|value| !is_open(value)) {
        let Ok(of) = value.get_type(schema) else { return false };
        if !is_exact(&of) && !of.is_null() {
            return false;
        }
        has_decimal |= of.is_decimal();
    }
    has_decimal
}

/// Whether a number in an operation with such a value keeps its exact value.
fn is_exact(of: &DataType) -> bool {
    match of {
        DataType::Dictionary(_, of) => is_exact(of),
        of => of.is_decimal() || of.is_integer(),
    }
}

fn of_decimal(value: &Expr, schema: &DFSchema) -> Option<DataType> {
    value.get_type(schema).ok().filter(DataType::is_decimal)
}

/// Whether this is a number with a point, or exact arithmetic of constants with such a number.
fn is_open(expression: &Expr) -> bool {
    is_marked(expression) && constant(expression).is_some()
}

fn is_marked(expression: &Expr) -> bool {
    match expression {
        Expr::Literal(_, Some(metadata)) => metadata.inner().contains_key(OPEN),
        Expr::Negative(of) => is_marked(of),
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            is_exact_arithmetic(*op) && (is_marked(left) || is_marked(right))
        }
        _ => false,
    }
}

/// The exact value of a constant number, as a decimal; `None` for other expressions and for a
/// number with too many digits.
fn constant(expression: &Expr) -> Option<ScalarValue> {
    let (digits, scale) = constant_digits(expression)?;
    decimal(digits, scale)
}

fn constant_digits(expression: &Expr) -> Option<(i256, i16)> {
    match expression {
        Expr::Literal(value, metadata) => {
            let is_open = metadata.as_ref().is_some_and(|it| it.inner().contains_key(OPEN));
            (is_open || value.data_type().is_integer()).then(|| digits_of(value)).flatten()
        }
        Expr::Negative(of) => {
            let (digits, scale) = constant_digits(of)?;
            Some((digits.wrapping_neg(), scale))
        }
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            let ((left, left_scale), (right, right_scale)) =
                (constant_digits(left)?, constant_digits(right)?);
            if *op == Operator::Multiply {
                return Some((left.checked_mul(right)?, left_scale + right_scale));
            }
            let scale = left_scale.max(right_scale);
            let (left, right) =
                (behind(left, scale - left_scale)?, behind(right, scale - right_scale)?);
            let digits = match op {
                Operator::Plus => left.checked_add(right)?,
                Operator::Minus => left.checked_sub(right)?,
                _ => return None,
            };
            Some((digits, scale))
        }
        _ => None,
    }
}

fn behind(digits: i256, zeros: i16) -> Option<i256> {
    digits.checked_mul(i256::from_i128(10).checked_pow(u32::try_from(zeros).ok()?)?)
}

/// An open number as a decimal of its exact value.
fn closed(number: Expr) -> PlanResult<Expr> {
    match constant(&number) {
        Some(number) => Ok(lit(number)),
        None => doubles(number),
    }
}

fn double_if_open(expression: Expr) -> PlanResult<Transformed<Expr>> {
    if is_open(&expression) {
        return Ok(Transformed::yes(doubles(expression)?));
    }
    Ok(Transformed::no(expression))
}

/// The expression with a `float64` for each open number.
fn doubles(expression: Expr) -> PlanResult<Expr> {
    let double = |part| match part {
        Expr::Literal(value, Some(metadata)) if metadata.inner().contains_key(OPEN) => {
            let number = nearest_double(&value).ok_or_else(|| {
                DataFusionError::Plan(format!("the number {value} cannot be read as a float64"))
            })?;
            Ok(Transformed::yes(lit(number)))
        }
        other => Ok(Transformed::no(other)),
    };
    Ok(expression.transform_up(double)?.data)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_schema::{Field, Schema};
    use datafusion::common::ToDFSchema;

    use super::*;
    use crate::plan::session;

    fn settled(sql: &str) -> String {
        let columns = [
            ("price", DataType::Decimal128(10, 2)),
            ("big", DataType::Decimal128(38, 10)),
            ("single", DataType::Float32),
            ("value", DataType::Float64),
            ("n", DataType::Int64),
        ];
        let columns = columns.map(|(name, of)| Field::new(name, of, true));
        let schema = Arc::new(Schema::new(columns.to_vec())).to_dfschema().unwrap();
        let parsed = parse(&session(), &schema, sql).unwrap();
        settle(parsed, &schema).unwrap().to_string()
    }

    #[test]
    fn a_number_keeps_its_digits_beside_decimals_and_integers() {
        for (sql, expected) in [
            ("price = 261.91", "price = Decimal128(Some(26191),5,2)"),
            ("261.910 < price", "Decimal128(Some(261910),6,3) < price"),
            ("price <> -1e3", "price != Decimal128(Some(-1000),4,0)"),
            ("n > 2.5", "n > Decimal128(Some(25),2,1)"),
            ("price IN (0.1, 2)", "price IN ([Decimal128(Some(1),1,1), Int64(2)])"),
            ("price > 2 * 1.005", "price > Decimal128(Some(2010),4,3)"),
            ("price > -(0.5)", "price > Decimal128(Some(-5),1,1)"),
            ("price * 1.1 > 3.5", "price * Decimal128(Some(11),2,1) > Decimal128(Some(35),2,1)"),
            (
                "big * 2 > 3.5",
                "CAST(big AS Decimal256(38, 10)) * Decimal256(Some(2),1,0) > \
                 Decimal128(Some(35),2,1)",
            ),
            ("coalesce(price, 0.5) = 1", "coalesce(price, Decimal128(Some(5),1,1)) = Int64(1)"),
        ] {
            assert_eq!(settled(sql), expected, "{sql}");
        }
    }

    #[test]
    fn a_number_is_a_float64_beside_everything_else() {
        for (sql, expected) in [
            ("value = 0.1", "value = Float64(0.1)"),
            ("single = 0.1", "single = Float64(0.1)"),
            ("value > 1e300", "value > CAST(Utf8(\"1e300\") AS Float64)"),
            ("value = 0.1 + 0.2", "value = Float64(0.1) + Float64(0.2)"),
            ("n * 1.5 > 3.5", "n * Float64(1.5) > Float64(3.5)"),
            ("price / 2.0 > 3.5", "price / Float64(2) > Float64(3.5)"),
            ("round(value * 2.5, 1) = 1", "round(value * Float64(2.5), Int64(1)) = Int64(1)"),
            ("coalesce(value, 0.5) = 1", "coalesce(value, Float64(0.5)) = Int64(1)"),
            ("CAST(0.1 AS REAL) = single", "CAST(Float64(0.1) AS Float32) = single"),
            ("value BETWEEN 0.1 AND 1", "value >= Float64(0.1) AND value <= Int64(1)"),
            ("0.1 + 0.2 = 0.3", "Float64(0.1) + Float64(0.2) = Float64(0.3)"),
        ] {
            assert_eq!(settled(sql), expected, "{sql}");
        }
    }
}
