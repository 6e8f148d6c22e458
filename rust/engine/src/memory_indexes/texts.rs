//! The words of rows in memory, indexed.
//!
//! ```text
//!   term -> postings: row, occurrences, positions where the index has them     append-only
//!   row  -> length of its text in terms
//! ```
//!
//! Owns: [`MemoryTexts`], the index of one text column of one MemTable, and [`MakeTexts`], which
//! makes it with the tokenizer of the base table's index.
//! Does not own: which rows are the newest, or scores (`search`).

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch};
use arrow_cast::cast;
use arrow_schema::{DataType, Field, SchemaRef};
use lance_index::pbold::InvertedIndexDetails;
use lance_index::scalar::inverted::InvertedIndexParams;
use lance_index::scalar::inverted::document_tokenizer::LanceTokenizer;
use lance_table::format::IndexMetadata;
use lancemem_core::memtable::{MakeIndex, SecondaryIndex};
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use prost::Message;

/// The end of the type of an `INVERTED` index's details.
const DETAILS: &str = "InvertedIndexDetails";

/// Bytes of a posting, of the length of a row, and of an entry of the vocabulary beside its term.
const POSTING_BYTES: usize = size_of::<Posting>();
const LENGTH_BYTES: usize = size_of::<u32>();
const TERM_BYTES: usize = 96;

/// Makes the indexes of one text column.
#[derive(Debug)]
pub struct MakeTexts {
    name: String,
    column: String,
    params: InvertedIndexParams,
}

/// The index of a text column of one MemTable.
pub struct MemoryTexts {
    column: String,
    with_positions: bool,
    tokenizer: Mutex<Box<dyn LanceTokenizer>>,
    terms: RwLock<Terms>,
}

/// Postings and lengths. Rows are added in their order, so every list ascends.
#[derive(Debug, Default)]
pub struct Terms {
    postings: HashMap<String, Postings>,
    /// The number of terms of each row.
    pub lengths: Vec<u32>,
    bytes: usize,
}

/// The rows that have a term.
#[derive(Debug, Default)]
struct Postings {
    rows: Vec<Posting>,
    /// The positions of all occurrences, row after row; empty without positions.
    positions: Vec<u32>,
}

/// A row that has a term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Posting {
    /// The position of the row.
    pub row: u32,
    /// How often it has the term.
    pub occurrences: u32,
    /// The place of its first position.
    pub first_position: u32,
}

impl MakeTexts {
    /// The maker for `column`, as the base table's index with the parameters `params` splits texts.
    pub fn new(column: &str, params: &InvertedIndexParams) -> Self {
        let name = format!("text of {column}: {params:?}");
        Self { name, column: column.to_owned(), params: params.clone() }
    }
}

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

/// The parameters that an `INVERTED` index of the base table records; `None` for another index, and
/// where this version cannot read them.
pub fn recorded_params(index: &IndexMetadata) -> Option<InvertedIndexParams> {
    let details = InvertedIndexDetails::decode(index.index_details.as_ref()?.value.as_slice());
    InvertedIndexParams::try_from(&details.ok()?).ok()
}

impl MakeIndex for MakeTexts {
    fn name(&self) -> &str {
        &self.name
    }

    fn make(&self, schema: &SchemaRef) -> Option<Arc<dyn SecondaryIndex>> {
        let field = schema.field_with_name(&self.column).ok()?;
        if !is_text(field) {
            return None;
        }
        Some(Arc::new(MemoryTexts {
            column: self.column.clone(),
            with_positions: self.params.has_positions(),
            tokenizer: Mutex::new(self.params.build().ok()?),
            terms: RwLock::default(),
        }))
    }
}

impl fmt::Debug for MemoryTexts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemoryTexts({})", self.column)
    }
}

impl MemoryTexts {
    /// The terms of all rows so far.
    pub fn terms(&self) -> RwLockReadGuard<'_, Terms> {
        self.terms.read()
    }
}

