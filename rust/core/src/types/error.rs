//! Errors, sorted by what the caller does next.
//!
//! Owns: the kinds, the text that names shard, column, row or position, and the error of another
//! library below an error of lancemem.
//! Does not own: retries. An error that reaches a caller is final for that call.

use std::error::Error as StdError;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use super::{ShardId, WriterEpoch};

/// The result of everything fallible in this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What the caller does next; a new kind exists only where that differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Fix the call or the data, nothing was written.
    InvalidInput,
    /// Another writer owns the shard: stop, or claim it again.
    Fenced,
    /// A job of another process may hold the shard, nothing was written there: wait for its end, or
    /// take the shard over.
    Held,
    /// A newer version of the same application is written: stop, this write comes too late.
    Stale,
    /// This job cannot go on: close it, open a new one, which replays what was durable.
    Reopen,
    /// A transient fault, mostly of the storage: retry.
    Retry,
    /// Stored bytes are damaged or missing. Nothing was skipped; an operator has to repair.
    Corruption,
    /// A defect of lancemem: report it.
    Internal,
}

/// The error that an [`Error`] was made of, such as an error of the object store. It dereferences to
/// that error.
///
/// Its text may repeat credentials and build paths, which the text of the [`Error`] does not. A
/// program that prints the text of a source removes them first, with `scrub`.
#[derive(Clone)]
pub struct ErrorSource(Arc<dyn StdError + Send + Sync>);

impl ErrorSource {
    /// The source that is in a box; a downcast finds the error in the box.
    #[must_use]
    pub fn from_box(error: Box<dyn StdError + Send + Sync>) -> Self {
        Self(error.into())
    }
}

impl<E: StdError + Send + Sync + 'static> From<E> for ErrorSource {
    fn from(error: E) -> Self {
        Self(Arc::new(error))
    }
}

impl Deref for ErrorSource {
    type Target = dyn StdError + Send + Sync;

    fn deref(&self) -> &Self::Target {
        self.0.as_ref()
    }
}

/// An error's own `Debug` may show credentials.
impl fmt::Debug for ErrorSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ErrorSource").finish_non_exhaustive()
    }
}

