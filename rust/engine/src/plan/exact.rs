//! Comparisons with constants of another type, by value.
//!
//! Owns: comparisons without rounding, truncation or overflow. The constant becomes a constant of
//! the value's own type, or the comparison becomes one with the nearest value below it. DataFusion
//! casts both sides to a common type, which loses digits and parts of seconds, and fails on large
//! values.
//! Does not own: the position of a constant among the values of a type (`values`), or comparisons
//! of two columns, except decimals.

use std::sync::Arc;

use arrow_schema::{DataType, TimeUnit};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::Result as PlanResult;
use datafusion::logical_expr::expr::{Case, InList, ScalarFunction};
use datafusion::logical_expr::{
    Between, BinaryExpr, Cast, Expr, ExprSchemable, Operator, TryCast, binary_expr, lit,
};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;

use super::filter::{either, is_comparison};
use super::lossy_cast::{is_utc, keeps_all};
use super::values::{ConstantPosition, decimal_of, is_placed, nearest_double, place};

/// Functions whose arguments take one common type.
const OF_ONE_TYPE: &[&str] = &["coalesce", "nullif", "nvl", "nvl2", "greatest", "least"];
const UTC: &str = "UTC";
/// Digits of a decimal of 128 bits, and of one of 256.
const DIGITS_OF_128: u8 = 38;
const DIGITS_OF_256: u8 = 76;

/// The same condition, with comparisons that lose nothing when DataFusion coerces their types.
pub fn exact(expression: Expr, schema: &DFSchema, simplifier: &ExprSimplifier) -> PlanResult<Expr> {
    let rewrite = |part| {
        let part = with_value(part, schema, simplifier);
        Ok(Transformed::yes(rewritten(&part, schema).unwrap_or(part)))
    };
    Ok(expression.transform_up(rewrite)?.data)
}

/// Constant folding: a cast, a sum or a call of constants becomes its value. An expression that
/// fails stays, and the coercion of types reports its error.
// Not inlined: its stack frame would count at each level of a condition. The same for `rewritten`.
#[inline(never)]
fn with_value(part: Expr, schema: &DFSchema, simplifier: &ExprSimplifier) -> Expr {
    if let Some(moment) = moment_of_text(&part) {
        return lit(moment);
    }
    let is_constant = |part: &Expr| matches!(part, Expr::Literal(..));
    let is_known = match &part {
        Expr::Cast(Cast { expr, .. }) | Expr::TryCast(TryCast { expr, .. }) => is_constant(expr),
        Expr::Negative(of) => is_constant(of),
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            !is_comparison(*op)
                && !op.is_logic_operator()
                && is_constant(left)
                && is_constant(right)
        }
        Expr::ScalarFunction(call) => call.args.iter().all(is_constant) && !part.is_volatile_node(),
        _ => false,
    };
    if !is_known {
        return part;
    }
    let is_now = matches!(&part, Expr::ScalarFunction(call) if call.func.name() == "now");
    let value = simplifier.coerce(part.clone(), schema).and_then(|part| simplifier.simplify(part));
    match value {
        // An instant, independent of the session's time zone.
        Ok(Expr::Literal(ScalarValue::TimestampNanosecond(now, None), _)) if is_now => {
            lit(ScalarValue::TimestampNanosecond(now, Some(UTC.into())))
        }
        Ok(value @ Expr::Literal(..)) => value,
        _ => part,
    }
}

/// The value of `TIMESTAMP '..'`: an instant where the text names a zone, and in a coarser unit
/// where the time does not fit in nanoseconds.
fn moment_of_text(part: &Expr) -> Option<ScalarValue> {
    let Expr::Cast(Cast { expr, field }) = part else { return None };
    let Expr::Literal(text, _) = expr.as_ref() else { return None };
    let DataType::Timestamp(TimeUnit::Nanosecond, zone) = field.data_type() else { return None };
    text.try_as_str()??;
    let zone = zone.clone().or_else(|| names_zone(text).then(|| UTC.into()));
    moment(text, zone.as_ref())
}

