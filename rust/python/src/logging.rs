//! Forwards the engine's log lines to Python's `logging`, to the logger `lancemem`.
//!
//! Owns: the levels of Python, and what an exception of a handler does.
//! Does not own: the queue of lines (`lancemem_face::log_lines`); levels and handlers, which are
//! the program's.

use lancemem_face::log_lines::{self, Level};
use pyo3::exceptions::PyException;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

/// `logging.INFO`.
const INFO: u8 = 20;

/// Reads whether the program shows lines of level INFO. The engine collects none otherwise.
///
/// # Errors
/// An exception that ends a program, such as Ctrl-C.
pub fn follow_level(py: Python<'_>) -> PyResult<()> {
    let asked = logger(py)
        .and_then(|logger| logger.call_method1(intern!(py, "isEnabledFor"), (INFO,)))
        .and_then(|is_shown| is_shown.is_truthy());
    let is_shown = match asked {
        Err(error) if !error.is_instance_of::<PyException>(py) => return Err(error),
        // A logger that cannot answer gets the lines, and decides then.
        asked => asked.unwrap_or(true),
    };
    log_lines::show_info(is_shown);
    Ok(())
}

/// Passes the queued lines to Python's `logging`. An exception of a handler or filter is reported
/// as unraisable, as in a destructor: the present call may have succeeded.
///
/// # Errors
/// An exception that ends a program, such as Ctrl-C.
pub fn hand_over(py: Python<'_>) -> PyResult<()> {
    let Some(lines) = log_lines::take() else { return Ok(()) };
    let logger = logger(py)?;
    for line in lines {
        let level = match line.level {
            Level::ERROR => 40,
            Level::WARN => 30,
            _ => INFO,
        };
        match logger.call_method1(intern!(py, "log"), (level, line.text)) {
            Err(error) if error.is_instance_of::<PyException>(py) => {
                error.write_unraisable(py, None);
            }
            logged => drop(logged?),
        }
    }
    Ok(())
}

/// The logger `lancemem`.
fn logger(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    static LOGGER: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let logger = LOGGER.get_or_try_init(py, || {
        let logger = py.import("logging")?.call_method1("getLogger", ("lancemem",))?;
        Ok::<_, PyErr>(logger.unbind())
    })?;
    Ok(logger.bind(py))
}
