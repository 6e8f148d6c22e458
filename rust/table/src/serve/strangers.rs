//! Connections over which no call with the token has come yet.
//!
//! Owns: how many there may be, for how long, and closing those that stay strangers: each costs the
//! writer's process a handle, which its log needs too.
//! Does not own: what a token is (`token`), or connections of those who have it.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::stream::{self, Stream};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Sleep;
use tonic::Extensions;
use tonic::transport::server::{Connected, TlsConnectInfo};

/// Strangers at a time; more are not accepted before one shows the token or is closed.
const STRANGERS: usize = 64;
/// How long a connection may be a stranger's: it shakes hands and sends its first call.
const PATIENCE: Duration = Duration::from_secs(10);
/// Before another try to take a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(500);

/// A connection, which fails its reader where it is a stranger's for too long.
pub(super) struct Connection {
    inner: TcpStream,
    standing: Standing,
    deadline: Pin<Box<Sleep>>,
}

/// Whose connection it is: a stranger's as long as the place is held.
#[derive(Clone, Debug)]
pub(super) struct Standing(Arc<Mutex<Option<OwnedSemaphorePermit>>>);

impl Standing {
    /// Notes that a call with the token has come over the connection with these extensions.
    pub(super) fn make_known(extensions: &Extensions) {
        let tls = || extensions.get::<TlsConnectInfo<Self>>().map(TlsConnectInfo::get_ref);
        if let Some(standing) = extensions.get::<Self>().or_else(tls) {
            standing.0.lock().take();
        }
    }

    fn is_stranger(&self) -> bool {
        self.0.lock().is_some()
    }
}

/// Connections as they come, as long as there are places for strangers.
pub(super) fn accepted(listener: TcpListener) -> impl Stream<Item = io::Result<Connection>> + Send {
    let places = Arc::new(Semaphore::new(STRANGERS));
    stream::unfold((listener, places), |(listener, places)| async {
        let place = places.clone().acquire_owned().await.ok()?;
        let inner = accept(&listener).await;
        #[expect(clippy::disallowed_methods, reason = "polled beside the connection")]
        let deadline = Box::pin(tokio::time::sleep(PATIENCE));
        let standing = Standing(Arc::new(Mutex::new(Some(place))));
        Some((Ok(Connection { inner, standing, deadline }), (listener, places)))
    })
}

async fn accept(listener: &TcpListener) -> TcpStream {
    let mut is_failing = false;
    loop {
        match listener.accept().await {
            Ok((connection, _)) if connection.set_nodelay(true).is_ok() => return connection,
            Ok(_) => continue,
            Err(error) if is_of_caller(&error) => continue,
            // Of handles, for which whoever asks again at once would spin.
            Err(error) if !is_failing => {
                tracing::warn!(%error, "the endpoint cannot take a connection, and goes on trying");
                is_failing = true;
            }
            Err(_) => {}
        }
        #[expect(clippy::disallowed_methods, reason = "the pause is the point")]
        tokio::time::sleep(ACCEPT_PAUSE).await;
    }
}

/// Whether it was the other end that gave a connection up before it was taken.
fn is_of_caller(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted)
}

impl Connected for Connection {
    type ConnectInfo = Standing;

    fn connect_info(&self) -> Standing {
        self.standing.clone()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.standing.is_stranger() && self.deadline.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Pin::new(&mut self.inner).poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}
