//! Rewrites the names of types in messages of DataFusion and arrow-rs.
//!
//! Owns: the names, which are those that pyarrow prints: `timestamp[us, tz=UTC]` and not
//! `Timestamp(µs, "UTC")`.
//! Does not own: the messages.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::{Captures, Regex};

/// The name of a type in DataFusion and in arrow-rs, with its parameters.
const PATTERN: &str = concat!(
    r"(?-u:\b)(Timestamp|Time32|Time64|Duration)\(",
    r"(s|ms|µs|us|ns|Second|Millisecond|Microsecond|Nanosecond)",
    r#"(?:, (?:Some\()?(?:"([^"]*)"|None)\)?)?\)"#,
    r"|(?-u:\b)(Null|Boolean|U?Int(?:8|16|32|64)|Float(?:16|32|64)|Date(?:32|64)",
    r"|(?:Large)?(?:Utf8|Binary)|(?:Utf8|Binary)View|Decimal(?:32|64|128|256))(?-u:\b)",
);

static NAMES: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(PATTERN).ok());

/// The message with pyarrow's names of types.
pub fn with_type_names(text: &str) -> Cow<'_, str> {
    match NAMES.as_ref() {
        Some(names) => names.replace_all(text, |found: &Captures<'_>| name(found)),
        None => Cow::Borrowed(text),
    }
}

fn name(found: &Captures<'_>) -> String {
    let part = |group| found.get(group).map(|it| it.as_str());
    if let Some(plain) = part(4) {
        return plain_name(plain);
    }
    let unit = match part(2) {
        Some("s" | "Second") => "s",
        Some("ms" | "Millisecond") => "ms",
        Some("ns" | "Nanosecond") => "ns",
        _ => "us",
    };
    let of = part(1).unwrap_or_default().to_lowercase();
    match part(3) {
        Some(zone) => format!("{of}[{unit}, tz={zone}]"),
        None => format!("{of}[{unit}]"),
    }
}

fn plain_name(of: &str) -> String {
    let name = match of {
        "Boolean" => "bool",
        "Float16" => "halffloat",
        "Float32" => "float",
        "Float64" => "double",
        "Date32" => "date32[day]",
        "Date64" => "date64[ms]",
        "Utf8" => "string",
        "LargeUtf8" => "large_string",
        "Utf8View" => "string_view",
        "LargeBinary" => "large_binary",
        "BinaryView" => "binary_view",
        other => return other.to_lowercase(),
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_has_the_name_that_pyarrow_prints() {
        for (text, expected) in [
            ("Int64 = Time64(ns)", "int64 = time64[ns]"),
            ("Timestamp(µs, \"Europe/Paris\")", "timestamp[us, tz=Europe/Paris]"),
            ("Timestamp(Nanosecond, Some(\"UTC\"))", "timestamp[ns, tz=UTC]"),
            ("Timestamp(Second, None)", "timestamp[s]"),
            ("Utf8View and LargeUtf8", "string_view and large_string"),
            ("cast to Decimal128(10, 2)", "cast to decimal128(10, 2)"),
            ("no column Utf8Strings", "no column Utf8Strings"),
        ] {
            assert_eq!(with_type_names(text), expected, "{text}");
        }
    }
}
