//! Conditions that arrive as Substrait: one expression over flat columns.
//!
//! Owns: which messages reach the translator. The message is untrusted, so everything that the
//! translator assumes is checked first: sizes, indexes, required parts, functions. Forms that only
//! pyarrow writes are rewritten into the common form.
//! Does not own: the translation, which is `datafusion-substrait`'s, or types, which `filter`
//! resolves against the table.

use arrow_schema::{Schema, SchemaRef};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, ToDFSchema};
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::expr::Case;
use datafusion::prelude::SessionContext;
use datafusion_substrait::extensions::Extensions;
use datafusion_substrait::logical_plan::consumer::{
    DefaultSubstraitConsumer, from_substrait_rex, substrait_fun_name,
};
use datafusion_substrait::substrait::proto::expression::field_reference::{
    ReferenceType, RootType,
};
use datafusion_substrait::substrait::proto::expression::literal::user_defined::Val;
use datafusion_substrait::substrait::proto::expression::literal::{
    LiteralType, PrecisionTimestamp, UserDefined,
};
use datafusion_substrait::substrait::proto::expression::{
    FieldReference, Literal, RexType, ScalarFunction, reference_segment,
};
use datafusion_substrait::substrait::proto::expression_reference::ExprType;
use datafusion_substrait::substrait::proto::function_argument::ArgType;
use datafusion_substrait::substrait::proto::r#type::Kind;
use datafusion_substrait::substrait::proto::{Expression, ExtendedExpression, NamedStruct, Type};
use datafusion_substrait::variation_const::UNSIGNED_INTEGER_TYPE_VARIATION_REF;
use lancemem_core::types::{Error, Result};
use prost::Message;

use super::Filter;

/// Most bytes of a message.
const MAX_BYTES: usize = 4 << 20;
/// Most parts of an expression. The decoder limits their depth: a hundred messages, about thirty
/// operators.
const MAX_PARTS: usize = 100_000;
/// Digits of a decimal of 128 bits.
const MAX_DECIMAL_DIGITS: i32 = 38;

/// Functions with the same meaning in Substrait and here, with their least and most arguments.
const FUNCTIONS: &[(&str, usize, usize)] = &[
    ("equal", 2, 2),
    ("not_equal", 2, 2),
    ("lt", 2, 2),
    ("lte", 2, 2),
    ("gt", 2, 2),
    ("gte", 2, 2),
    ("between", 3, 3),
    ("is_distinct_from", 2, 2),
    ("is_not_distinct_from", 2, 2),
    ("and", 2, 1024),
    ("or", 2, 1024),
    ("not", 1, 1),
    ("is_null", 1, 1),
    ("is_not_null", 1, 1),
    ("is_true", 1, 1),
    ("is_false", 1, 1),
    ("is_nan", 1, 1),
    ("add", 2, 2),
    ("subtract", 2, 2),
    ("multiply", 2, 2),
    ("divide", 2, 2),
    ("like", 2, 2),
    ("starts_with", 2, 2),
];

/// Options that request what is done here anyway.
const OPTIONS: &[(&str, &str)] = &[
    ("case_sensitivity", "CASE_SENSITIVE"),
    ("overflow", "SILENT"),
    ("overflow", "ERROR"),
    ("rounding", "TIE_TO_EVEN"),
];

/// The condition of a Substrait `ExtendedExpression` that has one expression.
///
/// # Errors
/// An input error that names the unsupported part.
pub async fn parse(session: &SessionContext, schema: &SchemaRef, message: &[u8]) -> Result<Filter> {
    if message.len() > MAX_BYTES {
        return Err(refused(&format!("it has {} bytes, at most {MAX_BYTES}", message.len())));
    }
    let message = ExtendedExpression::decode(message).map_err(|error| refused(&error))?;
    let [reference] = message.referred_expr.as_slice() else {
        let found = message.referred_expr.len();
        return Err(refused(&format!("it has {found} expressions, expected one")));
    };
    let Some(ExprType::Expression(expression)) = &reference.expr_type else {
        return Err(refused(&"it is not a scalar expression"));
    };
    let columns = columns_of(schema, message.base_schema.as_ref())?;
    let extensions = Extensions::try_from(&message.extensions).map_err(|error| refused(&error))?;
    if !extensions.type_variations.is_empty() {
        return Err(refused(&"it has type variations"));
    }

    let mut expression = expression.clone();
    let mut gate = Gate { columns: columns.fields().len(), extensions: &extensions, parts: 0 };
    gate.expression(&mut expression)?;

    let state = session.state();
    let consumer = DefaultSubstraitConsumer::new(&extensions, &state);
    let translated = from_substrait_rex(&consumer, &expression, &columns).await;
    let translated = translated.and_then(|expression| Ok(expression.transform_up(plain_in)?.data));
    let translated = translated.map_err(|error| refused(&error.strip_backtrace()))?;
    Filter::new(schema, translated)
}

fn refused(reason: &impl ToString) -> Error {
    Error::input(format!(
        "the filter cannot be taken as an expression, pass it as a SQL string: {}",
        reason.to_string()
    ))
}

