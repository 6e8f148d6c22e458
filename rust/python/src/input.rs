//! Arrow data from Python, copied once into memory that Rust owns.
//!
//! Owns: the import through `__arrow_c_stream__`, `__arrow_c_array__` and `__arrow_c_schema__`.
//! Does not own: what the rows mean.
//!
//! Safety model: the `PyCapsule` protocol hands over C structs of the Arrow C data interface. A
//! capsule is checked by name before its pointer is used, and `from_raw` moves the struct out,
//! leaving a released one behind, so nothing is freed twice. The structs' own contract (valid
//! buffers until release) is the producer's. A stream is pulled without the GIL, as the interface
//! allows: its producer may wait for other threads that need it. What came is copied and dropped
//! with the GIL, on this thread.
//!
//! Buffers are realigned first: PySpark hands over decimals at 8-byte addresses, and arrow 58
//! panics on them.

#![expect(unsafe_code, reason = "the Arrow C data interface; the safety model is above")]

use std::borrow::Cow;
use std::ffi::CStr;
use std::sync::Arc;

use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi_and_data_type};
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, make_array, new_empty_array};
use arrow_buffer::Buffer;
use arrow_data::ArrayData;
use arrow_data::transform::MutableArrayData;
use arrow_schema::{ArrowError, DataType, Schema, SchemaRef};
use arrow_select::concat::concat;
use lancemem::{MAX_PUT_BYTES, TypeName};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyCapsuleMethods, PyTuple};

use crate::errors::{InvalidInputError, broken_stream, not_arrow};
use crate::finalization::{detached, outlive_interpreter};
use crate::input_size::shown_bytes;

const SCHEMA: &CStr = c"arrow_schema";
const ARRAY: &CStr = c"arrow_array";
const STREAM: &CStr = c"arrow_array_stream";

const CONSUMED: &str = "the stream was consumed; export it again";

/// What an export holds.
pub enum Export {
    Rows(RecordBatch),
    /// The values of one column, which has no name.
    Values(ArrayRef),
}

/// The rows of anything that exports a stream or a single batch, as one batch: a call that
/// fails has then written nothing.
pub fn batch(data: &Bound<'_, PyAny>) -> PyResult<RecordBatch> {
    batch_within(data, usize::MAX)
}

/// The rows of one put, refused before they are copied where they are more than it takes.
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

/// Whatever anything exports as a stream or as a single array.
pub fn export(data: &Bound<'_, PyAny>) -> PyResult<Export> {
    export_within(data, usize::MAX)
}

fn export_within(data: &Bound<'_, PyAny>, most: usize) -> PyResult<Export> {
    outlive_interpreter();
    let py = data.py();
    // A single batch costs its producer half of what a stream costs.
    if let Some(export) = data.getattr_opt(intern!(py, "__arrow_c_array__"))? {
        let pair: Bound<'_, PyTuple> = export.call0()?.cast_into()?;
        let (data, schema) = exported_array(&pair)?;
        refuse_too_much(shown_bytes(&data), most)?;
        return owned(&data, schema.as_ref());
    }
    if let Some(export) = data.getattr_opt(intern!(py, "__arrow_c_stream__"))? {
        let capsule: Bound<'_, PyCapsule> = export.call0()?.cast_into()?;
        return stream(&capsule, most);
    }
    Err(InvalidInputError::new_err(format!(
        "expected Arrow data (an object with __arrow_c_stream__ or __arrow_c_array__, such as a \
         pyarrow table, a pandas or a polars frame), got {}",
        data.get_type().name()?
    )))
}

/// Reads the stream, of which nothing was pulled yet, and puts one of the same rows in its place.
///
/// What polars exports of a column that is all null and has no type has a buffer, of which the interface
/// says that there is none. pyarrow reads it, and exports it as it should be.
fn through_pyarrow(py: Python<'_>, stream: &mut FFI_ArrowArrayStream) -> PyResult<()> {
    let reader = py.import("pyarrow")?.getattr("RecordBatchReader")?;
    let at = std::ptr::from_mut(stream) as usize;
    let read =
        reader.call_method1("_import_from_c", (at,)).and_then(|it| it.call_method0("read_all"));
    let table = read.map_err(|error| broken_stream(&error))?;
    let capsule: Bound<'_, PyCapsule> = table.call_method0("__arrow_c_stream__")?.cast_into()?;
    let pointer = capsule.pointer_checked(Some(STREAM))?.cast::<FFI_ArrowArrayStream>();
    // SAFETY: the name was checked; the struct is moved out and a released one left behind. pyarrow has
    // moved the stream that was here out, so that nothing is lost of it.
    *stream = unsafe { FFI_ArrowArrayStream::from_raw(pointer.as_ptr()) };
    Ok(())
}

/// Whether anything in the type is of no type.
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

