//! Functions of users in Python, which merge the values of a column.
//!
//! Owns: the call of a function over Arrow arrays, and the loader of a call that opens a table.
//! Does not own: which module has a function (`lancemem.merge_functions`), what a function may
//! return (the core), or when it is called (the engine).
//!
//! The engine asks the loader on a thread of its own, which takes a function from a module that is
//! imported already. Another module is imported on the thread of the call, as an `import` statement
//! would do it, and the table is opened again: two threads that wait for each other's import would
//! never end.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow_array::ArrayRef;
use lancemem::{Error, FunctionLoader, Location, PairFunction, Result};
use pyo3::exceptions::PyException;
use pyo3::intern;
use pyo3::prelude::*;

use crate::errors::InvalidInputError;
use crate::finalization::outlive_interpreter;
use crate::input;
use crate::output::pyarrow_array;

const MODULE: &str = "lancemem.merge_functions";

/// Makes `call`, which opens the table at `location`, until no function that its merge rule names
/// has to be imported.
pub fn with_functions<T>(
    py: Python<'_>,
    location: Location,
    call: impl Fn(Location) -> PyResult<T>,
) -> PyResult<T> {
    outlive_interpreter();
    let loader = Arc::new(Loader::default());
    let location = location.with_functions(loader.clone());
    loop {
        let done = call(location.clone());
        if done.is_ok() || !loader.import_missing(py)? {
            return done;
        }
    }
}

type Loaded = Result<Arc<dyn PairFunction>>;

/// The functions of one table.
#[derive(Default)]
struct Loader {
    /// What an import on the thread of the call gave, by name.
    imported: Mutex<HashMap<String, Loaded>>,
    /// Names whose module is not imported.
    missing: Mutex<Vec<String>>,
}

impl Loader {
    /// Imports the functions that were missing since the last call; false where none was.
    ///
    /// # Errors
    /// An exception that ends a program, such as Ctrl-C. Others are the result of the next load.
    fn import_missing(&self, py: Python<'_>) -> PyResult<bool> {
        let missing = std::mem::take(&mut *locked(&self.missing));
        for name in &missing {
            let module = py.import(intern!(py, MODULE))?;
            let loaded = match module.call_method1(intern!(py, "load"), (name,)) {
                Ok(function) => Ok(OfPython::shared(name, function.unbind())),
                Err(error) if error.is_instance_of::<InvalidInputError>(py) => {
                    let text = error.value(py).to_string();
                    Err(Error::input(text).with_source(error.cause(py).unwrap_or(error)))
                }
                Err(error) if error.is_instance_of::<PyException>(py) => Err(raised(error)),
                Err(error) => return Err(error),
            };
            // Not while Python runs: a thread that has the lock may wait for the GIL.
            locked(&self.imported).insert(name.clone(), loaded);
        }
        Ok(!missing.is_empty())
    }
}

impl FunctionLoader for Loader {
    fn load(&self, name: &str) -> Loaded {
        if let Some(loaded) = locked(&self.imported).get(name) {
            return loaded.clone();
        }
        outlive_interpreter();
        let found = Python::try_attach(|py| -> PyResult<Option<Py<PyAny>>> {
            let module = py.import(intern!(py, MODULE))?;
            let found = module.call_method1(intern!(py, "loaded"), (name,))?;
            Ok((!found.is_none()).then(|| found.unbind()))
        });
        match found {
            Some(Ok(Some(function))) => Ok(OfPython::shared(name, function)),
            Some(Err(error)) => Err(raised(error)),
            Some(Ok(None)) | None => {
                locked(&self.missing).push(name.to_owned());
                Err(Error::input("its module is not imported"))
            }
        }
    }
}

/// Shows no Python object.
impl fmt::Debug for Loader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the modules of this interpreter")
    }
}

/// A function over `pyarrow` arrays.
struct OfPython {
    name: String,
    function: Py<PyAny>,
}

impl OfPython {
    fn shared(name: &str, function: Py<PyAny>) -> Arc<dyn PairFunction> {
        Arc::new(Self { name: name.to_owned(), function })
    }
}

impl fmt::Debug for OfPython {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl PairFunction for OfPython {
    /// Called on a thread that may block, while the callers of the engine have released the GIL.
    fn combine(&self, older: &ArrayRef, newer: &ArrayRef) -> Result<ArrayRef> {
        outlive_interpreter();
        let combined = Python::try_attach(|py| -> PyResult<ArrayRef> {
            let older = pyarrow_array(py, older.clone())?;
            let newer = pyarrow_array(py, newer.clone())?;
            input::array(&self.function.bind(py).call1((older, newer))?)
        });
        match combined {
            Some(Ok(values)) => Ok(values),
            Some(Err(error)) => Err(raised(error)),
            None => Err(Error::internal("the interpreter ends, and calls no function any more")),
        }
    }
}

/// The error of what Python raised: its source, which becomes the `__cause__` of the exception.
fn raised(error: PyErr) -> Error {
    let text = Python::attach(|py| {
        let is_ours = error.is_instance_of::<InvalidInputError>(py);
        if is_ours { error.value(py).to_string() } else { error.to_string() }
    });
    Error::input(text).with_source(error)
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
