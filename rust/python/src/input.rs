//! Imports Arrow data from Python, with one copy into memory that Rust owns.
//!
//! Owns: the import through `__arrow_c_stream__`, `__arrow_c_array__` and `__arrow_c_schema__`.
//! Does not own: the copy (`lancemem_face::array_copy`), the meaning of the rows, or rows in other
//! forms, which `lancemem.rows` makes Arrow.
//!
//! Safety model: the `PyCapsule` protocol passes C structs of the Arrow C data interface. A capsule
//! is checked by name before its pointer is used. `from_raw` moves the struct out and leaves a
//! released one behind, so nothing is freed twice. The producer guarantees the contract of the
//! structs: valid buffers until release. A stream is pulled without the GIL, as the interface
//! allows: its producer may wait for other threads that need the GIL. Pulled arrays are copied and
//! dropped with the GIL, on this thread.

#![expect(unsafe_code, reason = "the Arrow C data interface; the safety model is above")]

use std::ffi::CStr;
use std::sync::Arc;

use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi_and_data_type};
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{ArrayRef, RecordBatch};
use arrow_data::ArrayData;
use arrow_schema::{DataType, Schema, SchemaRef};
use lancemem::{MAX_PUT_BYTES, TypeName};
use lancemem_face::array_copy::{concat_arrays, concat_batches, copy_array, copy_batch};
use lancemem_face::array_size::{check_put_bytes, shown_bytes};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyCapsuleMethods, PyTuple};

use crate::errors::{InvalidInputError, broken_stream, not_arrow, of_face};
use crate::finalization::{detached, outlive_interpreter};

const SCHEMA: &CStr = c"arrow_schema";
const ARRAY: &CStr = c"arrow_array";
const STREAM: &CStr = c"arrow_array_stream";

const CONSUMED: &str = "the stream was consumed; export it again";

/// Imported data.
pub enum Export {
    Rows(RecordBatch),
    /// The values of one column without a name.
    Values(ArrayRef),
}

/// The rows of an object that exports a stream or a single batch, as one batch. All rows are
/// imported before any is written, so a failed import has written nothing.
pub fn batch(data: &Bound<'_, PyAny>) -> PyResult<RecordBatch> {
    batch_within(data, usize::MAX)
}

/// The rows of one put. Rows beyond the limit of a put are refused before they are copied.
pub fn batch_of_put(data: &Bound<'_, PyAny>) -> PyResult<RecordBatch> {
    batch_within(data, MAX_PUT_BYTES)
}

fn batch_within(data: &Bound<'_, PyAny>, most: usize) -> PyResult<RecordBatch> {
    match export_within(data, most)? {
        Export::Rows(rows) => Ok(rows),
        Export::Values(_) => {
            Err(not_arrow(&"the data is one column; pass a record batch or a table"))
        }
    }
}

/// Whether `data` exports itself as Arrow.
pub fn is_arrow(data: &Bound<'_, PyAny>) -> PyResult<bool> {
    outlive_interpreter();
    let py = data.py();
    Ok(data.hasattr(intern!(py, "__arrow_c_array__"))?
        || data.hasattr(intern!(py, "__arrow_c_stream__"))?)
}

/// The data of an object that exports a stream or a single array, or has rows in another form.
pub fn export(data: &Bound<'_, PyAny>) -> PyResult<Export> {
    export_within(data, usize::MAX)
}

fn export_within(data: &Bound<'_, PyAny>, most: usize) -> PyResult<Export> {
    outlive_interpreter();
    let py = data.py();
    // Tried first: exporting a single batch costs its producer half as much as a stream.
    if let Some(export) = data.getattr_opt(intern!(py, "__arrow_c_array__"))? {
        let pair: Bound<'_, PyTuple> = export.call0()?.cast_into()?;
        let (data, schema) = exported_array(&pair)?;
        check_put_bytes(shown_bytes(&data), most).map_err(of_face)?;
        return owned(&data, schema.as_ref());
    }
    if let Some(export) = data.getattr_opt(intern!(py, "__arrow_c_stream__"))? {
        let capsule: Bound<'_, PyCapsule> = export.call0()?.cast_into()?;
        return stream(&capsule, most);
    }
    // Other forms of rows, such as a list of dicts; it raises for what has no accepted form.
    let rows = py.import("lancemem.rows")?.call_method1("to_table", (data,))?;
    let capsule: Bound<'_, PyCapsule> =
        rows.call_method0(intern!(py, "__arrow_c_stream__"))?.cast_into()?;
    stream(&capsule, most)
}

