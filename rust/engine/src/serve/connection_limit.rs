//! Connections of an endpoint, and those over which no call with the token has come yet.
//!
//! Owns: how many strangers there may be, for how long, and closing connections, whatever their other
//! ends do: each costs the writer's process a handle, which its log needs too.
//! Does not own: what a token is (`token`), or when an endpoint ends.

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
/// How long a connection may be a stranger's: it shakes hands and sends its first call.
const PATIENCE: Duration = Duration::from_secs(10);
/// Before another try to take a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(500);

/// Whose a connection is, and whether it has to end.
#[derive(Debug)]
struct State {
    is_stranger: AtomicBool,
    is_closed: AtomicBool,
    /// Of the task that reads and writes.
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
pub(super) struct Connections(Mutex<VecDeque<Weak<State>>>);

impl Connections {
    /// One more, of which nothing is known.
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

    /// Ends those that have shown no token.
    pub(super) fn close_strangers(&self) {
        let open = self.0.lock();
        let open = open.iter().filter_map(Weak::upgrade);
        open.filter(|state| state.is_stranger()).for_each(|state| state.close());
    }

    /// Ends all, in the middle of a call too.
    pub(super) fn close_all(&self) {
        self.0.lock().iter().filter_map(Weak::upgrade).for_each(|state| state.close());
    }
}

/// A connection as its calls know it.
#[derive(Clone, Debug)]
pub(super) struct Standing(Arc<State>);

impl Standing {
    /// Notes that a call with the token has come over the connection with these extensions.
    pub(super) fn make_known(extensions: &Extensions) {
        let tls = || extensions.get::<TlsConnectInfo<Self>>().map(TlsConnectInfo::get_ref);
        if let Some(standing) = extensions.get::<Self>().or_else(tls) {
            standing.0.is_stranger.store(false, Ordering::Release);
        }
    }
}

/// A connection that fails whoever reads or writes once it has to end.
pub(super) struct Connection {
    inner: TcpStream,
    standing: Standing,
    deadline: Pin<Box<Sleep>>,
}

impl Connection {
    /// Asked before each read and write: one that waits for the other end is woken for it.
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

/// Connections as they come.
pub(super) fn accepted(
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
