//! Options that a binding takes as words.
//!
//! Owns: the accepted words, and the errors of all others.
//! Does not own: the meaning of an option, or its default.

use arrow_array::RecordBatch;
use lancemem::{CompactionMode, Consistency, FoundRows};

use crate::error::{Error, Result};

/// The consistency of a read.
///
/// # Errors
/// [`Error::InvalidInput`] for another word than `flushed`, `durable` and `live`.
pub fn consistency(word: &str) -> Result<Consistency> {
    match word {
        "flushed" => Ok(Consistency::Flushed),
        "durable" => Ok(Consistency::Durable),
        "live" => Ok(Consistency::Live),
        other => Err(Error::InvalidInput(format!(
            "consistency must be 'flushed', 'durable' or 'live', got '{other}'"
        ))),
    }
}

/// How a compaction treats SSTables.
///
/// # Errors
/// [`Error::InvalidInput`] for another word than `auto`, `link` and `rewrite`.
pub fn compaction_mode(word: &str) -> Result<CompactionMode> {
    match word {
        "auto" => Ok(CompactionMode::Auto),
        "link" => Ok(CompactionMode::Link),
        "rewrite" => Ok(CompactionMode::Rewrite),
        other => Err(Error::InvalidInput(format!(
            "mode must be 'auto', 'link' or 'rewrite', got '{other}'"
        ))),
    }
}

/// Whether an order by a column is descending.
///
/// # Errors
/// [`Error::InvalidInput`] for another word than `asc`, `ascending`, `desc` and `descending`.
pub fn is_descending(word: &str) -> Result<bool> {
    match word {
        "asc" | "ascending" => Ok(false),
        "desc" | "descending" => Ok(true),
        other => Err(Error::InvalidInput(format!(
            "the direction of an order must be 'asc' or 'desc', got '{other}'"
        ))),
    }
}

/// The treatment of a lookup's keys that have no row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingKeys {
    /// The result has no row for them.
    Drop,
    /// The result has a row of nulls for each.
    Null,
    /// The lookup fails.
    Raise,
}

impl MissingKeys {
    /// The treatment of this name.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] for another word than `drop`, `null` and `raise`.
    pub fn parse(word: &str) -> Result<Self> {
        match word {
            "drop" => Ok(Self::Drop),
            "null" => Ok(Self::Null),
            "raise" => Ok(Self::Raise),
            other => Err(Error::InvalidInput(format!(
                "missing must be 'drop', 'null' or 'raise', got '{other}'"
            ))),
        }
    }

    /// The rows of a lookup.
    ///
    /// # Errors
    /// For [`MissingKeys::Raise`] an input error that names a key without a row.
    pub fn rows(self, found: FoundRows) -> lancemem::Result<Vec<RecordBatch>> {
        match self {
            Self::Drop => Ok(found.rows),
            Self::Null => found.with_null_rows(),
            Self::Raise => found.require_all(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal<T>(parsed: Result<T>) -> String {
        parsed.err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn another_word_is_refused_with_those_that_there_are() {
        assert_eq!(
            refusal(consistency("strong")),
            "consistency must be 'flushed', 'durable' or 'live', got 'strong'"
        );
        assert_eq!(
            refusal(compaction_mode("")),
            "mode must be 'auto', 'link' or 'rewrite', got ''"
        );
        assert_eq!(
            refusal(MissingKeys::parse("Null")),
            "missing must be 'drop', 'null' or 'raise', got 'Null'"
        );
        assert_eq!(
            refusal(is_descending("DESC")),
            "the direction of an order must be 'asc' or 'desc', got 'DESC'"
        );
        assert!(matches!(is_descending("ascending"), Ok(false)));
        assert!(matches!(is_descending("desc"), Ok(true)));
        assert!(matches!(consistency("durable"), Ok(Consistency::Durable)));
        assert!(matches!(compaction_mode("link"), Ok(CompactionMode::Link)));
        assert!(matches!(MissingKeys::parse("null"), Ok(MissingKeys::Null)));
    }
}
