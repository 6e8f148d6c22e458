//! Exports Arrow data to Python, batch by batch.
//!
//! Owns: objects with `__arrow_c_stream__` and `__arrow_c_array__`.
//! Does not own: pyarrow, which is imported only where a caller needs its types.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::{Array, ArrayRef, RecordBatch, StructArray};
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Schema, SchemaRef};
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use lancemem::Error;
use lancemem_face::{panicked, with_room};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyTuple};
use pyo3_arrow::ffi::{
    ArrayIterator, to_array_pycapsules, to_schema_pycapsule, to_stream_pycapsule,
};
use tokio::runtime::Runtime;

use crate::errors::InvalidInputError;
use crate::finalization::outlive_interpreter;
use crate::runtime::{Here, run_on};

type Batches = BoxStream<'static, Result<ArrayRef, ArrowError>>;

/// A stream of record batches that is read once, through `__arrow_c_stream__`.
#[pyclass(frozen, module = "lancemem")]
pub struct ArrowStream {
    schema: SchemaRef,
    batches: Here<Mutex<Option<Batches>>>,
    runtime: Arc<Runtime>,
}

impl ArrowStream {
    /// A stream of `batches`, which runs on `runtime` while the consumer pulls.
    pub fn new<E: std::error::Error + Send + Sync + 'static>(
        schema: SchemaRef,
        batches: impl futures::Stream<Item = Result<RecordBatch, E>> + Send + 'static,
        runtime: Arc<Runtime>,
    ) -> Self {
        let batches = batches
            .map_ok(|batch| Arc::new(StructArray::from(batch)) as ArrayRef)
            .map_err(|error| ArrowError::ExternalError(Box::new(error)));
        // The consumer calls from C, and a panic must not unwind through C frames.
        let batches = AssertUnwindSafe(batches).catch_unwind().map(|batch| {
            batch
                .unwrap_or_else(|panic| Err(ArrowError::ExternalError(Box::new(panicked(&*panic)))))
        });
        let batches = batches.boxed();
        Self { schema, batches: Here::new(Mutex::new(Some(batches))), runtime }
    }

    fn take(&self) -> PyResult<Batches> {
        let batches = self.batches.get("stream")?;
        let mut batches = batches.lock().unwrap_or_else(PoisonError::into_inner);
        batches
            .take()
            .ok_or_else(|| InvalidInputError::new_err("the stream was consumed; scan again"))
    }
}

const FORKED: &str =
    "this stream was opened in another process and cannot be read in its fork; scan again here";

#[pymethods]
impl ArrowStream {
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyCapsule>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let batches = Here::new(Mutex::new(self.take()?));
        let runtime = self.runtime.clone();
        // A fork does not have the threads of the runtime, so the read would never end.
        let pulled = std::iter::from_fn(move || {
            if !batches.is_here() {
                return Some(Err(ArrowError::ExternalError(FORKED.into())));
            }
            let mut batches = batches.peek().lock().unwrap_or_else(PoisonError::into_inner);
            let batches = &mut *batches;
            with_room(|| runtime.block_on(batches.next()))
                .unwrap_or_else(|error| Some(Err(ArrowError::IoError(error.to_string(), error))))
        });
        let reader = Box::new(ArrayIterator::new(pulled, field_of(&self.schema)));
        to_stream_pycapsule(py, reader, requested_schema).map_err(PyErr::from)
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        to_schema_pycapsule(py, self.schema.as_ref()).map_err(PyErr::from)
    }
}

/// One array, exported through `__arrow_c_array__`.
#[pyclass(frozen, module = "lancemem")]
pub struct ArrowArray {
    array: ArrayRef,
    field: FieldRef,
}

impl ArrowArray {
    pub fn new(array: ArrayRef) -> Self {
        let field = Arc::new(Field::new("", array.data_type().clone(), true));
        Self { array, field }
    }

    fn of_batch(batch: RecordBatch) -> Self {
        let field = field_of(batch.schema_ref());
        Self { array: Arc::new(StructArray::from(batch)), field }
    }
}

