//! Exceptions: one class for each action that a caller can take next.
//!
//! Owns: the exception tree, and the mapping of error kinds into it.
//! Does not own: messages.
//!
//! Safety model: `create_exception!` supports one base class, so this module creates the exceptions
//! with a second, built-in base itself. Each class is created once, at its first use, and its one
//! reference is never dropped: the pointer to it stays valid for the life of the process. The Rust
//! types have no fields, and nothing reads a Python object through them.

#![expect(unsafe_code, reason = "classes of two bases for PyO3; the safety model is above")]

use std::error::Error as _;

use lancemem::{Error, ErrorKind, scrub};
use lancemem_face::Error as FaceError;
use pyo3::exceptions::{
    PyException, PyFileExistsError, PyFileNotFoundError, PyOSError, PyValueError,
};
use pyo3::ffi::PyTypeObject;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple, PyType};
use pyo3::{PyErrArguments, PyTypeInfo, create_exception};

/// Defines an exception of lancemem that is a subclass of a built-in exception too.
macro_rules! create_exception_of_two {
    ($name:ident, $base:ty, $own_of_python:ty, $doc:literal) => {
        #[doc = $doc]
        pub struct $name;

        impl $name {
            /// An error of this class.
            pub fn new_err(args: impl PyErrArguments + 'static) -> PyErr {
                PyErr::new::<Self, _>(args)
            }
        }

        // SAFETY: the pointer is to a class that is created once and lives as long as the process;
        // the type checks are the trait's defaults.
        unsafe impl PyTypeInfo for $name {
            const NAME: &'static str = stringify!($name);
            const MODULE: Option<&'static str> = Some("lancemem");

            fn type_object_raw(py: Python<'_>) -> *mut PyTypeObject {
                static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
                let made = CLASS.get_or_init(py, || {
                    let bases = [py.get_type::<$base>(), py.get_type::<$own_of_python>()];
                    class_of(py, stringify!($name), bases, $doc).expect("a class of exceptions")
                });
                made.as_ptr().cast()
            }
        }
    };
}

/// A new class of exceptions, as a `class` statement in the package would create it.
fn class_of<'py>(
    py: Python<'py>,
    name: &str,
    bases: [Bound<'py, PyType>; 2],
    doc: &str,
) -> PyResult<Py<PyType>> {
    let attributes = PyDict::new(py);
    attributes.set_item("__module__", "lancemem")?;
    attributes.set_item("__doc__", doc)?;
    let made = py.get_type::<PyType>().call1((name, PyTuple::new(py, bases)?, attributes))?;
    Ok(made.cast_into::<PyType>()?.unbind())
}

