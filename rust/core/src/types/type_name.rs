//! Arrow's types in pyarrow's spelling, for messages that a Python program shows.
//!
//! Owns: the text of a type, such as `list<item: int64>`; `str(type)` of pyarrow is the same.
//! Does not own: which types a column may have.

use std::fmt::{self, Display, Formatter};

use arrow_schema::{DataType, Field, IntervalUnit, TimeUnit, UnionMode};

/// A type that is shown as pyarrow shows it.
#[derive(Clone, Copy, Debug)]
pub struct TypeName<'a>(pub &'a DataType);

impl Display for TypeName<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            DataType::Timestamp(of, None) => write!(f, "timestamp[{}]", unit(*of)),
            DataType::Timestamp(of, Some(zone)) => {
                write!(f, "timestamp[{}, tz={zone}]", unit(*of))
            }
            DataType::Time32(of) => write!(f, "time32[{}]", unit(*of)),
            DataType::Time64(of) => write!(f, "time64[{}]", unit(*of)),
            DataType::Duration(of) => write!(f, "duration[{}]", unit(*of)),
            DataType::FixedSizeBinary(width) => write!(f, "fixed_size_binary[{width}]"),
            DataType::Decimal32(digits, scale) => write!(f, "decimal32({digits}, {scale})"),
            DataType::Decimal64(digits, scale) => write!(f, "decimal64({digits}, {scale})"),
            DataType::Decimal128(digits, scale) => write!(f, "decimal128({digits}, {scale})"),
            DataType::Decimal256(digits, scale) => write!(f, "decimal256({digits}, {scale})"),
            DataType::List(item) => write!(f, "list<{}>", Part(item)),
            DataType::LargeList(item) => write!(f, "large_list<{}>", Part(item)),
            DataType::ListView(item) => write!(f, "list_view<{}>", Part(item)),
            DataType::LargeListView(item) => write!(f, "large_list_view<{}>", Part(item)),
            DataType::FixedSizeList(item, size) => {
                write!(f, "fixed_size_list<{}>[{size}]", Part(item))
            }
            DataType::Struct(parts) => {
                f.write_str("struct<")?;
                for (place, part) in parts.iter().enumerate() {
                    let comma = if place == 0 { "" } else { ", " };
                    write!(f, "{comma}{}", Part(part))?;
                }
                f.write_str(">")
            }
            DataType::Map(entries, is_sorted) => map(f, entries, *is_sorted),
            DataType::Dictionary(index, values) => {
                let (index, values) = (TypeName(index), TypeName(values));
                write!(f, "dictionary<values={values}, indices={index}, ordered=0>")
            }
            DataType::RunEndEncoded(ends, values) => {
                let (ends, values) = (TypeName(ends.data_type()), TypeName(values.data_type()));
                write!(f, "run_end_encoded<run_ends: {ends}, values: {values}>")
            }
            DataType::Union(parts, mode) => {
                let kind = if *mode == UnionMode::Dense { "dense" } else { "sparse" };
                write!(f, "{kind}_union<")?;
                for (place, (code, part)) in parts.iter().enumerate() {
                    let comma = if place == 0 { "" } else { ", " };
                    write!(f, "{comma}{}={code}", Part(part))?;
                }
                f.write_str(">")
            }
            plain => f.write_str(plain_name(plain)),
        }
    }
}

/// A field inside of a type.
struct Part<'a>(&'a Field);

impl Display for Part<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let never_null = if self.0.is_nullable() { "" } else { " not null" };
        write!(f, "{}: {}{never_null}", self.0.name(), TypeName(self.0.data_type()))
    }
}

/// pyarrow names the parts of a map only where they are not called key and value.
fn map(f: &mut Formatter<'_>, entries: &Field, is_sorted: bool) -> fmt::Result {
    f.write_str("map<")?;
    if let DataType::Struct(parts) = entries.data_type() {
        for (place, part) in parts.iter().enumerate() {
            let (comma, usual) = if place == 0 { ("", "key") } else { (", ", "value") };
            write!(f, "{comma}{}", TypeName(part.data_type()))?;
            if part.name() != usual {
                write!(f, " ('{}')", part.name())?;
            }
        }
    }
    f.write_str(if is_sorted { ", keys_sorted>" } else { ">" })
}

const fn unit(of: TimeUnit) -> &'static str {
    match of {
        TimeUnit::Second => "s",
        TimeUnit::Millisecond => "ms",
        TimeUnit::Microsecond => "us",
        TimeUnit::Nanosecond => "ns",
    }
}

/// The types that have no parameter.
const fn plain_name(data_type: &DataType) -> &'static str {
    match data_type {
        DataType::Null => "null",
        DataType::Boolean => "bool",
        DataType::Int8 => "int8",
        DataType::Int16 => "int16",
        DataType::Int32 => "int32",
        DataType::Int64 => "int64",
        DataType::UInt8 => "uint8",
        DataType::UInt16 => "uint16",
        DataType::UInt32 => "uint32",
        DataType::UInt64 => "uint64",
        DataType::Float16 => "halffloat",
        DataType::Float32 => "float",
        DataType::Float64 => "double",
        DataType::Date32 => "date32[day]",
        DataType::Date64 => "date64[ms]",
        DataType::Interval(IntervalUnit::YearMonth) => "month_interval",
        DataType::Interval(IntervalUnit::DayTime) => "day_time_interval",
        DataType::Interval(IntervalUnit::MonthDayNano) => "month_day_nano_interval",
        DataType::Binary => "binary",
        DataType::LargeBinary => "large_binary",
        DataType::BinaryView => "binary_view",
        DataType::Utf8 => "string",
        DataType::LargeUtf8 => "large_string",
        DataType::Utf8View => "string_view",
        _ => "another type",
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_type_is_shown_as_pyarrow_shows_it() {
        let item = |name: &str, of: DataType, nullable| Arc::new(Field::new(name, of, nullable));
        let parts = |key: &str, value: &str| {
            let key = item(key, DataType::Utf8, false);
            let value = item(value, DataType::Int32, true);
            item("entries", DataType::Struct(vec![key, value].into()), false)
        };
        let zone = Some("UTC".into());
        let strict = item("item", DataType::Int64, false);
        let both = vec![item("a", DataType::Int64, true), item("b", DataType::Utf8, false)];
        let shown = [
            (DataType::Float32, "float"),
            (DataType::Timestamp(TimeUnit::Microsecond, zone), "timestamp[us, tz=UTC]"),
            (DataType::Timestamp(TimeUnit::Nanosecond, None), "timestamp[ns]"),
            (DataType::Time64(TimeUnit::Microsecond), "time64[us]"),
            (DataType::Decimal256(50, 2), "decimal256(50, 2)"),
            (DataType::List(strict), "list<item: int64 not null>"),
            (
                DataType::FixedSizeList(item("item", DataType::Float32, true), 3),
                "fixed_size_list<item: float>[3]",
            ),
            (DataType::Struct(both.into()), "struct<a: int64, b: string not null>"),
            (DataType::Map(parts("key", "value"), false), "map<string, int32>"),
            (DataType::Map(parts("k", "v"), true), "map<string ('k'), int32 ('v'), keys_sorted>"),
            (
                DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8)),
                "dictionary<values=string, indices=int32, ordered=0>",
            ),
        ];
        for (of, text) in shown {
            assert_eq!(TypeName(&of).to_string(), text);
        }
    }
}
