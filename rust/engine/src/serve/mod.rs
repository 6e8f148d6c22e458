//! A running job's rows for other processes, over Arrow Flight.
//!
//! Owns: the endpoint that a job offers, who may read it, what travels, and the job as a reader
//! elsewhere holds it.
//! Does not own: the cut, which is the job's own snapshot, or the read over it (`table`).
//!
//! Reading order: `wire` (what is asked and answered), `token`, `address`, `latest`, `bounded`,
//! `service`, `connection_limit`, `endpoint`, then `remote`, the other end.

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

/// Chooses who does TLS's cryptography: the tree has two of them, for gRPC and for object stores,
/// and rustls asks for a choice. One that the program made before stays.
fn choose_cryptography() {
    drop(rustls::crypto::ring::default_provider().install_default());
}
