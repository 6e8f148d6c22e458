//! Indexes of the words of rows in memory.
//!
//! Owns: the index of one text column of a MemTable, with the tokenizer of the base table's
//! `INVERTED` index, and the makers of such indexes that a table's jobs and searches share.
//! Does not own: which rows are the newest, or scores (`search`).

mod makers;
mod texts;

use arrow_schema::{DataType, Field};
use lance_table::format::IndexMetadata;

pub use makers::TextMakers;
pub use texts::{MakeTexts, MemoryTexts, Terms, recorded_params};

/// The end of the type of an `INVERTED` index's details.
const DETAILS: &str = "InvertedIndexDetails";

/// Whether `index` is an `INVERTED` index of the column with the id `field` alone.
#[must_use]
pub fn is_inverted(index: &IndexMetadata, field: i32) -> bool {
    index.fields == [field]
        && index.index_details.as_ref().is_some_and(|it| it.type_url.ends_with(DETAILS))
}

/// Whether a column has texts.
#[must_use]
pub fn is_text(field: &Field) -> bool {
    matches!(field.data_type(), DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}
