//! Forwards the engine's log lines to Python's `logging`, to the logger `lancemem`.
//!
//! Owns: the levels of Python, and what an exception of a handler does.
//! Does not own: the queue of lines (`lancemem_face::log_lines`); levels and handlers, which are
//! the program's.

use lancemem_face::log_lines::{self, Level};
use pyo3::exceptions::PyException;
use pyo3::prelude::*;

/// Passes the queued lines to Python's `logging`. An exception of a handler or filter is reported
/// as unraisable, as in a destructor: the present call may have succeeded.
///
/// # Errors
/// An exception that ends a program, such as Ctrl-C.
pub fn hand_over(py: Python<'_>) -> PyResult<()> {
    let Some(lines) = log_lines::take() else { return Ok(()) };
    let logger = py.import("logging")?.call_method1("getLogger", ("lancemem",))?;
    for line in lines {
        let level = match line.level {
            Level::ERROR => 40,
            Level::WARN => 30,
            _ => 20,
        };
        match logger.call_method1("log", (level, line.text)) {
            Err(error) if error.is_instance_of::<PyException>(py) => {
                error.write_unraisable(py, None);
            }
            logged => drop(logged?),
        }
    }
    Ok(())
}
