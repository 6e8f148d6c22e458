//! The position of a constant among the values of another type.
//!
//! Owns: finding the position without loss: a number among decimals, integers or float32s, an
//! instant among times of another unit or among dates; and the exact value of a number in text.
//! Does not own: the comparison that follows from it (`exact`).

use arrow_buffer::i256;
use arrow_schema::{DataType, TimeUnit};
use datafusion::common::ScalarValue;

/// Digits of the widest decimal.
const MAX_DIGITS: u8 = 76;
/// Digits of a decimal of 128 bits.
const DIGITS_OF_128: u8 = 38;
const SECONDS_A_DAY: i128 = 86_400;

/// The position of a constant among the values of a type.
#[derive(Clone, Debug, PartialEq)]
pub enum ConstantPosition {
    /// The constant equals this value.
    At(ScalarValue),
    /// The constant is greater than this value and less than the next one.
    Above(ScalarValue),
    /// The constant is less than all values.
    First,
    /// The constant is greater than all values.
    Last,
}

/// The position of `constant` among the values of `of`; `None` where the two cannot be compared
/// exactly.
///
/// For times, either both have a zone or neither has one.
pub fn place(constant: &ScalarValue, of: &DataType) -> Option<ConstantPosition> {
    match of {
        DataType::Float32 => return among_singles(nearest_double(constant)?),
        // As in every engine, a number compared with float64s is the nearest float64.
        DataType::Float64 => {
            return Some(ConstantPosition::At(ScalarValue::Float64(Some(nearest_double(
                constant,
            )?))));
        }
        _ => {}
    }
    let grid = Grid::of(of)?;
    if let Some(number) = double(constant) {
        return if of.is_integer() { among_integers(number, of, &grid) } else { None };
    }
    let known = Grid::of(&constant.data_type())?;
    if known.kind != grid.kind {
        return None;
    }
    let digits = raw(constant)?.checked_mul(known.step)?;
    let Some((floor, is_whole)) = scaled(digits, grid.scale - known.scale) else {
        return Some(if digits.is_negative() {
            ConstantPosition::First
        } else {
            ConstantPosition::Last
        });
    };
    let (floor, is_step) = floor_div(floor, grid.step)?;
    grid.place(floor, is_whole && is_step, of)
}

/// Whether [`place`] supports a type.
pub fn is_placed(of: &DataType) -> bool {
    matches!(of, DataType::Float32 | DataType::Float64) || Grid::of(of).is_some()
}

/// The `float64` that is nearest to a number.
pub fn nearest_double(number: &ScalarValue) -> Option<f64> {
    if let Some(number) = double(number) {
        return Some(number);
    }
    let grid = Grid::of(&number.data_type())?;
    if grid.kind != Kind::Number {
        return None;
    }
    // The parser rounds once; a division of two float64s may round twice.
    format!("{}e{}", raw(number)?, -grid.scale).parse().ok()
}

/// The exact value of a number in text, such as `3.50` and `1e3`, in the narrowest type; `None`
/// where no decimal can represent it.
pub fn decimal_of(text: &str) -> Option<ScalarValue> {
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i16>().ok()?),
        None => (text, 0),
    };
    let (is_negative, mantissa) = match mantissa.strip_prefix('-') {
        Some(mantissa) => (true, mantissa),
        None => (false, mantissa.strip_prefix('+').unwrap_or(mantissa)),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let scale = i16::try_from(fraction.len()).ok()?.checked_sub(exponent)?;
    let digits = match digits.trim_start_matches('0') {
        "" => i256::ZERO,
        digits if digits.len() > usize::from(MAX_DIGITS) => return None,
        digits => i256::from_string(digits)?,
    };
    decimal(if is_negative { digits.wrapping_neg() } else { digits }, scale)
}

