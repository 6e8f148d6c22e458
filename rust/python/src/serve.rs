//! `Endpoint` and `RemoteJob`: serving a job's rows to another process.
//!
//! Owns: the two ends as Python objects, whose `repr` never shows the token.
//! Does not own: the wire format or authentication.

use std::sync::Arc;
use std::time::Duration;

use lancemem::LiveJob;
use lancemem_flight::{ServeOptions, Tls, Token};
use pyo3::prelude::*;

use crate::arguments::FilePath;
use crate::docs::docstring;
use crate::errors::to_py;
use crate::runtime::{Here, run};

/// The endpoint of a job, until it is closed or the job ends.
#[pyclass(frozen, module = "lancemem")]
pub struct Endpoint {
    inner: Here<lancemem_flight::Endpoint>,
}

/// A job that another process serves.
#[pyclass(frozen, module = "lancemem")]
pub struct RemoteJob {
    inner: Here<lancemem_flight::RemoteJob>,
}

impl RemoteJob {
    pub fn inner(&self) -> PyResult<Arc<lancemem_flight::RemoteJob>> {
        self.inner.get("remote job").cloned()
    }
}

/// Serves `job`.
pub fn serve(
    py: Python<'_>,
    job: Arc<lancemem::Job>,
    (address, token, tls): (&str, Option<String>, Option<(FilePath, FilePath)>),
    (max_streams, stall_timeout): (usize, Option<Duration>),
) -> PyResult<Endpoint> {
    let usual = ServeOptions::default();
    let stall_timeout = stall_timeout.unwrap_or(usual.stall_timeout);
    let options = usual
        .with_address(address)
        .with_token(token.map(Token::new).transpose().map_err(|error| to_py(&error))?)
        .with_tls(tls.map(|(certificate, key)| Tls::new(certificate.0, key.0)))
        .with_max_streams(max_streams)
        .with_stall_timeout(stall_timeout);
    let endpoint = run(py, async move { lancemem_flight::serve(&job, options).await })?;
    Ok(Endpoint { inner: Here::new(endpoint) })
}

#[pymethods]
impl Endpoint {
    #[doc = docstring!("Endpoint.location")]
    #[getter]
    fn location(&self) -> &str {
        self.inner.peek().location()
    }

    #[doc = docstring!("Endpoint.token")]
    #[getter]
    fn token(&self) -> &str {
        self.inner.peek().token().reveal()
    }

    #[doc = docstring!("Endpoint.close")]
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let endpoint = self.inner.get("endpoint")?.clone();
        run(py, async move {
            endpoint.close().await;
            Ok(())
        })
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (error_type=None, error=None, traceback=None))]
    fn __exit__(
        &self,
        py: Python<'_>,
        error_type: Option<&Bound<'_, PyAny>>,
        error: Option<&Bound<'_, PyAny>>,
        traceback: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<bool> {
        let _ = (error_type, error, traceback);
        self.close(py)?;
        Ok(false)
    }

    fn __repr__(&self) -> String {
        format!("Endpoint({:?})", self.inner.peek().location())
    }
}

#[pymethods]
impl RemoteJob {
    #[getter]
    fn location(&self) -> &str {
        self.inner.peek().location()
    }

    #[getter]
    fn shard_id(&self) -> String {
        self.inner.peek().shard_id().to_string()
    }

    fn __repr__(&self) -> String {
        format!(
            "RemoteJob({:?}, shard_id={})",
            self.inner.peek().location(),
            self.inner.peek().shard_id()
        )
    }
}

#[doc = docstring!("connect_job")]
#[pyfunction]
#[pyo3(signature = (location, token, tls_root_certificates=None))]
fn connect_job(
    py: Python<'_>,
    location: &str,
    token: String,
    tls_root_certificates: Option<FilePath>,
) -> PyResult<RemoteJob> {
    let token = Token::new(token).map_err(|error| to_py(&error))?;
    let certificates = tls_root_certificates.map(|path| path.0);
    let job = run(py, lancemem_flight::RemoteJob::connect(location, &token, certificates))?;
    Ok(RemoteJob { inner: Here::new(job) })
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Endpoint>()?;
    module.add_class::<RemoteJob>()?;
    module.add_function(wrap_pyfunction!(connect_job, module)?)
}
