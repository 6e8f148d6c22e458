//! Lossy casts, hidden from a simplifier that treats every cast as lossless.
//!
//! Owns: which casts keep every value, and replacing the others by placeholder columns while the
//! simplifier runs. DataFusion turns `cast(x AS int) = 1` into `x = 1`, which is another condition
//! where x is 1.25.
//! Does not own: the simplifier, or casts that a schema change needs.

use std::collections::HashMap;

use arrow_schema::{DataType, Field};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema};
use datafusion::error::Result as PlanResult;
use datafusion::logical_expr::{Cast, Expr, ExprSchemable, TryCast};

/// A condition without lossy casts.
pub struct Hidden {
    /// The condition, with placeholder columns for them.
    pub expression: Expr,
    /// The schema with the placeholder columns.
    pub schema: DFSchema,
    /// The cast of each placeholder, which may contain earlier placeholders.
    casts: Vec<(Column, Expr)>,
}

/// Replaces each lossy cast in `expression` by a placeholder column.
pub fn hide(expression: Expr, schema: &DFSchema) -> PlanResult<Hidden> {
    let (mut schema, mut casts) = (schema.clone(), Vec::new());
    let expression = expression.transform_up(|part| {
        let (Expr::Cast(Cast { expr, field: to }) | Expr::TryCast(TryCast { expr, field: to })) =
            &part
        else {
            return Ok(Transformed::no(part));
        };
        let from = expr.get_type(&schema)?;
        let keeps = keeps_all(&from, to.data_type()) && !changes_unit(&from, to.data_type());
        if expr.column_refs().is_empty() || keeps {
            return Ok(Transformed::no(part));
        }
        // No column of a table has such a name.
        let column = Column::from_name(format!("\u{0}cast {}", casts.len()));
        let field = Field::new(&column.name, to.data_type().clone(), true);
        let fields = DFSchema::from_unqualified_fields(vec![field].into(), HashMap::default())?;
        schema = schema.join(&fields)?;
        casts.push((column.clone(), part));
        Ok(Transformed::yes(Expr::Column(column)))
    })?;
    Ok(Hidden { expression: expression.data, schema, casts })
}

impl Hidden {
    /// Replaces the placeholders in `expression` by their casts.
    pub fn show(self, expression: Expr) -> PlanResult<Expr> {
        let mut shown = expression;
        for (column, cast) in self.casts.into_iter().rev() {
            let replaced = shown.transform_up(|part| match &part {
                Expr::Column(found) if *found == column => Ok(Transformed::yes(cast.clone())),
                _ => Ok(Transformed::no(part)),
            });
            shown = replaced?.data;
        }
        Ok(shown)
    }
}

/// Whether the cast is lossless: total, injective and order-preserving. Casts from and to floats
/// count as lossless, because DataFusion does not unwrap them.
pub fn keeps_all(from: &DataType, to: &DataType) -> bool {
    match (from, to) {
        (DataType::Dictionary(_, from), to) => keeps_all(from, to),
        (from, DataType::Dictionary(_, to)) => keeps_all(from, to),
        (DataType::Timestamp(from, from_zone), DataType::Timestamp(to, to_zone)) => {
            // In a zone other than UTC the local time differs.
            let is_moved = from_zone.is_some() != to_zone.is_some();
            (!is_moved || from_zone.iter().chain(to_zone).all(|zone| is_utc(zone))) && from <= to
        }
        (DataType::Date32, DataType::Date64 | DataType::Timestamp(..)) => true,
        // DataFusion divides by zero where it moves such a cast to the constant.
        (from, to) if has_negative_scale(from) || has_negative_scale(to) => false,
        (from, to) if is_text(from) => is_text(to),
        (from, to) if is_bytes(from) => is_bytes(to),
        (from, to) if from == to => true,
        (from, to) => match (digits(from), digits(to)) {
            (Some(from), Some(to)) => from.fit_in(&to),
            // Casts that DataFusion does not unwrap.
            _ => from.is_floating() || to.is_floating() || to.is_null() || from.is_null(),
        },
    }
}

/// Whether DataFusion truncates the constant when it moves such a cast to it.
fn changes_unit(from: &DataType, to: &DataType) -> bool {
    matches!((from, to), (DataType::Timestamp(from, _), DataType::Timestamp(to, _)) if from != to)
}

