//! The Python module `lancemem._lancemem`: translation and nothing else.
//!
//! Owns: classes, argument types, capsules of Arrow, exceptions, and the allocator.
//! Does not own: decisions. Every call extracts its arguments, releases the GIL, calls one function
//! of the crate `lancemem` or `lancemem-flight` and converts the result. What a binding of another
//! language would need too is in `lancemem-face`: the runtime of this process, the wait for a call,
//! copies of data.

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
mod changes;
mod config;
mod docs;
mod durations;
mod errors;
mod filter;
mod finalization;
mod flushed_changes;
mod indexes;
mod input;
mod input_changes;
mod job;
mod keys;
mod logging;
mod maintain;
mod merge_functions;
mod output;
mod progress;
mod provider;
mod repair;
mod rules;
mod runtime;
mod scan;
mod search;
mod search_text;
mod serve;
mod snapshot;
mod table;
mod values;
mod write;
mod writer;

use pyo3::prelude::*;

/// Registers classes, functions and exceptions.
#[pymodule(gil_used = false)]
fn _lancemem(module: &Bound<'_, PyModule>) -> PyResult<()> {
    lancemem_face::log_lines::collect();
    allocator::share_large_buffers();
    finalization::watch_interpreter(module)?;
    errors::register(module)?;
    values::register(module)?;
    rules::register(module)?;
    config::register(module)?;
    module.add_class::<table::Table>()?;
    catalog::register(module)?;
    changes::register(module)?;
    flushed_changes::register(module)?;
    input_changes::register(module)?;
    bulk::register(module)?;
    indexes::register(module)?;
    module.add_class::<admin::Admin>()?;
    module.add_class::<job::Job>()?;
    writer::register(module)?;
    module.add_class::<scan::Scan>()?;
    module.add_class::<scan::BatchIterator>()?;
    module.add_class::<snapshot::Snapshot>()?;
    serve::register(module)?;
    module.add_class::<output::ArrowStream>()?;
    module.add_class::<output::ArrowArray>()?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))
}
