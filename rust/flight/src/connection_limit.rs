//! The connections of an endpoint, and the limit on those that are not authenticated.
//!
//! Owns: how many connections without a valid token there may be, for how long, and closing
//! connections whatever their other ends do. Each costs the writer's process a file handle, and its
//! log needs handles too.
//! Does not own: tokens (`token`), or when an endpoint ends.
//!
//! A connection is a *stranger* until the first call with the token has come over it.
//!
//! The limits of tonic and tower do not suffice. Their timeouts and concurrency limits count calls,
//! and a stranger makes none; `max_connection_age` would end the reads of authenticated connections
//! too; and no setting bounds the number of connections, or ends a connection whose call goes on
//! after the endpoint has ended.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::stream::{self, Stream};
use futures::task::AtomicWaker;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Sleep;
use tonic::Extensions;
use tonic::transport::server::{Connected, TlsConnectInfo};

/// Strangers at a time; one more closes the oldest.
const STRANGERS: usize = 64;
/// How long a connection may be a stranger: the time for its handshake and its first call.
const PATIENCE: Duration = Duration::from_secs(10);
/// The pause after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(500);

/// Whether a connection is authenticated, and whether it has to end.
#[derive(Debug)]
struct State {
    is_stranger: AtomicBool,
    is_closed: AtomicBool,
    /// Wakes the task that reads and writes.
    task: AtomicWaker,
}

impl State {
    fn is_stranger(&self) -> bool {
        self.is_stranger.load(Ordering::Acquire)
    }

    fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        self.task.wake();
    }
}

/// The connections that are open, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Connections(Mutex<VecDeque<Weak<State>>>);

impl Connections {
    /// Adds a new connection, a stranger.
    fn admit(&self) -> Standing {
        let state = Arc::new(State {
            is_stranger: AtomicBool::new(true),
            is_closed: AtomicBool::new(false),
            task: AtomicWaker::new(),
        });
        let mut open = self.0.lock();
        open.retain(|state| state.strong_count() > 0);
        let mut strangers: Vec<Arc<State>> = open.iter().filter_map(Weak::upgrade).collect();
        strangers.retain(|state| state.is_stranger() && !state.is_closed.load(Ordering::Acquire));
        let too_many = (strangers.len() + 1).saturating_sub(STRANGERS);
        strangers.iter().take(too_many).for_each(|oldest| oldest.close());
        open.push_back(Arc::downgrade(&state));
        Standing(state)
    }

    /// Closes the strangers.
    pub(crate) fn close_strangers(&self) {
        let open = self.0.lock();
        let open = open.iter().filter_map(Weak::upgrade);
        open.filter(|state| state.is_stranger()).for_each(|state| state.close());
    }

    /// Closes all connections, in the middle of a call too.
    pub(crate) fn close_all(&self) {
        self.0.lock().iter().filter_map(Weak::upgrade).for_each(|state| state.close());
    }
}

/// The state of a connection, for its calls.
#[derive(Clone, Debug)]
pub(crate) struct Standing(Arc<State>);

impl Standing {
    /// Records that a call with the token has come over the connection with these extensions.
    pub(crate) fn make_known(extensions: &Extensions) {
        let tls = || extensions.get::<TlsConnectInfo<Self>>().map(TlsConnectInfo::get_ref);
        if let Some(standing) = extensions.get::<Self>().or_else(tls) {
            standing.0.is_stranger.store(false, Ordering::Release);
        }
    }
}

/// A connection whose reads and writes fail once it has to end.
pub(crate) struct Connection {
    inner: TcpStream,
    standing: Standing,
    deadline: Pin<Box<Sleep>>,
}

impl Connection {
    /// Called before each read and write. [`State::close`] wakes a task that waits for the other
    /// end, so that it gets here.
    fn refuse_closed(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        let state = &self.standing.0;
        state.task.register(context.waker());
        let is_late = state.is_stranger() && self.deadline.as_mut().poll(context).is_ready();
        if is_late || state.is_closed.load(Ordering::Acquire) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(())
    }
}

/// The stream of accepted connections.
pub(crate) fn accepted(
    listener: TcpListener,
    connections: Arc<Connections>,
) -> impl Stream<Item = io::Result<Connection>> + Send {
    stream::unfold((listener, connections), |(listener, connections)| async {
        let inner = accept(&listener).await;
        let standing = connections.admit();
        #[expect(clippy::disallowed_methods, reason = "polled beside the connection")]
        let deadline = Box::pin(tokio::time::sleep(PATIENCE));
        Some((Ok(Connection { inner, standing, deadline }), (listener, connections)))
    })
}

async fn accept(listener: &TcpListener) -> TcpStream {
    let mut is_failing = false;
    loop {
        match listener.accept().await {
            Ok((connection, _)) if connection.set_nodelay(true).is_ok() => return connection,
            Ok(_) => continue,
            Err(error) if is_of_caller(&error) => continue,
            // The process has no handle left, for example. A retry without a pause, as in tonic's
            // own loop, would spin.
            Err(error) if !is_failing => {
                tracing::warn!(%error, "the endpoint cannot accept a connection, and retries");
                is_failing = true;
            }
            Err(_) => {}
        }
        #[expect(clippy::disallowed_methods, reason = "the pause is the point")]
        tokio::time::sleep(ACCEPT_PAUSE).await;
    }
}

/// Whether the other end gave the connection up before it was accepted.
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
        self.refuse_closed(context)?;
        Pin::new(&mut self.inner).poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.refuse_closed(context)?;
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.refuse_closed(context)?;
        Pin::new(&mut self.inner).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.refuse_closed(context)?;
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.refuse_closed(context)?;
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}
