//! Tables for DataFusion in Python, through DataFusion's C interface.
//!
//! Owns: the `PyCapsule` that `SessionContext.register_table` takes.
//! Does not own: the reads and pushdowns of a query; those are in `lancemem::TableSource`.
//!
//! Safety model: the session passes a capsule that is checked by name before its pointer is used.
//! The capsule holds a struct of `datafusion-ffi`, whose layout depends on DataFusion's major
//! version. The version of the Python package is compared before the struct is read. The struct is
//! cloned through its own callback, and the capsule stays the session's.

#![expect(unsafe_code, reason = "DataFusion's C interface; the safety model is above")]

use std::ffi::CStr;
use std::sync::Arc;

use datafusion_ffi::proto::logical_extension_codec::FFI_LogicalExtensionCodec;
use datafusion_ffi::table_provider::FFI_TableProvider;
use lancemem::TableSource;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyCapsuleMethods};

use crate::errors::InvalidInputError;
use crate::runtime::runtime;

const PROVIDER: &CStr = c"datafusion_table_provider";
const CODEC: &CStr = c"datafusion_logical_extension_codec";

/// `source` for the queries of `session`.
pub fn capsule<'py>(
    session: &Bound<'py, PyAny>,
    source: TableSource,
) -> PyResult<Bound<'py, PyCapsule>> {
    let py = session.py();
    require_version(py)?;
    let codec = codec_of(session)?;
    let runtime = runtime()?.handle().clone();
    let source = Arc::new(source.on(runtime.clone()));
    let provider = FFI_TableProvider::new_with_ffi_codec(source, true, Some(runtime), codec);
    PyCapsule::new(py, provider, Some(PROVIDER.to_owned()))
}

/// Refuses a DataFusion whose structs may have another layout.
fn require_version(py: Python<'_>) -> PyResult<()> {
    let version: String =
        py.import(intern!(py, "datafusion"))?.getattr(intern!(py, "__version__"))?.extract()?;
    let ours = datafusion_ffi::version();
    if version.split('.').next() == Some(ours.to_string().as_str()) {
        return Ok(());
    }
    Err(InvalidInputError::new_err(format!(
        "lancemem is built for the C interface of DataFusion {ours}, the package datafusion has \
         version {version}; install datafusion {ours}"
    )))
}

/// The codec with which the session encodes expressions. A session returns it from a method; some
/// callers pass the result of that method instead of the session.
fn codec_of(session: &Bound<'_, PyAny>) -> PyResult<FFI_LogicalExtensionCodec> {
    let name = intern!(session.py(), "__datafusion_logical_extension_codec__");
    let exported = match session.getattr_opt(name)? {
        Some(export) => export.call0()?,
        None => session.clone(),
    };
    let exported = exported.cast_into::<PyCapsule>().map_err(|_| {
        InvalidInputError::new_err("expected a SessionContext of the package datafusion")
    })?;
    let pointer = exported.pointer_checked(Some(CODEC))?.cast::<FFI_LogicalExtensionCodec>();
    // SAFETY: name and version were checked; the capsule outlives the borrow.
    Ok(unsafe { pointer.as_ref() }.clone())
}