/// Any failure of the engine.
///
/// The text of an error is complete: it contains what its sources add, without secrets. The
/// [`source`](StdError::source) is for a program that downcasts it. A program that prints the texts
/// of all sources repeats parts of the first.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The call or its data cannot be accepted.
    #[error("{message}")]
    InvalidInput {
        /// What is wrong, and the next step.
        message: String,
        /// The error that it was made of.
        source: Option<ErrorSource>,
    },
    /// There is no table at an address: an input error, but the caller can create the table.
    #[error("{message}")]
    NoTable {
        /// What is wrong, and the next step.
        message: String,
        /// The error that it was made of.
        source: Option<ErrorSource>,
    },
    /// A table exists where one was to be created: an input error, but the caller can open it.
    #[error("{message}")]
    TableExists {
        /// What is wrong, and the next step.
        message: String,
        /// The error that it was made of.
        source: Option<ErrorSource>,
    },
    /// The changes of a version cannot be derived: an input error, but the caller can read the table
    /// as a whole and go on behind that version.
    #[error("{message}")]
    ChangesUnavailable {
        /// What is wrong, and the next step.
        message: String,
        /// The version of the base table.
        version: u64,
        /// Lance's name of the operation that committed it.
        operation: String,
    },
    /// The version behind which changes were asked for was cleaned up, or the generation of events
    /// was collected: an input error, but the caller can start from what is left.
    #[error("{message}")]
    ChangesExpired {
        /// What is wrong, and the next step.
        message: String,
        /// The oldest version or generation that is left.
        oldest: u64,
    },
    /// A later claim took the shard.
    #[error(
        "writer of shard {shard} was fenced: its epoch {local} is older than the claimed {stored}; \
         start a new job to take the shard back"
    )]
    Fenced {
        /// The shard that was lost.
        shard: ShardId,
        /// The epoch of the writer that lost it.
        local: WriterEpoch,
        /// The epoch that is stored now.
        stored: WriterEpoch,
    },
    /// The claim of another process is not released, and the call was not to take it over.
    #[error(
        "the claim of shard {shard} (writer epoch {epoch}) is not released: a job of another \
         process may run there, so no row of this call is written there; close that job first, or \
         pass take_over=True, which stops it, to this call or to flush() before it. The claim of a process that was killed, or that \
         ended without close(), is never released and looks the same"
    )]
    Held {
        /// The shard.
        shard: ShardId,
        /// The epoch of the claim.
        epoch: WriterEpoch,
    },
    /// A newer version of the same application is written.
    #[error(
        "version {version} of application '{app_id}' comes too late for shard {shard}: \
         version {recorded} is written already; do not repeat this write"
    )]
    Stale {
        /// The shard.
        shard: ShardId,
        /// The application.
        app_id: String,
        /// The version that was to be written.
        version: i64,
        /// The newest version that is written.
        recorded: i64,
    },
    /// A write could not be made durable, so memory and storage may differ.
    #[error(
        "job of shard {shard} stopped: {reason}; start a new job, which replays the durable rows"
    )]
    Poisoned {
        /// The shard of the job.
        shard: ShardId,
        /// What failed.
        reason: String,
        /// The error that it was made of.
        source: Option<ErrorSource>,
    },
    /// A remote job serves its rows no more.
    #[error(
        "the remote job of shard {shard} at {location} serves no rows any more: {reason}; read \
         without it, or connect to the job that runs now"
    )]
    Gone {
        /// The shard of the job.
        shard: ShardId,
        /// Where it was served.
        location: String,
        /// Why.
        reason: String,
    },
    /// The job was closed before the call.
    #[error("job of shard {shard} is closed; start a new one")]
    Closed {
        /// The shard of the job.
        shard: ShardId,
    },
    /// A writer of a whole table stopped in a shard, or wrote the rows of some shards only.
    #[error("{message}")]
    Writer {
        /// What the caller does next.
        kind: ErrorKind,
        /// Which shards, why, and which rows are written.
        message: String,
        /// The error of a shard that it was made of.
        source: Option<ErrorSource>,
    },
    /// More flushed generations wait for compaction than the shard may leave.
    #[error(
        "shard {shard} has {generations} uncompacted generations, its limit is {limit}; compact \
         the table, or raise max_uncompacted_generations"
    )]
    Backlog {
        /// The shard.
        shard: ShardId,
        /// Generations that wait.
        generations: usize,
        /// How many may wait.
        limit: usize,
    },
    /// Other writers held the shard until the call gave up.
    #[error(
        "other writers held shard {shard} for {seconds} s, and no row of this call is written \
         there; retry, or write through one job (start_job) instead of many calls"
    )]
    Crowded {
        /// The shard.
        shard: ShardId,
        /// How long the call waited.
        seconds: u64,
    },
    /// The storage failed.
    #[error("{action} failed: {reason}")]
    Storage {
        /// What was attempted, with the path relative to the table.
        action: String,
        /// The message of the storage.
        reason: String,
        /// The error that it was made of.
        source: Option<ErrorSource>,
    },
    /// Stored bytes that no writer can have left there.
    #[error("{what} is damaged ({kind}): {detail}")]
    Corrupt {
        /// The file or position, relative to the table.
        what: String,
        /// The kind of damage in one or two words, such as "hole" or "checksum".
        kind: &'static str,
        /// What was expected and found.
        detail: String,
        /// The error that it was made of.
        source: Option<ErrorSource>,
    },
    /// A broken invariant.
    #[error("internal error: {message}")]
    Internal {
        /// The broken invariant.
        message: String,
        /// The error that it was made of.
        source: Option<ErrorSource>,
    },
}

