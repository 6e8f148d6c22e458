//! The endpoint: the socket on which a job serves its rows.
//!
//! Owns: binding, the check of the token before every call, and the end: with the job, or earlier.
//! Does not own: the answers of calls (`service`), certificates (`tls`), or the limit on connections
//! (`connection_limit`).

use std::fmt;
use std::future::pending;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use arrow_flight::flight_service_server::FlightServiceServer;
use async_recursion::async_recursion as boxed;
use futures::FutureExt;
use lancemem::Job;
use lancemem_core::types::{Error, Result};
use tokio::net::TcpListener;
use tokio::sync::{Mutex, Semaphore, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Server;
use tonic::{Request, Status};

use crate::address::Address;
use crate::bounded::end_of;
use crate::connection_limit::{Connections, Standing, accepted};
use crate::service::{JobService, Limits, refuse_large_lists};
use crate::tls::Tls;
use crate::token::Token;

/// Bytes of the largest request: a ticket that names every MemTable of a job.
const REQUEST_BYTES: usize = 4 << 20;
/// Calls of one connection at a time; `max_streams` bounds the reads of all connections beside
/// that.
const CALLS: u32 = 64;
/// How long a connection may be silent before a keep-alive ping is sent.
const SILENCE: Duration = Duration::from_secs(30);
/// How long a connection may take to answer a ping.
const PATIENCE: Duration = Duration::from_secs(10);
/// The default of `stall_timeout`.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);
/// How long calls may take to end once the endpoint ends.
const GRACE: Duration = Duration::from_secs(2);

/// How a job is served.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServeOptions {
    /// The address, `grpc://host:port`; port 0 takes a free port.
    pub address: String,
    /// The token that every call must carry; `None` generates one.
    pub token: Option<Token>,
    /// The certificate. Without TLS rows and token travel unencrypted.
    pub tls: Option<Tls>,
    /// Reads at a time.
    pub max_streams: usize,
    /// How long a reader may take no message before its read ends. A read keeps rows in the job's
    /// memory.
    pub stall_timeout: Duration,
}

impl Default for ServeOptions {
    /// On the loopback interface, for processes of the same machine.
    fn default() -> Self {
        let address = "grpc://127.0.0.1:0".to_owned();
        Self { address, token: None, tls: None, max_streams: 16, stall_timeout: STALL_TIMEOUT }
    }
}

impl ServeOptions {
    /// Sets [`Self::address`].
    #[must_use]
    pub fn with_address(self, address: impl Into<String>) -> Self {
        Self { address: address.into(), ..self }
    }

    /// Sets [`Self::token`].
    #[must_use]
    pub fn with_token(self, token: impl Into<Option<Token>>) -> Self {
        Self { token: token.into(), ..self }
    }

    /// Sets [`Self::tls`].
    #[must_use]
    pub fn with_tls(self, tls: impl Into<Option<Tls>>) -> Self {
        Self { tls: tls.into(), ..self }
    }

    /// Sets [`Self::max_streams`].
    #[must_use]
    pub fn with_max_streams(self, max_streams: usize) -> Self {
        Self { max_streams, ..self }
    }

    /// Sets [`Self::stall_timeout`].
    #[must_use]
    pub fn with_stall_timeout(self, stall_timeout: Duration) -> Self {
        Self { stall_timeout, ..self }
    }
}

/// A job's endpoint. It ends with the job, and with [`Endpoint::close`].
pub struct Endpoint {
    location: String,
    token: Token,
    stop: Arc<watch::Sender<bool>>,
    server: Mutex<Option<JoinHandle<()>>>,
}