/// `digits` with the last `scale` of them after the decimal point, in the narrowest type that has
/// as many digits.
pub fn decimal(digits: i256, scale: i16) -> Option<ScalarValue> {
    let digits = if scale < 0 { digits.checked_mul(power(-scale)?)? } else { digits };
    let scale = i8::try_from(scale.max(0)).ok()?;
    let least = scale.unsigned_abs().max(1);
    let precision = (least..=MAX_DIGITS).find(|precision| {
        let bound = power(i16::from(*precision));
        bound.is_some_and(|bound| digits < bound && digits > bound.wrapping_neg())
    })?;
    if precision <= DIGITS_OF_128 {
        return Some(ScalarValue::Decimal128(Some(digits.to_i128()?), precision, scale));
    }
    Some(ScalarValue::Decimal256(Some(digits), precision, scale))
}

/// The digits of a decimal or an integer, and how many of them are after the decimal point.
pub fn digits_of(number: &ScalarValue) -> Option<(i256, i16)> {
    let grid = Grid::of(&number.data_type())?;
    (grid.kind == Kind::Number).then_some((raw(number)?, grid.scale))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Number,
    /// In seconds.
    Moment,
    /// In seconds since midnight.
    TimeOfDay,
}

/// The values of a type: each whole number from `least` to `greatest`, times `step`, with `scale`
/// digits after the decimal point.
struct Grid {
    kind: Kind,
    scale: i16,
    step: i256,
    least: i256,
    greatest: i256,
}

impl Grid {
    fn of(of: &DataType) -> Option<Self> {
        let number = |least: i128, greatest: i128| Self {
            kind: Kind::Number,
            scale: 0,
            step: i256::ONE,
            least: i256::from_i128(least),
            greatest: i256::from_i128(greatest),
        };
        let long = || number(i64::MIN.into(), i64::MAX.into());
        let grid = match of {
            DataType::Int8 => number(i8::MIN.into(), i8::MAX.into()),
            DataType::Int16 => number(i16::MIN.into(), i16::MAX.into()),
            DataType::Int32 => number(i32::MIN.into(), i32::MAX.into()),
            DataType::Int64 => long(),
            DataType::UInt8 => number(0, u8::MAX.into()),
            DataType::UInt16 => number(0, u16::MAX.into()),
            DataType::UInt32 => number(0, u32::MAX.into()),
            DataType::UInt64 => number(0, u64::MAX.into()),
            DataType::Decimal32(precision, scale)
            | DataType::Decimal64(precision, scale)
            | DataType::Decimal128(precision, scale)
            | DataType::Decimal256(precision, scale) => {
                let greatest = power(i16::from(*precision))?.wrapping_sub(i256::ONE);
                let least = greatest.wrapping_neg();
                Self { scale: i16::from(*scale), least, greatest, ..long() }
            }
            DataType::Timestamp(unit, _) => {
                Self { kind: Kind::Moment, scale: scale_of(*unit), ..long() }
            }
            DataType::Date32 => Self {
                kind: Kind::Moment,
                step: i256::from_i128(SECONDS_A_DAY),
                ..number(i32::MIN.into(), i32::MAX.into())
            },
            DataType::Time32(unit) => Self {
                kind: Kind::TimeOfDay,
                scale: scale_of(*unit),
                ..number(i32::MIN.into(), i32::MAX.into())
            },
            DataType::Time64(unit) => {
                Self { kind: Kind::TimeOfDay, scale: scale_of(*unit), ..long() }
            }
            _ => return None,
        };
        Some(grid)
    }

    fn place(&self, floor: i256, is_exact: bool, of: &DataType) -> Option<ConstantPosition> {
        if floor < self.least {
            return Some(ConstantPosition::First);
        }
        if floor > self.greatest {
            return Some(ConstantPosition::Last);
        }
        let value = value(floor, of)?;
        Some(if is_exact { ConstantPosition::At(value) } else { ConstantPosition::Above(value) })
    }
}

const fn scale_of(unit: TimeUnit) -> i16 {
    match unit {
        TimeUnit::Second => 0,
        TimeUnit::Millisecond => 3,
        TimeUnit::Microsecond => 6,
        TimeUnit::Nanosecond => 9,
    }
}

fn power(exponent: i16) -> Option<i256> {
    i256::from_i128(10).checked_pow(u32::try_from(exponent).ok()?)
}