impl Error {
    /// What the caller does next.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::InvalidInput { .. }
            | Self::NoTable { .. }
            | Self::TableExists { .. }
            | Self::ChangesUnavailable { .. }
            | Self::ChangesExpired { .. } => ErrorKind::InvalidInput,
            Self::Fenced { .. } => ErrorKind::Fenced,
            Self::Held { .. } => ErrorKind::Held,
            Self::Stale { .. } => ErrorKind::Stale,
            Self::Poisoned { .. } | Self::Gone { .. } | Self::Closed { .. } => ErrorKind::Reopen,
            Self::Storage { .. } | Self::Backlog { .. } | Self::Crowded { .. } => ErrorKind::Retry,
            Self::Writer { kind, .. } => *kind,
            Self::Corrupt { .. } => ErrorKind::Corruption,
            Self::Internal { .. } => ErrorKind::Internal,
        }
    }

    /// An input error with `message`.
    pub fn input(message: impl Into<String>) -> Self {
        Self::InvalidInput { message: message.into(), source: None }
    }

    /// The error of an address without a table, with `message`.
    pub fn no_table(message: impl Into<String>) -> Self {
        Self::NoTable { message: message.into(), source: None }
    }

    /// The error of an address that has a table already, with `message`.
    pub fn table_exists(message: impl Into<String>) -> Self {
        Self::TableExists { message: message.into(), source: None }
    }

    /// The error of a job of `shard` that stopped for `reason`.
    pub fn poisoned(shard: ShardId, reason: impl Into<String>) -> Self {
        Self::Poisoned { shard, reason: reason.into(), source: None }
    }

    /// The error of a writer of a whole table, after which the caller does what `kind` says.
    pub fn writer(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self::Writer { kind, message: message.into(), source: None }
    }

    /// A storage failure of `action`, with the storage's message.
    pub fn storage(action: impl Into<String>, reason: impl fmt::Display) -> Self {
        Self::Storage { action: action.into(), reason: reason.to_string(), source: None }
    }

    /// Damage of kind `kind` in `what`.
    pub fn corrupt(what: impl Into<String>, kind: &'static str, detail: impl fmt::Display) -> Self {
        Self::Corrupt { what: what.into(), kind, detail: detail.to_string(), source: None }
    }

    /// A broken invariant, with `message`.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::Internal { message: message.into(), source: None }
    }

    /// This error with `error` as its source, which changes no text. An error that is never made of
    /// another one, such as [`Self::Fenced`], stays as it is.
    ///
    /// ```
    /// # use std::error::Error as _;
    /// # use std::io;
    /// # use lancemem_core::Error;
    /// let refused = io::Error::from(io::ErrorKind::PermissionDenied);
    /// let error = Error::storage("reading a", &refused).with_source(refused);
    /// assert_eq!(error.to_string(), "reading a failed: permission denied");
    /// assert!(error.source().is_some_and(|source| source.is::<io::Error>()));
    /// ```
    #[must_use]
    pub fn with_source(mut self, error: impl Into<ErrorSource>) -> Self {
        match &mut self {
            Self::InvalidInput { source, .. }
            | Self::NoTable { source, .. }
            | Self::TableExists { source, .. }
            | Self::Poisoned { source, .. }
            | Self::Writer { source, .. }
            | Self::Storage { source, .. }
            | Self::Corrupt { source, .. }
            | Self::Internal { source, .. } => *source = Some(error.into()),
            Self::ChangesUnavailable { .. }
            | Self::ChangesExpired { .. }
            | Self::Fenced { .. }
            | Self::Held { .. }
            | Self::Stale { .. }
            | Self::Gone { .. }
            | Self::Closed { .. }
            | Self::Backlog { .. }
            | Self::Crowded { .. } => {}
        }
        self
    }

    /// This error; an input error gets `place` and a colon in front of its text.
    #[must_use]
    pub fn input_at(self, place: impl fmt::Display) -> Self {
        match self {
            Self::InvalidInput { message, source } => {
                Self::InvalidInput { message: format!("{place}: {message}"), source }
            }
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    fn refused() -> io::Error {
        io::Error::other("key=AKIA0123")
    }

    #[test]
    fn an_error_keeps_its_source_and_its_text() {
        let shard = ShardId::nil();
        for error in [
            Error::input("a"),
            Error::no_table("a"),
            Error::table_exists("a"),
            Error::poisoned(shard, "a"),
            Error::storage("reading a", "b"),
            Error::corrupt("a", "hole", "b"),
            Error::internal("a"),
        ] {
            assert!(error.source().is_none(), "{error}");
            let of_io = error.clone().with_source(refused()).clone();
            assert_eq!((of_io.kind(), of_io.to_string()), (error.kind(), error.to_string()));
            assert!(matches!(of_io.source(), Some(source) if source.is::<io::Error>()), "{error}");
            assert!(!format!("{of_io:?}").contains("AKIA0123"), "{of_io:?}");
        }
        let closed = Error::Closed { shard }.with_source(refused());
        assert!(closed.source().is_none());
    }

    #[test]
    fn an_input_error_that_gets_a_place_keeps_its_source() {
        let error = Error::input("a").with_source(refused()).input_at("table t");
        assert_eq!(error.to_string(), "table t: a");
        assert!(error.source().is_some());
        assert_eq!(Error::internal("a").input_at("table t").to_string(), "internal error: a");
    }

    #[test]
    fn an_error_fits_a_result_without_a_box() {
        assert!(size_of::<Error>() <= 128, "{}", size_of::<Error>());
    }
}
