//! Calls of the engine on the thread that asked for them.
//!
//! Owns: the wait of a call, which ends where the host interrupts it; panics of the call as errors.
//! Does not own: signals, log handlers and locks of the language, which the [`Host`] knows.

use std::panic::{AssertUnwindSafe, resume_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use futures::FutureExt;
use lancemem::waiting_here;
use tokio::runtime::Runtime;
use tokio::sync::Notify;

use crate::error::Error;
use crate::panics::panicked;
use crate::runtime::runtime;
use crate::stack::{STACK, with_room};

/// How often a waiting call looks for signals, such as Ctrl-C, and forwards log lines.
const TURN: Duration = Duration::from_millis(100);

/// The language that makes a call, on the thread of the call. All methods are called on that
/// thread, except [`Host::is_ending`].
pub trait Host {
    /// The error of the language.
    type Error;

    /// Runs `part` on this thread without the lock of the language, which other threads may need.
    fn detached<T: Send>(&self, part: impl FnOnce() -> T + Send) -> T;

    /// Passes on the queued log lines (`log_lines`), before each turn of the wait and before its
    /// end.
    ///
    /// # Errors
    /// What ends the call.
    fn forward_log_lines(&self) -> Result<(), Self::Error>;

    /// Runs the handlers of pending signals. Work of the call continues meanwhile: a handler may
    /// make a call itself, and wait for a lock of that work.
    ///
    /// # Errors
    /// What ends the call, such as Ctrl-C.
    fn check_signals(&self) -> Result<(), Self::Error>;

    /// Whether another thread ends the process. The work is then polled to its end, because it
    /// would otherwise keep its locks. Called without the lock of the language.
    fn is_ending() -> bool;

    /// The error of the language for `error`.
    fn error(error: Error) -> Self::Error;
}

/// Runs `work` to its end without the lock of the language. The calling thread blocks anyway, so
/// `work` may block it on a local disk.
///
/// The wait is interruptible: a signal whose handler fails, such as Ctrl-C, ends it. The work is
/// then cancelled, so a put may or may not have been written.
///
/// # Errors
/// Those of `work` and of the host; [`Error::Engine`] where `work` panics.
pub fn run<H: Host, T: Send>(
    host: &H,
    work: impl Future<Output = lancemem::Result<T>> + Send,
) -> Result<T, H::Error> {
    let runtime = runtime().map_err(H::error)?;
    let mut work = Box::pin(AssertUnwindSafe(work).catch_unwind().map(without_panic));
    let mut done = here(host, || poll_once(&runtime, work.as_mut()))?;
    loop {
        host.forward_log_lines()?;
        if let Some(done) = done {
            return done.map_err(|error| H::error(Error::Engine(error)));
        }
        done = here(host, || waiting_here(|| runtime.block_on(turn::<H, _>(work.as_mut()))))?;
        if done.is_none() {
            done = check_signals(host, &runtime, work.as_mut())?;
        }
    }
}

/// Runs a part of the work without the lock of the language, on the calling thread if its stack is
/// large enough.
fn here<H: Host, T: Send>(host: &H, part: impl FnOnce() -> T + Send) -> Result<T, H::Error> {
    host.detached(|| with_room(part)).map_err(|error| H::error(Error::SmallStack(error)))
}

/// The result of work; a panic becomes an error.
fn without_panic<T>(done: thread::Result<lancemem::Result<T>>) -> lancemem::Result<T> {
    done.unwrap_or_else(|panic| Err(panicked(&*panic)))
}

/// Polls `work` for one turn; to its end where the process ends.
async fn turn<H: Host, T>(mut work: Pin<&mut impl Future<Output = T>>) -> Option<T> {
    loop {
        let done = tokio::time::timeout(TURN, work.as_mut()).await.ok();
        if done.is_some() || !H::is_ending() {
            return done;
        }
    }
}

/// Runs the handlers of pending signals, and `work` concurrently.
fn check_signals<H: Host, T: Send>(
    host: &H,
    runtime: &Runtime,
    work: Pin<&mut (impl Future<Output = T> + Send)>,
) -> Result<Option<T>, H::Error> {
    let stop = Notify::new();
    let beside = async {
        tokio::select! {
            biased;
            () = stop.notified() => None,
            done = work => Some(done),
        }
    };
    thread::scope(|scope| {
        let beside = thread::Builder::new()
            .name("lancemem".to_owned())
            .stack_size(STACK)
            .spawn_scoped(scope, || waiting_here(|| runtime.block_on(beside)));
        let handled = host.check_signals();
        stop.notify_one();
        // If no thread could be started, `work` continues in its next turn.
        let done = beside.map(|beside| host.detached(|| beside.join()));
        handled?;
        match done {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(panic)) => resume_unwind(panic),
            Err(_) => Ok(None),
        }
    })
}