/// Replaces a stream that was not pulled yet by pyarrow's stream of the same rows.
///
/// For a column of type null, polars exports a buffer, although the interface allows none. pyarrow
/// reads such a column and exports it correctly.
fn through_pyarrow(py: Python<'_>, stream: &mut FFI_ArrowArrayStream) -> PyResult<()> {
    let reader = py.import("pyarrow")?.getattr("RecordBatchReader")?;
    let at = std::ptr::from_mut(stream) as usize;
    let read =
        reader.call_method1("_import_from_c", (at,)).and_then(|it| it.call_method0("read_all"));
    let table = read.map_err(|error| broken_stream(&error))?;
    let capsule: Bound<'_, PyCapsule> = table.call_method0("__arrow_c_stream__")?.cast_into()?;
    let pointer = capsule.pointer_checked(Some(STREAM))?.cast::<FFI_ArrowArrayStream>();
    // SAFETY: the name was checked; the struct is moved out and a released one left behind. pyarrow
    // has moved the replaced stream out, so it is not leaked.
    *stream = unsafe { FFI_ArrowArrayStream::from_raw(pointer.as_ptr()) };
    Ok(())
}

/// Whether the type is null, or contains the type null.
fn has_nulls(data_type: &DataType) -> bool {
    match data_type {
        DataType::Null => true,
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::FixedSizeList(item, _)
        | DataType::Map(item, _) => has_nulls(item.data_type()),
        DataType::Struct(parts) => parts.iter().any(|part| has_nulls(part.data_type())),
        _ => false,
    }
}

/// The same data, in which no array without values has the producer's offsets.
///
/// Arrow lets a producer export the offsets of such an array as a buffer of no bytes, and Spark does
/// so for the values of empty lists. arrow-rs takes the buffer for one offset, which lies beyond it.
fn with_offsets(data: ArrayData) -> ArrayData {
    if data.is_empty() {
        return ArrayData::new_empty(data.data_type());
    }
    if !has_empty_child(&data) {
        return data;
    }
    let children = data.child_data().iter().cloned().map(with_offsets).collect();
    // SAFETY: each child has the type, the length and the values that it had.
    unsafe { data.into_builder().child_data(children).build_unchecked() }
}

fn has_empty_child(data: &ArrayData) -> bool {
    data.child_data().iter().any(|child| child.is_empty() || has_empty_child(child))
}

/// The values of an object that exports a single array.
pub fn array(data: &Bound<'_, PyAny>) -> PyResult<ArrayRef> {
    outlive_interpreter();
    let Some(export) = data.getattr_opt(intern!(data.py(), "__arrow_c_array__"))? else {
        return Err(InvalidInputError::new_err(format!(
            "expected an Arrow array (an object with __arrow_c_array__), got {}",
            data.get_type().name()?
        )));
    };
    let pair: Bound<'_, PyTuple> = export.call0()?.cast_into()?;
    let (data, _) = exported_array(&pair)?;
    copy_array(&data).map_err(of_face)
}

/// The schema of an object that exports one.
pub fn schema(data: &Bound<'_, PyAny>) -> PyResult<SchemaRef> {
    let capsule = schema_capsule(data, "an Arrow schema (an object with __arrow_c_schema__)")?;
    Schema::try_from(exported_type(&capsule)?).map(Arc::new).map_err(|error| not_arrow(&error))
}