/// The values of anything that exports a single array.
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
    owned_column(&data, 0, data.len()).map(make_array).map_err(|error| not_arrow(&error))
}

/// The schema of anything that exports one.
pub fn schema(data: &Bound<'_, PyAny>) -> PyResult<SchemaRef> {
    let capsule = schema_capsule(data, "an Arrow schema (an object with __arrow_c_schema__)")?;
    Schema::try_from(exported_type(&capsule)?).map(Arc::new).map_err(|error| not_arrow(&error))
}

/// The type of anything that exports one.
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
    // Its end may wait for those threads as well, above all where it failed.
    detached(py, move || drop(stream));
    pulled
}

/// All of a stream. Each array is copied and given back before the next one is pulled, so that a
/// producer that makes them as it goes has one at a time.
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
        let data = unsafe { from_ffi_and_data_type(array, data_type.clone()) };
        let data = data.map_err(|error| not_arrow(&error))?;
        bytes += shown_bytes(&data);
        refuse_too_much(bytes, most)?;
        match owned(&data, schema.as_ref())? {
            Export::Rows(rows) => batches.push(rows),
            Export::Values(array) => values.push(array),
        }
    }
    match &schema {
        Some(schema) => joined(schema, batches).map(Export::Rows),
        None => one_array(&values, &data_type).map(Export::Values),
    }
}

fn refuse_too_much(bytes: usize, most: usize) -> PyResult<()> {
    if bytes <= most {
        return Ok(());
    }
    Err(InvalidInputError::new_err(format!(
        "a put is limited to {most} bytes, because all of its rows are one entry of the log, and this \
         put has more: put the rows in several batches"
    )))
}

/// The rows of `batches` in one. A column at a time: no more than one is there twice.
fn joined(schema: &SchemaRef, mut batches: Vec<RecordBatch>) -> PyResult<RecordBatch> {
    if batches.len() == 1 {
        return Ok(batches.swap_remove(0));
    }
    let rows = batches.iter().map(RecordBatch::num_rows).sum();
    let mut columns: Vec<Vec<ArrayRef>> = vec![Vec::new(); schema.fields().len()];
    for batch in batches {
        columns.iter_mut().zip(batch.columns()).for_each(|(parts, part)| parts.push(part.clone()));
    }
    let columns = columns.into_iter().zip(schema.fields());
    let columns = columns.map(|(parts, field)| one_array(&parts, field.data_type()));
    let columns = columns.collect::<PyResult<Vec<_>>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(schema.clone(), columns, &options)
        .map_err(|error| not_arrow(&error))
}

fn one_array(arrays: &[ArrayRef], data_type: &DataType) -> PyResult<ArrayRef> {
    if arrays.is_empty() {
        return Ok(new_empty_array(data_type));
    }
    let arrays: Vec<&dyn Array> = arrays.iter().map(AsRef::as_ref).collect();
    concat(&arrays).map_err(|error| not_arrow(&error))
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

/// An array in memory of our own: a batch of `schema` if it is one of columns.
fn owned(data: &ArrayData, schema: Option<&SchemaRef>) -> PyResult<Export> {
    if let Some(schema) = schema {
        return owned_batch(data, schema).map(Export::Rows);
    }
    let values = owned_column(data, 0, data.len()).map_err(|error| not_arrow(&error))?;
    Ok(Export::Values(make_array(values)))
}

/// The schema that `exported` was read as: its type, and what the producer says beside it.
fn schema_of(data_type: &DataType, exported: &FFI_ArrowSchema) -> PyResult<SchemaRef> {
    let DataType::Struct(fields) = data_type else {
        return Err(not_arrow(&format!("rows have a struct type, got {}", TypeName(data_type))));
    };
    let metadata = exported.metadata().map_err(|error| not_arrow(&error))?;
    Ok(Arc::new(Schema::new_with_metadata(fields.clone(), metadata)))
}

/// An array, not copied yet, and the schema that it is a batch of, if it is one.
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
    // Read once: a put of a few rows takes hardly longer than the texts of its schema.
    let schema = is_batch.then(|| schema_of(&data_type, exported)).transpose()?;
    // SAFETY: the producer promises that the array is of the type beside it.
    let data = unsafe { from_ffi_and_data_type(array, data_type) };
    Ok((data.map_err(|error| not_arrow(&error))?, schema))
}

/// The batch in aligned memory of our own.
fn owned_batch(data: &ArrayData, schema: &SchemaRef) -> PyResult<RecordBatch> {
    let rows = data.len();
    if data.nulls().is_some() {
        return Err(not_arrow(&"the data has rows that are null as a whole; leave those rows out"));
    }
    let copied = data.child_data().iter().zip(schema.fields()).map(|(column, field)| {
        let column = owned_column(column, data.offset(), rows);
        let named = |error: ArrowError| not_arrow(&format!("column '{}': {error}", field.name()));
        column.map(make_array).map_err(named)
    });
    let columns = copied.collect::<PyResult<Vec<_>>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(schema.clone(), columns, &options)
        .map_err(|error| not_arrow(&error))
}