/// `digits` times 10 to the power of `by`, rounded down, and whether the result is exact; `None`
/// where the result is too large for every type.
fn scaled(digits: i256, by: i16) -> Option<(i256, bool)> {
    if digits == i256::ZERO {
        return Some((digits, true));
    }
    if by >= 0 {
        return Some((digits.checked_mul(power(by)?)?, true));
    }
    match power(-by) {
        Some(divisor) => floor_div(digits, divisor),
        None => Some((if digits.is_negative() { i256::MINUS_ONE } else { i256::ZERO }, false)),
    }
}

fn floor_div(number: i256, divisor: i256) -> Option<(i256, bool)> {
    let (quotient, rest) = (number.checked_div(divisor)?, number.checked_rem(divisor)?);
    if rest.is_negative() {
        return Some((quotient.wrapping_sub(i256::ONE), false));
    }
    Some((quotient, rest == i256::ZERO))
}

fn among_singles(number: f64) -> Option<ConstantPosition> {
    #[expect(clippy::cast_possible_truncation, reason = "to the nearest one")]
    let near = number as f32;
    let single = |value| ScalarValue::Float32(Some(value));
    Some(match f64::from(near).partial_cmp(&number)? {
        std::cmp::Ordering::Equal => ConstantPosition::At(single(near)),
        std::cmp::Ordering::Less => ConstantPosition::Above(single(near)),
        std::cmp::Ordering::Greater => ConstantPosition::Above(single(near.next_down())),
    })
}

fn among_integers(number: f64, of: &DataType, grid: &Grid) -> Option<ConstantPosition> {
    if number.is_nan() {
        return None;
    }
    let floor = number.floor();
    let Some(whole) = i256::from_f64(floor) else {
        return Some(if number.is_sign_negative() {
            ConstantPosition::First
        } else {
            ConstantPosition::Last
        });
    };
    #[expect(clippy::float_cmp, reason = "whether it is whole")]
    let is_whole = floor == number;
    grid.place(whole, is_whole, of)
}

fn double(number: &ScalarValue) -> Option<f64> {
    match number {
        ScalarValue::Float64(number) => *number,
        ScalarValue::Float32(number) => number.map(f64::from),
        _ => None,
    }
}

/// The whole number that a value is stored as.
fn raw(value: &ScalarValue) -> Option<i256> {
    let number: i128 = match value {
        ScalarValue::Int8(value) => (*value)?.into(),
        ScalarValue::Int16(value) => (*value)?.into(),
        ScalarValue::Int32(value)
        | ScalarValue::Date32(value)
        | ScalarValue::Time32Second(value)
        | ScalarValue::Time32Millisecond(value)
        | ScalarValue::Decimal32(value, ..) => (*value)?.into(),
        ScalarValue::Int64(value)
        | ScalarValue::Time64Microsecond(value)
        | ScalarValue::Time64Nanosecond(value)
        | ScalarValue::TimestampSecond(value, _)
        | ScalarValue::TimestampMillisecond(value, _)
        | ScalarValue::TimestampMicrosecond(value, _)
        | ScalarValue::TimestampNanosecond(value, _)
        | ScalarValue::Decimal64(value, ..) => (*value)?.into(),
        ScalarValue::UInt8(value) => (*value)?.into(),
        ScalarValue::UInt16(value) => (*value)?.into(),
        ScalarValue::UInt32(value) => (*value)?.into(),
        ScalarValue::UInt64(value) => (*value)?.into(),
        ScalarValue::Decimal128(value, ..) => (*value)?,
        ScalarValue::Decimal256(value, ..) => return *value,
        _ => return None,
    };
    Some(i256::from_i128(number))
}

