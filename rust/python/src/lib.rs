//! The Python module `lancemem._lancemem`: translation and nothing else.
//!
//! Owns: Arrow in and out, the runtime of this process, and exceptions.
//! Does not own: decisions. Every call extracts its arguments, releases the GIL, calls one function
//! of the crate `lancemem` and converts the result.

#![expect(
    clippy::doc_markdown,
    clippy::doc_link_with_quotes,
    reason = "docstrings come from the stub: Python names errors and arguments without backticks, and \
              lists in its examples are no links"
)]

mod admin;
mod allocator;
mod arguments;
mod bulk;
mod catalog;
mod config;
mod docs;
mod durations;
mod errors;
mod filter;
mod finalization;
mod input;
mod input_size;
mod job;
mod keys;
mod logging;
mod maintain;
mod metrics;
mod output;
mod provider;
mod repair;
mod runtime;
mod scan;
mod serve;
mod snapshot;
mod stack;
mod table;
mod values;

use pyo3::prelude::*;

/// Registers classes, functions and exceptions.
#[pymodule(gil_used = false)]
fn _lancemem(module: &Bound<'_, PyModule>) -> PyResult<()> {
    logging::start();
    allocator::share_large_buffers();
    finalization::watch_interpreter(module)?;
    errors::register(module)?;
    values::register(module)?;
    config::register(module)?;
    module.add_class::<table::Table>()?;
    catalog::register(module)?;
    bulk::register(module)?;
    module.add_class::<admin::Admin>()?;
    module.add_class::<job::Job>()?;
    module.add_class::<scan::Scan>()?;
    module.add_class::<scan::BatchIterator>()?;
    module.add_class::<snapshot::Snapshot>()?;
    serve::register(module)?;
    module.add_class::<output::ArrowStream>()?;
    module.add_class::<output::ArrowArray>()?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))
}
