//! TLS: the certificates of both ends.
//!
//! Owns: reading certificates and keys from PEM files, the settings of both ends, and the choice of
//! the crypto provider.
//! Does not own: which connections use TLS (`endpoint` and `remote`).

use std::path::{Path, PathBuf};
use std::time::Duration;

use lancemem_core::types::{Error, Result};
use tonic::transport::{Certificate, ClientTlsConfig, Identity, ServerTlsConfig};

/// How long a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// A certificate and its private key, as paths of PEM files.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Tls {
    /// The certificate, with its chain.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

impl Tls {
    /// The certificate and the key in these files.
    pub fn new(certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        Self { certificate: certificate.into(), key: key.into() }
    }

    /// The settings of an endpoint with this certificate.
    pub(crate) async fn server_config(&self) -> Result<ServerTlsConfig> {
        choose_cryptography();
        let (certificate, key) = (read(&self.certificate).await?, read(&self.key).await?);
        let identity = Identity::from_pem(certificate, key);
        Ok(ServerTlsConfig::new().identity(identity).timeout(HANDSHAKE))
    }

    /// The error of files that tonic cannot use.
    pub(crate) fn refused(&self, error: &tonic::transport::Error) -> Error {
        Error::input(format!(
            "'{}' and '{}' are not a certificate and its key in PEM form: {error}",
            self.certificate.display(),
            self.key.display()
        ))
    }
}

/// The settings of a reader, which accepts certificates that one in the PEM file `roots` has signed.
pub(crate) async fn client_config(roots: &Path) -> Result<ClientTlsConfig> {
    let roots = Certificate::from_pem(read(roots).await?);
    choose_cryptography();
    Ok(ClientTlsConfig::new().ca_certificate(roots))
}

/// Chooses the crypto provider of TLS. The dependencies bring two, for gRPC and for object stores,
/// and rustls requires a choice. A choice that the program made before stays.
fn choose_cryptography() {
    drop(rustls::crypto::ring::default_provider().install_default());
}

async fn read(path: &Path) -> Result<Vec<u8>> {
    tokio::fs::read(path)
        .await
        .map_err(|error| Error::input(format!("'{}' cannot be read: {error}", path.display())))
}