/// So many rows of a column in aligned memory of our own, with values that its type allows.
fn owned_column(data: &ArrayData, from: usize, rows: usize) -> Result<ArrayData, ArrowError> {
    let is_nested = !data.child_data().is_empty();
    let is_whole = is_nested || (from == 0 && rows == data.len());
    let part = if is_whole { Cow::Borrowed(data) } else { Cow::Owned(data.slice(from, rows)) };
    if let Some(copy) = copied_whole(&part) {
        check_values(&copy)?;
        return Ok(copy);
    }
    let mut data = part.into_owned();
    data.align_buffers();
    if is_nested {
        data = with_own_parts(&data, from, rows)?;
    }
    // The parts may have nulls where the rows that are copied have none.
    let mut copy = MutableArrayData::new(vec![&data], is_nested, data.len());
    copy.extend(0, 0, data.len());
    let copy = copy.freeze();
    check_values(&copy)?;
    Ok(copy)
}

/// So many rows of an array, in which neither structs nor lists of a fixed size have an offset: their
/// parts have it. arrow 58 copies the parts of a struct without its offset, and where it slices one it
/// counts that twice.
fn with_own_parts(data: &ArrayData, from: usize, rows: usize) -> Result<ArrayData, ArrowError> {
    if from + rows > data.len() {
        let (has, needs) = (data.len(), from + rows);
        return Err(ArrowError::CDataInterface(format!(
            "a child array has {has} values, its parent needs {needs}"
        )));
    }
    // How many values of a part belong to a row, where they are counted.
    let width = match data.data_type() {
        DataType::Struct(_) => Some(1),
        DataType::FixedSizeList(_, width) => usize::try_from(*width).ok(),
        _ => None,
    };
    let offset = data.offset() + from;
    let parts = data.child_data().iter().map(|part| match width {
        Some(width) => with_own_parts(part, offset * width, rows * width),
        None => with_own_parts(part, 0, part.len()),
    });
    let parts = parts.collect::<Result<Vec<_>, _>>()?;
    let nulls = data.nulls().map(|nulls| nulls.slice(from, rows));
    let offset = if width.is_some() { 0 } else { offset };
    let own = data.clone().into_builder().len(rows).offset(offset).nulls(nulls).child_data(parts);
    // SAFETY: the same buffers, and of each the part that belongs to these rows, which is inside of it.
    // Values are checked in the copy: here everything beside the rows would be checked with them.
    Ok(unsafe { own.build_unchecked() })
}

/// Refuses text that is not UTF-8, and indices and offsets that lead outside: once in the WAL,
/// they would make the shard unreadable.
fn check_values(data: &ArrayData) -> Result<(), ArrowError> {
    data.validate_values()?;
    data.child_data().iter().try_for_each(check_values)
}

/// Refuses an array that cannot be of its schema; arrow 58 panics on it.
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

/// The plain case, buffer by buffer: a column of numbers or of text that starts where its
/// buffers start. `None` for every other one.
fn copied_whole(data: &ArrayData) -> Option<ArrayData> {
    if data.offset() != 0 || !data.child_data().is_empty() || data.is_empty() {
        return None;
    }
    let rows = data.len();
    let buffers = data.buffers();
    let part = |index: usize, bytes: usize| Some(aligned(buffers.get(index)?.get(..bytes)?));
    let copies = match data.data_type() {
        DataType::Boolean => vec![part(0, rows.div_ceil(8))?],
        DataType::Utf8 | DataType::Binary => {
            let offsets = part(0, (rows + 1) * size_of::<i32>())?;
            let end = offsets.typed_data::<i32>().last()?.to_owned();
            vec![offsets, part(1, usize::try_from(end).ok()?)?]
        }
        DataType::LargeUtf8 | DataType::LargeBinary => {
            let offsets = part(0, (rows + 1) * size_of::<i64>())?;
            let end = offsets.typed_data::<i64>().last()?.to_owned();
            vec![offsets, part(1, usize::try_from(end).ok()?)?]
        }
        other => vec![part(0, rows * other.primitive_width()?)?],
    };
    let validity = match data.nulls() {
        None => None,
        Some(nulls) if nulls.offset() == 0 => {
            Some(aligned(nulls.validity().get(..rows.div_ceil(8))?))
        }
        Some(_) => return None,
    };
    let copy = ArrayData::builder(data.data_type().clone()).len(rows).buffers(copies);
    // SAFETY: type, length and bytes are those of an array that the producer promised is valid.
    Some(unsafe { copy.null_bit_buffer(validity).build_unchecked() })
}

/// A copy in memory that is aligned for every type of Arrow.
fn aligned(bytes: &[u8]) -> Buffer {
    Buffer::from(bytes)
}