/// The value of a type that is stored as this whole number.
fn value(number: i256, of: &DataType) -> Option<ScalarValue> {
    if let DataType::Decimal256(precision, scale) = of {
        return Some(ScalarValue::Decimal256(Some(number), *precision, *scale));
    }
    let number = number.to_i128()?;
    let int = || i32::try_from(number).ok().map(Some);
    let long = || i64::try_from(number).ok().map(Some);
    Some(match of {
        DataType::Int8 => ScalarValue::Int8(Some(number.try_into().ok()?)),
        DataType::Int16 => ScalarValue::Int16(Some(number.try_into().ok()?)),
        DataType::Int32 => ScalarValue::Int32(int()?),
        DataType::Int64 => ScalarValue::Int64(long()?),
        DataType::UInt8 => ScalarValue::UInt8(Some(number.try_into().ok()?)),
        DataType::UInt16 => ScalarValue::UInt16(Some(number.try_into().ok()?)),
        DataType::UInt32 => ScalarValue::UInt32(Some(number.try_into().ok()?)),
        DataType::UInt64 => ScalarValue::UInt64(Some(number.try_into().ok()?)),
        DataType::Decimal32(precision, scale) => ScalarValue::Decimal32(int()?, *precision, *scale),
        DataType::Decimal64(precision, scale) => {
            ScalarValue::Decimal64(long()?, *precision, *scale)
        }
        DataType::Decimal128(precision, scale) => {
            ScalarValue::Decimal128(Some(number), *precision, *scale)
        }
        DataType::Date32 => ScalarValue::Date32(int()?),
        DataType::Time32(TimeUnit::Second) => ScalarValue::Time32Second(int()?),
        DataType::Time32(TimeUnit::Millisecond) => ScalarValue::Time32Millisecond(int()?),
        DataType::Time64(TimeUnit::Microsecond) => ScalarValue::Time64Microsecond(long()?),
        DataType::Time64(TimeUnit::Nanosecond) => ScalarValue::Time64Nanosecond(long()?),
        DataType::Timestamp(unit, zone) => match unit {
            TimeUnit::Second => ScalarValue::TimestampSecond(long()?, zone.clone()),
            TimeUnit::Millisecond => ScalarValue::TimestampMillisecond(long()?, zone.clone()),
            TimeUnit::Microsecond => ScalarValue::TimestampMicrosecond(long()?, zone.clone()),
            TimeUnit::Nanosecond => ScalarValue::TimestampNanosecond(long()?, zone.clone()),
        },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(text: &str) -> ScalarValue {
        decimal_of(text).unwrap()
    }

    #[test]
    fn a_number_in_text_keeps_every_digit() {
        for (text, digits, precision, scale) in [
            ("3.50", 350, 3, 2),
            ("-0.001", -1, 3, 3),
            ("1e3", 1_000, 4, 0),
            ("1.5E-2", 15, 3, 3),
            (".5", 5, 1, 1),
            ("00.0", 0, 1, 1),
            ("+7", 7, 1, 0),
        ] {
            let expected = ScalarValue::Decimal128(Some(digits), precision, scale);
            assert_eq!(decimal_of(text), Some(expected), "{text}");
        }
        let wide = "9".repeat(39);
        assert!(matches!(decimal_of(&wide), Some(ScalarValue::Decimal256(Some(_), 39, 0))));
        for text in ["", ".", "1e", "1e300", "1e-300", "1.2.3", "0x1", &"9".repeat(77)] {
            assert_eq!(decimal_of(text), None, "{text}");
        }
    }

    #[test]
    fn a_number_has_a_place_among_decimals_and_integers() {
        let of = DataType::Decimal128(10, 2);
        let at = |digits| ConstantPosition::At(ScalarValue::Decimal128(Some(digits), 10, 2));
        let above = |digits| ConstantPosition::Above(ScalarValue::Decimal128(Some(digits), 10, 2));
        assert_eq!(place(&number("261.910"), &of), Some(at(26_191)));
        assert_eq!(place(&number("2.005"), &of), Some(above(200)));
        assert_eq!(place(&number("-2.005"), &of), Some(above(-201)));
        assert_eq!(place(&number("1e-70"), &of), Some(above(0)));
        assert_eq!(place(&number("-1e-70"), &of), Some(above(-1)));
        assert_eq!(place(&number("100000000"), &of), Some(ConstantPosition::Last));
        assert_eq!(place(&number("-1e70"), &of), Some(ConstantPosition::First));
        assert_eq!(place(&ScalarValue::UInt64(Some(u64::MAX)), &of), Some(ConstantPosition::Last));
        assert_eq!(place(&ScalarValue::Float64(Some(1.0)), &of), None);

        let long = |number| ScalarValue::Int64(Some(number));
        let of = DataType::Int64;
        assert_eq!(place(&number("2.5"), &of), Some(ConstantPosition::Above(long(2))));
        assert_eq!(
            place(&ScalarValue::Float64(Some(-2.5)), &of),
            Some(ConstantPosition::Above(long(-3)))
        );
        let large = ScalarValue::Float64(Some(9_007_199_254_740_992.0));
        assert_eq!(place(&large, &of), Some(ConstantPosition::At(long(1 << 53))));
        assert_eq!(place(&ScalarValue::Float64(Some(1e300)), &of), Some(ConstantPosition::Last));
        assert_eq!(place(&ScalarValue::UInt64(Some(u64::MAX)), &of), Some(ConstantPosition::Last));
        assert_eq!(place(&long(-1), &DataType::UInt64), Some(ConstantPosition::First));
        let hundreds = DataType::Decimal128(10, -2);
        let two = ScalarValue::Decimal128(Some(2), 10, -2);
        assert_eq!(place(&number("250"), &hundreds), Some(ConstantPosition::Above(two)));
    }

    #[test]
    fn a_float64_has_a_place_among_float32s() {
        let single = |number| ScalarValue::Float32(Some(number));
        let place = |number| place(&ScalarValue::Float64(Some(number)), &DataType::Float32);
        assert_eq!(place(0.5), Some(ConstantPosition::At(single(0.5))));
        assert_eq!(place(0.1), Some(ConstantPosition::Above(single(0.1_f32.next_down()))));
        assert_eq!(place(16_777_217.0), Some(ConstantPosition::Above(single(16_777_216.0))));
        assert_eq!(place(1e300), Some(ConstantPosition::Above(single(f32::MAX))));
        assert_eq!(place(-1e300), Some(ConstantPosition::Above(single(f32::NEG_INFINITY))));
        assert_eq!(place(f64::NAN), None);
    }

    #[test]
    fn an_instant_has_a_place_among_times_of_other_units_and_dates() {
        let at = |nanos| ScalarValue::TimestampNanosecond(Some(nanos), None);
        let of = DataType::Timestamp(TimeUnit::Second, None);
        let second = |number| ScalarValue::TimestampSecond(Some(number), None);
        assert_eq!(place(&at(1_500_000_000), &of), Some(ConstantPosition::Above(second(1))));
        assert_eq!(place(&at(-1), &of), Some(ConstantPosition::Above(second(-1))));
        let nanos = DataType::Timestamp(TimeUnit::Nanosecond, None);
        assert_eq!(place(&second(2), &nanos), Some(ConstantPosition::At(at(2_000_000_000))));
        assert_eq!(place(&second(i64::MAX), &nanos), Some(ConstantPosition::Last));
        let day = |number| ScalarValue::Date32(Some(number));
        assert_eq!(place(&second(86_400), &DataType::Date32), Some(ConstantPosition::At(day(1))));
        assert_eq!(
            place(&second(86_399), &DataType::Date32),
            Some(ConstantPosition::Above(day(0)))
        );
        assert_eq!(place(&day(-1), &of), Some(ConstantPosition::At(second(-86_400))));
        assert_eq!(place(&day(1), &DataType::Int64), None);
    }

    #[test]
    fn the_nearest_float64_of_a_decimal_is_rounded_once() {
        assert_eq!(nearest_double(&number("0.1")), Some(0.1));
        let text = "9999999999999999999999999999.9999999999";
        assert_eq!(nearest_double(&number(text)), Some(1e28));
        assert_eq!(
            nearest_double(&ScalarValue::Int64(Some((1 << 53) + 1))),
            Some(9_007_199_254_740_992.0)
        );
        assert_eq!(nearest_double(&ScalarValue::Date32(Some(1))), None);
    }
}