impl SecondaryIndex for MemoryTexts {
    fn insert(&self, batch: &RecordBatch, first_row: usize) {
        let texts = batch.column_by_name(&self.column);
        let texts = texts.and_then(|texts| cast(texts, &DataType::LargeUtf8).ok());
        let mut tokenizer = self.tokenizer.lock();
        let mut terms = self.terms.write();
        debug_assert_eq!(terms.lengths.len(), first_row, "rows are added in their order");
        for place in 0..batch.num_rows() {
            let text = texts.as_ref().filter(|texts| texts.is_valid(place));
            let text = text.map(|texts| texts.as_string::<i64>().value(place));
            terms.add(text, &mut tokenizer, self.with_positions);
        }
    }

    fn bytes(&self) -> usize {
        self.terms.read().bytes
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Terms {
    /// Adds the next row.
    fn add(
        &mut self,
        text: Option<&str>,
        tokenizer: &mut Box<dyn LanceTokenizer>,
        with_positions: bool,
    ) {
        // A MemTable has less than 2^32 rows and bytes of text, so no number of terms is larger.
        let row = u32::try_from(self.lengths.len()).unwrap_or(u32::MAX);
        let mut length = 0_u32;
        let mut words = text.map(|text| tokenizer.token_stream_for_doc(text));
        while let Some(word) = words.as_mut().and_then(|words| words.next()) {
            length = length.saturating_add(1);
            if !self.postings.contains_key(&word.text) {
                self.bytes += TERM_BYTES + word.text.len();
                self.postings.insert(word.text.clone(), Postings::default());
            }
            let Some(postings) = self.postings.get_mut(&word.text) else { continue };
            match postings.rows.last_mut() {
                Some(last) if last.row == row => {
                    last.occurrences = last.occurrences.saturating_add(1);
                }
                _ => {
                    self.bytes += POSTING_BYTES;
                    let first_position =
                        u32::try_from(postings.positions.len()).unwrap_or(u32::MAX);
                    postings.rows.push(Posting { row, occurrences: 1, first_position });
                }
            }
            if with_positions {
                self.bytes += size_of::<u32>();
                postings.positions.push(u32::try_from(word.position).unwrap_or(u32::MAX));
            }
        }
        self.bytes += LENGTH_BYTES;
        self.lengths.push(length);
    }

    /// The rows that have `term`, those below `end`.
    pub fn postings(&self, term: &str, end: usize) -> (&[Posting], &[u32]) {
        let Some(postings) = self.postings.get(term) else { return (&[], &[]) };
        let count = postings.rows.partition_point(|posting| (posting.row as usize) < end);
        (&postings.rows[..count], &postings.positions)
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::StringArray;
    use arrow_schema::Schema;

    use super::*;

    #[test]
    fn postings_ascend_and_a_view_takes_only_its_rows() {
        let schema = Arc::new(Schema::new(vec![Field::new("body", DataType::Utf8, true)]));
        let params = InvertedIndexParams::default().with_position(true);
        let index = MakeTexts::new("body", &params).make(&schema).unwrap();
        let rows = |texts: Vec<Option<&str>>| {
            RecordBatch::try_new(schema.clone(), vec![Arc::new(StringArray::from(texts))]).unwrap()
        };
        index.insert(&rows(vec![Some("write ahead write"), None]), 0);
        index.insert(&rows(vec![Some("ahead")]), 2);
        let texts = index.as_any().downcast_ref::<MemoryTexts>().unwrap();
        let terms = texts.terms();
        assert_eq!(terms.lengths, [3, 0, 1]);
        let (found, positions) = terms.postings("write", 3);
        assert_eq!(found, [Posting { row: 0, occurrences: 2, first_position: 0 }]);
        assert_eq!(positions, [0, 2]);
        assert_eq!(terms.postings("ahead", 3).0.len(), 2);
        assert_eq!(terms.postings("ahead", 2).0.len(), 1);
        assert!(index.bytes() > 0);
        let other = Arc::new(Schema::new(vec![Field::new("body", DataType::Int64, true)]));
        assert!(MakeTexts::new("body", &params).make(&other).is_none());
    }
}