pub fn is_utc(zone: &str) -> bool {
    matches!(zone, "UTC" | "Z" | "+00:00" | "Etc/UTC")
}

const fn has_negative_scale(it: &DataType) -> bool {
    matches!(it,
        DataType::Decimal32(_, scale) | DataType::Decimal64(_, scale)
            | DataType::Decimal128(_, scale) | DataType::Decimal256(_, scale) if *scale < 0)
}

fn is_text(it: &DataType) -> bool {
    matches!(it, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

fn is_bytes(it: &DataType) -> bool {
    matches!(it, DataType::Binary | DataType::LargeBinary | DataType::BinaryView)
}

/// The digits of an exact numeric type.
struct Digits {
    /// Bits before the point, or decimal digits.
    whole: Whole,
    fraction: i16,
}

enum Whole {
    Bits { signed: bool, bits: i16 },
    Decimals(i16),
}

impl Digits {
    fn fit_in(&self, other: &Self) -> bool {
        let is_wide = match (&self.whole, &other.whole) {
            (Whole::Bits { signed, bits }, Whole::Bits { signed: to_signed, bits: to_bits }) => {
                if signed == to_signed {
                    bits <= to_bits
                } else {
                    *to_signed && bits < to_bits
                }
            }
            // Three digits need no more than ten bits.
            (Whole::Bits { bits, .. }, Whole::Decimals(to)) => bits * 3 / 10 < *to,
            (Whole::Decimals(from), Whole::Decimals(to)) => from <= to,
            (Whole::Decimals(_), Whole::Bits { .. }) => false,
        };
        is_wide && self.fraction <= other.fraction
    }
}

fn digits(of: &DataType) -> Option<Digits> {
    let bits = |signed, bits| Some(Digits { whole: Whole::Bits { signed, bits }, fraction: 0 });
    match of {
        DataType::Int8 => bits(true, 8),
        DataType::Int16 => bits(true, 16),
        DataType::Int32 => bits(true, 32),
        DataType::Int64 => bits(true, 64),
        DataType::UInt8 => bits(false, 8),
        DataType::UInt16 => bits(false, 16),
        DataType::UInt32 => bits(false, 32),
        DataType::UInt64 => bits(false, 64),
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
        | DataType::Decimal256(precision, scale) => {
            let (precision, scale) = (i16::from(*precision), i16::from(*scale));
            Some(Digits { whole: Whole::Decimals(precision - scale), fraction: scale })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use arrow_schema::TimeUnit::{Nanosecond, Second};

    use super::*;

    #[test]
    fn a_cast_keeps_all_where_it_is_injective() {
        use DataType::{
            Date32, Decimal128, Float64, Int8, Int16, Int32, Int64, UInt8, UInt32, Utf8,
        };
        let at = |unit| DataType::Timestamp(unit, None);
        let zoned = |zone: &str| DataType::Timestamp(Second, Some(zone.into()));
        for (from, to, expected) in [
            (Int32, Int64, true),
            (Int64, Int32, false),
            (UInt8, Int16, true),
            (UInt8, Int8, false),
            (Int8, UInt32, false),
            (Int64, Decimal128(20, 0), true),
            (Int64, Decimal128(20, 2), false),
            (Decimal128(10, 2), Decimal128(12, 3), true),
            (Decimal128(10, 2), Decimal128(10, 0), false),
            (Decimal128(10, 2), Decimal128(10, 4), false),
            (Decimal128(10, 0), Int64, false),
            (at(Second), at(Nanosecond), true),
            (at(Nanosecond), at(Second), false),
            (Date32, at(Nanosecond), true),
            (at(Second), Date32, false),
            (zoned("UTC"), at(Nanosecond), true),
            (at(Second), zoned("+00:00"), true),
            (zoned("Europe/Berlin"), at(Nanosecond), false),
            (zoned("Europe/Berlin"), zoned("UTC"), true),
            (Decimal128(10, -2), Decimal128(12, -2), false),
            (Decimal128(10, -2), Decimal128(30, 2), false),
            (Utf8, DataType::LargeUtf8, true),
            (Utf8, Int32, false),
            (Int32, Utf8, false),
            (Float64, Int32, true),
        ] {
            assert_eq!(keeps_all(&from, &to), expected, "{from} to {to}");
        }
    }
}