/// A text as a time, in the finest unit that can represent it.
fn moment(text: &ScalarValue, zone: Option<&Arc<str>>) -> Option<ScalarValue> {
    let units = [TimeUnit::Nanosecond, TimeUnit::Microsecond, TimeUnit::Second];
    units.into_iter().find_map(|unit| {
        let moment = text.cast_to(&DataType::Timestamp(unit, zone.cloned())).ok()?;
        (!moment.is_null()).then_some(moment)
    })
}

fn names_zone(text: &ScalarValue) -> bool {
    let seconds = |zone: &str| {
        let moment = text.cast_to(&DataType::Timestamp(TimeUnit::Second, Some(zone.into())));
        match moment {
            Ok(ScalarValue::TimestampSecond(Some(seconds), _)) => Some(seconds),
            _ => None,
        }
    };
    let here = seconds("+00:00");
    here.is_some() && here == seconds("+01:00")
}

#[inline(never)]
fn rewritten(part: &Expr, schema: &DFSchema) -> Option<Expr> {
    match part {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if is_comparison(*op) => {
            compared(left, *op, right, schema)
        }
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Minus, right }) => {
            let [left, right] =
                <[Expr; 2]>::try_from(in_one_zone([&**left, &**right], schema)?).ok()?;
            Some(binary_expr(left, Operator::Minus, right))
        }
        Expr::Between(Between { expr, negated, low, high }) if !expr.is_volatile() => {
            let at_least = compared(expr, Operator::GtEq, low, schema);
            let at_most = compared(expr, Operator::LtEq, high, schema);
            if at_least.is_none() && at_most.is_none() {
                return None;
            }
            let plain = |op, bound: &Expr| binary_expr((**expr).clone(), op, bound.clone());
            let at_least = at_least.unwrap_or_else(|| plain(Operator::GtEq, low));
            let at_most = at_most.unwrap_or_else(|| plain(Operator::LtEq, high));
            let both = at_least.and(at_most);
            Some(if *negated { !both } else { both })
        }
        Expr::InList(list) => listed(list, schema),
        Expr::Case(case) => of_case(case, schema),
        Expr::ScalarFunction(call) if OF_ONE_TYPE.contains(&call.func.name()) => {
            let args = in_one_zone(&call.args, schema)?;
            Some(Expr::ScalarFunction(ScalarFunction { func: call.func.clone(), args }))
        }
        _ => None,
    }
}

/// `left op right` by value, where DataFusion's coercion would lose something.
fn compared(left: &Expr, op: Operator, right: &Expr, schema: &DFSchema) -> Option<Expr> {
    let (value, op, constant) = match (constant(left), constant(right)) {
        (None, None) => return of_two_values(left, op, right, schema),
        (Some(text), Some(_)) if text.try_as_str().is_some() => (right, op.swap()?, text),
        (_, Some(constant)) => (left, op, constant),
        (Some(constant), None) => (right, op.swap()?, constant),
    };
    let of = value.get_type(schema).ok()?;
    match uncast(value, schema) {
        Some((value, from)) if constant.data_type() == of || placed(constant, &of).is_some() => {
            with_constant(value, &from, op, constant)
        }
        _ => with_constant(value, &of, op, constant),
    }
}

fn constant(expression: &Expr) -> Option<&ScalarValue> {
    match expression {
        Expr::Literal(ScalarValue::Dictionary(_, value), _) => Some(value),
        Expr::Literal(value, _) => Some(value),
        _ => None,
    }
}

fn with_constant(
    value: &Expr,
    of: &DataType,
    op: Operator,
    constant: &ScalarValue,
) -> Option<Expr> {
    if constant.is_null() || constant.data_type() == *of {
        return None;
    }
    if let DataType::Dictionary(_, of) = of {
        return with_constant(value, of, op, constant);
    }
    if of.is_decimal() && constant.data_type().is_floating() {
        // A float64 is not exact: the two are compared as float64s.
        return Some(binary_expr(double(value.clone()), op, lit(constant.clone())));
    }
    if *of == DataType::Float16 && constant.data_type().is_decimal() {
        return Some(binary_expr(value.clone(), op, lit(nearest_double(constant)?)));
    }
    let place = placed(constant, of)?;
    Some(at_place(value, op, place))
}

