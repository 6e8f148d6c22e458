//! A read of an endpoint that keeps rows for a bounded time.
//!
//! Owns: how a read ends: with its last message, with the job or the endpoint, or because its reader
//! does not take the next message in time.
//! Does not own: what is read (`service`).
//!
//! A reader that stops reading stops the connection's flow control too, so the stream is not polled any
//! more and cannot end itself: a task beside it frees what it holds. The reader learns of it once it
//! reads on.

use std::sync::{Arc, Weak};
use std::time::Duration;

use arrow_flight::FlightData;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::timeout;
use tonic::Status;

/// The messages of a read.
pub(super) type Messages = BoxStream<'static, Result<FlightData, Status>>;

/// What a read holds between two messages: rows, and one of the endpoint's places.
struct Held {
    messages: Messages,
    _permit: OwnedSemaphorePermit,
}

/// Where the read and its watch find that; empty while a message is made, and after the end.
type Slot = Mutex<Option<Held>>;

/// A read between two messages.
struct Read {
    slot: Arc<Slot>,
    /// A message was asked for, or taken.
    progress: watch::Sender<()>,
    ended: watch::Receiver<bool>,
    stall: Duration,
}

/// `messages` until `ended` is true, or until its reader leaves one untaken for `stall`.
pub(super) fn bounded(
    messages: Messages,
    permit: OwnedSemaphorePermit,
    ended: watch::Receiver<bool>,
    stall: Duration,
) -> Messages {
    let slot = Arc::new(Slot::new(Some(Held { messages, _permit: permit })));
    let (progress, seen) = watch::channel(());
    tokio::spawn(free_stalled(Arc::downgrade(&slot), seen, stall));
    let read = Read { slot, progress, ended, stall };
    stream::unfold(Some(read), |read| async move {
        let mut read = read?;
        match read.next().await? {
            Ok(message) => Some((Ok(message), Some(read))),
            Err(status) => Some((Err(status), None)),
        }
    })
    .boxed()
}

impl Read {
    async fn next(&mut self) -> Option<Result<FlightData, Status>> {
        let held = self.slot.lock().take();
        let Some(mut held) = held else { return Some(Err(stalled(self.stall))) };
        let next = tokio::select! {
            biased;
            () = end_of(&mut self.ended) => {
                Err(Status::failed_precondition("the job ended while it was read"))
            }
            next = held.messages.next() => next?,
        };
        if next.is_ok() {
            *self.slot.lock() = Some(held);
            self.progress.send_replace(());
        }
        Some(next)
    }
}

/// Frees what a read holds once nothing was taken of it for `stall`. Ends with the read.
async fn free_stalled(slot: Weak<Slot>, mut seen: watch::Receiver<()>, stall: Duration) {
    loop {
        match timeout(stall, seen.changed()).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return,
            Err(_) => {
                // None: the next message is being made.
                let held = slot.upgrade().and_then(|slot| slot.lock().take());
                if held.is_some() {
                    tracing::warn!(
                        ?stall,
                        "a reader of the job stopped reading: its read was ended"
                    );
                    return;
                }
            }
        }
    }
}

/// Returns when `ended` is true, or when its sender is gone.
pub(super) async fn end_of(ended: &mut watch::Receiver<bool>) {
    let _ = ended.wait_for(|ended| *ended).await;
}

fn stalled(stall: Duration) -> Status {
    Status::deadline_exceeded(format!(
        "the reader took no message for {} ms (stall_timeout), so the endpoint ended the read; read \
         again without a pause, or serve the job with a longer stall_timeout",
        stall.as_millis()
    ))
}

#[cfg(test)]
mod tests {
    use tokio::sync::Semaphore;
    use tonic::Code;

    use super::*;

    fn messages() -> Messages {
        stream::repeat_with(|| Ok(FlightData::default())).take(4).boxed()
    }

    #[tokio::test]
    async fn a_read_that_goes_on_in_time_reaches_its_end() {
        let places = Arc::new(Semaphore::new(1));
        let permit = places.clone().acquire_owned().await.unwrap();
        let (_ends, ended) = watch::channel(false);
        let mut read = bounded(messages(), permit, ended, Duration::from_hours(1));
        for _ in 0..4 {
            assert!(read.next().await.unwrap().is_ok());
        }
        assert_eq!(places.available_permits(), 0);
        assert!(read.next().await.is_none());
        assert_eq!(places.available_permits(), 1);
    }

    #[tokio::test]
    async fn a_read_that_stalls_frees_its_place_and_then_ends_with_the_reason() {
        let places = Arc::new(Semaphore::new(1));
        let permit = places.clone().acquire_owned().await.unwrap();
        let (_ends, ended) = watch::channel(false);
        let mut read = bounded(messages(), permit, ended, Duration::from_millis(1));
        assert!(read.next().await.unwrap().is_ok());
        drop(places.acquire().await.unwrap());
        let refused = read.next().await.unwrap().unwrap_err();
        assert_eq!(refused.code(), Code::DeadlineExceeded);
        assert!(refused.message().contains("took no message for 1 ms"), "{}", refused.message());
        assert!(read.next().await.is_none());
    }

    #[tokio::test]
    async fn a_read_ends_with_its_job() {
        let places = Arc::new(Semaphore::new(1));
        let permit = places.clone().acquire_owned().await.unwrap();
        let (ends, ended) = watch::channel(false);
        let mut read = bounded(messages(), permit, ended, Duration::from_hours(1));
        assert!(read.next().await.unwrap().is_ok());
        ends.send_replace(true);
        let refused = read.next().await.unwrap().unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition);
        assert!(read.next().await.is_none());
        assert_eq!(places.available_permits(), 1);
    }
}
