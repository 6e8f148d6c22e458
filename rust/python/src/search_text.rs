//! Full-text and hybrid searches: their arguments in Python.
//!
//! Owns: the text query of a search, and a reranker of the caller.
//! Does not own: the forms of a query (`lancemem.query_text`), or options (`search`).

use std::fmt;
use std::sync::Arc;

use arrow_array::RecordBatch;
use lancemem::{Error, Rerank, Reranker, Result, TextQuery, TextSearch};
use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::arguments::ColumnNames;
use crate::errors::{InvalidInputError, to_py};
use crate::input;
use crate::output::pyarrow_batch;
use crate::search::typed;

const MODULE: &str = "lancemem.query_text";

/// The query of a search: vectors, a text, or both.
pub struct Asked<'py> {
    pub vectors: Option<Bound<'py, PyAny>>,
    pub text: Option<(TextSearch, Rerank)>,
}

impl<'py> Asked<'py> {
    /// The query that `query` and the arguments `given` ask for; those that concern it are removed.
    pub fn of(query: &Bound<'py, PyAny>, given: Option<&Bound<'py, PyDict>>) -> PyResult<Self> {
        let py = query.py();
        let take = |name: &str| -> PyResult<Option<Bound<'py, PyAny>>> {
            let Some(given) = given else { return Ok(None) };
            let value = given.get_item(name)?;
            if value.is_some() {
                given.del_item(name)?;
            }
            Ok(value.filter(|value| !value.is_none()))
        };
        let kind = take("query_type")?;
        let kind: String = kind.map_or(Ok("auto".to_owned()), |kind| typed("query_type", &kind))?;
        let words = take("text")?;
        let columns = take("text_columns")?;
        let rerank = take("rerank")?;
        let module = py.import(intern!(py, MODULE))?;
        let parsed = module.call_method1("parsed", (query, kind, words.clone()))?;
        let (vectors, tree): (Option<Bound<'py, PyAny>>, Option<Bound<'py, PyAny>>) =
            parsed.extract()?;
        let Some(tree) = tree else {
            if columns.is_some() || rerank.is_some() {
                let name = if columns.is_some() { "text_columns" } else { "rerank" };
                let text = format!("{name}: the search has no text, only a vector");
                return Err(InvalidInputError::new_err(text));
            }
            return Ok(Self { vectors, text: None });
        };
        let columns = match columns {
            Some(columns) => match columns.extract::<String>() {
                Ok(one) => vec![one],
                Err(_) => ColumnNames::of(typed("text_columns", &columns)?).unwrap_or_default(),
            },
            None => Vec::new(),
        };
        let search = TextSearch::new(text_query(&tree)?, columns).map_err(|error| to_py(&error))?;
        if vectors.is_none() && rerank.is_some() {
            return Err(InvalidInputError::new_err(
                "rerank: only a hybrid search, of a vector and text=, is reranked",
            ));
        }
        let (k, custom): (Option<f32>, Option<Py<PyAny>>) =
            module.call_method1("reranking", (rerank,))?.extract()?;
        let rerank = match (k, custom) {
            (_, Some(rerank)) => Rerank::Custom(Arc::new(OfPython {
                rerank,
                words: words.map_or_else(|| py.None(), Bound::unbind),
            })),
            (k, None) => Rerank::ReciprocalRanks { k: k.unwrap_or(60.0) },
        };
        Ok(Self { vectors, text: Some((search, rerank)) })
    }
}

/// A text query from the tuples of `lancemem.query_text`.
fn text_query(tree: &Bound<'_, PyAny>) -> PyResult<TextQuery> {
    let tree = tree.cast::<PyTuple>()?;
    let all = |place: usize| -> PyResult<Vec<TextQuery>> {
        tree.get_item(place)?.try_iter()?.map(|part| text_query(&part?)).collect()
    };
    let kind: String = tree.get_item(0)?.extract()?;
    Ok(match kind.as_str() {
        "match" => TextQuery::Match {
            text: tree.get_item(1)?.extract()?,
            column: typed("column", &tree.get_item(2)?)?,
            boost: tree.get_item(3)?.extract()?,
            all_words: tree.get_item(4)?.extract()?,
        },
        "phrase" => TextQuery::Phrase {
            text: tree.get_item(1)?.extract()?,
            column: typed("column", &tree.get_item(2)?)?,
            slop: tree.get_item(3)?.extract()?,
        },
        "best" => TextQuery::Best(all(1)?),
        "boost" => TextQuery::Boost {
            positive: Box::new(text_query(&tree.get_item(1)?)?),
            negative: Box::new(text_query(&tree.get_item(2)?)?),
            factor: tree.get_item(3)?.extract()?,
        },
        "boolean" => TextQuery::Boolean { must: all(1)?, should: all(2)?, must_not: all(3)? },
        _ => return Err(PyTypeError::new_err(format!("unknown text query '{kind}'"))),
    })
}

/// A function or an object of Python that reranks.
struct OfPython {
    rerank: Py<PyAny>,
    words: Py<PyAny>,
}

impl fmt::Debug for OfPython {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the caller's reranker")
    }
}

impl Reranker for OfPython {
    fn rerank(&self, vectors: RecordBatch, texts: RecordBatch) -> Result<RecordBatch> {
        let reranked = Python::attach(|py| -> PyResult<RecordBatch> {
            let module = py.import(intern!(py, MODULE))?;
            let (vectors, texts) = (pyarrow_batch(py, vectors)?, pyarrow_batch(py, texts)?);
            let arguments = (&self.rerank, &self.words, vectors, texts);
            input::batch(&module.call_method1("reranked", arguments)?)
        });
        reranked.map_err(|error| Error::input(format!("rerank: {error}")).with_source(error))
    }
}
