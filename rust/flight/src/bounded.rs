//! A read of an endpoint, which holds its rows for a bounded time.
//!
//! Owns: the end of a read: after its last message, with the job or the endpoint, or because its
//! reader does not take the next message in time.
//! Does not own: the rows of a read (`service`).
//!
//! When a reader stops reading, the flow control of its connection stops too. The stream is then
//! not polled any more and cannot end itself, so a separate task frees its rows. The reader gets
//! the error when it continues to read.

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
pub(crate) type Messages = BoxStream<'static, Result<FlightData, Status>>;

/// What a read holds between two messages: its rows, and one of the `max_streams` permits.
struct Held {
    messages: Messages,
    _permit: OwnedSemaphorePermit,
}

/// Shared between the read and the task that frees it; empty while a message is made, and after the
/// end.
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
pub(crate) fn bounded(
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

/// Frees the rows and the permit of a read whose reader took no message for `stall`. Ends with the
/// read.
async fn free_stalled(slot: Weak<Slot>, mut seen: watch::Receiver<()>, stall: Duration) {
    loop {
        match timeout(stall, seen.changed()).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return,
            Err(_) => {
                // The slot is empty while the next message is made: such a read is not stalled.
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
pub(crate) async fn end_of(ended: &mut watch::Receiver<bool>) {
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
    async fn a_read_that_stalls_frees_its_permit_and_then_ends_with_the_reason() {
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