/// Polls `work` once. Most puts are ready at the first poll and need no blocking wait on the
/// runtime.
fn poll_once<T>(runtime: &Runtime, work: Pin<&mut impl Future<Output = T>>) -> Option<T> {
    let _context = runtime.enter();
    let mut unwoken = Context::from_waker(Waker::noop());
    match waiting_here(|| work.poll(&mut unwoken)) {
        Poll::Ready(done) => Some(done),
        Poll::Pending => None,
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::Arc;

    use super::*;

    /// A host whose signal handler sends `signal`, or fails.
    #[derive(Default)]
    struct Program {
        signal: Option<Arc<Notify>>,
        is_interrupted: bool,
        turns: Cell<usize>,
        signals: Cell<usize>,
    }

    impl Host for Program {
        type Error = String;

        fn detached<T: Send>(&self, part: impl FnOnce() -> T + Send) -> T {
            part()
        }

        fn forward_log_lines(&self) -> Result<(), String> {
            self.turns.set(self.turns.get() + 1);
            Ok(())
        }

        fn check_signals(&self) -> Result<(), String> {
            self.signals.set(self.signals.get() + 1);
            if let Some(signal) = &self.signal {
                signal.notify_one();
            }
            if self.is_interrupted { Err("interrupted".to_owned()) } else { Ok(()) }
        }

        fn is_ending() -> bool {
            false
        }

        fn error(error: Error) -> String {
            error.to_string()
        }
    }

    fn broken_page() -> lancemem::Result<()> {
        panic!("page 7")
    }

    #[test]
    fn work_that_is_ready_takes_no_turn() {
        let program = Program::default();
        assert_eq!(run(&program, async { Ok(7) }), Ok(7));
        assert_eq!((program.turns.get(), program.signals.get()), (1, 0));
    }

    #[test]
    fn an_error_and_a_panic_of_work_are_errors_of_the_host() {
        let program = Program::default();
        let refused = run(&program, async { Err::<(), _>(lancemem::Error::input("no rows")) });
        assert_eq!(refused, Err("no rows".to_owned()));
        let broken = run(&program, async { broken_page() });
        assert!(broken.is_err_and(|error| error.contains("panic: page 7;")));
    }

    #[test]
    fn work_that_waits_for_a_handler_of_a_signal_ends() {
        let signal = Arc::new(Notify::new());
        let program = Program { signal: Some(signal.clone()), ..Program::default() };
        let work = async {
            signal.notified().await;
            Ok(7)
        };
        assert_eq!(run(&program, work), Ok(7));
        assert!(program.signals.get() > 0);
    }

    #[test]
    fn a_handler_that_fails_ends_the_wait_and_cancels_the_work() {
        let program = Program { is_interrupted: true, ..Program::default() };
        let held = Arc::new(());
        let of_work = held.clone();
        let work = async move {
            futures::future::pending::<()>().await;
            drop(of_work);
            Ok(())
        };
        assert_eq!(run(&program, work), Err("interrupted".to_owned()));
        assert_eq!(Arc::strong_count(&held), 1, "the work is dropped");
    }
}
