//! Arrow data to Python, batch by batch.
//!
//! Owns: objects with `__arrow_c_stream__` and `__arrow_c_array__`.
//! Does not own: pyarrow; it is imported only where a caller asks for its types.

use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::{Array, ArrayRef, StructArray};
use arrow_schema::{ArrowError, DataType, Field, FieldRef, SchemaRef};
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use lancemem::Error;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyTuple};
use pyo3_arrow::ffi::{
    ArrayIterator, to_array_pycapsules, to_schema_pycapsule, to_stream_pycapsule,
};
use tokio::runtime::Runtime;

use crate::errors::InvalidInputError;
use crate::runtime::Origin;

type Batches = BoxStream<'static, Result<ArrayRef, ArrowError>>;

/// A stream of record batches that is read once, through `__arrow_c_stream__`.
#[pyclass(frozen, module = "lancemem")]
pub struct ArrowStream {
    schema: SchemaRef,
    batches: Mutex<Option<Batches>>,
    runtime: Arc<Runtime>,
    origin: Origin,
}

impl ArrowStream {
    /// A stream of `batches`, which run on `runtime` while the consumer pulls.
    pub fn new<E: std::error::Error + Send + Sync + 'static>(
        schema: SchemaRef,
        batches: impl futures::Stream<Item = Result<arrow_array::RecordBatch, E>> + Send + 'static,
        runtime: Arc<Runtime>,
    ) -> Self {
        let batches = batches
            .map_ok(|batch| Arc::new(StructArray::from(batch)) as ArrayRef)
            .map_err(|error| ArrowError::ExternalError(Box::new(error)))
            .boxed();
        Self { schema, batches: Mutex::new(Some(batches)), runtime, origin: Origin::here() }
    }

    fn take(&self) -> PyResult<Batches> {
        self.origin.check("stream")?;
        let mut batches = self.batches.lock().unwrap_or_else(PoisonError::into_inner);
        batches
            .take()
            .ok_or_else(|| InvalidInputError::new_err("the stream was read already; scan again"))
    }

    fn field(&self) -> FieldRef {
        let rows = DataType::Struct(self.schema.fields().clone());
        Arc::new(Field::new("", rows, false).with_metadata(self.schema.metadata().clone()))
    }
}

#[pymethods]
impl ArrowStream {
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyCapsule>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let mut batches = self.take()?;
        let runtime = self.runtime.clone();
        let pulled = std::iter::from_fn(move || runtime.block_on(batches.next()));
        let reader = Box::new(ArrayIterator::new(pulled, self.field()));
        to_stream_pycapsule(py, reader, requested_schema).map_err(PyErr::from)
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        to_schema_pycapsule(py, self.schema.as_ref()).map_err(PyErr::from)
    }
}

/// One array, exported through `__arrow_c_array__`.
#[pyclass(frozen, module = "lancemem")]
pub struct ArrowArray(ArrayRef);

impl ArrowArray {
    pub const fn new(array: ArrayRef) -> Self {
        Self(array)
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
        let field = Arc::new(Field::new("", self.0.data_type().clone(), true));
        to_array_pycapsules(py, field, self.0.as_ref(), requested_schema).map_err(PyErr::from)
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }
}

/// `schema` as a `pyarrow.Schema`.
pub fn pyarrow_schema<'py>(py: Python<'py>, schema: &SchemaRef) -> PyResult<Bound<'py, PyAny>> {
    let stream = ArrowStream::new(
        schema.clone(),
        futures::stream::empty::<Result<_, Error>>(),
        crate::runtime::runtime()?,
    );
    py.import("pyarrow")?.call_method1("schema", (Py::new(py, stream)?,))
}

/// `stream` read to its end as a `pyarrow.Table`.
pub fn pyarrow_table(py: Python<'_>, stream: ArrowStream) -> PyResult<Bound<'_, PyAny>> {
    py.import("pyarrow")?.call_method1("table", (Py::new(py, stream)?,))
}