/// The type of an object that exports one.
pub fn data_type(data: &Bound<'_, PyAny>) -> PyResult<DataType> {
    let capsule = schema_capsule(data, "an Arrow type, such as pyarrow.int64()")?;
    DataType::try_from(exported_type(&capsule)?).map_err(|error| not_arrow(&error))
}

fn schema_capsule<'py>(
    data: &Bound<'py, PyAny>,
    expected: &str,
) -> PyResult<Bound<'py, PyCapsule>> {
    outlive_interpreter();
    if !data.hasattr("__arrow_c_schema__")? {
        return Err(InvalidInputError::new_err(format!(
            "expected {expected}, got {}",
            data.get_type().name()?
        )));
    }
    Ok(data.call_method0("__arrow_c_schema__")?.cast_into()?)
}

fn exported_type<'a>(capsule: &'a Bound<'_, PyCapsule>) -> PyResult<&'a FFI_ArrowSchema> {
    let pointer = capsule.pointer_checked(Some(SCHEMA))?.cast::<FFI_ArrowSchema>();
    // SAFETY: the name was checked; the capsule outlives the borrow.
    Ok(unsafe { pointer.as_ref() })
}

fn stream(capsule: &Bound<'_, PyCapsule>, most: usize) -> PyResult<Export> {
    let pointer = capsule.pointer_checked(Some(STREAM))?.cast::<FFI_ArrowArrayStream>();
    // SAFETY: the name was checked; the struct is moved out and a released one left behind.
    let mut stream = unsafe { FFI_ArrowArrayStream::from_raw(pointer.as_ptr()) };
    let py = capsule.py();
    let pulled = pull(py, &mut stream, most);
    // Without the GIL: releasing a stream may wait for the producer's threads too, most of all
    // after an error.
    detached(py, move || drop(stream));
    pulled
}

/// All arrays of a stream. Each is copied and released before the next one is pulled, so a producer
/// that makes them on demand has one in memory at a time.
fn pull(py: Python<'_>, stream: &mut FFI_ArrowArrayStream, most: usize) -> PyResult<Export> {
    let mut exported = detached(py, || stream_schema(stream))?;
    let data_type = DataType::try_from(&exported).map_err(|error| not_arrow(&error))?;
    let is_rows = matches!(data_type, DataType::Struct(_));
    if is_rows && has_nulls(&data_type) {
        through_pyarrow(py, stream)?;
        exported = stream_schema(stream)?;
    }
    let schema = is_rows.then(|| schema_of(&data_type, &exported)).transpose()?;
    let (mut batches, mut values, mut bytes) = (Vec::new(), Vec::new(), 0);
    while let Some(array) = detached(py, || next_array(stream))? {
        check_shape(&array, &data_type)?;
        // SAFETY: the producer promises that the array is of the stream's schema.
        let data = unsafe { from_ffi_and_data_type(array, data_type.clone()) }.map(with_offsets);
        let data = data.map_err(|error| not_arrow(&error))?;
        bytes += shown_bytes(&data);
        check_put_bytes(bytes, most).map_err(of_face)?;
        match owned(&data, schema.as_ref())? {
            Export::Rows(rows) => batches.push(rows),
            Export::Values(array) => values.push(array),
        }
    }
    match &schema {
        Some(schema) => concat_batches(schema, batches).map(Export::Rows),
        None => concat_arrays(&values, &data_type).map(Export::Values),
    }
    .map_err(of_face)
}

fn stream_schema(stream: &mut FFI_ArrowArrayStream) -> PyResult<FFI_ArrowSchema> {
    let get_schema = stream.get_schema.ok_or_else(|| broken_stream(&CONSUMED))?;
    let mut exported = FFI_ArrowSchema::empty();
    // SAFETY: a stream that is not released has this callback, which fills `exported`.
    if unsafe { get_schema(stream, &raw mut exported) } != 0 {
        return Err(broken_stream(&last_error(stream)));
    }
    Ok(exported)
}

