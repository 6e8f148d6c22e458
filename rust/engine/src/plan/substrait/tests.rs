//! Conditions as Substrait: what is accepted, what is refused, and that nothing panics.
//!
//! Owns: messages as other programs write them, and damaged ones.
//! Does not own: messages of pyarrow, which the Python tests cover.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion::common::ToDFSchema;
use datafusion::prelude::{Expr, SessionContext, col, lit};
use datafusion_substrait::logical_plan::producer::to_substrait_extended_expr;
use datafusion_substrait::substrait::proto::expression::SingularOrList;
use datafusion_substrait::substrait::proto::extensions::simple_extension_declaration::MappingType;
use datafusion_substrait::substrait::proto::r#type::I64;

use super::*;

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("name", DataType::Utf8, true),
        Field::new("at", DataType::Timestamp(TimeUnit::Microsecond, None), true),
    ]))
}

fn message(condition: &Expr) -> ExtendedExpression {
    let columns = Arc::new(schema().to_dfschema().unwrap());
    let output = Field::new("expression", DataType::Boolean, true);
    let state = SessionContext::new().state();
    *to_substrait_extended_expr(&[(condition, &output)], &columns, &state).unwrap()
}

async fn parsed(message: &ExtendedExpression) -> Result<Filter> {
    parse(&SessionContext::new(), &schema(), &message.encode_to_vec()).await
}

async fn refusal(message: &ExtendedExpression) -> String {
    let error = parsed(message).await.unwrap_err();
    assert_eq!(error.kind(), lancemem_core::types::ErrorKind::InvalidInput);
    error.to_string()
}

/// A message whose whole expression is `part`.
fn of_part(part: Option<RexType>) -> ExtendedExpression {
    let mut message = message(&col("id").is_null());
    let expression = Expression { rex_type: part };
    message.referred_expr[0].expr_type = Some(ExprType::Expression(expression));
    message
}

fn constant(value: LiteralType) -> RexType {
    RexType::Literal(Literal { literal_type: Some(value), ..Literal::default() })
}

#[tokio::test]
async fn a_condition_survives_the_way_through_substrait() {
    let condition = col("id").gt(lit(3_i64)).and(col("name").eq(lit("a")).or(col("at").is_null()));
    let filter = parsed(&message(&condition)).await.unwrap();
    assert_eq!(filter.expression(), &condition);
}

#[tokio::test]
async fn columns_are_found_by_name_whatever_their_order_in_the_message() {
    let mut message = message(&col("id").is_not_null());
    let named = message.base_schema.as_mut().unwrap();
    named.names.swap(0, 1);
    let filter = parsed(&message).await.unwrap();
    assert_eq!(filter.columns().into_iter().collect::<Vec<_>>(), ["name"]);
    message.base_schema.as_mut().unwrap().names[0] = "gone".to_owned();
    assert!(refusal(&message).await.contains("no column 'gone'"));
}

#[tokio::test]
async fn an_old_timestamp_is_microseconds() {
    let newer = message(&col("at").gt(lit(0_i64)));
    let old = rewritten(&newer, &|literal| {
        #[expect(deprecated, reason = "pyarrow writes it")]
        let old = LiteralType::Timestamp(1_577_836_800_000_000);
        literal.literal_type = Some(old);
    });
    let filter = parsed(&old).await.unwrap();
    assert_eq!(
        filter.expression().to_string(),
        "at > TimestampMicrosecond(1577836800000000, None)"
    );
}

fn rewritten(message: &ExtendedExpression, rewrite: &dyn Fn(&mut Literal)) -> ExtendedExpression {
    fn visit(expression: &mut Expression, rewrite: &dyn Fn(&mut Literal)) {
        match expression.rex_type.as_mut().unwrap() {
            RexType::Literal(literal) => rewrite(literal),
            RexType::Cast(cast) => visit(cast.input.as_mut().unwrap(), rewrite),
            RexType::ScalarFunction(call) => {
                for argument in &mut call.arguments {
                    let Some(ArgType::Value(value)) = &mut argument.arg_type else { continue };
                    visit(value, rewrite);
                }
            }
            _ => {}
        }
    }
    let mut message = message.clone();
    let Some(ExprType::Expression(expression)) = &mut message.referred_expr[0].expr_type else {
        panic!("no expression")
    };
    visit(expression, rewrite);
    message
}

#[tokio::test]
async fn in_behind_a_test_for_null_is_plain_in() {
    let list = col("id").in_list(vec![lit(1_i64), lit(2_i64), lit(3_i64), lit(9_i64)], false);
    let null = lit(datafusion::common::ScalarValue::Boolean(None));
    let guarded = datafusion::logical_expr::when(col("id").is_not_null(), list.clone())
        .otherwise(null)
        .unwrap();
    assert_eq!(parsed(&message(&guarded)).await.unwrap().expression(), &list);
}