#[pymethods]
impl ArrowArray {
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyCapsule>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let field = self.field.clone();
        to_array_pycapsules(py, field, self.array.as_ref(), requested_schema).map_err(PyErr::from)
    }

    fn __len__(&self) -> usize {
        self.array.len()
    }
}

/// Rows of `schema` as Arrow's C interface describes them: a struct that is never null.
fn field_of(schema: &SchemaRef) -> FieldRef {
    let rows = DataType::Struct(schema.fields().clone());
    Arc::new(Field::new("", rows, false).with_metadata(schema.metadata().clone()))
}

/// `batch` as a `pyarrow.RecordBatch`.
pub fn pyarrow_batch(py: Python<'_>, batch: RecordBatch) -> PyResult<Bound<'_, PyAny>> {
    outlive_interpreter();
    let batch = Py::new(py, ArrowArray::of_batch(batch))?;
    py.import("pyarrow")?.call_method1("record_batch", (batch,))
}

/// `values` as a `pyarrow.Array`.
pub fn pyarrow_array(py: Python<'_>, values: ArrayRef) -> PyResult<Bound<'_, PyAny>> {
    outlive_interpreter();
    py.import("pyarrow")?.call_method1("array", (Py::new(py, ArrowArray::new(values))?,))
}

/// `rows` as a `pyarrow.Table`.
pub fn pyarrow_table_of(py: Python<'_>, rows: Vec<RecordBatch>) -> PyResult<Bound<'_, PyAny>> {
    let schema = rows.first().map_or_else(|| Arc::new(Schema::empty()), RecordBatch::schema);
    let rows = futures::stream::iter(rows.into_iter().map(Ok::<_, Error>));
    pyarrow_table(py, ArrowStream::new(schema, rows, crate::runtime::runtime()?))
}

/// `schema` as a `pyarrow.Schema`.
pub fn pyarrow_schema<'py>(py: Python<'py>, schema: &SchemaRef) -> PyResult<Bound<'py, PyAny>> {
    outlive_interpreter();
    let stream = ArrowStream::new(
        schema.clone(),
        futures::stream::empty::<Result<_, Error>>(),
        crate::runtime::runtime()?,
    );
    py.import("pyarrow")?.call_method1("schema", (Py::new(py, stream)?,))
}

/// `stream` read to its end as a `pyarrow.Table`.
pub fn pyarrow_table(py: Python<'_>, stream: ArrowStream) -> PyResult<Bound<'_, PyAny>> {
    outlive_interpreter();
    py.import("pyarrow")?.call_method1("table", (Py::new(py, stream)?,))
}

/// All rows of a read of the table `uri` as a `pyarrow.Table`. They are collected and not streamed:
/// an error that crosses Arrow's C stream loses its type.
pub fn collected<'py>(
    py: Python<'py>,
    uri: &str,
    rows: impl Future<Output = lancemem::Result<(SchemaRef, Vec<RecordBatch>)>> + Send,
) -> PyResult<Bound<'py, PyAny>> {
    let (schema, batches) = run_on(py, uri, rows)?;
    let batches = futures::stream::iter(batches.into_iter().map(Ok::<_, Error>));
    pyarrow_table(py, ArrowStream::new(schema, batches, crate::runtime::runtime()?))
}

/// A `pyarrow.Table` as a frame of polars. Without polars nothing is read.
pub fn polars_frame<'py>(
    py: Python<'py>,
    table: impl FnOnce() -> PyResult<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let polars = py.import("polars")?;
    polars.call_method1("from_arrow", (table()?,))
}

/// The capsule of `stream`, in the schema that a consumer asks for.
pub fn exported<'py>(
    py: Python<'py>,
    stream: ArrowStream,
    requested_schema: Option<Bound<'py, PyCapsule>>,
) -> PyResult<Bound<'py, PyAny>> {
    Bound::new(py, stream)?.call_method1("__arrow_c_stream__", (requested_schema,))
}
