//! A text query as the terms that the tokenizers of its columns make of it.
//!
//! Owns: [`Analysis`]: the columns, their terms, the leaves of the query and the tree above them.
//! Does not own: tokenizers, which are Lance's, with the parameters of the column's index; or how
//! often a term occurs (`documents`, `index_scores`).

use std::collections::HashMap;
use std::fmt;

use lance_index::scalar::inverted::InvertedIndexParams;
use lance_index::scalar::inverted::document_tokenizer::LanceTokenizer;
use lance_index::scalar::inverted::query::{Operator, Tokens, try_collect_query_tokens};
use lancemem_core::types::{Error, Result};

use super::query::TextQuery;
use crate::errors::Context;

const ANALYZING: &str = "text query";
/// Postings in a block of an index that rounds the lengths of documents.
const ROUNDING_BLOCK: usize = 256;

/// A text query over the columns of one table.
#[derive(Clone, Debug)]
pub(super) struct Analysis {
    pub columns: Vec<TextColumn>,
    pub leaves: Vec<Leaf>,
    pub tree: Node,
    /// Distinct terms of all columns.
    pub terms: usize,
}

/// A column of a text query.
#[derive(Clone, Debug)]
pub(super) struct TextColumn {
    pub name: String,
    /// The parameters of its index, or those of a new one.
    pub params: InvertedIndexParams,
    pub tokenizer: Box<dyn LanceTokenizer>,
    /// The distinct terms that the query has for it.
    pub terms: Vec<String>,
    /// The number of its first term among those of all columns.
    pub first_term: usize,
    /// The number of each term within the column.
    pub numbers: HashMap<String, usize>,
    /// Whether a leaf needs the positions of its terms.
    pub needs_positions: bool,
}

/// Words of a query in one column.
#[derive(Clone)]
pub(super) struct Leaf {
    pub column: usize,
    /// The terms of the words, each by its number in the column, and their positions.
    pub terms: Vec<(usize, u32)>,
    /// The same in Lance's form.
    pub tokens: Tokens,
    pub operator: Operator,
    /// For a phrase, the positions that may lie between two words.
    pub slop: Option<u32>,
    pub boost: f32,
}

/// A query over leaves.
#[derive(Clone, Debug)]
pub(super) enum Node {
    Leaf(usize),
    Best(Vec<Self>),
    Boost { positive: Box<Self>, negative: Box<Self>, factor: f32 },
    Boolean { must: Vec<Self>, should: Vec<Self>, must_not: Vec<Self> },
}

impl TextColumn {
    /// The column `name` of a table, whose index has the parameters `params`.
    ///
    /// # Errors
    /// An input error for a tokenizer that this build does not have.
    pub fn new(name: &str, params: InvertedIndexParams) -> Result<Self> {
        let tokenizer = params.build().map_err(|error| {
            let text = format!("the tokenizer of the index of column '{name}' cannot be made here");
            Error::input(format!("{text}: {error}")).with_source(error)
        })?;
        Ok(Self {
            name: name.to_owned(),
            params,
            tokenizer,
            terms: Vec::new(),
            first_term: 0,
            numbers: HashMap::new(),
            needs_positions: false,
        })
    }

    fn number_of(&mut self, term: &str) -> usize {
        if let Some(number) = self.numbers.get(term) {
            return *number;
        }
        let number = self.terms.len();
        self.terms.push(term.to_owned());
        self.numbers.insert(term.to_owned(), number);
        number
    }

    /// The length of a document as the score takes it: Lance rounds lengths in indexes of large
    /// blocks, to four significant bits.
    pub fn scored_length(&self, length: u32) -> u32 {
        if self.params.posting_block_size() != ROUNDING_BLOCK {
            return length;
        }
        let bits = u32::BITS - length.leading_zeros();
        let dropped = bits.saturating_sub(4);
        length >> dropped << dropped
    }
}

impl Analysis {
    /// The analysis of `query`, each of whose parts names a column of `columns`.
    ///
    /// # Errors
    /// An input error for a text that the tokenizer refuses.
    pub fn of(query: &TextQuery, mut columns: Vec<TextColumn>) -> Result<Self> {
        let mut leaves = Vec::new();
        let tree = node(query, &mut columns, &mut leaves)?;
        let mut terms = 0;
        for column in &mut columns {
            column.first_term = terms;
            terms += column.terms.len();
        }
        Ok(Self { columns, leaves, tree, terms })
    }

    /// Whether a row can match at all: some leaf has a term.
    pub fn has_terms(&self) -> bool {
        self.terms > 0
    }
}

fn node(query: &TextQuery, columns: &mut [TextColumn], leaves: &mut Vec<Leaf>) -> Result<Node> {
    Ok(match query {
        TextQuery::Match { text, column, boost, all_words } => {
            let mut leaf = Leaf::of(text, column.as_deref(), columns)?;
            leaf.boost = *boost;
            leaf.operator = if *all_words { Operator::And } else { Operator::Or };
            leaves.push(leaf);
            Node::Leaf(leaves.len() - 1)
        }
        TextQuery::Phrase { text, column, slop } => {
            let mut leaf = Leaf::of(text, column.as_deref(), columns)?;
            leaf.operator = Operator::And;
            leaf.slop = Some(*slop);
            columns[leaf.column].needs_positions = true;
            leaves.push(leaf);
            Node::Leaf(leaves.len() - 1)
        }
        TextQuery::Best(parts) => Node::Best(nodes(parts, columns, leaves)?),
        TextQuery::Boost { positive, negative, factor } => Node::Boost {
            positive: Box::new(node(positive, columns, leaves)?),
            negative: Box::new(node(negative, columns, leaves)?),
            factor: *factor,
        },
        TextQuery::Boolean { must, should, must_not } => Node::Boolean {
            must: nodes(must, columns, leaves)?,
            should: nodes(should, columns, leaves)?,
            must_not: nodes(must_not, columns, leaves)?,
        },
    })
}

fn nodes(
    parts: &[TextQuery],
    columns: &mut [TextColumn],
    leaves: &mut Vec<Leaf>,
) -> Result<Vec<Node>> {
    parts.iter().map(|part| node(part, columns, leaves)).collect()
}

impl Leaf {
    fn of(text: &str, named: Option<&str>, columns: &mut [TextColumn]) -> Result<Self> {
        let column = columns.iter().position(|it| Some(it.name.as_str()) == named);
        let column = column.ok_or_else(|| Error::internal("a text query names no column"))?;
        let of = &mut columns[column];
        let tokens = try_collect_query_tokens(text, &mut of.tokenizer).context(ANALYZING)?;
        let mut terms: Vec<(usize, u32)> = (0..tokens.len())
            .map(|place| (of.number_of(tokens.get_token(place)), tokens.position(place)))
            .collect();
        // A term at the same position counts once, as in Lance.
        terms.sort_by_key(|(term, position)| (*position, *term));
        terms.dedup();
        let (operator, slop, boost) = (Operator::Or, None, 1.0);
        Ok(Self { column, terms, tokens, operator, slop, boost })
    }
}

impl fmt::Debug for Leaf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { column, terms, slop, boost, .. } = self;
        write!(f, "Leaf({column}, {terms:?}, slop={slop:?}, boost={boost})")
    }
}
