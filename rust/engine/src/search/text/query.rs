//! What a caller asks of a full-text search.
//!
//! Owns: [`TextQuery`], the tree of matches, and [`TextSearch`], a query with its columns.
//! Does not own: terms, which the tokenizer of a column makes of the words (`analysis`), or which
//! columns a table has (`request`).

use lancemem_core::types::{Error, Result};

/// Most queries within queries: the tree is walked recursively.
const MAX_DEPTH: usize = 64;

/// A full-text query: words, a phrase, or a combination of queries.
///
/// ```
/// # use lancemem::TextQuery;
/// let query = TextQuery::Boolean {
///     must: vec![TextQuery::matching("snapshot isolation")],
///     should: Vec::new(),
///     must_not: vec![TextQuery::phrase("read committed")],
/// };
/// ```
#[derive(Clone, Debug, PartialEq)]
pub enum TextQuery {
    /// Rows with words of a text.
    Match {
        /// The words.
        text: String,
        /// The column; `None` for the columns of the search.
        column: Option<String>,
        /// The factor of the score.
        boost: f32,
        /// Whether a row needs all words instead of one.
        all_words: bool,
    },
    /// Rows with the words of a text in their order.
    Phrase {
        /// The words.
        text: String,
        /// The column; `None` for the column of the search.
        column: Option<String>,
        /// Positions that may lie between two words beside those of the text.
        slop: u32,
    },
    /// The best of several queries scores.
    Best(Vec<Self>),
    /// Rows of `positive`; those that `negative` finds too lose `factor` times its score.
    Boost {
        /// The query that finds rows.
        positive: Box<Self>,
        /// The query that lowers scores.
        negative: Box<Self>,
        /// How much of the score of `negative` is taken off.
        factor: f32,
    },
    /// A combination by logic; the scores of `must` and `should` are added.
    Boolean {
        /// Queries that all find a row of the result.
        must: Vec<Self>,
        /// Queries of which one finds a row of the result where `must` is empty.
        should: Vec<Self>,
        /// Queries that find no row of the result.
        must_not: Vec<Self>,
    },
}

/// A full-text query and the columns that it searches.
#[derive(Clone, Debug, PartialEq)]
pub struct TextSearch {
    pub(in crate::search) query: TextQuery,
    /// The columns of those parts of the query that name none; empty for all columns with an
    /// `INVERTED` index.
    pub(in crate::search) columns: Vec<String>,
}

impl TextSearch {
    /// A search of `columns`; none for all columns with an `INVERTED` index.
    ///
    /// # Errors
    /// An input error for a query without words, one without a part that finds rows, a factor that
    /// is no finite number, or too deep a tree.
    pub fn new(query: TextQuery, columns: Vec<String>) -> Result<Self> {
        query.check(MAX_DEPTH)?;
        Ok(Self { query, columns })
    }
}

impl TextQuery {
    /// Rows with any word of `text`.
    #[must_use]
    pub fn matching(text: impl Into<String>) -> Self {
        Self::Match { text: text.into(), column: None, boost: 1.0, all_words: false }
    }

    /// Rows with the phrase `text`.
    #[must_use]
    pub fn phrase(text: impl Into<String>) -> Self {
        Self::Phrase { text: text.into(), column: None, slop: 0 }
    }

    /// The queries that this one combines.
    fn parts(&self) -> Vec<&Self> {
        match self {
            Self::Match { .. } | Self::Phrase { .. } => Vec::new(),
            Self::Best(parts) => parts.iter().collect(),
            Self::Boost { positive, negative, .. } => vec![positive, negative],
            Self::Boolean { must, should, must_not } => {
                must.iter().chain(should).chain(must_not).collect()
            }
        }
    }

    fn check(&self, depth: usize) -> Result<()> {
        let fault = match self {
            Self::Match { text, .. } | Self::Phrase { text, .. } if text.trim().is_empty() => {
                "expected words to search for, got an empty text".to_owned()
            }
            Self::Match { boost: factor, .. } | Self::Boost { factor, .. }
                if !factor.is_finite() || *factor < 0.0 =>
            {
                format!("boost: expected a finite number of at least 0, got {factor}")
            }
            Self::Best(parts) if parts.is_empty() => "expected at least one column".to_owned(),
            Self::Boolean { must, should, .. } if must.is_empty() && should.is_empty() => {
                "a boolean query needs a part under must or should; must_not alone finds no row"
                    .to_owned()
            }
            _ if depth == 0 => format!("queries within queries are limited to {MAX_DEPTH} levels"),
            _ => return self.parts().into_iter().try_for_each(|part| part.check(depth - 1)),
        };
        Err(Error::input(format!("text query: {fault}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(query: TextQuery) -> String {
        TextSearch::new(query, Vec::new()).unwrap_err().to_string()
    }

    #[test]
    fn a_query_that_can_find_no_row_is_refused_with_the_reason() {
        assert!(refusal(TextQuery::matching("  ")).contains("an empty text"));
        let none = || TextQuery::Boolean {
            must: Vec::new(),
            should: Vec::new(),
            must_not: vec![TextQuery::matching("a")],
        };
        assert!(refusal(none()).contains("must_not alone"));
        assert!(refusal(TextQuery::Best(vec![none()])).contains("must_not alone"));
        let boost = f32::NAN;
        let (text, column) = ("a".to_owned(), None);
        let query = TextQuery::Match { text, column, boost, all_words: false };
        assert!(refusal(query).contains("boost: expected a finite number"));
    }

    #[test]
    fn a_tree_of_queries_has_a_limited_depth() {
        let nested = |depth| {
            (0..depth).fold(TextQuery::matching("a"), |inner, _| TextQuery::Best(vec![inner]))
        };
        assert!(TextSearch::new(nested(MAX_DEPTH - 1), Vec::new()).is_ok());
        assert!(refusal(nested(MAX_DEPTH + 1)).contains("limited to 64 levels"));
    }
}
