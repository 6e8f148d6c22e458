//! Errors, sorted by what the caller does next.
//!
//! Owns: the kinds, and the text that names shard, column, row or position.
//! Does not own: retries. An error that reaches a caller is final for that call.

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

/// Any failure of the engine.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The call or its data cannot be accepted.
    #[error("{0}")]
    InvalidInput(String),
    /// There is no table at an address: an input error, but the caller can create the table.
    #[error("{0}")]
    NoTable(String),
    /// A table exists where one was to be created: an input error, but the caller can open it.
    #[error("{0}")]
    TableExists(String),
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
    },
    /// A broken invariant.
    #[error("internal error: {0}")]
    Internal(String),
}

impl Error {
    /// What the caller does next.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::InvalidInput(_) | Self::NoTable(_) | Self::TableExists(_) => {
                ErrorKind::InvalidInput
            }
            Self::Fenced { .. } => ErrorKind::Fenced,
            Self::Stale { .. } => ErrorKind::Stale,
            Self::Poisoned { .. } | Self::Gone { .. } | Self::Closed { .. } => ErrorKind::Reopen,
            Self::Storage { .. } | Self::Backlog { .. } | Self::Crowded { .. } => ErrorKind::Retry,
            Self::Writer { kind, .. } => *kind,
            Self::Corrupt { .. } => ErrorKind::Corruption,
            Self::Internal(_) => ErrorKind::Internal,
        }
    }

    /// An input error with `message`.
    pub fn input(message: impl Into<String>) -> Self {
        Self::InvalidInput(message.into())
    }

    /// A storage failure of `action`, with the storage's message.
    pub fn storage(action: impl Into<String>, reason: impl std::fmt::Display) -> Self {
        Self::Storage { action: action.into(), reason: reason.to_string() }
    }

    /// Damage of kind `kind` in `what`.
    pub fn corrupt(
        what: impl Into<String>,
        kind: &'static str,
        detail: impl std::fmt::Display,
    ) -> Self {
        Self::Corrupt { what: what.into(), kind, detail: detail.to_string() }
    }
}
