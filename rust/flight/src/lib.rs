//! The rows of a running job for other processes, over Arrow Flight.
//!
//! Owns: the endpoint of a job, its authentication, the wire format, and the remote job, which is
//! the reader's end.
//! Does not own: the snapshot, which the job takes itself, or the read over it (`lancemem`).
//!
//! Reading order: `wire` (tickets and answers), `token`, `address`, `tls`, `latest`, `bounded`,
//! `service`, `connection_limit`, `endpoint`, then `remote`, the other end.
//!
//! ```no_run
//! use lancemem::{Consistency, MaintenanceConfig, Table, WriterConfig};
//! use lancemem_flight::{RemoteJob, ServeOptions, serve};
//!
//! # async fn example() -> lancemem::Result<()> {
//! let table = Table::open("/data/board.lance").await?;
//! let shard_id = table.shard_of(0).await?;
//! let (config, maintenance) = (WriterConfig::default(), MaintenanceConfig::default());
//! let job = table.start_job(shard_id, config, maintenance).await?;
//! let endpoint = serve(&job, ServeOptions::default()).await?;
//! let (location, token) = (endpoint.location(), endpoint.token());
//!
//! // In another process, which was given the location and the token.
//! let remote = RemoteJob::connect(location, token, None).await?;
//! let snapshot = table.snapshot(Consistency::Live, &[remote]).await?;
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]
#![recursion_limit = "256"]

mod address;
mod bounded;
mod connection_limit;
mod endpoint;
mod latest;
mod remote;
mod service;
mod tls;
mod token;
mod wire;

pub use endpoint::{Endpoint, ServeOptions, serve};
pub use remote::RemoteJob;
pub use tls::Tls;
pub use token::Token;