/// The operand of a cast and its type, where the cast keeps every value.
fn uncast<'a>(value: &'a Expr, schema: &DFSchema) -> Option<(&'a Expr, DataType)> {
    let (Expr::Cast(Cast { expr, field }) | Expr::TryCast(TryCast { expr, field })) = value else {
        return None;
    };
    let (from, to) = (expr.get_type(schema).ok()?, field.data_type());
    let is_same = match (&from, to) {
        (DataType::Timestamp(..), DataType::Timestamp(..)) => true,
        (DataType::Date32, DataType::Timestamp(_, zone)) => zone.is_none(),
        (from, to) => is_number(from) && is_number(to),
    };
    (is_same && keeps_all(&from, to)).then_some((expr.as_ref(), from))
}

fn is_number(of: &DataType) -> bool {
    of.is_integer() || of.is_decimal()
}

/// The position of a constant among the values of a type. Text and times without a zone are read as
/// a comparison with such values reads them.
fn placed(constant: &ScalarValue, of: &DataType) -> Option<ConstantPosition> {
    let is_text = constant.try_as_str().is_some();
    match (of, constant.data_type()) {
        (DataType::Timestamp(_, zone), _) if is_text => {
            place(&moment(constant, zone.as_ref())?, of)
        }
        (DataType::Date32, _) if is_text => place(&moment(constant, None)?, of),
        (DataType::Time32(_) | DataType::Time64(_), _) if is_text => {
            place(&constant.cast_to(&DataType::Time64(TimeUnit::Nanosecond)).ok()?, of)
        }
        (of, _) if is_text && of.is_decimal() => {
            place(&decimal_of(constant.try_as_str()??.trim())?, of)
        }
        (DataType::Timestamp(_, Some(zone)), DataType::Timestamp(unit, None)) => {
            // A local time in the zone of the column.
            let here = constant.cast_to(&DataType::Timestamp(unit, Some(zone.clone()))).ok()?;
            place(&here, of)
        }
        (DataType::Timestamp(_, None), DataType::Timestamp(_, Some(zone))) if !is_utc(&zone) => {
            None
        }
        _ if is_text => None,
        _ => place(constant, of),
    }
}

/// `value op constant`, where the constant is at `place` among the values.
fn at_place(value: &Expr, op: Operator, place: ConstantPosition) -> Expr {
    let with = |op, bound| binary_expr(value.clone(), op, lit(bound));
    let place = match place {
        ConstantPosition::At(constant) => return with(op, constant),
        place => place,
    };
    match (op, place) {
        (Operator::Lt | Operator::LtEq, ConstantPosition::Above(below)) => {
            with(Operator::LtEq, below)
        }
        (Operator::Gt | Operator::GtEq, ConstantPosition::Above(below)) => {
            with(Operator::Gt, below)
        }
        (Operator::NotEq, _)
        | (Operator::Lt | Operator::LtEq, ConstantPosition::Last)
        | (Operator::Gt | Operator::GtEq, ConstantPosition::First) => always(value),
        (Operator::IsDistinctFrom, _) => lit(true),
        (Operator::IsNotDistinctFrom, _) => lit(false),
        _ => never(value),
    }
}

/// False, and null where the value is.
fn never(value: &Expr) -> Expr {
    value.clone().is_null().and(lit(ScalarValue::Boolean(None)))
}

/// True, and null where the value is.
fn always(value: &Expr) -> Expr {
    value.clone().is_not_null().or(lit(ScalarValue::Boolean(None)))
}

fn double(value: Expr) -> Expr {
    Expr::Cast(Cast::new(Box::new(value), DataType::Float64))
}

