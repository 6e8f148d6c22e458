//! A full-text search, checked against the columns and indexes of a snapshot.
//!
//! Owns: the columns that are searched, and the refusal of what cannot be searched for.
//! Does not own: the plan (`planner`), or options that no table can meet (`search::request`).

use std::collections::BTreeSet;

use lance_index::scalar::inverted::InvertedIndexParams;
use lancemem_core::types::{Error, Result, TypeName};

use super::analysis::{Analysis, TextColumn};
use super::index_scores::SEARCHING;
use super::query::{TextQuery, TextSearch};
use super::segments::{TextIndex, indexed_columns};
use crate::errors::BaseContext;
use crate::memory_indexes::is_text;
use crate::search::layout::unknown_column;
use crate::snapshot::Snapshot;

/// A full-text search of one snapshot.
#[derive(Debug)]
pub(super) struct TextRequest {
    pub analysis: Analysis,
    /// The index of the base table for each text column; `None` where it has none.
    pub indexes: Vec<Option<TextIndex>>,
}

impl TextRequest {
    /// The search of `snapshot` that `search` asks for.
    ///
    /// # Errors
    /// An input error for a column that cannot be searched, for no column at all, and for a phrase
    /// in a column whose index has no positions.
    pub async fn of(snapshot: &Snapshot, search: &TextSearch) -> Result<Self> {
        let columns = Self::default_columns(snapshot, search).await?;
        let query = with_columns(&search.query, &columns)?;
        let mut names = BTreeSet::new();
        names_in(&query, &mut names);
        let (mut texts, mut indexes) = (Vec::new(), Vec::new());
        for name in names {
            check_column(snapshot, &name)?;
            let index = TextIndex::of(&snapshot.base, &name).await.in_base(SEARCHING)?;
            let params = index.as_ref().and_then(TextIndex::params).cloned();
            texts.push(TextColumn::new(&name, params.unwrap_or_else(new_index))?);
            indexes.push(index);
        }
        let analysis = Analysis::of(&query, texts)?;
        for (column, index) in analysis.columns.iter().zip(&indexes) {
            if let Some(index) = index.as_ref().filter(|_| column.needs_positions)
                && !column.params.has_positions()
            {
                let (name, index) = (&column.name, &index.name);
                return Err(Error::input(format!(
                    "a phrase needs the positions of words, and index '{index}' of column \
                     '{name}' has none; make it with create_index('{name}', 'INVERTED', \
                     with_position=True)"
                )));
            }
        }
        Ok(Self { analysis, indexes })
    }

    async fn default_columns(snapshot: &Snapshot, search: &TextSearch) -> Result<Vec<String>> {
        if !search.columns.is_empty() {
            search.columns.iter().try_for_each(|name| check_column(snapshot, name))?;
            return Ok(search.columns.clone());
        }
        if !needs_columns(&search.query) {
            return Ok(Vec::new());
        }
        let indexed = indexed_columns(&snapshot.base).await.in_base(SEARCHING)?;
        if indexed.is_empty() {
            return Err(Error::input(
                "the table has no INVERTED index, so a text query needs text_columns=; \
                 create_index(column, 'INVERTED') makes such an index",
            ));
        }
        Ok(indexed)
    }
}

/// The parameters of an index that a caller makes without arguments.
fn new_index() -> InvertedIndexParams {
    // A scan of rows has all positions.
    InvertedIndexParams::default().with_position(true)
}

fn check_column(snapshot: &Snapshot, name: &str) -> Result<()> {
    let Ok(field) = snapshot.schema.field_with_name(name) else {
        return Err(unknown_column(name, &snapshot.schema));
    };
    if is_text(field) {
        return Ok(());
    }
    let found = TypeName(field.data_type());
    Err(Error::input(format!(
        "column '{name}' holds {found}, which is no text; search a column of string or large_string"
    )))
}

fn needs_columns(query: &TextQuery) -> bool {
    match query {
        TextQuery::Match { column, .. } | TextQuery::Phrase { column, .. } => column.is_none(),
        TextQuery::Best(parts) => parts.iter().any(needs_columns),
        TextQuery::Boost { positive, negative, .. } => {
            needs_columns(positive) || needs_columns(negative)
        }
        TextQuery::Boolean { must, should, must_not } => {
            must.iter().chain(should).chain(must_not).any(needs_columns)
        }
    }
}

/// The query, each of whose parts names a column.
fn with_columns(query: &TextQuery, columns: &[String]) -> Result<TextQuery> {
    let all = |parts: &[TextQuery]| -> Result<Vec<TextQuery>> {
        parts.iter().map(|part| with_columns(part, columns)).collect()
    };
    Ok(match query {
        TextQuery::Match { text, column: None, boost, all_words } => {
            let (boost, all_words) = (*boost, *all_words);
            let of = |column: &String| {
                let (text, column) = (text.clone(), Some(column.clone()));
                TextQuery::Match { text, column, boost, all_words }
            };
            match columns {
                [only] => of(only),
                several => TextQuery::Best(several.iter().map(of).collect()),
            }
        }
        TextQuery::Phrase { text, column: None, slop } => {
            let [column] = columns else {
                return Err(Error::input(format!(
                    "a phrase is searched in one column; name one of {}",
                    columns.join(", ")
                )));
            };
            let (text, column) = (text.clone(), Some(column.clone()));
            TextQuery::Phrase { text, column, slop: *slop }
        }
        TextQuery::Match { .. } | TextQuery::Phrase { .. } => query.clone(),
        TextQuery::Best(parts) => TextQuery::Best(all(parts)?),
        TextQuery::Boost { positive, negative, factor } => TextQuery::Boost {
            positive: Box::new(with_columns(positive, columns)?),
            negative: Box::new(with_columns(negative, columns)?),
            factor: *factor,
        },
        TextQuery::Boolean { must, should, must_not } => {
            TextQuery::Boolean { must: all(must)?, should: all(should)?, must_not: all(must_not)? }
        }
    })
}

fn names_in(query: &TextQuery, names: &mut BTreeSet<String>) {
    match query {
        TextQuery::Match { column, .. } | TextQuery::Phrase { column, .. } => {
            names.extend(column.clone());
        }
        TextQuery::Best(parts) => parts.iter().for_each(|part| names_in(part, names)),
        TextQuery::Boost { positive, negative, .. } => {
            names_in(positive, names);
            names_in(negative, names);
        }
        TextQuery::Boolean { must, should, must_not } => {
            must.iter().chain(should).chain(must_not).for_each(|part| names_in(part, names));
        }
    }
}