fn next_array(stream: &mut FFI_ArrowArrayStream) -> PyResult<Option<FFI_ArrowArray>> {
    let get_next = stream.get_next.ok_or_else(|| broken_stream(&CONSUMED))?;
    let mut array = FFI_ArrowArray::empty();
    // SAFETY: as in `stream_schema`.
    if unsafe { get_next(stream, &raw mut array) } != 0 {
        return Err(broken_stream(&last_error(stream)));
    }
    Ok((!array.is_released()).then_some(array))
}

fn last_error(stream: &mut FFI_ArrowArrayStream) -> String {
    let Some(get_last_error) = stream.get_last_error else { return String::new() };
    // SAFETY: the text, if any, is valid until the next call on the stream.
    unsafe {
        let text = get_last_error(stream);
        if text.is_null() {
            return "the producer of the stream failed".to_owned();
        }
        CStr::from_ptr(text).to_string_lossy().into_owned()
    }
}

/// A copy of an array in memory that Rust owns: a batch if it has a `schema`.
fn owned(data: &ArrayData, schema: Option<&SchemaRef>) -> PyResult<Export> {
    match schema {
        Some(schema) => copy_batch(data, schema).map(Export::Rows),
        None => copy_array(data).map(Export::Values),
    }
    .map_err(of_face)
}

/// The schema of `exported`: the fields of its type, and its metadata.
fn schema_of(data_type: &DataType, exported: &FFI_ArrowSchema) -> PyResult<SchemaRef> {
    let DataType::Struct(fields) = data_type else {
        return Err(not_arrow(&format!("rows have a struct type, got {}", TypeName(data_type))));
    };
    let metadata = exported.metadata().map_err(|error| not_arrow(&error))?;
    Ok(Arc::new(Schema::new_with_metadata(fields.clone(), metadata)))
}

/// An exported array, not copied yet, and its schema if it is a batch.
fn exported_array(pair: &Bound<'_, PyTuple>) -> PyResult<(ArrayData, Option<SchemaRef>)> {
    let schema_capsule: Bound<'_, PyCapsule> = pair.get_item(0)?.cast_into()?;
    let array_capsule: Bound<'_, PyCapsule> = pair.get_item(1)?.cast_into()?;
    let schema = schema_capsule.pointer_checked(Some(SCHEMA))?.cast::<FFI_ArrowSchema>();
    let array = array_capsule.pointer_checked(Some(ARRAY))?.cast::<FFI_ArrowArray>();
    // SAFETY: the names were checked; the schema is borrowed while its capsule lives, the array
    // is moved out.
    let (exported, array) = unsafe { (schema.as_ref(), FFI_ArrowArray::from_raw(array.as_ptr())) };
    if exported.release.is_none() || array.is_released() {
        return Err(not_arrow(&"the array was consumed; export it again"));
    }
    let data_type = DataType::try_from(exported).map_err(|error| not_arrow(&error))?;
    check_shape(&array, &data_type)?;
    let is_batch = matches!(data_type, DataType::Struct(_));
    // Read once: parsing the schema is a large part of the time of a small put.
    let schema = is_batch.then(|| schema_of(&data_type, exported)).transpose()?;
    // SAFETY: the producer promises that the array is of the type beside it.
    let data = unsafe { from_ffi_and_data_type(array, data_type) }.map(with_offsets);
    Ok((data.map_err(|error| not_arrow(&error))?, schema))
}

/// Refuses an array whose children do not match its schema; arrow 58 panics on it.
fn check_shape(array: &FFI_ArrowArray, data_type: &DataType) -> PyResult<()> {
    let parts: Vec<&DataType> = match data_type {
        DataType::Struct(fields) => fields.iter().map(|field| field.data_type()).collect(),
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::FixedSizeList(item, _)
        | DataType::Map(item, _) => vec![item.data_type()],
        _ => return Ok(()),
    };
    if parts.len() != array.num_children() {
        return Err(not_arrow(&format!(
            "the schema has {} children for a {}, the data has {}",
            parts.len(),
            TypeName(data_type),
            array.num_children()
        )));
    }
    let mut parts = parts.into_iter().enumerate();
    parts.try_for_each(|(index, part)| check_shape(array.child(index), part))
}