/// The table's columns in the order in which the message counts them. The message's types are
/// ignored: the table's types decide.
fn columns_of(schema: &Schema, named: Option<&NamedStruct>) -> Result<DFSchema> {
    let named = named.ok_or_else(|| refused(&"it has no schema"))?;
    let types = named.r#struct.as_ref().map_or(0, |fields| fields.types.len());
    if named.names.len() != types {
        return Err(refused(&"its schema has nested columns"));
    }
    let fields = named.names.iter().map(|name| {
        schema.field_with_name(name).cloned().map_err(|_| refused(&format!("no column '{name}'")))
    });
    let fields = fields.collect::<Result<Vec<_>>>()?;
    Schema::new(fields).to_dfschema().map_err(|error| refused(&error))
}

/// The check of an expression before the translator sees it.
struct Gate<'a> {
    columns: usize,
    extensions: &'a Extensions,
    parts: usize,
}

impl Gate<'_> {
    fn expression(&mut self, expression: &mut Expression) -> Result<()> {
        self.parts += 1;
        if self.parts > MAX_PARTS {
            return Err(refused(&format!("it has more than {MAX_PARTS} parts")));
        }
        match expression.rex_type.as_mut().ok_or_else(|| missing("expression"))? {
            RexType::Literal(value) => literal(value),
            RexType::Selection(field) => self.field(field),
            RexType::ScalarFunction(call) => self.call(call),
            RexType::IfThen(choice) => {
                for clause in &mut choice.ifs {
                    self.required(clause.r#if.as_mut(), "condition")?;
                    self.required(clause.then.as_mut(), "result")?;
                }
                if choice.ifs.is_empty() {
                    return Err(missing("condition"));
                }
                choice.r#else.as_mut().map_or(Ok(()), |otherwise| self.expression(otherwise))
            }
            RexType::SingularOrList(list) => {
                self.required(list.value.as_deref_mut(), "value of IN")?;
                // SQL and pyarrow differ on what null in a list means.
                if list.options.iter().any(is_null) {
                    return Err(refused(&"null in the list of IN"));
                }
                list.options.iter_mut().try_for_each(|option| self.expression(option))
            }
            RexType::Cast(cast) => {
                simple_type(cast.r#type.as_ref())?;
                self.required(cast.input.as_deref_mut(), "value of a cast")
            }
            _ => Err(refused(&"it is neither column, constant, comparison, IN, CASE nor cast")),
        }
    }

    fn required(&mut self, part: Option<&mut Expression>, what: &str) -> Result<()> {
        self.expression(part.ok_or_else(|| missing(what))?)
    }

    fn call(&mut self, call: &mut ScalarFunction) -> Result<()> {
        let name = self.extensions.functions.get(&call.function_reference);
        let name = substrait_fun_name(name.ok_or_else(|| missing("function"))?);
        let Some((_, least, most)) = FUNCTIONS.iter().find(|(known, ..)| *known == name) else {
            return Err(refused(&format!("function '{name}' is not known")));
        };
        if !(*least..=*most).contains(&call.arguments.len()) {
            let found = call.arguments.len();
            return Err(refused(&format!("function '{name}' has {found} arguments")));
        }
        for option in &call.options {
            let is_known = |preference: &String| {
                OPTIONS.contains(&(option.name.as_str(), preference.as_str()))
            };
            if !option.preference.iter().any(is_known) {
                return Err(refused(&format!(
                    "function '{name}' has option {}={}",
                    option.name,
                    option.preference.join("|")
                )));
            }
        }
        for argument in &mut call.arguments {
            let Some(ArgType::Value(value)) = &mut argument.arg_type else {
                return Err(missing("argument"));
            };
            self.expression(value)?;
        }
        Ok(())
    }

    fn field(&self, field: &FieldReference) -> Result<()> {
        if !matches!(field.root_type, None | Some(RootType::RootReference(_))) {
            return Err(refused(&"a column is not one of the table's"));
        }
        let Some(ReferenceType::DirectReference(segment)) = &field.reference_type else {
            return Err(missing("column"));
        };
        match &segment.reference_type {
            Some(reference_segment::ReferenceType::StructField(column))
                if column.child.is_none()
                    && usize::try_from(column.field).is_ok_and(|it| it < self.columns) =>
            {
                Ok(())
            }
            Some(reference_segment::ReferenceType::StructField(column))
                if column.child.is_some() =>
            {
                Err(refused(&"a field of a nested column"))
            }
            _ => Err(refused(&"a column that its schema does not have")),
        }
    }
}

fn is_null(expression: &Expression) -> bool {
    let Some(RexType::Literal(value)) = &expression.rex_type else { return false };
    matches!(value.literal_type, Some(LiteralType::Null(_)))
}

fn missing(what: &str) -> Error {
    refused(&format!("a required part is missing: {what}"))
}

/// Checks a constant, and rewrites forms that only pyarrow writes into the common form.
#[expect(deprecated, reason = "pyarrow writes timestamps in the old form")]
fn literal(value: &mut Literal) -> Result<()> {
    let content = value.literal_type.as_ref().ok_or_else(|| missing("constant"))?;
    match content {
        // Old timestamps are microseconds; the translator may read them in another unit.
        LiteralType::Timestamp(micros) => {
            let micros = PrecisionTimestamp { precision: 6, value: *micros };
            value.literal_type = Some(LiteralType::PrecisionTimestamp(micros));
            value.type_variation_reference = 0;
        }
        LiteralType::TimestampTz(micros) => {
            let micros = PrecisionTimestamp { precision: 6, value: *micros };
            value.literal_type = Some(LiteralType::PrecisionTimestampTz(micros));
            value.type_variation_reference = 0;
        }
        LiteralType::UserDefined(own) => {
            let (plain, variation) = of_arrow(own)?;
            value.literal_type = Some(plain);
            value.type_variation_reference = variation;
        }
        LiteralType::Decimal(decimal) => {
            decimal_digits(decimal.precision, decimal.scale)?;
            if decimal.value.len() != 16 {
                return Err(missing("digits of a decimal"));
            }
        }
        LiteralType::Null(of) => simple_type(Some(of))?,
        LiteralType::Boolean(_)
        | LiteralType::I8(_)
        | LiteralType::I16(_)
        | LiteralType::I32(_)
        | LiteralType::I64(_)
        | LiteralType::Fp32(_)
        | LiteralType::Fp64(_)
        | LiteralType::String(_)
        | LiteralType::FixedChar(_)
        | LiteralType::Binary(_)
        | LiteralType::Date(_)
        | LiteralType::PrecisionTimestamp(_)
        | LiteralType::PrecisionTimestampTz(_) => {}
        _ => return Err(refused(&"a constant of an unsupported type")),
    }
    Ok(())
}

/// A constant of a type that Arrow added to Substrait: unsigned integers and large text. They are
/// encoded in Protobuf's wrapper messages for single values.
fn of_arrow(own: &UserDefined) -> Result<(LiteralType, u32)> {
    let Some(Val::Value(value)) = &own.val else { return Err(missing("constant")) };
    let bytes: &[u8] = value.value.as_ref();
    let name = value.type_url.rsplit('/').next().unwrap_or_default();
    match name {
        "google.protobuf.StringValue" => {
            Ok((LiteralType::String(String::decode(bytes).map_err(|error| refused(&error))?), 0))
        }
        "google.protobuf.BytesValue" => {
            Ok((LiteralType::Binary(Vec::<u8>::decode(bytes).map_err(|error| refused(&error))?), 0))
        }
        "google.protobuf.UInt32Value" | "google.protobuf.UInt64Value" => {
            let number = u64::decode(bytes).map_err(|error| refused(&error))?;
            Ok((LiteralType::I64(number.cast_signed()), UNSIGNED_INTEGER_TYPE_VARIATION_REF))
        }
        _ => Err(refused(&"a constant of an unsupported type")),
    }
}

fn simple_type(of: Option<&Type>) -> Result<()> {
    match of.and_then(|of| of.kind.as_ref()).ok_or_else(|| missing("type"))? {
        Kind::Bool(_)
        | Kind::I8(_)
        | Kind::I16(_)
        | Kind::I32(_)
        | Kind::I64(_)
        | Kind::Fp32(_)
        | Kind::Fp64(_)
        | Kind::String(_)
        | Kind::Binary(_)
        | Kind::Date(_)
        | Kind::PrecisionTimestamp(_)
        | Kind::PrecisionTimestampTz(_) => Ok(()),
        Kind::Decimal(decimal) => decimal_digits(decimal.precision, decimal.scale),
        _ => Err(refused(&"an unsupported type")),
    }
}

fn decimal_digits(precision: i32, scale: i32) -> Result<()> {
    if (1..=MAX_DECIMAL_DIGITS).contains(&precision) && (0..=precision).contains(&scale) {
        return Ok(());
    }
    Err(refused(&format!("decimal({precision}, {scale}) is out of range")))
}

/// Rewrites `CASE WHEN x IS NOT NULL THEN x IN (..) END` as `x IN (..)`. `DuckDB` writes the first
/// form for pyarrow, whose IN has no nulls. Here IN has SQL's nulls, so the plain form means the
/// same and can be pushed down.
#[expect(clippy::unnecessary_wraps, reason = "the form that a walk over expressions calls")]
fn plain_in(expression: Expr) -> datafusion::common::Result<Transformed<Expr>> {
    if let Expr::Case(case) = &expression
        && let Some(list) = guarded_in(case)
    {
        return Ok(Transformed::yes(list.clone()));
    }
    Ok(Transformed::no(expression))
}

fn guarded_in(case: &Case) -> Option<&Expr> {
    let [(guard, list)] = case.when_then_expr.as_slice() else { return None };
    let is_null = |part: &Expr| matches!(part, Expr::Literal(value, _) if value.is_null());
    let otherwise_null = case.else_expr.as_deref().is_none_or(is_null);
    match (guard.as_ref(), list.as_ref()) {
        (Expr::IsNotNull(guarded), Expr::InList(in_list))
            if case.expr.is_none() && otherwise_null && *guarded == in_list.expr =>
        {
            Some(list.as_ref())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
