//! Exceptions, one for each thing that a caller can do next.
//!
//! Owns: the exception tree and the one mapping into it.
//! Does not own: messages.

use lancemem::{Error, ErrorKind, scrub};
use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyOSError};
use pyo3::prelude::*;

create_exception!(
    lancemem,
    LancememError,
    PyException,
    "Any failure of lancemem. Where its table is known, a note (`__notes__`) names it."
);
create_exception!(
    lancemem,
    InvalidInputError,
    LancememError,
    "The call or its data cannot be accepted; nothing was written. Fix it and call again."
);
create_exception!(
    lancemem,
    TableNotFoundError,
    InvalidInputError,
    "There is no table at this address. Create it, or correct the address."
);
create_exception!(
    lancemem,
    WriterFencedError,
    LancememError,
    "Another job took the shard. Stop, or start a job to take it back."
);
create_exception!(
    lancemem,
    StaleTxnError,
    LancememError,
    "A newer version of the application is written. Stop: this write comes too late."
);
create_exception!(
    lancemem,
    JobStoppedError,
    LancememError,
    "The job cannot go on. Start a new one: it replays everything that is durable."
);
create_exception!(
    lancemem,
    RetryableError,
    LancememError,
    "The storage failed or was contended. Call again."
);
create_exception!(
    lancemem,
    CorruptionError,
    LancememError,
    "Stored bytes are damaged or missing; nothing was skipped. The text names the place."
);
create_exception!(lancemem, InternalError, LancememError, "A defect of lancemem. Report it.");
create_exception!(
    lancemem,
    ForkedHandleError,
    LancememError,
    "The object was opened before a fork of the process. Open it again in this process."
);

/// The exception of an error.
pub fn to_py(error: &Error) -> PyErr {
    let text = scrub(&error.to_string()).into_owned();
    if let Error::NoTable(_) = error {
        return TableNotFoundError::new_err(text);
    }
    match error.kind() {
        ErrorKind::InvalidInput => InvalidInputError::new_err(text),
        ErrorKind::Fenced => WriterFencedError::new_err(text),
        ErrorKind::Stale => StaleTxnError::new_err(text),
        ErrorKind::Reopen => JobStoppedError::new_err(text),
        ErrorKind::Retry => RetryableError::new_err(text),
        ErrorKind::Corruption => CorruptionError::new_err(text),
        ErrorKind::Internal => InternalError::new_err(text),
        _ => LancememError::new_err(text),
    }
}

/// `error` with a note of the table that it is of, as Python shows it under the text: a program, or
/// a job of Spark, may have several.
pub fn of_table(py: Python<'_>, error: PyErr, uri: &str) -> PyErr {
    if error.is_instance_of::<LancememError>(py) {
        let note = format!("table: {}", scrub(uri));
        // An exception that takes no note is an exception all the same.
        let _ = error.value(py).call_method1("add_note", (note,));
    }
    error
}

/// The exception of data that is no Arrow data.
pub fn not_arrow(error: &impl ToString) -> PyErr {
    InvalidInputError::new_err(format!(
        "the data could not be read as Arrow: {}",
        error.to_string()
    ))
}

/// The exception of a stream that its producer broke.
pub fn broken_stream(error: &impl ToString) -> PyErr {
    PyOSError::new_err(scrub(&error.to_string()).into_owned())
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add("LancememError", py.get_type::<LancememError>())?;
    module.add("InvalidInputError", py.get_type::<InvalidInputError>())?;
    module.add("TableNotFoundError", py.get_type::<TableNotFoundError>())?;
    module.add("WriterFencedError", py.get_type::<WriterFencedError>())?;
    module.add("StaleMarkError", py.get_type::<StaleTxnError>())?;
    module.add("JobStoppedError", py.get_type::<JobStoppedError>())?;
    module.add("RetryableError", py.get_type::<RetryableError>())?;
    module.add("CorruptionError", py.get_type::<CorruptionError>())?;
    module.add("InternalError", py.get_type::<InternalError>())?;
    module.add("ForkedHandleError", py.get_type::<ForkedHandleError>())
}
