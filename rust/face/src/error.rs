//! Failures around a call of the engine.
//!
//! Owns: their texts, which are the same in every language.
//! Does not own: the exceptions of a language, or the errors of the engine itself.

use std::io;

/// The result of a call of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Any failure around the engine. A binding has an exception for each variant.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The engine failed. The text is not scrubbed (`lancemem::scrub`).
    #[error(transparent)]
    Engine(#[from] lancemem::Error),
    /// The call or a setting of the process cannot be accepted.
    #[error("{0}")]
    InvalidInput(String),
    /// The data is not valid Arrow data.
    #[error("the data could not be read as Arrow: {0}")]
    NotArrow(String),
    /// The system gives the process fewer threads than it needs. Nothing was run.
    #[error("{0}")]
    FewThreads(String),
    /// The stack of the calling thread is too small for a call, which was not run.
    #[error(
        "the stack of this thread is too small, and the system gives no other thread: {0}; raise \
         the limit of the process"
    )]
    SmallStack(io::Error),
    /// A handle was used in a fork of the process that created it.
    #[error(
        "this {what} was opened in process {opened} and cannot be used in its fork {now}; open it \
         again here"
    )]
    Forked {
        /// What the handle is of.
        what: String,
        /// The process that created the handle.
        opened: u32,
        /// The process that used it.
        now: u32,
    },
    /// The system refused what every process needs.
    #[error(transparent)]
    System(#[from] io::Error),
}

impl Error {
    /// The error of data that is not valid Arrow data.
    pub fn not_arrow(reason: &impl ToString) -> Self {
        Self::NotArrow(reason.to_string())
    }
}