#[tokio::test]
async fn parts_that_the_translator_cannot_take_are_refused_with_a_reason() {
    let field = |index| {
        let column = reference_segment::StructField { field: index, child: None };
        let reference = reference_segment::ReferenceType::StructField(Box::new(column));
        let segment = datafusion_substrait::substrait::proto::expression::ReferenceSegment {
            reference_type: Some(reference),
        };
        RexType::Selection(Box::new(FieldReference {
            reference_type: Some(ReferenceType::DirectReference(segment)),
            root_type: None,
        }))
    };
    let in_list = |value| RexType::SingularOrList(Box::new(value));
    let of_null = Type { kind: Some(Kind::I64(I64::default())) };
    let null = Expression { rex_type: Some(constant(LiteralType::Null(of_null))) };
    let number = Expression { rex_type: Some(constant(LiteralType::I64(1))) };
    let parts = [
        (None, "required part is missing: expression"),
        (Some(field(3)), "a column that its schema does not have"),
        (Some(field(-1)), "a column that its schema does not have"),
        (Some(in_list(SingularOrList::default())), "required part is missing: value of IN"),
        (
            Some(in_list(SingularOrList { value: Some(Box::new(number)), options: vec![null] })),
            "null in the list",
        ),
        (Some(RexType::Cast(Box::default())), "required part is missing: type"),
        (Some(RexType::IfThen(Box::default())), "required part is missing: condition"),
        (Some(RexType::Subquery(Box::default())), "neither column, constant"),
        (
            Some(RexType::ScalarFunction(ScalarFunction {
                function_reference: u32::MAX,
                ..ScalarFunction::default()
            })),
            "missing: function",
        ),
        (
            Some(constant(LiteralType::Decimal(
                datafusion_substrait::substrait::proto::expression::literal::Decimal::default(),
            ))),
            "decimal(0, 0)",
        ),
        (Some(RexType::Literal(Literal::default())), "required part is missing: constant"),
    ];
    for (part, reason) in parts {
        let text = refusal(&of_part(part)).await;
        assert!(text.contains(reason), "{text}");
        assert!(text.contains("pass it as a SQL string"), "{text}");
    }

    let mut two = message(&col("id").is_null());
    two.referred_expr.push(two.referred_expr[0].clone());
    assert!(refusal(&two).await.contains("2 expressions"));
    let mut nested = message(&col("id").is_null());
    nested.base_schema.as_mut().unwrap().names.push("inner".to_owned());
    assert!(refusal(&nested).await.contains("nested"));
    let mut bare = message(&col("id").is_null());
    bare.base_schema = None;
    assert!(refusal(&bare).await.contains("no schema"));
}

#[tokio::test]
async fn a_function_with_a_meaning_of_its_own_is_refused() {
    let call = col("name").eq(lit("a")).and(col("id").gt(lit(3_i64)));
    let mut unknown = message(&call);
    for extension in &mut unknown.extensions {
        if let Some(MappingType::ExtensionFunction(function)) = &mut extension.mapping_type {
            function.name = "random".to_owned();
        }
    }
    assert!(refusal(&unknown).await.contains("function 'random' is not known"));
}

#[tokio::test]
async fn a_message_is_bounded_in_bytes_and_in_depth() {
    let session = SessionContext::new();
    let large = vec![0; MAX_BYTES + 1];
    let text = parse(&session, &schema(), &large).await.unwrap_err().to_string();
    assert!(text.contains("at most 4194304"), "{text}");

    let mut expression = Expression { rex_type: Some(constant(LiteralType::Boolean(true))) };
    for _ in 0..2_000 {
        let list = SingularOrList { value: Some(Box::new(expression)), options: Vec::new() };
        expression = Expression { rex_type: Some(RexType::SingularOrList(Box::new(list))) };
    }
    let mut message = message(&col("id").is_null());
    message.referred_expr[0].expr_type = Some(ExprType::Expression(expression));
    assert!(refusal(&message).await.contains("recursion"));
}

#[tokio::test]
async fn damaged_messages_are_refused_or_understood_and_never_panic() {
    let condition = col("id")
        .in_list(vec![lit(1_i64), lit(2_i64)], false)
        .and(col("name").like(lit("a%")))
        .or(col("at").gt(lit(5_i64)))
        .or(col("id").between(lit(1_i64), lit(9_i64)));
    let whole = message(&condition).encode_to_vec();
    let session = SessionContext::new();
    let schema = schema();
    // Every byte in turn, so that a failure can be repeated, with a few significant values.
    for index in 0..whole.len() {
        for change in [0x00, 0x01, 0x02, 0x7f, 0x80, 0xff] {
            let mut damaged = whole.clone();
            damaged[index] ^= change;
            let _ = parse(&session, &schema, &damaged).await;
        }
        let _ = parse(&session, &schema, &whole[..index]).await;
    }
}