/// Serves the rows in a job's memory to other processes.
///
/// # Errors
/// An input error for an address that cannot be bound, a certificate that cannot be used, or
/// columns that cannot be sent; an error where the job is closed or stopped.
#[boxed]
pub async fn serve(job: &Arc<Job>, options: ServeOptions) -> Result<Endpoint> {
    let has_ended = *job.ended().borrow();
    if has_ended {
        return Err(Error::Closed { shard: job.shard_id() });
    }
    job.check_running()?;
    refuse_large_lists(job.row_schema().storage())?;
    let asked = Address::parse(&options.address)?;
    if asked.tls && options.tls.is_none() {
        return Err(Error::input("a grpc+tls address needs a certificate and its key: pass tls"));
    }
    if !(1..=Semaphore::MAX_PERMITS).contains(&options.max_streams) {
        return Err(Error::input(format!(
            "max_streams must be between 1 and {}, got {}",
            Semaphore::MAX_PERMITS,
            options.max_streams
        )));
    }
    if options.stall_timeout.is_zero() {
        return Err(Error::input("stall_timeout must be at least 1 ms, got 0"));
    }
    let builder = Server::builder()
        .http2_keepalive_interval(Some(SILENCE))
        .http2_keepalive_timeout(Some(PATIENCE))
        .max_concurrent_streams(CALLS);
    let mut builder = match &options.tls {
        Some(tls) => {
            builder.tls_config(tls.server_config().await?).map_err(|error| tls.refused(&error))?
        }
        None => builder,
    };
    let unbound =
        |error: io::Error| Error::input(format!("'{}' cannot be bound: {error}", options.address));
    let listener = TcpListener::bind(&asked.authority).await.map_err(unbound)?;
    let bound = listener.local_addr().map_err(unbound)?;
    let address = Address { tls: options.tls.is_some(), authority: bound.to_string() };
    let location = address.location();
    if !bound.ip().is_loopback() && !address.tls {
        tracing::warn!(shard = %job.shard_id(), %location, "rows and token are not encrypted: no TLS");
    }

    let token = options.token.unwrap_or_else(Token::generate);
    let stop = Arc::new(watch::Sender::new(false));
    let limits = Limits { streams: options.max_streams, stall: options.stall_timeout };
    let service = JobService::new(Arc::downgrade(job), &limits, stop.subscribe());
    let service = FlightServiceServer::new(service).max_decoding_message_size(REQUEST_BYTES);
    let service = InterceptedService::new(service, guard(token.clone()));
    let connections = Arc::new(Connections::default());
    let incoming = Box::pin(accepted(listener, connections.clone()));
    let end = end(job.ended(), stop.clone());
    let running =
        builder.add_service(service).serve_with_incoming_shutdown(incoming, Box::pin(end));
    let shard_id = job.shard_id();
    let closing = close_connections(stop.subscribe(), connections);
    let closing = closing.then(|()| pending());
    let server = tokio::spawn(async move {
        let done = tokio::select! {
            done = running => done,
            done = closing => done,
        };
        if let Err(error) = done {
            tracing::error!(shard = %shard_id, %error, "the endpoint of the job failed");
        }
    });
    tracing::info!(shard = %shard_id, %location, "the job is served");
    Ok(Endpoint { location, token, stop, server: Mutex::new(Some(server)) })
}

impl Endpoint {
    /// The location at which readers connect to the job.
    #[must_use]
    pub fn location(&self) -> &str {
        &self.location
    }

    /// The token that every call must carry.
    #[must_use]
    pub const fn token(&self) -> &Token {
        &self.token
    }

    /// Ends the endpoint. Running reads fail. When this returns, the endpoint no longer listens.
    #[boxed]
    pub async fn close(&self) {
        self.stop.send_replace(true);
        // The handle stays in its place until the server has ended: if this call is cancelled, the
        // next one still waits for the server. The lock makes a concurrent call wait too.
        let mut place = self.server.lock().await;
        let Some(server) = place.as_mut() else { return };
        if timeout(2 * GRACE, &mut *server).await.is_err() {
            server.abort();
            let _ = server.await;
        }
        *place = None;
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").field("location", &self.location).finish_non_exhaustive()
    }
}

/// Returns when the job or the endpoint ends, after notifying the reads.
async fn end(mut job: watch::Receiver<bool>, stop: Arc<watch::Sender<bool>>) {
    let mut stopped = stop.subscribe();
    tokio::select! {
        () = end_of(&mut job) => {}
        () = end_of(&mut stopped) => {}
    }
    stop.send_replace(true);
}

/// Closes connections once the endpoint ends: strangers at once, the others after [`GRACE`]. Calls
/// do not always end by themselves, because the other end may never read its messages.
async fn close_connections(mut stop: watch::Receiver<bool>, connections: Arc<Connections>) {
    end_of(&mut stop).await;
    connections.close_strangers();
    #[expect(clippy::disallowed_methods, reason = "the pause is the point")]
    tokio::time::sleep(GRACE).await;
    connections.close_all();
}

/// Rejects every call without the token.
fn guard(token: Token) -> impl Fn(Request<()>) -> Result<Request<()>, Status> + Clone {
    move |request| {
        if token.is_carried_by(request.metadata()) {
            Standing::make_known(request.extensions());
            return Ok(request);
        }
        Err(Status::unauthenticated("the call does not carry the endpoint's bearer token"))
    }
}