/// A decimal and a float are compared as `float64`. Two decimals are compared in 256 bits where no
/// decimal of 128 bits has the digits of both.
fn of_two_values(left: &Expr, op: Operator, right: &Expr, schema: &DFSchema) -> Option<Expr> {
    let (left_type, right_type) = (left.get_type(schema).ok()?, right.get_type(schema).ok()?);
    if left_type.is_decimal() && right_type.is_floating() {
        return Some(binary_expr(double(left.clone()), op, right.clone()));
    }
    if left_type.is_floating() && right_type.is_decimal() {
        return Some(binary_expr(left.clone(), op, double(right.clone())));
    }
    if !left_type.is_decimal() && !right_type.is_decimal() {
        return None;
    }
    let ((left_whole, left_scale), (right_whole, right_scale)) =
        (digits(&left_type)?, digits(&right_type)?);
    let scale = left_scale.max(right_scale);
    let precision = left_whole.max(right_whole).checked_add(scale.unsigned_abs())?;
    if scale < 0 || precision <= DIGITS_OF_128 || precision > DIGITS_OF_256 {
        return None;
    }
    let cast = |value: &Expr| {
        let to = DataType::Decimal256(precision, scale);
        Expr::Cast(Cast::new(Box::new(value.clone()), to))
    };
    Some(binary_expr(cast(left), op, cast(right)))
}

/// Digits before and after the decimal point.
fn digits(of: &DataType) -> Option<(u8, i8)> {
    Some(match of {
        DataType::Int8 | DataType::UInt8 => (3, 0),
        DataType::Int16 | DataType::UInt16 => (5, 0),
        DataType::Int32 | DataType::UInt32 => (10, 0),
        DataType::Int64 | DataType::UInt64 => (20, 0),
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
        | DataType::Decimal256(precision, scale) => {
            (u8::try_from(i16::from(*precision) - i16::from(*scale)).ok()?, *scale)
        }
        _ => return None,
    })
}

fn listed(list: &InList, schema: &DFSchema) -> Option<Expr> {
    let InList { expr, list, negated } = list;
    let of = expr.get_type(schema).ok()?;
    let of = if let DataType::Dictionary(_, of) = of { *of } else { of };
    let is_same = |value: &Expr| {
        constant(value).is_some_and(|value| value.is_null() || value.data_type() == of)
    };
    if expr.is_volatile() || !is_placed(&of) || list.iter().all(is_same) {
        return None;
    }
    let (mut values, mut others, mut is_exact) = (Vec::with_capacity(list.len()), Vec::new(), true);
    for value in list {
        let found = constant(value).filter(|_| !is_same(value));
        match found.and_then(|constant| placed(constant, &of)) {
            Some(ConstantPosition::At(constant)) => values.push(lit(constant)),
            Some(_) => {}
            None if is_same(value) => values.push(value.clone()),
            None => {
                let equal = compared(expr, Operator::Eq, value, schema);
                is_exact &= equal.is_some();
                let plain = || binary_expr((**expr).clone(), Operator::Eq, value.clone());
                others.push(equal.unwrap_or_else(plain));
            }
        }
    }
    // No value of the list can be placed exactly: the whole list is left to DataFusion.
    if !is_exact && values.is_empty() && others.len() == list.len() {
        return None;
    }
    if others.is_empty() && !values.is_empty() {
        let (expr, negated) = (expr.clone(), *negated);
        return Some(Expr::InList(InList { expr, list: values, negated }));
    }
    if !values.is_empty() {
        let expr = expr.clone();
        others.push(Expr::InList(InList { expr, list: values, negated: false }));
    }
    Some(match either(others) {
        Some(any) if *negated => !any,
        Some(any) => any,
        None if *negated => always(expr),
        None => never(expr),
    })
}

