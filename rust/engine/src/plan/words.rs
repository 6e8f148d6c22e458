//! Words of a condition that are quoted wrongly.
//!
//! Owns: which column has to be quoted so that a condition can be parsed, and which text stands in
//! the quotes of a column.
//! Does not own: the parser, or its other errors.

use datafusion::common::DFSchema;
use datafusion::prelude::SessionContext;
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};

/// Most columns that are tried.
const MAX_TRIED: usize = 16;

/// The column that has to be quoted so that `sql`, which does not parse, can be parsed.
pub fn to_quote(session: &SessionContext, schema: &DFSchema, sql: &str) -> Option<String> {
    let words = Tokenizer::new(&GenericDialect {}, sql).tokenize().ok()?;
    let mut names: Vec<&str> = words.iter().filter_map(|word| column(word, schema)).collect();
    names.sort_unstable();
    names.dedup();
    names.truncate(MAX_TRIED);
    let state = session.state_ref();
    let state = state.read();
    let dialect = state.config().options().sql_parser.dialect;
    let parses = |quoted: &[&str]| {
        let text = words.iter().map(|word| match column(word, schema) {
            Some(name) if quoted.contains(&name) => format!("\"{name}\""),
            _ => word.to_string(),
        });
        state.sql_to_expr(&text.collect::<String>(), &dialect).is_ok()
    };
    if parses(&[]) {
        return None;
    }
    // Where several columns have to be quoted, the first is returned.
    let alone = names.iter().find(|name| parses(&[**name]));
    alone.or_else(|| names.first().filter(|_| parses(&names))).map(|name| (*name).to_owned())
}

/// The first word in double quotes that is no column: a text, as other languages write it.
pub fn meant_as_text(schema: &DFSchema, sql: &str) -> Option<String> {
    let words = Tokenizer::new(&GenericDialect {}, sql).tokenize().ok()?;
    let fields = std::iter::once(false).chain(words.iter().map(|word| *word == Token::Period));
    words.iter().zip(fields).find_map(|(word, is_field)| match word {
        Token::Word(word) if word.quote_style == Some('"') && !is_field => {
            let is_column = schema.fields().iter().any(|field| *field.name() == word.value);
            (!is_column).then(|| word.value.clone())
        }
        _ => None,
    })
}

fn column<'a>(word: &'a Token, schema: &DFSchema) -> Option<&'a str> {
    let Token::Word(word) = word else { return None };
    let is_column = word.quote_style.is_none()
        && word.keyword != Keyword::NoKeyword
        && schema.fields().iter().any(|field| *field.name() == word.value);
    is_column.then_some(word.value.as_str())
}
