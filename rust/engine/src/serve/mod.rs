//! Serves the rows of a running job to other processes, over Arrow Flight.
//!
//! Owns: the endpoint of a job, its authentication, the wire format, and the remote job, which is
//! the reader's end.
//! Does not own: the snapshot, which the job takes itself, or the read over it (`table`).
//!
//! Reading order: `wire` (tickets and answers), `token`, `address`, `latest`, `bounded`, `service`,
//! `connection_limit`, `endpoint`, then `remote`, the other end.

mod address;
mod bounded;
mod connection_limit;
mod endpoint;
mod latest;
mod remote;
mod service;
mod token;
mod wire;

pub use endpoint::{Endpoint, ServeOptions, Tls, serve};
pub use remote::RemoteJob;
pub use token::Token;

/// Chooses the crypto provider of TLS. The dependencies bring two, for gRPC and for object stores,
/// and rustls requires a choice. A choice that the program made before stays.
fn choose_cryptography() {
    drop(rustls::crypto::ring::default_provider().install_default());
}