/// `CASE x WHEN y ..` compares as `CASE WHEN x = y ..`; results in several zones get one zone.
fn of_case(case: &Case, schema: &DFSchema) -> Option<Expr> {
    let mut changed = case.clone();
    let mut is_changed = false;
    if let Some(of) = case.expr.as_ref().filter(|of| !of.is_volatile()) {
        let exact = case
            .when_then_expr
            .iter()
            .map(|(when, _)| compared(of, Operator::Eq, when, schema))
            .collect::<Vec<_>>();
        if exact.iter().any(Option::is_some) {
            for ((when, _), exact) in changed.when_then_expr.iter_mut().zip(exact) {
                let plain = || binary_expr((**of).clone(), Operator::Eq, (**when).clone());
                let condition = exact.unwrap_or_else(plain);
                **when = condition;
            }
            changed.expr = None;
            is_changed = true;
        }
    }
    let results = case.when_then_expr.iter().map(|(_, then)| &**then);
    let results = results.chain(case.else_expr.as_deref());
    if let Some(results) = in_one_zone(results, schema) {
        let mut results = results.into_iter();
        for ((_, then), result) in changed.when_then_expr.iter_mut().zip(results.by_ref()) {
            **then = result;
        }
        changed.else_expr = results.next().map(Box::new);
        is_changed = true;
    }
    is_changed.then_some(Expr::Case(changed))
}

/// The values with every instant in the zone of the first one; `None` where they have one zone.
fn in_one_zone<'a>(
    values: impl IntoIterator<Item = &'a Expr>,
    schema: &DFSchema,
) -> Option<Vec<Expr>> {
    let mut first: Option<Arc<str>> = None;
    let mut is_changed = false;
    let values = values.into_iter().map(|value| {
        let Ok(DataType::Timestamp(unit, Some(zone))) = value.get_type(schema) else {
            return value.clone();
        };
        let to = first.get_or_insert_with(|| zone.clone());
        if *to == zone {
            return value.clone();
        }
        is_changed = true;
        let to = DataType::Timestamp(unit, Some(to.clone()));
        Expr::Cast(Cast::new(Box::new(value.clone()), to))
    });
    let values = values.collect();
    is_changed.then_some(values)
}

#[cfg(test)]
mod tests {
    use arrow_schema::{Field, Schema};

    use super::*;
    use crate::plan::{Filter, session};

    fn resolved(sql: &str) -> String {
        let columns = [
            ("price", DataType::Decimal128(10, 2)),
            ("n", DataType::Int64),
            ("single", DataType::Float32),
            ("at", DataType::Timestamp(TimeUnit::Second, None)),
            ("here", DataType::Timestamp(TimeUnit::Microsecond, Some("Europe/Paris".into()))),
        ];
        let columns = columns.map(|(name, of)| Field::new(name, of, true));
        let schema = Arc::new(Schema::new(columns.to_vec()));
        Filter::parse(&session(), &schema, sql).unwrap().expression().to_string()
    }

    #[test]
    fn a_comparison_is_one_with_a_value_of_the_columns_own_type() {
        let here = "TimestampMicrosecond(1704110400000000, Some(\"Europe/Paris\"))";
        for (sql, expected) in [
            ("price = 261.91", "price = Decimal128(Some(26191),10,2)".to_owned()),
            ("2.005 > price", "price <= Decimal128(Some(200),10,2)".to_owned()),
            ("price >= 2.005", "price > Decimal128(Some(200),10,2)".to_owned()),
            ("price > 1e20", "price IS NULL AND Boolean(NULL)".to_owned()),
            ("n = 2.5", "n IS NULL AND Boolean(NULL)".to_owned()),
            ("n <> 2.5", "n IS NOT NULL OR Boolean(NULL)".to_owned()),
            ("n IS DISTINCT FROM 2.5", "Boolean(true)".to_owned()),
            ("single > 0.5", "single > Float32(0.5)".to_owned()),
            ("at < TIMESTAMP '1970-01-01T00:00:01.5'", "at <= TimestampSecond(1, None)".to_owned()),
            ("here = TIMESTAMPTZ '2024-01-01T12:00:00Z'", format!("here = {here}")),
            ("here = '2024-01-01T13:00:00'", format!("here = {here}")),
            ("here >= to_timestamp(1704110400)", format!("here >= {here}")),
        ] {
            assert_eq!(resolved(sql), expected, "{sql}");
        }
    }
}