create_exception!(
    lancemem,
    LancememError,
    PyException,
    "Any failure of lancemem. Where its table is known, a note (`__notes__`) names it."
);
create_exception_of_two!(
    InvalidInputError,
    LancememError,
    PyValueError,
    "The call or its data cannot be accepted; nothing was written. Fix it and call again."
);
create_exception_of_two!(
    TableNotFoundError,
    InvalidInputError,
    PyFileNotFoundError,
    "There is no table at this address. Create it, or correct the address."
);
create_exception_of_two!(
    TableExistsError,
    InvalidInputError,
    PyFileExistsError,
    "A table exists at this address. Open it, or choose another address."
);
create_exception!(
    lancemem,
    ChangesUnavailableError,
    LancememError,
    "The changes of a version cannot be derived. Read the table as a whole and go on behind it."
);
create_exception!(
    lancemem,
    ChangesExpiredError,
    LancememError,
    "The version behind which changes were asked for was cleaned up. Start from one that is left."
);
create_exception!(
    lancemem,
    WriterFencedError,
    LancememError,
    "Another job took the shard. Stop, or start a job to take it back."
);
create_exception!(
    lancemem,
    ShardHeldError,
    LancememError,
    "A job of another process may hold the shard. Close that job, or pass take_over=True."
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

/// The exception of an error. It has the error's text alone, which contains what the sources add:
/// the text of a source may hold credentials and paths of the build machine. An exception that code
/// of the caller raised, such as a merge function, is its `__cause__`, with the traceback.
pub fn to_py(error: &Error) -> PyErr {
    let made = exception_of(error);
    if let Some(cause) = raised_below(error) {
        Python::attach(|py| made.set_cause(py, Some(cause.clone_ref(py))));
    }
    made
}

/// The exception of Python that an error was made of.
fn raised_below(error: &Error) -> Option<&PyErr> {
    let mut source = error.source();
    while let Some(below) = source {
        if let Some(raised) = below.downcast_ref() {
            return Some(raised);
        }
        source = below.source();
    }
    None
}

fn exception_of(error: &Error) -> PyErr {
    let text = scrub(&error.to_string()).into_owned();
    match error {
        Error::NoTable { .. } => return TableNotFoundError::new_err(text),
        Error::TableExists { .. } => return TableExistsError::new_err(text),
        Error::ChangesUnavailable { version, operation, .. } => {
            return unavailable(text, *version, operation);
        }
        Error::ChangesExpired { oldest, .. } => return expired(text, *oldest),
        _ => {}
    }
    match error.kind() {
        ErrorKind::InvalidInput => InvalidInputError::new_err(text),
        ErrorKind::Fenced => WriterFencedError::new_err(text),
        ErrorKind::Held => ShardHeldError::new_err(text),
        ErrorKind::Stale => StaleTxnError::new_err(text),
        ErrorKind::Reopen => JobStoppedError::new_err(text),
        ErrorKind::Retry => RetryableError::new_err(text),
        ErrorKind::Corruption => CorruptionError::new_err(text),
        ErrorKind::Internal => InternalError::new_err(text),
        _ => LancememError::new_err(text),
    }
}

/// The error of changes that cannot be derived, with its attributes.
fn unavailable(text: String, version: u64, operation: &str) -> PyErr {
    let error = ChangesUnavailableError::new_err(text);
    Python::attach(|py| {
        let value = error.value(py);
        // The exception is raised even if an attribute cannot be set.
        let _ = value.setattr("version", version);
        let _ = value.setattr("operation", operation);
    });
    error
}

/// The error of an expired start, with its attribute.
fn expired(text: String, oldest: u64) -> PyErr {
    let error = ChangesExpiredError::new_err(text);
    Python::attach(|py| {
        let _ = error.value(py).setattr("oldest", oldest);
    });
    error
}

/// `error` with a note that names its table. Python shows the note under the text. A program may
/// use several tables.
pub fn of_table(py: Python<'_>, error: PyErr, uri: &str) -> PyErr {
    if error.is_instance_of::<LancememError>(py) {
        let note = format!("table: {}", scrub(uri));
        // The exception is raised even if the note cannot be added.
        let _ = error.value(py).call_method1("add_note", (note,));
    }
    error
}

/// The exception of a failure around a call of the engine.
pub fn of_face(error: FaceError) -> PyErr {
    match error {
        FaceError::Engine(error) => to_py(&error),
        FaceError::System(error) => error.into(),
        FaceError::InvalidInput(_) | FaceError::NotArrow(_) => {
            InvalidInputError::new_err(error.to_string())
        }
        FaceError::FewThreads(_) => RetryableError::new_err(error.to_string()),
        FaceError::SmallStack(_) => {
            RetryableError::new_err(format!("{error}, or threading.stack_size"))
        }
        FaceError::Forked { .. } => ForkedHandleError::new_err(error.to_string()),
    }
}

/// The exception of data that is not valid Arrow data.
pub fn not_arrow(error: &impl ToString) -> PyErr {
    of_face(FaceError::not_arrow(error))
}

/// The exception of a stream whose producer failed.
pub fn broken_stream(error: &impl ToString) -> PyErr {
    PyOSError::new_err(scrub(&error.to_string()).into_owned())
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add("LancememError", py.get_type::<LancememError>())?;
    module.add("InvalidInputError", py.get_type::<InvalidInputError>())?;
    module.add("TableNotFoundError", py.get_type::<TableNotFoundError>())?;
    module.add("TableExistsError", py.get_type::<TableExistsError>())?;
    let unavailable = py.get_type::<ChangesUnavailableError>();
    // Each error has its own values; these are for a program that asks the class.
    unavailable.setattr("version", 0)?;
    unavailable.setattr("operation", "")?;
    module.add("ChangesUnavailableError", unavailable)?;
    let expired = py.get_type::<ChangesExpiredError>();
    expired.setattr("oldest", 0)?;
    module.add("ChangesExpiredError", expired)?;
    module.add("WriterFencedError", py.get_type::<WriterFencedError>())?;
    module.add("ShardHeldError", py.get_type::<ShardHeldError>())?;
    module.add("StaleTxnError", py.get_type::<StaleTxnError>())?;
    module.add("JobStoppedError", py.get_type::<JobStoppedError>())?;
    module.add("RetryableError", py.get_type::<RetryableError>())?;
    module.add("CorruptionError", py.get_type::<CorruptionError>())?;
    module.add("InternalError", py.get_type::<InternalError>())?;
    module.add("ForkedHandleError", py.get_type::<ForkedHandleError>())
}
